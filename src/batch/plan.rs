//! From an entry to what is to be read, or to why it is not: pure. Here alone it is asked whether the identity may
//! (`s3:GetObject`, or `s3:GetObjectVersion` where a version is named), entry by entry, and where the bucket is.

use std::sync::Arc;

use http::HeaderMap;

use super::encode::PartName;
use super::outcome::FailedEntry;
use super::request::Entry;
use crate::auth::{Identity, has_dots, policy::Resource};
use crate::backend::{Backend, ReadAsk};
use crate::error::Kind;
use crate::route::Routes;
use crate::types::EntryIndex;

/// What all entries of a batch have in common.
pub struct Plan {
    /// The entries, in the order asked.
    pub entries: Vec<Entry>,
    /// The bucket of the URL, for entries that name none. Empty if every entry names one.
    pub bucket: String,
    /// Who asks.
    pub identity: Arc<Identity>,
    /// Where buckets are.
    pub routes: Arc<Routes<Arc<Backend>>>,
    /// Headers that go along with each read.
    pub headers: Arc<HeaderMap>,
}

/// What becomes of one entry.
pub enum Planned {
    /// It is read there.
    Read(Arc<Backend>, ReadAsk),
    /// It has failed already.
    Failed(FailedEntry),
}

impl Plan {
    /// Decides over one entry.
    pub fn entry(&self, index: EntryIndex) -> Planned {
        let entry = &self.entries[index.at()];
        let bucket = self.part(index).bucket;
        let options = entry.options.as_deref();
        let version = options.and_then(|o| o.version.clone());
        let action = if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
        let resource = Resource { bucket: Some(bucket), key: Some(entry.key.as_str().as_bytes()) };
        if !self.identity.policy.allows(action, &resource) {
            return Planned::Failed(FailedEntry::ours(Kind::AccessDenied, "The policy of this identity does not allow this read."));
        }
        if version.as_deref().is_some_and(|version| has_dots(version.as_bytes())) {
            return Planned::Failed(FailedEntry::ours(Kind::InvalidArgument, "The VersionId is not valid."));
        }
        let Some((backend, bucket)) = self.routes.find(bucket) else {
            return Planned::Failed(FailedEntry::ours(Kind::NoSuchBucket, "No backend is configured for this bucket."));
        };
        let ask = ReadAsk {
            bucket: bucket.into(),
            key: entry.key.clone(),
            version,
            range: options.and_then(|o| o.range),
            if_match: options.and_then(|o| o.if_match.clone()),
            if_none_match: options.and_then(|o| o.if_none_match.clone()),
            headers: Arc::clone(&self.headers),
            elsewhere: false,
            sender: self.identity.sender(&backend.name),
        };
        Planned::Read(Arc::clone(backend), ask)
    }

    /// How the entry's part is named.
    pub fn part(&self, index: EntryIndex) -> PartName<'_> {
        self.entries[index.at()].part(index, &self.bucket)
    }
}
