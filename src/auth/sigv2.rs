//! Signature Version 2, for clients that know no other: the `Authorization: AWS` header and the older kind of presigned URL. The
//! untouched head of a request enters; what was claimed, and the strings that the client may have signed, leave. Off by default
//! (`server.sigv2`). Source: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html>.
//!
//! Invariant: it signs so little of a query that the rest would be anybody's. Each parameter is therefore one that is signed, one
//! that shapes a listing, or the request is refused; none other is ever signed anew.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha1::Sha1;
use subtle::ConstantTimeEq;

use super::action::OF_LISTINGS;
use super::canonical::single;
use super::claim::{parse_date, stamp_of_http_date};
use crate::error::{Error, Kind, Result};
use crate::types::{S3Target, percent_decode, query_pairs};

/// Parameters that are part of what is signed: those of the page and those that its clients add, sorted by the client. One that
/// a client does not sign though it is here makes a signature that does not match, which is the safe side.
const SIGNED: &[&str] = &[
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Headers that clients repeat in a presigned URL, where they mean nothing: what is signed is the header.
const REPEATED: &[&str] = &["content-md5", "content-type"];

/// What a presigned URL must not say in its query: it speaks of the body or of the request's own signature.
const HEADERS_ONLY: &[&str] = &["x-amz-content-sha256", "x-amz-decoded-content-length", "x-amz-trailer"];

/// A claim by Version 2.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) access_key: Cow<'a, str>,
    pub(super) time: Time,
    pub(super) token: Option<Cow<'a, [u8]>>,
    signature: [u8; 20],
    /// What stands in the place of the date.
    date: Cow<'a, [u8]>,
}

/// When it holds, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) enum Time {
    /// About then.
    At(i64),
    /// Until then: a presigned URL.
    Until(i64),
}

impl<'a> Claim<'a> {
    /// Reads `AWS access-key:signature`, the value of the `Authorization` header.
    ///
    /// # Errors
    /// `InvalidArgument` for another form, `AccessDenied` for a request without a date.
    pub(super) fn from_header(head: &'a Parts, value: &'a [u8]) -> Result<Self> {
        let text = std::str::from_utf8(value).ok().and_then(|text| text.trim_ascii().strip_prefix("AWS"));
        let pair = text.and_then(|text| text.trim_ascii().rsplit_once(':')).filter(|(access_key, _)| !access_key.is_empty());
        let claimed = pair.and_then(|(access_key, signature)| Some((access_key, parse_signature(signature.as_bytes())?)));
        let Some((access_key, signature)) = claimed else {
            return Err(invalid("The Authorization header must have the form \"AWS access-key:signature\"."));
        };
        let undated = || Error::new(Kind::AccessDenied, "A signed request needs a valid x-amz-date or Date header.");
        let seconds = |value: &[u8]| stamp_of_http_date(value).and_then(|stamp| parse_date(&stamp)).map(|(_, seconds)| seconds);
        let (date, value) = match single(&head.headers, "x-amz-date")? {
            // It is signed among the x-amz- headers, and in its own place stands nothing.
            Some(value) => (Cow::Borrowed(&b""[..]), value),
            None => {
                let value = single(&head.headers, "date")?.ok_or_else(undated)?;
                (Cow::Borrowed(value), value)
            }
        };
        let time = Time::At(seconds(value).ok_or_else(undated)?);
        let token = single(&head.headers, "x-amz-security-token")?.map(Cow::Borrowed);
        Ok(Self { access_key: Cow::Borrowed(access_key), time, token, signature, date })
    }

