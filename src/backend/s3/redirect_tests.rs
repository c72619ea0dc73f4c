//! Redirects against real sockets: a store in two regions, each with a host of its own. The resolver is ours, so that one leads to
//! 127.0.0.1 and the other to 127.0.0.2, and asks for any further host fail the test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Request, StatusCode, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::connect::clients_resolving;
use super::credentials::{Credentials, KeyPair};
use super::redirect::Learnt;
use super::resolve::Resolve;
use super::sign::{EMPTY_SHA256, Signer};
use super::{Addressing, Authority, S3Store, Scheme};
use crate::backend::{Forward, ObjectRead, ReadAsk, Taught, collect, empty_body, full_body};
use crate::telemetry::Metrics;

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

type Heads = Arc<Mutex<Vec<String>>>;

struct Rig {
    store: S3Store,
    /// The heads that each region got.
    one: Heads,
    two: Heads,
}

fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

async fn serve(mut stream: TcpStream, heads: Heads, answer: String) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        while !read.windows(4).any(|four| four == b"\r\n\r\n") {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        // The bodies of these tests come with their heads.
        heads.lock().expect("no panic").push(String::from_utf8_lossy(&read).to_ascii_lowercase());
        read.clear();
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn listen(listener: TcpListener, answer: String) -> Heads {
    let heads = Heads::default();
    let shared = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&shared), answer.clone()));
        }
    });
    heads
}

impl Rig {
    /// A store whose first region says `away`, where `PORT` stands for the port of both.
    async fn new(addressing: Addressing, away: &str) -> Self {
        Self::between(addressing, away, "HTTP/1.1 200 Fine\r\ncontent-length: 5\r\n\r\nwhole").await
    }

    /// The same, whose second region says `there`.
    async fn between(addressing: Addressing, away: &str, there: &str) -> Self {
        let (one, two) = loop {
            let one = TcpListener::bind((ONE, 0)).await.expect("a free port");
            let port = one.local_addr().expect("bound").port();
            if let Ok(two) = TcpListener::bind((TWO, port)).await {
                break (one, two);
            }
        };
        let port = one.local_addr().expect("bound").port();
        let resolve: Resolve = Arc::new(|host, port| {
            let address = match host.strip_prefix("bucket.").unwrap_or(&host) {
                "s3.one.store.test" => ONE,
                "s3.two.store.test" => TWO,
                other => panic!("{other} is nobody's"),
            };
            Box::pin(async move { Ok(vec![SocketAddr::from((address, port))]) })
        });
        let second = Duration::from_secs(1);
        Self {
            store: S3Store {
                clients: clients_resolving(resolve, second, second, 16, false, None).expect("no certificates"),
                scheme: Scheme::HTTP,
                authority: Authority::try_from(format!("s3.one.store.test:{port}")).expect("valid"),
                base_path: String::new(),
                addressing,
                credentials: Credentials::Static(Arc::new(KeyPair::new("AK", "SK", None).expect("valid"))),
                signer: Arc::new(Signer::new("one")),
                learnt: Learnt::default(),
                now: clock,
                metrics: Metrics::new().backend("b"),
            },
            one: listen(one, away.replace("PORT", &port.to_string())),
            two: listen(two, there.replace("PORT", &port.to_string())),
        }
    }

    async fn read(&self) -> (StatusCode, bytes::Bytes) {
        let response = self.store.read(&ReadAsk::plain("bucket", "k")).await.expect("answered");
        let status = response.status();
        (status, collect(response.into_body(), 100).await.expect("whole"))
    }

    /// Status of the answer to a PUT, and whether it is to be sent again.
    async fn write(&self, body: &'static str) -> (StatusCode, bool) {
        self.forward(Method::PUT, body).await
    }

    async fn forward(&self, method: Method, body: &'static str) -> (StatusCode, bool) {
        self.forward_to("/bucket/k", method, body).await
    }

    async fn forward_to(&self, path: &'static str, method: Method, body: &'static str) -> (StatusCode, bool) {
        let mut request = Request::new(if body.is_empty() { empty_body() } else { full_body(body) });
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_static(path);
        request.headers_mut().insert("x-amz-content-sha256", HeaderValue::from_static(EMPTY_SHA256));
        let response = self.store.forward(request).await.expect("answered");
        (response.status(), response.extensions().get::<Taught>().is_some())
    }

    fn counts(&self) -> (usize, usize) {
        (self.one.lock().expect("no panic").len(), self.two.lock().expect("no panic").len())
    }
}

