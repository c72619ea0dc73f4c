//! Every metric of the gateway: name, labels, unit, meaning. Rooms get handles of children that were looked up once, because
//! a look-up by label takes a lock. Cardinality is bounded by the settings: the only free label is a backend's name.

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// Seconds from half a millisecond to five minutes: the span between a cached read and the longest timeout.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// All metrics, registered once for each process (or test).
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Answers by operation (`batch`, `capabilities`, `passthrough`, `none`) and status.
    pub requests_total: IntCounterVec,
    /// Seconds from request head to the last byte of the answer, by operation.
    pub request_seconds: HistogramVec,
    /// Requests whose answer has not ended.
    pub requests_in_flight: IntGauge,
    /// The most that `requests_in_flight` may be.
    pub requests_max: IntGauge,
    /// Requests and connections refused by a budget, by reason (`requests`, `memory`, `entries`, `permits`, `connections`).
    pub refused_total: IntCounterVec,
    /// Errors of ours that were the answer to a request, by S3 code.
    pub errors_total: IntCounterVec,
    /// Open client connections.
    pub connections: IntGauge,
    /// The most that `connections` may be.
    pub connections_max: IntGauge,
    /// Client connections (on HTTP/2 also streams, by `client_stall` and `broken_off`) that did not end well, by reason (`idle`,
    /// `header_timeout`, `client_stall`, `broken_off`, `connections_max`, `drain`, `protocol`, `tls_handshake`, `client_gone`).
    pub connections_cut_total: IntCounterVec,
    /// Batches admitted and not ended.
    pub batch_in_flight: IntGauge,
    /// Entries of batches that are admitted and not written.
    pub entries_in_flight: IntGauge,
    /// The most that `entries_in_flight` may be.
    pub entries_in_flight_max: IntGauge,
    /// Ended batches by outcome (`complete`, `stopped`, `broken`, `client_gone`, `broken_off`) and format (`multipart`, `tar`).
    pub batches_total: IntCounterVec,
    /// Entries of ended reads by outcome (`delivered`, `failed`, `not_modified`).
    pub entries_total: IntCounterVec,
    /// Bytes of parts' bodies delivered to clients.
    pub batch_bytes_total: IntCounter,
    /// Seconds that a batch took.
    pub batch_seconds: Histogram,
    /// Bytes reserved now, by share (`heads`, `window`).
    pub memory_reserved_bytes: IntGaugeVec,
    /// The most that `memory_reserved_bytes` may be, by share.
    pub memory_max_bytes: IntGaugeVec,
    /// Attempts to load settings anew, by outcome (`success`, `failure`).
    pub config_reloads_total: IntCounterVec,
    /// 0 while a version that was refused is still there, else 1.
    pub config_reload_successful: IntGauge,
    /// When settings were last loaded with success, the start included; Unix seconds.
    pub config_reload_success_seconds: IntGauge,
    /// When the certificate of the S3 port ends, Unix seconds; no sample where there is none, or none that says so.
    pub certificate_expiry: IntGaugeVec,
    permits_in_use: IntGaugeVec,
    permits_limit: GaugeVec,
    plain_waiting: IntGaugeVec,
    plain_waiting_max: IntGaugeVec,
    overloaded: IntGaugeVec,
    overloads_total: IntCounterVec,
    attempts_total: IntCounterVec,
    attempt_seconds: HistogramVec,
    retries_total: IntCounterVec,
    retries_refused_total: IntCounterVec,
    breaker_open: IntGaugeVec,
    breaker_opened_total: IntCounterVec,
    breaker_refused_total: IntCounterVec,
    credentials_expiry: GaugeVec,
    unknown_outcomes_total: IntCounterVec,
    stored_bytes: IntGaugeVec,
    stored_max_bytes: IntGaugeVec,
}

/// What an embedded store holds.
#[derive(Clone, Debug)]
pub struct StoredMetrics {
    /// Bytes taken by objects, parts and what is known of them.
    pub bytes: IntGauge,
    /// The most that `bytes` may be.
    pub bytes_max: IntGauge,
}

