//! The body of a backend's answer on its way to the client. It carries the permit of its request and gives it back with the
//! last byte, or while the client stalls; then it takes one again before it asks the backend for more. A backend that sends
//! nothing for too long breaks it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::backend::limited::{Lane, Permit};
use crate::backend::{Backend, Body, BoxError};
use crate::stall::{StallWatch, Watch};

/// A client that has taken nothing for this long gives its request's permit back.
const STALL: Duration = Duration::from_secs(1);

/// See the module.
pub struct Permitted {
    inner: Body,
    backend: Arc<Backend>,
    /// Whether there was a permit to begin with: answers to uploads have none.
    counted: bool,
    permit: Arc<Mutex<Option<Permit>>>,
    acquiring: Option<BoxFuture<'static, Permit>>,
    watch: Watch,
    timeout: Pin<Box<Sleep>>,
    waiting: bool,
}

impl Permitted {
    /// Wraps `inner`, which waits for `backend` under `permit`.
    pub fn new(inner: Body, backend: Arc<Backend>, permit: Option<Permit>, stalls: &Arc<StallWatch>) -> Self {
        let counted = permit.is_some();
        let permit = Arc::new(Mutex::new(permit));
        let given_back = Arc::clone(&permit);
        let watch = stalls.watch(STALL, move || drop(lock(&given_back).take()));
        let timeout = Box::pin(sleep(backend.response_timeout));
        Self { inner, backend, counted, permit, acquiring: None, watch, timeout, waiting: false }
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
                self.backend.moved();
                self.watch.given();
                Poll::Ready(frame)
            }
            Poll::Pending => {
                if !self.waiting {
                    self.waiting = true;
                    let at = Instant::now() + self.backend.response_timeout;
                    self.timeout.as_mut().reset(at);
                }
                ready!(self.timeout.as_mut().poll(cx));
                Poll::Ready(Some(Err("the backend sent nothing for response_timeout".into())))
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
