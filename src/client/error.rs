//! Why a client has no answer, in the few kinds that a caller acts on. Its text is for people: one line, and no secret in it.

use std::fmt;

use super::reader::Wrong;
use crate::backend::{BackendError, BackendErrorKind};

/// Why there is no answer, or not a whole one.
#[derive(Clone, Debug)]
pub enum ClientError {
    /// No connection; nothing was sent.
    Unreachable(String),
    /// There is nothing to sign with.
    NoCredentials(String),
    /// The endpoint answered with an error.
    Refused(Refusal),
    /// The connection or the answer broke off: what is missing may be asked for again.
    Broken(String),
    /// The answer is not what the contract says. Asking again would not help.
    Wrong(String),
}

/// An S3 error answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// `Code` of the S3 error, or empty where the body is none.
    pub code: String,
    /// `Message` of it.
    pub message: String,
    /// `x-amz-request-id` of the answer, or empty.
    pub request_id: String,
    /// Seconds of `Retry-After`.
    pub retry_after_seconds: Option<u64>,
}

impl ClientError {
    /// Whether the same request may go well a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 500 | 502 | 503 | 504),
            Self::NoCredentials(_) | Self::Wrong(_) => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(what) => write!(f, "cannot connect: {what}"),
            Self::NoCredentials(what) => write!(f, "no credentials: {what}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Broken(what) => write!(f, "the answer broke off: {what}"),
            Self::Wrong(what) => write!(f, "the answer is not a right one: {what}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = if self.code.is_empty() { "no S3 error code" } else { &self.code };
        write!(f, "{} {code}", self.status)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if self.request_id.is_empty() { Ok(()) } else { write!(f, " (request id {})", self.request_id) }
    }
}

impl std::error::Error for ClientError {}

impl From<BackendError> for ClientError {
    fn from(error: BackendError) -> Self {
        let what = chain(error.source.as_ref());
        match error.kind {
            BackendErrorKind::Unreachable => Self::Unreachable(what),
            BackendErrorKind::NoCredentials => Self::NoCredentials(what),
            BackendErrorKind::NoAnswer | BackendErrorKind::RequestBody => Self::Broken(what),
            BackendErrorKind::Garbled | BackendErrorKind::HeadTooLarge => Self::Wrong(what),
        }
    }
}

impl From<Wrong> for ClientError {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong.0)
    }
}

/// An error with what caused it, the outermost first, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Many errors repeat their cause in their own text.
        if !text.contains(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        next = cause.source();
    }
    text.replace(['\r', '\n'], " ")
}
