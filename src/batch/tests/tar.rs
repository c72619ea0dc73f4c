//! Batches whose answer is an archive: what a failure leaves, what streams, what breaks; and the properties of whole batches, read
//! by names and bytes alone, since an archive says no more.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::objects::healthy;
use super::scenes::{Scene, any_act, retryable, scene, scripts};
use super::untar::{self, Member};
use super::*;

const MODIFIED_SECONDS: u64 = 784_111_777;

fn rig(numbers: Numbers, count: usize, length: usize) -> (Rig, Vec<Wanted>) {
    let rig = Rig { format: Format::Tar, ..Rig::new(numbers, Step::of(Act::Healthy), 1) };
    let wanted: Vec<_> = (0..count).map(|at| Wanted::of(format!("d/k{at}"))).collect();
    for wanted in &wanted {
        rig.store.put(&wanted.key, Object::of(length));
    }
    (rig, wanted)
}

fn whole(answer: &Answer) -> (Vec<Member>, Value) {
    assert_eq!((answer.ended, &*answer.content_type), (Ended::Cleanly, "application/x-tar"));
    untar::whole(&answer.octets).expect("whole")
}

fn member(rig: &Rig, wanted: &Wanted) -> Member {
    Member { name: wanted.key.clone(), mtime: MODIFIED_SECONDS, body: rig.store.lone(&wanted.ask()).2 }
}

