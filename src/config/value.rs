//! The three kinds of value that TOML lacks: durations, sizes and secrets. What enters is their text; what leaves is a
//! number with a unit, or a text that neither `Debug` nor a serialiser can show. Invariant: formatting what was parsed and
//! parsing it again gives the same value.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// Longest duration, a year: far below what overflows an instant.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Milliseconds of each unit of a duration, longest first.
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Bytes of each unit of a size, largest first.
const SIZE_UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads `"250ms"`, `"30s"`, `"10m"` or `"1h"`: a whole number and a unit.
///
/// # Errors
/// A sentence that says what a duration looks like, or that it is longer than a year.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let known = DURATION_UNITS.iter().find(|(name, _)| *name == unit);
    let (Ok(number), Some((_, scale))) = (number.parse::<u64>(), known) else {
        return Err(format!("{text:?} is no duration; write a whole number and ms, s, m or h, such as \"30s\""));
    };
    let duration = number.checked_mul(*scale).map(Duration::from_millis).filter(|d| *d <= DURATION_MAX);
    duration.ok_or_else(|| format!("{text:?} is longer than a year (\"8760h\")"))
}

/// Reads `"64MiB"`, `"512KiB"`, `"1GiB"`, `"1TiB"` or a plain number of bytes.
///
/// # Errors
/// A sentence that says what a size looks like, or that it does not fit 63 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale = if unit.is_empty() { Some(1) } else { SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, s)| *s) };
    let (Ok(number), Some(scale)) = (number.parse::<u64>(), scale) else {
        return Err(format!("{text:?} is no size; write bytes, or a whole number and KiB, MiB, GiB or TiB, such as \"64MiB\""));
    };
    let bytes = number.checked_mul(scale).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| format!("{text:?} is too large"))
}

/// The shortest text that [`parse_duration`] reads back as this; below a millisecond it is cut off.
pub fn format_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".into();
    }
    let (unit, scale) =
        DURATION_UNITS.iter().find(|(_, scale)| millis.is_multiple_of(*scale)).expect("every number is a multiple of 1");
    format!("{}{unit}", millis / scale)
}

/// The shortest text that [`parse_size`] reads back as this.
pub fn format_size(bytes: u64) -> String {
    match SIZE_UNITS.iter().find(|(_, scale)| bytes != 0 && bytes.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("{}{unit}", bytes / scale),
        None => bytes.to_string(),
    }
}

/// Splits after the leading digits; spaces between number and unit are no part of either.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim_start())
}

pub(super) fn as_duration<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*duration))
}

pub(super) fn as_size<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_size(*bytes))
}

/// A text that must not be seen. `Debug` and serialisers show `<hidden>`; [`Secret::expose`] is the only way to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What stands in its place.
    pub const HIDDEN: &'static str = "<hidden>";

    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for signing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(Self::HIDDEN)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// Stands for a duration in the schema.
#[derive(Debug)]
pub struct DurationText;

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A whole number and a unit, such as \"250ms\", \"30s\", \"10m\" or \"1h\".",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h)$",
        })
    }
}

/// Stands for a number of bytes in the schema.
#[derive(Debug)]
pub struct ByteSize;

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes: a plain number, or a whole number and a unit, such as \"512KiB\", \"64MiB\" or \"1GiB\".",
            "type": ["string", "integer"],
            "pattern": "^[0-9]+([KMGT]iB)?$",
            "minimum": 0,
        })
    }
}
