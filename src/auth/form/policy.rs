//! The policy document of a form: until when, and what its fields may say. The decoded JSON enters; whether a form conforms to it
//! leaves, and the conditions that the store is to check again. Strict: a member or a condition that is not known is refused, so
//! that nothing its writer meant is skipped. Source:
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html>.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::Form;
use crate::auth::claim::parse_date;
use crate::error::{Error, Kind, Result};

/// Fields that no condition need name: what is signed, the signature, and the file, which is none of these fields.
const UNCONDITIONAL: &[&str] = &["policy", "signature", "awsaccesskeyid", "x-amz-signature", "file"];

/// Fields with this prefix are for others than S3.
const IGNORED_PREFIX: &str = "x-ignore-";

/// Fields by which a form says who signed it and for which bucket. A store knows the signer by another name, and maybe the bucket.
pub const OF_THE_SIGNER: &[&str] = &[
    "awsaccesskeyid",
    "bucket",
    "policy",
    "signature",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-signature",
];

/// A parsed policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostPolicy {
    /// As its writer spelt it.
    pub expiration: String,
    /// `expiration` in seconds since 1970.
    expires: i64,
    conditions: Vec<Condition>,
}

/// What one condition asks for; names as their writer spelt them, without the dollar sign.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Equals { name: String, value: String },
    StartsWith { name: String, value: String },
    Length { min: u64, max: u64 },
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    expiration: String,
    conditions: Vec<Condition>,
}

impl PostPolicy {
    /// Reads a document.
    ///
    /// # Errors
    /// `InvalidPolicyDocument`, with the place.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let invalid = |why: &dyn fmt::Display| Error::new(Kind::InvalidPolicyDocument, format!("Invalid Policy: {why}."));
        let document: Document = serde_json::from_slice(&without_dollar_escapes(document)).map_err(|error| invalid(&error))?;
        let expires = seconds_of(&document.expiration).ok_or_else(|| invalid(&"expiration must be like 2026-11-30T12:00:00Z"))?;
        Ok(Self { expiration: document.expiration, expires, conditions: document.conditions })
    }

    /// Whether `form` conforms: an upload to `bucket` of `key`, which is its field with the file's name filled in, at `now` in
    /// seconds since 1970.
    ///
    /// # Errors
    /// `AccessDenied` in S3's words, with the condition or the field.
    pub fn check(&self, form: &Form, bucket: &str, key: &str, now: i64) -> Result<()> {
        let denied = |why: String| Error::new(Kind::AccessDenied, format!("Invalid according to Policy: {why}"));
        if now > self.expires {
            return Err(denied("Policy expired.".to_owned()));
        }
        // The bucket is the request's; a field that names it, as some clients send, must say the same.
        if form.get("bucket").is_some_and(|named| named != bucket.as_bytes()) {
            return Err(denied("the field bucket names another bucket than the request".to_owned()));
        }
        for condition in &self.conditions {
            let holds = match condition {
                Condition::Length { .. } => true,
                Condition::Equals { name, value } => self::value(form, bucket, key, name).is_some_and(|is| is == value.as_bytes()),
                Condition::StartsWith { name, value } => {
                    let starts = |is: &[u8]| is.starts_with(value.as_bytes());
                    match self::value(form, bucket, key, name) {
                        Some(list) if name.eq_ignore_ascii_case("content-type") => {
                            list.split(|b| *b == b',').all(|one| starts(one.trim_ascii()))
                        }
                        is => is.is_some_and(starts),
                    }
                }
            };
            if !holds {
                return Err(denied(format!("Policy Condition failed: {condition}")));
            }
        }
        let covered = |name: &str| self.conditions.iter().any(|c| c.name().is_some_and(|named| named.eq_ignore_ascii_case(name)));
        let free = |name: &str| {
            let name = name.to_ascii_lowercase();
            UNCONDITIONAL.contains(&name.as_str()) || name.starts_with(IGNORED_PREFIX)
        };
        let names = form.fields.iter().map(|field| field.name.as_str());
        match names.chain(["bucket"]).find(|name| !free(name) && !covered(name)) {
            None => Ok(()),
            Some(name) => Err(denied(format!("Extra input fields: {name}"))),
        }
    }

    /// The lengths that the file may have, in bytes: those that all of its conditions allow.
    pub fn lengths(&self) -> RangeInclusive<u64> {
        self.conditions.iter().fold(0..=u64::MAX, |all, condition| match condition {
            Condition::Length { min, max } => *all.start().max(min)..=*all.end().min(max),
            _ => all,
        })
    }

    /// The conditions, as JSON, that mean the same to a store which knows signer and bucket by other names.
    pub fn conditions_for_store(&self) -> Vec<String> {
        let kept = |condition: &&Condition| {
            !condition.name().is_some_and(|name| OF_THE_SIGNER.contains(&name.to_ascii_lowercase().as_str()))
        };
        self.conditions.iter().filter(kept).map(Condition::to_string).collect()
    }
}

