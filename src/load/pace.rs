//! How requests follow one another. What enters is whoever asks, a pace and an extent; what leaves are samples, in a recorder.
//! Invariants: no more requests are under way than the pace allows, and a request of an open loop that starts late counts from
//! when it was due, so that a pause of the client does not hide what requests would have waited.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Recorder;
use super::ask::Turn;
use super::job::{Extent, Pace};

/// A worker that had nobody to ask waits for so long: to be refused is quick, and would take the client's whole CPU.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(100);

/// Timers tick in milliseconds: a start that is no later than this is due when it happens.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// Sends one request.
pub trait Ask: Send + Sync + 'static {
    /// Draws a request, sends it and fills the turn's sample, whose times count from `turn.started`.
    fn ask(&self, turn: &mut Turn) -> impl Future<Output = ()> + Send;
}

/// Sends requests until `extent` is reached and waits for the last. `random` makes the choices of each worker or request.
pub(super) async fn drive<A: Ask>(
    asker: &Arc<A>,
    pace: Pace,
    extent: Extent,
    recorder: &Arc<Recorder>,
    random: impl Fn(u64) -> SmallRng,
) {
    match pace {
        Pace::Closed { workers } => closed(asker, workers, extent, recorder, random).await,
        Pace::Open { rate, in_flight_max } => open(asker, rate, in_flight_max, extent, recorder, random).await,
    }
}

