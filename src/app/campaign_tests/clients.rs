//! Carries out the jobs of a [`World`] over a gateway without sockets: batches through the rig, everything else through
//! pass-through, each at its instant. What leaves is what each client got.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::bounds::Monitor;
use super::world::{Batch, Condition, Job, What, World, Write};
use crate::auth::{Authenticated, Identity, Policy, Scheme};
use crate::backend::{Body, BoxError, empty_body};
use crate::batch::encode::Format;
use crate::batch::tests::objects::content;
use crate::batch::tests::store::{Act, Faults, JOB, Step};
use crate::batch::tests::writes::GENERATION;
use crate::batch::tests::{Answer, Client, Ended, Read, Rig};
use crate::budget::Pool;
use crate::error::{Error, Kind};
use crate::passthrough::{Ask, Passthrough};
use crate::route::target;
use crate::stall::StallWatch;

/// Longer than anything may take.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Whatever has not ended so long after the last was asked hangs.
const HANGS_AFTER: Duration = Duration::from_secs(2 * 3600);

/// Bytes of an upload that come at a time.
const FRAME_BYTES: usize = 512;

/// A gateway without sockets over a simulated store.
pub(super) struct Gateway {
    pub rig: Rig,
    pub monitor: Monitor,
    passthrough: Passthrough,
    identity: Arc<Identity>,
    stalls: tokio::task::JoinHandle<()>,
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct Outcome {
    pub job: Job,
    pub started: Instant,
    /// When the head of the answer, or the error, was there.
    pub headed: Instant,
    pub ended: Instant,
    pub got: Got,
}

#[derive(Debug)]
pub(super) enum Got {
    Batch(Answer),
    Plain(Plain),
    Failed {
        kind: Kind,
        message: String,
        /// Bytes that were free for the heads of batches then.
        heads_free: u64,
        /// As many batches waited as may.
        full: bool,
    },
    /// An upload, step by step.
    Steps(Vec<Outcome>),
    /// The client went away before there was anything.
    Left,
}

/// The answer to a request that is no batch.
#[derive(Debug)]
pub(super) struct Plain {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub ended: Ended,
}

impl Outcome {
    /// This, and what it was made of.
    pub fn with_steps(&self) -> impl Iterator<Item = &Self> {
        let steps: &[Self] = if let Got::Steps(steps) = &self.got { steps } else { &[] };
        std::iter::once(self).chain(steps)
    }
}

impl Gateway {
    /// Must be made inside a runtime whose clock is paused.
    pub fn of(world: &World) -> Self {
        let step = Step { head_ms: 8, frame_ms: 2, frame_bytes: 2000, ..Step::of(Act::Healthy) };
        let rig = Rig::new(world.numbers, step, world.seed);
        for (key, object) in &world.objects {
            rig.store.put(key, object.clone());
        }
        rig.store.faults(Faults::new(world.windows.clone(), world.seed));
        Self::over(rig)
    }

    pub fn over(rig: Rig) -> Self {
        let stalls = Arc::new(StallWatch::default());
        let passthrough = Passthrough::new(Arc::clone(&rig.routes), Arc::clone(&stalls), Pool::new(1 << 20, None));
        let identity = Arc::new(Identity::new("i", "a", "s", None, Policy::full_access()));
        let monitor = Monitor::of(&rig);
        Self { rig, monitor, passthrough, identity, stalls: tokio::spawn(stalls.run()) }
    }

    /// All jobs, each at its time after now; what became of them, in the order in which they ended. Those that hang are not
    /// among them.
    pub async fn run(self: &Arc<Self>, jobs: &[Job]) -> Vec<Outcome> {
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for job in jobs.iter().cloned() {
            let this = Arc::clone(self);
            tasks.spawn(async move {
                sleep_until(begun + job.at).await;
                this.job(job).await
            });
        }
        let mut outcomes = Vec::with_capacity(jobs.len());
        let last = begun + jobs.iter().map(|job| job.at).max().unwrap_or_default() + HANGS_AFTER;
        while let Ok(Some(outcome)) = timeout_at(last, tasks.join_next()).await {
            outcomes.push(outcome.expect("no panic"));
        }
        outcomes
    }

