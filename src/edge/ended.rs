//! Why a connection ended in an error: from what hyper says to the reason that is counted. What is not HTTP was answered by
//! hyper itself, bare (400, 414, 431), since there is no request whose answer could have an id.

use std::error::Error as StdError;
use std::io;

/// The reason by which a connection is counted as cut, or nothing where our own answer broke it.
pub(super) fn reason(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    let mut reason = Some("protocol");
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(if error.kind() == io::ErrorKind::TimedOut { "client_stall" } else { "client_gone" });
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_user() {
                return None;
            }
            let gone = error.is_incomplete_message() || error.is_canceled() || error.is_closed() || error.is_body_write_aborted();
            if gone && !error.is_parse() {
                reason = Some("client_gone");
            }
        }
        next = error.source();
    }
    reason
}

/// Counts and tells of it: what is not HTTP is told at the usual level, since no request's line can.
pub(super) fn tell(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let reason = reason(error);
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    if reason == Some("protocol") {
        tracing::info!(%error, source, "connection cut: what came is not HTTP");
    } else {
        tracing::debug!(%error, source, "connection ended in an error");
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_socket_are_no_fault_of_the_protocol() {
        assert_eq!(reason(&io::Error::from(io::ErrorKind::ConnectionReset)), Some("client_gone"));
        assert_eq!(reason(&io::Error::from(io::ErrorKind::TimedOut)), Some("client_stall"));
    }
}
