//! An upload's body on its way to the backend: verified by `auth` as it streams, and sent in a form whose checksum the store
//! can check again. In constant memory: a chunk's size is announced before its bytes are here.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use md5::{Digest as _, Md5};
use sha2::Sha256;

use super::headers::{strip_checksums, strip_framing};
use super::parts::without_checksums;
use super::plan::{Known, Plan};
use crate::auth::{Payer, Payload, Verdict, VerifiedBody, trailer_value_length};
use crate::backend::peek::resumed;
use crate::backend::s3::chunks::{SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER};
use crate::backend::s3::sign::UNSIGNED_PAYLOAD;
use crate::backend::{Body, BoxError, empty_body, full_body};
use crate::config::{Checksums, PayloadSigning, Quirks};
use crate::error::{Error, Kind, Result};
use crate::types::{hex32, percent_decode, query_pairs};

/// Size of the chunks that are sent to a backend, in bytes; the last one may be smaller. Common SDKs send as many.
const CHUNK_BYTES: u64 = 1 << 20;

/// Longest document that is held whole where the store wants its hash before it, in bytes: a list of 10,000 parts with a checksum
/// each is shorter.
pub const DOCUMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The data of an object or a part.
    Data,
    /// The list of an upload's parts; a checksum in its head is that of the object.
    Parts,
    /// Any other document.
    Document,
}

impl Carried {
    /// By the method, whether a key is named, and the query.
    pub fn of(method: &Method, has_key: bool, query: &str) -> Self {
        let mut names = query_pairs(query).map(|(name, _)| percent_decode(name));
        let of_data = |name: Vec<u8>| matches!(name.as_slice(), b"" | b"partNumber" | b"uploadId" | b"x-id") || is_auth(&name);
        match *method {
            Method::PUT if has_key && names.all(of_data) => Self::Data,
            Method::POST if has_key && names.any(|name| name == b"uploadId") => Self::Parts,
            _ => Self::Document,
        }
    }
}

/// Whether it is of a presigned URL.
fn is_auth(name: &[u8]) -> bool {
    matches!(name, b"AWSAccessKeyId" | b"Expires" | b"Signature")
        || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"x-amz-"))
}

/// Whether the body comes in chunks of `aws-chunked`, as on S3 only data does.
///
/// # Errors
/// `InvalidRequest` for anything else in chunks.
pub fn check_framing(payload: &Payload, carried: Carried) -> Result<bool> {
    let chunked = matches!(payload, Payload::UnsignedTrailer | Payload::SignedChunks(_) | Payload::SignedChunksTrailer(_));
    if chunked && carried != Carried::Data {
        return Err(Error::new(Kind::InvalidRequest, "The value of x-amz-content-sha256 header is invalid."));
    }
    Ok(chunked)
}

/// Makes the body to send and adjusts `headers` to it and to what the store wants: framing, lengths, checksums and
/// `x-amz-content-sha256`. The verdict says, after a failed request, whether it was the client's body that failed it. What must be
/// held whole is paid for from `held`.
pub async fn prepare(
    payload: Payload,
    carried: Carried,
    quirks: Quirks,
    headers: &mut HeaderMap,
    body: Body,
    held: &mut impl Payer,
) -> Result<(Body, Verdict)> {
    let chunked = check_framing(&payload, carried)?;
    let hash = match &payload {
        Payload::Signed { sha256 } => Some(HeaderValue::from_bytes(&hex32(sha256)).expect("hex digits are header-safe")),
        _ => None,
    };
    let forward = quirks.checksums == Checksums::Forward;
    let trailer = headers.get("x-amz-trailer").filter(|_| forward && payload_has_trailer(&payload)).cloned();
    let is_empty = !chunked && body.is_end_stream();
    let (verified, verdict) = match (forward, carried) {
        (true, _) => VerifiedBody::new(payload, headers, body)?,
        (false, Carried::Parts) => VerifiedBody::checking_md5(payload, headers, body)?,
        (false, _) => VerifiedBody::checking(payload, headers, body)?,
    };
    let length = verified.decoded_length();
    if !forward {
        strip_checksums(headers);
    }
    if chunked {
        strip_framing(headers);
        headers.remove("x-amz-trailer");
        let none = || Error::new(Kind::MissingContentLength, "x-amz-decoded-content-length is missing");
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length.ok_or_else(none)?));
    }
    let has_md5 = headers.contains_key("content-md5");
    let plan = Known { carried, length, is_empty, hash, trailer, has_md5 }.plan(quirks)?;
    let body = planned(plan, verified, &verdict, quirks, headers, held).await?;
    Ok((body, verdict))
}

