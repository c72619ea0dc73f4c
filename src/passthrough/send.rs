//! How a request goes to its backend: a GET or HEAD until it is answered, anything else once. In comes the request as the store
//! is to get it, out goes the store's answer, whatever its status, or what the client is told for want of one.
//!
//! Invariant: what may have an effect, or has a body, is given to the store at most once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri};
use http_body_util::BodyExt;
use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::outcome::Unanswered;
use super::permitted::Permitted;
use super::{Ask, Passthrough, Route, upload};
use crate::auth::Verdict;
use crate::backend::limited::{Lane, Permit};
use crate::backend::{Attempt, Backend, BackendErrorKind, Body, BoxError, Elsewhere, empty_body};
use crate::error::{Error, Kind, Result};

/// How often a GET or HEAD without an answer is sent again.
const RETRIES_MAX: u32 = 2;

impl Passthrough {
    /// Sends the request: what has no effect and no body as often as need be, anything else once. The permit waits inside the
    /// answer's body.
    pub(super) async fn send(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<Response<Body>> {
        let safe = ask.head.method.is_safe() && http_body::Body::is_end_stream(&body);
        let (answer, permit) = match safe {
            true => self.send_safe(ask, route, headers).await?,
            false => self.send_once(ask, route, headers, body, verdict).await?,
        };
        if let Some(failure) = verdict.failure() {
            return Err(failure.into());
        }
        let backend = &route.backend;
        let response = answer.map_err(|error| unanswered(Unanswered::of(error, ask.head), backend))?;
        backend.limiter.judge(response.status());
        let unknown_if_broken = !ask.head.method.is_safe() && response.status().is_success();
        Ok(response.map(|body| self.permitted(body, backend, permit, unknown_if_broken)))
    }

    /// Sends a GET or HEAD until it is answered, elsewhere each further time, all in `response_timeout`. What is an answer is the
    /// store's to say: a status, whichever it is, goes to the client.
    async fn send_safe(&self, ask: &Ask<'_>, route: &Route, headers: HeaderMap) -> Result<(Attempt, Option<Permit>)> {
        let backend = &route.backend;
        let mut permit = self.permit(backend).await?;
        let until = Instant::now() + backend.response_timeout;
        let mut failures = 0;
        loop {
            let mut request = request(ask, route, headers.clone(), empty_body());
            if failures > 0 {
                request.extensions_mut().insert(Elsewhere);
            }
            let late = |_| unanswered(Unanswered::late(ask.head), backend);
            let answer = timeout_at(until, backend.store.forward(request)).await.map_err(late)?;
            let passes = |kind: BackendErrorKind| matches!(kind, BackendErrorKind::Unreachable | BackendErrorKind::NoAnswer);
            match answer {
                Err(error) if failures < RETRIES_MAX && passes(error.kind) => {
                    drop(permit);
                    tracing::debug!(backend = backend.name, %error, "sent again");
                    sleep(self.pause(backend, failures)).await;
                    failures += 1;
                    backend.metrics.retries.inc();
                    permit = match timeout_at(until, backend.limiter.acquire(Lane::PLAIN, 0)).await {
                        Ok(permit) => permit,
                        Err(_) => return Ok((Err(error), None)),
                    };
                }
                answer => return Ok((answer, Some(permit))),
            }
        }
    }

    fn pause(&self, backend: &Backend, failures: u32) -> Duration {
        let (base, max) = self.backoff;
        base.saturating_mul(1 << failures).min(max).mul_f64(backend.random().random::<f64>())
    }

    /// Sends a write, once.
    async fn send_once(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<(Attempt, Option<Permit>)> {
        let backend = &route.backend;
        let moved = Moved::default();
        let (permit, body) = if http_body::Body::is_end_stream(&body) {
            let permit = self.permit(backend).await?;
            moved.now();
            (Some(permit), body)
        } else {
            // An upload waits for its client, not for the store, and so takes no permit; requests_max bounds it. The store
            // may take its time only once it has the whole request.
            let noting = moved.clone();
            let noted = upload::begun(body).await.map_err(|error| refused(verdict, error))?.map_frame(move |frame| {
                noting.now();
                frame
            });
            (None, Body::new(noted))
        };
        let mut attempt = backend.store.forward(request(ask, route, headers, body));
        loop {
            let last = moved.last();
            tokio::select! {
                answer = &mut attempt => return Ok((answer, permit)),
                () = sleep_until(last + backend.response_timeout) => {
                    if moved.last() == last {
                        return Err(unanswered(Unanswered::late(ask.head), backend));
                    }
                }
            }
        }
    }

    fn permitted(&self, body: Body, backend: &Arc<Backend>, permit: Option<Permit>, unknown_if_broken: bool) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        Body::new(Permitted::new(body, Arc::clone(backend), permit, unknown_if_broken, &self.stalls))
    }

    async fn permit(&self, backend: &Arc<Backend>) -> Result<Permit> {
        let acquired = timeout(backend.response_timeout, backend.limiter.acquire(Lane::PLAIN, 0)).await;
        acquired.map_err(|_| Error::new(Kind::SlowDown, "the store is busy; try again shortly"))
    }
}

/// The request as the store gets it, but for host and signature.
fn request(ask: &Ask<'_>, route: &Route, headers: HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = ask.head.method.clone();
    *request.uri_mut() = Uri::from(route.path.clone());
    *request.headers_mut() = headers;
    request
}

/// The error for the client; the edge logs it with the request's id.
fn unanswered(unanswered: Unanswered, backend: &Backend) -> Error {
    if unanswered.unknown {
        backend.metrics.unknown_outcomes.inc();
    }
    unanswered.error
}

/// Why a body broke off: what its verification found, or else what the client did.
fn refused(verdict: &Verdict, error: BoxError) -> Error {
    let broken = || Error::new(Kind::IncompleteBody, "the body did not arrive whole").with_source(error);
    verdict.failure().map_or_else(broken, Error::from)
}

/// When something of a request was last sent on.
#[derive(Clone)]
struct Moved(Arc<Mutex<Instant>>);

impl Default for Moved {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Moved {
    fn last(&self) -> Instant {
        *self.0.lock().expect("reading a time does not panic")
    }

    fn now(&self) {
        *self.0.lock().expect("setting a time does not panic") = Instant::now();
    }
}
