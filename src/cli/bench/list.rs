//! The list of `bench --from`. What enters is the text of a list as `get` takes it; what leaves are the keys of whole objects in
//! one bucket, or every line that is wrong.

use super::super::list::{keys_of_text, said};

/// The keys of a list that is called `name`; at least one.
///
/// # Errors
/// `name:line: why` for each line that is wrong, as many as are [`said`].
pub(super) fn keys(name: &str, text: &[u8], bucket: &str) -> Result<Vec<String>, Vec<String>> {
    let name = format!("--from {name}");
    let wrong = match keys_of_text(&name, text, bucket) {
        Ok(keys) if keys.is_empty() => vec![format!("{name} names no key")],
        Ok(keys) => return Ok(keys),
        Err(wrong) => wrong,
    };
    Err(said(&wrong).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_a_uri_or_json() {
        let text = "\u{feff}a\n\nb c\r\n/d\ns3://b/e//f\n{\"Key\": \"{g\", \"Id\": \"i\", \"Bucket\": \"b\"}\n\u{feff}h";
        assert_eq!(keys("l", text.as_bytes(), "b").unwrap(), ["a", "b c", "/d", "e//f", "{g", "\u{feff}h"]);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let mut text = b"fine\na\xff\n\ns3://other/k\ns3://b\ns3://b/\n{\"Key\": \"k\", \"Range\": \"bytes=0-4\"}\n{k\n".to_vec();
        text.extend("k".repeat(1025).bytes());
        let wrong = keys("l.txt", &text, "b").unwrap_err();
        let expected = [
            (2, "not UTF-8"),
            (4, "another bucket than --bucket, b"),
            (5, "no object"),
            (6, "no object"),
            (7, "whole objects"),
            (8, "at column"),
            (9, "this one has 1025"),
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
        for (wrong, (line, why)) in wrong.iter().zip(expected) {
            assert!(wrong.starts_with(&format!("--from l.txt:{line}: ")) && wrong.contains(why), "{wrong} / {why}");
        }
        let escape = keys("l", br#"{"Key": "k", "\u001b[2J": 1}"#, "b").unwrap_err();
        assert!(escape.len() == 1 && escape[0].contains("unknown field `\\u{1b}[2J`"), "{escape:?}");
        assert_eq!(keys("l", b"\xef\xbb\xbf\n", "b").unwrap_err(), ["--from l names no key"]);
        let many = keys("l", &b"\xff\n".repeat(25), "b").unwrap_err();
        assert_eq!((many.len(), many[20].as_str()), (21, "and 5 more"));
    }
}
