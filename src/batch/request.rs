//! The body of a BatchGet, read strictly: bytes in, a [`BatchRequest`] out whose every member is valid, or an error that names
//! what is wrong and where. Unknown and duplicate members are refused, `null` is the same as absent. [`archive`] has the rules
//! of answers that are archives.

mod archive;

use std::cell::Cell;

use http::HeaderValue;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::encode::member::Naming;
use super::encode::{Format, PartName};
use crate::error::{Error, Kind, Result};
use crate::types::{BucketName, ByteRange, EntryIndex, ObjectKey};

/// Longest `Id`, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// Longest `VersionId`, `IfMatch` and `IfNoneMatch`, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// What a client asked for.
#[derive(Debug)]
pub struct BatchRequest {
    /// In the order asked.
    pub entries: Vec<Entry>,
    /// What a failed entry does to the rest.
    pub on_error: OnError,
    /// In which order parts are written.
    pub order: Order,
    /// Whether a summary was asked for.
    pub summary: bool,
}

impl BatchRequest {
    /// Whether the answer ends in a summary: asked for, or owed because its parts alone could not show that it is whole.
    pub fn has_summary(&self) -> bool {
        self.summary || self.on_error != OnError::Continue
    }

    /// The buckets of its entries, of which `bucket` is that of entries that name none; each once for a run of entries.
    pub fn buckets<'a>(&'a self, bucket: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        let mut last = None;
        let all = self.entries.iter().filter_map(move |entry| entry.bucket.as_ref().map(|own| own.as_str()).or(bucket));
        all.filter(move |bucket| last.replace(*bucket) != Some(*bucket))
    }

    /// How an archive's members are named that have no `Id`.
    pub fn naming(&self) -> Naming {
        if self.entries.iter().any(|entry| entry.bucket.is_some()) { Naming::BucketAndKey } else { Naming::Key }
    }
}

/// One object asked for. Small, because there may be many: what few entries have is behind a pointer.
#[derive(Debug)]
pub struct Entry {
    /// The object's key.
    pub key: ObjectKey,
    /// Its bucket, if the entry names one.
    pub bucket: Option<BucketName>,
    /// The rarer members.
    pub options: Option<Box<EntryOptions>>,
}

impl Entry {
    /// What its part is named by; `bucket` is that of entries that name none.
    pub fn part<'a>(&'a self, index: EntryIndex, bucket: &'a str) -> PartName<'a> {
        let id = self.options.as_deref().and_then(|options| options.id.as_ref());
        PartName { index, id, bucket: self.bucket.as_ref().map_or(bucket, |own| own.as_str()), key: self.key.as_str() }
    }

    /// About how many bytes of memory it takes.
    pub fn cost(&self) -> u64 {
        let options = self.options.as_deref().map_or(0, |o| size_of::<EntryOptions>() + o.version.as_deref().map_or(0, str::len));
        (size_of::<Self>() + self.key.as_str().len() + options) as u64
    }
}

/// The rarer members of an entry.
#[derive(Debug, Default)]
pub struct EntryOptions {
    /// `VersionId`
    pub version: Option<Box<str>>,
    /// `IfMatch`
    pub if_match: Option<HeaderValue>,
    /// `IfNoneMatch`
    pub if_none_match: Option<HeaderValue>,
    /// `Range`
    pub range: Option<ByteRange>,
    /// `Id`
    pub id: Option<HeaderValue>,
}

/// What a failed entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is a part that carries its error.
    Continue,
    /// It is the last part.
    Stop,
    /// It leaves no part.
    Omit,
}

/// The order of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As asked.
    Request,
    /// As they become whole.
    Completion,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, expecting = "an object with the member `Objects`")]
struct RawBatch<'a> {
    #[serde(borrow)]
    objects: Option<&'a RawValue>,
    on_error: Option<String>,
    order: Option<String>,
    summary: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, expecting = "an object with the member `Key`")]
struct RawEntry {
    key: Option<String>,
    bucket: Option<String>,
    version_id: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    range: Option<String>,
    id: Option<String>,
}

