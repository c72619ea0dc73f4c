//! The store's client against real sockets: names with several addresses, dead, silent and alive; connections that were kept and
//! have been closed; writes that break off. The resolver is ours, so that one name leads to 127.0.0.1 and 127.0.0.2.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::connect::clients_resolving;
use super::credentials::{Credentials, KeyPair};
use super::redirect::Learnt;
use super::resolve::Resolve;
use super::sign::{EMPTY_SHA256, Signer};
use super::{Addressing, Authority, S3Store, Scheme};
use crate::backend::{
    Attempt, BackendError, BackendErrorKind, Body, BoxError, Elsewhere, Forward, ObjectRead, ReadAsk, collect, empty_body,
    full_body,
};
use crate::telemetry::Metrics;

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// As long as a caller waits for an answer.
const ATTEMPT: Duration = Duration::from_millis(400);

/// What a server does with each request that it has read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// It answers and keeps the connection.
    Answer,
    /// It answers and closes the connection without a word of it.
    AnswerAndClose,
    /// It never answers.
    Silence,
    /// It resets the connection as soon as it has the head.
    Reset,
    /// It says 500.
    Fail,
    /// It says 400.
    Refuse,
    /// It says 503.
    Unavailable,
    /// It answers with this status, and its body ends where the connection does.
    Unframed(u16),
    /// It sends half of the body that it announced.
    Cut,
    /// It refuses as soon as it has the head and closes with what it has not read.
    RefuseEarly,
}

struct Server {
    act: Arc<Mutex<Act>>,
    /// The heads that came, with the address of the connection.
    heads: Arc<Mutex<Vec<(SocketAddr, String)>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    fn on(listener: TcpListener, act: Act) -> Self {
        let (act, heads) = (Arc::new(Mutex::new(act)), Heads::default());
        let shared = (Arc::clone(&act), Arc::clone(&heads));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                tokio::spawn(serve(stream, peer, shared.0.clone(), shared.1.clone()));
            }
        });
        Self { act, heads, accepting }
    }

    fn does(&self, act: Act) {
        *self.act.lock().expect("no panic") = act;
    }

    fn count(&self) -> usize {
        self.heads.lock().expect("no panic").len()
    }

    fn connections(&self) -> usize {
        let heads = self.heads.lock().expect("no panic");
        heads.iter().map(|(peer, _)| *peer).collect::<std::collections::BTreeSet<_>>().len()
    }

    fn target(&self, at: usize) -> String {
        let heads = self.heads.lock().expect("no panic");
        heads[at].1.split(' ').nth(1).expect("a request line").to_owned()
    }

    fn header(&self, at: usize, name: &str) -> String {
        let heads = self.heads.lock().expect("no panic");
        let value = heads[at].1.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        value.unwrap_or_else(|| panic!("no {name} in {}", heads[at].1))
    }
}

type Heads = Arc<Mutex<Vec<(SocketAddr, String)>>>;

async fn serve(mut stream: TcpStream, peer: SocketAddr, act: Arc<Mutex<Act>>, heads: Heads) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or(0);
        heads.lock().expect("no panic").push((peer, head));
        let act = *act.lock().expect("no panic");
        match act {
            Act::Reset => return reset(&stream),
            Act::RefuseEarly => {
                stream.write_all(b"HTTP/1.1 403 No\r\ncontent-length: 6\r\n\r\nsorry!").await?;
                // Bytes of the request arrive and are not read: closing resets the connection.
                stream.readable().await?;
                return Ok(());
            }
            _ => {}
        }
        read.drain(..end);
        while read.len() < length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        read.drain(..length);
        if let Act::Unframed(status) = act {
            return stream.write_all(format!("HTTP/1.1 {status} So\r\nconnection: close\r\n\r\nso it is").as_bytes()).await;
        }
        let status = match act {
            Act::Fail => "500 Oops",
            Act::Refuse => "400 Never",
            Act::Unavailable => "503 Oops",
            _ => "200 Fine",
        };
        let body = if act == Act::Cut { "whol" } else { "whole" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n{body}");
        match act {
            Act::Silence => sleep(Duration::from_secs(60)).await,
            Act::Cut | Act::AnswerAndClose => return stream.write_all(answer.as_bytes()).await,
            _ => stream.write_all(answer.as_bytes()).await?,
        }
    }
}

#[expect(deprecated, reason = "only a linger of zero resets; it does not block")]
fn reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_linger(Some(Duration::ZERO))
}

