//! Which headers cross the gateway. Requests lose what belongs to the connection or to the client's signature, answers lose
//! what belongs to the connection; everything else goes through as it came. Pure.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that are of one connection only (RFC 9110 section 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: &[&str] = &["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// What an answer says of the hosts that it came from: none of them is for the gateway's client to see or to go to.
const OF_THE_STORES_HOST: &[&str] = &["alt-svc", "content-location", "link", "refresh", "via"];

/// Prefix of what SeaweedFS says of an object for itself, such as the account that owns it, which is the gateway's there.
const OF_SEAWEEDFS_PREFIX: &str = "seaweed-x-amz-";

/// Prefix of further ones.
const PROXY_PREFIX: &str = "proxy-";

/// Prefix of what proxies between the client and us say of us: a store would take our name for its own and refuse the signature.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// What a request carries for us alone. `expect` has been answered by us; `date` may be part of the client's signature.
const OF_OUR_CLIENT: &[&str] =
    &["authorization", "date", "expect", "forwarded", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"];

/// Prefix of the only headers in whose names a `_` is the user's own.
const METADATA_PREFIX: &str = "x-amz-meta-";

/// Removes the headers of one connection from an answer, with those that its `Connection` names, and what says where it came from.
pub fn strip_answer(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    named.iter().for_each(|name| drop(headers.remove(name)));
    remove_all(headers, |name| {
        is_of_connection(name) || OF_THE_STORES_HOST.contains(&name) || name.starts_with(OF_SEAWEEDFS_PREFIX)
    });
}

/// Removes from a request the headers of one connection and what it carries for us alone. What its `Connection` names stays:
/// nobody signs `Connection`, and with it anyone on the way could take away a precondition that the client did sign. A name with
/// `_` goes: stores whose servers speak CGI's way, Ceph's among them, read `x_amz_acl` as `x-amz-acl`, which here was neither
/// held to be signed nor asked of a policy.
pub fn strip_request(headers: &mut HeaderMap) {
    let reads_as_another = |name: &str| name.contains('_') && !name.starts_with(METADATA_PREFIX);
    remove_all(headers, |name| {
        is_of_connection(name) || OF_OUR_CLIENT.contains(&name) || name.starts_with(FORWARDED_PREFIX) || reads_as_another(name)
    });
}

fn is_of_connection(name: &str) -> bool {
    HOP_BY_HOP.contains(&name) || name.starts_with(PROXY_PREFIX)
}

/// In one pass: few headers go, and to look for each that might would cost more.
fn remove_all(headers: &mut HeaderMap, is_gone: impl Fn(&str) -> bool) {
    let names: Vec<_> = headers.keys().filter(|name| is_gone(name.as_str())).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

/// Removes what describes aws-chunked framing, and `aws-chunked` from `Content-Encoding`, keeping other codings. What is announced to
/// come behind the data (`x-amz-trailer`) stays: some stores take it for a digest where they ask for one.
pub fn strip_framing(headers: &mut HeaderMap) {
    for name in ["x-amz-decoded-content-length", "content-length"] {
        headers.remove(name);
    }
    let values: Vec<HeaderValue> = headers.get_all(header::CONTENT_ENCODING).iter().filter_map(without_aws_chunked).collect();
    headers.remove(header::CONTENT_ENCODING);
    for value in values {
        headers.append(header::CONTENT_ENCODING, value);
    }
}

/// Codings without `aws-chunked`, and nothing if there is no other: the rest to the octet, since stores keep it as it came.
fn without_aws_chunked(value: &HeaderValue) -> Option<HeaderValue> {
    let is_ours = |coding: &&[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"aws-chunked");
    let codings = || value.as_bytes().split(|octet| *octet == b',');
    if !codings().any(|coding| is_ours(&coding)) {
        return Some(value.clone());
    }
    let others: Vec<&[u8]> = codings().filter(|coding| !is_ours(coding)).collect();
    let kept = HeaderValue::from_bytes(others.join(&b","[..]).trim_ascii()).expect("parts of a header value are one");
    (!kept.is_empty()).then_some(kept)
}

/// Removes all that is said of checksums, for a store that must not see it. What they were has been verified, where it was of the
/// data.
pub fn strip_checksums(headers: &mut HeaderMap) {
    let others = ["x-amz-sdk-checksum-algorithm", "x-amz-trailer"];
    remove_all(headers, |name| name.starts_with("x-amz-checksum-") || others.contains(&name));
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
            ("via", "1.1 store-3.internal"),
            ("alt-svc", "h3=\":8443\""),
            ("seaweed-x-amz-owner", "store-access-key"),
            ("seaweed-tier", "kept"),
            ("link", "<http://store-3.internal/>; rel=preconnect"),
            ("etag", "\"e\""),
            ("x-amz-request-id", "r"),
        ]);
        strip_answer(&mut headers);
        assert_eq!(names(&headers), ["etag", "seaweed-tier", "x-amz-request-id"]);
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
    fn of_checksums_nothing_is_left() {
        let mut headers = map(&[
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-checksum-algorithm", "CRC32"),
            ("x-amz-checksum-mode", "ENABLED"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
            ("x-amz-meta-checksum", "kept"),
        ]);
        strip_checksums(&mut headers);
        assert_eq!(names(&headers), ["content-md5", "x-amz-meta-checksum"]);
    }

    #[test]
    fn a_name_that_a_store_could_read_as_another_stays_behind() {
        let mut headers = map(&[
            ("x_amz_acl", "public-read"),
            ("x-amz_copy_source", "b/secret"),
            ("x-amz-meta_a", "v"),
            ("if_none_match", "*"),
            ("content_length", "3"),
            ("x-amz-meta-a_b", "v"),
            ("x-amz-meta-_", "v"),
        ]);
        strip_request(&mut headers);
        assert_eq!(names(&headers), ["x-amz-meta-_", "x-amz-meta-a_b"]);
    }

    #[test]
    fn aws_chunked_goes_and_other_codings_stay() {
        for (value, kept) in [
            ("gzip,aws-chunked", Some("gzip")),
            ("AWS-chunked, gzip, br", Some("gzip, br")),
            ("gzip, aws-chunked , br", Some("gzip, br")),
            ("gzip, br", Some("gzip, br")),
            ("", Some("")),
            ("aws-chunked", None),
            ("aws-chunked,", None),
        ] {
            let mut headers = map(&[("content-encoding", value), ("x-amz-decoded-content-length", "9"), ("content-length", "9")]);
            strip_framing(&mut headers);
            assert_eq!(headers.get("content-encoding").map(|kept| kept.to_str().expect("text")), kept, "{value:?}");
            assert!(headers.len() <= 1);
            headers.insert("x-amz-trailer", HeaderValue::from_static("x"));
            strip_framing(&mut headers);
            assert!(headers.contains_key("x-amz-trailer"), "it is of the data");
        }
        let mut headers = HeaderMap::new();
        for value in [&b"identity"[..], b"aws-chunked,\xff"] {
            headers.append(header::CONTENT_ENCODING, HeaderValue::from_bytes(value).expect("opaque"));
        }
        strip_framing(&mut headers);
        let left: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(left, [&b"identity"[..], b"\xff"]);
    }
}
