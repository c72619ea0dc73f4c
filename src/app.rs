//! The composition root: the one place where settings become parts and parts meet. [`build`] is inert, [`App::spawn`] starts
//! what must run, [`Running::finish`] ends it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderValue, Response, header};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::auth::{Also, Authenticated, Authenticator, Identity, Policy, check_host};
use crate::backend::accepted::Accepted;
use crate::backend::breaker::{Breaker, BreakerConfig};
use crate::backend::delayed::Delayed;
use crate::backend::embedded::{EmbeddedStore, NOTICE};
use crate::backend::limited::{LimitConfig, Limiter};
use crate::backend::retry_budget::RetryBudget;
use crate::backend::s3::S3Store;
use crate::backend::warnings::Warnings;
use crate::backend::{Backend, Body, BoxError, KeyPair, Registry, Store, empty_body, full_body};
use crate::batch::admission::{Admission, heads_share};
use crate::batch::{self, Batches};
use crate::budget::Pool;
use crate::config::{BackendConfig, BackendKind, IdentityConfig, KeyPairConfig, PolicySource, Settings, TailConfig};
use crate::edge::admin::Admin;
use crate::edge::connections::sockets_max;
use crate::edge::listener::{ListenerConfig, Server, Shutdown};
use crate::edge::tls::{Pair, Tls};
use crate::edge::{Edge, EdgeConfig, Handled, Handler, descriptors};
use crate::error::Result;
use crate::passthrough::{self, Passthrough};
use crate::peer::Peer;
use crate::route::{self, Routes, Verb};
use crate::stall::StallWatch;
use crate::telemetry::Metrics;
use crate::types::{RequestId, S3Target};

pub mod reload;

use reload::Reloader;

/// Wall-clock time of the system, for signatures.
#[expect(clippy::disallowed_methods, reason = "the composition root is where the world comes in")]
pub fn system_clock() -> SystemTime {
    SystemTime::now()
}

/// A gateway that is put together and does not run yet.
pub struct App {
    server: Arc<Server<Gateway>>,
    admin: Arc<Admin>,
    reloader: Reloader,
    stalls: Arc<StallWatch>,
    shutdown: Shutdown,
    listen: Vec<SocketAddr>,
    admin_listen: SocketAddr,
    secure: bool,
    drain_lead: Duration,
    drain_deadline: Duration,
}

/// Decides what kind of request it is and hands it to whoever answers such.
struct Gateway {
    authenticator: Arc<Authenticator>,
    domains: Vec<String>,
    base_path: String,
    batches: Batches,
    passthrough: Passthrough,
}

