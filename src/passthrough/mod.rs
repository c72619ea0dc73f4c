//! Every S3 request that is not ours to answer goes to its bucket's backend as it came and its answer comes back as it is:
//! method, raw path, query, headers, body. What is changed is written here: the signature, the connection's own headers,
//! chunk framing, a renamed bucket, and the few answers that would show the backend's address. Both ways stream in constant
//! memory; a write is sent once and never tried again.

mod deletes;
mod headers;
mod permitted;
mod rewrite;
mod upload;

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep_until, timeout};

use crate::auth::action::DELETE_OBJECTS;
use crate::auth::delete::DELETE_BODY_BYTES_MAX;
use crate::auth::{Authenticated, CopySource, Verdict, VerifiedBody, permissions, strip_auth_query};
use crate::backend::breaker::{Cause, Open, Pass};
use crate::backend::limited::{Lane, Permit};
use crate::backend::{Backend, BackendError, BackendErrorKind, Body, BoxError, full_body, s3};
use crate::budget::Pool;
use crate::error::{Error, Kind, Result};
use crate::route::{Routes, host};
use crate::stall::StallWatch;
use crate::types::S3Target;
use deletes::Judged;
use permitted::Permitted;

/// Bytes of a store's refusal that are looked through for its code.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Forwards S3 requests.
pub struct Passthrough {
    routes: Arc<Routes<Arc<Backend>>>,
    stalls: Arc<StallWatch>,
    /// Pays for the few bodies that must be held whole.
    memory: Pool,
}

/// A request that is on its way: what the edge, `route` and `auth` found out about it.
pub struct Ask<'a> {
    /// Method, URI and headers as they came.
    pub head: &'a Parts,
    /// Bucket and key.
    pub target: &'a S3Target,
    /// Who asks, and how the body was signed.
    pub authenticated: Authenticated,
    /// Whether the client's connection is TLS, for addresses in answers.
    pub secure: bool,
}

/// Where a request goes.
struct Route {
    backend: Arc<Backend>,
    path: PathAndQuery,
}

impl Passthrough {
    /// A service over `routes`.
    pub fn new(routes: Arc<Routes<Arc<Backend>>>, stalls: Arc<StallWatch>, memory: Pool) -> Self {
        Self { routes, stalls, memory }
    }

    /// Authorises the request and forwards it.
    pub async fn answer(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        let query = ask.head.uri.query().unwrap_or_default();
        let needed = permissions(&ask.head.method, ask.target, query, &ask.head.headers)?;
        if needed.iter().any(|permission| permission.action == DELETE_OBJECTS) {
            let (_, others): (Vec<_>, Vec<_>) = needed.into_iter().partition(|permission| permission.action == DELETE_OBJECTS);
            ask.authenticated.identity.authorise(&others)?;
            return self.delete_objects(ask, body).await;
        }
        ask.authenticated.identity.authorise(&needed)?;
        let route = self.route(&ask)?;
        let mut headers = self.request_headers(&ask, &route)?;
        let (body, verdict) = upload::prepare(ask.authenticated.payload.clone(), &mut headers, body).await?;
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        self.finish(&ask, route, response).await
    }

