//! A client's socket. It tells the connection's [`Activity`] when bytes come, whether they are the preface of HTTP/2, and
//! whether the client takes what we write; where it takes nothing for too long, the socket fails. One that was told to go away
//! is closed only when its client has done so or is silent: a socket that is closed with something unread is reset, and the end
//! of the last answer with it. One that is closed in an answer that only its end would end is reset, since its client could not
//! tell half of it from the whole.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;

/// A client that was told to go away, and has all that we have to say, has this long to close or to send something.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read at a time only to be forgotten.
const FORGOTTEN_BYTES: usize = 1024;

/// What an HTTP/2 client sends first (<https://www.rfc-editor.org/rfc/rfc9113#section-3.4>).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// See the module.
pub struct ClientIo<S> {
    inner: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    blocked: Option<Pin<Box<Sleep>>>,
    /// As much of [`HTTP2_PREFACE`] as has come, while nothing else has.
    preface: Option<usize>,
    is_shut: bool,
    lingering: Option<Pin<Box<Sleep>>>,
    /// Has the socket reset when it is closed.
    reset: fn(&S) -> io::Result<()>,
}

impl<S> ClientIo<S> {
    /// Watches `inner`; a write that makes no progress for `write_timeout` fails.
    pub fn new(inner: S, activity: Arc<Activity>, write_timeout: Duration, reset: fn(&S) -> io::Result<()>) -> Self {
        Self { inner, activity, write_timeout, blocked: None, preface: Some(0), is_shut: false, lingering: None, reset }
    }

    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.blocked.take().is_some() {
                self.activity.blocked(false);
            }
            return written;
        }
        let timeout = self.write_timeout;
        if self.blocked.is_none() {
            self.activity.blocked(true);
        }
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match blocked.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        self.activity.received();
        let Some(known) = self.preface else { return };
        let rest = &HTTP2_PREFACE[known..];
        let same = bytes.iter().zip(rest).take_while(|(a, b)| a == b).count();
        self.preface = (same == bytes.len().min(rest.len()) && same < rest.len()).then_some(known + same);
        if same == rest.len() {
            self.activity.speaks_http2();
        }
    }
}

impl<S: AsyncRead + Unpin> ClientIo<S> {
    /// Reads and forgets until the client closes or sends nothing for [`LINGER`].
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut forgotten = [0; FORGOTTEN_BYTES];
        loop {
            let mut buf = ReadBuf::new(&mut forgotten);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.activity.forgot();
                    self.lingering = None;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER))).as_mut().poll(cx),
            }
        }
    }
}

impl<S> Drop for ClientIo<S> {
    fn drop(&mut self) {
        if self.activity.resets()
            && let Err(error) = (self.reset)(&self.inner)
        {
            tracing::debug!(%error, "a connection whose answer broke off could not be reset");
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.received(&buf.filled()[before..]);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
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
        if !self.is_shut {
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        if self.activity.lingers() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_nothing_fails_and_a_slow_one_does_not() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut io = ClientIo::new(server, Activity::new(), 10 * SECOND, |_| Ok(()));
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
    async fn who_was_told_to_go_away_is_read_until_it_closes_or_is_silent() {
        for closes in [true, false] {
            let (mut client, server) = tokio::io::duplex(64);
            let activity = Activity::new();
            let mut io = ClientIo::new(server, Arc::clone(&activity), 10 * SECOND, |_| Ok(()));
            activity.linger();
            let started = Instant::now();
            let sends = tokio::spawn(async move {
                for _ in 0..100 {
                    client.write_all(&[0; 64]).await.expect("somebody reads");
                    tokio::time::sleep(SECOND / 20).await;
                }
                if !closes {
                    tokio::time::sleep(10 * SECOND).await;
                }
            });
            io.shutdown().await.expect("in good order");
            let most = if closes { 5 * SECOND } else { 5 * SECOND + LINGER };
            assert!(started.elapsed() >= most - SECOND / 10 && started.elapsed() <= most + SECOND / 10, "{:?}", started.elapsed());
            sends.abort();
        }
    }

    #[tokio::test]
    async fn the_preface_of_http2_is_known_however_it_comes() {
        for at in [1, 10, HTTP2_PREFACE.len() - 1, HTTP2_PREFACE.len()] {
            let (mut client, server) = tokio::io::duplex(64);
            let activity = Activity::new();
            let mut io = ClientIo::new(server, Arc::clone(&activity), SECOND, |_| Ok(()));
            let mut buffer = [0; 64];
            let (first, second) = HTTP2_PREFACE.split_at(at);
            for bytes in [first, &[second, b"more"].concat()] {
                client.write_all(bytes).await.expect("room");
                let _ = io.read(&mut buffer).await.expect("there");
            }
            tokio::time::timeout(SECOND, activity.http2()).await.expect("known");
        }
        let (mut client, server) = tokio::io::duplex(64);
        let activity = Activity::new();
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nS?\r\n\r\nSM\r\n\r\n").await.expect("room");
        let _ = ClientIo::new(server, Arc::clone(&activity), SECOND, |_| Ok(())).read(&mut [0; 64]).await.expect("there");
        drop(activity.begin());
        activity.received();
        assert!(activity.owes_head(), "it is not HTTP/2");
    }

    #[tokio::test]
    async fn a_socket_is_reset_only_within_an_answer_that_nothing_else_ends() {
        for (begun, ended) in [(false, false), (true, false), (true, true)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let mut client = tokio::net::TcpStream::connect(listener.local_addr().expect("bound")).await.expect("listens");
            let (server, _) = listener.accept().await.expect("asked");
            let activity = Activity::new();
            let mut io = ClientIo::new(server, Arc::clone(&activity), SECOND, tokio::net::TcpStream::set_zero_linger);
            let request = activity.begin();
            if begun {
                request.ends_with_its_connection();
            }
            io.write_all(b"half").await.expect("taken");
            if ended {
                request.ended();
            }
            drop((request, io));
            let read = client.read_to_end(&mut Vec::new()).await;
            let is_reset = read.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
            assert_eq!(is_reset, begun && !ended);
        }
    }
}
