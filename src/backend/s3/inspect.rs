//! What came back, looked at before it is anybody's answer: whether its head is one, and whether its end can be seen. In: an answer as
//! hyper read it; out: the same, or why it is none.

use http::{HeaderMap, HeaderValue, Method, Response, Uri, header};
use hyper::body::Incoming;

use super::connect::READ_BUFFER_BYTES_MAX;
use crate::backend::{BackendError, BackendErrorKind};
use crate::types::query_pairs;

/// Why what came is no answer: a status that ends no request, or two ways to tell where its body ends.
pub(super) fn no_answer(response: &Response<Incoming>) -> Option<BackendError> {
    let because = |kind, why: String| Some(BackendError { kind, source: why.into() });
    let (status, headers) = (response.status().as_u16(), response.headers());
    if !(200..600).contains(&status) {
        return because(BackendErrorKind::Garbled, format!("status {status}"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        // Any other coding is none that we take off, and would end with the connection.
        let only_chunks = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
        if !only_chunks || headers.contains_key(header::CONTENT_LENGTH) {
            return because(
                BackendErrorKind::Unframed,
                "a Transfer-Encoding that is not chunked, or a Content-Length beside it".to_owned(),
            );
        }
    }
    None
}

/// A length that is said more than once is said once. Nothing where it is none, or several that differ.
pub(super) fn with_one_length(mut response: Response<Incoming>) -> Result<Response<Incoming>, BackendError> {
    match one_length(response.headers()) {
        Ok(Some(length)) => drop(response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length))),
        Ok(None) => {}
        Err(()) => return Err(BackendError { kind: BackendErrorKind::Unframed, source: "a Content-Length that is none".into() }),
    }
    Ok(response)
}

/// The number to write instead of what is there, if that is not one number already.
fn one_length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let number = |text: &[u8]| {
        let digits = Some(text.trim_ascii()).filter(|text| !text.is_empty() && text.iter().all(u8::is_ascii_digit));
        digits.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok()).ok_or(())
    };
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let (Some(first), more) = (values.next(), values.next().is_some()) else { return Ok(None) };
    if !more && first.as_bytes().iter().all(u8::is_ascii_digit) {
        return number(first.as_bytes()).map(|_| None);
    }
    let mut all = headers.get_all(header::CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    let length = number(all.next().ok_or(())?)?;
    match all.all(|text| number(text) == Ok(length)) {
        true => Ok(Some(length)),
        false => Err(()),
    }
}

/// The longest head is the same whatever the buffer that it was read with.
pub(super) fn with_a_short_head(response: Response<Incoming>) -> Result<Response<Incoming>, BackendError> {
    let bytes: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
    match bytes {
        0..=READ_BUFFER_BYTES_MAX => Ok(response),
        _ => Err(BackendError { kind: BackendErrorKind::HeadTooLarge, source: format!("its headers have {bytes} bytes").into() }),
    }
}

/// A body without a length and without chunks: cut short, it would look whole.
pub(super) fn ends_with_its_connection(response: &Response<Incoming>) -> bool {
    let framed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|name| response.headers().contains_key(name));
    !framed && !http_body::Body::is_end_stream(response.body())
}

/// Whether the answer may be followed by octets that do not belong to it and would be taken for the head of the next answer: a HEAD
/// for which S3 has no operation, of no bucket or of a subresource, is answered by some stores (Ceph) as a GET, body and all. Its
/// connection serves nobody else.
pub(super) fn may_leave_a_body(method: &Method, uri: &Uri) -> bool {
    let plain = |name: &str| matches!(name, "versionId" | "partNumber") || name.starts_with("response-");
    let of_a_bucket = uri.path() != "/";
    method == Method::HEAD && !(of_a_bucket && query_pairs(uri.query().unwrap_or_default()).all(|(name, _)| plain(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_one_number() {
        let said = |values: &[&str]| {
            let pairs = values.iter().map(|value| (header::CONTENT_LENGTH, HeaderValue::from_str(value).expect("text")));
            one_length(&pairs.fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            }))
        };
        for values in [&[][..], &["3"], &["0"], &["007"]] {
            assert_eq!(said(values), Ok(None), "{values:?} stays as it is");
        }
        for values in [&["3, 3"][..], &["3", "3"], &["3,3", "3"], &["3", "3"]] {
            assert_eq!(said(values), Ok(Some(3)), "{values:?}");
        }
        for values in [&["3, 4"][..], &["3", "4"], &["3,"], &[""], &["+3"], &["3 3"], &["x"], &["99999999999999999999"]] {
            assert_eq!(said(values), Err(()), "{values:?}");
        }
    }

    #[test]
    fn only_a_head_that_s3_does_not_know_may_leave_a_body() {
        for uri in ["/", "/b?acl", "/b/k?uploads", "/b/k?tagging=", "/b/k?versionId=1&acl", "/b/k?x"] {
            assert!(may_leave_a_body(&Method::HEAD, &Uri::from_static(uri)), "{uri}");
            assert!(!may_leave_a_body(&Method::GET, &Uri::from_static(uri)), "{uri}");
        }
        for uri in ["/b", "/b/k", "/b/k?versionId=null", "/b/k?partNumber=1&versionId=1", "/b/k?response-content-type=a"] {
            assert!(!may_leave_a_body(&Method::HEAD, &Uri::from_static(uri)), "{uri}");
        }
    }
}