    /// The backend of the request's bucket, and the raw path there.
    fn route(&self, ask: &Ask<'_>) -> Result<Route> {
        let none = || Error::new(Kind::NoSuchBucket, "no backend is configured for this bucket");
        let query = ask.head.uri.query().map(|query| match ask.authenticated.presigned {
            true => strip_auth_query(query),
            false => query.to_owned(),
        });
        let (backend, path) = match &ask.target.bucket {
            None => (self.routes.first().ok_or_else(none)?, "/".to_owned()),
            Some(bucket) => {
                let (backend, name) = self.routes.find(bucket).ok_or_else(none)?;
                (backend, path_at_backend(ask.head.uri.path(), bucket, name, ask.target))
            }
        };
        let path = match query.filter(|query| !query.is_empty()) {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        let path = PathAndQuery::try_from(path)
            .map_err(|e| Error::new(Kind::InvalidUri, "the path cannot be forwarded").with_source(e))?;
        Ok(Route { backend: Arc::clone(backend), path })
    }

    fn request_headers(&self, ask: &Ask<'_>, route: &Route) -> Result<HeaderMap> {
        let mut headers = ask.head.headers.clone();
        headers::strip_request(&mut headers);
        if let Some(value) = headers.get("x-amz-copy-source") {
            let source = CopySource::parse(value.as_bytes())?;
            let elsewhere = || Error::new(Kind::NotImplemented, "a copy from one backend to another is not supported");
            let (backend, name) = self.routes.find(&source.bucket).ok_or_else(elsewhere)?;
            if !Arc::ptr_eq(backend, &route.backend) {
                return Err(elsewhere());
            }
            if name != source.bucket {
                let renamed = rewrite::copy_source(value, name);
                headers.insert("x-amz-copy-source", renamed);
            }
        }
        Ok(headers)
    }

    async fn permit(&self, backend: &Arc<Backend>) -> Result<Permit> {
        let acquired = timeout(backend.response_timeout, backend.limiter.acquire(Lane::PLAIN, 0)).await;
        acquired.map_err(|_| Error::new(Kind::SlowDown, "the store is busy; try again shortly"))
    }

    /// Sends the request once. The permit waits inside the answer's body.
    async fn send(
        &self,
        ask: &Ask<'_>,
        route: &Route,
        headers: HeaderMap,
        body: Body,
        verdict: &Verdict,
    ) -> Result<Response<Body>> {
        let backend = &route.backend;
        let moved = Moved::default();
        let pass = backend.breaker.admit().map_err(not_asked)?;
        backend.retries.deposit();
        let (permit, body) = if http_body::Body::is_end_stream(&body) {
            (Some(self.permit(backend).await?), body)
        } else {
            // An upload waits for its client, not for the store, and so takes no permit; requests_max bounds it. The store
            // may take its time only once it has the whole request.
            let noting = moved.clone();
            let noted = upload::begun(body).await.map_err(|error| refused(verdict, error))?.map_frame(move |frame| {
                noting.now();
                frame
            });
            (None, Body::new(noted))
        };
        let pass = pass.renewed().map_err(not_asked)?;
        let mut request = Request::new(body);
        *request.method_mut() = ask.head.method.clone();
        *request.uri_mut() = Uri::from(route.path.clone());
        *request.headers_mut() = headers;
        let mut attempt = backend.store.forward(request);
        let answer = loop {
            let last = moved.last();
            tokio::select! {
                answer = &mut attempt => break answer,
                () = sleep_until(last + backend.response_timeout) => {
                    if moved.last() == last {
                        pass.failed(Cause::TimedOut, false);
                        return Err(Error::new(Kind::GatewayTimeout, "the store did not answer in time; the outcome is unknown"));
                    }
                }
            }
        };
        if let Some(failure) = verdict.failure() {
            return Err(failure.into());
        }
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                pass.unanswered(error.kind, false);
                return Err(no_answer(error, &ask.head.method));
            }
        };
        let response = response.map(|body| self.permitted(body, backend, permit));
        if matches!(response.status().as_u16(), 400 | 403 | 503) {
            return read_refusal(response, backend, pass).await;
        }
        backend.judge(pass, response.status(), None);
        Ok(response)
    }

    fn permitted(&self, body: Body, backend: &Arc<Backend>, permit: Option<Permit>) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        Body::new(Permitted::new(body, Arc::clone(backend), permit, &self.stalls))
    }

    /// What of the answer goes back.
    async fn finish(&self, ask: &Ask<'_>, route: Route, mut response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            tracing::warn!(
                backend = route.backend.name,
                status = status.as_u16(),
                "backend redirects; check its endpoint and region"
            );
            return Err(Error::new(Kind::BadGateway, "the store answered with a redirect, which is not followed"));
        }
        // The version is that of the store's connection, not of the client's.
        *response.version_mut() = Version::HTTP_11;
        headers::strip_answer(response.headers_mut());
        if let Some(location) = response.headers_mut().get_mut(header::LOCATION) {
            *location = HeaderValue::from_str(ask.head.uri.path()).map_err(|e| internal(e.into()))?;
        }
        if rewrite::names_location(&ask.head.method, ask.head.uri.query().unwrap_or_default()) && status.is_success() {
            let scheme = if ask.secure { "https" } else { "http" };
            let url = format!("{scheme}://{}{}", host(ask.head).unwrap_or_default(), ask.head.uri.path());
            return Ok(rewrite::location(response, &url));
        }
        Ok(response)
    }

    /// DeleteObjects: the document is held whole, judged key by key, and sent on without what is denied.
    async fn delete_objects(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        let Some(_reserved) = self.memory.try_reserve(2 * DELETE_BODY_BYTES_MAX as u64) else {
            return Err(Error::new(Kind::SlowDown, "no memory is free for this request; try again shortly"));
        };
        let route = self.route(&ask)?;
        let mut headers = self.request_headers(&ask, &route)?;
        let (body, verdict) = VerifiedBody::new(ask.authenticated.payload.clone(), &headers, body)?;
        let document = body.collect(DELETE_BODY_BYTES_MAX, too_long).await?;
        let bucket = ask.target.bucket.as_deref().unwrap_or_default();
        let judged = Judged::new(document.clone(), &ask.authenticated.identity, bucket, &headers)?;
        if judged.none_allowed() {
            return Ok(xml_response(judged.all_denied()));
        }
        headers::strip_framing(&mut headers);
        let document = if judged.all_allowed() {
            if let Some((name, value)) = verdict.trailer() {
                headers.insert(name, value);
            }
            document
        } else {
            judged.remaining(&mut headers)
        };
        headers.insert("x-amz-content-sha256", deletes::sha256_hex(&document));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(document.len()));
        let body = full_body(document);
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        let response = self.finish(&ask, route, response).await?;
        if judged.all_allowed() || response.status() != StatusCode::OK {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let merged = judged.merge(&rewrite::whole(body, DELETE_BODY_BYTES_MAX).await?)?;
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(merged.len()));
        Ok(Response::from_parts(head, full_body(merged)))
    }
}

