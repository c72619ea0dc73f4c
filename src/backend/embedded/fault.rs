//! What the store refuses, in S3's words: status, code and a sentence. What leaves is S3's `<Error>` document.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::backend::{Body, empty_body, full_body};
use crate::error::xml::{ErrorDocument, render};

/// A refusal on its way to the answer.
#[derive(Debug)]
pub struct Fault {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Cow<'static, str>,
    /// Boxed with what most faults have not: headers of the answer beside the usual ones.
    pub headers: Option<Box<HeaderMap>>,
}

/// The result of an operation.
pub type Done<T> = Result<T, Fault>;

/// The codes of the store, each with its status.
const TABLE: &[(&str, u16)] = &[
    ("AccessDenied", 403),
    ("BadDigest", 400),
    ("BucketAlreadyOwnedByYou", 409),
    ("BucketNotEmpty", 409),
    ("EntityTooLarge", 400),
    ("EntityTooSmall", 400),
    ("IncompleteBody", 400),
    ("InsufficientStorage", 507),
    ("InvalidArgument", 400),
    ("InvalidBucketName", 400),
    ("InvalidDigest", 400),
    ("InvalidPart", 400),
    ("InvalidPartNumber", 416),
    ("InvalidPartOrder", 400),
    ("InvalidRange", 416),
    ("InvalidRequest", 400),
    ("InvalidURI", 400),
    ("KeyTooLongError", 400),
    ("MalformedXML", 400),
    ("MetadataTooLarge", 400),
    ("MethodNotAllowed", 405),
    ("MissingContentLength", 411),
    ("NoSuchBucket", 404),
    ("NoSuchKey", 404),
    ("NoSuchUpload", 404),
    ("NoSuchVersion", 404),
    ("NotImplemented", 501),
    ("PreconditionFailed", 412),
    ("SlowDown", 503),
];

impl Fault {
    /// A refusal with a code of the table.
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let status = TABLE.iter().find(|(known, _)| *known == code).map(|(_, status)| *status);
        debug_assert!(status.is_some(), "{code} is not in the table");
        let status = StatusCode::from_u16(status.unwrap_or(500)).expect("the table holds statuses");
        Self { status, code, message: message.into(), headers: None }
    }

    /// With one more header.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.get_or_insert_default().insert(name, value);
        self
    }

    pub fn no_bucket() -> Self {
        Self::new("NoSuchBucket", "The specified bucket does not exist.")
    }

    pub fn no_key() -> Self {
        Self::new("NoSuchKey", "The specified key does not exist.")
    }

    pub fn no_upload() -> Self {
        let message = "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been \
                       aborted or completed.";
        Self::new("NoSuchUpload", message)
    }

    /// By the name of the header.
    pub fn precondition(header: &str) -> Self {
        Self::new("PreconditionFailed", format!("At least one of the pre-conditions you specified did not hold: {header}."))
    }

    pub fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new("InvalidArgument", message)
    }

    /// Something that S3 has and this store has not, by its name.
    pub fn not_implemented(what: impl std::fmt::Display) -> Self {
        Self::new("NotImplemented", format!("{what} is not implemented by the embedded store."))
    }

    /// The answer; one to a HEAD has no body.
    pub fn answer(self, resource: &str, request_id: &str, head: bool) -> Response<Body> {
        let document = ErrorDocument {
            code: self.code,
            message: &self.message,
            resource: Some(resource),
            request_id,
            ..ErrorDocument::default()
        };
        let mut response = Response::new(if head { empty_body() } else { full_body(render(&document)) });
        *response.status_mut() = self.status;
        if let Some(headers) = self.headers {
            *response.headers_mut() = *headers;
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        response
    }
}
