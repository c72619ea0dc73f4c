//! Many entries against a scripted endpoint on loopback: what it is asked for, and what is made of what it answers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::backend::s3::credentials::{Credentials, KeyPair};
use crate::client::EndpointConfig;
use crate::config::Addressing;

const BOUNDARY: &str = "00112233445566778899aabbccddeeff";
const CAPABILITIES: &str = r#"{"Version": 1, "Formats": ["multipart/mixed"], "Limits": {"Entries": 4, "BodyBytes": 16384}}"#;

#[derive(Clone, Debug, Default)]
struct Seen {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
    /// How many of the same method and path there were before.
    before: usize,
}

impl Seen {
    fn keys(&self) -> Vec<String> {
        let request: Value = serde_json::from_slice(&self.body).unwrap();
        request["Objects"].as_array().unwrap().iter().map(|object| object["Key"].as_str().unwrap().to_owned()).collect()
    }
}

fn http(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn s3_error(status: u16, code: &str) -> Vec<u8> {
    http(status, "", format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

fn body_of(key: &str) -> String {
    format!("body of {key}").repeat(if key.starts_with("large") { 20_000 } else { 3 })
}

/// A right answer to a batch; keys that begin with `missing` are not there.
fn batch(seen: &Seen) -> Vec<u8> {
    let mut text = String::new();
    for (index, key) in seen.keys().iter().enumerate() {
        let (status, body) = match key.starts_with("missing") {
            true => (404, "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
            false => (200, body_of(key)),
        };
        let head = format!("content-length: {}\r\ncontent-id: <{index}@r>\r\nbatch-status: {status}\r\netag: \"e\"", body.len());
        text += &format!("--{BOUNDARY}\r\n{head}\r\n\r\n{body}\r\n");
    }
    text += &format!("--{BOUNDARY}--\r\n");
    http(200, &format!("content-type: multipart/mixed; boundary={BOUNDARY}\r\nbatch-count: {}\r\n", seen.keys().len()), text)
}

/// As a store or a gateway would answer, where a test says nothing else.
fn gateway(seen: &Seen) -> Vec<u8> {
    match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/?batch-get=") => http(200, "", CAPABILITIES),
        ("POST", _) => batch(seen),
        _ => s3_error(405, "MethodNotAllowed"),
    }
}

fn store(seen: &Seen) -> Vec<u8> {
    let key = seen.path.rsplit('/').next().unwrap();
    match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/?batch-get=") => http(200, "", "<ListAllMyBucketsResult/>"),
        _ if key.starts_with("missing") => s3_error(404, "NoSuchKey"),
        _ => http(200, "", body_of(key)),
    }
}

/// The octets of a right answer up to a little behind `mark`.
fn cut_behind(answer: Vec<u8>, mark: &str) -> Vec<u8> {
    let at = memchr::memmem::find(&answer, mark.as_bytes()).expect("the mark is there");
    answer[..at + mark.len()].to_vec()
}

struct Scripted {
    seen: Arc<Mutex<Vec<Seen>>>,
    most_at_once: Arc<Mutex<(usize, usize)>>,
    endpoint: Arc<Endpoint>,
}

impl Scripted {
    async fn start(answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = endpoint(&format!("http://{}", listener.local_addr().unwrap()));
        let seen = Arc::new(Mutex::new(Vec::<Seen>::new()));
        let most_at_once = Arc::new(Mutex::new((0, 0)));
        let (log, at_once) = (Arc::clone(&seen), Arc::clone(&most_at_once));
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, at_once, answer) = (Arc::clone(&log), Arc::clone(&at_once), Arc::clone(&answer));
                tokio::spawn(async move {
                    let (mut seen, mut stream) = receive(stream).await;
                    {
                        let mut log = log.lock().unwrap();
                        seen.before = log.iter().filter(|s| (&s.method, &s.path) == (&seen.method, &seen.path)).count();
                        log.push(seen.clone());
                        let mut at_once = at_once.lock().unwrap();
                        at_once.0 += 1;
                        at_once.1 = at_once.1.max(at_once.0);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    at_once.lock().unwrap().0 -= 1;
                    let _ = stream.write_all(&answer(&seen)).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { seen, most_at_once, endpoint }
    }

    fn many(&self, keys: &[&str]) -> Many {
        Self::many_of(&self.endpoint, keys)
    }

    /// As [`Scripted::many`], with `path` behind the host of the endpoint's URL.
    fn many_below(&self, path: &str, keys: &[&str]) -> Many {
        Self::many_of(&endpoint(&format!("{}{path}", self.endpoint.url())), keys)
    }

    fn many_of(endpoint: &Arc<Endpoint>, keys: &[&str]) -> Many {
        let entries: Vec<_> = keys.iter().map(|key| Entry::new(*key)).collect();
        let config = ManyConfig { backoff_base: Duration::from_millis(1), gets_max: 3, ..ManyConfig::new(Some("b".into())) };
        Many::new(Arc::clone(endpoint), entries.into(), config)
    }

    fn paths(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.path.clone()).collect()
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.method == "POST").map(Seen::keys).collect()
    }
}

fn endpoint(url: &str) -> Arc<Endpoint> {
    let config = EndpointConfig {
        url: url.to_owned(),
        region: "us-east-1".into(),
        addressing: Addressing::Path,
        credentials: Credentials::Static(Arc::new(KeyPair::new("AK", "SK", None).unwrap())),
        ca_file: None,
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        idle_connections_max: 8,
    };
    Arc::new(Endpoint::new(config, || SystemTime::UNIX_EPOCH).unwrap())
}

async fn receive(stream: TcpStream) -> (Seen, TcpStream) {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
    let headers: HashMap<_, _> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let mut words = lines.first().map(String::as_str).unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    (Seen { method, path, headers, body, before: 0 }, stream.into_inner())
}

/// What came of each entry, in the order in which it came, and what was said besides.
#[derive(Debug, Default, PartialEq)]
struct Told {
    entries: Vec<(usize, String)>,
    falls_back: usize,
    retries: usize,
}

/// Reads to the end. Asserts that events come as they must.
async fn read(many: &mut Many) -> Result<Told, ClientError> {
    let mut told = Told::default();
    let mut open: Option<(usize, u64, String)> = None;
    while let Some(event) = many.next().await? {
        match event {
            Event::FallsBack => told.falls_back += 1,
            Event::Retries { .. } => {
                told.retries += 1;
                open = None;
            }
            Event::Begins(head) => {
                assert!(open.is_none(), "an entry begins inside another");
                open = Some((head.index, head.length, String::new()));
            }
            Event::Data(data) => open.as_mut().unwrap().2.push_str(std::str::from_utf8(&data).unwrap()),
            Event::Ends => {
                let (index, length, body) = open.take().unwrap();
                assert_eq!(body.len() as u64, length);
                told.entries.push((index, body));
            }
            Event::Fails { index, error } => {
                open = None;
                told.entries.push((index, format!("{error}")));
            }
        }
    }
    assert!(open.is_none());
    Ok(told)
}

fn bodies(keys: &[&str]) -> Vec<(usize, String)> {
    let what = |key: &&str| if key.starts_with("missing") { "404 NoSuchKey".to_owned() } else { body_of(key) };
    keys.iter().map(what).enumerate().collect()
}

#[tokio::test]
async fn a_list_is_cut_at_the_limits_and_comes_back_in_order() {
    let endpoint = Scripted::start(gateway).await;
    let keys = ["a", "b", "missing", "c", "large", "d", "a", "e", "f"];
    let told = read(&mut endpoint.many(&keys)).await.unwrap();
    assert_eq!(told, Told { entries: bodies(&keys), ..Told::default() });
    assert_eq!(endpoint.batches(), [&keys[..4], &keys[4..8], &keys[8..]]);
}

#[tokio::test]
async fn an_empty_list_asks_for_nothing() {
    let endpoint = Scripted::start(gateway).await;
    assert_eq!(read(&mut endpoint.many(&[])).await.unwrap(), Told::default());
    assert!(endpoint.seen.lock().unwrap().is_empty());
}

#[test]
fn a_batch_ends_at_the_limit_of_entries_or_of_bytes() {
    let entries: Vec<_> = (0..10).map(|i| Entry::new(format!("{i}{}", "k".repeat(99)))).collect();
    assert_eq!(batch_end(&entries, 0, 100, 1 << 20), 10);
    assert_eq!(batch_end(&entries, 3, 4, 1 << 20), 7);
    assert_eq!(batch_end(&entries, 9, 4, 0), 10, "one at the least");
    let end = batch_end(&entries, 2, 100, 800);
    assert!((4..7).contains(&end), "{end}");
    assert!(BatchRequest::new(&entries[2..end]).to_json().len() <= 800);
}

#[tokio::test]
async fn after_a_break_the_first_incomplete_entry_is_asked_for_again() {
    let endpoint = Scripted::start(|seen| match (seen.method.as_str(), seen.before) {
        // In the middle of a body, behind a body that is whole, and in the middle of a head.
        ("POST", 0) => cut_behind(batch(seen), "body of bbo"),
        ("POST", 1) => cut_behind(batch(seen), &body_of("b")),
        ("POST", 2) => cut_behind(batch(seen), "content-id: <0"),
        _ => gateway(seen),
    })
    .await;
    let keys = ["a", "b", "c", "d", "e"];
    let told = read(&mut endpoint.many(&keys)).await.unwrap();
    assert_eq!(told, Told { entries: bodies(&keys), retries: 3, ..Told::default() });
    assert_eq!(endpoint.batches(), [&keys[..4], &keys[1..], &keys[2..], &keys[2..]]);
}

#[tokio::test]
async fn what_was_whole_before_the_closing_delimiter_broke_off_is_not_asked_for_again() {
    let endpoint = Scripted::start(|seen| match seen.method.as_str() {
        "POST" => cut_behind(batch(seen), &body_of("b")),
        _ => gateway(seen),
    })
    .await;
    let told = read(&mut endpoint.many(&["a", "b"])).await.unwrap();
    assert_eq!(told, Told { entries: bodies(&["a", "b"]), ..Told::default() });
    assert_eq!(endpoint.batches().len(), 1);
}

#[tokio::test]
async fn an_entry_that_always_breaks_off_fails_alone() {
    let endpoint = Scripted::start(|seen| match seen.method.as_str() {
        "POST" if seen.keys().iter().any(|key| key == "bad") => cut_behind(batch(seen), "body of badbody"),
        _ => gateway(seen),
    })
    .await;
    let told = read(&mut endpoint.many(&["a", "bad", "c"])).await.unwrap();
    assert_eq!((told.retries, told.entries.len()), (5, 3));
    assert!(told.entries[1].1.starts_with("the answer broke off"), "{told:?}");
    assert_eq!(told.entries[2], (2, body_of("c")));
}

#[tokio::test]
async fn one_entry_after_another_that_breaks_off_ends_all() {
    for by_batch in [true, false] {
        let endpoint = Scripted::start(move |seen| match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", "/?batch-get=") if !by_batch => store(seen),
            ("POST", _) if seen.keys()[0].starts_with("bad") => cut_behind(batch(seen), "body of bad"),
            ("GET", path) if path.starts_with("/b/bad") => cut_behind(store(seen), "body of bad"),
            ("POST", _) if seen.keys().len() > 1 => cut_behind(batch(seen), &body_of(&seen.keys()[0])),
            ("GET", path) if path.starts_with("/b/") => store(seen),
            _ => gateway(seen),
        })
        .await;
        // Four in a row are the matter of these four.
        let keys = ["bad1", "bad2", "bad3", "bad4", "a", "bad5"];
        let told = read(&mut endpoint.many(&keys)).await.unwrap();
        assert_eq!((told.entries.len(), &told.entries[4]), (6, &(4, body_of("a"))), "{told:?}");
        let keys: Vec<_> = (0..1000).map(|i| format!("bad{i}")).collect();
        let mut many = endpoint.many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        let error = read(&mut many).await.unwrap_err();
        assert!(matches!(&error, ClientError::Broken(what) if what.starts_with("5 objects in a row")), "{error}");
    }
}

#[tokio::test]
async fn an_endpoint_that_brings_nothing_ends_all_after_a_bounded_number_of_attempts() {
    let endpoint = Scripted::start(|seen| match seen.method.as_str() {
        "POST" => cut_behind(batch(seen), BOUNDARY),
        _ => gateway(seen),
    })
    .await;
    let error = read(&mut endpoint.many(&["a", "b"])).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
    assert_eq!(endpoint.batches().len(), 6);
}

#[tokio::test]
async fn a_busy_endpoint_is_asked_again() {
    let endpoint = Scripted::start(|seen| match (seen.path.as_str(), seen.before) {
        (_, 0) => http(503, "retry-after: 0\r\n", "<Error><Code>SlowDown</Code></Error>"),
        _ => gateway(seen),
    })
    .await;
    let told = read(&mut endpoint.many(&["a"])).await.unwrap();
    assert_eq!(told, Told { entries: bodies(&["a"]), retries: 2, ..Told::default() });
}

#[tokio::test]
async fn answers_against_the_contract_end_all() {
    let wrong: [fn(&Seen) -> Vec<u8>; 3] = [
        // Another count, an entry that is not there and one twice, another type.
        |seen| String::from_utf8(batch(seen)).unwrap().replace("batch-count: 2", "batch-count: 1").into_bytes(),
        |seen| String::from_utf8(batch(seen)).unwrap().replace("<0@", "<1@").into_bytes(),
        |_| http(200, "content-type: application/json\r\nbatch-count: 2\r\n", "{}"),
    ];
    for (at, answer) in wrong.into_iter().enumerate() {
        let endpoint = Scripted::start(move |seen| match seen.method.as_str() {
            "POST" => answer(seen),
            _ => gateway(seen),
        })
        .await;
        let told = read(&mut endpoint.many(&["a", "b"])).await;
        assert!(matches!(told, Err(ClientError::Wrong(_))), "{at}: {told:?}");
        assert_eq!(endpoint.batches().len(), 1, "{at}");
    }
}

/// What a batch and a GET with this status and these headers come to for an entry.
async fn answered(entry: &Entry, status: u16, headers: &'static str, body: &'static str) -> [Result<Told, ClientError>; 2] {
    let mut both = Vec::new();
    for by_batch in [true, false] {
        let endpoint = Scripted::start(move |seen| match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", "/?batch-get=") if by_batch => gateway(seen),
            ("GET", "/?batch-get=") => store(seen),
            ("GET", _) => http(status, headers, body),
            _ => {
                let head = format!("content-length: {}\r\ncontent-id: <0@r>\r\nbatch-status: {status}\r\n{headers}", body.len());
                let text = format!("--{BOUNDARY}\r\n{head}\r\n{body}\r\n--{BOUNDARY}--\r\n");
                http(200, &format!("content-type: multipart/mixed; boundary={BOUNDARY}\r\nbatch-count: 1\r\n"), text)
            }
        })
        .await;
        let config = ManyConfig { backoff_base: Duration::from_millis(1), ..ManyConfig::new(Some("b".into())) };
        both.push(read(&mut Many::new(Arc::clone(&endpoint.endpoint), vec![entry.clone()].into(), config)).await);
    }
    both.try_into().expect("both")
}

