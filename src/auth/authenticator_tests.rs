//! Signatures: the documented examples, the traps of other proxies, and every refusal.

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, Request, Version};
use s3s_sigv4::{AmzDate, create_canonical_request, create_string_to_sign};

use super::*;
use crate::auth::Policy;
use crate::auth::claim::parse_hex32;

const ACCESS: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const STAMP: &str = "20130524T000000Z";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// 2013-05-24 00:00:00 UTC, the day of AWS's examples.
const NOON: u64 = 1_369_353_600;

fn authenticator_at(now: WallClock) -> Authenticator {
    let example = Identity::new("example", ACCESS, SECRET, None, Policy::full_access());
    let guest = Identity::new("guest", "GUEST", "guest-secret", Some("token".into()), Policy::none());
    Authenticator::new(vec![example, guest], "us-east-1", 1 << 20, now)
}

fn authenticator() -> Authenticator {
    authenticator_at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + 60))
}

fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri).body(()).expect("valid");
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("name");
        request.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).expect("value"));
    }
    request.into_parts().0
}

fn authorization(credential: &str, signed: &str, signature: &str) -> String {
    format!("AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={signed},Signature={signature}")
}

/// A request signed by code that is not ours. `path` is what the signer believes, decoded; `uri` what is sent.
struct Signer<'a> {
    access: &'a str,
    secret: &'a str,
    method: &'a str,
    path: &'a str,
    query: &'a [(&'a str, &'a str)],
    headers: Vec<(&'a str, &'a str)>,
    payload: &'a str,
    raw_path: bool,
    region: &'a str,
}

