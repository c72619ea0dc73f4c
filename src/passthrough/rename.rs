//! Answers that name the bucket or the store, as their client may see them. What enters is the body of an answer of S3 in XML; what
//! leaves is the same body, but for the text of a few elements below its root: on a renamed bucket its name, and on any bucket what
//! would show the store's address. The list is [`Names::replacement`]; answers with another root go through as they are.
//!
//! Invariant: it streams, and holds no more than one tag or one of those elements, [`HELD_BYTES_MAX`] at the most; a body that breaks
//! off in such an element is broken, and nothing of the element is let out.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use crate::backend::{Body, BoxError};
use crate::error::xml::escape;

/// Longest tag, or element that is replaced, in bytes: the longest key, escaped, and a host are far shorter.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// Roots of the answers that are looked into: listings, uploads in parts, errors.
const ROOTS: &[&str] = &[
    "CompleteMultipartUploadResult",
    "Error",
    "InitiateMultipartUploadResult",
    "ListBucketResult",
    "ListMultipartUploadsResult",
    "ListPartsResult",
    "ListVersionsResult",
];

/// What a client knows things by.
#[derive(Clone, Debug)]
pub struct Names {
    /// Names at the store and the client's: of the bucket, and then of the one that is copied from.
    pub buckets: Vec<(String, String)>,
    /// The host that the client asked.
    pub host: String,
    /// The URL that the client asked for, without a query.
    pub url: String,
    /// The path of that URL.
    pub path: String,
}

impl Names {
    /// What the element `name` below `root` says instead; nothing where it stays as it is.
    fn replacement(&self, root: &str, name: &str, content: &[u8]) -> Option<String> {
        let clients = || self.buckets.first().filter(|(stores, clients)| stores != clients).map(|(_, clients)| clients.clone());
        match (root, name) {
            (_, "Location") => Some(self.url.clone()),
            ("Error", "Endpoint") => Some(self.host.clone()),
            ("Error", "Resource") => self.resource(&text(content).unwrap_or_default()),
            ("ListBucketResult" | "ListVersionsResult", "Name") => clients(),
            ("ListBucketResult" | "ListVersionsResult", _) => None,
            // An error may be about the bucket that was to be copied from, or about none that the gateway knows.
            ("Error", "Bucket" | "BucketName") => self.bucket(&text(content).unwrap_or_default()),
            (_, "Bucket" | "BucketName") => clients(),
            _ => None,
        }
    }

    /// The client's name of a bucket, where it has another one.
    fn bucket(&self, said: &str) -> Option<String> {
        let (stores, clients) = self.buckets.iter().find(|(stores, _)| stores == said.trim())?;
        (stores != clients).then(|| clients.clone())
    }

    fn is_named(&self, root: &str, name: &str) -> bool {
        // Whatever the content is.
        (root == "Error" && matches!(name, "Bucket" | "BucketName" | "Resource")) || self.replacement(root, name, b"").is_some()
    }

    /// The path of an error, which begins with the bucket, with or without a slash before it.
    fn resource(&self, said: &str) -> Option<String> {
        if said.contains("://") {
            return Some(self.path.clone());
        }
        let path = said.strip_prefix('/').unwrap_or(said);
        let (name, rest) = path.split_at(path.find(['/', '?']).unwrap_or(path.len()));
        let clients = self.bucket(name)?;
        let slash = &said[..said.len() - path.len()];
        Some(format!("{slash}{clients}{rest}"))
    }
}

/// The text between two tags.
fn text(content: &[u8]) -> Option<String> {
    let mut reader = quick_xml::Reader::from_str(std::str::from_utf8(content).ok()?);
    let mut out = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Text(text) => out.push_str(&text),
            Event::CData(text) => out.push_str(&text),
            Event::GeneralRef(entity) => match entity.resolve_char_ref().ok()? {
                Some(character) => out.push(character),
                None => out.push_str(resolve_predefined_entity(&entity)?),
            },
            Event::Eof => return Some(out),
            _ => {}
        }
    }
}

/// The whole of `body`, rewritten.
///
/// # Errors
/// It ends within an element that is not for clients.
pub fn whole(body: &[u8], names: &Names) -> Result<Bytes, BoxError> {
    let mut scanner = Scanner::new(names.clone());
    scanner.held.extend_from_slice(body);
    scanner.ended = true;
    scanner.release()
}