#[tokio::test]
async fn the_bytes_of_something_else_are_never_taken_for_an_entry() {
    let plain = Entry::new("k");
    let ranged = Entry { range: Some("bytes=2-3".into()), ..plain.clone() };
    let unless = Entry { if_none_match: Some("\"e\"".into()), ..plain.clone() };
    for (entry, status, headers, body) in [
        (&plain, 206, "content-range: bytes 0-1/9\r\n", "ab"),
        (&plain, 304, "", ""),
        (&ranged, 200, "", "abcdefghi"),
        (&ranged, 206, "content-range: bytes 0-1/9\r\n", "ab"),
        (&ranged, 206, "", "ab"),
        (&ranged, 304, "", ""),
        (&plain, 302, "location: /\r\n", ""),
    ] {
        let [batch, get] = answered(entry, status, headers, body).await;
        assert!(matches!(batch, Err(ClientError::Wrong(_))), "{entry:?} {status} {headers}: {batch:?}");
        let told = get.unwrap().entries;
        assert!(told.len() == 1 && told[0].1 != body, "{entry:?} {status} {headers}: {told:?}");
        assert!(status == 302 || told[0].1.starts_with("the answer is not a right one"), "{told:?}");
    }
    for (entry, status, headers, body) in
        [(&ranged, 206, "content-range: bytes 2-3/9\r\n", "cd"), (&unless, 304, "", ""), (&unless, 200, "", "abc")]
    {
        for told in answered(entry, status, headers, body).await {
            assert_eq!(told.unwrap().entries, [(0, body.to_owned())], "{entry:?} {status}");
        }
    }
}

