//! The body of an upload on its way into memory. Headers and a body enter; the bytes leave, paid for, with their MD5 and a
//! checksum, both verified where the client announced them. All of it is reserved before the first byte is read, so that an
//! upload that does not fit is refused at once, and given back if the body does not arrive whole.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::fault::{Done, Fault};
use super::framing::Unframe;
use super::memory::{ITEM_BYTES, Memory, paid};
use crate::backend::{Body, BoxError, collect};
use crate::budget::Reservation;
use crate::checksum::{Algorithm, Checksum, Mismatch};

/// Most bytes that come in one request: what one reservation can hold, a little below S3's own 5 GiB.
pub const BODY_BYTES_MAX: u64 = u32::MAX as u64 - ITEM_BYTES;

/// Most bytes of a document (S3's own limit is 1 MiB for most, and 10,000 parts with checksums are below 4 MiB).
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// Why there is no result.
#[derive(Debug)]
pub enum Trouble {
    /// The store refuses.
    Fault(Fault),
    /// The body of the request broke.
    Body(BoxError),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What arrived.
#[derive(Debug)]
pub struct Received {
    pub data: Bytes,
    pub md5: Vec<u8>,
    pub algorithm: Algorithm,
    /// Base64.
    pub checksum: String,
}

/// Which checksum a request announces, with its value if that is in the head.
struct Announced {
    algorithm: Algorithm,
    /// Base64; without one it comes behind the data.
    value: Option<String>,
}

/// Reads the whole body. `default` is the checksum to make where the request announces none.
pub async fn receive(headers: &HeaderMap, mut body: Body, memory: &Memory, default: Algorithm) -> Result<Received, Trouble> {
    let framed = is_framed(headers);
    let announced = announced(headers)?;
    let algorithm = announced.as_ref().map_or(default, |announced| announced.algorithm);
    let length = length(headers, &body, framed)?;
    if length > BODY_BYTES_MAX {
        return Err(Fault::new("EntityTooLarge", format!("One request may carry at most {BODY_BYTES_MAX} bytes.")).into());
    }
    let content_md5 = content_md5(headers)?;
    let reservation = memory.take(length)?;
    // The bound of the store may be more than the machine has.
    let mut data = Vec::new();
    data.try_reserve_exact(length as usize).map_err(|_| memory.none_left(length))?;
    let mut md5 = Checksum::new(Algorithm::Md5);
    let mut checksum = Checksum::new(algorithm);
    let mut take = |piece: &[u8]| {
        if data.len() + piece.len() > length as usize {
            return Err(incomplete());
        }
        md5.update(piece);
        checksum.update(piece);
        data.extend_from_slice(piece);
        Ok(())
    };
    let mut unframe = framed.then(Unframe::new);
    while let Some(frame) = body.frame().await {
        let piece = frame.map_err(Trouble::Body)?.into_data().unwrap_or_default();
        match &mut unframe {
            Some(unframe) => unframe.feed(&piece, &mut take)?,
            None => take(&piece)?,
        }
    }
    let trailers = unframe.map(Unframe::finish).transpose()?.unwrap_or_default();
    if data.len() as u64 != length {
        return Err(incomplete().into());
    }
    let md5 = md5.value();
    if content_md5.is_some_and(|expected| expected != md5) {
        return Err(Fault::new("BadDigest", "The Content-MD5 you specified did not match what we received.").into());
    }
    if let Some(announced) = announced {
        verify(&checksum, announced, &trailers)?;
    }
    let checksum_value = checksum.encoded();
    Ok(Received { data: paid(data, reservation), md5, algorithm, checksum: checksum_value })
}

/// A body that is an XML document, checked by `Content-MD5` and checksum where there is one, and what pays for it.
pub async fn document(headers: &HeaderMap, body: Body, memory: &Memory) -> Result<(Bytes, Reservation), Trouble> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let bytes_max: u64 = said.or(body.size_hint().upper()).unwrap_or(DOCUMENT_BYTES_MAX);
    if bytes_max > DOCUMENT_BYTES_MAX {
        return Err(Fault::new("EntityTooLarge", format!("The document may have at most {DOCUMENT_BYTES_MAX} bytes.")).into());
    }
    let reservation = memory.document(bytes_max)?;
    let bytes = collect(body, bytes_max as usize).await.map_err(Trouble::Body)?;
    let mut md5 = Checksum::new(Algorithm::Md5);
    md5.update(&bytes);
    if content_md5(headers)?.is_some_and(|expected| expected != md5.value()) {
        return Err(Fault::new("BadDigest", "The Content-MD5 you specified did not match what we received.").into());
    }
    if let Some((algorithm, value)) = in_head(headers)? {
        let mut checksum = Checksum::new(algorithm);
        checksum.update(&bytes);
        compare(&checksum, &value)?;
    }
    Ok((bytes, reservation))
}

