//! An object as it lies in memory: its data in the pieces that it came in, and the head of the answer to a plain GET, made
//! once. Never changed after birth: a write puts another object in its place.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::date::{Seconds, http_date};
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
    /// One piece for each part; none for an empty object.
    pub pieces: Vec<Bytes>,
    pub length: u64,
    /// Without quotes.
    pub etag: String,
    pub modified: Seconds,
    pub checksum: Option<Kept>,
    /// Sizes of the parts, if it came in parts.
    pub parts: Vec<u64>,
    /// Headers of the answer to a plain GET.
    pub head: HeaderMap,
    /// Pays for everything but the pieces, which pay for themselves.
    _reservation: Reservation,
}

/// What makes an object.
pub struct Made {
    pub pieces: Vec<Bytes>,
    pub etag: String,
    pub modified: Seconds,
    pub checksum: Option<Kept>,
    pub parts: Vec<u64>,
    /// Those that [`kept_headers`] chose.
    pub headers: HeaderMap,
    pub reservation: Reservation,
}

impl Object {
    pub fn new(made: Made) -> Self {
        let Made { mut pieces, etag, modified, checksum, parts, headers, reservation } = made;
        pieces.retain(|piece| !piece.is_empty());
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut head = headers;
        head.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        head.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        head.insert(header::ETAG, quoted(&etag));
        head.insert(header::LAST_MODIFIED, HeaderValue::from_str(&http_date(modified)).expect("a date"));
        head.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("binary/octet-stream"));
        Self { pieces, length, etag, modified, checksum, parts, head, _reservation: reservation }
    }

    /// The headers that a copy takes over.
    pub fn kept_headers(&self) -> HeaderMap {
        kept_headers(&self.head)
    }

    /// The pieces of `span`, which lies within the object. Nothing is copied.
    pub fn slice(&self, span: Range<u64>) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(1);
        let mut at = 0;
        for piece in &self.pieces {
            let (from, to) = (span.start.max(at), span.end.min(at + piece.len() as u64));
            if from < to {
                out.push(piece.slice((from - at) as usize..(to - at) as usize));
            }
            at += piece.len() as u64;
        }
        out
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

/// What a map of headers holds, in bytes.
pub fn header_bytes(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len()) as u64).sum()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::super::memory::{Memory, paid};
    use super::*;

    #[test]
    fn slices_cross_pieces_and_copy_nothing() {
        let memory = Memory::new(1 << 20, None);
        let piece = |data: &[u8]| paid(BytesMut::from(data), memory.take(data.len() as u64).expect("fits"));
        let object = Object::new(Made {
            pieces: vec![piece(b"abc"), piece(b""), piece(b"defgh")],
            etag: "e".into(),
            modified: 0,
            checksum: None,
            parts: vec![3, 0, 5],
            headers: HeaderMap::new(),
            reservation: memory.take(0).expect("fits"),
        });
        let text = |span: Range<u64>| object.slice(span).concat();
        for (start, end) in [(0, 8), (0, 3), (3, 8), (2, 4), (7, 8), (4, 4)] {
            assert_eq!(text(start..end), b"abcdefgh"[start as usize..end as usize], "{start}..{end}");
        }
        assert_eq!(object.slice(3..8)[0].as_ptr(), object.pieces[1].as_ptr());
        assert_eq!([1, 2, 3, 4, 0].map(|n| object.part(n)), [Some(0..3), Some(3..3), Some(3..8), None, None]);
        drop(object);
        assert_eq!(memory.used(), 0);
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
}
