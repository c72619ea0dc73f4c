//! One attempt of a read: a permit, a request, and the judgement of what came back. Whatever may be better next time has been
//! waited for when it returns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::{Failure, Ran, Read};
use crate::backend::breaker::Cause;
use crate::backend::limited::Permit;
use crate::backend::verdict::{Verdict, judge};
use crate::backend::warnings::Warning;
use crate::backend::{Attempt, BackendErrorKind, Body, ReadAsk, collect, empty_body, s3};

/// Most bytes of an error's body that are read in search of its code.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// An attempt that its read's deadline cuts tells nothing of the backend, unless it was silent for this long: as long as any
/// attempt is given, or a time that no healthy answer takes.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// The head of an answer that was judged good.
pub(super) struct Judged {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) verdict: Verdict,
}

impl Read {
    /// One attempt: its turn, the request, the judgement. Nothing means that it failed in a way that may be better now: the
    /// back-off has been waited for.
    pub(super) async fn attempt(&mut self, ask: &ReadAsk) -> Result<Option<(Judged, Body, Permit)>, Failure> {
        let (permit, pass) = self.turn().await?;
        self.stats.requests.fetch_add(1, Ordering::Relaxed);
        let timeout = self.backend.attempt_timeout;
        let backend = Arc::clone(&self.backend);
        let again = (self.failures > 0).then(|| ReadAsk { elsewhere: true, ..ask.clone() });
        let ask = again.as_ref().unwrap_or(ask);
        let sent_at = Instant::now();
        let response = match self.clock.run_capped(timeout, backend.store.read(ask)).await {
            Ran::Done(Attempt::Ok(response)) => response,
            Ran::OutOfTime => {
                if sent_at.elapsed() >= SILENCE_MIN.min(timeout) {
                    backend.metrics.attempts_no_answer.inc();
                    self.stats.outage.met(sent_at, Some(Cause::TimedOut), backend.breaker.memory());
                    pass.failed(Cause::TimedOut, self.failures > 0);
                }
                return Err(self.out_of_time());
            }
            Ran::Done(Attempt::Err(error)) if error.kind.is_no_use() => {
                if backend.warnings.due(Warning::NotHttp) {
                    tracing::warn!(backend = backend.name, %error, "answer is not http");
                }
                pass.unanswered(error.kind, self.failures > 0);
                return Err(Failure::Lying);
            }
            Ran::Done(Attempt::Err(error)) if error.kind == BackendErrorKind::NoCredentials => return Err(Failure::NoCredentials),
            Ran::Done(Attempt::Err(error)) => {
                tracing::debug!(backend = backend.name, %error, "attempt failed");
                drop(permit);
                let cause = Cause::of(error.kind).unwrap_or(Cause::NoAnswer);
                return self.back_off(Some(pass), cause).await.map(|()| None);
            }
            Ran::TooLong => {
                drop(permit);
                backend.metrics.attempts_no_answer.inc();
                self.stats.outage.met(sent_at, Some(Cause::TimedOut), backend.breaker.memory());
                return self.back_off(Some(pass), Cause::TimedOut).await.map(|()| None);
            }
        };
        let (head, body) = response.into_parts();
        let (code, body) = if head.status.is_client_error() || head.status.is_server_error() {
            let code = match self.clock.run_capped(timeout, error_code(body)).await {
                Ran::Done(code) => code,
                // The status alone is an answer.
                Ran::TooLong | Ran::OutOfTime => None,
            };
            (code, empty_body())
        } else {
            (None, body)
        };
        match judge(ask, head.status, &head.headers, code.as_deref()) {
            verdict @ (Verdict::Body { .. } | Verdict::NotModified) => {
                backend.limiter.answered();
                pass.answered();
                // A body moves when its bytes do.
                if !matches!(verdict, Verdict::Body { length, .. } if length != Some(0)) {
                    self.completed();
                }
                Ok(Some((Judged { status: head.status, headers: head.headers, verdict }, body, permit)))
            }
            Verdict::Refused if code.as_deref().is_some_and(|code| ask.sender.is_at_no_fault(code)) => {
                if backend.warnings.due(Warning::Credentials) {
                    tracing::warn!(backend = backend.name, code, "the store refuses the gateway's credentials");
                }
                pass.answered();
                Err(Failure::Lying)
            }
            Verdict::Refused => {
                // At fault is an identity's own account then.
                if code.as_deref().is_some_and(s3::is_about_our_signature) && backend.warnings.due(Warning::Credentials) {
                    tracing::warn!(
                        backend = backend.name,
                        code,
                        "the store refuses an identity's own credentials (backend_credentials)"
                    );
                }
                backend.limiter.answered();
                pass.answered();
                self.completed();
                Err(Failure::Answered { status: head.status, code, headers: head.headers })
            }
            Verdict::Lying(why) => {
                if backend.warnings.due(Warning::Lies) {
                    tracing::warn!(backend = backend.name, status = head.status.as_u16(), why, "backend does not keep to http");
                }
                pass.answered();
                Err(Failure::Lying)
            }
            verdict => {
                let status = head.status;
                let paced = verdict == Verdict::Pacing;
                backend.count_503(status, &verdict);
                if status.is_server_error() {
                    self.last_words = Some(Failure::Answered { status, code, headers: head.headers });
                } else if paced {
                    self.last_words = Some(Failure::Paced);
                }
                if paced {
                    pass.paced();
                    self.stats.outage.met(Instant::now(), None, backend.breaker.memory());
                    self.cause = None;
                    return self.keep_pace(permit).await.map(|()| None);
                }
                drop(permit);
                self.back_off(Some(pass), Cause::Status(status)).await.map(|()| None)
            }
        }
    }
}

/// The S3 code in an error's body, if the body is an S3 error whose code is fit to be passed on.
async fn error_code(body: Body) -> Option<String> {
    s3::error_code(&collect(body, ERROR_BODY_BYTES_MAX).await.ok()?)
}
