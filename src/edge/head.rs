//! Heads that are HTTP and that nobody here may read: refused before anything is made of them. Pure. Invariant: what passes has
//! a body that is framed in one known way.

use http::request::Parts;
use http::{Method, header};

use crate::error::{Error, Kind, Result};

/// All that S3 has.
const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE, Method::OPTIONS];

/// Holds a head against what no request may be.
///
/// # Errors
/// `NotImplemented` for a body that is coded in more than chunks (it would be taken for the object as it is;
/// <https://www.rfc-editor.org/rfc/rfc9112#section-6.1> wants this status), `MethodNotAllowed` for a method that S3 does
/// not have: stores that have more do with it what is not S3, such as the administration of their accounts, and would do it in the
/// gateway's name; and to `TRACE` they would answer what they were sent, our signature.
pub(super) fn check(head: &Parts) -> Result<()> {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err(Error::new(Kind::NotImplemented, "The only Transfer-Encoding is chunked, once."));
    }
    if !METHODS.contains(&head.method) {
        return Err(Error::new(Kind::MethodNotAllowed, format!("The method {} is not allowed.", head.method)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(method: &str, codings: &[&str]) -> Option<Kind> {
        let request = http::Request::builder().method(method);
        let request = codings.iter().fold(request, |request, coding| request.header("transfer-encoding", *coding));
        check(&request.body(()).expect("valid").into_parts().0).err().map(|error| error.kind)
    }

    #[test]
    fn a_body_is_plain_or_in_chunks_and_nothing_else() {
        for codings in [&[][..], &["chunked"], &["Chunked"]] {
            assert_eq!(check_with("PUT", codings), None, "{codings:?}");
        }
        for codings in [&["gzip, chunked"][..], &["identity, chunked"], &["gzip", "chunked"], &["chunked", "chunked"], &[""]] {
            assert_eq!(check_with("PUT", codings), Some(Kind::NotImplemented), "{codings:?}");
        }
    }

    #[test]
    fn trap_a_method_that_s3_does_not_have_reaches_no_store() {
        for method in ["TRACE", "CONNECT", "PATCH", "PROPFIND", "BREW", "get"] {
            assert_eq!(check_with(method, &[]), Some(Kind::MethodNotAllowed), "{method}");
        }
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"] {
            assert_eq!(check_with(method, &[]), None, "{method}");
        }
    }
}
