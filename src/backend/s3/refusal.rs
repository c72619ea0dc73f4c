//! What a store says in an `<Error>`: its code, and what the code means. Pure.

/// Longest S3 error code that is passed on.
const CODE_BYTES_MAX: usize = 64;

/// Whether an S3 error code asks for fewer requests, rather than tell of a failure.
pub fn asks_for_pace(code: &str) -> bool {
    matches!(code, "SlowDown" | "RequestLimitExceeded") || code.starts_with("Throttling")
}

/// Whether an S3 error code is about the signature of a request, that is, about ours.
pub fn is_about_our_signature(code: &str) -> bool {
    matches!(
        code,
        "AuthorizationHeaderMalformed"
            | "ExpiredToken"
            | "InvalidAccessKeyId"
            | "InvalidToken"
            | "RequestTimeTooSkewed"
            | "SignatureDoesNotMatch"
            | "TokenRefreshRequired"
    )
}

/// Whether such a code is about the key pair itself, and not about the region or the clock, which are never the pair's fault.
pub fn is_about_a_key_pair(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "InvalidAccessKeyId" | "InvalidToken" | "SignatureDoesNotMatch")
}

/// The `Code` of an S3 `<Error>` document, if it is one and the code is fit to be passed on.
pub fn error_code(body: &[u8]) -> Option<String> {
    let code = error_member(body, "Code")?;
    let code = code.trim();
    let fit = (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    fit.then(|| code.to_owned())
}

/// The text of a member of an S3 `<Error>` document, if it is one.
pub fn error_member(body: &[u8], name: &str) -> Option<String> {
    use quick_xml::escape::resolve_predefined_entity;
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(std::str::from_utf8(body).ok()?);
    let mut path: Vec<String> = Vec::new();
    let mut member = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => path.push(tag.local_name().as_ref().to_owned()),
            Event::End(_) if path == ["Error", name] => return Some(member),
            Event::End(_) => drop(path.pop()),
            Event::Text(text) if path == ["Error", name] => member.push_str(&text),
            Event::GeneralRef(entity) if path == ["Error", name] => match entity.resolve_char_ref().ok()? {
                Some(character) => member.push(character),
                None => member.push_str(resolve_predefined_entity(&entity)?),
            },
            Event::Eof => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_taken_from_an_s3_error_only() {
        let code = |body: &str| error_code(body.as_bytes());
        assert_eq!(code("<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code></Error>").as_deref(), Some("NoSuchKey"));
        assert_eq!(code("<Error xmlns=\"x\"><Message>m</Message><Code> Slow.Down </Code></Error>").as_deref(), Some("Slow.Down"));
        for body in [
            "",
            "<html><Code>X</Code></html>",
            "<Error><Code>no such</Code></Error>",
            "<Error><Code>No&amp;Such</Code></Error>",
            "<Error><Code></Code></Error>",
            "<Error><a><Code>X</Code></a></Error>",
            "not xml",
            "<Error><Code>",
        ] {
            assert_eq!(code(body), None, "{body}");
        }
        assert_eq!(code(&format!("<Error><Code>{}</Code></Error>", "x".repeat(65))), None);
    }
}
