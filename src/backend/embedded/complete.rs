//! CompleteMultipartUpload. A list of parts enters; they become the pieces of one object, without a copy. An answer may be lost
//! on its way, and the client asks again: as long as the object is there, it gets the same answer.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Response;

use super::fault::{Done, Fault};
use super::multipart::PARTS_MAX;
use super::object::{Coverage, Kept, Made, Object, header_bytes};
use super::pieces::Pieces;
use super::receive::{Trouble, document, in_head};
use super::state::{Part, Upload, hex};
use super::writes::check_write;
use super::{Call, EmbeddedStore, xml};
use crate::backend::Body;
use crate::checksum::{Algorithm, Checksum};

/// Least bytes of every part but the last (S3's own limit).
const PART_BYTES_MIN: u64 = 5 << 20;

/// What an object pays for what is known of one of its parts.
const PART_KNOWLEDGE_BYTES: u64 = 64;

/// A part as a client lists it on completion.
struct Listed {
    number: u16,
    etag: String,
    /// The checksum that it says the part has, by algorithm.
    checksums: Vec<(Algorithm, String)>,
}

impl EmbeddedStore {
    pub(super) async fn complete_upload(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        check_write(&call.headers)?;
        if let Err(fault) = self.upload(call)
            && self.made_by(call).is_none()
        {
            return Err(fault.into());
        }
        let said = in_head(&call.headers)?;
        // Checksums in this request's head are of the object, not of the document.
        let mut head = call.headers.clone();
        Algorithm::ALL.iter().for_each(|algorithm| drop(head.remove(algorithm.header())));
        let (bytes, _document) = document(&head, body, &self.memory).await?;
        let listed = listed(&bytes)?;
        let made = match self.upload(call) {
            Ok(upload) => self.complete(call, &upload, &listed, said).await,
            Err(fault) => Err(fault),
        };
        let object = match made {
            // It may have been completed just now, too.
            Err(fault) if fault.code == "NoSuchUpload" => {
                self.made_by(call).filter(|object| is_of(object, &listed)).ok_or(fault)?
            }
            made => made?,
        };
        let mut out = xml::Document::new("CompleteMultipartUploadResult");
        out.text("Location", &call.path);
        out.text("Bucket", &call.bucket);
        out.text("Key", &String::from_utf8_lossy(&call.key));
        out.text("ETag", &format!("\"{}\"", object.etag));
        if let Some(kept) = &object.checksum {
            out.text(&format!("Checksum{}", kept.algorithm.name()), &kept.value);
            out.text("ChecksumType", kept.coverage.name());
        }
        Ok(super::xml(out))
    }

    /// The object that the upload of the request has become, if it is there still.
    fn made_by(&self, call: &Call) -> Option<Arc<Object>> {
        let id = call.parameter("uploadId");
        self.object(&call.bucket, &call.key, None).ok().filter(|object| object.upload.is_some() && object.upload.as_deref() == id)
    }

    async fn complete(
        &self,
        call: &Call,
        upload: &Arc<Upload>,
        listed: &[Listed],
        said: Option<(Algorithm, String)>,
    ) -> Done<Arc<Object>> {
        if let Some(kind) = call.header("x-amz-checksum-type").filter(|kind| upload.asked && *kind != upload.coverage.name()) {
            let message = format!("The upload was created with the checksum type {}, not {kind}.", upload.coverage.name());
            return Err(Fault::new("InvalidRequest", message));
        }
        let parts = upload.parts.lock().expect("nothing under this lock panics").clone();
        let parts = choose(upload, listed, &parts)?;
        let length: u64 = parts.iter().map(|part| part.size()).sum();
        if let Some(said) = call.header("x-amz-mp-object-size").filter(|said| said.parse() != Ok(length)) {
            let message =
                format!("The provided x-amz-mp-object-size header value {said} does not match what was received: {length}.");
            return Err(Fault::new("InvalidRequest", message));
        }
        let knowledge = PART_KNOWLEDGE_BYTES * parts.len() as u64 + upload.id.len() as u64;
        let reservation = self.memory.take(call.key.len() as u64 + header_bytes(&upload.headers) + knowledge)?;
        let of_parts: Vec<_> = parts.iter().map(|part| Arc::clone(&part.pieces)).collect();
        let pieces = Pieces::joined(&of_parts, &self.memory)?;
        let kept = checksum(upload, &parts, &pieces).await;
        // Where the client did not ask for one, S3 passes over what it says of the whole.
        if let Some((_, said)) = said.filter(|(algorithm, _)| upload.asked && *algorithm == kept.algorithm) {
            let same = said == kept.value || kept.value.strip_prefix(&said).is_some_and(|rest| rest.starts_with('-'));
            if !same {
                let message = format!("The {} you specified did not match the calculated checksum.", kept.algorithm.name());
                return Err(Fault::new("BadDigest", message));
            }
        }
        let object = Arc::new(Object::new(Made {
            pieces,
            etag: etag(parts.iter().map(|part| &part.md5[..])),
            modified: self.seconds(),
            checksum: Some(kept),
            parts: parts.iter().map(|part| part.size()).collect(),
            upload: Some(upload.id.clone()),
            headers: upload.headers.clone(),
            reservation,
        }));
        self.place_completed(call, upload, &object)?;
        Ok(object)
    }

    /// The object comes and the upload goes, in one step.
    fn place_completed(&self, call: &Call, upload: &Upload, object: &Arc<Object>) -> Done<()> {
        let mut state = self.state_mut();
        let bucket = state.bucket_mut(&call.bucket)?;
        bucket.upload(&upload.key, &upload.id)?;
        super::condition::may_write(&call.headers, bucket.objects.get(&call.key).map(|old| old.etag.as_str()))?;
        let gone =
            (bucket.remove_upload(&upload.key, &upload.id), bucket.objects.insert(Arc::clone(&call.key), Arc::clone(object)));
        drop(state);
        drop(gone);
        Ok(())
    }
}

/// The ETag of an object whose parts have these MD5 digests.
fn etag<'a>(digests: impl ExactSizeIterator<Item = &'a [u8]>) -> String {
    let count = digests.len();
    let mut md5 = Checksum::new(Algorithm::Md5);
    digests.for_each(|digest| md5.update(digest));
    format!("{}-{count}", hex(&md5.value()))
}

/// Whether the object is made of the listed parts: their ETags are what its own is made of.
fn is_of(object: &Object, listed: &[Listed]) -> bool {
    let digest = |part: &Listed| {
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        part.etag.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>().unwrap_or_default()
    };
    let digests: Vec<_> = listed.iter().map(digest).collect();
    object.etag == etag(digests.iter().map(Vec::as_slice))
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
            let says_other = |(said, value): &(Algorithm, String)| *said == part.algorithm && *value != part.checksum;
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

async fn checksum(upload: &Upload, parts: &[Arc<Part>], pieces: &Pieces) -> Kept {
    let (algorithm, coverage) = (upload.algorithm, upload.coverage);
    if coverage == Coverage::FullObject {
        return Kept { algorithm, coverage, value: pieces.sum(algorithm).await.encoded() };
    }
    let mut of_parts = Checksum::new(algorithm);
    for part in parts {
        of_parts.update(&part.pieces.sum(algorithm).await.value());
    }
    Kept { algorithm, coverage, value: format!("{}-{}", of_parts.encoded(), parts.len()) }
}
