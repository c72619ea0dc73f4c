//! One S3 endpoint over HTTP/1.1. What enters is a read or an opaque request by the store's bucket name; what leaves is its
//! answer as it came. In between: the URI in the endpoint's addressing style, the signature ([`sign`], or of a [`form`]) with current
//! [`credentials`], and a pooled connection ([`connect`]) to one of its addresses ([`resolve`]). No retry, no limit: those sit
//! above.

pub mod chunks;
pub mod connect;
pub mod credentials;
mod exchange;
mod form;
mod open;
pub mod resolve;
pub mod sign;
mod wire;

#[cfg(test)]
mod address_tests;

use std::time::SystemTime;

use futures_util::future::BoxFuture;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::form::PostForm;
use super::{
    Attempt, BackendError, BackendErrorKind, Body, BoxError, Elsewhere, Forward, ObjectRead, ReadAsk, Sender, collect, empty_body,
    full_body,
};
use crate::config::Addressing;
use crate::telemetry::BackendMetrics;
use crate::types::WallClock;
use connect::{Clients, Ways};
use credentials::Credentials;
use exchange::{Distrusted, Watched, exchange};
use sign::{EMPTY_SHA256, Signer};

/// What stays as it is in a path that we make: RFC 3986's unreserved characters and the slash.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// What stays as it is in a query value that we make.
const QUERY_VALUE: &AsciiSet = &KEY.add(b'/');

/// Most bytes of an error whose end only the connection's end tells.
const UNFRAMED_ERROR_BYTES_MAX: usize = 64 * 1024;

/// Headers that a read has at the most, besides those that its batch gives it.
const READ_HEADERS: usize = 8;

/// An endpoint with all that is needed to ask it.
pub struct S3Store {
    /// Pooled connections.
    pub clients: Clients,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port of the endpoint.
    pub authority: Authority,
    /// Where the bucket's name goes.
    pub addressing: Addressing,
    /// Current credentials.
    pub credentials: Credentials,
    /// The signer for the endpoint's region.
    pub signer: Signer,
    /// For the date in the signature.
    pub now: WallClock,
    /// Counts what comes back.
    pub metrics: BackendMetrics,
}