/// `body`, rewritten as it streams by.
pub fn streamed(body: Body, names: Names) -> Body {
    Body::new(Renamed { inner: body, scanner: Scanner::new(names) })
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Between tags, or at one.
    Open,
    /// In a comment or the like, which ends with this.
    Until(&'static [u8]),
    /// What follows is of no interest.
    Behind,
}

struct Scanner {
    names: Names,
    /// Read but not yet passed on.
    held: BytesMut,
    place: Place,
    depth: u32,
    root: String,
    ended: bool,
}

/// What can be said of the held bytes.
enum Step {
    /// So many of them may go.
    Pass(usize),
    /// These go in place of so many.
    Put(usize, Vec<u8>),
    /// More must come.
    Wait,
}

impl Scanner {
    fn new(names: Names) -> Self {
        Self { names, held: BytesMut::new(), place: Place::Open, depth: 0, root: String::new(), ended: false }
    }

    /// What of the held bytes can go out now.
    fn release(&mut self) -> Result<Bytes, BoxError> {
        let mut out = BytesMut::new();
        while !self.held.is_empty() {
            match self.step()? {
                Step::Pass(count) if out.is_empty() && count == self.held.len() => return Ok(self.held.split().freeze()),
                Step::Pass(count) => out.extend_from_slice(&self.held.split_to(count)),
                Step::Put(count, text) => {
                    let _ = self.held.split_to(count);
                    out.extend_from_slice(&text);
                }
                Step::Wait if self.ended => out.extend_from_slice(&self.held.split()),
                Step::Wait => break,
            }
        }
        Ok(out.freeze())
    }

    fn step(&mut self) -> Result<Step, BoxError> {
        match self.place {
            Place::Behind => Ok(Step::Pass(self.held.len())),
            Place::Until(end) => Ok(match find(&self.held, end) {
                Some(at) => {
                    self.place = Place::Open;
                    Step::Pass(at + end.len())
                }
                None if self.held.len() < end.len() => Step::Wait,
                None => Step::Pass(self.held.len() - end.len() + 1),
            }),
            Place::Open => match self.held.iter().position(|b| *b == b'<') {
                None => Ok(Step::Pass(self.held.len())),
                Some(0) => self.tag(),
                Some(at) => Ok(Step::Pass(at)),
            },
        }
    }

    /// At a `<`.
    fn tag(&mut self) -> Result<Step, BoxError> {
        for (begin, end) in [(b"<!--".as_slice(), b"-->".as_slice()), (b"<![CDATA[", b"]]>"), (b"<?", b"?>"), (b"<!", b">")] {
            if self.held.starts_with(begin) {
                self.place = Place::Until(end);
                return Ok(Step::Pass(begin.len()));
            }
            if begin.starts_with(&self.held) && !self.ended {
                return Ok(Step::Wait);
            }
        }
        let Some(length) = tag_length(&self.held) else { return self.wait() };
        let tag = &self.held[..length];
        if tag.starts_with(b"</") {
            self.depth = self.depth.saturating_sub(1);
            if self.depth == 0 {
                self.place = Place::Behind;
            }
            return Ok(Step::Pass(length));
        }
        let closed = tag.ends_with(b"/>");
        let name = local_name(tag);
        if self.depth == 0 {
            if closed || !ROOTS.contains(&name) {
                self.place = Place::Behind;
            }
            self.root = name.to_owned();
        }
        if self.depth == 1 && !closed && self.names.is_named(&self.root, name) {
            let name = name.to_owned();
            return self.element(length, &name);
        }
        self.depth += u32::from(!closed);
        Ok(Step::Pass(length))
    }

    /// At an element whose text may not be for clients, behind whose first tag, so long, its content begins.
    fn element(&self, first: usize, name: &str) -> Result<Step, BoxError> {
        let Some((content, whole)) = element_length(&self.held, first) else { return self.wait() };
        let Some(text) = self.names.replacement(&self.root, name, &self.held[first..content]) else { return Ok(Step::Pass(whole)) };
        let mut escaped = String::new();
        escape(&mut escaped, &text);
        Ok(Step::Put(whole, [&self.held[..first], escaped.as_bytes(), &self.held[content..whole]].concat()))
    }

    /// For the end of a tag or of an element, within bounds.
    fn wait(&self) -> Result<Step, BoxError> {
        match self.ended || self.held.len() > HELD_BYTES_MAX {
            true if self.depth == 1 => Err("an element of the answer that does not end".into()),
            true => Ok(Step::Pass(self.held.len())),
            false => Ok(Step::Wait),
        }
    }
}

/// The length of the tag at the beginning of `text`, if all of it is there.
fn tag_length(text: &[u8]) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.iter().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    None
}

