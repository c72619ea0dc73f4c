//! The outage as the reads of one batch see it, whatever others get meanwhile: a part of the backend may be down, or only this
//! client be put off. In come what the batch's reads met and what they completed, out go the outage and how long the batch is to
//! be quiet. Invariant: it ends with the first read that completes anything.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::breaker::{Cause, Outage};

/// The pause between the asking of a batch that hears nothing but pleas is this part of the time for which it has.
const QUIET_PART: u32 = 4;

/// The outage of one batch.
#[derive(Debug, Default)]
pub struct OwnOutage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    /// Reads that ended in it without an answer.
    given_up: u32,
    quiet_until: Option<Instant>,
    /// When one of the reads last completed something.
    completed_at: Option<Instant>,
}

impl OwnOutage {
    /// One of the reads got nothing, which asked at `since`; without a cause, a plea to slow down.
    pub(super) fn met(&self, since: Instant, cause: Option<Cause>, memory: Duration) {
        let mut state = self.lock();
        let since = state.completed_at.map_or(since, |at| at.max(since));
        state.outage = Some(Outage::met(state.outage, since, cause, memory));
    }

    /// One of the reads completed something.
    pub(super) fn ended(&self) {
        *self.lock() = State { completed_at: Some(Instant::now()), ..State::default() };
    }

    /// The outage, if there is one.
    pub(super) fn now(&self, memory: Duration) -> Option<Outage> {
        self.lock().outage.filter(|outage| outage.goes_on_at(Instant::now(), memory))
    }

    /// One of the reads ended without an answer, `had_chance` if it was given time in spite of the outage. While others are
    /// served, `confirms` of them must before all the rest are taken for lost, too: as many bad objects may be in a row.
    pub(super) fn given_up(&self, had_chance: bool, confirms: u32) {
        let mut state = self.lock();
        state.given_up += 1;
        let confirmed = had_chance && state.given_up >= confirms;
        if let Some(outage) = state.outage.as_mut().filter(|_| confirmed) {
            outage.confirmed = true;
        }
    }

    /// The batch was put off: it asks for nothing for a while, which is longer the longer it has heard nothing else, `max` at
    /// the longest, times `jitter`. What others get does not shorten it.
    pub(super) fn keep_quiet(&self, max: Duration, jitter: f64) {
        let mut state = self.lock();
        let Some(outage) = state.outage else { return };
        let pause = (outage.since.elapsed() / QUIET_PART).min(max).mul_f64(jitter);
        let until = Instant::now() + pause;
        state.quiet_until = Some(state.quiet_until.map_or(until, |before| before.max(until)));
    }

    /// Until when the batch asks for nothing, if it does not.
    pub(super) fn quiet_until(&self) -> Option<Instant> {
        self.lock().quiet_until.filter(|until| *until > Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}
