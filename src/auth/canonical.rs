//! The canonical request of Signature Version 4, hashed as it is written. The untouched head of a request enters; SHA-256
//! digests leave, one for each form in which a client may have signed it. Values are bytes: a header need not be UTF-8 to be
//! signed. Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::error::{Error, Kind, Result};
use crate::types::query_pairs;

/// A canonical request without its path and its last line, which may be told in more than one form.
pub(super) struct Canonical<'a> {
    method: &'a str,
    path: &'a str,
    /// Query, headers and the list of signed headers, each with its line ends.
    middle: Vec<u8>,
}

impl<'a> Canonical<'a> {
    /// Canonicalises all but the path.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch` if a header was signed that the request lacks.
    pub(super) fn new(head: &'a Parts, host: &[u8], signed_headers: &str) -> Result<Self> {
        let mut middle = Vec::with_capacity(512);
        middle.push(b'\n');
        push_query(&mut middle, head.uri.query().unwrap_or_default());
        middle.push(b'\n');
        for name in signed_headers.split(';') {
            push_header(&mut middle, &head.headers, name, host)?;
        }
        middle.push(b'\n');
        middle.extend_from_slice(signed_headers.as_bytes());
        middle.push(b'\n');
        Ok(Self { method: head.method.as_str(), path: head.uri.path(), middle })
    }

    /// The forms of the path that clients sign, the likeliest first: encoded anew from the decoded key; the same, but with
    /// `%2F` kept as part of a name; and as it was sent.
    pub(super) fn paths(&self) -> impl Iterator<Item = Cow<'a, str>> {
        let raw = self.path;
        let plain = raw.bytes().all(|b| is_unreserved(b) || b == b'/');
        (0..if plain { 1 } else { 3 }).map(move |form| match form {
            _ if plain => Cow::Borrowed(raw),
            0 => Cow::Owned(recode_path(raw, false)),
            1 => Cow::Owned(recode_path(raw, true)),
            _ => Cow::Borrowed(raw),
        })
    }

    /// The digest that goes into the string to sign.
    pub(super) fn digest(&self, path: &str, payload: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.method);
        hash.update(b"\n");
        hash.update(path);
        hash.update(&self.middle);
        hash.update(payload);
        hash.finalize().into()
    }
}

/// The one value of a header that must not be there twice.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a [u8]>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Error::new(Kind::InvalidRequest, format!("The header {name} may be given only once.")));
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}

/// The host that was signed: the Host header, or HTTP/2's `:authority`, which are one and the same.
pub(super) fn host(head: &Parts) -> Result<&[u8]> {
    let invalid = |why| Err(Error::new(Kind::InvalidRequest, why));
    let header = single(&head.headers, "host")?;
    match (header, head.uri.authority().map(|authority| authority.as_str().as_bytes())) {
        (Some(header), Some(authority)) if header != authority => {
            invalid("The Host header and the authority of the request differ.")
        }
        (Some(host), _) | (None, Some(host)) if is_host(host) => Ok(host),
        (None, None) | (Some(b""), _) => invalid("The request has no Host header."),
        _ => invalid("The Host header is not the name or the address of a host."),
    }
}

/// Refuses a head that does not name its host once. Requests without a signature need it as well: the host may name the bucket.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_host(head: &Parts) -> Result<()> {
    host(head).map(|_| ())
}

/// Whether it is a name or an address, with a port or without. Nothing else is ever served, and what it is goes into answers.
fn is_host(text: &[u8]) -> bool {
    let port = text.iter().rposition(|b| *b == b':').filter(|colon| text[colon + 1..].iter().all(u8::is_ascii_digit));
    match &text[..port.unwrap_or(text.len())] {
        [b'[', address @ .., b']'] => address.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')),
        name => !name.is_empty() && name.iter().all(|b| is_unreserved(*b)),
    }
}

/// The forms in which clients sign a host, the likeliest first: as it was sent; and since it is the same in any case, and with the
/// port that it has anyway or without, in lower case and without such a port.
pub(super) fn hosts(sent: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    (0..3).filter_map(move |form| match form {
        0 => Some(Cow::Borrowed(sent)),
        1 => Some(sent.to_ascii_lowercase()).filter(|lower| lower != sent).map(Cow::Owned),
        _ => sent.strip_suffix(b":80").or_else(|| sent.strip_suffix(b":443")).map(|name| Cow::Owned(name.to_ascii_lowercase())),
    })
}

fn push_header(out: &mut Vec<u8>, headers: &HeaderMap, name: &str, host: &[u8]) -> Result<()> {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    if name.eq_ignore_ascii_case("host") {
        push_trimmed(out, host);
    } else {
        let mut values = headers.get_all(name).iter();
        let Some(first) = values.next() else {
            let message = format!("The header {name:?} is listed as signed, but the request does not carry it.");
            return Err(Error::new(Kind::SignatureDoesNotMatch, message));
        };
        push_trimmed(out, first.as_bytes());
        for value in values {
            out.push(b',');
            push_trimmed(out, value.as_bytes());
        }
    }
    out.push(b'\n');
    Ok(())
}

