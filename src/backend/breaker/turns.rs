//! Reads that wait for their turn to probe. Invariant: batches take turns, so that many bad objects of a few do not speak for the
//! backend.

use tokio::sync::oneshot;

use super::Probe;
use crate::backend::limited::queue::Queue;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Of reads that have not failed yet.
    fresh: Queue<Probe>,
    /// Of those that have.
    failed: Queue<Probe>,
    /// The next turn is for one of the latter.
    failed_first: bool,
}

impl Turns {
    /// Whose turn it is. Who has not failed yet knows nothing of the backend, and so says most; every other turn is for those
    /// who have.
    pub fn next(&mut self) -> Option<oneshot::Sender<Probe>> {
        let Self { fresh, failed, failed_first } = self;
        let (first, second) = if *failed_first { (failed, fresh) } else { (fresh, failed) };
        *failed_first = !*failed_first;
        let (_, next) = first.pop(|_| true).or_else(|| second.pop(|_| true))?;
        Some(next)
    }

    /// The queue of reads that have failed before, or have not.
    pub fn of(&mut self, again: bool) -> &mut Queue<Probe> {
        if again { &mut self.failed } else { &mut self.fresh }
    }

    /// Whether there are none.
    pub fn nobody_waits(&self) -> bool {
        self.fresh.batches() + self.failed.batches() == 0
    }
}
