//! Uploads in parts. Parts enter one by one, in any order, until the upload is completed (see `complete`) or aborted.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html>.

use std::sync::{Arc, Mutex};

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::copy::asked_algorithm;
use super::date::iso_date;
use super::fault::{Done, Fault};
use super::lists::{OWNER, count, owner};
use super::object::{Coverage, header_bytes, kept_headers, quoted};
use super::pieces::Pieces;
use super::receive::{Received, Trouble, announced_algorithm, receive};
use super::state::{Part, Upload, hex};
use super::writes::check_write;
use super::{Call, EmbeddedStore, empty, xml};
use crate::backend::Body;
use crate::checksum::Algorithm;

/// Highest number of a part (S3's own limit).
pub const PARTS_MAX: u16 = 10_000;

/// `partNumber` of a request.
pub fn part_number(call: &Call) -> Done<u16> {
    let number = call.parameter("partNumber").and_then(|number| number.parse().ok()).filter(|n| (1..=PARTS_MAX).contains(n));
    number.ok_or_else(|| Fault::argument(format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive.")))
}

impl EmbeddedStore {
    pub(super) fn upload(&self, call: &Call) -> Done<Arc<Upload>> {
        let id = call.parameter("uploadId").unwrap_or_default();
        Ok(Arc::clone(self.state().bucket(&call.bucket)?.upload(&call.key, id)?))
    }

    pub(super) fn create_upload(&self, call: &Call) -> Done<Response<Body>> {
        check_write(&call.headers)?;
        let asked = asked_algorithm(call)?;
        let algorithm = asked.unwrap_or(Algorithm::Crc64Nvme);
        let coverage = coverage(algorithm, call.header("x-amz-checksum-type"))?;
        let headers = kept_headers(&call.headers);
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&headers))?;
        let id = self.new_upload_id();
        let upload = Upload {
            key: Arc::clone(&call.key),
            id: id.clone(),
            initiated: self.seconds(),
            headers,
            algorithm,
            coverage,
            asked: asked.is_some(),
            parts: Mutex::default(),
            _reservation: reservation,
        };
        self.state_mut().bucket_mut(&call.bucket)?.insert_upload(upload);
        let mut out = xml::Document::new("InitiateMultipartUploadResult");
        out.text("Bucket", &call.bucket);
        out.text("Key", &String::from_utf8_lossy(&call.key));
        out.text("UploadId", &id);
        let mut response = super::xml(out);
        if asked.is_some() {
            let headers = response.headers_mut();
            headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static(algorithm.name()));
            headers.insert("x-amz-checksum-type", HeaderValue::from_static(coverage.name()));
        }
        Ok(response)
    }

    pub(super) async fn upload_part(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        check_write(&call.headers)?;
        let number = part_number(call)?;
        let upload = self.upload(call)?;
        let announced = announced_algorithm(&call.headers)?;
        let may_be_absent = announced.is_none() && upload.coverage == Coverage::FullObject;
        if upload.asked && announced != Some(upload.algorithm) && !may_be_absent {
            let (wanted, given) = (upload.algorithm.name(), announced.map_or("null", Algorithm::name));
            let message =
                format!("Checksum Type mismatch occurred, expected checksum Type: {wanted}, actual checksum Type: {given}");
            return Err(Fault::new("InvalidRequest", message).into());
        }
        let received = receive(&call.headers, body, &self.memory, upload.algorithm).await?;
        let mut response = empty(StatusCode::OK);
        response.headers_mut().insert(header::ETAG, quoted(&hex(&received.md5)));
        let checksum = HeaderValue::from_str(&received.checksum).expect("base64");
        response.headers_mut().insert(HeaderName::from_static(received.algorithm.header()), checksum);
        let Received { data, md5, algorithm, checksum } = received;
        let part = Part { pieces: Pieces::of(data), md5, algorithm, checksum, modified: self.seconds() };
        self.place_part(call, &upload, number, part)?;
        Ok(response)
    }

    /// Takes a part in, unless the upload ended meanwhile.
    pub(super) fn place_part(&self, call: &Call, upload: &Arc<Upload>, number: u16, part: Part) -> Done<()> {
        let state = self.state();
        state.bucket(&call.bucket)?.upload(&upload.key, &upload.id)?;
        let mut parts = upload.parts.lock().expect("nothing under this lock panics");
        parts.insert(number, Arc::new(part));
        Ok(())
    }

    pub(super) fn list_parts(&self, call: &Call) -> Done<Response<Body>> {
        let upload = self.upload(call)?;
        let max = count(call, "max-parts")?;
        let marker = count_from(call, "part-number-marker")?;
        let parts = upload.parts.lock().expect("nothing under this lock panics").clone();
        let mut rest = parts.range(marker.saturating_add(1)..);
        let page: Vec<_> = rest.by_ref().take(max).collect();
        let truncated = max > 0 && rest.next().is_some();
        let mut out = xml::Document::new("ListPartsResult");
        out.text("Bucket", &call.bucket);
        out.text("Key", &String::from_utf8_lossy(&call.key));
        out.text("UploadId", &upload.id);
        out.number("PartNumberMarker", marker);
        if let Some((last, _)) = page.last().filter(|_| truncated) {
            out.number("NextPartNumberMarker", last);
        }
        out.number("MaxParts", max);
        out.number("IsTruncated", truncated);
        for (number, part) in page {
            out.nested("Part", |out| {
                out.number("PartNumber", number);
                out.text("LastModified", &iso_date(part.modified));
                out.text("ETag", &format!("\"{}\"", part.etag()));
                out.number("Size", part.size());
                out.text(&format!("Checksum{}", part.algorithm.name()), &part.checksum);
            });
        }
        out.nested("Initiator", |out| out.text("ID", OWNER));
        owner(&mut out);
        out.text("StorageClass", "STANDARD");
        if upload.asked {
            out.text("ChecksumAlgorithm", upload.algorithm.name());
            out.text("ChecksumType", upload.coverage.name());
        }
        Ok(super::xml(out))
    }

    pub(super) fn abort_upload(&self, call: &Call) -> Done<Response<Body>> {
        let upload = self.upload(call)?;
        let mut state = self.state_mut();
        let gone = state.bucket_mut(&call.bucket)?.remove_upload(&upload.key, &upload.id);
        drop(state);
        gone.map(|_| empty(StatusCode::NO_CONTENT)).ok_or_else(Fault::no_upload)
    }
}

fn coverage(algorithm: Algorithm, asked: Option<&str>) -> Done<Coverage> {
    let is_crc = matches!(algorithm, Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme);
    match asked.map(str::to_ascii_uppercase).as_deref() {
        None if algorithm == Algorithm::Crc64Nvme => Ok(Coverage::FullObject),
        None => Ok(Coverage::Composite),
        Some("FULL_OBJECT") if is_crc => Ok(Coverage::FullObject),
        Some("COMPOSITE") if algorithm != Algorithm::Crc64Nvme => Ok(Coverage::Composite),
        Some(other) => {
            let message = format!("The {other} checksum type cannot be used with the {} checksum algorithm.", algorithm.name());
            Err(Fault::new("InvalidRequest", message))
        }
    }
}

fn count_from(call: &Call, name: &str) -> Done<u16> {
    let Some(text) = call.parameter(name).filter(|text| !text.is_empty()) else { return Ok(0) };
    let number = text.parse::<u32>().ok().map(|number| u16::try_from(number).unwrap_or(u16::MAX));
    number.ok_or_else(|| Fault::argument(format!("Provided {name} not an integer or within integer range.")))
}
