//! Holds parts against the contract: the lone read's answer, or an explicit error, and nothing else.

use http::{HeaderMap, HeaderName, StatusCode};

use super::objects::{Object, healthy};
use super::reader::Part;
use super::{Rig, Value, Wanted};
use crate::backend::ReadAsk;

/// Headers that the contract leaves out of parts.
fn is_of_the_hop(name: &HeaderName, headers: &HeaderMap) -> bool {
    const NAMES: [&str; 12] = [
        "date",
        "server",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-amz-request-id",
        "x-amz-id-2",
        "x-batchgate-request-id",
        "content-id",
    ];
    let text = name.as_str();
    let named = headers.get("connection").and_then(|v| v.to_str().ok()).unwrap_or_default();
    NAMES.contains(&text)
        || text.starts_with("proxy-")
        || text.starts_with("batch-")
        || named.split(',').any(|token| token.trim() == text)
}

/// Holds a part against what the lone read gave.
pub(crate) fn same_as_lone(part: &Part, wanted: &Wanted, lone: &(StatusCode, HeaderMap, Vec<u8>)) -> Result<(), String> {
    let (status, headers, bytes) = lone;
    if part.status != status.as_u16() {
        return Err(format!("{:?}: {} instead of {status}", part.id, part.status));
    }
    if part.header("batch-id") != wanted.id.as_deref() {
        return Err(format!("{:?}: batch-id is {:?}", part.id, part.header("batch-id")));
    }
    if part.status >= 400 {
        let lone = String::from_utf8_lossy(bytes);
        let code = lone.split("<Code>").nth(1).and_then(|rest| rest.split("</Code>").next()).unwrap_or_default();
        if part.error("Code").as_deref() != Some(code) {
            return Err(format!("{:?}: code {:?} instead of {code}", part.id, part.error("Code")));
        }
        let range = headers.get("content-range").map(|v| v.to_str().expect("text"));
        if part.header("content-range") != range {
            return Err(format!("{:?}: content-range {:?}", part.id, part.header("content-range")));
        }
        return is_error(part, wanted);
    }
    let mut expected: Vec<_> = headers
        .iter()
        .filter(|(name, _)| !is_of_the_hop(name, headers) && *name != "content-length")
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    expected.push(("content-length".into(), bytes.len().to_string().into_bytes()));
    expected.sort();
    let ours = ["content-id", "batch-status", "batch-id"];
    let mut got: Vec<_> = part.headers.iter().filter(|(name, _)| !ours.contains(&name.as_str())).cloned().collect();
    got.sort();
    if got != expected {
        return Err(format!("{:?}: headers {got:?} instead of {expected:?}", part.id));
    }
    if part.body != *bytes {
        let at = part.body.iter().zip(bytes).position(|(a, b)| a != b);
        return Err(format!("{:?}: {} bytes instead of {}, the first wrong at {at:?}", part.id, part.body.len(), bytes.len()));
    }
    Ok(())
}

/// An explicit error, in the contract's form.
pub(crate) fn is_error(part: &Part, wanted: &Wanted) -> Result<(), String> {
    let right = part.status >= 400
        && part.header("content-type") == Some("application/xml")
        && part.error("Code").is_some_and(|code| !code.is_empty())
        && part.error("BucketName").as_deref() == Some(wanted.bucket.unwrap_or("b"))
        && part.error("Key").as_deref() == Some(wanted.key.as_str())
        && part.error("RequestId").as_deref() == Some("0000000000004f0c");
    if right { Ok(()) } else { Err(format!("{:?} is no error as the contract has it: {part:?}", part.id)) }
}

/// The bytes of one generation of the object, whichever, or an explicit error.
pub(crate) fn right_or_error(rig: &Rig, part: &Part, wanted: &Wanted) -> Result<(), String> {
    if part.status >= 400 {
        return is_error(part, wanted);
    }
    let generation =
        part.header("etag").and_then(|tag| tag.rsplit_once('-')).and_then(|(_, n)| n.trim_end_matches('"').parse().ok());
    let (Some(object), Some(generation)) = (rig.store.object(&wanted.key), generation) else {
        return Err(format!("{:?} is of no object: {:?}", part.id, part.headers));
    };
    if generation > object.generation {
        return Err(format!("{:?} is of a generation that never was", part.id));
    }
    // A store that is blind to If-Match is so to lone reads too.
    let ask = ReadAsk { if_match: None, ..wanted.ask() };
    let mut lone = healthy(&ask, Some(&Object { generation, ..object }));
    // Nobody can know that a first answer is wrong about the total alone; the bytes are the right ones all the same.
    let wrong_total = lone.1.get("content-range").map(|right| format!("{}0", right.to_str().expect("text")));
    if let Some(said) = wrong_total.filter(|said| part.header("content-range") == Some(said)) {
        lone.1.insert("content-range", said.parse().expect("visible"));
    }
    same_as_lone(part, wanted, &lone)
}

/// What a batch asked for, as far as it decides which parts are owed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub entries: usize,
    pub completion: bool,
    pub on_error: &'static str,
    pub summary: bool,
}

impl Shape {
    /// Order, cardinality and the arithmetic of the summary; the answer is whole.
    pub fn counts(self, parts: &[Part], summary: Option<&Value>) -> Result<(), String> {
        let entries = self.entries;
        let indices: Vec<_> = parts.iter().map(Part::index).collect();
        if !self.completion && !indices.windows(2).all(|w| w[0] < w[1]) {
            return Err(format!("out of order: {indices:?}"));
        }
        if self.on_error == "Continue" && parts.len() != entries {
            return Err(format!("{} parts of {entries} entries", parts.len()));
        }
        if summary.is_some() != (self.summary || self.on_error != "Continue") {
            return Err(format!("the summary is {summary:?}"));
        }
        let failed = parts.iter().filter(|part| part.status >= 400).count();
        match self.on_error {
            "Omit" if failed > 0 => return Err("a failed entry was not omitted".into()),
            "Stop" if parts.iter().rev().skip(1).any(|part| part.status >= 400) => {
                return Err("something after the failed one".into());
            }
            "Stop" if failed == 0 && parts.len() != entries => return Err("stopped without a failure".into()),
            "Stop" if !self.completion && parts.iter().enumerate().any(|(at, part)| part.index() != at) => {
                return Err(format!("a gap: {indices:?}"));
            }
            _ => {}
        }
        let Some(summary) = summary else { return Ok(()) };
        let number = |name: &str| summary[name].as_u64().unwrap_or(u64::MAX);
        let bytes: usize = parts.iter().map(|part| part.body.len()).sum();
        let omitted = if self.on_error == "Omit" { entries - parts.len() } else { 0 };
        let stopped = parts.last().filter(|last| self.on_error == "Stop" && last.status >= 400);
        let right = number("Entries") == entries as u64
            && number("Delivered") == parts.len() as u64
            && number("Bytes") == bytes as u64
            && number("Omitted") == omitted as u64
            && number("Failed") >= (failed + omitted) as u64
            && (self.on_error == "Stop" || number("Failed") == (failed + omitted) as u64)
            && summary["StoppedAt"].as_u64() == stopped.map(|last| last.index() as u64)
            && summary["Error"]["Status"].as_u64() == stopped.map(|last| u64::from(last.status))
            && summary["Error"]["Code"].as_str().map(str::to_owned) == stopped.and_then(|last| last.error("Code"));
        if right { Ok(()) } else { Err(format!("{summary} does not add up: {indices:?}, {failed} failed, {bytes} bytes")) }
    }
}
