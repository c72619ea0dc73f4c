//! From parts to octets. What enters is what a part is about, how long its body will be and what the store said of it; what
//! leaves are the octets around the body, in the format that the client accepts: [`multipart`] or [`tar`]. Bodies pass by.
//! Pure: encoders write into a buffer that they are given. Invariant: what shows that an answer is whole is written by
//! [`Encode::close`] alone.

mod headers;
pub mod member;
mod multipart;
pub mod tar;

use bytes::BytesMut;
use http::{HeaderValue, StatusCode};
use rand::Rng;

use super::outcome::{FailedEntry, Totals};
use crate::types::{EntryIndex, RequestId};
pub use headers::PartHeaders;
use member::Naming;

/// The formats of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parts with all that the store said, and with room for failures.
    Multipart,
    /// Members of an archive: names, times and bytes.
    Tar,
}

impl Format {
    /// All of them, the one that a client gets who does not care first.
    pub const ALL: [Self; 2] = [Self::Multipart, Self::Tar];

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Multipart => "multipart/mixed",
            Self::Tar => "application/x-tar",
        }
    }

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Multipart => "multipart",
            Self::Tar => "tar",
        }
    }

    /// An encoder of one answer. `naming` says how members are named where parts have names.
    pub fn encoder(self, request_id: RequestId, naming: Naming, random: &mut impl Rng) -> Box<dyn Encode> {
        match self {
            Self::Multipart => Box::new(multipart::Multipart::new(request_id, random)),
            Self::Tar => Box::new(tar::Tar::new(naming)),
        }
    }
}

/// Who a part is about, for its head and for its error.
#[derive(Clone, Copy, Debug)]
pub struct PartName<'a> {
    /// Position in the request.
    pub index: EntryIndex,
    /// The caller's tag.
    pub id: Option<&'a HeaderValue>,
    /// The bucket by the client's name for it.
    pub bucket: &'a str,
    /// The key.
    pub key: &'a str,
}

/// Writes the octets of one answer, part after part. What has to follow a body is written with what comes next, so that an
/// answer is only ever as long as it has to be.
pub trait Encode: Send {
    /// The value of the answer's `Content-Type`.
    fn content_type(&self) -> HeaderValue;

    /// Writes what stands before a body; exactly `length` octets of body must follow.
    fn begin(&mut self, out: &mut BytesMut, name: PartName<'_>, status: StatusCode, headers: &PartHeaders, length: u64);

    /// Writes the whole part of a failed entry and says how long its body is, or nothing if the format has no place for it.
    fn failed(&mut self, out: &mut BytesMut, name: PartName<'_>, failed: &FailedEntry) -> Option<u64>;

    /// Writes the whole summary.
    fn summary(&mut self, out: &mut BytesMut, totals: &Totals);

    /// Writes what shows that the answer is whole.
    fn close(&mut self, out: &mut BytesMut);
}
