//! The types that a key can want. What enters is a node; what leaves is its value, or a sentence that says what was wanted.
//! A TOML value must have the type itself; the plain text of an environment variable is read as the type that is wanted.
//! Invariant: the text of a plain string, which may be a secret, is in no sentence.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;

use super::reader::{Read, Reader, describe};
use super::tree::{Kind, Node};
use super::value::{parse_duration, parse_size};
use super::{Addressing, BackendKind, Checksums, LogFormat, PayloadSigning};

/// A type that is written as one scalar.
trait Scalar: Sized {
    /// What is wanted, in words.
    const WANTED: &'static str;

    /// A list of them in TOML.
    const LISTED: &'static str = "[\"first\", \"second\"]";

    /// From a TOML scalar; `Err` is a sentence, or nothing where only the type is wrong.
    fn from_toml(value: &Value) -> Result<Self, Option<String>>;

    /// From the plain text of an environment variable.
    fn from_text(text: &str) -> Result<Self, Option<String>>;
}

impl<T: Scalar> Read for T {
    fn read(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<Self> {
        let read = match &node.kind {
            Kind::Scalar(value) => T::from_toml(value),
            Kind::Text(text) => T::from_text(unquoted(text).as_deref().unwrap_or(text)),
            Kind::Array(_) | Kind::Table(_) => Err(None),
        };
        let message = match read {
            Ok(value) => return Some(value),
            Err(Some(message)) => message,
            Err(None) if matches!(node.kind, Kind::Text(_)) => format!("expected {}", T::WANTED),
            Err(None) => format!("expected {}, found {}", T::WANTED, describe(&node.kind)),
        };
        reader.problem(&node.origin, path, message);
        None
    }
}

/// A variable whose text is a quoted TOML string means what is inside the quotes.
fn unquoted(text: &str) -> Option<String> {
    let quoted = text.starts_with(['"', '\'']);
    quoted.then(|| text.parse::<Value>().ok())?.and_then(|value| value.as_str().map(str::to_owned))
}

impl<T: Scalar> Read for Vec<T> {
    fn read(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<Self> {
        if matches!(&node.kind, Kind::Text(text) if !text.trim_start().starts_with('[')) {
            reader.problem(&node.origin, path, format!("expected a list, written such as '{}'", T::LISTED));
            return None;
        }
        let elements = reader.elements(node, path)?;
        let read = |(path, node): (String, Node)| {
            reader.origins.insert(path.clone(), node.origin.clone());
            T::read(&node, &path, reader)
        };
        elements.into_iter().map(read).collect::<Vec<_>>().into_iter().collect()
    }
}

impl Scalar for String {
    const WANTED: &'static str = "a string";
    const LISTED: &'static str = "[\"s3.example.com\"]";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        value.as_str().map(str::to_owned).ok_or(None)
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        Ok(text.to_owned())
    }
}

impl Scalar for bool {
    const WANTED: &'static str = "true or false";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        value.as_bool().ok_or(None)
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| None)
    }
}

impl Scalar for usize {
    const WANTED: &'static str = "a whole number, 0 or more";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        let number = value.as_integer().ok_or(None)?;
        Self::try_from(number).map_err(|_| Some(format!("expected {}, found {number}", Self::WANTED)))
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| None)
    }
}

/// A number of bytes.
impl Scalar for u64 {
    const WANTED: &'static str = "a size such as \"64MiB\", or a number of bytes";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        match value {
            Value::String(text) => Self::from_text(text),
            Value::Integer(number) => {
                Self::try_from(*number).map_err(|_| Some(format!("expected {}, found {number}", Self::WANTED)))
            }
            _ => Err(None),
        }
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        parse_size(text).map_err(Some)
    }
}

impl Scalar for f64 {
    const WANTED: &'static str = "a number";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        // An integer that is written where a share is wanted, such as 0, is meant as one.
        value.as_float().or_else(|| value.as_integer().map(|n| n as Self)).ok_or(None)
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| None)
    }
}

impl Scalar for Duration {
    const WANTED: &'static str = "a duration such as \"30s\"";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?)
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        parse_duration(text).map_err(Some)
    }
}

impl Scalar for SocketAddr {
    const WANTED: &'static str = "an address and a port such as \"127.0.0.1:9000\"";
    const LISTED: &'static str = "[\"0.0.0.0:9000\"]";
    fn from_toml(value: &Value) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?)
    }
    fn from_text(text: &str) -> Result<Self, Option<String>> {
        text.parse().map_err(|_| Some(format!("{text:?} is not {}", Self::WANTED)))
    }
}

/// Implements [`Scalar`] for a choice of words.
macro_rules! words {
    ($type:ty, $wanted:literal, $($word:literal => $value:expr),+) => {
        impl Scalar for $type {
            const WANTED: &'static str = $wanted;
            fn from_toml(value: &Value) -> Result<Self, Option<String>> {
                Self::from_text(value.as_str().ok_or(None)?)
            }
            fn from_text(text: &str) -> Result<Self, Option<String>> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(Some(format!("{text:?} is not {}", Self::WANTED))),
                }
            }
        }
    };
}

words!(Addressing, "\"path\" or \"virtual\"", "path" => Self::Path, "virtual" => Self::Virtual);
words!(LogFormat, "\"text\" or \"json\"", "text" => Self::Text, "json" => Self::Json);
words!(BackendKind, "\"s3\" or \"embedded\"", "s3" => Self::S3, "embedded" => Self::Embedded);
words!(Checksums, "\"forward\" or \"verify\"", "forward" => Self::Forward, "verify" => Self::Verify);
words!(PayloadSigning, "\"when-known\", \"never\" or \"always\"",
    "when-known" => Self::WhenKnown, "never" => Self::Never, "always" => Self::Always);
