//! What the client does: BatchGets, GETs, or BatchGets that it does not read for a while. What enters is one [`Job`]; what leaves
//! is its [`Outcome`]. It reads batches strictly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use batchgate::backend::s3::sign::EMPTY_SHA256;
use batchgate::client::reader::{Event, Owed, Reader, Unfinished};
use batchgate::load::cpu_seconds;
use batchgate::types::hex32;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::common::load::{self, Coming};
use crate::common::{Fallible, fail, names};

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Whom to ask.
    pub address: SocketAddr,
    /// How.
    pub how: How,
    /// The origin's delay, which the bucket's name carries.
    pub delay_ms: u64,
    /// Bytes of each object.
    pub size: u64,
    /// Number of the first object; no two jobs on one gateway share objects, so that every read is cold.
    pub first: u64,
    /// Objects before anything is measured: connections open, memory is touched.
    pub warm_up: u64,
    /// Objects that are measured.
    pub objects: u64,
    /// Threads of this process.
    pub threads: usize,
    /// Whether the measured bytes are compared; those of the warm-up always are, and lengths too.
    pub compare: bool,
    /// Processes whose CPU time is wanted besides this one's.
    pub watched: Vec<u32>,
}

/// How objects are asked for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum How {
    /// One BatchGet after another, of so many entries.
    Batches(u64),
    /// GETs, by so many workers, each of which does one after another.
    Gets(u64),
    /// BatchGets of `entries` by so many readers at once, who read nothing for a while before they read all.
    Stalled {
        /// Entries of each.
        entries: u64,
        /// For how long nothing is read.
        pause_ms: u64,
    },
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Objects that came, right and whole.
    pub objects: u64,
    /// Time that they took.
    pub seconds: f64,
    /// CPU time of this process meanwhile.
    pub own_cpu_seconds: f64,
    /// That of the watched processes.
    pub cpu_seconds: Vec<f64>,
}

/// Does the job and prints its outcome.
pub fn run(job: &str) -> Fallible<()> {
    load::run(job, |job: &Job| job.threads, measure)
}

async fn measure(job: &Job) -> Fallible<Outcome> {
    let client = Arc::new(S3::new(job)?);
    Arc::clone(&client).fetch(job.how, job.first, job.warm_up, true).await?;
    let cpu =
        || -> Fallible<Vec<f64>> { [std::process::id()].iter().chain(&job.watched).map(|pid| Ok(cpu_seconds(*pid)?)).collect() };
    let (before, started) = (cpu()?, Instant::now());
    client.fetch(job.how, job.first + job.warm_up, job.objects, job.compare).await?;
    let seconds = started.elapsed().as_secs_f64();
    let mut spent = cpu()?.into_iter().zip(before).map(|(after, before)| after - before);
    let own_cpu_seconds = spent.next().expect("this process is the first");
    Ok(Outcome { objects: job.objects, seconds, own_cpu_seconds, cpu_seconds: spent.collect() })
}

/// A client of one bucket.
struct S3 {
    client: load::Client<Full<Bytes>>,
    bucket: String,
    size: u64,
}

impl S3 {
    fn new(job: &Job) -> Fallible<Self> {
        Ok(Self { client: load::Client::new(job.address)?, bucket: names::bucket(job.delay_ms), size: job.size })
    }

    /// Fetches `count` objects from number `first` on.
    async fn fetch(self: Arc<Self>, how: How, first: u64, count: u64, compare: bool) -> Fallible<()> {
        match how {
            How::Batches(entries) => {
                for at in (first..first + count).step_by(usize::try_from(entries)?) {
                    let entries = entries.min(first + count - at);
                    let answer = self.batch(at, entries).await?;
                    self.read_batch(answer, at, entries, compare).await?;
                }
            }
            How::Gets(workers) => {
                let one = move |_, at| {
                    let client = Arc::clone(&self);
                    async move { client.get(first + at, compare).await }
                };
                load::share(workers, count, one).await?;
            }
            How::Stalled { entries, pause_ms } => {
                let starts = (first..first + count).step_by(usize::try_from(entries)?);
                let answers = try_join_all(starts.clone().map(|at| self.batch(at, entries))).await?;
                if count > 0 {
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
                let readers = starts.zip(answers).map(|(at, answer)| self.read_batch(answer, at, entries, compare));
                try_join_all(readers).await?;
            }
        }
        Ok(())
    }

    async fn get(&self, number: u64, compare: bool) -> Fallible<()> {
        let path = PathAndQuery::try_from(format!("/{}/{}", self.bucket, names::key(self.size, number)))?;
        let (hash, coming) = (HeaderValue::from_static(EMPTY_SHA256), Coming::new(number, self.size, compare));
        self.client.exchange(&Method::GET, &path, hash, Full::default(), coming).await
    }

    async fn batch(&self, first: u64, entries: u64) -> Fallible<Response<Incoming>> {
        let objects: Vec<_> =
            (first..first + entries).map(|number| serde_json::json!({"Key": names::key(self.size, number)})).collect();
        let body = serde_json::to_vec(&serde_json::json!({ "Objects": objects }))?;
        let hash = HeaderValue::from_bytes(&hex32(&Sha256::digest(&body).into()))?;
        let path = PathAndQuery::try_from(format!("/{}?batch-get", self.bucket))?;
        let answer = self.client.send(&Method::POST, &path, hash, Full::from(body)).await?;
        if answer.status() != StatusCode::OK || text(answer.headers(), "batch-count") != entries.to_string() {
            return fail(format!("a BatchGet of {entries} gives {} {:?}", answer.status(), answer.headers()));
        }
        Ok(answer)
    }

    async fn read_batch(&self, answer: Response<Incoming>, first: u64, entries: u64, compare: bool) -> Fallible<()> {
        let owed = Owed { entries: u32::try_from(entries)?, in_order: true, summary: false };
        let mut reader = Reader::new(text(answer.headers(), "content-type"), owed).map_err(|wrong| wrong.0)?;
        let mut object = Coming::new(first, self.size, compare);
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            reader.feed(frame?.into_data().unwrap_or_default());
            while let Some(event) = reader.next().map_err(|wrong| wrong.0)? {
                match event {
                    Event::Part(head) if head.status != 200 || head.length != self.size => {
                        return fail(format!("a part of {entries} is {head:?}"));
                    }
                    Event::Part(head) => object = Coming::new(first + u64::from(head.index), self.size, compare),
                    Event::Data(bytes) => object.take(&bytes)?,
                    Event::End => object.whole()?,
                    Event::Summary(_) => return fail("a summary that nobody asked for"),
                }
            }
        }
        match reader.finish() {
            Ok(()) => Ok(()),
            Err(Unfinished::Cut) => fail("the answer ends without its closing delimiter"),
            Err(Unfinished::Wrong(wrong)) => fail(wrong.0),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
