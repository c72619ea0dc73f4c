//! What a user asks for, as entries. What enters are S3 URIs and the text of a list: an S3 URI, a key or a JSON object a line;
//! what leaves are entries that the endpoint will not refuse for their form, or the keys of whole objects of one bucket, or every
//! line that is wrong. Pure, but for [`read`].

use std::io::{self, Read};
use std::path::Path;

use crate::client::{Entry, printable};
use crate::types::{BucketName, ByteRange, ObjectKey};

/// Longest `Id`, in characters.
const ID_BYTES_MAX: usize = 256;

/// Longest `VersionId`, `IfMatch` and `IfNoneMatch`, in characters.
const HEADER_BYTES_MAX: usize = 1024;

/// Most lines of wrong input that are said.
const WRONG_LINES_MAX: usize = 20;

/// The bytes of a list: of a file, or of standard input where it is called `-`.
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

/// What is wrong, as it is said on a terminal: so many lines, and how many more there are.
pub(super) fn said(wrong: &[String]) -> impl Iterator<Item = String> {
    let more = wrong.len().saturating_sub(WRONG_LINES_MAX);
    let lines = wrong.iter().take(WRONG_LINES_MAX).map(|line| printable(line));
    lines.chain((more > 0).then(|| format!("and {more} more")))
}

/// The entries of the arguments.
///
/// # Errors
/// A line for each that is no S3 URI of an object.
pub(in crate::cli) fn of_arguments(uris: &[String]) -> Result<Vec<Entry>, Vec<String>> {
    let read = |uri: &String| match uri.starts_with("s3://") {
        true => of_uri(uri).map_err(|what| format!("{uri}: {what}")),
        false => Err(format!("{uri}: no S3 URI, such as s3://bucket/key; a list of keys is read with --from")),
    };
    all(uris.iter().map(read))
}

/// The entries of a list that is called `name`. Empty lines say nothing.
///
/// # Errors
/// `name:line: why` for each line that is wrong.
pub(super) fn of_text(name: &str, text: &[u8], has_bucket: bool) -> Result<Vec<Entry>, Vec<String>> {
    each_line(name, text, |line| of_line(line, has_bucket))
}

/// As [`of_text`], where only whole objects of `bucket` are wanted: their keys.
///
/// # Errors
/// As [`of_text`].
pub(super) fn keys_of_text(name: &str, text: &[u8], bucket: &str) -> Result<Vec<String>, Vec<String>> {
    each_line(name, text, |line| whole_object(of_line(line, true)?, bucket))
}

fn each_line<T>(name: &str, text: &[u8], read: impl Fn(&[u8]) -> Result<T, String>) -> Result<Vec<T>, Vec<String>> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
    all(lines.map(|(at, line)| read(line).map_err(|what| format!("{name}:{}: {what}", at + 1))))
}

/// The key of an entry that is no more than an object of `bucket`.
fn whole_object(entry: Entry, bucket: &str) -> Result<String, String> {
    // An Id names it for whoever saves it; all else makes it another request.
    if (Entry { bucket: entry.bucket.clone(), id: entry.id.clone(), ..Entry::new(&entry.key) }) != entry {
        return Err("it has more than Bucket, Key and Id; here whole objects are read".into());
    }
    match entry.bucket.is_some_and(|its_bucket| its_bucket != bucket) {
        true => Err(format!("it is in another bucket than --bucket, {bucket}")),
        false => Ok(entry.key),
    }
}

/// Everything, or everything that is wrong.
fn all<T>(entries: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, Vec<String>> {
    let (mut good, mut wrong) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Ok(entry) => good.push(entry),
            Err(what) => wrong.push(what),
        }
    }
    if wrong.is_empty() { Ok(good) } else { Err(wrong) }
}

fn of_line(line: &[u8], has_bucket: bool) -> Result<Entry, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let entry = if line.starts_with('{') {
        // It is one line whatever the reader of JSON calls it.
        serde_json::from_str(line).map_err(|e| e.to_string().replace(" at line 1 column", " at column"))?
    } else if line.starts_with("s3://") {
        of_uri(line)?
    } else {
        Entry::new(line)
    };
    check(&entry)?;
    match entry.bucket.is_some() || has_bucket {
        true => Ok(entry),
        false => Err("it names no bucket, and there is no --bucket".into()),
    }
}

fn of_uri(uri: &str) -> Result<Entry, String> {
    let rest = uri.strip_prefix("s3://").unwrap_or_default();
    match rest.split_once('/') {
        Some((bucket, key)) if !key.is_empty() => {
            let entry = Entry { bucket: Some(bucket.to_owned()), ..Entry::new(key) };
            check(&entry).map(|()| entry)
        }
        _ => Err("it names a bucket and no object; `aws s3 ls` lists what is in one".into()),
    }
}

