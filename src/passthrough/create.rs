//! CreateBucket at a store in another region than its clients sign for. In: the request's body, held whole and verified; out: the
//! same document, in which the store's region stands where the client named the gateway's, with a head that is right for it.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html>,
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucketConfiguration.html>.
//!
//! Invariant: the document stays the client's octet for octet where it names anything else or is not understood, and all but the
//! name of the region does where it is.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::location::{UNNAMED, named};
use super::upload::{self, Carried};
use super::{Passthrough, Route, headers};
use crate::auth::action::{CREATE_BUCKET, Permission};
use crate::auth::{Payer, Payload, Verdict, VerifiedBody};
use crate::backend::{Body, full_body};
use crate::config::{Checksums, Quirks};
use crate::error::{Error, Kind, Result};
use crate::types::xml_position;

/// Longest document, in bytes: 50 tags of 128 and 256 characters, each of four bytes or escaped, still fit.
const CREATE_BODY_BYTES_MAX: usize = 256 * 1024;

/// Two regions that are not the same.
#[derive(Clone, Debug)]
pub struct Regions<'a> {
    /// The one that clients sign for.
    pub clients: &'a str,
    /// The one that the store is asked for.
    pub stores: Cow<'a, str>,
}

impl Passthrough {
    /// The regions between which a request that `needed` this is translated on its way, if it is to be.
    pub(super) fn regions<'a>(&'a self, needed: &[Permission], route: &'a Route) -> Option<Regions<'a>> {
        let clients = self.region.as_ref()?.to_str().ok()?;
        if !needed.iter().any(|permission| permission.action == CREATE_BUCKET) {
            return None;
        }
        let told = route.backend.store.region_to_make(&route.path);
        let stores = told.map_or(Cow::Borrowed(route.backend.region.as_str()), Cow::Owned);
        (clients != stores).then_some(Regions { clients, stores })
    }
}

/// As [`upload::prepare`], for a CreateBucket that crosses from one region to another.
///
/// # Errors
/// As the body's verification; `EntityTooLarge` for a document that is no such configuration.
pub async fn prepare(
    payload: Payload,
    regions: Regions<'_>,
    quirks: Quirks,
    headers: &mut HeaderMap,
    body: Body,
    held: &mut impl Payer,
) -> Result<(Body, Verdict)> {
    upload::check_framing(&payload, Carried::Document)?;
    // Here and not only at the store, which may get another document.
    let (body, verdict) = VerifiedBody::checking(payload, headers, body)?;
    let document = body.collect(CREATE_BODY_BYTES_MAX, too_long, held).await?;
    held.pay(2 * document.len() as u64).await?;
    let other = regions.at_store(&document);
    headers::strip_framing(headers);
    if other.is_some() || quirks.checksums == Checksums::Verify {
        headers::strip_checksums(headers);
    }
    if let Some(other) = &other {
        upload::renew_md5(other, headers);
    }
    let document = other.unwrap_or(document);
    upload::finish_document(&document, quirks, headers);
    Ok((full_body(document), verdict))
}

fn too_long() -> Error {
    let message = format!("the body of CreateBucket may have at most {CREATE_BODY_BYTES_MAX} bytes");
    Error::new(Kind::EntityTooLarge, message)
}

