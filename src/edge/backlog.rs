//! The end of a listener. What enters is a listener that is to close; what leaves are the connections that waited in its queue:
//! their clients have been connected for as long as they know, and the kernel would reset them with the listener.
//!
//! Invariant: between the look that finds the queue empty and the close nothing is done. Who comes in between is reset still,
//! since no listener can be told to take no more and keep what it has; it is a moment of microseconds.

use std::io;

use tokio::net::{TcpListener, TcpStream};

/// As many as a queue holds; the kernel's own maximum (`net.core.somaxconn`) is as much.
const QUEUE_MAX: usize = 4096;

/// Closes `listener`; gives what waited.
pub(super) fn close(listener: TcpListener) -> Vec<TcpStream> {
    take(listener).unwrap_or_else(|error| {
        tracing::warn!(%error, "connections that waited to be accepted are lost");
        Vec::new()
    })
}

fn take(listener: TcpListener) -> io::Result<Vec<TcpStream>> {
    // tokio's own accept would go by what it was last told of the queue, which may be older than the queue.
    let listener = listener.into_std()?;
    let mut waited = Vec::new();
    for _ in 0..QUEUE_MAX {
        match listener.accept() {
            Ok((stream, _)) => waited.push(stream),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                drop(listener);
                if error.kind() != io::ErrorKind::WouldBlock {
                    tracing::warn!(%error, "not every connection that waited could be accepted");
                }
                break;
            }
        }
    }
    let known = |stream: std::net::TcpStream| stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
    waited.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_waits_is_served_and_who_comes_later_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut clients = Vec::new();
        for _ in 0..50 {
            // Blocking, so that nothing is accepted or told meanwhile.
            clients.push(std::net::TcpStream::connect(address).expect("it listens"));
        }
        let waited = close(listener);
        assert_eq!(waited.len(), clients.len());
        assert!(std::net::TcpStream::connect(address).is_err());
        for (mut server, client) in waited.into_iter().zip(clients) {
            client.set_nonblocking(true).expect("a socket");
            let mut client = TcpStream::from_std(client).expect("a socket");
            server.write_all(b"served").await.expect("connected");
            let mut got = [0; 6];
            client.read_exact(&mut got).await.expect("served");
        }
    }
}