    /// Reads the query of a presigned URL.
    ///
    /// # Errors
    /// `AccessDenied` where one of its three parameters is missing, is there twice or cannot be read.
    pub(super) fn from_query(query: &'a str) -> Result<Self> {
        let denied = |why: &str| Error::new(Kind::AccessDenied, format!("Query-string authentication {why}."));
        let one = |wanted: &str| {
            let mut found = query_pairs(query).filter(|(name, _)| *name == wanted);
            let value = found.next().ok_or_else(|| denied("needs the parameters Signature, Expires and AWSAccessKeyId"))?.1;
            match found.next() {
                None => Ok(percent_decode(value)),
                Some(_) => Err(denied("takes each of its parameters once")),
            }
        };
        let access_key = String::from_utf8(one("AWSAccessKeyId")?).map_err(|_| denied("has an unreadable AWSAccessKeyId"))?;
        let signature = parse_signature(&one("Signature")?).ok_or_else(|| denied("has an unreadable Signature"))?;
        let expires = one("Expires")?;
        let digits = expires.iter().all(u8::is_ascii_digit);
        let until = std::str::from_utf8(&expires).ok().filter(|_| digits).and_then(|text| text.parse().ok());
        let until = until.ok_or_else(|| denied("has Expires, which must be a number of seconds since 1970"))?;
        let token = query_pairs(query).find(|(name, _)| name.eq_ignore_ascii_case("x-amz-security-token"));
        Ok(Self {
            access_key: Cow::Owned(access_key),
            time: Time::Until(until),
            token: token.map(|(_, value)| Cow::Owned(percent_decode(value))),
            signature,
            date: Cow::Owned(expires),
        })
    }

    pub(super) fn is_presigned(&self) -> bool {
        matches!(self.time, Time::Until(_))
    }

    /// Whether `secret_key` signed this request, whose bucket and key are those of `target`.
    ///
    /// # Errors
    /// `AccessDenied` naming a parameter of the query that is not covered, `InvalidRequest` for a header that is there twice.
    pub(super) fn is_signed_by(&self, secret_key: &str, head: &Parts, target: &S3Target) -> Result<bool> {
        let query = head.uri.query().unwrap_or_default();
        check_query(query, self.is_presigned())?;
        let stem = self.stem(head, query)?;
        let (as_sent, bare) = (sub_resources(query, true), sub_resources(query, false));
        let mut fits = false;
        for path in paths(head, target) {
            for query in [Some(&as_sent), Some(&bare).filter(|bare| **bare != as_sent)].into_iter().flatten() {
                let mut mac = Hmac::<Sha1>::new_from_slice(secret_key.as_bytes()).expect("hmac takes keys of any length");
                [&stem, path.as_bytes(), query].into_iter().for_each(|part| mac.update(part));
                let signature: [u8; 20] = mac.finalize().into_bytes().into();
                fits |= bool::from(signature.ct_eq(&self.signature));
            }
        }
        Ok(fits)
    }

    /// All that is signed before the resource.
    fn stem(&self, head: &Parts, query: &str) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(head.method.as_str().as_bytes());
        out.push(b'\n');
        for name in ["content-md5", "content-type"] {
            out.extend_from_slice(single(&head.headers, name)?.unwrap_or_default().trim_ascii());
            out.push(b'\n');
        }
        out.extend_from_slice(self.date.trim_ascii());
        out.push(b'\n');
        let mut amz: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for name in head.headers.keys().filter(|name| name.as_str().starts_with("x-amz-")) {
            let values: Vec<_> = head.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()).collect();
            amz.insert(name.as_str().to_owned(), values.join(&b","[..]));
        }
        if self.is_presigned() {
            for (name, value) in amz_parameters(query) {
                if amz.insert(name.clone(), value).is_some() {
                    return Err(invalid(format!("{name} is there more than once, in the query or beside it.")));
                }
            }
        }
        for (name, value) in amz {
            for part in [name.as_bytes(), b":", &value, b"\n"] {
                out.extend_from_slice(part);
            }
        }
        Ok(out)
    }
}

/// Refuses what nobody signed and a store might act on.
fn check_query(query: &str, presigned: bool) -> Result<()> {
    for (name, value) in query_pairs(query) {
        let is_amz = is_amz(name);
        let of_the_signature = presigned && (is_amz || is_auth(name) || REPEATED.contains(&&*name.to_ascii_lowercase()));
        let plain = !value.contains(';') && OF_LISTINGS.contains(&name);
        if !(of_the_signature || plain || SIGNED.contains(&name)) {
            let shown: String = name.chars().take(64).collect();
            let message =
                format!("Signature Version 2 does not cover the query parameter {shown:?}; sign with Signature Version 4.");
            return Err(Error::new(Kind::AccessDenied, message));
        }
        // It is signed decoded, so that an ampersand in a value looks like the next parameter.
        if SIGNED.contains(&name) && percent_decode(value).iter().any(|byte| matches!(byte, b'&' | b'\n')) {
            return Err(invalid(format!("{name} has a character that Signature Version 2 cannot sign; use Version 4.")));
        }
        if is_amz && HEADERS_ONLY.contains(&&*name.to_ascii_lowercase()) {
            return Err(invalid(format!("{name} belongs into a header.")));
        }
    }
    Ok(())
}

