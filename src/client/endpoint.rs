//! One S3 endpoint as a client sees it: a request goes out signed, its answer comes back read as far as its head says. What
//! enters is what to ask; what leaves is the answer, or the [`ClientError`] that says why there is none. One call is one
//! request: nothing is tried twice here.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::entry::{BatchRequest, Entry, OnError, Order};
use super::error::{ClientError, Refusal, chain};
use super::reader::{Event, Owed, Reader, Unfinished};
use super::url::EndpointUrl;
use crate::backend::s3::credentials::Credentials;
use crate::backend::s3::redirect::Learnt;
use crate::backend::s3::sign::{EMPTY_SHA256, Signer};
use crate::backend::s3::{S3Store, connect, is_about_our_signature, object_path};
use crate::backend::{Body, collect, empty_body, full_body};
use crate::config::Addressing;
use crate::telemetry::Metrics;
use crate::types::{WallClock, hex32};

/// Most octets of an error's body that are read.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Most octets of a capabilities answer that are read: a plain store lists its buckets there.
const CAPABILITIES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where an endpoint is and how to speak to it.
pub struct EndpointConfig {
    /// `http://host:port` or `https://host`, with the path below which S3 is, if it is not at the root: `https://host/s3`.
    pub url: String,
    /// For signatures.
    pub region: String,
    /// Where the bucket's name goes.
    pub addressing: Addressing,
    /// Who asks.
    pub credentials: Credentials,
    /// Certificates (PEM) to trust in place of the platform's: the file of `AWS_CA_BUNDLE`.
    pub ca_file: Option<PathBuf>,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest time without an octet of the answer.
    pub idle_timeout: Duration,
    /// Connections that are kept while nobody uses them.
    pub idle_connections_max: usize,
}

/// An S3 endpoint, with BatchGet or without.
pub struct Endpoint {
    store: S3Store,
    idle_timeout: Duration,
}

/// What an endpoint with BatchGet says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Capabilities {
    /// Of the contract; 1.
    pub version: u64,
    /// Media types of answers.
    #[serde(default)]
    pub formats: Vec<String>,
    /// Limits of a request.
    #[serde(default)]
    pub limits: Limits,
}

/// Limits of a request; where an endpoint names none, those of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Limits {
    /// Most entries.
    pub entries: usize,
    /// Most bytes of the body.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 10_000, body_bytes: 16 * 1024 * 1024 }
    }
}

impl Endpoint {
    /// An endpoint; sends nothing yet.
    ///
    /// # Errors
    /// In one line for people, where the URL is none, has no room for the bucket's name, or certificates cannot be read.
    pub fn new(config: EndpointConfig, now: WallClock) -> Result<Self, String> {
        let EndpointUrl { scheme, authority, base_path } = EndpointUrl::parse(&config.url)?;
        let is_address = authority.host().trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if is_address && config.addressing == Addressing::Virtual {
            return Err(format!("{authority} is an address, before which no bucket's name can stand: address buckets by path"));
        }
        let https = scheme.as_str() == "https";
        let (connecting, silence) = (config.connect_timeout, config.idle_timeout);
        let clients = connect::clients(connecting, silence, config.idle_connections_max, https, config.ca_file.as_deref());
        let store = S3Store {
            clients: clients.map_err(|e| no_certificates(config.ca_file.as_deref(), e.as_ref()))?,
            scheme,
            authority,
            base_path,
            addressing: config.addressing,
            credentials: config.credentials,
            signer: Arc::new(Signer::new(&config.region)),
            learnt: Learnt::default(),
            now,
            metrics: Metrics::new().backend("endpoint"),
        };
        Ok(Self { store, idle_timeout: config.idle_timeout })
    }

