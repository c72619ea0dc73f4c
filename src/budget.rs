//! Bytes as money: a [`Pool`] has a fixed number of them, a [`Reservation`] holds some and gives them back when the last byte
//! that it stands for is gone. Invariant: the reservations of a pool never add up to more than its maximum.

use std::sync::Arc;

use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A budget of bytes, cheap to clone. Waiters are served in the order in which they came.
#[derive(Clone, Debug)]
pub struct Pool {
    bytes: Arc<Semaphore>,
    max: u64,
    gauge: Option<IntGauge>,
}

/// Bytes taken from one pool.
#[derive(Debug)]
pub struct Reservation {
    permit: Option<OwnedSemaphorePermit>,
    gauge: Option<IntGauge>,
}

impl Pool {
    /// A pool of `max` bytes; `gauge`, if any, shows how many are taken.
    pub fn new(max: u64, gauge: Option<IntGauge>) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS as u64);
        Self { bytes: Arc::new(Semaphore::new(max as usize)), max, gauge }
    }

    /// How many bytes the pool has in all.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// How many are free now.
    pub fn free(&self) -> u64 {
        self.bytes.available_permits() as u64
    }

    /// A reservation of none of its bytes, to be grown.
    pub fn nothing(&self) -> Reservation {
        self.try_reserve(0).expect("none are always there")
    }

    /// Takes `bytes` at once, or nothing.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        let count = u32::try_from(bytes).ok()?;
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(count).ok()?;
        Some(self.reservation(permit))
    }

    /// Waits for `bytes`; never ends if the pool has fewer in all (settings are validated so that it has).
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes).acquire_many_owned(count).await.expect("a pool is never closed");
        self.reservation(permit)
    }

    fn reservation(&self, permit: OwnedSemaphorePermit) -> Reservation {
        if let Some(gauge) = &self.gauge {
            gauge.add(permit.num_permits() as i64);
        }
        Reservation { permit: Some(permit), gauge: self.gauge.clone() }
    }
}

impl Reservation {
    /// How many bytes are held.
    pub fn bytes(&self) -> u64 {
        self.permit.as_ref().map_or(0, |p| p.num_permits() as u64)
    }

    /// Gives back what is held beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes().saturating_sub(bytes);
        if surplus > 0 {
            let permit = self.permit.as_mut().and_then(|p| p.split(surplus as usize));
            assert!(permit.is_some(), "the surplus is part of what is held");
            self.show(-(surplus as i64));
        }
    }

    /// Takes what is missing to `bytes` from the same pool, or leaves everything as it is and says `false`. Never waits.
    pub fn try_grow_to(&mut self, bytes: u64, pool: &Pool) -> bool {
        let missing = bytes.saturating_sub(self.bytes());
        let Some(mut more) = pool.try_reserve(missing) else { return false };
        let (Some(mine), Some(more)) = (self.permit.as_mut(), more.permit.take()) else { return false };
        mine.merge(more);
        true
    }

    fn show(&self, change: i64) {
        if let Some(gauge) = &self.gauge {
            gauge.add(change);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let held = self.bytes() as i64;
        self.show(-held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_never_gives_more_than_it_has_and_the_gauge_tells() {
        let gauge = IntGauge::new("g", "g").expect("valid");
        let pool = Pool::new(100, Some(gauge.clone()));
        let mut a = pool.try_reserve(60).expect("fits");
        assert!(pool.try_reserve(41).is_none());
        a.shrink_to(10);
        assert_eq!((a.bytes(), pool.free(), gauge.get()), (10, 90, 10));
        assert!(!a.try_grow_to(101, &pool));
        assert_eq!((a.bytes(), gauge.get()), (10, 10));
        assert!(a.try_grow_to(100, &pool));
        assert_eq!((a.bytes(), pool.free(), gauge.get()), (100, 0, 100));
        drop(a);
        assert_eq!((pool.free(), gauge.get()), (100, 0));
    }

    #[tokio::test]
    async fn a_waiter_gets_what_another_gives_back() {
        let pool = Pool::new(10, None);
        let held = pool.try_reserve(10).expect("fits");
        let waiter = tokio::spawn({
            let pool = pool.clone();
            async move { pool.reserve(4).await.bytes() }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiter.await.expect("no panic"), 4);
        assert_eq!(pool.free(), 10);
    }
}
