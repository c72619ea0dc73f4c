//! The body of DeleteObjects, which is judged key by key. The XML document enters; its entries leave, and on demand the same
//! document without the entries that were not allowed, byte for byte otherwise. Invariant: a document that two parsers could
//! read as different keys (comments inside a key, a bare carriage return, a DOCTYPE, unknown elements) is refused, so that the
//! backend deletes what was judged. Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html>.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use super::action::Permission;
use super::reading::has_dots;
use crate::error::{Error, Kind, Result};
use crate::types::xml_position;

/// Most entries of one request (S3's own limit).
pub const DELETE_KEYS_MAX: usize = 1000;

/// Longest document, in bytes: 1,000 keys of 1,024 bytes, each escaped, with versions, still fit.
pub const DELETE_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One object to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteEntry {
    /// The key, decoded.
    pub key: String,
    /// The version, where one is named.
    pub version: Option<String>,
    /// The bytes of its `<Object>` in the document.
    span: Range<usize>,
}

/// A parsed DeleteObjects document.
#[derive(Clone, Debug)]
pub struct DeleteList {
    document: Bytes,
    /// In the document's order, duplicates included.
    pub entries: Vec<DeleteEntry>,
    /// Whether the answer lists failures only.
    pub quiet: bool,
}

impl DeleteList {
    /// Reads the document.
    ///
    /// # Errors
    /// `EntityTooLarge` above [`DELETE_BODY_BYTES_MAX`]; `MalformedXML` for all else, naming what is wrong.
    pub fn parse(document: Bytes) -> Result<Self> {
        if document.len() > DELETE_BODY_BYTES_MAX {
            let message = format!("The body of DeleteObjects may have at most {DELETE_BODY_BYTES_MAX} bytes.");
            return Err(Error::new(Kind::EntityTooLarge, message));
        }
        let text = std::str::from_utf8(&document).map_err(|_| malformed("it is not UTF-8"))?;
        let (entries, quiet) = Parser::new(text).document()?;
        Ok(Self { document, entries, quiet })
    }

    /// What the entry at `index` needs to be allowed.
    pub fn permissions(&self, index: usize, bucket: &str, headers: &HeaderMap) -> Vec<Permission> {
        let entry = &self.entries[index];
        let delete = if entry.version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
        let bypass = headers.contains_key("x-amz-bypass-governance-retention").then_some("s3:BypassGovernanceRetention");
        let on_key = |action| Permission { action, bucket: Some(bucket.to_owned()), key: Some(entry.key.clone().into_bytes()) };
        [delete].into_iter().chain(bypass).map(on_key).collect()
    }

    /// The document with only the entries for which `keep` (of their index) is true; all other bytes as they came.
    pub fn subset(&self, keep: impl Fn(usize) -> bool) -> Bytes {
        let mut out = Vec::with_capacity(self.document.len());
        let mut from = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            if !keep(index) {
                out.extend_from_slice(&self.document[from..entry.span.start]);
                from = entry.span.end;
            }
        }
        out.extend_from_slice(&self.document[from..]);
        out.into()
    }
}

