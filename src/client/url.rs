//! Where an endpoint is, as its URL says. What enters is a URL as a user gave it; what leaves are its scheme, its host with the
//! port, and the path that all of its paths begin with, or what is wrong with it in one line for people. Pure.

use http::Uri;
use http::uri::{Authority, Scheme};

use super::error::printable;
use crate::config::{is_authority, is_base_path};

/// What the URL of an endpoint says.
#[derive(Debug)]
pub(super) struct EndpointUrl {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// Such as `/s3`, never with a slash at its end; empty where S3 is at the root.
    pub base_path: String,
}

impl EndpointUrl {
    /// Reads a URL; slashes at its end say nothing. What looks like a password in it is not repeated.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        if url.contains('@') {
            return Err("the URL of an endpoint holds no user and no password (`user:password@`): give the access key as \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in a profile"
                .into());
        }
        let shown = printable(url);
        let parts = url.parse::<Uri>().map_err(|e| format!("{shown} is no URL: {e}"))?.into_parts();
        let wrong = |why: &str| Err(format!("{shown} is no URL of an endpoint{why}"));
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return wrong(", such as http://127.0.0.1:9000");
        };
        if !matches!(scheme.as_str(), "http" | "https") {
            return wrong(": it must begin with http:// or https://");
        }
        if !is_authority(authority.as_str()) {
            return wrong(": the host or the port is wrong");
        }
        // The parser drops a fragment.
        if url.contains(['?', '#']) {
            return wrong(": it ends with its path, without a query (`?`) and without a fragment (`#`)");
        }
        let path = parts.path_and_query.as_ref().map_or("", |path| path.as_str());
        let base_path = path.trim_end_matches('/').to_owned();
        match is_base_path(&base_path) {
            true => Ok(Self { scheme, authority, base_path }),
            false => wrong(": its path must be one such as /s3, of letters, digits, `-`, `.`, `_` and `~`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_perhaps_a_path() {
        for (url, host, base_path) in [
            ("http://127.0.0.1:9000", "127.0.0.1:9000", ""),
            ("https://s3.example/", "s3.example", ""),
            ("http://[::1]:9", "[::1]:9", ""),
            ("http://[::1]", "[::1]", ""),
            ("http://host/s3", "host", "/s3"),
            ("https://host:9/data/v1.0//", "host:9", "/data/v1.0"),
            ("http://[::1]:9/~a_b-c/", "[::1]:9", "/~a_b-c"),
        ] {
            let read = EndpointUrl::parse(url).expect(url);
            assert_eq!((read.authority.as_str(), read.base_path.as_str()), (host, base_path), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_the_url_that_was_given() {
        for (wrong, why) in [
            ("", "is no URL"),
            ("no url", "is no URL"),
            ("host", "such as http://"),
            ("/s3", "such as http://"),
            ("http://", "is no URL"),
            ("http://\u{1b}[2J", "is no URL"),
            ("ftp://host", "http:// or https://"),
            ("http://:9", "the host or the port"),
            ("http://host:", "the host or the port"),
            ("http://host:0", "the host or the port"),
            ("http://host:99999/s3", "the host or the port"),
            ("http://host:+1", "the host or the port"),
            ("http://[::1]x:1", "the host or the port"),
            ("http://a%20b", "is no URL"),
            ("http://a\"b", "is no URL"),
            ("http://a<b>", "is no URL"),
            ("http://a\\b", "is no URL"),
            ("http://a|b", "is no URL"),
            ("http://h/s3\n/x", "is no URL"),
            (" http://h", "is no URL"),
            ("http://h\0", "is no URL"),
            ("http://host?x", "(`?`)"),
            ("http://host/s3?", "(`?`)"),
            ("http://host#x", "(`#`)"),
            ("http://host/s3/#", "(`#`)"),
            ("http://host/s3?x=/y", "(`?`)"),
            ("http://host//s3", "its path"),
            ("http://host/a//b", "its path"),
            ("http://host/../b", "its path"),
            ("http://host/a%20b", "its path"),
            ("http://host/a+b", "its path"),
        ] {
            let said = EndpointUrl::parse(wrong).expect_err(wrong);
            assert!(said.starts_with(&printable(wrong)) && said.contains(why) && !said.contains('\u{1b}'), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for url in [
            "http://user:sekret@host",
            "https://sekret@host:9/",
            "user:sekret@host",
            "http://user:sekret@ho st",
            "ftp://a:sekret@h/p?q",
        ] {
            let why = EndpointUrl::parse(url).expect_err(url);
            assert!(!why.contains("sekret") && why.contains("AWS_ACCESS_KEY_ID"), "{why}");
        }
    }
}
