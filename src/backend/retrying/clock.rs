//! The time that a read has left. It is spent only inside [`Clock::run`] and, with forbearance, while a permit is awaited;
//! between the calls it stands still.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use crate::backend::breaker::Outage;
use crate::backend::limited::{Lane, Limiter, Permit};

/// How capped work ended.
#[derive(Debug)]
pub enum Ran<T> {
    /// It is done.
    Done(T),
    /// It took longer than its cap.
    TooLong,
    /// The clock ran out.
    OutOfTime,
}

/// A stopwatch that runs backwards.
#[derive(Debug)]
pub struct Clock {
    left: Duration,
    probes: bool,
}

impl Clock {
    /// A clock with `left` to spend.
    pub fn new(left: Duration) -> Self {
        Self { left, probes: false }
    }

    /// Has `left` to spend again.
    pub fn restart(&mut self, left: Duration) {
        self.left = left;
        self.probes = false;
    }

    /// Runs `work` on the clock; nothing if the time is up first.
    pub async fn run<F: Future>(&mut self, work: F) -> Option<F::Output> {
        let started = Instant::now();
        let done = timeout(self.left, work).await.ok();
        self.spend(started.elapsed());
        done
    }

    /// Runs `work` on the clock, but for no longer than `cap`.
    pub async fn run_capped<F: Future>(&mut self, cap: Duration, work: F) -> Ran<F::Output> {
        let started = Instant::now();
        let done = timeout(self.left.min(cap), work).await;
        self.spend(started.elapsed());
        match done {
            Ok(output) => Ran::Done(output),
            Err(_) if self.left.is_zero() => Ran::OutOfTime,
            Err(_) => Ran::TooLong,
        }
    }

    /// Charges what has gone of the time since `asked_at` in which the backend failed everyone: who waits behind others in an
    /// outage has waited as they have. Everyone may have been a few bad objects that held up the rest, so the time to try once,
    /// `chance`, is left, until a read has failed that had it. Says whether any time is left.
    pub fn charge_outage(&mut self, outage: Option<Outage>, asked_at: Instant, chance: Duration) -> bool {
        if let Some(outage) = outage {
            let whole = self.left;
            self.spend(outage.since.max(asked_at).elapsed());
            if self.left < chance && !outage.confirmed {
                self.left = whole.min(chance);
                self.probes = true;
            }
        }
        !self.left.is_zero()
    }

    /// Somebody else found out, first, that the outage is none: the time to try once, `chance`, is there for this read too.
    pub fn outage_was_none(&mut self, chance: Duration) {
        if std::mem::replace(&mut self.probes, false) {
            self.left = self.left.max(chance);
        }
    }

    /// Whether the time was given to find out if an outage is one.
    pub fn probes(&self) -> bool {
        self.probes
    }

    /// Waits for a permit. Only the time since the backend last completed anything for anyone counts, or since `own_outage`
    /// began, if there is one: a queue that moves is no outage, unless it does for others alone. Nothing if that time is up.
    pub async fn wait_for_permit(
        &mut self,
        limiter: &Arc<Limiter>,
        lane: Lane,
        place: u32,
        own_outage: impl Fn() -> Option<Instant>,
    ) -> Option<Permit> {
        if let Some(permit) = limiter.try_acquire(lane) {
            return Some(permit);
        }
        let started = Instant::now();
        let still = || {
            let progressed_at = limiter.progressed_at();
            own_outage().map_or(progressed_at, |since| since.min(progressed_at)).max(started)
        };
        let mut acquire = pin!(limiter.acquire(lane, place));
        loop {
            let still_since = still();
            tokio::select! {
                biased;
                permit = &mut acquire => {
                    self.spend(still().elapsed());
                    return Some(permit);
                }
                () = sleep_until(still_since + self.left) => {
                    if still() <= still_since {
                        self.left = Duration::ZERO;
                        return None;
                    }
                }
            }
        }
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::limited::LimitConfig;
    use crate::telemetry::Metrics;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn time_is_spent_inside_run_only() {
        let mut clock = Clock::new(3 * SECOND);
        assert!(clock.run(tokio::time::sleep(2 * SECOND)).await.is_some());
        tokio::time::sleep(10 * SECOND).await;
        assert!(clock.run(tokio::time::sleep(SECOND / 2)).await.is_some());
        assert!(clock.run(tokio::time::sleep(SECOND)).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_moving_queue_costs_no_time_and_a_dead_one_one_deadline() {
        let limiter =
            Limiter::new(LimitConfig { max: 1, min: 1, plain_share: 0.0, queue_wait: SECOND }, Metrics::new().backend("b"));
        let held = limiter.acquire(Lane::PLAIN, 0).await;
        let mover = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move {
                for _ in 0..10 {
                    tokio::time::sleep(2 * SECOND).await;
                    limiter.progress();
                }
            }
        });
        let started = Instant::now();
        let mut clock = Clock::new(3 * SECOND);
        assert!(clock.wait_for_permit(&limiter, Lane::PLAIN, 0, || None).await.is_none());
        assert_eq!(started.elapsed(), 23 * SECOND, "the deadline runs from the last movement, at 20 s");
        mover.await.expect("no panic");
        // What others get does not count in an outage of one's own.
        let (started, mut clock) = (Instant::now(), Clock::new(3 * SECOND));
        let mover = async {
            for _ in 0..6 {
                tokio::time::sleep(SECOND / 2).await;
                limiter.progress();
            }
        };
        let own = || (started.elapsed() >= SECOND).then_some(started);
        let (permit, ()) = tokio::join!(clock.wait_for_permit(&limiter, Lane::PLAIN, 0, own), mover);
        assert!(permit.is_none() && started.elapsed() < 4 * SECOND, "{:?}", started.elapsed());
        drop(held);
    }
}