/// An error as it came, after a look at its code. One that is about the signature is ours to tell: the store means the
/// gateway's, of which a client need not know more. One that asks for pace is heeded.
async fn read_refusal(response: Response<Body>, backend: &Backend, pass: Pass) -> Result<Response<Body>> {
    let (head, mut body) = response.into_parts();
    let mut seen = BytesMut::new();
    let mut ended = false;
    while !ended && seen.len() < ERROR_BYTES_MAX {
        match body.frame().await {
            Some(frame) => seen.extend_from_slice(&frame.map_err(broken_error)?.into_data().unwrap_or_default()),
            None => ended = true,
        }
    }
    let code = s3::error_code(&seen);
    backend.judge(pass, head.status, code.as_deref());
    if let Some(code) = code.as_deref().filter(|code| s3::is_about_our_signature(code)) {
        tracing::warn!(backend = backend.name, code, "the store refuses the gateway's credentials");
        return Err(Error::new(Kind::BadGateway, "the store refuses the gateway's own credentials"));
    }
    let first = (!seen.is_empty()).then(|| seen.freeze());
    Ok(Response::from_parts(head, upload::resumed(first, body)))
}

/// The store is failing, and this request was not sent to it.
fn not_asked(_: Open) -> Error {
    Error::new(Kind::ServiceUnavailable, "the store is failing, so the gateway does not ask it for now; try again shortly")
}

fn broken_error(source: BoxError) -> Error {
    Error::new(Kind::BadGateway, "the store broke off in its answer").with_source(source)
}

/// When something of a request was last sent on.
#[derive(Clone)]
struct Moved(Arc<Mutex<Instant>>);

impl Default for Moved {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Moved {
    fn last(&self) -> Instant {
        *self.0.lock().expect("reading a time does not panic")
    }

    fn now(&self) {
        *self.0.lock().expect("setting a time does not panic") = Instant::now();
    }
}

/// The raw path at the backend. The client's own bytes, unless the bucket is named by the host or has another name there.
fn path_at_backend(path: &str, bucket: &str, name: &str, target: &S3Target) -> String {
    let path_style = path
        .strip_prefix('/')
        .and_then(|rest| rest.strip_prefix(bucket))
        .is_some_and(|rest| rest.strip_prefix('/').unwrap_or(rest) == target.raw_key);
    match (path_style, name == bucket) {
        (true, true) => path.to_owned(),
        (true, false) => format!("/{name}{}", &path[1 + bucket.len()..]),
        (false, _) => format!("/{name}/{}", target.raw_key),
    }
}

fn no_answer(error: BackendError, method: &Method) -> Error {
    let (kind, message) = match error.kind {
        BackendErrorKind::NoCredentials => (Kind::ServiceUnavailable, "the gateway has no credentials for the store"),
        BackendErrorKind::Unreachable => (Kind::ServiceUnavailable, "the store cannot be reached"),
        BackendErrorKind::RequestBody => (Kind::IncompleteBody, "the body did not arrive whole"),
        BackendErrorKind::Garbled => (Kind::BadGateway, "the store's answer is not HTTP"),
        BackendErrorKind::HeadTooLarge => (Kind::BadGateway, "the head of the store's answer is too large"),
        BackendErrorKind::NoAnswer if method.is_safe() => (Kind::BadGateway, "the store broke off before it answered"),
        BackendErrorKind::NoAnswer => (Kind::BadGateway, "the store broke off before it answered; the outcome is unknown"),
    };
    Error::new(kind, message).with_source(error)
}

/// Why a body broke off: what its verification found, or else what the client did.
fn refused(verdict: &Verdict, error: BoxError) -> Error {
    let broken = || Error::new(Kind::IncompleteBody, "the body did not arrive whole").with_source(error);
    verdict.failure().map_or_else(broken, Error::from)
}

fn internal(source: BoxError) -> Error {
    Error::new(Kind::InternalError, "the gateway failed; this is its fault").with_source(source)
}

fn too_long() -> Error {
    let message = format!("the body of DeleteObjects may have at most {DELETE_BODY_BYTES_MAX} bytes");
    Error::new(Kind::EntityTooLarge, message)
}

fn xml_response(body: Bytes) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}
