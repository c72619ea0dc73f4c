//! Bodies under watch. [`Owed`] is the client's: it may not let us wait for its bytes too long, nor drip them. [`Served`] is
//! ours: a client that takes nothing for too long has it dropped, and with it every fetch, permit, byte and slot behind it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::access::AccessLine;
use crate::backend::{Body, BoxError};
use crate::error::{Error, Kind};
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
}

impl<B> Owed<B> {
    /// Gives up when nothing comes for `timeout`, or too little in that much waiting.
    pub fn new(inner: B, timeout: Duration) -> Self {
        let counted_from = Instant::now();
        Self { inner, timeout, sleep: None, silent_since: None, counted_from, waited: Duration::ZERO, bytes: 0 }
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
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            self.came(data.map_or(0, |data| data.len() as u64));
            return Poll::Ready(frame);
        }
        let (now, timeout) = (Instant::now(), self.timeout);
        if self.silent_since.is_none() {
            (self.silent_since, self.counted_from) = (Some(now), now);
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

/// An answer's body, until its last byte or until the client has stalled too long.
pub struct Served {
    live: Arc<Mutex<Option<Live>>>,
    watch: Watch,
}

/// What goes when the answer ends, however it does: the body with all behind it, and the request's line and slot.
struct Live {
    body: Body,
    line: AccessLine,
}

impl Served {
    /// Watches over `body`. `cut` ends the connection of a client that has stalled: on HTTP/1.1 there is no other way to
    /// break an answer that nobody reads; on HTTP/2 the stream ends in an error when its window next opens, and a connection
    /// all of whose streams were given up counts as idle.
    pub fn new(
        body: Body,
        mut line: AccessLine,
        stalls: &Arc<StallWatch>,
        after: Duration,
        cut: Option<CancellationToken>,
        batch: Option<BreakOff>,
    ) -> Self {
        // hyper never asks for the end of a body that has none.
        line.whole = http_body::Body::is_end_stream(&body);
        let cuts = line.metrics.connections_cut_total.clone();
        let live = Arc::new(Mutex::new(Some(Live { body, line })));
        let dropped = Arc::clone(&live);
        let watch = stalls.reader(after, batch.map_or(Holds::Slot, Holds::Batch), move |end| {
            let Some(mut live) = lock(&dropped).take() else { return };
            let why = match end {
                End::Stalled => "client_stall",
                End::MakesRoom => "broken_off",
            };
            live.line.cut = Some(why);
            drop(live);
            cuts.with_label_values(&[why]).inc();
            if let Some(cut) = &cut {
                cut.cancel();
            }
        });
        Self { live, watch }
    }
}

fn lock(live: &Mutex<Option<Live>>) -> MutexGuard<'_, Option<Live>> {
    live.lock().expect("no code panics while it holds the lock")
}

impl http_body::Body for Served {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.watch.asked();
        let mut live = lock(&self.live);
        let Some(Live { body, line }) = &mut *live else {
            return Poll::Ready(Some(Err("the client took nothing for too long".into())));
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        self.watch.given();
        match &frame {
            Some(Ok(frame)) => line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => tracing::debug!(request.id = %line.id, %error, "answer broke"),
            None => line.whole = true,
        }
        line.whole |= body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.live).as_ref().is_some_and(|live| live.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.live).as_ref().map(|live| live.body.size_hint()).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
