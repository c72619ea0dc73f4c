//! Every S3 request that is not ours to answer goes to its bucket's backend as it came and its answer comes back as it is:
//! method, raw path, query, headers, body. What is changed is written here: the signature, the connection's own headers,
//! chunk framing, a renamed bucket, a new one's region, and the few answers that would show the backend's address. Both ways
//! stream in constant memory.
//!
//! Invariant: a write is sent once. If nothing of it was sent the client is told so, and if something was and no answer came, that
//! its outcome is unknown ([`outcome`]). A GET or HEAD that got no answer is sent again, a few times.

mod buckets;
mod create;
mod deletes;
mod form;
mod headers;
mod location;
mod nobody;
mod outcome;
mod parts;
mod permitted;
mod plan;
mod preflight;
mod refusal;
mod rename;
mod rewrite;
mod send;
mod sent;
mod shown;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};

use crate::auth::action::{DELETE_OBJECTS, check_ids};
use crate::auth::delete::DELETE_BODY_BYTES_MAX;
use crate::auth::{Authenticated, CopySource, Payer, Scheme, VerifiedBody, permissions};
use crate::backend::form::PostForm;
use crate::backend::{Backend, Body, BoxError, full_body};
use crate::budget::Pool;
use crate::config::{Checksums, TailConfig};
use crate::error::{Error, Kind, Result};
use crate::route::Routes;
use crate::stall::StallWatch;
use crate::types::S3Target;
use deletes::{Judged, Reserved};
use rewrite::Naming;
use upload::Carried;

pub use form::HeldForm;

/// Forwards S3 requests.
pub struct Passthrough {
    routes: Arc<Routes<Arc<Backend>>>,
    stalls: Arc<StallWatch>,
    /// Pays for the few bodies that must be held whole.
    memory: Pool,
    /// Full jitter draws from zero to the first, doubled for each failure up to the second.
    backoff: (Duration, Duration),
    /// The region that clients sign for, and are told of; if there is none, stores name their own.
    region: Option<HeaderValue>,
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

impl Ask<'_> {
    /// For what came of asking the backend of this `name`. Who has not signed is not told the name, since anybody may ask.
    fn of_backend(&self, name: &str) -> impl Fn(Error) -> Error {
        let is_told = self.authenticated.scheme != Scheme::Nobody;
        move |error| error.of_backend(name, is_told)
    }
}

/// Where a request goes.
struct Route {
    backend: Arc<Backend>,
    path: PathAndQuery,
    /// The form that says who asks, where the head does not.
    form: Option<PostForm>,
    /// The bucket's name there, where it is not the client's.
    renamed: Option<String>,
    /// The name there and the client's of the bucket that is copied from, if one is.
    source: Option<(String, String)>,
}

impl Passthrough {
    /// A service over `routes`.
    pub fn new(routes: Arc<Routes<Arc<Backend>>>, stalls: Arc<StallWatch>, memory: Pool) -> Self {
        let TailConfig { backoff_base, backoff_max, .. } = TailConfig::default();
        Self { routes, stalls, memory, backoff: (backoff_base, backoff_max), region: None }
    }

    /// With the back-off of `tail` before a GET or HEAD is sent again.
    pub fn with_backoff(self, tail: &TailConfig) -> Self {
        Self { backoff: (tail.backoff_base, tail.backoff_max), ..self }
    }

    /// For clients that must sign for `region`, if for one: where a store says which one a bucket is in, that is what they are
    /// told, because some sign for it from then on; and where they want a bucket there, the store is asked for its own.
    pub fn in_region(self, region: Option<&str>) -> Self {
        Self { region: region.and_then(|region| HeaderValue::from_str(region).ok()), ..self }
    }

