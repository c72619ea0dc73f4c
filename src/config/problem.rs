//! What is wrong with settings, and where. What enters is an origin, a key and a sentence; what leaves is one line for
//! people or one object for scripts. Invariant: no text of a secret is ever part of a problem.

use std::fmt;

use serde::Serialize;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum Origin {
    /// The settings file, at a line that counts from 1.
    File {
        /// The file's name as the user gave it.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// Its name, with the dashes.
        flag: String,
    },
    /// Nobody gave it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag { flag } => write!(f, "flag {flag}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong. Its `Display` is `file:line: key: message`, and the origin in words where no file gave the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where the value came from.
    #[serde(flatten)]
    pub origin: Origin,
    /// The dotted key, such as `backends[0].concurrency`; empty where no key can be named.
    pub key: String,
    /// A sentence that says what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem with the value of `key`.
    pub fn new(origin: Origin, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { origin, key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return write!(f, "{}: {}", self.origin, self.message);
        }
        write!(f, "{}: {}: {}", self.origin, self.key, self.message)
    }
}

/// The one of `known` that `word` was most likely meant to be; nothing only where there is none to choose from.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Edits come first: they find a slip of the finger. Among equals, a shared beginning finds a shortened word.
    let far = |k: &str| (strsim::damerau_levenshtein(word, k), (1000.0 * (1.0 - strsim::jaro_winkler(word, k))) as u32);
    known.into_iter().min_by_key(|k| far(k))
}
