//! Objects, and what a healthy store says of them: GetObject as S3 and RFC 9110 have it. Every byte follows from key, generation
//! and offset, so that a wrong or a mixed one is seen.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::backend::ReadAsk;

/// What no client may ever see. The store says it wherever it can.
pub const SECRET: &str = "secret-backend-10.0.0.1";

/// An object; its bytes are [`content`].
#[derive(Clone, Debug)]
pub struct Object {
    pub length: usize,
    pub generation: u32,
    pub weak: bool,
    /// Each generation is a version of its own, `v-1` the first; all can be had for ever.
    pub versioned: bool,
}

impl Object {
    pub fn of(length: usize) -> Self {
        Self { length, generation: 0, weak: false, versioned: false }
    }

    pub fn etag(&self) -> String {
        let prefix = if self.weak { "W/" } else { "" };
        format!("{prefix}\"generation-{}\"", self.generation)
    }
}

/// The bytes of one generation of an object.
pub fn content(key: &str, generation: u32, length: usize) -> Vec<u8> {
    let seed = key.bytes().fold(u64::from(generation) + 1, |sum, byte| sum.wrapping_mul(1_099_511_628_211) ^ u64::from(byte));
    // Eight at a time: debug builds make millions of them.
    let eight = |at: usize| (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut bytes = Vec::with_capacity(length + 8);
    for at in 0..length.div_ceil(8) {
        bytes.extend_from_slice(&eight(at));
    }
    bytes.truncate(length);
    bytes
}

fn header_map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).expect("visible");
    pairs.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
}

pub fn refusal(status: StatusCode, code: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
    let body = format!("<Error><Code>{code}</Code><Message>{SECRET}</Message><HostId>{SECRET}</HostId></Error>").into_bytes();
    let length = body.len().to_string();
    let headers = [("content-type", "application/xml"), ("server", SECRET), ("x-amz-id-2", SECRET), ("content-length", &length)];
    (status, header_map(&headers), body)
}

/// GetObject as S3 and RFC 9110 have it.
pub fn healthy(ask: &ReadAsk, object: Option<&Object>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let Some(object) = object else { return refusal(StatusCode::NOT_FOUND, "NoSuchKey") };
    let named = ask.version.as_deref().map(|version| version.strip_prefix("v-").and_then(|n| n.parse::<u32>().ok()));
    let generation = match named {
        None => object.generation,
        Some(Some(number)) if object.versioned && (1..=object.generation + 1).contains(&number) => number - 1,
        Some(_) => return refusal(StatusCode::NOT_FOUND, "NoSuchVersion"),
    };
    let object = &Object { generation, ..object.clone() };
    let etag = object.etag();
    // If-Match compares strongly, If-None-Match weakly.
    if ask.if_match.as_ref().is_some_and(|tag| object.weak || tag.as_bytes() != etag.as_bytes()) {
        return refusal(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
    }
    let key = ask.key.as_str();
    let mut headers = header_map(&[
        ("etag", &etag),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("date", "Sun, 06 Nov 1994 08:49:38 GMT"),
        ("server", SECRET),
        ("connection", "keep-alive, x-of-this-hop"),
        ("x-of-this-hop", SECRET),
        ("x-amz-request-id", SECRET),
        ("x-amz-id-2", SECRET),
        ("x-amz-meta-of", key),
    ]);
    if object.versioned {
        headers.extend(header_map(&[("x-amz-version-id", &format!("v-{}", object.generation + 1))]));
    }
    if ask.if_none_match.as_ref().is_some_and(|tag| tag.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers, Vec::new());
    }
    headers.insert("content-type", HeaderValue::from_static("image/jpeg"));
    let bytes = content(key, object.generation, object.length);
    let (status, bytes) = match ask.range.map(|range| range.resolve(object.length as u64)) {
        None => (StatusCode::OK, bytes),
        Some(None) => {
            let (status, mut headers, body) = refusal(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
            headers.extend(header_map(&[("content-range", &format!("bytes */{}", object.length))]));
            return (status, headers, body);
        }
        Some(Some(span)) => {
            let said = format!("bytes {}-{}/{}", span.start, span.end - 1, object.length);
            headers.extend(header_map(&[("content-range", &said)]));
            (StatusCode::PARTIAL_CONTENT, bytes[span.start as usize..span.end as usize].to_vec())
        }
    };
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    (status, headers, bytes)
}