    /// Authorises the request and forwards it.
    pub async fn answer(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        check_ids(ask.head.uri.query().unwrap_or_default())?;
        if ask.authenticated.scheme == Scheme::Nobody {
            return self.answer_nobody(ask, body).await;
        }
        let query = ask.authenticated.query_to_judge(ask.head.uri.query().unwrap_or_default());
        let needed = permissions(&ask.head.method, ask.target, &query, &ask.head.headers)?;
        if needed.iter().any(|permission| permission.action == DELETE_OBJECTS) {
            let (_, others): (Vec<_>, Vec<_>) = needed.into_iter().partition(|permission| permission.action == DELETE_OBJECTS);
            ask.authenticated.identity.authorise(&others)?;
            return self.delete_objects(ask, body).await;
        }
        ask.authenticated.identity.authorise(&needed)?;
        nobody::check_form(&ask.head.method, &ask.head.headers, Some(&query))?;
        if self.is_merged_list(&ask, &needed)? {
            return self.list_buckets(ask, body).await;
        }
        let mut route = self.route(&ask)?;
        let mut headers = self.request_headers(&ask, &mut route)?;
        let (payload, quirks) = (ask.authenticated.payload.clone(), route.backend.quirks);
        let mut held = Reserved::nothing(&self.memory);
        let (body, verdict) = match self.regions(&needed, &route) {
            Some(regions) => create::prepare(payload, regions, quirks, &mut headers, body, &mut held).await?,
            None => {
                let carried = Carried::of(&ask.head.method, !ask.target.raw_key.is_empty(), &query);
                upload::prepare(payload, carried, quirks, &mut headers, body, &mut held).await?
            }
        };
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        self.finish(&ask, route, response).await
    }

    /// The backend of the request's bucket, and the raw path there.
    fn route(&self, ask: &Ask<'_>) -> Result<Route> {
        let none = || Error::new(Kind::NoSuchBucket, "no backend is configured for this bucket");
        let query = ask.head.uri.query().map(|query| ask.authenticated.query_to_forward(query));
        let (backend, path, renamed) = match &ask.target.bucket {
            None => (self.routes.first().ok_or_else(none)?, "/".to_owned(), None),
            Some(bucket) => {
                let (backend, name) = self.routes.find(bucket).ok_or_else(none)?;
                let renamed = (name != bucket).then(|| name.to_owned());
                (backend, path_at_backend(bucket, name, ask.target), renamed)
            }
        };
        let path = match query.filter(|query| !query.is_empty()) {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        let path = PathAndQuery::try_from(path)
            .map_err(|e| Error::new(Kind::InvalidUri, "the path cannot be forwarded").with_source(e))?;
        Ok(Route { backend: Arc::clone(backend), path, renamed, source: None, form: None })
    }

    fn request_headers(&self, ask: &Ask<'_>, route: &mut Route) -> Result<HeaderMap> {
        let mut headers = ask.head.headers.clone();
        headers::strip_request(&mut headers);
        ask.authenticated.lift_headers(ask.head.uri.query().unwrap_or_default(), &mut headers)?;
        if let Some(value) = headers.get("x-amz-copy-source") {
            let source = CopySource::parse(value.as_bytes())?;
            let (backend, name) = self.routes.find(&source.bucket).ok_or_else(|| {
                Error::new(
                    Kind::NoSuchBucket,
                    format!("no backend is configured for the bucket {:?} of the copy's source", source.bucket),
                )
            })?;
            if !Arc::ptr_eq(backend, &route.backend) {
                let target = ask.target.bucket.as_deref().unwrap_or_default();
                let message = format!(
                    "the buckets {:?} and {target:?} are on different backends, between which nothing can be copied; read the object \
                     and write it instead",
                    source.bucket
                );
                return Err(Error::new(Kind::NotImplemented, message));
            }
            if name != source.bucket {
                let renamed = rewrite::copy_source(value, name);
                headers.insert("x-amz-copy-source", renamed);
            }
            route.source = Some((name.to_owned(), source.bucket));
        }
        if route.naming(ask) != Naming::Nothing {
            // What is looked into must be text.
            headers.remove(header::ACCEPT_ENCODING);
        }
        Ok(headers)
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
            let error = Error::new(Kind::BadGateway, "the store answered with a redirect, which is not followed");
            return Err(ask.of_backend(&route.backend.name)(error));
        }
        // The version is that of the store's connection, not of the client's.
        *response.version_mut() = Version::HTTP_11;
        headers::strip_answer(response.headers_mut());
        self.show_own(ask, &route, response.headers_mut());
        let region = self.region.as_ref().and_then(|region| region.to_str().ok());
        shown::to_client(ask, &route, region, response).await.map_err(ask.of_backend(&route.backend.name))
    }

