//! The list of an upload's parts, for a store that saw no checksum of them. The document of CompleteMultipartUpload enters; the
//! same leaves without the elements `Checksum…` of its parts, byte for byte otherwise. Pure.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>.

use std::ops::Range;

use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::types::xml_position;

/// How deep such an element is: in a `Part`, in the root.
const DEPTH: usize = 2;

/// `document` without the checksums of its parts. One that is no XML stays as it is: the store says what is wrong with it.
pub fn without_checksums(document: Bytes) -> Bytes {
    match std::str::from_utf8(&document).ok().and_then(checksums) {
        None => document,
        Some(spans) if spans.is_empty() => document,
        Some(spans) => {
            let mut out = Vec::with_capacity(document.len());
            let mut from = 0;
            for span in spans {
                out.extend_from_slice(&document[from..span.start]);
                from = span.end;
            }
            out.extend_from_slice(&document[from..]);
            out.into()
        }
    }
}

/// Where the checksums are, in order; nothing for what is no XML.
fn checksums(text: &str) -> Option<Vec<Range<usize>>> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let (mut spans, mut depth, mut begun) = (Vec::new(), 0_usize, None);
    loop {
        let at = xml_position(text, &reader);
        match reader.read_event().ok()? {
            Event::Start(element) => {
                if depth == DEPTH && element.local_name().as_ref().starts_with("Checksum") {
                    begun = Some(at);
                }
                depth += 1;
            }
            Event::End(_) => {
                depth = depth.checked_sub(1)?;
                if depth == DEPTH
                    && let Some(start) = begun.take()
                {
                    spans.push(start..xml_position(text, &reader));
                }
            }
            Event::Eof => return (depth == 0).then_some(spans),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(document: &str) -> String {
        let kept = without_checksums(Bytes::copy_from_slice(document.as_bytes()));
        String::from_utf8(kept.to_vec()).expect("text")
    }

    #[test]
    fn a_part_keeps_all_but_its_checksums() {
        for (part, left) in [
            ("<PartNumber>1</PartNumber><ETag>\"e\"</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32>", None),
            ("<ChecksumSHA256>a</ChecksumSHA256><PartNumber>1</PartNumber>\n  <ChecksumXXHASH3/><ETag>\"e\"</ETag>", Some("\n  ")),
            ("<PartNumber>1</PartNumber><ChecksumMD5 a='>'>b<!-- </ChecksumMD5> --></ChecksumMD5 ><ETag>\"e\"</ETag>", None),
        ] {
            for (open, close) in [
                ("<CompleteMultipartUpload xmlns=\"x\"><Part>", "</Part></CompleteMultipartUpload>\n"),
                ("<?xml version=\"1.0\"?>\n<C><Part><PartNumber>0</PartNumber></Part><Part>", "</Part></C>"),
            ] {
                let between = left.unwrap_or_default();
                let expected = format!("{open}<PartNumber>1</PartNumber>{between}<ETag>\"e\"</ETag>{close}");
                for mark in ["", "\u{feff}"] {
                    assert_eq!(kept(&format!("{mark}{open}{part}{close}")), format!("{mark}{expected}"));
                }
            }
        }
    }

    #[test]
    fn prefixes_do_not_hide_a_checksum() {
        let document = "<s:C xmlns:s=\"x\"><s:Part><s:ETag>e</s:ETag><s:ChecksumCRC32>b</s:ChecksumCRC32></s:Part></s:C>";
        assert_eq!(kept(document), "<s:C xmlns:s=\"x\"><s:Part><s:ETag>e</s:ETag></s:Part></s:C>");
    }

    #[test]
    fn what_is_no_list_with_checksums_stays_as_it_is() {
        for document in [
            "",
            "no XML",
            "<C><Part><ETag>e</ETag></Part></C>",
            "<C><ChecksumCRC32>of nothing</ChecksumCRC32></C>",
            "<C><Part><ChecksumCRC32>a</ChecksumCRC32></Part>",
            "<C><Part><ChecksumCRC32>a</ETag></Part></C>",
            "<C><Part><ChecksumCRC32>a",
        ] {
            assert_eq!(kept(document), document);
        }
        let bytes = Bytes::from_static(b"<C><Part><ChecksumCRC32>\xff</ChecksumCRC32></Part></C>");
        assert_eq!(without_checksums(bytes.clone()), bytes);
    }
}
