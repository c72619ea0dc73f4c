//! The answer's body: chunks from the driver in, frames out. Invariant: it ends cleanly only after the driver said that the
//! answer is whole; a driver that vanishes for any other reason breaks the message.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;

/// What the driver sends.
#[derive(Debug)]
pub enum Chunk {
    /// Octets of the answer.
    Data(Bytes),
    /// Nothing more is owed.
    End,
}

/// The receiving end, as an HTTP body.
#[derive(Debug)]
pub struct BatchBody {
    chunks: mpsc::Receiver<Chunk>,
    ended: bool,
}

/// The answer could not be finished.
#[derive(Debug)]
pub struct BrokenAnswer;

impl std::fmt::Display for BrokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the batch ended before its answer was whole")
    }
}

impl std::error::Error for BrokenAnswer {}

impl BatchBody {
    /// A body of what comes through `chunks`.
    pub fn new(chunks: mpsc::Receiver<Chunk>) -> Self {
        Self { chunks, ended: false }
    }
}

impl http_body::Body for BatchBody {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        self.ended = matches!(chunk, Some(Chunk::End));
        Poll::Ready(match chunk {
            Some(Chunk::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Chunk::End) => None,
            None => Some(Err(BrokenAnswer)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn only_the_word_end_ends_it_cleanly() {
        let (sender, receiver) = mpsc::channel(2);
        sender.send(Chunk::Data(Bytes::from_static(b"x"))).await.expect("open");
        sender.send(Chunk::End).await.expect("open");
        assert_eq!(BatchBody::new(receiver).collect().await.expect("whole").to_bytes(), "x");
        let (sender, receiver) = mpsc::channel(2);
        sender.send(Chunk::Data(Bytes::from_static(b"x"))).await.expect("open");
        drop(sender);
        let mut body = BatchBody::new(receiver);
        assert!(body.frame().await.expect("a chunk").is_ok());
        for _ in 0..2 {
            assert!(body.frame().await.expect("not an end").is_err() && !http_body::Body::is_end_stream(&body));
        }
    }
}
