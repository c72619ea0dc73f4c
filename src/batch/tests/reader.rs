//! A strict reader of `multipart/mixed` answers in memory, written from the contract: it takes nothing that the contract does
//! not promise, and says what is wrong in words.

use std::collections::HashSet;

use serde_json::Value;

/// What `content-id` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartId {
    Entry(usize),
    Summary,
}

/// One part.
#[derive(Clone, Debug)]
pub struct Part {
    pub id: PartId,
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// Octets of the answer up to its end.
    pub end: usize,
}

impl Part {
    /// The index of its entry; summaries are taken out before.
    pub fn index(&self) -> usize {
        match self.id {
            PartId::Entry(index) => index,
            PartId::Summary => unreachable!("summaries are taken out"),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other == name)?;
        std::str::from_utf8(value).ok()
    }

    /// The text of an error's member.
    pub fn error(&self, member: &str) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let (_, rest) = text.split_once(&format!("<{member}>"))?;
        let (value, _) = rest.split_once(&format!("</{member}>"))?;
        Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    }
}

/// What is to be made of the octets.
#[derive(Debug)]
pub struct Reading {
    /// Parts that are there whole.
    pub parts: Vec<Part>,
    /// The closing delimiter came, and nothing behind it.
    pub closed: bool,
}

/// Reads as far as there are octets. `Err` if what is there is not what the contract says, cut or not.
pub fn read(content_type: &str, octets: &[u8]) -> Result<Reading, String> {
    let boundary = content_type.strip_prefix("multipart/mixed; boundary=").ok_or("another media type")?;
    if boundary.len() != 32 || !boundary.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(format!("the boundary is {boundary:?}"));
    }
    let mut reading = Reading { parts: Vec::new(), closed: false };
    let mut rest = octets;
    let mut first = true;
    loop {
        let lead = if first { "" } else { "\r\n" };
        let delimiter = format!("{lead}--{boundary}");
        let closing = format!("{delimiter}--\r\n");
        if !first && rest == closing.as_bytes() {
            reading.closed = true;
            return Ok(reading);
        }
        let opening = format!("{delimiter}\r\n");
        let Some(after) = rest.strip_prefix(opening.as_bytes()) else {
            let cut = opening.as_bytes().starts_with(rest) || (!first && closing.as_bytes().starts_with(rest));
            return if cut { Ok(reading) } else { Err(format!("no delimiter after {} parts", reading.parts.len())) };
        };
        let Some((part, after)) = read_part(after)? else { return Ok(reading) };
        reading.parts.push(Part { end: octets.len() - after.len(), ..part });
        rest = after;
        first = false;
    }
}

/// One part and what is behind it; nothing if it is cut.
fn read_part(octets: &[u8]) -> Result<Option<(Part, &[u8])>, String> {
    let Some(end) = memchr::memmem::find(octets, b"\r\n\r\n") else { return Ok(None) };
    let (block, after) = (&octets[..end], &octets[end + 4..]);
    let mut headers = Vec::new();
    for line in block.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
        let at = line.windows(2).position(|w| w == b": ").ok_or("a header line without a colon and a space")?;
        let name = std::str::from_utf8(&line[..at]).map_err(|_| "a header name that is no text")?;
        let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || !name.bytes().all(token) {
            return Err(format!("the header name {name:?}"));
        }
        headers.push((name.to_owned(), line[at + 2..].to_vec()));
    }
    let one = |name: &str| {
        let mut values = headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value);
        let (value, more) = (values.next(), values.next());
        let value = value.filter(|_| more.is_none()).ok_or_else(|| format!("{name} must be there once"))?;
        String::from_utf8(value.clone()).map_err(|_| format!("{name} is no text"))
    };
    let length: usize = one("content-length")?.parse().map_err(|_| "content-length is no number")?;
    let status: u16 = one("batch-status")?.parse().map_err(|_| "batch-status is no number")?;
    let id = part_id(&one("content-id")?)?;
    if after.len() < length {
        return Ok(None);
    }
    let (body, after) = after.split_at(length);
    Ok(Some((Part { id, status, headers, body: body.to_vec(), end: 0 }, after)))
}

fn part_id(text: &str) -> Result<PartId, String> {
    let wrong = || format!("content-id is {text:?}");
    let (id, request) =
        text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).and_then(|t| t.split_once('@')).ok_or_else(wrong)?;
    if request.is_empty() {
        return Err(wrong());
    }
    if id == "summary" {
        return Ok(PartId::Summary);
    }
    id.parse().map(PartId::Entry).map_err(|_| wrong())
}

/// A whole answer: its entries' parts and its summary. `Err` if it is not whole by the contract's own rule.
pub fn whole(content_type: &str, batch_count: usize, octets: &[u8]) -> Result<(Vec<Part>, Option<Value>), String> {
    let Reading { mut parts, closed } = read(content_type, octets)?;
    if !closed {
        return Err(format!("no closing delimiter after {} parts", parts.len()));
    }
    let summary = match parts.last() {
        Some(last) if last.id == PartId::Summary => {
            let last = parts.pop().expect("there is a last");
            if last.status != 200 || last.header("content-type") != Some("application/json") {
                return Err("the summary is no JSON".into());
            }
            Some(serde_json::from_slice::<Value>(&last.body).map_err(|e| e.to_string())?)
        }
        _ => None,
    };
    let mut seen = HashSet::new();
    for part in &parts {
        let PartId::Entry(index) = part.id else { return Err("a summary that is not the last part".into()) };
        if index >= batch_count || !seen.insert(index) {
            return Err(format!("index {index} is too large or comes twice"));
        }
    }
    let owed = summary.as_ref().map_or(Some(batch_count as u64), |summary| summary["Delivered"].as_u64());
    if owed != Some(parts.len() as u64) {
        return Err(format!("{} parts where {owed:?} are owed", parts.len()));
    }
    Ok((parts, summary))
}