/// Puts a gateway together. Fails if a certificate cannot be read or a policy is wrong; sends nothing and listens nowhere.
pub async fn build(settings: &Settings, shown: String) -> std::result::Result<App, BoxError> {
    let metrics = Metrics::new();
    let stalls = Arc::new(StallWatch::default());
    let shutdown = Shutdown::default();
    let mut registry = Registry::default();
    for config in &settings.backends {
        registry.insert(backend(config, &settings.tail, &metrics).await?);
    }
    let routes = Arc::new(routes(settings, &registry)?);
    let memory = |share: &str, bytes: u64| {
        metrics.memory_max_bytes.with_label_values(&[share]).set(bytes as i64);
        Pool::new(bytes, Some(metrics.memory_reserved_bytes.with_label_values(&[share])))
    };
    let heads = heads_share(settings.server.memory_bytes_max);
    let ahead = memory("window", settings.server.memory_bytes_max - heads);
    metrics.entries_in_flight_max.set(settings.batch.entries_in_flight_max as i64);
    let entries = Pool::new(settings.batch.entries_in_flight_max as u64, Some(metrics.entries_in_flight.clone()));
    let heads = memory("heads", heads);
    let admission = Admission::new(heads, ahead.clone(), entries, settings.batch.entry_bytes, Arc::clone(&stalls));
    let admission = Arc::new(admission);
    let identities = settings.identities.iter().map(identity).collect::<std::result::Result<_, _>>()?;
    let server = &settings.server;
    let also = Also { version_2: server.sigv2, nobody: server.anonymous, any_region: server.any_region };
    let authenticator = Authenticator::new(identities, &server.region, server.chunk_bytes_max, system_clock).letting_in(also);
    let authenticator = Arc::new(authenticator);
    let passthrough = Passthrough::new(Arc::clone(&routes), Arc::clone(&stalls), ahead).with_backoff(&settings.tail);
    let gateway = Gateway {
        authenticator: Arc::clone(&authenticator),
        domains: server.domains.clone(),
        base_path: server.base_path.clone(),
        batches: Batches::new(settings.batch.clone(), &settings.tail, routes, admission, metrics.clone(), random()),
        passthrough: passthrough.in_region((!server.any_region).then_some(server.region.as_str())),
    };
    let edge = EdgeConfig {
        requests_max: server.requests_max,
        body_idle_timeout: server.body_idle_timeout,
        client_stall: settings.batch.client_stall,
        access_log: settings.log.access,
    };
    let listener = ListenerConfig {
        connections_max: server.connections_max,
        header_timeout: server.header_timeout,
        idle_timeout: server.idle_timeout,
        write_timeout: settings.batch.client_stall,
    };
    let pair = server.tls.as_ref().map(|tls| Pair::read(&tls.cert_file, &tls.key_file)).transpose()?;
    if let Some(pair) = &pair {
        reload::note_expiry(&metrics, pair);
    }
    let secure = pair.is_some();
    let edge = Edge::new(gateway, edge, metrics.clone(), Arc::clone(&stalls), random());
    let notes = notes(settings);
    notes.iter().chain(&descriptors::provide(sockets(settings))).for_each(|note| tracing::warn!("{note}"));
    let running = Server::new(edge, listener, pair.map(Tls::new), shutdown.clone());
    let breakers = settings.backends.iter().filter_map(|config| registry.get(&config.name));
    let breakers = breakers.map(|backend| Arc::clone(&backend.breaker)).collect();
    let admin = Arc::new(Admin {
        metrics: metrics.clone(),
        settings: Mutex::new(shown),
        reload_problem: Mutex::default(),
        draining: shutdown.leave.clone(),
        notes,
        breakers,
    });
    Ok(App {
        reloader: Reloader::new(authenticator, Arc::clone(&running), Arc::clone(&admin), metrics, settings.clone()),
        secure,
        server: running,
        admin,
        stalls,
        shutdown,
        listen: server.listen.clone(),
        admin_listen: settings.admin.listen,
        drain_lead: server.drain_lead,
        drain_deadline: server.drain_deadline,
    })
}

async fn backend(config: &BackendConfig, tail: &TailConfig, metrics: &Metrics) -> std::result::Result<Backend, BoxError> {
    let numbers = metrics.backend(&config.name);
    let store: Box<dyn Store> = match config.kind {
        BackendKind::S3 => Box::new(S3Store::open(config, numbers.clone(), system_clock).await?),
        BackendKind::Embedded => {
            let stored = metrics.stored(&config.name);
            Box::new(EmbeddedStore::new(config, system_clock, random(), numbers.clone(), &stored))
        }
    };
    let store: Box<dyn Store> = match config.latency {
        Duration::ZERO => store,
        latency => Box::new(Delayed { inner: store, latency }),
    };
    let limit = LimitConfig {
        max: config.concurrency,
        min: config.concurrency_min,
        plain_share: tail.plain_share,
        queue_wait: tail.queue_wait,
    };
    let breaker = BreakerConfig {
        failures: tail.breaker_failures as u32,
        pause: tail.breaker_pause,
        attempt_timeout: config.attempt_timeout,
    };
    Ok(Backend {
        name: config.name.clone(),
        store,
        limiter: Limiter::new(limit, numbers.clone()),
        breaker: Breaker::new(&config.name, breaker, numbers.clone()),
        retries: RetryBudget::new(tail.retry_share, numbers.clone()),
        metrics: numbers,
        warnings: Warnings::default(),
        accepted: Accepted::default(),
        region: config.region.clone(),
        quirks: config.quirks(),
        attempt_timeout: config.attempt_timeout,
        response_timeout: config.response_timeout,
        random: Mutex::new(random()),
    })
}

