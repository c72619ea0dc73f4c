//! The life of one BatchGet, on one screen ([`Batches::answer`]):
//!
//! 1. [`accept`]: the head is what the contract wants, or a request-level error.
//! 2. [`admission`]: a backend that can read for one more, and bytes for the request, as far as it has come, or 503.
//! 3. [`request`]: the verified body, read strictly; bytes for the head of the answer, its entries and their backends, or 503.
//! 4. [`plan`]: entry by entry, may this identity read this, and where is it.
//! 5. [`driver`]: one task that starts [`fetch`]es as far as bytes are reserved for them, keeps the [`order`], lets
//!    [`encode`] write the parts, and sends chunks through [`body`] while the client takes them.
//! 6. [`outcome`]: how entries end, and what the batch adds up to.
//!
//! What enters is an authenticated request, what leaves is one answer. Everything that only a backend can know is a part of
//! it. Invariant: a short batch can never look whole.

mod accept;
pub mod admission;
mod body;
mod driver;
pub mod encode;
mod fetch;
mod order;
pub mod outcome;
mod plan;
pub mod request;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt;
use prometheus::IntGauge;
use rand::rngs::SmallRng;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::auth::{Authenticated, Payer, Payload, VerifiedBody};
use crate::backend::retrying::RetryConfig;
use crate::backend::{Backend, Body, BoxError};
use crate::budget::Pool;
use crate::config::{BatchConfig, TailConfig};
use crate::error::{Error, Kind, Result};
use crate::peer::Peer;
use crate::route::Routes;
use crate::stall::BreakOff;
use crate::telemetry::Metrics;
use crate::types::{ObjectKey, RequestId};
use admission::{Admission, Admitted};
use body::BatchBody;
use driver::{Driver, Ending};
use encode::Format;
use fetch::Pools;
use order::Turns;
use plan::Plan;
use request::{BatchRequest, Entry};

/// Chunks between the driver and the connection. One is enough to keep both busy.
const CHUNKS_MAX: usize = 1;

/// Version of the contract.
const VERSION: u32 = 1;

/// Answers BatchGets.
pub struct Batches {
    config: BatchConfig,
    retry: RetryConfig,
    routes: Arc<Routes<Arc<Backend>>>,
    admission: Arc<Admission>,
    metrics: Metrics,
    random: Mutex<SmallRng>,
    numbers: AtomicU64,
}

/// A request that is on its way to an answer: what the edge and `auth` found out about it.
pub struct Ask<'a> {
    /// Method, URI and headers as they came.
    pub head: &'a Parts,
    /// The bucket of the URL.
    pub bucket: Option<&'a str>,
    /// Who asks, and how the body was signed.
    pub authenticated: Authenticated,
    /// The connection.
    pub peer: &'a Peer,
    /// For the answer.
    pub request_id: RequestId,
}

impl Batches {
    /// A service over `routes`; its budgets are part of `admission`.
    pub fn new(
        config: BatchConfig,
        tail: &TailConfig,
        routes: Arc<Routes<Arc<Backend>>>,
        admission: Arc<Admission>,
        metrics: Metrics,
        random: SmallRng,
    ) -> Self {
        let retry = RetryConfig { backoff_base: tail.backoff_base, backoff_max: tail.backoff_max, deadline: config.entry_deadline };
        Self { config, retry, routes, admission, metrics, random: Mutex::new(random), numbers: AtomicU64::new(1) }
    }

    /// What this endpoint can do, as JSON.
    pub fn capabilities(&self) -> Vec<u8> {
        let limits = json!({
            "Entries": self.config.entries_max,
            "BodyBytes": self.config.body_bytes_max,
            "KeyBytes": ObjectKey::BYTES_MAX,
            "IdBytes": request::ID_BYTES_MAX,
        });
        let capabilities = json!({"Version": VERSION, "Formats": Format::ALL.map(Format::media_type), "Limits": limits, "Features": ["Order", "OnError", "Summary"]});
        serde_json::to_vec(&capabilities).expect("numbers and strings are JSON")
    }

    /// The life of one BatchGet.
    pub async fn answer(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        let format = accept::check(ask.head)?;
        check_signing(&ask)?;
        let length = self.body_length(&ask.head.headers)?;
        // Of the URL's bucket at once, and of the entries' own as soon as they are known: others may have begun meanwhile.
        self.admit_at_backends(ask.bucket)?;
        let mut paid = self.admission.begin(length)?;
        let (body, _) = VerifiedBody::new(ask.authenticated.payload, &ask.head.headers, body)?;
        let too_long = || Error::new(Kind::InvalidRequest, "the body is longer than it was announced");
        let body = body.collect(length as usize, too_long, &mut paid).await?;
        // The text and what is read from it are there together.
        paid.pay(length + request::parsed_bytes_max(&body, self.config.entries_max)).await?;
        let batch = request::parse(&body, self.config.entries_max, ask.bucket, format)?;
        drop(body);
        let admitted = paid.admit(batch.entries.iter().map(Entry::cost).sum(), batch.entries.len()).await?;
        self.admit_at_backends(batch.buckets(ask.bucket))?;
        let plan = Plan {
            bucket: ask.bucket.unwrap_or_default().to_owned(),
            identity: ask.authenticated.identity,
            routes: Arc::clone(&self.routes),
            headers: Arc::new(crate::backend::s3::read_headers(&ask.head.headers, accept::ENTRY_HEADERS)),
            entries: Vec::new(),
        };
        Ok(self.start(batch, format, plan, admitted, ask.request_id))
    }

