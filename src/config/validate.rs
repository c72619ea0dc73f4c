//! Rules over values that have the right type. What enters is settings and where each key came from; what leaves is
//! problems. Invariant: a rule whose key is broken already says nothing, so that one mistake is one problem.

mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::endpoint::{is_base_path, of_backend};
use super::load::account_path;
use super::problem::{Origin, Problem, nearest};
use super::value::format_size;
use super::{BackendConfig, BackendKind, CredentialsConfig, ENTRY_PARSED_BYTES_MAX, RouteConfig, Settings};

/// Largest count: permits and tables are sized by these.
const COUNT_MAX: usize = 1_000_000;

/// What logs call who does not sign.
const NOBODY: &str = "anonymous";

/// Largest number of bytes held in memory.
const BYTES_MAX: u64 = 1 << 40;

/// What the rules may know beside the settings.
pub(super) struct Facts<'a> {
    /// Where each given key came from.
    pub origins: &'a BTreeMap<String, Origin>,
    /// The keys that have a problem already.
    pub broken: BTreeSet<String>,
    /// How many identities stand in the settings; those after them stand in a file of their own.
    pub inline: usize,
}

impl Facts<'_> {
    /// The origin of `key`, or of the nearest table around it.
    fn origin(&self, key: &str) -> Option<Origin> {
        let mut at = key;
        loop {
            if let Some(origin) = self.origins.get(at) {
                return Some(origin.clone());
            }
            at = &at[..at.rfind(['.', '['])?];
        }
    }

    /// The key as whoever reads the file that it stands in would count it.
    pub(super) fn in_its_file(&self, key: &str) -> String {
        let parts = key.strip_prefix("identities[").and_then(|rest| rest.split_once(']'));
        match parts.and_then(|(number, rest)| Some((number.parse::<usize>().ok()?.checked_sub(self.inline)?, rest))) {
            Some((number, rest)) => format!("identities[{number}]{rest}"),
            None => key.to_owned(),
        }
    }

    /// The key, and where it is if that is another file than that of `from`.
    fn seen_from(&self, key: &str, from: &str) -> String {
        let file = |origin: &Option<Origin>| if let Some(Origin::File { file, .. }) = origin { Some(file.clone()) } else { None };
        let (there, here) = (self.origin(key), self.origin(from));
        let name = self.in_its_file(key);
        match there {
            Some(origin) if file(&Some(origin.clone())) != file(&here) => format!("{name} ({origin})"),
            _ => name,
        }
    }
}

struct Rules<'a> {
    facts: &'a Facts<'a>,
    problems: Vec<Problem>,
}

impl Rules<'_> {
    /// Unless `holds`, the value of the first key is wrong. The rule is skipped where one of its keys is broken already.
    fn check(&mut self, holds: bool, keys: &[&str], message: impl FnOnce() -> String) {
        if holds || keys.iter().any(|key| self.facts.broken.contains(*key)) {
            return;
        }
        // Of a rule over several keys, the one that somebody gave is where to look.
        let key = keys.iter().find(|key| self.facts.origins.contains_key(**key)).unwrap_or(&keys[0]);
        self.problems.push(Problem::new(self.facts.origin(key).unwrap_or(Origin::Default), *key, message()));
    }

    fn count(&mut self, key: &str, count: usize) {
        self.check((1..=COUNT_MAX).contains(&count), &[key], || format!("{count} is not from 1 to {COUNT_MAX}"));
    }

    fn size(&mut self, key: &str, bytes: u64) {
        self.check(bytes > 0, &[key], || "must be more than 0 bytes".into());
        self.check(bytes <= BYTES_MAX, &[key], || format!("is more than {}", format_size(BYTES_MAX)));
    }

    fn wait(&mut self, key: &str, duration: Duration) {
        self.check(!duration.is_zero(), &[key], || "must be longer than 0s".into());
    }

    fn region(&mut self, key: &str, region: &str) {
        let plain = !region.is_empty() && region.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        self.check(plain, &[key], || format!("{region:?} is no region; write one such as \"us-east-1\""));
    }

    /// `names` are unique; each comes with its key. What `is_shown` says no to is not repeated: it may be a secret, by a slip.
    fn unique(&mut self, what: &str, is_shown: bool, names: impl Iterator<Item = (String, String)>) {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (key, name) in names {
            match seen.get(&name) {
                // An empty name was said to be missing already.
                Some(first) if !name.is_empty() => {
                    let first = self.facts.seen_from(first, &key);
                    let shown = if is_shown { format!(" {name:?}") } else { String::new() };
                    self.check(false, &[&key], || format!("{what}{shown} is taken by {first}"));
                }
                _ => drop(seen.insert(name, key)),
            }
        }
    }
}

