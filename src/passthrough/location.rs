//! The region that a bucket is said to be in. In: a store's answer to GetBucketLocation
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLocation.html>); out: the same document with the region that
//! clients sign for, since those that ask sign for what they are told from then on. Pure.
//!
//! Invariant: the document stays the store's octet for octet where it names that region or cannot be understood.

use std::ops::Range;

use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use crate::error::xml::escape;
use crate::types::xml_position;

/// Longest answer that is looked at, in bytes: ten times what stores send.
pub const LOCATION_BYTES_MAX: usize = 2048;

/// The region that is told by naming none.
pub const UNNAMED: &str = "us-east-1";

/// What holds the name. S3 documents two of the first, one in the other, and sends one; SeaweedFS sends what a bucket is made with.
const ELEMENTS: &[&str] = &["LocationConstraint", "CreateBucketConfiguration"];

/// How deep these nest.
const DEPTH_MAX: usize = 2;

/// `document` with `region` in place of the one that it names; nothing where it is to stay as it is.
pub fn in_region(document: &[u8], region: &str) -> Option<Bytes> {
    let document = std::str::from_utf8(document).ok()?;
    let said = Said::find(document)?;
    if said.region() == region {
        return None;
    }
    let mut name = String::new();
    if region != UNNAMED {
        escape(&mut name, region);
    }
    let told = match said.place {
        Place::Text(at) => format!("{}{name}{}", document.get(..at.start)?, document.get(at.end..)?),
        Place::Tag(at, element) => {
            let (tag, behind) = (document.get(..at.end)?.strip_suffix("/>")?, document.get(at.end..)?);
            format!("{tag}>{name}</{element}>{behind}")
        }
        // Clients read the text of the outermost element: they would go on to find none.
        Place::Within => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{name}</LocationConstraint>"
        ),
    };
    Some(told.into())
}

/// What a document says.
struct Said {
    text: String,
    place: Place,
}

/// Where it says so.
enum Place {
    /// In the text that stands there.
    Text(Range<usize>),
    /// In no text: the tag there is an element of this name and ends it, too.
    Tag(Range<usize>, String),
    /// In an element within another.
    Within,
}

impl Said {
    /// Nothing if it is another document, or not whole.
    fn find(document: &str) -> Option<Self> {
        let mut reader = Reader::from_str(document);
        let (mut said, mut depth, mut begin, mut text) = (None, 0, 0, String::new());
        loop {
            let at = xml_position(document, &reader);
            let event = reader.read_event().ok()?;
            let behind = xml_position(document, &reader);
            match event {
                Event::Start(tag) | Event::Empty(tag)
                    if said.is_some() || depth == DEPTH_MAX || !ELEMENTS.contains(&tag.local_name().as_ref()) =>
                {
                    return None;
                }
                Event::Start(_) | Event::Empty(_) if !text.trim().is_empty() => return None,
                Event::Start(_) => {
                    (depth, begin) = (depth + 1, behind);
                    text.clear();
                }
                Event::Empty(tag) => {
                    let place = if depth == 0 { Place::Tag(at..behind, tag.name().as_ref().to_owned()) } else { Place::Within };
                    said = Some(Self { text: String::new(), place });
                }
                Event::End(_) => {
                    depth -= 1;
                    let place = if depth == 0 { Place::Text(begin..at) } else { Place::Within };
                    said = said.or_else(|| Some(Self { text: std::mem::take(&mut text), place }));
                }
                Event::Text(more) => text.push_str(&more),
                Event::CData(more) => text.push_str(&more),
                Event::GeneralRef(entity) => match entity.resolve_char_ref().ok()? {
                    Some(character) => text.push(character),
                    None => text.push_str(resolve_predefined_entity(&entity)?),
                },
                Event::DocType(_) => return None,
                Event::Eof => return said.filter(|_| depth == 0),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            }
            // Beside the element that it is in, a name is of something else.
            if (said.is_some() || depth == 0) && !text.trim().is_empty() {
                return None;
            }
        }
    }

    fn region(&self) -> &str {
        named(self.text.trim())
    }
}