struct Parser<'a> {
    document: &'a str,
    reader: Reader<&'a [u8]>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut reader = Reader::from_str(text);
        // `<Object/>` then needs no branch of its own.
        reader.config_mut().expand_empty_elements = true;
        Self { document: text, reader }
    }

    fn document(mut self) -> Result<(Vec<DeleteEntry>, bool)> {
        loop {
            match self.next()? {
                Event::Decl(decl) => {
                    let encoding = decl.encoding().transpose().map_err(|_| malformed("its declaration is broken"))?;
                    if encoding.is_some_and(|e| !e.eq_ignore_ascii_case("utf-8")) {
                        return Err(malformed("its encoding is not UTF-8"));
                    }
                }
                Event::Start(start) if start.local_name().as_ref() == "Delete" => break,
                event => blank(&event, "Delete")?,
            }
        }
        let (mut entries, mut quiet) = (Vec::new(), false);
        loop {
            let start = self.position();
            match self.next()? {
                Event::Start(element) => match element.local_name().as_ref() {
                    "Object" => entries.push(self.object(start)?),
                    "Quiet" => quiet = self.text("Quiet")?.trim() == "true",
                    other => return Err(malformed(format!("the element {other:?} does not belong there"))),
                },
                Event::End(_) => break,
                event => blank(&event, "Object or Quiet")?,
            }
            if entries.len() > DELETE_KEYS_MAX {
                return Err(malformed(format!("it has more than {DELETE_KEYS_MAX} keys")));
            }
        }
        loop {
            match self.next()? {
                Event::Eof => break,
                event => blank(&event, "nothing")?,
            }
        }
        // Without an Object there is nothing to judge: some stores refuse that, and others delete nothing.
        Ok((entries, quiet))
    }

    fn object(&mut self, start: usize) -> Result<DeleteEntry> {
        let (mut key, mut version) = (None, None);
        loop {
            match self.next()? {
                Event::Start(element) => {
                    let name = element.local_name().as_ref().to_owned();
                    let slot = match name.as_str() {
                        "Key" => &mut key,
                        "VersionId" => &mut version,
                        // Conditions of S3: they narrow a delete, and travel on with the entry.
                        "ETag" | "LastModifiedTime" | "Size" => &mut None,
                        other => return Err(malformed(format!("the element {other:?} does not belong in an Object"))),
                    };
                    if slot.replace(self.text(&name)?).is_some() {
                        return Err(malformed(format!("an Object has two {name} elements")));
                    }
                }
                Event::End(_) => break,
                event => blank(&event, "Key or VersionId")?,
            }
        }
        let key = key.filter(|key| !key.is_empty()).ok_or_else(|| malformed("an Object has no Key"))?;
        // An empty version names none for some servers, and is an error for others.
        if version.as_deref() == Some("") {
            return Err(malformed("a VersionId is empty"));
        }
        if version.as_deref().is_some_and(|version| has_dots(version.as_bytes())) {
            return Err(malformed("a VersionId is a path"));
        }
        Ok(DeleteEntry { key, version, span: start..self.position() })
    }

    /// The text up to the end of the element that was just opened.
    fn text(&mut self, name: &str) -> Result<String> {
        let mut value = String::new();
        loop {
            match self.next()? {
                Event::Text(text) if text.contains('\r') => {
                    return Err(malformed(format!("a carriage return in {name} must be written as &#13;")));
                }
                Event::Text(text) => value.push_str(&text),
                Event::CData(text) if !text.contains('\r') => value.push_str(&text),
                Event::GeneralRef(reference) => value.push(resolve(&reference)?),
                Event::End(_) => return Ok(value),
                _ => return Err(malformed(format!("{name} must hold text only"))),
            }
        }
    }

    fn next(&mut self) -> Result<Event<'a>> {
        match self.reader.read_event() {
            Ok(event) => Ok(event),
            Err(error) => Err(malformed("it is not well-formed").with_source(error)),
        }
    }

    fn position(&self) -> usize {
        xml_position(self.document, &self.reader)
    }
}

