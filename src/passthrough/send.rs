//! How a request goes to its backend: a GET or HEAD until it is answered, anything else once. In comes the request as the store
//! is to get it, out goes the store's answer, whatever its status, or what the client is told for want of one. The backend's
//! breaker is asked first, and told what came of it. A request without a head for `attempt_timeout` goes on, but without its permit.
//!
//! Invariant: what may have an effect, or has a body, is given to the store at most once; what the store only told another place
//! for was not done, and does not count. A body that was sent on is gone: its client is told to send it again.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri};
use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::outcome::Unanswered;
use super::permitted::Permitted;
use super::refusal::read_refusal;
use super::sent::Sent;
use super::{Ask, Passthrough, Route, upload};
use crate::auth::Verdict;
use crate::backend::breaker::{Cause, Open, Pass, Target};
use crate::backend::limited::{Lane, Overloaded, Permit, Serving};
use crate::backend::retry_budget::Retry;
use crate::backend::{
    Asked, Backend, BackendError, BackendErrorKind, Body, BoxError, Elsewhere, Heard, Sender, Taught, empty_body,
};
use crate::error::{Budget, Error, Kind, Result};

/// How often a GET or HEAD without an answer is sent again.
const RETRIES_MAX: u32 = 2;

/// How long a retry that the budget refuses waits before it asks once more: part of a new second is there then.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// An answer, with the leave that its request had, unless it came too late: what it says of the backend is not told yet. Or none,
/// which is.
type Answer = std::result::Result<(Response<Body>, Option<Pass>), BackendError>;

