//! The checksum that a client announces behind its data, or declares before it: what enters is the name and the value of the
//! trailer or the header, what leaves is whether the data has it, in the words of a refused body.

use http::HeaderMap;

use super::body_error::BodyError;
use super::canonical::single;
use crate::checksum::{Algorithm, Checksum, Mismatch};
use crate::error::{Error, Kind, Result};

/// Prefix of the headers about checksums.
const PREFIX: &str = "x-amz-checksum-";

/// What has the prefix and is no checksum of the data.
const NO_CHECKSUMS: &[&str] = &["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

/// The checksum, or the `Content-MD5`, that the head of a request says its data has, in the making.
pub(super) struct Declared {
    value: String,
    checksum: Checksum,
    /// By `Content-MD5`, which is older than checksums and refused in other words.
    is_content_md5: bool,
}

impl Declared {
    /// Takes in more of the data.
    pub(super) fn update(&mut self, data: &[u8]) {
        self.checksum.update(data);
    }

    /// Compares at the end of the data.
    ///
    /// # Errors
    /// `InvalidRequest` if the value is no such checksum at all, `BadDigest` if it is another one, or another `Content-MD5`.
    pub(super) fn check(&self) -> std::result::Result<(), BodyError> {
        if !self.is_content_md5 {
            return check(&self.checksum, "header", &self.value);
        }
        self.checksum.check(&self.value).map_err(|_| {
            BodyError::new(Kind::BadDigest, "The Content-MD5 you specified did not match what we received.")
                .with_detail("ExpectedDigest", self.value.clone())
                .with_detail("CalculatedDigest", self.checksum.encoded())
        })
    }
}

/// The `Content-MD5` in `headers`, if there is one.
///
/// # Errors
/// `InvalidDigest` for one that is none; those of a header that stands twice.
pub(super) fn content_md5(headers: &HeaderMap) -> Result<Option<Declared>> {
    let Some(value) = single(headers, "content-md5")? else { return Ok(None) };
    let value = String::from_utf8_lossy(value.trim_ascii()).into_owned();
    let checksum = Checksum::new(Algorithm::Md5);
    if let Err(Mismatch::NoChecksum) = checksum.check(&value) {
        let invalid = Error::new(Kind::InvalidDigest, "The Content-MD5 you specified was invalid.");
        return Err(invalid.with_detail("Content-MD5", value));
    }
    Ok(Some(Declared { value, checksum, is_content_md5: true }))
}

/// The checksum that `headers` declare, if they do.
///
/// # Errors
/// `InvalidRequest` for more than one, and for one that we do not know: nobody else would verify it.
pub(super) fn declared(headers: &HeaderMap) -> Result<Option<Declared>> {
    let names = headers.iter().filter(|(name, _)| name.as_str().starts_with(PREFIX) && !NO_CHECKSUMS.contains(&name.as_str()));
    let mut found = None;
    for (name, value) in names {
        let unknown = || Error::new(Kind::InvalidRequest, format!("The header {name} is no supported checksum."));
        let checksum = by_trailer(name.as_str()).ok_or_else(unknown)?;
        let value = value.to_str().map_err(|_| unknown())?.trim_ascii().to_owned();
        if found.replace(Declared { value, checksum, is_content_md5: false }).is_some() {
            let message = "Expecting a single x-amz-checksum- header. Multiple checksum types are not allowed.";
            return Err(Error::new(Kind::InvalidRequest, message));
        }
    }
    Ok(found)
}

/// How many characters the value of the trailer `name` has, if it is a checksum that we know: the base64 of its bytes.
pub fn trailer_value_length(name: &str) -> Option<u64> {
    Algorithm::by_header(name).map(|algorithm| algorithm.bytes().div_ceil(3) as u64 * 4)
}

/// The checksum that goes by the trailer `name` (in lower case), if we know it.
pub(super) fn by_trailer(name: &str) -> Option<Checksum> {
    Algorithm::by_header(name).map(Checksum::new)
}

/// Compares with the `value` that came in a `place`, `header` or `trailing header`.
///
/// # Errors
/// `InvalidRequest` if `value` is no such checksum at all, `BadDigest` if it is another one.
pub(super) fn check(checksum: &Checksum, place: &str, value: &str) -> std::result::Result<(), BodyError> {
    let algorithm = checksum.algorithm();
    checksum.check(value).map_err(|mismatch| match mismatch {
        Mismatch::OtherData => {
            let message = format!("The {} you specified did not match the calculated checksum.", algorithm.name());
            BodyError::new(Kind::BadDigest, message)
        }
        Mismatch::NoChecksum => {
            BodyError::new(Kind::InvalidRequest, format!("Value for {} {place} is invalid.", algorithm.header()))
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
        check(&checksum, "header", "AAAAAA==").expect("the checksum of nothing");
        let refused = |value| check(&checksum, "header", value).expect_err(value);
        assert_eq!((refused("AAAA").kind, refused("AAAAAQ==").kind), (Kind::InvalidRequest, Kind::BadDigest));
        assert_eq!(refused("AAAA").message, "Value for x-amz-checksum-crc32 header is invalid.");
        assert_eq!(refused("AAAAAQ==").message, "The CRC32 you specified did not match the calculated checksum.");
        assert!(by_trailer("x-amz-checksum-xxhash32").is_none());
    }

    #[test]
    fn a_head_declares_one_checksum_that_is_known_or_none() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(n, v)| (http::HeaderName::from_static(n), http::HeaderValue::from_static(v)));
            declared(&pairs.collect())
        };
        let none =
            [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-mode", "ENABLED"), ("x-amz-checksum-type", "COMPOSITE")];
        assert!(of(&none).expect("nothing is wrong").is_none());
        let found = of(&[none.as_slice(), &[("x-amz-checksum-crc32", " AAAAAA== ")]].concat()).expect("one").expect("there");
        found.check().expect("the checksum of nothing");
        for wrong in [
            [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32", "AAAAAA==")],
            [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-sha1", "")],
            [("x-amz-meta-a", "b"), ("x-amz-checksum-crc16", "AAAA")],
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in wrong {
                headers.append(name, http::HeaderValue::from_static(value));
            }
            let error = declared(&headers).err().expect("refused");
            assert_eq!(error.kind, Kind::InvalidRequest, "{wrong:?}");
        }
    }

    #[test]
    fn a_content_md5_is_that_of_the_data_or_a_bad_digest_or_none() {
        let checked = |value: &'static str| {
            let headers =
                HeaderMap::from_iter([(http::header::HeaderName::from_static("content-md5"), value.parse().expect("text"))]);
            let mut declared = content_md5(&headers).map_err(|error| error.kind)?.expect("there");
            declared.update(b"123456789");
            declared.check().map_err(|error| error.kind)
        };
        assert_eq!(checked(" JfnnlDI7RTiF9RgfG2JNCw== "), Ok(()));
        assert_eq!(checked("1B2M2Y8AsgTpgAmY7PhCfg=="), Err(Kind::BadDigest));
        for none in ["", "zz", "AAAA", "JfnnlDI7RTiF9RgfG2JNCw", "25f9e794323b453885f5181f1b624d0b"] {
            assert_eq!(checked(none), Err(Kind::InvalidDigest), "{none:?}");
        }
        assert!(content_md5(&HeaderMap::new()).expect("nothing is wrong").is_none());
    }

    #[test]
    fn the_length_of_a_value_is_that_of_its_base64() {
        let lengths = [("crc32", 8), ("crc64nvme", 12), ("md5", 24), ("sha1", 28), ("sha256", 44), ("sha512", 88)];
        for (name, length) in lengths.into_iter().chain([("xxhash64", 12), ("xxhash128", 24)]) {
            assert_eq!(trailer_value_length(&format!("x-amz-checksum-{name}")), Some(length), "{name}");
        }
        assert_eq!(trailer_value_length("x-amz-meta-a"), None);
    }
}
