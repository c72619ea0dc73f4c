//! A form's request once the part before its file is written. In: the request whose body is the file and the form's end; out: the
//! same with that part before them, and the length of both. Streams.

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body::Frame;

use super::super::peek::resumed;
use super::super::{Body, BoxError};

/// Puts `head` before the body of `request`.
pub(super) fn begun(request: Request<Body>, head: Bytes) -> Result<Request<Body>, BoxError> {
    let (mut parts, rest) = request.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH).ok_or("a form has a length")?.to_str()?.parse::<u64>()?;
    let whole = length.checked_add(head.len() as u64).ok_or("a form that is too long")?;
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole));
    Ok(Request::from_parts(parts, resumed(Some(Frame::data(head)), rest)))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::backend::full_body;

    #[tokio::test]
    async fn the_head_comes_first_and_is_counted() {
        let mut request = Request::new(full_body("file"));
        request.headers_mut().insert("content-length", HeaderValue::from_static("4"));
        let request = begun(request, Bytes::from("head ")).expect("a form");
        assert_eq!(request.headers()["content-length"], "9");
        assert_eq!(http_body::Body::size_hint(request.body()).exact(), Some(9));
        assert_eq!(request.into_body().collect().await.expect("whole").to_bytes(), "head file");
        assert!(begun(Request::new(full_body("file")), Bytes::new()).is_err(), "without a length");
    }
}
