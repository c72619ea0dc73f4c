//! The one line that a request leaves in the log, and its place among the requests in flight. A line is begun with the head
//! of a request and written when its answer has ended, however it did. Invariants: one line for each request; it never holds
//! the query, which may hold a signature.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use http::request::Parts;
use tokio::time::Instant;

use super::io::UnderWay;
use crate::error::Error;
use crate::telemetry::Metrics;
use crate::types::RequestId;

/// What the log says of a request whose client left before its answer had a head.
pub(super) const CLIENT_LEFT: u16 = 499;

/// Most characters of an error's message in the log: a message may quote what the client sent.
const MESSAGE_CHARS_MAX: usize = 256;

/// A place among the requests in flight, from the head of a request to the last byte of its answer.
pub(super) struct Slot {
    count: Arc<AtomicUsize>,
    metrics: Metrics,
}

impl Slot {
    /// Takes a place, if fewer than `max` are taken.
    pub fn take(count: &Arc<AtomicUsize>, max: usize, metrics: &Metrics) -> Option<Self> {
        let free = |taken| (taken < max).then_some(taken + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        metrics.requests_in_flight.inc();
        Some(Self { count: Arc::clone(count), metrics: metrics.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.metrics.requests_in_flight.dec();
    }
}

/// See the module.
pub(super) struct AccessLine {
    /// Whether requests that went well are wanted too.
    pub wanted: bool,
    pub id: RequestId,
    pub method: Method,
    pub path: String,
    pub operation: &'static str,
    pub identity: Option<String>,
    pub status: u16,
    pub bytes: u64,
    pub whole: bool,
    /// Why the answer was cut off, if a limit did it.
    pub cut: Option<&'static str>,
    pub metrics: Metrics,
    /// Nothing for a request that was refused for want of a place.
    pub slot: Option<Slot>,
    started: Instant,
    /// Code and message of the error that was the answer.
    error: Option<(&'static str, String)>,
    _under_way: UnderWay,
}

impl AccessLine {
    pub fn begin(head: &Parts, id: RequestId, wanted: bool, metrics: &Metrics, under_way: UnderWay) -> Self {
        Self {
            wanted,
            id,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            operation: "none",
            identity: None,
            status: CLIENT_LEFT,
            bytes: 0,
            whole: false,
            cut: None,
            metrics: metrics.clone(),
            slot: None,
            started: Instant::now(),
            error: None,
            _under_way: under_way,
        }
    }

    /// The answer is an error of ours. Counted here, once.
    pub fn failed(&mut self, error: &Error) {
        let code = error.kind.code();
        self.metrics.errors_total.with_label_values(&[code]).inc();
        if let Some(budget) = error.budget {
            self.metrics.refused_total.with_label_values(&[budget.name()]).inc();
        }
        self.error = Some((code, error.message.chars().take(MESSAGE_CHARS_MAX).collect()));
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.request_seconds.with_label_values(&[self.operation]).observe(seconds);
        self.metrics.requests_total.with_label_values(&[self.operation, status_label(self.status)]).inc();
        if self.wanted || self.error.is_some() {
            tracing::info!(
                target: "batchgate::access",
                {
                    request.id = %self.id,
                    http.method = self.method.as_str(),
                    http.path = self.path,
                    http.status = self.status,
                    operation = self.operation,
                    identity = self.identity.as_deref().unwrap_or("-"),
                    bytes = self.bytes,
                    whole = self.whole,
                    cut = self.cut,
                    error.code = self.error.as_ref().map(|(code, _)| *code),
                    error.message = self.error.as_ref().map(|(_, message)| message.as_str()),
                    elapsed.ms = (seconds * 1000.0) as u64
                },
                "request"
            );
        }
    }
}

/// Statuses as labels, without an allocation for the common ones.
fn status_label(status: u16) -> &'static str {
    match status {
        200 => "200",
        204 => "204",
        206 => "206",
        304 => "304",
        CLIENT_LEFT => "499",
        400 => "400",
        403 => "403",
        404 => "404",
        412 => "412",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        s if s < 300 => "2xx",
        s if s < 400 => "3xx",
        s if s < 500 => "4xx",
        _ => "5xx",
    }
}
