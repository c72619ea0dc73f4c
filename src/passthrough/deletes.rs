//! DeleteObjects, judged key by key: what the identity may delete goes on to the store, what it may not comes back as an
//! `<Error>` of that key in the store's own answer. In: the whole document (bounded, and paid for from the byte budget);
//! out: the document to send, and afterwards the merged result. Pure but for the judging.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest, Md5};

use crate::auth::action::Permission;
use crate::auth::delete::{DeleteEntry, DeleteList};
use crate::auth::{Identity, Payer, Scheme};
use crate::budget::{Pool, Reservation};
use crate::checksum::Algorithm;
use crate::error::xml::element;
use crate::error::{Budget, Error, Kind, Result};

/// What one DeleteObjects holds of the byte budget.
pub struct Reserved<'a> {
    held: Reservation,
    memory: &'a Pool,
}

impl<'a> Reserved<'a> {
    /// Nothing yet of `memory`.
    pub fn nothing(memory: &'a Pool) -> Self {
        Self { held: memory.nothing(), memory }
    }
}

impl Payer for Reserved<'_> {
    async fn pay(&mut self, bytes: u64) -> Result<()> {
        match self.held.try_grow_to(bytes, self.memory) {
            true => Ok(()),
            false => Err(Error::refused(Budget::Memory, "no memory is free for this request; try again shortly")),
        }
    }
}

/// A list after judgement.
pub struct Judged {
    list: DeleteList,
    allowed: Vec<bool>,
}

impl Judged {
    /// Reads the document and asks the identity's policy for each of its keys.
    pub fn new(document: Bytes, identity: &Identity, bucket: &str, headers: &HeaderMap) -> Result<Self> {
        let list = DeleteList::parse(document)?;
        if list.entries.is_empty() {
            let action = "s3:DeleteObject";
            identity.authorise(&[Permission { action, bucket: Some(bucket.to_owned()), key: Some(Vec::new()) }])?;
        }
        let allowed = (0..list.entries.len()).map(|i| identity.authorise(&list.permissions(i, bucket, headers)).is_ok()).collect();
        Ok(Self { list, allowed })
    }

    /// Whether nothing was denied.
    pub fn all_allowed(&self) -> bool {
        self.allowed.iter().all(|allowed| *allowed)
    }

    /// Whether everything was denied, if anything was asked for.
    pub fn none_allowed(&self) -> bool {
        !self.allowed.is_empty() && !self.allowed.contains(&true)
    }

    /// The document without the denied keys. Its checksums replace those of the original in `headers`.
    pub fn remaining(&self, headers: &mut HeaderMap) -> Bytes {
        let document = self.list.subset(|index| self.allowed[index]);
        let checksums: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("x-amz-checksum-")).cloned().collect();
        checksums.iter().for_each(|name| drop(headers.remove(name)));
        headers.remove("x-amz-sdk-checksum-algorithm");
        let md5 = STANDARD.encode(Md5::digest(&document));
        headers.insert("content-md5", HeaderValue::from_str(&md5).expect("base64 is header-safe"));
        document
    }

    /// The store's result with an error for each denied key.
    pub fn merge(&self, result: &[u8]) -> Result<Bytes> {
        const END: &[u8] = b"</DeleteResult>";
        let unreadable = || Error::new(Kind::BadGateway, "the store's answer to DeleteObjects cannot be read");
        let text = std::str::from_utf8(result).map_err(|_| unreadable())?;
        let errors = self.errors();
        // A result without content may be written as an empty element.
        if let Some(start) = text.find("<DeleteResult")
            && let Some(length) = text[start..].find("/>")
            && !text[start..start + length].contains('>')
        {
            let open = text[..start + length].trim_end();
            return Ok(Bytes::from(format!("{open}>{errors}</DeleteResult>")));
        }
        let at = result.windows(END.len()).rposition(|window| window == END).ok_or_else(unreadable)?;
        Ok(Bytes::from(format!("{}{errors}{}", &text[..at], &text[at..])))
    }

    /// The result where nothing was allowed and no store was asked.
    pub fn all_denied(&self) -> Bytes {
        let errors = self.errors();
        let xmlns = "http://s3.amazonaws.com/doc/2006-03-01/";
        Bytes::from(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult xmlns=\"{xmlns}\">{errors}</DeleteResult>"))
    }

    fn errors(&self) -> String {
        let denied = self.list.entries.iter().zip(&self.allowed).filter(|(_, allowed)| !**allowed);
        denied.fold(String::new(), |mut out, (DeleteEntry { key, version, .. }, _)| {
            out.push_str("<Error>");
            element(&mut out, "Key", key);
            if let Some(version) = version {
                element(&mut out, "VersionId", version);
            }
            element(&mut out, "Code", Kind::AccessDenied.code());
            element(&mut out, "Message", "The policy of this identity does not allow this delete.");
            out.push_str("</Error>");
            out
        })
    }
}