impl S3Store {
    async fn send(&self, ways: &Ways, mut request: Request<Body>) -> Attempt {
        let elsewhere = request.extensions_mut().remove::<Elsewhere>().is_some();
        let (authority, path) = self.place(request.uri())?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_str(authority.as_str()).map_err(internal)?);
        let now: SystemTime = (self.now)();
        let pair = match request.extensions_mut().remove::<Sender>().unwrap_or_default() {
            Sender::Gateway => Some(self.credentials.current().await.map_err(no_credentials)?),
            Sender::Client(pair) => Some(pair),
            Sender::Nobody => None,
        };
        let method = request.method().clone();
        request = match (request.extensions_mut().remove::<PostForm>(), pair) {
            (None, None) => request,
            (None, Some(pair)) => chunks::signed(&self.signer, &path, request, &pair, now).map_err(internal)?,
            (Some(form), pair) => {
                let head = match pair {
                    Some(pair) => self.signer.sign_form(&form, &pair, now).map_err(internal)?,
                    None => form.head(&[]),
                };
                form::begun(request, head).map_err(internal)?
            }
        };
        *request.uri_mut() =
            Uri::builder().scheme(self.scheme.clone()).authority(authority).path_and_query(path).build().map_err(internal)?;
        // An upload takes as long as its client does; that says nothing of the store.
        let bodiless = http_body::Body::is_end_stream(request.body());
        let started = bodiless.then(tokio::time::Instant::now);
        let answer = self.exchange(ways, request, bodiless && method.is_safe(), elsewhere).await;
        if let Some(started) = started {
            self.metrics.attempt_seconds.observe(started.elapsed().as_secs_f64());
        }
        match answer {
            Ok(response) => {
                let unframed = ends_with_its_connection(&response);
                let response = Watched::of(response, &self.clients.addresses);
                let response = if unframed { self.framed(response).await? } else { response };
                self.count(&response);
                Ok(response)
            }
            Err(error) => {
                self.metrics.attempts_no_answer.inc();
                Err(error)
            }
        }
    }

    /// Sends a request over a connection that there is reason to trust. What is `safe` finds out which one it was given and takes
    /// another if need be; what must not be sent twice does not try one at all while an address is silent.
    async fn exchange(
        &self,
        ways: &Ways,
        request: Request<Body>,
        safe: bool,
        elsewhere: bool,
    ) -> Result<Response<Incoming>, BackendError> {
        let addresses = &self.clients.addresses;
        let troubled = !elsewhere && addresses.troubled();
        let spare = (troubled && safe).then(|| copy_of_head(&request));
        let client = if elsewhere || (troubled && !safe) { &ways.elsewhere } else { &ways.pooled };
        match (exchange(client, request, addresses, spare.is_some()).await, spare) {
            (Ok(answer), _) => answer,
            (Err(Distrusted), Some(spare)) => {
                let again = exchange(&ways.elsewhere, spare, addresses, false).await;
                again.unwrap_or_else(|Distrusted| unreachable!("a new connection is not distrusted"))
            }
            (Err(Distrusted), None) => unreachable!("only what may be repeated is taken back"),
        }
    }

    /// An error without a length, with one: its status says what matters, and it is short.
    async fn framed(&self, response: Response<Body>) -> Attempt {
        let (head, body) = response.into_parts();
        let whole = match head.status.is_client_error() || head.status.is_server_error() {
            true => collect(body, UNFRAMED_ERROR_BYTES_MAX).await,
            false => Err("a body that only the connection's end would end".into()),
        };
        match whole {
            Ok(bytes) => Ok(Response::from_parts(head, full_body(bytes))),
            Err(source) => {
                self.metrics.attempts_no_answer.inc();
                Err(BackendError { kind: BackendErrorKind::Unframed, source })
            }
        }
    }

    fn count<B>(&self, response: &Response<B>) {
        match response.status().as_u16() {
            // Whoever reads its code knows what it is, and counts it.
            503 => {}
            429 => self.metrics.attempts_slow_down.inc(),
            status if status >= 500 => self.metrics.attempts_failed.inc(),
            _ => self.metrics.attempts_ok.inc(),
        }
    }

    /// The host to ask and the raw path there, for a URI that names the bucket first in its path.
    fn place(&self, uri: &Uri) -> Result<(Authority, PathAndQuery), BackendError> {
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.addressing == Addressing::Path {
            return Ok((self.authority.clone(), path));
        }
        let rest = path.as_str().strip_prefix('/').unwrap_or_default();
        let bucket_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (bucket, rest) = rest.split_at(bucket_end);
        if bucket.is_empty() {
            return Ok((self.authority.clone(), path));
        }
        let authority = Authority::try_from(format!("{bucket}.{}", self.authority)).map_err(internal)?;
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Ok((authority, PathAndQuery::try_from(rest).map_err(internal)?))
    }
}

/// The same request, for one that has no body.
fn copy_of_head(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(empty_body());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// A body without a length and without chunks: cut short, it would look whole.
fn ends_with_its_connection(response: &Response<Incoming>) -> bool {
    let framed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|name| response.headers().contains_key(name));
    !framed && !http_body::Body::is_end_stream(response.body())
}

/// Whether an S3 error code asks for fewer requests, rather than tell of a failure.
pub fn asks_for_pace(code: &str) -> bool {
    matches!(code, "SlowDown" | "RequestLimitExceeded") || code.starts_with("Throttling")
}

/// Whether an S3 error code is about the signature of a request, that is, about ours.
pub fn is_about_our_signature(code: &str) -> bool {
    matches!(
        code,
        "AuthorizationHeaderMalformed"
            | "ExpiredToken"
            | "InvalidAccessKeyId"
            | "InvalidToken"
            | "RequestTimeTooSkewed"
            | "SignatureDoesNotMatch"
            | "TokenRefreshRequired"
    )
}

/// Whether such a code is about the key pair itself, and not about the region or the clock, which are never the pair's fault.
pub fn is_about_a_key_pair(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "InvalidAccessKeyId" | "InvalidToken" | "SignatureDoesNotMatch")
}

fn no_credentials(source: BoxError) -> BackendError {
    BackendError { kind: BackendErrorKind::NoCredentials, source }
}

fn internal(source: impl Into<BoxError>) -> BackendError {
    BackendError { kind: BackendErrorKind::Unreachable, source: source.into() }
}

