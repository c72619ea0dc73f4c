//! What a BatchGet's head must be before its body is read: version, media types, headers and payload signing. Pure checks of
//! request parts, each with the contract's answer.

use http::request::Parts;
use http::{HeaderMap, Version, header};

use super::encode::Format;
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

/// Checks everything but the signature, which was verified before, and says in what format the answer is wanted.
pub fn check(head: &Parts) -> Result<Format> {
    if head.version < Version::HTTP_11 {
        let why = "BatchGet needs HTTP/1.1 or HTTP/2: over HTTP/1.0 a cut answer cannot be told from a whole one";
        return Err(Error::new(Kind::HttpVersionNotSupported, why));
    }
    content_type(&head.headers)?;
    let format = accepted(&head.headers)?;
    unwanted_header(&head.headers)?;
    Ok(format)
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

/// The format that the client likes best (RFC 9110 section 12.5.1): the most specific range that matches a media type says how
/// much; on a tie the first of [`Format::ALL`] is taken.
fn accepted(headers: &HeaderMap) -> Result<Format> {
    if !headers.contains_key(header::ACCEPT) {
        return Ok(Format::Multipart);
    }
    let liked = Format::ALL.map(|format| (quality(headers, format.media_type()), format));
    let best = liked.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.filter(|(quality, _)| *quality > 0.0).map(|(_, format)| format).ok_or_else(|| {
        let [first, second] = Format::ALL.map(Format::media_type);
        Error::new(Kind::NotAcceptable, format!("the answer can be had as {first} or as {second}; Accept rules out both"))
    })
}

/// How much `Accept` likes a media type, from 0 (not at all) to 1.
fn quality(headers: &HeaderMap, media_type: &str) -> f32 {
    let whole_group = media_type.split('/').next().unwrap_or_default();
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let matching = values.flat_map(|v| v.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next()?.to_ascii_lowercase();
        let specificity = match range.strip_suffix("/*") {
            None if range == media_type => 2,
            Some(group) if group == whole_group => 1,
            Some("*") => 0,
            _ => return None,
        };
        Some((specificity, weight(parts)))
    });
    matching.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map_or(0.0, |(_, weight)| weight)
}

/// The `q` of a range's parameters; one that is no number from 0 to 1 accepts nothing.
fn weight<'a>(parameters: impl Iterator<Item = &'a str>) -> f32 {
    let q = parameters.filter_map(|p| p.split_once('=')).find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    q.map_or(1.0, |(_, value)| value.trim().parse::<f32>().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0))
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
        for (accept, format) in [
            ("*/*", Format::Multipart),
            ("multipart/*", Format::Multipart),
            ("multipart/mixed", Format::Multipart),
            ("text/html, */*;q=0.1", Format::Multipart),
            ("Multipart/Mixed; q=0.5", Format::Multipart),
            ("application/x-tar, multipart/mixed", Format::Multipart),
            ("application/x-tar;q=0.5, */*;q=0.9", Format::Multipart),
            ("application/x-tar;q=0.7, multipart/mixed;q=0.70", Format::Multipart),
            ("application/x-tar;q=7, multipart/mixed;q=0.1", Format::Multipart),
            ("application/x-tar;q=nan, */*;q=0.1", Format::Multipart),
            ("application/*;q=0, */*", Format::Multipart),
            ("application/x-tar", Format::Tar),
            ("APPLICATION/X-TAR;Q=0.001", Format::Tar),
            ("application/*", Format::Tar),
            ("application/x-tar, */*;q=0.9", Format::Tar),
            ("application/x-tar, multipart/*;q=0.999", Format::Tar),
            ("multipart/mixed;q=0, */*", Format::Tar),
            ("multipart/mixed;q=0.2, */*;q=0.3", Format::Tar),
        ] {
            assert_eq!(check(&head(&[("accept", accept)])).expect(accept), format, "{accept}");
        }
        assert_eq!(check(&head(&[])).expect("absent"), Format::Multipart);
        assert_eq!(check(&head(&[("accept", "text/html"), ("accept", "application/x-tar")])).expect("the second"), Format::Tar);
        for accept in
            ["application/json", "*/*;q=0", "", "application/x-tar;q=0, multipart/*;q=0.0", "multipart/mixed;q=x", "*", "x-tar"]
        {
            let error = check(&head(&[("accept", accept)])).expect_err(accept);
            assert!(error.kind == Kind::NotAcceptable && error.message.contains("application/x-tar"), "{accept}");
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
