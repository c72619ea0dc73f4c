//! A client that sends one signed request at a time over a connection of its own, HTTP/1.1 or HTTP/2 with prior knowledge, and
//! never sends anything twice. What enters is a request with the pace of its body; what leaves is the answer as it comes.
//! Dropped in the middle of an answer, it closes the connection or resets the stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use batchgate::app::system_clock;
use batchgate::backend::s3::credentials::KeyPair;
use batchgate::backend::s3::sign::Signer;
use batchgate::backend::{Body, BoxError, empty_body, full_body};
use bytes::Bytes;
use futures_util::stream;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How long the campaign itself waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who asks, and how that is proved.
pub struct Keys {
    pair: Arc<KeyPair>,
    signer: Signer,
}

impl Keys {
    /// A key pair for the region of the campaign.
    pub fn new(access_key: &str, secret_key: &str, region: &str) -> Arc<Self> {
        let pair = KeyPair::new(access_key, secret_key, None).expect("the campaign's keys are header-safe");
        Arc::new(Self { pair: Arc::new(pair), signer: Signer::new(region) })
    }
}

/// How the body of a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Whole,
    /// In four pieces with a pause before each.
    Slow(Duration),
    /// Half of it, and then the connection ends.
    Half,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which request of the campaign it is.
    pub id: u128,
    /// Method.
    pub method: Method,
    /// Raw path and query.
    pub path: String,
    /// Headers beside those that are always there.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// How it is sent.
    pub pace: Pace,
}

impl Ask {
    /// A request without a body.
    pub fn new(id: u128, method: Method, path: impl Into<String>) -> Self {
        Self { id, method, path: path.into(), headers: HeaderMap::new(), body: Bytes::new(), pace: Pace::Whole }
    }

    /// With a header.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).expect("the campaign's values are header-safe"));
        self
    }

    /// With a body.
    pub fn carrying(mut self, body: Bytes, pace: Pace) -> Self {
        (self.body, self.pace) = (body, pace);
        self
    }
}

/// Why there is no answer, or no whole one.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// No connection.
    Connect(String),
    /// The connection ended.
    Broken(String),
}

/// `traceparent` of a request: it goes along to the store, in a batch with every read.
pub fn trace(id: u128) -> String {
    format!("00-{id:032x}-00000000000000c1-01")
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
    used: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// See the module.
pub struct Client {
    address: SocketAddr,
    keys: Arc<Keys>,
    second: bool,
    connection: Option<Connection>,
}

impl Client {
    /// Connects with the first request; over HTTP/2 if `second`.
    pub fn new(address: SocketAddr, keys: &Arc<Keys>, second: bool) -> Self {
        Self { address, keys: Arc::clone(keys), second, connection: None }
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// Whether it speaks HTTP/2.
    pub fn is_second(&self) -> bool {
        self.second
    }

    /// Sends a request and waits for the head of its answer. One that must not be lost to a connection that the other side has
    /// just closed asks for a `fresh` one.
    pub async fn send(&mut self, ask: &Ask, fresh: bool) -> Result<Response<Incoming>, Trouble> {
        self.connect(fresh).await?;
        let request = self.request(ask);
        let connection = self.connection.as_mut().expect("it was made");
        connection.used = true;
        let answer = match &mut connection.sender {
            Sender::One(sender) => sender.send_request(request).await,
            Sender::Two(sender) => sender.send_request(request).await,
        };
        answer.map_err(|error| {
            self.connection = None;
            Trouble::Broken(chain(&error))
        })
    }

    async fn connect(&mut self, fresh: bool) -> Result<(), Trouble> {
        if let Some(connection) = &mut self.connection {
            let ready = match &mut connection.sender {
                Sender::One(sender) => sender.ready().await,
                Sender::Two(sender) => sender.ready().await,
            };
            if ready.is_ok() && !(fresh && connection.used && !self.second) {
                return Ok(());
            }
            self.connection = None;
        }
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address)).await {
            Err(_) => return Err(Trouble::Connect("no connection in time".into())),
            Ok(Err(error)) => return Err(Trouble::Connect(error.to_string())),
            Ok(Ok(stream)) => stream,
        };
        // A connection without it is only slower.
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(stream);
        let broken = |error: hyper::Error| Trouble::Connect(chain(&error));
        let (sender, driver) = if self.second {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(broken)?;
            (Sender::Two(sender), tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(broken)?;
            (Sender::One(sender), tokio::spawn(async move { drop(connection.await) }))
        };
        self.connection = Some(Connection { sender, driver, used: false });
        Ok(())
    }

    fn request(&self, ask: &Ask) -> Request<Body> {
        let path = PathAndQuery::try_from(ask.path.as_str()).expect("the campaign's paths are paths");
        let mut headers = ask.headers.clone();
        let hash: String = Sha256::digest(&ask.body).iter().map(|byte| format!("{byte:02x}")).collect();
        headers.insert("x-amz-content-sha256", HeaderValue::from_str(&hash).expect("hex"));
        headers.insert("traceparent", HeaderValue::from_str(&trace(ask.id)).expect("hex"));
        headers.insert(header::HOST, HeaderValue::from_str(&self.address.to_string()).expect("an address"));
        self.keys.signer.sign(&ask.method, &path, &mut headers, &self.keys.pair, system_clock());
        let body = if ask.body.is_empty() { empty_body() } else { paced(&ask.body, ask.pace) };
        if !ask.body.is_empty() {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
        }
        let mut request = Request::new(body);
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = if self.second {
            headers.remove(header::HOST);
            format!("http://{}{path}", self.address).parse().expect("an address and a path")
        } else {
            Uri::from(path)
        };
        *request.headers_mut() = headers;
        request
    }
}

fn paced(body: &Bytes, pace: Pace) -> Body {
    let pieces = |body: &Bytes| {
        let size = body.len().div_ceil(4).max(1);
        (0..body.len()).step_by(size).map(|at| body.slice(at..body.len().min(at + size))).collect::<Vec<_>>()
    };
    match pace {
        Pace::Whole => full_body(body.clone()),
        Pace::Slow(pause) => {
            let pieces = stream::unfold(pieces(body).into_iter(), move |mut left| async move {
                let piece = left.next()?;
                tokio::time::sleep(pause).await;
                Some((Ok::<_, BoxError>(Frame::data(piece)), left))
            });
            Body::new(StreamBody::new(pieces))
        }
        Pace::Half => {
            let half = body.slice(..body.len() / 2);
            let left: BoxError = "the client leaves".into();
            let pieces = stream::unfold(vec![Err(left), Ok(Frame::data(half))], |mut left| async move {
                let next = left.pop()?;
                // What was sent before must be on its way when the connection ends.
                tokio::time::sleep(Duration::from_millis(30)).await;
                Some((next, left))
            });
            BodyExt::boxed_unsync(StreamBody::new(pieces))
        }
    }
}

/// An error with its causes.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    batchgate::client::error::chain(error)
}