/// A listener on each address, with one port for all.
async fn listeners(hosts: &[Ipv4Addr]) -> (u16, Vec<TcpListener>) {
    for _ in 0..64 {
        let first = TcpListener::bind((hosts[0], 0)).await.expect("a free port");
        let port = first.local_addr().expect("bound").port();
        let mut all = vec![first];
        for host in &hosts[1..] {
            if let Ok(listener) = TcpListener::bind((*host, port)).await {
                all.push(listener);
            }
        }
        if all.len() == hosts.len() {
            return (port, all);
        }
    }
    panic!("no port is free on all of {hosts:?}");
}

/// Takes an address on which nobody listens.
fn deaf(host: Ipv4Addr, port: u16) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((host, port).into()).expect("a free port");
    socket
}

/// What a name leads to; it may change.
type Name = Arc<Mutex<Vec<Ipv4Addr>>>;

struct Rig {
    store: S3Store,
    name: Name,
}

fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn later() -> SystemTime {
    clock() + Duration::from_secs(90)
}

impl Rig {
    fn new(port: u16, hosts: &[Ipv4Addr]) -> Self {
        let name: Name = Arc::new(Mutex::new(hosts.to_vec()));
        let found = Arc::clone(&name);
        let resolve: Resolve = Arc::new(move |host, port| {
            assert!(host == "store.test" || host == "bucket.store.test", "{host}");
            let found = found.lock().expect("no panic").iter().map(|host| SocketAddr::from((*host, port))).collect();
            Box::pin(async move { Ok(found) })
        });
        let store = S3Store {
            clients: clients_resolving(resolve, Duration::from_secs(2), ATTEMPT, 16, false, None).expect("no certificates"),
            scheme: Scheme::HTTP,
            authority: Authority::try_from(format!("store.test:{port}")).expect("valid"),
            base_path: String::new(),
            addressing: Addressing::Path,
            credentials: Credentials::Static(Arc::new(KeyPair::new("AK", "SK", None).expect("valid"))),
            signer: Arc::new(Signer::new("us-east-1")),
            learnt: Learnt::default(),
            now: clock,
            metrics: Metrics::new().backend("b"),
        };
        Self { store, name }
    }

    async fn attempt(&self, elsewhere: bool) -> Attempt {
        self.store.read(&ReadAsk { elsewhere, ..ReadAsk::plain("bucket", "k") }).await
    }

    async fn read(&self, elsewhere: bool) -> Result<StatusCode, BackendError> {
        let response = self.attempt(elsewhere).await?;
        let status = response.status();
        let body = collect(response.into_body(), 100).await;
        body.map(|_| status).map_err(|source| BackendError { kind: BackendErrorKind::NoAnswer, source })
    }

    /// A read as long as a caller lets one attempt take.
    async fn read_soon(&self, elsewhere: bool) -> Option<StatusCode> {
        timeout(ATTEMPT, self.read(elsewhere)).await.ok()?.ok()
    }

    async fn write(&self, body: Body) -> Attempt {
        self.forward(Method::PUT, "/bucket/k", body).await
    }

    async fn forward(&self, method: Method, uri: &'static str, body: Body) -> Attempt {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_static(uri);
        request.headers_mut().insert("x-amz-content-sha256", HeaderValue::from_static("UNSIGNED-PAYLOAD"));
        self.store.forward(request).await
    }
}

/// A body whose pieces come after pauses.
fn slow(pieces: usize, pause: Duration) -> Body {
    let pieces = futures_util::stream::unfold(0, move |sent| async move {
        if sent == pieces {
            return None;
        }
        if sent > 0 {
            sleep(pause).await;
        }
        Some((Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b'x'; 1000]))), sent + 1))
    });
    Body::new(StreamBody::new(Box::pin(pieces)))
}

#[tokio::test]
async fn several_addresses_share_the_load() {
    let (port, found) = listeners(&[FIRST, SECOND]).await;
    let servers: Vec<_> = found.into_iter().map(|listener| Server::on(listener, Act::AnswerAndClose)).collect();
    let rig = Rig::new(port, &[FIRST, SECOND]);
    for _ in 0..20 {
        rig.read(false).await.expect("both are well");
        sleep(Duration::from_millis(5)).await;
    }
    for server in &servers {
        assert!(server.count() >= 8, "{}", server.count());
    }
}

