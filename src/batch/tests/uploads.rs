//! Multipart uploads of a simulated store: create, parts, complete, abort. What enters is a forwarded request that has arrived
//! whole, what leaves is the store's answer to it, after its effect. Invariant: an object comes of an upload only when it is
//! completed, and then of all its parts.

use std::collections::{BTreeMap, HashMap};

use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};

use crate::backend::{Body, empty_body, full_body};

use super::AT_STORE;
use super::objects::{Object, SECRET, content, refusal};
use super::store::{SimStore, job_of};
use super::writes::{generation, told};

/// Uploads that are neither completed nor aborted.
#[derive(Default)]
pub struct Uploads {
    begun: u32,
    open: HashMap<String, Upload>,
}

struct Upload {
    generation: u32,
    parts: BTreeMap<u32, Vec<u8>>,
}

impl SimStore {
    /// Carries out a step of an upload, which `head` has in its query.
    pub(super) fn upload_step(&self, head: &Parts, key: &str, bytes: Vec<u8>) -> Response<Body> {
        let job = job_of(&head.headers);
        let query = head.uri.query().unwrap_or_default();
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let no_such = || told(refusal(StatusCode::NOT_FOUND, "NoSuchUpload"));
        let (response, made) = self.with_uploads(|uploads| {
            let Some(id) = value("uploadId") else {
                uploads.begun += 1;
                let id = format!("upload-{}", uploads.begun);
                let answer = format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
                uploads.open.insert(id, Upload { generation: generation(&head.headers), parts: BTreeMap::new() });
                return (Response::new(full_body(answer)), None);
            };
            match (&head.method, value("partNumber").and_then(|number| number.parse().ok())) {
                (&Method::PUT, Some(number)) => {
                    let Some(upload) = uploads.open.get_mut(id) else { return (no_such(), None) };
                    upload.parts.insert(number, bytes);
                    let mut response = Response::new(empty_body());
                    response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"part\""));
                    (response, None)
                }
                (&Method::DELETE, _) => {
                    let Some(_) = uploads.open.remove(id) else { return (no_such(), None) };
                    let mut response = Response::new(empty_body());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    (response, None)
                }
                _ => {
                    let Some(upload) = uploads.open.remove(id) else { return (no_such(), None) };
                    let whole = upload.parts.into_values().collect::<Vec<_>>().concat();
                    let object = Object { generation: upload.generation, ..Object::of(whole.len()) };
                    let tag = object.etag();
                    let location = format!("http://{SECRET}/{AT_STORE}/{key}");
                    let answer = format!(
                        "<CompleteMultipartUploadResult><Location>{location}</Location><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                    );
                    (Response::new(full_body(answer)), Some((object, whole)))
                }
            }
        });
        match made {
            Some((object, whole)) => {
                if whole != content(key, object.generation, object.length) {
                    self.is_wrong(format!("the parts of {key} are not those that were sent"));
                }
                self.carry_out(job, key, Some(object));
            }
            None if response.status().is_success() => self.carried_step(job),
            None => {}
        }
        response
    }
}
