//! The other port: `/livez`, `/readyz`, `/metrics`, `/configz`. Never on the S3 port, so that no bucket's name is taken.
//! Plain text, GET and HEAD, HTTP/1.1; settings are shown with their secrets hidden. Its connections are few: over the maximum the
//! one that has been idle longest makes room for a new one, so that a probe gets through.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::io::ClientIo;
use crate::backend::breaker::Breaker;
use crate::telemetry::Metrics;

/// Time for the head of a request, and between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes nothing of an answer for this long is cut.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Open connections, those that were told to close not counted.
const CONNECTIONS_MAX: usize = 64;

/// The open connections by number.
#[derive(Default)]
struct Guests {
    next: u64,
    open: HashMap<u64, Arc<Activity>>,
}

impl Guests {
    /// A place for a new connection. Nothing if there is none, even if whoever has been idle longest closes.
    fn admit(&mut self) -> Option<(u64, Arc<Activity>)> {
        let staying = || self.open.values().filter(|activity| !activity.is_told_to_close());
        if staying().count() >= CONNECTIONS_MAX {
            let (since, idle) = staying().filter_map(|a| a.idle_since().map(|since| (since, a))).min_by_key(|(since, _)| *since)?;
            if self.open.len() >= 2 * CONNECTIONS_MAX || !idle.tell_to_close(since) {
                return None;
            }
        }
        self.next += 1;
        let activity = Activity::new();
        self.open.insert(self.next, Arc::clone(&activity));
        Some((self.next, activity))
    }
}

/// What the admin port can tell.
pub struct Admin {
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/configz`: the effective settings, secrets hidden.
    pub settings: Mutex<String>,
    /// Why the last attempt to load settings anew failed; for `/readyz`.
    pub reload_problem: Mutex<Option<String>>,
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
        let guests = Arc::new(Mutex::new(Guests::default()));
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Some((number, activity)) = guests.lock().unwrap_or_else(PoisonError::into_inner).admit() else {
                tracing::warn!(max = CONNECTIONS_MAX, "connection to the admin port refused: as many are open as may be");
                continue;
            };
            let (admin, guests) = (Arc::clone(&self), Arc::clone(&guests));
            tokio::spawn(async move {
                admin.connection(stream, &activity).await;
                guests.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&number);
            });
        }
    }

    async fn connection(&self, stream: TcpStream, activity: &Arc<Activity>) {
        let io = TokioIo::new(ClientIo::new(stream, Arc::clone(activity), WRITE_TIMEOUT, TcpStream::set_zero_linger));
        let service = service_fn(|request| {
            let under_way = activity.begin();
            let answer = self.answer(&request);
            drop(under_way);
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        tokio::select! {
            biased;
            ended = builder.serve_connection(io, service) => if let Err(error) = ended {
                tracing::debug!(%error, "admin connection ended in an error");
            },
            () = activity.told() => {}
        }
    }

    fn shown(&self) -> String {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ready(&self) -> String {
        // An outage of a backend must not take every replica out: it is a reason, and the status stays 200.
        let breakers = self.breakers.iter().filter_map(|breaker| breaker.reason());
        let reload = self.reload_problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines = ["ready".to_owned()].into_iter().chain(self.notes.iter().cloned()).chain(breakers).chain(reload);
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
            "/configz" => text(StatusCode::OK, "application/toml", self.shown()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_takes_the_place_of_the_longest_idle_and_they_are_bounded() {
        let mut guests = Guests::default();
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            open.push(guests.admit().expect("room"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let busy = open[0].1.begin();
        let _new = guests.admit().expect("one is idle");
        let told: Vec<_> = open.iter().map(|(_, activity)| activity.is_told_to_close()).collect();
        assert!(told[1] && told.iter().filter(|told| **told).count() == 1);
        let most = (0..1000).filter(|_| guests.admit().is_some()).count();
        assert_eq!(most, CONNECTIONS_MAX - 1, "those that do not heed it are bounded");
        drop(busy);
    }
}
