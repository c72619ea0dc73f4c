//! The checksums of S3. Bytes enter as they flow; a checksum leaves, or whether they have the one that was announced. Used
//! where bodies are verified and where objects are stored. Pure.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html>.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use xxhash_rust::xxh3::Xxh3Default;
use xxhash_rust::xxh64::Xxh64;

/// Prefix of the header, or trailer, that carries a checksum.
const HEADER_PREFIX: &str = "x-amz-checksum-";

/// A way to make a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the algorithm of that name")]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Md5,
    Sha1,
    Sha256,
    Sha512,
    Xxhash3,
    Xxhash64,
    Xxhash128,
}

impl Algorithm {
    /// Every one that there is.
    pub const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Xxhash3,
        Self::Xxhash64,
        Self::Xxhash128,
    ];

    /// S3's name for it, as in `x-amz-checksum-algorithm` and in the elements `Checksum…` of its documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Xxhash3 => "XXHASH3",
            Self::Xxhash64 => "XXHASH64",
            Self::Xxhash128 => "XXHASH128",
        }
    }

    /// The header that carries it, in lower case.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Md5 => "x-amz-checksum-md5",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
            Self::Sha512 => "x-amz-checksum-sha512",
            Self::Xxhash3 => "x-amz-checksum-xxhash3",
            Self::Xxhash64 => "x-amz-checksum-xxhash64",
            Self::Xxhash128 => "x-amz-checksum-xxhash128",
        }
    }

    /// The one with that name, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The one whose header is `name`, in lower case.
    pub fn by_header(name: &str) -> Option<Self> {
        Self::by_name(name.strip_prefix(HEADER_PREFIX)?).filter(|algorithm| algorithm.header() == name)
    }

    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::Xxhash3 | Self::Xxhash64 => 8,
            Self::Md5 | Self::Xxhash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// Why a value is not the checksum of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It is no such checksum at all.
    NoChecksum,
    /// It is that of other data.
    OtherData,
}

/// A checksum in the making.
pub struct Checksum {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Crc(crc_fast::Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    /// Of 64 or of 128 bits; boxed, being larger than all others.
    Xxh3(Box<Xxh3Default>),
    Xxh64(Xxh64),
}

impl Checksum {
    /// The checksum of nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let crc = |algorithm| State::Crc(crc_fast::Digest::new(algorithm));
        let state = match algorithm {
            Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
            Algorithm::Xxhash3 | Algorithm::Xxhash128 => State::Xxh3(Box::default()),
            Algorithm::Xxhash64 => State::Xxh64(Xxh64::new(0)),
        };
        Self { algorithm, state }
    }

    /// How it is made.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Takes in more of the data.
    pub fn update(&mut self, data: &[u8]) {
        match &mut self.state {
            State::Crc(digest) => digest.update(data),
            State::Md5(hash) => hash.update(data),
            State::Sha1(hash) => hash.update(data),
            State::Sha256(hash) => hash.update(data),
            State::Sha512(hash) => hash.update(data),
            State::Xxh3(hash) => hash.update(data),
            State::Xxh64(hash) => hash.update(data),
        }
    }

    /// The checksum of what was taken in so far.
    pub fn value(&self) -> Vec<u8> {
        match &self.state {
            State::Crc(digest) => digest.finalize().to_be_bytes()[8 - self.algorithm.bytes()..].to_vec(),
            State::Md5(hash) => hash.clone().finalize().to_vec(),
            State::Sha1(hash) => hash.clone().finalize().to_vec(),
            State::Sha256(hash) => hash.clone().finalize().to_vec(),
            State::Sha512(hash) => hash.clone().finalize().to_vec(),
            State::Xxh3(hash) if self.algorithm == Algorithm::Xxhash128 => hash.digest128().to_be_bytes().to_vec(),
            State::Xxh3(hash) => hash.digest().to_be_bytes().to_vec(),
            State::Xxh64(hash) => hash.digest().to_be_bytes().to_vec(),
        }
    }

    /// The same in base64, as headers carry it.
    pub fn encoded(&self) -> String {
        BASE64_STANDARD.encode(self.value())
    }

    /// Compares with the base64 of a checksum.
    ///
    /// # Errors
    /// What is wrong with `value`.
    pub fn check(&self, value: &str) -> Result<(), Mismatch> {
        let ours = self.value();
        match BASE64_STANDARD.decode(value) {
            Ok(theirs) if theirs == ours => Ok(()),
            Ok(theirs) if theirs.len() == ours.len() => Err(Mismatch::OtherData),
            _ => Err(Mismatch::NoChecksum),
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
            ("x-amz-checksum-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
            ("x-amz-checksum-sha1", "98O8HYCOBHMqUDZB1ybRKgVRtyY="),
            ("x-amz-checksum-sha256", "FeKw09MlJWf5dwDMSDW0afWrFUK9lNvx/QeSmuIpdSU="),
        ];
        for (name, value) in cases {
            let mut checksum = Checksum::new(Algorithm::by_header(name).expect("known"));
            checksum.update(b"1234");
            checksum.update(b"56789");
            if name.contains("crc") || name.contains("md5") {
                assert_eq!((checksum.check(value), checksum.encoded().as_str()), (Ok(()), value), "{name}");
            }
            assert_eq!(checksum.check("AAAA"), Err(Mismatch::NoChecksum), "short");
            assert_eq!(checksum.check("?"), Err(Mismatch::NoChecksum), "no base64");
            checksum.update(b"0");
            assert_eq!(checksum.check(value), Err(Mismatch::OtherData), "{name}");
        }
        let of_nothing = |algorithm| Checksum::new(algorithm).encoded();
        assert_eq!(of_nothing(Algorithm::Sha256), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(of_nothing(Algorithm::Sha1), "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
        assert_eq!(of_nothing(Algorithm::Md5), "1B2M2Y8AsgTpgAmY7PhCfg==");
        let sha512 = "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";
        assert_eq!(of_nothing(Algorithm::Sha512), sha512);
    }

    #[test]
    fn xxhash_is_written_as_its_canonical_form_the_high_byte_first() {
        // Of the reference implementation, seed 0, the text "Hello world".
        let hex = |algorithm| {
            let mut checksum = Checksum::new(algorithm);
            checksum.update(b"Hello ");
            checksum.update(b"world");
            checksum.value().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(Algorithm::Xxhash64), "c500b0c912b376d8");
        assert_eq!(hex(Algorithm::Xxhash3), "b6acb9d84a38ff74");
        assert_eq!(hex(Algorithm::Xxhash128), "7351f89812f97382b91d05b31e04dd7f");
    }

    #[test]
    fn names_headers_and_lengths_agree() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::by_header(algorithm.header()), Some(algorithm));
            assert_eq!(Algorithm::by_name(&algorithm.name().to_lowercase()), Some(algorithm));
            assert_eq!(Checksum::new(algorithm).value().len(), algorithm.bytes(), "{algorithm:?}");
        }
        for unknown in ["x-amz-checksum-xxhash32", "x-amz-checksum-CRC32", "crc32", "x-amz-checksum-"] {
            assert_eq!(Algorithm::by_header(unknown), None, "{unknown}");
        }
    }
}