fn is_framed(headers: &HeaderMap) -> bool {
    headers.get("x-amz-content-sha256").is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"))
}

fn length(headers: &HeaderMap, body: &Body, framed: bool) -> Done<u64> {
    let name = if framed { "x-amz-decoded-content-length" } else { header::CONTENT_LENGTH.as_str() };
    match headers.get(name) {
        Some(value) => {
            let length = value.to_str().ok().and_then(|text| text.parse().ok());
            length.ok_or_else(|| Fault::argument(format!("{name} is no number.")))
        }
        None if !framed && body.size_hint().exact().is_some() => Ok(body.size_hint().lower()),
        None => Err(Fault::new("MissingContentLength", "You must provide the Content-Length HTTP header.")),
    }
}

/// The algorithm of the checksum that an upload announces, in its head or behind its data.
pub fn announced_algorithm(headers: &HeaderMap) -> Done<Option<Algorithm>> {
    Ok(announced(headers)?.map(|announced| announced.algorithm))
}

fn announced(headers: &HeaderMap) -> Done<Option<Announced>> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase());
    let by_sdk = text("x-amz-sdk-checksum-algorithm");
    if let Some((algorithm, value)) = in_head(headers)? {
        if by_sdk.is_some_and(|name| Algorithm::by_name(&name) != Some(algorithm)) {
            return Err(Fault::new("InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid."));
        }
        return Ok(Some(Announced { algorithm, value: Some(value) }));
    }
    if let Some(name) = text("x-amz-trailer") {
        let unknown = || Fault::new("InvalidRequest", "The value specified in the x-amz-trailer header is not supported.");
        let algorithm = Algorithm::by_header(&name).ok_or_else(unknown)?;
        return Ok(Some(Announced { algorithm, value: None }));
    }
    if by_sdk.is_some() {
        let message =
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.";
        return Err(Fault::new("InvalidRequest", message));
    }
    Ok(None)
}

/// The checksum in the head of a request.
pub fn in_head(headers: &HeaderMap) -> Done<Option<(Algorithm, String)>> {
    let mut given = Algorithm::ALL.into_iter().filter_map(|algorithm| Some((algorithm, headers.get(algorithm.header())?)));
    let Some((algorithm, value)) = given.next() else {
        let not_a_checksum = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];
        let unknown = |name: &&str| name.starts_with("x-amz-checksum-") && !not_a_checksum.contains(name);
        return match headers.keys().map(HeaderName::as_str).find(unknown) {
            Some(name) => Err(Fault::not_implemented(format!("The checksum {name}"))),
            None => Ok(None),
        };
    };
    if given.next().is_some() {
        return Err(Fault::new(
            "InvalidRequest",
            "Expecting a single x-amz-checksum- header. Multiple checksum types are not allowed.",
        ));
    }
    Ok(Some((algorithm, value.to_str().unwrap_or_default().to_owned())))
}

fn content_md5(headers: &HeaderMap) -> Done<Option<Vec<u8>>> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let md5 = BASE64_STANDARD.decode(value.as_bytes()).ok().filter(|md5| md5.len() == Algorithm::Md5.bytes());
    md5.map(Some).ok_or_else(|| Fault::new("InvalidDigest", "The Content-MD5 you specified is not valid."))
}

fn verify(checksum: &Checksum, announced: Announced, trailers: &HeaderMap) -> Done<()> {
    let value = match announced.value {
        Some(value) => value,
        None => {
            let value = trailers.get(announced.algorithm.header()).and_then(|value| value.to_str().ok());
            value.ok_or_else(|| Fault::new("IncompleteBody", "The announced checksum did not come."))?.to_owned()
        }
    };
    compare(checksum, &value)
}

/// Whether `value` is what was made of the data.
pub fn compare(checksum: &Checksum, value: &str) -> Done<()> {
    let (name, header) = (checksum.algorithm().name(), checksum.algorithm().header());
    checksum.check(value).map_err(|mismatch| match mismatch {
        Mismatch::OtherData => Fault::new("BadDigest", format!("The {name} you specified did not match the calculated checksum.")),
        Mismatch::NoChecksum => Fault::new("InvalidRequest", format!("Value for {header} header is invalid.")),
    })
}

fn incomplete() -> Fault {
    Fault::new("IncompleteBody", "The body has not the length that was announced.")
}
