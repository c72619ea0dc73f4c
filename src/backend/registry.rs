//! The backends by name, each with its limiter, its metrics and its numbers. The one place of dynamic dispatch: behind
//! `store` may be HTTP, memory or a simulation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Request;
use rand::rngs::SmallRng;

use super::limited::Limiter;
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
