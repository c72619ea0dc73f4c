//! The client, in a process of its own. What enters is one job as JSON; what leaves is its outcome as JSON. It signs every
//! request, reads every answer to its end and compares its bytes, so that a figure is only ever of right answers.
//! Invariant: a job ends within [`TIMEOUT`], and fails at the first answer that is not what it must be.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchgate::backend::BoxError;
use batchgate::backend::s3::credentials::KeyPair;
use batchgate::backend::s3::sign::Signer;
use batchgate::load::content;
use futures_util::future::try_join_all;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::process::{ACCESS_KEY, SECRET_KEY};
use super::{Fallible, fail, wall_clock};

/// Longest time that a job may take.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Runs one job in a process of its own.
pub fn spawn<J: Serialize + Debug, O: DeserializeOwned>(job: &J) -> Fallible<O> {
    let output =
        Command::new(std::env::current_exe()?).arg("load").arg(serde_json::to_string(job)?).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return fail(format!("the load failed at {job:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// In that process: does the job, on as many threads as it says, and prints its outcome.
pub fn run<J: DeserializeOwned, O: Serialize>(
    job: &str,
    threads: impl FnOnce(&J) -> usize,
    measure: impl AsyncFnOnce(&J) -> Fallible<O>,
) -> Fallible<()> {
    let job: J = serde_json::from_str(job)?;
    let threads = threads(&job);
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let outcome = builder.worker_threads(threads).enable_all().build()?.block_on(async {
        match tokio::time::timeout(TIMEOUT, measure(&job)).await {
            Ok(outcome) => outcome,
            Err(_) => fail(format!("not done after {} s", TIMEOUT.as_secs())),
        }
    })?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Does so many things by so many workers, each of whom does `one` after another. It gets the worker's number and the thing's.
pub async fn share<F>(workers: u64, count: u64, one: impl Fn(u64, u64) -> F + Clone + Send + 'static) -> Fallible<()>
where
    F: Future<Output = Fallible<()>> + Send + 'static,
{
    let next = Arc::new(AtomicU64::new(0));
    let work = (0..workers).map(|worker| {
        let (next, one) = (Arc::clone(&next), one.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                one(worker, number).await?;
            }
        })
    });
    try_join_all(work).await?.into_iter().collect()
}

/// A client with pooled connections: hyper's, and a signature as SDKs make it.
pub struct Client<B> {
    client: legacy::Client<HttpConnector, B>,
    signer: Signer,
    pair: Arc<KeyPair>,
    authority: String,
    host: HeaderValue,
}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static> Client<B> {
    /// For the server at `address`.
    pub fn new(address: SocketAddr) -> Fallible<Self> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        let authority = address.to_string();
        Ok(Self {
            client: legacy::Client::builder(TokioExecutor::new()).build(http),
            signer: Signer::new("us-east-1"),
            pair: Arc::new(KeyPair::new(ACCESS_KEY, SECRET_KEY, None)?),
            host: HeaderValue::from_str(&authority)?,
            authority,
        })
    }

    /// Sends one request; `hash` is its `x-amz-content-sha256`.
    pub async fn send(&self, method: &Method, path: &PathAndQuery, hash: HeaderValue, body: B) -> Fallible<Response<Incoming>> {
        let mut request = Request::new(body);
        request.headers_mut().insert(header::HOST, self.host.clone());
        request.headers_mut().insert("x-amz-content-sha256", hash);
        self.signer.sign(method, path, request.headers_mut(), &self.pair, wall_clock());
        *request.uri_mut() =
            Uri::builder().scheme("http").authority(self.authority.as_str()).path_and_query(path.clone()).build()?;
        *request.method_mut() = method.clone();
        Ok(self.client.request(request).await?)
    }

    /// Sends one request, whose answer must be all of `object` and nothing else.
    pub async fn exchange(
        &self,
        method: &Method,
        path: &PathAndQuery,
        hash: HeaderValue,
        body: B,
        mut object: Coming,
    ) -> Fallible<()> {
        let answer = self.send(method, path, hash, body).await?;
        let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if answer.status() != StatusCode::OK || length != Some(object.size) {
            return fail(format!("{method} {path} gives {} with length {length:?}", answer.status()));
        }
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            object.take(&frame?.into_data().unwrap_or_default())?;
        }
        object.whole()
    }
}

/// One object as it comes.
pub struct Coming {
    number: u64,
    size: u64,
    at: u64,
    compare: bool,
}

impl Coming {
    /// Object `number` of `size` bytes, which are compared if `compare` says so.
    pub fn new(number: u64, size: u64, compare: bool) -> Self {
        Self { number, size, at: 0, compare }
    }

    /// The next bytes of it.
    pub fn take(&mut self, bytes: &[u8]) -> Fallible<()> {
        if self.compare && !content::is(self.number, self.at, bytes) {
            return fail(format!("object {} has other bytes at {}", self.number, self.at));
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// It is at its end.
    pub fn whole(&self) -> Fallible<()> {
        if self.at == self.size { Ok(()) } else { fail(format!("object {} has {} of {} bytes", self.number, self.at, self.size)) }
    }
}
