//! PutObject, DeleteObject and DeleteObjects. A request and its body enter; the object is in its place, or gone, in one step.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::condition::may_write;
use super::fault::{Done, Fault};
use super::listing::Key;
use super::object::{Coverage, Kept, META, META_BYTES_MAX, Made, Object, header_bytes, kept_headers, quoted};
use super::pieces::Pieces;
use super::receive::{Trouble, document, receive};
use super::state::hex;
use super::{Call, EmbeddedStore, empty, xml};
use crate::backend::Body;
use crate::checksum::Algorithm;

/// Most keys of one DeleteObjects (S3's own limit).
const DELETES_MAX: usize = 1000;

/// Headers that would change what is stored, and that the store does not have. Passed over they would be promises broken.
const UNKNOWN: &[&str] = &[
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-context",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
    "x-amz-tagging",
    "x-amz-write-offset-bytes",
];

/// Conditions of a delete that the store does not judge.
const DELETE_UNKNOWN: &[&str] = &["x-amz-if-match-last-modified-time", "x-amz-if-match-size"];

/// Headers of which only a value that changes nothing is taken.
const ONLY: &[(&str, &[&str])] = &[
    ("x-amz-acl", &["private", "bucket-owner-full-control"]),
    ("x-amz-server-side-encryption-bucket-key-enabled", &["false"]),
    ("x-amz-storage-class", &["STANDARD"]),
];

/// Refuses what would be passed over silently, by name, and too much metadata.
pub fn check_write(headers: &HeaderMap) -> Done<()> {
    if let Some(name) = UNKNOWN.iter().find(|name| headers.get(**name).is_some_and(|value| !value.is_empty())) {
        return Err(Fault::not_implemented(format!("The header {name}")));
    }
    for (name, values) in ONLY {
        if let Some(value) = headers.get(*name).filter(|value| !values.iter().any(|known| value == known)) {
            return Err(Fault::not_implemented(format!("The header {name} with the value {value:?}")));
        }
    }
    let meta = headers.iter().filter(|(name, _)| name.as_str().starts_with(META));
    let bytes: usize = meta.map(|(name, value)| name.as_str().len() - META.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        let message = "Your metadata headers exceed the maximum allowed metadata size";
        return Err(Fault::new("MetadataTooLarge", message));
    }
    Ok(())
}

impl EmbeddedStore {
    pub(super) async fn put(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        check_write(&call.headers)?;
        self.state().bucket(&call.bucket)?;
        let received = receive(&call.headers, body, &self.memory, Algorithm::Crc64Nvme).await?;
        let headers = kept_headers(&call.headers);
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&headers))?;
        let kept = Kept { algorithm: received.algorithm, coverage: Coverage::FullObject, value: received.checksum };
        let object = Object::new(Made {
            pieces: Pieces::of(received.data),
            etag: hex(&received.md5),
            modified: self.seconds(),
            checksum: Some(kept.clone()),
            parts: Vec::new(),
            upload: None,
            headers,
            reservation,
        });
        let etag = quoted(&object.etag);
        self.place(call, object)?;
        let mut response = empty(StatusCode::OK);
        response.headers_mut().insert(header::ETAG, etag);
        kept.write(response.headers_mut());
        Ok(response)
    }

    /// Puts the object in its place, if the conditions of the request hold there and then.
    pub(super) fn place(&self, call: &Call, object: Object) -> Done<()> {
        let mut state = self.state_mut();
        let bucket = state.bucket_mut(&call.bucket)?;
        may_write(&call.headers, bucket.objects.get(&call.key).map(|old| old.etag.as_str()))?;
        let old = bucket.objects.insert(Arc::clone(&call.key), Arc::new(object));
        drop(state);
        // Freeing what was there may take a while.
        drop(old);
        Ok(())
    }

    pub(super) fn delete(&self, call: &Call) -> Done<Response<Body>> {
        if let Some(name) = DELETE_UNKNOWN.iter().find(|name| call.headers.contains_key(**name)) {
            return Err(Fault::not_implemented(format!("The header {name}")));
        }
        check_version(call.parameter("versionId"))?;
        let mut state = self.state_mut();
        let bucket = state.bucket_mut(&call.bucket)?;
        if call.headers.contains_key(header::IF_MATCH) {
            may_write(&call.headers, bucket.objects.get(&call.key).map(|old| old.etag.as_str()))?;
        }
        let old = bucket.objects.remove(&call.key);
        drop(state);
        drop(old);
        Ok(empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn delete_many(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        self.state().bucket(&call.bucket)?;
        let (bytes, _reservation) = document(&call.headers, body, &self.memory).await?;
        let list = xml::parse(&bytes, "Delete")?;
        let objects: Vec<_> = list.all("Object").collect();
        if objects.is_empty() || objects.len() > DELETES_MAX {
            let message = format!("The document must name 1 to {DELETES_MAX} objects.");
            return Err(Fault::new("MalformedXML", message).into());
        }
        // Nothing is deleted by a document that is not right to its end.
        let key = |object: &xml::Node| object.text_of("Key").is_some_and(|key| !key.is_empty());
        if !objects.iter().all(|object| key(object)) {
            return Err(Fault::new("MalformedXML", "An Object has no Key.").into());
        }
        let quiet = list.text_of("Quiet").is_some_and(|quiet| quiet.trim().eq_ignore_ascii_case("true"));
        let mut out = xml::Document::new("DeleteResult");
        for object in objects {
            let key = object.text_of("Key").unwrap_or_default();
            let condition = object.text_of("ETag");
            match self.delete_one(call, key, object.text_of("VersionId"), condition) {
                Ok(()) if quiet => {}
                Ok(()) => out.nested("Deleted", |deleted| deleted.text("Key", key)),
                Err(fault) if fault.code == "NoSuchBucket" => return Err(fault.into()),
                Err(fault) => out.nested("Error", |error| {
                    error.text("Key", key);
                    error.optional("VersionId", object.text_of("VersionId"));
                    error.text("Code", fault.code);
                    error.text("Message", &fault.message);
                }),
            }
        }
        Ok(super::xml(out))
    }

    fn delete_one(&self, call: &Call, key: &str, version: Option<&str>, etag: Option<&str>) -> Done<()> {
        check_version(version)?;
        let mut state = self.state_mut();
        let bucket = state.bucket_mut(&call.bucket)?;
        if let Some(etag) = etag {
            let condition = HeaderValue::from_str(etag).map_err(|_| Fault::argument("An ETag is no header value."))?;
            let headers = HeaderMap::from_iter([(header::IF_MATCH, condition)]);
            may_write(&headers, bucket.objects.get(key.as_bytes()).map(|old| old.etag.as_str()))?;
        }
        let old = bucket.objects.remove(&Key::from(key.as_bytes()));
        drop(state);
        drop(old);
        Ok(())
    }
}

fn check_version(version: Option<&str>) -> Done<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(Fault::new("NoSuchVersion", "The embedded store keeps no versions; the only one is \"null\".")),
    }
}
