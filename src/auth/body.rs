//! A client's body, verified while it streams. The body as received enters; the bytes that the client meant leave, with
//! aws-chunked framing taken off. Invariant: the last piece of data is held back until the hash, the chunk signatures, the
//! length and the checksum have all been found right, and otherwise the body ends in an error. So an upload that does not match
//! never reaches its end on the way to a backend, and leaves no object. Memory is constant: one frame is held, never a chunk.

use std::error::Error as StdError;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::authenticator::push_hex;
use super::body_error::{BodyError, too_large};
use super::canonical::single;
use super::checksum::{self, Declared};
use super::chunked::{Decoder, Trailer};
use super::{ChunkSeal, Payload};
use crate::error::{Error, Kind, Result};

/// Most bytes of data that a request is believed to carry: as many as S3's largest object has, 10,000 parts of 5 GiB. Framing
/// them cannot overflow. Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingObjects.html>.
pub const OBJECT_BYTES_MAX: u64 = 10_000 * (5 << 30);

/// What the body beneath fails with.
type Source = Box<dyn StdError + Send + Sync>;

/// What became of a body, for whoever answers the client after the body itself was given away.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Arc<VerdictState>);

#[derive(Debug, Default)]
struct VerdictState {
    failure: OnceLock<BodyError>,
    verified: OnceLock<Option<(HeaderName, HeaderValue)>>,
}

impl Verdict {
    /// Why the body was cut off, if it was: the answer to give, whatever the backend said to the broken request.
    pub fn failure(&self) -> Option<BodyError> {
        self.0.failure.get().cloned()
    }

    /// Whether the whole body has been read and found right.
    pub fn verified(&self) -> bool {
        self.0.verified.get().is_some()
    }

    /// The checksum that came behind the data, once it was found right.
    pub fn trailer(&self) -> Option<(HeaderName, HeaderValue)> {
        self.0.verified.get().cloned().flatten()
    }

    /// The body was cut off, for the reason that stands from now on.
    pub(super) fn fail(&self, error: BodyError) {
        let _ = self.0.failure.set(error);
    }

    /// The whole body was found right, and no checksum came behind it.
    pub(super) fn pass(&self) {
        let _ = self.0.verified.set(None);
    }
}

enum Check {
    Nothing,
    Hash { hash: Sha256, expected: [u8; 32] },
    Chunks { decoder: Box<Decoder>, remaining: u64 },
}

pin_project! {
    /// See the module.
    pub struct VerifiedBody<B> {
        #[pin]
        inner: B,
        check: Check,
        // Checksums in the head that are to be found right here, and not by the store.
        declared: Vec<Declared>,
        // Framed bytes that are still to be decoded.
        input: Bytes,
        held: Option<Bytes>,
        ended: bool,
        verdict: Verdict,
    }
}

impl<B> fmt::Debug for VerifiedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedBody").field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

