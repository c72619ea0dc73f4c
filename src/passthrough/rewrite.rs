//! The few answers and headers that name what the client must not see or would not understand, and the source of a copy from a renamed
//! bucket. Which answers those are is said here; `rename` changes them. Everything that is held here is bounded.

use bytes::Bytes;
use http::{HeaderValue, Method};

use crate::backend::{Body, collect};
use crate::error::{self, Error, Kind};
use crate::types::{S3Target, percent_decode, query_pairs};

/// What of the answer to a request is looked into, besides errors: those bounded answers of S3 that name the bucket or the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Nothing: whatever is in it is an object, or is not for us to know.
    Nothing,
    /// The bucket: listings, uploads in parts, and what a copy says late.
    Bucket,
    /// Where an upload ended up, and the bucket: CompleteMultipartUpload.
    Place,
    /// The region that the bucket is in: GetBucketLocation.
    Region,
}

/// What a bucket has besides its contents: answers to these do not name it. Fewer than `auth::action` knows: a store that has never
/// heard of one lists the objects instead, and that names it.
const SETTINGS: &[&str] = &[
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "tagging",
    "versioning",
    "website",
];

/// What the answer to such a request names, which may copy. An `uploadId` without a value is none to most stores, which then give
/// the object.
pub fn naming(method: &Method, target: &S3Target, query: &str, copies: bool) -> Naming {
    let has = |wanted: &[u8]| query_pairs(query).any(|(name, _)| percent_decode(name) == wanted);
    let names_an_upload = || query_pairs(query).any(|(name, value)| percent_decode(name) == b"uploadId" && !value.is_empty());
    match (method, &target.key) {
        (&Method::POST, _) if has(b"uploadId") => Naming::Place,
        (&Method::POST, Some(_)) if has(b"uploads") => Naming::Bucket,
        (&Method::GET, None) if is_listing(query) => Naming::Bucket,
        (&Method::GET, None) if has(b"location") => Naming::Region,
        (&Method::GET, Some(_)) if names_an_upload() => Naming::Bucket,
        (&Method::PUT, Some(_)) if copies => Naming::Bucket,
        _ => Naming::Nothing,
    }
}

/// Whether a GET of a bucket is one that S3 lists its objects, versions or uploads for, and not one of its settings.
fn is_listing(query: &str) -> bool {
    let mut names = query_pairs(query).map(|(name, _)| percent_decode(name));
    let mut is_a_setting = false;
    let says_so = names.any(|name| {
        is_a_setting |= SETTINGS.iter().any(|setting| name == setting.as_bytes());
        [&b"list-type"[..], b"versions", b"uploads"].contains(&&name[..])
    });
    says_so || !is_a_setting
}

/// The `Location` header for a client that does not see the store: `path` as it asked for it, or the bucket that it made.
pub fn location(said: &HeaderValue, target: &S3Target, path: &str, renamed: bool) -> Option<HeaderValue> {
    let bytes = said.as_bytes();
    let is_path = bytes.starts_with(b"/") && !bytes.starts_with(b"//");
    let own = match (&target.bucket, &target.key) {
        _ if is_path && !renamed => return None,
        (Some(bucket), None) => format!("/{bucket}"),
        _ => path.to_owned(),
    };
    Some(HeaderValue::from_str(&own).expect("a path that came in a request"))
}

/// The whole of a bounded answer.
pub async fn whole(body: Body, bytes_max: usize) -> error::Result<Bytes> {
    let broken =
        |e| Error::new(Kind::BadGateway, "the store's answer broke off or is too long; the outcome is unknown").with_source(e);
    collect(body, bytes_max).await.map_err(broken)
}

