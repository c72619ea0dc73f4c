//! Version 2: the documented examples, and everything that it does not cover and that therefore must not pass.

use std::time::{Duration, SystemTime};

use http::Request;

use super::*;
use crate::auth::{Also, Authenticated, Authenticator, Identity, Payload, Policy, Scheme};

const ACCESS: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A quarter to eight on 27 March 2007 (UTC), the day of the examples.
const EVENING: u64 = 1_175_024_700;
const DATE: &str = "Tue, 27 Mar 2007 19:45:00 +0000";

fn authenticator(now: crate::types::WallClock) -> Authenticator {
    let example = Identity::new("example", ACCESS, SECRET, None, Policy::full_access());
    let guest = Identity::new("guest", "GUEST", SECRET, Some("token".into()), Policy::none());
    let also = Also { version_2: true, ..Also::default() };
    Authenticator::new(vec![example, guest], "us-east-1", 1 << 20, now).letting_in(also)
}

fn evening() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(EVENING)
}

/// A request on its way: in path style, or for the bucket that the host names.
fn sent(method: &str, uri: &str, headers: &[(&str, &str)], host_bucket: Option<&str>) -> (Parts, S3Target) {
    let mut builder = Request::builder().method(method).uri(uri).header("host", "h");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let head = builder.body(()).expect("valid").into_parts().0;
    let path = head.uri.path().to_owned();
    let (bucket, raw_key) = match host_bucket {
        Some(bucket) => (bucket, &path[1..]),
        None => path[1..].split_once('/').unwrap_or((&path[1..], "")),
    };
    let target = S3Target {
        bucket: Some(bucket.to_owned()).filter(|bucket| !bucket.is_empty()),
        key: Some(percent_decode(raw_key)).filter(|key| !key.is_empty()),
        raw_key: raw_key.to_owned(),
        bucket_in_host: host_bucket.is_some(),
        path,
    };
    (head, target)
}

