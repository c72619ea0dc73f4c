//! Parts as octets of `multipart/mixed` (RFC 2046 section 5.1, narrowed by the contract: header names in lower case, a length
//! on every part, nothing before the first delimiter and nothing after the last). Pure: writes into a buffer that it is
//! given. Invariant: the closing delimiter is written by [`Multipart::close`] alone.

use bytes::{BufMut, BytesMut};
use http::{HeaderValue, StatusCode};
use rand::Rng;

use super::headers::line;
use super::{Encode, PartHeaders, PartName};
use crate::batch::outcome::{FailedEntry, Totals};
use crate::error::xml::{ErrorDocument, render};
use crate::types::RequestId;

/// The encoder of one answer.
#[derive(Debug)]
pub struct Multipart {
    boundary: String,
    request_id: RequestId,
    /// What ends the `content-id` of each part.
    id_tail: String,
    begun: bool,
}

impl Multipart {
    /// An encoder with a fresh boundary of 128 random bits.
    pub fn new(request_id: RequestId, random: &mut impl Rng) -> Self {
        Self {
            boundary: format!("{:032x}", random.random::<u128>()),
            request_id,
            id_tail: format!("@{request_id}>\r\n"),
            begun: false,
        }
    }

    fn delimiter(&mut self, out: &mut BytesMut) {
        if self.begun {
            out.put_slice(b"\r\n");
        }
        self.begun = true;
        out.put_slice(b"--");
        out.put_slice(self.boundary.as_bytes());
        out.put_slice(b"\r\n");
    }

    fn start(&mut self, out: &mut BytesMut, name: PartName<'_>, status: StatusCode, length: u64) {
        self.delimiter(out);
        let mut digits = itoa::Buffer::new();
        line(out, b"content-length", digits.format(length).as_bytes());
        out.put_slice(b"content-id: <");
        out.put_slice(digits.format(name.index.0).as_bytes());
        out.put_slice(self.id_tail.as_bytes());
        line(out, b"batch-status", status.as_str().as_bytes());
        if let Some(id) = name.id {
            line(out, b"batch-id", id.as_bytes());
        }
    }
}

impl Encode for Multipart {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_str(&format!("multipart/mixed; boundary={}", self.boundary)).expect("hex digits are header-safe")
    }

    fn begin(&mut self, out: &mut BytesMut, name: PartName<'_>, status: StatusCode, headers: &PartHeaders, length: u64) {
        self.start(out, name, status, length);
        out.put_slice(headers.lines());
        out.put_slice(b"\r\n");
    }

    fn failed(&mut self, out: &mut BytesMut, name: PartName<'_>, failed: &FailedEntry) -> Option<u64> {
        let request_id = self.request_id.to_string();
        let body = render(&ErrorDocument {
            code: &failed.code,
            message: failed.message,
            bucket: Some(name.bucket),
            key: Some(name.key),
            resource: None,
            request_id: &request_id,
            details: &[],
        });
        self.start(out, name, failed.status, body.len() as u64);
        line(out, b"content-type", b"application/xml");
        out.put_slice(failed.headers.lines());
        out.put_slice(b"\r\n");
        out.put_slice(body.as_bytes());
        Some(body.len() as u64)
    }

    fn summary(&mut self, out: &mut BytesMut, totals: &Totals) {
        let body = totals.to_json();
        self.delimiter(out);
        line(out, b"content-type", b"application/json");
        line(out, b"content-length", body.len().to_string().as_bytes());
        line(out, b"content-id", format!("<summary@{}>", self.request_id).as_bytes());
        line(out, b"batch-status", b"200");
        out.put_slice(b"\r\n");
        out.put_slice(&body);
    }

    fn close(&mut self, out: &mut BytesMut) {
        assert!(self.begun, "an answer has at least one part");
        out.put_slice(b"\r\n--");
        out.put_slice(self.boundary.as_bytes());
        out.put_slice(b"--\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::types::EntryIndex;
    use http::{HeaderMap, HeaderName};
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn name(id: Option<&HeaderValue>) -> PartName<'_> {
        PartName { index: EntryIndex(17), id, bucket: "b", key: "a<b" }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn the_octets_are_those_of_the_contract() {
        let mut encoder = Multipart::new(RequestId(0x4f0c), &mut SmallRng::seed_from_u64(1));
        let b = encoder.boundary.clone();
        assert!(b.len() == 32 && b.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')));
        let mut out = BytesMut::new();
        let id = HeaderValue::from_static("l-1");
        let from_store = headers(&[
            ("etag", "\"e\""),
            ("content-length", "99"),
            ("content-id", "x"),
            ("batch-status", "7"),
            ("batch-anything", "7"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("proxy-x", "1"),
            ("date", "d"),
            ("server", "s"),
            ("x-amz-request-id", "r"),
            ("x-amz-meta-a", "v"),
        ]);
        encoder.begin(&mut out, name(Some(&id)), StatusCode::OK, &PartHeaders::of(&from_store), 2);
        out.put_slice(b"hi");
        let failed = FailedEntry {
            headers: PartHeaders::of_failed(&headers(&[("content-range", "bytes */9"), ("content-type", "text/html")])),
            ..FailedEntry::ours(Kind::AccessDenied, "No.")
        };
        let length = encoder.failed(&mut out, name(None), &failed);
        encoder.summary(&mut out, &Totals { entries: 2, ..Totals::default() });
        encoder.close(&mut out);
        let error = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>No.</Message>\
                     <BucketName>b</BucketName><Key>a&lt;b</Key><RequestId>0000000000004f0c</RequestId></Error>";
        assert_eq!(length, Some(error.len() as u64));
        let length = error.len();
        let summary = String::from_utf8(Totals { entries: 2, ..Totals::default() }.to_json()).expect("text");
        let expected = format!(
            "--{b}\r\ncontent-length: 2\r\ncontent-id: <17@0000000000004f0c>\r\nbatch-status: 200\r\nbatch-id: l-1\r\n\
             etag: \"e\"\r\nx-amz-meta-a: v\r\n\r\nhi\r\n--{b}\r\ncontent-length: {length}\r\ncontent-id: <17@0000000000004f0c>\r\n\
             batch-status: 403\r\ncontent-type: application/xml\r\ncontent-range: bytes */9\r\n\r\n{error}\r\n--{b}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\ncontent-id: <summary@0000000000004f0c>\r\nbatch-status: 200\r\n\r\n\
             {summary}\r\n--{b}--\r\n",
            summary.len()
        );
        assert_eq!(String::from_utf8(out.to_vec()).expect("text"), expected);
    }
}
