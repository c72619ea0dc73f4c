//! Accepts connections, speaks HTTP/1.1 or HTTP/2 (prior knowledge, or ALPN under TLS) on each, and bounds them: in number (by [`super::connections`]),
//! in the time for a head, in idle time, and at the end by a hard deadline.
//!
//! The end loses no request. From its announcement on each HTTP/1 answer is the last of its connection and says so, and an
//! HTTP/2 connection that has been used gets GOAWAY: it is told then and not at the drain so that the client goes elsewhere while
//! it can still come back here, and it loses nothing, because the streams that are opened until the client has read it are
//! served (<https://www.rfc-editor.org/rfc/rfc9113#section-6.8>). In the drain those who wait to be accepted are served one
//! request, and who has no request under way has a grace to send one.
//!
//! Invariant: what remains at the deadline is broken, never ended cleanly.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{HeaderValue, Version, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{Connections, Open};
use super::io::ClientIo;
use super::tls::Tls;
use super::{Edge, Handler, backlog, ended};
use crate::peer::Peer;
use crate::telemetry::Metrics;

/// Buffer of a connection, and with it the longest head of a request, in bytes. What is written waits here too, so this is
/// part of what a stalled reader costs. Not quite 64 KiB: what is read at once is sent on at once, and where the store is on the
/// same machine one segment holds 65,483 bytes, so that 64 KiB would be a full one and a second for 53 bytes.
const BUFFER_BYTES_MAX: usize = 63 * 1024 + 512;

/// Most headers of a request, for the sake of objects with much user metadata.
const HEADERS_MAX: usize = 256;

/// Bytes that one HTTP/2 stream buffers for sending.
const HTTP2_SEND_BUFFER_BYTES: usize = 128 * 1024;

/// Bytes that a client may send of one stream, and of all streams of a connection, before we have taken them. They wait outside
/// of every budget, so they are few; with 100 ms to the client a connection still carries 10 MiB a second.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// An HTTP/2 connection that still holds an answer that was given up this long ago is told to close, and cut in as much more:
/// HTTP/2 keeps what it was handed until the client takes it or resets its stream.
const GIVEN_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// After an accept that failed (no file descriptor is free, say) the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// In the drain a connection without a request is closed once it has sent none for this long (or for the time that it has for a
/// head, or between two requests, if that is less): whoever asks again and again has sent one by then.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

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

/// What a connection has to be looked at for, besides itself.
enum Event {
    /// An answer of it was given up.
    Cut,
    /// Everything ends.
    Abort,
    /// It speaks HTTP/2 and should go elsewhere.
    GoAway,
    /// It may end once nothing is under way.
    Drain,
    /// Its place is wanted.
    Told,
    /// Time has passed.
    Look,
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
        let connections = Connections::new(config.connections_max, Metrics::clone(&edge.metrics));
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

    /// Accepts on `listener` until the drain begins, and then what waits there.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        // Whoever waits for the connections to end waits for those too.
        let _waiting = self.tasks.token();
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.drain.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.take(stream),
                Err(error) => {
                    tracing::warn!(%error, "connection could not be accepted");
                    // If it is for want of a descriptor, an idle connection has one.
                    self.connections.close_one();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        backlog::close(listener).into_iter().for_each(|stream| self.take(stream));
    }

