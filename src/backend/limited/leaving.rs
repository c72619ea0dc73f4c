//! Who goes away before the end: what enters are guards dropped by futures that nobody polls any more, what leaves is the word to
//! the limiter. Invariant: whoever leaves the queue is in it no longer.

use std::sync::Arc;

use tokio::time::Instant;

use super::Limiter;
use super::queue::Ticket;

/// Takes a waiter out of the queue when its future is dropped before its turn.
pub(super) struct Leave<'a> {
    limiter: &'a Limiter,
    ticket: Ticket,
    since: Instant,
}

impl<'a> Leave<'a> {
    /// Whoever has this ticket, and has waited since then.
    pub fn new(limiter: &'a Limiter, ticket: Ticket, since: Instant) -> Self {
        Self { limiter, ticket, since }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        let crowded = state.is_crowded();
        if !state.queue.leave(self.ticket) {
            return;
        }
        if self.ticket.is_new() {
            self.limiter.left(&mut state, self.since, crowded);
        }
        self.limiter.show_plain(&state);
    }
}

/// A client that waited to begin, and now waits for its answer. Dropped before [`Serving::answered`], it has left.
#[derive(Debug)]
pub struct Serving {
    limiter: Arc<Limiter>,
    since: Option<Instant>,
}

impl Serving {
    /// One that wanted to begin then, if it had to wait at all.
    pub(super) fn new(limiter: Arc<Limiter>, since: Option<Instant>) -> Self {
        Self { limiter, since }
    }

    /// The backend answered, or had its time: what the client does from now on says nothing of the queue.
    pub fn answered(mut self) {
        self.since = None;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let Some(since) = self.since else { return };
        let mut state = self.limiter.lock();
        let crowded = state.is_crowded();
        self.limiter.left(&mut state, since, crowded);
    }
}
