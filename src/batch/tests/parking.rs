//! Entries larger than their reservation: kept for their turn, gone on with, read anew, or broken.

use http::header;

use super::*;

/// Larger than a reservation, and than what the small window has room for.
const LARGE: usize = 6000;

fn numbers() -> Numbers {
    Numbers { window_bytes: 2 * KIB, ..Numbers::default() }
}

/// A slow first entry, behind which `large` waits with what fits of it.
fn parked(large: Object, numbers: Numbers) -> Rig {
    let rig = Rig::new(numbers, Step::of(Act::Healthy), 3);
    rig.store.put("slow", Object::of(100));
    rig.store.always("slow", Step { head_ms: 1900, ..Step::of(Act::Healthy) });
    rig.store.put("large", large);
    rig
}

fn slow_then_large(large: Wanted) -> Vec<Wanted> {
    vec![Wanted::of("slow"), Wanted { key: "large".into(), ..large }]
}

#[tokio::test(start_paused = true)]
async fn a_large_entry_may_stand_anywhere() {
    for at in 0..8 {
        let rig = Rig::new(numbers(), Step { frame_ms: 1, ..Step::of(Act::Healthy) }, 3);
        let wanted: Vec<_> = (0..8).map(|n| Wanted::of(format!("k{n}"))).collect();
        for (n, wanted) in wanted.iter().enumerate() {
            rig.store.put(&wanted.key, Object::of(if n == at || n == 7 - at { 70_000 } else { 10 * n }));
        }
        for order in ["Request", "Completion"] {
            let mut request = request(&wanted);
            request["Order"] = json!(order);
            let (parts, _) = rig.run(&request, Client::Eager).await.whole().expect("whole");
            for (n, wanted) in wanted.iter().enumerate() {
                same_as_lone(part_of(&parts, n), wanted, &rig.store.lone(&wanted.ask())).expect("right");
            }
        }
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_entry_gives_back_its_permit_and_goes_on_from_its_offset() {
    let rig = parked(Object::of(LARGE), numbers());
    let mut entry = Wanted { if_none_match: Some("\"other\"".into()), range: Some("bytes=10-".into()), ..Wanted::default() };
    entry.id = Some("tag".into());
    let wanted = slow_then_large(entry);
    let response = rig.start(&request(&wanted)).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.backend.limiter.in_use(), 1, "the slow one's alone");
    assert_eq!(rig.store.bodies(), 0, "the connection is given back too");
    let (parts, _) = Client::Eager.take(response, Instant::now()).await.whole().expect("whole");
    same_as_lone(part_of(&parts, 1), &wanted[1], &rig.store.lone(&wanted[1].ask())).expect("right");
    let asked = rig.store.asked("large");
    let [(_, first), (_, second)] = asked.as_slice() else { panic!("{} attempts", asked.len()) };
    assert_eq!(first.if_none_match, wanted[1].ask().if_none_match);
    assert_eq!(
        (&second.if_none_match, second.if_match.as_ref().map(|tag| tag.as_bytes())),
        (&None, Some(&b"\"generation-0\""[..]))
    );
    let offset = 10 + KIB;
    assert_eq!(second.range.expect("a range").to_string(), format!("bytes={offset}-{}", LARGE - 1));
}

#[tokio::test(start_paused = true)]
async fn a_parked_entry_that_changed_is_read_anew_under_its_own_conditions() {
    for (wanted, status) in [
        (Wanted::default(), 200),
        (Wanted { if_match: Some("\"generation-0\"".into()), ..Wanted::default() }, 412),
        (Wanted { if_none_match: Some("\"generation-1\"".into()), ..Wanted::default() }, 304),
        (Wanted { range: Some("bytes=-5000".into()), ..Wanted::default() }, 206),
    ] {
        let rig = parked(Object::of(LARGE), numbers());
        // The second attempt, the pinned one, may meet a store that does not heed If-Match.
        rig.store
            .script("large", [Step::of(Act::Healthy), Step::of(if status == 200 { Act::Unconditional } else { Act::Healthy })]);
        let wanted = slow_then_large(wanted);
        let response = rig.start(&request(&wanted)).await;
        sleep(Duration::from_millis(500)).await;
        assert!(!rig.store.asked("large").is_empty());
        rig.store.change("large");
        let (parts, _) = Client::Eager.take(response, Instant::now()).await.whole().expect("whole");
        let part = part_of(&parts, 1);
        assert_eq!(part.status, status);
        same_as_lone(part, &wanted[1], &rig.store.lone(&wanted[1].ask())).expect("of the new generation");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_behind_the_part_header_breaks_the_message() {
    for (object, act) in [
        (Object::of(LARGE), Act::Healthy),
        (Object::of(LARGE), Act::Everything),
        (Object::of(LARGE), Act::Unconditional),
        (Object { weak: true, ..Object::of(LARGE) }, Act::Healthy),
    ] {
        let rig = Rig::new(numbers(), Step::of(Act::Healthy), 3);
        rig.store.put("k", object);
        rig.store.script("k", [Step::of(Act::Cut(3000)), Step { changes: true, ..Step::of(act) }]);
        let answer = rig.run(&request(&[Wanted::of("k")]), Client::Eager).await;
        assert_eq!(answer.ended, Ended::Broken);
        assert!(answer.parts().expect("as far as it goes").is_empty());
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lie_in_mid_body_breaks_the_message() {
    for act in [Act::Everything, Act::OtherRange, Act::OtherTotal, Act::NoContentRange, Act::Garbled, Act::Status(404, "NoSuchKey")]
    {
        let rig = Rig::new(numbers(), Step::of(Act::Healthy), 3);
        rig.store.put("k", Object::of(LARGE));
        rig.store.script("k", [Step::of(Act::Cut(3000)), Step::of(act)]);
        let answer = rig.run(&request(&[Wanted::of("k")]), Client::Eager).await;
        assert_eq!(answer.ended, Ended::Broken, "{act:?}");
        assert!(answer.parts().expect("as far as it goes").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_behind_the_part_header_is_mended_if_something_pins() {
    let weak = Object { weak: true, ..Object::of(LARGE) };
    let weak_version = Object { versioned: true, ..weak.clone() };
    let named = Wanted { version: Some("v-1"), ..Wanted::of("k") };
    for (object, wanted, ends) in [
        (Object::of(LARGE), Wanted::of("k"), Ended::Cleanly),
        (weak.clone(), Wanted::of("k"), Ended::Broken),
        (weak_version.clone(), Wanted::of("k"), Ended::Broken),
        (weak_version, named, Ended::Cleanly),
    ] {
        let rig = Rig::new(numbers(), Step::of(Act::Healthy), 3);
        rig.store.put("k", object.clone());
        rig.store.script("k", [Step::of(Act::Cut(2000)), Step::of(Act::StallAfter(1500)), Step::of(Act::EndEarly(1))]);
        let answer = rig.run(&request(std::slice::from_ref(&wanted)), Client::Eager).await;
        assert_eq!(answer.ended, ends, "{object:?}, {wanted:?}");
        if ends == Ended::Cleanly {
            let (parts, _) = answer.whole().expect("whole");
            same_as_lone(&parts[0], &wanted, &rig.store.lone(&wanted.ask())).expect("right");
            let asked = rig.store.asked("k");
            assert!(asked.iter().all(|(_, ask)| ask.version.as_deref() == wanted.version));
            assert_eq!(asked.len(), 4);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_entry_that_nothing_pins_is_read_anew() {
    let rig = parked(Object { weak: true, ..Object::of(LARGE) }, numbers());
    let wanted = slow_then_large(Wanted::default());
    let (parts, _) = rig.run(&request(&wanted), Client::Eager).await.whole().expect("whole");
    same_as_lone(part_of(&parts, 1), &wanted[1], &rig.store.lone(&wanted[1].ask())).expect("right");
    let asked = rig.store.asked("large");
    assert!(asked.len() == 2 && asked.iter().all(|(_, ask)| ask.range.is_none() && ask.if_match.is_none()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_length_is_held_whole_or_is_a_502() {
    for (length, status) in [(0, 200), (700, 200), (LARGE, 502)] {
        for ahead in [false, true] {
            let rig = parked(Object::of(length), numbers());
            rig.store.always("large", Step::of(Act::NoLength));
            let mut wanted = slow_then_large(Wanted::default());
            if !ahead {
                wanted.remove(0);
            }
            let (parts, _) = rig.run(&request(&wanted), Client::Eager).await.whole().expect("whole");
            let part = part_of(&parts, wanted.len() - 1);
            assert_eq!(part.status, status, "{length} bytes");
            let wanted = wanted.last().expect("one");
            if status == 200 {
                same_as_lone(part, wanted, &rig.store.lone(&wanted.ask())).expect("right");
            } else {
                is_error(part, wanted).expect("an error");
                assert_eq!(part.error("Code").as_deref(), Some("BadGateway"));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_fits_the_window_is_read_whole_before_its_turn() {
    let rig = parked(Object::of(LARGE), Numbers { window_bytes: 16 * KIB, ..numbers() });
    let wanted = slow_then_large(Wanted::default());
    let response = rig.start(&request(&wanted)).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.store.given_bytes(), LARGE, "all of it is here");
    // It fails its turn's own reading no more, whatever becomes of the store.
    rig.store.always("large", Step::of(Act::Unreachable));
    let (parts, _) = Client::Eager.take(response, Instant::now()).await.whole().expect("whole");
    let lone = rig.store.lone(&wanted[1].ask());
    assert_eq!(lone.1[header::CONTENT_LENGTH], LARGE.to_string());
    same_as_lone(part_of(&parts, 1), &wanted[1], &lone).expect("right");
    assert_eq!(rig.store.asked("large").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_fits_the_window_but_not_the_budget_of_all_is_parked() {
    let rig = parked(Object::of(LARGE), Numbers { window_bytes: 16 * KIB, shared_bytes: 3 * KIB, ..numbers() });
    let wanted = slow_then_large(Wanted::default());
    let response = rig.start(&request(&wanted)).await;
    sleep(Duration::from_millis(500)).await;
    assert!(rig.store.given_bytes() < 3 * KIB as usize, "{} bytes are held", rig.store.given_bytes());
    let (parts, _) = Client::Eager.take(response, Instant::now()).await.whole().expect("whole");
    same_as_lone(part_of(&parts, 1), &wanted[1], &rig.store.lone(&wanted[1].ask())).expect("right");
    rig.settled().await.expect("settled");
}
