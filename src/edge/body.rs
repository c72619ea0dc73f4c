//! Bodies under watch. [`Owed`] is the client's: it may not let us wait for its bytes too long, nor drip them. [`Served`] is
//! ours: a client that takes nothing for too long has it dropped, and with it every fetch, permit, byte and slot behind it. It
//! lasts until its last byte was taken by the connection's socket, however long HTTP/1.1 or HTTP/2 keeps that back.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::access::AccessLine;
use super::activity::GivenUp;
use super::slots::Slot;
use crate::backend::{Body, BoxError};
use crate::error::{Budget, Error, Kind};
use crate::stall::{BreakOff, End, Holds, StallWatch, Watch};

/// The least that a client must send, in bytes a second of the time in which we wait for it. Less than a modem sends, and
/// enough that a request cannot be held open with next to nothing.
const PACE_MIN: u64 = 1024;

/// A request's body with two clocks that run while the client owes bytes: one from the last byte, one over the bytes that have
/// come while we waited for as long as `timeout` in all.
pub struct Owed<B> {
    inner: B,
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Since when nothing has come.
    silent_since: Option<Instant>,
    /// What of this silence belongs to the window.
    counted_from: Instant,
    /// Time waited in this window, before this silence.
    waited: Duration,
    /// Bytes that came in this window.
    bytes: u64,
    watched: Option<(Watch, Arc<Unwanted>)>,
    /// Is told that its end was seen.
    ended: Option<Arc<AtomicBool>>,
}

/// How a request is told that its place is wanted for another.
#[derive(Default)]
struct Unwanted {
    told: AtomicBool,
    waker: AtomicWaker,
}

impl<B> Owed<B> {
    /// Gives up when nothing comes for `timeout`, or too little in that much waiting.
    pub fn new(inner: B, timeout: Duration) -> Self {
        let counted_from = Instant::now();
        let waited = Duration::ZERO;
        Self { inner, timeout, sleep: None, silent_since: None, counted_from, waited, bytes: 0, watched: None, ended: None }
    }

    /// Sets `ended` once the end of the body was seen.
    pub(super) fn tells(&mut self, ended: &Arc<AtomicBool>) {
        self.ended = Some(Arc::clone(ended));
    }

    /// Lets somebody new have `slot` where the client is among the slowest: the body then fails.
    pub(super) fn makes_room(&mut self, stalls: &Arc<StallWatch>, slot: &Slot) {
        let (unwanted, slot) = (Arc::new(Unwanted::default()), slot.clone());
        let tell = Arc::clone(&unwanted);
        let watch = stalls.reader(Duration::MAX, Holds::Slot, move |_| {
            tell.told.store(true, Ordering::Release);
            tell.waker.wake();
            slot.give_back();
        });
        watch.asked();
        self.watched = Some((watch, unwanted));
    }

    fn bytes_min(&self) -> u64 {
        PACE_MIN.saturating_mul(self.timeout.as_millis() as u64) / 1000
    }

    /// Ends the window if we have waited long enough in it; says whether enough has come.
    fn keeps_pace(&mut self, now: Instant) -> bool {
        if self.waited + now.duration_since(self.counted_from) < self.timeout {
            return true;
        }
        let enough = self.bytes >= self.bytes_min();
        (self.waited, self.counted_from, self.bytes) = (Duration::ZERO, now, 0);
        enough
    }

    fn came(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some((watch, _)) = &self.watched {
            watch.moved(bytes);
            watch.asked();
        }
        if self.silent_since.take().is_some() {
            self.waited += self.counted_from.elapsed();
        }
    }
}

fn late(why: &'static str) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    Poll::Ready(Some(Err(Error::new(Kind::RequestTimeout, why).into())))
}

