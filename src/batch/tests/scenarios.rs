//! Single stories of batches, each a sentence of the contract.

use std::sync::atomic::Ordering;

use super::*;
use crate::error::Kind;
use crate::stall::{BreakOff, Holds};

fn keys(rig: &Rig, count: usize, length: usize) -> Vec<Wanted> {
    let wanted: Vec<_> = (0..count).map(|at| Wanted::of(format!("k{at}"))).collect();
    for wanted in &wanted {
        rig.store.put(&wanted.key, Object::of(length));
    }
    wanted
}

fn with(mut request: Value, members: Value) -> Value {
    let members = members.as_object().expect("an object").clone();
    request.as_object_mut().expect("an object").extend(members);
    request
}

fn indices(parts: &[Part]) -> Vec<PartId> {
    parts.iter().map(|part| part.id).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_between_reads() {
    let rig = Rig::new(Numbers { concurrency: 1, ..Numbers::default() }, Step::of(Act::Healthy), 1);
    rig.store.put("k", Object::of(500));
    let twice = vec![Wanted::of("k"), Wanted::of("k")];
    rig.store.script("k", [Step::of(Act::Healthy), Step { changes: true, ..Step::of(Act::Healthy) }]);
    let (parts, _) = rig.run(&request(&twice), Client::Eager).await.whole().expect("whole");
    assert_eq!(parts[0].header("etag"), Some("\"generation-0\""));
    assert_eq!(parts[1].header("etag"), Some("\"generation-1\""), "the same batch sees the change");
    rig.store.change("k");
    let (parts, _) = rig.run(&request(&twice), Client::Eager).await.whole().expect("whole");
    for part in &parts {
        same_as_lone(part, &twice[0], &rig.store.lone(&twice[0].ask())).expect("the newest");
    }
    assert_eq!(rig.store.asked("k").len(), 4, "each entry is a read");
}

#[tokio::test(start_paused = true)]
async fn reads_are_as_many_as_allowed_and_halve_when_told() {
    let numbers = Numbers { concurrency: 8, permits: 16, window_bytes: 64 * KIB, ..Numbers::default() };
    let rig = Rig::new(numbers, Step { head_ms: 50, ..Step::of(Act::Healthy) }, 1);
    let wanted = keys(&rig, 60, 100);
    rig.run(&request(&wanted), Client::Eager).await.whole().expect("whole");
    assert_eq!(rig.store.waiting_peak(), 8, "by the batch");
    let numbers = Numbers { concurrency: 30, permits: 16, window_bytes: 64 * KIB, ..Numbers::default() };
    let rig = Rig::new(numbers, Step { head_ms: 50, ..Step::of(Act::Healthy) }, 1);
    let wanted = keys(&rig, 60, 100);
    let whole = rig.run(&request(&wanted), Client::Eager).await;
    whole.whole().expect("whole");
    assert_eq!(rig.store.waiting_peak(), 12, "a quarter of the backend's is kept for plain requests");
    for wanted in &wanted[..12] {
        rig.store.script(&wanted.key, [Step::of(Act::Status(503, "SlowDown"))]);
    }
    let response = rig.start(&request(&wanted)).await;
    let mut least = usize::MAX;
    let watching = async {
        loop {
            sleep(Duration::from_millis(1)).await;
            least = least.min(rig.backend.limiter.limit());
            let share = rig.backend.limiter.limit().div_ceil(4);
            if rig.backend.limiter.limit() < 16 && rig.store.asked("k12").len() > 1 {
                assert!(rig.store.waiting() <= (rig.backend.limiter.limit() - share).max(1) + 1);
            }
        }
    };
    let answer = tokio::select! {
        answer = Client::Eager.take(response, Instant::now()) => answer,
        () = watching => unreachable!("it watches for ever"),
    };
    let (parts, _) = answer.whole().expect("whole");
    assert!(parts.iter().all(|part| part.status == 200), "a plea to slow down is no failure");
    assert_eq!(least, 8, "one burst halves once");
    assert!(rig.backend.limiter.limit() > 8, "and it grows back");
}

#[tokio::test(start_paused = true)]
async fn stop_writes_what_was_whole_and_nothing_behind_the_failed_one() {
    let rig = Rig::new(Numbers::default(), Step::of(Act::Healthy), 1);
    let wanted = keys(&rig, 4, 100);
    let delays = [400, 300, 100, 900];
    for (wanted, head_ms) in wanted.iter().zip(delays) {
        rig.store.always(&wanted.key, Step { head_ms, ..Step::of(Act::Healthy) });
    }
    rig.store.always("k1", Step { head_ms: 300, ..Step::of(Act::Status(404, "NoSuchKey")) });
    let stop = with(request(&wanted), json!({"OnError": "Stop"}));
    let (parts, summary) = rig.run(&stop, Client::Eager).await.whole().expect("whole");
    assert_eq!(indices(&parts), [PartId::Entry(0), PartId::Entry(1)]);
    let summary = summary.expect("always there");
    assert_eq!((&summary["StoppedAt"], &summary["Error"]), (&json!(1), &json!({"Status": 404, "Code": "NoSuchKey"})));
    let answer = rig.run(&with(stop, json!({"Order": "Completion"})), Client::Eager).await;
    let (parts, _) = answer.whole().expect("whole");
    assert_eq!(indices(&parts), [PartId::Entry(2), PartId::Entry(1)]);
    assert!(answer.took < Duration::from_millis(400), "the others are cancelled");
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn completion_order_is_the_order_of_completion() {
    let rig = Rig::new(Numbers::default(), Step::of(Act::Healthy), 1);
    let wanted = keys(&rig, 4, 100);
    for (wanted, head_ms) in wanted.iter().zip([400, 300, 200, 100]) {
        rig.store.always(&wanted.key, Step { head_ms, ..Step::of(Act::Healthy) });
    }
    let answer = rig.run(&with(request(&wanted), json!({"Order": "Completion"})), Client::Eager).await;
    let (parts, _) = answer.whole().expect("whole");
    assert_eq!(indices(&parts), [3, 2, 1, 0].map(PartId::Entry));
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_which_everything_is_omitted_ends() {
    for concurrency in [1, 4] {
        let rig = Rig::new(Numbers { concurrency, ..Numbers::default() }, Step::of(Act::Healthy), 1);
        let wanted: Vec<_> = (0..50).map(|at| Wanted::of(if at % 3 == 0 { "denied" } else { "missing" })).collect();
        let (parts, summary) =
            rig.run(&with(request(&wanted), json!({"OnError": "Omit"})), Client::Eager).await.whole().expect("whole");
        let summary = summary.expect("always there");
        assert!(parts.is_empty() && summary["Omitted"] == 50 && summary["Failed"] == 50, "{summary}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_entry_is_judged_by_the_policy_and_denied_ones_are_never_asked_for() {
    let rig = Rig::new(Numbers::default(), Step::of(Act::Healthy), 1);
    rig.store.put("denied/x", Object::of(10));
    rig.store.put("k", Object::of(10));
    let wanted = vec![Wanted::of("denied/x"), Wanted::of("k"), Wanted { version: Some("v-1"), ..Wanted::of("denied/x") }];
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    let (parts, _) = answer.whole().expect("whole");
    assert_eq!(parts.iter().map(|part| part.status).collect::<Vec<_>>(), [403, 200, 403]);
    assert!(rig.store.asked("denied/x").is_empty());
    answer.keeps_secrets().expect("secrets are kept");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_batch_keeps_no_entries_in_flight_until_its_reader_has_taken_the_rest() {
    let rig = Rig::new(Numbers::default(), Step::of(Act::Healthy), 1);
    let mut wanted = keys(&rig, 10, 100);
    wanted[1] = Wanted::of("missing");
    let response = rig.start(&with(request(&wanted), json!({"OnError": "Stop"}))).await;
    let batch = response.extensions().get::<BreakOff>().expect("a batch can be reached").clone();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.metrics.batch_in_flight.get(), 1, "nobody has read");
    assert_eq!(rig.entries.free(), rig.entries.max());
    assert_eq!(batch.held.entries.load(Ordering::Relaxed), 0);
    assert_eq!(batch.held.bytes.load(Ordering::Relaxed), rig.heads.max() - rig.heads.free());
    drop(response);
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn the_longest_stalled_reader_makes_room_for_a_new_batch() {
    let rig = Rig::new(Numbers { heads_bytes: 24 * KIB, ..Numbers::default() }, Step::of(Act::Healthy), 1);
    let wanted = keys(&rig, 60, 9000);
    let big = request(&wanted);
    let (mut stalled, mut watches) = (Vec::new(), Vec::new());
    while let Ok(response) = rig.try_start(&big).await {
        // As the edge does with every answer that it serves.
        let batch = response.extensions().get::<BreakOff>().expect("a batch can be reached").clone();
        watches.push(rig.stalls.reader(Duration::from_secs(600), Holds::Batch(batch), |_| {}));
        stalled.push(response);
        sleep(Duration::from_secs(2)).await;
    }
    assert!(stalled.len() >= 2, "some fit");
    let refused = rig.try_start(&big).await.expect_err("the heads' bytes are taken");
    assert_eq!(refused.kind, Kind::SlowDown);
    sleep(Duration::from_secs(20)).await;
    assert!(rig.try_start(&big).await.is_err(), "nobody has stalled for half a minute");
    // The first alone has stalled for more than that.
    sleep(Duration::from_secs(30) - Duration::from_secs(20) - Duration::from_secs(2 * stalled.len() as u64 - 1)).await;
    let free_before = rig.heads.free();
    let admitted = rig.run(&big, Client::Eager).await;
    admitted.whole().expect("the new one is served");
    assert!(rig.heads.free() > free_before, "what the broken one held is given back");
    let mut ends = Vec::new();
    for response in stalled {
        ends.push(Client::Eager.take(response, Instant::now()).await);
    }
    assert_eq!(ends[0].ended, Ended::Broken);
    ends[0].parts().expect("what came is right");
    for answer in &ends[1..] {
        answer.whole().expect("the others read on");
    }
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn readers_that_stall_stop_no_other_for_want_of_shared_bytes() {
    let numbers = Numbers { shared_bytes: 4 * KIB, ..Numbers::default() };
    let rig = Rig::new(numbers, Step::of(Act::Healthy), 1);
    let wanted = keys(&rig, 60, 3000);
    let mut stalled = Vec::new();
    for _ in 0..5 {
        stalled.push(rig.start(&request(&wanted)).await);
    }
    sleep(Duration::from_secs(5)).await;
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    answer.whole().expect("whole");
    assert!(answer.took < Duration::from_secs(5), "{:?}", answer.took);
    drop(stalled);
    rig.settled().await.expect("settled");
}
