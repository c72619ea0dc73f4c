//! The reader against the golden answers: in pieces of every kind it finds what stands beside them; what is broken, cut or
//! flipped where it matters it refuses.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const MULTIPART: &str = "multipart/mixed";

struct Golden {
    name: String,
    content_type: String,
    octets: Bytes,
    about: Value,
}

impl Golden {
    /// Those of `multipart/mixed` in a folder of `tests/golden`.
    fn all(folder: &str) -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
        let paths = std::fs::read_dir(&folder).expect("the golden answers are there").map(|entry| entry.expect("readable").path());
        let is_body = |path: &PathBuf| path.extension().is_some_and(|e| e == "body");
        let all: Vec<_> = paths.filter(is_body).map(|path| Self::read(&path)).collect();
        let all: Vec<_> = all.into_iter().filter(|golden| !golden.name.starts_with("tar-")).collect();
        assert!(all.len() > 10, "{} answers in {}", all.len(), folder.display());
        all
    }

    fn read(path: &Path) -> Self {
        let about: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let content_type = about["content_type"].as_str().unwrap().to_owned();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        Self { name, content_type, octets: std::fs::read(path).unwrap().into(), about }
    }

    fn entries(&self) -> u64 {
        self.about["request"]["Objects"].as_array().unwrap().len() as u64
    }

    fn on_error(&self) -> &str {
        self.about["request"]["OnError"].as_str().unwrap_or("Continue")
    }

    fn owed(&self) -> Owed {
        let request = &self.about["request"];
        Owed { entries: self.entries() as u32, in_order: request["Order"] != "Completion", summary: self.on_error() != "Continue" }
    }

    /// What is read of the answer, as the golden file writes it.
    fn parts(&self) -> Vec<Read> {
        let part = |part: &Value| Read {
            index: part["index"].as_u64().unwrap() as u32,
            status: part["status"].as_u64().unwrap() as u16,
            body: STANDARD.decode(part["body_base64"].as_str().unwrap()).unwrap(),
            headers: part["headers"].as_object().unwrap().iter().map(|(n, v)| (n.clone(), latin1(v.as_str().unwrap()))).collect(),
        };
        self.about["parts"].as_array().unwrap().iter().map(part).collect()
    }
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

