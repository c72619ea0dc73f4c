//! One S3 endpoint over HTTP/1.1. What enters is a read or an opaque request by the store's bucket name; what leaves is its
//! answer as it came. In between: the URI in the endpoint's addressing style, the signature ([`sign`], or of a [`form`]) with current
//! [`credentials`], and a pooled connection ([`connect`]) to one of its addresses ([`resolve`]). Where the store says that a bucket
//! is somewhere else, that is learnt ([`redirect`]). No retry, no limit: those sit above.

pub mod chunks;
pub mod connect;
pub mod credentials;
mod exchange;
mod form;
mod inspect;
mod open;
pub mod redirect;
mod refusal;
pub mod resolve;
pub mod sign;
mod wire;

#[cfg(test)]
mod address_tests;
#[cfg(test)]
mod redirect_tests;

pub use refusal::{asks_for_pace, error_code, error_member, is_about_a_key_pair, is_about_our_signature};

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::form::PostForm;
use super::peek::peek;
use super::{
    Attempt, BackendError, BackendErrorKind, Body, BoxError, Elsewhere, Forward, ObjectRead, ReadAsk, Sender, Taught, WaitedSince,
    collect, empty_body, full_body,
};
use crate::config::Addressing;
use crate::telemetry::BackendMetrics;
use crate::types::WallClock;
use connect::{Clients, Ways};
use credentials::Credentials;
use exchange::{Distrusted, Room, Watched, exchange};
use inspect::{ends_with_its_connection, may_leave_a_body, no_answer, with_a_short_head, with_one_length};
use redirect::{Endpoint, Learnt, Place, Told, lesson, may_teach};
use sign::{EMPTY_SHA256, Signer};

/// What stays as it is in a path that we make: RFC 3986's unreserved characters and the slash.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// What stays as it is in a query value that we make.
const QUERY_VALUE: &AsciiSet = &KEY.add(b'/');

/// How often in a row a request is sent once more because the store said where to: the right host may still want another region.
const LESSONS_MAX: u32 = 2;

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
    /// What all paths there begin with, such as `/s3`; empty at most endpoints.
    pub base_path: String,
    /// Where the bucket's name goes.
    pub addressing: Addressing,
    /// Current credentials.
    pub credentials: Credentials,
    /// The signer for the endpoint's region.
    pub signer: Arc<Signer>,
    /// The buckets that are somewhere else.
    pub learnt: Learnt,
    /// For the date in the signature.
    pub now: WallClock,
    /// Counts what comes back.
    pub metrics: BackendMetrics,
}