/// Reads the body. More than `entries_max` entries are refused before the rest of them is looked at; where the URL names no
/// `bucket` every entry must name its own. `format` is that of the answer.
pub fn parse(body: &[u8], entries_max: usize, bucket: Option<&str>, format: Format) -> Result<BatchRequest> {
    let invalid = |what: String| Error::new(Kind::InvalidArgument, what);
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(invalid("the body is not a BatchGet: it must be a JSON object with the member `Objects`".into()));
    }
    let raw: RawBatch<'_> = serde_json::from_slice(body).map_err(|e| invalid(format!("the body is not a BatchGet: {e}")))?;
    // A literal null is a RawValue of its own.
    let objects = raw.objects.filter(|o| o.get() != "null").ok_or_else(|| invalid("`Objects` is missing".into()))?;
    let too_many = Cell::new(false);
    let on_error = match raw.on_error.as_deref() {
        None if format == Format::Tar => OnError::Stop,
        None | Some("Continue") => OnError::Continue,
        Some("Stop") => OnError::Stop,
        Some("Omit") => OnError::Omit,
        Some(other) => return Err(invalid(format!("OnError is {other:?}; it must be Continue, Stop or Omit"))),
    };
    let order = match raw.order.as_deref() {
        None | Some("Request") => Order::Request,
        Some("Completion") => Order::Completion,
        Some(other) => return Err(invalid(format!("Order is {other:?}; it must be Request or Completion"))),
    };
    let seed = Entries { max: entries_max, url_bucket: bucket.is_some(), too_many: &too_many };
    let entries = seed.deserialize(&mut serde_json::Deserializer::from_str(objects.get())).map_err(|e| match too_many.get() {
        true => {
            Error::new(Kind::EntityTooLarge, format!("`Objects` has more entries than the limit of {entries_max} (Limits.Entries)"))
        }
        false => invalid(without_position(&e)),
    })?;
    if entries.is_empty() {
        return Err(invalid("`Objects` is empty".into()));
    }
    let batch = BatchRequest { entries, on_error, order, summary: raw.summary.unwrap_or(false) };
    if format == Format::Tar {
        archive::check(&batch, bucket.unwrap_or_default()).map_err(invalid)?;
    }
    Ok(batch)
}

/// serde_json's position is relative to the array and would mislead; the entry's index, which we add, does not.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

struct Entries<'a> {
    max: usize,
    url_bucket: bool,
    too_many: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Vec<Entry>, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("`Objects` to be an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Vec<Entry>, A::Error> {
        use serde::de::Error as _;
        let mut entries = Vec::new();
        loop {
            let index = entries.len();
            let Some(raw) = seq.next_element::<&RawValue>()? else { return Ok(entries) };
            if index == self.max {
                self.too_many.set(true);
                return Err(A::Error::custom("too many"));
            }
            let wrong = |e: String| A::Error::custom(format!("Objects[{index}]: {e}"));
            // serde would take an array for a struct, by the order of its members.
            if !raw.get().starts_with('{') {
                return Err(wrong("not an object with the member `Key`".into()));
            }
            let raw: RawEntry = serde_json::from_str(raw.get()).map_err(|e| wrong(without_position(&e)))?;
            entries.push(entry(raw, self.url_bucket).map_err(|what| A::Error::custom(format!("Objects[{index}].{what}")))?);
        }
    }
}

fn entry(raw: RawEntry, url_bucket: bool) -> std::result::Result<Entry, String> {
    let key = raw.key.ok_or("Key is missing")?;
    let key =
        ObjectKey::new(&key).ok_or_else(|| format!("Key has {} bytes; it must have 1 to {}", key.len(), ObjectKey::BYTES_MAX))?;
    let bucket = match raw.bucket {
        Some(name) => Some(BucketName::new(&name).ok_or("Bucket must be 1 to 255 of [A-Za-z0-9._-], and not `.` or `..`")?),
        None if url_bucket => None,
        None => return Err("Bucket is missing, and the URL names none".into()),
    };
    let range = raw.range.map(|text| ByteRange::parse(&text).map_err(|_| RANGE)).transpose()?;
    let version = raw.version_id.map(|text| visible(text, "VersionId", TEXT_BYTES_MAX, true)).transpose()?;
    let if_match = raw.if_match.map(|text| header(text, "IfMatch", TEXT_BYTES_MAX, true)).transpose()?;
    let if_none_match = raw.if_none_match.map(|text| header(text, "IfNoneMatch", TEXT_BYTES_MAX, true)).transpose()?;
    let id = raw.id.map(|text| header(text, "Id", ID_BYTES_MAX, false)).transpose()?;
    let plain = version.is_none() && if_match.is_none() && if_none_match.is_none() && range.is_none() && id.is_none();
    let options = EntryOptions { version: version.map(String::into_boxed_str), if_match, if_none_match, range, id };
    Ok(Entry { key, bucket, options: (!plain).then(|| Box::new(options)) })
}

const RANGE: &str =
    "Range must be one of `bytes=a-b` (a <= b), `bytes=a-`, `bytes=-n` (n >= 1), with at most 19 digits and no spaces";

fn visible(text: String, member: &str, max: usize, spaces: bool) -> std::result::Result<String, String> {
    let fit = (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || (spaces && b == b' '));
    let or_spaces = if spaces { " or spaces" } else { "" };
    if fit { Ok(text) } else { Err(format!("{member} must be 1 to {max} visible ASCII characters{or_spaces}")) }
}

