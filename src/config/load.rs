//! Which keys there are. What enters is all [`Sources`]; what leaves is [`Settings`], or every problem in the order of the
//! file. The keys of each table are listed once, here, under the names that the structs give them. Invariant: later
//! sources win (defaults, file, environment, flags), and no key is silently ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::{DOCUMENT_BYTES_MAX, TABLES_BYTES_MAX};
use super::problem::Problem;
use super::reader::{Reader, Section};
use super::tree::{Node, Sources, join, merge, parse_file};
use super::validate::{Facts, validate};
use super::value::Secret;
use super::{
    AdminConfig, BackendConfig, BackendKind, BatchConfig, CredentialsConfig, IdentityConfig, KeyPairConfig, LogConfig,
    PolicySource, RouteConfig, ServerConfig, Settings, TailConfig, TlsConfig,
};

/// Reads each named field of a struct from the key of the same name.
macro_rules! fields {
    ($reader:ident, $section:ident, $to:ident: $($field:ident),+ $(,)?) => {
        $($reader.set(&mut $section, stringify!($field), &mut $to.$field);)+
    };
}

/// Merges and validates all sources. No backend at all is allowed, since only `serve` wants one; with exactly one backend
/// and no route, every bucket is routed to it.
///
/// # Errors
/// Every problem there is, in the order of the file's lines; then those of the environment and of the flags.
pub fn load(sources: &Sources<'_>) -> Result<Settings, Vec<Problem>> {
    let mut problems = Vec::new();
    let Some(root) = merge(sources, &mut problems) else { return Err(problems) };
    let mut reader = Reader { sources, problems: Vec::new(), syntax: Vec::new(), origins: BTreeMap::new() };
    let (mut settings, inline) = read(&mut reader, root);
    problems.append(&mut reader.syntax);
    let syntax: BTreeSet<_> = problems.iter().map(|p| p.origin.clone()).collect();
    // What stands on a broken line was said already.
    problems.extend(reader.problems.into_iter().filter(|p| !syntax.contains(&p.origin)));
    let broken = problems.iter().map(|p| p.key.clone()).collect();
    let facts = Facts { origins: &reader.origins, broken, inline };
    problems.extend(validate(&settings, &facts));
    if !problems.is_empty() {
        problems.iter_mut().for_each(|p| p.key = facts.in_its_file(&p.key));
        problems.sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
        return Err(problems);
    }
    if let ([backend], []) = (settings.backends.as_slice(), settings.routes.as_slice()) {
        settings.routes.push(RouteConfig { bucket: "*".into(), backend: backend.name.clone(), rename: None });
    }
    Ok(settings)
}

/// The settings, and how many of the identities stand in them and not in a file of their own.
fn read(r: &mut Reader<'_>, root: Node) -> (Settings, usize) {
    let mut top = r.section("", Some(root));
    let server = top.take("server");
    let admin = top.take("admin");
    let backends = r.list(&mut top, "backends");
    let routes = r.list(&mut top, "routes");
    let mut identities = r.list(&mut top, "identities");
    let inline = identities.len();
    let identities_file = r.file(&mut top, "identities_file", TABLES_BYTES_MAX);
    if let Some((path, text)) = &identities_file {
        identities.extend(more_identities(r, path, text, inline));
    }
    let backends: Vec<_> = backends.into_iter().map(|(path, node)| backend(r, &path, node)).collect();
    let settings = Settings {
        server: server_config(r, server, &backends),
        admin: admin_config(r, admin),
        identities: identities.into_iter().map(|(path, node)| identity(r, &path, node, &backends)).collect(),
        backends,
        routes: routes.into_iter().map(|(path, node)| route(r, &path, node)).collect(),
        identities_file: identities_file.map(|(path, _)| path),
        batch: batch(r, top.take("batch")),
        tail: tail(r, top.take("tail")),
        log: log(r, top.take("log")),
    };
    r.finish(top);
    (settings, inline)
}

/// The tables of an identities file; their numbers go on after the `inline` ones of the settings.
fn more_identities(r: &mut Reader<'_>, path: &Path, text: &str, inline: usize) -> Vec<(String, Node)> {
    let Some(root) = parse_file(path, text, &mut r.syntax) else { return Vec::new() };
    let mut top = r.section("", Some(root));
    // A file that was cut before its first table would take everyone's access away.
    if !top.has("identities") && r.syntax.is_empty() {
        let message = "is required; for a file that lets nobody in, write identities = []";
        r.problem(&top.origin.clone(), "identities", message);
    }
    let tables = r.list(&mut top, "identities").into_iter().enumerate();
    let tables = tables.map(|(i, (_, node))| (format!("identities[{}]", inline + i), node)).collect();
    r.finish(top);
    tables
}

