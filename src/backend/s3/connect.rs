//! Connections to an endpoint: HTTP/1.1 over TCP or TLS, kept for further use. hyper's pool has no limit of its own; the permits
//! above bound it. What enters is a name, which [`super::resolve`] turns into addresses; names stay names in requests and
//! certificates. What went wrong is sorted here into the few kinds that callers act on.
//!
//! Invariant: no request is sent twice from here. A pool may hand out a connection that the store has just closed. hyper then
//! gives a request back, and hyper-util sends it over another connection (`retry_canceled_requests`), only if the request
//! still waited in the queue of its connection: once the connection's task has taken it from there, before its head is
//! written, it is never given back, whatever of it may have been received
//! (`hyper::client::conn::TrySendError::take_message`). A request that was taken ends as an error, and what to do then is for
//! those above to decide. `tests` hold us to it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::{self, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use super::super::{BackendError, BackendErrorKind, Body, BoxError};
use super::resolve::{Addresses, Choice, PATIENCE, Peer, Resolve, Watch, system};
use super::wire::Wire;

/// Idle connections are closed before common servers do so themselves, which would break a request in flight.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Read buffer of a connection, and with it the longest head of an answer, in bytes.
pub(super) const READ_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// The same where an answer is likely to be long and memory is there for it. It grows to this only while the store fills it: eight
/// times fewer calls to the kernel, and less of its work for each byte. Not quite 256 KiB: that is what four segments between
/// processes of one machine hold.
const BULK_BUFFER_BYTES_MAX: usize = 4 * (63 * 1024 + 512);

/// Answers of a backend that may have so much at a time. A client that takes nothing leaves up to three pieces of its answer with
/// us, so this bounds what the larger buffers add: to 24 MiB.
const BULK_ANSWERS_MAX: usize = 32;

/// Most headers of an answer. hyper's own limit of 100, up to which it needs no memory of its own for them, is less than the
/// short user metadata that an object may have.
const HEADERS_MAX: usize = 256;

/// The clients of one endpoint.
pub struct Clients {
    /// For answers of up to 100 headers: a batch's reads begin with it.
    pub lean: Ways,
    /// For answers with as many headers as we take: all but GETs, and those that find no `bulk_room`.
    pub wide: Ways,
    /// As `wide`, but for answers that may come in large pieces; for whoever has a permit of `bulk_room`.
    pub bulk: Ways,
    /// See [`BULK_ANSWERS_MAX`].
    pub bulk_room: Arc<Semaphore>,
    /// How the endpoint's addresses fare.
    pub addresses: Arc<Addresses>,
}

/// The two ways to send a request.
pub struct Ways {
    /// Over a connection that was kept, or a new one.
    pub pooled: Client,
    /// Over a new connection in any case, to an address that has not failed lately where there is one; it is not kept.
    pub elsewhere: Client,
}

/// A pool of connections.
pub type Client = legacy::Client<Dialer, Body>;

/// Makes the clients. `connect_timeout` is for a whole connection, resolving and TLS included; whoever waits for an answer gives
/// up after `attempt_timeout`, and who does so much sooner says nothing of the address; `pool_idle_max` connections are kept while
/// nobody uses them. Where the endpoint is `https`, `ca_file` (PEM) is trusted in place of the platform's roots.
///
/// # Errors
/// Certificates that cannot be read.
pub fn clients(
    connect_timeout: Duration,
    attempt_timeout: Duration,
    pool_idle_max: usize,
    https: bool,
    ca_file: Option<&Path>,
) -> Result<Clients, BoxError> {
    clients_resolving(system(), connect_timeout, attempt_timeout, pool_idle_max, https, ca_file)
}

