//! An S3 store in the process, in memory, for trying and testing: it is empty at start and lost at the end. What enters is what
//! any backend gets, a read or a request that was authenticated, allowed and verified; what leaves is S3's answer. Objects are
//! handed out as slices of the memory that they lie in. What it does not do it refuses by name. Memory is bounded by one
//! setting; no lock is held while anyone waits.
//!
//! S3's documents are read and written here rather than by a library: keys and metadata come back byte for byte, which the
//! common service crate does not promise, and a first build does not wait for what nobody asks.
//!
//! In reading order: `operation` (what is asked), `state` and `object` (what there is), `get` and `condition` (reads), `receive`
//! (over `framing`), `writes`, `copy`, `multipart` and `complete`, `buckets`, `listing` and `lists`; below them `pieces`, `memory`, `fault`, `xml`, `date`.

mod buckets;
mod complete;
pub mod condition;
mod copy;
pub mod date;
mod fault;
mod framing;
mod get;
mod listing;
mod lists;
mod memory;
mod multipart;
mod object;
mod operation;
mod pieces;
mod receive;
mod state;
#[cfg(test)]
mod tests;
mod writes;
mod xml;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::UNIX_EPOCH;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use rand::Rng;
use rand::rngs::SmallRng;

use super::{Attempt, BackendError, BackendErrorKind, Body, Forward, ObjectRead, ReadAsk, Sender, empty_body, full_body};
use crate::config::BackendConfig;
use crate::telemetry::{BackendMetrics, StoredMetrics};
use crate::types::{ObjectKey, RequestId, WallClock, percent_decode, query_pairs};
use date::Seconds;
use fault::{Done, Fault};
use get::parameter;
use listing::Key;
use lists::OWNER;
use memory::Memory;
use multipart::part_number;
use object::Object;
use operation::{Level, Operation, operation};
use receive::Trouble;
use state::State;

/// What a person should know of it, in one line.
pub const NOTICE: &str = "embedded, in memory, for trying and testing: all of it is lost when this process ends";

/// The distance between two request ids: odd, so that none comes twice, and large, so that they look like no count.
const ID_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whose bucket a request means.
const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";

/// See the module.
pub struct EmbeddedStore {
    state: RwLock<State>,
    memory: Memory,
    region: String,
    now: WallClock,
    random: Mutex<SmallRng>,
    next_id: AtomicU64,
    upload_count: AtomicU64,
    metrics: BackendMetrics,
}

/// A request, taken apart.
struct Call {
    method: Method,
    path: String,
    /// Empty on the service's level.
    bucket: String,
    /// Empty on the bucket's level.
    key: Key,
    query: Vec<(String, String)>,
    headers: HeaderMap,
}

impl Call {
    fn parameter(&self, name: &str) -> Option<&str> {
        parameter(&self.query, name)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn level(&self) -> Level {
        match (self.bucket.is_empty(), self.key.is_empty()) {
            (true, _) => Level::Service,
            (false, true) => Level::Bucket,
            (false, false) => Level::Object,
        }
    }
}

impl EmbeddedStore {
    /// An empty store of the region and memory that `config` says. `random` makes the ids of uploads and requests.
    pub fn new(
        config: &BackendConfig,
        now: WallClock,
        mut random: SmallRng,
        metrics: BackendMetrics,
        stored: &StoredMetrics,
    ) -> Self {
        stored.bytes_max.set(i64::try_from(config.memory_bytes_max).unwrap_or(i64::MAX));
        Self {
            state: RwLock::default(),
            memory: Memory::new(config.memory_bytes_max, Some(stored.bytes.clone())),
            region: config.region.clone(),
            now,
            next_id: AtomicU64::new(random.random()),
            upload_count: AtomicU64::new(0),
            random: Mutex::new(random),
            metrics,
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("nothing under this lock panics")
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("nothing under this lock panics")
    }

    fn seconds(&self) -> Seconds {
        (self.now)().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as Seconds)
    }

