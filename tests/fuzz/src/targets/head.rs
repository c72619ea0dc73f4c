//! The head of a request as it reaches `route`. Lines with a method, a URI and another name for its bucket, then headers. None of
//! what reads a head may panic; the bucket and the key that are judged must be those that a store reads off what is forwarded; and
//! what is signed for a store must verify by our own rule, which is S3's.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use batchgate::auth::{Authenticator, CopySource, Identity, Policy, permissions};
use batchgate::backend::s3::credentials::KeyPair;
use batchgate::backend::s3::sign::Signer;
use batchgate::error::Kind;
use batchgate::passthrough::path_at_backend;
use batchgate::route;
use batchgate::types::{BucketName, S3Target, percent_decode};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

const DOMAIN: &str = "s3.test";

/// See the module.
pub fn run(data: &[u8]) {
    if data.len() > super::INPUT_BYTES_MAX {
        return;
    }
    let ([method, uri, name], headers) = super::lines(data);
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method), Uri::try_from(uri)) else { return };
    let mut head = Request::new(()).into_parts().0;
    (head.method, head.uri, head.headers) = (method, uri, super::headers(headers));
    let head = head;
    let _ = route::host(&head);
    let Ok(target) = route::target(&head, &[DOMAIN.to_owned()], "") else { return };
    let authenticated = AUTHENTICATOR.authenticate(&head, &target).ok();
    let query = head.uri.query().unwrap_or_default();
    let _ = route::verb(&head.method, &target, query);
    if let Some(source) = head.headers.get("x-amz-copy-source").and_then(|value| CopySource::parse(value.as_bytes()).ok()) {
        assert!(BucketName::new(&source.bucket).is_some() && !source.key.is_empty(), "{source:?}");
    }
    if let Ok(needed) = permissions(&head.method, &target, query, &head.headers) {
        assert!(!needed.is_empty(), "nothing is free");
        let names_it = |bucket: &Option<String>| *bucket == target.bucket || head.headers.contains_key("x-amz-copy-source");
        assert!(needed.iter().all(|permission| names_it(&permission.bucket)), "{needed:?}");
    }
    let Some(bucket) = target.bucket.as_deref() else { return assert!(target.key.is_none()) };
    assert!(BucketName::new(bucket).is_some(), "{bucket:?}");
    assert_eq!(target.key.as_deref().unwrap_or_default(), percent_decode(&target.raw_key));
    let query = authenticated.map_or(query.into(), |authenticated| authenticated.query_to_forward(query));
    forwarded(&head, &query, &target, bucket, bucket);
    if let Some(name) = std::str::from_utf8(name).ok().filter(|name| BucketName::new(name).is_some()) {
        forwarded(&head, &query, &target, bucket, name);
    }
}

/// Holds against each other what was judged and what a store will read.
fn forwarded(head: &Parts, query: &str, target: &S3Target, bucket: &str, name: &str) {
    let path = path_at_backend(bucket, name, target);
    let (first, rest) = path.strip_prefix('/').map(|path| path.split_once('/').unwrap_or((path, ""))).expect("it is a path");
    assert_eq!(percent_decode(first), name.as_bytes(), "{path}");
    assert_eq!(rest, target.raw_key, "{path}");
    let whole = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
    let whole = PathAndQuery::try_from(whole).expect("cut from one");
    assert_eq!((whole.path(), whole.query().unwrap_or_default()), (path.as_str(), query));
    let mut again = Request::new(()).into_parts().0;
    again.method = head.method.clone();
    again.headers = signed(&head.method, &whole, &head.headers);
    again.uri = Uri::from(whole);
    let target = route::target(&again, &[], "").expect("the store's own");
    if let Err(error) = AUTHENTICATOR.authenticate(&again, &target) {
        assert_ne!(error.kind, Kind::SignatureDoesNotMatch, "{} {}", again.method, again.uri);
    }
}

/// The headers with a signature over them in place of the client's.
fn signed(method: &Method, path: &PathAndQuery, headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in ["authorization", "date", "x-amz-date", "x-amz-security-token"] {
        while headers.remove(name).is_some() {}
    }
    headers.insert("host", HeaderValue::from_static("store.test"));
    headers.insert("x-amz-content-sha256", HeaderValue::from_static("UNSIGNED-PAYLOAD"));
    SIGNER.0.sign(method, path, &mut headers, &SIGNER.1, now());
    headers
}

/// Made once, since the first signature of a day costs more than all else here. What it remembers changes no answer.
static AUTHENTICATOR: LazyLock<Authenticator> = LazyLock::new(|| {
    let identity = Identity::new("fuzzed", "AK", "SK", None, Policy::full_access());
    Authenticator::new(vec![identity], "us-east-1", 1 << 20, now)
});

static SIGNER: LazyLock<(Signer, Arc<KeyPair>)> =
    LazyLock::new(|| (Signer::new("us-east-1"), Arc::new(KeyPair::new("AK", "SK", None).expect("header-safe"))));

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}
