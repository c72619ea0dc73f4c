//! The question that a browser asks before it lets a page of another site send a request (CORS): whether the bucket allows it. It
//! carries no signature, and S3 answers it to anybody; so does the store, by the bucket's own rules. In: the question; out: the
//! store's answer. Nothing goes on but what the question is about: no query, no other header, no body.

use http::{HeaderMap, Response};

use super::{Ask, Passthrough};
use crate::auth::Verdict;
use crate::backend::{Body, empty_body};
use crate::error::{Error, Kind, Result};

/// What the answer depends on (<https://docs.aws.amazon.com/AmazonS3/latest/API/RESTOPTIONSobject.html>).
const QUESTION: &[&str] = &["origin", "access-control-request-method", "access-control-request-headers"];

impl Passthrough {
    /// Asks the store.
    pub async fn preflight(&self, ask: Ask<'_>) -> Result<Response<Body>> {
        let mut route = self.route(&ask)?;
        if !is_well_escaped(ask.head.uri.path()) {
            // Anybody may ask, and some stores fail over such a path: enough of that would pass for an outage.
            return Err(Error::new(Kind::InvalidUri, "a % in the path is not followed by two hex digits"));
        }
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

/// Whether each `%` has its two hex digits.
fn is_well_escaped(path: &str) -> bool {
    path.split('%').skip(1).all(|behind| behind.len() >= 2 && behind.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_escape_is_seen() {
        assert!(["/b/k", "/b/%2F%e3x", "/b/%25", ""].into_iter().all(is_well_escaped));
        assert!(!["/b/1%", "/b/1%2", "/b/%zz", "/b/%%41", "/b/%4%41"].into_iter().any(is_well_escaped));
    }
}
