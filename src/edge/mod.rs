//! Where requests come in and answers go out. [`listener`] accepts connections and bounds them in number and time; [`Edge`]
//! takes each request through one stack and turns whatever comes of it into an answer; [`answer`] renders failures; [`body`]
//! watches both bodies; [`admin`] is the other port. It knows handlers only as [`Handler`].
//!
//! Invariant: every answer has a request id, every failure is S3's XML, every request ends in one log line.

pub mod admin;
mod answer;
mod body;
mod io;
pub mod listener;
pub mod tls;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use crate::backend::{Body, BoxError};
use crate::error::{Error, Kind, Result};
use crate::peer::Peer;
use crate::stall::StallWatch;
use crate::telemetry::Metrics;
use crate::types::RequestId;
use body::{Owed, Served};

/// What a handler made of a request.
pub struct Handled {
    /// `batch`, `capabilities`, `passthrough`, or `none` where it was refused before that was known. A label.
    pub operation: &'static str,
    /// The identity's name, once it is known.
    pub identity: Option<String>,
    /// The answer or the failure.
    pub result: Result<Response<Body>>,
}

/// Whoever answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, head: Parts, body: Body, peer: Peer, id: RequestId) -> impl Future<Output = Handled> + Send;
}

/// The numbers of the edge.
#[derive(Clone, Copy, Debug)]
pub struct EdgeConfig {
    /// Most requests whose answer has not ended.
    pub requests_max: usize,
    /// A client that owes bytes of its request and sends none for this long is given up.
    pub body_idle_timeout: Duration,
    /// A client that takes nothing of its answer for this long is given up.
    pub client_stall: Duration,
    /// One log line for each request; what [`Edge::set_access_log`] says goes before it.
    pub access_log: bool,
}

/// The stack that every request passes.
pub struct Edge<H> {
    handler: H,
    config: EdgeConfig,
    metrics: Metrics,
    stalls: Arc<StallWatch>,
    random: Mutex<SmallRng>,
    in_flight: Arc<AtomicUsize>,
    access_log: AtomicBool,
}

impl<H: Handler> Edge<H> {
    /// A stack over `handler`.
    pub fn new(handler: H, config: EdgeConfig, metrics: Metrics, stalls: Arc<StallWatch>, random: SmallRng) -> Self {
        metrics.requests_max.set(config.requests_max as i64);
        let access_log = AtomicBool::new(config.access_log);
        Self { handler, config, metrics, stalls, random: Mutex::new(random), in_flight: Arc::default(), access_log }
    }

    /// Whether each request that comes from now on leaves a line in the log.
    pub fn set_access_log(&self, wanted: bool) {
        self.access_log.store(wanted, Ordering::Relaxed);
    }

    /// Takes a request through the stack. In this order, because:
    /// the id comes first, since every answer needs one, also a refusal;
    /// the log line and its place in the budget begin, so that no end of the request can leave without them;
    /// the budget of requests before any work, so that a refusal is cheap;
    /// the body's clock around the client's bytes, so that whoever reads them inherits it;
    /// the handler;
    /// failures become answers in one place, above everything that can fail;
    /// the answer's watch comes last, since it lasts as long as the body.
    pub async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let id = RequestId(self.random.lock().expect("drawing a number does not panic").random());
        let (head, body) = request.into_parts();
        let cut = (head.version < Version::HTTP_2).then(|| peer.cut.clone());
        let mut line = AccessLine::begin(&head, id, self);
        let handled = if line.in_flight.number > self.config.requests_max {
            self.metrics.refused_total.with_label_values(&["requests"]).inc();
            let error = Error::new(Kind::SlowDown, "as many requests are under way as are allowed; try again shortly");
            Handled { operation: "none", identity: None, result: Err(error) }
        } else {
            let body = Body::new(Owed::new(body.map_err(BoxError::from), self.config.body_idle_timeout));
            self.handler.handle(head, body, peer, id).await
        };
        let mut response = handled.result.unwrap_or_else(|error| answer::failure(&error, &line.path, id));
        if line.method == Method::HEAD {
            response = answer::without_body(response);
        }
        let header = HeaderValue::from_str(&id.to_string()).expect("hex digits are header-safe");
        response.headers_mut().insert("x-batchgate-request-id", header.clone());
        response.headers_mut().entry("x-amz-request-id").or_insert(header);
        (line.operation, line.identity, line.status) = (handled.operation, handled.identity, response.status().as_u16());
        response.map(|body| Body::new(Served::new(body, line, &self.stalls, self.config.client_stall, cut)))
    }
}

/// What the log says of a request whose client left before its answer had a head.
const CLIENT_LEFT: u16 = 499;

/// Counts a request from its head to the last byte of its answer.
struct InFlight {
    count: Arc<AtomicUsize>,
    metrics: Metrics,
    number: usize,
}

impl InFlight {
    fn enter(count: &Arc<AtomicUsize>, metrics: Metrics) -> Self {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        metrics.requests_in_flight.inc();
        Self { count: Arc::clone(count), metrics, number }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.metrics.requests_in_flight.dec();
    }
}

/// The one line that a request leaves; written when its answer has ended, however it did. It never holds the query, which may
/// hold a signature.
struct AccessLine {
    wanted: bool,
    id: RequestId,
    method: Method,
    path: String,
    operation: &'static str,
    identity: Option<String>,
    status: u16,
    started: Instant,
    bytes: u64,
    whole: bool,
    metrics: Metrics,
    in_flight: InFlight,
}

impl AccessLine {
    fn begin<H>(head: &Parts, id: RequestId, edge: &Edge<H>) -> Self {
        Self {
            wanted: edge.access_log.load(Ordering::Relaxed),
            id,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            operation: "none",
            identity: None,
            status: CLIENT_LEFT,
            started: Instant::now(),
            bytes: 0,
            whole: false,
            metrics: edge.metrics.clone(),
            in_flight: InFlight::enter(&edge.in_flight, edge.metrics.clone()),
        }
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.request_seconds.with_label_values(&[self.operation]).observe(seconds);
        self.metrics.requests_total.with_label_values(&[self.operation, status_label(self.status)]).inc();
        if self.wanted {
            tracing::info!(
                target: "batchgate::access",
                {
                    request.id = %self.id,
                    http.method = self.method.as_str(),
                    http.path = self.path,
                    http.status = self.status,
                    operation = self.operation,
                    identity = self.identity.as_deref().unwrap_or("-"),
                    bytes = self.bytes,
                    whole = self.whole,
                    elapsed.ms = (seconds * 1000.0) as u64
                },
                "request"
            );
        }
    }
}

/// Statuses as labels, without an allocation for the common ones.
fn status_label(status: u16) -> &'static str {
    match status {
        200 => "200",
        204 => "204",
        206 => "206",
        304 => "304",
        CLIENT_LEFT => "499",
        400 => "400",
        403 => "403",
        404 => "404",
        412 => "412",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        s if s < 300 => "2xx",
        s if s < 400 => "3xx",
        s if s < 500 => "4xx",
        _ => "5xx",
    }
}
