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
        let has_ended = match extent {
            Extent::Duration(whole) => after >= whole,
            Extent::Requests(count) => number >= count,
        };
        if has_ended {
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
