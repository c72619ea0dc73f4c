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
    response
}

/// The answer to a HEAD: the headers that a GET would have, and nothing after them.
pub fn without_body(response: Response<Body>) -> Response<Body> {
    response.map(|_| empty_body())
}