/// `x-amz-copy-source` with the bucket's name at the backend: whatever stood before the first slash behind the bucket, encoded
/// or not, goes; the key and its version stay as they came. The value has been parsed, so there is one.
pub fn copy_source(value: &HeaderValue, name: &str) -> HeaderValue {
    let bytes = value.as_bytes();
    let slash_at = |from: usize| {
        (from..bytes.len()).find_map(|at| match &bytes[at..] {
            [b'/', ..] => Some((at, at + 1)),
            [b'%', b'2', b'f' | b'F', ..] => Some((at, at + 3)),
            _ => None,
        })
    };
    let start = slash_at(0).filter(|(at, _)| *at == 0).map_or(0, |(_, behind)| behind);
    let key = slash_at(start).map_or(bytes.len(), |(_, behind)| behind);
    let renamed = [b"/", name.as_bytes(), b"/", &bytes[key..]].concat();
    HeaderValue::from_bytes(&renamed).expect("a valid name between parts of a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_own_bytes_are_never_looked_into() {
        let naming_of = |method: Method, key: Option<&str>, query: &str, copy: bool| {
            let target = S3Target { bucket: Some("b".into()), key: key.map(|k| k.into()), ..S3Target::default() };
            naming(&method, &target, query, copy)
        };
        for query in ["", "versionId=v", "partNumber=1", "x-id=GetObject", "tagging", "uploadId", "uploadId=", "uploads"] {
            for copy in [false, true] {
                assert_eq!(naming_of(Method::GET, Some("k"), query, copy), Naming::Nothing, "{query}");
                assert_eq!(naming_of(Method::HEAD, Some("k"), query, copy), Naming::Nothing, "{query}");
            }
        }
        for query in ["policy=", "cors", "tagging", "x-id=GetBucketAcl&acl", "acl&prefix=x"] {
            assert_eq!(naming_of(Method::GET, None, query, false), Naming::Nothing, "{query}");
        }
        for query in ["location", "x-id=GetBucketLocation&locatio%6e=", "location&prefix=x"] {
            assert_eq!(naming_of(Method::GET, None, query, false), Naming::Region, "{query}");
            assert_eq!(naming_of(Method::PUT, None, query, false), Naming::Nothing, "{query}");
            assert_eq!(naming_of(Method::GET, Some("k"), query, false), Naming::Nothing, "{query}");
        }
        for query in ["", "prefix=a", "versions", "uploads=", "location&list-type=2", "version%73&acl", "unknown", "abac"] {
            assert_eq!(naming_of(Method::GET, None, query, false), Naming::Bucket, "{query}");
        }
        assert_eq!(naming_of(Method::PUT, Some("k"), "", false), Naming::Nothing);
        assert_eq!(naming_of(Method::PUT, Some("k"), "", true), Naming::Bucket);
        assert_eq!(naming_of(Method::GET, None, "list-type=2", false), Naming::Bucket);
        assert_eq!(naming_of(Method::GET, Some("k"), "uploadId=u", false), Naming::Bucket);
        assert_eq!(naming_of(Method::POST, Some("k"), "uploads", false), Naming::Bucket);
        assert_eq!(naming_of(Method::POST, Some("k"), "upload%49d=u", false), Naming::Place);
    }

    #[test]
    fn a_location_header_is_a_path_of_the_gateway() {
        let bucket = S3Target { bucket: Some("b".into()), ..S3Target::default() };
        let object = S3Target { key: Some(b"k".to_vec()), ..bucket.clone() };
        let said = |said: &'static str, target, renamed| location(&HeaderValue::from_static(said), target, "/b/k", renamed);
        assert_eq!(said("/b", &bucket, false), None);
        assert_eq!(said("/new", &bucket, true).expect("other"), "/b");
        assert_eq!(said("http://b.10.0.0.1/", &bucket, false).expect("other"), "/b");
        assert_eq!(said("//10.0.0.1/b", &bucket, false).expect("other"), "/b");
        assert_eq!(said("http://10.0.0.1/b/k", &object, false).expect("other"), "/b/k");
    }

    #[test]
    fn a_copy_source_keeps_everything_but_the_bucket() {
        for (value, renamed) in [
            ("/old/old/k%20?versionId=1", "/new/old/k%20?versionId=1"),
            ("old/k", "/new/k"),
            ("%6fld/xoldx", "/new/xoldx"),
            ("%2Fold%2fk/old", "/new/k/old"),
        ] {
            assert_eq!(copy_source(&HeaderValue::from_static(value), "new"), renamed);
        }
    }
}