impl<'a> Signer<'a> {
    fn get(path: &'a str) -> Self {
        let headers = vec![("host", "h"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", STAMP)];
        Self {
            access: ACCESS,
            secret: SECRET,
            method: "GET",
            path,
            query: &[],
            headers,
            payload: EMPTY,
            raw_path: false,
            region: "us-east-1",
        }
    }

    fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self.headers.sort();
        self
    }

    fn signature(&self) -> String {
        let payload = match self.payload {
            "UNSIGNED-PAYLOAD" => s3s_sigv4::Payload::Unsigned,
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => s3s_sigv4::Payload::UnsignedMultipleChunksWithTrailer,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => s3s_sigv4::Payload::MultipleChunks,
            hash => s3s_sigv4::Payload::SingleChunk(hash),
        };
        let create = if self.raw_path { s3s_sigv4::create_canonical_request_with_raw_uri_path } else { create_canonical_request };
        let canonical = create(self.method, self.path, self.query, self.headers.as_slice(), payload);
        let date = AmzDate::parse(STAMP).expect("valid");
        let to_sign = create_string_to_sign(&canonical, &date, self.region, "s3");
        s3s_sigv4::calculate_signature(&to_sign, self.secret, &date, self.region, "s3")
    }

    fn credential(&self) -> String {
        format!("{}/20130524/{}/s3/aws4_request", self.access, self.region)
    }

    fn send(&self, uri: &str) -> Parts {
        let signed: Vec<_> = self.headers.iter().map(|(name, _)| *name).collect();
        let value = authorization(&self.credential(), &signed.join(";"), &self.signature());
        let mut headers = self.headers.clone();
        headers.push(("authorization", &value));
        head(self.method, uri, &headers)
    }

    /// The query of a presigned URL, its parameters in canonical order.
    fn presign(mut self, expires: &str, query: &[(&'a str, &'a str)]) -> String {
        let credential = self.credential();
        self.headers.retain(|(name, _)| *name != "x-amz-date");
        let signed = self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut pairs = vec![
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", credential.as_str()),
            ("X-Amz-Date", STAMP),
            ("X-Amz-Expires", expires),
            ("X-Amz-SignedHeaders", signed.as_str()),
        ];
        pairs.extend(query);
        let signer = Signer { query: &pairs, headers: self.headers.clone(), ..self };
        let signature = signer.signature();
        pairs.push(("X-Amz-Signature", &signature));
        let encode = |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        pairs.iter().map(|(n, v)| format!("{}={}", n, encode(v))).collect::<Vec<_>>().join("&")
    }
}

fn kind(head: &Parts) -> Kind {
    authenticator().authenticate(head, &S3Target::default()).map(|_| ()).expect_err("refused").kind
}

fn accepts(head: &Parts) -> Authenticated {
    authenticator().authenticate(head, &S3Target::default()).expect("accepted")
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
#[test]
fn aws_examples_of_header_signatures() {
    let host = ("host", "examplebucket.s3.amazonaws.com");
    let date = ("x-amz-date", STAMP);
    let empty = ("x-amz-content-sha256", EMPTY);
    let sign = |signed: &str, signature: &str| authorization(&format!("{ACCESS}/{SCOPE}"), signed, signature);
    let plain = "host;x-amz-content-sha256;x-amz-date";

    let value =
        sign("host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    let get = accepts(&head("GET", "/test.txt", &[host, ("range", "bytes=0-9"), empty, date, ("authorization", &value)]));
    assert!(matches!(get.payload, Payload::Signed { .. }) && get.payload_pinned && !get.presigned);
    assert_eq!(get.identity.name, "example");

    let hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let signed = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
    let value = sign(signed, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    let more = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
    let headers = [more[0], host, ("x-amz-content-sha256", hash), date, more[1], ("authorization", &value)];
    accepts(&head("PUT", "/test$file.text", &headers));
    accepts(&head("PUT", "/test%24file.text", &headers));

    let value = sign(plain, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    for uri in ["/?lifecycle", "/?lifecycle="] {
        accepts(&head("GET", uri, &[host, empty, date, ("authorization", &value)]));
    }

    let value = sign(plain, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    accepts(&head("GET", "/?max-keys=2&prefix=J", &[host, empty, date, ("authorization", &value)]));
    accepts(&head("GET", "/?prefix=J&max-keys=2", &[host, empty, date, ("authorization", &value)]));
    assert_eq!(
        kind(&head("GET", "/?prefix=K&max-keys=2", &[host, empty, date, ("authorization", &value)])),
        Kind::SignatureDoesNotMatch
    );
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>
#[test]
fn aws_example_of_a_presigned_url() {
    let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
               &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
               &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let request = head("GET", uri, &[("host", "examplebucket.s3.amazonaws.com")]);
    let authenticated = accepts(&request);
    assert!(authenticated.presigned && !authenticated.payload_pinned && matches!(authenticated.payload, Payload::Unsigned));
    let at = |now: WallClock| {
        authenticator_at(now).authenticate(&request, &S3Target::default()).map(|_| ()).map_err(|e| (e.kind, e.message.into_owned()))
    };
    assert!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + 86_400)).is_ok());
    let expired = at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + 86_401)).expect_err("expired");
    assert_eq!(expired, (Kind::AccessDenied, "Request has expired".into()));
    assert!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON - 900)).is_ok());
    assert_eq!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON - 901)).expect_err("early").0, Kind::AccessDenied);
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html>
#[test]
fn aws_example_of_a_chunked_seed() {
    let signed =
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class";
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    let value = authorization(&format!("{ACCESS}/{SCOPE}"), signed, seed);
    let request = head(
        "PUT",
        "/examplebucket/chunkObject.txt",
        &[
            ("host", "s3.amazonaws.com"),
            ("x-amz-date", STAMP),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
            ("content-length", "66824"),
            ("authorization", &value),
        ],
    );
    let Payload::SignedChunks(seal) = accepts(&request).payload else { panic!("chunks") };
    assert_eq!(Some(seal.previous), parse_hex32(seed.as_bytes()));
}

#[test]
fn a_path_is_accepted_as_sent_or_as_decoded() {
    for (path, uri) in [
        ("/b/a//b/./../c", "/b/a//b/./../c"),
        ("/b/100%.txt", "/b/100%25.txt"),
        ("/b/100%25.txt", "/b/100%2525.txt"),
        ("/b/@()'!*= é", "/b/@()'!*=%20%C3%A9"),
        ("/b/@()'!*= é", "/b/%40%28%29%27%21%2A%3D%20%c3%a9"),
        ("/b/a/b", "/b/a%2Fb"),
        ("/b/a+b", "/b/a+b"),
    ] {
        accepts(&Signer::get(path).send(uri));
    }
    for uri in ["/b/a%2Fb@", "/b/a%2fb", "/b/100%.txt", "/b/@()'!*=", "/b/a%20b"] {
        accepts(&Signer { raw_path: true, ..Signer::get(uri) }.send(uri));
    }
    accepts(&Signer { raw_path: true, ..Signer::get("/b/a%2Fb%40") }.send("/b/a%2fb@"));
    for (path, uri) in [("/b/100%.txt", "/b/100%2525.txt"), ("/b/a/b", "/b/a//b"), ("/b/c", "/b/a/../c"), ("/b/a%20b", "/b/a%20b")]
    {
        assert_eq!(kind(&Signer::get(path).send(uri)), Kind::SignatureDoesNotMatch, "{path} {uri}");
    }
}

