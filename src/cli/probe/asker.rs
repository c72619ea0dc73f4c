//! One try of one thing on a live store: a request as the gateway would send it enters, what the store said of it leaves, within
//! [`ATTEMPT_TIMEOUT`]. Nothing that leaves holds what the store wrote, but for the code of its error and its region: a store
//! may repeat a key in a message.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::backend::s3::sign::EMPTY_SHA256;
use crate::backend::s3::{S3Store, error_code, error_member};
use crate::backend::{BackendErrorKind, Body, BoxError, collect, empty_body, full_body};
use crate::config::BackendConfig;
use crate::telemetry::Metrics;
use crate::types::WallClock;

/// How long one attempt may take, answer included.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest region that a store is believed to have.
const REGION_BYTES_MAX: usize = 64;

/// What the store said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The status.
    pub status: u16,
    /// The code of its error, if it sent one.
    pub code: Option<String>,
    /// The region that it says it, or the bucket, is in.
    pub region: Option<String>,
    /// The version that it made, or deleted.
    pub version: Option<String>,
    /// Whether that is a mark of a deletion.
    pub is_marker: bool,
    /// The body.
    pub body: Bytes,
}

impl Said {
    /// Whether it did what it was asked.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{} {code}", self.status),
            None => write!(f, "{}", self.status),
        }
    }
}

/// Why a try did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store said no, or did something else.
    Refused(String),
    /// The store said nothing: it may be slow, or away.
    Unanswered(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Refused(why) | Self::Unanswered(why)) = self;
        f.write_str(why)
    }
}

/// What a request carries.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// The bytes that are sent, or those that are framed on the way.
    pub data: Vec<u8>,
    /// The checksum behind them, where they are framed on the way.
    pub trailer: Option<(&'static str, String)>,
}

impl Carried {
    /// Just `data`.
    pub fn plain(data: &[u8]) -> Self {
        Self { data: data.to_vec(), trailer: None }
    }
}

/// Asks one store, as settings say.
pub struct Asker {
    store: S3Store,
}

impl Asker {
    /// Opens the store of `config`.
    ///
    /// # Errors
    /// As of [`S3Store::open`], or that the credentials were too long in coming.
    pub async fn open(config: &BackendConfig, now: WallClock) -> Result<Self, BoxError> {
        let metrics = Metrics::new().backend(&config.name);
        let opened = timeout(ATTEMPT_TIMEOUT, S3Store::open(config, metrics, now)).await;
        let store = opened.map_err(|_| "the credentials did not come in time")??;
        Ok(Self { store })
    }

    /// Sends one request; `path` is what stands behind the host in path style. A body is signed as `x-amz-content-sha256` among
    /// `headers` says.
    ///
    /// # Errors
    /// Why there is no answer, in one sentence.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        carried: Carried,
    ) -> Result<Said, String> {
        let length = carried.data.len();
        let body = if length == 0 { empty_body() } else { full_body(carried.data) };
        let trailers = carried.trailer.map(|trailer| {
            let mut map = HeaderMap::new();
            fill(&mut map, &[trailer]);
            map
        });
        let body = match trailers {
            Some(trailers) => Body::new(body.with_trailers(ready(Some(Ok(trailers))))),
            None => body,
        };
        let mut request = Request::new(body);
        let path = PathAndQuery::try_from(path).map_err(|_| "the bucket's name cannot stand in a path".to_owned())?;
        *request.uri_mut() = Uri::from(path);
        let writes = method == Method::PUT || method == Method::POST;
        *request.method_mut() = method;
        let map = request.headers_mut();
        map.insert("x-amz-content-sha256", HeaderValue::from_static(EMPTY_SHA256));
        if writes {
            map.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        fill(map, headers);
        let answer = async {
            let (head, body) =
                self.store.forward_once(request).await.map_err(|error| reason(error.kind, &error.source))?.into_parts();
            let body = collect(body, ANSWER_BYTES_MAX).await.map_err(|_| "the answer broke off, or is too long".to_owned())?;
            let named = head.headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok().map(str::to_owned));
            let region = named.or_else(|| error_member(&body, "Region")).filter(|region| is_region(region));
            let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let (version, is_marker) = (text("x-amz-version-id"), text("x-amz-delete-marker").is_some_and(|value| value == "true"));
            Ok(Said { status: head.status.as_u16(), code: error_code(&body), region, version, is_marker, body })
        };
        timeout(ATTEMPT_TIMEOUT, answer).await.unwrap_or_else(|_| Err(format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs())))
    }
}

fn fill(map: &mut HeaderMap, headers: &[(&'static str, String)]) {
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).expect("made here, of characters that a header may have");
        map.insert(HeaderName::from_static(name), value);
    }
}

fn is_region(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain)
}

/// In words; what a library says of a connection names addresses, which whoever runs the probe has written down.
fn reason(kind: BackendErrorKind, source: &BoxError) -> String {
    match kind {
        BackendErrorKind::NoCredentials => format!("there are no credentials: {source}"),
        BackendErrorKind::Unreachable => format!("it cannot be reached: {}", innermost(source.as_ref())),
        BackendErrorKind::Garbled => "what answers there does not speak HTTP".to_owned(),
        BackendErrorKind::HeadTooLarge => "the head of its answer is too large".to_owned(),
        BackendErrorKind::Unframed => "nothing says where its answer ends".to_owned(),
        BackendErrorKind::NoAnswer | BackendErrorKind::RequestBody => "it broke off before it answered".to_owned(),
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}
