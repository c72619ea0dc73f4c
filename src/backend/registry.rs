//! The backends by name, each with its limiter, its breaker, its metrics and its numbers. The one place of dynamic dispatch: behind
//! `store` may be HTTP, memory or a simulation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};
use rand::rngs::SmallRng;

use super::accepted::Accepted;
use super::breaker::{Breaker, Cause, Pass};
use super::limited::Limiter;
use super::retry_budget::RetryBudget;
use super::verdict::{Verdict, refusal};
use super::warnings::Warnings;
use super::{Attempt, Body, Forward, ObjectRead, ReadAsk};
use crate::config::Quirks;
use crate::telemetry::BackendMetrics;

/// Everything that a store must do.
pub trait Store: ObjectRead + Forward {}

impl<T: ObjectRead + Forward> Store for T {}

impl ObjectRead for Box<dyn Store> {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        (**self).read(ask)
    }
}

impl Forward for Box<dyn Store> {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        (**self).forward(request)
    }

    fn region_to_make(&self, path: &PathAndQuery) -> Option<String> {
        (**self).region_to_make(path)
    }
}

/// One configured backend.
pub struct Backend {
    /// The name in the settings; safe for logs and labels.
    pub name: String,
    /// Whoever answers.
    pub store: Box<dyn Store>,
    /// Its permits.
    pub limiter: Arc<Limiter>,
    /// Whether it is asked at all.
    pub breaker: Arc<Breaker>,
    /// How many of the requests to it may be retries.
    pub retries: RetryBudget,
    /// Its numbers.
    pub metrics: BackendMetrics,
    /// What was last complained of.
    pub warnings: Warnings,
    /// Whether it lately took the gateway's signature.
    pub accepted: Accepted,
    /// The region that it is in, by the settings.
    pub region: String,
    /// What the store wants otherwise than S3 itself.
    pub quirks: Quirks,
    /// A batch's read without a byte for this long is tried again; a plain request without a head gives its permit back.
    pub attempt_timeout: Duration,
    /// A plain request without a byte of its answer for this long is given up.
    pub response_timeout: Duration,
    /// For jitter; seeded by whoever builds the backend.
    pub random: Mutex<SmallRng>,
}

/// The answer to a plain request, as far as it is here.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// What was asked.
    pub method: &'a Method,
    /// What was answered.
    pub status: StatusCode,
    /// The S3 code of its body; without it a 503 to anything but a HEAD is not known to ask for pace.
    pub code: Option<&'a str>,
    /// It has no body: with its head all of it is here.
    pub is_whole: bool,
}

impl Backend {
    /// It moved something for someone.
    pub fn moved(&self) {
        self.limiter.progress();
        self.breaker.moved();
    }

    /// Takes note of the answer to a plain request, which was sent with `pass`; one that is so late that its pass has told a
    /// failure has none, and then only good news is told. What an answer moves is its bytes, when they come.
    pub fn judge(&self, pass: Option<Pass>, heard: &Heard<'_>) {
        let verdict = refusal(heard.method, heard.status, heard.code);
        self.count_503(heard.status, &verdict);
        match (verdict, pass) {
            (Verdict::Pacing, pass) => {
                self.limiter.slow_down();
                pass.map(Pass::paced).unwrap_or_default();
            }
            (Verdict::Failing, pass) => pass.map(|pass| pass.failed(Cause::Status(heard.status), false)).unwrap_or_default(),
            (_, pass) => {
                self.limiter.answered();
                match pass {
                    Some(pass) => pass.answered(),
                    None => self.breaker.answered_late(),
                }
                if heard.is_whole {
                    self.moved();
                }
            }
        }
    }

    /// Counts a 503, which is a plea or a failure as its code says. All other answers are counted as they come.
    pub fn count_503(&self, status: StatusCode, verdict: &Verdict) {
        match (status, verdict) {
            (StatusCode::SERVICE_UNAVAILABLE, Verdict::Pacing) => self.metrics.attempts_slow_down.inc(),
            (StatusCode::SERVICE_UNAVAILABLE, _) => self.metrics.attempts_failed.inc(),
            _ => {}
        }
    }

    /// The backend's own randomness.
    pub fn random(&self) -> MutexGuard<'_, SmallRng> {
        self.random.lock().expect("drawing a number does not panic")
    }
}

/// The backends of the process.
#[derive(Default)]
pub struct Registry {
    by_name: HashMap<String, Arc<Backend>>,
}

impl Registry {
    /// Takes in a backend. Names are unique: settings are validated.
    pub fn insert(&mut self, backend: Backend) {
        let replaced = self.by_name.insert(backend.name.clone(), Arc::new(backend));
        assert!(replaced.is_none(), "settings are validated");
    }

    /// The backend called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<Backend>> {
        self.by_name.get(name)
    }
}
