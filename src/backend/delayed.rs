//! A store that is further away than it is: a decorator that waits before each request goes to the store below it. For trying
//! what a remote store would be like. What enters and what leaves is the store's own; nothing is held while it waits.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Request;
use http::uri::PathAndQuery;

use super::{Attempt, Body, Forward, ObjectRead, ReadAsk};

/// `inner`, each request to it after a wait of `latency`.
pub struct Delayed<S> {
    /// Whoever answers.
    pub inner: S,
    /// How long each request waits.
    pub latency: Duration,
}

impl<S: ObjectRead> ObjectRead for Delayed<S> {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        Box::pin(async move {
            tokio::time::sleep(self.latency).await;
            self.inner.read(ask).await
        })
    }
}

impl<S: Forward> Forward for Delayed<S> {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        Box::pin(async move {
            tokio::time::sleep(self.latency).await;
            self.inner.forward(request).await
        })
    }

    fn region_to_make(&self, path: &PathAndQuery) -> Option<String> {
        self.inner.region_to_make(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::empty_body;
    use http::Response;
    use tokio::time::Instant;

    struct AtOnce;

    impl Forward for AtOnce {
        fn forward(&self, _: Request<Body>) -> BoxFuture<'_, Attempt> {
            Box::pin(async { Ok(Response::new(empty_body())) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_side_by_side() {
        let store = Delayed { inner: AtOnce, latency: Duration::from_millis(5) };
        let started = Instant::now();
        let many = (0..100).map(|_| store.forward(Request::new(empty_body())));
        let answers = futures_util::future::join_all(many).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(started.elapsed().as_millis(), 5);
    }
}
