//! Where requests come in and answers go out. [`listener`] accepts connections and bounds them in time, [`connections`] in
//! number (each takes one of the [`descriptors`] of the process), [`backlog`] closes a listener without losing who waits there,
//! [`ended`] says why one ended; [`Edge`] takes each request through one stack and turns whatever comes of it into an answer;
//! [`answer`] renders failures; [`body`] watches both bodies; [`access`] is the request's line in the log, [`slots`] its place;
//! [`admin`] is the other port. It knows handlers only as [`Handler`]. Before them [`head`] refuses what no request may be.
//!
//! Invariant: every answer has a request id, every failure is S3's XML, every request ends in one log line.

mod access;
mod activity;
pub mod admin;
mod answer;
mod backlog;
mod body;
pub mod connections;
pub mod descriptors;
mod ended;
mod head;
mod io;
pub mod listener;
mod slots;
pub mod tls;

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::timeout;

use crate::backend::{Body, BoxError};
use crate::error::{Budget, Error, Result};
use crate::peer::Peer;
use crate::stall::{BreakOff, STALL_GRACE, StallWatch, Wanted};
use crate::telemetry::Metrics;
use crate::types::RequestId;
use access::AccessLine;
use activity::UnderWay;
use body::{Owed, Served};
use slots::{Slot, Slots};

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
    /// A client that owes bytes of its request and sends none for this long is given up, or too few in that much waiting.
    pub body_idle_timeout: Duration,
    /// A client that takes nothing of its answer for this long is given up.
    pub client_stall: Duration,
    /// One log line for each request, and not only for those that fail; what [`Edge::set_access_log`] says goes before it.
    pub access_log: bool,
}

/// How long whoever makes room may take to let go of its slot.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// The stack that every request passes.
pub struct Edge<H> {
    handler: H,
    config: EdgeConfig,
    /// Behind one pointer: there are dozens, and every request has them.
    metrics: Arc<Metrics>,
    stalls: Arc<StallWatch>,
    random: Mutex<SmallRng>,
    slots: Arc<Slots>,
    access_log: AtomicBool,
}

impl<H: Handler> Edge<H> {
    /// A stack over `handler`.
    pub fn new(handler: H, config: EdgeConfig, metrics: Metrics, stalls: Arc<StallWatch>, random: SmallRng) -> Self {
        metrics.requests_max.set(config.requests_max as i64);
        let access_log = AtomicBool::new(config.access_log);
        let (metrics, random) = (Arc::new(metrics), Mutex::new(random));
        let slots = Slots::new(config.requests_max, &metrics);
        Self { handler, config, metrics, stalls, random, slots, access_log }
    }

    /// Streams that one HTTP/2 connection may have open: a few connections cannot take every place, and a good client is not
    /// hindered (<https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2> would have no fewer than a hundred).
    fn streams_max(&self) -> u32 {
        (self.config.requests_max / 8).clamp(8, 100) as u32
    }

    /// Whether each request that comes from now on leaves a line in the log.
    pub fn set_access_log(&self, wanted: bool) {
        self.access_log.store(wanted, Ordering::Relaxed);
    }

    /// Takes a request through the stack. In this order, because:
    /// the id comes first, since every answer needs one, also a refusal;
    /// the log line begins, so that no end of the request can leave without it;
    /// the budget of requests before any work, so that a refusal is cheap;
    /// what no request may be, before anything of it is read;
    /// the body's clocks around the client's bytes, so that whoever reads them inherits them;
    /// the handler;
    /// failures become answers in one place, above everything that can fail;
    /// the answer's watch comes last, since it lasts as long as the body.
    ///
    /// `from` is the client's address, which nobody but the log is told.
    pub async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        from: Option<IpAddr>,
        under_way: UnderWay,
    ) -> Response<Served> {
        let id = RequestId(self.random.lock().expect("drawing a number does not panic").random());
        let (mut head, body) = request.into_parts();
        let version = head.version;
        let cut = (version < Version::HTTP_2).then(|| peer.cut.clone());
        let mut line = AccessLine::begin(&head, id, self.access_log.load(Ordering::Relaxed), &self.metrics, under_way);
        line.client = from;
        head.extensions.insert(line.asked.clone());
        line.slot = self.slot().await;
        let refused = head::check(&head).err();
        let mut is_last = refused.is_some();
        let body_read = (!http_body::Body::is_end_stream(&body)).then(Arc::<AtomicBool>::default);
        let handled = if let Some(error) = refused {
            Handled { operation: "none", identity: None, result: Err(error) }
        } else if let Some(slot) = &line.slot {
            let mut body = Owed::new(body.map_err(BoxError::from), self.config.body_idle_timeout);
            if let Some(read) = &body_read {
                body.makes_room(&self.stalls, slot);
                body.tells(read);
            }
            let body = Body::new(body);
            self.handler.handle(head, body, peer, id).await
        } else {
            let why = "as many requests are in flight as are allowed (server.requests_max); try again shortly";
            Handled { operation: "none", identity: None, result: Err(Error::refused(Budget::Requests, why)) }
        };
        // What we say ourselves is small and there at once: it holds nothing that others want, whenever it is taken.
        let is_small = handled.result.is_err() || handled.operation == "capabilities";
        let mut response = handled.result.unwrap_or_else(|error| {
            line.failed(&error);
            answer::failure(&error, &line.path, id)
        });
        if line.method == Method::HEAD {
            response = answer::without_body(response);
        }
        let header = HeaderValue::from_str(&id.to_string()).expect("hex digits are header-safe");
        response.headers_mut().insert("x-batchgate-request-id", header.clone());
        response.headers_mut().entry("x-amz-request-id").or_insert(header);
        // A refusal does not wait for the rest of the body, and a client that is not told would send its next request behind it.
        let status = response.status();
        let is_unread = body_read.is_some_and(|read| !read.load(Ordering::Relaxed));
        is_last |= is_unread && (status.is_client_error() || status.is_server_error());
        if is_last && version < Version::HTTP_2 {
            // Or where its body ends is not known for sure, and so neither is where the next request begins.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        (line.operation, line.identity, line.status) = (handled.operation, handled.identity, response.status().as_u16());
        let batch = response.extensions_mut().remove::<BreakOff>();
        let mut patience = self.config.client_stall;
        if is_small || http_body::Body::is_end_stream(response.body()) {
            line.slot = None;
            if cut.is_none() {
                patience = patience.min(STALL_GRACE);
            }
        }
        let has_a_length = http_body::Body::size_hint(response.body()).exact().is_some();
        if version == Version::HTTP_10 && !has_a_length {
            line.under_way.ends_with_its_connection();
        }
        response.map(|body| Served::new(body, line, &self.stalls, patience, cut, batch))
    }

    /// A place among the requests in flight. Where all are taken, clients that stalled longest or are slowest make room first.
    async fn slot(&self) -> Option<Slot> {
        loop {
            let slot = self.slots.take();
            if slot.is_some() || !self.stalls.make_room(Wanted::Slot).await {
                return slot;
            }
            // Who makes room has let go once the task of its connection has run; another is asked only if it does not.
            if let Ok(slot) = timeout(ROOM_TIMEOUT, self.slots.next()).await {
                return Some(slot);
            }
        }
    }
}