/// Every rule that the settings break.
pub(super) fn validate(settings: &Settings, facts: &Facts<'_>) -> Vec<Problem> {
    let mut rules = Rules { facts, problems: Vec::new() };
    server(&mut rules, settings);
    batch(&mut rules, settings);
    for (i, backend) in settings.backends.iter().enumerate() {
        backend_rules(&mut rules, &format!("backends[{i}]"), backend);
    }
    rules.unique("the name", true, keyed("backends", "name", settings.backends.iter().map(|b| b.name.clone())));
    routes(&mut rules, settings);
    for (i, identity) in settings.identities.iter().enumerate() {
        let at = format!("identities[{i}]");
        rules.check(
            !identity.name.trim().is_empty() && !identity.name.contains(char::is_control),
            &[&format!("{at}.name")],
            || "write a name that logs can show".into(),
        );
        access_key(&mut rules, &at, &identity.access_key);
        for (name, pair) in &identity.backend_credentials {
            let at = account_path(&format!("{at}.backend_credentials"), name, &settings.backends);
            let backend = settings.backends.iter().find(|backend| backend.name == *name);
            rules.check(backend.is_some(), &[&at], || match nearest(name, settings.backends.iter().map(|b| b.name.as_str())) {
                Some(near) => format!("no backend has this name; the nearest is {near:?}"),
                None => "no backend has this name; there is no [[backends]] at all".into(),
            });
            rules.check(backend.is_none_or(|backend| backend.kind == BackendKind::S3), &[&at], || {
                "an embedded backend knows no accounts; remove it".into()
            });
            access_key(&mut rules, &at, &pair.access_key);
        }
    }
    rules.unique("the name", true, keyed("identities", "name", settings.identities.iter().map(|i| i.name.clone())));
    rules.unique(
        "the access key",
        false,
        keyed("identities", "access_key", settings.identities.iter().map(|i| i.access_key.clone())),
    );
    rules.problems
}

fn keyed(list: &str, key: &str, names: impl Iterator<Item = String>) -> impl Iterator<Item = (String, String)> {
    names.enumerate().map(move |(i, name)| (format!("{list}[{i}].{key}"), name))
}

/// Looking at files more often than this would be all that is done.
const RELOAD_INTERVAL_MIN: Duration = Duration::from_millis(10);

fn server(rules: &mut Rules<'_>, settings: &Settings) {
    let s = &settings.server;
    rules.check(!s.listen.is_empty(), &["server.listen"], || "write at least one address".into());
    ports::differ(rules, settings);
    rules.region("server.region", &s.region);
    for (i, domain) in s.domains.iter().enumerate() {
        let label = |l: &str| !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        rules.check(domain.split('.').all(label), &[&format!("server.domains[{i}]")], || {
            format!("{domain:?} is no host name; write one without scheme and port, such as \"s3.example.com\"")
        });
    }
    rules.unique(
        "the domain",
        true,
        s.domains.iter().enumerate().map(|(i, d)| (format!("server.domains[{i}]"), d.to_ascii_lowercase())),
    );
    rules.check(is_base_path(&s.base_path), &["server.base_path"], || {
        format!("{:?} is no base path; write one such as \"/s3\", of letters, digits, \"-\", \".\", \"_\" and \"~\"", s.base_path)
    });
    let known = settings.identities.iter().position(|identity| s.anonymous && identity.name == NOBODY);
    rules.check(known.is_none(), &[&format!("identities[{}].name", known.unwrap_or_default())], || {
        format!("{NOBODY:?} is the name of those who do not sign (server.anonymous); write another")
    });
    rules.wait("server.header_timeout", s.header_timeout);
    rules.wait("server.idle_timeout", s.idle_timeout);
    rules.wait("server.body_idle_timeout", s.body_idle_timeout);
    let rests = s.reload_interval.is_zero() || s.reload_interval >= RELOAD_INTERVAL_MIN;
    rules.check(rests, &["server.reload_interval"], || "must be at least 10ms, or 0s for never".into());
    rules.count("server.connections_max", s.connections_max);
    rules.count("server.requests_max", s.requests_max);
    rules.size("server.memory_bytes_max", s.memory_bytes_max);
    rules.size("server.chunk_bytes_max", s.chunk_bytes_max);
    rules.check(s.chunk_bytes_max <= s.memory_bytes_max, &["server.chunk_bytes_max", "server.memory_bytes_max"], || {
        format!(
            "server.chunk_bytes_max ({}) is more than server.memory_bytes_max ({})",
            format_size(s.chunk_bytes_max),
            format_size(s.memory_bytes_max)
        )
    });
    let t = &settings.tail;
    rules.wait("tail.backoff_base", t.backoff_base);
    rules.check(t.backoff_base <= t.backoff_max, &["tail.backoff_max", "tail.backoff_base"], || {
        "tail.backoff_max must not be shorter than tail.backoff_base".into()
    });
    rules
        .check((0.0..=0.9).contains(&t.plain_share), &["tail.plain_share"], || format!("{} is not from 0.0 to 0.9", t.plain_share));
    rules.wait("tail.queue_wait", t.queue_wait);
    rules
        .check((0.0..=1.0).contains(&t.retry_share), &["tail.retry_share"], || format!("{} is not from 0.0 to 1.0", t.retry_share));
    rules.count("tail.breaker_failures", t.breaker_failures);
    rules.wait("tail.breaker_pause", t.breaker_pause);
    rules.check(directives(&settings.log.level).is_ok(), &["log.level"], || {
        directives(&settings.log.level).err().unwrap_or_default()
    });
}

