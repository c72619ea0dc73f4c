//! The places for requests in flight. One is taken with the head of a request, and given back when its answer was taken, or sooner
//! where somebody else is to have it; whoever waits for one gets it before anybody new. Invariant: no more are taken than there are,
//! and each is given back once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::telemetry::Metrics;

/// See the module.
pub(super) struct Slots {
    free: Semaphore,
    metrics: Arc<Metrics>,
}

impl Slots {
    /// `max` of them.
    pub fn new(max: usize, metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { free: Semaphore::new(max.min(Semaphore::MAX_PERMITS)), metrics: Arc::clone(metrics) })
    }

    /// A place, if one is free that nobody waits for.
    pub fn take(self: &Arc<Self>) -> Option<Slot> {
        self.free.try_acquire().ok().map(|permit| self.taken(permit))
    }

    /// The next place that is free, after those who wait already.
    pub async fn next(self: &Arc<Self>) -> Slot {
        self.taken(self.free.acquire().await.expect("nobody closes it"))
    }

    fn taken(self: &Arc<Self>, permit: SemaphorePermit<'_>) -> Slot {
        permit.forget();
        self.metrics.requests_in_flight.inc();
        Slot(Arc::new(Place { of: Arc::clone(self), is_free: AtomicBool::new(false) }))
    }
}

/// One of them, until the last clone is dropped or any holder of one gives it back.
#[derive(Clone)]
pub(super) struct Slot(Arc<Place>);

struct Place {
    of: Arc<Slots>,
    is_free: AtomicBool,
}

impl Slot {
    /// Somebody else may have the place.
    pub fn give_back(&self) {
        self.0.give_back();
    }
}

impl Place {
    fn give_back(&self) {
        if !self.is_free.swap(true, Ordering::Relaxed) {
            self.of.metrics.requests_in_flight.dec();
            self.of.free.add_permits(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_place_that_is_given_back_is_had_at_once_by_whoever_waits_and_by_nobody_new() {
        let metrics = Arc::new(Metrics::new());
        let slots = Slots::new(1, &metrics);
        let first = slots.take().expect("free");
        let clone = first.clone();
        let mut waiting = Box::pin(slots.next());
        assert!(waiting.as_mut().now_or_never().is_none());
        first.give_back();
        assert!(slots.take().is_none(), "it is the other's");
        let second = waiting.now_or_never().expect("at once");
        drop((first, clone));
        assert!(slots.take().is_none(), "it was given back once");
        assert_eq!(metrics.requests_in_flight.get(), 1);
        drop(second);
        assert_eq!(metrics.requests_in_flight.get(), 0);
        assert!(slots.take().is_some());
    }
}