impl Passthrough {
    /// Sends the request: what has no effect and no body as often as need be, anything else once. The permit waits inside the
    /// answer's body. The request's line in the log, and errors, say which backend was asked.
    pub(super) async fn send(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<Response<Body>> {
        let name = &route.backend.name;
        if let Some(asked) = ask.head.extensions.get::<Asked>() {
            asked.note(name);
        }
        self.send_to(ask, route, headers, body, verdict).await.map_err(ask.of_backend(name))
    }

    async fn send_to(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<Response<Body>> {
        let method = &ask.head.method;
        let body = match method.is_safe() {
            true => upload::settled(body).await.map_err(|error| refused(verdict, error))?,
            false => body,
        };
        let has_body = !http_body::Body::is_end_stream(&body);
        let (answer, permit) = match method.is_safe() && !has_body {
            true => self.send_safe(ask, route, headers).await?,
            false => self.send_once(ask, route, headers, body, verdict).await?,
        };
        if let Some(failure) = verdict.failure() {
            return Err(failure.into());
        }
        let backend = &route.backend;
        let (response, pass) = answer.map_err(|error| Unanswered::of(error, ask.head).counted(backend))?;
        let status = response.status();
        let sender = ask.authenticated.sender(&backend.name);
        if status.is_success() && matches!(sender, Sender::Gateway) {
            backend.accepted.note();
        }
        if has_body && response.extensions().get::<Taught>().is_some() {
            backend.judge(pass, &Heard { method, status, code: None, is_whole: true });
            return Err(moved());
        }
        let unknown_if_broken = !method.is_safe() && status.is_success();
        let is_whole = http_body::Body::is_end_stream(response.body());
        let response = match is_whole {
            true => response,
            false => response.map(|body| {
                let stalls = &self.stalls;
                Body::new(Permitted::new(body, status, Arc::clone(backend), permit, unknown_if_broken, stalls))
            }),
        };
        if matches!(status.as_u16(), 400 | 403 | 503) {
            return read_refusal(response, ask.head, backend, &sender, pass).await;
        }
        backend.judge(pass, &Heard { method, status, code: None, is_whole });
        Ok(response)
    }

    /// Leave to send the request for the first time.
    fn admit(backend: &Backend, route: &Route) -> Result<Pass> {
        let pass = backend.breaker.admit(Target::of(route.path.as_str())).map_err(not_asked)?;
        backend.retries.deposit();
        Ok(pass)
    }

    /// Leave to send it again. Where the budget of retries refuses it, the client waits for `pause`, once.
    async fn admit_again(backend: &Backend, route: &Route, pause: Duration) -> Option<Pass> {
        for pause in [Duration::ZERO, pause] {
            sleep(pause).await;
            let pass = backend.breaker.admit(Target::of(route.path.as_str())).ok()?;
            if pass.is_probe() || backend.retries.withdraw(Retry::Early) {
                return Some(pass);
            }
        }
        None
    }

    /// Sends a GET or HEAD until it is answered, elsewhere each further time, all in `response_timeout`. What is an answer is the
    /// store's to say: a status, whichever it is, goes to the client.
    async fn send_safe(&self, ask: &Ask<'_>, route: &Route, headers: HeaderMap) -> Result<(Answer, Option<Permit>)> {
        let backend = &route.backend;
        let pass = Self::admit(backend, route)?;
        let mut permit = Some(self.permit(backend).await?);
        let mut pass = Some(pass.renewed().map_err(not_asked)?);
        let mut serving = permit.as_ref().map(Permit::serving);
        let until = Instant::now() + backend.response_timeout;
        let mut failures = 0;
        loop {
            let mut request = request(ask, route, headers.clone(), empty_body());
            if failures > 0 {
                request.extensions_mut().insert(Elsewhere);
            }
            let mut attempt = backend.store.forward(request);
            let patient_until = until.min(Instant::now() + backend.attempt_timeout);
            let mut answer = timeout_at(patient_until, &mut attempt).await;
            serving.take().map(Serving::answered).unwrap_or_default();
            if answer.is_err() {
                // It may come yet; but what hangs must not keep others from asking, nor the breaker from knowing.
                permit = None;
                pass.take().map(|pass| pass.overdue(failures > 0)).unwrap_or_default();
                answer = timeout_at(until, &mut attempt).await;
            }
            let Ok(answer) = answer else { return Err(late(ask, backend)) };
            let error = match answer {
                Ok(response) => return Ok((Ok((response, pass)), permit)),
                Err(error) => error,
            };
            // Not while it waits to be sent again.
            permit = None;
            pass.take().map(|pass| pass.unanswered(error.kind, failures > 0)).unwrap_or_default();
            if failures == RETRIES_MAX || !matches!(error.kind, BackendErrorKind::Unreachable | BackendErrorKind::NoAnswer) {
                return Ok((Err(error), permit));
            }
            sleep(self.pause(backend, failures)).await;
            failures += 1;
            let Some(leave) = Self::admit_again(backend, route, self.backoff.1.min(REFUSED_PAUSE)).await else {
                return Ok((Err(error), permit));
            };
            let Ok(next) = timeout_at(until, backend.limiter.acquire(Lane::PLAIN, 0)).await else {
                return Ok((Err(error), permit));
            };
            let Ok(leave) = leave.renewed() else { return Ok((Err(error), permit)) };
            tracing::debug!(backend = backend.name, %error, "sent again");
            backend.metrics.retries.inc();
            (permit, pass) = (Some(next), Some(leave));
        }
    }

    fn pause(&self, backend: &Backend, failures: u32) -> Duration {
        let (base, max) = self.backoff;
        base.saturating_mul(1 << failures).min(max).mul_f64(backend.random().random::<f64>())
    }

    /// Sends a write, or whatever has a body, once.
    async fn send_once(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<(Answer, Option<Permit>)> {
        let backend = &route.backend;
        let pass = Self::admit(backend, route)?;
        let is_end_stream = http_body::Body::is_end_stream(&body);
        let (mut permit, sent, body) = if is_end_stream {
            (Some(self.permit(backend).await?), Sent::whole(), body)
        } else {
            // An upload waits for its client, not for the store, and so takes no permit; requests_max bounds it. The store
            // may take its time only once it has the whole request.
            let (sent, body) = Sent::watched(upload::begun(body).await.map_err(|error| refused(verdict, error))?);
            (None, sent, body)
        };
        let pass = pass.renewed().map_err(not_asked)?;
        let mut serving = permit.as_ref().map(Permit::serving);
        let patient_until = Instant::now() + backend.attempt_timeout;
        let mut attempt = backend.store.forward(request(ask, route, headers, body));
        let answer = loop {
            let last = sent.last();
            tokio::select! {
                answer = &mut attempt => break Some(answer),
                // A copy may well take so long, so the breaker need not know; but others must not wait for it.
                () = sleep_until(patient_until), if permit.is_some() => {
                    permit = None;
                    serving.take().map(Serving::answered).unwrap_or_default();
                }
                () = sleep_until(last + backend.response_timeout) => {
                    if sent.last() == last {
                        break None;
                    }
                }
            }
        };
        serving.take().map(Serving::answered).unwrap_or_default();
        match answer {
            Some(Ok(response)) => Ok((Ok((response, Some(pass))), permit)),
            Some(Err(error)) => {
                pass.unanswered(error.kind, false);
                Ok((Err(error), permit))
            }
            None => {
                pass.failed(Cause::TimedOut, false);
                Err(late(ask, backend))
            }
        }
    }

    async fn permit(&self, backend: &Arc<Backend>) -> Result<Permit> {
        let busy = |Overloaded| Error::refused(Budget::Permits, "more is asked of the store than it can answer; try again shortly");
        timeout(backend.response_timeout, backend.limiter.admit()).await.unwrap_or(Err(Overloaded)).map_err(busy)
    }
}

/// The store did nothing but say where the bucket is, and what was sent cannot be sent again from here.
fn moved() -> Error {
    let message = "the store has the bucket at another place than it was asked at: nothing was done, and the gateway has learnt where \
                   it is; try again";
    Error::new(Kind::ServiceUnavailable, message)
}

/// The store did not answer in time; nothing else counts what was given up.
fn late(ask: &Ask<'_>, backend: &Backend) -> Error {
    backend.metrics.attempts_no_answer.inc();
    Unanswered::late(ask.head).counted(backend)
}

/// The request as the store gets it, but for host and signature.
fn request(ask: &Ask<'_>, route: &Route, headers: HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = ask.head.method.clone();
    *request.uri_mut() = Uri::from(route.path.clone());
    *request.headers_mut() = headers;
    request.extensions_mut().insert(ask.authenticated.sender(&route.backend.name));
    if let Some(form) = &route.form {
        request.extensions_mut().insert(form.clone());
    }
    request
}

/// The store is failing, and this request was not sent to it.
fn not_asked(_: Open) -> Error {
    let message = "the store is failing, so the gateway does not ask it for now: nothing was sent; try again shortly";
    Error::new(Kind::ServiceUnavailable, message)
}

/// Why a body broke off: what its verification found, or else what the client did.
fn refused(verdict: &Verdict, error: BoxError) -> Error {
    let broken = || Error::new(Kind::IncompleteBody, "the body did not arrive whole").with_source(error);
    verdict.failure().map_or_else(broken, Error::from)
}
