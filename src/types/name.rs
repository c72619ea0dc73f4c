//! Names of buckets and objects. A key is an opaque string of bytes that happens to be UTF-8: it is never normalised.

use std::fmt;
use std::sync::Arc;

/// A bucket's name as a BatchGet may give it: 1 to 255 of `[A-Za-z0-9._-]`, not `.` or `..`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketName(Arc<str>);

impl BucketName {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// The name, or nothing if it breaks the rule above.
    pub fn new(name: &str) -> Option<Self> {
        let fits = (1..=Self::BYTES_MAX).contains(&name.len());
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        (fits && plain && name != "." && name != "..").then(|| Self(name.into()))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object's key: 1 to 1,024 bytes, kept byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey(Box<str>);

impl ObjectKey {
    /// Longest key, in bytes (S3's own limit).
    pub const BYTES_MAX: usize = 1024;

    /// The key, or nothing if it is empty or too long.
    pub fn new(key: &str) -> Option<Self> {
        (1..=Self::BYTES_MAX).contains(&key.len()).then(|| Self(key.into()))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_contract() {
        for name in ["a", "a.b", "..a", "A_b-9", &"x".repeat(255)] {
            assert!(BucketName::new(name).is_some(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "é", &"x".repeat(256)] {
            assert!(BucketName::new(name).is_none(), "{name}");
        }
    }

    #[test]
    fn keys_are_1_to_1024_bytes_and_never_normalised() {
        for key in ["/", "..", "a//b/", &"k".repeat(1024)] {
            assert_eq!(ObjectKey::new(key).expect("valid").as_str(), key);
        }
        assert!(ObjectKey::new("").is_none());
        assert!(ObjectKey::new(&"k".repeat(1025)).is_none());
        assert!(ObjectKey::new(&"é".repeat(513)).is_none());
    }
}
