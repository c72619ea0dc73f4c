//! Which headers cross the gateway. Requests lose what belongs to the connection or to the client's signature, answers lose
//! what belongs to the connection; everything else goes through as it came. Pure.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that are of one connection only (RFC 9110 section 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: &[&str] = &["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Prefix of further ones.
const PROXY_PREFIX: &str = "proxy-";

/// Prefix of what proxies between the client and us say of us: a store would take our name for its own and refuse the signature.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// What a request carries for us alone. `expect` has been answered by us; `date` may be part of the client's signature.
const OF_OUR_CLIENT: &[&str] =
    &["authorization", "date", "expect", "forwarded", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"];

/// Removes the headers of one connection from an answer, with those that its `Connection` names.
pub fn strip_answer(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    named.iter().for_each(|name| drop(headers.remove(name)));
    remove_all(headers, is_of_connection);
}

/// Removes from a request the headers of one connection and what it carries for us alone. What its `Connection` names stays:
/// nobody signs `Connection`, and with it anyone on the way could take away a precondition that the client did sign.
pub fn strip_request(headers: &mut HeaderMap) {
    remove_all(headers, |name| is_of_connection(name) || OF_OUR_CLIENT.contains(&name) || name.starts_with(FORWARDED_PREFIX));
}

fn is_of_connection(name: &str) -> bool {
    HOP_BY_HOP.contains(&name) || name.starts_with(PROXY_PREFIX)
}

/// In one pass: few headers go, and to look for each that might would cost more.
fn remove_all(headers: &mut HeaderMap, is_gone: impl Fn(&str) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_gone(name.as_str())).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

/// Removes what describes aws-chunked framing, and `aws-chunked` from `Content-Encoding`, keeping other codings.
pub fn strip_framing(headers: &mut HeaderMap) {
    for name in ["x-amz-decoded-content-length", "x-amz-trailer", "content-length"] {
        headers.remove(name);
    }
    let codings: Vec<String> = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.trim().to_owned())
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    headers.remove(header::CONTENT_ENCODING);
    if let Ok(value) = HeaderValue::from_str(&codings.join(","))
        && !codings.is_empty()
    {
        headers.insert(header::CONTENT_ENCODING, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(|n| n.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_belongs_to_the_connection_goes_with_what_it_names() {
        let mut headers = map(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("proxy-authenticate", "x"),
            ("te", "trailers"),
            ("etag", "\"e\""),
            ("x-amz-request-id", "r"),
        ]);
        strip_answer(&mut headers);
        assert_eq!(names(&headers), ["etag", "x-amz-request-id"]);
    }

    #[test]
    fn what_was_signed_for_us_is_not_shown_to_the_backend() {
        let mut headers = map(&[
            ("authorization", "a"),
            ("x-amz-date", "d"),
            ("host", "h"),
            ("x-amz-meta-a", "v"),
            ("range", "bytes=0-1"),
            ("x-forwarded-host", "h"),
        ]);
        strip_request(&mut headers);
        assert_eq!(names(&headers), ["range", "x-amz-meta-a"]);
    }

    #[test]
    fn connection_cannot_take_away_what_a_client_signed() {
        let mut headers =
            map(&[("connection", "close, if-none-match, x-amz-copy-source"), ("if-none-match", "*"), ("x-amz-copy-source", "b/k")]);
        strip_request(&mut headers);
        assert_eq!(names(&headers), ["if-none-match", "x-amz-copy-source"]);
    }

    #[test]
    fn aws_chunked_goes_and_other_codings_stay() {
        let mut headers = map(&[("content-encoding", "gzip,aws-chunked"), ("x-amz-trailer", "x"), ("content-length", "9")]);
        strip_framing(&mut headers);
        assert_eq!(headers.get("content-encoding").expect("kept"), "gzip");
        let mut headers = map(&[("content-encoding", "aws-chunked")]);
        strip_framing(&mut headers);
        assert_eq!(names(&headers), Vec::<&str>::new());
    }
}