impl<B> VerifiedBody<B>
where
    B: Body<Data = Bytes, Error = Source>,
{
    /// Wraps `body`, to be verified by what `payload` and the request's `headers` announce.
    ///
    /// # Errors
    /// `MissingContentLength` for a chunked upload whose `x-amz-decoded-content-length` is no number, `EntityTooLarge` for a
    /// body announced as longer than [`OBJECT_BYTES_MAX`], `InvalidRequest` for a chunked upload whose `x-amz-trailer` is no
    /// checksum we know, `XAmzContentSHA256Mismatch` for an empty body that was not signed as empty.
    ///
    /// # Hidden contract
    /// An HTTP client that was told a length of 0 never asks for the end of the body: where [`Self::decoded_length`] is 0,
    /// await [`Self::prove_empty`] before the request goes out.
    pub fn new(payload: Payload, headers: &HeaderMap, body: B) -> Result<(Self, Verdict)> {
        Self::declared(payload, headers, Vec::new(), body)
    }

    /// As [`Self::new`], but the checksum and the `Content-MD5` of the data that `headers` declare are verified as well, where
    /// otherwise they are left to the store.
    ///
    /// # Errors
    /// As [`Self::new`]; `InvalidRequest` for two checksums or one that we do not know, `InvalidDigest` for a `Content-MD5` that
    /// is none, `BadDigest` for an empty body that has another.
    pub fn checking(payload: Payload, headers: &HeaderMap, body: B) -> Result<(Self, Verdict)> {
        let declared = [checksum::declared(headers)?, checksum::content_md5(headers)?].into_iter().flatten().collect();
        Self::declared(payload, headers, declared, body)
    }

    /// As [`Self::checking`], for a body whose head has the checksum of something else: only `Content-MD5` is of the body.
    ///
    /// # Errors
    /// As [`Self::checking`].
    pub fn checking_md5(payload: Payload, headers: &HeaderMap, body: B) -> Result<(Self, Verdict)> {
        Self::declared(payload, headers, checksum::content_md5(headers)?.into_iter().collect(), body)
    }

    fn declared(payload: Payload, headers: &HeaderMap, declared: Vec<Declared>, body: B) -> Result<(Self, Verdict)> {
        let verdict = Verdict::default();
        let mut ended = false;
        if matches!(payload, Payload::Unsigned | Payload::Signed { .. }) && body.is_end_stream() {
            // Nobody asks an empty body for its end, so it is judged at once.
            if let Payload::Signed { sha256 } = &payload {
                check_hash(&Sha256::new(), sha256)?;
            }
            declared.iter().try_for_each(Declared::check)?;
            let _ = verdict.0.verified.set(None);
            ended = true;
        }
        let check = match payload {
            Payload::Unsigned => Check::Nothing,
            Payload::Signed { sha256 } => Check::Hash { hash: Sha256::new(), expected: sha256 },
            Payload::UnsignedTrailer => Check::chunks(None, true, headers)?,
            Payload::SignedChunks(seal) => Check::chunks(Some(seal), false, headers)?,
            Payload::SignedChunksTrailer(seal) => Check::chunks(Some(seal), true, headers)?,
        };
        let body = Self { inner: body, check, declared, input: Bytes::new(), held: None, ended, verdict: verdict.clone() };
        match body.size_hint().lower() {
            ..=OBJECT_BYTES_MAX => Ok((body, verdict)),
            length => Err(too_large(length, OBJECT_BYTES_MAX).into()),
        }
    }

    /// The length of what leaves, in bytes, where it is known beforehand.
    pub fn decoded_length(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Reads a body whose announced length is 0 to its end.
    ///
    /// # Errors
    /// As the stream's.
    pub async fn prove_empty(self) -> Result<()> {
        let mut body = pin!(self);
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            frame?;
        }
        Ok(())
    }
}

impl Check {
    fn chunks(seal: Option<ChunkSeal>, trailers: bool, headers: &HeaderMap) -> Result<Self> {
        let length = single(headers, "x-amz-decoded-content-length")?.unwrap_or_default();
        let digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        // A number that does not fit is one that is too large.
        let length = std::str::from_utf8(length).ok().filter(|_| digits).map(|text| text.parse().unwrap_or(u64::MAX));
        let Some(length) = length else {
            let what = "x-amz-decoded-content-length of a chunked upload is no number of bytes, or missing";
            let error = Error::new(Kind::MissingContentLength, "You must provide the Content-Length HTTP header.");
            return Err(error.with_source(what));
        };
        let trailer = if trailers { announced_trailer(headers)? } else { None };
        Ok(Self::Chunks { decoder: Box::new(Decoder::new(seal, trailers, trailer, length)), remaining: length })
    }

    /// Judges the body at its end.
    fn finish(&mut self) -> std::result::Result<Option<(HeaderName, HeaderValue)>, BodyError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Hash { hash, expected } => check_hash(hash, expected).map(|()| None),
            Self::Chunks { decoder, .. } => decoder.finish(),
        }
    }
}