#[test]
fn the_authority_of_http_2_is_the_host() {
    let mut request = Signer::get("/b/k").send("http://h/b/k");
    request.version = Version::HTTP_2;
    request.headers.remove("host");
    accepts(&request);
    request.headers.insert("host", HeaderValue::from_static("h"));
    accepts(&request);
    request.headers.insert("host", HeaderValue::from_static("other"));
    assert_eq!(kind(&request), Kind::InvalidRequest);
    let mut twice = Signer::get("/b/k").send("/b/k");
    twice.headers.append("host", HeaderValue::from_static("h"));
    assert_eq!(kind(&twice), Kind::InvalidRequest);
}

#[test]
fn a_host_is_signed_as_it_is_written_or_in_lower_case() {
    for host in ["b.s3.test:80", "B.S3.Test:80"] {
        let mut request =
            Signer { headers: vec![("host", host), ("x-amz-content-sha256", EMPTY), ("x-amz-date", STAMP)], ..Signer::get("/k") }
                .send("/k");
        request.headers.insert("host", HeaderValue::from_static("B.S3.Test:80"));
        accepts(&request);
    }
    let mut request = Signer {
        headers: vec![("host", "B.S3.TEST"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", STAMP)],
        ..Signer::get("/k")
    }
    .send("/k");
    for other in ["b.s3.test", "B.s3.TEST", "C.S3.TEST"] {
        request.headers.insert("host", HeaderValue::from_static(other));
        assert_eq!(kind(&request), Kind::SignatureDoesNotMatch, "{other}");
    }
}

#[test]
fn an_unsigned_amz_header_is_refused_and_named() {
    let mut request = Signer::get("/b/k").send("/b/k");
    request.headers.insert("content-type", HeaderValue::from_static("text/plain"));
    accepts(&request);
    request.headers.insert("x-amz-copy-source", HeaderValue::from_static("a/b"));
    let error = authenticator().authenticate(&request, &S3Target::default()).map(|_| ()).expect_err("refused");
    assert_eq!((error.kind, error.details), (Kind::AccessDenied, vec![("HeadersNotSigned", "x-amz-copy-source".to_owned())]));

    let query = Signer { payload: "UNSIGNED-PAYLOAD", headers: vec![("host", "h")], ..Signer::get("/b/k") }.presign("60", &[]);
    let uri = format!("/b/k?{query}");
    accepts(&head("GET", &uri, &[("host", "h")]));
    assert_eq!(kind(&head("GET", &uri, &[("host", "h"), ("x-amz-acl", "public-read")])), Kind::AccessDenied);
}

#[test]
fn what_was_signed_cannot_be_changed() {
    let original = Signer::get("/b/k").with("x-amz-meta-a", "b  c").with("range", "bytes=0-1").send("/b/k?x=1");
    assert_eq!(kind(&original), Kind::SignatureDoesNotMatch);
    let signer = Signer { query: &[("x", "1")], ..Signer::get("/b/k") }.with("x-amz-meta-a", "b  c");
    accepts(&signer.send("/b/k?x=1"));
    for (name, value) in [("x-amz-meta-a", "other"), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("host", "other")] {
        let mut request = signer.send("/b/k?x=1");
        request.headers.insert(name, HeaderValue::from_static(value));
        assert_eq!(kind(&request), Kind::SignatureDoesNotMatch, "{name}");
    }
    let mut request = signer.send("/b/k?x=1");
    request.headers.remove("x-amz-meta-a");
    assert_eq!(kind(&request), Kind::SignatureDoesNotMatch);
    let mut request = signer.send("/b/k?x=1");
    request.method = http::Method::DELETE;
    assert_eq!(kind(&request), Kind::SignatureDoesNotMatch);
}

#[test]
fn a_presigned_hash_pins_the_body() {
    let pinned = |payload| {
        let headers = vec![("host", "h"), ("x-amz-content-sha256", EMPTY)];
        Signer { method: "POST", payload, headers, ..Signer::get("/b") }.presign("60", &[("batch-get", "")])
    };
    for payload in [EMPTY, "UNSIGNED-PAYLOAD"] {
        let authenticated =
            accepts(&head("POST", &format!("/b?{}", pinned(payload)), &[("host", "h"), ("x-amz-content-sha256", EMPTY)]));
        assert!(authenticated.payload_pinned && matches!(authenticated.payload, Payload::Signed { .. }), "{payload}");
    }
    let open = Signer { method: "PUT", payload: "UNSIGNED-PAYLOAD", headers: vec![("host", "h")], ..Signer::get("/b/k") };
    let uri = format!("/b/k?{}", open.presign("60", &[]));
    let authenticated = accepts(&head("PUT", &uri, &[("host", "h"), ("x-amz-content-sha256", EMPTY)]));
    assert!(!authenticated.payload_pinned && matches!(authenticated.payload, Payload::Signed { .. }));
    let chunked = [("host", "h"), ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")];
    assert_eq!(kind(&head("PUT", &uri, &chunked)), Kind::NotImplemented);
    let query = Signer { payload: EMPTY, headers: vec![("host", "h")], ..Signer::get("/b/k") }
        .presign("60", &[("X-Amz-Content-Sha256", EMPTY)]);
    assert!(accepts(&head("GET", &format!("/b/k?{query}"), &[("host", "h")])).payload_pinned);
}

#[test]
fn a_session_token_must_be_the_identitys() {
    let as_guest = || Signer { access: "GUEST", secret: "guest-secret", ..Signer::get("/b/k") };
    assert_eq!(accepts(&as_guest().with("x-amz-security-token", "token").send("/b/k")).identity.name, "guest");
    assert_eq!(kind(&as_guest().with("x-amz-security-token", "other").send("/b/k")), Kind::InvalidToken);
    assert_eq!(kind(&as_guest().send("/b/k")), Kind::InvalidToken);
    assert_eq!(kind(&Signer::get("/b/k").with("x-amz-security-token", "token").send("/b/k")), Kind::InvalidToken);
    let presign = |token| {
        let signer = Signer { payload: "UNSIGNED-PAYLOAD", headers: vec![("host", "h")], ..as_guest() };
        head("GET", &format!("/b/k?{}", signer.presign("60", &[("X-Amz-Security-Token", token)])), &[("host", "h")])
    };
    accepts(&presign("token"));
    assert_eq!(kind(&presign("other")), Kind::InvalidToken);
}

#[test]
fn clocks_may_differ_by_fifteen_minutes() {
    let request = Signer::get("/b/k").send("/b/k");
    let at = |now: WallClock| authenticator_at(now).authenticate(&request, &S3Target::default()).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + 900)), Ok(()));
    assert_eq!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON - 900)), Ok(()));
    assert_eq!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + 901)), Err(Kind::RequestTimeTooSkewed));
    assert_eq!(at(|| SystemTime::UNIX_EPOCH + Duration::from_secs(NOON - 901)), Err(Kind::RequestTimeTooSkewed));
}

