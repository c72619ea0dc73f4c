//! Buckets themselves: made, found, listed, and removed once they are empty.

use std::ops::Bound;

use http::{HeaderValue, Response, StatusCode, header};

use super::date::iso_date;
use super::fault::{Done, Fault};
use super::lists::{owner, token, untoken};
use super::receive::{Trouble, document};
use super::state::Bucket;
use super::writes::check_write;
use super::{Call, EmbeddedStore, empty, xml};
use crate::backend::Body;

/// Most buckets of a page (S3's own limit).
const PAGE_MAX: usize = 10_000;

/// S3's rules for new names (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>), but for reserved
/// prefixes and suffixes.
fn valid(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<&u8>| b.is_some_and(|b| letter(*b));
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|b| letter(*b) || matches!(b, b'-' | b'.'))
        && ends(bytes.first())
        && ends(bytes.last())
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
}

impl EmbeddedStore {
    pub(super) async fn create_bucket(&self, call: &Call, body: Body) -> Result<Response<Body>, Trouble> {
        check_write(&call.headers)?;
        if call.header("x-amz-bucket-object-lock-enabled").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err(Fault::not_implemented("The header x-amz-bucket-object-lock-enabled").into());
        }
        if !valid(&call.bucket) {
            return Err(Fault::new("InvalidBucketName", "The specified bucket is not valid.").into());
        }
        let (configuration, _reservation) = document(&call.headers, body, &self.memory).await?;
        if !configuration.is_empty() {
            // Where it lies is nowhere but here, whatever the client wishes.
            xml::parse(&configuration, "CreateBucketConfiguration")?;
        }
        let bucket = Bucket::new(self.seconds(), self.memory.take(call.bucket.len() as u64)?);
        let mut state = self.state_mut();
        if state.buckets.contains_key(&call.bucket) {
            let message = "Your previous request to create the named bucket succeeded and you already own it.";
            return Err(Fault::new("BucketAlreadyOwnedByYou", message).into());
        }
        state.buckets.insert(call.bucket.clone(), bucket);
        drop(state);
        let mut response = empty(StatusCode::OK);
        let location = HeaderValue::from_str(&format!("/{}", call.bucket)).expect("a valid name");
        response.headers_mut().insert(header::LOCATION, location);
        Ok(response)
    }

    pub(super) fn head_bucket(&self, call: &Call) -> Done<Response<Body>> {
        self.state().bucket(&call.bucket)?;
        let mut response = empty(StatusCode::OK);
        if let Ok(region) = HeaderValue::from_str(&self.region) {
            response.headers_mut().insert("x-amz-bucket-region", region);
        }
        Ok(response)
    }

    pub(super) fn delete_bucket(&self, call: &Call) -> Done<Response<Body>> {
        let mut state = self.state_mut();
        if !state.bucket(&call.bucket)?.objects.is_empty() {
            return Err(Fault::new("BucketNotEmpty", "The bucket you tried to delete is not empty."));
        }
        // Uploads that are under way go with it.
        let gone = state.buckets.remove(&call.bucket);
        drop(state);
        drop(gone);
        Ok(empty(StatusCode::NO_CONTENT))
    }

    pub(super) fn list_buckets(&self, call: &Call) -> Done<Response<Body>> {
        let prefix = call.parameter("prefix").unwrap_or_default();
        let max = match call.parameter("max-buckets").map(|max| max.parse().ok().filter(|max| (1..=PAGE_MAX).contains(max))) {
            None => PAGE_MAX,
            Some(Some(max)) => max,
            Some(None) => return Err(Fault::argument(format!("max-buckets must be an integer between 1 and {PAGE_MAX}."))),
        };
        let behind = call.parameter("continuation-token").map(untoken).transpose()?.unwrap_or_default();
        let here = call.parameter("bucket-region").is_none_or(|region| region == self.region);
        let state = self.state();
        let rest = state.buckets.range::<str, _>((Bound::Excluded(behind.as_str()), Bound::Unbounded));
        let mut rest = rest.filter(|(name, _)| here && name.starts_with(prefix));
        let page: Vec<_> = rest.by_ref().take(max).collect();
        let mut out = xml::Document::new("ListAllMyBucketsResult");
        owner(&mut out);
        out.nested("Buckets", |out| {
            for (name, bucket) in &page {
                out.nested("Bucket", |out| {
                    out.text("Name", name);
                    out.text("CreationDate", &iso_date(bucket.created));
                });
            }
        });
        if let Some((last, _)) = page.last().filter(|_| rest.next().is_some()) {
            out.text("ContinuationToken", &token(last.as_bytes()));
        }
        out.optional("Prefix", call.parameter("prefix"));
        Ok(super::xml(out))
    }

    pub(super) fn location(&self, call: &Call) -> Done<Response<Body>> {
        self.state().bucket(&call.bucket)?;
        let text = if self.region == "us-east-1" { "" } else { &self.region };
        let mut out = xml::Document::new("LocationConstraint");
        out.raw(text);
        Ok(super::xml(out))
    }

    pub(super) fn versioning(&self, call: &Call) -> Done<Response<Body>> {
        self.state().bucket(&call.bucket)?;
        Ok(super::xml(xml::Document::new("VersioningConfiguration")))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_follow_the_rules_of_s3() {
        for name in ["abc", "a-b.c", "1bucket", &"x".repeat(63)] {
            assert!(super::valid(name), "{name}");
        }
        for name in ["ab", "Abc", "a_b_c", "-abc", "abc-", "a..b", "192.168.0.1", &"x".repeat(64), "a b c"] {
            assert!(!super::valid(name), "{name}");
        }
    }
}