#[tokio::test]
async fn without_batch_get_there_are_gets_with_the_same_events() {
    let endpoint = Scripted::start(store).await;
    let keys = ["a", "missing", "large-1", "b", "large-2", "a", "c", "d"];
    let told = read(&mut endpoint.many(&keys)).await.unwrap();
    let entries: Vec<_> = bodies(&keys).into_iter().map(|(i, body)| (i, body.replace("NoSuchKey", "NoSuchKey: m"))).collect();
    assert_eq!(told, Told { entries, falls_back: 1, retries: 0 });
    assert!((2..=3).contains(&endpoint.most_at_once.lock().unwrap().1));
}

#[tokio::test]
async fn which_answers_to_the_probe_mean_gets_and_which_are_errors() {
    let falls_back = [
        (200, "", "{\"Version\": 2}"),
        (204, "", ""),
        (200, "", "[]"),
        (403, "AccessDenied", ""),
        (400, "InvalidRequest", ""),
        (404, "NoSuchBucket", ""),
        (405, "MethodNotAllowed", ""),
        (501, "NotImplemented", ""),
    ];
    let errors = [
        (403, "InvalidAccessKeyId", ""),
        (403, "SignatureDoesNotMatch", ""),
        (403, "RequestTimeTooSkewed", ""),
        (400, "AuthorizationHeaderMalformed", ""),
        (400, "ExpiredToken", ""),
        (400, "InvalidToken", ""),
        (400, "TokenRefreshRequired", ""),
        (500, "InternalError", ""),
        (307, "TemporaryRedirect", ""),
    ];
    for (probe, gets) in falls_back.iter().map(|probe| (probe, true)).chain(errors.iter().map(|probe| (probe, false))) {
        let (status, code, body) = *probe;
        let endpoint = Scripted::start(move |seen| match seen.path.as_str() {
            "/?batch-get=" if code.is_empty() => http(status, "", body),
            "/?batch-get=" => s3_error(status, code),
            _ => store(seen),
        })
        .await;
        let told = read(&mut endpoint.many(&["a"])).await;
        match gets {
            true => assert_eq!(told.expect("a fallback"), Told { entries: bodies(&["a"]), falls_back: 1, retries: 0 }, "{probe:?}"),
            false => assert!(matches!(told, Err(ClientError::Refused(r)) if r.code == code), "{probe:?}"),
        }
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = ManyConfig::new(Some("b".into()));
    let mut many = Many::new(self::endpoint(&format!("http://{nobody}")), vec![Entry::new("a")].into(), config);
    assert!(matches!(many.next().await, Err(ClientError::Unreachable(_))));
}

#[tokio::test]
async fn a_version_is_all_that_an_endpoint_must_say() {
    let endpoint = Scripted::start(|seen| match seen.path.as_str() {
        "/?batch-get=" => http(200, "", r#"{"Version": 1, "Later": true}"#),
        _ => gateway(seen),
    })
    .await;
    let keys = ["a", "b", "c", "d", "e"];
    assert_eq!(read(&mut endpoint.many(&keys)).await.unwrap().entries, bodies(&keys));
    assert_eq!(endpoint.batches(), [keys]);
}

#[tokio::test]
async fn a_get_that_breaks_off_or_lies_is_seen() {
    let endpoint = Scripted::start(|seen| match (seen.path.rsplit('/').next().unwrap(), seen.before) {
        ("breaks", 0) => cut_behind(store(seen), "body of breaksbody"),
        ("busy", 0) => s3_error(503, "SlowDown"),
        ("always-busy", _) => s3_error(503, "SlowDown"),
        ("lies", _) => http(206, "", "x"),
        ("endless", _) => b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_vec(),
        _ => store(seen),
    })
    .await;
    let keys = ["a", "breaks", "busy", "always-busy", "lies", "endless", "z"];
    let told = read(&mut endpoint.many(&keys)).await.unwrap();
    assert_eq!((told.retries, told.entries.len()), (1 + 1 + 5, keys.len()));
    for whole in [0, 1, 2, 6] {
        assert_eq!(told.entries[whole], (whole, body_of(keys[whole])));
    }
    assert!(told.entries[3].1.starts_with("503 SlowDown"));
    assert!(told.entries[4].1.contains("its status is 206 where 200 is due"));
    assert!(told.entries[5].1.contains("does not say how long it is"));
}

#[tokio::test]
async fn what_is_wrong_with_whoever_asks_ends_all_gets() {
    let endpoint = Scripted::start(|seen| match seen.path.as_str() {
        "/b/b" => s3_error(400, "ExpiredToken"),
        _ => store(seen),
    })
    .await;
    let mut many = endpoint.many(&["a", "b", "c"]);
    let error = read(&mut many).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.code == "ExpiredToken"));
}