    fn take(self: &Arc<Self>, stream: TcpStream) {
        // A client that is refused sees its connection close: before TLS and HTTP there is no other way to say it.
        let Some(open) = self.connections.admit() else { return };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the client left at once");
            return;
        }
        let server = Arc::clone(self);
        self.tasks.spawn(async move { server.connection(stream, &open).await });
    }

    /// Ends once every connection has.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Time that a connection without a request has in the drain.
    fn grace(&self) -> Duration {
        DRAIN_GRACE.min(self.config.header_timeout).min(self.config.idle_timeout)
    }

    async fn connection(&self, stream: TcpStream, open: &Open) {
        // A socket for both families has IPv4 addresses mapped into IPv6.
        let from = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        let Some(tls) = &self.tls else { return self.serve(stream, TcpStream::set_zero_linger, from, false, open).await };
        let begun = Instant::now();
        let grace_is_over = async {
            self.shutdown.drain.cancelled().await;
            sleep_until(begun + self.grace()).await;
        };
        let handshake = tokio::time::timeout(self.config.header_timeout, tls.acceptor().accept(stream));
        tokio::select! {
            accepted = handshake => match accepted {
                Ok(Ok(stream)) => self.serve(stream, |tls| tls.get_ref().0.set_zero_linger(), from, true, open).await,
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
            () = grace_is_over => self.cut("drain"),
            () = self.shutdown.abort.cancelled() => self.cut("drain"),
            () = open.activity.told() => self.cut("connections_max"),
        }
    }

    /// Speaks HTTP on a connection and watches over it.
    async fn serve<S>(&self, stream: S, reset: fn(&S) -> io::Result<()>, from: Option<IpAddr>, secure: bool, open: &Open)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = &open.activity;
        let peer = Peer { secure, cut: CancellationToken::new() };
        let io = TokioIo::new(ClientIo::new(stream, Arc::clone(activity), self.config.write_timeout, reset));
        let service = {
            let (edge, activity, peer) = (Arc::clone(&self.edge), Arc::clone(activity), peer.clone());
            let leave = self.shutdown.leave.clone();
            service_fn(move |request| {
                let (edge, peer) = (Arc::clone(&edge), peer.clone());
                let under_way = activity.begin();
                let (leave, version) = (leave.clone(), request.version());
                async move {
                    let mut response = edge.answer(request, peer, from, under_way).await;
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
            .max_concurrent_streams(self.edge.streams_max())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let patience = self.config.header_timeout.min(self.config.idle_timeout) / 4;
        let go_away = async {
            activity.http2().await;
            self.shutdown.leave.cancelled().await;
        };
        let mut go_away = std::pin::pin!(go_away);
        let grace = self.grace();
        let (mut draining, mut closing) = (false, false);
        // When it was told to end in good order.
        let mut told: Option<Instant> = None;
        loop {
            let wait = match (closing, draining) {
                (true, _) => CLOSE_TIMEOUT,
                (false, true) => {
                    let quiet = activity.idle_since().map_or(Duration::ZERO, |since| since.elapsed());
                    let closes_in = told.map_or(Duration::ZERO, |at| CLOSE_TIMEOUT.saturating_sub(at.elapsed()));
                    grace.saturating_sub(quiet).max(closes_in)
                }
                _ => patience,
            };
            let may_be_told = told.is_none();
            // Polled when it was woken, and not whenever the connection is.
            let mut events = FuturesUnordered::from_iter([async {
                tokio::select! {
                    biased;
                    () = peer.cut.cancelled() => Event::Cut,
                    () = self.shutdown.abort.cancelled() => Event::Abort,
                    () = &mut go_away, if may_be_told => Event::GoAway,
                    () = self.shutdown.drain.cancelled(), if !draining => Event::Drain,
                    () = activity.told(), if !closing => Event::Told,
                    () = tokio::time::sleep(wait) => Event::Look,
                }
            }]);
            let event = tokio::select! {
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
                Some(event) = events.next() => event,
            };
            drop(events);
            match event {
                Event::Cut => return,
                Event::Abort => return self.cut("drain"),
                Event::GoAway => {
                    told = Some(Instant::now());
                    activity.linger();
                    connection.as_mut().graceful_shutdown();
                }
                Event::Drain => draining = true,
                Event::Told if !activity.is_told_to_close() => {}
                Event::Told => {
                    if activity.owes_head() {
                        return self.cut("connections_max");
                    }
                    // HTTP/1.1 is closed by this; HTTP/2 is told first, and a request that is on its way is answered.
                    (closing, told) = (true, Some(Instant::now()));
                    connection.as_mut().graceful_shutdown();
                }
                Event::Look => {
                    if closing && activity.idle_since().is_some() {
                        return self.cut("connections_max");
                    }
                    if draining && activity.idle_since().is_some_and(|since| since.elapsed() >= grace) {
                        if activity.owes_head() || told.is_some_and(|at| at.elapsed() >= CLOSE_TIMEOUT) {
                            return self.cut("drain");
                        }
                        if told.is_none() {
                            told = Some(Instant::now());
                            connection.as_mut().graceful_shutdown();
                        }
                    }
                    match activity.given_up() {
                        Some(held) if held >= 2 * GIVEN_UP_TIMEOUT => return self.cut("client_stall"),
                        Some(held) if held >= GIVEN_UP_TIMEOUT && told.is_none() => {
                            told = Some(Instant::now());
                            connection.as_mut().graceful_shutdown();
                        }
                        _ => {}
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
