//! The listings of a bucket as documents: ListObjects in both versions, ListObjectVersions and ListMultipartUploads. A request
//! enters, one page in XML leaves; which lines are on it `listing` decides.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::date::iso_date;
use super::fault::{Done, Fault};
use super::listing::{Ask, Entry, Page, cut, group, lines, page};
use super::object::Object;
use super::state::Upload;
use super::xml::Document;
use super::{Call, EmbeddedStore};
use crate::backend::Body;

/// Most lines of a page (S3's own limit).
const LINES_MAX: usize = 1000;

/// What `encoding-type=url` leaves as it is.
const URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Who owns everything here.
pub const OWNER: &str = "batchgate";

/// The owner as listings tell.
pub fn owner(out: &mut Document) {
    out.nested("Owner", |out| {
        out.text("ID", OWNER);
        out.text("DisplayName", OWNER);
    });
}

/// A number of lines, at most [`LINES_MAX`], which it is by default too.
pub fn count(call: &Call, name: &str) -> Done<usize> {
    let Some(text) = call.parameter(name).filter(|text| !text.is_empty()) else { return Ok(LINES_MAX) };
    let number = text.parse::<i32>().ok().and_then(|number| usize::try_from(number).ok());
    number
        .map(|number| number.min(LINES_MAX))
        .ok_or_else(|| Fault::argument(format!("Provided {name} not an integer or within integer range.")))
}

/// A continuation token: the name that the next page starts behind.
pub fn token(name: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(name)
}

/// The name in a continuation token.
pub fn untoken(token: &str) -> Done<String> {
    let name = BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|name| String::from_utf8(name).ok());
    let name = name.filter(|name| !name.is_empty());
    name.ok_or_else(|| Fault::argument("The continuation token provided is incorrect."))
}

/// How names are written on one page.
struct Names {
    url: bool,
}

impl Names {
    fn of(call: &Call) -> Done<Self> {
        match call.parameter("encoding-type") {
            None => Ok(Self { url: false }),
            Some("url") => Ok(Self { url: true }),
            Some(_) => Err(Fault::argument("Invalid Encoding Method specified in Request.")),
        }
    }

    fn text(&self, name: &[u8]) -> String {
        match self.url {
            true => percent_encode(name, URL).to_string(),
            false => String::from_utf8_lossy(name).into_owned(),
        }
    }

    fn write(&self, out: &mut Document, element: &str, name: &[u8]) {
        out.text(element, &self.text(name));
    }

    /// An element that is left out where the request does not give the parameter, or gives it empty.
    fn echo(&self, out: &mut Document, element: &str, call: &Call, parameter: &str) {
        if let Some(value) = call.parameter(parameter).filter(|value| !value.is_empty()) {
            self.write(out, element, value.as_bytes());
        }
    }

    fn method(&self, out: &mut Document) {
        out.optional("EncodingType", self.url.then_some("url"));
    }

    fn prefixes<V>(&self, out: &mut Document, entries: &[Entry<V>]) {
        for entry in entries {
            if let Entry::CommonPrefix(prefix) = entry {
                out.nested("CommonPrefixes", |out| self.write(out, "Prefix", prefix));
            }
        }
    }
}

fn ask<'a>(call: &'a Call, after: &'a [u8], max: usize) -> Ask<'a> {
    let bytes = |name| call.parameter(name).unwrap_or_default().as_bytes();
    Ask { prefix: bytes("prefix"), delimiter: bytes("delimiter"), after, max }
}

fn object_lines(out: &mut Document, object: &Object, with_owner: bool) {
    out.text("LastModified", &iso_date(object.modified));
    out.text("ETag", &format!("\"{}\"", object.etag));
    if let Some(kept) = &object.checksum {
        out.text("ChecksumAlgorithm", kept.algorithm.name());
        out.text("ChecksumType", kept.coverage.name());
    }
    out.number("Size", object.length);
    if with_owner {
        owner(out);
    }
    out.text("StorageClass", "STANDARD");
}

impl EmbeddedStore {
    fn page_of_objects(&self, call: &Call, after: &[u8], max: usize) -> Done<Page<Arc<Object>>> {
        Ok(page(&self.state().bucket(&call.bucket)?.objects, &ask(call, after, max)))
    }

    pub(super) fn list_objects(&self, call: &Call) -> Done<Response<Body>> {
        let (names, max) = (Names::of(call)?, count(call, "max-keys")?);
        let marker = call.parameter("marker").unwrap_or_default();
        let page = self.page_of_objects(call, marker.as_bytes(), max)?;
        let mut out = Document::new("ListBucketResult");
        out.text("Name", &call.bucket);
        names.write(&mut out, "Prefix", call.parameter("prefix").unwrap_or_default().as_bytes());
        names.write(&mut out, "Marker", marker.as_bytes());
        let delimited = call.parameter("delimiter").is_some_and(|delimiter| !delimiter.is_empty());
        // Without a delimiter the last key says it, and S3 leaves this out.
        if let Some(last) = page.entries.last().filter(|_| page.truncated && delimited) {
            names.write(&mut out, "NextMarker", last.name());
        }
        out.number("MaxKeys", max);
        names.echo(&mut out, "Delimiter", call, "delimiter");
        names.method(&mut out);
        out.number("IsTruncated", page.truncated);
        contents(&mut out, &names, &page, true);
        Ok(super::xml(out))
    }

