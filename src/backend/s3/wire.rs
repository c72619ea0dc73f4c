//! A TCP connection to a store that lets its last words be heard: a store that answers before it has read our body and then
//! hangs up makes our writes fail, but its answer is still there to be read. Bytes go through as they are.
//!
//! Invariant: no write fails before the end of what can be read was seen, or [`GRACE`] has passed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::resolve::Peer;

/// How long a failed write is kept back while nobody reads to the end.
const GRACE: Duration = Duration::from_secs(5);

/// See the module.
pub struct Wire {
    stream: TcpStream,
    peer: Peer,
    broken: Option<(io::Error, Pin<Box<Sleep>>)>,
    /// Nothing more will be read.
    ended: bool,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, peer: Peer) -> Self {
        Self { stream, peer, broken: None, ended: false }
    }

    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.broken.is_none() {
            match ready!(write(Pin::new(&mut self.stream), cx)) {
                Err(error) if !self.ended => self.broken = Some((error, Box::pin(sleep(GRACE)))),
                written => return Poll::Ready(written),
            }
        }
        let (error, grace) = self.broken.as_mut().expect("it was or has just become so");
        if !self.ended {
            // Whoever writes reads as well, in the same task, and is woken by what there is to read.
            ready!(grace.as_mut().poll(cx));
        }
        Poll::Ready(Err(io::Error::new(error.kind(), error.to_string())))
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.peer)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        if read.is_err() || (into.filled().len() == before && into.remaining() > 0) {
            self.ended = true;
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream, cx| stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
