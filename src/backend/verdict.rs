//! What a store's answer to a read means: a pure judgement over its head, made before any byte of its body is used. It keeps
//! the promise that a lying answer is never passed off as right.

use std::ops::Range;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::ReadAsk;
use super::s3::asks_for_pace;
use crate::types::{ByteRange, ContentRange, strong_etag};

/// What to do with an answer.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// 200 or 206 with a body of this length, if it said one; for 206 also which bytes of how many.
    Body { length: Option<u64>, range: Option<ContentRange> },
    /// 304: an answer without a body.
    NotModified,
    /// A final refusal: 4xx, or a 5xx that trying again does not mend.
    Refused,
    /// 429, or 503 whose code says so: come back later, at the backend's pace.
    Pacing,
    /// 500, 502, 503, 504: may be better next time.
    Failing,
    /// Not what was asked for; the reason is for the log.
    Lying(&'static str),
}

/// Judges the head of an answer to `ask`, whose body (where an error has one) carried the S3 code `code`.
pub fn judge(ask: &ReadAsk, status: StatusCode, headers: &HeaderMap, code: Option<&str>) -> Verdict {
    match status.as_u16() {
        200 if ask.range.is_some() => Verdict::Lying("200 to a range"),
        200 => match length(headers) {
            Ok(length) => Verdict::Body { length, range: None },
            Err(why) => Verdict::Lying(why),
        },
        206 => partial(ask, headers),
        304 if ask.if_none_match.is_some() => Verdict::NotModified,
        304 => Verdict::Lying("304 to a read without If-None-Match"),
        400..=599 => refusal(&Method::GET, status, code),
        _ => Verdict::Lying("a status that no GetObject has"),
    }
}

/// What an error says, to a read or to any other request: [`Verdict::Pacing`], [`Verdict::Failing`] or [`Verdict::Refused`]. The
/// answer to a HEAD has no body that could bring a code, so its 503 is taken for the plea that S3 means by it.
pub fn refusal(method: &Method, status: StatusCode, code: Option<&str>) -> Verdict {
    match status.as_u16() {
        429 => Verdict::Pacing,
        503 if method == Method::HEAD => Verdict::Pacing,
        503 if code.is_some_and(asks_for_pace) => Verdict::Pacing,
        500 | 502 | 503 | 504 => Verdict::Failing,
        _ => Verdict::Refused,
    }
}

/// Whether bytes behind this status show that the backend works: not those in which it says that it does not, or asks for pace.
pub fn is_well(status: StatusCode) -> bool {
    refusal(&Method::GET, status, None) == Verdict::Refused
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|v| v.parse().ok());
    parsed.map(Some).ok_or("a Content-Length that is no number")
}

fn partial(ask: &ReadAsk, headers: &HeaderMap) -> Verdict {
    let Some(asked) = ask.range else { return Verdict::Lying("206 to a read without a range") };
    let said = headers.get(header::CONTENT_RANGE).and_then(|v| v.to_str().ok()).and_then(|v| ContentRange::parse(v).ok());
    let Some(range) = said else { return Verdict::Lying("206 without a Content-Range that can be read") };
    if asked.resolve(range.total).as_ref() != Some(&range.span) {
        return Verdict::Lying("another range than was asked for");
    }
    let wanted = range.span.end - range.span.start;
    match length(headers) {
        Ok(Some(length)) if length != wanted => Verdict::Lying("Content-Length and Content-Range differ"),
        Ok(_) => Verdict::Body { length: Some(wanted), range: Some(range) },
        Err(why) => Verdict::Lying(why),
    }
}

/// What keeps a resumed read on the object that it began with.
#[derive(Clone, Debug)]
pub struct Pin {
    etag: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The bytes of the whole object that the entry means.
    span: Range<u64>,
    total: u64,
}