/// The most sockets that may be open. A backend's connections are at most as many as its permits and the uploads, which have
/// none; few uploads are under way at a time.
fn sockets(settings: &Settings) -> u64 {
    let backends: usize = settings.backends.iter().map(|backend| backend.concurrency).sum();
    (sockets_max(settings.server.connections_max) + backends) as u64
}

/// What an operator should know of the backends, a line each.
fn notes(settings: &Settings) -> Vec<String> {
    let embedded = settings.backends.iter().filter(|backend| backend.kind == BackendKind::Embedded);
    let embedded = embedded.map(|backend| format!("backend {}: {NOTICE}", backend.name));
    // It works, but a read of a silent backend is never tried again.
    let patient = settings
        .backends
        .iter()
        .filter(|backend| backend.kind != BackendKind::Embedded && backend.attempt_timeout >= settings.batch.entry_deadline);
    let patient = patient.map(|backend| {
        let name = &backend.name;
        format!(
            "backend {name}: attempt_timeout is not shorter than batch.entry_deadline, so that a silent attempt is the only one"
        )
    });
    embedded.chain(patient).collect()
}

fn routes(settings: &Settings, registry: &Registry) -> std::result::Result<Routes<Arc<Backend>>, BoxError> {
    let mut routes = Routes::default();
    for route in &settings.routes {
        let backend = registry.get(&route.backend).ok_or_else(|| format!("no backend is called {}", route.backend))?;
        routes.push(&route.bucket, Arc::clone(backend), route.rename.clone());
    }
    Ok(routes)
}

fn identity(config: &IdentityConfig) -> std::result::Result<Identity, BoxError> {
    let policy = match &config.policy {
        PolicySource::None => Policy::none(),
        PolicySource::ReadOnly => Policy::read_only(),
        PolicySource::FullAccess => Policy::full_access(),
        PolicySource::Document(text) => Policy::parse(text)?,
    };
    let token = config.session_token.as_ref().map(|token| token.expose().to_owned());
    let account = |(backend, pair): (&String, &KeyPairConfig)| {
        let token = pair.session_token.as_ref().map(|token| token.expose());
        let pair = KeyPair::new(&pair.access_key, pair.secret_key.expose(), token)?;
        Ok::<_, BoxError>((backend.clone(), Arc::new(pair)))
    };
    let accounts = config.backend_credentials.iter().map(account).collect::<std::result::Result<_, _>>()?;
    Ok(Identity::new(&config.name, &config.access_key, config.secret_key.expose(), token, policy).with_accounts(accounts))
}

fn random() -> SmallRng {
    SmallRng::from_os_rng()
}

impl Handler for Gateway {
    async fn handle(&self, head: Parts, body: Body, peer: Peer, id: RequestId) -> Handled {
        let mut handled = Handled { operation: "none", identity: None, result: Ok(Response::new(empty_body())) };
        handled.result = self.answer(&head, body, &peer, id, &mut handled).await;
        handled
    }
}

