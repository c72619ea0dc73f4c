//! Heads that are HTTP and that nobody here may read: refused before anything is made of them. Pure. Invariant: what passes has
//! a body that is framed in one known way.

use http::request::Parts;
use http::{Method, header};

use crate::error::{Error, Kind, Result};

/// Holds a head against what no request may be.
///
/// # Errors
/// `NotImplemented` for a body that is coded in more than chunks (it would be taken for the object as it is;
/// <https://www.rfc-editor.org/rfc/rfc9112#section-6.1> wants this status), `MethodNotAllowed` for a tunnel and for `TRACE`,
/// whose answer would be what the store was sent: our signature and its name.
pub(super) fn check(head: &Parts) -> Result<()> {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err(Error::new(Kind::NotImplemented, "The only Transfer-Encoding is chunked, once."));
    }
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
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
    fn a_request_is_neither_a_tunnel_nor_echoed() {
        assert_eq!(check_with("TRACE", &[]), Some(Kind::MethodNotAllowed));
        assert_eq!(check_with("CONNECT", &[]), Some(Kind::MethodNotAllowed));
        assert_eq!(check_with("BREW", &[]), None, "a store may know it");
    }
}