impl Pin {
    /// The pin that an answer offers: a strong ETag, or the version that `ask` named (not `null`) and the answer repeated.
    /// `length` is the length of its body and `range` its Content-Range, if it had one.
    pub fn of(ask: &ReadAsk, headers: &HeaderMap, length: u64, range: Option<&ContentRange>) -> Option<Self> {
        // A copy: the header itself keeps alive the buffer that the whole answer was read into.
        let own = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).expect("it is a header value");
        let etag = headers.get(header::ETAG).and_then(strong_etag).map(own);
        let version = headers
            .get("x-amz-version-id")
            .filter(|said| ask.version.as_deref().is_some_and(|named| named != "null" && named.as_bytes() == said.as_bytes()));
        let (span, total) = range.map_or((0..length, length), |r| (r.span.clone(), r.total));
        (etag.is_some() || version.is_some()).then(|| Self { etag, version: version.map(own), span, total })
    }

    /// The read that goes on after `done` bytes of the entry: pinned, in place of the entry's own preconditions.
    pub fn resumed(&self, ask: &ReadAsk, done: u64) -> ReadAsk {
        let mut resumed = ask.clone();
        resumed.range = Some(ByteRange::of(self.span.start + done..self.span.end));
        resumed.if_match = self.etag.clone();
        resumed.if_none_match = None;
        resumed
    }

    /// Whether a 206 to [`Pin::resumed`] is of the same object.
    pub fn holds(&self, headers: &HeaderMap, range: &ContentRange) -> bool {
        let same = |name, mine: &Option<HeaderValue>| mine.is_none() || headers.get(name) == mine.as_ref();
        range.total == self.total && same("etag", &self.etag) && same("x-amz-version-id", &self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(range: Option<&str>) -> ReadAsk {
        ReadAsk { range: range.map(|r| ByteRange::parse(r).expect("valid")), ..ReadAsk::plain("b", "k") }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (http::HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn lies(range: Option<&str>, status: u16, pairs: &[(&'static str, &'static str)]) -> bool {
        matches!(judge(&ask(range), StatusCode::from_u16(status).expect("valid"), &headers(pairs), None), Verdict::Lying(_))
    }

    #[test]
    fn a_range_is_answered_by_that_range_or_it_is_a_lie() {
        let right = [("content-range", "bytes 2-4/10"), ("content-length", "3")];
        assert!(!lies(Some("bytes=2-4"), 206, &right));
        assert!(!lies(Some("bytes=2-4"), 206, &right[..1]));
        assert!(lies(Some("bytes=2-5"), 206, &right));
        assert!(lies(Some("bytes=-3"), 206, &right));
        assert!(lies(None, 206, &right));
        assert!(lies(Some("bytes=2-4"), 200, &[("content-length", "10")]));
        assert!(lies(Some("bytes=2-4"), 206, &[("content-range", "bytes 2-4/10"), ("content-length", "4")]));
        assert!(lies(Some("bytes=2-4"), 206, &[("content-range", "bytes 2-4/*")]));
        assert!(lies(None, 200, &[("content-length", "ten")]));
        assert!(lies(None, 307, &[]) && lies(None, 204, &[]) && lies(None, 304, &[]));
    }

    #[test]
    fn a_503_is_pacing_only_if_its_code_says_so() {
        let judged = |status: u16, code| judge(&ask(None), StatusCode::from_u16(status).expect("valid"), &HeaderMap::new(), code);
        assert_eq!(judged(503, Some("SlowDown")), Verdict::Pacing);
        assert_eq!(judged(503, Some("ThrottlingException")), Verdict::Pacing);
        assert_eq!(judged(429, None), Verdict::Pacing);
        assert_eq!(judged(503, Some("ServiceUnavailable")), Verdict::Failing);
        assert_eq!(judged(500, None), Verdict::Failing);
        assert_eq!(judged(501, None), Verdict::Refused);
        assert_eq!(judged(404, None), Verdict::Refused);
        let to_head = |status: u16| refusal(&Method::HEAD, StatusCode::from_u16(status).expect("valid"), None);
        assert_eq!((to_head(503), to_head(500)), (Verdict::Pacing, Verdict::Failing), "a HEAD's answer has no code");
        let well = |status: u16| is_well(StatusCode::from_u16(status).expect("valid"));
        assert!([200, 206, 404, 403, 501].into_iter().all(well) && ![429, 500, 502, 503, 504].into_iter().any(well));
    }

    #[test]
    fn only_a_strong_etag_or_a_named_version_pins() {
        let mut ask = ask(None);
        assert!(Pin::of(&ask, &headers(&[("etag", "W/\"a\"")]), 10, None).is_none());
        assert!(Pin::of(&ask, &headers(&[("x-amz-version-id", "v")]), 10, None).is_none(), "the entry named none");
        ask.version = Some("null".into());
        assert!(Pin::of(&ask, &headers(&[("x-amz-version-id", "null")]), 10, None).is_none());
        ask.version = Some("v".into());
        assert!(Pin::of(&ask, &headers(&[("x-amz-version-id", "w")]), 10, None).is_none());
        assert!(Pin::of(&ask, &headers(&[("x-amz-version-id", "v")]), 10, None).is_some());
    }

    #[test]
    fn a_resumed_read_asks_for_the_rest_of_the_entry() {
        let mut ask = ask(Some("bytes=-4"));
        ask.if_none_match = Some(HeaderValue::from_static("\"z\""));
        let range = ContentRange::parse("bytes 6-9/10").expect("valid");
        let pin = Pin::of(&ask, &headers(&[("etag", "\"a\"")]), 4, Some(&range)).expect("strong");
        let resumed = pin.resumed(&ask, 1);
        assert_eq!(resumed.range, Some(ByteRange::Between { first: 7, last: 9 }));
        assert_eq!(resumed.if_match, Some(HeaderValue::from_static("\"a\"")));
        assert_eq!(resumed.if_none_match, None);
        let rest = ContentRange::parse("bytes 7-9/10").expect("valid");
        assert!(pin.holds(&headers(&[("etag", "\"a\"")]), &rest));
        assert!(!pin.holds(&headers(&[("etag", "\"b\"")]), &rest));
        assert!(!pin.holds(&headers(&[("etag", "\"a\"")]), &ContentRange::parse("bytes 7-9/11").expect("valid")));
    }
}
