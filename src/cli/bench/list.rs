//! The list of `bench --from`. What enters is the text of a list as `get` takes it; what leaves are the keys of whole objects in
//! one bucket, or every line that is wrong.

use std::io::{self, Read};
use std::path::Path;

use crate::client::{Entry, printable};
use crate::types::ObjectKey;

/// Most lines of a wrong list that are said.
const WRONG_LINES_MAX: usize = 20;

/// The bytes of a file; of standard input where it is called `-`.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}

/// The keys of a list that is called `name`; at least one.
///
/// # Errors
/// `name:line: why` for each line that is wrong, up to [`WRONG_LINES_MAX`].
pub(super) fn keys(name: &str, text: &[u8], bucket: &str) -> Result<Vec<String>, Vec<String>> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let (mut keys, mut wrong) = (Vec::new(), Vec::new());
    for (at, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        match of_line(line, bucket) {
            Ok(key) => keys.push(key),
            Err(what) => wrong.push(format!("--from {name}:{}: {}", at + 1, printable(&what))),
        }
    }
    if wrong.len() > WRONG_LINES_MAX {
        let more = wrong.len() - WRONG_LINES_MAX;
        wrong.truncate(WRONG_LINES_MAX);
        wrong.push(format!("and {more} more"));
    }
    match keys.is_empty() && wrong.is_empty() {
        true => Err(vec![format!("--from {name} names no key")]),
        false if wrong.is_empty() => Ok(keys),
        false => Err(wrong),
    }
}

fn of_line(line: &[u8], bucket: &str) -> Result<String, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let (its_bucket, key) = if line.starts_with('{') {
        // It is one line whatever the reader of JSON calls it.
        let entry: Entry = serde_json::from_str(line).map_err(|e| e.to_string().replace(" at line 1 column", " at column"))?;
        // An Id names it for whoever saves it; all else makes it another request.
        if (Entry { bucket: entry.bucket.clone(), id: entry.id.clone(), ..Entry::new(&entry.key) }) != entry {
            return Err("it has more than Bucket, Key and Id; here whole objects are read".into());
        }
        (entry.bucket, entry.key)
    } else if let Some(rest) = line.strip_prefix("s3://") {
        let (its_bucket, key) = rest.split_once('/').ok_or("it names a bucket and no object")?;
        (Some(its_bucket.to_owned()), key.to_owned())
    } else {
        (None, line.to_owned())
    };
    if its_bucket.is_some_and(|its_bucket| its_bucket != bucket) {
        return Err(format!("it is in another bucket than --bucket, {bucket}"));
    }
    match ObjectKey::new(&key) {
        Some(_) => Ok(key),
        None => Err(format!("a key has 1 to {} bytes, this one has {}", ObjectKey::BYTES_MAX, key.len())),
    }
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
            (6, "this one has 0"),
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
