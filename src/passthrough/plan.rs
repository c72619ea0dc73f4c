//! How the body of a request goes to its store. In: what is known of it before it is here, and what the store wants; out: the way that
//! `upload` sends it. Pure.

use http::HeaderValue;

use super::upload::{Carried, DOCUMENT_BYTES_MAX};
use crate::backend::s3::sign::{EMPTY_SHA256, UNSIGNED_PAYLOAD};
use crate::config::{Checksums, PayloadSigning, Quirks};
use crate::error::{Error, Kind, Result};

/// What is known of a body.
#[derive(Clone, Debug)]
pub struct Known {
    /// What it is.
    pub carried: Carried,
    /// How many bytes the client means, where that is announced.
    pub length: Option<u64>,
    /// No byte came, framing included.
    pub is_empty: bool,
    /// Its SHA-256 in hex, where the client signed it.
    pub hash: Option<HeaderValue>,
    /// The name of the checksum behind it, where there is one and the store is to see it; it has a length then.
    pub trailer: Option<HeaderValue>,
    /// Its head has a `Content-MD5`.
    pub has_md5: bool,
}

/// A way to send a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Not at all, for it is empty; with this as `x-amz-content-sha256`.
    Nothing(HeaderValue),
    /// Whole, because what its head says is made of it.
    Held {
        /// It is a list of parts, of which the store has seen no checksums, and so is told none.
        without_checksums: bool,
    },
    /// As it streams by, with this as `x-amz-content-sha256`.
    Streamed(HeaderValue),
    /// In chunks that are signed one by one, and the trailer after them, if there is one.
    SignedChunks {
        /// Of the data, in bytes.
        length: u64,
        /// See [`Known::trailer`].
        trailer: Option<HeaderValue>,
    },
    /// In chunks without signatures, and the trailer after them.
    Chunks {
        /// Of the data, in bytes.
        length: u64,
        /// See [`Known::trailer`].
        trailer: HeaderValue,
    },
}

