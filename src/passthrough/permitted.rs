//! The body of a backend's answer on its way to the client. It carries the permit of its request and gives it back with the
//! last byte, while the client stalls (then it takes one again before it asks the backend for more), or for good once it has
//! waited for the backend beyond `attempt_timeout`: what lasts must not keep others from being answered. A backend that sends
//! nothing for too long breaks it. Either is the backend's doing, and its breaker is told; what a client does is not. What moves
//! is data, and of an answer that is no failure.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::backend::breaker::Cause;
use crate::backend::limited::{Lane, Permit};
use crate::backend::{Backend, Body, BoxError, is_well};
use crate::stall::{StallWatch, Watch};

/// A client that has taken nothing for this long gives its request's permit back.
const STALL: Duration = Duration::from_secs(1);

/// See the module.
pub struct Permitted {
    inner: Body,
    backend: Arc<Backend>,
    /// Whether it takes a permit: answers to uploads do not, nor what has waited for long.
    counted: bool,
    /// Whether its bytes show that the backend works.
    moves: bool,
    /// The answer is a write's, and what is in it says whether it was done: broken, it leaves that open.
    unknown_if_broken: bool,
    permit: Arc<Mutex<Option<Permit>>>,
    acquiring: Option<BoxFuture<'static, Permit>>,
    /// When the permit goes back for good; there once the backend has been waited for.
    turn_ends: Option<Pin<Box<Sleep>>>,
    begun: Instant,
    watch: Watch,
    /// There once the backend has been waited for.
    timeout: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Permitted {
    /// Wraps `inner`, the body of an answer with `status`, which waits for `backend` with its `permit`, or never with one.
    pub fn new(
        inner: Body,
        status: StatusCode,
        backend: Arc<Backend>,
        permit: Option<Permit>,
        unknown_if_broken: bool,
        stalls: &Arc<StallWatch>,
    ) -> Self {
        let moves = is_well(status);
        let counted = permit.is_some();
        let permit = Arc::new(Mutex::new(permit));
        let given_back = Arc::clone(&permit);
        let watch = stalls.watch(STALL, move || drop(lock(&given_back).take()));
        Self {
            inner,
            backend,
            counted,
            moves,
            unknown_if_broken,
            permit,
            acquiring: None,
            turn_ends: None,
            begun: Instant::now(),
            watch,
            timeout: None,
            waiting: false,
        }
    }

    /// Gives the permit back for good when its time is up.
    fn poll_turn(&mut self, cx: &mut Context<'_>) {
        if !self.counted {
            return;
        }
        let until = self.begun + self.backend.attempt_timeout;
        if self.turn_ends.get_or_insert_with(|| Box::pin(sleep_until(until))).as_mut().poll(cx).is_ready() {
            self.counted = false;
            drop(lock(&self.permit).take());
        }
    }

    /// The backend broke the body.
    fn broken(&self, error: BoxError, cause: Cause) -> BoxError {
        self.backend.breaker.body_failed(cause);
        if !self.unknown_if_broken {
            return error;
        }
        self.backend.metrics.unknown_outcomes.inc();
        tracing::warn!(backend = self.backend.name, %error, "the answer to a write broke off; its outcome is unknown");
        format!("the outcome of a write is unknown: {error}").into()
    }

    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.acquiring.is_none() {
            if !self.counted || lock(&self.permit).is_some() {
                return Poll::Ready(());
            }
            let limiter = Arc::clone(&self.backend.limiter);
            self.acquiring = Some(Box::pin(async move { limiter.acquire(Lane::PLAIN, 0).await }));
        }
        let acquiring = self.acquiring.as_mut().expect("just made");
        let permit = ready!(acquiring.as_mut().poll(cx));
        self.acquiring = None;
        *lock(&self.permit) = Some(permit);
        Poll::Ready(())
    }
}

fn lock(permit: &Mutex<Option<Permit>>) -> MutexGuard<'_, Option<Permit>> {
    permit.lock().expect("no code panics while it holds the lock")
}

impl http_body::Body for Permitted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.watch.asked();
        ready!(self.poll_permit(cx));
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.waiting = false;
                self.watch.given();
                let frame = frame.map(|frame| frame.map_err(|error| self.broken(error, Cause::NoAnswer)));
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
                if self.moves && data.is_some_and(|data| !data.is_empty()) {
                    self.backend.moved();
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                self.poll_turn(cx);
                let response_timeout = self.backend.response_timeout;
                let waits_already = std::mem::replace(&mut self.waiting, true);
                let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep(response_timeout)));
                if !waits_already {
                    timeout.as_mut().reset(Instant::now() + response_timeout);
                }
                ready!(timeout.as_mut().poll(cx));
                Poll::Ready(Some(Err(self.broken("the backend sent nothing for response_timeout".into(), Cause::TimedOut))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
