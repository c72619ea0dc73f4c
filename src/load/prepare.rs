//! The made objects are there before anything is measured. What enters are an endpoint and keys; what leaves is that the
//! objects are there, or the one reason why they are not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, TryStreamExt};
use http::{HeaderMap, Method, StatusCode};

use super::job::{Job, Keys, Mode};
use super::{Control, content};
use crate::backend::s3::object_path;
use crate::client::{ClientError, Endpoint, Entry};

/// Most objects that are written at a time.
const AT_ONCE_MAX: u64 = 32;

/// Most bytes of them, if one alone is not more.
const AT_ONCE_BYTES_MAX: u64 = 64 << 20;

/// How often an object is tried to be written.
const ATTEMPTS_MAX: u32 = 6;

/// Before the second attempt; twice as long before each further one.
const BACKOFF_BASE: Duration = Duration::from_millis(50);

/// What was done so that all objects are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Objects that were written.
    pub written: u64,
    /// Objects that had been there with the right size, and the right bytes as far as their ETag tells.
    pub kept: u64,
}

/// Why a job cannot run.
#[derive(Clone, Debug)]
pub enum Unready {
    /// There is no right answer to a first request.
    NoAnswer(ClientError),
    /// The bucket is not there.
    NoBucket,
    /// This object is not there.
    NoObject(String),
    /// This object has another size than it should.
    WrongSize {
        /// Which.
        key: String,
        /// Its size.
        found: u64,
    },
    /// The endpoint has no BatchGet.
    NoBatchGet,
    /// It takes no more entries than this.
    BatchTooLarge(usize),
    /// Whoever asked did not wait for it.
    Stopped,
}

impl From<ClientError> for Unready {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Refused(refusal) if refusal.code == "NoSuchBucket" => Self::NoBucket,
            _ => Self::NoAnswer(error),
        }
    }
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(error) => error.fmt(f),
            Self::NoBucket => f.write_str("the bucket does not exist"),
            Self::NoObject(key) => write!(f, "object {key} does not exist"),
            Self::WrongSize { key, found } => write!(f, "object {key} has {found} bytes"),
            Self::NoBatchGet => f.write_str("the endpoint has no BatchGet"),
            Self::BatchTooLarge(max) => write!(f, "the endpoint takes no more than {max} entries in a BatchGet"),
            Self::Stopped => f.write_str("it was told to stop"),
        }
    }
}

/// Looks whether a job can run: as [`check_endpoint`], and its first and its last object are there.
///
/// # Errors
/// The first reason why not.
pub async fn check(endpoint: &Endpoint, job: &Job) -> Result<(), Unready> {
    check_endpoint(endpoint, job).await?;
    let last = job.keys.count() - 1;
    for number in if last == 0 { vec![0] } else { vec![0, last] } {
        let key = job.keys.key(number);
        let found = match endpoint.get_object(&job.bucket, &Entry::new(&key)).await {
            Ok(answer) => {
                let mut body = answer.into_body();
                let mut found = 0;
                while let Some(octets) = endpoint.data(&mut body).await? {
                    found += octets.len() as u64;
                }
                found
            }
            Err(ClientError::Refused(refusal)) if refusal.code == "NoSuchKey" => return Err(Unready::NoObject(key)),
            Err(error) => return Err(error.into()),
        };
        if job.keys.size().is_some_and(|size| size != found) {
            return Err(Unready::WrongSize { key, found });
        }
    }
    Ok(())
}

/// Looks whether the endpoint is below its path, and takes the job's BatchGets, if it has any; no object need be there.
///
/// # Errors
/// The reason why not.
pub async fn check_endpoint(endpoint: &Endpoint, job: &Job) -> Result<(), Unready> {
    let entries = job.mode.entries();
    // To all other requests a path that is wrong looks like a bucket that is missing.
    if entries.is_none() && !endpoint.has_path() {
        return Ok(());
    }
    let able = endpoint.capabilities().await?;
    let Some(entries) = entries else { return Ok(()) };
    let max = able.ok_or(Unready::NoBatchGet)?.limits.entries;
    if entries > max { Err(Unready::BatchTooLarge(max)) } else { Ok(()) }
}