/// The body that goes out by `plan`, and what of it its head says.
async fn planned(
    plan: Plan,
    verified: VerifiedBody<Body>,
    verdict: &Verdict,
    quirks: Quirks,
    headers: &mut HeaderMap,
    held: &mut impl Payer,
) -> Result<Body> {
    let (sha256, body) = match plan {
        Plan::Nothing(sha256) => {
            verified.prove_empty().await?;
            (sha256, empty_body())
        }
        Plan::Held { without_checksums } => {
            let document = whole(verified, held).await?;
            let document = if without_checksums { told_without_checksums(document, headers) } else { document };
            finish_document(&document, quirks, headers);
            return Ok(full_body(document));
        }
        Plan::Streamed(sha256) => (sha256, streamed(verified)),
        Plan::SignedChunks { length, trailer } => {
            headers.insert("x-amz-decoded-content-length", HeaderValue::from(length));
            match trailer {
                None => (HeaderValue::from_static(SIGNED_CHUNKS), streamed(verified)),
                Some(name) => {
                    headers.insert("x-amz-trailer", name);
                    let trailers = Trailers { inner: verified, verdict: verdict.clone(), ended: false };
                    (HeaderValue::from_static(SIGNED_CHUNKS_TRAILER), Body::new(trailers))
                }
            }
        }
        Plan::Chunks { length, trailer } => {
            let framed = Framed::new(verified, verdict.clone(), length, &trailer)?;
            headers.insert("x-amz-trailer", trailer);
            headers.insert("x-amz-decoded-content-length", HeaderValue::from(length));
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(framed.encoded_left));
            (HeaderValue::from_static(UNSIGNED_CHUNKS_TRAILER), Body::new(framed))
        }
    };
    headers.insert("x-amz-content-sha256", sha256);
    Ok(body)
}

fn streamed(verified: VerifiedBody<Body>) -> Body {
    Body::new(verified.map_err(BoxError::from))
}

async fn whole(verified: VerifiedBody<Body>, held: &mut impl Payer) -> Result<Bytes> {
    let too_long = || Error::new(Kind::EntityTooLarge, "the document is longer than was announced, or than any list of parts");
    verified.collect(DOCUMENT_BYTES_MAX as usize, too_long, held).await
}

/// A list of parts for a store that saw no checksum of them; a `Content-MD5` in `headers` is that of what is left.
fn told_without_checksums(list: Bytes, headers: &mut HeaderMap) -> Bytes {
    let list = without_checksums(list);
    renew_md5(&list, headers);
    list
}

/// Makes a `Content-MD5` in `headers` that of `document`.
pub fn renew_md5(document: &Bytes, headers: &mut HeaderMap) {
    if let Some(md5) = headers.get_mut("content-md5") {
        *md5 = content_md5(document);
    }
}

fn payload_has_trailer(payload: &Payload) -> bool {
    matches!(payload, Payload::UnsignedTrailer | Payload::SignedChunksTrailer(_))
}

/// What a document that is here as a whole has in its head: its length and hash, and the `Content-MD5` that the store wants.
pub fn finish_document(document: &Bytes, quirks: Quirks, headers: &mut HeaderMap) {
    let sha256 = match quirks.payload_signing {
        PayloadSigning::Never => HeaderValue::from_static(UNSIGNED_PAYLOAD),
        _ => HeaderValue::from_bytes(&hex32(&Sha256::digest(document).into())).expect("hex digits are header-safe"),
    };
    headers.insert("x-amz-content-sha256", sha256);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(document.len()));
    if quirks.content_md5 && !headers.contains_key("content-md5") {
        headers.insert("content-md5", content_md5(document));
    }
}

fn content_md5(document: &Bytes) -> HeaderValue {
    HeaderValue::from_str(&STANDARD.encode(Md5::digest(document))).expect("base64 is header-safe")
}

/// Verified data, and behind it the verified checksum as a trailer, for whoever frames it.
struct Trailers {
    inner: VerifiedBody<Body>,
    verdict: Verdict,
    ended: bool,
}

impl http_body::Body for Trailers {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(frame) => frame.map_err(BoxError::from),
            None => {
                self.ended = true;
                Ok(Frame::trailers(self.verdict.trailer().into_iter().collect()))
            }
        };
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Waits for the first bytes that may go out. A request whose body fails before them is never begun at the store: some stores
/// take a connection that closes behind the head for an empty object.
pub async fn begun(mut body: Body) -> std::result::Result<Body, BoxError> {
    let first = body.frame().await.transpose()?;
    Ok(resumed(first, body))
}

