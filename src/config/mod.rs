//! Settings as data. What enters is text (a TOML file, environment variables, flags); what leaves is one [`Settings`] that
//! was merged and validated once, or every [`Problem`] in it. Nothing here opens a socket or knows the parts that the
//! settings describe; files are read only through the function in [`Sources`]. Invariant: a `Settings` that [`load`]
//! returned needs no further check, save that `serve` with a file wants a backend.
//!
//! In reading order: the data (here and in `parties`), `value` (durations, sizes, secrets), `problem`, `tree` (text to one
//! merged tree that knows where each value came from), `reader` and `scalar` (tree to values), `files` (what they name), `env`
//! (variables that are no settings), `load` (which keys there are), `endpoint` and `validate` (rules over several keys), `schema`
//! (the same for editors).

mod endpoint;
mod env;
mod files;
mod load;
mod parties;
mod problem;
mod quirks;
mod reader;
mod scalar;
mod schema;
#[cfg(test)]
mod tests;
mod tree;
mod validate;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

pub use endpoint::{is_authority, is_base_path};
pub use env::overlooked;
pub use files::{DOCUMENT_BYTES_MAX, SECRET_BYTES_MAX, TABLES_BYTES_MAX};
pub use load::load;
pub use parties::{
    Addressing, BackendConfig, BackendKind, CredentialsConfig, IdentityConfig, KeyPairConfig, PolicySource, RouteConfig,
};
pub use problem::{Origin, Problem, nearest};
pub use quirks::{Checksums, PayloadSigning, Quirks};
pub use schema::schema;
pub use tree::{Flag, Sources};
pub use value::{ByteSize, DurationText, Secret, format_duration, format_size, parse_duration, parse_size};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Everything that Batchgate can be told. Serialised, it is a settings file again, with secrets hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The port that speaks S3, and its maxima.
    pub server: ServerConfig,
    /// The port for operators.
    pub admin: AdminConfig,
    /// The S3 stores behind the gateway. `serve` with a file needs one; validation does not.
    pub backends: Vec<BackendConfig>,
    /// Which bucket lives on which backend; the first match wins. Default: with exactly one backend, every bucket is there.
    pub routes: Vec<RouteConfig>,
    /// A TOML file with more `[[identities]]`, and nothing else; read anew when it changes. Default none. Whatever is written
    /// out has what was in it among the `identities`.
    #[serde(skip_serializing)]
    pub identities_file: Option<PathBuf>,
    /// Who may ask. Default: nobody, so that every request is refused.
    pub identities: Vec<IdentityConfig>,
    /// The limits of one BatchGet.
    pub batch: BatchConfig,
    /// What is done against slow and failing backends.
    pub tail: TailConfig,
    /// The log on stderr.
    pub log: LogConfig,
}

/// The port that speaks S3 (`[server]`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 takes a free one. Default `["127.0.0.1:9000"]`.
    pub listen: Vec<SocketAddr>,
    /// The region that clients sign for, and are told that buckets are in; best the store's own. Default: the backends', where all
    /// have the same one, else `"us-east-1"`.
    pub region: String,
    /// Whether signatures for any other region are taken too, and clients are told the region that the store names. Default false.
    pub any_region: bool,
    /// Host names under which `BUCKET.host` addresses a bucket (virtual-host style). Default none: only path style.
    pub domains: Vec<String>,
    /// What every path begins with, before the bucket, such as `"/s3"`; clients sign it as a part of the path. Default none.
    pub base_path: String,
    /// Whether requests signed by Signature Version 2 are let in as well; a BatchGet never is. Default false.
    pub sigv2: bool,
    /// Whether requests without any signature are sent on, without one, so that the store's own rules for the public decide; no
    /// policy is asked. A BatchGet is refused. Default false: all are refused.
    pub anonymous: bool,
    /// Certificate and key for HTTPS. Default none: plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// Longest time from the start of a connection, or the first byte of a further request, to the end of the request's head. Default `"30s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request. Default `"60s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub idle_timeout: Duration,
    /// How long a client that owes us bytes of a body may send none; in that much waiting it must send 1 KiB a second.
    /// Default `"30s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub body_idle_timeout: Duration,
    /// Most client connections open at once. For one more, the longest idle is closed, or else that one. Default 10000.
    pub connections_max: usize,
    /// Most requests in flight at once; more get 503. Default 1024.
    pub requests_max: usize,
    /// The byte budget: what batches and the few requests that must be held whole may hold, all together. What streams through
    /// is not counted. A quarter is kept for the heads of batches.
    /// Default `"512MiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub memory_bytes_max: u64,
    /// Largest single chunk of a signed aws-chunked upload; its bytes stream on before its signature has been checked, but never
    /// the last of them. Default `"16MiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub chunk_bytes_max: u64,
    /// On SIGTERM: how long `/readyz` says no before the listener closes. Default `"0s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub drain_lead: Duration,
    /// On SIGTERM: after how long what is still in flight is cut off. Default `"25s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub drain_deadline: Duration,
    /// How often the files that settings name (identities, policies, secrets, certificates) are looked at; a version that was
    /// there twice in a row is loaded. `"0s"`: never, only on SIGHUP. Default `"2s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub reload_interval: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 9000))],
            region: "us-east-1".into(),
            any_region: false,
            domains: Vec::new(),
            base_path: String::new(),
            sigv2: false,
            anonymous: false,
            tls: None,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            body_idle_timeout: Duration::from_secs(30),
            connections_max: 10_000,
            requests_max: 1024,
            memory_bytes_max: 512 * MIB,
            chunk_bytes_max: 16 * MIB,
            drain_lead: Duration::ZERO,
            drain_deadline: Duration::from_secs(25),
            reload_interval: Duration::from_secs(2),
        }
    }
}

