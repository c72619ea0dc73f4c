//! The client, in a process of its own. What enters is one [`Job`] as JSON; what leaves is its [`Outcome`] as JSON. It signs
//! every request, reads every answer strictly and compares its bytes, so that a figure is only ever of right answers.
//! Invariant: a job ends within [`TIMEOUT`], and fails at the first answer that is not what it must be.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use batchgate::backend::s3::credentials::KeyPair;
use batchgate::backend::s3::sign::{EMPTY_SHA256, Signer};
use batchgate::client::reader::{Event, Owed, Reader, Unfinished};
use batchgate::load::{content, cpu_seconds};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::process::{ACCESS_KEY, SECRET_KEY};
use crate::{Fallible, fail, names};

/// Longest time that a job may take.
const TIMEOUT: Duration = Duration::from_secs(180);

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
    let mut builder = match job.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let outcome = builder.worker_threads(job.threads).enable_all().build()?.block_on(async {
        match tokio::time::timeout(TIMEOUT, measure(&job)).await {
            Ok(outcome) => outcome,
            Err(_) => fail(format!("not done after {} s", TIMEOUT.as_secs())),
        }
    })?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
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

/// A client with pooled connections: hyper's, and a signature.
struct S3 {
    client: legacy::Client<HttpConnector, Full<Bytes>>,
    signer: Signer,
    pair: Arc<KeyPair>,
    authority: String,
    host: HeaderValue,
    bucket: String,
    size: u64,
}

impl S3 {
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
            bucket: names::bucket(job.delay_ms),
            size: job.size,
        })
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
                let next = Arc::new(AtomicU64::new(first));
                let work = (0..workers).map(|_| {
                    let (client, next) = (Arc::clone(&self), Arc::clone(&next));
                    tokio::spawn(async move {
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            if number >= first + count {
                                return Ok(());
                            }
                            client.get(number, compare).await?;
                        }
                    })
                });
                try_join_all(work).await?.into_iter().collect::<Fallible<()>>()?;
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
        let path = format!("/{}/{}", self.bucket, names::key(self.size, number));
        let answer = self.send(Method::GET, &path, HeaderValue::from_static(EMPTY_SHA256), Bytes::new()).await?;
        let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        if answer.status() != StatusCode::OK || length != Some(&self.size.to_string()) {
            return fail(format!("GET {path} gives {} with length {length:?}", answer.status()));
        }
        let mut object = Object { number, size: self.size, at: 0, compare };
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            object.take(&frame?.into_data().unwrap_or_default())?;
        }
        object.whole()
    }

    async fn batch(&self, first: u64, entries: u64) -> Fallible<Response<Incoming>> {
        let objects: Vec<_> =
            (first..first + entries).map(|number| serde_json::json!({"Key": names::key(self.size, number)})).collect();
        let body = serde_json::to_vec(&serde_json::json!({ "Objects": objects }))?;
        let hash: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = format!("/{}?batch-get", self.bucket);
        let answer = self.send(Method::POST, &path, HeaderValue::from_str(&hash)?, Bytes::from(body)).await?;
        if answer.status() != StatusCode::OK || text(answer.headers(), "batch-count") != entries.to_string() {
            return fail(format!("a BatchGet of {entries} gives {} {:?}", answer.status(), answer.headers()));
        }
        Ok(answer)
    }

    async fn read_batch(&self, answer: Response<Incoming>, first: u64, entries: u64, compare: bool) -> Fallible<()> {
        let owed = Owed { entries: u32::try_from(entries)?, in_order: true, summary: false };
        let mut reader = Reader::new(text(answer.headers(), "content-type"), owed).map_err(|wrong| wrong.0)?;
        let mut object = Object { number: first, size: self.size, at: 0, compare };
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            reader.feed(frame?.into_data().unwrap_or_default());
            while let Some(event) = reader.next().map_err(|wrong| wrong.0)? {
                match event {
                    Event::Part(head) if head.status != 200 || head.length != self.size => {
                        return fail(format!("a part of {entries} is {head:?}"));
                    }
                    Event::Part(head) => (object.number, object.at) = (first + u64::from(head.index), 0),
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

    async fn send(&self, method: Method, path: &str, hash: HeaderValue, body: Bytes) -> Fallible<Response<Incoming>> {
        let path = PathAndQuery::try_from(path)?;
        let mut request = Request::new(Full::new(body));
        request.headers_mut().insert(header::HOST, self.host.clone());
        request.headers_mut().insert("x-amz-content-sha256", hash);
        self.signer.sign(&method, &path, request.headers_mut(), &self.pair, wall_clock());
        *request.uri_mut() = Uri::builder().scheme("http").authority(self.authority.as_str()).path_and_query(path).build()?;
        *request.method_mut() = method;
        Ok(self.client.request(request).await?)
    }
}

#[expect(clippy::disallowed_methods, reason = "a client reads the system's clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// One object as it comes.
struct Object {
    number: u64,
    size: u64,
    at: u64,
    compare: bool,
}

impl Object {
    fn take(&mut self, bytes: &[u8]) -> Fallible<()> {
        if self.compare && !content::is(self.number, self.at, bytes) {
            return fail(format!("object {} has other bytes at {}", self.number, self.at));
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn whole(&self) -> Fallible<()> {
        if self.at == self.size { Ok(()) } else { fail(format!("object {} has {} of {} bytes", self.number, self.at, self.size)) }
    }
}
