//! One try of one thing on a live store: a request as the gateway would send it enters, what the store said of it leaves, within
//! [`ATTEMPT_TIMEOUT`]. Nothing that is shown is what the store wrote, but for the code of its error, its region and the host that
//! it redirects to: a store may repeat a key in a message.

use std::future::ready;
use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::InvalidHeaderValue;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::backend::embedded::date::parse_http_date;
use crate::backend::s3::connect::Unreached;
use crate::backend::s3::sign::EMPTY_SHA256;
use crate::backend::s3::{S3Store, error_code, error_member};
use crate::backend::{BackendError, BackendErrorKind, Body, collect, empty_body, full_body};
use crate::config::BackendConfig;
use crate::telemetry::Metrics;
use crate::types::WallClock;

/// How long one attempt may take, answer included.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest region that a store is believed to have.
const REGION_BYTES_MAX: usize = 64;

/// Longest host, with its port, that a store is believed to redirect to.
const HOST_BYTES_MAX: usize = 255;

/// What the store said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The status.
    pub status: u16,
    /// The code of its error, if it sent one.
    pub code: Option<String>,
    /// The region that it says it, or the bucket, is in.
    pub region: Option<String>,
    /// The host that it redirects to, with its port.
    pub other_host: Option<String>,
    /// The version that it made, or deleted.
    pub version: Option<String>,
    /// Whether that is a mark of a deletion.
    pub is_marker: bool,
    /// By how many seconds its clock is ahead of ours, if it says what time it has.
    pub clock_ahead: Option<i64>,
    /// The body.
    pub body: Bytes,
}

impl Said {
    /// Whether it did what it was asked.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// One that says nothing more.
    #[cfg(test)]
    pub fn of(status: u16, code: &str) -> Self {
        Self {
            status,
            code: (!code.is_empty()).then(|| code.to_owned()),
            region: None,
            other_host: None,
            version: None,
            is_marker: false,
            clock_ahead: None,
            body: Bytes::new(),
        }
    }

    /// The body as a document whose elements have no prefix of a namespace: each store has its own.
    pub fn document(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let mut parts = text.split('<');
        let mut document = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (slash, tag) = if let Some(end) = part.strip_prefix('/') { ("</", end) } else { ("<", part) };
            let name = tag.split(|c: char| c == '>' || c == '/' || c.is_ascii_whitespace()).next().unwrap_or_default();
            document.push_str(slash);
            document.push_str(&tag[name.find(':').map_or(0, |colon| colon + 1)..]);
        }
        document
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

/// Why nothing was said, as far as other settings could mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is nothing to sign with.
    NoCredentials,
    /// No address was reached.
    NoConnection,
    /// One was, but TLS failed: nobody that we know signed the certificate.
    UnknownIssuer,
    /// The certificate is one of another host.
    OtherHost,
    /// The certificate is none that a server may have now.
    Certificate,
    /// Anything else that failed of TLS.
    Tls,
    /// What came was no HTTP.
    NotHttp,
    /// Nothing came in time, or it broke off.
    Silent,
}

/// That nothing was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// For what to do.
    pub cause: Cause,
    /// In one sentence.
    pub why: String,
}

impl Silence {
    fn new(cause: Cause, why: impl Into<String>) -> Self {
        Self { cause, why: why.into() }
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// What one try brought.
pub type Tried = Result<Said, Silence>;

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
    pub async fn open(config: &BackendConfig, now: WallClock) -> Result<Self, Silence> {
        let metrics = Metrics::new().backend(&config.name);
        let opened = timeout(ATTEMPT_TIMEOUT, S3Store::open(config, metrics, now)).await;
        let late = |_| Silence::new(Cause::NoCredentials, "the credentials did not come in time");
        let store = opened.map_err(late)?.map_err(|error| {
            // What else it opens are certificates.
            let cause = if error.is::<InvalidHeaderValue>() { Cause::NoCredentials } else { Cause::UnknownIssuer };
            Silence::new(cause, error.to_string())
        })?;
        Ok(Self { store })
    }

    /// The access key that signs, where there is one.
    pub async fn access_key(&self) -> Option<String> {
        let pair = timeout(ATTEMPT_TIMEOUT, self.store.credentials.current()).await.ok()?.ok()?;
        Some(pair.access_key.clone())
    }

    /// Reads what `path` names, as [`Self::ask`] does.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn read(&self, path: &str) -> Tried {
        self.ask(Method::GET, path, &[], Carried::default()).await
    }

