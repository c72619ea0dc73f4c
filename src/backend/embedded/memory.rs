//! The bound on what the store holds. Every byte of data carries its reservation with it, so that what is shared (copies, parts
//! that became an object, answers that are still being read) is paid for once and as long as it is there. Counts are bounded
//! too: whatever is kept pays a constant beside its bytes.

use bytes::Bytes;
use prometheus::IntGauge;

use super::fault::{Done, Fault};
use super::xml::{ELEMENT_TEXT_BYTES_MIN, ELEMENTS_MAX};
use crate::budget::{Pool, Reservation};
use crate::config::format_size;

/// What a bucket, an upload, an object or a part costs beside its names, headers and data: the structures around them, rounded
/// up.
pub const ITEM_BYTES: u64 = 1024;

/// What documents of requests take while they are read, all together. Beside the bound on what is kept, so that a full store can
/// still be asked to delete.
const DOCUMENTS_BYTES_MAX: u64 = 256 << 20;

/// What a byte of a document takes while it is read: it is there as it came and as texts, both in memory that grows by doubling.
const DOCUMENT_FACTOR: u64 = 4;

/// What an element takes beside its text: itself and its name, in lists that grow by doubling, and what is made of it.
const ELEMENT_BYTES: u64 = 320;

/// The memory of one store.
#[derive(Clone, Debug)]
pub struct Memory {
    pool: Pool,
    documents: Pool,
}

impl Memory {
    /// At most `bytes_max`; the gauge shows what is taken.
    pub fn new(bytes_max: u64, gauge: Option<IntGauge>) -> Self {
        Self { pool: Pool::new(bytes_max, gauge), documents: Pool::new(DOCUMENTS_BYTES_MAX, None) }
    }

    /// Takes `bytes` and an item's constant.
    ///
    /// # Errors
    /// `InsufficientStorage` with status 507, which says what it is (S3 has no code of its own for a full store) and which
    /// clients do not try again, as they would a 503.
    pub fn take(&self, bytes: u64) -> Done<Reservation> {
        self.pool.try_reserve(bytes.saturating_add(ITEM_BYTES)).ok_or_else(|| {
            let message = format!(
                "The embedded store is full: {bytes} more bytes do not fit in its memory_bytes_max of {}, of which {} are free. \
                 Delete something, or set it higher in a settings file: [[backends]] with kind = \"embedded\" and \
                 memory_bytes_max.",
                format_size(self.pool.max()),
                format_size(self.pool.free())
            );
            Fault::new("InsufficientStorage", message)
        })
    }

    /// What is told where the machine has not what the store may use.
    pub fn none_left(&self, bytes: u64) -> Fault {
        let max = format_size(self.pool.max());
        let message = format!("The machine has no memory left for {bytes} more bytes, though memory_bytes_max is {max}.");
        Fault::new("InsufficientStorage", message)
    }

    /// Pays for a document of `bytes` while it is read and used.
    ///
    /// # Errors
    /// `SlowDown` while too many are.
    pub fn document(&self, bytes: u64) -> Done<Reservation> {
        let elements = (bytes / ELEMENT_TEXT_BYTES_MIN).min(ELEMENTS_MAX);
        let taken = self.documents.try_reserve(bytes.saturating_mul(DOCUMENT_FACTOR).saturating_add(elements * ELEMENT_BYTES));
        taken.ok_or_else(|| Fault::new("SlowDown", "Too many documents are being read at once; try again shortly."))
    }

    /// How many bytes are taken.
    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.pool.max() - self.pool.free()
    }
}

/// Bytes that hold their reservation until the last slice of them is gone.
struct Paid {
    data: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// `data` and what pays for it, as one.
pub fn paid(data: Vec<u8>, reservation: Reservation) -> Bytes {
    Bytes::from_owner(Paid { data, _reservation: reservation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_until_the_last_slice_is_gone() {
        let memory = Memory::new(4096, None);
        let reservation = memory.take(2000).expect("fits");
        let whole = paid(vec![7; 2000], reservation);
        let slice = whole.slice(10..20);
        drop(whole);
        assert_eq!((memory.used(), slice.len()), (2000 + ITEM_BYTES, 10));
        let fault = memory.take(2000).expect_err("full");
        assert_eq!(fault.status.as_u16(), 507);
        assert!(fault.message.contains("memory_bytes_max") && fault.message.contains("4KiB"), "{}", fault.message);
        drop(slice);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn documents_of_the_smallest_elements_are_paid_for() {
        let memory = Memory::new(0, None);
        let small = memory.document(400).expect("fits");
        assert!(small.bytes() >= 100 * ELEMENT_BYTES, "{}", small.bytes());
        let large: Vec<_> = std::iter::from_fn(|| memory.document(4 << 20).ok()).collect();
        assert!((2..10).contains(&large.len()), "{}", large.len());
        assert_eq!(memory.document(4 << 20).expect_err("full").code, "SlowDown");
    }
}