#[test]
fn each_broken_header_is_named() {
    let good = authorization(&format!("{ACCESS}/{SCOPE}"), "host;x-amz-content-sha256;x-amz-date", &"0".repeat(64));
    let sent = |value: &str| {
        head("GET", "/b/k", &[("host", "h"), ("x-amz-content-sha256", EMPTY), ("x-amz-date", STAMP), ("authorization", value)])
    };
    assert_eq!(kind(&sent(&good)), Kind::SignatureDoesNotMatch);
    let cases = [
        (good.replace("us-east-1", "eu-west-1"), Kind::AuthorizationHeaderMalformed, "expecting 'us-east-1'"),
        (good.replace("/s3/", "/ec2/"), Kind::AuthorizationHeaderMalformed, "service"),
        (good.replace("20130524", "20130525"), Kind::AuthorizationHeaderMalformed, "credential date"),
        (good.replace("aws4_request", "aws4"), Kind::AuthorizationHeaderMalformed, "terminal"),
        (good.replace("Credential=", "Cred="), Kind::AuthorizationHeaderMalformed, "Cred"),
        (good.replace("host;", "host;x-amz-date;HOST;"), Kind::AuthorizationHeaderMalformed, "listed twice"),
        (good.replace("host;", ""), Kind::AuthorizationHeaderMalformed, "host"),
        (good.replace(&"0".repeat(64), "00"), Kind::AuthorizationHeaderMalformed, "Signature"),
        (good.replace(",SignedHeaders", ",Signature=0,SignedHeaders"), Kind::AuthorizationHeaderMalformed, "three components"),
        ("AWS4-HMAC-SHA256".into(), Kind::InvalidArgument, "one ' ' (space)"),
        ("AWS4-HMAC-SHA256 a".into(), Kind::AuthorizationHeaderMalformed, "three components"),
        (good.replace("Signature=", "Signature"), Kind::AuthorizationHeaderMalformed, "component \"Signature0"),
        (good.replace(ACCESS, "UNKNOWN"), Kind::InvalidAccessKeyId, "Access Key Id"),
        (good.replace("HMAC", "ECDSA-P256"), Kind::NotImplemented, "ECDSA"),
        (format!("AWS {ACCESS}:signature"), Kind::InvalidRequest, "signature_version=\"s3v4\""),
        ("Bearer x".into(), Kind::InvalidArgument, "Authorization Type"),
    ];
    for (value, expected, named) in cases {
        let error = authenticator().authenticate(&sent(&value), &S3Target::default()).map(|_| ()).expect_err(&value);
        assert_eq!(error.kind, expected, "{value}");
        assert!(error.message.contains(named), "{value}: {error}");
    }
}