fn header(text: String, member: &str, max: usize, spaces: bool) -> std::result::Result<HeaderValue, String> {
    let text = visible(text, member, max, spaces)?;
    Ok(HeaderValue::from_str(&text).expect("visible ASCII is a header value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> (Kind, String) {
        let error = parse(body.as_bytes(), 3, None, Format::Multipart).expect_err(body);
        (error.kind, error.message.into_owned())
    }

    #[test]
    fn a_whole_request_is_read_as_the_contract_says() {
        let body = r#"{"Objects": [{"Key": "a//../é", "Bucket": "b", "Id": "l-1", "Range": "bytes=0-1"},
            {"Key": "x", "Bucket": "B", "VersionId": null, "IfMatch": "\"9b2c\""}], "OnError": "Omit", "Order": "Completion", "Summary": null}"#;
        let batch = parse(body.as_bytes(), 2, None, Format::Multipart).expect("valid");
        assert_eq!(batch.entries[0].key.as_str(), "a//../é");
        assert_eq!(batch.entries[1].options.as_ref().expect("some").if_match.as_ref().expect("some"), "\"9b2c\"");
        assert_eq!((batch.on_error, batch.order, batch.summary), (OnError::Omit, Order::Completion, false));
        assert!(batch.has_summary());
        let batch = parse(br#"{"Objects": [{"Key": "x"}], "OnError": null}"#, 2, Some("b"), Format::Multipart).expect("valid");
        assert_eq!((batch.on_error, batch.order, batch.has_summary()), (OnError::Continue, Order::Request, false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let entry = |members: &str| format!(r#"{{"Objects": [{{"Key": "k", "Bucket": "b"}}, {{"Bucket": "b", {members}}}]}}"#);
        let key = |n| entry(&format!(r#""Key": "{}""#, "k".repeat(n)));
        for (body, named) in [
            ("{".to_owned(), "not a BatchGet"),
            ("[]".to_owned(), "Objects"),
            ("{}".to_owned(), "`Objects` is missing"),
            (r#"{"Objects": null}"#.to_owned(), "`Objects` is missing"),
            (r#"{"Objects": []}"#.to_owned(), "`Objects` is empty"),
            (r#"{"Objects": {}}"#.to_owned(), "`Objects` to be an array"),
            (r#"{"Objects": [], "Object": 1}"#.to_owned(), "`Object`"),
            (r#"{"Objects": [], "Summary": true, "Summary": true}"#.to_owned(), "`Summary`"),
            (r#"{"Objects": [], "OnError": "continue"}"#.to_owned(), "OnError is \"continue\""),
            (r#"{"Objects": []} x"#.to_owned(), "trailing"),
            (r#"{"Objects": [{"Key": "k"}]}"#.to_owned(), "Objects[0].Bucket is missing"),
            (entry(r#""Key": "k", "Member": "x""#), "Objects[1]: unknown field `Member`"),
            (entry(r#""Key": "k", "Key": "k""#), "Objects[1]: duplicate field `Key`"),
            (r#"{"Objects": [["k", "b", null, null, null, null, null]]}"#.to_owned(), "Objects[0]: not an object"),
            (r#"[[{"Key": "k", "Bucket": "b"}], null, null, null]"#.to_owned(), "must be a JSON object"),
            (entry(r#""Key": 5"#), "Objects[1]: invalid type"),
            (entry(r#""Key": null"#), "Objects[1].Key is missing"),
            (key(0), "Objects[1].Key has 0 bytes"),
            (key(1025), "Objects[1].Key has 1025 bytes"),
            (entry(r#""Key": "k", "Range": "bytes=2-1""#), "Objects[1].Range"),
            (entry(r#""Key": "k", "Id": "a b""#), "Objects[1].Id"),
            (entry(r#""Key": "k", "Id": """#), "Objects[1].Id"),
            (entry(r#""Key": "k", "IfMatch": "\u00e9""#), "Objects[1].IfMatch"),
            (entry(r#""Key": "k", "IfNoneMatch": "a\nb""#), "Objects[1].IfNoneMatch"),
            (entry(r#""Key": "k", "VersionId": """#), "Objects[1].VersionId"),
            (r#"{"Objects": [{"Key": "k", "Bucket": "a/b"}]}"#.to_owned(), "Objects[0].Bucket"),
        ] {
            let (kind, message) = refusal(&body);
            assert_eq!(kind, Kind::InvalidArgument, "{body}");
            assert!(message.contains(named), "{message} should name {named}");
        }
        let invalid_utf8 = parse(b"{\"Objects\": [{\"Key\": \"\xff\"}]}", 3, Some("b"), Format::Multipart).expect_err("not UTF-8");
        assert_eq!(invalid_utf8.kind, Kind::InvalidArgument);
    }

    #[test]
    fn too_many_entries_are_refused_with_the_limit() {
        let body = format!(r#"{{"Objects": [{}]}}"#, [r#"{"Key": "k", "Bucket": "b"}"#; 4].join(","));
        let (kind, message) = refusal(&body);
        assert_eq!(kind, Kind::EntityTooLarge);
        assert!(message.contains("limit of 3"), "{message}");
    }
}