async fn closed<A: Ask>(
    asker: &Arc<A>,
    workers: usize,
    extent: Extent,
    recorder: &Arc<Recorder>,
    random: impl Fn(u64) -> SmallRng,
) {
    let started = Instant::now();
    let begun = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for worker in 0..workers as u64 {
        let (asker, recorder, begun) = (Arc::clone(asker), Arc::clone(recorder), Arc::clone(&begun));
        let mut turn = Turn::new(random(worker), started);
        tasks.spawn(async move {
            loop {
                turn.started = Instant::now();
                let has_ended = match extent {
                    Extent::Duration(whole) => turn.started - started >= whole,
                    Extent::Requests(count) => begun.fetch_add(1, Ordering::Relaxed) >= count,
                };
                if has_ended {
                    return;
                }
                asker.ask(&mut turn).await;
                recorder.take(&turn.sample);
                if turn.sample.unreachable {
                    tokio::time::sleep(UNREACHABLE_PAUSE).await;
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("workers are not aborted and do not panic");
    }
}

async fn open<A: Ask>(
    asker: &Arc<A>,
    rate: f64,
    in_flight_max: usize,
    extent: Extent,
    recorder: &Arc<Recorder>,
    random: impl Fn(u64) -> SmallRng,
) {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0.. {
        let after = due_after(number, rate);
        let end = match extent {
            Extent::Duration(whole) => (after >= whole).then_some(whole),
            Extent::Requests(count) => (number >= count).then_some(after),
        };
        if let Some(end) = end {
            // The last request has its interval too, or a slow rate would look faster than it was.
            tokio::time::sleep_until(started + end).await;
            break;
        }
        let due = started + after;
        tokio::time::sleep_until(due).await;
        while let Some(done) = tasks.try_join_next() {
            done.expect("requests are not aborted and do not panic");
        }
        if tasks.len() >= in_flight_max {
            recorder.not_started();
            continue;
        }
        let (asker, recorder) = (Arc::clone(asker), Arc::clone(recorder));
        let mut turn = Turn::new(random(number), counts_from(due, Instant::now()));
        tasks.spawn(async move {
            asker.ask(&mut turn).await;
            recorder.take(&turn.sample);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("requests are not aborted and do not panic");
    }
}

/// How long after the start request `number` is due.
fn due_after(number: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate)
}

/// When the time of a request begins that was `due` then and starts now.
fn counts_from(due: Instant, now: Instant) -> Instant {
    if now.saturating_duration_since(due) <= TIMER_SLACK { now } else { due }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::super::job::{Kind, random};
    use super::super::{Control, Measured};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Answers after a time that depends on when it is asked; counts how many ask at once.
    struct Simulated<F> {
        answers_after: F,
        began: Instant,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl<F: Fn(Duration) -> Option<Duration> + Send + Sync + 'static> Ask for Simulated<F> {
        async fn ask(&self, turn: &mut Turn) {
            turn.sample.begin(Kind::Get);
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            match (self.answers_after)(self.began.elapsed()) {
                Some(time) => {
                    tokio::time::sleep(time).await;
                    turn.sample.took = Some(turn.started.elapsed());
                    turn.sample.object_times.push(turn.started.elapsed());
                }
                None => turn.sample.unreachable = true,
            }
            self.now.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// What was measured, how long it took, and the most requests at a time.
    async fn run(
        pace: Pace,
        extent: Extent,
        answers_after: impl Fn(Duration) -> Option<Duration> + Send + Sync + 'static,
    ) -> (Measured, Duration, usize) {
        let began = Instant::now();
        let asker = Arc::new(Simulated { answers_after, began, now: AtomicUsize::new(0), most: AtomicUsize::new(0) });
        let recorder = Arc::new(Recorder { measured: Mutex::default(), control: Arc::new(Control::default()) });
        drive(&asker, pace, extent, &recorder, |stream| random(0, 0, stream)).await;
        let measured = std::mem::take(&mut *recorder.measured.lock().unwrap());
        (measured, began.elapsed(), asker.most.load(Ordering::SeqCst))
    }

    fn near(time: Duration, meant: Duration) -> bool {
        time.abs_diff(meant) <= MS * 3
    }

    #[tokio::test(start_paused = true)]
    async fn workers_ask_one_after_another_until_the_time_is_over() {
        let (measured, took, most) = run(Pace::Closed { workers: 3 }, Extent::Duration(MS * 1000), |_| Some(MS * 10)).await;
        let total = measured.total();
        assert_eq!((total.requests, total.requests_failed, total.objects, most), (300, 0, 300, 3));
        assert!(near(took, MS * 1000) && near(total.request_times.max(), MS * 10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn workers_share_a_number_of_requests_and_the_last_is_waited_for() {
        let (measured, took, most) = run(Pace::Closed { workers: 4 }, Extent::Requests(10), |_| Some(MS * 100)).await;
        assert_eq!((measured.total().requests, most), (10, 4));
        assert!(near(took, MS * 300), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn workers_do_not_rage_where_nobody_answers() {
        let (measured, _, _) = run(Pace::Closed { workers: 2 }, Extent::Duration(MS * 1000), |_| None).await;
        assert_eq!((measured.total().requests, measured.total().requests_failed), (20, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_starts_requests_whether_others_are_done_or_not() {
        let pace = Pace::Open { rate: 100.0, in_flight_max: 1000 };
        let (measured, took, most) = run(pace, Extent::Duration(MS * 1000), |_| Some(MS * 2000)).await;
        assert_eq!((measured.total().requests, measured.not_started, most), (100, 0, 100));
        assert!(near(took, MS * 2990) && near(measured.total().request_times.max(), MS * 2000), "{took:?}");
        let (measured, took, _) = run(pace, Extent::Requests(7), |_| Some(MS)).await;
        assert_eq!(measured.total().requests, 7);
        assert!(near(took, MS * 70), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_says_what_it_could_not_start() {
        let pace = Pace::Open { rate: 100.0, in_flight_max: 10 };
        let (measured, _, most) = run(pace, Extent::Duration(MS * 1000), |_| Some(MS * 2000)).await;
        assert_eq!((measured.total().requests, measured.not_started, most), (10, 90, 10));
        assert!(measured.failed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_felt_by_all_who_would_have_come_in_an_open_loop_only() {
        // For half a second nobody is answered until it is over.
        let stall = |at: Duration| Some((MS * 1000).checked_sub(at).filter(|_| at >= MS * 500).unwrap_or(MS));
        let extent = Extent::Duration(MS * 1000);
        let (open, _, _) = run(Pace::Open { rate: 100.0, in_flight_max: 1000 }, extent, stall).await;
        let (closed, _, _) = run(Pace::Closed { workers: 1 }, extent, stall).await;
        let median = |measured: &Measured| measured.total().request_times.quantile(0.75);
        assert!(near(median(&open), MS * 250), "{:?}", median(&open));
        assert!(near(median(&closed), MS), "{:?}", median(&closed));
        assert!(near(closed.total().request_times.max(), MS * 500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_start_counts_from_when_it_was_due() {
        let due = Instant::now();
        assert_eq!(counts_from(due, due), due);
        assert_eq!(counts_from(due, due + MS), due + MS, "that is the timer's doing");
        assert_eq!(counts_from(due, due + MS * 3), due);
        assert_eq!((due_after(0, 8.0), due_after(12, 8.0)), (Duration::ZERO, MS * 1500));
    }
}