/// The server knows no HEAD: it sends a body all the same.
#[tokio::test]
async fn a_body_behind_the_answer_to_a_head_meets_nobody_else() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let rig = Rig::new(port, &[FIRST]);
    for (act, uri) in [(Act::Answer, "/bucket/k?acl"), (Act::Refuse, "/bucket/k")] {
        for _ in 0..10 {
            server.does(act);
            let answer = rig.forward(Method::HEAD, uri, empty_body()).await.expect("an answer");
            assert!(collect(answer.into_body(), 100).await.expect("no body").is_empty());
            server.does(Act::Answer);
            let answer = rig.write(full_body("x")).await.expect("the answer to this and not what lay about");
            collect(answer.into_body(), 100).await.expect("whole");
        }
    }
    assert_eq!(server.count(), 40);
}

#[tokio::test]
async fn a_dead_address_beside_a_live_one_costs_no_read() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let alive = Server::on(found.pop().expect("two"), Act::AnswerAndClose);
    drop(found);
    let _deaf = deaf(FIRST, port);
    let rig = Rig::new(port, &[FIRST, SECOND]);
    for read in 0..20 {
        assert_eq!(rig.read(read % 2 == 0).await.expect("one of them is well"), StatusCode::OK);
    }
    assert_eq!(alive.count(), 20);
}

#[tokio::test]
async fn where_all_addresses_are_dead_nothing_was_sent() {
    let (port, found) = listeners(&[FIRST, SECOND]).await;
    drop(found);
    let _deaf = [deaf(FIRST, port), deaf(SECOND, port)];
    let rig = Rig::new(port, &[FIRST, SECOND]);
    for elsewhere in [false, true] {
        assert_eq!(rig.read(elsewhere).await.expect_err("dead").kind, BackendErrorKind::Unreachable);
    }
    assert_eq!(rig.write(full_body("x")).await.expect_err("dead").kind, BackendErrorKind::Unreachable);
    rig.name.lock().expect("no panic").clear();
    let error = rig.read(false).await.expect_err("a name without addresses");
    let innermost = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source()).last();
    let said = innermost.map(ToString::to_string).unwrap_or_default();
    assert_eq!(error.kind, BackendErrorKind::Unreachable);
    assert_eq!(said, "store.test: the name has no address");
}

#[tokio::test]
async fn a_retry_goes_past_an_address_that_is_silent() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let alive = Server::on(found.pop().expect("two"), Act::Answer);
    let silent = Server::on(found.pop().expect("two"), Act::Silence);
    let rig = Rig::new(port, &[FIRST, SECOND]);
    let mut failed = 0;
    for _ in 0..10 {
        if rig.read_soon(false).await.is_none() {
            failed += 1;
            assert_eq!(rig.read_soon(true).await, Some(StatusCode::OK), "the retry finds the other address");
        }
    }
    assert_eq!((failed, silent.count()), (1, 1), "and new reads do not try the silent one again");
    assert!(alive.count() >= 10);
}

#[tokio::test]
async fn kept_connections_to_an_address_that_went_silent_are_not_used() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let second = Server::on(found.pop().expect("two"), Act::Answer);
    let first = Server::on(found.pop().expect("two"), Act::Answer);
    let rig = Rig::new(port, &[FIRST, SECOND]);
    let at_once = async |count: usize| {
        let reads = futures_util::future::join_all((0..count).map(|_| rig.read_soon(false))).await;
        reads.iter().filter(|read| read.is_none()).count()
    };
    assert_eq!(at_once(16).await, 0);
    assert_eq!((first.connections(), second.connections()), (8, 8), "both have connections that are kept");
    first.does(Act::Silence);
    let failed = at_once(12).await;
    assert!((4..=8).contains(&failed), "{failed} of 12 met the silent address");
    assert_eq!(at_once(12).await, 0, "nobody else does");
}

#[tokio::test]
async fn a_retry_goes_past_an_address_that_resets_fails_or_cuts() {
    for act in [Act::Reset, Act::Fail, Act::Unavailable, Act::Cut] {
        let (port, mut found) = listeners(&[FIRST, SECOND]).await;
        let _alive = Server::on(found.pop().expect("two"), Act::Answer);
        let broken = Server::on(found.pop().expect("two"), act);
        let rig = Rig::new(port, &[FIRST, SECOND]);
        let failed = rig.read(false).await;
        assert!(!failed.is_ok_and(|status| status == StatusCode::OK), "{act:?}: the first address has the first turn");
        assert_eq!(broken.count(), 1);
        for _ in 0..4 {
            assert_eq!(rig.read(true).await.expect("the other address"), StatusCode::OK, "{act:?}");
        }
        assert_eq!(broken.count(), 1, "{act:?}");
    }
}