#[test]
fn requests_without_one_clear_claim_are_refused() {
    let good = Signer::get("/b/k").send("/b/k");
    let without = |name: &str| {
        let mut request = good.clone();
        request.headers.remove(name);
        kind(&request)
    };
    assert_eq!(without("authorization"), Kind::AccessDenied);
    assert_eq!(without("x-amz-date"), Kind::AccessDenied);
    assert_eq!(without("x-amz-content-sha256"), Kind::InvalidRequest);
    let mut both = good.clone();
    both.uri = "/b/k?X-Amz-Signature=0".parse().expect("valid");
    assert_eq!(kind(&both), Kind::InvalidArgument);
    for name in ["authorization", "x-amz-date", "x-amz-content-sha256"] {
        let mut twice = good.clone();
        let value = twice.headers[name].clone();
        twice.headers.append(name, value);
        assert_eq!(kind(&twice), Kind::InvalidRequest, "{name}");
    }
    let mut odd = good.clone();
    odd.headers.insert("x-amz-content-sha256", HeaderValue::from_static("CD/lALXcA07augfdOdp72AwIg85a9zWDJ5zoXrZub80="));
    assert_eq!(kind(&odd), Kind::InvalidArgument);
    assert_eq!(kind(&head("GET", "/b/k?AWSAccessKeyId=a&Expires=1&Signature=s", &[("host", "h")])), Kind::InvalidRequest);
}

#[test]
fn each_broken_presigned_parameter_is_named() {
    let presign =
        |expires| Signer { payload: "UNSIGNED-PAYLOAD", headers: vec![("host", "h")], ..Signer::get("/b/k") }.presign(expires, &[]);
    let good = presign("604800");
    let send = |query: &str| {
        let head = head("GET", &format!("/b/k?{query}"), &[("host", "h")]);
        authenticator().authenticate(&head, &S3Target::default()).map(|_| ())
    };
    send(&good).expect("seven days are allowed");
    let cases = [
        (presign("604801"), "X-Amz-Expires"),
        (presign("0"), "X-Amz-Expires"),
        (presign("-1"), "X-Amz-Expires"),
        (good.replace("HMAC", "X"), "X-Amz-Algorithm"),
        (good.replace("X-Amz-Date=", "X-Amz-Dat="), "X-Amz-Date"),
        (good.replace("us%2Deast%2D1", "eu"), "us-east-1"),
        (format!("{good}&X-Amz-Date={STAMP}"), "X-Amz-Date"),
        (good.replace("X-Amz-Signature=", "X-Amz-Signature=0"), "X-Amz-Signature"),
        (good.replace("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=range"), "host"),
    ];
    for (query, named) in cases {
        let error = send(&query).expect_err(&query);
        assert_eq!(error.kind, Kind::AuthorizationQueryParametersError, "{query}");
        assert!(error.message.contains(named), "{query}: {error}");
    }
    assert_eq!(send(&format!("{good}&acl")).expect_err("changed").kind, Kind::SignatureDoesNotMatch);
}