    /// Its URL, for people.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.store.scheme, self.store.authority, self.store.base_path)
    }

    /// Whether S3 is below a path there.
    pub fn has_path(&self) -> bool {
        !self.store.base_path.is_empty()
    }

    /// Sends a request whose path names the bucket first, and gives its answer whatever the status. Signed, body included.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn send(&self, method: Method, path: &str, headers: HeaderMap, body: Bytes) -> Result<Response<Body>, ClientError> {
        let path = PathAndQuery::try_from(path).map_err(|e| ClientError::Wrong(format!("{path} is no path: {e}")))?;
        let hash = match body.is_empty() {
            true => HeaderValue::from_static(EMPTY_SHA256),
            false => HeaderValue::from_bytes(&hex32(&Sha256::digest(&body).into())).expect("hex digits are header-safe"),
        };
        let mut request = Request::new(if body.is_empty() { empty_body() } else { full_body(body) });
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        request.headers_mut().insert("x-amz-content-sha256", hash);
        let answer = tokio::time::timeout(self.idle_timeout, self.store.forward_once(request)).await;
        Ok(answer.map_err(|_| self.silence())??)
    }

    /// As [`Endpoint::send`], but an answer that is no success and no 304 is an error: 400 and more, and redirects, which nobody
    /// here follows.
    ///
    /// # Errors
    /// If there is no answer or if it is a refusal.
    pub async fn ask(&self, method: Method, path: &str, headers: HeaderMap, body: Bytes) -> Result<Response<Body>, ClientError> {
        let answer = self.send(method, path, headers, body).await?;
        let good = answer.status().is_success() || answer.status() == StatusCode::NOT_MODIFIED;
        if good { Ok(answer) } else { Err(ClientError::Refused(self.refusal(answer).await)) }
    }

    /// GetObject of an entry; the body streams.
    ///
    /// # Errors
    /// As [`Endpoint::ask`].
    pub async fn get_object(&self, bucket: &str, entry: &Entry) -> Result<Response<Body>, ClientError> {
        let bucket = entry.bucket.as_deref().unwrap_or(bucket);
        let path = object_path(bucket, &entry.key, entry.version_id.as_deref());
        let mut headers = HeaderMap::new();
        let asked =
            [(header::RANGE, &entry.range), (header::IF_MATCH, &entry.if_match), (header::IF_NONE_MATCH, &entry.if_none_match)];
        for (name, value) in asked {
            if let Some(value) = value {
                headers.insert(name, header_value(value)?);
            }
        }
        self.ask(Method::GET, &path, headers, Bytes::new()).await
    }

    /// PutObject of a whole body.
    ///
    /// # Errors
    /// As [`Endpoint::ask`].
    pub async fn put_object(&self, bucket: &str, key: &str, body: Bytes) -> Result<(), ClientError> {
        let answer = self.ask(Method::PUT, &object_path(bucket, key, None), HeaderMap::new(), body).await?;
        self.drain(answer).await
    }

    /// The next octets of a body, or `None` at its end.
    ///
    /// # Errors
    /// If it breaks off or nothing comes for too long.
    pub async fn data(&self, body: &mut Body) -> Result<Option<Bytes>, ClientError> {
        next_data(body, self.idle_timeout).await
    }

    /// Reads an answer to its end, so that its connection can be used again.
    async fn drain(&self, answer: Response<Body>) -> Result<(), ClientError> {
        let mut body = answer.into_body();
        while self.data(&mut body).await?.is_some() {}
        Ok(())
    }

    /// What the endpoint says of BatchGet; `None` if it has none, by the rules of the contract.
    ///
    /// # Errors
    /// Those that are no reason to fall back: a connection that fails, a signature that is refused, a path that is another, a
    /// server error.
    pub async fn capabilities(&self) -> Result<Option<Capabilities>, ClientError> {
        let answer = self.send(Method::GET, "/?batch-get=", HeaderMap::new(), Bytes::new()).await?;
        let status = answer.status();
        if status.is_success() {
            let body = tokio::time::timeout(self.idle_timeout, collect(answer.into_body(), CAPABILITIES_BYTES_MAX)).await;
            let body = body.map_err(|_| self.silence())?.map_err(|e| ClientError::Broken(chain(e.as_ref())))?;
            return Ok(serde_json::from_slice::<Capabilities>(&body).ok().filter(|c| status == StatusCode::OK && c.version == 1));
        }
        let mut refusal = self.refusal(answer).await;
        // Nothing was asked of a bucket.
        let first = self.store.base_path.split('/').nth(1);
        if first.is_some_and(|first| refusal.code == "NoSuchBucket" || *refusal.bucket == *first) {
            refusal.message = format!("{} is taken for a bucket", self.store.base_path);
            return Err(ClientError::NotHere(refusal));
        }
        if refusal.code == "InvalidURI" {
            return Err(ClientError::NotHere(refusal));
        }
        // The contract names three codes of a signature that is refused; the others are of the same kind: a key that ended, a
        // region that is another. GETs would be refused likewise, so they would only hide why.
        let has_none = refusal.code == "AccessDenied" || matches!(refusal.status, 400 | 404 | 405 | 501);
        if has_none && !is_about_our_signature(&refusal.code) { Ok(None) } else { Err(ClientError::Refused(refusal)) }
    }

    /// One BatchGet. The answer is read through [`Answer::next`].
    ///
    /// # Errors
    /// As [`Endpoint::ask`]; also if the head of the answer is not what the contract says.
    pub async fn batch_get(&self, bucket: Option<&str>, request: &BatchRequest<'_>) -> Result<Answer, ClientError> {
        let path = format!("/{}?batch-get=", bucket.unwrap_or_default());
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.ask(Method::POST, &path, headers, request.to_json().into()).await?;
        if answer.status() != StatusCode::OK {
            return Err(ClientError::Wrong(format!("its status is {}", answer.status())));
        }
        let count: Option<u32> = text(answer.headers(), "batch-count").and_then(|count| count.parse().ok());
        if count.is_none_or(|count| count as usize != request.objects.len()) {
            return Err(ClientError::Wrong(format!("its Batch-Count is {count:?} for {} entries", request.objects.len())));
        }
        let owed = Owed {
            entries: request.objects.len() as u32,
            in_order: request.order == Order::Request,
            summary: request.on_error != OnError::Continue,
        };
        let reader = Reader::new(text(answer.headers(), "content-type").unwrap_or_default(), owed)?;
        let request_id = text(answer.headers(), "x-amz-request-id").unwrap_or_default().to_owned();
        Ok(Answer { request_id, body: answer.into_body(), reader, idle_timeout: self.idle_timeout })
    }

    async fn refusal(&self, answer: Response<Body>) -> Refusal {
        let (head, body) = answer.into_parts();
        let body = tokio::time::timeout(self.idle_timeout, collect(body, ERROR_BODY_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let request_id = text(&head.headers, "x-amz-request-id").unwrap_or_default().to_owned();
        let retry_after_seconds = text(&head.headers, "retry-after").and_then(|seconds| seconds.parse().ok());
        Refusal { retry_after_seconds, ..Refusal::read(head.status.as_u16(), &body, request_id) }
    }

    fn silence(&self) -> ClientError {
        silence(self.idle_timeout)
    }
}

/// The answer to one BatchGet, as it comes.
pub struct Answer {
    /// `x-amz-request-id`, for whoever asks why.
    pub request_id: String,
    body: Body,
    reader: Reader,
    idle_timeout: Duration,
}

impl Answer {
    /// The next event, or `None` once the answer was whole to its end.
    ///
    /// # Errors
    /// If the answer breaks off or is not what the contract says. Parts that had their [`Event::End`] are final all the same.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.reader.next()? {
                return Ok(Some(event));
            }
            match next_data(&mut self.body, self.idle_timeout).await? {
                Some(octets) => self.reader.feed(octets),
                None => {
                    return match self.reader.finish() {
                        Ok(()) => Ok(None),
                        Err(Unfinished::Cut) => Err(ClientError::Broken("it ends before its closing delimiter".into())),
                        Err(Unfinished::Wrong(wrong)) => Err(wrong.into()),
                    };
                }
            }
        }
    }
}

async fn next_data(body: &mut Body, idle_timeout: Duration) -> Result<Option<Bytes>, ClientError> {
    loop {
        match tokio::time::timeout(idle_timeout, body.frame()).await {
            Err(_) => return Err(silence(idle_timeout)),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(ClientError::Broken(chain(error.as_ref()))),
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn no_certificates(file: Option<&Path>, error: &(dyn std::error::Error + 'static)) -> String {
    match file {
        Some(file) => format!("AWS_CA_BUNDLE: {} cannot be used: {}", file.display(), chain(error)),
        None => chain(error),
    }
}

fn silence(idle_timeout: Duration) -> ClientError {
    ClientError::Broken(format!("nothing came for {} s", idle_timeout.as_secs_f64()))
}

fn header_value(text: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(text).map_err(|_| ClientError::Wrong(format!("{text:?} cannot stand in a header")))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
