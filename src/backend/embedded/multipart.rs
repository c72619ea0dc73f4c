//! Uploads in parts. Parts enter one by one, in any order; on completion they become the pieces of one object, without a copy.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html>.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::copy::{asked_algorithm, sum};
use super::date::iso_date;
use super::fault::{Done, Fault};
use super::lists::{count, owner};
use super::object::{Coverage, Kept, Made, Object, header_bytes, kept_headers, quoted};
use super::receive::{Received, Trouble, announced_algorithm, document, in_head, receive};
use super::state::{Part, Upload, hex, upload_key};
use super::writes::check_write;
use super::{Call, EmbeddedStore, empty, xml};
use crate::backend::Body;
use crate::checksum::{Algorithm, Checksum};

/// Highest number of a part (S3's own limit).
const PARTS_MAX: u16 = 10_000;

/// Least bytes of every part but the last (S3's own limit).
const PART_BYTES_MIN: u64 = 5 << 20;

/// What an object pays for what is known of one of its parts.
const PART_KNOWLEDGE_BYTES: u64 = 64;

/// `partNumber` of a request.
pub fn part_number(call: &Call) -> Done<u16> {
    let number = call.parameter("partNumber").and_then(|number| number.parse().ok()).filter(|n| (1..=PARTS_MAX).contains(n));
    number.ok_or_else(|| Fault::argument(format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive.")))
}

/// A part as a client lists it on completion.
struct Listed {
    number: u16,
    etag: String,
    /// The checksum that it says the part has, by algorithm.
    checksums: Vec<(Algorithm, String)>,
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
        // Its key is there twice.
        let reservation = self.memory.take(2 * call.key.len() as u64 + header_bytes(&headers))?;
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
        self.state_mut().bucket_mut(&call.bucket)?.uploads.insert(upload_key(&call.key, &id), Arc::new(upload));
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
        let part = Part { received, modified: self.seconds(), _reservation: None };
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
                out.text(&format!("Checksum{}", part.received.algorithm.name()), &part.received.checksum);
            });
        }
        out.nested("Initiator", |out| out.text("ID", "batchgate"));
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
        let gone = state.bucket_mut(&call.bucket)?.uploads.remove(&upload_key(&upload.key, &upload.id));
        drop(state);
        gone.map(|_| empty(StatusCode::NO_CONTENT)).ok_or_else(Fault::no_upload)
    }

    pub(super) async fn complete_upload(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        let upload = self.upload(call)?;
        let said = in_head(&call.headers)?;
        if let Some(kind) = call.header("x-amz-checksum-type").filter(|kind| upload.asked && *kind != upload.coverage.name()) {
            let message = format!("The upload was created with the checksum type {}, not {kind}.", upload.coverage.name());
            return Err(Fault::new("InvalidRequest", message).into());
        }
        // Checksums in this request's head are of the object, not of the document.
        let mut head = call.headers.clone();
        Algorithm::ALL.iter().for_each(|algorithm| drop(head.remove(algorithm.header())));
        let (bytes, _document) = document(&head, body, &self.memory).await?;
        let listed = listed(&bytes)?;
        let parts = upload.parts.lock().expect("nothing under this lock panics").clone();
        let parts = choose(&upload, &listed, &parts)?;
        let pieces: Vec<Bytes> = parts.iter().map(|part| part.received.data.clone()).collect();
        let length: u64 = parts.iter().map(|part| part.size()).sum();
        if let Some(said) = call.header("x-amz-mp-object-size").filter(|said| said.parse() != Ok(length)) {
            let message =
                format!("The provided x-amz-mp-object-size header value {said} does not match what was received: {length}.");
            return Err(Fault::new("InvalidRequest", message).into());
        }
        let kept = checksum(&upload, &parts, &pieces).await;
        // Where the client did not ask for one, S3 passes over what it says of the whole.
        if let Some((_, said)) = said.filter(|(algorithm, _)| upload.asked && *algorithm == kept.algorithm) {
            let same = said == kept.value || kept.value.strip_prefix(&said).is_some_and(|rest| rest.starts_with('-'));
            if !same {
                let message = format!("The {} you specified did not match the calculated checksum.", kept.algorithm.name());
                return Err(Fault::new("BadDigest", message).into());
            }
        }
        let mut md5 = Checksum::new(Algorithm::Md5);
        parts.iter().for_each(|part| md5.update(&part.received.md5));
        let etag = format!("{}-{}", hex(&md5.value()), parts.len());
        let knowledge = PART_KNOWLEDGE_BYTES * parts.len() as u64;
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&upload.headers) + knowledge)?;
        let object = Object::new(Made {
            pieces,
            etag: etag.clone(),
            modified: self.seconds(),
            checksum: Some(kept.clone()),
            parts: parts.iter().map(|part| part.size()).collect(),
            headers: upload.headers.clone(),
            reservation,
        });
        self.place_completed(call, &upload, object)?;
        let mut out = xml::Document::new("CompleteMultipartUploadResult");
        out.text("Location", &call.path);
        out.text("Bucket", &call.bucket);
        out.text("Key", &String::from_utf8_lossy(&call.key));
        out.text("ETag", &format!("\"{etag}\""));
        out.text(&format!("Checksum{}", kept.algorithm.name()), &kept.value);
        out.text("ChecksumType", kept.coverage.name());
        Ok(super::xml(out))
    }

    /// The object comes and the upload goes, in one step.
    fn place_completed(&self, call: &Call, upload: &Arc<Upload>, object: Object) -> Done<()> {
        let at = upload_key(&upload.key, &upload.id);
        let mut state = self.state_mut();
        let bucket = state.bucket_mut(&call.bucket)?;
        bucket.uploads.get(&at).ok_or_else(Fault::no_upload)?;
        super::condition::may_write(&call.headers, bucket.objects.get(&call.key).map(|old| old.etag.as_str()))?;
        let gone = (bucket.uploads.remove(&at), bucket.objects.insert(Arc::clone(&call.key), Arc::new(object)));
        drop(state);
        drop(gone);
        Ok(())
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

/// The parts that the document names, in its order.
fn listed(bytes: &[u8]) -> Done<Vec<Listed>> {
    let node = xml::parse(bytes, "CompleteMultipartUpload")?;
    let malformed = || Fault::new("MalformedXML", "Each Part must have a PartNumber and an ETag, and there must be 1 to 10000.");
    let one = |part: &xml::Node| {
        let number = part.text_of("PartNumber").and_then(|number| number.trim().parse().ok()).ok_or_else(malformed)?;
        let etag = part.text_of("ETag").ok_or_else(malformed)?.trim().trim_matches('"').to_owned();
        let said =
            |algorithm: Algorithm| Some((algorithm, part.text_of(&format!("Checksum{}", algorithm.name()))?.trim().to_owned()));
        Ok(Listed { number, etag, checksums: Algorithm::ALL.into_iter().filter_map(said).collect() })
    };
    let parts: Vec<Listed> = node.all("Part").map(one).collect::<Done<_>>()?;
    if parts.is_empty() || parts.len() > usize::from(PARTS_MAX) { Err(malformed()) } else { Ok(parts) }
}

/// The parts that make up the object.
fn choose(upload: &Upload, listed: &[Listed], parts: &BTreeMap<u16, Arc<Part>>) -> Done<Vec<Arc<Part>>> {
    if listed.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(Fault::new(
            "InvalidPartOrder",
            "The list of parts was not in ascending order. Parts must be ordered by part number.",
        ));
    }
    let mut chosen = Vec::with_capacity(listed.len());
    for (i, listed_part) in listed.iter().enumerate() {
        let number = listed_part.number;
        let matches = |part: &&Arc<Part>| {
            let Received { algorithm, checksum, .. } = &part.received;
            let says_other = |(said, value): &(Algorithm, String)| said == algorithm && value != checksum;
            part.etag() == listed_part.etag && !listed_part.checksums.iter().any(says_other)
        };
        let part = parts.get(&number).filter(matches).ok_or_else(|| {
            let message = "One or more of the specified parts could not be found. The part may not have been uploaded, or the \
                           specified entity tag may not match the part's entity tag.";
            Fault::new("InvalidPart", format!("{message} (part {number})"))
        })?;
        if i + 1 < listed.len() && part.size() < PART_BYTES_MIN {
            let message = format!(
                "Your proposed upload is smaller than the minimum allowed size: part {number} has {} bytes, and every part but the \
                 last needs at least {PART_BYTES_MIN}.",
                part.size()
            );
            return Err(Fault::new("EntityTooSmall", message));
        }
        if upload.asked && upload.coverage == Coverage::Composite && listed_part.checksums.is_empty() {
            let message = format!(
                "The upload was created using a {} checksum. The complete request must include the checksum for each part. It was \
                 missing for part {number} in the request.",
                upload.algorithm.name().to_ascii_lowercase()
            );
            return Err(Fault::new("InvalidRequest", message));
        }
        chosen.push(Arc::clone(part));
    }
    Ok(chosen)
}

async fn checksum(upload: &Upload, parts: &[Arc<Part>], pieces: &[Bytes]) -> Kept {
    let (algorithm, coverage) = (upload.algorithm, upload.coverage);
    if coverage == Coverage::FullObject {
        return Kept { algorithm, coverage, value: sum(pieces, algorithm).await.encoded() };
    }
    let mut of_parts = Checksum::new(algorithm);
    for part in parts {
        of_parts.update(&sum(std::slice::from_ref(&part.received.data), algorithm).await.value());
    }
    Kept { algorithm, coverage, value: format!("{}-{}", of_parts.encoded(), parts.len()) }
}
