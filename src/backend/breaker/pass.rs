//! Leave to ask a backend, and the way back to its breaker: whoever has a [`Pass`] says what came of it. Invariant: a probe's
//! place is free again once it is told or dropped, and not before the time of the next probe is known, which is a pause after
//! this one began, or a pause after it failed.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{Breaker, Cause, Open, Target};
use crate::backend::BackendErrorKind;

/// Leave to ask the backend once. Whoever has it says what came of it; to drop it is to say nothing.
#[derive(Debug)]
pub struct Pass {
    pub(super) breaker: Arc<Breaker>,
    pub(super) target: Target,
    pub(super) probe: Option<Probe>,
}

/// What finds out whether the backend is back.
#[derive(Debug)]
pub(super) enum Probe {
    /// A batch's read; while it has the watch no other does so.
    Read { _watch: OwnedSemaphorePermit },
    /// A plain request, and when it got leave.
    Plain { since: Instant },
}

impl Pass {
    /// Whether this is the one that finds out if the backend is back.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// The pass after a wait for something else, such as a permit.
    ///
    /// # Errors
    /// [`Open`]: the breaker has opened meanwhile.
    pub fn renewed(self) -> Result<Self, Open> {
        if self.is_probe() || !self.breaker.is_open() { Ok(self) } else { Err(Open) }
    }

    /// An answer came that is no failure of the backend's: 2xx, 3xx, 4xx, 501.
    pub fn answered(mut self) {
        self.breaker.answered();
        self.probe = None;
    }

    /// The answer was a plea to slow down.
    pub fn paced(mut self) {
        self.breaker.paced();
        self.probe = None;
    }

    /// A plain request has waited for `attempt_timeout`: a failure, unless answers have lately come later than that.
    pub fn overdue(self, again: bool) {
        if !self.breaker.answers_late() {
            self.failed(Cause::TimedOut, again);
        }
    }

    /// The backend failed. `again` if it had failed this very read or request before.
    pub fn failed(mut self, cause: Cause, again: bool) {
        self.breaker.failed(cause, (!again).then_some(self.target));
        if let Some(opened) = &mut self.breaker.lock().opened {
            let next = Instant::now() + self.breaker.config.pause;
            match self.probe {
                Some(Probe::Read { .. }) => opened.read_probe_at = next,
                Some(Probe::Plain { .. }) => {
                    opened.plain_probe_at = next;
                    opened.plain_failed = matches!(cause, Cause::Status(_)).then_some(self.target);
                }
                None => {}
            }
        }
        // Only now: the next to watch must see the time.
        self.probe = None;
    }

    /// No answer came that could be used. One that came all the same is an answer; where none did and that was not the
    /// backend's fault, nothing is known of it.
    pub fn unanswered(self, kind: BackendErrorKind, again: bool) {
        match Cause::of(kind) {
            Some(cause) => self.failed(cause, again),
            None if matches!(kind, BackendErrorKind::HeadTooLarge | BackendErrorKind::Unframed) => self.answered(),
            None => {}
        }
    }
}

impl Drop for Pass {
    /// A probe that vanishes frees the place once the pause since it began is over; a read's place is the watch, which goes
    /// with it.
    fn drop(&mut self) {
        if let Some(Probe::Plain { since }) = self.probe
            && let Some(opened) = &mut self.breaker.lock().opened
        {
            opened.plain_probe_at = opened.plain_probe_at.min(since + self.breaker.config.pause);
        }
    }
}