fn announced_trailer(headers: &HeaderMap) -> Result<Option<Trailer>> {
    let Some(value) = single(headers, "x-amz-trailer")? else { return Ok(None) };
    let name = String::from_utf8_lossy(value).trim_matches([' ', '\t']).to_ascii_lowercase();
    let trailer = checksum::by_trailer(&name).and_then(|checksum| Some((HeaderName::try_from(&name).ok()?, checksum)));
    match trailer {
        Some((name, checksum)) => Ok(Some(Trailer { name, checksum })),
        None => {
            let message = "The value specified in the x-amz-trailer header is not supported";
            Err(Error::new(Kind::InvalidRequest, message).with_source(format!("x-amz-trailer names {name:?}")))
        }
    }
}

fn check_hash(hash: &Sha256, expected: &[u8; 32]) -> std::result::Result<(), BodyError> {
    let ours: [u8; 32] = hash.clone().finalize().into();
    if ours.ct_eq(expected).into() {
        return Ok(());
    }
    let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
    let mut error = BodyError::new(Kind::XAmzContentSha256Mismatch, message);
    for (name, sha256) in [("ClientComputedContentSHA256", expected), ("S3ComputedContentSHA256", &ours)] {
        let mut text = String::with_capacity(64);
        push_hex(&mut text, sha256);
        error = error.with_detail(name, text);
    }
    Err(error)
}

impl<B> Body for VerifiedBody<B>
where
    B: Body<Data = Bytes, Error = Source>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        // A body that failed stays failed: whoever asks again must not take it for ended.
        if let Some(failure) = this.verdict.0.failure.get() {
            return Poll::Ready(Some(Err(failure.clone())));
        }
        if *this.ended {
            return Poll::Ready(None);
        }
        let fail = |verdict: &Verdict, error: BodyError| {
            let _ = verdict.0.failure.set(error.clone());
            Poll::Ready(Some(Err(error)))
        };
        loop {
            let data = if let Check::Chunks { decoder, .. } = &mut *this.check
                && !this.input.is_empty()
            {
                match decoder.feed(this.input) {
                    Ok(data) => data,
                    Err(error) => return fail(this.verdict, error),
                }
            } else {
                match ready!(this.inner.as_mut().poll_frame(cx)) {
                    // Trailers of HTTP itself are not signed, so nobody is to act on them.
                    Some(Ok(frame)) => match (frame.into_data(), &mut *this.check) {
                        (Err(_), _) => None,
                        (Ok(data), Check::Nothing) if this.declared.is_empty() => {
                            if this.inner.is_end_stream() {
                                *this.ended = true;
                                let _ = this.verdict.0.verified.set(None);
                            }
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        (Ok(data), Check::Nothing) => Some(data),
                        (Ok(data), Check::Hash { hash, .. }) => {
                            hash.update(&data);
                            Some(data)
                        }
                        (Ok(data), Check::Chunks { .. }) => {
                            *this.input = data;
                            None
                        }
                    },
                    Some(Err(error)) => return fail(this.verdict, BodyError::of_source(error)),
                    None => match this.check.finish().and_then(|trailer| {
                        this.declared.iter().try_for_each(Declared::check)?;
                        Ok(trailer)
                    }) {
                        Err(error) => return fail(this.verdict, error),
                        Ok(trailer) => {
                            *this.ended = true;
                            let _ = this.verdict.0.verified.set(trailer);
                            break;
                        }
                    },
                }
            };
            this.declared.iter_mut().for_each(|declared| declared.update(data.as_deref().unwrap_or_default()));
            if let Some(data) = data.filter(|data| !data.is_empty())
                && let Some(before) = this.held.replace(data)
            {
                this.check.let_go(&before);
                return Poll::Ready(Some(Ok(Frame::data(before))));
            }
        }
        let last = this.held.take();
        Poll::Ready(last.map(|last| {
            this.check.let_go(&last);
            Ok(Frame::data(last))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        if let Check::Chunks { remaining, .. } = &self.check {
            return SizeHint::with_exact(*remaining);
        }
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

impl Check {
    /// Counts what leaves.
    fn let_go(&mut self, data: &Bytes) {
        if let Self::Chunks { remaining, .. } = self {
            *remaining -= data.len() as u64;
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