/// One backend's children.
#[derive(Clone, Debug)]
pub struct BackendMetrics {
    /// Permits taken now.
    pub permits_in_use: IntGauge,
    /// Permits there are now: the adaptive limit.
    pub permits_limit: Gauge,
    /// Plain requests that wait for a permit.
    pub plain_waiting: IntGauge,
    /// The most that `plain_waiting` may be in an overload.
    pub plain_waiting_max: IntGauge,
    /// 1 while plain requests come faster than they are served, and so are refused, else 0; as of the last one.
    pub overloaded: IntGauge,
    /// Times that an overload began.
    pub overloads: IntCounter,
    /// Requests answered with a status below 500.
    pub attempts_ok: IntCounter,
    /// Requests answered with 5xx other than a plea to slow down.
    pub attempts_failed: IntCounter,
    /// Requests answered with a plea to slow down.
    pub attempts_slow_down: IntCounter,
    /// Requests that got no answer.
    pub attempts_no_answer: IntCounter,
    /// Seconds from sending a request to the head of its answer.
    pub attempt_seconds: Histogram,
    /// Reads tried anew or resumed.
    pub retries: IntCounter,
    /// Times that a retry had to wait because the budget of retries was spent.
    pub retries_refused: IntCounter,
    /// 1 while the breaker is open, else 0.
    pub breaker_open: IntGauge,
    /// Times that the breaker opened.
    pub breaker_opened: IntCounter,
    /// Plain requests that were refused because it was open.
    pub breaker_refused: IntCounter,
    /// When the credentials in use end, Unix seconds; 0 if they do not.
    pub credentials_expiry: Gauge,
    /// Writes that got no answer after something of them was sent.
    pub unknown_outcomes: IntCounter,
}

