//! What of an answer's body is shown to the client otherwise than the store wrote it. In goes an answer, out comes the same one with
//! the names that its client knows, or the region that it signs for, if it is one of those in which others may be. Invariant: the
//! bytes of an object are never looked into.

use std::time::Duration;

use futures_util::stream::iter;
use http::{HeaderValue, Method, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::Instant;

use super::location::{LOCATION_BYTES_MAX, in_region};
use super::outcome::Unanswered;
use super::refusal::ERROR_BYTES_MAX;
use super::rename::{self, Names};
use super::rewrite::{self, Naming};
use super::{Ask, Route};
use crate::backend::peek::{End, peek};
use crate::backend::{Body, BoxError, full_body};
use crate::error::Result;
use crate::route::host;

/// How long an error that has begun is waited for, so that its length is known.
const ERROR_PATIENCE: Duration = Duration::from_millis(500);

impl Route {
    /// What of an answer that is no error names the bucket, if that has another name here, or the store.
    pub(super) fn naming(&self, ask: &Ask<'_>) -> Naming {
        let query = ask.head.uri.query().unwrap_or_default();
        let is_another = |(stores, clients): &(String, String)| stores != clients;
        match rewrite::naming(&ask.head.method, ask.target, query, self.source.is_some()) {
            Naming::Bucket if self.renamed.is_none() && !self.source.as_ref().is_some_and(is_another) => Naming::Nothing,
            naming => naming,
        }
    }

    /// The names that the client knows.
    fn names(&self, ask: &Ask<'_>) -> Names {
        let scheme = if ask.secure { "https" } else { "http" };
        let host = host(ask.head).unwrap_or_default().to_owned();
        let path = ask.head.uri.path().to_owned();
        let clients = ask.target.bucket.clone().unwrap_or_default();
        let own = (self.renamed.clone().unwrap_or_else(|| clients.clone()), clients);
        Names {
            buckets: [own].into_iter().chain(self.source.clone()).collect(),
            url: format!("{scheme}://{host}{path}"),
            host,
            path,
        }
    }
}

/// The answer as its client may see it, which signs for `region`, if for one only.
pub async fn to_client(ask: &Ask<'_>, route: &Route, region: Option<&str>, response: Response<Body>) -> Result<Response<Body>> {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if http_body::Body::is_end_stream(response.body()) || !(is_error || status.is_success()) {
        return Ok(response);
    }
    let broken = |error| Unanswered::broken(error, ask.head).counted(&route.backend);
    match is_error {
        true => named_error(response, route.names(ask)).await.map_err(broken),
        // A store that does not know of uploads gives the object; a list of parts has no such header.
        false if ask.head.method == Method::GET && response.headers().contains_key(header::ETAG) => Ok(response),
        false => Ok(match (route.naming(ask), region) {
            (Naming::Nothing, _) | (Naming::Region, None) => response,
            (Naming::Region, Some(region)) => located(response, region, route.backend.response_timeout).await.map_err(broken)?,
            (Naming::Bucket | Naming::Place, _) => named(response, route.names(ask)),
        }),
    }
}

/// The answer with its client's names. It streams: a store that takes long to complete an upload sends white space meanwhile, which
/// is there to keep the client waiting. So its length is not known.
fn named(mut response: Response<Body>, names: Names) -> Response<Body> {
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.map(|body| rename::streamed(body, names))
}

/// An error with its client's names. As a rule it is short and here at once, and then its length is known; what is not streams on.
async fn named_error(response: Response<Body>, names: Names) -> std::result::Result<Response<Body>, BoxError> {
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_none_or(|length| length > ERROR_BYTES_MAX) {
        return Ok(named(response, names));
    }
    let until = Instant::now() + ERROR_PATIENCE;
    let (mut head, body) = response.into_parts();
    // One more than may be, so that the end of what is just as long is seen.
    let peeked = peek(body, ERROR_BYTES_MAX + 1, until).await;
    match peeked.end {
        End::Whole => {}
        End::TooLong(_) | End::TooSlow(_) => return Ok(named(Response::from_parts(head, peeked.into_body()), names)),
        End::Broken(error) => return Err(error),
    }
    let whole = rename::whole(&peeked.seen, &names)?;
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    Ok(Response::from_parts(head, full_body(whole)))
}

/// Where a bucket is, for a client that signs for `region`. What is too long for that, or late, goes on as it is.
async fn located(response: Response<Body>, region: &str, patience: Duration) -> std::result::Result<Response<Body>, BoxError> {
    let (mut head, body) = response.into_parts();
    // One more, as above.
    let peeked = peek(body, LOCATION_BYTES_MAX + 1, Instant::now() + patience).await;
    match peeked.end {
        End::Whole => {}
        End::TooLong(_) | End::TooSlow(_) => return Ok(Response::from_parts(head, peeked.into_body())),
        End::Broken(error) => return Err(error),
    }
    let document = in_region(&peeked.seen, region).unwrap_or(peeked.seen);
    if !head.headers.contains_key(header::CONTENT_LENGTH) {
        // As the store does, without a length.
        return Ok(Response::from_parts(head, Body::new(StreamBody::new(iter([Ok(Frame::data(document))])))));
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(document.len()));
    Ok(Response::from_parts(head, full_body(document)))
}
