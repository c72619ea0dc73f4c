//! When a read may make an attempt. In this order: the breaker is closed, or it is this read's turn to probe; the budget of
//! retries allows it, if the backend has failed the read before; there is a permit. Each is waited for on the read's clock,
//! and a permit is never held while one of the others is.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Failure, Read};
use crate::backend::breaker::{Cause, Outage, Pass};
use crate::backend::limited::Permit;
use crate::backend::retry_budget::Retry;

/// Doublings of a pause that are counted.
const DOUBLINGS_MAX: u32 = 16;

impl Read {
    /// All that an attempt needs.
    pub(super) async fn turn(&mut self) -> Result<(Permit, Pass), Failure> {
        loop {
            // Who has not asked yet may be the one that is answered.
            while let Some(until) = self.stats.outage.quiet_until().filter(|_| self.begun) {
                self.clock.run(sleep_until(until)).await.ok_or_else(|| self.out_of_time())?;
            }
            let (pass, waited) = self.pass().await?;
            // Probes are few by themselves; and whoever has waited until the breaker closed has not added to the outage, and
            // must not be held up when it is over.
            let retry = if self.failures <= 1 { Retry::Early } else { Retry::Late };
            if self.owes_retry && !waited && !self.backend.retries.withdraw(retry) {
                drop(pass);
                self.refusals += 1;
                self.wait(self.failures + self.refusals).await?;
                continue;
            }
            self.owes_retry = false;
            let permit = self.permit().await?;
            if self.begun && !pass.is_probe() && self.stats.outage.quiet_until().is_some() {
                continue;
            }
            if let Ok(pass) = pass.renewed() {
                self.refusals = 0;
                if !std::mem::replace(&mut self.begun, true) {
                    self.backend.retries.deposit();
                } else {
                    self.backend.metrics.retries.inc();
                }
                return Ok((permit, pass));
            }
        }
    }

    /// Leave of the breaker, and whether it had to be waited for.
    async fn pass(&mut self) -> Result<(Pass, bool), Failure> {
        let breaker = Arc::clone(&self.backend.breaker);
        if let Some(pass) = breaker.try_enter(self.target) {
            return Ok((pass, false));
        }
        let Some(pass) = self.clock.run(breaker.enter(self.lane, self.target, self.failures > 0)).await else {
            return Err(self.out_of_time());
        };
        if !pass.is_probe() {
            self.clock.outage_was_none(self.backend.attempt_timeout);
        }
        Ok((pass, true))
    }

    /// A permit alone, for a body that goes on.
    pub(super) async fn permit(&mut self) -> Result<Permit, Failure> {
        let (stats, memory, begun) = (Arc::clone(&self.stats), self.backend.breaker.memory(), self.begun);
        // Who has not asked yet waits in a queue that moves like anyone else, unless it would be in vain.
        let counts = move |outage: &Outage| begun || outage.confirmed;
        let own = move || stats.outage.now(memory).filter(counts).map(|outage| outage.since);
        match self.clock.wait_for_permit(&self.backend.limiter, self.lane, self.place, own).await {
            Some(permit) => Ok(permit),
            None => Err(self.out_of_time()),
        }
    }

    /// Takes note that the backend failed the read, and waits a random time that grows with the failures in a row (full
    /// jitter), unless the deadline comes first. An attempt has its `pass`; a body that broke off has none any more.
    pub(super) async fn back_off(&mut self, pass: Option<Pass>, cause: Cause) -> Result<(), Failure> {
        let again = self.failures > 0;
        match pass {
            Some(pass) => pass.failed(cause, again),
            None => self.backend.breaker.body_failed(cause),
        }
        self.stats.outage.met(Instant::now(), Some(cause), self.backend.breaker.memory());
        self.cause = Some(cause);
        self.owes_retry = true;
        self.failures += 1;
        self.wait(self.failures - 1).await
    }

    /// Waits at the pace that the backend asked for, holding the permit, so that no other read asks in its stead; then the
    /// read queues again, at its old place. A batch that hears nothing else is quiet as a whole, without the permit.
    pub(super) async fn keep_pace(&mut self, permit: Permit) -> Result<(), Failure> {
        let longest = self.ceiling(self.backend.limiter.slow_down());
        self.stats.outage.keep_quiet(self.config.backoff_max, self.random(0.5));
        let pause = longest.mul_f64(self.random(0.5));
        let waited = self.clock.run(sleep(pause)).await;
        drop(permit);
        waited.ok_or_else(|| self.out_of_time())
    }

    async fn wait(&mut self, doublings: u32) -> Result<(), Failure> {
        let pause = self.ceiling(doublings).mul_f64(self.random(0.0));
        self.clock.run(sleep(pause)).await.ok_or_else(|| self.out_of_time())
    }

    fn ceiling(&self, doublings: u32) -> Duration {
        self.config.backoff_base.saturating_mul(1 << doublings.min(DOUBLINGS_MAX)).min(self.config.backoff_max)
    }

    fn random(&self, from: f64) -> f64 {
        self.backend.random().random_range(from..1.0)
    }

    /// Why the read ends at its deadline: the backend's own last words, if it had any.
    pub(super) fn out_of_time(&mut self) -> Failure {
        self.park();
        let breaker = &self.backend.breaker;
        if self.clock.probes() {
            breaker.confirm_outage();
        }
        // For most of the time that this read had, nobody else was served either.
        let chance = self.backend.attempt_timeout.min(self.config.deadline);
        let alone = breaker.outage().is_some_and(|outage| outage.since.elapsed() >= chance / 2);
        self.stats.outage.given_up(self.clock.probes(), if alone { 1 } else { breaker.failures() });
        // Who never got to ask shares the fate of those who did.
        let outage = self.outage();
        let cause = self.cause.or_else(|| outage.and_then(|outage| outage.cause));
        let ours = match cause {
            _ if breaker.is_open() => Failure::Unavailable,
            Some(Cause::Unreachable) => Failure::Unavailable,
            None if outage.is_some() => Failure::Paced,
            _ => Failure::DeadlinePassed,
        };
        self.last_words.take().unwrap_or(ours)
    }
}
