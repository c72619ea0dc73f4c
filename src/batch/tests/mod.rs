//! BatchGet under a simulated clock: a [`Rig`] runs batches over a [`store`] in memory, a [`Client`] takes the answer as
//! clients do, and [`reader`] or [`untar`] reads it strictly. No network, no real time: an outage of a minute takes no time to test.

pub(crate) mod faults;
pub(crate) mod judge;
pub(crate) mod objects;
pub(crate) mod reader;
mod sim_body;
pub(crate) mod store;
pub(crate) mod untar;
mod uploads;
pub(crate) mod writes;

mod deadlines;
mod golden;
mod outages;
mod parking;
mod props;
mod scenarios;
mod scenes;
mod tar;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::admission::Admission;
use super::encode::Format;
use super::plan::Plan;
use super::{Batches, request};
use crate::auth::{Identity, Policy};
use crate::backend::breaker::{Breaker, BreakerConfig};
use crate::backend::limited::{LimitConfig, Limiter};
use crate::backend::retry_budget::RetryBudget;
use crate::backend::{Backend, Body, ReadAsk};
use crate::budget::Pool;
use crate::config::{BatchConfig, TailConfig};
use crate::route::Routes;
use crate::stall::StallWatch;
use crate::telemetry::Metrics;
use crate::types::{ByteRange, RequestId};
use judge::{is_error, right_or_error, same_as_lone};
use objects::{Object, SECRET};
use reader::{Part, PartId};
use store::{Act, SimStore, Step};

/// The bucket's name at the store, which clients never see.
const AT_STORE: &str = "bucket-at-store";

/// Longer than anything may take.
const FOR_EVER: Duration = Duration::from_secs(7 * 24 * 3600);

const KIB: u64 = 1024;

/// More entries than any rig has in flight.
const ENTRIES_MAX: u64 = 1 << 20;

/// The numbers of a rig: small, so that everything is met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub entry_bytes: u64,
    pub window_bytes: u64,
    /// For reading ahead, of all batches.
    pub shared_bytes: u64,
    pub heads_bytes: u64,
    pub concurrency: usize,
    pub permits: usize,
    /// However often the store says slow down.
    pub permits_min: usize,
    pub deadline: Duration,
    pub attempt_timeout: Duration,
    /// Of plain requests.
    pub response_timeout: Duration,
    /// Of plain requests too.
    pub queue_wait: Duration,
    pub backoff_max: Duration,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            entry_bytes: KIB,
            window_bytes: 8 * KIB,
            shared_bytes: 64 * KIB,
            heads_bytes: 64 * KIB,
            concurrency: 4,
            permits: 8,
            permits_min: 1,
            deadline: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(60),
            queue_wait: Duration::from_millis(1500),
            backoff_max: Duration::from_millis(200),
        }
    }
}

/// A gateway's batch half over a simulated store.
pub(crate) struct Rig {
    pub numbers: Numbers,
    pub store: SimStore,
    pub backend: Arc<Backend>,
    pub routes: Arc<Routes<Arc<Backend>>>,
    pub batches: Batches,
    pub admission: Arc<Admission>,
    pub stalls: Arc<StallWatch>,
    pub entries: Pool,
    pub heads: Pool,
    pub shared: Pool,
    pub metrics: Metrics,
    /// Of the answers.
    pub format: Format,
    identity: Arc<Identity>,
}

