//! Properties of whole batches: any objects, any entries, any faults, any client. A case that fails is shrunk and printed with
//! all its inputs; nothing else decides what happens.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use super::judge::Shape;
use super::scenes::{Scene, any_act, is_nowhere, key, numbers, retryable, scene, scripts};
use super::*;

fn fail(why: String) -> TestCaseError {
    TestCaseError::fail(why)
}

fn index(part: &Part) -> usize {
    part.index()
}

/// Order, cardinality and the arithmetic of the summary; the answer is whole.
fn counts(scene: &Scene, parts: &[Part], summary: Option<&Value>) -> Result<(), String> {
    let Scene { completion, on_error, summary: wants_summary, .. } = *scene;
    Shape { entries: scene.wanted.len(), completion, on_error, summary: wants_summary }.counts(parts, summary)
}

/// Every part is the lone read's. Returns which entries are there.
fn lone_parts(scene: &Scene, rig: &Rig, parts: &[Part]) -> Result<(), String> {
    let lone = scene.lone(rig);
    for part in parts {
        let wanted = &scene.wanted[index(part)];
        match &lone[index(part)] {
            Some(lone) => same_as_lone(part, wanted, lone)?,
            None => {
                is_error(part, wanted)?;
                let (status, code) = if is_nowhere(wanted) { (404, "NoSuchBucket") } else { (403, "AccessDenied") };
                if part.status != status || part.error("Code").as_deref() != Some(code) {
                    return Err(format!("{:?}: {} instead of {code}", part.id, part.status));
                }
            }
        }
    }
    Ok(())
}