fn signature_of(text: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).expect("any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// What comes of a request that claims `signature` in its header.
fn judge(method: &str, uri: &str, headers: &[(&str, &str)], signature: &str, host_bucket: Option<&str>) -> Result<Authenticated> {
    let authorization = format!("AWS {ACCESS}:{signature}");
    let (head, target) = sent(method, uri, &[headers, &[("authorization", &authorization)]].concat(), host_bucket);
    authenticator(evening).authenticate(&head, &target)
}

/// The same with a good signature of `text`, dated now.
fn signed(method: &str, uri: &str, text: &str) -> Result<Authenticated> {
    judge(method, uri, &[("date", DATE)], &signature_of(text), None)
}

/// What comes of a URL that `text` was signed for, with `Expires` an hour from now.
fn presigned(method: &str, uri: &str, headers: &[(&str, &str)], text: &str) -> Result<Authenticated> {
    let signature = signature_of(text).replace('+', "%2B").replace('=', "%3D");
    let and = if uri.contains('?') { '&' } else { '?' };
    let uri = format!("{uri}{and}AWSAccessKeyId={ACCESS}&Signature={signature}&Expires={}", EVENING + 3600);
    let (head, target) = sent(method, &uri, headers, None);
    authenticator(evening).authenticate(&head, &target)
}

fn kind(result: Result<Authenticated>) -> Kind {
    result.map(|_| ()).expect_err("refused").kind
}

#[test]
fn signatures_equal_the_documented_examples() {
    let own = "johnsmith";
    type Example<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
    let examples: &[Example<'_>] = &[
        ("GET", "/photos/puppy.jpg", &[("date", "Tue, 27 Mar 2007 19:36:42 +0000")], "bWq2s1WEIj+Ydj0vQ697zp+IXMU=", Some(own)),
        (
            "GET",
            "/johnsmith/photos/puppy.jpg",
            &[("date", "Tue, 27 Mar 2007 19:36:42 +0000")],
            "bWq2s1WEIj+Ydj0vQ697zp+IXMU=",
            None,
        ),
        (
            "GET",
            "/?prefix=photos&max-keys=50&marker=puppy",
            &[("date", "Tue, 27 Mar 2007 19:42:41 +0000")],
            "htDYFYduRNen8P9ZfE/s9SuKy0U=",
            Some(own),
        ),
        // What the page signs for the bucket's own host is good for the path, too.
        ("GET", "/johnsmith?prefix=x", &[("date", "Tue, 27 Mar 2007 19:42:41 +0000")], "htDYFYduRNen8P9ZfE/s9SuKy0U=", None),
        ("GET", "/?acl", &[("date", "Tue, 27 Mar 2007 19:44:46 +0000")], "c2WLPFtWHVgbEmeEG93a4cG37dM=", Some(own)),
    ];
    for (method, uri, headers, signature, host_bucket) in examples {
        let authenticated = judge(method, uri, headers, signature, *host_bucket).expect(uri);
        assert_eq!((authenticated.identity.name.as_str(), authenticated.scheme), ("example", Scheme::V2));
        assert!(matches!(authenticated.payload, Payload::Unsigned) && !authenticated.payload_pinned && !authenticated.presigned);
        assert_eq!(kind(judge("PUT", uri, headers, signature, *host_bucket)), Kind::SignatureDoesNotMatch);
    }
}

#[test]
fn where_no_bucket_is_named_the_endpoints_path_may_be_signed() {
    let list = |path: &str| {
        let authorization = format!("AWS {ACCESS}:{}", signature_of(&format!("GET\n\n\n{DATE}\n{path}")));
        let (head, _) = sent("GET", "/data/v1/", &[("date", DATE), ("authorization", &authorization)], None);
        authenticator(evening).authenticate(&head, &S3Target { path: "/".into(), ..S3Target::default() })
    };
    list("/data/v1/").expect("as boto3 signs it");
    list("/").expect("as it is without the endpoint's path");
    assert_eq!(kind(list("/data/v2/")), Kind::SignatureDoesNotMatch);
}

#[test]
fn the_documented_upload_signs_its_headers() {
    let headers = [
        ("date", "Tue, 27 Mar 2007 21:06:08 +0000"),
        ("x-amz-acl", "public-read"),
        ("content-type", "application/x-download"),
        ("content-md5", "4gJE4saaMU4BqNR0kLY+lw=="),
        ("x-amz-meta-reviewedby", "joe@johnsmith.net"),
        ("x-amz-meta-reviewedby", "jane@johnsmith.net"),
        ("x-amz-meta-filechecksum", "0x02661779"),
        ("x-amz-meta-checksumalgorithm", "crc32"),
        ("content-disposition", "attachment; filename=database.dat"),
    ];
    let authorization = format!("AWS {ACCESS}:ilyl83RwaSoYIEdixDQcA4OnAnc=");
    let judge = |headers: &[(&str, &str)]| {
        let all = [headers, &[("authorization", authorization.as_str())]].concat();
        let (head, target) = sent("PUT", "/db-backup.dat.gz", &all, Some("static.johnsmith.net"));
        authenticator(|| evening() + Duration::from_secs(5000)).authenticate(&head, &target)
    };
    judge(&headers).expect("as documented");
    for at in 1..headers.len() - 1 {
        let mut changed = headers;
        changed[at].1 = "other";
        assert_eq!(kind(judge(&changed)), Kind::SignatureDoesNotMatch, "{}", changed[at].0);
    }
    assert_eq!(kind(judge(&[&headers[..], &[("x-amz-copy-source", "b/k")]].concat())), Kind::SignatureDoesNotMatch);
}

#[test]
fn the_documented_url_is_good_until_it_expires() {
    let uri = format!("/photos/puppy.jpg?AWSAccessKeyId={ACCESS}&Expires=1175139620&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D");
    let (head, target) = sent("GET", &uri, &[], Some("johnsmith"));
    let authenticated = authenticator(evening).authenticate(&head, &target).expect("long before");
    assert!(authenticated.presigned && authenticated.scheme == Scheme::V2);
    let last = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_175_139_620);
    authenticator(last).authenticate(&head, &target).expect("the last second");
    let late = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_175_139_621);
    let error = authenticator(late).authenticate(&head, &target).map(|_| ()).expect_err("late");
    assert!(error.kind == Kind::AccessDenied && error.message.contains("expired"));
}

#[test]
fn a_date_that_is_too_far_away_or_is_none_is_refused() {
    let at = |date: &str| judge("GET", "/b/k", &[("date", date)], &signature_of(&format!("GET\n\n\n{date}\n/b/k")), None);
    at("Tue, 27 Mar 2007 19:59:59 GMT").expect("14:59 ahead");
    at("Tue, 27 Mar 2007 19:30:01 +0000").expect("14:59 behind");
    for date in ["Tue, 27 Mar 2007 20:00:01 GMT", "Tue, 27 Mar 2007 19:29:59 GMT"] {
        assert_eq!(kind(at(date)), Kind::RequestTimeTooSkewed);
    }
    for date in ["", "1175139620", "Tue, 27 Mar 2007 19:45:00 +0100", "yesterday"] {
        assert_eq!(kind(at(date)), Kind::AccessDenied, "{date}");
    }
    // The other date is signed where it stands, and nothing in the place of this one.
    let text = format!("GET\n\n\n\nx-amz-date:{DATE}\n/b/k");
    let both = [("x-amz-date", DATE), ("date", "Thu, 01 Jan 1970 00:00:00 GMT")];
    judge("GET", "/b/k", &both, &signature_of(&text), None).expect("x-amz-date goes before Date");
    let swapped = [("x-amz-date", both[1].1), ("date", DATE)];
    assert_eq!(kind(judge("GET", "/b/k", &swapped, &signature_of(&text), None)), Kind::RequestTimeTooSkewed);
}