    async fn job(&self, job: Job) -> Outcome {
        let started = Instant::now();
        let (headed, got) = match &job.what {
            What::Batch(batch) => self.batch(job.number, batch).await,
            What::Read { key, head, range, client } => {
                let method = if *head { Method::HEAD } else { Method::GET };
                let mut request = Request::builder().method(method).uri(format!("/b/{key}")).header(JOB, job.number);
                if let Some(range) = range {
                    request = request.header(header::RANGE, range);
                }
                self.plain(request.body(empty_body()).expect("valid"), *client).await
            }
            What::Write(write) => self.write(job.number, write).await,
            What::Upload(upload) => self.upload(job.number, upload).await,
            What::Step(..) => unreachable!("steps are no jobs"),
        };
        Outcome { job, started, headed, ended: Instant::now(), got }
    }

    async fn batch(&self, number: u32, batch: &Batch) -> (Instant, Got) {
        let started = Instant::now();
        let headers = HeaderMap::from_iter([(JOB.parse().expect("valid"), HeaderValue::from(number))]);
        match self.rig.try_start_as(if batch.tar { Format::Tar } else { Format::Multipart }, &batch.request(), headers).await {
            Ok(response) => (Instant::now(), Got::Batch(batch.client.take(response, started).await)),
            Err(error) => (Instant::now(), self.failed(&error)),
        }
    }

    fn failed(&self, error: &Error) -> Got {
        let full = self.rig.backend.limiter.is_full_of_batches();
        Got::Failed { kind: error.kind, message: error.message.to_string(), heads_free: self.rig.heads.free(), full }
    }

    /// A request that goes through as it is.
    pub async fn plain(&self, request: Request<Body>, client: Client) -> (Instant, Got) {
        let (head, body) = request.into_parts();
        let target = target(&head, &[], "").expect("valid");
        let identity = Arc::clone(&self.identity);
        let authenticated = Authenticated { identity, scheme: Scheme::V4, ..Authenticated::nobody() };
        let ask = Ask { head: &head, target: &target, authenticated, secure: true };
        let answer = self.passthrough.answer(ask, body).await;
        let headed = Instant::now();
        match answer {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let Read { octets: bytes, ended, .. } = client.read(body).await;
                (headed, Got::Plain(Plain { status: head.status.as_u16(), headers: head.headers, bytes, ended }))
            }
            Err(error) => (headed, self.failed(&error)),
        }
    }

    async fn write(&self, number: u32, write: &Write) -> (Instant, Got) {
        let method = if write.length.is_some() { Method::PUT } else { Method::DELETE };
        let mut request = Request::builder().method(method).uri(format!("/b/{}", write.key)).header(JOB, number);
        request = match (write.condition, self.rig.store.object(&write.key)) {
            (Condition::Absent, _) => request.header(header::IF_NONE_MATCH, "*"),
            (Condition::Current, Some(object)) => request.header(header::IF_MATCH, object.etag()),
            _ => request,
        };
        let body = match write.length {
            None => empty_body(),
            Some(length) => {
                request = request.header(header::CONTENT_LENGTH, length).header(GENERATION, write.generation);
                upload(write, length)
            }
        };
        let sent = self.plain(request.body(body).expect("valid"), Client::Eager);
        match timeout(write.leaves_after.unwrap_or(FOR_EVER), sent).await {
            Ok(answered) => answered,
            Err(_) => (Instant::now(), Got::Left),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stalls.abort();
    }
}

/// The body of a PUT, with the client's pauses and its end.
fn upload(write: &Write, length: usize) -> Body {
    if length == 0 {
        return empty_body();
    }
    let whole = Bytes::from(content(&write.key, write.generation, length));
    let sent = whole.slice(..write.breaks_after.unwrap_or(length));
    let frames: Vec<_> = (0..sent.len()).step_by(FRAME_BYTES).map(|at| sent.slice(at..sent.len().min(at + FRAME_BYTES))).collect();
    let frames = frames.into_iter().map(|frame| Ok(Frame::data(frame)));
    let broken = write.breaks_after.map(|_| Err(BoxError::from("the client's connection broke")));
    let pause = Duration::from_millis(write.pause_ms);
    let paced = stream::iter(frames.chain(broken)).then(move |frame| async move {
        sleep(pause).await;
        frame
    });
    Body::new(StreamBody::new(paced))
}