#[tokio::test]
async fn an_entry_is_asked_for_by_a_get_as_in_a_batch() {
    let endpoint = Scripted::start(|seen| match seen.path.as_str() {
        "/?batch-get=" => store(seen),
        _ => http(206, "content-range: bytes 0-1/9\r\n", "ab"),
    })
    .await;
    let entry = Entry {
        bucket: Some("other".into()),
        version_id: Some("v 1".into()),
        range: Some("bytes=0-1".into()),
        if_match: Some("\"e\"".into()),
        ..Entry::new("a b/é")
    };
    let mut many = Many::new(Arc::clone(&endpoint.endpoint), vec![entry].into(), ManyConfig::new(None));
    assert_eq!(read(&mut many).await.unwrap().entries, [(0, "ab".to_owned())]);
    let seen = endpoint.seen.lock().unwrap();
    assert_eq!(seen[1].path, "/other/a%20b/%C3%A9?versionId=v%201");
    assert_eq!((seen[1].headers["range"].as_str(), seen[1].headers["if-match"].as_str()), ("bytes=0-1", "\"e\""));
}

/// The answer to a request below `/data/v1`, as if it was at the root.
fn below(seen: &Seen, answer: fn(&Seen) -> Vec<u8>) -> Vec<u8> {
    match seen.path.strip_prefix("/data/v1/") {
        Some(rest) => answer(&Seen { path: format!("/{rest}"), ..seen.clone() }),
        None => s3_error(400, "InvalidURI"),
    }
}

