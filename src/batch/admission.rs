//! Whether a batch may begin, and at whose cost. A quarter of the byte budget is kept for heads: each batch takes from it what
//! its request holds, and the reservation of its head once the request has come, or is refused. The rest is for reading ahead.
//! Its entries are counted against a budget of their own, and a backend may have only so many batches that wait for it.
//! Invariants: as long as its head is reserved a batch can always move; stalled readers cannot keep a new one out for longer
//! than [`crate::stall::STALL_GRACE`]; a client that has not sent its request holds about what it sent, whatever it announced.

use std::sync::Arc;

use crate::auth::Payer;
use crate::backend::limited::Limiter;
use crate::budget::{Pool, Reservation};
use crate::error::{Budget, Error, Result};
use crate::stall::{StallWatch, Wanted};

/// Part of the byte budget that is kept for heads.
const HEADS_SHARE: u64 = 4;

/// The budgets of all batches.
pub struct Admission {
    heads: Pool,
    window: Pool,
    entries: Pool,
    entry_bytes: u64,
    stalls: Arc<StallWatch>,
}

/// What a batch has been admitted with.
#[derive(Debug)]
pub struct Admitted {
    /// For the entry that is written next.
    pub head: Reservation,
    /// For the request itself, as long as it lives.
    pub request: Reservation,
    /// Not bytes but entries: one for each that is not written yet, once they are known.
    pub entries: Reservation,
}

/// The bytes of the budget that are kept for heads.
pub fn heads_share(memory_bytes_max: u64) -> u64 {
    memory_bytes_max / HEADS_SHARE
}

/// Admits a batch at the backends of its entries, or refuses it at once: what begins is to move as fast as GETs would.
///
/// # Errors
/// `SlowDown`, for [`Budget::Permits`].
pub fn admit_at<'a>(backends: impl IntoIterator<Item = &'a Limiter>) -> Result<()> {
    match backends.into_iter().any(Limiter::is_full_of_batches) {
        false => Ok(()),
        true => Err(Error::refused(Budget::Permits, "as many batches wait for the store as it can read for; try again shortly")),
    }
}

impl Admission {
    /// Budgets with `heads` and `window` bytes and a number of `entries`; each head is reserved `entry_bytes`. `stalls` knows
    /// who may have to make room.
    pub fn new(heads: Pool, window: Pool, entries: Pool, entry_bytes: u64, stalls: Arc<StallWatch>) -> Self {
        Self { heads, window, entries, entry_bytes, stalls }
    }

    /// The pool for reading ahead.
    pub fn window(&self) -> &Pool {
        &self.window
    }

    /// Begins a batch whose request body announces `body_bytes`, or refuses it at once if there is no room for it now. Nothing
    /// is reserved yet: who announces much and sends little is to keep nobody out.
    ///
    /// # Errors
    /// `SlowDown`, for [`Budget::Memory`].
    pub fn begin(&self, body_bytes: u64) -> Result<Paid<'_>> {
        // The text and what is read from it are there together.
        let missing = (self.entry_bytes + 2 * body_bytes).saturating_sub(self.heads.free());
        if missing > 0 && !self.stalls.has_room(Wanted::Bytes(missing)) {
            return Err(no_memory());
        }
        Ok(Paid { admission: self, request: self.heads.nothing() })
    }

    /// Grows `held` to `bytes` of the heads' share, or refuses at once; readers that stalled longest make room first.
    async fn grow(&self, held: &mut Reservation, bytes: u64) -> Result<()> {
        while !held.try_grow_to(bytes, &self.heads) {
            let missing = bytes.saturating_sub(held.bytes() + self.heads.free()).max(1);
            if !self.stalls.make_room(Wanted::Bytes(missing)).await {
                return Err(no_memory());
            }
        }
        Ok(())
    }

    /// Counts `entries` as in flight, or refuses them at once; readers that stalled longest make room first.
    async fn count(&self, entries: u64) -> Result<Reservation> {
        let mut counted = self.entries.nothing();
        while !counted.try_grow_to(entries, &self.entries) {
            let missing = entries.saturating_sub(self.entries.free()).max(1);
            if !self.stalls.make_room(Wanted::Entries(missing)).await {
                let why = "as many entries are in flight as are allowed (batch.entries_in_flight_max); try again shortly";
                return Err(Error::refused(Budget::Entries, why));
            }
        }
        Ok(counted)
    }
}

fn no_memory() -> Error {
    Error::refused(Budget::Memory, "the memory for batches (server.memory_bytes_max) is in use; try again shortly")
}

/// A request that is on its way, and what it has paid.
pub struct Paid<'a> {
    admission: &'a Admission,
    request: Reservation,
}

impl Payer for Paid<'_> {
    async fn pay(&mut self, bytes: u64) -> Result<()> {
        self.admission.grow(&mut self.request, bytes).await
    }
}