    /// Refuses a batch if as many wait for the backend of one of its buckets as it can read for.
    fn admit_at_backends<'a>(&self, buckets: impl IntoIterator<Item = &'a str>) -> Result<()> {
        admission::admit_at(buckets.into_iter().filter_map(|bucket| self.routes.find(bucket)).map(|(backend, _)| &*backend.limiter))
    }

    /// Starts the driver and returns the head of the answer with the body that it feeds.
    fn start(&self, batch: BatchRequest, format: Format, plan: Plan, admitted: Admitted, id: RequestId) -> Response<Body> {
        let has_summary = batch.has_summary();
        let encoder = {
            let mut random = self.random.lock().expect("drawing a number does not panic");
            format.encoder(id, batch.naming(), &mut *random)
        };
        let plan = Plan { entries: batch.entries, ..plan };
        let count = plan.entries.len();
        let content_type = encoder.content_type();
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let driver = Driver {
            plan: Arc::new(plan),
            turns: Turns::new(batch.order, count),
            on_error: batch.on_error,
            has_summary,
            encoder,
            chunks: sender,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            retry: self.retry,
            concurrency: self.config.concurrency,
            entry_bytes: self.config.entry_bytes,
            pools: Pools { window: Pool::new(self.config.window_bytes, None), shared: self.admission.window().clone() },
            admitted: Some(admitted),
        };
        let metrics = self.metrics.clone();
        let break_off = BreakOff::default();
        tokio::spawn(run(driver, format, metrics, id, break_off.clone()));
        let mut response = Response::new(Body::new(BatchBody::new(receiver).map_err(BoxError::from)));
        // Whoever serves the answer knows when its reader stalls.
        response.extensions_mut().insert(break_off);
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        response.headers_mut().insert("batch-count", HeaderValue::from(count));
        response
    }

    /// The announced length of the request's body, within the limit.
    fn body_length(&self, headers: &HeaderMap) -> Result<u64> {
        let announced = ["x-amz-decoded-content-length", "content-length"].iter().find_map(|name| headers.get(*name));
        let missing =
            || Error::new(Kind::MissingContentLength, "a BatchGet must announce the length of its body in Content-Length");
        let length = announced.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()).ok_or_else(missing)?;
        let max = self.config.body_bytes_max;
        if length > max {
            let what = format!("the body has {length} bytes, which is over the limit of {max} (Limits.BodyBytes)");
            return Err(Error::new(Kind::EntityTooLarge, what));
        }
        Ok(length)
    }
}

/// A body that the signature does not cover would let anyone on the path, or anyone with the URL, read what the signer may.
fn check_signing(ask: &Ask<'_>) -> Result<()> {
    ask.authenticated.needs_version_4()?;
    let denied = |why| Err(Error::new(Kind::AccessDenied, why));
    if ask.authenticated.presigned {
        let signs_hash = ask.authenticated.signed_headers.split(';').any(|name| name.eq_ignore_ascii_case("x-amz-content-sha256"));
        if !(signs_hash && ask.authenticated.payload_pinned) {
            return denied("a presigned BatchGet must sign x-amz-content-sha256 with the hash of its body");
        }
    } else if matches!(ask.authenticated.payload, Payload::Unsigned | Payload::UnsignedTrailer) && !ask.peer.secure {
        return denied("the body of a BatchGet must be signed (x-amz-content-sha256) unless the connection is TLS");
    }
    Ok(())
}

/// Counts a batch as long as it lives, even if its task ends in a panic.
struct InFlight {
    gauge: IntGauge,
    gone: CancellationToken,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gauge.dec();
        self.gone.cancel();
    }
}

async fn run(driver: Driver, format: Format, metrics: Metrics, id: RequestId, break_off: BreakOff) {
    metrics.batch_in_flight.inc();
    let _in_flight = InFlight { gauge: metrics.batch_in_flight.clone(), gone: break_off.gone.clone() };
    let timer = metrics.batch_seconds.start_timer();
    let (ending, totals) = driver.run(&break_off).await;
    timer.observe_duration();
    metrics.batches_total.with_label_values(&[ending.name(), format.name()]).inc();
    metrics.batch_bytes_total.inc_by(totals.bytes);
    metrics.entries_total.with_label_values(&["failed"]).inc_by(totals.failed);
    metrics.entries_total.with_label_values(&["delivered"]).inc_by(totals.delivered);
    if totals.faults > 0 || ending == Ending::Broken {
        // A break behind a part's header has no status of its own.
        let (status, code) = totals.first_fault.clone().unzip();
        tracing::warn!(
            request.id = %id,
            batch.ending = ending.name(),
            batch.entries = totals.entries,
            failed = totals.faults,
            first.status = status.map(|status| status.as_u16()),
            first.code = code,
            "batch has entries that a backend failed"
        );
    }
    tracing::debug!(
        request.id = %id,
        batch.ending = ending.name(),
        batch.format = format.name(),
        batch.entries = totals.entries,
        batch.delivered = totals.delivered,
        batch.failed = totals.failed,
        batch.bytes = totals.bytes,
        backend.requests = totals.backend_requests,
        elapsed.ms = totals.elapsed_ms,
        "batch ended"
    );
}
