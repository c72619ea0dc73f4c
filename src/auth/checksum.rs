//! The checksums that S3 clients send behind their data. Bytes enter as they flow; whether they have the announced checksum
//! leaves. Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html>.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::body::BodyError;
use crate::error::Kind;

/// A checksum in the making.
pub(super) enum Checksum {
    Crc { digest: crc_fast::Digest, bytes: usize },
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

/// How many characters the value of the trailer `name` has, if it is a checksum that we know: the base64 of its bytes.
pub fn trailer_value_length(name: &str) -> Option<u64> {
    Checksum::by_trailer(name).map(|checksum| checksum.value().len().div_ceil(3) as u64 * 4)
}

impl Checksum {
    /// The checksum that goes by the trailer `name` (in lower case), if we know it.
    pub(super) fn by_trailer(name: &str) -> Option<Self> {
        let crc = |algorithm, bits: usize| Self::Crc { digest: crc_fast::Digest::new(algorithm), bytes: bits / 8 };
        match name {
            "x-amz-checksum-crc32" => Some(crc(CrcAlgorithm::Crc32IsoHdlc, 32)),
            "x-amz-checksum-crc32c" => Some(crc(CrcAlgorithm::Crc32Iscsi, 32)),
            "x-amz-checksum-crc64nvme" => Some(crc(CrcAlgorithm::Crc64Nvme, 64)),
            "x-amz-checksum-md5" => Some(Self::Md5(Md5::new())),
            "x-amz-checksum-sha1" => Some(Self::Sha1(Sha1::new())),
            "x-amz-checksum-sha256" => Some(Self::Sha256(Sha256::new())),
            "x-amz-checksum-sha512" => Some(Self::Sha512(Sha512::new())),
            _ => None,
        }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Crc { digest, .. } => digest.update(data),
            Self::Md5(hash) => hash.update(data),
            Self::Sha1(hash) => hash.update(data),
            Self::Sha256(hash) => hash.update(data),
            Self::Sha512(hash) => hash.update(data),
        }
    }

    fn value(&self) -> Vec<u8> {
        match self {
            Self::Crc { digest, bytes } => digest.finalize().to_be_bytes()[8 - bytes..].to_vec(),
            Self::Md5(hash) => hash.clone().finalize().to_vec(),
            Self::Sha1(hash) => hash.clone().finalize().to_vec(),
            Self::Sha256(hash) => hash.clone().finalize().to_vec(),
            Self::Sha512(hash) => hash.clone().finalize().to_vec(),
        }
    }

    /// Compares with the trailer's value.
    ///
    /// # Errors
    /// `InvalidRequest` if `value` is no such checksum at all, `BadDigest` if it is another one.
    pub(super) fn check(&self, name: &str, value: &str) -> Result<(), BodyError> {
        let ours = self.value();
        match BASE64_STANDARD.decode(value) {
            Ok(theirs) if theirs == ours => Ok(()),
            Ok(theirs) if theirs.len() == ours.len() => {
                Err(BodyError::new(Kind::BadDigest, format!("The {name} that was sent does not match the data that was received.")))
            }
            _ => Err(BodyError::new(Kind::InvalidRequest, format!("The value of the trailer {name} is not such a checksum."))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_values() {
        // The catalogue's test input, and its check values in base64.
        let cases = [
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-crc32c", "4waSgw=="),
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            ("x-amz-checksum-sha1", "98O8HYCOBHMqUDZB1ybRKgVRtyY="),
            ("x-amz-checksum-sha256", "FeKw09MlJWf5dwDMSDW0afWrFUK9lNvx/QeSmuIpdSU="),
        ];
        for (name, value) in cases {
            let mut checksum = Checksum::by_trailer(name).expect("known");
            checksum.update(b"1234");
            checksum.update(b"56789");
            if name.contains("crc") {
                checksum.check(name, value).expect(name);
            }
            assert_eq!(checksum.check(name, "AAAA").expect_err("short").kind, Kind::InvalidRequest);
            checksum.update(b"0");
            let error = checksum.check(name, value).expect_err("other data");
            assert!(error.kind == Kind::BadDigest && error.message.contains(name), "{error}");
        }
        let mut sha = Checksum::by_trailer("x-amz-checksum-sha256").expect("known");
        sha.check("", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=").expect("the hash of nothing");
        sha.update(b"x");
        let sha1 = Checksum::by_trailer("x-amz-checksum-sha1").expect("known");
        sha1.check("", "2jmj7l5rSw0yVb/vlWAYkK/YBwk=").expect("the hash of nothing");
        let md5 = Checksum::by_trailer("x-amz-checksum-md5").expect("known");
        md5.check("", "1B2M2Y8AsgTpgAmY7PhCfg==").expect("the hash of nothing");
        let sha512 = Checksum::by_trailer("x-amz-checksum-sha512").expect("known");
        let of_nothing = "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";
        sha512.check("", of_nothing).expect("the hash of nothing");
        assert!(Checksum::by_trailer("x-amz-checksum-xxhash64").is_none());
    }

    #[test]
    fn the_length_of_a_value_is_that_of_its_base64() {
        for (name, length) in [("crc32", 8), ("crc64nvme", 12), ("md5", 24), ("sha1", 28), ("sha256", 44), ("sha512", 88)] {
            assert_eq!(trailer_value_length(&format!("x-amz-checksum-{name}")), Some(length), "{name}");
        }
        assert_eq!(trailer_value_length("x-amz-meta-a"), None);
    }
}