    pub(super) fn list_objects_v2(&self, call: &Call) -> Done<Response<Body>> {
        let (names, max) = (Names::of(call)?, count(call, "max-keys")?);
        let given = call.parameter("continuation-token");
        let start_after = call.parameter("start-after").unwrap_or_default();
        let after = given.map(untoken).transpose()?.unwrap_or_else(|| start_after.to_owned());
        let page = self.page_of_objects(call, after.as_bytes(), max)?;
        let mut out = Document::new("ListBucketResult");
        out.text("Name", &call.bucket);
        names.write(&mut out, "Prefix", call.parameter("prefix").unwrap_or_default().as_bytes());
        names.echo(&mut out, "Delimiter", call, "delimiter");
        names.echo(&mut out, "StartAfter", call, "start-after");
        out.optional("ContinuationToken", given);
        if let Some(last) = page.entries.last().filter(|_| page.truncated) {
            out.text("NextContinuationToken", &token(last.name()));
        }
        out.number("KeyCount", page.entries.len());
        out.number("MaxKeys", max);
        names.method(&mut out);
        out.number("IsTruncated", page.truncated);
        contents(&mut out, &names, &page, call.parameter("fetch-owner") == Some("true"));
        Ok(super::xml(out))
    }

    /// The only version of each object is its `null` version.
    pub(super) fn list_versions(&self, call: &Call) -> Done<Response<Body>> {
        let (names, max) = (Names::of(call)?, count(call, "max-keys")?);
        let marker = call.parameter("key-marker").unwrap_or_default();
        let page = self.page_of_objects(call, marker.as_bytes(), max)?;
        let mut out = Document::new("ListVersionsResult");
        out.text("Name", &call.bucket);
        names.write(&mut out, "Prefix", call.parameter("prefix").unwrap_or_default().as_bytes());
        names.write(&mut out, "KeyMarker", marker.as_bytes());
        out.text("VersionIdMarker", call.parameter("version-id-marker").unwrap_or_default());
        if let Some(last) = page.entries.last().filter(|_| page.truncated) {
            names.write(&mut out, "NextKeyMarker", last.name());
            if matches!(last, Entry::Key(..)) {
                out.text("NextVersionIdMarker", "null");
            }
        }
        out.number("MaxKeys", max);
        names.echo(&mut out, "Delimiter", call, "delimiter");
        names.method(&mut out);
        out.number("IsTruncated", page.truncated);
        for entry in &page.entries {
            if let Entry::Key(key, object) = entry {
                out.nested("Version", |out| {
                    names.write(out, "Key", key);
                    out.text("VersionId", "null");
                    out.text("IsLatest", "true");
                    object_lines(out, object, true);
                });
            }
        }
        names.prefixes(&mut out, &page.entries);
        Ok(super::xml(out))
    }

    pub(super) fn list_uploads(&self, call: &Call) -> Done<Response<Body>> {
        let (names, max) = (Names::of(call)?, count(call, "max-uploads")?);
        let marker = call.parameter("key-marker").unwrap_or_default();
        let id_marker = call.parameter("upload-id-marker").unwrap_or_default();
        let state = self.state();
        let uploads = &state.bucket(&call.bucket)?.uploads;
        let ask = ask(call, marker.as_bytes(), max);
        // A marker with an id goes for the uploads of its key up to that one, a marker alone for all of them.
        let rest = uploads.get(marker.as_bytes()).filter(|_| !id_marker.is_empty() && marker.as_bytes().starts_with(ask.prefix));
        let rest = rest.filter(|_| group(ask.after, &ask).is_none()).into_iter();
        let rest = rest.flat_map(|uploads| uploads.range::<str, _>((Bound::Excluded(id_marker), Bound::Unbounded)));
        let line = |(_, upload): (&String, &Arc<Upload>)| Entry::Key(Arc::clone(&upload.key), Arc::clone(upload));
        let behind = lines(uploads, &ask).flat_map(|entry| {
            let (uploads, prefix) = match entry {
                Entry::Key(_, uploads) => (Some(uploads), None),
                Entry::CommonPrefix(prefix) => (None, Some(Entry::CommonPrefix(prefix))),
            };
            prefix.into_iter().chain(uploads.into_iter().flatten().map(line))
        });
        let page = cut(rest.map(line).chain(behind), max);
        let mut out = Document::new("ListMultipartUploadsResult");
        out.text("Bucket", &call.bucket);
        names.write(&mut out, "KeyMarker", marker.as_bytes());
        out.text("UploadIdMarker", id_marker);
        match page.entries.last().filter(|_| page.truncated) {
            Some(Entry::Key(_, upload)) => {
                names.write(&mut out, "NextKeyMarker", &upload.key);
                out.text("NextUploadIdMarker", &upload.id);
            }
            Some(Entry::CommonPrefix(prefix)) => names.write(&mut out, "NextKeyMarker", prefix),
            None => {}
        }
        names.echo(&mut out, "Prefix", call, "prefix");
        names.echo(&mut out, "Delimiter", call, "delimiter");
        out.number("MaxUploads", max);
        names.method(&mut out);
        out.number("IsTruncated", page.truncated);
        for entry in &page.entries {
            if let Entry::Key(_, upload) = entry {
                out.nested("Upload", |out| {
                    names.write(out, "Key", &upload.key);
                    out.text("UploadId", &upload.id);
                    out.nested("Initiator", |out| out.text("ID", OWNER));
                    owner(out);
                    out.text("StorageClass", "STANDARD");
                    out.text("Initiated", &iso_date(upload.initiated));
                });
            }
        }
        names.prefixes(&mut out, &page.entries);
        Ok(super::xml(out))
    }
}

fn contents(out: &mut Document, names: &Names, page: &Page<Arc<Object>>, with_owner: bool) {
    for entry in &page.entries {
        if let Entry::Key(key, object) = entry {
            out.nested("Contents", |out| {
                names.write(out, "Key", key);
                object_lines(out, object, with_owner);
            });
        }
    }
    names.prefixes(out, &page.entries);
}
