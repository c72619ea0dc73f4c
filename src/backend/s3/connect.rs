//! Pooled connections to an endpoint: HTTP/1.1 over TCP or TLS. hyper's pool has no limit of its own; the permits above bound
//! it. What went wrong is sorted here into the few kinds that callers act on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::super::{BackendError, BackendErrorKind, Body, BoxError};

/// Idle connections are closed before common servers do so themselves, which would break a request in flight.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Read buffer of a connection, and with it the longest head of an answer, in bytes.
const READ_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Most headers of an answer. hyper's own limit of 100, up to which it needs no memory of its own for them, is less than the
/// short user metadata that an object may have.
const HEADERS_MAX: usize = 256;

/// The clients of one endpoint.
pub struct Clients {
    /// For answers of up to 100 headers: a batch's reads begin with it.
    pub lean: Client,
    /// For answers with as many headers as we take.
    pub wide: Client,
}

/// A pool of connections.
pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// Makes the clients. `pool_idle_max` connections are kept while nobody uses them. Where the endpoint is `https`, `ca_file`
/// (PEM) is trusted in place of the platform's roots.
pub fn clients(connect_timeout: Duration, pool_idle_max: usize, https: bool, ca_file: Option<&Path>) -> Result<Clients, BoxError> {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(connect_timeout));
    http.set_nodelay(true);
    http.enforce_http(false);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = HttpsConnectorBuilder::new();
    let builder = match ca_file {
        None if https => builder.with_provider_and_native_roots(provider)?,
        _ => {
            let mut roots = RootCertStore::empty();
            for certificate in ca_file.map(CertificateDer::pem_file_iter).transpose()?.into_iter().flatten() {
                roots.add(certificate?)?;
            }
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
            builder.with_tls_config(config)
        }
    };
    let connector = builder.https_or_http().enable_http1().wrap_connector(http);
    let mut pools = legacy::Client::builder(TokioExecutor::new());
    pools
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(pool_idle_max)
        .http1_max_buf_size(READ_BUFFER_BYTES_MAX);
    let lean = pools.build(connector.clone());
    Ok(Clients { lean, wide: pools.http1_max_headers(HEADERS_MAX).build(connector) })
}

/// Which kind of missing answer this is.
pub fn classify(error: Error) -> BackendError {
    let kind = if error.is_connect() {
        BackendErrorKind::Unreachable
    } else {
        match std::error::Error::source(&error).and_then(|e| e.downcast_ref::<hyper::Error>()) {
            Some(e) if e.is_user() => BackendErrorKind::RequestBody,
            Some(e) if e.is_parse_too_large() => BackendErrorKind::HeadTooLarge,
            Some(e) if e.is_parse() => BackendErrorKind::Garbled,
            _ => BackendErrorKind::NoAnswer,
        }
    };
    BackendError { kind, source: error.into() }
}
