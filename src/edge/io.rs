//! A client's socket with two clocks: since when it has been sending the head of a request, for whoever supervises the
//! connection, and how long it has not taken what we write, after which the socket fails.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// What a connection is doing, shared by its socket, its requests and its supervisor.
#[derive(Debug)]
pub struct Activity {
    in_flight: AtomicUsize,
    since: Mutex<Since>,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// Part of a head has come, or it is owed because the connection is new.
    Head(Instant),
    /// Nothing has come since the last answer.
    Idle(Instant),
}

impl Activity {
    /// A new connection owes a head.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { in_flight: AtomicUsize::new(0), since: Mutex::new(Since::Head(Instant::now())) })
    }

    /// A head has come whole.
    pub fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer has ended.
    pub fn end(&self) {
        if self.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.set(Since::Idle(Instant::now()));
        }
    }

    fn received(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 && matches!(self.since(), Since::Idle(_)) {
            self.set(Since::Head(Instant::now()));
        }
    }

    /// Why the connection should end now, if it should.
    pub fn overdue(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<&'static str> {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        match self.since() {
            Since::Head(since) => (since.elapsed() >= header_timeout).then_some("header_timeout"),
            Since::Idle(since) => (since.elapsed() >= idle_timeout).then_some("idle"),
        }
    }

    /// Part of a head has come, or is owed, and nothing else is under way.
    pub fn owes_head(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0 && matches!(self.since(), Since::Head(_))
    }

    fn since(&self) -> Since {
        *self.since.lock().expect("no code panics while it holds the lock")
    }

    fn set(&self, since: Since) {
        *self.since.lock().expect("no code panics while it holds the lock") = since;
    }
}

/// See the module.
pub struct ClientIo<S> {
    inner: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientIo<S> {
    /// Watches `inner`; a write that makes no progress for `write_timeout` fails.
    pub fn new(inner: S, activity: Arc<Activity>, write_timeout: Duration) -> Self {
        Self { inner, activity, write_timeout, blocked: None }
    }

    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let timeout = self.write_timeout;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match blocked.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_nothing_fails_and_a_slow_one_does_not() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut io = ClientIo::new(server, Activity::new(), 10 * SECOND);
        io.write_all(b"full").await.expect("fits");
        let slow = tokio::spawn(async move {
            tokio::time::sleep(9 * SECOND).await;
            let mut buffer = [0; 4];
            client.read_exact(&mut buffer).await.expect("there");
            client
        });
        io.write_all(b"more").await.expect("the reader came back in time");
        let _client = slow.await.expect("no panic");
        let started = Instant::now();
        assert_eq!(io.write_all(b"x").await.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), 10 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_owed_sooner_than_the_next_request() {
        let activity = Activity::new();
        let overdue = |a: &Activity| a.overdue(3 * SECOND, 6 * SECOND);
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"), "a new connection owes a head");
        activity.begin();
        tokio::time::advance(60 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a request is under way");
        activity.end();
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(overdue(&activity), None);
        activity.received();
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a head has begun to come");
        tokio::time::advance(SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"));
        activity.begin();
        activity.end();
        tokio::time::advance(6 * SECOND).await;
        assert_eq!(overdue(&activity), Some("idle"));
    }
}
