//! What the client does: GETs of objects or PUTs of them, each worker the same one again and again. What enters is one [`Job`];
//! what leaves is its [`Outcome`]. What it sends the origin compares.

use std::net::SocketAddr;
use std::sync::Arc;

use batchgate::backend::s3::sign::EMPTY_SHA256;
use batchgate::load::{content, cpu_seconds};
use batchgate::types::hex32;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::common::load::{self, Coming};
use crate::common::origin::Pattern;
use crate::common::{Fallible, names};

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Whom to ask.
    pub address: SocketAddr,
    /// What for.
    pub what: What,
    /// Bytes of each object.
    pub size: u64,
    /// Requests that are under way at once.
    pub workers: u64,
    /// Requests before anything is measured: connections open, memory is touched.
    pub warm_up: u64,
    /// Requests that are measured.
    pub requests: u64,
    /// Processes whose CPU time is wanted, all together.
    pub watched: Vec<u32>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// An object.
    Get,
    /// To store one, the SHA-256 of which is part of the signature, as SDKs do without TLS.
    PutSigned,
    /// To store one of which the signature says nothing.
    PutUnsigned,
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests that were answered as they must be.
    pub requests: u64,
    /// Bytes of all their objects.
    pub bytes: u64,
    /// Time that they took.
    pub seconds: f64,
    /// CPU time of the watched processes meanwhile.
    pub cpu_seconds: f64,
}

/// Does the job and prints its outcome.
pub fn run(job: &str) -> Fallible<()> {
    load::run(job, |_| 1, measure)
}

async fn measure(job: &Job) -> Fallible<Outcome> {
    let client = Arc::new(Client::new(job)?);
    client.ask(job.warm_up).await?;
    let cpu = || job.watched.iter().map(|pid| cpu_seconds(*pid)).sum::<std::io::Result<f64>>();
    let (before, started) = (cpu()?, Instant::now());
    client.ask(job.requests).await?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Outcome { requests: job.requests, bytes: job.requests * job.size, seconds, cpu_seconds: cpu()? - before })
}

/// A client that asks for the same again and again.
struct Client {
    client: load::Client<Pattern>,
    /// One for each worker, so that answers that were mixed up are noticed.
    objects: Vec<Object>,
    what: What,
    size: u64,
}

/// What a worker asks for again and again.
struct Object {
    path: PathAndQuery,
    /// Of `x-amz-content-sha256`; made once, so that the load takes no time for it.
    hash: HeaderValue,
}

impl Object {
    fn new(job: &Job, number: u64) -> Fallible<Self> {
        let path = PathAndQuery::try_from(format!("/{}/{}", names::bucket(0), names::key(job.size, number)))?;
        let hash = match job.what {
            What::Get => HeaderValue::from_static(EMPTY_SHA256),
            What::PutSigned => sha256(number, job.size)?,
            What::PutUnsigned => HeaderValue::from_static("UNSIGNED-PAYLOAD"),
        };
        Ok(Self { path, hash })
    }
}

fn sha256(number: u64, size: u64) -> Fallible<HeaderValue> {
    let (mut hash, mut at) = (Sha256::new(), 0);
    while at < size {
        let bytes = content::at(number, at, size - at);
        hash.update(&bytes);
        at += bytes.len() as u64;
    }
    Ok(HeaderValue::from_bytes(&hex32(&hash.finalize().into()))?)
}

impl Client {
    fn new(job: &Job) -> Fallible<Self> {
        let objects = (0..job.workers).map(|number| Object::new(job, number)).collect::<Fallible<_>>()?;
        Ok(Self { client: load::Client::new(job.address)?, objects, what: job.what, size: job.size })
    }

    /// Sends so many requests.
    async fn ask(self: &Arc<Self>, requests: u64) -> Fallible<()> {
        let client = Arc::clone(self);
        let one = move |worker, _| {
            let client = Arc::clone(&client);
            async move { client.one(worker).await }
        };
        load::share(self.objects.len() as u64, requests, one).await
    }

    async fn one(&self, worker: u64) -> Fallible<()> {
        let Object { path, hash } = &self.objects[worker as usize];
        let (method, sent, comes) = match self.what {
            What::Get => (Method::GET, 0, self.size),
            What::PutSigned | What::PutUnsigned => (Method::PUT, self.size, 0),
        };
        let coming = Coming::new(worker, comes, true);
        self.client.exchange(&method, path, hash.clone(), Pattern::new(worker, sent), coming).await
    }
}
