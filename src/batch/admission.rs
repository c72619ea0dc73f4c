//! Whether a batch may begin, and at whose cost. A quarter of the byte budget is kept for heads: each batch takes from it the
//! reservation of its head and the length of its body, or is refused. The rest is for reading ahead. Invariant: as long as
//! its head is reserved a batch can always move; stalled readers cannot keep a new one out for longer than
//! [`STALL_GRACE`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::{Pool, Reservation};
use crate::error::{Error, Kind, Result};

/// A reader that has stalled for this long may be broken off for the sake of a new batch.
pub const STALL_GRACE: Duration = Duration::from_secs(30);

/// How long a reader that is broken off may take to let go of its bytes.
const BREAK_OFF_TIMEOUT: Duration = Duration::from_millis(100);

/// Part of the byte budget that is kept for heads.
const HEADS_SHARE: u64 = 4;

/// The budgets of all batches.
#[derive(Debug)]
pub struct Admission {
    heads: Pool,
    window: Pool,
    entry_bytes: u64,
    stalled: Mutex<BTreeMap<(Instant, u64), Stalled>>,
}

/// What a batch has been admitted with.
#[derive(Debug)]
pub struct Admitted {
    /// For the entry that is written next.
    pub head: Reservation,
    /// For the request itself, as long as it lives.
    pub request: Reservation,
}

/// Ways to reach a batch whose reader has stalled.
#[derive(Clone, Debug)]
pub struct Stalled {
    /// Tells the batch to end as broken.
    pub break_off: CancellationToken,
    /// Cancelled once it has let go of everything.
    pub gone: CancellationToken,
}

/// The bytes of the budget that are kept for heads.
pub fn heads_share(memory_bytes_max: u64) -> u64 {
    memory_bytes_max / HEADS_SHARE
}

impl Admission {
    /// Budgets with `heads` and `window` bytes; each head is reserved `entry_bytes`.
    pub fn new(heads: Pool, window: Pool, entry_bytes: u64) -> Self {
        Self { heads, window, entry_bytes, stalled: Mutex::default() }
    }

    /// The pool for reading ahead.
    pub fn window(&self) -> &Pool {
        &self.window
    }

    /// Admits a batch whose request body announces `body_bytes`, or refuses it at once. Where bytes are missing, readers that
    /// stalled longest make room first.
    pub async fn admit(&self, body_bytes: u64) -> Result<Admitted> {
        loop {
            let head = self.heads.try_reserve(self.entry_bytes);
            if let (Some(head), Some(request)) = (head, self.heads.try_reserve(body_bytes)) {
                return Ok(Admitted { head, request });
            }
            let Some(stalled) = self.longest_stalled() else {
                return Err(Error::new(Kind::SlowDown, "no memory is free for another batch; try again shortly"));
            };
            stalled.break_off.cancel();
            // Who does not let go in time is out of the list all the same, so that this loop ends.
            let _ = tokio::time::timeout(BREAK_OFF_TIMEOUT, stalled.gone.cancelled()).await;
        }
    }

    /// Takes note of a reader that has taken nothing since `since`.
    pub fn note_stalled(&self, since: Instant, batch: u64, stalled: Stalled) {
        self.lock().insert((since, batch), stalled);
    }

    /// The reader reads again, or its batch has ended.
    pub fn forget_stalled(&self, since: Instant, batch: u64) {
        self.lock().remove(&(since, batch));
    }

    fn longest_stalled(&self) -> Option<Stalled> {
        let mut stalled = self.lock();
        let (key, _) = stalled.first_key_value().filter(|((since, _), _)| since.elapsed() > STALL_GRACE)?;
        let key = *key;
        stalled.remove(&key)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Instant, u64), Stalled>> {
        self.stalled.lock().expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_batch_is_refused_until_a_reader_has_stalled_long_enough() {
        let admission = Admission::new(Pool::new(100, None), Pool::new(0, None), 60);
        let first = admission.admit(10).await.expect("fits");
        assert_eq!(admission.admit(10).await.expect_err("does not fit").kind, Kind::SlowDown);
        let stalled = Stalled { break_off: CancellationToken::new(), gone: CancellationToken::new() };
        admission.note_stalled(Instant::now(), 1, stalled.clone());
        assert_eq!(admission.admit(10).await.expect_err("it may yet read").kind, Kind::SlowDown);
        tokio::time::advance(STALL_GRACE + Duration::from_millis(1)).await;
        tokio::spawn(async move {
            stalled.break_off.cancelled().await;
            drop(first);
            stalled.gone.cancel();
        });
        admission.admit(10).await.expect("the stalled one made room");
    }
}