fn is_amz(name: &str) -> bool {
    let rest = name.get(..6).filter(|start| start.eq_ignore_ascii_case("x-amz-")).and(name.get(6..));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
}

fn is_auth(name: &str) -> bool {
    matches!(name, "AWSAccessKeyId" | "Expires" | "Signature")
}

/// What a presigned URL has in its query and means as headers: names in lower case, values decoded.
fn amz_parameters(query: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    query_pairs(query).filter(|(name, _)| is_amz(name)).map(|(name, value)| (name.to_ascii_lowercase(), percent_decode(value)))
}

/// The sub-resources as they are signed, in order; one without a value may be signed with its `=` or without.
fn sub_resources(query: &str, with_equals: bool) -> Vec<u8> {
    let raw = query.split('&').map(|pair| pair.split_once('=').map_or((pair, None), |(name, value)| (name, Some(value))));
    let mut signed: Vec<_> = raw.filter(|(name, _)| SIGNED.contains(name)).collect();
    signed.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    for (name, value) in signed {
        out.push(if out.is_empty() { b'?' } else { b'&' });
        out.extend_from_slice(name.as_bytes());
        if let Some(value) = value.filter(|value| with_equals || !value.is_empty()) {
            out.push(b'=');
            out.extend(percent_decode(value));
        }
    }
    out
}

/// The resource: the bucket, wherever it was named, and the rest of the path as it came. A bucket alone ends in a slash, or not.
/// Where there is none, some clients sign the whole path, with the endpoint's own.
fn paths(head: &Parts, target: &S3Target) -> Vec<String> {
    let whole = match &target.bucket {
        Some(bucket) if target.bucket_in_host => format!("/{bucket}{}", target.path),
        _ => target.path.clone(),
    };
    match (&target.bucket, &target.key) {
        (None, _) => return vec![whole, head.uri.path().to_owned()],
        (Some(_), Some(_)) => return vec![whole],
        (Some(_), None) => {}
    }
    let bare = whole.trim_end_matches('/');
    vec![format!("{bare}/"), bare.to_owned()]
}

fn parse_signature(text: &[u8]) -> Option<[u8; 20]> {
    STANDARD.decode(text.trim_ascii()).ok()?.try_into().ok()
}

/// The query of a presigned URL as its permissions are judged: without what only authenticates.
pub(super) fn judged(query: &str) -> String {
    kept(query, |name| !is_auth(name) && !REPEATED.contains(&&*name.to_ascii_lowercase()))
}

/// The query of a presigned URL as it may go on: without what authenticates and without what becomes a header.
pub(super) fn forwarded(query: &str) -> String {
    kept(query, |name| !is_auth(name) && !is_amz(name) && !REPEATED.contains(&&*name.to_ascii_lowercase()))
}

fn kept(query: &str, wanted: impl Fn(&str) -> bool) -> String {
    query.split('&').filter(|pair| wanted(pair.split('=').next().unwrap_or_default())).collect::<Vec<_>>().join("&")
}

/// Adds to `headers` what a presigned URL says in its query, but for the session token.
///
/// # Errors
/// `InvalidArgument` for a value that no header can have.
pub(super) fn lift(query: &str, headers: &mut HeaderMap) -> Result<()> {
    for (name, value) in amz_parameters(query).filter(|(name, _)| !matches!(name.as_str(), "x-amz-security-token" | "x-amz-date")) {
        let refused = || invalid(format!("{name} has a value that no header can have."));
        let value = HeaderValue::from_bytes(&value).map_err(|_| refused())?;
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?, value);
    }
    Ok(())
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::InvalidArgument, message)
}

#[cfg(test)]
#[path = "sigv2_tests.rs"]
mod tests;
