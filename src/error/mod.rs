//! What can be wrong with a request, and the one table from that to an HTTP status and an S3 error code. A room decides the
//! [`Kind`]; the edge (or the batch encoder, for a part) turns it into an answer with [`xml`]. `message` is safe for clients:
//! it never holds a secret, a backend's address or a backend's own words; those go into `source`, which only logs see.

pub mod xml;

use std::borrow::Cow;
use std::fmt;

/// Kinds of failure, named after the S3 error codes that clients act on
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the S3 code of the same name; the table below says its status")]
pub enum Kind {
    AccessDenied,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    BadDigest,
    BadGateway,
    EntityTooLarge,
    EntityTooSmall,
    ExpiredToken,
    GatewayTimeout,
    HttpVersionNotSupported,
    IncompleteBody,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketName,
    InvalidDigest,
    InvalidPolicyDocument,
    InvalidRequest,
    InvalidToken,
    InvalidUri,
    MalformedPostRequest,
    MalformedTrailerError,
    MalformedXml,
    MaxPostPreDataLengthExceeded,
    MethodNotAllowed,
    MissingContentLength,
    NoSuchBucket,
    NotAcceptable,
    NotImplemented,
    RequestTimeTooSkewed,
    RequestTimeout,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    SlowDown,
    UnsupportedMediaType,
    XAmzContentSha256Mismatch,
}

impl Kind {
    /// The status and the S3 code of this kind.
    pub fn answer(self) -> (u16, &'static str) {
        match self {
            Self::AccessDenied => (403, "AccessDenied"),
            Self::AuthorizationHeaderMalformed => (400, "AuthorizationHeaderMalformed"),
            Self::AuthorizationQueryParametersError => (400, "AuthorizationQueryParametersError"),
            Self::BadDigest => (400, "BadDigest"),
            Self::BadGateway => (502, "BadGateway"),
            Self::EntityTooLarge => (400, "EntityTooLarge"),
            Self::EntityTooSmall => (400, "EntityTooSmall"),
            Self::ExpiredToken => (400, "ExpiredToken"),
            Self::GatewayTimeout => (504, "GatewayTimeout"),
            Self::HttpVersionNotSupported => (505, "HttpVersionNotSupported"),
            Self::IncompleteBody => (400, "IncompleteBody"),
            Self::InternalError => (500, "InternalError"),
            Self::InvalidAccessKeyId => (403, "InvalidAccessKeyId"),
            Self::InvalidArgument => (400, "InvalidArgument"),
            Self::InvalidBucketName => (400, "InvalidBucketName"),
            Self::InvalidDigest => (400, "InvalidDigest"),
            Self::InvalidPolicyDocument => (400, "InvalidPolicyDocument"),
            Self::InvalidRequest => (400, "InvalidRequest"),
            Self::InvalidToken => (400, "InvalidToken"),
            Self::InvalidUri => (400, "InvalidURI"),
            Self::MalformedPostRequest => (400, "MalformedPOSTRequest"),
            Self::MalformedTrailerError => (400, "MalformedTrailerError"),
            Self::MalformedXml => (400, "MalformedXML"),
            Self::MaxPostPreDataLengthExceeded => (400, "MaxPostPreDataLengthExceededError"),
            Self::MethodNotAllowed => (405, "MethodNotAllowed"),
            Self::MissingContentLength => (411, "MissingContentLength"),
            Self::NoSuchBucket => (404, "NoSuchBucket"),
            Self::NotAcceptable => (406, "NotAcceptable"),
            Self::NotImplemented => (501, "NotImplemented"),
            Self::RequestTimeTooSkewed => (403, "RequestTimeTooSkewed"),
            Self::RequestTimeout => (400, "RequestTimeout"),
            Self::ServiceUnavailable => (503, "ServiceUnavailable"),
            Self::SignatureDoesNotMatch => (403, "SignatureDoesNotMatch"),
            Self::SlowDown => (503, "SlowDown"),
            Self::UnsupportedMediaType => (415, "UnsupportedMediaType"),
            Self::XAmzContentSha256Mismatch => (400, "XAmzContentSHA256Mismatch"),
        }
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        self.answer().0
    }

