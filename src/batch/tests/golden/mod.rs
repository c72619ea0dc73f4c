//! `tests/golden`: whole answers as octets and what a reader must make of them, and answers that a reader must refuse. They are
//! what the encoders write, and what every client is held to; here it is shown that they still are, and that they say the same
//! to a strict reader. `UPDATE_GOLDEN=1` writes them anew.

mod broken;
mod examples;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rand::RngCore;
use serde_json::{Value, json};

use super::reader::{self, PartId};
use super::untar;
use crate::batch::encode::{Format, PartHeaders};
use crate::batch::outcome::{FailedEntry, Totals};
use crate::batch::request;
use crate::types::{EntryIndex, RequestId};

const REQUEST_ID: RequestId = RequestId(0x4f0c);

/// `00112233445566778899aabbccddeeff`, in the order in which it is drawn.
const BOUNDARY: [u64; 2] = [0x8899_aabb_ccdd_eeff, 0x0011_2233_4455_6677];

/// The bucket of the URL.
const BUCKET: &str = "b";

/// A header's name and octets.
type Header = (&'static str, Vec<u8>);

/// How an entry ends, in the order of writing.
#[derive(Clone)]
enum End {
    Whole { index: u32, status: u16, headers: Vec<Header>, body: Vec<u8> },
    Failed { index: u32, status: u16, code: &'static str, headers: Vec<Header> },
}

/// One whole answer.
struct Example {
    name: &'static str,
    format: Format,
    request: Value,
    ends: Vec<End>,
}

/// One answer as it lies in the folder.
#[derive(Clone)]
struct Golden {
    name: String,
    body: Vec<u8>,
    json: Value,
}

/// Draws the boundary.
struct Fixed(std::array::IntoIter<u64, 2>);

impl RngCore for Fixed {
    fn next_u32(&mut self) -> u32 {
        unreachable!("a boundary is drawn in 64 bits at a time")
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next().expect("a boundary is drawn once")
    }

    fn fill_bytes(&mut self, _: &mut [u8]) {
        unreachable!("a boundary is drawn in 64 bits at a time")
    }
}

fn part_headers(headers: &[Header], of: impl Fn(&HeaderMap) -> PartHeaders) -> PartHeaders {
    let header = |(name, value): &Header| (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("valid"));
    of(&headers.iter().map(header).collect())
}

impl Example {
    /// Runs the encoder, as the driver would.
    fn render(&self) -> Golden {
        let text = serde_json::to_vec(&self.request).expect("JSON");
        let batch = request::parse(&text, 100, Some(BUCKET), self.format).expect(self.name);
        let mut encoder = self.format.encoder(REQUEST_ID, batch.naming(), &mut Fixed(BOUNDARY.into_iter()));
        let (mut out, mut totals) = (BytesMut::new(), Totals { entries: batch.entries.len() as u64, ..Totals::default() });
        let mut parts = Vec::new();
        let name = |index: u32| batch.entries[index as usize].part(EntryIndex(index), BUCKET);
        for end in &self.ends {
            match end {
                End::Whole { index, status, headers, body } => {
                    let status = StatusCode::from_u16(*status).expect("valid");
                    encoder.begin(&mut out, name(*index), status, &part_headers(headers, PartHeaders::of), body.len() as u64);
                    out.put_slice(body);
                    totals.delivered += 1;
                    totals.bytes += body.len() as u64;
                    parts.push(self.part(*index, status.as_u16(), headers, body));
                }
                End::Failed { index, status, code, headers } => {
                    totals.failed += 1;
                    let failed = FailedEntry {
                        status: StatusCode::from_u16(*status).expect("valid"),
                        code: (*code).into(),
                        message: "The store answered this entry's read with an error.",
                        headers: part_headers(headers, PartHeaders::of_failed),
                    };
                    if batch.on_error == request::OnError::Omit {
                        totals.omitted += 1;
                        continue;
                    }
                    if batch.on_error == request::OnError::Stop {
                        totals.stopped = Some((EntryIndex(*index), failed.status, (*code).into()));
                    }
                    let Some(length) = encoder.failed(&mut out, name(*index), &failed) else { continue };
                    totals.delivered += 1;
                    totals.bytes += length;
                    let mut headers = headers.clone();
                    headers.insert(0, ("content-type", b"application/xml".to_vec()));
                    parts.push(self.part(*index, *status, &headers, self.error(*index, code).as_bytes()));
                }
            }
        }
        (totals.backend_requests, totals.backend_bytes, totals.elapsed_ms) = (totals.entries, totals.bytes, 41);
        if batch.has_summary() {
            encoder.summary(&mut out, &totals);
        }
        encoder.close(&mut out);
        let summary = batch.has_summary().then(|| serde_json::from_slice::<Value>(&totals.to_json()).expect("JSON"));
        let json = json!({
            "content_type": encoder.content_type().to_str().expect("text"),
            "batch_count": totals.entries,
            "request": self.request,
            "parts": parts,
            "summary": summary,
        });
        Golden { name: self.name.into(), body: out.to_vec(), json }
    }

    fn entry(&self, index: u32) -> &Value {
        &self.request["Objects"][index as usize]
    }

    /// What a reader must make of a part or of a member.
    fn part(&self, index: u32, status: u16, headers: &[Header], body: &[u8]) -> Value {
        let body = BASE64_STANDARD.encode(body);
        let latin_1 = |value: &[u8]| value.iter().map(|octet| char::from(*octet)).collect::<String>();
        let mut headers: BTreeMap<_, _> = headers.iter().map(|(name, value)| (*name, latin_1(value))).collect();
        let id = self.entry(index)["Id"].as_str();
        if self.format == Format::Tar {
            let with_bucket = self.request["Objects"].as_array().expect("an array").iter().any(|entry| entry["Bucket"].is_string());
            let key = self.entry(index)["Key"].as_str().expect("a key");
            let bucket = self.entry(index)["Bucket"].as_str().unwrap_or(BUCKET);
            let name = if with_bucket { format!("{bucket}/{key}") } else { key.to_owned() };
            let mtime = if headers.contains_key("last-modified") { examples::MODIFIED_SECONDS } else { 0 };
            return json!({"name": id.unwrap_or(&name), "mtime": mtime, "body_base64": body});
        }
        if let Some(id) = id {
            headers.insert("batch-id", id.into());
        }
        json!({"index": index, "status": status, "headers": headers, "body_base64": body})
    }

    /// The document of a failed part, in the contract's form.
    fn error(&self, index: u32, code: &str) -> String {
        let key = self.entry(index)["Key"].as_str().expect("a key");
        let key = key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\u{1}', "&#x1;");
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>The store answered this entry's read \
             with an error.</Message><BucketName>{}</BucketName><Key>{key}</Key><RequestId>{REQUEST_ID}</RequestId></Error>",
            self.entry(index)["Bucket"].as_str().unwrap_or(BUCKET)
        )
    }
}

/// The parts that a strict reader finds, in the form of the JSON file.
fn read(content_type: &str, count: u64, octets: &[u8]) -> Result<(Vec<Value>, Option<Value>), String> {
    if content_type == "application/x-tar" {
        let (members, summary) = untar::whole(octets)?;
        let part = |m: untar::Member| json!({"name": m.name, "mtime": m.mtime, "body_base64": BASE64_STANDARD.encode(m.body)});
        return Ok((members.into_iter().map(part).collect(), Some(summary)));
    }
    let (parts, summary) = reader::whole(content_type, count as usize, octets)?;
    let latin_1 = |value: &[u8]| value.iter().map(|octet| char::from(*octet)).collect::<String>();
    let part = |part: reader::Part| {
        let PartId::Entry(index) = part.id else { unreachable!("summaries are taken out") };
        let of_the_frame = |name: &str| matches!(name, "content-length" | "content-id" | "batch-status");
        let headers: BTreeMap<_, _> =
            part.headers.iter().filter(|(name, _)| !of_the_frame(name)).map(|(name, value)| (name, latin_1(value))).collect();
        json!({"index": index, "status": part.status, "headers": headers, "body_base64": BASE64_STANDARD.encode(&part.body)})
    };
    Ok((parts.into_iter().map(part).collect(), summary))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The answers in a folder are these and no others; with `UPDATE_GOLDEN` they are made so.
fn assert_folder(folder: &Path, golden: &[Golden]) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(folder).expect("writable");
        for golden in golden {
            fs::write(folder.join(format!("{}.body", golden.name)), &golden.body).expect("writable");
            let text = serde_json::to_string_pretty(&golden.json).expect("JSON") + "\n";
            fs::write(folder.join(format!("{}.json", golden.name)), text).expect("writable");
        }
    }
    for golden in golden {
        let name = &golden.name;
        let body = fs::read(folder.join(format!("{name}.body"))).expect(name);
        assert!(body == golden.body, "{name}: {:?} instead of {:?}", body.escape_ascii().to_string(), golden.body.escape_ascii());
        let text = fs::read(folder.join(format!("{name}.json"))).expect(name);
        assert_eq!(serde_json::from_slice::<Value>(&text).expect(name), golden.json, "{name}");
    }
    let names = fs::read_dir(folder).expect("there").map(|file| file.expect("readable").file_name().into_string().expect("text"));
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".body") || name.ends_with(".json")).collect();
    let mut expected: Vec<_> =
        golden.iter().flat_map(|golden| ["body", "json"].map(|ext| format!("{}.{ext}", golden.name))).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn the_encoders_write_the_golden_answers() {
    let golden: Vec<_> = examples::all().iter().map(Example::render).collect();
    assert!(golden.len() > 20);
    assert_folder(&folder(), &golden);
}

#[test]
fn a_strict_reader_finds_what_was_written() {
    for golden in examples::all().iter().map(Example::render) {
        let json = &golden.json;
        let (parts, summary) =
            read(json["content_type"].as_str().expect("text"), json["batch_count"].as_u64().expect("a number"), &golden.body)
                .expect(&golden.name);
        assert_eq!((json!(parts), json!(summary)), (json["parts"].clone(), json["summary"].clone()), "{}", golden.name);
    }
}

#[test]
fn a_strict_reader_refuses_what_is_broken() {
    let golden = broken::all();
    assert!(golden.len() > 30);
    for golden in &golden {
        let json = &golden.json;
        let found =
            read(json["content_type"].as_str().expect("text"), json["batch_count"].as_u64().expect("a number"), &golden.body);
        assert!(found.is_err(), "{} was read as {found:?}", golden.name);
    }
    assert_folder(&folder().join("broken"), &golden);
}