impl Known {
    /// The way that a store with `quirks` wants it.
    ///
    /// # Errors
    /// `MissingContentLength` where it would have to be signed as it streams by, and its length is not known.
    pub fn plan(self, quirks: Quirks) -> Result<Plan> {
        let Self { carried, length, is_empty, hash, trailer, has_md5 } = self;
        let signs_all = quirks.payload_signing == PayloadSigning::Always;
        if length == Some(0) && trailer.is_none() {
            let ours = if is_empty || signs_all { EMPTY_SHA256 } else { UNSIGNED_PAYLOAD };
            return Ok(Plan::Nothing(hash.unwrap_or(HeaderValue::from_static(ours))));
        }
        let without_checksums = quirks.checksums == Checksums::Verify && carried == Carried::Parts;
        let wants_md5 = quirks.content_md5 && !has_md5;
        let wants_whole = carried != Carried::Data && (wants_md5 || (signs_all && hash.is_none()));
        if without_checksums || wants_whole && length.is_some_and(|length| length <= DOCUMENT_BYTES_MAX) {
            return Ok(Plan::Held { without_checksums });
        }
        if let Some(hash) = hash.filter(|_| quirks.payload_signing != PayloadSigning::Never) {
            return Ok(Plan::Streamed(hash));
        }
        let unknown =
            || Error::new(Kind::MissingContentLength, "the store wants every upload signed, and this one has no Content-Length");
        Ok(match trailer {
            trailer if signs_all => Plan::SignedChunks { length: length.ok_or_else(unknown)?, trailer },
            Some(trailer) => Plan::Chunks { length: length.expect("what has a trailer has a length"), trailer },
            None => Plan::Streamed(HeaderValue::from_static(UNSIGNED_PAYLOAD)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Carried::{Data, Document, Parts};
    use super::Checksums::{Forward, Verify};
    use super::PayloadSigning::{Always, Never, WhenKnown};
    use super::Plan::{Chunks, Held, Nothing, SignedChunks, Streamed};
    use super::*;

    fn value(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }

    /// So many bytes, of which nothing else is known.
    fn bytes(carried: Carried, length: Option<u64>) -> Known {
        Known { carried, length, is_empty: false, hash: None, trailer: None, has_md5: false }
    }

    fn hashed(known: Known) -> Known {
        Known { hash: Some(value("hash")), ..known }
    }

    fn trailing(known: Known) -> Known {
        Known { trailer: Some(value("sum")), ..known }
    }

    fn quirks(checksums: Checksums, payload_signing: PayloadSigning, content_md5: bool) -> Quirks {
        Quirks { checksums, payload_signing, content_md5 }
    }

    #[test]
    fn a_body_goes_as_its_store_wants_it() {
        let whole = Held { without_checksums: false };
        let streamed = |text| Streamed(value(text));
        let signed = |trailer: Option<&'static str>| SignedChunks { length: 5, trailer: trailer.map(value) };
        let chunks = |length| Chunks { length, trailer: value("sum") };
        let nothing = |text| Nothing(value(text));
        let table = [
            // Data streams.
            (bytes(Data, Some(5)), quirks(Forward, WhenKnown, true), streamed(UNSIGNED_PAYLOAD)),
            (bytes(Data, None), quirks(Forward, WhenKnown, true), streamed(UNSIGNED_PAYLOAD)),
            (bytes(Data, Some(5)), quirks(Forward, Always, true), signed(None)),
            (hashed(bytes(Data, Some(5))), quirks(Forward, WhenKnown, true), streamed("hash")),
            (hashed(bytes(Data, None)), quirks(Verify, Always, true), streamed("hash")),
            (hashed(bytes(Data, Some(5))), quirks(Forward, Never, true), streamed(UNSIGNED_PAYLOAD)),
            (trailing(bytes(Data, Some(5))), quirks(Forward, WhenKnown, false), chunks(5)),
            (trailing(bytes(Data, Some(5))), quirks(Forward, Never, false), chunks(5)),
            (trailing(bytes(Data, Some(5))), quirks(Forward, Always, false), signed(Some("sum"))),
            (trailing(bytes(Data, Some(0))), quirks(Forward, WhenKnown, false), chunks(0)),
            // A document streams as well, unless its head must say what is in it.
            (bytes(Document, Some(5)), quirks(Forward, WhenKnown, false), streamed(UNSIGNED_PAYLOAD)),
            (bytes(Document, Some(5)), quirks(Verify, WhenKnown, false), streamed(UNSIGNED_PAYLOAD)),
            (bytes(Document, Some(5)), quirks(Forward, WhenKnown, true), whole.clone()),
            (bytes(Document, Some(5)), quirks(Forward, Never, true), whole.clone()),
            (bytes(Document, Some(5)), quirks(Forward, Always, false), whole.clone()),
            (bytes(Parts, Some(5)), quirks(Forward, Always, false), whole.clone()),
            (hashed(bytes(Document, Some(5))), quirks(Forward, Always, false), streamed("hash")),
            (Known { has_md5: true, ..bytes(Document, Some(5)) }, quirks(Forward, WhenKnown, true), streamed(UNSIGNED_PAYLOAD)),
            (Known { has_md5: true, ..bytes(Document, Some(5)) }, quirks(Forward, Always, true), whole.clone()),
            (bytes(Document, Some(DOCUMENT_BYTES_MAX)), quirks(Forward, WhenKnown, true), whole.clone()),
            (bytes(Document, Some(DOCUMENT_BYTES_MAX + 1)), quirks(Forward, WhenKnown, true), streamed(UNSIGNED_PAYLOAD)),
            (bytes(Document, None), quirks(Forward, WhenKnown, true), streamed(UNSIGNED_PAYLOAD)),
            // A list of parts is written anew where the store has no checksums, however long it is said to be.
            (hashed(bytes(Parts, None)), quirks(Verify, Never, false), Held { without_checksums: true }),
            (bytes(Parts, Some(DOCUMENT_BYTES_MAX + 1)), quirks(Verify, WhenKnown, false), Held { without_checksums: true }),
            // Of nothing there is a hash, but where it came in chunks, nobody may want it.
            (Known { is_empty: true, ..bytes(Data, Some(0)) }, quirks(Forward, Never, true), nothing(EMPTY_SHA256)),
            (bytes(Data, Some(0)), quirks(Forward, WhenKnown, true), nothing(UNSIGNED_PAYLOAD)),
            (bytes(Data, Some(0)), quirks(Forward, Always, true), nothing(EMPTY_SHA256)),
            (hashed(bytes(Parts, Some(0))), quirks(Verify, Never, true), nothing("hash")),
        ];
        for (known, quirks, plan) in table {
            let label = format!("{known:?} {quirks:?}");
            assert_eq!(known.plan(quirks).expect("there is a way"), plan, "{label}");
        }
    }

    #[test]
    fn what_is_signed_in_chunks_has_a_length() {
        for known in [bytes(Data, None), bytes(Document, None)] {
            let refused = known.plan(quirks(Forward, Always, false)).expect_err("no length");
            assert_eq!(refused.kind, Kind::MissingContentLength);
        }
    }
}
