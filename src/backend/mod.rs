//! Stores behind the gateway. In comes a read or an opaque S3 request, out goes the store's own answer. [`s3`] speaks HTTP to
//! one endpoint, [`embedded`] keeps objects in this process, [`delayed`] moves a store further away, for trials; [`limited`] says
//! when a read may wait for one, [`breaker`] whether it is asked at all; [`retrying`] makes one logical read of many attempts, as
//! many as the [`retry_budget`] allows; a [`form`] is a request that says in its body who signed it; a [`peek`] is a look at how a body
//! begins; [`registry`] holds them all by name. What each has to complain of goes through [`warnings`]; [`accepted`] is whether it
//! took our signature.
//! Nothing here knows batches, clients or identities.

pub mod accepted;
pub mod breaker;
pub mod delayed;
pub mod embedded;
pub mod form;
pub mod limited;
pub mod peek;
pub mod registry;
pub mod retry_budget;
pub mod retrying;
pub mod s3;
mod verdict;
pub mod warnings;

pub use registry::{Backend, Heard, Registry, Store};
pub use s3::credentials::KeyPair;
pub use verdict::is_well;

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::types::{ByteRange, ObjectKey};

/// Any error of a body or a library below us; only logs see its text.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body, of a request or of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// No bytes at all.
pub fn empty_body() -> Body {
    Body::new(http_body_util::Empty::new().map_err(|never| match never {}))
}

/// All of `bytes`.
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Body::new(http_body_util::Full::new(bytes.into()).map_err(|never| match never {}))
}

/// The whole of a body that has at most `bytes_max` bytes.
///
/// # Errors
/// The body's own, or that it is longer.
pub async fn collect(mut body: Body, bytes_max: usize) -> Result<Bytes, BoxError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        if bytes.len() + data.len() > bytes_max {
            return Err(format!("the body has more than {bytes_max} bytes").into());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// One GetObject, by the store's name for the bucket.
#[derive(Clone, Debug)]
pub struct ReadAsk {
    /// The bucket's name at the store.
    pub bucket: Arc<str>,
    /// The object's key, byte-exact.
    pub key: ObjectKey,
    /// `versionId` of the query.
    pub version: Option<Box<str>>,
    /// The `Range` header.
    pub range: Option<ByteRange>,
    /// The `If-Match` header.
    pub if_match: Option<HeaderValue>,
    /// The `If-None-Match` header.
    pub if_none_match: Option<HeaderValue>,
    /// Further headers that the store must see, such as SSE-C keys; shared by all reads of a batch.
    pub headers: Arc<HeaderMap>,
    /// Whether an attempt before this one failed: then a new connection is made, to another address where there is one.
    pub elsewhere: bool,
    /// In whose name.
    pub sender: Sender,
}

#[cfg(test)]
impl ReadAsk {
    /// All of an object, whatever it is now, in the gateway's name: what every test's read is but for what it is about.
    pub fn plain(bucket: &str, key: &str) -> Self {
        Self {
            bucket: bucket.into(),
            key: ObjectKey::new(key).expect("a test's key is valid"),
            version: None,
            range: None,
            if_match: None,
            if_none_match: None,
            headers: Arc::default(),
            elsewhere: false,
            sender: Sender::Gateway,
        }
    }
}

/// In whose name a store is asked. Among the extensions of a request to forward; where there is none, it is the gateway's.
#[derive(Clone, Debug, Default)]
pub enum Sender {
    /// The gateway's: signed by the backend's own credentials.
    #[default]
    Gateway,
    /// The client's, which has an account at the store: signed by it.
    Client(Arc<KeyPair>),
    /// Nobody's: not signed at all.
    Nobody,
}

impl Sender {
    /// Whether a refusal with this S3 code is about a signature, but not about that of a client's own account: what it says is
    /// then the gateway's to mend, and nobody else's to know.
    pub fn is_at_no_fault(&self, code: &str) -> bool {
        let of_its_own = matches!(self, Self::Client(_)) && s3::is_about_a_key_pair(code);
        s3::is_about_our_signature(code) && !of_its_own
    }
}

/// Among the extensions of a request to forward: what [`ReadAsk::elsewhere`] is to a read.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere;

/// Among the extensions of an answer: the store does not do here what it was asked for, but said where the bucket is, and the same
/// request goes there if it is sent once more. What has no body has been, as often as may be.
#[derive(Clone, Copy, Debug)]
pub struct Taught;

/// Among the extensions of an answer: its body has been waited for since then already.
#[derive(Clone, Copy, Debug)]
pub struct WaitedSince(pub tokio::time::Instant);

/// Among the extensions of a client's request: the backends that were asked for its sake, by their names in the settings.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<String>>);

impl Asked {
    /// Another is asked, or the same once more.
    pub fn note(&self, name: &str) {
        let mut names = self.0.lock().expect("adding a name does not panic");
        if names.rsplit(',').next() != Some(name) {
            let comma = if names.is_empty() { "" } else { "," };
            names.extend([comma, name]);
        }
    }

    /// The names, with commas between them, if there are any.
    pub fn names(&self) -> Option<String> {
        Some(self.0.lock().expect("adding a name does not panic").clone()).filter(|names| !names.is_empty())
    }
}

/// Why there is no answer. The client is told no more than the kind.
#[derive(Debug)]
pub struct BackendError {
    /// What to make of it.
    pub kind: BackendErrorKind,
    /// For the log.
    pub source: BoxError,
}

/// Kinds of missing answers, each an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendErrorKind {
    /// No connection, or one that ended before the request was begun: nothing was sent, so anything may be tried again.
    Unreachable,
    /// There is nothing to sign the request with.
    NoCredentials,
    /// The connection broke after something was, or may have been, sent: reads may be tried again, nobody knows of writes.
    NoAnswer,
    /// What came was not HTTP.
    Garbled,
    /// The head of the answer is larger than we take.
    HeadTooLarge,
    /// An answer with a body that nothing but the connection's end would end: cut short, it would look whole.
    Unframed,
    /// The body that we were sending failed; its own verdict says why.
    RequestBody,
}

impl BackendErrorKind {
    /// An answer came, but none that can be used, and another try would bring no better one.
    pub fn is_no_use(self) -> bool {
        matches!(self, Self::Garbled | Self::HeadTooLarge | Self::Unframed)
    }
}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.source)
    }
}

impl std::error::Error for BackendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// What an attempt brings: an answer with its body still to be streamed, or the reason for none.
pub type Attempt = Result<Response<Body>, BackendError>;

/// Reads objects. One call is one attempt: no retry, no limit, no deadline.
pub trait ObjectRead: Send + Sync {
    /// Sends one GetObject and returns once the head of the answer is here.
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt>;
}

/// Forwards S3 requests as they are.
pub trait Forward: Send + Sync {
    /// Sends `request`, whose URI is the path and query at the store (bucket already renamed, raw) and whose
    /// `x-amz-content-sha256` says how its body is to be signed; adds host and signature, nothing else. It is sent once; without a
    /// body also once more, where the store did nothing but say where the bucket is.
    /// [`Elsewhere`] among its extensions asks for a new connection, [`Sender`] says in whose name, and [`form::PostForm`] makes
    /// it a form.
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt>;

    /// The region in which the bucket of `path` is to be made, where the store has just said so to a request that was to make it.
    fn region_to_make(&self, _path: &PathAndQuery) -> Option<String> {
        None
    }
}
