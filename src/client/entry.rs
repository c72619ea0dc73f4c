//! What a BatchGet asks for, as the members of its JSON. What enters are entries as a user names them; what leaves is the body
//! of the request. Unknown members are refused here as they are by the gateway.

use serde::{Deserialize, Serialize};

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

    /// The JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and lists are JSON")
    }
}
