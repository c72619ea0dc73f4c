//! Whether a batch may begin, and at whose cost. A quarter of the byte budget is kept for heads: each batch takes from it the
//! reservation of its head and the length of its body, or is refused. The rest is for reading ahead. Its entries are counted
//! against a budget of their own, and a backend may have only so many batches that wait for it. Invariant: as long as its head is reserved a batch can always move; stalled readers cannot
//! keep a new one out for longer than [`crate::stall::STALL_GRACE`].

use std::sync::Arc;

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

    /// Admits a batch whose request body announces `body_bytes`, or refuses it at once. Where bytes are missing, readers that
    /// stalled longest make room first.
    ///
    /// # Errors
    /// `SlowDown`, for [`Budget::Memory`].
    pub async fn admit(&self, body_bytes: u64) -> Result<Admitted> {
        loop {
            let head = self.heads.try_reserve(self.entry_bytes);
            if let (Some(head), Some(request)) = (head, self.heads.try_reserve(body_bytes)) {
                let entries = self.entries.try_reserve(0).expect("nothing is always there");
                return Ok(Admitted { head, request, entries });
            }
            if !self.stalls.make_room(Wanted::Batch).await {
                let why = "the memory for batches (server.memory_bytes_max) is in use; try again shortly";
                return Err(Error::refused(Budget::Memory, why));
            }
        }
    }

    /// Counts the `entries` of an admitted batch as in flight, or refuses it at once; readers that stalled longest make room
    /// first.
    ///
    /// # Errors
    /// `SlowDown`, for [`Budget::Entries`].
    pub async fn admit_entries(&self, admitted: &mut Admitted, entries: usize) -> Result<()> {
        while !admitted.entries.try_grow_to(entries as u64, &self.entries) {
            if !self.stalls.make_room(Wanted::Batch).await {
                let why = "as many entries are in flight as are allowed (batch.entries_in_flight_max); try again shortly";
                return Err(Error::refused(Budget::Entries, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Kind;
    use crate::stall::{BreakOff, Holds, STALL_GRACE, Watch};

    fn admission() -> Admission {
        Admission::new(Pool::new(100, None), Pool::new(0, None), Pool::new(10, None), 60, Arc::default())
    }

    /// A batch that holds `what` and lets go of it once it is told.
    fn stalls(admission: &Admission, what: Admitted) -> Watch {
        let batch = BreakOff::default();
        let watch = admission.stalls.reader(Duration::from_secs(600), Holds::Batch(batch.clone()), |_| {});
        tokio::spawn(async move {
            batch.told.cancelled().await;
            drop(what);
            batch.gone.cancel();
        });
        watch
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_batch_is_refused_until_a_reader_has_stalled_long_enough() {
        let admission = admission();
        let first = admission.admit(10).await.expect("fits");
        let refused = admission.admit(10).await.expect_err("does not fit");
        assert_eq!((refused.kind, refused.budget), (Kind::SlowDown, Some(Budget::Memory)));
        let _watch = stalls(&admission, first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(admission.admit(10).await.expect_err("it may yet read").kind, Kind::SlowDown);
        tokio::time::advance(STALL_GRACE).await;
        admission.admit(10).await.expect("the stalled one made room");
    }

    #[tokio::test(start_paused = true)]
    async fn entries_in_flight_are_counted_and_given_back_as_they_are_written() {
        let admission = admission();
        let mut first = admission.admit(1).await.expect("fits");
        admission.admit_entries(&mut first, 8).await.expect("fits");
        first.head.shrink_to(1);
        let mut second = admission.admit(1).await.expect("fits");
        let refused = admission.admit_entries(&mut second, 3).await.expect_err("two are left");
        assert_eq!((refused.kind, refused.budget), (Kind::SlowDown, Some(Budget::Entries)));
        assert_eq!(second.entries.bytes(), 0, "a refused one holds none");
        first.entries.shrink_to(7);
        admission.admit_entries(&mut second, 3).await.expect("one was written");
        let _watch = stalls(&admission, first);
        tokio::time::advance(STALL_GRACE + Duration::from_secs(1)).await;
        admission.admit_entries(&mut second, 10).await.expect("the stalled one made room");
    }
}
