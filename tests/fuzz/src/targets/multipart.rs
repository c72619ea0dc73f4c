//! The multipart encoder, read back by the strict reader. The input decides which entries there are, how they end, their headers and
//! bodies, and in which pieces the octets arrive; a zero in a body stands for a delimiter of this very answer. What is read must be
//! what was written, and of nothing that was cut may the reader say that it is whole.

use batchgate::batch::encode::member::Naming;
use batchgate::batch::encode::{Format, PartHeaders, PartName};
use batchgate::batch::outcome::{FailedEntry, Totals};
use batchgate::client::reader::{Event, Owed, Reader, Unfinished};
use batchgate::error::Kind;
use batchgate::types::{EntryIndex, RequestId};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// What decides; zeros once it is spent.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn octet(&mut self) -> u8 {
        self.octets_of(1).first().copied().unwrap_or_default()
    }

    /// Up to `max` octets, with their number before them.
    fn octets(&mut self, max: usize) -> &'a [u8] {
        let count = usize::from(self.octet()).min(max);
        self.octets_of(count)
    }

    fn octets_of(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

#[derive(Clone, Copy, PartialEq)]
enum OnError {
    Continue,
    Stop,
    Omit,
}

/// A part as it must be read.
#[derive(Debug, PartialEq)]
struct Part {
    index: u32,
    status: u16,
    id: Option<Vec<u8>>,
    kept: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// See the module.
pub fn run(data: &[u8]) {
    if data.len() > super::INPUT_BYTES_MAX {
        return;
    }
    let mut input = Input(data);
    let count = u32::from(input.octet() % 6) + 1;
    let how = input.octet();
    let on_error = [OnError::Continue, OnError::Stop, OnError::Omit][usize::from(how % 3)];
    let (in_order, asked) = (how & 8 == 0, how & 16 != 0);
    let mut encoder = Format::Multipart.encoder(RequestId(7), Naming::Key, &mut SmallRng::seed_from_u64(u64::from(how)));
    let content_type = encoder.content_type();
    let boundary = content_type.to_str().expect("text").rsplit('=').next().expect("one").to_owned();
    let mut out = BytesMut::new();
    let mut totals = Totals { entries: u64::from(count), ..Totals::default() };
    let mut parts: Vec<Part> = Vec::new();
    for position in 0..count {
        let index = if in_order { position } else { count - 1 - position };
        let (headers, id) = (some_headers(&mut input), some_id(&mut input));
        let name = PartName { index: EntryIndex(index), id: id.as_ref(), bucket: "b", key: "k\r\n<&\u{0}" };
        let id_octets = id.as_ref().map(|id| id.as_bytes().to_vec());
        if input.octet() % 4 == 0 {
            let failed = FailedEntry {
                headers: PartHeaders::of_failed(&headers),
                ..FailedEntry::ours(Kind::AccessDenied, "It is not for you.")
            };
            totals.count_failed(&failed);
            if on_error == OnError::Omit {
                totals.omitted += 1;
                continue;
            }
            let length = encoder.failed(&mut out, name, &failed).expect("multipart has a place for it");
            let body = out[out.len() - usize::try_from(length).expect("short")..].to_vec();
            totals.bytes += length;
            parts.push(Part { index, status: failed.status.as_u16(), id: id_octets, kept: Vec::new(), body });
            if on_error == OnError::Stop {
                totals.stopped = Some((EntryIndex(index), failed.status, failed.code.into_owned()));
                break;
            }
            continue;
        }
        let body: Vec<u8> = input.octets(255).iter().flat_map(|octet| planted(*octet, &boundary)).collect();
        let status = if input.octet() % 2 == 0 { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
        encoder.begin(&mut out, name, status, &PartHeaders::of(&headers), body.len() as u64);
        out.extend_from_slice(&body);
        totals.bytes += body.len() as u64;
        parts.push(Part { index, status: status.as_u16(), id: id_octets, kept: kept(&headers), body });
    }
    totals.delivered = parts.len() as u64;
    if asked || on_error != OnError::Continue {
        encoder.summary(&mut out, &totals);
    }
    encoder.close(&mut out);
    let octets = out.freeze();
    let owed = Owed { entries: count, in_order, summary: on_error != OnError::Continue };
    let content_type = content_type.to_str().expect("text");
    let (read, end) = read(content_type, owed, octets.clone(), &mut input, &parts);
    assert_eq!(end, Ok(()), "{:?}", String::from_utf8_lossy(&octets));
    assert_eq!(read, parts);
    let cut = usize::from(input.octet()) * 256 + usize::from(input.octet());
    let (_, end) = self::read(content_type, owed, octets.slice(..cut % octets.len()), &mut input, &parts);
    assert_eq!(end, Err(Unfinished::Cut), "cut at {}", cut % octets.len());
}

/// Reads octets in pieces. `expected` says which headers are looked for.
fn read(
    content_type: &str,
    owed: Owed,
    mut octets: Bytes,
    input: &mut Input<'_>,
    expected: &[Part],
) -> (Vec<Part>, Result<(), Unfinished>) {
    let mut reader = Reader::new(content_type, owed).expect("the contract's type");
    let mut parts: Vec<Part> = Vec::new();
    while !octets.is_empty() {
        let piece = match input.octet() {
            0 => octets.len(),
            length => usize::from(length).min(octets.len()),
        };
        reader.feed(octets.split_to(piece));
        loop {
            match reader.next() {
                Err(error) => return (parts, Err(Unfinished::Wrong(error))),
                Ok(None) => break,
                Ok(Some(Event::Part(head))) => {
                    let names = expected.get(parts.len()).map(|part| part.kept.as_slice()).unwrap_or_default();
                    let kept = names.iter().filter_map(|(name, _)| Some((name.clone(), head.header(name)?.to_vec()))).collect();
                    let id = head.header("batch-id").map(<[u8]>::to_vec);
                    parts.push(Part { index: head.index, status: head.status, id, kept, body: Vec::new() });
                }
                Ok(Some(Event::Data(data))) => parts.last_mut().expect("a part began").body.extend_from_slice(&data),
                Ok(Some(Event::End | Event::Summary(_))) => {}
            }
        }
    }
    (parts, reader.finish())
}

/// An octet of a body, or what looks like the end of the part.
fn planted(octet: u8, boundary: &str) -> Vec<u8> {
    match octet {
        0 => format!("\r\n--{boundary}\r\n").into_bytes(),
        1 => format!("\r\n--{boundary}--\r\n").into_bytes(),
        2 => b"\r\n\r\ncontent-length: 5\r\n".to_vec(),
        octet => vec![octet],
    }
}

fn some_headers(input: &mut Input<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for _ in 0..input.octet() % 4 {
        let name = match input.octet() % 8 {
            0 => header::CONTENT_LENGTH,
            1 => HeaderName::from_static("content-id"),
            2 => HeaderName::from_static("batch-status"),
            3 => header::ETAG,
            4 => header::CONTENT_TYPE,
            _ => HeaderName::from_bytes(input.octets(20)).unwrap_or(header::TE),
        };
        if let Ok(value) = HeaderValue::from_bytes(input.octets(40)) {
            headers.append(name, value);
        }
    }
    headers
}

fn some_id(input: &mut Input<'_>) -> Option<HeaderValue> {
    let text: Vec<u8> = input.octets(12).iter().copied().filter(u8::is_ascii_graphic).collect();
    (!text.is_empty()).then(|| HeaderValue::from_bytes(&text).expect("visible"))
}

/// The headers of which a part must have the first value, as a reader sees it.
fn kept(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let of_the_object =
        |name: &&HeaderName| matches!(name.as_str(), "etag" | "content-type") || name.as_str().starts_with("x-amz-meta-");
    if headers.contains_key(header::CONNECTION) {
        return Vec::new();
    }
    let value = |name: &HeaderName| (name.as_str().to_owned(), headers[name].as_bytes().trim_ascii().to_vec());
    headers.keys().filter(of_the_object).map(value).collect()
}