impl Rig {
    /// Must be made inside a runtime whose clock is paused.
    pub fn new(numbers: Numbers, otherwise: Step, seed: u64) -> Self {
        let metrics = Metrics::new();
        let store = SimStore::new(otherwise);
        let limit =
            LimitConfig { max: numbers.permits, min: numbers.permits_min, plain_share: 0.25, queue_wait: numbers.queue_wait };
        let breaker = BreakerConfig { failures: 20, pause: Duration::from_secs(1), attempt_timeout: numbers.attempt_timeout };
        let backend = Arc::new(Backend {
            name: "sim".into(),
            store: Box::new(store.clone()),
            limiter: Limiter::new(limit, metrics.backend("sim")),
            breaker: Breaker::new("sim", breaker, metrics.backend("sim")),
            retries: RetryBudget::new(0.2, metrics.backend("sim")),
            metrics: metrics.backend("sim"),
            warnings: crate::backend::warnings::Warnings::default(),
            accepted: crate::backend::accepted::Accepted::default(),
            region: "us-east-1".into(),
            quirks: crate::config::Quirks::default(),
            attempt_timeout: numbers.attempt_timeout,
            response_timeout: numbers.response_timeout,
            random: Mutex::new(SmallRng::seed_from_u64(seed)),
        });
        let mut routes = Routes::default();
        routes.push("b", Arc::clone(&backend), Some(AT_STORE.into()));
        let routes = Arc::new(routes);
        let heads = Pool::new(numbers.heads_bytes, None);
        let shared = Pool::new(numbers.shared_bytes, None);
        store.watch(shared.clone());
        let stalls = Arc::new(StallWatch::default());
        let entries = Pool::new(ENTRIES_MAX, None);
        let admission =
            Arc::new(Admission::new(heads.clone(), shared.clone(), entries.clone(), numbers.entry_bytes, Arc::clone(&stalls)));
        let config = BatchConfig {
            entry_bytes: numbers.entry_bytes,
            window_bytes: numbers.window_bytes,
            concurrency: numbers.concurrency,
            entry_deadline: numbers.deadline,
            ..BatchConfig::default()
        };
        let tail = TailConfig { backoff_max: numbers.backoff_max, ..TailConfig::default() };
        let random = SmallRng::seed_from_u64(seed);
        let batches = Batches::new(config, &tail, Arc::clone(&routes), Arc::clone(&admission), metrics.clone(), random);
        let policy = r#"{"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:GetObject*", "Resource": "arn:aws:s3:::b/denied*"}]}"#;
        let identity = Arc::new(Identity::new("i", "a", "s", None, Policy::parse(policy).expect("valid")));
        Self {
            numbers,
            store,
            backend,
            routes,
            batches,
            admission,
            stalls,
            entries,
            heads,
            shared,
            metrics,
            format: Format::Multipart,
            identity,
        }
    }

    /// Starts a batch as [`Batches::answer`] does once the request is verified.
    pub async fn start(&self, request: &Value) -> Response<Body> {
        self.try_start(request).await.expect("admitted")
    }

    pub async fn try_start(&self, request: &Value) -> crate::error::Result<Response<Body>> {
        self.try_start_with(request, HeaderMap::new()).await
    }

    /// With headers that go along with each read.
    pub async fn try_start_with(&self, request: &Value, headers: HeaderMap) -> crate::error::Result<Response<Body>> {
        self.try_start_as(self.format, request, headers).await
    }

    /// In another format than the rig's.
    pub async fn try_start_as(&self, format: Format, request: &Value, headers: HeaderMap) -> crate::error::Result<Response<Body>> {
        let body = serde_json::to_vec(request).expect("JSON");
        // Its body has come.
        let paid = self.admission.begin(0)?;
        let batch = request::parse(&body, 10_000, Some("b"), format).expect("valid");
        let admitted = paid.admit(body.len() as u64, batch.entries.len()).await?;
        self.batches.admit_at_backends(batch.buckets(Some("b")))?;
        let plan = Plan {
            entries: Vec::new(),
            bucket: "b".into(),
            identity: Arc::clone(&self.identity),
            routes: Arc::clone(&self.routes),
            headers: Arc::new(headers),
        };
        Ok(self.batches.start(batch, format, plan, admitted, RequestId(0x4f0c)))
    }

    /// Runs a batch to its end.
    pub async fn run(&self, request: &Value, client: Client) -> Answer {
        let started = Instant::now();
        let response = self.start(request).await;
        client.take(response, started).await
    }

    /// Everything that a batch took is given back.
    pub async fn settled(&self) -> Result<(), String> {
        // A task that was told to end ends at once; a stalled one has no timer that is shorter.
        sleep(Duration::from_millis(1)).await;
        let facts = [
            ("heads", self.heads.free() == self.heads.max()),
            ("window", self.shared.free() == self.shared.max()),
            ("entries", self.entries.free() == self.entries.max()),
            ("permits", self.backend.limiter.in_use() == 0),
            ("reads that wait", self.store.waiting() == 0),
            ("bodies", self.store.bodies() == 0),
            ("batches in flight", self.metrics.batch_in_flight.get() == 0),
        ];
        match facts.iter().find(|(_, released)| !released) {
            Some((what, _)) => Err(format!("{what} are not given back")),
            None => Ok(()),
        }
    }
}

/// How an answer is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// At once.
    Eager,
    /// With a pause after each chunk.
    Drip { pause_ms: u64 },
    /// With one pause, after so many octets.
    Stall { after: usize, secs: u64 },
    /// Goes away after so many octets.
    Leave { after: usize },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Cleanly.
    Cleanly,
    /// In an error.
    Broken,
    /// The client went away.
    Left,
    /// It did not.
    Never,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub content_type: String,
    pub count: usize,
    pub octets: Vec<u8>,
    pub ended: Ended,
    /// From the request to the end.
    pub took: Duration,
    /// Each time that the client asked for more: when it did, when something came, or the end, and how many octets it had then.
    pub waits: Vec<Wait>,
}

/// A client that waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub since: Instant,
    pub until: Instant,
    pub octets: usize,
}