#[test]
fn what_no_version_2_signs_does_not_pass() {
    let text = format!("GET\n\n\n{DATE}\n/b/k");
    signed("GET", "/b/k", &text).expect("signed");
    signed("GET", "/b/k?x-id=GetObject", &text).expect("of no meaning");
    for query in [
        "batch-get",
        "attributes",
        "torrents",
        "x-amz-acl=public-read",
        "X-Amz-Copy-Source=b/k",
        "Expires=9999999999",
        "content-type=a",
        "ac%6C",
        "ACL",
        "%61cl",
        "prefix=a;acl",
        "unknown",
        "=",
    ] {
        let refused = signed("GET", &format!("/b/k?{query}"), &text);
        assert_eq!(kind(refused), Kind::AccessDenied, "{query}");
    }
    // What it signs must be signed.
    for query in ["acl", "versionId=1", "response-content-type=text/html", "tagging", "uploads", "retention", "partNumber=1"] {
        assert_eq!(kind(signed("GET", &format!("/b/k?{query}"), &text)), Kind::SignatureDoesNotMatch, "{query}");
    }
}

#[test]
fn sub_resources_are_signed_decoded_and_in_order() {
    let text = format!("GET\n\n\n{DATE}\n/b/k?acl&response-content-type=text/html; x&versionId=a+b");
    signed("GET", "/b/k?versionId=a%2Bb&response-content-type=text%2Fhtml%3B%20x&acl", &text).expect("signed");
    signed("GET", "/b/k?versionId=a%2Bb&response-content-type=text%2Fhtml%3B%20x&acl=", &text).expect("no value is an empty one");
    let with_equals = format!("GET\n\n\n{DATE}\n/b/k?acl=");
    signed("GET", "/b/k?acl=", &with_equals).expect("as it was sent");
    assert_eq!(kind(signed("GET", "/b/k?acl", &with_equals)), Kind::SignatureDoesNotMatch);
    // One value must not be another parameter.
    let text = format!("GET\n\n\n{DATE}\n/b/k?response-content-type=a&versionId=b");
    assert_eq!(kind(signed("GET", "/b/k?response-content-type=a%26versionId=b", &text)), Kind::InvalidArgument);
}

#[test]
fn a_path_is_signed_as_it_was_sent() {
    let text = format!("GET\n\n\n{DATE}\n/b/a%20b//../@");
    signed("GET", "/b/a%20b//../@", &text).expect("raw");
    assert_eq!(kind(signed("GET", "/b/a%20b//../%40", &text)), Kind::SignatureDoesNotMatch);
    // The slash behind a bucket is free, that behind a key is a part of it.
    let bucket = format!("GET\n\n\n{DATE}\n/b/");
    signed("GET", "/b", &bucket).expect("the bucket");
    signed("GET", "/b/", &bucket).expect("the bucket");
    assert_eq!(kind(signed("GET", "/b/k/", &format!("GET\n\n\n{DATE}\n/b/k"))), Kind::SignatureDoesNotMatch);
    signed("GET", "/", &format!("GET\n\n\n{DATE}\n/")).expect("the service");
}

#[test]
fn a_url_says_headers_in_its_query_and_they_become_headers() {
    let text = |amz: &str| format!("PUT\n\ntext/plain\n{}\n{amz}/b/k", EVENING + 3600);
    let uri = "/b/k?x-amz-acl=public-read&X-Amz-Meta-A=b%20c&content-type=text%2Fplain";
    let amz = "x-amz-acl:public-read\nx-amz-meta-a:b c\n";
    let authenticated = presigned("PUT", uri, &[("content-type", "text/plain")], &text(amz)).expect("signed");
    let query = format!("{}&AWSAccessKeyId=a&Signature=s&Expires=1&x-amz-security-token=t", &uri[5..]);
    assert_eq!(authenticated.query_to_judge(&query), "x-amz-acl=public-read&X-Amz-Meta-A=b%20c&x-amz-security-token=t");
    assert_eq!(authenticated.query_to_forward(&format!("{query}&versionId=1")), "versionId=1");
    let mut headers = HeaderMap::new();
    authenticated.lift_headers(&query, &mut headers).expect("valid");
    assert_eq!(
        (headers.len(), &headers["x-amz-acl"], &headers["x-amz-meta-a"]),
        (2, &"public-read".parse().expect("valid"), &"b c".parse().expect("valid"))
    );

    let refused = |uri: &str, headers: &[(&str, &str)]| kind(presigned("PUT", uri, headers, &text(amz)));
    let plain = ("content-type", "text/plain");
    assert_eq!(refused(uri, &[]), Kind::SignatureDoesNotMatch, "the header is signed, and not what the query says of it");
    assert_eq!(refused(&uri.replace("public", "private"), &[plain]), Kind::SignatureDoesNotMatch);
    assert_eq!(refused(uri, &[plain, ("x-amz-acl", "private")]), Kind::InvalidArgument);
    assert_eq!(refused(uri, &[plain, ("x-amz-tagging", "a=b")]), Kind::SignatureDoesNotMatch);
    assert_eq!(refused(&format!("{uri}&x-amz-acl=private"), &[plain]), Kind::InvalidArgument);
    assert_eq!(refused(&format!("{uri}&x-amz-content-sha256=UNSIGNED-PAYLOAD"), &[plain]), Kind::InvalidArgument);
    assert_eq!(refused(&format!("{uri}&batch-get"), &[plain]), Kind::AccessDenied);
}

