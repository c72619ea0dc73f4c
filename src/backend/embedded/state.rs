//! What the store holds: buckets, in them objects and uploads. Invariant: whatever is in here is whole and paid for; a write
//! takes effect in one step under one lock, which is never held while anyone waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::HeaderMap;

use super::date::Seconds;
use super::fault::{Done, Fault};
use super::listing::Key;
use super::object::{Coverage, Object};
use super::pieces::Pieces;
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
    /// By key, and those of one key by id. No key is without any.
    pub uploads: BTreeMap<Key, Uploads>,
    _reservation: Reservation,
}

/// The uploads of one key by id, which is the order in which they began.
pub type Uploads = BTreeMap<String, Arc<Upload>>;

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

/// A part that is here. Its pieces pay for it.
#[derive(Debug)]
pub struct Part {
    pub pieces: Arc<Pieces>,
    pub md5: Vec<u8>,
    pub algorithm: Algorithm,
    /// Base64.
    pub checksum: String,
    pub modified: Seconds,
}

impl Part {
    /// Without quotes.
    pub fn etag(&self) -> String {
        hex(&self.md5)
    }

    pub fn size(&self) -> u64 {
        self.pieces.length()
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
        self.uploads.get(key).and_then(|uploads| uploads.get(id)).ok_or_else(Fault::no_upload)
    }

    pub fn insert_upload(&mut self, upload: Upload) {
        let uploads = self.uploads.entry(Arc::clone(&upload.key)).or_default();
        uploads.insert(upload.id.clone(), Arc::new(upload));
    }

    pub fn remove_upload(&mut self, key: &[u8], id: &str) -> Option<Arc<Upload>> {
        let uploads = self.uploads.get_mut(key)?;
        let gone = uploads.remove(id);
        if uploads.is_empty() {
            self.uploads.remove(key);
        }
        gone
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

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
