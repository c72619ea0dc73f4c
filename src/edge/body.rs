//! Bodies under watch. [`Owed`] is the client's: it may not let us wait for its bytes too long. [`Served`] is ours: a client
//! that takes nothing for too long has it dropped, and with it every fetch, permit and byte behind it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::AccessLine;
use crate::backend::{Body, BoxError};
use crate::error::{Error, Kind};
use crate::stall::{StallWatch, Watch};

/// A request's body with a clock that runs while the client owes bytes.
pub struct Owed<B> {
    inner: B,
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<B> Owed<B> {
    /// Gives up when nothing comes for `timeout`.
    pub fn new(inner: B, timeout: Duration) -> Self {
        Self { inner, timeout, sleep: None, waiting: false }
    }
}

impl<B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin> http_body::Body for Owed<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.waiting = false;
            return Poll::Ready(frame);
        }
        let timeout = self.timeout;
        let waiting = std::mem::replace(&mut self.waiting, true);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if !waiting {
            sleep.as_mut().reset(Instant::now() + timeout);
        }
        ready!(sleep.as_mut().poll(cx));
        let error = Error::new(Kind::RequestTimeout, "the rest of the request's body did not come in time");
        Poll::Ready(Some(Err(error.into())))
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
    inner: Arc<Mutex<Option<Body>>>,
    watch: Watch,
    line: AccessLine,
}

impl Served {
    /// Watches over `inner`. `cut` ends the connection of a client that has stalled: on HTTP/1.1 there is no other way to
    /// break an answer that nobody reads; on HTTP/2 the stream ends in an error when its window next opens.
    pub fn new(
        inner: Body,
        mut line: AccessLine,
        stalls: &Arc<StallWatch>,
        after: Duration,
        cut: Option<CancellationToken>,
    ) -> Self {
        // hyper never asks for the end of a body that has none.
        line.whole = http_body::Body::is_end_stream(&inner);
        let inner = Arc::new(Mutex::new(Some(inner)));
        let dropped = Arc::clone(&inner);
        let cuts = line.metrics.connections_cut_total.with_label_values(&["client_stall"]);
        let watch = stalls.watch(after, move || {
            let body = lock(&dropped).take();
            drop(body);
            cuts.inc();
            if let Some(cut) = &cut {
                cut.cancel();
            }
        });
        Self { inner, watch, line }
    }
}

fn lock(body: &Mutex<Option<Body>>) -> MutexGuard<'_, Option<Body>> {
    body.lock().expect("no code panics while it holds the lock")
}

impl http_body::Body for Served {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.watch.asked();
        let frame = match &mut *lock(&self.inner) {
            Some(body) => ready!(Pin::new(body).poll_frame(cx)),
            None => Some(Err("the client took nothing for client_stall".into())),
        };
        self.watch.given();
        match &frame {
            Some(Ok(frame)) => self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => tracing::debug!(request.id = %self.line.id, %error, "answer broke"),
            None => self.line.whole = true,
        }
        self.line.whole |= self.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.inner).as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.inner).as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