#[tokio::test]
async fn an_error_that_ends_with_its_connection_is_an_answer_and_an_object_is_none() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Unframed(404));
    let rig = Rig::new(port, &[FIRST]);
    let response = rig.attempt(false).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "so it is");
    server.does(Act::Unframed(200));
    assert_eq!(rig.read(false).await.expect_err("cut or whole, it looks the same").kind, BackendErrorKind::Unframed);
}

#[tokio::test]
async fn a_client_that_leaves_early_says_nothing_of_the_address() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let rig = Rig::new(port, &[FIRST]);
    rig.read(false).await.expect("well");
    server.does(Act::Silence);
    assert!(timeout(ATTEMPT.mul_f64(0.25), rig.read(false)).await.is_err());
    assert!(!rig.store.clients.addresses.troubled(), "the store had longer");
    assert!(rig.read_soon(false).await.is_none());
    assert!(rig.store.clients.addresses.troubled(), "and this was all of it");
}

#[tokio::test]
async fn writes_keep_their_connection_beside_an_address_that_was_never_reached() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let alive = Server::on(found.pop().expect("two"), Act::Answer);
    drop(found);
    let _deaf = deaf(FIRST, port);
    let rig = Rig::new(port, &[FIRST, SECOND]);
    for _ in 0..10 {
        let put = rig.write(full_body("body")).await.expect("one of them is well");
        put.into_body().collect().await.expect("whole");
        sleep(Duration::from_millis(5)).await;
    }
    assert!(alive.count() == 10 && alive.connections() <= 2, "{} connections", alive.connections());
}

#[tokio::test]
async fn an_address_that_does_not_even_connect_costs_little() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let _alive = Server::on(found.pop().expect("two"), Act::AnswerAndClose);
    drop(found);
    // Its queue is full: further connections hang, as they do where packets are lost.
    let full = deaf(FIRST, port).listen(1).expect("listens");
    let mut filling = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect((FIRST, port))).await {
        filling.push(connected.expect("queued"));
        assert!(filling.len() < 16, "the queue is short");
    }
    let rig = Rig::new(port, &[FIRST, SECOND]);
    for read in 0..6 {
        let started = Instant::now();
        assert_eq!(rig.read(false).await.expect("the other address"), StatusCode::OK);
        assert!(started.elapsed() < Duration::from_secs(1) || read == 0, "{:?} for read {read}", started.elapsed());
    }
    drop(full);
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_followed() {
    let (port, mut found) = listeners(&[FIRST, SECOND]).await;
    let second = Server::on(found.pop().expect("two"), Act::Answer);
    let first = Server::on(found.pop().expect("two"), Act::AnswerAndClose);
    let rig = Rig::new(port, &[FIRST]);
    rig.read(false).await.expect("well");
    *rig.name.lock().expect("no panic") = vec![SECOND];
    for _ in 0..3 {
        rig.read(false).await.expect("well");
    }
    assert_eq!((first.count(), second.count()), (1, 3));
}

#[tokio::test]
async fn the_name_stays_in_the_request_whatever_the_addressing() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let mut rig = Rig::new(port, &[FIRST]);
    rig.read(false).await.expect("well");
    rig.store.addressing = Addressing::Virtual;
    rig.read(true).await.expect("well");
    assert_eq!(server.header(0, "host"), format!("store.test:{port}"));
    assert_eq!(server.header(1, "host"), format!("bucket.store.test:{port}"));
}

#[tokio::test]
async fn a_base_path_is_what_all_paths_begin_with_whatever_the_addressing() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let mut rig = Rig::new(port, &[FIRST]);
    rig.store.base_path = "/s3".to_owned();
    for addressing in [Addressing::Path, Addressing::Virtual] {
        rig.store.addressing = addressing;
        for uri in ["/?batch-get=", "/bucket?batch-get=", "/bucket", "/bucket//k/../%20?acl"] {
            rig.forward(Method::GET, uri, empty_body()).await.expect("well");
        }
    }
    let targets: Vec<_> = (0..server.count()).map(|at| server.target(at)).collect();
    let (path, host) = targets.split_at(4);
    assert_eq!(path, ["/s3/?batch-get=", "/s3/bucket?batch-get=", "/s3/bucket", "/s3/bucket//k/../%20?acl"]);
    assert_eq!(host, ["/s3/?batch-get=", "/s3/?batch-get=", "/s3/", "/s3//k/../%20?acl"]);
}

