//! What is told to those whose signature is refused, in the words of S3 where it has any: scripts and people know them.

use super::authenticator::SKEW_SECONDS_MAX;
use crate::error::{Error, Kind};

/// S3's own words.
pub(super) const SIGNATURE_DOES_NOT_MATCH: &str =
    "The request signature we calculated does not match the signature you provided. Check your key and signing method.";

/// What a client of Version 2 is told where it is not let in.
pub(super) fn no_version_2() -> Error {
    let message = "Signature Version 2 is not accepted: sign with AWS4-HMAC-SHA256 (boto3: \
                   Config(signature_version=\"s3v4\")), or have the gateway accept it (server.sigv2 = true).";
    Error::new(Kind::InvalidRequest, message)
}

/// Whoever signed with `access_key` did it otherwise.
pub(super) fn no_match(access_key: &str) -> Error {
    Error::new(Kind::SignatureDoesNotMatch, SIGNATURE_DOES_NOT_MATCH).with_detail("AWSAccessKeyId", access_key)
}

/// The clock of the client is too far off.
pub(super) fn skewed() -> Error {
    let message = "The difference between the request time and the current time is too large.";
    let max = (1000 * SKEW_SECONDS_MAX).to_string();
    Error::new(Kind::RequestTimeTooSkewed, message).with_detail("MaxAllowedSkewMilliseconds", max)
}

/// A presigned URL, or a date of Version 2, is over.
pub(super) fn expired() -> Error {
    Error::new(Kind::AccessDenied, "Request has expired")
}

/// A `x-amz-content-sha256` that says nothing.
pub(super) fn unknown_payload(value: &str) -> Error {
    let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
                   STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, \
                   STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or a valid \
                   sha256 value.";
    Error::argument(message, "x-amz-content-sha256", value)
}