/// Passes over what may stand between elements.
fn blank(event: &Event<'_>, expected: &str) -> Result<()> {
    match event {
        Event::Text(text) if text.trim_ascii().is_empty() => Ok(()),
        Event::Comment(_) => Ok(()),
        Event::Eof => Err(malformed("it ends early")),
        _ => Err(malformed(format!("{expected} was expected"))),
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<char> {
    let named = match &**reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => reference.resolve_char_ref().unwrap_or_default(),
    };
    named.ok_or_else(|| malformed(format!("the reference &{}; is unknown", &**reference)))
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::MalformedXml, format!("The DeleteObjects document cannot be read: {what}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\r\n  \
        <Object><Key>a &amp; b&#13;&#x1;<![CDATA[<c>]]></Key></Object>\r\n<!-- x --><Object><VersionId>v1</VersionId><Key> é/</Key>\
        <ETag>\"e\"</ETag></Object><Object><Key>a</Key></Object><Quiet>true</Quiet></Delete>\n";

    fn parse(text: &str) -> Result<DeleteList> {
        DeleteList::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn keys_and_versions_are_decoded() {
        let list = parse(DOCUMENT).expect("valid");
        let entries: Vec<_> = list.entries.iter().map(|e| (e.key.as_str(), e.version.as_deref())).collect();
        assert_eq!(entries, [("a & b\r\u{1}<c>", None), (" é/", Some("v1")), ("a", None)]);
        assert!(list.quiet);
    }

    #[test]
    fn a_subset_is_the_same_document_without_the_rest() {
        let list = parse(DOCUMENT).expect("valid");
        assert_eq!(list.subset(|_| true), DOCUMENT.as_bytes());
        let only = list.subset(|index| index == 1);
        let again = DeleteList::parse(only.clone()).expect("valid");
        assert_eq!((again.entries.len(), again.entries[0].key.as_str(), again.quiet), (1, " é/", true));
        assert!(String::from_utf8_lossy(&only).contains("<ETag>\"e\"</ETag>"));
        let marked = parse(&format!("\u{feff}{DOCUMENT}")).expect("valid");
        assert_eq!(marked.subset(|index| index == 1), [b"\xef\xbb\xbf", &only[..]].concat(), "behind a byte order mark");
    }

    #[test]
    fn a_version_and_a_bypass_need_their_own_actions() {
        let list = parse(DOCUMENT).expect("valid");
        let mut headers = HeaderMap::new();
        let actions = |index, headers: &HeaderMap| -> Vec<_> {
            list.permissions(index, "b", headers).into_iter().map(|p| p.action).collect()
        };
        assert_eq!(actions(0, &headers), ["s3:DeleteObject"]);
        headers.insert("x-amz-bypass-governance-retention", http::HeaderValue::from_static("true"));
        assert_eq!(actions(1, &headers), ["s3:DeleteObjectVersion", "s3:BypassGovernanceRetention"]);
        assert_eq!(list.permissions(1, "b", &headers)[0].key.as_deref(), Some(" é/".as_bytes()));
    }

    #[test]
    fn what_parsers_could_read_differently_is_refused() {
        let cases = [
            "",
            "<Delete><Object/></Delete>",
            "<Delete><Object><Key></Key></Object></Delete>",
            "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
            "<Delete><Object><Key>a</Key><VersionId/></Object></Delete>",
            "<Delete><Object><Key>a</Key><VersionId>../v</VersionId></Object></Delete>",
            "<Delete><Object><Key>a<!-- -->b</Key></Object></Delete>",
            "<Delete><Object><Key>a\rb</Key></Object></Delete>",
            "<Delete><Object><Key>a<b/></Key></Object></Delete>",
            "<Delete><Object><Key>&x;</Key></Object></Delete>",
            "<Delete><Object><Key>a</Key><Other/></Object></Delete>",
            "<Delete><Other/><Object><Key>a</Key></Object></Delete>",
            "<Delete><Object><Key>a</Key></Object>",
            "<Delete><Object><Key>a</Key></Object></Delete><Delete/>",
            "<Delete><Object><Key>a</Kex></Object></Delete>",
            "<!DOCTYPE d [<!ENTITY x \"y\">]><Delete><Object><Key>a</Key></Object></Delete>",
            "<?xml version=\"1.0\" encoding=\"latin1\"?><Delete><Object><Key>a</Key></Object></Delete>",
            "<Erase><Object><Key>a</Key></Object></Erase>",
        ];
        for text in cases {
            assert_eq!(parse(text).expect_err(text).kind, Kind::MalformedXml, "{text}");
        }
        assert!(parse("<Delete/>").expect("valid").entries.is_empty());
        assert!(DeleteList::parse(Bytes::from_static(b"<Delete><Object><Key>\xff</Key></Object></Delete>")).is_err());
    }

    #[test]
    fn a_thousand_keys_and_no_more() {
        let many = |count| format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(count));
        assert_eq!(parse(&many(1000)).expect("valid").entries.len(), 1000);
        assert_eq!(parse(&many(1001)).expect_err("too many").kind, Kind::MalformedXml);
        let huge = Bytes::from(vec![b' '; DELETE_BODY_BYTES_MAX + 1]);
        assert_eq!(DeleteList::parse(huge).expect_err("too long").kind, Kind::EntityTooLarge);
    }
}
