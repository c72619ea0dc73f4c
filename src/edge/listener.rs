//! Accepts connections, speaks HTTP/1.1 or HTTP/2 (prior knowledge, or ALPN under TLS) on each, and bounds them: in number (by [`super::connections`]),
//! in the time for a head, in idle time, and at the end by a hard deadline. Invariant: what remains at that deadline is
//! broken, never ended cleanly.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Version, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{Connections, Open};
use super::io::ClientIo;
use super::tls::Tls;
use super::{Edge, Handler, ended};
use crate::peer::Peer;

/// Buffer of a connection, and with it the longest head of a request, in bytes. What is written waits here too, so this is
/// part of what a stalled reader costs.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Most headers of a request, for the sake of objects with much user metadata.
const HEADERS_MAX: usize = 256;

/// Streams that one HTTP/2 connection may have open.
const HTTP2_STREAMS_MAX: u32 = 256;

/// Bytes that one HTTP/2 stream buffers for sending.
const HTTP2_SEND_BUFFER_BYTES: usize = 128 * 1024;

/// After an accept that failed (no file descriptor is free, say) the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An HTTP/2 connection that was told to close and has no request has this long to do so.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Numbers of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// Most open connections, over all listeners.
    pub connections_max: usize,
    /// Time for the head of a request, from its first byte or from the start of the connection.
    pub header_timeout: Duration,
    /// Time between two requests.
    pub idle_timeout: Duration,
    /// Time that a socket may take nothing of what is written to it.
    pub write_timeout: Duration,
}

/// How connections learn that the process ends.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// The process is about to end: it should get no new requests, but still takes them.
    pub leave: CancellationToken,
    /// No new connections, no new requests; what is under way goes on.
    pub drain: CancellationToken,
    /// Everything ends now.
    pub abort: CancellationToken,
}

/// Accepts on several sockets and serves one edge.
pub struct Server<H> {
    edge: Arc<Edge<H>>,
    config: ListenerConfig,
    tls: Option<Tls>,
    shutdown: Shutdown,
    connections: Arc<Connections>,
    tasks: TaskTracker,
}

impl<H: Handler> Server<H> {
    /// A server that is not listening yet.
    pub fn new(edge: Edge<H>, config: ListenerConfig, tls: Option<Tls>, shutdown: Shutdown) -> Arc<Self> {
        let connections = Connections::new(config.connections_max, edge.metrics.clone());
        Arc::new(Self { edge: Arc::new(edge), config, tls, shutdown, connections, tasks: TaskTracker::new() })
    }

    /// What every request passes.
    pub fn edge(&self) -> &Edge<H> {
        &self.edge
    }

    /// The certificate, where this server speaks TLS.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Accepts on `listener` until the drain begins.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.drain.cancelled() => return,
                accepted = self.next(&listener) => accepted,
            };
            match accepted {
                Ok(stream) => {
                    // A client that is refused sees its connection close: before TLS and HTTP there is no other way to say it.
                    let Some(open) = self.connections.admit() else { continue };
                    let server = Arc::clone(&self);
                    self.tasks.spawn(async move { server.connection(stream, &open).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "connection could not be accepted");
                    // If it is for want of a descriptor, an idle connection has one.
                    self.connections.close_one();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Ends once every connection has.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn next(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _): (_, SocketAddr) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connection(&self, stream: TcpStream, open: &Open) {
        let Some(tls) = &self.tls else { return self.serve(stream, false, open).await };
        let handshake = tokio::time::timeout(self.config.header_timeout, tls.acceptor().accept(stream));
        tokio::select! {
            accepted = handshake => match accepted {
                Ok(Ok(stream)) => self.serve(stream, true, open).await,
                Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::info!(%error, "connection cut: its TLS handshake failed");
                    self.cut("tls_handshake");
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the client left in the TLS handshake");
                    self.cut("client_gone");
                }
                Err(_) => self.cut("header_timeout"),
            },
            () = self.shutdown.drain.cancelled() => {}
            () = open.activity.told() => self.cut("connections_max"),
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, secure: bool, open: &Open) {
        let activity = &open.activity;
        let peer = Peer { secure, cut: CancellationToken::new() };
        let io = TokioIo::new(ClientIo::new(stream, Arc::clone(activity), self.config.write_timeout));
        let service = {
            let (edge, activity, peer) = (Arc::clone(&self.edge), Arc::clone(activity), peer.clone());
            let leave = self.shutdown.leave.clone();
            service_fn(move |request| {
                let (edge, peer) = (Arc::clone(&edge), peer.clone());
                let under_way = activity.begin();
                let (leave, version) = (leave.clone(), request.version());
                async move {
                    let mut response = edge.answer(request, peer, under_way).await;
                    // A client that keeps its connection might send the next request just as the drain ends it. HTTP/2 has
                    // GOAWAY for that, which says which requests were taken.
                    if leave.is_cancelled() && version < Version::HTTP_2 {
                        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, std::convert::Infallible>(response)
                }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX).max_headers(HEADERS_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let patience = self.config.header_timeout.min(self.config.idle_timeout) / 4;
        let (mut draining, mut closing) = (false, false);
        loop {
            tokio::select! {
                // First the connection itself: a request that has come takes back the word to close.
                biased;
                ended = connection.as_mut() => {
                    match ended {
                        Err(error) => ended::tell(&*error).into_iter().for_each(|why| self.cut(why)),
                        Ok(()) if closing => self.cut("connections_max"),
                        Ok(()) => {}
                    }
                    return;
                }
                () = peer.cut.cancelled() => return,
                () = self.shutdown.abort.cancelled() => return self.cut("drain"),
                () = self.shutdown.drain.cancelled(), if !draining => {
                    draining = true;
                    if activity.owes_head() {
                        return self.cut("drain");
                    }
                    connection.as_mut().graceful_shutdown();
                }
                () = activity.told(), if !closing => if activity.is_told_to_close() {
                    if activity.owes_head() {
                        return self.cut("connections_max");
                    }
                    // HTTP/1.1 is closed by this; HTTP/2 is told first, and a request that is on its way is answered.
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                },
                () = tokio::time::sleep(if closing { CLOSE_TIMEOUT } else { patience }) => {
                    if closing && activity.idle_since().is_some() {
                        return self.cut("connections_max");
                    }
                    if let Some(why) = activity.overdue(self.config.header_timeout, self.config.idle_timeout) {
                        return self.cut(why);
                    }
                }
            }
        }
    }

    fn cut(&self, why: &str) {
        self.edge.metrics.connections_cut_total.with_label_values(&[why]).inc();
    }
}
