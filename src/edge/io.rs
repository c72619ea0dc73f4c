//! A client's socket with two clocks: since when it has been sending the head of a request, for whoever supervises the
//! connection, and how long it has not taken what we write, after which the socket fails. One that was told to go away is closed
//! only when its client has done so or is silent: a socket that is closed with something unread is reset, and the end of the
//! last answer with it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// A client that was told to go away, and has all that we have to say, has this long to close or to send something.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read at a time only to be forgotten.
const FORGOTTEN_BYTES: usize = 1024;

/// What a connection is doing, shared by its socket, its requests, its supervisor and whoever wants its place.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug)]
struct State {
    in_flight: usize,
    since: Since,
    told_to_close: bool,
    lingers: bool,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// Part of a head has come, or it is owed because the connection is new.
    Head(Instant),
    /// Nothing has come since the last answer.
    Idle(Instant),
}

impl State {
    fn idle_since(&self) -> Option<Instant> {
        let (Since::Head(since) | Since::Idle(since)) = self.since;
        (self.in_flight == 0).then_some(since)
    }
}

impl Activity {
    /// A new connection owes a head.
    pub fn new() -> Arc<Self> {
        let state = State { in_flight: 0, since: Since::Head(Instant::now()), told_to_close: false, lingers: false };
        Arc::new(Self { state: Mutex::new(state), told: Notify::new() })
    }

    /// A head has come whole.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        state.in_flight += 1;
        state.told_to_close = false;
        UnderWay(Arc::clone(self))
    }

    fn end(&self) {
        let mut state = self.state();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.since = Since::Idle(Instant::now());
        }
    }

    fn received(&self) {
        let mut state = self.state();
        if state.in_flight == 0 && matches!(state.since, Since::Idle(_)) {
            state.since = Since::Head(Instant::now());
            // The request that has just begun is not to be cut.
            state.told_to_close = false;
        }
    }

    /// From now on the client may be sending what we will not read, since it was told to go away in the middle.
    pub fn linger(&self) {
        self.state().lingers = true;
    }

    fn lingers(&self) -> bool {
        self.state().lingers
    }

    fn forgot(&self) {
        self.state().since = Since::Idle(Instant::now());
    }

    /// Why the connection should end now, if it should.
    pub fn overdue(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<&'static str> {
        let state = self.state();
        if state.in_flight > 0 {
            return None;
        }
        match state.since {
            Since::Head(since) => (since.elapsed() >= header_timeout).then_some("header_timeout"),
            Since::Idle(since) => (since.elapsed() >= idle_timeout).then_some("idle"),
        }
    }

    /// Part of a head has come, or is owed, and nothing else is under way.
    pub fn owes_head(&self) -> bool {
        let state = self.state();
        state.in_flight == 0 && matches!(state.since, Since::Head(_))
    }

    /// Since when no request is under way, if none is. A head that is not whole is none.
    pub fn idle_since(&self) -> Option<Instant> {
        self.state().idle_since()
    }

    /// Tells the connection to close, unless it has not been idle since `since`; says which. A request that begins before the
    /// connection heeds it takes the word back.
    pub fn tell_to_close(&self, since: Instant) -> bool {
        let mut state = self.state();
        if state.idle_since() != Some(since) || state.told_to_close {
            return false;
        }
        state.told_to_close = true;
        self.told.notify_one();
        true
    }

    /// Whether it was told to close, and nothing has begun since.
    pub fn is_told_to_close(&self) -> bool {
        self.state().told_to_close
    }

    /// Waits until the connection is told to close; whether that still holds must be asked.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// A request on a connection, until its answer has ended.
#[derive(Debug)]
pub struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// See the module.
pub struct ClientIo<S> {
    inner: S,
    activity: Arc<Activity>,
    write_timeout: Duration,
    blocked: Option<Pin<Box<Sleep>>>,
    is_shut: bool,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientIo<S> {
    /// Watches `inner`; a write that makes no progress for `write_timeout` fails.
    pub fn new(inner: S, activity: Arc<Activity>, write_timeout: Duration) -> Self {
        Self { inner, activity, write_timeout, blocked: None, is_shut: false, lingering: None }
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
    async fn who_was_told_to_go_away_is_read_until_it_closes_or_is_silent() {
        for closes in [true, false] {
            let (mut client, server) = tokio::io::duplex(64);
            let activity = Activity::new();
            let mut io = ClientIo::new(server, Arc::clone(&activity), 10 * SECOND);
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

    #[tokio::test(start_paused = true)]
    async fn a_head_is_owed_sooner_than_the_next_request() {
        let activity = Activity::new();
        let overdue = |a: &Activity| a.overdue(3 * SECOND, 6 * SECOND);
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"), "a new connection owes a head");
        let request = activity.begin();
        tokio::time::advance(60 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a request is under way");
        drop(request);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(overdue(&activity), None);
        activity.received();
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a head has begun to come");
        tokio::time::advance(SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"));
        drop(activity.begin());
        tokio::time::advance(6 * SECOND).await;
        assert_eq!(overdue(&activity), Some("idle"));
    }
}