    fn new_upload_id(&self) -> String {
        // The uploads of one key are listed by their ids, and S3 lists them in the order in which they began.
        let count = self.upload_count.fetch_add(1, Ordering::Relaxed);
        let random: u64 = self.random.lock().expect("drawing a number does not panic").random();
        format!("{count:016x}{random:016x}")
    }

    /// The object that is read; the only version there is goes by `null`.
    fn object(&self, bucket: &str, key: &[u8], version: Option<&str>) -> Done<Arc<Object>> {
        if version.is_some_and(|version| version != "null") {
            return Err(Fault::new("NoSuchVersion", "The embedded store keeps no versions; the only one is \"null\"."));
        }
        Ok(Arc::clone(self.state().bucket(bucket)?.object(key)?))
    }

    /// Refuses a request that is meant for a bucket of somebody else.
    fn check_owner(&self, bucket: &str, expected: Option<&HeaderValue>) -> Done<()> {
        match expected.filter(|owner| *owner != OWNER) {
            Some(_) if self.state().buckets.contains_key(bucket) => {
                let message = format!("The owner of the bucket is {OWNER:?}, and not who the request says.");
                Err(Fault::new("AccessDenied", message))
            }
            _ => Ok(()),
        }
    }

    /// Nothing in it is public.
    fn check_sender(sender: &Sender) -> Done<()> {
        match sender {
            Sender::Gateway | Sender::Client(_) => Ok(()),
            Sender::Nobody => Err(Fault::new("AccessDenied", "The embedded store answers no request without a signature.")),
        }
    }

    fn count(&self, response: &Response<Body>) {
        match response.status().as_u16() {
            // Counted by whoever knows its code.
            503 => {}
            status if status >= 500 => self.metrics.attempts_failed.inc(),
            _ => self.metrics.attempts_ok.inc(),
        }
    }

    async fn answer(&self, request: Request<Body>) -> Attempt {
        let (mut parts, body) = request.into_parts();
        let sender = parts.extensions.remove::<Sender>().unwrap_or_default();
        let id = RequestId(self.next_id.fetch_add(ID_STEP, Ordering::Relaxed)).to_string();
        let head = parts.method == Method::HEAD;
        let path = parts.uri.path().to_owned();
        let done = match Self::check_sender(&sender).and_then(|()| call(parts)) {
            Ok(call) => self.perform(&call, body).await,
            Err(fault) => Err(fault.into()),
        };
        let mut response = match done {
            Ok(response) => response,
            Err(Trouble::Fault(fault)) => fault.answer(&path, &id, head),
            Err(Trouble::Body(source)) => {
                self.metrics.attempts_no_answer.inc();
                return Err(BackendError { kind: BackendErrorKind::RequestBody, source });
            }
        };
        response.headers_mut().insert("x-amz-request-id", HeaderValue::from_str(&id).expect("hex digits"));
        self.count(&response);
        Ok(response)
    }

    async fn perform(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        self.check_owner(&call.bucket, call.headers.get(EXPECTED_OWNER))?;
        Ok(match operation(&call.method, call.level(), &call.query, &call.headers) {
            Operation::GetObject => self.get(call)?,
            Operation::PutObject => self.put(call, body).await?,
            Operation::CopyObject => self.copy(call).await?,
            Operation::DeleteObject => self.delete(call)?,
            Operation::DeleteObjects => self.delete_many(call, body).await?,
            Operation::CreateMultipartUpload => self.create_upload(call)?,
            Operation::UploadPart => self.upload_part(call, body).await?,
            Operation::UploadPartCopy => self.copy_part(call).await?,
            Operation::ListParts => self.list_parts(call)?,
            Operation::CompleteMultipartUpload => self.complete_upload(call, body).await?,
            Operation::AbortMultipartUpload => self.abort_upload(call)?,
            Operation::ListBuckets => self.list_buckets(call)?,
            Operation::CreateBucket => self.create_bucket(call, body).await?,
            Operation::HeadBucket => self.head_bucket(call)?,
            Operation::DeleteBucket => self.delete_bucket(call)?,
            Operation::GetBucketLocation => self.location(call)?,
            Operation::GetBucketVersioning => self.versioning(call)?,
            Operation::ListObjects => self.list_objects(call)?,
            Operation::ListObjectsV2 => self.list_objects_v2(call)?,
            Operation::ListObjectVersions => self.list_versions(call)?,
            Operation::ListMultipartUploads => self.list_uploads(call)?,
            Operation::Other(name) => {
                if call.level() != Level::Service {
                    self.state().bucket(&call.bucket)?;
                }
                return Err(Fault::not_implemented(name).into());
            }
            Operation::NoMethod => {
                let message = "The specified method is not allowed against this resource.";
                return Err(Fault::new("MethodNotAllowed", message).into());
            }
        })
    }

