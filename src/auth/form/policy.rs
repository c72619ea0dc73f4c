//! The policy document of a form: until when, and what its fields may say. The decoded JSON enters; whether a form conforms to it
//! leaves, and the conditions that the store is to check again. Strict: a member or a condition that is not known is refused, so
//! that nothing its writer meant is skipped. Source:
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html>.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Form;
use crate::auth::claim::parse_date;
use crate::auth::reading;
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
    conditions: Vec<Written>,
}

/// A condition, and how it is told of: in brackets as its writer spelt it, as on S3.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    text: String,
    condition: Condition,
}

/// What one condition asks for; names as their writer spelt them, without the dollar sign.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Equals {
        name: String,
        value: String,
    },
    StartsWith {
        name: String,
        value: String,
    },
    Length {
        min: u64,
        max: u64,
    },
    /// A field without its dollar sign is none that a form can have.
    Never,
}

const INVALID_JSON: &str = "Invalid JSON.";

/// A member that stands twice is an error.
#[derive(serde::Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    expiration: Option<&'a RawValue>,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
}

impl PostPolicy {
    /// Reads a document.
    ///
    /// # Errors
    /// `InvalidPolicyDocument`, in S3's words.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let invalid = |why| Error::new(Kind::InvalidPolicyDocument, format!("Invalid Policy: {why}"));
        Self::read(&without_dollar_escapes(document)).map_err(invalid)
    }

    fn read(document: &[u8]) -> std::result::Result<Self, Cow<'static, str>> {
        let no_json = |_| INVALID_JSON;
        if document.trim_ascii().is_empty() {
            return Err("Expecting '{' but found End-of-Input".into());
        }
        let members: BTreeMap<String, IgnoredAny> = serde_json::from_slice(document).map_err(no_json)?;
        if let Some(name) = members.into_keys().find(|name| !matches!(name.as_str(), "expiration" | "conditions")) {
            return Err(format!("Unexpected: {name:?}").into());
        }
        let Document { expiration, conditions } = serde_json::from_slice(document).map_err(no_json)?;
        let expiration = expiration.ok_or("Policy missing expiration.")?;
        let expiration: String = serde_json::from_str(expiration.get()).map_err(no_json)?;
        let expires = seconds_of(&expiration).ok_or_else(|| format!("Invalid 'expiration' value: '{expiration}'"))?;
        let conditions = conditions.ok_or("Policy missing conditions.")?.get();
        let conditions: Vec<&RawValue> =
            serde_json::from_str(conditions).map_err(|_| "Invalid 'conditions' value: must be a List.")?;
        let conditions = conditions.into_iter().map(condition).collect::<std::result::Result<_, _>>()?;
        Ok(Self { expiration, expires, conditions })
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
        for Written { text, condition } in &self.conditions {
            let holds = match condition {
                Condition::Length { .. } => true,
                Condition::Never => false,
                Condition::Equals { name, value } => self::value(form, bucket, key, name).is_some_and(|is| is == value.as_bytes()),
                Condition::StartsWith { name, value } => {
                    let starts = |is: &[u8]| is.starts_with(value.as_bytes());
                    match self::value(form, bucket, key, name) {
                        Some(key) if name.eq_ignore_ascii_case("key") => reading::starts_with(key, value.as_bytes()),
                        Some(list) if name.eq_ignore_ascii_case("content-type") => {
                            list.split(|b| *b == b',').all(|one| starts(one.trim_ascii()))
                        }
                        is => is.is_some_and(starts),
                    }
                }
            };
            if !holds {
                return Err(denied(format!("Policy Condition failed: {text}")));
            }
        }
        let covered =
            |name: &str| self.conditions.iter().any(|c| c.condition.name().is_some_and(|named| named.eq_ignore_ascii_case(name)));
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
        self.conditions.iter().fold(0..=u64::MAX, |all, written| match &written.condition {
            Condition::Length { min, max } => *all.start().max(min)..=*all.end().min(max),
            _ => all,
        })
    }

    /// The conditions, as JSON, that mean the same to a store which knows signer and bucket by other names.
    pub fn conditions_for_store(&self) -> Vec<String> {
        let conditions = self.conditions.iter().map(|written| &written.condition);
        let kept = |condition: &&Condition| {
            !condition.name().is_some_and(|name| OF_THE_SIGNER.contains(&name.to_ascii_lowercase().as_str()))
        };
        conditions.filter(kept).map(Condition::to_string).collect()
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

/// `2007-12-01T12:00:00.000Z`, with or without the fraction, in seconds since 1970. Some write
/// the last day there is for "never".
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
    if !fits {
        return None;
    }
    // What is known of time ends within the last days of December 9999; the same day of another year shows whether it is one.
    let beyond = || parse_date(&format!("2000{}", &stamp[4..])).filter(|_| stamp.starts_with("999912")).map(|_| i64::MAX);
    parse_date(&stamp).map(|(_, seconds)| seconds).or_else(beyond)
}

impl Condition {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Equals { name, .. } | Self::StartsWith { name, .. } => Some(name),
            Self::Length { .. } | Self::Never => None,
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
            Self::Never => return f.write_str("[\"eq\", \"\", \"\"]"),
        };
        write!(f, "[\"{how}\", {}, {}]", json(&format!("${name}"))?, json(value)?)
    }
}

/// Reads one condition; otherwise what is wrong with it.
fn condition(raw: &RawValue) -> std::result::Result<Written, Cow<'static, str>> {
    let bad = Cow::Borrowed(INVALID_JSON);
    match serde_json::from_str(raw.get()) {
        Ok(Value::Object(members)) => {
            let mut members = members.into_iter();
            let (Some((name, value)), None) = (members.next(), members.next()) else {
                return Err("Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.".into());
            };
            let Value::String(value) = value else {
                return Err("Invalid Simple-Condition: value must be a string.".into());
            };
            let condition = Condition::Equals { name, value };
            Ok(Written { text: condition.to_string(), condition })
        }
        Ok(Value::Array(list)) => {
            let [how, arguments @ ..] = &list[..] else {
                return Err("Invalid Condition: missing operation identifier.".into());
            };
            let how = how.as_str().ok_or(bad.clone())?;
            let [first, second] = arguments else {
                return Err(match operation(how) {
                    Some(_) => format!("Invalid {how}: wrong number of arguments.").into(),
                    None => unknown(how),
                });
            };
            let condition = match operation(how).ok_or_else(|| unknown(how))? {
                Operation::Length => Condition::Length { min: number(first).ok_or(bad.clone())?, max: number(second).ok_or(bad)? },
                compares => {
                    let (name, value) = first.as_str().zip(second.as_str()).ok_or(bad)?;
                    match (name.strip_prefix('$').map(str::to_owned), value.to_owned(), compares) {
                        (None, ..) => Condition::Never,
                        (Some(name), value, Operation::Equals) => Condition::Equals { name, value },
                        (Some(name), value, _) => Condition::StartsWith { name, value },
                    }
                }
            };
            Ok(Written { text: raw.get().to_owned(), condition })
        }
        _ => Err("Invalid condition test: must be a List or Object.".into()),
    }
}

enum Operation {
    Equals,
    StartsWith,
    Length,
}

fn operation(how: &str) -> Option<Operation> {
    match how.to_ascii_lowercase().as_str() {
        "eq" => Some(Operation::Equals),
        "starts-with" => Some(Operation::StartsWith),
        "content-length-range" => Some(Operation::Length),
        _ => None,
    }
}

fn unknown(how: &str) -> Cow<'static, str> {
    format!("Invalid Condition: unknown operation '{how}'.").into()
}

/// A number, which some clients write as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
