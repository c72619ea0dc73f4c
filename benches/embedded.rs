//! What a GET from the embedded store costs beside a bare hyper answer of the same bytes: CPU time of the serving thread alone,
//! in rounds that alternate. `cargo bench --ignore-rust-version --bench embedded`. The goal is a ratio of at most 2.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::SystemTime;

use batchgate::backend::embedded::EmbeddedStore;
use batchgate::backend::{Body, BoxError, Forward, full_body};
use batchgate::config::BackendConfig;
use batchgate::telemetry::Metrics;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::net::TcpListener;

/// Bodies, in bytes: an image of a data set, and a large read.
const SIZES: [usize; 3] = [0, 10 * 1024, 1 << 20];
const ROUNDS: usize = 7;

/// Who answers.
#[derive(Clone)]
enum Server {
    Bare(Bytes),
    Store(Arc<EmbeddedStore>),
}

impl Server {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        Ok(match self {
            Self::Bare(bytes) => {
                let length = bytes.len();
                let mut response = Response::new(full_body(bytes));
                response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
                response
            }
            Self::Store(store) => {
                let request = request.map(|body| Body::new(body.map_err(BoxError::from)));
                store.forward(request).await.expect("a GET has no body to break")
            }
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is its own composition root")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Nanoseconds that this thread has had a CPU.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

/// Serves one connection on a thread of its own; gives its address and, when joined, the nanoseconds that it took.
fn serve(server: Server) -> (SocketAddr, std::thread::JoinHandle<u64>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("a socket");
    let handle = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (stream, _) = TcpListener::from_std(listener).expect("a listener").accept().await.expect("a client");
            stream.set_nodelay(true).expect("a socket");
            let before = cpu_nanos();
            let service = service_fn(move |request| server.clone().answer(request));
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.expect("the client ends it");
            cpu_nanos() - before
        })
    });
    (address, handle)
}

/// Asks `count` times over one connection and gives the serving thread's nanoseconds for each.
fn round(server: Server, size: usize, count: usize) -> f64 {
    let (address, handle) = serve(server);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = vec![0; size + 4096];
    for _ in 0..count {
        stream.write_all(b"GET /bucket/key HTTP/1.1\r\nhost: x\r\n\r\n").expect("open");
        let mut read = 0;
        let whole = loop {
            read += stream.read(&mut buffer[read..]).expect("open");
            if let Some(end) = buffer[..read].windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4 + size;
            }
        };
        if read < whole {
            stream.read_exact(&mut buffer[read..whole]).expect("the rest");
        }
    }
    drop(stream);
    handle.join().expect("no panic") as f64 / count as f64
}

fn store(size: usize) -> Arc<EmbeddedStore> {
    let metrics = Metrics::new();
    let (random, stored) = (SmallRng::seed_from_u64(1), metrics.stored("store"));
    let store = EmbeddedStore::new(&BackendConfig::embedded("store"), now, random, metrics.backend("store"), &stored);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for (uri, body) in [("/bucket", Vec::new()), ("/bucket/key", vec![7; size])] {
        let mut request = Request::new(full_body(body));
        *request.method_mut() = http::Method::PUT;
        *request.uri_mut() = uri.parse().expect("a path");
        let answer = runtime.block_on(store.forward(request)).expect("an answer");
        assert_eq!(answer.status(), 200, "{uri}");
    }
    Arc::new(store)
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:>9} {:>12} {:>12} {:>6}   (server CPU a GET, median of {ROUNDS} rounds)",
        "bytes", "bare hyper", "embedded", "ratio"
    )?;
    for size in SIZES {
        let store = store(size);
        let count = if size > 100_000 { 1000 } else { 10_000 };
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(round(Server::Bare(Bytes::from(vec![7; size])), size, count));
            ours.push(round(Server::Store(Arc::clone(&store)), size, count));
        }
        bare.sort_by(f64::total_cmp);
        ours.sort_by(f64::total_cmp);
        let (bare, ours) = (bare[ROUNDS / 2] / 1000.0, ours[ROUNDS / 2] / 1000.0);
        writeln!(out, "{size:>9} {bare:>9.1} µs {ours:>9.1} µs {:>6.2}", ours / bare)?;
    }
    Ok(())
}
