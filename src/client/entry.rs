//! What a BatchGet asks for, as the members of its JSON. What enters are entries as a user names them; what leaves is the body
//! of the request, and whether an answer is one to an entry. Unknown members are refused here as they are by the gateway.

use serde::{Deserialize, Serialize};

use super::reader::{Wrong, wrong};
use crate::types::{ByteRange, ContentRange};

/// One object, as in `Objects[]` of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Entry {
    /// Bucket, where it is not the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Key, 1 to 1,024 bytes, byte-exact.
    pub key: String,
    /// Version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// One HTTP byte range, such as `bytes=0-1023`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// As the header of GetObject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// As the header of GetObject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_none_match: Option<String>,
    /// The caller's tag, echoed as `batch-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl Entry {
    /// The whole object at `key` in the request's bucket.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Holds the head of an answer that is no failure against what was asked for, whether it is a part of a batch or the answer
    /// to a GetObject: 206 exactly where there is a range, and then with the bytes of this range; 304 only where there is an
    /// `IfNoneMatch`; 200 otherwise.
    ///
    /// # Errors
    /// In which way it is the answer to something else. Its body must not be taken for the object.
    pub fn check(&self, status: u16, length: u64, content_range: Option<&[u8]>) -> Result<(), Wrong> {
        if status == 304 && self.if_none_match.is_some() {
            return if length == 0 { Ok(()) } else { wrong("a 304 has a body") };
        }
        let due = if self.range.is_some() { 206 } else { 200 };
        if status != due {
            return wrong(format!("its status is {status} where {due} is due"));
        }
        let Some(range) = &self.range else { return Ok(()) };
        let said = content_range.and_then(|said| std::str::from_utf8(said).ok());
        let came = said.and_then(|said| ContentRange::parse(said).ok());
        let asked = ByteRange::parse(range).ok();
        let fits = |came: &ContentRange| {
            asked.and_then(|asked| asked.resolve(came.total)).as_ref() == Some(&came.span)
                && came.span.end - came.span.start == length
        };
        match came {
            Some(came) if fits(&came) => Ok(()),
            _ => wrong(format!("its {length} bytes with Content-Range `{}` are not {range}", said.unwrap_or_default())),
        }
    }
}

/// What becomes of entries that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum OnError {
    /// A part with the error.
    #[default]
    Continue,
    /// The first one is the last part.
    Stop,
    /// No part.
    Omit,
}

/// In which order parts come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Order {
    /// As asked.
    #[default]
    Request,
    /// As they become whole.
    Completion,
}

/// The body of a BatchGet.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BatchRequest<'a> {
    /// What is asked for.
    pub objects: &'a [Entry],
    /// What becomes of entries that fail.
    pub on_error: OnError,
    /// In which order.
    pub order: Order,
}

impl<'a> BatchRequest<'a> {
    /// `objects` in their order, errors as parts.
    pub fn new(objects: &'a [Entry]) -> Self {
        Self { objects, on_error: OnError::Continue, order: Order::Request }
    }

    /// What an entry adds to the JSON, in bytes.
    pub fn entry_bytes(entry: &Entry) -> usize {
        serde_json::to_vec(entry).expect("texts are JSON").len() + 1
    }

    /// The JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and lists are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_held_against_what_was_asked_for() {
        let plain = Entry::new("k");
        let ranged = |range: &str| Entry { range: Some(range.into()), ..Entry::new("k") };
        let unless = |entry: Entry| Entry { if_none_match: Some("\"e\"".into()), ..entry };
        let holds = |entry: &Entry, status, length, said: &str| {
            entry.check(status, length, Some(said).filter(|said| !said.is_empty()).map(str::as_bytes)).is_ok()
        };
        assert!(holds(&plain, 200, 9, ""));
        assert!(holds(&unless(plain.clone()), 200, 9, "") && holds(&unless(plain.clone()), 304, 0, ""));
        for status in [201, 204, 206, 302, 304] {
            assert!(!holds(&plain, status, 0, "bytes 0-0/1"), "{status}");
        }
        assert!(!holds(&unless(plain.clone()), 302, 0, "") && !holds(&unless(plain), 304, 1, ""));
        for (range, length, said) in [
            ("bytes=2-4", 3, "bytes 2-4/9"),
            ("bytes=2-99", 7, "bytes 2-8/9"),
            ("bytes=7-", 2, "bytes 7-8/9"),
            ("bytes=-4", 4, "bytes 5-8/9"),
        ] {
            assert!(holds(&ranged(range), 206, length, said), "{range} {said}");
            assert!(holds(&unless(ranged(range)), 304, 0, "") && !holds(&ranged(range), 304, 0, ""));
            assert!(!holds(&ranged(range), 200, length, said), "a whole object is not its part");
            assert!(!holds(&ranged(range), 206, length + 1, said) && !holds(&ranged(range), 206, length, ""), "{range}");
            for other in ["bytes 0-0/9", "bytes 2-4/*", "bytes 2-3/9", "bytes 3-8/9", "bytes 2-4", "2-4/9", "bytes 2-4/5000"] {
                assert!(
                    !holds(&ranged(range), 206, length, other) || (range, other) == ("bytes=2-4", "bytes 2-4/5000"),
                    "{range} {other}"
                );
            }
        }
    }
}
