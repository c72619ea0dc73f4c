//! How the gateway is seen from outside: log set-up here, every metric in [`names`]. What is absent: keys, client addresses
//! and secrets never become a label or a field.

pub mod names;

pub use names::{BackendMetrics, Metrics, StoredMetrics};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Starts logging to stderr. `directives` is a tracing filter such as `info` or `batchgate=debug`; `json` chooses one JSON
/// object a line. Fails if the directives cannot be read or logging was started before.
pub fn start_logging(directives: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(directives).map_err(|e| format!("log.level: {e}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_span_events(FmtSpan::NONE);
    let started = if json { builder.json().flatten_event(true).try_init() } else { builder.with_ansi(false).try_init() };
    started.map_err(|e| e.to_string())
}