fn server_config(r: &mut Reader<'_>, node: Option<Node>, backends: &[BackendConfig]) -> ServerConfig {
    let mut c = ServerConfig::default();
    // Clients of stores that are all in one region sign for it.
    if let Some((first, others)) = backends.split_first()
        && others.iter().all(|other| other.region == first.region)
    {
        c.region.clone_from(&first.region);
    }
    let mut s = r.section("server", node);
    fields!(r, s, c: listen, region, any_region, domains, base_path, sigv2, anonymous, header_timeout, idle_timeout, body_idle_timeout, connections_max,
        requests_max, memory_bytes_max, chunk_bytes_max, drain_lead, drain_deadline, reload_interval);
    if let Some(node) = s.take("tls") {
        let mut tls = r.section("server.tls", Some(node));
        let [cert_file, key_file] = ["cert_file", "key_file"].map(|key| {
            if !tls.has(key) {
                r.problem(&tls.origin.clone(), tls.path_of(key), "is required");
            }
            r.file_path(&mut tls, key).unwrap_or_default()
        });
        c.tls = Some(TlsConfig { cert_file, key_file });
        r.finish(tls);
    }
    r.finish(s);
    c
}

fn admin_config(r: &mut Reader<'_>, node: Option<Node>) -> AdminConfig {
    let mut c = AdminConfig::default();
    let mut s = r.section("admin", node);
    fields!(r, s, c: listen);
    r.finish(s);
    c
}

/// Keys of a backend that only one of kind `"s3"` has.
pub(super) const OF_S3: &[&str] =
    &["endpoint", "addressing", "credentials", "ca_file", "checksums", "payload_signing", "content_md5", "connect_timeout"];

fn backend(r: &mut Reader<'_>, path: &str, node: Node) -> BackendConfig {
    let mut s = r.section(path, Some(node));
    let name = r.required(&mut s, "name");
    let mut c = match r.get(&mut s, "kind").unwrap_or(BackendKind::S3) {
        BackendKind::S3 => BackendConfig::new(name, r.required(&mut s, "endpoint")),
        BackendKind::Embedded => BackendConfig::embedded(name),
    };
    let (kind, elsewhere): (_, &[&str]) = match c.kind {
        BackendKind::S3 => ("s3", &["memory_bytes_max"]),
        BackendKind::Embedded => ("embedded", OF_S3),
    };
    for key in elsewhere {
        if let Some(node) = s.take(key) {
            r.problem(&node.origin, s.path_of(key), format!("has no place in a backend of kind {kind:?}; remove it"));
        }
    }
    fields!(r, s, c: region, addressing, checksums, payload_signing, content_md5, connect_timeout, attempt_timeout, response_timeout, concurrency, concurrency_min,
        latency, memory_bytes_max);
    c.ca_file = r.file_path(&mut s, "ca_file");
    if let Some(node) = s.take("credentials") {
        c.credentials = credentials(r, &s.path_of("credentials"), node);
    }
    r.finish(s);
    c
}

fn credentials(r: &mut Reader<'_>, path: &str, node: Node) -> CredentialsConfig {
    let mut s = r.section(path, Some(node));
    let pair = ["access_key", "secret_key"].iter().any(|key| ["", "_file", "_env"].iter().any(|way| s.has(&format!("{key}{way}"))));
    let source: Option<String> = r.get(&mut s, "source");
    let chosen = match source.as_deref() {
        Some("static") => {
            let KeyPairConfig { access_key, secret_key, session_token } = key_pair(r, &mut s);
            CredentialsConfig::Static { access_key, secret_key, session_token }
        }
        Some("chain") | None => {
            if pair {
                r.problem(&s.origin.clone(), s.path_of("source"), "a key pair needs source = \"static\"");
            }
            for key in ["access_key", "secret_key", "session_token"] {
                ["", "_file", "_env"].iter().for_each(|way| drop(s.take(&format!("{key}{way}"))));
            }
            CredentialsConfig::Chain
        }
        Some(_) => {
            let origin = r.origins[&s.path_of("source")].clone();
            r.problem(&origin, s.path_of("source"), "must be \"chain\" or \"static\"");
            return CredentialsConfig::Chain;
        }
    };
    r.finish(s);
    chosen
}

