//! Ranges and preconditions. Lines with a range, a size, a `Content-Range` and an ETag, then the headers of a read. What is read off
//! a range must be what arithmetic without bounds says, and preconditions must come to what RFC 9110 section 13.2.2 says.

use batchgate::backend::embedded::condition::{Outcome, READ, judge};
use batchgate::backend::embedded::date::parse_http_date;
use batchgate::client::entry::Entry;
use batchgate::types::{ByteRange, ContentRange, strong_etag};
use http::{HeaderMap, HeaderValue};

/// When the object was written, in seconds since 1970: `Tue, 14 Nov 2023 22:13:20 GMT`.
const MODIFIED: i64 = 1_700_000_000;

/// See the module.
pub fn run(data: &[u8]) {
    if data.len() > super::INPUT_BYTES_MAX {
        return;
    }
    let ([range, size, said, etag], rest) = super::lines(data);
    let text = |octets| String::from_utf8_lossy(octets).into_owned();
    let (range, said) = (text(range), text(said));
    let size = text(size).parse().unwrap_or(size.len() as u64);
    a_range(&range, size);
    a_content_range(&said);
    an_answer(&range, &said);
    if let Ok(value) = HeaderValue::from_bytes(etag) {
        let is_strong = strong_etag(&value).is_some();
        assert_eq!(is_strong, etag.len() > 1 && etag[0] == b'"' && etag.last() == Some(&b'"'));
    }
    preconditions(&super::headers(rest));
}

fn a_range(text: &str, size: u64) {
    let strict = ByteRange::parse(text);
    let Ok(range) = ByteRange::parse_any(text) else {
        assert!(strict.is_err(), "{text:?} is one by the stricter rule alone");
        return;
    };
    assert_eq!(ByteRange::parse_any(&range.to_string()), Ok(range));
    if let Ok(strict) = strict {
        assert_eq!(strict, range);
    }
    // In numbers that no text of this length outgrows what matters here.
    let number = |digits: &str| digits.trim_start_matches('0').get(..30).unwrap_or(digits).parse::<u128>().unwrap_or(u128::MAX);
    let (first, last) = text.strip_prefix("bytes=").and_then(|span| span.split_once('-')).expect("it was accepted");
    let whole = u128::from(size);
    let (start, end) = match (first, last) {
        ("", length) => (whole.saturating_sub(number(length)), whole),
        (first, "") => (number(first), whole),
        (first, last) => (number(first), number(last).saturating_add(1).min(whole)),
    };
    let expected = (start < end).then_some(start as u64..end as u64);
    assert_eq!(range.resolve(size), expected, "{text:?} of {size}");
    if let Some(span) = expected {
        assert!(span.end <= size);
        assert_eq!(ByteRange::of(span.clone()).resolve(size), Some(span));
    }
}

fn a_content_range(text: &str) {
    let Ok(ContentRange { span, total }) = ContentRange::parse(text) else { return };
    assert!(span.start < span.end && span.end <= total);
    let again = ContentRange::parse(&format!("bytes {}-{}/{total}", span.start, span.end - 1)).expect("as it is written");
    assert_eq!((again.span, again.total), (span, total));
}

/// A part of an object is only taken for the part that was asked for.
fn an_answer(range: &str, said: &str) {
    let (Ok(asked), Ok(told)) = (ByteRange::parse(range), ContentRange::parse(said)) else { return };
    let entry = Entry { range: Some(range.into()), ..Entry::new("k") };
    let length = told.span.end - told.span.start;
    let fits = asked.resolve(told.total) == Some(told.span);
    assert_eq!(entry.check(206, length, Some(said.as_bytes())).is_ok(), fits, "{said:?} to {range:?}");
    assert!(entry.check(206, length + 1, Some(said.as_bytes())).is_err() && entry.check(200, length, None).is_err());
}

fn preconditions(headers: &HeaderMap) {
    for value in headers.values() {
        // No date makes it panic.
        let _ = parse_http_date(value.as_bytes());
    }
    let expected = if fails(headers) {
        "failed"
    } else if is_known(headers) {
        "not modified"
    } else {
        "holds"
    };
    let found = match judge(headers, &READ, "e", MODIFIED) {
        Outcome::Holds => "holds",
        Outcome::NotModified(_) => "not modified",
        Outcome::Failed(_) => "failed",
    };
    assert_eq!(found, expected, "{headers:?}");
}

/// Steps 1 and 2: `If-Match`, and where there is none `If-Unmodified-Since`.
fn fails(headers: &HeaderMap) -> bool {
    match tags(headers, "if-match") {
        Some(tags) => !tags.iter().any(|(is_weak, tag)| !is_weak && (tag == b"e" || tag == b"*")),
        None => date(headers, "if-unmodified-since").is_some_and(|since| MODIFIED > since),
    }
}

/// Steps 3 and 4: `If-None-Match`, and where there is none `If-Modified-Since`.
fn is_known(headers: &HeaderMap) -> bool {
    match tags(headers, "if-none-match") {
        Some(tags) => tags.iter().any(|(_, tag)| tag == b"e" || tag == b"*"),
        None => date(headers, "if-modified-since").is_some_and(|since| MODIFIED <= since),
    }
}

/// The tags of all lines, without quotes (S3 takes them so), and whether they are weak.
fn tags(headers: &HeaderMap, name: &str) -> Option<Vec<(bool, Vec<u8>)>> {
    headers.contains_key(name).then(|| {
        let lines = headers.get_all(name).iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>().join(&b","[..]);
        let tag = |tag: &[u8]| {
            let tag = tag.trim_ascii();
            let (is_weak, tag) = tag.strip_prefix(b"W/").map_or((false, tag), |tag| (true, tag));
            let bare = if tag.len() > 1 && tag[0] == b'"' && tag.last() == Some(&b'"') { &tag[1..tag.len() - 1] } else { tag };
            // A star in quotes is a tag like any other.
            (is_weak, if bare == b"*" && tag != b"*" { b"\"*\"".to_vec() } else { bare.to_vec() })
        };
        lines.split(|octet| *octet == b',').map(tag).collect()
    })
}

fn date(headers: &HeaderMap, name: &str) -> Option<i64> {
    headers.get(name).and_then(|value| parse_http_date(value.as_bytes()))
}
