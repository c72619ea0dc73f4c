//! The backends by name, each with its limiter, its breaker, its metrics and its numbers. The one place of dynamic dispatch: behind
//! `store` may be HTTP, memory or a simulation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use rand::rngs::SmallRng;

use super::breaker::{Breaker, Cause, Pass};
use super::limited::Limiter;
use super::retry_budget::RetryBudget;
use super::verdict::{Verdict, refusal};
use super::{Attempt, Body, Forward, ObjectRead, ReadAsk};
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
    /// A batch's read without a byte for this long is tried again.
    pub attempt_timeout: Duration,
    /// A plain request without a byte of its answer for this long is given up.
    pub response_timeout: Duration,
    /// For jitter; seeded by whoever builds the backend.
    pub random: Mutex<SmallRng>,
}

impl Backend {
    /// It moved something for someone.
    pub fn moved(&self) {
        self.limiter.progress();
        self.breaker.moved();
    }

    /// Takes note of the answer to a plain request, which was sent with `pass`. `code` is the S3 code of its body; without
    /// it a 503 is not known to ask for pace.
    pub fn judge(&self, pass: Pass, status: StatusCode, code: Option<&str>) {
        match refusal(status, code) {
            Verdict::Pacing => {
                self.limiter.slow_down();
                pass.paced();
            }
            Verdict::Failing => pass.failed(Cause::Status(status), false),
            _ => {
                self.limiter.answered();
                pass.answered();
                self.moved();
            }
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