    /// The S3 error code.
    pub fn code(self) -> &'static str {
        self.answer().1
    }
}

/// The S3 code that stands for a bare status, where a backend gave none that can be read.
pub fn code_of_status(status: u16) -> &'static str {
    match status {
        403 => "AccessDenied",
        404 => "NoSuchKey",
        405 => "MethodNotAllowed",
        409 => "OperationAborted",
        412 => "PreconditionFailed",
        416 => "InvalidRange",
        429 => "SlowDown",
        500 => "InternalError",
        501 => "NotImplemented",
        502 => "BadGateway",
        503 => "ServiceUnavailable",
        504 => "GatewayTimeout",
        s if s < 500 => "InvalidRequest",
        _ => "InternalError",
    }
}

/// A budget that can be used up. Over it, what is new is refused with [`Kind::SlowDown`], and counted under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Requests in flight.
    Requests,
    /// Bytes held.
    Memory,
    /// Entries of batches in flight.
    Entries,
    /// Permits of a backend, where one was waited for in vain.
    Permits,
}

impl Budget {
    /// The label of its counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Memory => "memory",
            Self::Entries => "entries",
            Self::Permits => "permits",
        }
    }
}

/// A failure on its way to the answer.
#[derive(Debug)]
pub struct Error {
    /// What to tell the client.
    pub kind: Kind,
    /// One sentence for the client that names what is wrong.
    pub message: Cow<'static, str>,
    /// What the log may know beyond that.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The budget that was used up, if that was it.
    pub budget: Option<Budget>,
    /// The backend that was asked, by its name in the settings.
    pub backend: Option<String>,
    /// Further members of the answer's document, as S3 has them beside some codes: a name and a text, by the same rule as `message`.
    pub details: Vec<(&'static str, String)>,
}

/// The house's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind` with a sentence for the client.
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None, budget: None, backend: None, details: Vec::new() }
    }

    /// A refusal because `budget` is used up; the client may try again shortly.
    pub fn refused(budget: Budget, message: impl Into<Cow<'static, str>>) -> Self {
        Self { budget: Some(budget), ..Self::new(Kind::SlowDown, message) }
    }

    /// Adds a member to the answer's document.
    pub fn with_detail(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// `InvalidArgument` with the name and the value of what is wrong, as S3 has it.
    pub fn argument(message: impl Into<Cow<'static, str>>, name: &str, value: impl Into<String>) -> Self {
        Self::new(Kind::InvalidArgument, message).with_detail("ArgumentName", name).with_detail("ArgumentValue", value)
    }

    /// It came of asking the backend of this name. The log says so, and so does the message where it is the backend's fault, or
    /// ours with it, and not the client's: then somebody has to look after that backend. Unless the client `is_told` no name.
    pub fn of_backend(mut self, name: &str, is_told: bool) -> Self {
        if self.backend.is_none() {
            if is_told && (502..=504).contains(&self.kind.status()) {
                self.message = format!("{} (backend {name:?})", self.message).into();
            }
            self.backend = Some(name.to_owned());
        }
        self
    }

    /// Adds what only the log may see.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_of_a_fault_knows_which_backend_to_look_after() {
        let of = |kind, is_told| Error::new(kind, "no answer").of_backend("one", is_told).of_backend("two", true);
        let told = |kind| of(kind, true);
        for kind in [Kind::BadGateway, Kind::ServiceUnavailable, Kind::GatewayTimeout, Kind::SlowDown] {
            assert_eq!(told(kind).message, "no answer (backend \"one\")");
            let untold = of(kind, false);
            assert_eq!((untold.message.as_ref(), untold.backend.as_deref()), ("no answer", Some("one")));
        }
        for kind in [Kind::IncompleteBody, Kind::AccessDenied, Kind::NotImplemented, Kind::InternalError] {
            assert_eq!((told(kind).message.as_ref(), told(kind).backend.as_deref()), ("no answer", Some("one")));
        }
    }
}
