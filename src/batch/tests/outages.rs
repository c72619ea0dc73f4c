//! Outages in simulated time: what the breaker and the budget of retries make of them, as a batch and its store see it.

use super::*;
use crate::error::{Budget, Kind};

const DEADLINE: Duration = Duration::from_secs(10);

/// As many reads at a time as in real life, so that the breaker has something to count.
fn numbers() -> Numbers {
    Numbers {
        concurrency: 64,
        permits: 64,
        window_bytes: 256 * KIB,
        shared_bytes: 1024 * KIB,
        heads_bytes: 1024 * KIB,
        ..Numbers::default()
    }
}

fn many(count: usize) -> Vec<Wanted> {
    (0..count).map(|at| Wanted::of(format!("k{at}"))).collect()
}

fn rig(numbers: Numbers, wanted: &[Wanted], otherwise: Step) -> Rig {
    let rig = Rig::new(numbers, otherwise, 11);
    for wanted in wanted {
        rig.store.put(&wanted.key, Object::of(300));
    }
    rig
}

fn statuses(answer: &Answer) -> Vec<u16> {
    answer.whole().expect("whole").0.iter().map(|part| part.status).collect()
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_costs_thousands_of_entries_one_deadline_and_few_requests() {
    let wanted = many(8000);
    let rig = rig(numbers(), &wanted, Step::of(Act::Unreachable));
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(statuses(&answer).iter().all(|status| *status == 503));
    assert!(answer.took >= DEADLINE && answer.took <= DEADLINE + 2 * rig.numbers.attempt_timeout, "{:?}", answer.took);
    assert!(rig.backend.breaker.is_open());
    // The first attempts of two rounds, a fifth of them again, ten a second until the breaker opens, and a probe a second.
    let asked = rig.store.asked_count();
    assert!(asked <= 128 + 26 + 30 + 15, "{asked} requests");
    assert!(rig.backend.metrics.retries_refused.get() > 0);
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_is_shorter_than_the_deadline_costs_no_entry() {
    for act in [Act::Unreachable, Act::Reset, Act::Status(503, "ServiceUnavailable"), Act::Silent] {
        let wanted = many(1000);
        let rig = rig(numbers(), &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
        let response = rig.start(&request(&wanted)).await;
        let restarts = async {
            sleep(Duration::from_millis(100)).await;
            rig.store.all(Some(Step::of(act)));
            sleep(DEADLINE * 6 / 10).await;
            assert!(rig.backend.breaker.is_open(), "{act:?}");
            rig.store.all(None);
            let back = Instant::now();
            while rig.backend.breaker.is_open() {
                sleep(Duration::from_millis(1)).await;
            }
            // An attempt that was under way says nothing for as long as attempts may.
            let longest =
                Duration::from_millis(1100) + if act == Act::Silent { rig.numbers.attempt_timeout } else { Duration::ZERO };
            assert!(back.elapsed() <= longest, "{act:?}: closed after {:?}", back.elapsed());
        };
        let (answer, ()) = tokio::join!(Client::Eager.take(response, Instant::now()), restarts);
        assert!(statuses(&answer).iter().all(|status| *status == 200), "{act:?}");
        assert_eq!(rig.backend.metrics.breaker_open.get(), 0);
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_always_fail_among_good_ones_never_open_the_breaker() {
    let wanted = many(400);
    let rig = rig(numbers(), &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    let acts = [Act::Status(500, "InternalError"), Act::Reset, Act::Silent, Act::StallAfter(0), Act::Cut(0)];
    let bad = |at: usize| at.is_multiple_of(7);
    for (at, wanted) in wanted.iter().enumerate().filter(|(at, _)| bad(*at)) {
        rig.store.always(&wanted.key, Step::of(acts[at % acts.len()]));
    }
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    for (at, status) in statuses(&answer).into_iter().enumerate() {
        assert_eq!(status >= 500, bad(at), "{at}: {status}");
    }
    assert_eq!(rig.backend.metrics.breaker_opened.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn more_bad_objects_than_it_takes_to_open_it_cost_the_others_nothing() {
    // All that are read at first are bad, so that the store looks dead: it is not.
    let wanted = many(200);
    let rig = rig(numbers(), &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    for wanted in &wanted[..64] {
        rig.store.always(&wanted.key, Step::of(Act::Status(500, "InternalError")));
    }
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(rig.backend.metrics.breaker_opened.get() > 0);
    let statuses = statuses(&answer);
    assert!(
        statuses[..64].iter().all(|status| *status == 500) && statuses[64..].iter().all(|status| *status == 200),
        "{statuses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_everyone_for_pace_is_not_asked_ever_faster() {
    let wanted = many(200);
    let rig = rig(numbers(), &wanted, Step { head_ms: 1, ..Step::of(Act::Status(503, "SlowDown")) });
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(statuses(&answer).iter().all(|status| *status == 503), "those that were never asked, too");
    assert!(answer.took <= DEADLINE + 2 * rig.numbers.attempt_timeout, "{:?}", answer.took);
    assert_eq!((rig.backend.limiter.limit(), rig.backend.metrics.breaker_opened.get()), (1, 0));
    assert_eq!(rig.backend.metrics.retries_refused.get(), 0, "pacing is outside of the budget");
    // In the last seconds one request at a time waits 100 to 200 ms after each.
    let late = rig.store.asked_since(answer.took - Duration::from_secs(4));
    assert!((10..=60).contains(&late), "{late} requests in 4 s");
}

#[tokio::test(start_paused = true)]
async fn what_was_put_off_is_read_in_the_end_and_keeps_its_place() {
    let wanted = many(100);
    let rig = rig(Numbers { concurrency: 8, permits: 8, ..numbers() }, &wanted, Step { head_ms: 5, ..Step::of(Act::Healthy) });
    for wanted in &wanted {
        rig.store.script(
            &wanted.key,
            [Step::of(Act::Status(429, "TooManyRequests")), Step::of(Act::Status(503, "ThrottlingException"))],
        );
    }
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(statuses(&answer).iter().all(|status| *status == 200));
    assert_eq!(rig.backend.metrics.retries_refused.get() + rig.backend.metrics.breaker_opened.get(), 0);
}

/// Starts batches of `wanted`, `gap` apart, for as long as they are admitted; what they and the first refusal came to.
async fn start_many(rig: &Rig, wanted: &[Wanted], count: usize, gap: Duration) -> (Vec<tokio::task::JoinHandle<Answer>>, usize) {
    let (mut under_way, mut refused) = (Vec::new(), 0);
    for _ in 0..count {
        match rig.try_start(&request(wanted)).await {
            Ok(response) => under_way.push(tokio::spawn(Client::Eager.take(response, Instant::now()))),
            Err(error) => {
                assert_eq!((error.kind, error.budget), (Kind::SlowDown, Some(Budget::Permits)));
                refused += 1;
            }
        }
        sleep(gap).await;
    }
    (under_way, refused)
}

#[tokio::test(start_paused = true)]
async fn batches_over_what_the_store_can_read_for_are_refused_and_the_others_are_as_fast_as_gets() {
    let wanted = many(64);
    // 8 permits, 6 of them for batches, 20 ms each: 300 objects a second, and a batch of 64 in 8.5 s beside 39 others.
    let numbers = Numbers { permits: 8, ..numbers() };
    let rig = rig(numbers, &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    let (under_way, refused) = start_many(&rig, &wanted, 100, Duration::from_millis(5)).await;
    assert!((32..=40).contains(&under_way.len()) && refused >= 60, "{} admitted", under_way.len());
    for answer in under_way {
        let answer = answer.await.expect("no panic");
        assert!(statuses(&answer).iter().all(|status| *status == 200));
        assert!(answer.took <= 64 * Duration::from_millis(20) * 8, "{:?}", answer.took);
    }
    rig.run(&request(&wanted), Client::Eager).await.whole().expect("and later ones are admitted as before");
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn batches_that_can_ride_an_outage_out_are_admitted_and_none_is_added_until_they_have() {
    let wanted = many(8);
    let numbers = Numbers { permits: 8, ..numbers() };
    let rig = rig(numbers, &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    rig.store.all(Some(Step::of(Act::Unreachable)));
    let (first, refused) = start_many(&rig, &wanted, 10, Duration::from_millis(200)).await;
    assert_eq!((first.len(), refused), (10, 0));
    assert!(rig.backend.breaker.is_open());
    let (more, refused) = start_many(&rig, &wanted, 40, Duration::from_millis(50)).await;
    assert_eq!((more.len(), refused), (40, 0), "who waits for the breaker does not wait for a permit");
    rig.store.all(None);
    while rig.backend.breaker.is_open() {
        sleep(Duration::from_millis(1)).await;
    }
    let (late, refused) = start_many(&rig, &wanted, 1, Duration::from_millis(1)).await;
    assert_eq!((late.len(), refused), (0, 1), "they are more than the store can read for at once");
    for answer in first.into_iter().chain(more) {
        assert!(statuses(&answer.await.expect("no panic")).iter().all(|status| *status == 200));
    }
    rig.run(&request(&wanted), Client::Eager).await.whole().expect("admitted");
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_for_longer_than_any_deadline_opens_the_breaker() {
    // No attempt ever lasts as long as it may.
    let wanted = many(500);
    let rig = rig(Numbers { attempt_timeout: 6 * DEADLINE, ..numbers() }, &wanted, Step::of(Act::Silent));
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    assert!(statuses(&answer).iter().all(|status| matches!(status, 503 | 504)));
    assert!(rig.backend.metrics.breaker_opened.get() > 0);
    rig.settled().await.expect("settled");
}

/// Lone reads of a good object, for as long as `work` lasts: to them the store is as it always was.
async fn beside_others<T>(rig: &Rig, work: impl Future<Output = T>) -> T {
    let other = [Wanted::of("other")];
    rig.store.put("other", Object::of(300));
    let others = async {
        loop {
            assert_eq!(statuses(&rig.run(&request(&other), Client::Eager).await), [200]);
            sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = others => unreachable!("they never end"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_gets_nothing_ends_in_one_deadline_whatever_others_get() {
    let acts = [
        (Act::Unreachable, &[503][..]),
        (Act::Reset, &[504]),
        (Act::StallAfter(0), &[504]),
        (Act::StallAfter(1), &[504]),
        (Act::Silent, &[504]),
        (Act::Status(500, "InternalError"), &[500, 504]),
        (Act::Status(503, "SlowDown"), &[503]),
        (Act::Status(429, "TooManyRequests"), &[503]),
    ];
    for (act, expected) in acts {
        let wanted = many(300);
        let rig = rig(Numbers { concurrency: 16, ..numbers() }, &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
        wanted.iter().for_each(|wanted| rig.store.always(&wanted.key, Step::of(act)));
        let answer = beside_others(&rig, rig.run(&request(&wanted), Client::Eager)).await;
        assert!(statuses(&answer).iter().all(|status| expected.contains(status)), "{act:?} {:?}", statuses(&answer));
        let longest = DEADLINE + 2 * (rig.numbers.attempt_timeout + Duration::from_secs(1));
        assert!(answer.took <= longest, "{act:?}: {:?}", answer.took);
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_get_does_not_make_a_batch_ask_faster_that_is_put_off() {
    let wanted = many(300);
    let numbers = Numbers { backoff_max: Duration::from_secs(2), ..numbers() };
    let rig = rig(numbers, &wanted, Step { head_ms: 5, ..Step::of(Act::Healthy) });
    wanted.iter().for_each(|wanted| rig.store.always(&wanted.key, Step::of(Act::Status(503, "SlowDown"))));
    let answer = beside_others(&rig, rig.run(&request(&wanted), Client::Eager)).await;
    let others = rig.store.asked("other").len();
    let asked = rig.store.asked_count() - others;
    // Most of them before the limit has halved a few times; at the end each second or two as many as there are permits.
    assert!(asked <= 400, "{asked} requests");
    // Those that come after the first have one try each.
    let (late, for_others) = (rig.store.asked_since(DEADLINE / 2) - rig.store.asked_since(DEADLINE), 5 * 5);
    assert!(late <= for_others + 50, "{late} requests in 5 s");
    assert!(others as u64 >= answer.took.as_secs() * 3, "{others}");
}

#[tokio::test(start_paused = true)]
async fn bad_objects_in_a_row_cost_a_batch_no_good_one_while_others_are_served() {
    let wanted = many(60);
    let rig = rig(Numbers { concurrency: 4, ..numbers() }, &wanted, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    wanted[..12].iter().for_each(|wanted| rig.store.always(&wanted.key, Step::of(Act::Reset)));
    let answer = beside_others(&rig, rig.run(&request(&wanted), Client::Eager)).await;
    let statuses = statuses(&answer);
    assert!(statuses[12..].iter().all(|status| *status == 200), "{statuses:?}");
}

#[tokio::test(start_paused = true)]
async fn batches_of_bad_objects_do_not_speak_for_the_backend_where_a_good_one_waits() {
    let all = many(203);
    let rig = rig(numbers(), &all, Step { head_ms: 20, ..Step::of(Act::Healthy) });
    let (bad, good) = all.split_at(200);
    bad.iter().for_each(|wanted| rig.store.always(&wanted.key, Step::of(Act::Status(503, "ServiceUnavailable"))));
    for bad in bad.chunks(100) {
        let response = rig.start(&request(bad)).await;
        tokio::spawn(Client::Eager.take(response, Instant::now()));
    }
    sleep(Duration::from_secs(3)).await;
    assert!(rig.backend.breaker.is_open());
    let answer = rig.run(&request(good), Client::Eager).await;
    assert_eq!(statuses(&answer), [200; 3]);
    assert!(answer.took <= Duration::from_millis(2200), "the second turn at the latest: {:?}", answer.took);
}
