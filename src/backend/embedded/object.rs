//! An object as it lies in memory: its data, and the head of the answer to a plain GET, made
//! once. Never changed after birth: a write puts another object in its place.

use std::ops::Range;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::date::{Seconds, http_date};
use super::pieces::Pieces;
use crate::budget::Reservation;
use crate::checksum::Algorithm;

/// Request headers that belong to an object and come back with it, beside `x-amz-meta-*`.
const KEPT: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];

/// Prefix of user metadata.
pub const META: &str = "x-amz-meta-";

/// Most bytes of user metadata, names and values (S3's own limit).
pub const META_BYTES_MAX: usize = 2048;

/// What a header takes beside its text: its place in a map that grows by doubling, and the two allocations of a name and a value
/// that are shared; 330 bytes were measured for short ones.
const HEADER_BYTES: u64 = 320;

/// How many headers every object has of its own.
const HEAD_HEADERS: u64 = 5;

/// How a checksum covers a multipart object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All bytes, as if they had come at once.
    FullObject,
    /// The checksums of the parts.
    Composite,
}

impl Coverage {
    pub fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }
}

/// The checksum that is kept with an object.
#[derive(Clone, Debug)]
pub struct Kept {
    pub algorithm: Algorithm,
    pub coverage: Coverage,
    /// Base64, and for a composite one the count of parts behind it.
    pub value: String,
}

impl Kept {
    /// Its headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let value = HeaderValue::from_str(&self.value).expect("base64");
        headers.insert(HeaderName::from_static(self.algorithm.header()), value);
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(self.coverage.name()));
    }
}

/// See the module.
#[derive(Debug)]
pub struct Object {
    pub pieces: Arc<Pieces>,
    pub length: u64,
    /// Without quotes.
    pub etag: String,
    pub modified: Seconds,
    pub checksum: Option<Kept>,
    /// Sizes of the parts, if it came in parts.
    pub parts: Vec<u64>,
    /// The id of the upload that became this object.
    pub upload: Option<String>,
    /// Headers of the answer to a plain GET.
    pub head: HeaderMap,
    /// Pays for everything but the data, which pays for itself.
    _reservation: Reservation,
}

/// What makes an object.
pub struct Made {
    pub pieces: Arc<Pieces>,
    pub etag: String,
    pub modified: Seconds,
    pub checksum: Option<Kept>,
    pub parts: Vec<u64>,
    pub upload: Option<String>,
    /// Those that [`kept_headers`] chose.
    pub headers: HeaderMap,
    pub reservation: Reservation,
}

impl Object {
    pub fn new(made: Made) -> Self {
        let Made { pieces, etag, modified, checksum, parts, upload, headers, reservation } = made;
        let length = pieces.length();
        let mut head = headers;
        head.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        head.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        head.insert(header::ETAG, quoted(&etag));
        head.insert(header::LAST_MODIFIED, HeaderValue::from_str(&http_date(modified)).expect("a date"));
        head.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("binary/octet-stream"));
        Self { pieces, length, etag, modified, checksum, parts, upload, head, _reservation: reservation }
    }

    /// The headers that a copy takes over.
    pub fn kept_headers(&self) -> HeaderMap {
        kept_headers(&self.head)
    }

    /// The bytes of part `number`, from 1, if there is one. An object that did not come in parts is its own first part.
    pub fn part(&self, number: usize) -> Option<Range<u64>> {
        if self.parts.is_empty() {
            return (number == 1).then_some(0..self.length);
        }
        let size = *self.parts.get(number.checked_sub(1)?)?;
        let start = self.parts[..number - 1].iter().sum();
        Some(start..start + size)
    }
}

/// An ETag as headers carry it.
pub fn quoted(etag: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{etag}\"")).expect("hex digits")
}

/// Those of `headers` that belong to an object.
pub fn kept_headers(headers: &HeaderMap) -> HeaderMap {
    let kept = |name: &HeaderName| KEPT.contains(&name.as_str()) || name.as_str().starts_with(META);
    headers.iter().filter(|(name, _)| kept(name)).fold(HeaderMap::new(), |mut map, (name, value)| {
        // Several lines of one name are one value (RFC 9110 section 5.3).
        match map.get(name).map(HeaderValue::as_bytes).map(|first| [first, b",", value.as_bytes()].concat()) {
            Some(joined) => map.insert(name.clone(), HeaderValue::from_bytes(&joined).expect("header values and a comma")),
            // A copy: the header itself may keep alive all of the request that it came in.
            None => map.insert(name.clone(), HeaderValue::from_bytes(value.as_bytes()).expect("a header value")),
        };
        map
    })
}

/// What an object or upload pays for its headers, in bytes: those of the map and those that every object has.
pub fn header_bytes(headers: &HeaderMap) -> u64 {
    let texts: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    texts as u64 + (headers.len() as u64 + HEAD_HEADERS) * HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::memory::Memory;
    use super::*;

    #[test]
    fn parts_are_found_by_their_numbers() {
        let memory = Memory::new(1 << 20, None);
        let made = |parts: Vec<u64>| Made {
            pieces: Pieces::of(Bytes::from_static(b"abcdefgh")),
            etag: "e".into(),
            modified: 0,
            checksum: None,
            parts,
            upload: None,
            headers: HeaderMap::new(),
            reservation: memory.take(0).expect("fits"),
        };
        let object = Object::new(made(vec![3, 0, 5]));
        assert_eq!([1, 2, 3, 4, 0].map(|n| object.part(n)), [Some(0..3), Some(3..3), Some(3..8), None, None]);
        let object = Object::new(made(Vec::new()));
        assert_eq!([1, 2].map(|n| object.part(n)), [Some(0..8), None]);
    }

    #[test]
    fn lines_of_one_name_become_one_value() {
        let mut headers = HeaderMap::new();
        for value in ["a", "b"] {
            headers.append("x-amz-meta-m", HeaderValue::from_static(value));
        }
        headers.insert("x-amz-acl", HeaderValue::from_static("private"));
        let kept = kept_headers(&headers);
        assert_eq!((kept.len(), kept["x-amz-meta-m"].as_bytes()), (1, &b"a,b"[..]));
    }

    #[test]
    fn a_header_pays_for_more_than_its_text() {
        let of = |count: usize| {
            let pair = |i| (HeaderName::try_from(format!("x-amz-meta-{i:02}")).expect("a name"), HeaderValue::from_static("v"));
            header_bytes(&(0..count).map(pair).collect())
        };
        assert_eq!(of(90) - of(0), 90 * (13 + 1 + HEADER_BYTES));
        assert!(of(0) > 0, "every object has some");
    }
}