/// The region that the text of a `LocationConstraint` means.
pub fn named(text: &str) -> &str {
    match text {
        "" => UNNAMED,
        // What S3 calls it for buckets of old.
        "EU" => "eu-west-1",
        named => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XMLNS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

    /// What is told in a region; nothing where the document stays.
    fn told(document: &str, region: &str) -> Option<String> {
        in_region(document.as_bytes(), region).map(|told| String::from_utf8(told.to_vec()).expect("text"))
    }

    #[test]
    fn clients_are_told_the_region_that_they_sign_for_in_the_stores_own_document() {
        let decl = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        for (before, behind, said) in [
            ("<LocationConstraint>", "</LocationConstraint>", "eu-central-1"),
            (&format!("{decl}<LocationConstraint {XMLNS}>"), "</LocationConstraint>\n", "default"),
            ("<LocationConstraint>", "</LocationConstraint>", ""),
            ("<a:LocationConstraint xmlns:a='>'>", "</a:LocationConstraint >", " <![CDATA[here]]> "),
            ("<LocationConstraint>", "</LocationConstraint>", "<!-- in -->he&#114;e&amp;<?there?>"),
            (&format!("<CreateBucketConfiguration {XMLNS}>"), "</CreateBucketConfiguration>", ""),
        ] {
            for before in [before.to_owned(), format!("\u{feff}{before}")] {
                let document = format!("{before}{said}{behind}");
                assert_eq!(told(&document, "eu-west-1"), Some(format!("{before}eu-west-1{behind}")), "{document}");
                let unnamed = (!said.is_empty()).then(|| format!("{before}{behind}"));
                assert_eq!(told(&document, "us-east-1"), unnamed, "{document}");
            }
        }
        let empty = format!("{decl}<LocationConstraint {XMLNS}/>");
        let full = format!("{decl}<LocationConstraint {XMLNS}>eu-west-1</LocationConstraint>");
        for mark in ["", "\u{feff}"] {
            assert_eq!(told(&format!("{mark}{empty}"), "eu-west-1"), Some(format!("{mark}{full}")));
        }
        assert_eq!(told("<a:LocationConstraint />", "x").as_deref(), Some("<a:LocationConstraint >x</a:LocationConstraint>"));
        for nested in [
            "<CreateBucketConfiguration><LocationConstraint></LocationConstraint></CreateBucketConfiguration>",
            "<LocationConstraint>\n  <LocationConstraint>here</LocationConstraint>\n</LocationConstraint>",
            "<LocationConstraint><a:LocationConstraint/></LocationConstraint>",
        ] {
            assert_eq!(told(nested, "eu-west-1").as_ref(), Some(&full), "a client would find none in {nested}");
            let unnamed = nested.contains("here").then(|| full.replace("eu-west-1", ""));
            assert_eq!(told(nested, "us-east-1"), unnamed, "{nested}");
        }
    }

    #[test]
    fn what_names_the_same_region_stays() {
        for (document, region) in [
            ("<LocationConstraint>mars</LocationConstraint>", "mars"),
            ("<LocationConstraint>\n mars\n</LocationConstraint>", "mars"),
            ("<LocationConstraint/>", "us-east-1"),
            ("<LocationConstraint></LocationConstraint>", "us-east-1"),
            ("<LocationConstraint>us-east-1</LocationConstraint>", "us-east-1"),
            ("<CreateBucketConfiguration/>", "us-east-1"),
            ("<LocationConstraint>EU</LocationConstraint>", "eu-west-1"),
        ] {
            assert_eq!(told(document, region), None, "{document}");
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let whole = "<LocationConstraint><LocationConstraint>here</LocationConstraint></LocationConstraint>";
        for end in 0..whole.len() {
            assert_eq!(told(&whole[..end], "mars"), None, "{end}");
        }
        for document in [
            "here",
            "{\"LocationConstraint\": \"here\"}",
            "<html><LocationConstraint>here</LocationConstraint></html>",
            "<LocationConstraint><Region>here</Region></LocationConstraint>",
            "<LocationConstraint>a<LocationConstraint>here</LocationConstraint></LocationConstraint>",
            "<LocationConstraint><LocationConstraint>here</LocationConstraint>a</LocationConstraint>",
            "<LocationConstraint><LocationConstraint>a</LocationConstraint><LocationConstraint/></LocationConstraint>",
            "<LocationConstraint>here</LocationConstraint><LocationConstraint/>",
            "<LocationConstraint>here</LocationConstraint> there",
            "<LocationConstraint>here</locationConstraint>",
            "<LocationConstraint>&here;</LocationConstraint>",
            "<!DOCTYPE x><LocationConstraint>here</LocationConstraint>",
            &format!("{0}{0}{0}{1}{1}{1}", "<LocationConstraint>", "</LocationConstraint>"),
        ] {
            assert_eq!(told(document, "mars"), None, "{document}");
        }
        assert_eq!(in_region(b"<LocationConstraint>\xff</LocationConstraint>", "mars"), None);
    }
}
