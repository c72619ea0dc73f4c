//! The one renderer of S3's `<Error>` document. Values enter as they are and leave escaped; characters that XML 1.0 cannot
//! hold are written as numeric references, so that a key survives whatever it is made of.

use std::fmt::Write;

/// The members of an `<Error>`; absent ones are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorDocument<'a> {
    /// S3 error code.
    pub code: &'a str,
    /// One sentence for a person.
    pub message: &'a str,
    /// The bucket, by the client's name for it.
    pub bucket: Option<&'a str>,
    /// The object's key.
    pub key: Option<&'a str>,
    /// The path that was asked for, where no key is known.
    pub resource: Option<&'a str>,
    /// The id that the answer's headers carry too.
    pub request_id: &'a str,
    /// Further members, which stand behind the message.
    pub details: &'a [(&'static str, String)],
}

/// The whole document, with its XML declaration.
pub fn render(error: &ErrorDocument<'_>) -> String {
    let mut out = String::with_capacity(256);
    out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    element(&mut out, "Code", error.code);
    element(&mut out, "Message", error.message);
    for (name, text) in error.details {
        element(&mut out, name, text);
    }
    let members =
        [("BucketName", error.bucket), ("Key", error.key), ("Resource", error.resource), ("RequestId", Some(error.request_id))];
    for (name, value) in members {
        if let Some(value) = value {
            element(&mut out, name, value);
        }
    }
    out.push_str("</Error>");
    out
}

/// Appends `<name>value</name>` with the value escaped.
pub fn element(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, "<{name}>");
    escape(out, value);
    let _ = write!(out, "</{name}>");
}

/// Appends a text as an element holds it.
pub fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // A bare carriage return would be read back as a line feed.
            '\r' | '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "&#x{:X};", c as u32);
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_absent_members_left_out() {
        let text = render(&ErrorDocument {
            code: "NoSuchKey",
            message: "a < b & c",
            key: Some("\u{1}\r\n>"),
            request_id: "r",
            details: &[("Region", "&".to_owned())],
            ..Default::default()
        });
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>a &lt; b &amp; c</Message>\
             <Region>&amp;</Region><Key>&#x1;&#xD;\n&gt;</Key><RequestId>r</RequestId></Error>"
        );
    }
}