impl Paid<'_> {
    /// Admits the batch, whose request holds `request_bytes` as long as it lives, and which has so many entries.
    ///
    /// # Errors
    /// `SlowDown`, for [`Budget::Memory`] or [`Budget::Entries`].
    pub async fn admit(mut self, request_bytes: u64, entries: usize) -> Result<Admitted> {
        self.request.shrink_to(request_bytes);
        self.pay(request_bytes).await?;
        let mut head = self.admission.heads.nothing();
        self.admission.grow(&mut head, self.admission.entry_bytes).await?;
        let entries = self.admission.count(entries as u64).await?;
        Ok(Admitted { head, request: self.request, entries })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::error::Kind;
    use crate::stall::{BreakOff, Holds, STALL_GRACE, Watch};

    fn admission() -> Admission {
        Admission::new(Pool::new(100, None), Pool::new(0, None), Pool::new(10, None), 60, Arc::default())
    }

    impl Admission {
        /// A batch whose request holds `bytes`, and announces no more than that.
        async fn admit(&self, bytes: u64, entries: usize) -> Result<Admitted> {
            self.begin(0)?.admit(bytes, entries).await
        }
    }

    /// A batch that holds `what` and lets go of it once it is told.
    fn stalls(admission: &Admission, what: Admitted) -> (Watch, BreakOff) {
        let batch = BreakOff::default();
        batch.held.bytes.store(what.head.bytes() + what.request.bytes(), Ordering::Relaxed);
        batch.held.entries.store(what.entries.bytes(), Ordering::Relaxed);
        let watch = admission.stalls.reader(Duration::from_secs(600), Holds::Batch(batch.clone()), |_| {});
        let told = batch.clone();
        tokio::spawn(async move {
            told.told.cancelled().await;
            drop(what);
            told.gone.cancel();
        });
        (watch, batch)
    }

    fn is_refused<T>(result: Result<T>, budget: Budget) -> bool {
        result.is_err_and(|refused| (refused.kind, refused.budget) == (Kind::SlowDown, Some(budget)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_batch_is_refused_until_a_reader_has_stalled_long_enough() {
        let admission = admission();
        let first = admission.admit(10, 1).await.expect("fits");
        assert!(is_refused(admission.admit(10, 1).await, Budget::Memory));
        let _watch = stalls(&admission, first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(is_refused(admission.admit(10, 1).await, Budget::Memory), "it may yet read");
        tokio::time::advance(STALL_GRACE).await;
        admission.admit(10, 1).await.expect("the stalled one made room");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_announced_and_not_sent_keeps_nobody_out() {
        let admission = admission();
        let mut half_sent = Vec::new();
        for _ in 0..20 {
            let mut paid = admission.begin(10).expect("it would fit");
            paid.pay(1).await.expect("fits");
            half_sent.push(paid);
        }
        admission.admit(20, 1).await.expect("80 are free");
        assert!(is_refused(half_sent[0].pay(82).await, Budget::Memory), "19 are held by the others");
        half_sent[0].pay(81).await.expect("what it has paid stays its own");
        assert!(is_refused(admission.begin(0), Budget::Memory), "before it sends a byte");
        drop(half_sent);
        assert_eq!(admission.heads.free(), 100);
        assert!(is_refused(admission.begin(21), Budget::Memory), "60, and twice 21");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_broken_off_only_for_what_it_holds_and_if_that_suffices() {
        let admission = admission();
        let (_watch, written) = stalls(&admission, admission.admit(10, 4).await.expect("fits"));
        let mut busy = admission.entries.nothing();
        assert!(busy.try_grow_to(6, &admission.entries));
        written.held.entries.store(0, Ordering::Relaxed);
        tokio::time::advance(STALL_GRACE + Duration::from_secs(1)).await;
        assert!(is_refused(admission.count(1).await, Budget::Entries) && !written.told.is_cancelled(), "all is written");
        written.held.entries.store(4, Ordering::Relaxed);
        assert!(is_refused(admission.count(5).await, Budget::Entries) && !written.told.is_cancelled(), "five are too many");
        assert!(is_refused(admission.begin(21), Budget::Memory), "as is more than there is");
        admission.begin(20).expect("it would do");
        assert!(!written.told.is_cancelled(), "but not for a mere announcement");
        assert_eq!(admission.count(4).await.expect("the stalled one made room").bytes(), 4);
        assert!(written.told.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn entries_in_flight_are_counted_and_given_back_as_they_are_written() {
        let admission = admission();
        let mut first = admission.admit(1, 8).await.expect("fits");
        first.head.shrink_to(1);
        assert!(is_refused(admission.admit(1, 3).await, Budget::Entries), "two are left");
        assert_eq!((admission.entries.free(), admission.heads.free()), (2, 98), "a refused one holds none");
        first.entries.shrink_to(7);
        let second = admission.admit(1, 3).await.expect("one was written");
        let _watch = stalls(&admission, first);
        tokio::time::advance(STALL_GRACE + Duration::from_secs(1)).await;
        drop(second);
        assert_eq!(admission.count(10).await.expect("the stalled one made room").bytes(), 10);
    }
}