/// Whether a log filter means what it says. A lone word is taken for a level, since the filter itself would take a misspelt
/// level for the name of a module and log nothing else.
fn directives(level: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in level.split(',').map(str::trim) {
        if !part.contains(['=', '[']) && !LEVELS.contains(&part.to_ascii_lowercase().as_str()) {
            let near = nearest(part, LEVELS).unwrap_or("info");
            return Err(format!("{part:?} is no level, the nearest is {near:?}; for one module write module=level"));
        }
    }
    EnvFilter::builder().parse(level).map(drop).map_err(|e| format!("{level:?} is no log filter: {e}"))
}

/// Most bytes that one reservation may take.
const RESERVATION_BYTES_MAX: u64 = 1 << 30;

fn batch(rules: &mut Rules<'_>, settings: &Settings) {
    let b = &settings.batch;
    rules.count("batch.entries_max", b.entries_max);
    rules.count("batch.entries_in_flight_max", b.entries_in_flight_max);
    rules.check(b.entries_max <= b.entries_in_flight_max, &["batch.entries_in_flight_max", "batch.entries_max"], || {
        format!("batch.entries_max ({}) is more than batch.entries_in_flight_max ({})", b.entries_max, b.entries_in_flight_max)
    });
    rules.size("batch.body_bytes_max", b.body_bytes_max);
    rules.size("batch.entry_bytes", b.entry_bytes);
    rules.size("batch.window_bytes", b.window_bytes);
    rules.count("batch.concurrency", b.concurrency);
    rules.wait("batch.entry_deadline", b.entry_deadline);
    rules.wait("batch.client_stall", b.client_stall);
    rules.check(b.entry_bytes <= b.window_bytes, &["batch.entry_bytes", "batch.window_bytes"], || {
        format!(
            "batch.entry_bytes ({}) is more than batch.window_bytes ({})",
            format_size(b.entry_bytes),
            format_size(b.window_bytes)
        )
    });
    for (key, bytes) in [("batch.entry_bytes", b.entry_bytes), ("batch.body_bytes_max", b.body_bytes_max)] {
        rules.check(bytes <= RESERVATION_BYTES_MAX, &[key], || {
            format!("{key} ({}) is more than {}", format_size(bytes), format_size(RESERVATION_BYTES_MAX))
        });
    }
    // A quarter of the budget is kept for the heads of batches; a batch that cannot fit there could never be admitted. The
    // body counts twice: its text and what is read from it are there together.
    let entries = ENTRY_PARSED_BYTES_MAX.saturating_mul(b.entries_max as u64);
    let needed = b.entry_bytes.saturating_add(b.body_bytes_max.saturating_mul(2)).saturating_add(entries);
    let quarter = settings.server.memory_bytes_max / 4;
    let keys = ["batch.body_bytes_max", "server.memory_bytes_max", "batch.entry_bytes", "batch.entries_max"];
    rules.check(needed <= quarter, &keys, || {
        format!(
            "batch.entry_bytes ({}), {ENTRY_PARSED_BYTES_MAX} bytes for each of batch.entries_max ({}) and twice batch.body_bytes_max \
             ({}) are more than a quarter of server.memory_bytes_max ({})",
            format_size(b.entry_bytes),
            b.entries_max,
            format_size(b.body_bytes_max),
            format_size(settings.server.memory_bytes_max)
        )
    });
}

