//! Preconditions. A request's headers enter as they are, with the ETag and date of what is there; what leaves is whether to go
//! on. The order is that of RFC 9110 section 13.2.2. Pure.

use http::HeaderMap;

use super::date::{Seconds, parse_http_date};
use super::fault::{Done, Fault};

/// The names of the four headers, for reads and for the source of a copy.
pub struct Names {
    if_match: &'static str,
    if_none_match: &'static str,
    if_modified_since: &'static str,
    if_unmodified_since: &'static str,
}

/// Of a GET or HEAD.
pub const READ: Names = Names {
    if_match: "if-match",
    if_none_match: "if-none-match",
    if_modified_since: "if-modified-since",
    if_unmodified_since: "if-unmodified-since",
};

/// Of the source of a copy.
pub const COPY: Names = Names {
    if_match: "x-amz-copy-source-if-match",
    if_none_match: "x-amz-copy-source-if-none-match",
    if_modified_since: "x-amz-copy-source-if-modified-since",
    if_unmodified_since: "x-amz-copy-source-if-unmodified-since",
};

/// What the conditions come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Go on.
    Holds,
    /// 304 for a read, 412 for a copy.
    NotModified(&'static str),
    /// 412, by the name of the header.
    Failed(&'static str),
}

/// Judges all four for something that exists.
pub fn judge(headers: &HeaderMap, names: &Names, etag: &str, modified: Seconds) -> Outcome {
    let date = |name: &str| headers.get(name).and_then(|value| parse_http_date(value.as_bytes()));
    match listed(headers, names.if_match, etag, true) {
        Some(false) => return Outcome::Failed(names.if_match),
        Some(true) => {}
        None if date(names.if_unmodified_since).is_some_and(|since| modified > since) => {
            return Outcome::Failed(names.if_unmodified_since);
        }
        None => {}
    }
    match listed(headers, names.if_none_match, etag, false) {
        Some(true) => Outcome::NotModified(names.if_none_match),
        Some(false) => Outcome::Holds,
        None if date(names.if_modified_since).is_some_and(|since| modified <= since) => {
            Outcome::NotModified(names.if_modified_since)
        }
        None => Outcome::Holds,
    }
}

/// Whether the tags that `name` lists have `etag` among them; nothing if there is no such header. A weak tag matches only
/// where it may (`strong` is false).
fn listed(headers: &HeaderMap, name: &str, etag: &str, strong: bool) -> Option<bool> {
    let mut lines = headers.get_all(name).iter().peekable();
    lines.peek()?;
    Some(lines.any(|line| names_tag(line.as_bytes(), etag, strong)))
}

/// Whether one line of tags has `etag` among them, or is `*`. No tag of ours has a comma; S3 takes tags without quotes too.
fn names_tag(line: &[u8], etag: &str, strong: bool) -> bool {
    line.split(|b| *b == b',').map(<[u8]>::trim_ascii).any(|tag| {
        let tag = match tag.strip_prefix(b"W/") {
            Some(_) if strong => return false,
            Some(weak) => weak,
            None => tag,
        };
        let bare = tag.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\"")).unwrap_or(tag);
        bare == etag.as_bytes() || tag == b"*"
    })
}

/// Whether `If-Range` leaves a range in force.
pub fn range_stands(headers: &HeaderMap, etag: &str, modified: Seconds) -> bool {
    headers.get("if-range").is_none_or(|value| match parse_http_date(value.as_bytes()) {
        Some(date) => date == modified,
        None => names_tag(value.as_bytes(), etag, true) && value != "*",
    })
}

