//! Documents of S3: a small writer for answers and a small reader for requests. What is read becomes a tree of texts; what S3
//! has no use for (attributes, comments, processing instructions) is passed over, and a document type is refused. Pure.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::fault::{Done, Fault};
use crate::error::xml::element;

/// How deep a request's document may nest; S3's have three levels.
const DEPTH_MAX: usize = 8;

/// Most elements of a request's document; 10,000 parts with a checksum each have 40,001.
pub const ELEMENTS_MAX: u64 = 100_000;

/// Fewest bytes of an element: `<a/>`.
pub const ELEMENT_TEXT_BYTES_MIN: u64 = 4;

/// An answer in the making.
pub struct Document {
    out: String,
    root: &'static str,
}

impl Document {
    pub fn new(root: &'static str) -> Self {
        let out = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        Self { out, root }
    }

    /// Adds a text that needs no escaping.
    pub fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Adds `<name>value</name>`.
    pub fn text(&mut self, name: &str, value: &str) {
        element(&mut self.out, name, value);
    }

    /// Adds it if there is a value.
    pub fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.text(name, &value.to_string());
    }

    /// Adds an element that holds what `fill` adds.
    pub fn nested(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push('>');
        fill(self);
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }

    /// The whole of it.
    pub fn finish(mut self) -> String {
        self.out.push_str("</");
        self.out.push_str(self.root);
        self.out.push('>');
        self.out
    }
}

/// An element of a request's document.
#[derive(Debug, Default)]
pub struct Node {
    pub name: String,
    pub text: String,
    pub children: Vec<Node>,
}

impl Node {
    /// The elements of that name in this one.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Node> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first of them.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }
}

/// Reads a document whose root is `root`.
///
/// # Errors
/// `MalformedXML`.
pub fn parse(bytes: &[u8], root: &str) -> Done<Node> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("is not UTF-8"))?;
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    // The first stands for the document itself.
    let mut open = vec![Node::default()];
    let mut elements = 0;
    loop {
        let event = reader.read_event().map_err(|_| malformed("is not well-formed"))?;
        let depth = open.len();
        let top = open.last_mut().expect("the document itself is never closed");
        match event {
            Event::Start(_) if depth > DEPTH_MAX => return Err(malformed("nests too deep")),
            Event::Start(_) if elements == ELEMENTS_MAX => return Err(malformed("has too many elements")),
            Event::Start(start) => {
                elements += 1;
                let name = start.local_name().as_ref().to_owned();
                open.push(Node { name, ..Node::default() });
            }
            Event::End(_) => {
                let done = open.pop().expect("the reader checks that elements match");
                open.last_mut().ok_or_else(|| malformed("is not well-formed"))?.children.push(done);
            }
            Event::Text(text) => top.text.push_str(&text),
            Event::CData(text) => top.text.push_str(&text),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().unwrap_or_default() {
                Some(character) => top.text.push(character),
                None => {
                    let named = resolve_predefined_entity(&reference).ok_or_else(|| malformed("has an unknown entity"))?;
                    top.text.push_str(named);
                }
            },
            Event::DocType(_) => return Err(malformed("has a document type")),
            Event::Eof => break,
            _ => {}
        }
    }
    let document = open.pop().filter(|_| open.is_empty()).ok_or_else(|| malformed("ends early"))?;
    let mut roots = document.children.into_iter();
    match (roots.next(), roots.next()) {
        (Some(node), None) if node.name == root => Ok(node),
        _ => Err(malformed(&format!("has no {root} at its root"))),
    }
}

fn malformed(what: &str) -> Fault {
    Fault::new("MalformedXML", format!("The XML of the request {what}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut document = Document::new("Root");
        document.text("Key", "a<&>\r\n\u{1}é");
        document.nested("Part", |part| part.number("Size", 7));
        let node = parse(document.finish().as_bytes(), "Root").expect("well-formed");
        assert_eq!(node.text_of("Key"), Some("a<&>\r\n\u{1}é"));
        assert_eq!(node.all("Part").map(|part| part.text_of("Size")).collect::<Vec<_>>(), [Some("7")]);
    }

    #[test]
    fn what_is_broken_is_refused() {
        let deep = "<a>".repeat(20);
        for text in
            ["", "<Root>", "<Other/>", "<Root/><Root/>", "</Root>", "<!DOCTYPE Root><Root/>", "<Root>&who;</Root>", &deep, "text"]
        {
            assert_eq!(parse(text.as_bytes(), "Root").expect_err(text).code, "MalformedXML", "{text}");
        }
        assert!(parse(b"<Root>\xff</Root>", "Root").is_err());
        let many = |count: u64| parse(format!("<Root>{}</Root>", "<a/>".repeat(count as usize)).as_bytes(), "Root");
        assert_eq!(many(ELEMENTS_MAX - 1).expect("just so many").children.len() as u64, ELEMENTS_MAX - 1);
        assert_eq!(many(ELEMENTS_MAX).expect_err("one too many").code, "MalformedXML");
    }
}
