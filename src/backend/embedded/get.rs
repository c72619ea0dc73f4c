//! GetObject and HeadObject: one pure answer for both, and for the reads of batches. What enters is an object and what was asked
//! of it; what leaves is status, headers and slices of the object's own memory.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>, RFC 9110 sections 13 and 14.

use std::ops::Range;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::condition::{Outcome, READ, judge, range_stands};
use super::fault::{Done, Fault};
use super::object::Object;
use crate::backend::{Body, empty_body};
use crate::types::ByteRange;

/// The query parameters that set a header of the answer.
const OVERRIDES: &[(&str, &str)] = &[
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-language", "content-language"),
    ("response-content-type", "content-type"),
    ("response-expires", "expires"),
];

/// What is asked of an object, beside its name.
pub struct Ask<'a> {
    /// HEAD: headers only.
    pub head: bool,
    /// Preconditions, `Range`, `x-amz-checksum-mode`.
    pub headers: &'a HeaderMap,
    /// `partNumber`.
    pub part: Option<u16>,
    /// The query, decoded.
    pub query: &'a [(String, String)],
}

/// What of an object is sent.
enum Span {
    Whole,
    Part(Range<u64>),
}

/// The answer.
pub fn answer(object: &Object, ask: &Ask<'_>) -> Done<Response<Body>> {
    if ask.headers.keys().any(|name| name.as_str().starts_with("x-amz-server-side-encryption-customer-")) {
        return Err(Fault::new("InvalidRequest", "The object was not stored with a key of the client's."));
    }
    match judge(ask.headers, &READ, &object.etag, object.modified) {
        Outcome::Holds => {}
        Outcome::NotModified(_) => return Ok(not_modified(object)),
        Outcome::Failed(header) => return Err(Fault::precondition(header)),
    }
    let span = span(object, ask)?;
    let mut response = Response::new(match (&span, ask.head) {
        (_, true) => empty_body(),
        (Span::Whole, false) => object.pieces.body(&(0..object.length)),
        (Span::Part(span), false) => object.pieces.body(span),
    });
    *response.headers_mut() = object.head.clone();
    let headers = response.headers_mut();
    if let Some(checksum) = object.checksum.as_ref().filter(|_| ask.headers.get("x-amz-checksum-mode").is_some_and(enabled)) {
        // S3 tells it for what it covers only: the whole.
        if matches!(span, Span::Whole) {
            checksum.write(headers);
        }
    }
    for (name, header) in OVERRIDES.iter().filter(|_| !ask.query.is_empty()) {
        if let Some(value) = parameter(ask.query, name) {
            let value = HeaderValue::from_str(value);
            headers.insert(*header, value.map_err(|_| Fault::argument(format!("The value of {name} is no header value.")))?);
        }
    }
    if ask.part.is_some() && !object.parts.is_empty() {
        headers.insert("x-amz-mp-parts-count", HeaderValue::from(object.parts.len()));
    }
    if let Span::Part(Range { start, end }) = span {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
        // An empty part has no range that could be written.
        if start < end {
            let range = format!("bytes {start}-{}/{}", end - 1, object.length);
            headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(&range).expect("digits"));
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn enabled(value: &HeaderValue) -> bool {
    value.as_bytes().eq_ignore_ascii_case(b"enabled")
}

/// The value of a query parameter.
pub fn parameter<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A 304 keeps what a cache needs (RFC 9110 section 15.4.5).
fn not_modified(object: &Object) -> Response<Body> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    for name in [header::CACHE_CONTROL, header::ETAG, header::EXPIRES, header::LAST_MODIFIED] {
        if let Some(value) = object.head.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn span(object: &Object, ask: &Ask<'_>) -> Done<Span> {
    let range = ask.headers.get(header::RANGE);
    if let Some(part) = ask.part {
        if range.is_some() {
            return Err(Fault::new("InvalidRequest", "Cannot specify both Range header and partNumber query parameter."));
        }
        let span = object.part(usize::from(part)).ok_or_else(|| Fault::new("InvalidPartNumber", "The object has no such part."))?;
        return Ok(if object.length == 0 { Span::Whole } else { Span::Part(span) });
    }
    let Some(range) = range.filter(|_| range_stands(ask.headers, &object.etag, object.modified)) else { return Ok(Span::Whole) };
    let unsatisfiable = || {
        let total = HeaderValue::from_str(&format!("bytes */{}", object.length)).expect("digits");
        Fault::new("InvalidRange", "The requested range is not satisfiable.").with_header(header::CONTENT_RANGE, total)
    };
    match range.to_str().map(ByteRange::parse_any) {
        Ok(Ok(range)) => range.resolve(object.length).map(Span::Part).ok_or_else(unsatisfiable),
        // The last nothing is a range, but none that anything could satisfy.
        _ if range == "bytes=-0" => Err(unsatisfiable()),
        // What is no single range of bytes is ignored, by S3 as by the RFC.
        _ => Ok(Span::Whole),
    }
}