#[tokio::test(start_paused = true)]
async fn members_are_the_objects_in_the_order_asked_and_the_summary_is_last() {
    for length in [0, 1, 511, 512, 513, 1000, 70_000, 200_000] {
        let (rig, wanted) = rig(Numbers::default(), 5, length);
        let answer = rig.run(&request(&wanted), Client::Eager).await;
        let (members, summary) = whole(&answer);
        assert_eq!(members, wanted.iter().map(|wanted| member(&rig, wanted)).collect::<Vec<_>>());
        let numbers = ["Entries", "Delivered", "Failed", "Omitted", "Bytes"].map(|name| summary[name].as_u64().expect("a number"));
        assert_eq!(numbers, [5, 5, 0, 0, 5 * length as u64]);
        assert_eq!((answer.count, &summary["StoppedAt"]), (5, &Value::Null));
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_is_a_member_of_its_own_length() {
    let (rig, _) = rig(Numbers::default(), 1, 5000);
    let part = |range: &str, id: &str| Wanted { range: Some(range.into()), id: Some(id.into()), ..Wanted::of("d/k0") };
    let wanted = [part("bytes=0-99", "head"), part("bytes=100-", "rest")];
    let (members, _) = whole(&rig.run(&request(&wanted), Client::Eager).await);
    let bytes = rig.store.lone(&Wanted::of("d/k0").ask()).2;
    assert_eq!((&*members[0].name, &members[0].body[..]), ("head", &bytes[..100]));
    assert_eq!((&*members[1].name, &members[1].body[..]), ("rest", &bytes[100..]));
}

#[tokio::test(start_paused = true)]
async fn stop_leaves_no_member_of_the_failed_entry_and_says_why_at_the_end() {
    let (rig, wanted) = rig(Numbers::default(), 4, 100);
    rig.store.always("d/k2", Step::of(Act::Status(403, "InvalidObjectState")));
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    let (members, summary) = whole(&answer);
    assert_eq!(members, [member(&rig, &wanted[0]), member(&rig, &wanted[1])]);
    assert_eq!((&summary["StoppedAt"], &summary["Delivered"], &summary["Failed"]), (&json!(2), &json!(2), &json!(1)));
    assert_eq!(summary["Error"], json!({"Status": 403, "Code": "InvalidObjectState"}));
    assert_eq!((&summary["Omitted"], &summary["Bytes"]), (&json!(0), &json!(200)));
    answer.keeps_secrets().expect("secrets are kept");
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn stop_at_the_first_entry_leaves_the_summary_alone() {
    let (rig, wanted) = rig(Numbers::default(), 3, 100);
    rig.store.always("d/k0", Step::of(Act::Status(404, "NoSuchKey")));
    let (members, summary) = whole(&rig.run(&request(&wanted), Client::Eager).await);
    assert!(members.is_empty() && summary["StoppedAt"] == 0 && summary["Delivered"] == 0, "{summary}");
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn omit_leaves_no_member_of_failed_entries() {
    let (rig, wanted) = rig(Numbers::default(), 4, 100);
    for key in ["d/k0", "d/k2"] {
        rig.store.always(key, Step::of(Act::Status(404, "NoSuchKey")));
    }
    let mut omit = request(&wanted);
    omit["OnError"] = json!("Omit");
    let (members, summary) = whole(&rig.run(&omit, Client::Eager).await);
    assert_eq!(members, [member(&rig, &wanted[1]), member(&rig, &wanted[3])]);
    assert_eq!((&summary["Omitted"], &summary["Failed"], &summary["StoppedAt"]), (&json!(2), &json!(2), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn completion_order_is_the_order_of_completion() {
    let (rig, wanted) = rig(Numbers::default(), 4, 100);
    for (wanted, head_ms) in wanted.iter().zip([400, 300, 200, 100]) {
        rig.store.always(&wanted.key, Step { head_ms, ..Step::of(Act::Healthy) });
    }
    let mut completion = request(&wanted);
    completion["Order"] = json!("Completion");
    let (members, _) = whole(&rig.run(&completion, Client::Eager).await);
    assert_eq!(members, wanted.iter().rev().map(|wanted| member(&rig, wanted)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_breaks_while_it_streams_breaks_the_message() {
    let (rig, wanted) = rig(Numbers::default(), 3, 300_000);
    // Nothing pins it, so what was begun cannot go on.
    rig.store.put("d/k1", Object { weak: true, ..Object::of(300_000) });
    rig.store.always("d/k1", Step::of(Act::Cut(150_000)));
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert_eq!(answer.ended, Ended::Broken);
    assert!(untar::whole(&answer.octets).is_err());
    let reading = untar::read(&answer.octets).expect("what came is right");
    assert_eq!(reading.members, [member(&rig, &wanted[0])], "what was whole before the break is final");
    let began = 2 * 512 + 300_000_usize.next_multiple_of(512);
    let streamed = &answer.octets[began..];
    assert!(!streamed.is_empty() && rig.store.lone(&wanted[1].ask()).2.starts_with(streamed), "{} octets", streamed.len());
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_breaks_and_can_be_resumed_is_whole() {
    let (rig, wanted) = rig(Numbers::default(), 3, 300_000);
    rig.store.script("d/k1", [Step::of(Act::Cut(150_000)), Step::of(Act::Cut(20_000)), Step::of(Act::Unreachable)]);
    let (members, _) = whole(&rig.run(&request(&wanted), Client::Eager).await);
    assert_eq!(members, wanted.iter().map(|wanted| member(&rig, wanted)).collect::<Vec<_>>());
}

/// The scene with what an archive has a place for: a name for each entry, and no status.
fn archived(mut scene: Scene) -> Scene {
    for (at, wanted) in scene.wanted.iter_mut().enumerate() {
        wanted.id = Some(format!("e/{at}.bin"));
        wanted.if_none_match = None;
    }
    if scene.on_error == "Continue" {
        scene.on_error = "Stop";
    }
    scene
}

fn archive_rig(scene: &Scene) -> Rig {
    Rig { format: Format::Tar, ..scene.rig() }
}

fn index(member: &Member) -> Result<usize, String> {
    let text = member.name.strip_prefix("e/").and_then(|name| name.strip_suffix(".bin"));
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("nobody asked for {:?}", member.name))
}

/// Cardinality, order and the arithmetic of the summary.
fn counts(scene: &Scene, members: &[Member], summary: &Value) -> Result<(), String> {
    let (there, entries) = (members.iter().map(index).collect::<Result<Vec<_>, _>>()?, scene.wanted.len());
    let number = |name: &str| summary[name].as_u64().unwrap_or(u64::MAX);
    let stopped = summary["StoppedAt"].as_u64().map(|at| at as usize);
    let bytes: usize = members.iter().map(|member| member.body.len()).sum();
    let omitted = if scene.on_error == "Omit" { entries - members.len() } else { 0 };
    let adds_up = (number("Entries"), number("Delivered"), number("Omitted"), number("Bytes"))
        == (entries as u64, members.len() as u64, omitted as u64, bytes as u64)
        && number("Failed") >= (omitted + usize::from(stopped.is_some())) as u64
        && stopped.is_some() == summary["Error"]["Code"].is_string();
    let in_order = scene.completion || there.windows(2).all(|pair| pair[0] < pair[1]);
    let complete = match (scene.on_error, stopped) {
        ("Omit", stopped) => stopped.is_none(),
        (_, None) => members.len() == entries,
        (_, Some(at)) => !there.contains(&at) && (scene.completion || members.len() == at),
    };
    let right = adds_up && in_order && complete;
    if right { Ok(()) } else { Err(format!("{summary} does not go with {there:?} of {entries}")) }
}

/// The member has the bytes of one generation of its object.
fn right_bytes(scene: &Scene, rig: &Rig, member: &Member) -> Result<(), String> {
    let wanted = &scene.wanted[index(member)?];
    let object = rig.store.object(&wanted.key).ok_or("a member of an object that is not there")?;
    // A store may be blind to If-Match; which generation it gave an archive does not say.
    let ask = ReadAsk { if_match: None, ..wanted.ask() };
    let is_right = |generation| {
        let (status, _, bytes) = healthy(&ask, Some(&Object { generation, ..object.clone() }));
        status.is_success() && bytes == member.body
    };
    if (0..=object.generation).any(is_right) { Ok(()) } else { Err(format!("{:?} has wrong bytes", member.name)) }
}

fn fail(why: String) -> TestCaseError {
    TestCaseError::fail(why)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::with_cases(96) })]

    /// With faults that trying again mends, every member is what the lone read of a healthy store gives.
    #[test]
    fn prop_members_are_lone_reads_whatever_can_be_retried(
        scene in scene(true, 3600),
        scripts in scripts(retryable(), 0.0, 4),
    ) {
        let scene = Scene { scripts, ..archived(scene) };
        simulate(async {
            let rig = archive_rig(&scene);
            let answer = rig.run(&scene.request(), scene.client).await;
            if answer.ended != Ended::Cleanly {
                return Err(format!("it ended {:?}", answer.ended));
            }
            let (members, summary) = untar::whole(&answer.octets)?;
            counts(&scene, &members, &summary)?;
            let lone: Vec<_> = scene.lone(&rig).into_iter().map(|lone| lone.filter(|lone| lone.0.is_success())).collect();
            for member in &members {
                let (_, _, bytes) = lone[index(member)?].as_ref().ok_or("a member of an entry that fails")?;
                if (member.mtime, &member.body) != (MODIFIED_SECONDS, bytes) {
                    return Err(format!("{:?} is not the lone read's", member.name));
                }
            }
            match summary["StoppedAt"].as_u64() {
                Some(at) if lone[at as usize].is_some() => return Err("stopped at an entry that does not fail".into()),
                None if scene.on_error == "Stop" && lone.iter().any(Option::is_none) => return Err("not stopped".into()),
                None if members.len() != lone.iter().flatten().count() => return Err("the wrong ones were omitted".into()),
                _ => {}
            }
            answer.keeps_secrets()?;
            rig.settled().await
        }).map_err(fail)?;
    }

    /// Whatever the store does, every member is right to the byte, or the message is broken and does not look whole; and a message
    /// that is cut anywhere is not whole by its octets alone.
    #[test]
    fn prop_whatever_the_store_does_nothing_wrong_is_passed_off(
        scene in scene(false, 20),
        scripts in scripts(any_act(), 0.2, 6),
        cut in any::<prop::sample::Index>(),
    ) {
        let scene = Scene { scripts, ..archived(scene) };
        simulate(async {
            let rig = archive_rig(&scene);
            let answer = rig.run(&scene.request(), scene.client).await;
            let members = match answer.ended {
                Ended::Cleanly => {
                    let (members, summary) = untar::whole(&answer.octets)?;
                    counts(&scene, &members, &summary)?;
                    members
                }
                Ended::Broken if untar::whole(&answer.octets).is_ok() => return Err("a broken message looks whole".into()),
                Ended::Broken => untar::read(&answer.octets)?.members,
                ended => return Err(format!("it ended {ended:?}")),
            };
            members.iter().try_for_each(|member| right_bytes(&scene, &rig, member))?;
            if untar::whole(&answer.octets[..cut.index(answer.octets.len().max(1))]).is_ok() {
                return Err("a cut answer looks whole".into());
            }
            answer.keeps_secrets()?;
            rig.settled().await
        }).map_err(fail)?;
    }
}