/// What a client read of a body, and how it ended.
pub(crate) struct Read {
    pub octets: Vec<u8>,
    pub ended: Ended,
    pub waits: Vec<Wait>,
}

impl Client {
    pub async fn take(self, response: Response<Body>, started: Instant) -> Answer {
        let (head, body) = response.into_parts();
        let header = |name: &str| head.headers[name].to_str().expect("text").to_owned();
        let (content_type, count) = (header("content-type"), header("batch-count").parse().expect("a number"));
        let Read { octets, ended, waits } = self.read(body).await;
        Answer { content_type, count, octets, ended, took: started.elapsed(), waits }
    }

    /// Reads as this client does, to the end or until it goes away.
    pub async fn read(self, mut body: Body) -> Read {
        let (mut octets, mut waits) = (Vec::new(), Vec::new());
        let mut stalled = false;
        let ended = loop {
            match self {
                Self::Leave { after } if octets.len() >= after => break Ended::Left,
                Self::Stall { after, secs } if octets.len() >= after && !stalled => {
                    stalled = true;
                    sleep(Duration::from_secs(secs)).await;
                }
                Self::Drip { pause_ms } => sleep(Duration::from_millis(pause_ms)).await,
                _ => {}
            }
            let since = Instant::now();
            let frame = timeout(FOR_EVER, body.frame()).await;
            let ended = match frame {
                Err(_) => Some(Ended::Never),
                Ok(None) => Some(Ended::Cleanly),
                Ok(Some(Err(_))) => Some(Ended::Broken),
                Ok(Some(Ok(frame))) => {
                    octets.extend_from_slice(&frame.into_data().expect("no trailers"));
                    None
                }
            };
            waits.push(Wait { since, until: Instant::now(), octets: octets.len() });
            if let Some(ended) = ended {
                break ended;
            }
        };
        Read { octets, ended, waits }
    }
}

impl Answer {
    /// The parts and the summary of an answer that must be whole.
    pub fn whole(&self) -> Result<(Vec<Part>, Option<Value>), String> {
        if self.ended != Ended::Cleanly {
            return Err(format!("the message ended {:?} after {} octets", self.ended, self.octets.len()));
        }
        reader::whole(&self.content_type, self.count, &self.octets)
    }

    /// The parts that are there, of whatever is there; a message that is not whole must not look so.
    pub fn parts(&self) -> Result<Vec<Part>, String> {
        match self.ended {
            Ended::Cleanly => self.whole().map(|(parts, _)| parts),
            Ended::Never => Err("the answer hangs".into()),
            Ended::Broken if reader::whole(&self.content_type, self.count, &self.octets).is_ok() => {
                Err("a broken message looks whole".into())
            }
            _ => reader::read(&self.content_type, &self.octets).map(|reading| {
                let entries = reading.parts.into_iter().filter(|part| part.id != PartId::Summary);
                entries.collect()
            }),
        }
    }

    /// Nothing of the store's own world is in the answer.
    pub fn keeps_secrets(&self) -> Result<(), String> {
        for secret in [SECRET, "10.0.0.1", AT_STORE] {
            if memchr::memmem::find(&self.octets, secret.as_bytes()).is_some() {
                return Err(format!("{secret:?} is in the answer"));
            }
        }
        Ok(())
    }
}

/// One entry of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub key: String,
    pub bucket: Option<&'static str>,
    pub range: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub version: Option<&'static str>,
    pub id: Option<String>,
}

impl Wanted {
    pub fn of(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    fn json(&self) -> Value {
        json!({"Key": self.key, "Bucket": self.bucket, "Range": self.range, "IfMatch": self.if_match,
            "IfNoneMatch": self.if_none_match, "VersionId": self.version, "Id": self.id})
    }

    /// The lone read that this entry means.
    pub fn ask(&self) -> ReadAsk {
        let header = |text: &Option<String>| text.as_ref().map(|text| text.parse().expect("visible"));
        ReadAsk {
            version: self.version.map(Into::into),
            range: self.range.as_deref().map(|range| ByteRange::parse(range).expect("valid")),
            if_match: header(&self.if_match),
            if_none_match: header(&self.if_none_match),
            ..ReadAsk::plain(AT_STORE, &self.key)
        }
    }
}

/// A request for `wanted` with all defaults.
pub(crate) fn request(wanted: &[Wanted]) -> Value {
    json!({"Objects": wanted.iter().map(Wanted::json).collect::<Vec<_>>()})
}

/// The part of an entry, which must be there.
pub(crate) fn part_of(parts: &[Part], index: usize) -> &Part {
    parts.iter().find(|part| part.id == PartId::Entry(index)).expect("the entry has a part")
}

/// A runtime for one case of a property.
pub(crate) fn simulate<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(case)
}