const PASSING: &str = "HTTP/1.1 307 Away\r\nlocation: http://bucket.s3.two.store.test:PORT/k\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_redirect_within_the_store_is_followed_and_signed_for_where_it_leads() {
    let moved = "HTTP/1.1 301 Away\r\nx-amz-bucket-region: two\r\ncontent-length: 0\r\n\r\n";
    for (addressing, host, path) in
        [(Addressing::Path, "s3.two.store.test", "/bucket/k"), (Addressing::Virtual, "bucket.s3.two.store.test", "/k")]
    {
        for away in [PASSING, moved] {
            let rig = Rig::new(addressing, away).await;
            for _ in 0..3 {
                assert_eq!(rig.read().await, (StatusCode::OK, "whole".into()));
            }
            assert_eq!(rig.counts(), (1, 3), "it is learnt once");
            for head in rig.two.lock().expect("no panic").iter() {
                assert!(
                    head.starts_with(&format!("get {path} http/1.1\r\n")) && head.contains(&format!("host: {host}:")),
                    "{head}"
                );
                assert!(head.contains("/two/s3/aws4_request"), "{head}");
            }
        }
    }
}

#[tokio::test]
async fn a_write_is_not_sent_again_from_here() {
    let rig = Rig::new(Addressing::Path, PASSING).await;
    assert_eq!(rig.write("body").await, (StatusCode::TEMPORARY_REDIRECT, true));
    assert_eq!(rig.counts(), (1, 0));
    assert_eq!(rig.write("body").await, (StatusCode::OK, false));
    assert_eq!(rig.counts(), (1, 1));
}

#[tokio::test]
async fn what_has_no_body_is_sent_again_from_here_whatever_it_does() {
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let rig = Rig::new(Addressing::Path, PASSING).await;
        for _ in 0..2 {
            assert_eq!(rig.forward(method.clone(), "").await, (StatusCode::OK, false), "{method}");
        }
        assert_eq!(rig.counts(), (1, 2), "{method}");
        let (one, two) = (rig.one.lock().expect("no panic"), rig.two.lock().expect("no panic"));
        assert!([&one[0], &two[0], &two[1]].iter().all(|head| head.starts_with(&method.as_str().to_ascii_lowercase())), "{two:?}");
    }
}

#[tokio::test]
async fn a_new_bucket_is_made_where_its_making_was_led() {
    for path in ["/bucket", "/bucket/"] {
        let rig = Rig::new(Addressing::Path, PASSING).await;
        assert_eq!(rig.forward_to(path, Method::PUT, "").await, (StatusCode::OK, false));
        assert_eq!(rig.counts(), (1, 1));
        let rig = Rig::new(Addressing::Path, PASSING).await;
        assert_eq!(rig.forward_to(path, Method::PUT, "<Create/>").await, (StatusCode::TEMPORARY_REDIRECT, true));
        assert_eq!(rig.store.region_to_make(&path.parse().expect("a path")).as_deref(), Some("two"));
        assert_eq!(
            rig.forward_to(path, Method::PUT, "<Create/>").await,
            (StatusCode::OK, false),
            "its client was asked to try again"
        );
        assert_eq!(rig.counts(), (1, 1));
        assert_eq!(rig.read().await.0, StatusCode::OK);
        assert_eq!(rig.counts(), (1, 2), "and it is there");
        assert_eq!(rig.forward_to(path, Method::DELETE, "").await, (StatusCode::OK, false));
        assert_eq!(rig.forward_to(path, Method::PUT, "<Create/>").await, (StatusCode::TEMPORARY_REDIRECT, true), "another bucket");
        assert_eq!(rig.counts(), (2, 3));
    }
}

#[tokio::test]
async fn where_a_bucket_was_is_not_where_another_is_made() {
    let rig = Rig::new(Addressing::Path, PASSING).await;
    assert_eq!(rig.read().await.0, StatusCode::OK);
    assert_eq!(rig.counts(), (1, 1));
    assert_eq!(rig.store.region_to_make(&"/bucket".parse().expect("a path")), None);
    assert_eq!(rig.forward_to("/bucket", Method::PUT, "<Create/>").await, (StatusCode::TEMPORARY_REDIRECT, true));
    assert_eq!(rig.counts(), (2, 1), "it was asked for here first");
}

#[tokio::test]
async fn a_store_that_sends_round_in_circles_is_followed_twice() {
    let rig = Rig::between(Addressing::Path, PASSING, &PASSING.replace(".two.", ".one.")).await;
    assert_eq!(rig.forward(Method::GET, "").await, (StatusCode::TEMPORARY_REDIRECT, true));
    assert_eq!(rig.counts(), (2, 1));
    assert_eq!(rig.read().await.0, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(rig.counts(), (3, 3), "it began where the bucket was last said to be");
}

#[tokio::test]
async fn what_leads_out_of_the_store_is_left_as_it_is() {
    for location in
        ["http://bucket.s3.two.evil.test:PORT/k", "http://127.0.0.2:PORT/bucket/k", "http://s3.two.store.test:1/bucket/k"]
    {
        let rig = Rig::new(Addressing::Path, &PASSING.replace("http://bucket.s3.two.store.test:PORT/k", location)).await;
        assert_eq!(rig.read().await.0, StatusCode::TEMPORARY_REDIRECT, "{location}");
        assert_eq!(rig.write("body").await, (StatusCode::TEMPORARY_REDIRECT, false));
        assert_eq!(rig.counts(), (2, 0));
    }
}
