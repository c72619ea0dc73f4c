//! `batchgate serve`: settings in, a gateway that runs until it is told to end. Prints its real addresses before it answers.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use rand::Rng;
use rand::rngs::OsRng;
use rand::{SeedableRng, rngs::StdRng};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::config::{World, refusal, settings, show};
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, complain};
use crate::app;
use crate::backend::embedded::NOTICE;
use crate::config::{BackendConfig, BackendKind, Flag, IdentityConfig, LogFormat, PolicySource, RouteConfig, Secret, Settings};
use crate::telemetry::start_logging;

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
                  each request unless log.access is false.",
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
    /// URL of the one S3 store behind all buckets, in place of the backends and routes of the settings; its region is AWS_REGION or
    /// us-east-1, its credentials are found as every AWS tool finds them
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
    let mut settings = match settings(args.config.as_deref(), args.flags(&world.env), world) {
        Ok(settings) => settings,
        Err(problems) => return Ok(complain(refusal(&problems, false).text.trim_end(), EXIT_USAGE)),
    };
    if settings.backends.is_empty() {
        // Whoever wrote a file and forgot the store must not find out when its data is lost.
        if args.config.is_some() {
            let what = "there is no backend to serve. Give --backend URL, or a [[backends]] table in the settings file \
                        (name, kind = \"s3\", endpoint; or kind = \"embedded\" for a store in memory); see config/minimal.toml";
            return Ok(complain(what, EXIT_USAGE));
        }
        embedded(&mut settings);
    }
    if let Err(what) = start_logging(&settings.log.level, settings.log.format == LogFormat::Json) {
        return Ok(complain(&what, EXIT_USAGE));
    }
    let mut first = None;
    if settings.identities.is_empty() {
        if args.config.is_some() {
            tracing::warn!("the settings name no identity, so every request will be refused");
        } else {
            settings.identities.push(first_identity());
            first = settings.identities.last().cloned();
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(&settings, first.as_ref(), out));
    // Connections that were broken off may leave tasks behind; they end with the process.
    runtime.shutdown_background();
    served
}

/// All buckets in an embedded store, for a first try without any settings.
fn embedded(settings: &mut Settings) {
    let backend = BackendConfig::embedded("store");
    settings.routes.push(RouteConfig { bucket: "*".to_owned(), backend: backend.name.clone(), rename: None });
    settings.backends.push(backend);
}

async fn serve(settings: &Settings, first: Option<&IdentityConfig>, out: &mut dyn Write) -> io::Result<u8> {
    let shown = show(Ok(settings.clone()), false).text;
    let app = match app::build(settings, shown).await {
        Ok(app) => app,
        Err(error) => return Ok(complain(&error.to_string(), EXIT_USAGE)),
    };
    let mut signals = Signals::new()?;
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
    signals.told().await;
    tracing::info!("draining");
    running.finish(signals.told()).await;
    Ok(EXIT_OK)
}

/// The ways in which a process is told to end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on none of them ends the process by itself.
    pub(super) fn new() -> io::Result<Self> {
        let [terminate, interrupt, hangup] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, hangup: hangup? })
    }

    /// Waits until it is told to end.
    pub(super) async fn told(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::warn!("settings are not reloaded in this version; restart to change them"),
            }
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
    }
}