#[test]
fn trap_a_refusal_of_version_2_names_the_setting_and_version_4() {
    for (uri, authorization) in [
        ("/b/k", Some("AWS a:b")),
        ("/b/k", Some("AWS")),
        ("/b/k?AWSAccessKeyId=a&Expires=1&Signature=s", None),
        ("/b/k?Signature=s", None),
    ] {
        let mut request = head("GET", uri, &[("host", "h")]);
        if let Some(value) = authorization {
            request.headers.insert("authorization", HeaderValue::from_static(value));
        }
        let error = authenticator().authenticate(&request, &S3Target::default()).map(|_| ()).expect_err(uri);
        assert_eq!(error.kind, Kind::InvalidRequest);
        assert!(error.message.contains("server.sigv2 = true") && error.message.contains("s3v4"), "{error}");
    }
}

#[test]
fn nobody_is_let_in_only_where_that_is_wanted() {
    let nobody = || authenticator().letting_in(Also { version_2: true, nobody: true, ..Also::default() });
    let plain = head("GET", "/b/k?list-type=2&x-amz-acl=private", &[("host", "h"), ("x-amz-date", STAMP)]);
    assert_eq!(kind(&plain), Kind::AccessDenied);
    let let_in = nobody().authenticate(&plain, &S3Target::default()).expect("let in");
    assert_eq!((let_in.scheme, let_in.identity.name.as_str()), (Scheme::Nobody, "anonymous"));
    assert!(!let_in.identity.policy.allows("s3:GetObject", &crate::auth::policy::Resource { bucket: Some("b"), key: Some(b"k") }));
    assert!(matches!(let_in.sender("store"), crate::backend::Sender::Nobody));
    assert_eq!(let_in.needs_version_4().expect_err("no batch").kind, Kind::AccessDenied);
    // Whoever signs is judged by that.
    let signed = nobody().authenticate(&Signer::get("/b/k").send("/b/k"), &S3Target::default()).expect("signed");
    assert_eq!(signed.scheme, Scheme::V4);
}

