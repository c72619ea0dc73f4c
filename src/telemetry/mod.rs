//! How the gateway is seen from outside: log set-up here, every metric in [`names`]. What is absent: keys, client addresses
//! and secrets never become a label or a field.

pub mod names;

pub use names::{BackendMetrics, Metrics, StoredMetrics};

use std::fmt;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Changes what is logged while the process runs.
pub struct LogLevel(Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLevel").finish_non_exhaustive()
    }
}

impl LogLevel {
    /// From now on `directives` say what is logged.
    ///
    /// # Errors
    /// The directives cannot be read; what was logged before is logged still.
    pub fn set(&self, directives: &str) -> Result<(), String> {
        (self.0)(filter(directives)?)
    }
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(directives).map_err(|e| format!("log.level: {e}"))
}

/// Starts logging to stderr. `directives` is a tracing filter such as `info` or `batchgate=debug`; `json` chooses one JSON
/// object a line. Fails if the directives cannot be read or logging was started before.
pub fn start_logging(directives: &str, json: bool) -> Result<LogLevel, String> {
    let filter = filter(directives)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_span_events(FmtSpan::NONE);
    if json {
        let builder = builder.json().flatten_event(true).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.try_init().map_err(|e| e.to_string())?;
        return Ok(LogLevel(Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string()))));
    }
    let builder = builder.with_ansi(false).with_filter_reloading();
    let handle = builder.reload_handle();
    builder.try_init().map_err(|e| e.to_string())?;
    Ok(LogLevel(Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string()))))
}
