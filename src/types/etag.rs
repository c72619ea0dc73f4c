//! Entity tags (RFC 9110 section 8.8.3). Only a strong one can pin a resumed read to the bytes it began with.

use http::HeaderValue;

/// The tag itself if it is strong: a quoted string without the `W/` prefix.
pub fn strong_etag(value: &HeaderValue) -> Option<&HeaderValue> {
    let bytes = value.as_bytes();
    let quoted = bytes.len() >= 2 && bytes.starts_with(b"\"") && bytes.ends_with(b"\"");
    quoted.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_quoted_tag_without_prefix_is_strong() {
        for (value, strong) in [("\"a\"", true), ("\"\"", true), ("W/\"a\"", false), ("a", false), ("\"", false), ("", false)] {
            assert_eq!(strong_etag(&HeaderValue::from_static(value)).is_some(), strong, "{value}");
        }
    }
}