#[tokio::test]
async fn each_attempt_is_signed_anew() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Reset);
    let mut rig = Rig::new(port, &[FIRST]);
    for elsewhere in [false, true] {
        assert_eq!(rig.read(elsewhere).await.expect_err("reset").kind, BackendErrorKind::NoAnswer);
        rig.store.now = later;
    }
    assert_eq!(server.count(), 2);
    assert_ne!(server.header(0, "x-amz-date"), server.header(1, "x-amz-date"));
    assert_ne!(server.header(0, "authorization"), server.header(1, "authorization"));
}

#[tokio::test]
async fn a_new_connection_is_made_elsewhere_though_one_is_kept() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let rig = Rig::new(port, &[FIRST]);
    for elsewhere in [false, false, true, true, false] {
        rig.read(elsewhere).await.expect("well");
    }
    assert_eq!((server.count(), server.connections()), (5, 3), "one that is kept and two that are not");
    let mut head = Request::new(empty_body());
    *head.method_mut() = Method::HEAD;
    *head.uri_mut() = Uri::from_static("/bucket/k");
    head.headers_mut().insert("x-amz-content-sha256", HeaderValue::from_static(EMPTY_SHA256));
    head.extensions_mut().insert(Elsewhere);
    server.does(Act::AnswerAndClose);
    rig.store.forward(head).await.expect("well");
    assert_eq!(server.connections(), 4, "a request that is forwarded may ask for it too");
}

#[tokio::test]
async fn a_store_that_closes_idle_connections_costs_nobody_anything() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::AnswerAndClose);
    let rig = Rig::new(port, &[FIRST]);
    for sent in 1..=50 {
        assert_eq!(rig.read(false).await.expect("a closed connection is left alone"), StatusCode::OK);
        // The close has to arrive; what happens if it does not is in the next test.
        sleep(Duration::from_millis(2)).await;
        let put = rig.write(full_body("body")).await.expect("a closed connection is left alone");
        assert_eq!(put.into_body().collect().await.expect("whole").to_bytes(), "whole");
        sleep(Duration::from_millis(2)).await;
        assert_eq!(server.count(), 2 * sent, "each was sent once");
    }
}

#[tokio::test]
async fn a_write_on_a_connection_that_closes_just_then_is_sent_at_most_once() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let rig = Rig::new(port, &[FIRST]);
    for round in 0..50 {
        server.does(Act::AnswerAndClose);
        rig.read(false).await.expect("well");
        let before = server.count();
        // At once: the close may be on its way.
        match rig.write(full_body("body")).await {
            Ok(response) => assert_eq!(response.status(), StatusCode::OK),
            Err(error) => assert!(matches!(error.kind, BackendErrorKind::NoAnswer | BackendErrorKind::Unreachable), "{error}"),
        }
        assert!(server.count() <= before + 1, "round {round}");
    }
}

#[tokio::test]
async fn a_write_that_breaks_on_a_kept_connection_is_sent_once() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::Answer);
    let rig = Rig::new(port, &[FIRST]);
    for (round, body) in [full_body("body"), slow(20, Duration::from_millis(5)), empty_body()].into_iter().enumerate() {
        server.does(Act::Answer);
        rig.read(false).await.expect("well");
        let before = server.count();
        server.does(Act::Reset);
        let error = rig.write(body).await.expect_err("reset");
        assert_eq!(error.kind, BackendErrorKind::NoAnswer, "something was sent: {error}");
        sleep(Duration::from_millis(50)).await;
        assert_eq!(server.count(), before + 1, "round {round}");
    }
}

#[tokio::test]
async fn a_refusal_before_the_body_was_read_is_heard() {
    let (port, mut found) = listeners(&[FIRST]).await;
    let server = Server::on(found.pop().expect("one"), Act::RefuseEarly);
    let rig = Rig::new(port, &[FIRST]);
    let large = || full_body(vec![b'x'; 8 << 20]);
    for round in 0..40 {
        let body = if round % 2 == 0 { slow(1000, Duration::from_micros(100)) } else { large() };
        let response = rig.write(body).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let said = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(said, "sorry!", "round {round}");
    }
    assert_eq!(server.count(), 40);
}
