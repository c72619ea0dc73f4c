//! Each transition of the breaker, on the paused clock.

use std::sync::atomic::AtomicU64;

use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};

use super::row::ROW_MIN;
use super::*;
use crate::telemetry::Metrics;

const PAUSE: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);
const FAILURES: u32 = 20;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
const MEMORY: Duration = Duration::from_secs(11);

fn breaker() -> Arc<Breaker> {
    let config = BreakerConfig { failures: FAILURES, pause: PAUSE, attempt_timeout: ATTEMPT_TIMEOUT };
    Breaker::new("b", config, Metrics::new().backend("b"))
}

fn failing() -> Cause {
    Cause::Status(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Another one each time.
fn target() -> Target {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    Target::of(NUMBERS.fetch_add(1, Ordering::Relaxed))
}

fn pass(breaker: &Arc<Breaker>) -> Pass {
    breaker.try_enter(target()).expect("closed")
}

fn admit(breaker: &Arc<Breaker>) -> Result<Pass, Open> {
    breaker.admit(target())
}

/// `count` failures, spread over `time`, each of another read.
async fn fail(breaker: &Arc<Breaker>, count: u32, time: Duration) {
    for at in 0..count {
        if at > 0 {
            advance(time / (count - 1)).await;
        }
        pass(breaker).failed(failing(), false);
    }
}

async fn opened() -> Arc<Breaker> {
    let breaker = breaker();
    fail(&breaker, FAILURES, 2 * ROW_MIN).await;
    assert!(breaker.is_open());
    breaker
}

fn waiter(breaker: &Arc<Breaker>) -> JoinHandle<Pass> {
    waiter_of(breaker, 1, false)
}

fn waiter_of(breaker: &Arc<Breaker>, batch: u64, again: bool) -> JoinHandle<Pass> {
    let breaker = Arc::clone(breaker);
    tokio::spawn(async move { breaker.enter(Lane::batch(batch), target(), again).await })
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_on_enough_failures_in_a_row_and_says_so() {
    let breaker = breaker();
    fail(&breaker, FAILURES - 1, 2 * ROW_MIN).await;
    assert!(!breaker.is_open() && breaker.reason().is_none());
    pass(&breaker).failed(failing(), false);
    assert!(breaker.is_open());
    assert_eq!((breaker.metrics.breaker_open.get(), breaker.metrics.breaker_opened.get()), (1, 1));
    advance(Duration::from_secs(3)).await;
    let idle = "backend b: breaker open for 3 s (answers 500); nobody has asked for 3 s, the next to ask finds out";
    assert_eq!(breaker.reason().as_deref(), Some(idle));
    let waiter = waiter(&breaker);
    waiter.await.expect("no panic").failed(failing(), false);
    assert_eq!(breaker.reason().as_deref(), Some("backend b: breaker open for 3 s (answers 500)"));
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_one_instant_opens_nothing_until_it_has_gone_on_for_a_second() {
    let breaker = breaker();
    fail(&breaker, 10 * FAILURES, Duration::ZERO).await;
    assert!(!breaker.is_open());
    advance(ROW_MIN - MOMENT).await;
    pass(&breaker).failed(failing(), true);
    assert!(!breaker.is_open());
    advance(MOMENT).await;
    pass(&breaker).failed(failing(), true);
    assert!(breaker.is_open(), "they all fail again");
}

#[tokio::test(start_paused = true)]
async fn any_answer_begins_the_row_anew() {
    let breaker = breaker();
    let good: [fn(&Arc<Breaker>); 2] = [|b| pass(b).answered(), |b| pass(b).paced()];
    for good in good.iter().cycle().take(12) {
        fail(&breaker, FAILURES - 1, 2 * ROW_MIN).await;
        good(&breaker);
        assert!(!breaker.is_open());
    }
    // Long pauses begin it anew too.
    for _ in 0..5 * FAILURES {
        advance(MEMORY).await;
        pass(&breaker).failed(failing(), false);
    }
    assert!(!breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn old_bodies_that_flow_keep_it_from_opening_no_longer_than_failures_do() {
    let breaker = breaker();
    for at in 1..=FAILURES {
        assert!(!breaker.is_open(), "{at}");
        pass(&breaker).failed(Cause::TimedOut, false);
        breaker.moved();
        advance(PAUSE / 10).await;
    }
    assert!(breaker.is_open() && breaker.outage().is_none());
}

#[tokio::test(start_paused = true)]
async fn one_bad_object_opens_nothing_however_often_it_is_asked_for() {
    let breaker = breaker();
    let bad = Target::of("bad");
    for cause in [failing(), Cause::NoAnswer, Cause::TimedOut].into_iter().cycle().take(30 * FAILURES as usize) {
        breaker.admit(bad).expect("closed").failed(cause, false);
        advance(PAUSE / 25).await;
    }
    assert!(!breaker.is_open());
    // One has been counted.
    fail(&breaker, FAILURES - 1, 2 * ROW_MIN).await;
    assert!(breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_everyones_failure_whatever_was_asked_for() {
    let breaker = breaker();
    for _ in 0..FAILURES {
        assert!(!breaker.is_open());
        breaker.admit(Target::of("one")).expect("closed").failed(Cause::Unreachable, false);
        advance(PAUSE / 10).await;
    }
    assert!(breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_that_is_polled_does_not_probe_in_the_place_of_others() {
    let breaker = opened().await;
    let (bad, good) = (Target::of("bad"), Target::of("good"));
    advance(PAUSE).await;
    breaker.admit(bad).expect("its turn").failed(failing(), false);
    advance(PAUSE).await;
    assert!(breaker.admit(bad).is_err(), "others first");
    // If there are none it is tried again.
    advance(PAUSE).await;
    breaker.admit(bad).expect("nobody else asks").failed(failing(), false);
    advance(PAUSE).await;
    assert!(breaker.admit(bad).is_err());
    breaker.admit(good).expect("its turn").answered();
    assert!(!breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn batches_take_turns_to_probe_and_who_has_not_failed_yet_goes_first() {
    let breaker = opened().await;
    let bad: Vec<_> = [1, 2].into_iter().flat_map(|batch| (0..50).map(move |_| batch)).collect();
    let mut bad: Vec<_> = bad.into_iter().map(|batch| waiter_of(&breaker, batch, true)).collect();
    settle().await;
    // A batch of two that comes late has its first turn at once, and its next before others have their second.
    let (good, next) = (waiter_of(&breaker, 3, false), waiter_of(&breaker, 3, true));
    let since = Instant::now();
    good.await.expect("no panic").failed(failing(), false);
    assert_eq!(since.elapsed().as_secs(), 1);
    for batch in [0, 50] {
        bad.remove(batch).await.expect("no panic").failed(failing(), false);
        bad.insert(batch, waiter_of(&breaker, batch as u64 / 50 + 1, true));
    }
    next.await.expect("no panic").answered();
    assert_eq!(since.elapsed().as_secs(), 4);
    for bad in bad {
        bad.await.expect("it is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn new_reads_that_fail_leave_every_other_turn_to_those_that_have() {
    let breaker = opened().await;
    let old = waiter_of(&breaker, 1, true);
    let new: Vec<_> = (0..50).map(|_| waiter_of(&breaker, 2, false)).collect();
    for new in new.into_iter().take(1) {
        new.await.expect("no panic").failed(failing(), false);
    }
    assert!(old.await.expect("no panic").is_probe());
}

#[tokio::test(start_paused = true)]
async fn pleas_alone_open_nothing_and_are_an_outage_all_the_same() {
    let breaker = breaker();
    for _ in 0..10 * FAILURES {
        pass(&breaker).paced();
        advance(PAUSE / 10).await;
    }
    assert!(!breaker.is_open());
    let outage = breaker.outage().expect("nothing moved");
    assert!(outage.since.elapsed() >= 2 * ROW_MIN && outage.cause.is_none());
}

#[tokio::test(start_paused = true)]
async fn tries_of_a_few_bad_objects_open_nothing_unless_there_is_no_connection() {
    let breaker = breaker();
    fail(&breaker, FAILURES - 1, ROW_MIN).await;
    for _ in 0..10 * FAILURES {
        advance(PAUSE / 10).await;
        pass(&breaker).failed(Cause::TimedOut, true);
        breaker.body_failed(Cause::NoAnswer);
    }
    assert!(!breaker.is_open());
    pass(&breaker).failed(Cause::Unreachable, true);
    assert!(breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn while_open_plain_requests_are_refused_at_once_but_for_one_that_probes() {
    let breaker = opened().await;
    assert_eq!(admit(&breaker).expect_err("open"), Open);
    assert_eq!(breaker.metrics.breaker_refused.get(), 1);
    advance(PAUSE).await;
    let probe = admit(&breaker).expect("its turn");
    assert!(probe.is_probe());
    advance(2 * PAUSE).await;
    assert!(admit(&breaker).is_err(), "one at a time");
    probe.failed(Cause::TimedOut, false);
    assert!(breaker.is_open() && admit(&breaker).is_err());
    assert!(breaker.reason().expect("open").ends_with("(does not answer in time)"));
    advance(PAUSE).await;
    admit(&breaker).expect("its turn").answered();
    assert!(!breaker.is_open() && admit(&breaker).is_ok());
    assert_eq!(breaker.metrics.breaker_open.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plain_request_that_probes_and_vanishes_or_hangs_frees_the_place() {
    let breaker = opened().await;
    advance(PAUSE).await;
    let gone = admit(&breaker).expect("its turn");
    advance(PAUSE / 2).await;
    drop(gone);
    assert!(admit(&breaker).is_err(), "the pause is not over");
    advance(PAUSE / 2).await;
    let gone = admit(&breaker).expect("the place is free");
    advance(2 * PAUSE).await;
    drop(gone);
    let hangs = admit(&breaker).expect("it is long over");
    advance(ATTEMPT_TIMEOUT).await;
    let next = admit(&breaker).expect("it hangs");
    hangs.failed(Cause::TimedOut, false);
    assert!(admit(&breaker).is_err());
    next.answered();
    assert!(!breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn one_read_at_a_time_probes_and_who_fails_goes_behind_the_others() {
    let breaker = opened().await;
    let since = Instant::now();
    let waiters: Vec<_> = (0..3).map(|_| waiter(&breaker)).collect();
    for (at, waiter) in waiters.into_iter().enumerate() {
        let probe = waiter.await.expect("no panic");
        assert!(probe.is_probe());
        assert_eq!(since.elapsed().as_secs(), at as u64 + 1, "a pause from one to the next");
        assert!(timeout(MOMENT, breaker.enter(Lane::batch(1), target(), false)).await.is_err());
        probe.failed(failing(), false);
    }
    let again = waiter(&breaker);
    settle().await;
    assert!(!again.is_finished());
    again.abort();
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_vanishes_leaves_it_open_and_the_next_goes_after_the_pause() {
    let breaker = opened().await;
    let gone = waiter(&breaker);
    let (first, second) = (waiter(&breaker), waiter(&breaker));
    settle().await;
    // The one that watches the time leaves before its turn, the next leaves with its probe.
    gone.abort();
    let probe = first.await.expect("no panic");
    let at = Instant::now();
    advance(PAUSE / 2).await;
    drop(probe);
    assert!(breaker.is_open());
    let probe = second.await.expect("no panic");
    assert!(probe.is_probe());
    assert!(at.elapsed() >= PAUSE && at.elapsed() < PAUSE + 2 * MOMENT, "{:?}", at.elapsed());
    // One that vanishes late has had its pause.
    advance(3 * PAUSE).await;
    let third = waiter(&breaker);
    settle().await;
    drop(probe);
    let at = Instant::now();
    assert!(third.await.expect("no panic").is_probe() && at.elapsed() < 2 * MOMENT);
}

#[tokio::test(start_paused = true)]
async fn however_many_probes_vanish_there_is_one_for_each_pause() {
    let breaker = opened().await;
    let at = Instant::now();
    for _ in 0..10 {
        drop(breaker.enter(Lane::batch(1), target(), false).await);
    }
    assert!(at.elapsed() >= 10 * PAUSE);
    let plain = async {
        let mut leave = 0;
        for _ in 0..100 {
            leave += u32::from(admit(&breaker).is_ok());
            advance(PAUSE / 10).await;
        }
        leave
    };
    assert_eq!(plain.await, 10);
}

#[tokio::test(start_paused = true)]
async fn silence_as_long_as_attempts_may_last_is_one_outage() {
    let timeout = Duration::from_secs(60);
    let config = BreakerConfig { failures: 3, pause: PAUSE, attempt_timeout: timeout };
    let breaker = Breaker::new("b", config, Metrics::new().backend("b"));
    let since = Instant::now();
    for _ in 0..3 {
        assert!(!breaker.is_open());
        pass(&breaker).failed(Cause::TimedOut, false);
        advance(timeout + PAUSE).await;
    }
    assert!(breaker.is_open());
    assert_eq!(breaker.outage().expect("it goes on").since, since);
    advance(timeout).await;
    assert!(breaker.outage().is_none());
}

#[tokio::test(start_paused = true)]
async fn thousands_wait_and_all_go_on_when_it_closes() {
    let breaker = opened().await;
    let waiters: Vec<_> = (0..5000).map(|_| waiter(&breaker)).collect();
    settle().await;
    advance(PAUSE / 2).await;
    // An answer to what was sent before it opened is as good as a probe's.
    pass_of_before(&breaker).answered();
    let at = Instant::now();
    for waiter in waiters {
        assert!(!waiter.await.expect("no panic").is_probe());
    }
    assert_eq!(at.elapsed(), Duration::ZERO);
    assert!(breaker.watch.available_permits() == 1, "nobody watches any more");
}

fn pass_of_before(breaker: &Arc<Breaker>) -> Pass {
    breaker.pass(target(), None)
}

#[tokio::test(start_paused = true)]
async fn a_pass_from_before_is_good_until_it_opens_and_old_bodies_close_nothing() {
    let breaker = breaker();
    let (old, other) = (pass(&breaker), pass(&breaker));
    let old = old.renewed().expect("closed");
    fail(&breaker, FAILURES, 2 * ROW_MIN).await;
    assert!(old.renewed().is_err());
    breaker.moved();
    assert!(breaker.is_open() && breaker.outage().is_none());
    other.failed(failing(), false);
    assert!(breaker.is_open());
    advance(PAUSE).await;
    assert!(breaker.enter(Lane::batch(1), target(), false).await.renewed().is_ok(), "a probe is always good");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_remembered_from_its_first_failure_until_something_moves() {
    let breaker = breaker();
    let since = Instant::now();
    pass(&breaker).failed(Cause::Unreachable, false);
    advance(MEMORY / 2).await;
    // A head may be all that ever comes.
    pass(&breaker).answered();
    pass(&breaker).failed(failing(), false);
    let outage = breaker.outage().expect("it goes on");
    assert_eq!((outage.since, outage.confirmed, outage.cause), (since, false, Some(failing())));
    breaker.confirm_outage();
    assert!(breaker.outage().expect("it goes on").confirmed);
    breaker.moved();
    assert!(breaker.outage().is_none());
    pass(&breaker).failed(failing(), false);
    advance(MEMORY).await;
    assert!(breaker.outage().is_none(), "nobody has met it for long");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_answers_late_is_slow_and_not_gone() {
    let breaker = breaker();
    for _ in 0..FAILURES {
        pass(&breaker).overdue(false);
        advance(Duration::from_millis(100)).await;
    }
    assert!(breaker.is_open(), "nobody knows yet whether it will ever answer");
    breaker.answered_late();
    assert!(!breaker.is_open());
    for _ in 0..2 * FAILURES {
        pass(&breaker).overdue(false);
        advance(Duration::from_millis(100)).await;
    }
    assert!(!breaker.is_open(), "it has shown that it answers in the end");
    advance(MEMORY).await;
    for _ in 0..FAILURES {
        pass(&breaker).overdue(false);
        advance(Duration::from_millis(100)).await;
    }
    assert!(breaker.is_open(), "it no longer does");
}
