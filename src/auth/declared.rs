//! What the head of a request signed by Version 4 declares of its body, in the header or in the query. In: head and claim; out: the
//! kind of body, and the lines with which the canonical request may end.

use http::request::Parts;
use s3s_sigv4::AmzContentSha256;

use super::canonical::single;
use super::claim::{Claim, parse_hex32};
use super::refusals::unknown_payload;
use crate::backend::s3::sign::UNSIGNED_PAYLOAD;
use crate::error::{Error, Kind, Result};

/// What a request says about its body, and the lines that may stand for it in the canonical request.
pub(super) struct Declared<'a> {
    pub kind: AmzContentSha256,
    pub lines: [Option<&'a str>; 2],
    /// Whether the signature covers this very statement.
    pub signed: bool,
}

impl<'a> Declared<'a> {
    pub fn of(head: &'a Parts, claim: &'a Claim<'_>) -> Result<Self> {
        let header = match single(&head.headers, "x-amz-content-sha256")? {
            Some(value) => Some(std::str::from_utf8(value).map_err(|_| unknown_payload(&String::from_utf8_lossy(value)))?),
            None => None,
        };
        let Some(presigned) = &claim.presigned else {
            let Some(value) = header else {
                return Err(Error::new(Kind::InvalidRequest, "Missing required header for this request: x-amz-content-sha256"));
            };
            // The canonical request ends with this value, so it is signed whether it is listed or not.
            return Ok(Self { kind: parse_payload(value)?, lines: [Some(value), None], signed: true });
        };
        let query = presigned.payload.as_deref();
        let header_signed = header.filter(|_| claim.signs("x-amz-content-sha256"));
        if let (Some(query), Some(header)) = (query, header)
            && query != header
        {
            return Err(Error::new(Kind::InvalidArgument, "x-amz-content-sha256 differs between the header and the query."));
        }
        let signed = header_signed.or(query);
        let kind = header.or(query).map_or(Ok(AmzContentSha256::UnsignedPayload), parse_payload)?;
        if kind.is_streaming() && (signed.is_none() || kind != AmzContentSha256::StreamingUnsignedPayloadTrailer) {
            return Err(Error::new(Kind::NotImplemented, "A presigned URL cannot carry this form of chunked upload."));
        }
        let other = Some(UNSIGNED_PAYLOAD).filter(|line| signed != Some(line));
        Ok(Self { kind, lines: [signed, other], signed: signed.is_some() })
    }
}

/// What the value of `x-amz-content-sha256` says.
pub(super) fn parse_payload(value: &str) -> Result<AmzContentSha256> {
    match parse_hex32(value.as_bytes()) {
        Some(sha256) => Ok(AmzContentSha256::SingleChunk(sha256)),
        None => match AmzContentSha256::parse(value) {
            // Base64 has no place in a canonical request.
            Ok(AmzContentSha256::SingleChunk(_)) | Err(_) => Err(unknown_payload(value)),
            Ok(kind) => Ok(kind),
        },
    }
}