impl<B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin> http_body::Body for Owed<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some((_, unwanted)) = &self.watched {
            unwanted.waker.register(cx.waker());
            if unwanted.told.load(Ordering::Acquire) {
                let why = "the request's body came too slowly, and its place was wanted for another; try again shortly";
                return Poll::Ready(Some(Err(Error::refused(Budget::Requests, why).into())));
            }
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            self.came(data.map_or(0, |data| data.len() as u64));
            if self.inner.is_end_stream() || frame.is_none() {
                self.ended.iter().for_each(|ended| ended.store(true, Ordering::Relaxed));
            }
            if self.inner.is_end_stream() || !matches!(frame, Some(Ok(_))) {
                self.watched = None;
            }
            return Poll::Ready(frame);
        }
        let (now, timeout) = (Instant::now(), self.timeout);
        if self.silent_since.is_none() {
            (self.silent_since, self.counted_from) = (Some(now), now);
            self.watched.iter().for_each(|(watch, _)| watch.given());
        }
        loop {
            let now = Instant::now();
            let silent_since = self.silent_since.expect("just set");
            if now.duration_since(silent_since) >= timeout {
                return late("the rest of the request's body did not come in time: nothing came for server.body_idle_timeout");
            }
            if !self.keeps_pace(now) {
                return late("the request's body came too slowly: less than 1 KiB a second over server.body_idle_timeout");
            }
            let at = (silent_since + timeout).min(self.counted_from + (timeout - self.waited));
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(timeout)));
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            ready!(sleep.as_mut().poll(cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body, until its last byte was taken or until the client has stalled too long.
pub struct Served(Arc<Owing>);

/// What hyper and the HTTP/2 of it hold of an answer until the client's socket has taken it.
pub struct Piece {
    bytes: Bytes,
    len: usize,
    owing: Arc<Owing>,
}

/// What is shared by an answer's body and all that was handed out of it: while one is left, the client is owed something.
struct Owing {
    answer: Arc<Mutex<Answer>>,
    watch: Watch,
}

#[derive(Default)]
struct Answer {
    live: Option<Live>,
    given_up: Option<GivenUp>,
}

/// What goes when the answer ends, however it does: the body with all behind it, and the request's line and slot.
struct Live {
    /// Nothing once all of it was handed out.
    body: Option<Body>,
    line: AccessLine,
    ended: bool,
    torn: bool,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.line.whole = self.ended && !self.torn;
        if self.line.whole && self.line.cut.is_none() {
            self.line.under_way.ended();
        }
    }
}

impl Served {
    /// Watches over `body`. `cut` ends the connection of a client that has stalled: on HTTP/1.1 there is no other way to
    /// break an answer that nobody reads; on HTTP/2 the stream ends in an error when its window next opens, and until then
    /// the connection is known to hold something that was given up.
    pub(super) fn new(
        body: Body,
        line: AccessLine,
        stalls: &Arc<StallWatch>,
        after: Duration,
        cut: Option<CancellationToken>,
        batch: Option<BreakOff>,
    ) -> Self {
        // hyper never asks for the end of a body that has none.
        let ended = http_body::Body::is_end_stream(&body);
        let metrics = Arc::clone(&line.metrics);
        let live = Some(Live { body: Some(body), line, ended, torn: false });
        let answer = Arc::new(Mutex::new(Answer { live, given_up: None }));
        let dropped = Arc::clone(&answer);
        let watch = stalls.reader(after, batch.map_or(Holds::Slot, Holds::Batch), move |end| {
            let Some(mut live) = lock(&dropped).live.take() else { return };
            let why = match end {
                End::Stalled => "client_stall",
                End::MakesRoom => "broken_off",
            };
            live.line.cut = Some(why);
            lock(&dropped).given_up = Some(live.line.under_way.give_up());
            drop(live);
            metrics.connections_cut_total.with_label_values(&[why]).inc();
            if let Some(cut) = &cut {
                cut.cancel();
            }
        });
        Self(Arc::new(Owing { answer, watch }))
    }
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    answer.lock().expect("no code panics while it holds the lock")
}

impl http_body::Body for Served {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        let owing = &self.0;
        owing.watch.asked();
        let mut answer = lock(&owing.answer);
        let Some(Live { body: Some(body), line, ended, .. }) = &mut answer.live else {
            return Poll::Ready(Some(Err("the client took nothing for too long".into())));
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        owing.watch.given();
        if let Some(Err(error)) = &frame {
            tracing::debug!(request.id = %line.id, %error, "answer broke");
        }
        *ended |= frame.is_none() || (body.is_end_stream() && !matches!(frame, Some(Err(_))));
        let piece = |bytes: Bytes| Piece { len: bytes.len(), bytes, owing: Arc::clone(owing) };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0.answer).live.as_ref().is_some_and(|live| live.body.as_ref().is_none_or(Body::is_end_stream))
    }

    fn size_hint(&self) -> SizeHint {
        let answer = lock(&self.0.answer);
        answer.live.as_ref().and_then(|live| live.body.as_ref()).map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let body = lock(&self.0.answer).live.as_mut().and_then(|live| live.body.take());
        drop(body);
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.owing.watch.moved(count as u64);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(live) = &mut lock(&self.owing.answer).live {
            live.line.bytes += (self.len - self.bytes.len()) as u64;
            live.torn |= !self.bytes.is_empty();
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
