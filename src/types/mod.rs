//! The words the whole house speaks: bucket, key, range, etag, ids. What enters is text from outside; what leaves is a
//! value that is valid from birth. Nothing here waits, reads a clock or knows HTTP bodies.

mod etag;
mod name;
mod range;
mod target;
mod wildcard;
mod xml;

pub use etag::strong_etag;
pub use name::{BucketName, ObjectKey};
pub use range::{ByteRange, ContentRange, ParseRangeError};
pub use target::{S3Target, percent_decode, query_pairs};

pub use wildcard::{Pattern, Pieces};
pub use xml::xml_position;

use std::fmt;
use std::time::SystemTime;

/// Where wall-clock time comes from: signatures and expiry need it, and tests replace it.
pub type WallClock = fn() -> SystemTime;

/// Position of an entry in the `Objects` of its batch, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryIndex(pub u32);

impl EntryIndex {
    /// The index as a place in a slice.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for EntryIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id that an answer, its log line and its trace share: 64 random bits, written as 16 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The lower-case hex digits of a SHA-256 or an HMAC with it.
pub fn hex32(hash: &[u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 64];
    for (pair, byte) in out.chunks_exact_mut(2).zip(hash) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    out
}
