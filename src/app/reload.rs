//! Settings that change while the gateway runs. What enters is settings that were loaded anew, or what is wrong with them;
//! what leaves is a gateway that goes by them, in all that can change without a restart. Invariant: a version is put in force
//! as a whole or not at all, and nothing that is under way notices: a request ends under the identity, and a connection on
//! the certificate, with which it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::{Gateway, identity, system_clock};
use crate::auth::{Authenticator, Identity};
use crate::config::{BackendConfig, Settings};
use crate::edge::admin::Admin;
use crate::edge::listener::Server;
use crate::edge::tls::Pair;
use crate::telemetry::{LogLevel, Metrics};

/// Most problems that are named in the log; `batchgate config check` names them all.
const LOGGED_MAX: usize = 20;

/// Puts settings in force in a gateway that runs: identities with their policies, the certificate, `log.level`, `log.access`.
pub struct Reloader {
    authenticator: Arc<Authenticator>,
    server: Arc<Server<Gateway>>,
    admin: Arc<Admin>,
    metrics: Metrics,
    started: Settings,
}

impl Reloader {
    /// For the gateway of these parts, which was `started` just now with these settings.
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        server: Arc<Server<Gateway>>,
        admin: Arc<Admin>,
        metrics: Metrics,
        started: Settings,
    ) -> Self {
        // Both outcomes are there from the start, so that the first failure is a rise and not a beginning.
        for outcome in ["success", "failure"] {
            let _ = metrics.config_reloads_total.with_label_values(&[outcome]);
        }
        let reloader = Self { authenticator, server, admin, metrics, started };
        reloader.note_success();
        reloader.tell(None);
        reloader
    }

    /// Puts `loaded` in force, or says in the log and counts that it is refused: for every problem that loading found, or for what
    /// is found here.
    ///
    /// # Errors
    /// The number of problems.
    pub fn reload(&self, loaded: Result<Settings, Vec<String>>, log: &LogLevel) -> Result<(), usize> {
        match loaded.and_then(|settings| self.put_in_force(settings, log)) {
            Ok((identities, restart)) => {
                self.metrics.config_reloads_total.with_label_values(&["success"]).inc();
                self.note_success();
                tracing::info!(identities, "settings were loaded anew");
                if identities == 0 {
                    tracing::warn!("the settings name no identity, so every request will be refused");
                }
                if !restart.is_empty() {
                    tracing::warn!("needs a restart: {}", restart.join(", "));
                }
                Ok(())
            }
            Err(problems) => {
                self.metrics.config_reloads_total.with_label_values(&["failure"]).inc();
                let more = problems.len().saturating_sub(LOGGED_MAX);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                let named = problems[..problems.len().min(LOGGED_MAX)].join("; ");
                tracing::error!("settings were refused, those of before stay: {named}{more}");
                Err(problems.len())
            }
        }
    }

    /// Says in `/readyz` and in the metrics what is refused and still there, whenever it was read.
    pub fn tell(&self, refused: Option<String>) {
        self.metrics.config_reload_successful.set(i64::from(refused.is_none()));
        *self.admin.reload_problem.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    fn note_success(&self) {
        let now = system_clock().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.metrics.config_reload_success_seconds.set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    /// How many identities there are now, and the keys that need a restart.
    fn put_in_force(&self, loaded: Settings, log: &LogLevel) -> Result<(usize, Vec<String>), Vec<String>> {
        let in_force = merged(&self.started, &loaded);
        let mut problems = Vec::new();
        let mut identities: Vec<Identity> = Vec::with_capacity(in_force.identities.len());
        for config in &in_force.identities {
            match identity(config) {
                Ok(identity) => identities.push(identity),
                Err(error) => problems.push(format!("identity {}: {error}", config.name)),
            }
        }
        let pair = in_force.server.tls.as_ref().map(|tls| Pair::read(&tls.cert_file, &tls.key_file)).transpose();
        let pair = pair.unwrap_or_else(|error| {
            problems.push(format!("server.tls: {error}"));
            None
        });
        if problems.is_empty() {
            problems.extend(log.set(&in_force.log.level).err());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        // From here on nothing can fail.
        let count = identities.len();
        self.authenticator.replace(identities);
        if let (Some(tls), Some(pair)) = (self.server.tls(), pair) {
            note_expiry(&self.metrics, &pair);
            tls.replace(pair);
        }
        self.server.edge().set_access_log(in_force.log.access);
        let shown = toml::to_string(&in_force).expect("settings are tables of texts, numbers and lists");
        *self.admin.settings.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok((count, needs_restart(&in_force, &loaded)))
    }
}

/// Says when the certificate that is in force ends.
pub(super) fn note_expiry(metrics: &Metrics, pair: &Pair) {
    metrics.certificate_expiry.reset();
    if let Some(seconds) = pair.expiry() {
        let gauge = metrics.certificate_expiry.with_label_values::<&str>(&[]);
        gauge.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}

/// What `loaded` says where that can change, and the rest as it was at the start.
fn merged(started: &Settings, loaded: &Settings) -> Settings {
    let mut merged = started.clone();
    merged.identities.clone_from(&loaded.identities);
    merged.identities_file.clone_from(&loaded.identities_file);
    if merged.server.tls.is_some() && loaded.server.tls.is_some() {
        merged.server.tls.clone_from(&loaded.server.tls);
    }
    merged.log.level.clone_from(&loaded.log.level);
    merged.log.access = loaded.log.access;
    merged
}

/// The keys in which `loaded` is not what is in force.
fn needs_restart(in_force: &Settings, loaded: &Settings) -> Vec<String> {
    let mut keys = BTreeSet::new();
    let [old, new] = [in_force, loaded].map(|settings| {
        let mut value = serde_json::to_value(settings).expect("settings have text keys");
        value.as_object_mut().expect("settings are a table").remove("backends");
        value
    });
    differing("", &old, &new, &mut keys);
    let by_name = |settings: &Settings| -> BTreeMap<String, BackendConfig> {
        settings.backends.iter().map(|backend| (backend.name.clone(), backend.clone())).collect()
    };
    let (old, new) = (by_name(in_force), by_name(loaded));
    for name in old.keys().chain(new.keys()) {
        let at = format!("backends.{name}");
        let (Some(old), Some(new)) = (old.get(name), new.get(name)) else {
            keys.insert(at);
            continue;
        };
        let [was, is] = [old, new].map(|backend| serde_json::to_value(backend).expect("a backend has text keys"));
        let credentials = format!("{at}.credentials");
        differing(&at, &was, &is, &mut keys);
        // A secret is hidden from whoever writes it out.
        if old.credentials != new.credentials && !keys.iter().any(|key| key.starts_with(&credentials)) {
            keys.insert(credentials);
        }
    }
    keys.into_iter().collect()
}

fn differing(path: &str, old: &Value, new: &Value, keys: &mut BTreeSet<String>) {
    let (Value::Object(was), Value::Object(is)) = (old, new) else {
        if old != new {
            keys.insert(path.to_owned());
        }
        return;
    };
    for key in was.keys().chain(is.keys()) {
        let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        differing(&at, was.get(key).unwrap_or(&Value::Null), is.get(key).unwrap_or(&Value::Null), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CredentialsConfig, IdentityConfig, PolicySource, Secret, TlsConfig};

    fn settings() -> Settings {
        let pair = |secret: &str| CredentialsConfig::Static {
            access_key: "AK".into(),
            secret_key: Secret::new(secret),
            session_token: None,
        };
        let backend = BackendConfig { credentials: pair("SK"), ..BackendConfig::new("store", "http://a:1") };
        Settings { backends: vec![backend, BackendConfig::embedded("memory")], ..Settings::default() }
    }

    fn changed(change: impl FnOnce(&mut Settings)) -> Vec<String> {
        let started = settings();
        let mut loaded = settings();
        change(&mut loaded);
        needs_restart(&merged(&started, &loaded), &loaded)
    }

    #[test]
    fn what_can_change_needs_no_restart() {
        let restart = changed(|s| {
            s.identities.push(IdentityConfig {
                name: "a".into(),
                access_key: "A".into(),
                secret_key: Secret::new("S"),
                session_token: None,
                policy: PolicySource::None,
                backend_credentials: BTreeMap::new(),
            });
            s.log.level = "debug".into();
            s.log.access = false;
        });
        assert_eq!(restart, Vec::<String>::new());
    }

    #[test]
    fn what_needs_a_restart_is_named_by_its_key_and_a_secret_too() {
        let restart = changed(|s| {
            s.server.listen.clear();
            s.server.tls = Some(TlsConfig { cert_file: "c".into(), key_file: "k".into() });
            s.log.format = crate::config::LogFormat::Json;
            s.batch.concurrency += 1;
            s.backends[0].endpoint = "http://b:1".into();
            s.backends[0].credentials =
                CredentialsConfig::Static { access_key: "AK".into(), secret_key: Secret::new("other"), session_token: None };
            s.backends[1].name = "renamed".into();
        });
        let expected = [
            "backends.memory",
            "backends.renamed",
            "backends.store.credentials",
            "backends.store.endpoint",
            "batch.concurrency",
            "log.format",
            "server.listen",
            "server.tls",
        ];
        assert_eq!(restart, expected);
    }
}
