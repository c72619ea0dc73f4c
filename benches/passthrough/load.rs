//! The client, in a process of its own and on one thread. What enters is one [`Job`] as JSON; what leaves is its [`Outcome`] as
//! JSON. It signs every request as SDKs do, reads every answer to its end and compares its bytes; what it sends the origin
//! compares. Invariant: a job ends within [`TIMEOUT`], and fails at the first answer that is not what it must be.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use batchgate::backend::s3::credentials::KeyPair;
use batchgate::backend::s3::sign::{EMPTY_SHA256, Signer};
use batchgate::load::{content, cpu_seconds};
use futures_util::future::try_join_all;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::origin::Pattern;
use crate::process::{ACCESS_KEY, SECRET_KEY};
use crate::{Fallible, fail, names};

/// Longest time that a job may take.
const TIMEOUT: Duration = Duration::from_secs(180);

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

/// Runs one job in a process of its own.
pub fn spawn(job: &Job) -> Fallible<Outcome> {
    let output =
        Command::new(std::env::current_exe()?).arg("load").arg(serde_json::to_string(job)?).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return fail(format!("the load failed at {job:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs the job and prints its outcome.
pub fn run(job: &str) -> Fallible<()> {
    let job: Job = serde_json::from_str(job)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match tokio::time::timeout(TIMEOUT, measure(&job)).await {
            Ok(outcome) => outcome,
            Err(_) => fail(format!("not done after {} s", TIMEOUT.as_secs())),
        }
    })?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

async fn measure(job: &Job) -> Fallible<Outcome> {
    let client = Arc::new(Client::new(job)?);
    client.ask(job.warm_up).await?;
    let cpu = || job.watched.iter().map(|pid| cpu_seconds(*pid)).sum::<std::io::Result<f64>>();
    let (before, started) = (cpu()?, Instant::now());
    let bytes = client.ask(job.requests).await?;
    Ok(Outcome { requests: job.requests, bytes, seconds: started.elapsed().as_secs_f64(), cpu_seconds: cpu()? - before })
}

/// A client with pooled connections: hyper's, and a signature.
struct Client {
    client: legacy::Client<HttpConnector, Pattern>,
    signer: Signer,
    pair: Arc<KeyPair>,
    authority: String,
    host: HeaderValue,
    /// One for each worker, so that answers that were mixed up are noticed.
    objects: Vec<Object>,
    what: What,
    size: u64,
}

/// What a worker asks for again and again.
struct Object {
    number: u64,
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
        Ok(Self { number, path, hash })
    }
}

fn sha256(number: u64, size: u64) -> Fallible<HeaderValue> {
    let (mut hash, mut at) = (Sha256::new(), 0);
    while at < size {
        let bytes = content::at(number, at, size - at);
        hash.update(&bytes);
        at += bytes.len() as u64;
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(HeaderValue::from_str(&hex)?)
}

impl Client {
    fn new(job: &Job) -> Fallible<Self> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        let authority = job.address.to_string();
        Ok(Self {
            client: legacy::Client::builder(TokioExecutor::new()).build(http),
            signer: Signer::new("us-east-1"),
            pair: Arc::new(KeyPair::new(ACCESS_KEY, SECRET_KEY, None)?),
            host: HeaderValue::from_str(&authority)?,
            authority,
            objects: (0..job.workers).map(|number| Object::new(job, number)).collect::<Fallible<_>>()?,
            what: job.what,
            size: job.size,
        })
    }

    /// Sends so many requests; gives the bytes of their objects.
    async fn ask(self: &Arc<Self>, requests: u64) -> Fallible<u64> {
        let sent = Arc::new(AtomicU64::new(0));
        let work = (0..self.objects.len()).map(|worker| {
            let (client, sent) = (Arc::clone(self), Arc::clone(&sent));
            tokio::spawn(async move {
                let mut bytes = 0;
                while sent.fetch_add(1, Ordering::Relaxed) < requests {
                    bytes += client.one(&client.objects[worker]).await?;
                }
                Ok(bytes)
            })
        });
        try_join_all(work).await?.into_iter().sum::<Fallible<u64>>().and_then(|bytes| match bytes == requests * self.size {
            true => Ok(bytes),
            false => fail(format!("{requests} requests moved {bytes} bytes")),
        })
    }

    async fn one(&self, object: &Object) -> Fallible<u64> {
        let (number, path, size) = (object.number, &object.path, self.size);
        let method = if self.what == What::Get { Method::GET } else { Method::PUT };
        let mut request = Request::new(Pattern::new(number, if method == Method::GET { 0 } else { size }));
        request.headers_mut().insert(header::HOST, self.host.clone());
        request.headers_mut().insert("x-amz-content-sha256", object.hash.clone());
        self.signer.sign(&method, path, request.headers_mut(), &self.pair, wall_clock());
        *request.uri_mut() =
            Uri::builder().scheme("http").authority(self.authority.as_str()).path_and_query(path.clone()).build()?;
        *request.method_mut() = method.clone();
        let answer = self.client.request(request).await?;
        let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        let expected = if method == Method::GET { size } else { 0 };
        if answer.status() != StatusCode::OK || length != Some(expected) {
            return fail(format!("{method} {path} gives {} with length {length:?}", answer.status()));
        }
        let (mut body, mut at) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            let bytes = frame?.into_data().unwrap_or_default();
            if !content::is(number, at, &bytes) {
                return fail(format!("object {number} has other bytes at {at}"));
            }
            at += bytes.len() as u64;
        }
        if at == expected { Ok(size) } else { fail(format!("object {number} has {at} of {expected} bytes")) }
    }
}

#[expect(clippy::disallowed_methods, reason = "a client reads the system's clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