#[derive(Debug, PartialEq)]
struct Read {
    index: u32,
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Reads `octets` in pieces of these lengths, over and over; headers are looked up by the names given.
fn read(content_type: &str, owed: Owed, octets: &Bytes, pieces: &[usize], names: &[String]) -> Result<(Vec<Read>, bool), String> {
    let mut reader = Reader::new(content_type, owed).map_err(|wrong| wrong.0)?;
    let (mut parts, mut summary, mut ended) = (Vec::<Read>::new(), false, true);
    let mut rest = octets.clone();
    let mut pieces = pieces.iter().cycle();
    loop {
        while let Some(event) = reader.next().map_err(|wrong| wrong.0)? {
            match event {
                Event::Part(head) => {
                    assert!(std::mem::take(&mut ended));
                    let header = |name: &String| Some((name.clone(), head.header(name)?.to_vec()));
                    let headers = names.iter().filter_map(header).collect();
                    parts.push(Read { index: head.index, status: head.status, headers, body: Vec::new() });
                }
                Event::Data(data) => parts.last_mut().unwrap().body.extend_from_slice(&data),
                Event::End => ended = true,
                Event::Summary(_) => summary = true,
            }
        }
        if rest.is_empty() {
            return reader.finish().map(|()| (parts, summary)).map_err(|unfinished| format!("{unfinished:?}"));
        }
        let piece = (*pieces.next().unwrap()).clamp(1, rest.len());
        reader.feed(rest.split_to(piece));
    }
}

fn is_whole(golden: &Golden, octets: &Bytes) -> bool {
    read(&golden.content_type, golden.owed(), octets, &[octets.len().max(1)], &[]).is_ok()
}

#[test]
fn golden_answers_are_read_as_what_stands_beside_them() {
    for golden in Golden::all("") {
        let parts = golden.parts();
        let names: Vec<_> = parts.iter().flat_map(|part| part.headers.iter().map(|(name, _)| name.clone())).collect();
        let names: std::collections::BTreeSet<_> = names.into_iter().collect();
        let names: Vec<_> = names.into_iter().collect();
        for piece in [1, 2, 7, golden.octets.len()] {
            let (got, summary) = read(&golden.content_type, golden.owed(), &golden.octets, &[piece], &names).expect(&golden.name);
            assert_eq!(got, parts, "{} in pieces of {piece}", golden.name);
            assert_eq!(summary, !golden.about["summary"].is_null(), "{}", golden.name);
        }
    }
}

#[test]
fn broken_answers_are_refused() {
    for golden in Golden::all("broken") {
        // What the head says is held against the request before there is a reader.
        let counted = golden.about["batch_count"].as_u64() == Some(golden.entries());
        for piece in [1, 7, golden.octets.len().max(1)] {
            let got = read(&golden.content_type, golden.owed(), &golden.octets, &[piece], &[]);
            assert!(!counted || got.is_err(), "{}: {}", golden.name, golden.about["why"]);
        }
    }
}

#[test]
fn cut_anywhere_no_answer_is_whole() {
    for golden in Golden::all("") {
        for cut in 0..golden.octets.len() {
            assert!(!is_whole(&golden, &golden.octets.slice(..cut)), "{} cut at {cut}", golden.name);
        }
    }
}

/// Where the octets are on which the reading of an answer depends: line ends outside bodies, delimiters, lengths, indexes.
fn structure(golden: &Golden) -> Vec<usize> {
    let text = &golden.octets;
    let boundary = golden.content_type.rsplit_once('=').unwrap().1.as_bytes();
    let (mut at, mut out) = (0, Vec::new());
    loop {
        let line_end = at + find(&text[at..], b"\r\n").unwrap();
        out.extend(at..line_end + 2);
        assert!(text[at + 2..line_end].starts_with(boundary));
        if text[..line_end].ends_with(b"--") {
            return out;
        }
        let block = line_end + 2;
        let block_end = block + find(&text[block..], b"\r\n\r\n").unwrap() + 4;
        let mut length = 0;
        let mut line = block;
        while line < block_end {
            let end = line + find(&text[line..], b"\r\n").unwrap();
            if let Some(value) = text[line..end].strip_prefix(b"content-length: ") {
                length = number(value).unwrap() as usize;
                out.extend(line..end);
            } else if text[line..end].starts_with(b"content-id: ") {
                // Where entries may be missing, one index is as good as another.
                let name = line..line + b"content-id: ".len() - 2;
                let index = line + b"content-id: ".len()..line + find(&text[line..end], b"@").unwrap();
                out.extend(name);
                out.extend(index.filter(|_| golden.on_error() == "Continue"));
            }
            out.extend([end, end + 1]);
            line = end + 2;
        }
        at = block_end + length + 2;
        out.extend([at - 2, at - 1]);
    }
}

#[test]
fn flipped_where_it_matters_no_answer_is_whole() {
    for golden in Golden::all("") {
        for at in structure(&golden) {
            // Not bit 5: a name may be written in capitals.
            for bit in [0, 1, 3, 4, 6, 7] {
                let mut octets = golden.octets.to_vec();
                octets[at] ^= 1 << bit;
                let around = String::from_utf8_lossy(&octets[at.saturating_sub(20)..(at + 20).min(octets.len())]).into_owned();
                assert!(!is_whole(&golden, &octets.into()), "{} with bit {bit} of octet {at} flipped: {around:?}", golden.name);
            }
        }
    }
}

fn answer(parts: &str, summary: &str) -> Bytes {
    let boundary = "0".repeat(32);
    let mut text = String::new();
    for (index, status) in parts.split_whitespace().map(|part| part.split_once(':').unwrap()) {
        text += &format!("--{boundary}\r\ncontent-length: 1\r\ncontent-id: <{index}@r>\r\nbatch-status: {status}\r\n\r\nx\r\n");
    }
    if !summary.is_empty() {
        let length = summary.len();
        let head = format!("content-length: {length}\r\ncontent-id: <summary@r>\r\nbatch-status: 200");
        text += &format!("--{boundary}\r\n{head}\r\n\r\n{summary}\r\n");
    }
    (text + &format!("--{boundary}--\r\n")).into()
}

#[test]
fn a_summary_cannot_make_up_for_parts_that_are_missing() {
    let told = |entries: u32, delivered: u32, failed: u32, omitted: u32, stopped: Option<u32>| {
        let members = (entries, delivered, failed, omitted, delivered);
        serde_json::json!({"Entries": members.0, "Delivered": members.1, "Failed": members.2, "Omitted": members.3,
                           "StoppedAt": stopped, "Bytes": members.4})
        .to_string()
    };
    let good = |parts: &str, summary: &str, in_order: bool, owes_summary: bool| {
        let owed = Owed { entries: 3, in_order, summary: owes_summary };
        let content_type = format!("{MULTIPART}; boundary={}", "0".repeat(32));
        read(&content_type, owed, &answer(parts, summary), &[64], &[]).is_ok()
    };
    // Every entry a part.
    assert!(good("0:200 1:404 2:200", "", true, false));
    assert!(good("0:200 1:404 2:200", &told(3, 3, 1, 0, None), true, false));
    assert!(!good("0:200 1:404", &told(3, 2, 1, 0, None), true, false));
    assert!(!good("0:200 1:404", &told(3, 2, 2, 1, None), true, false));
    assert!(!good("0:200 1:404", &told(3, 2, 1, 0, Some(1)), true, false));
    assert!(!good("0:200 1:404 2:200", &told(3, 3, 0, 0, None), true, false));
    // Failures left out.
    assert!(good("0:200 2:200", &told(3, 2, 1, 1, None), true, true));
    assert!(!good("0:200 2:200", &told(3, 2, 0, 0, None), true, true));
    assert!(!good("0:200 2:404", &told(3, 2, 1, 1, None), true, true));
    assert!(!good("0:200 1:200 2:200", "", true, true));
    // Stopped at a failure.
    assert!(good("0:200 1:404", &told(3, 2, 1, 0, Some(1)), true, true));
    assert!(good("0:200 1:404", &told(3, 2, 2, 0, Some(1)), true, true));
    assert!(!good("0:200 2:404", &told(3, 2, 1, 0, Some(2)), true, true));
    assert!(good("0:200 2:404", &told(3, 2, 1, 0, Some(2)), false, true));
    assert!(!good("0:200 1:200", &told(3, 2, 1, 0, Some(1)), true, true));
    assert!(!good("0:404 1:404", &told(3, 2, 2, 0, Some(1)), true, true));
    assert!(!good("2:404 0:200", &told(3, 2, 1, 0, Some(2)), false, true));
}

#[test]
fn what_is_wrong_is_said_without_what_a_terminal_would_obey() {
    let content_type = format!("{MULTIPART}; boundary={}", "0".repeat(32));
    let owed = Owed { entries: 1, in_order: true, summary: false };
    let got = read(&content_type, owed, &"\u{1b}[2J\u{202e}\r\n".into(), &[9], &[]);
    assert_eq!(got, Err("`\\u{1b}[2J\\u{202e}` is no delimiter".into()));
}

#[test]
fn heads_and_summaries_are_bounded() {
    let content_type = format!("{MULTIPART}; boundary={}", "0".repeat(32));
    let owed = Owed { entries: 1, in_order: true, summary: false };
    for piece in [1000, usize::MAX] {
        let endless = format!("--{}\r\nx: {}", "0".repeat(32), "y".repeat(2 * HEAD_BYTES_MAX));
        let got = read(&content_type, owed, &endless.into(), &[piece], &[]);
        assert_eq!(got, Err("a line or a header block does not end".into()));
    }
    let long = format!(
        "--{}\r\ncontent-length: {}\r\ncontent-id: <summary@r>\r\nbatch-status: 200\r\n\r\n",
        "0".repeat(32),
        SUMMARY_BYTES_MAX + 1
    );
    assert_eq!(read(&content_type, owed, &long.into(), &[9], &[]), Err("the summary is too long".into()));
}

proptest! {
    #[test]
    fn prop_how_octets_are_cut_into_pieces_does_not_matter(pieces in prop::collection::vec(1usize..300, 1..20), which: prop::sample::Index) {
        let all = Golden::all("");
        let golden = which.get(&all);
        let whole = read(&golden.content_type, golden.owed(), &golden.octets, &[golden.octets.len()], &["etag".into()]);
        let cut = read(&golden.content_type, golden.owed(), &golden.octets, &pieces, &["etag".into()]);
        prop_assert_eq!(whole.unwrap(), cut.unwrap());
    }
}
