//! One entry's read, from its reservation to a part that can be written. Bytes are only ever read into what is reserved for
//! them: an entry that fits is read whole, one that does not keeps what it has and leaves the rest to its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::StatusCode;

use super::encode::PartHeaders;
use super::outcome::FailedEntry;
use crate::backend::retrying::{Failure, Head, Read};
use crate::budget::{Pool, Reservation};
use crate::error::Kind;
use crate::types::EntryIndex;

/// What an entry costs beside its body and its headers, in bytes: queue slots and allocations.
const ENTRY_OVERHEAD_BYTES: u64 = 512;

/// The bytes that one entry may hold.
#[derive(Debug)]
pub enum Claim {
    /// The batch's head reservation, lent to the entry that is written next.
    Head(Reservation),
    /// From the batch's window and from the budget of all batches.
    Ahead {
        /// Of this batch.
        window: Reservation,
        /// Of all batches.
        shared: Reservation,
    },
}

/// Where an entry's claim may grow.
#[derive(Clone, Debug)]
pub struct Pools {
    /// Of this batch.
    pub window: Pool,
    /// Of all batches.
    pub shared: Pool,
}

impl Claim {
    fn bytes(&self) -> u64 {
        match self {
            Self::Head(head) => head.bytes(),
            Self::Ahead { window, .. } => window.bytes(),
        }
    }

    /// The head's reservation belongs to the batch and stays whole.
    fn shrink_to(&mut self, bytes: u64) {
        if let Self::Ahead { window, shared } = self {
            window.shrink_to(bytes);
            shared.shrink_to(bytes);
        }
    }

    fn try_grow_to(&mut self, bytes: u64, pools: &Pools) -> bool {
        let Self::Ahead { window, shared } = self else { return false };
        let before = window.bytes();
        if !window.try_grow_to(bytes, &pools.window) {
            return false;
        }
        let grown = shared.try_grow_to(bytes, &pools.shared);
        if !grown {
            window.shrink_to(before);
        }
        grown
    }
}

/// How a fetch ends.
pub enum Fetched {
    /// Read whole.
    Whole {
        /// Status and headers.
        head: PartHead,
        /// All of its bytes.
        body: Vec<u8>,
    },
    /// It does not fit: `body` is its beginning, `read` has the rest. Boxed, because it is rare and large.
    Large(Box<Large>),
    /// Ended 4xx or 5xx.
    Failed(FailedEntry),
}

/// What a part says before its body.
#[derive(Debug)]
pub struct PartHead {
    /// 200, 206 or 304.
    pub status: StatusCode,
    /// The store's headers.
    pub headers: PartHeaders,
    /// Length of the body.
    pub length: u64,
}

/// An entry that is larger than what is reserved for it.
pub struct Large {
    /// Status and headers.
    pub head: PartHead,
    /// Its beginning.
    pub body: Vec<u8>,
    /// Goes on behind `body`; open if the entry is written now.
    pub read: Read,
}

/// A fetch that has ended, with what it holds.
pub struct Done {
    /// Which entry.
    pub index: EntryIndex,
    /// How.
    pub fetched: Fetched,
    /// The bytes reserved for it, until its part is written.
    pub claim: Claim,
}

/// What a fetch needs beside its read.
pub struct Fetch {
    /// Which entry.
    pub index: EntryIndex,
    /// The bytes that it may hold.
    pub claim: Claim,
    /// Where these may become more.
    pub pools: Pools,
    /// Which entry is written next, kept up to date by the driver: that one streams rather than fill its reservation.
    pub head: Arc<AtomicU32>,
}

impl Fetch {
    /// Reads the entry, as far as it fits.
    pub async fn run(mut self, mut read: Read) -> Done {
        let fetched = self.whole_or_large(&mut read).await;
        self.done(fetched, read)
    }

    /// An entry that failed before anything was asked of a backend.
    pub fn failed(mut self, failed: FailedEntry) -> Done {
        self.claim.shrink_to(cost(0, &failed.headers));
        Done { index: self.index, fetched: Fetched::Failed(failed), claim: self.claim }
    }

