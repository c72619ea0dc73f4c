//! What a client is told when the store gave no answer: whether anything was sent, whether it may be sent again, and how to find
//! out what has become of a write. Pure, but for a count.

use http::request::Parts;
use http::{HeaderMap, Method};

use crate::backend::{Backend, BackendError, BackendErrorKind, BoxError};
use crate::error::{Error, Kind};
use crate::types::{percent_decode, query_pairs};

/// A request without an answer.
pub struct Unanswered {
    /// What the client is told.
    pub error: Error,
    /// Whether it may have had its effect at the store all the same.
    pub unknown: bool,
}

impl Unanswered {
    /// A request that `error` ended.
    pub fn of(error: BackendError, head: &Parts) -> Self {
        let (kind, what) = match error.kind {
            BackendErrorKind::NoCredentials => {
                let message = "the gateway has no credentials for the store; nothing was sent";
                return Self::known(Error::new(Kind::ServiceUnavailable, message).with_source(error));
            }
            BackendErrorKind::Unreachable => {
                let message = "the store cannot be reached; nothing was sent, so it may be tried again";
                return Self::known(Error::new(Kind::ServiceUnavailable, message).with_source(error));
            }
            BackendErrorKind::RequestBody => {
                return Self::known(Error::new(Kind::IncompleteBody, "the body did not arrive whole").with_source(error));
            }
            BackendErrorKind::Garbled => (Kind::BadGateway, "the store's answer is not HTTP"),
            BackendErrorKind::Unframed => (Kind::BadGateway, "nothing says where the store's answer ends"),
            BackendErrorKind::HeadTooLarge => (Kind::BadGateway, "the head of the store's answer is too large"),
            BackendErrorKind::NoAnswer => (Kind::BadGateway, "the store broke off before it answered"),
        };
        let Unanswered { error: told, unknown } = Self::told(kind, what, head);
        Self { error: told.with_source(error), unknown }
    }

    /// A request whose time was up.
    pub fn late(head: &Parts) -> Self {
        let late = Self::told(Kind::GatewayTimeout, "the store did not answer in time", head);
        Self { error: late.error.with_source(std::io::Error::from(std::io::ErrorKind::TimedOut)), ..late }
    }

    /// A request whose answer broke off before any of it was passed on.
    pub fn broken(source: BoxError, head: &Parts) -> Self {
        let broken = Self::told(Kind::BadGateway, "the store broke off in its answer", head);
        Self { error: broken.error.with_source(source), ..broken }
    }

    /// The error for the client, and counted at `backend` where the outcome is unknown.
    pub fn counted(self, backend: &Backend) -> Error {
        if self.unknown {
            backend.metrics.unknown_outcomes.inc();
        }
        self.error
    }

    fn known(error: Error) -> Self {
        Self { error, unknown: false }
    }

    fn told(kind: Kind, what: &'static str, head: &Parts) -> Self {
        if head.method.is_safe() {
            return Self::known(Error::new(kind, what));
        }
        let query = head.uri.query().unwrap_or_default();
        let advice = how_to_find_out(&head.method, query);
        let condition = match is_conditional(&head.headers) {
            true => "; tried again, its condition may fail because of this very request",
            false => "",
        };
        Self { error: Error::new(kind, format!("{what}; the outcome is unknown: {advice}{condition}")), unknown: true }
    }
}

/// How a client learns whether its write was done.
fn how_to_find_out(method: &Method, query: &str) -> &'static str {
    let has = |wanted: &[u8]| query_pairs(query).any(|(name, _)| percent_decode(name) == wanted);
    match *method {
        _ if has(b"partNumber") => "list the parts of the upload to find out",
        Method::POST if has(b"uploadId") => "send HEAD for the object, and list the bucket's uploads, to find out",
        Method::DELETE if has(b"uploadId") => "list the bucket's uploads to find out",
        Method::POST if has(b"uploads") => "list the bucket's uploads to find out; one may have begun that nobody will end",
        Method::POST if has(b"delete") => "list the objects to find out",
        _ if query.is_empty() || has(b"versionId") || has(b"x-id") => "send HEAD for what it names to find out",
        _ => "read back what it sets to find out",
    }
}

fn is_conditional(headers: &HeaderMap) -> bool {
    ["if-match", "if-none-match", "if-unmodified-since", "if-modified-since"].iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [BackendErrorKind; 7] = [
        BackendErrorKind::Unreachable,
        BackendErrorKind::NoCredentials,
        BackendErrorKind::NoAnswer,
        BackendErrorKind::Garbled,
        BackendErrorKind::HeadTooLarge,
        BackendErrorKind::Unframed,
        BackendErrorKind::RequestBody,
    ];

    fn head(method: Method, uri: &str, header: Option<(&str, &str)>) -> Parts {
        let mut builder = http::Request::builder().method(method).uri(uri);
        if let Some((name, value)) = header {
            builder = builder.header(name, value);
        }
        builder.body(()).expect("valid").into_parts().0
    }

    fn of(kind: BackendErrorKind, head: &Parts) -> Unanswered {
        Unanswered::of(BackendError { kind, source: "secret words".into() }, head)
    }

    #[test]
    fn the_outcome_of_a_write_is_unknown_as_soon_as_something_may_have_been_sent() {
        let writes = [(Method::PUT, ""), (Method::DELETE, ""), (Method::POST, "?uploadId=u"), (Method::POST, "?uploads")];
        for (method, query) in writes {
            let head = head(method, &format!("/b/k{query}"), None);
            for kind in KINDS {
                let sent = !matches!(
                    kind,
                    BackendErrorKind::Unreachable | BackendErrorKind::NoCredentials | BackendErrorKind::RequestBody
                );
                let told = of(kind, &head);
                let message = told.error.message.to_string();
                assert_eq!((told.unknown, message.contains("the outcome is unknown: ")), (sent, sent), "{kind:?} {message}");
                assert!(!message.contains("secret"), "{message}");
                if sent {
                    assert_eq!(told.error.kind.status(), 502);
                }
            }
            let late = Unanswered::late(&head);
            assert!(late.unknown && late.error.message.contains("the outcome is unknown") && late.error.kind.status() == 504);
        }
        let unreachable = of(BackendErrorKind::Unreachable, &head(Method::PUT, "/b/k", None)).error;
        assert!(unreachable.kind.status() == 503 && unreachable.message.contains("nothing was sent"));
    }

    #[test]
    fn a_read_has_no_outcome() {
        for method in [Method::GET, Method::HEAD] {
            let head = head(method, "/b/k", Some(("if-match", "e")));
            for kind in KINDS {
                let told = of(kind, &head);
                assert!(!told.unknown && !told.error.message.contains("outcome"));
            }
            assert!(!Unanswered::late(&head).unknown);
        }
    }

    #[test]
    fn the_advice_fits_the_request() {
        let told = |method, uri: &str, header| of(BackendErrorKind::NoAnswer, &head(method, uri, header)).error.message.to_string();
        assert!(told(Method::PUT, "/b/k?partNumber=1&uploadId=u", None).contains("list the parts"));
        assert!(told(Method::POST, "/b/k?upload%49d=u", None).contains("HEAD for the object"));
        assert!(told(Method::DELETE, "/b/k?uploadId=u", None).contains("uploads"));
        assert!(told(Method::DELETE, "/b/k?versionId=v", None).contains("HEAD for what it names"));
        assert!(told(Method::PUT, "/b?policy", None).contains("read back"));
        assert!(!told(Method::PUT, "/b/k", None).contains("condition"));
        assert!(told(Method::PUT, "/b/k", Some(("if-none-match", "*"))).contains("its condition may fail"));
    }
}