impl Metrics {
    /// Registers every metric in a registry of its own.
    pub fn new() -> Self {
        let registry = Registry::new();
        let m = Self {
            requests_total: counters("batchgate_edge_requests_total", "answers by operation and status", &["operation", "status"]),
            request_seconds: histograms(
                "batchgate_edge_request_seconds",
                "seconds from request head to the answer's last byte",
                &["operation"],
            ),
            requests_in_flight: gauge("batchgate_edge_requests_in_flight", "requests whose answer has not ended"),
            requests_max: gauge("batchgate_edge_requests_max", "most requests in flight"),
            refused_total: counters(
                "batchgate_edge_refused_total",
                "requests and connections refused by a budget, by reason",
                &["reason"],
            ),
            errors_total: counters("batchgate_edge_errors_total", "errors of ours as answers to requests, by S3 code", &["code"]),
            connections: gauge("batchgate_edge_connections", "open client connections"),
            connections_max: gauge("batchgate_edge_connections_max", "most open client connections"),
            connections_cut_total: counters(
                "batchgate_edge_connections_cut_total",
                "client connections that did not end well, by reason",
                &["reason"],
            ),
            batch_in_flight: gauge("batchgate_batch_in_flight", "batches admitted and not ended"),
            entries_in_flight: gauge("batchgate_batch_entries_in_flight", "entries of batches admitted and not written"),
            entries_in_flight_max: gauge("batchgate_batch_entries_in_flight_max", "most entries in flight"),
            batches_total: counters("batchgate_batch_batches_total", "ended batches by outcome and format", &["outcome", "format"]),
            entries_total: counters("batchgate_batch_entries_total", "ended entries by outcome", &["outcome"]),
            batch_bytes_total: counter("batchgate_batch_bytes_total", "bytes of parts delivered"),
            batch_seconds: histogram("batchgate_batch_seconds", "seconds that a batch took"),
            memory_reserved_bytes: gauges("batchgate_memory_reserved_bytes", "bytes reserved now", &["share"]),
            memory_max_bytes: gauges("batchgate_memory_max_bytes", "most bytes reserved", &["share"]),
            config_reloads_total: counters(
                "batchgate_config_reloads_total",
                "attempts to load settings anew, by outcome",
                &["outcome"],
            ),
            config_reload_successful: gauge(
                "batchgate_config_reload_successful",
                "0 while settings that were refused are still there",
            ),
            config_reload_success_seconds: gauge(
                "batchgate_config_reload_success_timestamp_seconds",
                "when settings were last loaded with success",
            ),
            certificate_expiry: gauges(
                "batchgate_tls_certificate_expiry_timestamp_seconds",
                "when the certificate of the S3 port ends",
                &[],
            ),
            permits_in_use: gauges("batchgate_backend_permits_in_use", "reads and requests that wait for a backend", &["backend"]),
            permits_limit: float_gauges("batchgate_backend_permits_limit", "adaptive limit of permits in use", &["backend"]),
            plain_waiting: gauges("batchgate_backend_plain_waiting", "plain requests that wait for a permit", &["backend"]),
            plain_waiting_max: gauges(
                "batchgate_backend_plain_waiting_max",
                "most plain requests that wait in an overload",
                &["backend"],
            ),
            overloaded: gauges(
                "batchgate_backend_overloaded",
                "1 while few plain requests may wait, since others waited for too long",
                &["backend"],
            ),
            overloads_total: counters("batchgate_backend_overloads_total", "times that an overload began", &["backend"]),
            attempts_total: counters(
                "batchgate_backend_attempts_total",
                "requests to a backend by outcome",
                &["backend", "outcome"],
            ),
            attempt_seconds: histograms(
                "batchgate_backend_attempt_seconds",
                "seconds to the head of a backend's answer",
                &["backend"],
            ),
            retries_total: counters("batchgate_backend_retries_total", "reads tried anew or resumed", &["backend"]),
            retries_refused_total: counters(
                "batchgate_backend_retries_refused_total",
                "times that a retry had to wait for the budget of retries",
                &["backend"],
            ),
            breaker_open: gauges(
                "batchgate_backend_breaker_open",
                "1 while the breaker is open: until somebody asks and is answered",
                &["backend"],
            ),
            breaker_opened_total: counters("batchgate_backend_breaker_opened_total", "times that the breaker opened", &["backend"]),
            breaker_refused_total: counters(
                "batchgate_backend_breaker_refused_total",
                "plain requests refused by an open breaker",
                &["backend"],
            ),
            credentials_expiry: float_gauges(
                "batchgate_credentials_expiry_timestamp_seconds",
                "when a backend's credentials end, 0 if they do not",
                &["backend"],
            ),
            unknown_outcomes_total: counters(
                "batchgate_passthrough_unknown_outcomes_total",
                "writes that got no answer after something of them was sent",
                &["backend"],
            ),
            stored_bytes: gauges("batchgate_backend_stored_bytes", "memory that an embedded store takes", &["backend"]),
            stored_max_bytes: gauges(
                "batchgate_backend_stored_max_bytes",
                "most memory that an embedded store takes",
                &["backend"],
            ),
            registry,
        };
        // Series that alerts look at are there from the start: a rate does not see one that is born above zero.
        for reason in ["requests", "memory", "entries", "permits", "connections"] {
            m.refused_total.with_label_values(&[reason]);
        }
        for (outcome, format) in ["complete", "stopped", "broken", "client_gone", "broken_off"].iter().flat_map(both_formats) {
            m.batches_total.with_label_values(&[outcome, format]);
        }
        let build = gauges("batchgate_build_info", "1, with the version as label", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let all: Vec<Box<dyn Collector>> = vec![
            Box::new(build),
            Box::new(m.requests_total.clone()),
            Box::new(m.request_seconds.clone()),
            Box::new(m.requests_in_flight.clone()),
            Box::new(m.requests_max.clone()),
            Box::new(m.refused_total.clone()),
            Box::new(m.errors_total.clone()),
            Box::new(m.connections.clone()),
            Box::new(m.connections_max.clone()),
            Box::new(m.connections_cut_total.clone()),
            Box::new(m.batch_in_flight.clone()),
            Box::new(m.entries_in_flight.clone()),
            Box::new(m.entries_in_flight_max.clone()),
            Box::new(m.batches_total.clone()),
            Box::new(m.entries_total.clone()),
            Box::new(m.batch_bytes_total.clone()),
            Box::new(m.batch_seconds.clone()),
            Box::new(m.memory_reserved_bytes.clone()),
            Box::new(m.memory_max_bytes.clone()),
            Box::new(m.config_reloads_total.clone()),
            Box::new(m.config_reload_successful.clone()),
            Box::new(m.config_reload_success_seconds.clone()),
            Box::new(m.certificate_expiry.clone()),
            Box::new(m.permits_in_use.clone()),
            Box::new(m.permits_limit.clone()),
            Box::new(m.plain_waiting.clone()),
            Box::new(m.plain_waiting_max.clone()),
            Box::new(m.overloaded.clone()),
            Box::new(m.overloads_total.clone()),
            Box::new(m.attempts_total.clone()),
            Box::new(m.attempt_seconds.clone()),
            Box::new(m.retries_total.clone()),
            Box::new(m.retries_refused_total.clone()),
            Box::new(m.breaker_open.clone()),
            Box::new(m.breaker_opened_total.clone()),
            Box::new(m.breaker_refused_total.clone()),
            Box::new(m.credentials_expiry.clone()),
            Box::new(m.unknown_outcomes_total.clone()),
            Box::new(m.stored_bytes.clone()),
            Box::new(m.stored_max_bytes.clone()),
            Box::new(prometheus::process_collector::ProcessCollector::for_self()),
        ];
        for collector in all {
            m.registry.register(collector).expect("every metric has a name of its own");
        }
        m
    }

    /// The children of the backend called `name`.
    pub fn backend(&self, name: &str) -> BackendMetrics {
        let attempts = |outcome| self.attempts_total.with_label_values(&[name, outcome]);
        BackendMetrics {
            permits_in_use: self.permits_in_use.with_label_values(&[name]),
            permits_limit: self.permits_limit.with_label_values(&[name]),
            plain_waiting: self.plain_waiting.with_label_values(&[name]),
            plain_waiting_max: self.plain_waiting_max.with_label_values(&[name]),
            overloaded: self.overloaded.with_label_values(&[name]),
            overloads: self.overloads_total.with_label_values(&[name]),
            attempts_ok: attempts("ok"),
            attempts_failed: attempts("failed"),
            attempts_slow_down: attempts("slow_down"),
            attempts_no_answer: attempts("no_answer"),
            attempt_seconds: self.attempt_seconds.with_label_values(&[name]),
            retries: self.retries_total.with_label_values(&[name]),
            retries_refused: self.retries_refused_total.with_label_values(&[name]),
            breaker_open: self.breaker_open.with_label_values(&[name]),
            breaker_opened: self.breaker_opened_total.with_label_values(&[name]),
            breaker_refused: self.breaker_refused_total.with_label_values(&[name]),
            credentials_expiry: self.credentials_expiry.with_label_values(&[name]),
            unknown_outcomes: self.unknown_outcomes_total.with_label_values(&[name]),
        }
    }

    /// The children of the embedded store behind the backend called `name`.
    pub fn stored(&self, name: &str) -> StoredMetrics {
        StoredMetrics {
            bytes: self.stored_bytes.with_label_values(&[name]),
            bytes_max: self.stored_max_bytes.with_label_values(&[name]),
        }
    }

    /// The Prometheus text exposition of all of it.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut out).expect("writing to memory cannot fail");
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn both_formats<'a>(outcome: &'a &str) -> [(&'a str, &'static str); 2] {
    [(outcome, "multipart"), (outcome, "tar")]
}

const VALID: &str = "names and labels are literals of this file and valid";

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect(VALID)
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect(VALID)
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect(VALID)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID)
}

fn float_gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect(VALID)
}

fn histogram(name: &str, help: &str) -> Histogram {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec())).expect(VALID)
}

fn histograms(name: &str, help: &str, labels: &[&str]) -> HistogramVec {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels).expect(VALID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposition_names_follow_the_house_style() {
        let metrics = Metrics::new();
        metrics.backend("store").attempts_ok.inc();
        metrics.requests_in_flight.inc();
        let text = String::from_utf8(metrics.render()).expect("text");
        assert!(text.contains("batchgate_backend_attempts_total{backend=\"store\",outcome=\"ok\"} 1"), "{text}");
        let names = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).map(|l| l.split(' ').next().expect("a name"));
        for name in names {
            assert!(name.starts_with("batchgate_") || name.starts_with("process_"), "{name}");
        }
    }
}
