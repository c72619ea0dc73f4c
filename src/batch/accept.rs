//! What a BatchGet's head must be before its body is read: version, media types, headers and payload signing. Pure checks of
//! request parts, each with the contract's answer.

use http::request::Parts;
use http::{HeaderMap, Version, header};

use crate::error::{Error, Kind, Result};

/// Headers that apply to every entry and go along with each read.
pub const ENTRY_HEADERS: &[&str] = &[
    "traceparent",
    "tracestate",
    "x-amz-checksum-mode",
    "x-amz-expected-bucket-owner",
    "x-amz-request-payer",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
];

/// Headers of signing, integrity and tracing.
const REQUEST_HEADERS: &[&str] = &[
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// Prefix of the checksums of the request's own body.
const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// Checks everything but the signature, which was verified before.
pub fn check(head: &Parts) -> Result<()> {
    if head.version < Version::HTTP_11 {
        let why = "BatchGet needs HTTP/1.1 or HTTP/2: over HTTP/1.0 a cut answer cannot be told from a whole one";
        return Err(Error::new(Kind::HttpVersionNotSupported, why));
    }
    content_type(&head.headers)?;
    if !accepts_multipart(&head.headers) {
        return Err(Error::new(Kind::NotAcceptable, "the answer can be had as multipart/mixed, which Accept rules out"));
    }
    unwanted_header(&head.headers)
}

fn content_type(headers: &HeaderMap) -> Result<()> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let Some(value) = values.next() else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "application/x-www-form-urlencoded" if values.next().is_none() => Ok(()),
        _ => Err(Error::new(
            Kind::UnsupportedMediaType,
            "the body of a BatchGet is application/json; Content-Type says something else",
        )),
    }
}

fn unwanted_header(headers: &HeaderMap) -> Result<()> {
    let serves = |name: &str| ENTRY_HEADERS.contains(&name) || REQUEST_HEADERS.contains(&name) || name.starts_with(CHECKSUM_PREFIX);
    match headers.keys().map(|name| name.as_str()).find(|name| name.starts_with("x-amz-") && !serves(name)) {
        Some(name) => Err(Error::new(Kind::InvalidArgument, format!("the header {name} has no meaning for a BatchGet"))),
        None => Ok(()),
    }
}

/// Whether RFC 9110 section 12.5.1 lets the answer be `multipart/mixed`: the most specific range that matches decides.
fn accepts_multipart(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).peekable();
    if values.peek().is_none() {
        return true;
    }
    let ranges = values.flat_map(|v| v.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let specificity = match parts.next()?.to_ascii_lowercase().as_str() {
            "multipart/mixed" => 2,
            "multipart/*" => 1,
            "*/*" => 0,
            _ => return None,
        };
        Some((specificity, quality(parts)))
    });
    ranges.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).is_some_and(|(_, q)| q > 0.0)
}

fn quality<'a>(parameters: impl Iterator<Item = &'a str>) -> f32 {
    let q = parameters.filter_map(|p| p.split_once('=')).find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    q.map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> Parts {
        let builder = pairs.iter().fold(http::Request::builder(), |b, (n, v)| b.header(*n, *v));
        builder.body(()).expect("valid").into_parts().0
    }

    fn kind(pairs: &[(&str, &str)]) -> Option<Kind> {
        check(&head(pairs)).err().map(|e| e.kind)
    }

    #[test]
    fn accept_follows_rfc_9110() {
        for accept in [
            "*/*",
            "multipart/*",
            "multipart/mixed",
            "text/html, */*;q=0.1",
            "Multipart/Mixed; q=0.5",
            "application/x-tar, multipart/mixed",
        ] {
            assert_eq!(kind(&[("accept", accept)]), None, "{accept}");
        }
        for accept in ["application/x-tar", "application/json", "multipart/mixed;q=0, */*", "*/*;q=0", ""] {
            assert_eq!(kind(&[("accept", accept)]), Some(Kind::NotAcceptable), "{accept}");
        }
    }

    #[test]
    fn content_type_is_json_or_curls_default() {
        for value in ["application/json", "Application/JSON; charset=utf-8", "application/x-www-form-urlencoded"] {
            assert_eq!(kind(&[("content-type", value)]), None, "{value}");
        }
        for value in ["text/plain", "multipart/form-data; boundary=x", ""] {
            assert_eq!(kind(&[("content-type", value)]), Some(Kind::UnsupportedMediaType), "{value}");
        }
    }

    #[test]
    fn an_unwanted_amz_header_is_named() {
        let error = check(&head(&[("x-amz-acl", "private")])).expect_err("unwanted");
        assert!(error.kind == Kind::InvalidArgument && error.message.contains("x-amz-acl"), "{error}");
        assert_eq!(
            kind(&[("x-amz-date", "d"), ("x-amz-checksum-crc32", "c"), ("x-amz-request-payer", "requester"), ("x-other", "1")]),
            None
        );
    }

    #[test]
    fn http_1_0_is_refused() {
        let mut head = head(&[]);
        head.version = Version::HTTP_10;
        assert_eq!(check(&head).expect_err("refused").kind, Kind::HttpVersionNotSupported);
    }
}