/// The name in a tag, without the prefix of its namespace.
fn local_name(tag: &[u8]) -> &str {
    let name = tag[1..].split(|b| b.is_ascii_whitespace() || matches!(b, b'>' | b'/')).next().unwrap_or_default();
    let name = std::str::from_utf8(name).unwrap_or_default();
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Where the content of the element at the beginning of `text` ends, and the element, if all of it is there. Its content begins
/// at `first`.
fn element_length(text: &[u8], first: usize) -> Option<(usize, usize)> {
    let (mut at, mut depth) = (first, 1);
    loop {
        at += text[at..].iter().position(|b| *b == b'<')?;
        let rest = &text[at..];
        let skipped = [(b"<!--".as_slice(), b"-->".as_slice()), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")];
        if let Some((_, end)) = skipped.into_iter().find(|(begin, _)| rest.starts_with(begin)) {
            at += find(rest, end)? + end.len();
            continue;
        }
        let length = tag_length(rest)?;
        match (rest.starts_with(b"</"), rest[..length].ends_with(b"/>")) {
            (true, _) if depth == 1 => return Some((at, at + length)),
            (true, _) => depth -= 1,
            (false, true) => {}
            (false, false) => depth += 1,
        }
        at += length;
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

struct Renamed {
    inner: Body,
    scanner: Scanner,
}

impl http_body::Body for Renamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.scanner.ended && self.scanner.held.is_empty() {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => self.scanner.held.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.scanner.ended = true,
            }
            let out = self.scanner.release()?;
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn names(renamed: bool) -> Names {
        Names {
            buckets: match renamed {
                true => vec![("new".to_owned(), "o&d".to_owned()), ("from".to_owned(), "sour<e".to_owned())],
                false => vec![("b".to_owned(), "b".to_owned()), ("b".to_owned(), "never".to_owned())],
            },
            host: "gate".into(),
            url: "http://gate/o&d/k".into(),
            path: "/o&d/k".into(),
        }
    }

    async fn through(frames: &[&[u8]], names: Names) -> Option<Vec<u8>> {
        let frames: Vec<_> = frames.iter().map(|f| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(f)))).collect();
        let body = Body::new(http_body_util::StreamBody::new(futures_util::stream::iter(frames)));
        Some(streamed(body, names).collect().await.ok()?.to_bytes().to_vec())
    }

    /// However it is cut, and as a whole.
    async fn rewritten(text: &str, renamed: bool) -> String {
        let once = whole(text.as_bytes(), &names(renamed)).expect("well-formed");
        for cut in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            let cut = through(&[a, b], names(renamed)).await.expect("well-formed");
            assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&once));
        }
        String::from_utf8(once.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn the_bucket_has_its_clients_name_in_listings() {
        for (stores, clients) in [
            (
                "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x>y\"><Name>new</Name><Prefix>new</Prefix><Contents><Key>new</Key>\
                 <Name>new</Name></Contents></ListBucketResult>\n",
                "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x>y\"><Name>o&amp;d</Name><Prefix>new</Prefix><Contents><Key>new</Key>\
                 <Name>new</Name></Contents></ListBucketResult>\n",
            ),
            (
                "<!-- <Name>new</Name> --><a:ListVersionsResult><a:Name x='>'><![CDATA[new</Name>]]></a:Name ></a:ListVersionsResult>",
                "<!-- <Name>new</Name> --><a:ListVersionsResult><a:Name x='>'>o&amp;d</a:Name ></a:ListVersionsResult>",
            ),
            (
                "<ListPartsResult><Bucket>n&#101;w</Bucket><Part/><Name>new</Name></ListPartsResult>",
                "<ListPartsResult><Bucket>o&amp;d</Bucket><Part/><Name>new</Name></ListPartsResult>",
            ),
            ("<ListBucketResult><Name/></ListBucketResult>", "<ListBucketResult><Name/></ListBucketResult>"),
        ] {
            assert_eq!(rewritten(stores, true).await, clients);
            assert_eq!(rewritten(stores, false).await, stores);
        }
    }

    #[tokio::test]
    async fn an_error_names_what_its_client_asked_for() {
        for (stores, clients) in [
            ("<BucketName>new</BucketName><Key>new</Key>", "<BucketName>o&amp;d</BucketName><Key>new</Key>"),
            ("<Resource>/new/new</Resource>", "<Resource>/o&amp;d/new</Resource>"),
            ("<Resource>new</Resource>", "<Resource>o&amp;d</Resource>"),
            ("<Bucket>n&#101;w</Bucket>", "<Bucket>o&amp;d</Bucket>"),
            ("<BucketName>from</BucketName>", "<BucketName>sour&lt;e</BucketName>"),
            ("<Resource>/from/k</Resource>", "<Resource>/sour&lt;e/k</Resource>"),
            ("<BucketName>other</BucketName>", "<BucketName>other</BucketName>"),
            ("<Resource>/newer/k</Resource>", "<Resource>/newer/k</Resource>"),
            ("<Resource>/other/&lt;k</Resource>", "<Resource>/other/&lt;k</Resource>"),
            ("<Resource><![CDATA[/new/a&b]]></Resource>", "<Resource>/o&amp;d/a&amp;b</Resource>"),
        ] {
            let document = |inner: &str| format!("<Error><Code>x</Code>{inner}<RequestId>r</RequestId></Error>");
            assert_eq!(rewritten(&document(stores), true).await, document(clients));
            assert_eq!(rewritten(&document(stores), false).await, document(stores));
        }
        let own = "<Error><BucketName>b</BucketName><Resource>/b/k</Resource></Error>";
        assert_eq!(rewritten(own, false).await, own, "the bucket that was asked for comes first");
    }

    #[tokio::test]
    async fn the_address_is_the_one_that_the_client_used() {
        let complete = "<?xml?>  <CompleteMultipartUploadResult><Location>http://10.0.0.1:8333/b/k</Location><Key>k</Key></CompleteMultipartUploadResult>";
        let shown = complete.replace("http://10.0.0.1:8333/b/k", "http://gate/o&amp;d/k");
        assert_eq!(rewritten(complete, false).await, shown);
        let error = "<Error><Endpoint>b.10.0.0.1:8333</Endpoint><Resource>http://10.0.0.1/new</Resource></Error>";
        assert_eq!(rewritten(error, false).await, "<Error><Endpoint>gate</Endpoint><Resource>/o&amp;d/k</Resource></Error>");
    }

    #[tokio::test]
    async fn what_does_not_end_is_never_let_out() {
        for text in
            ["<Error><Endpoint>10.0.0.1", "<Error><Endpoint>10.0.0.1</Endpoint", "<CompleteMultipartUploadResult><Location>h"]
        {
            assert_eq!(through(&[text.as_bytes()], names(false)).await, None, "{text}");
            assert!(whole(text.as_bytes(), &names(false)).is_err());
        }
        let endless = format!("<Error><Endpoint>{}", "10.0.0.1".repeat(HELD_BYTES_MAX));
        assert_eq!(through(&[endless.as_bytes(), b"</Endpoint></Error>"], names(false)).await, None, "it is bounded");
    }

    #[tokio::test]
    async fn all_else_goes_through_as_it_is() {
        for text in [
            "",
            "text < than",
            "<html><p>a<br>b</html>",
            "{\"a\": \"<Name>\"}",
            "<CopyObjectResult><Bucket>new</Bucket></CopyObjectResult>",
            "<ListBucketResult><Contents>",
            "<Error/><Error><BucketName>new</BucketName></Error>",
            "</a></b><!DOCTYPE x><ListBucketResult></x></ListBucketResult>",
            "<!",
            "<?xml",
        ] {
            assert_eq!(rewritten(text, true).await, text, "{text}");
        }
        assert_eq!(through(&[b"\xff\xfe<\x00"], names(true)).await.expect("opaque"), b"\xff\xfe<\x00");
    }
}
