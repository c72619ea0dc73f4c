//! An upload's body on its way to the backend: verified by `auth` as it streams, and sent in a form whose checksum the store
//! can check again. In constant memory: a chunk's size is announced before its bytes are here.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::headers::strip_framing;
use crate::auth::{Payload, Verdict, VerifiedBody, trailer_value_length};
use crate::backend::{Body, BoxError, empty_body};
use crate::error::{Error, Kind, Result};
use crate::types::hex32;

/// Size of the chunks that are sent to a backend, in bytes; the last one may be smaller. Common SDKs send as many.
const CHUNK_BYTES: u64 = 1 << 20;

/// `x-amz-content-sha256` of a request whose body is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// `x-amz-content-sha256` of a chunked body with a checksum behind it.
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// Makes the body to send and adjusts `headers` to it: framing, lengths and `x-amz-content-sha256`. The verdict says, after a
/// failed request, whether it was the client's body that failed it.
pub async fn prepare(payload: Payload, headers: &mut HeaderMap, body: Body) -> Result<(Body, Verdict)> {
    let trailer = headers.get("x-amz-trailer").cloned();
    let with_trailer = matches!(payload, Payload::UnsignedTrailer | Payload::SignedChunksTrailer(_)) && trailer.is_some();
    let chunked = matches!(payload, Payload::UnsignedTrailer | Payload::SignedChunks(_) | Payload::SignedChunksTrailer(_));
    let sha256 = match &payload {
        Payload::Signed { sha256 } => HeaderValue::from_bytes(&hex32(sha256)).expect("hex digits are header-safe"),
        _ if with_trailer => HeaderValue::from_static(UNSIGNED_TRAILER),
        _ if !chunked && body.is_end_stream() => HeaderValue::from_static(crate::backend::s3::sign::EMPTY_SHA256),
        _ => HeaderValue::from_static(UNSIGNED),
    };
    let (verified, verdict) = VerifiedBody::new(payload, headers, body)?;
    let length = verified.decoded_length();
    headers.insert("x-amz-content-sha256", sha256);
    if !chunked {
        let body = match length {
            Some(0) => {
                verified.prove_empty().await?;
                empty_body()
            }
            _ => Body::new(verified.map_err(BoxError::from)),
        };
        return Ok((body, verdict));
    }
    let length = length.ok_or_else(|| Error::new(Kind::MissingContentLength, "x-amz-decoded-content-length is missing"))?;
    strip_framing(headers);
    if let Some(name) = trailer.filter(|_| with_trailer) {
        let framed = Framed::new(verified, verdict.clone(), length, &name)?;
        headers.insert("x-amz-trailer", name);
        headers.insert("x-amz-decoded-content-length", HeaderValue::from(length));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(framed.encoded_length));
        return Ok((Body::new(framed), verdict));
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if length == 0 {
        verified.prove_empty().await?;
        return Ok((empty_body(), verdict));
    }
    Ok((Body::new(verified.map_err(BoxError::from)), verdict))
}

/// Waits for the first bytes that may go out. A request whose body fails before them is never begun at the store: some stores
/// take a connection that closes behind the head for an empty object.
pub async fn begun(mut body: Body) -> std::result::Result<Body, BoxError> {
    let first = body.frame().await.transpose()?;
    Ok(Body::new(Begun { first, rest: body }))
}

/// Waits for the first bytes; a body that ends without any is none, however it was framed.
pub async fn settled(mut body: Body) -> std::result::Result<Body, BoxError> {
    while !body.is_end_stream() {
        match body.frame().await.transpose()? {
            Some(frame) if frame.data_ref().is_some_and(|data| !data.is_empty()) => {
                return Ok(Body::new(Begun { first: Some(frame), rest: body }));
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(empty_body())
}

/// A body of which `first` has been read already.
pub fn resumed(first: Option<Bytes>, rest: Body) -> Body {
    Body::new(Begun { first: first.map(Frame::data), rest })
}

/// A body whose first frame is here already.
struct Begun {
    first: Option<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for Begun {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

/// aws-chunked framing without signatures, with the verified checksum behind the data. `Content-Encoding` does not name it:
/// `x-amz-content-sha256` does, and some stores would keep the coding
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html>).
struct Framed {
    inner: VerifiedBody<Body>,
    verdict: Verdict,
    trailer: HeaderName,
    encoded_length: u64,
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

impl Framed {
    fn new(inner: VerifiedBody<Body>, verdict: Verdict, length: u64, trailer: &HeaderValue) -> Result<Self> {
        let unknown = || Error::new(Kind::InvalidRequest, "x-amz-trailer names no checksum that is known here");
        let trailer = HeaderName::from_bytes(trailer.as_bytes().trim_ascii()).map_err(|_| unknown())?;
        let value_length = trailer_value_length(trailer.as_str()).ok_or_else(unknown)?;
        let chunk = |n: u64| format!("{n:x}").len() as u64 + 2 + n + 2;
        let whole = (length / CHUNK_BYTES) * chunk(CHUNK_BYTES);
        let rest = length % CHUNK_BYTES;
        let last = if rest > 0 { chunk(rest) } else { 0 };
        let end = 3 + trailer.as_str().len() as u64 + 1 + value_length + 4;
        let encoded_length = whole + last + end;
        Ok(Self {
            inner,
            verdict,
            trailer,
            encoded_length,
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
        out.freeze()
    }

    fn end(&mut self) -> std::result::Result<Bytes, BoxError> {
        self.ended = true;
        let (name, value) = self.verdict.trailer().ok_or("the announced trailer did not come")?;
        if name != self.trailer || self.owed > 0 || self.unannounced > 0 {
            return Err("the body is not what was announced".into());
        }
        let line_end = if self.begun { "\r\n" } else { "" };
        Ok(Bytes::from(format!("{line_end}0\r\n{name}:{}\r\n\r\n", value.to_str()?)))
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
        SizeHint::with_exact(self.encoded_length)
    }
}