/// Waits for the first bytes; a body that ends without any is none, however it was framed.
pub async fn settled(mut body: Body) -> std::result::Result<Body, BoxError> {
    while !body.is_end_stream() {
        match body.frame().await.transpose()? {
            Some(frame) if frame.data_ref().is_some_and(|data| !data.is_empty()) => {
                return Ok(resumed(Some(frame), body));
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(empty_body())
}

/// aws-chunked framing without signatures, with the verified checksum behind the data. `Content-Encoding` does not name it:
/// `x-amz-content-sha256` does, and some stores would keep the coding
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html>).
struct Framed {
    inner: VerifiedBody<Body>,
    verdict: Verdict,
    trailer: HeaderName,
    /// What is still to be sent, with its framing, in bytes.
    encoded_left: u64,
    /// Bytes of the object that are not announced yet.
    unannounced: u64,
    /// Bytes that the current chunk still owes.
    owed: u64,
    /// Something is announced, so a line end closes it.
    begun: bool,
    /// Read from the body, but beyond the current chunk.
    left: Bytes,
    ended: bool,
}

/// How many bytes `length` bytes of data have in [`Framed`], without its end.
fn framed_length(length: u64) -> Option<u64> {
    let chunk = |size: u64| format!("{size:x}").len() as u64 + 2 + size + 2;
    let whole = (length / CHUNK_BYTES).checked_mul(chunk(CHUNK_BYTES))?;
    let rest = length % CHUNK_BYTES;
    whole.checked_add(if rest > 0 { chunk(rest) } else { 0 })
}

impl Framed {
    fn new(inner: VerifiedBody<Body>, verdict: Verdict, length: u64, trailer: &HeaderValue) -> Result<Self> {
        let unknown = || Error::new(Kind::InvalidRequest, "x-amz-trailer names no checksum that is known here");
        let trailer = HeaderName::from_bytes(trailer.as_bytes().trim_ascii()).map_err(|_| unknown())?;
        let value_length = trailer_value_length(trailer.as_str()).ok_or_else(unknown)?;
        let end = 3 + trailer.as_str().len() as u64 + 1 + value_length + 4;
        let too_large = || Error::new(Kind::EntityTooLarge, "the upload is too long to be framed");
        let encoded_left = framed_length(length).and_then(|chunks| chunks.checked_add(end)).ok_or_else(too_large)?;
        Ok(Self {
            inner,
            verdict,
            trailer,
            encoded_left,
            unannounced: length,
            owed: 0,
            begun: false,
            left: Bytes::new(),
            ended: false,
        })
    }

    /// Frames as much of `left` as one chunk takes.
    fn frame_left(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        if self.owed == 0 {
            self.owed = self.unannounced.min(CHUNK_BYTES);
            self.unannounced -= self.owed;
            let line_end = if self.begun { "\r\n" } else { "" };
            out.extend_from_slice(format!("{line_end}{:x}\r\n", self.owed).as_bytes());
            self.begun = true;
        }
        let take = (self.left.len() as u64).min(self.owed) as usize;
        out.extend_from_slice(&self.left.split_to(take));
        self.owed -= take as u64;
        self.encoded_left = self.encoded_left.saturating_sub(out.len() as u64);
        out.freeze()
    }

    fn end(&mut self) -> std::result::Result<Bytes, BoxError> {
        self.ended = true;
        let (name, value) = self.verdict.trailer().ok_or("the announced trailer did not come")?;
        if name != self.trailer || self.owed > 0 || self.unannounced > 0 {
            return Err("the body is not what was announced".into());
        }
        let line_end = if self.begun { "\r\n" } else { "" };
        let end = format!("{line_end}0\r\n{name}:{}\r\n\r\n", value.to_str()?);
        self.encoded_left = self.encoded_left.saturating_sub(end.len() as u64);
        Ok(end.into())
    }
}

impl http_body::Body for Framed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        while self.left.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => self.left = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => return Poll::Ready(Some(self.end().map(Frame::data))),
            }
        }
        if self.owed == 0 && self.unannounced == 0 {
            self.ended = true;
            return Poll::Ready(Some(Err("the body is longer than was announced".into())));
        }
        Poll::Ready(Some(Ok(Frame::data(self.frame_left()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.encoded_left)
    }
}

#[cfg(test)]
#[path = "upload_tests.rs"]
mod tests;