/// Path and query of a GetObject, encoded once.
pub fn object_path(bucket: &str, key: &str, version: Option<&str>) -> String {
    let mut path = String::with_capacity(bucket.len() + key.len() + 16);
    path.push('/');
    path.push_str(bucket);
    path.push('/');
    path.extend(utf8_percent_encode(key, KEY));
    if let Some(version) = version {
        path.push_str("?versionId=");
        path.extend(utf8_percent_encode(version, QUERY_VALUE));
    }
    path
}

impl ObjectRead for S3Store {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        Box::pin(async move {
            match self.send(&self.clients.lean, get(ask)?).await {
                Err(error) if error.kind == BackendErrorKind::HeadTooLarge => self.send(&self.clients.wide, get(ask)?).await,
                attempt => attempt,
            }
        })
    }
}

fn get(ask: &ReadAsk) -> Result<Request<Body>, BackendError> {
    let path = object_path(&ask.bucket, ask.key.as_str(), ask.version.as_deref());
    let mut request = Request::new(empty_body());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::from(PathAndQuery::try_from(path).map_err(internal)?);
    if ask.elsewhere {
        request.extensions_mut().insert(Elsewhere);
    }
    request.extensions_mut().insert(ask.sender.clone());
    let headers = request.headers_mut();
    headers.reserve(READ_HEADERS + ask.headers.len());
    headers.extend(ask.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    headers.insert("x-amz-content-sha256", HeaderValue::from_static(EMPTY_SHA256));
    if let Some(range) = ask.range {
        headers.insert(header::RANGE, HeaderValue::from_str(&range.to_string()).map_err(internal)?);
    }
    if let Some(tag) = &ask.if_match {
        headers.insert(header::IF_MATCH, tag.clone());
    }
    if let Some(tag) = &ask.if_none_match {
        headers.insert(header::IF_NONE_MATCH, tag.clone());
    }
    Ok(request)
}

impl Forward for S3Store {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        Box::pin(self.send(&self.clients.wide, request))
    }
}

/// Longest S3 error code that is passed on.
const CODE_BYTES_MAX: usize = 64;

/// The `Code` of an S3 `<Error>` document, if it is one and the code is fit to be passed on.
pub fn error_code(body: &[u8]) -> Option<String> {
    let code = error_member(body, "Code")?;
    let code = code.trim();
    let fit = (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    fit.then(|| code.to_owned())
}

/// The text of a member of an S3 `<Error>` document, if it is one.
pub fn error_member(body: &[u8], name: &str) -> Option<String> {
    use quick_xml::escape::resolve_predefined_entity;
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(std::str::from_utf8(body).ok()?);
    let mut path: Vec<String> = Vec::new();
    let mut member = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => path.push(tag.local_name().as_ref().to_owned()),
            Event::End(_) if path == ["Error", name] => return Some(member),
            Event::End(_) => drop(path.pop()),
            Event::Text(text) if path == ["Error", name] => member.push_str(&text),
            Event::GeneralRef(entity) if path == ["Error", name] => match entity.resolve_char_ref().ok()? {
                Some(character) => member.push(character),
                None => member.push_str(resolve_predefined_entity(&entity)?),
            },
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Headers of a batch that go along with each of its reads.
pub fn read_headers(headers: &HeaderMap, names: &[&'static str]) -> HeaderMap {
    names.iter().filter_map(|name| headers.get(*name).map(|value| (http::HeaderName::from_static(name), value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_once_and_never_normalised() {
        assert_eq!(object_path("b", "a b/../%20//é+~", None), "/b/a%20b/../%2520//%C3%A9%2B~");
        assert_eq!(object_path("b", "/k", Some("a/b=")), "/b//k?versionId=a%2Fb%3D");
    }

    #[test]
    fn a_code_is_taken_from_an_s3_error_only() {
        let code = |body: &str| error_code(body.as_bytes());
        assert_eq!(code("<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code></Error>").as_deref(), Some("NoSuchKey"));
        assert_eq!(code("<Error xmlns=\"x\"><Message>m</Message><Code> Slow.Down </Code></Error>").as_deref(), Some("Slow.Down"));
        for body in [
            "",
            "<html><Code>X</Code></html>",
            "<Error><Code>no such</Code></Error>",
            "<Error><Code>No&amp;Such</Code></Error>",
            "<Error><Code></Code></Error>",
            "<Error><a><Code>X</Code></a></Error>",
            "not xml",
            "<Error><Code>",
        ] {
            assert_eq!(code(body), None, "{body}");
        }
        assert_eq!(code(&format!("<Error><Code>{}</Code></Error>", "x".repeat(65))), None);
    }
}