/// Refuses a list without a digest under an old signature, which covers headers and no body: those of the body are verified with it.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_covered(scheme: Scheme, headers: &HeaderMap) -> Result<()> {
    let is_digest = |name: &HeaderName| *name == "content-md5" || Algorithm::by_header(name.as_str()).is_some();
    if scheme == Scheme::V2 && !headers.keys().any(is_digest) {
        let message = "By Signature Version 2 this request needs the header Content-MD5 or one of x-amz-checksum-.";
        return Err(Error::new(Kind::InvalidRequest, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Policy;

    fn limited() -> Identity {
        let policy = r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::b/ok-*"}}"#;
        Identity::new("i", "AK", "SK", None, Policy::parse(policy).expect("valid"))
    }

    #[test]
    fn a_list_of_nothing_is_for_the_store_to_judge_if_the_bucket_is_allowed() {
        let judge = |identity: &Identity| Judged::new(Bytes::from("<Delete/>"), identity, "b", &HeaderMap::new());
        assert_eq!(judge(&limited()).map(|_| ()).expect_err("not every key is allowed").kind, Kind::AccessDenied);
        let full = judge(&Identity::new("i", "AK", "SK", None, Policy::full_access())).expect("allowed");
        assert!(full.all_allowed() && !full.none_allowed());
    }

    fn judged() -> Judged {
        let identity = limited();
        let document = "<Delete><Object><Key>ok-1</Key></Object><Object><Key>no&amp;1</Key></Object></Delete>";
        Judged::new(Bytes::from(document), &identity, "b", &HeaderMap::new()).expect("valid")
    }

    const DENIED: &str = "<Error><Key>no&amp;1</Key><Code>AccessDenied</Code>\
                          <Message>The policy of this identity does not allow this delete.</Message></Error>";

    #[tokio::test]
    async fn what_is_held_is_reserved_and_given_back() {
        let memory = Pool::new(100, None);
        let mut first = Reserved::nothing(&memory);
        first.pay(60).await.expect("free");
        let mut second = Reserved::nothing(&memory);
        let refused = second.pay(41).await.expect_err("40 are free");
        assert_eq!((refused.kind, refused.budget, memory.free()), (Kind::SlowDown, Some(Budget::Memory), 40));
        first.pay(20).await.expect("less is nothing new");
        drop(first);
        second.pay(100).await.expect("all is free");
    }

    #[test]
    fn an_old_signature_covers_a_list_by_its_digest_or_not_at_all() {
        let check = |scheme, names: &[&'static str]| {
            let headers = names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x"))).collect();
            check_covered(scheme, &headers).map_err(|error| error.kind)
        };
        for names in [&[][..], &["x-amz-checksum-algorithm"], &["x-amz-checksum-crc16", "content-type"]] {
            assert_eq!(check(Scheme::V2, names), Err(Kind::InvalidRequest), "{names:?}");
            assert_eq!(check(Scheme::V4, names), Ok(()), "{names:?}");
        }
        for names in [&["content-md5"][..], &["x-amz-checksum-crc32"], &["content-type", "x-amz-checksum-sha256"]] {
            assert_eq!(check(Scheme::V2, names), Ok(()), "{names:?}");
        }
    }

    #[test]
    fn denied_keys_are_not_sent_and_come_back_as_errors() {
        let judged = judged();
        assert!(!judged.all_allowed() && !judged.none_allowed());
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
        assert_eq!(judged.remaining(&mut headers), "<Delete><Object><Key>ok-1</Key></Object></Delete>");
        assert!(headers.contains_key("content-md5") && !headers.contains_key("x-amz-checksum-crc32"));
        for (result, merged) in [
            ("<DeleteResult><Deleted/></DeleteResult>", format!("<DeleteResult><Deleted/>{DENIED}</DeleteResult>")),
            ("<DeleteResult xmlns=\"x\"/>", format!("<DeleteResult xmlns=\"x\">{DENIED}</DeleteResult>")),
            ("<DeleteResult></DeleteResult>\n", format!("<DeleteResult>{DENIED}</DeleteResult>\n")),
        ] {
            assert_eq!(judged.merge(result.as_bytes()).expect("readable"), merged);
        }
        assert_eq!(judged.merge(b"nonsense").expect_err("unreadable").kind, Kind::BadGateway);
    }
}