impl Regions<'_> {
    /// What the store is told in place of `document`; nothing where it is to stay as it is.
    fn at_store(&self, document: &[u8]) -> Option<Bytes> {
        let (clients, stores) = (self.clients, self.stores.as_ref());
        if document.is_empty() {
            let whole = format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                 <LocationConstraint>{stores}</LocationConstraint></CreateBucketConfiguration>"
            );
            return (clients == UNNAMED).then(|| whole.into());
        }
        let document = std::str::from_utf8(document).ok()?;
        let said = Said::find(document)?;
        let text = said.constraint.as_ref().map_or("", |constraint| &document[constraint.inner.clone()]).trim();
        if named(text) != clients || (text.is_empty() && said.is_elsewhere) {
            return None;
        }
        let told = match said.constraint {
            // Nothing else is said, and this by silence.
            Some(_) if stores == UNNAMED && !said.has_others => String::new(),
            Some(Element { whole, .. }) if stores == UNNAMED => format!("{}{}", &document[..whole.start], &document[whole.end..]),
            Some(constraint) => constraint.filled(document, stores),
            None => {
                let prefix = said.root.name.strip_suffix(ROOT)?;
                let constraint = format!("<{prefix}{CONSTRAINT}>{stores}</{prefix}{CONSTRAINT}>");
                let begin = said.root.inner.start;
                Element { inner: begin..begin, ..said.root }.filled(document, &constraint)
            }
        };
        Some(told.into())
    }
}

const ROOT: &str = "CreateBucketConfiguration";
const CONSTRAINT: &str = "LocationConstraint";

/// Names the zone of a directory bucket, which has no `LocationConstraint`.
const LOCATION: &str = "Location";

/// What a configuration says.
struct Said {
    root: Element,
    constraint: Option<Element>,
    /// It names another kind of place.
    is_elsewhere: bool,
    /// There is more in it than the constraint.
    has_others: bool,
}

/// An element, by where it is in the document.
struct Element {
    name: String,
    whole: Range<usize>,
    /// Between its tags, or behind the only one.
    inner: Range<usize>,
}

impl Element {
    fn begun(tag: &BytesStart<'_>, start: usize, behind: usize) -> Self {
        Self { name: tag.name().as_ref().to_owned(), whole: start..behind, inner: behind..behind }
    }

    /// `document` with `text` in place of what is between the tags.
    fn filled(&self, document: &str, text: &str) -> String {
        let (before, behind) = (&document[..self.inner.start], &document[self.inner.end..]);
        match before.strip_suffix("/>") {
            Some(tag) => format!("{tag}>{text}</{}>{behind}", self.name),
            None => format!("{before}{text}{behind}"),
        }
    }
}

impl Said {
    /// Nothing if it is another document, or not whole.
    fn find(document: &str) -> Option<Self> {
        let mut reader = Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        let (mut said, mut depth, mut is_constraint): (Option<Self>, _, _) = (None, 0_usize, false);
        loop {
            let at = xml_position(document, &reader);
            let event = reader.read_event().ok()?;
            let behind = xml_position(document, &reader);
            match (event, &mut said) {
                (Event::Start(tag), said @ None) if tag.local_name().as_ref() == ROOT => {
                    let root = Element::begun(&tag, at, behind);
                    *said = Some(Self { root, constraint: None, is_elsewhere: false, has_others: false });
                    depth = 1;
                }
                (Event::Start(tag), Some(said)) if depth > 0 => {
                    match tag.local_name().as_ref() {
                        _ if depth > 1 => {}
                        CONSTRAINT if said.constraint.is_some() => return None,
                        CONSTRAINT => {
                            said.constraint = Some(Element::begun(&tag, at, behind));
                            is_constraint = true;
                        }
                        other => {
                            said.has_others = true;
                            said.is_elsewhere |= other == LOCATION;
                        }
                    }
                    depth += 1;
                }
                (Event::Start(_) | Event::DocType(_), _) => return None,
                (Event::End(_), Some(said)) => {
                    depth = depth.checked_sub(1)?;
                    if let Some(constraint) = said.constraint.as_mut().filter(|_| depth == 1 && is_constraint) {
                        (constraint.inner.end, constraint.whole.end) = (at, behind);
                        is_constraint = false;
                    }
                }
                (Event::Text(text), _) if depth <= 1 && !text.trim().is_empty() => return None,
                (Event::CData(_) | Event::GeneralRef(_), _) if depth <= 1 => return None,
                (Event::Eof, _) => return said.filter(|_| depth == 0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