/// Whether something may be written over what is there (its ETag, or nothing).
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html>.
///
/// # Errors
/// `PreconditionFailed`, `NoSuchKey` for an `If-Match` with nothing there, and for an `If-None-Match` other than `*`
/// `NotImplemented`, as S3 has it.
pub fn may_write(headers: &HeaderMap, existing: Option<&str>) -> Done<()> {
    if headers.get_all("if-none-match").iter().any(|value| value != "*") {
        return Err(Fault::not_implemented("If-None-Match with anything but * on a write"));
    }
    match existing {
        Some(_) if headers.contains_key("if-none-match") => Err(Fault::precondition("If-None-Match")),
        Some(etag) if listed(headers, "if-match", etag, true) == Some(false) => Err(Fault::precondition("If-Match")),
        None if headers.contains_key("if-match") => Err(Fault::no_key()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const MODIFIED: Seconds = 784_111_777;
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn judged(pairs: &[(&'static str, &'static str)]) -> Outcome {
        judge(&map(pairs), &READ, "e", MODIFIED)
    }

    #[test]
    fn each_condition_by_itself() {
        let failed = Outcome::Failed("if-match");
        for (value, outcome) in
            [("\"e\"", Outcome::Holds), ("e", Outcome::Holds), ("*", Outcome::Holds), ("\"x\", \"e\"", Outcome::Holds)]
        {
            assert_eq!(judged(&[("if-match", value)]), outcome, "{value}");
        }
        for value in ["\"x\"", "W/\"e\"", "\"*\"", ""] {
            assert_eq!(judged(&[("if-match", value)]), failed, "{value}");
        }
        for value in ["\"e\"", "W/\"e\"", "*", "\"x\",\"e\""] {
            assert_eq!(judged(&[("if-none-match", value)]), Outcome::NotModified("if-none-match"), "{value}");
        }
        assert_eq!(judged(&[("if-none-match", "\"x\"")]), Outcome::Holds);
        assert_eq!(judged(&[("if-modified-since", SAME)]), Outcome::NotModified("if-modified-since"));
        assert_eq!(judged(&[("if-modified-since", EARLIER)]), Outcome::Holds);
        assert_eq!(judged(&[("if-modified-since", "no date")]), Outcome::Holds);
        assert_eq!(judged(&[("if-unmodified-since", EARLIER)]), Outcome::Failed("if-unmodified-since"));
        assert_eq!(judged(&[("if-unmodified-since", SAME)]), Outcome::Holds);
    }

    #[test]
    fn a_tag_goes_before_a_date_and_a_failure_before_not_modified() {
        assert_eq!(judged(&[("if-match", "\"e\""), ("if-unmodified-since", EARLIER)]), Outcome::Holds);
        assert_eq!(judged(&[("if-none-match", "\"x\""), ("if-modified-since", SAME)]), Outcome::Holds);
        assert_eq!(judged(&[("if-match", "\"x\""), ("if-none-match", "\"e\"")]), Outcome::Failed("if-match"));
        assert_eq!(judged(&[("if-match", "\"e\""), ("if-none-match", "\"e\"")]), Outcome::NotModified("if-none-match"));
    }

    #[test]
    fn writes() {
        let code = |pairs, existing| may_write(&map(pairs), existing).err().map(|fault| fault.code);
        assert_eq!(code(&[("if-none-match", "*")], None), None);
        assert_eq!(code(&[("if-none-match", "*")], Some("e")), Some("PreconditionFailed"));
        assert_eq!(code(&[("if-none-match", "\"e\"")], None), Some("NotImplemented"));
        assert_eq!(code(&[("if-match", "\"e\"")], Some("e")), None);
        assert_eq!(code(&[("if-match", "\"x\"")], Some("e")), Some("PreconditionFailed"));
        assert_eq!(code(&[("if-match", "\"e\"")], None), Some("NoSuchKey"));
        assert_eq!(code(&[], None), None);
    }

    #[test]
    fn if_range_wants_the_very_same() {
        let stands = |value| range_stands(&map(&[("if-range", value)]), "e", MODIFIED);
        assert!(stands("\"e\"") && stands(SAME) && range_stands(&HeaderMap::new(), "e", MODIFIED));
        assert!(!stands("\"x\"") && !stands("W/\"e\"") && !stands(EARLIER) && !stands("*"));
    }
}
