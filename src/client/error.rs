//! Why a client has no answer, in the few kinds that a caller acts on. Its text is for people: one line, and no secret in it.

use std::fmt;

use super::reader::Wrong;
use crate::backend::s3::{error_code, error_member};
use crate::backend::{BackendError, BackendErrorKind};

/// Longest message of an endpoint that is shown, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 500;

/// Why there is no answer, or not a whole one.
#[derive(Clone, Debug)]
pub enum ClientError {
    /// No connection; nothing was sent.
    Unreachable(String),
    /// There is nothing to sign with.
    NoCredentials(String),
    /// The endpoint answered with an error.
    Refused(Refusal),
    /// No S3 is at the path that the endpoint's URL has, or at the root where it has none; so says its error.
    NotHere(Refusal),
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
    /// `BucketName` of it, or empty.
    pub bucket: Box<str>,
    /// `x-amz-request-id` of the answer, or empty.
    pub request_id: String,
    /// Seconds of `Retry-After`.
    pub retry_after_seconds: Option<u64>,
}

impl Refusal {
    /// What the body of an error answer says.
    pub(super) fn read(status: u16, body: &[u8], request_id: String) -> Self {
        let code = error_code(body).unwrap_or_default();
        let message = error_member(body, "Message").map(for_people).unwrap_or_default();
        let bucket = error_member(body, "BucketName").unwrap_or_default().into();
        Self { status, code, message, bucket, request_id, retry_after_seconds: None }
    }
}

impl ClientError {
    /// Whether the same request may go well a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 500 | 502 | 503 | 504),
            Self::NoCredentials(_) | Self::NotHere(_) | Self::Wrong(_) => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(what) => write!(f, "cannot connect: {}", printable(what)),
            Self::NoCredentials(what) => write!(f, "no credentials: {}", printable(what)),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotHere(refusal) => write!(f, "there is no S3 at this path: {refusal}"),
            Self::Broken(what) => write!(f, "the answer broke off: {}", printable(what)),
            Self::Wrong(what) => write!(f, "the answer is not a right one: {}", printable(what)),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = if self.code.is_empty() { "no S3 error code" } else { &self.code };
        write!(f, "{} {}", self.status, printable(code))?;
        if !self.message.is_empty() {
            write!(f, ": {}", printable(&self.message))?;
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
            BackendErrorKind::Garbled | BackendErrorKind::HeadTooLarge | BackendErrorKind::Unframed => Self::Wrong(what),
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

/// A message of an endpoint, in bounds and without the white space around it.
fn for_people(text: String) -> String {
    let text = text.trim().replace(['\r', '\n', '\t'], " ");
    printable(&text.chars().take(MESSAGE_CHARACTERS_MAX).collect::<String>())
}

/// Text of a stranger as it may stand in a terminal, in one line: what moves the cursor, colours, or turns the direction of
/// writing is shown as an escape such as `\u{1b}`. Text that went through once stays as it is.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match is_unprintable(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    out
}

/// Control characters, line ends, and what turns the direction of writing (Unicode UAX #9).
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape() {
        assert_eq!(printable("plain é/鍵 \\ 🦀"), "plain é/鍵 \\ 🦀");
        assert_eq!(printable("a\u{1b}[2Jb\r\n\t\u{9b}\0"), "a\\u{1b}[2Jb\\r\\n\\t\\u{9b}\\u{0}");
        for turns in
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{2028}".chars()
        {
            assert_eq!(printable(&format!("a{turns}b")), format!("a\\u{{{:x}}}b", u32::from(turns)));
        }
        let once = printable("\u{202e}x");
        assert_eq!(printable(&once), once);
    }

    #[test]
    fn nothing_of_an_endpoint_reaches_a_terminal_as_it_is() {
        let body = "<Error><Code>NoSuch</Code><Message> two\nlines \u{202e}x\u{9b}y </Message></Error>";
        let refused = ClientError::Refused(Refusal::read(400, body.as_bytes(), String::new()));
        assert_eq!(refused.to_string(), "400 NoSuch: two lines \\u{202e}x\\u{9b}y");
        assert_eq!(ClientError::Wrong("\u{1b}[31m".into()).to_string(), "the answer is not a right one: \\u{1b}[31m");
    }
}