    /// Replaces what would show the store, however often it is said.
    fn show_own(&self, ask: &Ask<'_>, route: &Route, headers: &mut HeaderMap) {
        self.show_own_region(headers);
        if let Some(said) = headers.get(header::LOCATION) {
            let own = rewrite::location(said, ask.target, ask.head.uri.path(), route.renamed.is_some());
            let own = own.unwrap_or_else(|| said.clone());
            headers.insert(header::LOCATION, own);
        }
    }

    fn show_own_region(&self, headers: &mut HeaderMap) {
        if let (true, Some(region)) = (headers.contains_key("x-amz-bucket-region"), &self.region) {
            headers.insert("x-amz-bucket-region", region.clone());
        }
    }

    /// DeleteObjects: the document is held whole, judged key by key, and sent on without what is denied.
    async fn delete_objects(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        upload::check_framing(&ask.authenticated.payload, Carried::Document)?;
        let mut route = self.route(&ask)?;
        let mut headers = self.request_headers(&ask, &mut route)?;
        let (payload, quirks) = (ask.authenticated.payload.clone(), route.backend.quirks);
        // Here and not only at the store, which may get another document.
        let (body, verdict) = VerifiedBody::checking(payload, &headers, body)?;
        let mut reserved = Reserved::nothing(&self.memory);
        let document = body.collect(DELETE_BODY_BYTES_MAX, too_long, &mut reserved).await?;
        deletes::check_covered(ask.authenticated.scheme, &headers)?;
        // The text, what is read from it, and what is left of it.
        reserved.pay(3 * document.len() as u64).await?;
        let bucket = ask.target.bucket.as_deref().unwrap_or_default();
        let judged = Judged::new(document.clone(), &ask.authenticated.identity, bucket, &headers)?;
        if judged.none_allowed() {
            return Ok(xml_response(judged.all_denied()));
        }
        headers::strip_framing(&mut headers);
        if quirks.checksums == Checksums::Verify {
            headers::strip_checksums(&mut headers);
        }
        let document = if judged.all_allowed() {
            document
        } else {
            // The answer is read whole, and written anew. Asked for before anything is deleted.
            reserved.pay(3 * document.len() as u64 + 2 * DELETE_BODY_BYTES_MAX as u64).await?;
            judged.remaining(&mut headers)
        };
        upload::finish_document(&document, quirks, &mut headers);
        let body = full_body(document);
        let backend = Arc::clone(&route.backend);
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        let response = self.finish(&ask, route, response).await?;
        if judged.all_allowed() || response.status() != StatusCode::OK {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let document = rewrite::whole(body, DELETE_BODY_BYTES_MAX).await;
        let merged = document.and_then(|document| judged.merge(&document)).map_err(ask.of_backend(&backend.name))?;
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(merged.len()));
        Ok(Response::from_parts(head, full_body(merged)))
    }
}

/// The raw path at the backend. The client's own bytes, unless the bucket is named by the host or has another name there.
pub fn path_at_backend(bucket: &str, name: &str, target: &S3Target) -> String {
    let path = &target.path;
    // A name that the client encoded is written anew, too.
    let path_style = !target.bucket_in_host
        && path
            .strip_prefix('/')
            .and_then(|rest| rest.strip_prefix(bucket))
            .is_some_and(|rest| rest.strip_prefix('/').unwrap_or(rest) == target.raw_key);
    match (path_style, name == bucket) {
        (true, true) => path.to_owned(),
        (true, false) => format!("/{name}{}", &path[1 + bucket.len()..]),
        (false, _) => format!("/{name}/{}", target.raw_key),
    }
}

/// A body that a request should not have had, and that did not come whole either.
fn broken_request(source: BoxError) -> Error {
    Error::new(Kind::IncompleteBody, "the body did not arrive whole").with_source(source)
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
