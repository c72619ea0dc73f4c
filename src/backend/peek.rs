//! The beginning of a body, looked at before the body is anybody's. In: a body, how much of it is wanted, and how long it is waited
//! for; out: what came, how that ended, and the body from its beginning again.
//!
//! Invariant: whoever takes the body gets all the data that its maker gives, and the same end; no more than was asked for and one
//! frame is held.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::stream::iter;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, timeout_at};

use super::{Body, BoxError, full_body};

/// What of a body came soon.
pub struct Peeked {
    /// Its data: as many bytes as were asked for and the rest of a frame, at the most.
    pub seen: Bytes,
    /// How that ended.
    pub end: End,
}

/// How the beginning of a body ended, with what is yet to come of it.
pub enum End {
    /// That was all.
    Whole,
    /// There were as many bytes as were asked for, and may be more.
    TooLong(Body),
    /// The rest did not come in time.
    TooSlow(Body),
    /// The body broke.
    Broken(BoxError),
}

/// Reads `body` until `bytes_max` bytes of it are here, or it ends, or it is `until`. Trailers are dropped.
pub async fn peek(mut body: Body, bytes_max: usize, until: Instant) -> Peeked {
    let mut seen = BytesMut::new();
    let end = loop {
        if seen.len() >= bytes_max {
            break End::TooLong(body);
        }
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => seen.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => break End::Broken(error),
            Ok(None) => break End::Whole,
            Err(_) => break End::TooSlow(body),
        }
    };
    Peeked { seen: seen.freeze(), end }
}

impl Peeked {
    /// The body from its beginning. Its length is known if all of it is here.
    pub fn into_body(self) -> Body {
        let Self { seen, end } = self;
        let rest = match end {
            End::Whole => return full_body(seen),
            End::TooLong(rest) | End::TooSlow(rest) => rest,
            End::Broken(error) => Body::new(StreamBody::new(iter([Err(error)]))),
        };
        resumed((!seen.is_empty()).then(|| Frame::data(seen)), rest)
    }
}

/// A body of which `first` has been read already, or was written before it.
pub fn resumed(first: Option<Frame<Bytes>>, rest: Body) -> Body {
    Body::new(Resumed { first, rest })
}

struct Resumed {
    first: Option<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for Resumed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use futures_util::stream::pending;
    use http_body::Body as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A body of the words in `pieces`, which then ends, breaks or hangs.
    fn body(pieces: &'static str, last: &str) -> Body {
        let data = pieces.split_whitespace().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        let data = iter(data.collect::<Vec<Result<_, BoxError>>>());
        match last {
            "ends" => Body::new(StreamBody::new(data)),
            "breaks" => Body::new(StreamBody::new(data.chain(iter([Err("broken".into())])))),
            _ => Body::new(StreamBody::new(data.chain(pending()))),
        }
    }

    fn name(end: &End) -> &'static str {
        match end {
            End::Whole => "whole",
            End::TooLong(_) => "too long",
            End::TooSlow(_) => "too slow",
            End::Broken(_) => "broken",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_seen_comes_again_with_the_same_end() {
        for (pieces, last, seen, end) in [
            ("ab c", "ends", "abc", "whole"),
            ("", "ends", "", "whole"),
            ("ab cd", "ends", "abcd", "too long"),
            ("ab cdef g", "ends", "abcdef", "too long"),
            ("abcd", "breaks", "abcd", "too long"),
            ("ab", "breaks", "ab", "broken"),
            ("", "breaks", "", "broken"),
            ("ab", "hangs", "ab", "too slow"),
            ("", "hangs", "", "too slow"),
        ] {
            let label = format!("{pieces:?} {last}");
            let peeked = peek(body(pieces, last), 4, Instant::now() + PATIENCE).await;
            assert_eq!((&peeked.seen[..], name(&peeked.end)), (seen.as_bytes(), end), "{label}");
            let mut body = peeked.into_body();
            assert_eq!(body.size_hint().exact(), (end == "whole").then_some(seen.len() as u64), "{label}");
            assert_eq!(body.is_end_stream(), end == "whole" && seen.is_empty(), "{label}");
            let mut all = String::new();
            let how = loop {
                match timeout_at(Instant::now() + PATIENCE, body.frame()).await {
                    Ok(Some(Ok(frame))) => all += std::str::from_utf8(frame.data_ref().expect("data")).expect("text"),
                    Ok(Some(Err(_))) => break "breaks",
                    Ok(None) => break "ends",
                    Err(_) => break "hangs",
                }
            };
            assert_eq!((all, how), (pieces.replace(' ', ""), last), "{label}");
        }
    }

    #[tokio::test]
    async fn the_length_of_what_goes_on_counts_down_to_its_end() {
        let mut body = resumed(Some(Frame::data(Bytes::from_static(b"ab"))), full_body("cde"));
        for (left, ended) in [(5, false), (3, false), (0, true)] {
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), ended));
            assert_eq!(body.frame().await.is_none(), ended);
        }
    }
}