/// Less than this holds nothing that is worth a store: every bucket and object takes a few KiB beside its data.
const STORE_BYTES_MIN: u64 = 1 << 20;

/// More than this is not a store but a mistake.
const LATENCY_MAX: Duration = Duration::from_secs(60);

fn backend_rules(rules: &mut Rules<'_>, at: &str, b: &BackendConfig) {
    let key = |name: &str| format!("{at}.{name}");
    let plain =
        (1..=63).contains(&b.name.len()) && b.name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'));
    rules.check(plain, &[&key("name")], || {
        format!("{:?} is no name; write 1 to 63 of letters, digits, \".\", \"_\" and \"-\"", b.name)
    });
    if b.kind == BackendKind::Embedded {
        rules.size(&key("memory_bytes_max"), b.memory_bytes_max);
        let enough = b.memory_bytes_max == 0 || b.memory_bytes_max >= STORE_BYTES_MIN;
        rules.check(enough, &[&key("memory_bytes_max")], || {
            format!(
                "{} is too little for a store; write at least {}",
                format_size(b.memory_bytes_max),
                format_size(STORE_BYTES_MIN)
            )
        });
    } else {
        let endpoint = of_backend(&b.endpoint);
        rules.check(endpoint.is_ok(), &[&key("endpoint")], || endpoint.err().unwrap_or_default().into());
    }
    rules.region(&key("region"), &b.region);
    if let CredentialsConfig::Static { access_key: id, .. } = &b.credentials {
        access_key(rules, &key("credentials"), id);
    }
    rules.wait(&key("connect_timeout"), b.connect_timeout);
    rules.wait(&key("attempt_timeout"), b.attempt_timeout);
    rules.wait(&key("response_timeout"), b.response_timeout);
    rules.check(b.latency <= LATENCY_MAX, &[&key("latency")], || "must be at most 1 minute".into());
    rules.count(&key("concurrency"), b.concurrency);
    rules.count(&key("concurrency_min"), b.concurrency_min);
    rules.check(b.concurrency_min <= b.concurrency, &[&key("concurrency_min"), &key("concurrency")], || {
        format!("concurrency_min ({}) is more than concurrency ({})", b.concurrency_min, b.concurrency)
    });
}

/// An access key goes into a credential scope, where a slash or a comma would split it.
fn access_key(rules: &mut Rules<'_>, at: &str, access_key: &str) {
    let plain = access_key.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b','));
    rules.check(plain, &[&format!("{at}.access_key")], || "has a space, a \"/\" or a \",\", which no request could carry".into());
}

fn routes(rules: &mut Rules<'_>, settings: &Settings) {
    let backends = || settings.backends.iter().map(|b| b.name.as_str());
    if settings.routes.is_empty() && settings.backends.len() > 1 {
        rules.check(false, &["routes", "backends"], || {
            "with more than one backend, [[routes]] must say which bucket is where".into()
        });
    }
    let mut all: Option<usize> = None;
    for (i, RouteConfig { bucket, backend, rename }) in settings.routes.iter().enumerate() {
        let key = |name: &str| format!("routes[{i}].{name}");
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*' | b'?');
        rules.check(!bucket.is_empty() && bucket.bytes().all(letter), &[&key("bucket")], || {
            format!("{bucket:?} matches no bucket; write letters, digits, \".\", \"_\", \"-\" and the wildcards * and ?")
        });
        rules.check(backends().any(|name| name == backend), &[&key("backend")], || match nearest(backend, backends()) {
            Some(near) => format!("no backend is called {backend:?}; the nearest is {near:?}"),
            None => format!("no backend is called {backend:?}; there is no [[backends]] at all"),
        });
        if let Some(rename) = rename {
            rules.check(!bucket.contains(['*', '?']), &[&key("backend_bucket")], || {
                "only a route whose bucket has no wildcard can give another name".into()
            });
            let plain = crate::types::BucketName::new(rename).is_some();
            rules.check(plain, &[&key("backend_bucket")], || format!("{rename:?} is no bucket's name"));
        }
        rules.check(all.is_none(), &[&key("bucket")], || {
            format!("is never reached: routes[{}] takes every bucket, and the first match wins", all.unwrap_or_default())
        });
        if bucket == "*" && all.is_none() {
            all = Some(i);
        }
    }
    let patterns = settings.routes.iter().map(|r| if r.bucket == "*" { String::new() } else { r.bucket.clone() });
    rules.unique("the bucket", true, keyed("routes", "bucket", patterns));
}
