//! Where a reader of XML is in its document. What leaves is a place at which the document may be cut.

use quick_xml::Reader;

/// How many bytes of `document`, which is what `reader` was made of, are read. The reader's own count leaves out a byte order mark.
pub fn xml_position(document: &str, reader: &Reader<&[u8]>) -> usize {
    document.len() - reader.get_ref().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quick_xml::events::Event;

    #[test]
    fn a_position_is_one_of_the_document_whatever_stands_before_it() {
        for before in ["", "\u{feff}", "\u{feff}<?xml version=\"1.0\"?>\n"] {
            for expand in [false, true] {
                let (document, first) = (format!("{before}<a>\u{feff}t&amp;<b/></a> "), before.len());
                let mut reader = Reader::from_str(&document);
                reader.config_mut().expand_empty_elements = expand;
                let (mut at, mut seen) = (0, Vec::new());
                loop {
                    let event = reader.read_event().expect("well-formed");
                    let behind = xml_position(&document, &reader);
                    match event {
                        Event::Eof => break,
                        Event::Start(_) | Event::Empty(_) | Event::End(_) => seen.push(&document[at..behind]),
                        _ => {}
                    }
                    at = behind;
                }
                assert_eq!(at, document.len());
                seen[0] = seen[0].trim_start_matches('\u{feff}');
                let tags = if expand { vec!["<a>", "<b/>", "", "</a>"] } else { vec!["<a>", "<b/>", "</a>"] };
                assert_eq!(seen, tags, "{first}");
            }
        }
    }
}