/// Bounds that hold for every batch, whatever happens.
fn bounds(scene: &Scene, rig: &Rig) -> Result<(), String> {
    let numbers = scene.numbers;
    let peak = rig.store.waiting_peak();
    // The entry that is being written, if it streams, counts among them.
    if peak > numbers.permits.min(numbers.concurrency) {
        return Err(format!("{peak} reads at once"));
    }
    let ahead = rig.store.watched_peak();
    // One reservation may wait for the next fetch.
    if ahead > numbers.window_bytes + numbers.entry_bytes {
        return Err(format!("{ahead} bytes of a window of {}", numbers.window_bytes));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::with_cases(128) })]

    /// Invariants 1, 2, 6: with faults that trying again mends, every part is what the lone read of a healthy store gives.
    #[test]
    fn prop_parts_are_lone_reads_whatever_can_be_retried(
        mut scene in scene(true, 3600),
        scripts in scripts(retryable(), 0.0, 4),
    ) {
        scene.scripts = scripts;
        simulate(async {
            let rig = scene.rig();
            let answer = rig.run(&scene.request(), scene.client).await;
            let (parts, summary) = answer.whole()?;
            counts(&scene, &parts, summary.as_ref())?;
            lone_parts(&scene, &rig, &parts)?;
            let failed = |at: usize| scene.lone(&rig)[at].as_ref().is_none_or(|lone| lone.0.as_u16() >= 400);
            if scene.on_error == "Omit" {
                let there: Vec<_> = parts.iter().map(index).collect();
                if (0..scene.wanted.len()).any(|at| failed(at) == there.contains(&at)) {
                    return Err(format!("the wrong ones were omitted: {there:?}"));
                }
            }
            answer.keeps_secrets()?;
            bounds(&scene, &rig)?;
            rig.settled().await
        }).map_err(fail)?;
    }

    /// Invariants 2, 3, 4, 6, 8: whatever the store does, every part is right to the byte or an explicit error, or the message
    /// is broken and does not look whole; nothing of the store's world shows; everything is given back.
    #[test]
    fn prop_whatever_the_store_does_nothing_wrong_is_passed_off(
        mut scene in scene(false, 20),
        scripts in scripts(any_act(), 0.2, 6),
    ) {
        scene.scripts = scripts;
        simulate(async {
            let rig = scene.rig();
            let answer = rig.run(&scene.request(), scene.client).await;
            let parts = answer.parts()?;
            for part in &parts {
                right_or_error(&rig, part, &scene.wanted[index(part)])?;
            }
            if answer.ended == Ended::Cleanly {
                let (parts, summary) = answer.whole()?;
                counts(&scene, &parts, summary.as_ref())?;
            }
            answer.keeps_secrets()?;
            bounds(&scene, &rig)?;
            rig.settled().await
        }).map_err(fail)?;
    }

    /// Invariant 5: a client that goes away, at whatever octet and in whatever weather, leaves nothing taken.
    #[test]
    fn prop_a_client_that_leaves_releases_everything(
        mut scene in scene(false, 20),
        scripts in scripts(any_act(), 0.2, 3),
        after in prop_oneof![Just(0usize), 1..20_000usize, 60_000..200_000usize],
    ) {
        scene.scripts = scripts;
        scene.client = Client::Leave { after };
        simulate(async {
            let rig = scene.rig();
            let answer = rig.run(&scene.request(), scene.client).await;
            for part in &answer.parts()? {
                right_or_error(&rig, part, &scene.wanted[index(part)])?;
            }
            rig.settled().await
        }).map_err(fail)?;
    }

    /// A message that is cut anywhere is not whole: by the octets alone, without a word from HTTP.
    #[test]
    fn prop_a_cut_answer_never_looks_whole(mut scene in scene(true, 20), cut in any::<prop::sample::Index>()) {
        scene.client = Client::Eager;
        simulate(async {
            let rig = scene.rig();
            let answer = rig.run(&scene.request(), scene.client).await;
            let (parts, _) = answer.whole()?;
            let cut = cut.index(answer.octets.len());
            let octets = &answer.octets[..cut];
            if reader::whole(&answer.content_type, answer.count, octets).is_ok() {
                return Err(format!("{cut} of {} octets look whole", answer.octets.len()));
            }
            // What was whole before the cut is final.
            let reading = reader::read(&answer.content_type, octets)?;
            let same = reading.parts.iter().zip(&parts).all(|(a, b)| a.id != b.id || a.body == b.body);
            if same { Ok(()) } else { Err("another part before the cut".into()) }
        }).map_err(fail)?;
    }

    /// Invariant 3: a reader that takes nothing is read ahead for by no more than the window, the head, and the chunks on their
    /// way, however much there is to read.
    #[test]
    fn prop_a_stalled_reader_holds_no_more_than_its_window(
        lengths in prop::collection::vec(1000..9000usize, 60..100),
        mut numbers in numbers(20),
        completion: bool,
        frame_bytes in 100..600usize,
    ) {
        numbers.shared_bytes = 1 << 20;
        simulate(async {
            let otherwise = Step { frame_bytes, ..Step::of(Act::Healthy) };
            let rig = Rig::new(numbers, otherwise, 1);
            let wanted: Vec<_> = (0..lengths.len()).map(|at| Wanted::of(key(at + 10))).collect();
            for (wanted, length) in wanted.iter().zip(&lengths) {
                rig.store.put(&wanted.key, Object::of(*length));
            }
            let mut request = request(&wanted);
            request["Order"] = json!(if completion { "Completion" } else { "Request" });
            let response = rig.start(&request).await;
            sleep(Duration::from_secs(25)).await;
            let chunks = 2 * (super::super::driver::CHUNK_BYTES + frame_bytes);
            // Entries that wait for their turn drop what was left of their last frame; each fetch may be in one.
            let parked = lengths.len() * frame_bytes;
            let most = (numbers.window_bytes + numbers.entry_bytes) as usize + chunks + parked;
            let given = rig.store.given_bytes();
            if given > most {
                return Err(format!("{given} bytes were read for a reader that took none; at most {most} may be"));
            }
            if rig.backend.limiter.in_use() > 0 || rig.store.waiting() > 0 {
                return Err(format!("a stalled reader holds {} permits", rig.backend.limiter.in_use()));
            }
            let answer = Client::Eager.take(response, Instant::now()).await;
            for part in answer.whole()?.0 {
                let wanted = &wanted[index(&part)];
                same_as_lone(&part, wanted, &rig.store.lone(&wanted.ask()))?;
            }
            rig.settled().await
        }).map_err(fail)?;
    }

    /// Invariants 3, 5, 6: batches that share permits and bytes, some of whose readers stall for hours or leave: the others get
    /// theirs as if they were alone, and at the end nothing is taken.
    #[test]
    fn prop_no_reader_that_stalls_or_leaves_holds_up_another(
        mut scene in scene(true, 20),
        scripts in scripts(retryable(), 0.0, 3),
        shared_kib in prop::sample::select(vec![1u64, 3, 64]),
        clients in prop::collection::vec(prop_oneof![
            Just(Client::Eager),
            (0..20_000usize).prop_map(|after| Client::Stall { after, secs: 36_000 }),
            (0..100_000usize).prop_map(|after| Client::Leave { after }),
        ], 1..6),
    ) {
        scene.scripts = scripts;
        scene.numbers.shared_bytes = shared_kib * KIB;
        simulate(async {
            let rig = scene.rig();
            let request = scene.request();
            let answers = clients.iter().map(|client| rig.run(&request, *client));
            for (answer, client) in futures_util::future::join_all(answers).await.iter().zip(&clients) {
                let parts = answer.parts()?;
                for part in &parts {
                    right_or_error(&rig, part, &scene.wanted[index(part)])?;
                }
                if matches!(client, Client::Eager) && answer.took > Duration::from_secs(3600) {
                    return Err(format!("a reader that takes everything waited for {:?}", answer.took));
                }
                if answer.ended == Ended::Cleanly {
                    let (parts, summary) = answer.whole()?;
                    counts(&scene, &parts, summary.as_ref())?;
                }
            }
            if rig.store.waiting_peak() > scene.numbers.permits {
                return Err(format!("{} reads at once", rig.store.waiting_peak()));
            }
            rig.settled().await
        }).map_err(fail)?;
    }
}
