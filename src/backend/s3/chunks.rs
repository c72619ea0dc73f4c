//! A body on its way to the store in signed chunks: data and perhaps a trailer enter, aws-chunked framing leaves, in which each
//! chunk and the trailer are signed on from the signature of the head. Invariants: one chunk is held and no more; the framing is
//! exactly as long as [`encoded_length`] says; the final chunk is made only once the data has ended well.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html> and `sigv4-streaming-trailers.html` there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body::{Frame, SizeHint};
use sha2::{Digest, Sha256};

use super::credentials::KeyPair;
use super::sign::{EMPTY_SHA256, Seal, Signer};
use crate::backend::{Body, BoxError};
use crate::checksum::Algorithm;
use crate::types::hex32;

/// `x-amz-content-sha256` of a body in signed chunks.
pub const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

/// The same, with a signed checksum behind the data.
pub const SIGNED_CHUNKS_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// The same, with a checksum behind the data, and nothing signed.
pub const UNSIGNED_CHUNKS_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// Data of each chunk but the last, in bytes: as many as common SDKs send, and stores ask for 8 KiB.
const CHUNK_BYTES: usize = 64 * 1024;

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Signs the head of `request`, and frames its body where that is to go in signed chunks.
///
/// # Errors
/// As of [`Announced::read`].
pub(super) fn signed(
    signer: &Signer,
    path: &PathAndQuery,
    mut request: Request<Body>,
    pair: &Arc<KeyPair>,
    now: SystemTime,
) -> Result<Request<Body>, BoxError> {
    let announced = Announced::read(request.headers_mut())?;
    let method = request.method().clone();
    signer.sign(&method, path, request.headers_mut(), pair, now);
    Ok(match announced {
        None => request,
        Some(announced) => {
            let seal = signer.seal(request.headers(), pair, now);
            request.map(|body| announced.frame(body, seal))
        }
    })
}

/// What the head of a request says of a body that is to go in signed chunks.
struct Announced {
    length: u64,
    trailer: Option<HeaderName>,
}

impl Announced {
    /// Nothing where `headers` ask for no such body. Sets the length of the framing, which no client could know.
    ///
    /// # Errors
    /// A head without the data's length, or with a trailer that is no checksum: whoever made it is wrong.
    fn read(headers: &mut HeaderMap) -> Result<Option<Self>, BoxError> {
        let trailers = match headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes) {
            Some(value) if value == SIGNED_CHUNKS.as_bytes() => false,
            Some(value) if value == SIGNED_CHUNKS_TRAILER.as_bytes() => true,
            _ => return Ok(None),
        };
        let length = headers.get("x-amz-decoded-content-length").ok_or("signed chunks without a length")?.to_str()?.parse()?;
        let trailer = match headers.get("x-amz-trailer").filter(|_| trailers) {
            Some(name) => Some(HeaderName::from_bytes(name.as_bytes())?),
            None => None,
        };
        let encoded = encoded_length(length, trailer.as_ref()).ok_or("a trailer that is no checksum, or no length")?;
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(encoded));
        Ok(Some(Self { length, trailer }))
    }

    /// The body to send, whose chunks are signed with `seal`.
    fn frame(self, inner: Body, seal: Seal) -> Body {
        let encoded_length = encoded_length(self.length, self.trailer.as_ref()).expect("it was there before");
        let unsent = self.length;
        Body::new(SignedChunks { inner, seal, trailer: self.trailer, kept: BytesMut::new(), unsent, encoded_length, ended: false })
    }
}

/// How many bytes `length` bytes of data have with their framing.
fn encoded_length(length: u64, trailer: Option<&HeaderName>) -> Option<u64> {
    let line = |size: u64| format!("{size:x};chunk-signature=").len() as u64 + 64 + 2;
    let chunk = |size: u64| line(size) + size + 2;
    let whole = (length / CHUNK_BYTES as u64).checked_mul(chunk(CHUNK_BYTES as u64))?;
    let rest = length % CHUNK_BYTES as u64;
    let rest = if rest > 0 { chunk(rest) } else { 0 };
    let trailer = match trailer {
        None => 0,
        Some(name) => {
            let value = Algorithm::by_header(name.as_str())?.bytes().div_ceil(3) * 4;
            (name.as_str().len() + 1 + value + 2 + TRAILER_SIGNATURE.len() + 1 + 64 + 2) as u64
        }
    };
    whole.checked_add(rest + line(0) + trailer + 2)
}

struct SignedChunks {
    inner: Body,
    seal: Seal,
    trailer: Option<HeaderName>,
    /// Data of the chunk that is being filled.
    kept: BytesMut,
    /// Bytes of data that no chunk has held yet.
    unsent: u64,
    encoded_length: u64,
    ended: bool,
}

