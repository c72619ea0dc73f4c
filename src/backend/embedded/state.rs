//! What the store holds: buckets, in them objects and uploads. Invariant: whatever is in here is whole and paid for; a write
//! takes effect in one step under one lock, which is never held while anyone waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::HeaderMap;

use super::date::Seconds;
use super::fault::{Done, Fault};
use super::listing::Key;
use super::object::{Coverage, Object};
use super::receive::Received;
use crate::budget::Reservation;
use crate::checksum::Algorithm;

/// All buckets by name.
#[derive(Default)]
pub struct State {
    pub buckets: BTreeMap<String, Bucket>,
}

/// One bucket.
pub struct Bucket {
    pub created: Seconds,
    pub objects: BTreeMap<Key, Arc<Object>>,
    /// By key and id, see [`upload_key`].
    pub uploads: BTreeMap<Key, Arc<Upload>>,
    _reservation: Reservation,
}

/// An upload in parts that is not complete.
pub struct Upload {
    pub key: Key,
    pub id: String,
    pub initiated: Seconds,
    /// Headers that the object will have.
    pub headers: HeaderMap,
    /// The checksum of the object and its parts, and whether the client asked for it.
    pub algorithm: Algorithm,
    pub coverage: Coverage,
    pub asked: bool,
    pub parts: Mutex<BTreeMap<u16, Arc<Part>>>,
    pub _reservation: Reservation,
}

/// A part that is here.
#[derive(Debug)]
pub struct Part {
    pub received: Received,
    pub modified: Seconds,
    /// Pays for a part whose data is another's.
    pub _reservation: Option<Reservation>,
}

impl Part {
    /// Without quotes.
    pub fn etag(&self) -> String {
        hex(&self.received.md5)
    }

    pub fn size(&self) -> u64 {
        self.received.data.len() as u64
    }
}

impl Bucket {
    pub fn new(created: Seconds, reservation: Reservation) -> Self {
        Self { created, objects: BTreeMap::new(), uploads: BTreeMap::new(), _reservation: reservation }
    }

    pub fn object(&self, key: &[u8]) -> Done<&Arc<Object>> {
        self.objects.get(key).ok_or_else(Fault::no_key)
    }

    pub fn upload(&self, key: &[u8], id: &str) -> Done<&Arc<Upload>> {
        self.uploads.get(&*upload_key(key, id)).ok_or_else(Fault::no_upload)
    }
}

impl State {
    pub fn bucket(&self, name: &str) -> Done<&Bucket> {
        self.buckets.get(name).ok_or_else(Fault::no_bucket)
    }

    pub fn bucket_mut(&mut self, name: &str) -> Done<&mut Bucket> {
        self.buckets.get_mut(name).ok_or_else(Fault::no_bucket)
    }
}

/// Where an upload stands among the others: by its key, and among those of one key by its id.
pub fn upload_key(key: &[u8], id: &str) -> Key {
    [key, b"\0", id.as_bytes()].concat().into()
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
