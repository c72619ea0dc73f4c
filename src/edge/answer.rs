//! The place where a failure becomes an answer: status, S3's XML, and what a client needs in order to act.

use http::{HeaderValue, Response, StatusCode, header};

use crate::backend::{Body, empty_body, full_body};
use crate::error::xml::{ErrorDocument, render};
use crate::error::{Error, Kind};
use crate::types::RequestId;

/// Seconds after which a refused client may come back.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The answer to a failed request, which its access line tells of. What only logs may know is here in full, for who looks closer.
pub fn failure(error: &Error, path: &str, id: RequestId) -> Response<Body> {
    if let Some(source) = &error.source {
        tracing::debug!(request.id = %id, %error, %source, "request failed or was refused");
    }
    let request_id = id.to_string();
    let document = ErrorDocument {
        code: error.kind.code(),
        message: &error.message,
        resource: Some(path),
        request_id: &request_id,
        details: &error.details,
        ..ErrorDocument::default()
    };
    let mut response = Response::new(full_body(render(&document)));
    *response.status_mut() = StatusCode::from_u16(error.kind.status()).expect("the table of kinds holds statuses");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if matches!(error.kind, Kind::SlowDown | Kind::ServiceUnavailable) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    // As on S3, also for a HEAD, which has no document: clients then sign anew, for that region.
    let region = error.details.iter().find(|(name, _)| *name == "Region");
    if let Some(region) = region.and_then(|(_, region)| HeaderValue::from_str(region).ok()) {
        response.headers_mut().insert("x-amz-bucket-region", region);
    }
    response
}

/// The answer to a HEAD: the headers that a GET would have, and nothing after them.
pub fn without_body(response: Response<Body>) -> Response<Body> {
    response.map(|_| empty_body())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_to_sign_for_stands_in_the_head_too() {
        let wrong = Error::new(Kind::AuthorizationHeaderMalformed, "the region is wrong").with_detail("Region", "eu-west-1");
        let answer = without_body(failure(&wrong, "/bucket", RequestId(1)));
        assert_eq!(answer.headers()["x-amz-bucket-region"], "eu-west-1");
        let other = failure(&Error::new(Kind::AccessDenied, "denied"), "/bucket/key", RequestId(1));
        assert!(!other.headers().contains_key("x-amz-bucket-region"));
    }
}