/// What the contract says of the members of an entry.
fn check(entry: &Entry) -> Result<(), String> {
    let printable = |text: &str, from: char, bytes_max| {
        (1..=bytes_max).contains(&text.len()) && text.chars().all(|character| (from..='~').contains(&character))
    };
    if ObjectKey::new(&entry.key).is_none() {
        return Err(format!("a key has 1 to {} bytes, this one has {}", ObjectKey::BYTES_MAX, entry.key.len()));
    }
    if let Some(bucket) = entry.bucket.as_ref().filter(|bucket| BucketName::new(bucket).is_none()) {
        return Err(format!("`{bucket}` is no name of a bucket"));
    }
    if let Some(range) = entry.range.as_ref().filter(|range| ByteRange::parse(range).is_err()) {
        return Err(format!("`{range}` is no range: bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH"));
    }
    if entry.id.as_ref().is_some_and(|id| !printable(id, '!', ID_BYTES_MAX)) {
        return Err(format!("an Id is 1 to {ID_BYTES_MAX} visible ASCII characters"));
    }
    let headers = [("VersionId", &entry.version_id), ("IfMatch", &entry.if_match), ("IfNoneMatch", &entry.if_none_match)];
    match headers.iter().find(|(_, text)| text.as_ref().is_some_and(|text| !printable(text, ' ', HEADER_BYTES_MAX))) {
        Some((name, _)) => Err(format!("{name} is 1 to {HEADER_BYTES_MAX} visible ASCII characters or spaces")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(bucket: &str, key: &str) -> Entry {
        Entry { bucket: Some(bucket.into()), ..Entry::new(key) }
    }

    #[test]
    fn a_line_is_a_uri_a_key_or_json() {
        let text = "\u{feff}s3://b/a\n\ntrain/1 2.jpg\r\n{\"Key\": \"{x\", \"Range\": \"bytes=0-4\", \"Id\": \"i\", \"Bucket\": null}\n#k\n s3://b/x";
        let expected = [
            uri("b", "a"),
            Entry::new("train/1 2.jpg"),
            Entry { range: Some("bytes=0-4".into()), id: Some("i".into()), ..Entry::new("{x") },
            Entry::new("#k"),
            Entry::new(" s3://b/x"),
        ];
        assert_eq!(of_text("list", text.as_bytes(), true).unwrap(), expected);
        assert_eq!(of_text("list", b"", false).unwrap(), []);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let text = "s3://b/fine\nkey\ns3://b\n{\"Key\": \"k\", \"Size\": 3}\n{\"Key\": \"k\", \"Bucket\": \"..\"}\n\n{\"Bucket\": \"b\"}\n";
        let wrong = of_text("l.txt", text.as_bytes(), false).unwrap_err();
        let places: Vec<_> = wrong.iter().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["l.txt:2", "l.txt:3", "l.txt:4", "l.txt:5", "l.txt:7"]);
        assert!(wrong[2].contains("unknown field `Size`") && wrong[2].ends_with("at column 19"), "{wrong:?}");
        assert!(of_text("l", b"a\xff", true).unwrap_err()[0].contains("UTF-8"));
    }

    #[test]
    fn members_are_held_to_the_contract() {
        for json in [
            r#"{"Key": ""}"#.to_owned(),
            format!(r#"{{"Key": "{}"}}"#, "k".repeat(1025)),
            r#"{"Key": "k", "Range": "bytes=5-4"}"#.into(),
            r#"{"Key": "k", "Range": "0-4"}"#.into(),
            r#"{"Key": "k", "Id": "a b"}"#.into(),
            r#"{"Key": "k", "Id": ""}"#.into(),
            r#"{"Key": "k", "IfMatch": "é"}"#.into(),
            r#"{"Key": "k", "VersionId": "a\nb"}"#.into(),
            r#"{"Key": "k"} {"Key": "k"}"#.into(),
        ] {
            assert!(of_text("l", json.as_bytes(), true).is_err(), "{json}");
        }
        let fine = r#"{"Key": "k", "Range": "bytes=-5", "Id": "~!", "IfMatch": "\"a b\"", "VersionId": "v"}"#;
        assert!(of_text("l", fine.as_bytes(), true).is_ok());
    }

    #[test]
    fn arguments_are_uris_of_objects() {
        let given = |uri: &str| of_arguments(&[uri.to_owned()]);
        assert_eq!(given("s3://b/a//b/../c%20").unwrap(), [uri("b", "a//b/../c%20")]);
        assert_eq!(given("s3://b//a").unwrap(), [uri("b", "/a")]);
        for wrong in ["key", "s3://b", "s3://b/", "s3:///k", "s3://a b/k", "S3://b/k", "http://b/k"] {
            assert!(given(wrong).unwrap_err()[0].starts_with(wrong), "{wrong}");
        }
    }
}
