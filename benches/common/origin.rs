//! A simulated S3 origin in a process of its own. What enters is `GET /after-<ms>ms/<size>-<number>`, with `Range` and
//! `If-Match` if need be; what leaves, after that delay, is that object as [`content`] has it, with the headers of an S3 store.
//! A `PUT` there is answered once all of the object has come, and refused if it is not that object.
//! It runs on one thread, so that it takes one core at the most, and ends when its standard input does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use batchgate::types::ByteRange;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{Fallible, names};
use batchgate::load::content;

/// Serves at `address`, says which port it is on standard output, and ends with standard input. No more than `concurrency`
/// requests are answered at once; others wait for their turn before their delay begins.
pub fn run(address: &str, concurrency: &str) -> Fallible<()> {
    let turns = Arc::new(Semaphore::new(concurrency.parse::<usize>()?.min(Semaphore::MAX_PERMITS)));
    let address: SocketAddr = address.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        println!("{}", listener.local_addr()?);
        let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        tokio::select! {
            failed = serve(listener, turns) => failed,
            _ = ended => Ok(()),
        }
    })
}

async fn serve(listener: TcpListener, turns: Arc<Semaphore>) -> Fallible<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails is its client's to notice.
        let turns = Arc::clone(&turns);
        let service = service_fn(move |request| answer(request, Arc::clone(&turns)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(request: Request<Incoming>, turns: Arc<Semaphore>) -> Result<Response<Pattern>, Infallible> {
    let Some((delay, size, number)) = target(request.uri().path()) else { return Ok(refusal(StatusCode::NOT_FOUND)) };
    let _turn = turns.acquire().await.expect("never closed");
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let etag = format!("\"{size:016x}{number:016x}\"");
    if request.headers().get(header::IF_MATCH).is_some_and(|wanted| wanted.as_bytes() != etag.as_bytes()) {
        return Ok(refusal(StatusCode::PRECONDITION_FAILED));
    }
    if request.method() == Method::PUT {
        let mut response = match is_whole(request.into_body(), number, size).await {
            true => refusal(StatusCode::OK),
            false => refusal(StatusCode::BAD_REQUEST),
        };
        response.headers_mut().insert(header::ETAG, value(&etag));
        return Ok(response);
    }
    let asked = request.headers().get(header::RANGE).and_then(|value| value.to_str().ok());
    let mut response = Response::new(Pattern::new(number, size));
    if let Some(range) = asked.and_then(|text| ByteRange::parse(text).ok()) {
        let Some(span) = range.resolve(size).filter(|span| !span.is_empty()) else {
            return Ok(refusal(StatusCode::RANGE_NOT_SATISFIABLE));
        };
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let content_range = format!("bytes {}-{}/{size}", span.start, span.end - 1);
        response.headers_mut().insert(header::CONTENT_RANGE, value(&content_range));
        *response.body_mut() = Pattern { number, at: span.start, end: span.end };
    }
    let headers = response.headers_mut();
    headers.insert("x-amz-request-id", HeaderValue::from_static("5D0F2C3A9B7E4816"));
    headers.insert("x-amz-id-2", HeaderValue::from_static("Ck3oQv7mZJ5xXo1bq0hQm0uT4pR9wYd2sLf8aNn6eGi="));
    headers.insert(header::LAST_MODIFIED, HeaderValue::from_static("Mon, 01 Sep 2025 12:00:00 GMT"));
    headers.insert(header::ETAG, value(&etag));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::SERVER, HeaderValue::from_static("origin"));
    Ok(response)
}

fn target(path: &str) -> Option<(Duration, u64, u64)> {
    let (bucket, key) = path.strip_prefix('/')?.split_once('/')?;
    let (size, number) = names::parse_key(key)?;
    Some((Duration::from_millis(names::parse_bucket(bucket)?), size, number))
}

/// Whether `body` is object `number` of `size` bytes.
async fn is_whole(mut body: Incoming, number: u64, size: u64) -> bool {
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let Ok(Ok(bytes)) = frame.map(Frame::into_data) else { return false };
        if !content::is(number, at, &bytes) {
            return false;
        }
        at += bytes.len() as u64;
    }
    at == size
}

fn refusal(status: StatusCode) -> Response<Pattern> {
    let mut response = Response::new(Pattern::new(0, 0));
    *response.status_mut() = status;
    response
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("made of digits and ASCII letters")
}

/// A body of known length that is made as it is taken.
pub struct Pattern {
    number: u64,
    at: u64,
    end: u64,
}

impl Pattern {
    /// The first `size` bytes of object `number`.
    pub fn new(number: u64, size: u64) -> Self {
        Self { number, at: 0, end: size }
    }
}

impl http_body::Body for Pattern {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.at == self.end {
            return Poll::Ready(None);
        }
        let bytes = content::at(self.number, self.at, self.end - self.at);
        self.at += bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}
