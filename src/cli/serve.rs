//! `batchgate serve`: settings in, a gateway that runs until it is told to end. Prints its real addresses before it answers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rand::Rng;
use rand::rngs::OsRng;
use rand::{SeedableRng, rngs::StdRng};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::config::{World, show};
use super::reload::{Source, Watch};
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, complain};
use crate::app;
use crate::backend::embedded::NOTICE;
use crate::config::{BackendKind, Flag, IdentityConfig, LogFormat, PolicySource, Secret, Settings, overlooked};
use crate::telemetry::{LogLevel, start_logging};

/// Where AWS tools find the region, the first one that is set.
const REGION_VARIABLES: &[&str] = &["AWS_REGION", "AWS_DEFAULT_REGION"];

/// What `serve` can be told on the command line; everything else is in the settings.
#[derive(Clone, Debug, Args)]
#[command(
    about = "Run the gateway",
    long_about = "Run the gateway.\n\n\
                  Reads settings from the defaults, then FILE, then the environment (BATCHGATE__SERVER__LISTEN='[\"0.0.0.0:9000\"]'), then \
                  these flags. Without FILE and without --backend it serves a store of its own, in memory: for trying and testing, empty \
                  at start and lost at the end. Without FILE it also makes a key pair, and prints it.\n\n\
                  Prints a `listening` line with the real address of each port, then serves until SIGTERM or SIGINT: what is under way \
                  is finished first, until server.drain_deadline; a second signal ends it at once. The log goes to stderr, a line for \
                  each request unless log.access is false.\n\n\
                  SIGHUP loads the settings anew, and so does a change of a file that they name (identities_file, policy_file, \
                  ..._file of a secret, certificate and key), once it was there twice in a row (server.reload_interval, 2s; \
                  FILE itself is read again on SIGHUP only). Identities with their policies, the certificate, log.level and \
                  log.access change without a dropped request; what else has changed is named in the log and needs a restart. A bad \
                  version is refused as a whole: the log, /readyz and batchgate_config_reload_successful say so, until a good one is \
                  there (of FILE: until SIGHUP finds one), and what was in force stays. FILE and identities_file may have 16 MiB, \
                  PEM files 1 MiB, policies 256 KiB, files of secrets 64 KiB.",
    after_help = "Examples:\n  \
                  # A store in memory on 127.0.0.1:9000; prints a key pair\n  batchgate serve\n\n  \
                  # In front of a store; its credentials as every AWS tool finds them; prints a key pair\n  \
                  batchgate serve --backend http://127.0.0.1:8333\n\n  \
                  # All as the file says\n  batchgate serve --config batchgate.toml\n\n\
                  Exit codes: 0 ended as told, 2 wrong settings, 3 could not be done."
)]
pub struct ServeArgs {
    /// The settings file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the S3 port, in place of server.listen (127.0.0.1:9000); port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address of the admin port, in place of admin.listen (127.0.0.1:9001)
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,
    /// URL of the one S3 store behind all buckets, in place of the backends and routes of the settings; its region is
    /// AWS_REGION, AWS_DEFAULT_REGION or us-east-1, its credentials are found as every AWS tool finds them
    #[arg(long, value_name = "URL")]
    backend: Option<String>,
}

impl ServeArgs {
    fn flags(&self, env: &[(String, String)]) -> Vec<Flag> {
        let flag = |name: &str, key: &str, value: toml::Value| Flag { name: name.to_owned(), key: key.to_owned(), value };
        let text = |value: &str| toml::Value::String(value.to_owned());
        let table = |pairs: &[(&str, &str)]| toml::Value::Table(pairs.iter().map(|(k, v)| ((*k).to_owned(), text(v))).collect());
        let mut flags = Vec::new();
        if let Some(address) = self.listen {
            flags.push(flag("--listen", "server.listen", toml::Value::Array(vec![text(&address.to_string())])));
        }
        if let Some(address) = self.admin_listen {
            flags.push(flag("--admin-listen", "admin.listen", text(&address.to_string())));
        }
        if let Some(url) = &self.backend {
            let region = REGION_VARIABLES.iter().find_map(|name| env.iter().find(|(n, v)| n == name && !v.is_empty()));
            let region = region.map_or("us-east-1", |(_, value)| value);
            let endpoint = url.trim_end_matches('/');
            let backend = table(&[("name", "default"), ("kind", "s3"), ("endpoint", endpoint), ("region", region)]);
            flags.push(flag("--backend", "backends", toml::Value::Array(vec![backend])));
            flags.push(flag("--backend", "routes", toml::Value::Array(vec![table(&[("bucket", "*"), ("backend", "default")])])));
        }
        flags
    }
}