/// What the field of a condition says.
fn value<'a>(form: &'a Form, bucket: &'a str, key: &'a str, name: &str) -> Option<&'a [u8]> {
    match name.to_ascii_lowercase().as_str() {
        "bucket" => Some(bucket.as_bytes()),
        "key" => Some(key.as_bytes()),
        name => form.get(name),
    }
}

/// S3 has `\$` for a dollar sign in its strings, JSON has not.
fn without_dollar_escapes(document: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.len());
    let mut bytes = document.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b'$')) => {}
            (b'\\', Some(next)) => {
                out.extend([byte, *next]);
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
    out
}

/// `2007-12-01T12:00:00.000Z`, with or without the fraction, in seconds since 1970.
fn seconds_of(text: &str) -> Option<i64> {
    let time = text.strip_suffix('Z')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let shaped = time.len() == 19
        && time.bytes().enumerate().all(|(at, b)| match at {
            4 | 7 => b == b'-',
            10 => b == b'T',
            13 | 16 => b == b':',
            _ => b.is_ascii_digit(),
        });
    let fits = shaped && !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let stamp = format!("{}Z", time.replace(['-', ':'], ""));
    fits.then(|| parse_date(&stamp)).flatten().map(|(_, seconds)| seconds)
}

impl Condition {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Equals { name, .. } | Self::StartsWith { name, .. } => Some(name),
            Self::Length { .. } => None,
        }
    }
}

/// As JSON, in the form with brackets.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |text: &str| serde_json::to_string(text).map_err(|_| fmt::Error);
        let (how, name, value) = match self {
            Self::Equals { name, value } => ("eq", name, value),
            Self::StartsWith { name, value } => ("starts-with", name, value),
            Self::Length { min, max } => return write!(f, "[\"content-length-range\", {min}, {max}]"),
        };
        write!(f, "[\"{how}\", {}, {}]", json(&format!("${name}"))?, json(value)?)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(ConditionVisitor)
    }
}

struct ConditionVisitor;

/// A number, which some clients write as text.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Text(String),
}

impl<'de> Visitor<'de> for ConditionVisitor {
    type Value = Condition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a condition: {\"field\": \"value\"} or [\"eq\" or \"starts-with\", \"$field\", \"value\"] or [\"content-length-range\", min, max]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Condition, A::Error> {
        let (name, value) = map.next_entry()?.ok_or_else(|| A::Error::custom("a condition is empty"))?;
        if map.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("a condition in braces must have exactly one field"));
        }
        Ok(Condition::Equals { name, value })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Condition, A::Error> {
        let short = |at| A::Error::invalid_length(at, &"three members of a condition");
        let how: String = list.next_element()?.ok_or_else(|| short(0))?;
        let condition = if how.eq_ignore_ascii_case("content-length-range") {
            let mut number = |at| match list.next_element()?.ok_or_else(|| short(at))? {
                Number::Plain(number) => Ok(number),
                Number::Text(text) => text.parse().map_err(|_| A::Error::custom("a length must be a number of bytes")),
            };
            Condition::Length { min: number(1)?, max: number(2)? }
        } else {
            let name: String = list.next_element()?.ok_or_else(|| short(1))?;
            let name =
                name.strip_prefix('$').ok_or_else(|| A::Error::custom("a field must be named with a dollar sign"))?.to_owned();
            let value = list.next_element()?.ok_or_else(|| short(2))?;
            match how.to_ascii_lowercase().as_str() {
                "eq" => Condition::Equals { name, value },
                "starts-with" => Condition::StartsWith { name, value },
                _ => return Err(A::Error::custom("a condition must be eq, starts-with or content-length-range")),
            }
        };
        match list.next_element::<serde::de::IgnoredAny>()? {
            None => Ok(condition),
            Some(_) => Err(A::Error::invalid_length(4, &"three members of a condition")),
        }
    }
}