impl S3Store {
    /// As [`Forward::forward`], but once in any case: where the store says that the bucket is somewhere else, that is learnt and not
    /// followed.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn forward_once(&self, request: Request<Body>) -> Attempt {
        // No other answer is long.
        let may_be_long = request.method() == Method::GET && http_body::Body::is_end_stream(request.body());
        let room = may_be_long.then(|| Room::take(&self.clients.bulk_room)).flatten();
        let ways = if room.is_some() { &self.clients.bulk } else { &self.clients.wide };
        self.send(ways, request, room).await
    }

    /// Sends over `ways`. `room` is held for as long as something of the answer may be.
    async fn send(&self, ways: &Ways, mut request: Request<Body>, room: Option<Room>) -> Attempt {
        let elsewhere = request.extensions_mut().remove::<Elsewhere>().is_some();
        let asked = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let (bucket, rest) = bucket_of(&asked);
        let method = request.method().clone();
        let alone = elsewhere || may_leave_a_body(&method, request.uri());
        if makes(&method, rest) {
            self.learnt.forget_to_make(bucket);
        }
        let here = || Place { authority: self.authority.clone(), signer: Arc::clone(&self.signer) };
        let place = self.learnt.place(bucket).unwrap_or_else(here);
        let (authority, path) = self.address(&place, &asked)?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_str(authority.as_str()).map_err(internal)?);
        let now: SystemTime = (self.now)();
        let pair = match request.extensions_mut().remove::<Sender>().unwrap_or_default() {
            Sender::Gateway => Some(self.credentials.current().await.map_err(no_credentials)?),
            Sender::Client(pair) => Some(pair),
            Sender::Nobody => None,
        };
        request = match (request.extensions_mut().remove::<PostForm>(), pair) {
            (None, None) => request,
            (None, Some(pair)) => chunks::signed(&place.signer, &path, request, &pair, now).map_err(internal)?,
            (Some(form), pair) => {
                let head = match pair {
                    Some(pair) => place.signer.sign_form(&form, &pair, now).map_err(internal)?,
                    None => form.head(&[]),
                };
                form::begun(request, head).map_err(internal)?
            }
        };
        *request.uri_mut() =
            Uri::builder().scheme(self.scheme.clone()).authority(authority).path_and_query(path).build().map_err(internal)?;
        // An upload takes as long as its client does; that says nothing of the store.
        let bodiless = http_body::Body::is_end_stream(request.body());
        let started = bodiless.then(Instant::now);
        let answer = self.exchange(ways, request, bodiless && method.is_safe(), alone).await;
        if let Some(started) = started {
            self.metrics.attempt_seconds.observe(started.elapsed().as_secs_f64());
        }
        match answer.and_then(with_a_short_head).and_then(with_one_length) {
            Ok(response) => {
                if let Some(refused) = no_answer(&response) {
                    self.metrics.attempts_no_answer.inc();
                    return Err(refused);
                }
                let unframed = ends_with_its_connection(&response);
                let response = Watched::of(response, &self.clients.addresses, room);
                let response = if unframed { self.framed(response).await? } else { response };
                self.count(&response);
                if method == Method::DELETE && is_bucket(rest) && response.status().is_success() {
                    self.learnt.forget(bucket);
                }
                match may_teach(response.status()) && !bucket.is_empty() {
                    true => Ok(self.learn(&method, (bucket, rest), &place, response).await),
                    false => Ok(response),
                }
            }
            Err(error) => {
                self.metrics.attempts_no_answer.inc();
                Err(error)
            }
        }
    }

    /// Sends a request over a connection that there is reason to trust. What is `safe` finds out which one it was given and takes
    /// another if need be; what must not be sent twice does not try one at all while an address is silent. What goes `elsewhere`
    /// gets a new one, which is not kept.
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

    /// Looks through an answer that may say where the bucket is, and marks it as [`Taught`] if that is news.
    async fn learn(
        &self,
        method: &Method,
        (bucket, rest): (&str, &str),
        asked: &Place,
        response: Response<Body>,
    ) -> Response<Body> {
        let since = Instant::now();
        let (head, body) = response.into_parts();
        let peeked = peek(body, redirect::BODY_BYTES_MAX, since + redirect::BODY_PATIENCE).await;
        let endpoint = Endpoint { authority: &self.authority, region: self.signer.region() };
        let told = Told { method, status: head.status, headers: &head.headers, body: &peeked.seen };
        let lesson = lesson(endpoint, bucket, asked, told);
        let mut response = Response::from_parts(head, peeked.into_body());
        response.extensions_mut().insert(WaitedSince(since));
        if let Some(lesson) = lesson {
            let region = lesson.region.clone();
            match self.learnt.learn(bucket, lesson, makes(method, rest)) {
                true => tracing::info!(bucket, region, "the store says where the bucket is; it is asked there from now on"),
                false => tracing::debug!(bucket, region, "the store says once more where the bucket is"),
            }
            response.extensions_mut().insert(Taught);
        }
        response
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

    /// The host to ask and the raw path there, for a path that names the bucket first.
    fn address(&self, place: &Place, path: &PathAndQuery) -> Result<(Authority, PathAndQuery), BackendError> {
        let (bucket, rest) = bucket_of(path);
        let base = self.base_path.as_str();
        if self.addressing == Addressing::Path || bucket.is_empty() {
            let path = if base.is_empty() { Ok(path.clone()) } else { PathAndQuery::try_from(format!("{base}{path}")) };
            return Ok((place.authority.clone(), path.map_err(internal)?));
        }
        let authority = Authority::try_from(format!("{bucket}.{}", place.authority)).map_err(internal)?;
        let slash = if rest.starts_with('/') { "" } else { "/" };
        Ok((authority, PathAndQuery::try_from(format!("{base}{slash}{rest}")).map_err(internal)?))
    }
}

/// The bucket that a path names first, and what stands behind it.
fn bucket_of(path: &PathAndQuery) -> (&str, &str) {
    let rest = path.as_str().strip_prefix('/').unwrap_or_default();
    rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))
}

/// Whether what stands behind a bucket in a path is nothing, so that the request is about the bucket itself.
fn is_bucket(rest: &str) -> bool {
    matches!(rest, "" | "/")
}

/// Whether a request is to make the bucket behind which `rest` stands in its path.
fn makes(method: &Method, rest: &str) -> bool {
    method == Method::PUT && is_bucket(rest)
}

/// The same request, for one that has no body.
fn copy_of_head(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(empty_body());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
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
        Box::pin(where_it_is(move || async move {
            match self.send(&self.clients.lean, get(ask)?, None).await {
                Err(error) if error.kind == BackendErrorKind::HeadTooLarge => self.send(&self.clients.wide, get(ask)?, None).await,
                attempt => attempt,
            }
        }))
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
        if !http_body::Body::is_end_stream(request.body()) {
            return Box::pin(self.forward_once(request));
        }
        let (head, _) = request.into_parts();
        Box::pin(where_it_is(move || self.forward_once(Request::from_parts(head.clone(), empty_body()))))
    }

    fn region_to_make(&self, path: &PathAndQuery) -> Option<String> {
        self.learnt.region_to_make(bucket_of(path).0)
    }
}

/// Makes an `attempt`, and once more each time that the store only said where to.
async fn where_it_is<A: Future<Output = Attempt>>(attempt: impl Fn() -> A) -> Attempt {
    let mut lessons = 0;
    loop {
        let answer = attempt().await;
        let is_taught = answer.as_ref().is_ok_and(|response| response.extensions().get::<Taught>().is_some());
        if lessons == LESSONS_MAX || !is_taught {
            return answer;
        }
        lessons += 1;
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
}
