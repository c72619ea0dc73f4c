//! Deadlines in simulated time: what runs the clock, what stops it, and what is said at its end.

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

fn many(count: usize) -> Vec<Wanted> {
    (0..count).map(|at| Wanted::of(format!("k{at}"))).collect()
}

/// A rig with `count` objects of `length` bytes.
fn rig(count: usize, length: usize, numbers: Numbers, otherwise: Step) -> Rig {
    let rig = Rig::new(numbers, otherwise, 7);
    for wanted in many(count) {
        rig.store.put(&wanted.key, Object::of(length));
    }
    rig
}

/// Whole and right in every part.
fn all_right(rig: &Rig, answer: &Answer, wanted: &[Wanted]) {
    let (parts, _) = answer.whole().expect("whole");
    assert_eq!(parts.len(), wanted.len());
    for (at, wanted) in wanted.iter().enumerate() {
        same_as_lone(part_of(&parts, at), wanted, &rig.store.lone(&wanted.ask())).expect("right");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_a_batch_about_one_deadline() {
    let outages = [
        (Act::Unreachable, 503, "ServiceUnavailable"),
        (Act::Reset, 504, "GatewayTimeout"),
        (Act::Silent, 504, "GatewayTimeout"),
        (Act::StallAfter(0), 504, "GatewayTimeout"),
        (Act::Status(500, "InternalError"), 500, "InternalError"),
        (Act::Status(503, "ServiceUnavailable"), 503, "ServiceUnavailable"),
        // The store's pauses count.
        (Act::Status(503, "SlowDown"), 503, "SlowDown"),
    ];
    for (act, status, code) in outages {
        for permits in [2, 8] {
            let rig = rig(40, 300, Numbers { permits, ..Numbers::default() }, Step::of(act));
            let answer = rig.run(&request(&many(40)), Client::Eager).await;
            let (parts, _) = answer.whole().expect("whole");
            for part in &parts {
                let code_of_part = part.error("Code").expect("a code");
                let explained = part.status == 504 || (part.status == status && code_of_part == code);
                assert!(explained, "{act:?}: {} {code_of_part}", part.status);
            }
            assert_eq!(parts[0].status, status, "{act:?}");
            // The last attempt begins within the deadline, and each of a few rounds may end a pause late.
            assert!(answer.took >= DEADLINE && answer.took <= 2 * DEADLINE, "{act:?}, {permits} permits: {:?}", answer.took);
            rig.settled().await.expect("settled");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_bad_object_costs_the_others_nothing() {
    // The window is full long before the first entry has failed, and until then nothing moves.
    let numbers = Numbers { window_bytes: 4 * KIB, ..Numbers::default() };
    for act in [Act::Unreachable, Act::Silent, Act::Status(500, "InternalError")] {
        let rig = rig(40, 300, numbers, Step { head_ms: 1500, ..Step::of(Act::Healthy) });
        rig.store.always("k0", Step::of(act));
        for at in 1..4 {
            rig.store.always(&format!("k{at}"), Step::of(Act::Healthy));
        }
        let wanted = many(40);
        let answer = rig.run(&request(&wanted), Client::Eager).await;
        let (parts, _) = answer.whole().expect("whole");
        assert!(part_of(&parts, 0).status >= 500);
        for (at, wanted) in wanted.iter().enumerate().skip(1) {
            let right = same_as_lone(part_of(&parts, at), wanted, &rig.store.lone(&wanted.ask()));
            assert_eq!(right, Ok(()), "{act:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_stands_still_while_the_client_takes_nothing() {
    for after in [0, 1, 70_000, 150_000, 250_000] {
        let rig = rig(40, 9000, Numbers::default(), Step { frame_ms: 1, ..Step::of(Act::Healthy) });
        let wanted = many(40);
        let answer = rig.run(&request(&wanted), Client::Stall { after, secs: 10 * DEADLINE.as_secs() }).await;
        assert!(answer.took > 10 * DEADLINE);
        all_right(&rig, &answer, &wanted);
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_moves_costs_no_deadline() {
    let numbers = Numbers { permits: 1, concurrency: 8, deadline: Duration::from_secs(3), ..Numbers::default() };
    let rig = rig(20, 300, numbers, Step { head_ms: 1500, ..Step::of(Act::Healthy) });
    let wanted = many(20);
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(answer.took >= Duration::from_secs(30), "one at a time: {:?}", answer.took);
    all_right(&rig, &answer, &wanted);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_says_nothing_is_tried_again_well_before_the_deadline() {
    for act in [Act::Silent, Act::StallAfter(100)] {
        let rig = rig(1, 300, Numbers::default(), Step::of(Act::Healthy));
        rig.store.script("k0", [Step::of(act)]);
        let wanted = many(1);
        let answer = rig.run(&request(&wanted), Client::Eager).await;
        all_right(&rig, &answer, &wanted);
        assert_eq!(rig.store.asked("k0").len(), 2);
        let timeout = rig.numbers.attempt_timeout;
        assert!(answer.took >= timeout && answer.took < timeout + Duration::from_millis(100), "{:?}", answer.took);
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_begins_anew_with_each_mib() {
    const LENGTH: usize = 3 << 20;
    // Sixteen frames make a MiB: 8 s of 10, and 16 s of 10.
    for (frame_ms, ends) in [(500, Ended::Cleanly), (1000, Ended::Broken)] {
        let otherwise = Step { frame_ms, frame_bytes: 64 * 1024, ..Step::of(Act::Healthy) };
        let rig = rig(1, LENGTH, Numbers::default(), otherwise);
        let answer = rig.run(&request(&many(1)), Client::Eager).await;
        assert_eq!(answer.ended, ends, "{frame_ms} ms for each frame");
        if ends == Ended::Cleanly {
            assert!(answer.took > 2 * DEADLINE);
            all_right(&rig, &answer, &many(1));
        }
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_always_breaks_does_not_buy_time_with_bytes_read_before() {
    const LENGTH: usize = 3 << 19;
    let numbers = Numbers { window_bytes: 4 << 20, shared_bytes: 8 << 20, ..Numbers::default() };
    let rig = Rig::new(numbers, Step::of(Act::Healthy), 1);
    // The first is written while the second is read ahead, whole if it fits; nothing pins it, so each break begins anew.
    rig.store.put("k0", Object::of(100));
    rig.store.always("k0", Step { head_ms: 1900, ..Step::of(Act::Healthy) });
    rig.store.put("k1", Object { weak: true, ..Object::of(LENGTH) });
    let breaks = Step { head_ms: 1000, frame_bytes: 1 << 18, ..Step::of(Act::Cut(LENGTH - 100)) };
    rig.store.always("k1", breaks);
    let answer = timeout(10 * DEADLINE, rig.run(&request(&many(2)), Client::Eager)).await;
    let answer = answer.expect("it ends");
    // Read whole it may yet be; begun and broken the message may be. What it may not is to go on.
    assert!(answer.took <= 3 * DEADLINE, "{:?}", answer.took);
    rig.settled().await.expect("settled");
}