/// Runs the gateway to its end.
///
/// # Errors
/// Only those of `out`.
pub fn run(args: &ServeArgs, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let hangup = {
        let _inside = runtime.enter();
        // First of all: whoever asks for a reload while it starts must not end it.
        signal(SignalKind::hangup())?
    };
    let mut source = Source::new(args.config.clone(), args.flags(&world.env), world.env.clone());
    let (settings, seen) = source.first();
    let settings = match settings {
        Ok(settings) => settings,
        Err(problems) => {
            let lines: Vec<String> = problems.into_iter().chain(overlooked(&world.env)).collect();
            return Ok(complain(&lines.join("\n"), EXIT_USAGE));
        }
    };
    let log = match start_logging(&settings.log.level, settings.log.format == LogFormat::Json) {
        Ok(log) => log,
        Err(what) => return Ok(complain(&what, EXIT_USAGE)),
    };
    for what in overlooked(&world.env) {
        tracing::warn!("{what}");
    }
    if settings.identities.is_empty() {
        tracing::warn!("the settings name no identity, so every request will be refused");
    }
    let first = source.made_identity().cloned();
    let watch = Watch::new(source, seen, settings.server.reload_interval);
    let served = runtime.block_on(serve(&settings, first.as_ref(), (watch, log, hangup), out));
    // Connections that were broken off may leave tasks behind; they end with the process.
    runtime.shutdown_background();
    served
}

async fn serve(
    settings: &Settings,
    first: Option<&IdentityConfig>,
    (watch, log, hangup): (Watch, LogLevel, Signal),
    out: &mut dyn Write,
) -> io::Result<u8> {
    let shown = show(Ok(settings.clone()), false).text;
    let mut signals = Signals::new()?;
    let app = tokio::select! {
        app = app::build(settings, shown) => app,
        // Credentials may be long in coming.
        () = signals.told() => return Ok(EXIT_OK),
    };
    let app = match app {
        Ok(app) => app,
        Err(error) => return Ok(complain(&error.to_string(), EXIT_USAGE)),
    };
    let running = match app.spawn().await {
        Ok(running) => running,
        Err(error) => return Ok(complain(&error.to_string(), EXIT_FAILED)),
    };
    for backend in settings.backends.iter().filter(|backend| backend.kind == BackendKind::Embedded) {
        writeln!(out, "backend {}: {NOTICE}", backend.name)?;
    }
    if let Some(identity) = first {
        writeln!(out, "identity access_key={} secret_key={}", identity.access_key, identity.secret_key.expose())?;
    }
    let scheme = if running.secure { "https" } else { "http" };
    for address in &running.listening {
        writeln!(out, "listening s3 {scheme}://{address}")?;
    }
    writeln!(out, "listening admin http://{}", running.admin)?;
    out.flush()?;
    // To the end of the process: while it drains, an identity can still be taken away.
    tokio::spawn(watch.run(Arc::clone(&running.reloader), log, hangup));
    signals.told().await;
    tracing::info!("draining");
    running.finish(signals.told()).await;
    Ok(EXIT_OK)
}

/// The ways in which a process is told to end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Held so that a hangup ends nothing; what it means is for others.
    _hangup: Signal,
}

impl Signals {
    /// From now on none of them ends the process by itself.
    pub(super) fn new() -> io::Result<Self> {
        let [terminate, interrupt, hangup] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, _hangup: hangup? })
    }

    /// Waits until it is told to end.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Someone who may do everything, for a first try without a settings file. The keys are random and live as long as the
/// process.
pub(super) fn first_identity() -> IdentityConfig {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut random = StdRng::try_from_rng(&mut OsRng).expect("the system has randomness");
    let mut text =
        |length: usize| (0..length).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect::<String>();
    IdentityConfig {
        name: "first".to_owned(),
        access_key: text(20),
        secret_key: Secret::new(text(40)),
        session_token: None,
        policy: PolicySource::FullAccess,
        backend_credentials: BTreeMap::new(),
    }
}
