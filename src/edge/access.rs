//! The one line that a request leaves in the log. It is begun with the head of a request and written when its answer has ended,
//! however it did; until then it holds the request's place among those in flight. Invariants: one line for each request; it never
//! holds the query, which may hold a signature.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use tokio::time::Instant;

use super::activity::UnderWay;
use super::slots::Slot;
use crate::backend::s3::connect::Unreached;
use crate::backend::{Asked, BackendError};
use crate::error::{Error, Kind};
use crate::telemetry::Metrics;
use crate::types::RequestId;

/// What the log says of a request whose client left before its answer had a head.
pub(super) const CLIENT_LEFT: u16 = 499;

/// Most characters of an error's message in the log: a message may quote what the client sent.
const MESSAGE_CHARS_MAX: usize = 256;

/// What the line tells of an error.
struct Told {
    kind: Kind,
    message: String,
    cause: Option<String>,
    /// The one that it came of asking.
    backend: Option<String>,
}

/// See the module.
pub(super) struct AccessLine {
    /// Whether requests that went well are wanted too.
    pub wanted: bool,
    pub id: RequestId,
    pub method: Method,
    pub path: String,
    /// Who is connected: a balancer, if one is between.
    pub client: Option<IpAddr>,
    pub operation: &'static str,
    pub identity: Option<String>,
    /// The ones that were asked, of a plain request.
    pub asked: Asked,
    pub status: u16,
    /// Bytes of the body that the connection has taken.
    pub bytes: u64,
    /// That was all of it.
    pub whole: bool,
    /// Why the answer was cut off, if a limit did it.
    pub cut: Option<&'static str>,
    pub metrics: Arc<Metrics>,
    /// Nothing for a request that was refused for want of a place.
    pub slot: Option<Slot>,
    started: Instant,
    /// The error that was the answer.
    error: Option<Told>,
    /// The answer is not taken.
    pub under_way: UnderWay,
}

impl AccessLine {
    pub fn begin(head: &Parts, id: RequestId, wanted: bool, metrics: &Arc<Metrics>, under_way: UnderWay) -> Self {
        Self {
            wanted,
            id,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            client: None,
            operation: "none",
            identity: None,
            asked: Asked::default(),
            status: CLIENT_LEFT,
            bytes: 0,
            whole: false,
            cut: None,
            metrics: Arc::clone(metrics),
            slot: None,
            started: Instant::now(),
            error: None,
            under_way,
        }
    }

    /// The answer is an error of ours. Counted here, once.
    pub fn failed(&mut self, error: &Error) {
        let code = error.kind.code();
        self.metrics.errors_total.with_label_values(&[code]).inc();
        if let Some(budget) = error.budget {
            self.metrics.refused_total.with_label_values(&[budget.name()]).inc();
        }
        let message = error.message.chars().take(MESSAGE_CHARS_MAX).collect();
        let cause = error.source.as_deref().and_then(|source| cause(source));
        self.error = Some(Told { kind: error.kind, message, cause, backend: error.backend.clone() });
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        self.slot.iter().for_each(Slot::give_back);
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.request_seconds.with_label_values(&[self.operation]).observe(seconds);
        self.metrics.requests_total.with_label_values(&[self.operation, status_label(self.status)]).inc();
        let error = self.error.as_ref();
        let backend = error.and_then(|error| error.backend.clone()).or_else(|| self.asked.names());
        // One line, at the level of what it tells.
        macro_rules! line {
            ($level:ident) => {
                tracing::event!(
                    target: "batchgate::access",
                    tracing::Level::$level,
                    {
                        request.id = %self.id,
                        http.method = self.method.as_str(),
                        http.path = self.path,
                        client.address = self.client.map(tracing::field::display),
                        http.status = self.status,
                        operation = self.operation,
                        identity = self.identity.as_deref().unwrap_or("-"),
                        backend = backend.as_deref(),
                        bytes = self.bytes,
                        whole = self.whole,
                        cut = self.cut,
                        error.code = error.map(|error| error.kind.code()),
                        error.message = error.map(|error| error.message.as_str()),
                        error.cause = error.and_then(|error| error.cause.as_deref()),
                        elapsed.ms = (seconds * 1000.0) as u64
                    },
                    "request"
                )
            };
        }
        match error.map(|error| error.kind) {
            Some(Kind::InternalError) => line!(ERROR),
            Some(Kind::BadGateway | Kind::ServiceUnavailable | Kind::GatewayTimeout) => line!(WARN),
            Some(_) => line!(INFO),
            None if self.wanted => line!(INFO),
            None => {}
        }
    }
}

/// What lies under an error, in words that are ours, the system's or of TLS: those of other libraries may quote addresses or what
/// was sent.
fn cause(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut words = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<BackendError>() {
            words.push(format!("{:?}", error.kind));
        } else if let Some(error) = error.downcast_ref::<Unreached>() {
            words.push(error.why());
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            words.push(error.kind().to_string());
        }
        next = error.source();
    }
    (!words.is_empty()).then(|| words.join(": "))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn a_store_that_is_not_reached_is_told_with_why_and_without_its_address() {
        let refused = Unreached::new("10.0.0.7:80", io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = BackendError { kind: BackendErrorKind::Unreachable, source: refused.into() };
        assert_eq!(cause(&error).as_deref(), Some("Unreachable: connection refused"));
        let words = BackendError { kind: BackendErrorKind::NoAnswer, source: "what was sent".into() };
        assert_eq!(cause(&words).as_deref(), Some("NoAnswer"));
    }
}
