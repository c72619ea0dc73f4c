//! The source of a copy. A value of `x-amz-copy-source` enters, still percent-encoded; the bucket, key and version that it
//! reads leave. A value that two servers could read differently is refused, since one of them would be the one that judges.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html>.

use super::reading::has_dots;
use crate::error::{Error, Result};
use crate::types::{BucketName, percent_decode};

/// Where a copy reads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The bucket, by the client's name for it.
    pub bucket: String,
    /// The key, decoded once.
    pub key: Vec<u8>,
    /// The version that is asked for, decoded.
    pub version: Option<String>,
}

impl CopySource {
    /// Reads `[/]bucket/key[?versionId=…]`, the slashes encoded or not.
    ///
    /// # Errors
    /// `InvalidArgument` naming the header: no key, an access point, a broken escape, a query that is no version.
    pub fn parse(value: &[u8]) -> Result<Self> {
        Self::read(value).map_err(|(message, why)| {
            Error::argument(message, "x-amz-copy-source", String::from_utf8_lossy(value)).with_source(why)
        })
    }

    /// Otherwise what S3 says, and what the log may know.
    fn read(value: &[u8]) -> std::result::Result<Self, (&'static str, &'static str)> {
        let encoding = |why| ("Invalid copy source encoding", why);
        let wrong_key = |why| ("Invalid copy source object key", why);
        let wrong_bucket = |why| ("Invalid copy source bucket name", why);
        let text = std::str::from_utf8(value).map_err(|_| encoding("it is not percent-encoded"))?;
        let (path, version) = match text.split_once('?') {
            None => (text, None),
            Some((path, query)) => {
                let version = query.strip_prefix("versionId=").filter(|v| !v.is_empty() && !v.contains('&'));
                (path, Some(version.ok_or_else(|| wrong_key("it may only carry ?versionId= and a version"))?))
            }
        };
        if !escapes_are_whole(text) {
            return Err(encoding("it has a % that two hex digits do not follow"));
        }
        let path = percent_decode(path);
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let slash = path.iter().position(|b| *b == b'/').ok_or_else(|| wrong_key("it names no key"))?;
        let (bucket, key) = (&path[..slash], &path[slash + 1..]);
        let bucket = std::str::from_utf8(bucket).map_err(|_| wrong_bucket("it is not UTF-8"))?;
        if BucketName::new(bucket).is_none() {
            return Err(wrong_bucket("it could be read differently"));
        }
        if key.is_empty() {
            return Err(wrong_key("it names no key"));
        }
        let version = version.map(|v| String::from_utf8(percent_decode(v))).transpose();
        let version = version.map_err(|_| wrong_key("its version is not UTF-8"))?;
        if version.as_deref().is_some_and(|version| has_dots(version.as_bytes())) {
            return Err(wrong_key("its version is a path"));
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_vec(), version })
    }

    /// The key as a form decoder reads it, where that differs: some servers take `+` for a space here. Whoever judges the
    /// copy must judge this key too.
    pub fn key_by_forms(&self, value: &[u8]) -> Option<Vec<u8>> {
        let spaced: Vec<u8> = value.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
        (spaced != value).then(|| Self::parse(&spaced).map(|source| source.key)).and_then(Result::ok)
    }
}

fn escapes_are_whole(text: &str) -> bool {
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(i, b)| *b != b'%' || (hex(bytes.get(i + 1)) && hex(bytes.get(i + 2))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn the_forms_that_clients_send() {
        for value in ["/b/a%20b/c", "b/a%20b/c", "b%2Fa%20b%2fc", "%2Fb%2Fa b%2Fc"] {
            let source = CopySource::parse(value.as_bytes()).expect(value);
            assert_eq!((source.bucket.as_str(), source.key.as_slice()), ("b", b"a b/c".as_slice()), "{value}");
        }
        let source = CopySource::parse(b"b/100%2525%3F?versionId=a%2Bb").expect("valid");
        assert_eq!((source.key.as_slice(), source.version.as_deref()), (b"100%25?".as_slice(), Some("a+b")));
        assert_eq!(CopySource::parse(b"b//k").expect("valid").key, b"/k");
    }

    #[test]
    fn an_ambiguous_or_keyless_source_is_refused() {
        for value in [
            "",
            "/",
            "b",
            "/b",
            "b/",
            "//k",
            "b/k?versionId=..%2fv",
            "b/k?x=1",
            "b/k?versionId=",
            "b/k?versionId=a&x=1",
            "b/100%.txt",
            "arn:aws:s3:::ap/k",
        ] {
            assert_eq!(CopySource::parse(value.as_bytes()).expect_err(value).kind, Kind::InvalidArgument);
        }
        let said = |value: &str| CopySource::parse(value.as_bytes()).expect_err(value).message;
        assert_eq!(said("b/100%.txt"), "Invalid copy source encoding");
        assert_eq!(
            (said("b/"), said("a@b/k")),
            ("Invalid copy source object key".into(), "Invalid copy source bucket name".into())
        );
        assert!(CopySource::parse(b"b/\xff").is_err());
    }

    #[test]
    fn a_plus_is_judged_both_ways() {
        let value = b"b/a+b%2B";
        let source = CopySource::parse(value).expect("valid");
        assert_eq!(source.key, b"a+b+");
        assert_eq!(source.key_by_forms(value).as_deref(), Some(b"a b+".as_slice()));
        assert_eq!(source.key_by_forms(b"b/a"), None);
    }
}