impl SignedChunks {
    /// The next chunk, with all but the line end behind it where it is the final one.
    fn chunk(&mut self, data: &[u8], out: &mut BytesMut) {
        let hash = hex32(&Sha256::digest(data).into());
        let signature = self.seal.next("AWS4-HMAC-SHA256-PAYLOAD", &[EMPTY_SHA256.as_bytes(), &hash]);
        out.extend_from_slice(format!("{:x};chunk-signature=", data.len()).as_bytes());
        out.extend_from_slice(&signature);
        out.extend_from_slice(b"\r\n");
        if !data.is_empty() {
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// A chunk of what is kept; the data may have `ended` with it.
    fn full(&mut self) -> Result<Bytes, BoxError> {
        let data = self.kept.split_to(self.kept.len().min(CHUNK_BYTES));
        self.unsent = self.unsent.checked_sub(data.len() as u64).ok_or("the data is longer than was announced")?;
        let mut out = BytesMut::with_capacity(data.len() + 128);
        self.chunk(&data, &mut out);
        Ok(out.freeze())
    }

    /// The final chunk and what stands behind it.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<Bytes, BoxError> {
        if self.unsent > 0 {
            return Err("the data is shorter than was announced".into());
        }
        let mut out = BytesMut::with_capacity(512);
        self.chunk(b"", &mut out);
        if let Some(name) = &self.trailer {
            let value = trailers.and_then(|trailers| trailers.get(name)).ok_or("the announced trailer did not come")?;
            let line = [name.as_str().as_bytes(), b":", value.as_bytes()].concat();
            let hash = hex32(&Sha256::digest([&line[..], b"\n"].concat()).into());
            let signature = self.seal.next("AWS4-HMAC-SHA256-TRAILER", &[&hash]);
            for part in [&line[..], b"\r\n", TRAILER_SIGNATURE.as_bytes(), b":", &signature, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        out.extend_from_slice(b"\r\n");
        self.ended = true;
        Ok(out.freeze())
    }
}

impl http_body::Body for SignedChunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let out = loop {
            if self.kept.len() >= CHUNK_BYTES {
                break self.full();
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Err(error)) => break Err(error),
                Some(Ok(frame)) => Some(frame),
                None => None,
            };
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.kept.extend_from_slice(&data),
                last => {
                    let trailers = last.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                    let chunk = if self.kept.is_empty() { Ok(Bytes::new()) } else { self.full() };
                    break chunk.and_then(|chunk| Ok([chunk, self.end(trailers.as_ref())?].concat().into()));
                }
            }
        };
        self.ended |= out.is_err();
        Poll::Ready(Some(out.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.encoded_length)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// The request of the example in the S3 documentation, whose data is 65 KiB of the letter a.
    fn example(trailer: bool, frames: Vec<Result<Frame<Bytes>, BoxError>>) -> (HeaderMap, Body) {
        let pair = KeyPair::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None).expect("valid");
        let (pair, now) = (Arc::new(pair), SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600));
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "s3.amazonaws.com"),
            ("x-amz-content-sha256", if trailer { SIGNED_CHUNKS_TRAILER } else { SIGNED_CHUNKS }),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if trailer {
            headers.insert("x-amz-trailer", HeaderValue::from_static("x-amz-checksum-crc32c"));
        }
        let mut request = Request::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
        *request.method_mut() = Method::PUT;
        *request.headers_mut() = headers;
        let path = PathAndQuery::from_static("/examplebucket/chunkObject.txt");
        let (head, body) = signed(&Signer::new("us-east-1"), &path, request, &pair, now).expect("right").into_parts();
        (head.headers, body)
    }

    fn data() -> Vec<Result<Frame<Bytes>, BoxError>> {
        (0..65).map(|_| Ok(Frame::data(Bytes::from(vec![b'a'; 1024])))).collect()
    }

    #[tokio::test]
    async fn the_framing_is_as_long_as_it_says_and_signed_on_from_the_head() {
        let (headers, body) = example(false, data());
        let framed = body.collect().await.expect("ends well").to_bytes();
        assert_eq!(headers["content-length"], framed.len().to_string().as_str());
        assert_eq!(framed.len(), 66824, "as documented");
        assert!(framed.starts_with(b"10000;chunk-signature="));
        let lines = framed.windows(17).filter(|window| window == b";chunk-signature=").count();
        assert_eq!(lines, 3);
    }

    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html>
    #[test]
    fn signatures_of_chunks_equal_the_documented_examples() {
        let pair = Arc::new(KeyPair::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None).expect("valid"));
        let seed = "Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(seed))]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let mut seal = Signer::new("us-east-1").seal(&headers, &pair, now);
        for (length, signature) in [
            (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
            (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
            (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
        ] {
            let hash = hex32(&Sha256::digest(vec![b'a'; length]).into());
            let next = seal.next("AWS4-HMAC-SHA256-PAYLOAD", &[EMPTY_SHA256.as_bytes(), &hash]);
            assert_eq!(next, signature.as_bytes(), "{length}");
        }
    }

    #[tokio::test]
    async fn a_trailer_stands_behind_the_data_and_is_signed() {
        let mut frames = data();
        let trailers =
            HeaderMap::from_iter([(HeaderName::from_static("x-amz-checksum-crc32c"), HeaderValue::from_static("sOO8/Q=="))]);
        frames.push(Ok(Frame::trailers(trailers)));
        let (headers, body) = example(true, frames);
        let framed = body.collect().await.expect("ends well").to_bytes();
        assert_eq!(headers["content-length"], framed.len().to_string().as_str());
        let end = String::from_utf8_lossy(&framed[framed.len() - 200..]).into_owned();
        assert!(end.contains("\r\nx-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:"), "{end}");
    }

    #[tokio::test]
    async fn what_is_not_what_was_announced_has_no_end() {
        for frames in [
            data().into_iter().take(64).collect::<Vec<_>>(),
            data().into_iter().chain([Ok(Frame::data(Bytes::from_static(b"a")))]).collect(),
            data().into_iter().take(64).chain([Err("broken".into())]).collect(),
        ] {
            let (_, body) = example(false, frames);
            body.collect().await.expect_err("no end");
        }
        let (_, body) = example(true, data());
        body.collect().await.expect_err("no trailer");
    }
}