/// Certificate and key of the S3 port (`server.tls`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file with the certificate chain, leaf first.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
}

/// The port for operators (`[admin]`): `/livez`, `/readyz`, `/metrics`, `/configz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Address to listen on; port 0 takes a free one. Default `"127.0.0.1:9001"`.
    pub listen: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 9001)) }
    }
}

/// Most bytes of memory that an entry of a BatchGet takes beside its texts, once it is read.
pub const ENTRY_PARSED_BYTES_MAX: u64 = 576;

/// The limits of one BatchGet (`[batch]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Most entries. Default 10000.
    pub entries_max: usize,
    /// Most entries of all batches that are not written yet; a batch that would make it more gets 503. Default 1000000: at about
    /// 112 bytes each (40, a key of 64, 8 for its turn) they take 107 MiB, less than what is kept for heads by default.
    pub entries_in_flight_max: usize,
    /// Largest request body. Default `"16MiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub body_bytes_max: u64,
    /// What is reserved for an entry before its length is known. Default `"256KiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub entry_bytes: u64,
    /// Most bytes held so that entries leave in order. Default `"32MiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub window_bytes: u64,
    /// Most entries that are read at once. Default 128.
    pub concurrency: usize,
    /// How long an entry may take until its first byte, attempts included. Default `"30s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub entry_deadline: Duration,
    /// How long a client may read nothing before its answer is broken off, plain GETs too. Default `"10m"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub client_stall: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            entries_max: 10_000,
            entries_in_flight_max: 1_000_000,
            body_bytes_max: 16 * MIB,
            entry_bytes: 256 * KIB,
            window_bytes: 32 * MIB,
            concurrency: 128,
            entry_deadline: Duration::from_secs(30),
            client_stall: Duration::from_secs(10 * 60),
        }
    }
}

/// What is done against slow and failing backends (`[tail]`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TailConfig {
    /// The longest wait before the second attempt; it doubles with each further one. Default `"50ms"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub backoff_base: Duration,
    /// Where that doubling ends. Default `"2s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub backoff_max: Duration,
    /// Share of each backend's permits that batches leave to plain requests, 0.0 to 0.9. Default 0.25.
    pub plain_share: f64,
    /// The longest that a plain request waits to be sent while others are; then it gets 503. One that has waited in vain, or
    /// whose client left after a quarter of it, shows that the backend is overloaded: until nobody waits and none was refused
    /// for this time, only the newest two for each permit wait, and more get 503 at once. Longer than the 1.25 s for which a client that stalls keeps a permit.
    /// Default `"1500ms"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub queue_wait: Duration,
    /// How many of the requests to a backend may be retries of failed ones, as a share of the others, 0.0 to 1.0; ten a
    /// second always may. Default 0.2.
    pub retry_share: f64,
    /// Failures of a backend in a row, over a second at least, after which it is not asked for a while. Default 20.
    pub breaker_failures: usize,
    /// Time from one request that tries whether such a backend is back to the next. Default `"1s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub breaker_pause: Duration,
}

impl Default for TailConfig {
    fn default() -> Self {
        Self {
            backoff_base: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            plain_share: 0.25,
            queue_wait: Duration::from_millis(1500),
            retry_share: 0.2,
            breaker_failures: 20,
            breaker_pause: Duration::from_secs(1),
        }
    }
}

/// The log on stderr (`[log]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A level, or directives such as `"info,batchgate::batch=debug"`. Default `"info"`.
    pub level: String,
    /// `"text"` for people, `"json"` for collectors. Default `"text"`.
    pub format: LogFormat,
    /// Whether each request gets a line, and not only one that is refused or fails. Default true.
    pub access: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, access: true }
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