#[tokio::test]
async fn all_paths_begin_with_that_of_the_endpoint() {
    for slashes in ["", "/", "//"] {
        let endpoint = Scripted::start(|seen| below(seen, gateway)).await;
        let told = read(&mut endpoint.many_below(&format!("/data/v1{slashes}"), &["a", "b"])).await.unwrap();
        assert_eq!(told, Told { entries: bodies(&["a", "b"]), ..Told::default() });
        assert_eq!(endpoint.paths(), ["/data/v1/?batch-get=", "/data/v1/b?batch-get="]);
    }
    let endpoint = Scripted::start(|seen| below(seen, store)).await;
    let keys = ["//a/../b%20", "data/v1"];
    let told = read(&mut endpoint.many_below("/data/v1", &keys)).await.unwrap();
    assert_eq!((told.falls_back, told.entries.len(), told.retries), (1, 2, 0));
    let mut paths = endpoint.paths();
    paths.sort();
    assert_eq!(paths, ["/data/v1/?batch-get=", "/data/v1/b///a/../b%2520", "/data/v1/b/data/v1"]);
}

#[tokio::test]
async fn a_path_that_is_another_is_no_reason_to_fall_back() {
    // A gateway below another path says so; one at the root takes the path's first segment for a bucket.
    let elsewhere = Scripted::start(|seen| below(seen, gateway)).await;
    let at_the_root = Scripted::start(|_| s3_error(404, "NoSuchBucket")).await;
    let named = "<Error><Code>NotImplemented</Code><BucketName>data</BucketName></Error>";
    let over_another = Scripted::start(move |_| http(501, "", named)).await;
    for (endpoint, path, says) in [
        (&elsewhere, "", "there is no S3 at this path: 400 InvalidURI: m"),
        (&elsewhere, "/data", "there is no S3 at this path: 400 InvalidURI: m"),
        (&at_the_root, "/data/v1", "there is no S3 at this path: 404 NoSuchBucket: /data/v1 is taken for a bucket"),
        (&over_another, "/data/v1", "there is no S3 at this path: 501 NotImplemented: /data/v1 is taken for a bucket"),
    ] {
        let error = read(&mut endpoint.many_below(path, &["a"])).await.unwrap_err();
        assert_eq!(error.to_string(), says, "{path}");
    }
    assert_eq!((elsewhere.paths().len(), at_the_root.paths().len()), (2, 1), "each is asked once");
    // Without a path it is but a store that has no BatchGet.
    assert_eq!(read(&mut at_the_root.many(&["a"])).await.unwrap().falls_back, 1);
}
