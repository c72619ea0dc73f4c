//! The few answers and headers that name what the client must not see or would not understand: where a multipart upload ended
//! up, and the source of a copy from a renamed bucket. Everything that is held here is bounded.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderValue, Method, Response, header};
use http_body::Frame;

use crate::backend::{Body, BoxError, collect};
use crate::error::xml::element;
use crate::error::{self, Error, Kind};
use crate::types::{percent_decode, query_pairs};

/// Whether the answer to such a request holds a `<Location>` that shows the backend's address: CompleteMultipartUpload.
pub fn names_location(method: &Method, query: &str) -> bool {
    method == Method::POST && query_pairs(query).any(|(name, _)| percent_decode(name) == b"uploadId")
}

/// The answer with `url` for what its `<Location>` says. It streams: a store that takes long to complete an upload sends white
/// space meanwhile, which is there to keep the client waiting.
pub fn location(response: Response<Body>, url: &str) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let mut element_text = String::new();
    element(&mut element_text, "Location", url);
    let relocated = Relocated { inner: body, element: Some(element_text.into()), held: BytesMut::new(), ended: false };
    Response::from_parts(head, Body::new(relocated))
}

const LOCATION_OPEN: &[u8] = b"<Location>";
const LOCATION_CLOSE: &[u8] = b"</Location>";

/// Longest `<Location>` that is looked through for its end, in bytes: the longest key, escaped, and a host are far shorter.
const LOCATION_BYTES_MAX: usize = 16 * 1024;

/// A body whose first `<Location>` is replaced as it streams by.
struct Relocated {
    inner: Body,
    /// What goes in its place; nothing once it has.
    element: Option<Bytes>,
    /// Read but not yet passed on: what may be the beginning of the element, or the element up to here.
    held: BytesMut,
    ended: bool,
}

impl Relocated {
    /// What of the held bytes can go out now.
    fn release(&mut self) -> Result<Bytes, BoxError> {
        let Some(element) = &self.element else { return Ok(self.held.split().freeze()) };
        let Some(open) = find(&self.held, LOCATION_OPEN) else {
            // Only what may be the beginning of the element has to wait for the rest of it.
            let begins = |length: &usize| !self.ended && self.held.ends_with(&LOCATION_OPEN[..*length]);
            let keep = (1..LOCATION_OPEN.len()).rev().find(begins).unwrap_or(0);
            let safe = self.held.len() - keep;
            return Ok(self.held.split_to(safe).freeze());
        };
        match find(&self.held[open..], LOCATION_CLOSE) {
            Some(close) => {
                let mut out = self.held.split_to(open);
                out.extend_from_slice(element);
                self.held.advance(close + LOCATION_CLOSE.len());
                out.extend_from_slice(&self.held.split());
                self.element = None;
                Ok(out.freeze())
            }
            None if self.ended || self.held.len() - open > LOCATION_BYTES_MAX => Err("a <Location> that does not end".into()),
            None => Ok(self.held.split_to(open).freeze()),
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

impl http_body::Body for Relocated {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.ended && self.held.is_empty() {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => self.held.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.ended = true,
            }
            let out = self.release()?;
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }
}

/// The whole of a bounded answer.
pub async fn whole(body: Body, bytes_max: usize) -> error::Result<Bytes> {
    let broken =
        |e| Error::new(Kind::BadGateway, "the store's answer broke off or is too long; the outcome is unknown").with_source(e);
    collect(body, bytes_max).await.map_err(broken)
}

/// `x-amz-copy-source` with the bucket's name at the backend: whatever stood before the first slash behind the bucket, encoded
/// or not, goes; the key and its version stay as they came. The value has been parsed, so there is one.
pub fn copy_source(value: &HeaderValue, name: &str) -> HeaderValue {
    let bytes = value.as_bytes();
    let slash_at = |from: usize| {
        (from..bytes.len()).find_map(|at| match &bytes[at..] {
            [b'/', ..] => Some((at, at + 1)),
            [b'%', b'2', b'f' | b'F', ..] => Some((at, at + 3)),
            _ => None,
        })
    };
    let start = slash_at(0).filter(|(at, _)| *at == 0).map_or(0, |(_, behind)| behind);
    let key = slash_at(start).map_or(bytes.len(), |(_, behind)| behind);
    let renamed = [b"/", name.as_bytes(), b"/", &bytes[key..]].concat();
    HeaderValue::from_bytes(&renamed).expect("a valid name between parts of a header value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn relocated(frames: &[&'static str]) -> Option<String> {
        let frames: Vec<_> = frames.iter().map(|f| Ok::<_, BoxError>(Frame::data(Bytes::from_static(f.as_bytes())))).collect();
        let body = Body::new(http_body_util::StreamBody::new(futures_util::stream::iter(frames)));
        let bytes = location(Response::new(body), "http://gate/b/a&b").into_body().collect().await.ok()?.to_bytes();
        Some(String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_location_shows_the_address_that_the_client_used() {
        let whole = "<?xml?>  <R><Location>http://10.0.0.1:8333/b/k</Location><Key>k</Key></R>";
        let expected = "<?xml?>  <R><Location>http://gate/b/a&amp;b</Location><Key>k</Key></R>";
        for cut in 1..whole.len() {
            let (a, b) = whole.split_at(cut);
            assert_eq!(relocated(&[a, b]).await.expect("whole"), expected, "cut at {cut}");
        }
        let error = "<Error><Code>x</Code></Error>";
        assert_eq!(relocated(&[error]).await.expect("whole"), error);
        assert_eq!(relocated(&["<R><Location>http://10.0.0.1"]).await, None, "an address is never let out");
    }

    #[test]
    fn a_copy_source_keeps_everything_but_the_bucket() {
        for (value, renamed) in [
            ("/old/old/k%20?versionId=1", "/new/old/k%20?versionId=1"),
            ("old/k", "/new/k"),
            ("%6fld/xoldx", "/new/xoldx"),
            ("%2Fold%2fk/old", "/new/k/old"),
        ] {
            assert_eq!(copy_source(&HeaderValue::from_static(value), "new"), renamed);
        }
    }
}