/// The same, with a resolver of one's own.
///
/// # Errors
/// Certificates that cannot be read.
pub fn clients_resolving(
    resolve: Resolve,
    connect_timeout: Duration,
    attempt_timeout: Duration,
    pool_idle_max: usize,
    https: bool,
    ca_file: Option<&Path>,
) -> Result<Clients, BoxError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = match ca_file {
        None if https => builder.with_native_roots()?,
        _ => {
            let mut roots = RootCertStore::empty();
            for certificate in ca_file.map(CertificateDer::pem_file_iter).transpose()?.into_iter().flatten() {
                roots.add(certificate?)?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let tls = Arc::new(tls.with_no_client_auth());
    let addresses = Addresses::new(resolve, attempt_timeout);
    let dialer = |choice| Dialer { addresses: Arc::clone(&addresses), choice, connect_timeout, tls: Arc::clone(&tls) };
    let (any, elsewhere) = (dialer(Choice::AnyWell), dialer(Choice::Elsewhere));
    let mut pools = legacy::Client::builder(TokioExecutor::new());
    pools
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(pool_idle_max)
        .http1_max_buf_size(READ_BUFFER_BYTES_MAX);
    let ways = |pools: &legacy::Builder| Ways {
        pooled: pools.build(any.clone()),
        elsewhere: pools.clone().pool_max_idle_per_host(0).build(elsewhere.clone()),
    };
    let lean = ways(&pools);
    let wide = ways(pools.http1_max_headers(HEADERS_MAX));
    pools.pool_max_idle_per_host(pool_idle_max.min(BULK_ANSWERS_MAX)).http1_max_buf_size(BULK_BUFFER_BYTES_MAX);
    let bulk = ways(&pools);
    Ok(Clients { lean, wide, bulk, bulk_room: Arc::new(Semaphore::new(BULK_ANSWERS_MAX)), addresses })
}

/// Makes connections: the addresses of a name in order, the next one beside the last where that takes long.
#[derive(Clone)]
pub struct Dialer {
    addresses: Arc<Addresses>,
    choice: Choice,
    connect_timeout: Duration,
    tls: Arc<ClientConfig>,
}

type Stream = MaybeHttpsStream<TokioIo<Wire>>;

impl Dialer {
    async fn dial(&self, uri: Uri) -> Result<Stream, BoxError> {
        let host = uri.host().ok_or("the endpoint has no host")?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let secure = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let mut waiting = self.addresses.of(host, port, self.choice).await.map_err(|e| Unreached::new(host, e))?.into_iter();
        let mut dialling = FuturesUnordered::new();
        dialling.extend(waiting.next().map(|address| self.reach(address, uri.clone())));
        loop {
            let more = waiting.len() > 0;
            tokio::select! {
                Some(reached) = dialling.next() => match reached {
                    Ok(stream) => return Ok(stream),
                    Err(error) => match waiting.next() {
                        Some(address) => dialling.push(self.reach(address, uri.clone())),
                        None if dialling.is_empty() => return Err(error),
                        None => {}
                    }
                },
                () = sleep(PATIENCE), if more => dialling.extend(waiting.next().map(|address| self.reach(address, uri.clone()))),
            }
        }
    }

    /// One address. Given up late, because another was faster or the time is up, it has failed.
    async fn reach(&self, address: SocketAddr, uri: Uri) -> Result<Stream, BoxError> {
        let watch = Watch::new(&self.addresses, address);
        let reached = HttpsConnector::from((One(address), Arc::clone(&self.tls))).call(uri).await;
        watch.over();
        match &reached {
            Ok(_) => self.addresses.connected(address),
            Err(_) => self.addresses.unreached(address),
        }
        reached.map_err(|cause| Unreached::new(address, cause).into())
    }
}

/// An address to which there is no connection, or a host that has none.
#[derive(Debug)]
pub struct Unreached {
    place: String,
    cause: BoxError,
}

impl Unreached {
    /// `place` was not reached because of `cause`, which does not repeat it.
    pub fn new(place: impl ToString, cause: impl Into<BoxError>) -> Self {
        Self { place: place.to_string(), cause: cause.into() }
    }

    /// Why, without the address.
    pub fn why(&self) -> String {
        match self.in_tls() {
            Some(failed) => format!("TLS fails: {failed}"),
            None => self.cause.to_string(),
        }
    }

    /// What failed of TLS, where the address itself was reached.
    pub fn in_tls(&self) -> Option<&io::Error> {
        // The connector wraps that once more; what the system says of an address it hands on as it is.
        self.cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
    }
}

impl std::fmt::Display for Unreached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

impl std::error::Error for Unreached {}

impl Service<Uri> for Dialer {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let dialled = timeout(dialer.connect_timeout, dialer.dial(uri)).await;
            let late = || format!("no connection in {} ms", dialer.connect_timeout.as_millis());
            dialled.map_err(|_| Unreached::new(host, late()))?
        })
    }
}

/// Connects to one address, whatever the name.
#[derive(Clone)]
struct One(SocketAddr);

impl Service<Uri> for One {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(Wire::new(stream, Peer { address, since: Instant::now() })))
        })
    }
}

/// Which kind of missing answer this is.
pub fn classify(error: Error) -> BackendError {
    let cause = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<hyper::Error>());
    // Without a connection nothing was sent, and a request that was given back was never begun.
    let unsent = error.is_connect() || error.connect_info().is_none() || cause.is_some_and(hyper::Error::is_canceled);
    let kind = match cause {
        _ if unsent => BackendErrorKind::Unreachable,
        Some(e) if e.is_user() => BackendErrorKind::RequestBody,
        Some(e) if e.is_parse_too_large() => BackendErrorKind::HeadTooLarge,
        Some(e) if e.is_parse() => BackendErrorKind::Garbled,
        _ => BackendErrorKind::NoAnswer,
    };
    BackendError { kind, source: error.into() }
}