impl Gateway {
    async fn answer(&self, head: &Parts, body: Body, peer: &Peer, id: RequestId, seen: &mut Handled) -> Result<Response<Body>> {
        check_host(head)?;
        let target: S3Target = route::target(head, &self.domains, &self.base_path)?;
        let verb = route::unsigned_verb(head, &target);
        let verb = verb.unwrap_or_else(|| route::verb(&head.method, &target, head.uri.query().unwrap_or_default()));
        route::check_service_level(head, &target, verb)?;
        seen.operation = match verb {
            Verb::BatchGet => "batch",
            Verb::Capabilities => "capabilities",
            Verb::Form | Verb::Preflight | Verb::Passthrough => "passthrough",
        };
        let ask = |authenticated| passthrough::Ask { head, target: &target, authenticated, secure: peer.secure };
        match verb {
            Verb::Form => return self.form(ask(Authenticated::nobody()), body, seen).await,
            Verb::Preflight => return self.passthrough.preflight(ask(Authenticated::nobody())).await,
            _ => {}
        }
        let authenticated = self.authenticator.authenticate(head, &target)?;
        seen.identity = Some(authenticated.identity.name.clone());
        match verb {
            Verb::BatchGet => {
                let ask = batch::Ask { head, bucket: target.bucket.as_deref(), authenticated, peer, request_id: id };
                self.batches.answer(ask, body).await
            }
            Verb::Capabilities => {
                authenticated.needs_version_4()?;
                Ok(json(self.batches.capabilities()))
            }
            _ => self.passthrough.answer(ask(authenticated), body).await,
        }
    }

    /// A form says in its body who signed it, so some of that is read before anybody is known.
    async fn form(&self, ask: passthrough::Ask<'_>, body: Body, seen: &mut Handled) -> Result<Response<Body>> {
        let held = self.passthrough.hold_form(ask.head, body).await?;
        let key = held.form().key()?;
        let bucket = ask.target.bucket.as_deref().unwrap_or_default();
        let (authenticated, policy) = self.authenticator.authenticate_form(held.form(), bucket, &key)?;
        seen.identity = Some(authenticated.identity.name.clone());
        self.passthrough.form(passthrough::Ask { authenticated, ..ask }, held, policy, &key).await
    }
}

fn json(body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A gateway that runs.
pub struct Running {
    /// The real addresses of the S3 port.
    pub listening: Vec<SocketAddr>,
    /// The real address of the admin port.
    pub admin: SocketAddr,
    /// Whether the S3 port speaks TLS.
    pub secure: bool,
    /// Changes settings while it runs.
    pub reloader: Arc<Reloader>,
    server: Arc<Server<Gateway>>,
    shutdown: Shutdown,
    drain_lead: Duration,
    drain_deadline: Duration,
    tasks: JoinSet<()>,
}

impl App {
    /// Binds every port, then starts to accept on all of them.
    pub async fn spawn(self) -> io::Result<Running> {
        let bind = async |key: &str, address: SocketAddr| {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address} ({key}): {e}"));
            TcpListener::bind(address).await.map_err(named)
        };
        let mut listeners = Vec::new();
        for address in &self.listen {
            listeners.push(bind("server.listen", *address).await?);
        }
        let admin = bind("admin.listen", self.admin_listen).await?;
        let listening = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let admin_address = admin.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(self.stalls.run());
        tasks.spawn(self.admin.serve(admin));
        for listener in listeners {
            tasks.spawn(Arc::clone(&self.server).accept(listener));
        }
        Ok(Running {
            listening,
            admin: admin_address,
            secure: self.secure,
            reloader: Arc::new(self.reloader),
            server: self.server,
            shutdown: self.shutdown,
            drain_lead: self.drain_lead,
            drain_deadline: self.drain_deadline,
            tasks,
        })
    }
}

impl Running {
    /// Lets what is under way finish, to a hard deadline, and breaks what then remains. `hurry` ends the waiting early.
    pub async fn finish(mut self, hurry: impl Future<Output = ()>) {
        let Shutdown { leave, drain, abort } = self.shutdown.clone();
        leave.cancel();
        let waited = async {
            tokio::time::sleep(self.drain_lead).await;
            drain.cancel();
            if tokio::time::timeout(self.drain_deadline, self.server.drained()).await.is_err() {
                tracing::warn!("drain deadline passed; what remains is broken off");
            }
        };
        tokio::select! {
            () = waited => {}
            () = hurry => {}
        }
        drain.cancel();
        abort.cancel();
        self.server.drained().await;
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod campaign_tests;
#[cfg(test)]
mod fairness_tests;
