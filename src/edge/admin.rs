//! The other port: `/livez`, `/readyz`, `/metrics`, `/configz`. Never on the S3 port, so that no bucket's name is taken.
//! Plain text, GET and HEAD, HTTP/1.1; settings are shown with their secrets hidden.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::backend::breaker::Breaker;
use crate::telemetry::Metrics;

/// Time for the head of a request, and between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// What the admin port can tell.
pub struct Admin {
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/configz`: the effective settings, secrets hidden.
    pub settings: String,
    /// What `/readyz` tells of the backends, a line each.
    pub notes: Vec<String>,
    /// What `/readyz` adds while one of them is open.
    pub breakers: Vec<Arc<Breaker>>,
    /// Cancelled once this process should get no new requests.
    pub draining: CancellationToken,
}

impl Admin {
    /// Serves until it is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let admin = Arc::clone(&self);
            tokio::spawn(async move {
                let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(admin.answer(&request))));
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "admin connection ended in an error");
                }
            });
        }
    }

    fn ready(&self) -> String {
        // An outage of a backend must not take every replica out: it is a reason, and the status stays 200.
        let reasons = self.breakers.iter().filter_map(|breaker| breaker.reason());
        let lines = ["ready".to_owned()].into_iter().chain(self.notes.iter().cloned()).chain(reasons);
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD\n");
        }
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "text/plain", "alive\n"),
            "/readyz" if self.draining.is_cancelled() => text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "draining\n"),
            "/readyz" => text(StatusCode::OK, "text/plain", self.ready()),
            "/metrics" => text(StatusCode::OK, "text/plain; version=0.0.4", self.metrics.render()),
            "/configz" => text(StatusCode::OK, "application/toml", self.settings.clone()),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "there is /livez, /readyz, /metrics and /configz\n"),
        }
    }
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
