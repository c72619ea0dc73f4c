//! CopyObject and UploadPartCopy. What is copied shares the memory of its source: only names, headers and sums are new.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html> and `API_UploadPartCopy.html` beside it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};

use super::condition::{COPY, Outcome, judge};
use super::date::iso_date;
use super::fault::{Done, Fault};
use super::memory::paid;
use super::multipart::part_number;
use super::object::{Coverage, Kept, Made, Object, header_bytes, kept_headers};
use super::receive::{Received, Trouble};
use super::state::{Part, hex};
use super::writes::check_write;
use super::{Call, EmbeddedStore, xml};
use crate::backend::Body;
use crate::checksum::{Algorithm, Checksum};
use crate::types::{ByteRange, percent_decode};

/// The one header of an object that belongs to the name and not to the object.
const REDIRECT: &str = "x-amz-website-redirect-location";

/// Bytes between two points where others may run.
const SUM_BYTES: usize = 1 << 20;

impl EmbeddedStore {
    /// The object that `x-amz-copy-source` names, if the conditions on it hold.
    fn source(&self, headers: &HeaderMap) -> Done<(Arc<Object>, String, Vec<u8>)> {
        let value = headers.get("x-amz-copy-source").map(|value| value.as_bytes()).unwrap_or_default();
        let text = std::str::from_utf8(value).map_err(|_| Fault::argument("x-amz-copy-source must be percent-encoded."))?;
        let (path, version) = text.split_once("?versionId=").map_or((text, None), |(path, version)| (path, Some(version)));
        let path = percent_decode(path);
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let slash = path.iter().position(|b| *b == b'/');
        let slash = slash.ok_or_else(|| Fault::argument("x-amz-copy-source must name a bucket and a key."))?;
        let (bucket, key) = (String::from_utf8_lossy(&path[..slash]).into_owned(), path[slash + 1..].to_vec());
        let object = self.object(&bucket, &key, version)?;
        match judge(headers, &COPY, &object.etag, object.modified) {
            Outcome::Holds => Ok((object, bucket, key)),
            Outcome::NotModified(header) | Outcome::Failed(header) => Err(Fault::precondition(header)),
        }
    }

    pub(super) async fn copy(&self, call: &Call) -> Result<Response<Body>, Trouble> {
        check_write(&call.headers)?;
        self.state().bucket(&call.bucket)?;
        let (replace, algorithm) = (directive(call)?, asked_algorithm(call)?);
        let (source, bucket, key) = self.source(&call.headers)?;
        if !replace && bucket == call.bucket && *key == *call.key {
            let message = "This copy request is illegal because it is trying to copy an object to itself without changing the \
                           object's metadata.";
            return Err(Fault::new("InvalidRequest", message).into());
        }
        let mut headers = kept_headers(&call.headers);
        if !replace {
            // Where a website redirects is never copied.
            let redirect = headers.remove(REDIRECT);
            headers = source.kept_headers();
            headers.remove(REDIRECT);
            redirect.map(|value| headers.insert(REDIRECT, value));
        }
        let checksum = match (&source.checksum, algorithm) {
            (Some(kept), None) if kept.coverage == Coverage::FullObject => Some(kept.clone()),
            (Some(kept), Some(algorithm)) if kept.coverage == Coverage::FullObject && kept.algorithm == algorithm => {
                Some(kept.clone())
            }
            (kept, algorithm) => {
                let algorithm = algorithm.or(kept.as_ref().map(|kept| kept.algorithm)).unwrap_or(Algorithm::Crc64Nvme);
                let value = sum(&source.pieces, algorithm).await.encoded();
                Some(Kept { algorithm, coverage: Coverage::FullObject, value })
            }
        };
        // A copy is written at once, so its ETag is that of its bytes, however the source came.
        let etag = match source.parts.is_empty() {
            true => source.etag.clone(),
            false => hex(&sum(&source.pieces, Algorithm::Md5).await.value()),
        };
        let modified = self.seconds();
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&headers))?;
        let pieces = source.pieces.clone();
        let made =
            Made { pieces, etag: etag.clone(), modified, checksum: checksum.clone(), parts: Vec::new(), headers, reservation };
        self.place(call, Object::new(made))?;
        let mut out = xml::Document::new("CopyObjectResult");
        out.text("LastModified", &iso_date(modified));
        out.text("ETag", &format!("\"{etag}\""));
        if let Some(kept) = checksum {
            out.text("ChecksumType", kept.coverage.name());
            out.text(&format!("Checksum{}", kept.algorithm.name()), &kept.value);
        }
        Ok(super::xml(out))
    }

    pub(super) async fn copy_part(&self, call: &Call) -> Result<Response<Body>, Trouble> {
        let number = part_number(call)?;
        let upload = self.upload(call)?;
        let (source, ..) = self.source(&call.headers)?;
        let span = match call.headers.get("x-amz-copy-source-range") {
            None => 0..source.length,
            Some(range) => match range.to_str().map(ByteRange::parse) {
                Ok(Ok(ByteRange::Between { first, last })) if last < source.length => first..last + 1,
                Ok(Ok(ByteRange::Between { .. })) => {
                    let message = format!("Range specified is not valid for source object of size: {}", source.length);
                    return Err(Fault::argument(message).into());
                }
                _ => {
                    let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last \
                                       are the zero-based offsets of the first and last bytes to copy";
                    return Err(Fault::argument(message).into());
                }
            },
        };
        let pieces = source.slice(span);
        let md5 = sum(&pieces, Algorithm::Md5).await.value();
        let checksum = sum(&pieces, upload.algorithm).await.encoded();
        // The part's own constant; the bytes are shared, unless they lie in several pieces and become one.
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let data = match <[Bytes; 1]>::try_from(pieces) {
            Ok([piece]) => piece,
            Err(pieces) => {
                let mut whole = BytesMut::with_capacity(length);
                let reservation = self.memory.take(length as u64)?;
                pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
                paid(whole, reservation)
            }
        };
        let modified = self.seconds();
        let received = Received { data, md5, algorithm: upload.algorithm, checksum };
        let part = Part { received, modified, _reservation: Some(self.memory.take(0)?) };
        let mut out = xml::Document::new("CopyPartResult");
        out.text("LastModified", &iso_date(modified));
        out.text("ETag", &format!("\"{}\"", part.etag()));
        if upload.asked {
            out.text(&format!("Checksum{}", upload.algorithm.name()), &part.received.checksum);
        }
        self.place_part(call, &upload, number, part)?;
        Ok(super::xml(out))
    }
}

/// Whether the copy takes its headers from the request.
fn directive(call: &Call) -> Done<bool> {
    match call.header("x-amz-metadata-directive") {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(Fault::argument("Unknown metadata directive.")),
    }
}

/// The algorithm that `x-amz-checksum-algorithm` names.
pub fn asked_algorithm(call: &Call) -> Done<Option<Algorithm>> {
    let Some(name) = call.headers.get("x-amz-checksum-algorithm") else { return Ok(None) };
    let algorithm = name.to_str().ok().and_then(Algorithm::by_name);
    algorithm.map(Some).ok_or_else(|| Fault::new("InvalidRequest", "Checksum algorithm provided is unsupported."))
}

/// A checksum of all pieces, which lets others run while it is made.
pub async fn sum(pieces: &[Bytes], algorithm: Algorithm) -> Checksum {
    let mut sum = Checksum::new(algorithm);
    for chunk in pieces.iter().flat_map(|piece| piece.chunks(SUM_BYTES)) {
        sum.update(chunk);
        if chunk.len() == SUM_BYTES {
            tokio::task::yield_now().await;
        }
    }
    sum
}
