//! A strict reader of `application/x-tar` answers in memory, written from the contract and from POSIX's description of the
//! format: it takes nothing that the contract does not promise, and says what is wrong in words.

use std::collections::HashSet;

use serde_json::Value;

const BLOCK: usize = 512;

/// What the last member is called.
pub const SUMMARY: &str = ".batchget-summary.json";

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub mtime: u64,
    pub body: Vec<u8>,
}

/// What is to be made of the octets.
#[derive(Debug)]
pub struct Reading {
    /// Members that are there whole, the summary among them.
    pub members: Vec<Member>,
    /// The zero blocks came, and nothing behind them.
    pub closed: bool,
}

/// Reads as far as there are octets. `Err` if what is there is not what the contract says, cut or not.
pub fn read(octets: &[u8]) -> Result<Reading, String> {
    let mut reading = Reading { members: Vec::new(), closed: false };
    let mut rest = octets;
    let mut extended: Option<(Option<String>, Option<usize>)> = None;
    loop {
        if rest.len() < BLOCK {
            return Ok(reading);
        }
        let (block, after) = rest.split_at(BLOCK);
        if is_zero(block) {
            reading.closed = after.len() == BLOCK;
            let wrong = extended.is_some() || after.len() > BLOCK || !is_zero(after);
            return if wrong { Err("something else than two zero blocks at the end".into()) } else { Ok(reading) };
        }
        let header = header(block)?;
        let (name, size) = match (&header.kind, extended.take()) {
            (b'0', None) => (header.name, header.size),
            (b'0', Some((name, size))) => (name.unwrap_or(header.name), size.unwrap_or(header.size)),
            (b'x', None) => {
                let padded = header.size.div_ceil(BLOCK) * BLOCK;
                let Some(records) = after.get(..padded) else { return Ok(reading) };
                extended = Some(records_of(&records[..header.size])?);
                rest = &after[padded..];
                continue;
            }
            (kind, _) => return Err(format!("a member of type {kind}")),
        };
        let Some(padded) = after.get(..size.div_ceil(BLOCK) * BLOCK) else { return Ok(reading) };
        if !is_zero(&padded[size..]) {
            return Err(format!("{name:?} is not followed by zeros"));
        }
        reading.members.push(Member { name, mtime: header.mtime, body: padded[..size].to_vec() });
        rest = &after[padded.len()..];
    }
}

fn is_zero(octets: &[u8]) -> bool {
    octets.iter().all(|octet| *octet == 0)
}

struct Header {
    kind: u8,
    name: String,
    mtime: u64,
    size: usize,
}

fn header(block: &[u8]) -> Result<Header, String> {
    let text = |from: usize, len: usize| {
        let octets = block[from..from + len].split(|octet| *octet == 0).next().unwrap_or_default();
        std::str::from_utf8(octets).map_err(|_| format!("a header's field at {from} is no text"))
    };
    let number = |from, len| u64::from_str_radix(text(from, len)?, 8).map_err(|_| format!("no octal number at {from}"));
    let sum: u64 = block.iter().enumerate().map(|(at, octet)| if (148..156).contains(&at) { 32 } else { u64::from(*octet) }).sum();
    if number(148, 8)? != sum {
        return Err("a header's sum is wrong".into());
    }
    let same = (number(100, 8)?, number(108, 8)?, number(116, 8)?, &block[257..265], text(265, 64)?);
    if same != (0o644, 0, 0, b"ustar\x0000", "") {
        return Err(format!("mode, owner or format: {same:?}"));
    }
    let (prefix, name) = (text(345, 155)?, text(0, 100)?);
    let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
    let size = usize::try_from(number(124, 12)?).map_err(|_| "too large for this reader")?;
    Ok(Header { kind: block[156], name, mtime: number(136, 12)?, size })
}

/// Name and size that an extended header gives to the member behind it.
fn records_of(mut octets: &[u8]) -> Result<(Option<String>, Option<usize>), String> {
    let mut found = (None, None);
    while !octets.is_empty() {
        let wrong = || format!("an extended header with {octets:?}");
        let digits = octets.split(|octet| *octet == b' ').next().unwrap_or_default();
        let length: usize = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let record = octets.get(digits.len() + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(wrong)?;
        match std::str::from_utf8(record).ok().and_then(|text| text.split_once('=')).ok_or_else(wrong)? {
            ("path", value) if found.0.is_none() => found.0 = Some(value.to_owned()),
            ("size", value) if found.1.is_none() => found.1 = Some(value.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
        octets = &octets[length..];
    }
    Ok(found)
}

/// A whole answer: its entries' members and its summary. `Err` if it is not whole by the contract's own rule.
pub fn whole(octets: &[u8]) -> Result<(Vec<Member>, Value), String> {
    let Reading { mut members, closed } = read(octets)?;
    if !closed {
        return Err(format!("no end after {} members", members.len()));
    }
    let last = members.pop().filter(|last| last.name == SUMMARY).ok_or("the last member is not the summary")?;
    let summary: Value = serde_json::from_slice(&last.body).map_err(|e| e.to_string())?;
    let mut seen = HashSet::from([SUMMARY]);
    if let Some(twice) = members.iter().find(|member| !seen.insert(&member.name)) {
        return Err(format!("{:?} comes twice", twice.name));
    }
    if summary["Delivered"].as_u64() != Some(members.len() as u64) {
        return Err(format!("{} members where {} are owed", members.len(), summary["Delivered"]));
    }
    Ok((members, summary))
}