    fn get(&self, call: &Call) -> Done<Response<Body>> {
        let part = call.parameter("partNumber").map(|_| part_number(call)).transpose()?;
        let object = self.object(&call.bucket, &call.key, call.parameter("versionId"))?;
        let ask = get::Ask { head: call.method == Method::HEAD, headers: &call.headers, part, query: &call.query };
        get::answer(&object, &ask)
    }

    fn read_object(&self, ask: &ReadAsk) -> Done<Response<Body>> {
        Self::check_sender(&ask.sender)?;
        self.check_owner(&ask.bucket, ask.headers.get(EXPECTED_OWNER))?;
        let object = self.object(&ask.bucket, ask.key.as_str().as_bytes(), ask.version.as_deref())?;
        let conditional = ask.range.is_some() || ask.if_match.is_some() || ask.if_none_match.is_some();
        if !conditional {
            return get::answer(&object, &get::Ask { head: false, headers: &ask.headers, part: None, query: &[] });
        }
        let mut headers = HeaderMap::clone(&ask.headers);
        let range = ask.range.map(|range| HeaderValue::from_str(&range.to_string()).expect("digits"));
        for (name, value) in
            [(header::RANGE, range), (header::IF_MATCH, ask.if_match.clone()), (header::IF_NONE_MATCH, ask.if_none_match.clone())]
        {
            value.map(|value| headers.insert(name, value));
        }
        get::answer(&object, &get::Ask { head: false, headers: &headers, part: None, query: &[] })
    }
}

impl ObjectRead for EmbeddedStore {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        let response = self.read_object(ask).unwrap_or_else(|fault| fault.answer(ask.key.as_str(), "", false));
        self.count(&response);
        Box::pin(std::future::ready(Ok(response)))
    }
}

impl Forward for EmbeddedStore {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        Box::pin(self.answer(request))
    }
}

/// Takes a request apart: the path is cut once and its parts are decoded once.
fn call(parts: http::request::Parts) -> Done<Call> {
    let path = parts.uri.path().to_owned();
    let rest = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let text = |raw: &str| {
        let invalid = |_| Fault::new("InvalidURI", "The path or the query is not UTF-8.");
        String::from_utf8(percent_decode(raw)).map_err(invalid)
    };
    let (bucket, key) = (text(bucket)?, text(key)?);
    if key.len() > ObjectKey::BYTES_MAX {
        return Err(Fault::new("KeyTooLongError", format!("A key has at most {} bytes.", ObjectKey::BYTES_MAX)));
    }
    // In a query a plus is a space, as in forms.
    let pair = |(name, value): (&str, &str)| Ok((text(&name.replace('+', " "))?, text(&value.replace('+', " "))?));
    let query = query_pairs(parts.uri.query().unwrap_or_default()).map(pair).collect::<Done<_>>()?;
    Ok(Call { method: parts.method, path, bucket, key: key.as_bytes().into(), query, headers: parts.headers })
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = status;
    response
}

fn xml(document: xml::Document) -> Response<Body> {
    let text = document.finish();
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(full_body(text));
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}
