//! The checksum that a client announces behind its data: what enters is the trailer's name and value, what leaves is whether
//! the data has it, in the words of a refused body.

use super::body::BodyError;
use crate::checksum::{Algorithm, Checksum, Mismatch};
use crate::error::Kind;

/// How many characters the value of the trailer `name` has, if it is a checksum that we know: the base64 of its bytes.
pub fn trailer_value_length(name: &str) -> Option<u64> {
    Algorithm::by_header(name).map(|algorithm| algorithm.bytes().div_ceil(3) as u64 * 4)
}

/// The checksum that goes by the trailer `name` (in lower case), if we know it.
pub(super) fn by_trailer(name: &str) -> Option<Checksum> {
    Algorithm::by_header(name).map(Checksum::new)
}

/// Compares with the trailer's value.
///
/// # Errors
/// `InvalidRequest` if `value` is no such checksum at all, `BadDigest` if it is another one.
pub(super) fn check(checksum: &Checksum, name: &str, value: &str) -> Result<(), BodyError> {
    checksum.check(value).map_err(|mismatch| match mismatch {
        Mismatch::OtherData => {
            BodyError::new(Kind::BadDigest, format!("The {name} that was sent does not match the data that was received."))
        }
        Mismatch::NoChecksum => {
            BodyError::new(Kind::InvalidRequest, format!("The value of the trailer {name} is not such a checksum."))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_other_data_from_no_checksum() {
        let name = "x-amz-checksum-crc32";
        let checksum = by_trailer(name).expect("known");
        check(&checksum, name, "AAAAAA==").expect("the checksum of nothing");
        let refused = |value| check(&checksum, name, value).expect_err(value);
        assert_eq!((refused("AAAA").kind, refused("AAAAAQ==").kind), (Kind::InvalidRequest, Kind::BadDigest));
        assert!(refused("AAAAAQ==").message.contains(name));
        assert!(by_trailer("x-amz-checksum-xxhash64").is_none());
    }

    #[test]
    fn the_length_of_a_value_is_that_of_its_base64() {
        for (name, length) in [("crc32", 8), ("crc64nvme", 12), ("md5", 24), ("sha1", 28), ("sha256", 44), ("sha512", 88)] {
            assert_eq!(trailer_value_length(&format!("x-amz-checksum-{name}")), Some(length), "{name}");
        }
        assert_eq!(trailer_value_length("x-amz-meta-a"), None);
    }
}