    /// Sends one request; `path` is what stands behind the host in path style. A body is signed as `x-amz-content-sha256` among
    /// `headers` says.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, method: Method, path: &str, headers: &[(&'static str, String)], carried: Carried) -> Tried {
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
        let path = PathAndQuery::try_from(path).expect("a bucket's name, and what was made here");
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
            let (head, body) = self.store.forward_once(request).await.map_err(|error| silence(&error))?.into_parts();
            let body = collect(body, ANSWER_BYTES_MAX).await;
            let body = body.map_err(|_| Silence::new(Cause::Silent, "the answer broke off, or is too long"))?;
            let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let region = text("x-amz-bucket-region").or_else(|| error_member(&body, "Region"));
            let other_host = text("location").or_else(|| error_member(&body, "Endpoint"));
            let (version, is_marker) = (text("x-amz-version-id"), text("x-amz-delete-marker").is_some_and(|value| value == "true"));
            let ours = (self.store.now)().duration_since(SystemTime::UNIX_EPOCH).ok();
            let theirs = text("date").and_then(|date| parse_http_date(date.as_bytes()));
            Ok(Said {
                status: head.status.as_u16(),
                code: error_code(&body),
                region: region.filter(|region| is_region(region)),
                other_host: other_host.and_then(|place| host_of(&place)),
                version,
                is_marker,
                clock_ahead: theirs.zip(ours).map(|(theirs, ours)| theirs - ours.as_secs() as i64),
                body,
            })
        };
        let late = format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs());
        timeout(ATTEMPT_TIMEOUT, answer).await.unwrap_or_else(|_| Err(Silence::new(Cause::Silent, late)))
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

/// The host and the port in a URL, or where there is nothing else.
fn host_of(place: &str) -> Option<String> {
    let host = place.split_once("//").map_or(place, |(_, rest)| rest).split(['/', '?', '#']).next()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    ((1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(plain)).then(|| host.to_owned())
}

/// In words; what a library says of a connection names addresses, which whoever runs the probe has written down.
fn silence(error: &BackendError) -> Silence {
    let innermost = chain(error.source.as_ref()).last().expect("it begins with the error itself");
    match error.kind {
        BackendErrorKind::NoCredentials => {
            Silence::new(Cause::NoCredentials, format!("there are no credentials: {}", error.source))
        }
        BackendErrorKind::Unreachable => match innermost.downcast_ref::<Unreached>().and_then(Unreached::in_tls) {
            Some(failed) => Silence::new(of_tls(failed), format!("TLS fails: {failed}")),
            // There was a connection, but it was no use for a request.
            None if chain(error.source.as_ref()).any(|cause| cause.is::<hyper::Error>()) => {
                Silence::new(Cause::NotHttp, format!("what answers there does not speak HTTP: {innermost}"))
            }
            None => Silence::new(Cause::NoConnection, format!("no connection: {innermost}")),
        },
        BackendErrorKind::Garbled => Silence::new(Cause::NotHttp, "what answers there does not speak HTTP"),
        BackendErrorKind::HeadTooLarge => Silence::new(Cause::NotHttp, "the head of its answer is too large"),
        BackendErrorKind::Unframed => Silence::new(Cause::NotHttp, "nothing says where its answer ends"),
        BackendErrorKind::NoAnswer | BackendErrorKind::RequestBody => {
            Silence::new(Cause::Silent, "the connection ended before there was an answer")
        }
    }
}

fn of_tls(failed: &io::Error) -> Cause {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    match failed.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => Cause::UnknownIssuer,
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => Cause::OtherHost,
        Some(rustls::Error::InvalidCertificate(_)) => Cause::Certificate,
        _ => Cause::Tls,
    }
}

/// An error, and what caused it.
fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_no_prefixes_and_stays_the_same_else() {
        for (body, document) in [
            (
                "<?xml version='1.0'?><a:B xmlns:a=\"x:y\"><a:C>t:u</a:C><a:D/></a:B>",
                "<?xml version='1.0'?><B xmlns:a=\"x:y\"><C>t:u</C><D/></B>",
            ),
            ("<A xmlns=\"http://x/\"><B>a:b</B>\n</A>", "<A xmlns=\"http://x/\"><B>a:b</B>\n</A>"),
            ("a:b", "a:b"),
            ("", ""),
            ("<", "<"),
            ("</", "</"),
            ("<a:", "<"),
        ] {
            assert_eq!(Said { body: body.into(), ..Said::of(200, "") }.document(), document);
        }
    }

    #[test]
    fn of_a_redirect_only_a_host_is_shown() {
        for (place, host) in [
            ("https://s3.eu.example/", Some("s3.eu.example")),
            ("http://[::1]:9/b?x", Some("[::1]:9")),
            ("s3.eu.example:80", Some("s3.eu.example:80")),
            ("//s3.eu.example/b", Some("s3.eu.example")),
            ("/login", None),
            ("", None),
            ("http://user:sekret@host/", None),
            ("http://a\u{1b}[2J/", None),
            ("http://a b/", None),
        ] {
            assert_eq!(host_of(place).as_deref(), host, "{place}");
        }
        assert_eq!(host_of(&"x".repeat(HOST_BYTES_MAX + 1)), None);
    }
}
