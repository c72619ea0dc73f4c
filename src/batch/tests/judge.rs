//! Holds parts against the contract: the lone read's answer, or an explicit error, and nothing else.

use http::{HeaderMap, HeaderName, StatusCode};

use super::objects::{Object, healthy};
use super::reader::Part;
use super::{Rig, Wanted};
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
