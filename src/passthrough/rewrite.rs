//! The few answers and headers that name what the client must not see or would not understand: where a multipart upload ended
//! up, and the source of a copy from a renamed bucket. Everything that is held here is bounded.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use http_body_util::{BodyExt, Full};

use crate::backend::{Body, collect};
use crate::error::xml::element;
use crate::error::{Error, Kind, Result};
use crate::types::query_pairs;

/// Longest answer that is rewritten, in bytes: a `Location` with the longest key, escaped, is far smaller.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Whether the answer to such a request holds a `<Location>` that shows the backend's address: CompleteMultipartUpload.
pub fn names_location(method: &Method, query: &str) -> bool {
    method == Method::POST && query_pairs(query).any(|(name, _)| name == "uploadId")
}

/// The answer with `url` for what its `<Location>` says.
pub async fn location(response: Response<Body>, url: &str) -> Result<Response<Body>> {
    let (mut head, body) = response.into_parts();
    let bytes = whole(body, ANSWER_BYTES_MAX).await?;
    let bytes = replace_location(&bytes, url);
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Ok(Response::from_parts(head, Body::new(Full::new(bytes).map_err(|never| match never {}))))
}

fn replace_location(body: &Bytes, url: &str) -> Bytes {
    let Ok(text) = std::str::from_utf8(body) else { return body.clone() };
    let (Some(start), Some(end)) = (text.find("<Location>"), text.find("</Location>")) else { return body.clone() };
    if end < start {
        return body.clone();
    }
    let mut out = String::with_capacity(text.len() + url.len());
    out.push_str(&text[..start]);
    element(&mut out, "Location", url);
    out.push_str(&text[end + "</Location>".len()..]);
    Bytes::from(out)
}

/// The whole of a bounded answer.
pub async fn whole(body: Body, bytes_max: usize) -> Result<Bytes> {
    let broken =
        |e| Error::new(Kind::BadGateway, "the store's answer broke off or is too long; the outcome is unknown").with_source(e);
    collect(body, bytes_max).await.map_err(broken)
}

/// `x-amz-copy-source` with the bucket's name at the backend.
pub fn copy_source(value: &HeaderValue, bucket: &str, name: &str) -> HeaderValue {
    let text = String::from_utf8_lossy(value.as_bytes());
    let start = text.find(bucket).unwrap_or(0);
    let renamed = format!("{}{name}{}", &text[..start], &text[start + bucket.len()..]);
    HeaderValue::from_str(&renamed).unwrap_or_else(|_| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_shows_the_address_that_the_client_used() {
        let body = Bytes::from("<R><Location>http://10.0.0.1:8333/b/k</Location><Key>k</Key></R>");
        assert_eq!(replace_location(&body, "http://gate/b/a&b"), "<R><Location>http://gate/b/a&amp;b</Location><Key>k</Key></R>");
        let error = Bytes::from("<Error><Code>x</Code></Error>");
        assert_eq!(replace_location(&error, "u"), error);
    }

    #[test]
    fn a_copy_source_keeps_everything_but_the_bucket() {
        let renamed = copy_source(&HeaderValue::from_static("/old/old/k%20?versionId=1"), "old", "new");
        assert_eq!(renamed, "/new/old/k%20?versionId=1");
    }
}
