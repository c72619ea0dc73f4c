//! What the handlers may know of the connection that they answer on, set by the listener as a request extension: whether it
//! is encrypted, and a way to cut it. Nothing about addresses.

use tokio_util::sync::CancellationToken;

/// The client's side of one connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The connection is TLS of ours.
    pub secure: bool,
    /// Cutting the connection ends it at once, as an error and never as a clean end. Only for HTTP/1.1, where it is the one
    /// way to break an answer that the client does not read; on HTTP/2 it would take other streams along.
    pub cut: CancellationToken,
}