/// Makes the bucket if it is not there, and writes those made objects that are not there with the right size and an ETag that
/// is not another's MD5, some at a time. Nothing is done for listed keys.
///
/// # Errors
/// The first reason why one could not be written, after some attempts where more of them may help.
pub async fn prepare(endpoint: &Endpoint, bucket: &str, keys: &Keys, control: &Arc<Control>) -> Result<Prepared, Unready> {
    let Keys::Made { count, size, .. } = *keys else { return Ok(Prepared::default()) };
    make_bucket(endpoint, bucket).await?;
    control.say(format!("preparing {count} objects"));
    let (written, kept) = (AtomicU64::new(0), AtomicU64::new(0));
    let one = async |number: u64| -> Result<(), Unready> {
        let key = keys.key(number);
        if is_there(endpoint, bucket, &key, number, size).await? {
            kept.fetch_add(1, Ordering::Relaxed);
        } else {
            patiently(async || endpoint.put_object(bucket, &key, content::whole(number, size)).await).await?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        control.objects.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let at_once = (AT_ONCE_BYTES_MAX / size.max(1)).clamp(1, AT_ONCE_MAX) as usize;
    stream::iter((0..count).map(Ok)).try_for_each_concurrent(at_once, one).await?;
    control.objects.store(0, Ordering::Relaxed);
    Ok(Prepared { written: written.into_inner(), kept: kept.into_inner() })
}

async fn make_bucket(endpoint: &Endpoint, bucket: &str) -> Result<(), Unready> {
    let path = format!("/{bucket}");
    let found = patiently(async || endpoint.send(Method::HEAD, &path, HeaderMap::new(), Bytes::new()).await).await?;
    // Whoever may write objects need not be allowed to look at the bucket; a write will tell.
    if found.status() == StatusCode::NOT_FOUND {
        endpoint.ask(Method::PUT, &path, HeaderMap::new(), Bytes::new()).await?;
    }
    Ok(())
}

async fn is_there(endpoint: &Endpoint, bucket: &str, key: &str, number: u64, size: u64) -> Result<bool, Unready> {
    let path = object_path(bucket, key, None);
    let found = patiently(async || endpoint.send(Method::HEAD, &path, HeaderMap::new(), Bytes::new()).await).await?;
    Ok(found.status() == StatusCode::OK && may_be(found.headers(), number, size))
}

/// Whether nothing in these headers says that it is another object than made object `number`.
fn may_be(headers: &HeaderMap, number: u64, size: u64) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text("content-length").and_then(|length| length.parse::<u64>().ok());
    // An object that was encrypted with a key of KMS or of a client has an ETag of 32 digits that is no MD5.
    let is_md5 = text("x-amz-server-side-encryption").is_none_or(|how| how == "AES256")
        && text("x-amz-server-side-encryption-customer-algorithm").is_none();
    let etag = text("etag").map(|etag| etag.trim_matches('"')).filter(|etag| is_md5 && content::is_md5(etag));
    length == Some(size) && etag.is_none_or(|etag| etag.eq_ignore_ascii_case(&content::md5(number, size)))
}

/// Tries again where that may help.
async fn patiently<T>(mut attempt: impl AsyncFnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut pause = BACKOFF_BASE;
    for _ in 1..ATTEMPTS_MAX {
        match attempt().await {
            Err(error) if error.may_pass() && !matches!(error, ClientError::Unreachable(_)) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    attempt().await
}

impl Mode {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Mixed(mix) if mix.put > 0)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_is_there_is_told_from_others_by_size_and_md5() {
        let right = format!("\"{}\"", content::md5(7, 100));
        let other = format!("\"{}\"", content::md5(8, 100));
        let is_kept = |size: &str, etag: Option<&str>, more: Option<(&'static str, &str)>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [("content-length", size)].into_iter().chain(etag.map(|etag| ("etag", etag))).chain(more) {
                headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
            may_be(&headers, 7, 100)
        };
        assert!(is_kept("100", Some(&right), None) && is_kept("100", Some(right.trim_matches('"')), None));
        assert!(is_kept("100", Some(&right.to_uppercase()), Some(("x-amz-server-side-encryption", "AES256"))));
        assert!(!is_kept("100", Some(&other), None) && !is_kept("101", Some(&right), None));
        assert!(!is_kept("100", Some(&other), Some(("x-amz-server-side-encryption", "AES256"))));
        // No MD5: only the size tells.
        for etag in [None, Some("\"d41d8cd98f00b204e9800998ecf8427e-2\""), Some("\"zz\""), Some("")] {
            assert!(is_kept("100", etag, None) && !is_kept("99", etag, None), "{etag:?}");
        }
        assert!(is_kept("100", Some(&other), Some(("x-amz-server-side-encryption", "aws:kms"))));
        assert!(is_kept("100", Some(&other), Some(("x-amz-server-side-encryption-customer-algorithm", "AES256"))));
    }
}