/// Without outer blanks, and with one space for each inner run of them.
fn push_trimmed(out: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

fn push_query(out: &mut Vec<u8>, query: &str) {
    if query.is_empty() {
        return;
    }
    let coded = |text: &str| {
        let mut coded = Vec::with_capacity(text.len());
        recode(&mut coded, text, |byte| if byte == b'+' { b' ' } else { byte }, is_unreserved);
        coded
    };
    // The signature cannot cover itself.
    let pairs = query_pairs(query).filter(|(name, _)| *name != "X-Amz-Signature");
    let mut pairs: Vec<_> = pairs.map(|(name, value)| (coded(name), coded(value))).collect();
    pairs.sort_unstable();
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

fn recode_path(raw: &str, keep_escaped_slash: bool) -> String {
    let mut out = Vec::with_capacity(raw.len() + 16);
    let mut rest = raw;
    while keep_escaped_slash && let Some(at) = rest.find("%2").filter(|at| matches!(rest.as_bytes().get(at + 2), Some(b'F' | b'f')))
    {
        recode(&mut out, &rest[..at], |b| b, |b| is_unreserved(b) || b == b'/');
        out.extend_from_slice(b"%2F");
        rest = &rest[at + 3..];
    }
    recode(&mut out, rest, |b| b, |b| is_unreserved(b) || b == b'/');
    String::from_utf8(out).expect("what is not unreserved ASCII was escaped")
}

/// Decodes `text` once and encodes it by the strict rule. A `%` without two hex digits is an ordinary character.
fn recode(out: &mut Vec<u8>, text: &str, literal: impl Fn(u8) -> u8, plain: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let (byte, step) = match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => (u8::try_from(high * 16 + low).expect("two hex digits"), 3),
            (byte, ..) => (literal(*byte), 1),
        };
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        at += step;
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> String {
        let mut out = Vec::new();
        push_query(&mut out, text);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn queries_are_decoded_once_sorted_and_encoded() {
        assert_eq!(query("?b".trim_start_matches('?')), "b=");
        assert_eq!(query("prefix=a/b&list-type=2&delimiter=%2f&x=1+2%2B"), "delimiter=%2F&list-type=2&prefix=a%2Fb&x=1%202%2B");
        assert_eq!(query("a=2&a=1&a-=0&X-Amz-Signature=ff"), "a=1&a=2&a-=0");
        assert_eq!(query("a=100%&b=%C3%A9&c=é&d=b=c"), "a=100%25&b=%C3%A9&c=%C3%A9&d=b%3Dc");
    }

    #[test]
    fn a_host_is_named_once_and_is_one() {
        let said = |hosts: &[&str]| {
            let request = hosts.iter().fold(http::Request::builder().uri("/b"), |request, host| request.header("host", *host));
            check_host(&request.body(()).expect("valid").into_parts().0).map_err(|error| error.kind)
        };
        for host in ["s3", "s3.test:9000", "a_b.c-d.", "127.0.0.1:1", "[::1]:9000", "[::ffff:1.2.3.4]", "h:"] {
            assert_eq!(said(&[host]), Ok(()), "{host}");
        }
        for host in ["", "a b", "<x>", "x:y@evil", "h/p", "h:1:2", "h:x", ":80", "a,b", "::1", "[::1", "[]x", "a%2fb", "é"] {
            assert_eq!(said(&[host]), Err(Kind::InvalidRequest), "{host}");
        }
        assert_eq!((said(&[]), said(&["h", "h"])), (Err(Kind::InvalidRequest), Err(Kind::InvalidRequest)));
    }

    #[test]
    fn a_path_has_up_to_three_forms() {
        let forms = |path: &str| {
            let head = http::Request::builder().uri(path).body(()).expect("valid").into_parts().0;
            let canonical = Canonical::new(&head, b"h", "host").expect("valid");
            canonical.paths().map(Cow::into_owned).collect::<Vec<_>>()
        };
        assert_eq!(forms("/b/a//b/../c"), ["/b/a//b/../c"]);
        assert_eq!(forms("/b/a%2fb@"), ["/b/a/b%40", "/b/a%2Fb%40", "/b/a%2fb@"]);
        assert_eq!(forms("/b/100%.txt"), ["/b/100%25.txt", "/b/100%25.txt", "/b/100%.txt"]);
        assert_eq!(forms("/b/100%25.txt")[0], "/b/100%25.txt");
        assert_eq!(forms("/b/100%2525.txt")[0], "/b/100%2525.txt");
    }

    #[test]
    fn a_host_has_up_to_three_forms() {
        let forms = |host: &str| -> Vec<String> {
            hosts(host.as_bytes()).map(|form| String::from_utf8(form.into_owned()).expect("ASCII")).collect()
        };
        assert_eq!(forms("b.s3.test:9000"), ["b.s3.test:9000"]);
        assert_eq!(forms("b.S3.test:9000"), ["b.S3.test:9000", "b.s3.test:9000"]);
        assert_eq!(forms("b.S3.test:80"), ["b.S3.test:80", "b.s3.test:80", "b.s3.test"]);
        assert_eq!(forms("[::1]:443"), ["[::1]:443", "[::1]"]);
        assert_eq!(forms("h:8080"), ["h:8080"]);
    }

    #[test]
    fn header_values_are_trimmed_and_joined() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", http::HeaderValue::from_static("  a   b\tc "));
        headers.append("x-amz-meta-a", http::HeaderValue::from_bytes(b"\xff").expect("opaque"));
        let mut out = Vec::new();
        push_header(&mut out, &headers, "x-amz-meta-a", b"").expect("there");
        assert_eq!(out, b"x-amz-meta-a:a b c,\xff\n");
        assert_eq!(push_header(&mut out, &headers, "range", b"").expect_err("absent").kind, Kind::SignatureDoesNotMatch);
    }
}