fn key_pair(r: &mut Reader<'_>, s: &mut Section) -> KeyPairConfig {
    KeyPairConfig {
        access_key: r.required_secret(s, "access_key"),
        secret_key: Secret::new(r.required_secret(s, "secret_key")),
        session_token: r.optional_secret(s, "session_token"),
    }
}

/// The accounts of an identity, by the names of `backends`. `validate` says which of them there are not.
fn backend_credentials(r: &mut Reader<'_>, path: &str, node: Node, backends: &[BackendConfig]) -> BTreeMap<String, KeyPairConfig> {
    let table = r.section(path, Some(node));
    let mut pairs = BTreeMap::new();
    for (name, node) in table.left {
        let mut s = r.section(&account_path(path, &name, backends), Some(node));
        pairs.insert(name, key_pair(r, &mut s));
        r.finish(s);
    }
    pairs
}

/// The key of the account at the backend called `name`. What is the name of none may be anything, a secret too.
pub(super) fn account_path(path: &str, name: &str, backends: &[BackendConfig]) -> String {
    if backends.iter().any(|backend| backend.name == name) { format!("{path}.{name}") } else { join(path, name) }
}

fn route(r: &mut Reader<'_>, path: &str, node: Node) -> RouteConfig {
    let mut s = r.section(path, Some(node));
    let bucket = r.required(&mut s, "bucket");
    let backend = r.required(&mut s, "backend");
    let rename = r.get(&mut s, "backend_bucket");
    r.finish(s);
    RouteConfig { bucket, backend, rename }
}

fn identity(r: &mut Reader<'_>, path: &str, node: Node, backends: &[BackendConfig]) -> IdentityConfig {
    let mut s = r.section(path, Some(node));
    let name = r.required(&mut s, "name");
    let access_key = r.required_secret(&mut s, "access_key");
    let secret_key = Secret::new(r.required_secret(&mut s, "secret_key"));
    let session_token = r.optional_secret(&mut s, "session_token");
    let policy = policy(r, &mut s);
    let backend_credentials = match s.take("backend_credentials") {
        Some(node) => backend_credentials(r, &s.path_of("backend_credentials"), node, backends),
        None => BTreeMap::new(),
    };
    r.finish(s);
    IdentityConfig { name, access_key, secret_key, session_token, policy, backend_credentials }
}

fn policy(r: &mut Reader<'_>, s: &mut Section) -> PolicySource {
    let ways = ["policy", "policy_file", "policy_json"];
    r.at_most_one(s, &ways.map(str::to_owned));
    let word: Option<String> = r.get(s, "policy");
    let named = word.map(|word| match word.as_str() {
        "read-only" => PolicySource::ReadOnly,
        "full-access" => PolicySource::FullAccess,
        _ => {
            let origin = r.origins[&s.path_of("policy")].clone();
            let message = "must be \"read-only\" or \"full-access\"; a document goes into policy_file or policy_json";
            r.problem(&origin, s.path_of("policy"), message);
            PolicySource::None
        }
    });
    let from_file = r.file_text(s, "policy_file", DOCUMENT_BYTES_MAX).map(|text| ("policy_file", text));
    let in_place = r.get(s, "policy_json").map(|text| ("policy_json", text));
    let document = from_file.or(in_place).map(|(key, text)| {
        if let Err(message) = (r.sources.check_policy)(&text) {
            let origin = r.origins[&s.path_of(key)].clone();
            r.problem(&origin, s.path_of(key), message);
        }
        PolicySource::Document(text)
    });
    named.or(document).unwrap_or_default()
}

fn batch(r: &mut Reader<'_>, node: Option<Node>) -> BatchConfig {
    let mut c = BatchConfig::default();
    let mut s = r.section("batch", node);
    fields!(r, s, c: entries_max, entries_in_flight_max, body_bytes_max, entry_bytes, window_bytes, concurrency, entry_deadline,
        client_stall);
    r.finish(s);
    c
}

fn tail(r: &mut Reader<'_>, node: Option<Node>) -> TailConfig {
    let mut c = TailConfig::default();
    let mut s = r.section("tail", node);
    fields!(r, s, c: backoff_base, backoff_max, plain_share, queue_wait, retry_share, breaker_failures, breaker_pause);
    r.finish(s);
    c
}

fn log(r: &mut Reader<'_>, node: Option<Node>) -> LogConfig {
    let mut c = LogConfig::default();
    let mut s = r.section("log", node);
    fields!(r, s, c: level, format, access);
    r.finish(s);
    c
}