#[test]
fn what_is_half_signed_is_never_nobodys() {
    let also = Also { version_2: true, nobody: true, ..Also::default() };
    let refused = |uri: &str, headers: &[(&str, &str)]| {
        let all = [&[("host", "h")], headers].concat();
        let result = authenticator().letting_in(also).authenticate(&head("GET", uri, &all), &S3Target::default());
        result.map(|_| ()).expect_err(uri)
    };
    for query in [
        "X-Amz-Algorithm=AWS4-HMAC-SHA256",
        "X-Amz-Credential=a",
        "X-Amz-Signature=a",
        "X-Amz-Date=20130524T000000Z",
        "X-Amz-Expires=60",
        "X-Amz-SignedHeaders=host",
        "X-Amz-Security-Token=t",
        "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD",
        "x-amz-signature=a",
        "X-Amz-Signatur%65=a",
        "AWSAccessKeyId=a",
        "Signature=a",
        "Expires=1",
        "awsaccesskeyid=a",
        "%53ignature=a",
    ] {
        let error = refused(&format!("/b/k?{query}"), &[]);
        assert!(matches!(error.kind, Kind::AccessDenied | Kind::AuthorizationQueryParametersError), "{query}: {error}");
    }
    for authorization in
        ["", " ", "x", "AWS", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a", "Basic YTpi", "Bearer t", "anonymous"]
    {
        let error = refused("/b/k", &[("authorization", authorization)]);
        assert!(error.kind.status() == 400, "{authorization}: {error}");
    }
    assert_eq!(refused("/b/k", &[("authorization", "AWS a:b"), ("authorization", "AWS a:b")]).kind, Kind::InvalidRequest);
    assert_eq!(refused("/b/k", &[("x-amz-security-token", "t")]).kind, Kind::AccessDenied);
    assert_eq!(refused("/b/k", &[("host", "other")]).kind, Kind::InvalidRequest);
}

#[test]
fn the_key_of_a_day_is_derived_once() {
    let authenticator = authenticator();
    for _ in 0..3 {
        authenticator.authenticate(&Signer::get("/b/k").send("/b/k"), &S3Target::default()).expect("accepted");
    }
    assert_eq!(authenticator.known().keys.lock().expect("not poisoned").len(), 1);
    let forged = Signer { secret: "wrong", ..Signer::get("/b/k") }.send("/b/k");
    assert_eq!(
        authenticator.authenticate(&forged, &S3Target::default()).map(|_| ()).expect_err("forged").kind,
        Kind::SignatureDoesNotMatch
    );
}

#[test]
fn another_set_of_identities_counts_from_the_next_request() {
    let authenticator = authenticator();
    let before = authenticator.authenticate(&Signer::get("/b/k").send("/b/k"), &S3Target::default()).expect("accepted");
    // The same name, key and place in the list, so that only the secret tells them apart.
    authenticator.replace(vec![Identity::new("example", ACCESS, "rolled", None, Policy::none())]);
    let kind =
        |signer: Signer<'_>| authenticator.authenticate(&signer.send("/b/k"), &S3Target::default()).map(|_| ()).map_err(|e| e.kind);
    assert_eq!(kind(Signer::get("/b/k")), Err(Kind::SignatureDoesNotMatch));
    assert_eq!(kind(Signer { secret: "rolled", ..Signer::get("/b/k") }), Ok(()));
    assert_eq!(kind(Signer { access: "GUEST", secret: "guest-secret", ..Signer::get("/b/k") }), Err(Kind::InvalidAccessKeyId));
    assert_eq!(before.identity.policy, Policy::full_access(), "what began before goes on as it was");
}

#[test]
fn secrets_are_never_shown() {
    let identity = Identity::new("n", "a", SECRET, Some("token".into()), Policy::none());
    assert!(!format!("{identity:?}").contains(SECRET) && !format!("{identity:?}").contains("token"));
    assert!(!format!("{:?}", authenticator()).contains(SECRET));
}

#[test]
fn another_region_is_let_in_only_where_that_is_wanted() {
    let any = authenticator().letting_in(Also { any_region: true, ..Also::default() });
    let accepts = |head: &Parts| any.authenticate(head, &S3Target::default());
    for region in ["eu-west-1", "default", "US-EAST-1", "a region", ""] {
        let signer = || Signer { region, ..Signer::get("/b/k") };
        let query = Signer { payload: "UNSIGNED-PAYLOAD", headers: vec![("host", "h")], ..signer() }.presign("60", &[]);
        let presigned = head("GET", &format!("/b/k?{query}"), &[("host", "h")]);
        for request in [signer().send("/b/k"), presigned] {
            assert_eq!(accepts(&request).expect(region).identity.name, "example");
            let error = authenticator().authenticate(&request, &S3Target::default()).expect_err(region);
            assert!(error.details.contains(&("Region", "us-east-1".to_owned())), "{error:?}");
        }
        let forged = Signer { secret: "a guess", ..signer() }.send("/b/k");
        assert_eq!(accepts(&forged).expect_err(region).kind, Kind::SignatureDoesNotMatch);
    }
    accepts(&Signer::get("/b/k").send("/b/k")).expect("the one that is served");
    assert_eq!(any.known().keys.lock().expect("whole").len(), 1, "what clients make up takes no room");
}

#[test]
fn chunks_go_on_from_the_region_that_was_signed() {
    let any = authenticator().letting_in(Also { any_region: true, ..Also::default() });
    let payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    let headers = vec![("host", "h"), ("x-amz-content-sha256", payload), ("x-amz-date", STAMP)];
    for region in ["us-east-1", "mars"] {
        let put = Signer { method: "PUT", payload, headers: headers.clone(), region, ..Signer::get("/b/k") };
        let authenticated = any.authenticate(&put.send("/b/k"), &S3Target::default()).expect("signed");
        let Payload::SignedChunks(seal) = authenticated.payload else { panic!("chunks") };
        let date = AmzDate::parse(STAMP).expect("valid");
        assert_eq!(seal.key, derive_signing_key(SECRET.as_bytes(), &date, region, "s3"));
        assert_eq!(seal.scope, format!("{STAMP}\n20130524/{region}/s3/aws4_request\n"));
    }
}
