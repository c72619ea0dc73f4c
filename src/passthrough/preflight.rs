//! The question that a browser asks before it lets a page of another site send a request (CORS): whether the bucket allows it. It
//! carries no signature, and S3 answers it to anybody; so does the store, by the bucket's own rules. In: the question; out: the
//! store's answer. Nothing goes on but what the question is about: no query, no other header, no body.

use http::{HeaderMap, Response};

use super::{Ask, Passthrough};
use crate::auth::Verdict;
use crate::backend::{Body, empty_body};
use crate::error::Result;

/// What the answer depends on (<https://docs.aws.amazon.com/AmazonS3/latest/API/RESTOPTIONSobject.html>).
const QUESTION: &[&str] = &["origin", "access-control-request-method", "access-control-request-headers"];

impl Passthrough {
    /// Asks the store.
    pub async fn preflight(&self, ask: Ask<'_>) -> Result<Response<Body>> {
        let mut route = self.route(&ask)?;
        // A presigned URL is asked about with its signature, which is nobody's business there.
        route.path = route.path.path().try_into().expect("a path without its query is one");
        let headers: HeaderMap = QUESTION
            .iter()
            .filter_map(|name| Some((http::HeaderName::from_static(name), ask.head.headers.get(*name)?.clone())))
            .collect();
        let response = self.send(&ask, &route, headers, empty_body(), &Verdict::default()).await?;
        self.finish(&ask, route, response).await
    }
}
