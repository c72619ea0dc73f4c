//! Why a body was cut off. What is wrong with it, or what the body beneath failed with, enters; what leaves is told to the client
//! and to whoever sends the body on, who see the same. Pure.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Kind};

/// What the body beneath fails with.
type Source = Box<dyn StdError + Send + Sync>;

/// Why a body is not what was signed. Cheap to clone, because both the stream and the answer tell it.
#[derive(Clone, Debug)]
pub struct BodyError {
    /// What to tell the client.
    pub kind: Kind,
    /// One sentence for the client.
    pub message: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    details: Vec<(&'static str, String)>,
}

impl BodyError {
    pub(super) fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None, details: Vec::new() }
    }

    /// Adds a member to the answer's document.
    pub(super) fn with_detail(mut self, name: &'static str, text: String) -> Self {
        self.details.push((name, text));
        self
    }

    /// Adds what only the log may see.
    pub(super) fn because(self, what: impl Into<String>) -> Self {
        Self { source: Some(Arc::from(Source::from(what.into()))), ..self }
    }

    /// What the body beneath us failed with: its own kind if it has one, otherwise it broke off.
    pub(super) fn of_source(source: Source) -> Self {
        match source.downcast::<Error>() {
            Ok(error) => {
                Self { kind: error.kind, message: error.message, source: error.source.map(Arc::from), details: error.details }
            }
            Err(source) => {
                let message = "The body of the request ended before all of it had arrived.";
                Self { source: Some(Arc::from(source)), ..Self::new(Kind::IncompleteBody, message) }
            }
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        let answer = Self { details: error.details, ..Self::new(error.kind, error.message) };
        match error.source {
            Some(source) => answer.with_source(source),
            None => answer,
        }
    }
}

/// At least `length` bytes came, or are to come, of `max` that may.
pub(super) fn too_large(length: u64, max: u64) -> BodyError {
    BodyError::new(Kind::EntityTooLarge, "Your proposed upload exceeds the maximum allowed object size.")
        .with_detail("ProposedSize", length.to_string())
        .with_detail("MaxSizeAllowed", max.to_string())
}
