//! When something of a request was last sent on, and whose turn it is since. In goes a request's body, out comes the same body under
//! watch, and a view of it for whoever waits for the answer. Invariant: time in which the client owes bytes is not the store's.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::backend::{Body, BoxError};

/// See the module.
#[derive(Clone)]
pub struct Sent(Arc<Mutex<State>>);

struct State {
    at: Instant,
    /// The body was asked for more, and the client has not sent it yet.
    client_owes: bool,
}

impl Sent {
    /// A request without a body, which is sent now.
    pub fn whole() -> Self {
        Self(Arc::new(Mutex::new(State { at: Instant::now(), client_owes: false })))
    }

    /// A request with a body, and the body to send.
    pub fn watched(body: Body) -> (Self, Body) {
        let sent = Self::whole();
        let watched = Watched { inner: body, sent: sent.clone() };
        (sent, Body::new(watched))
    }

    /// Since when the store owes something: not before now while the client does.
    pub fn last(&self) -> Instant {
        let state = self.lock();
        if state.client_owes { Instant::now() } else { state.at }
    }

    fn note(&self, client_owes: bool) {
        *self.lock() = State { at: Instant::now(), client_owes };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("setting a time does not panic")
    }
}

struct Watched {
    inner: Body,
    sent: Sent,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        self.sent.note(polled.is_pending());
        Poll::Ready(ready!(polled))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
