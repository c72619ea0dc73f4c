//! CopyObject and UploadPartCopy. What is copied shares the memory of its source: only names, headers and sums are new.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html> and `API_UploadPartCopy.html` beside it.

use std::sync::Arc;

use http::{HeaderMap, Response};

use super::condition::{COPY, Outcome, judge};
use super::date::iso_date;
use super::fault::{Done, Fault};
use super::multipart::part_number;
use super::object::{Coverage, Kept, Made, Object, header_bytes, kept_headers};
use super::receive::Trouble;
use super::state::{Part, hex};
use super::writes::check_write;
use super::{Call, EmbeddedStore, xml};
use crate::backend::Body;
use crate::checksum::Algorithm;
use crate::types::{ByteRange, percent_decode};

/// The one header of an object that belongs to the name and not to the object.
const REDIRECT: &str = "x-amz-website-redirect-location";

/// Most bytes that one request copies (S3's own limit).
const COPY_BYTES_MAX: u64 = 5 << 30;

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
        self.check_owner(&bucket, headers.get("x-amz-source-expected-bucket-owner"))?;
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
        if source.length > COPY_BYTES_MAX {
            let message =
                format!("The specified copy source is larger than the maximum allowable size for a copy source: {COPY_BYTES_MAX}");
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
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&headers))?;
        let checksum = match (&source.checksum, algorithm) {
            (Some(kept), None) if kept.coverage == Coverage::FullObject => Some(kept.clone()),
            (Some(kept), Some(algorithm)) if kept.coverage == Coverage::FullObject && kept.algorithm == algorithm => {
                Some(kept.clone())
            }
            (kept, algorithm) => {
                let algorithm = algorithm.or(kept.as_ref().map(|kept| kept.algorithm)).unwrap_or(Algorithm::Crc64Nvme);
                let value = source.pieces.sum(algorithm).await.encoded();
                Some(Kept { algorithm, coverage: Coverage::FullObject, value })
            }
        };
        // A copy is written at once, so its ETag is that of its bytes, however the source came.
        let etag = match source.parts.is_empty() {
            true => source.etag.clone(),
            false => hex(&source.pieces.sum(Algorithm::Md5).await.value()),
        };
        let modified = self.seconds();
        let pieces = Arc::clone(&source.pieces);
        self.place(
            call,
            Object::new(Made {
                pieces,
                etag: etag.clone(),
                modified,
                checksum: checksum.clone(),
                parts: Vec::new(),
                upload: None,
                headers,
                reservation,
            }),
        )?;
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
        check_write(&call.headers)?;
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
        if span.end - span.start > COPY_BYTES_MAX {
            let message = format!("A part that is copied may have at most {COPY_BYTES_MAX} bytes.");
            return Err(Fault::new("EntityTooLarge", message).into());
        }
        // The part shares the bytes of its source.
        let pieces = source.pieces.slice(&span, &self.memory)?;
        let md5 = pieces.sum(Algorithm::Md5).await.value();
        let checksum = pieces.sum(upload.algorithm).await.encoded();
        let modified = self.seconds();
        let part = Part { pieces, md5, algorithm: upload.algorithm, checksum, modified };
        let mut out = xml::Document::new("CopyPartResult");
        out.text("LastModified", &iso_date(modified));
        out.text("ETag", &format!("\"{}\"", part.etag()));
        if upload.asked {
            out.text(&format!("Checksum{}", upload.algorithm.name()), &part.checksum);
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
