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
use crate::config::ENTRY_PARSED_BYTES_MAX;
use crate::error::{Error, Kind, Result};
use crate::types::{BucketName, ByteRange, EntryIndex, ObjectKey};

/// Longest `Id`, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// Longest JSON of one entry, in bytes: twice of what all its members take with every character escaped. It is copied for a
/// moment.
const ENTRY_JSON_BYTES_MAX: usize = 64 * 1024;

/// Most characters that a refusal repeats of what was wrong: it is held until the client has taken it.
const WRONG_CHARS_MAX: usize = 1000;

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

    /// How many bytes of memory it takes: itself, its texts and what their allocations take beside them. About as many as it
    /// does, and never fewer.
    pub fn cost(&self) -> u64 {
        let bucket = self.bucket.as_ref().map_or(0, |bucket| bucket.as_str().len() + SHARED_TEXT_BYTES);
        let options = self.options.as_deref().map_or(0, EntryOptions::cost);
        (size_of::<Self>() + self.key.as_str().len() + TEXT_BYTES + bucket + options) as u64
    }
}

/// What an allocation takes beside its bytes.
const TEXT_BYTES: usize = 16;

/// The same of a text that is shared, with its counts.
const SHARED_TEXT_BYTES: usize = 48;

/// Most bytes that [`Entry::cost`] has beside an entry's texts, and what it takes to see that no name of a tar comes twice.
const BESIDE_TEXTS: usize = size_of::<Entry>() + size_of::<EntryOptions>() + 3 * TEXT_BYTES + 4 * SHARED_TEXT_BYTES + 80;

const _: () = assert!(BESIDE_TEXTS as u64 <= ENTRY_PARSED_BYTES_MAX, "settings are checked with it");

/// Most bytes that [`parse`] takes beside the `body` that it reads, and so the entries after it: a text is never longer than its
/// JSON, and each entry has a brace.
pub fn parsed_bytes_max(body: &[u8], entries_max: usize) -> u64 {
    body.len() as u64 + places(body, entries_max) as u64 * ENTRY_PARSED_BYTES_MAX
}

/// For how many entries there is place: at least for all in `json`, up to the limit.
fn places(json: &[u8], entries_max: usize) -> usize {
    json.iter().filter(|byte| **byte == b'{').count().min(entries_max)
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

impl EntryOptions {
    fn cost(&self) -> usize {
        let version = self.version.as_deref().map_or(0, |version| version.len() + TEXT_BYTES);
        let headers = [&self.if_match, &self.if_none_match, &self.id].into_iter().flatten();
        size_of::<Self>() + TEXT_BYTES + version + headers.map(|value| value.len() + SHARED_TEXT_BYTES).sum::<usize>()
    }
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
    let invalid = |what: String| Error::new(Kind::InvalidArgument, short(&what));
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
        Some(other) => return Err(invalid(format!("OnError is {:?}; it must be Continue, Stop or Omit", short(other)))),
    };
    let order = match raw.order.as_deref() {
        None | Some("Request") => Order::Request,
        Some("Completion") => Order::Completion,
        Some(other) => return Err(invalid(format!("Order is {:?}; it must be Request or Completion", short(other)))),
    };
    let places = places(objects.get().as_bytes(), entries_max);
    let seed = Entries { max: entries_max, places, url_bucket: bucket.is_some(), too_many: &too_many };
    let mut entries =
        seed.deserialize(&mut serde_json::Deserializer::from_str(objects.get())).map_err(|e| match too_many.get() {
            true => Error::new(
                Kind::EntityTooLarge,
                format!("`Objects` has more entries than the limit of {entries_max} (Limits.Entries)"),
            ),
            false => invalid(without_position(&e)),
        })?;
    if entries.is_empty() {
        return Err(invalid("`Objects` is empty".into()));
    }
    entries.shrink_to_fit();
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

/// The beginning of a text that may be of any length.
fn short(text: &str) -> String {
    text.chars().take(WRONG_CHARS_MAX).collect()
}

struct Entries<'a> {
    max: usize,
    places: usize,
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
        // Grown by doubling it would take more than was paid for.
        let mut entries = Vec::with_capacity(self.places);
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
            if raw.get().len() > ENTRY_JSON_BYTES_MAX {
                return Err(wrong(format!("has {} bytes; it must have at most {ENTRY_JSON_BYTES_MAX}", raw.get().len())));
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
mod tests;