#[test]
fn a_claim_is_whole_and_alone() {
    let authenticate = |uri: &str, headers: &[(&str, &str)]| {
        let (head, target) = sent("GET", uri, headers, None);
        kind(authenticator(evening).authenticate(&head, &target))
    };
    let good = format!("AWS {ACCESS}:{}", signature_of(&format!("GET\n\n\n{DATE}\n/b/k")));
    for header in ["AWS", "AWS ", "AWS x", "AWS :abcd", "AWS a:", "AWS a:!", "AWS a:c2hvcnQ="] {
        assert_eq!(authenticate("/b/k", &[("authorization", header), ("date", DATE)]), Kind::InvalidArgument, "{header}");
    }
    assert_eq!(authenticate("/b/k", &[("authorization", &good)]), Kind::AccessDenied, "no date");
    let unknown = good.replace(ACCESS, "UNKNOWN");
    assert_eq!(authenticate("/b/k", &[("authorization", &unknown), ("date", DATE)]), Kind::InvalidAccessKeyId);
    for query in ["Signature=a", "AWSAccessKeyId=a", "AWSAccessKeyId=a&Signature=b", "AWSAccessKeyId=a&Expires=1"] {
        assert_eq!(authenticate(&format!("/b/k?{query}"), &[]), Kind::AccessDenied, "{query}");
        let both = [("authorization", good.as_str()), ("date", DATE)];
        assert_eq!(authenticate(&format!("/b/k?{query}"), &both), Kind::InvalidArgument, "{query}");
    }
    let expires = format!("AWSAccessKeyId={ACCESS}&Signature=c2hvcnQAAAAAAAAAAAAAAAAAAAA%3D&Expires=");
    for value in ["", "-1", "soon", "99999999999999999999"] {
        assert_eq!(authenticate(&format!("/b/k?{expires}{value}"), &[]), Kind::AccessDenied, "{value}");
    }
    let twice = format!("/b/k?{expires}9999999999&Expires=1");
    assert_eq!(authenticate(&twice, &[]), Kind::AccessDenied);
}

#[test]
fn a_session_token_is_asked_for_and_signed() {
    let text = |token: &str| format!("GET\n\n\n{DATE}\n{token}/b/k");
    let authenticate = |headers: &[(&str, &str)], text: &str| {
        let authorization = format!("AWS GUEST:{}", signature_of(text));
        let (head, target) = sent("GET", "/b/k", &[headers, &[("authorization", &authorization), ("date", DATE)]].concat(), None);
        authenticator(evening).authenticate(&head, &target)
    };
    let token = ("x-amz-security-token", "token");
    authenticate(&[token], &text("x-amz-security-token:token\n")).expect("signed");
    assert_eq!(kind(authenticate(&[token], &text(""))), Kind::SignatureDoesNotMatch);
    assert_eq!(kind(authenticate(&[], &text(""))), Kind::InvalidToken);
}

#[test]
fn a_pinned_hash_is_kept_and_signed_chunks_are_refused() {
    let put = |sha256: &str| {
        let text = format!("PUT\n\n\n{DATE}\nx-amz-content-sha256:{sha256}\n/b/k");
        judge("PUT", "/b/k", &[("date", DATE), ("x-amz-content-sha256", sha256)], &signature_of(&text), None)
    };
    let pinned = put(&"0".repeat(64)).expect("signed");
    assert!(pinned.payload_pinned && matches!(pinned.payload, Payload::Signed { .. }));
    assert!(matches!(put("STREAMING-UNSIGNED-PAYLOAD-TRAILER").expect("signed").payload, Payload::UnsignedTrailer));
    assert_eq!(kind(put("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")), Kind::NotImplemented);
    assert_eq!(kind(put("other")), Kind::InvalidArgument);
}
