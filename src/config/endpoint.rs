//! What the URL of an endpoint may be. In go its parts as text, out comes whether each can be read in one way only: what is dialled is
//! then what was written. Pure.

use http::Uri;

/// Whether this is a host, by name or by address, with at most a port behind it.
pub fn is_authority(text: &str) -> bool {
    let named = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let numbered = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
    let (is_host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            let is_address = match address.split_once('%') {
                Some((number, zone)) => numbered(number) && named(zone),
                None => numbered(address),
            };
            (is_address, port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (named(name), port)
        }
    };
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// A parser of numbers would take a sign, too.
fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether all paths of an endpoint may begin with `path`: none, or segments that can be written in one way only.
pub fn is_base_path(path: &str) -> bool {
    let segment = |s: &str| {
        !matches!(s, "" | "." | "..") && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'))
    };
    path.is_empty() || path.strip_prefix('/').is_some_and(|path| path.split('/').all(segment))
}

/// What is wrong with the URL of a backend, if anything is. It may hold a password by mistake, so its text is not repeated.
pub fn of_backend(url: &str) -> Result<(), &'static str> {
    let uri: Uri = url.parse().map_err(|_| "is no URL; write http://host:port or https://host:port")?;
    let authority = uri.authority().ok_or("is no whole URL; write http://host:port or https://host:port")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("the scheme must be http or https");
    }
    if authority.as_str().contains('@') {
        return Err("no user may stand in the URL; use credentials");
    }
    if !is_authority(authority.as_str()) {
        return Err("the host or the port is wrong");
    }
    if uri.path_and_query().is_some_and(|p| p.as_str() != "/") || url.contains('#') || url.ends_with('/') {
        return Err("only scheme, host and port may stand in the URL, without a slash at the end");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port() {
        for right in ["host", "a.b-c_d:1", "127.0.0.1:9000", "H:65535", "[::1]", "[::1]:9", "[::ffff:1.2.3.4]", "[fe80::1%eth0]:9"]
        {
            assert!(is_authority(right), "{right}");
            let url = format!("http://{right}");
            assert!(right.contains('%') || of_backend(&url).is_ok(), "{url}");
        }
        for wrong in [
            "",
            ":9",
            "host:",
            "host:0",
            "host:99999",
            "host:+1",
            "host:-1",
            "host:1:2",
            "::1",
            "[]",
            "[]:1",
            "[::1",
            "[::1]x:1",
            "[::1]:",
            "[::1]1",
            "[x]",
            "[::1%]",
            "[%eth0]",
            "[fe80::1%a%b]",
            "a%20b",
            "a\"b",
            "a<b>",
            "a\\b",
            "a|b",
            "a b",
            "a,b",
            "h\u{e9}",
            "a\0",
            "user@host",
        ] {
            assert!(!is_authority(wrong), "{wrong:?}");
            assert!(of_backend(&format!("http://{wrong}")).is_err(), "{wrong:?}");
        }
    }
}