    /// Goes on with an entry that was parked, now that its turn has come. Where it cannot, it is read anew.
    pub async fn resume(mut self, large: Box<Large>) -> Done {
        let Large { head, body, mut read } = *large;
        let fetched = match read.reopen().await {
            Ok(()) => Ok((head, body)),
            Err(Failure::Unpinned) => {
                drop((head, body));
                self.whole_or_large(&mut read).await
            }
            Err(failure) => Err(FailedEntry::of(failure)),
        };
        self.done(fetched, read)
    }

    fn done(mut self, fetched: Result<(PartHead, Vec<u8>), FailedEntry>, read: Read) -> Done {
        let fetched = match fetched {
            Ok((head, body)) if head.length == body.len() as u64 => {
                self.claim.shrink_to(cost(head.length, &head.headers));
                Fetched::Whole { head, body }
            }
            Ok((head, body)) => Fetched::Large(Box::new(Large { head, body, read })),
            Err(failed) => return self.failed(failed),
        };
        Done { index: self.index, fetched, claim: self.claim }
    }

    /// Head and bytes: all of them if they fit. An object that changes between attempts is read anew until the read's own
    /// deadline says otherwise.
    async fn whole_or_large(&mut self, read: &mut Read) -> Result<(PartHead, Vec<u8>), FailedEntry> {
        loop {
            let Head { status, headers, length } = read.open().await.map_err(FailedEntry::of)?;
            let headers = PartHeaders::of(&headers);
            let room = self.room(length, &headers);
            if let Some(length) = length.filter(|length| *length > room && self.is_head()) {
                return Ok((PartHead { status, headers, length }, Vec::new()));
            }
            let mut body = Vec::with_capacity(length.unwrap_or(0).min(room) as usize);
            match (fill(read, &mut body, room).await, length) {
                (Ok(Filled::Whole), _) => return Ok((PartHead { status, headers, length: body.len() as u64 }, body)),
                (Ok(Filled::Full), Some(length)) => return Ok((PartHead { status, headers, length }, body)),
                // Without a length it can be held whole or not at all.
                (Ok(Filled::Full), None) => {
                    return Err(FailedEntry::ours(Kind::BadGateway, "The store's answer has no length and does not fit."));
                }
                (Err(Failure::Unpinned), _) => {}
                (Err(failure), _) => return Err(FailedEntry::of(failure)),
            }
        }
    }

    fn is_head(&self) -> bool {
        self.head.load(Ordering::Relaxed) == self.index.0
    }

    /// How many bytes of body may be read now: all `length` of them if they fit or the window has room for them. What headers
    /// and overhead take beyond a claim that the body alone fills is not paid for; a head has an end, and so has their number.
    fn room(&mut self, length: Option<u64>, headers: &PartHeaders) -> u64 {
        if let Some(length) = length {
            let wanted = cost(length, headers);
            // The head of the batch is better streamed than held.
            if length <= self.claim.bytes() || (!self.is_head() && self.claim.try_grow_to(wanted, &self.pools)) {
                self.claim.shrink_to(wanted);
                return length;
            }
        }
        self.claim.bytes()
    }
}

enum Filled {
    Whole,
    Full,
}

/// Reads up to `max` bytes into `body`; `Full` if there are more.
async fn fill(read: &mut Read, body: &mut Vec<u8>, max: u64) -> Result<Filled, Failure> {
    loop {
        let Some(bytes) = read.next().await? else { return Ok(Filled::Whole) };
        let room = max as usize - body.len();
        if bytes.len() > room {
            body.extend_from_slice(&bytes[..room]);
            read.unread(bytes.slice(room..));
            return Ok(Filled::Full);
        }
        body.extend_from_slice(&bytes);
    }
}

fn cost(body: u64, headers: &PartHeaders) -> u64 {
    body + headers.len() + ENTRY_OVERHEAD_BYTES
}
