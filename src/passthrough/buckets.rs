//! ListBuckets where more than one backend has buckets, or one has them by other names: each backend that a route leads to is asked
//! for all of its buckets, and those by which clients know them are put together in one list, sorted by name, page by page
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListBuckets.html>). A backend that does not answer fails the request, and is
//! named: half a list would look whole.
//!
//! Invariant: no more is held than one page of one backend and one page of the answer, and all of it is paid for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::deletes::Reserved;
use super::upload::{self, Carried};
use super::{Ask, Passthrough, Route, rewrite, xml_response};
use crate::auth::action::LIST_BUCKETS;
use crate::auth::{Payer, Permission, Scheme};
use crate::backend::{Backend, Body, empty_body};
use crate::error::xml::element;
use crate::error::{Error, Kind, Result};
use crate::types::{BucketName, percent_decode, query_pairs};

/// Most buckets of a page that a client may ask for, and those that it gets if it does not say (S3's own limit).
const PAGE_MAX: usize = 10_000;

/// Buckets that a backend is asked for at a time.
const ASKED_MAX: usize = 1000;

/// Largest page of a backend, in bytes: one that does not know pages sends all it has, ten thousand and more at 150 bytes each.
const ASKED_BYTES_MAX: usize = 4 << 20;

/// Most pages of a backend: a hundred thousand buckets.
const ASKED_PAGES_MAX: usize = 100;

/// What a bucket takes, in the list and in the answer: a name of 255 bytes and what is said of it, twice.
const BUCKET_BYTES: usize = 2048;

/// Longest text of a date, a region or an ARN.
const TEXT_BYTES_MAX: usize = 320;

/// Longest continuation token of a backend.
const TOKEN_BYTES_MAX: usize = 8192;

/// How deep an answer may nest.
const DEPTH_MAX: usize = 8;

/// What marks a continuation token as ours.
const TOKEN_MARK: &str = "behind:";

impl Passthrough {
    /// Whether it is a ListBuckets that no backend could answer alone: whatever was asked of a policy as that, though it has parameters
    /// that a store may take for something else.
    ///
    /// # Errors
    /// `NotImplemented` for anything else that names no bucket, where one backend's answer would be of buckets that no route leads to.
    pub(super) fn is_merged_list(&self, ask: &Ask<'_>, needed: &[Permission]) -> Result<bool> {
        let is_of_one = ask.target.bucket.is_some() || self.routes.first().is_none() || self.routes.whole(Arc::ptr_eq).is_some();
        match needed.first() {
            _ if is_of_one => Ok(false),
            Some(permission) if permission.action == LIST_BUCKETS => Ok(true),
            _ => {
                let message = "a request without a bucket can only be ListBuckets here: the buckets are on several backends, or have other \
                               names there";
                Err(Error::new(Kind::NotImplemented, message))
            }
        }
    }

    /// The buckets of all backends. A HEAD gets the head.
    pub(super) async fn list_buckets(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        if ask.head.method != Method::HEAD {
            return self.list_of_all(ask, body).await;
        }
        // The backends' lists must be read for it.
        let mut head = ask.head.clone();
        head.method = Method::GET;
        let (mut head, body) = self.list_of_all(Ask { head: &head, ..ask }, body).await?.into_parts();
        head.headers.extend(body.size_hint().exact().map(|bytes| (header::CONTENT_LENGTH, HeaderValue::from(bytes))));
        Ok(Response::from_parts(head, empty_body()))
    }

    async fn list_of_all(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        let query = query(&ask);
        let mut list = List::asked(&query)?;
        let mut owner = None;
        let mut reserved = Reserved::nothing(&self.memory);
        let backend = Arc::clone(self.routes.first().expect("there are routes"));
        let mut first = Route { backend, path: path(None, None)?, renamed: None, source: None, form: None };
        let mut headers = self.request_headers(&ask, &mut first)?;
        headers.remove(header::ACCEPT_ENCODING);
        let (payload, quirks) = (ask.authenticated.payload.clone(), first.backend.quirks);
        let (body, verdict) = upload::prepare(payload, Carried::Document, quirks, &mut headers, body, &mut reserved).await?;
        if !upload::settled(body).await.map_err(super::broken_request)?.is_end_stream() {
            return Err(Error::new(Kind::InvalidRequest, "ListBuckets has no body"));
        }
        headers.remove(header::CONTENT_LENGTH);
        for backend in self.routes.reachable(Arc::ptr_eq) {
            let named = ask.of_backend(&backend.name);
            let mut token: Option<String> = None;
            let mut pages = 0;
            loop {
                let path = path(token.as_deref(), list.region.as_deref())?;
                let route = Route { backend: Arc::clone(backend), path, renamed: None, source: None, form: None };
                let response = self.send(&ask, &route, headers.clone(), empty_body(), &verdict).await?;
                if response.status() != StatusCode::OK {
                    return Err(refused(&ask, backend, response.status()));
                }
                reserved.pay((list.kept.len() * BUCKET_BYTES + 2 * ASKED_BYTES_MAX) as u64).await?;
                let document = rewrite::whole(response.into_body(), ASKED_BYTES_MAX).await.map_err(&named)?;
                let page = Page::read(&document, |bucket| {
                    for name in self.routes.names_of(|other| Arc::ptr_eq(other, backend), &bucket.name) {
                        list.add(name, bucket);
                    }
                });
                let page = page.ok_or_else(|| named(Error::new(Kind::BadGateway, "a store's list of buckets cannot be read")))?;
                owner = owner.or(page.owner);
                pages += 1;
                token = page.token.filter(|token| !token.is_empty());
                if token.is_none() {
                    break;
                }
                if pages == ASKED_PAGES_MAX {
                    return Err(named(Error::new(Kind::BadGateway, "a store's list of buckets does not end")));
                }
            }
        }
        reserved.pay((list.kept.len() * BUCKET_BYTES) as u64).await?;
        Ok(xml_response(list.finish(owner)))
    }
}

/// The query without a signature.
fn query<'a>(ask: &Ask<'a>) -> Cow<'a, str> {
    ask.authenticated.query_to_forward(ask.head.uri.query().unwrap_or_default())
}

fn path(token: Option<&str>, region: Option<&str>) -> Result<PathAndQuery> {
    let mut path = format!("/?max-buckets={ASKED_MAX}");
    for (name, value) in [("continuation-token", token), ("bucket-region", region)] {
        if let Some(value) = value {
            path.extend(["&", name, "="]);
            path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
    }
    PathAndQuery::try_from(path).map_err(|e| Error::new(Kind::InvalidUri, "the query cannot be sent on").with_source(e))
}

/// A backend that does not list its buckets.
fn refused(ask: &Ask<'_>, backend: &Backend, status: StatusCode) -> Error {
    tracing::warn!(backend = backend.name, status = status.as_u16(), "no list of buckets: the backend does not give its own");
    let kind = match status.as_u16() {
        401 | 403 => Kind::AccessDenied,
        429 | 500..=599 => Kind::ServiceUnavailable,
        _ => Kind::BadGateway,
    };
    // Named whatever the status: who asks cannot know that there is more than one. But not to anybody.
    let which = match ask.authenticated.scheme {
        Scheme::Nobody => "a backend".to_owned(),
        _ => format!("the backend {:?}", backend.name),
    };
    let message = format!("{which} answered {} when asked for its buckets, and half a list is none", status.as_u16());
    Error { backend: Some(backend.name.clone()), ..Error::new(kind, message) }
}

/// What a backend says of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listed {
    name: String,
    created: Option<String>,
    region: Option<String>,
    arn: Option<String>,
}

/// Who owns the buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owner {
    id: Option<String>,
    name: Option<String>,
}

/// A page of a backend's list, but for its buckets, of which there is one at a time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    bucket: Listed,
    owner: Option<Owner>,
    token: Option<String>,
}

impl Page {
    /// Reads a `ListAllMyBucketsResult`, and has each of its buckets that has a name looked at; nothing if it is none, or not whole.
    fn read(document: &[u8], mut each: impl FnMut(&Listed)) -> Option<Self> {
        let mut reader = quick_xml::Reader::from_str(std::str::from_utf8(document).ok()?);
        reader.config_mut().expand_empty_elements = true;
        let mut page = Self::default();
        let mut path: Vec<String> = Vec::new();
        let mut text = String::new();
        let mut ended = false;
        loop {
            match reader.read_event().ok()? {
                Event::Start(_) if ended || path.len() == DEPTH_MAX => return None,
                Event::Start(tag) => {
                    path.push(tag.local_name().as_ref().to_owned());
                    text.clear();
                    match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                        ["ListAllMyBucketsResult"] => {}
                        [_] => return None,
                        [_, "Buckets", "Bucket"] => page.bucket = Listed::default(),
                        [_, "Owner"] => page.owner = Some(Owner::default()),
                        _ => {}
                    }
                }
                Event::End(_) => {
                    let ends = path.iter().map(String::as_str).collect::<Vec<_>>();
                    page.take(&ends, &mut text)?;
                    if matches!(ends[..], [_, "Buckets", "Bucket"]) && !page.bucket.name.is_empty() {
                        each(&page.bucket);
                    }
                    path.pop()?;
                    ended = path.is_empty();
                }
                Event::Text(more) => text.push_str(&more),
                Event::CData(more) => text.push_str(&more),
                Event::GeneralRef(entity) => match entity.resolve_char_ref().ok()? {
                    Some(character) => text.push(character),
                    None => text.push_str(resolve_predefined_entity(&entity)?),
                },
                Event::DocType(_) => return None,
                Event::Eof => return ended.then_some(page),
                _ => {}
            }
        }
    }

    /// Takes the text of the element that ends. Nothing if it is longer than it can be.
    fn take(&mut self, path: &[&str], text: &mut String) -> Option<()> {
        let text = std::mem::take(text);
        let short = |text: String| (text.len() <= TEXT_BYTES_MAX).then_some(text);
        let bucket = &mut self.bucket;
        match (path, &mut self.owner) {
            ([_, "Buckets", "Bucket", "Name"], _) => bucket.name = short(text)?,
            ([_, "Buckets", "Bucket", "CreationDate"], _) => bucket.created = Some(short(text)?),
            ([_, "Buckets", "Bucket", "BucketRegion"], _) => bucket.region = Some(short(text)?),
            ([_, "Buckets", "Bucket", "BucketArn"], _) => bucket.arn = Some(short(text)?),
            ([_, "Owner", "ID"], Some(owner)) => owner.id = Some(short(text)?),
            ([_, "Owner", "DisplayName"], Some(owner)) => owner.name = Some(short(text)?),
            ([_, "ContinuationToken" | "NextContinuationToken"], _) if text.len() > TOKEN_BYTES_MAX => return None,
            ([_, "ContinuationToken" | "NextContinuationToken"], _) => self.token = Some(text),
            _ => {}
        }
        Some(())
    }
}

/// The page that a client gets: the first buckets behind where it was.
#[derive(Debug, Default)]
struct List {
    prefix: Option<String>,
    region: Option<String>,
    behind: String,
    max: usize,
    /// One more than fit, to know that there are more.
    kept: BTreeMap<String, Listed>,
}

impl List {
    fn asked(query: &str) -> Result<Self> {
        let decoded = |text: &str| {
            let text = String::from_utf8(percent_decode(&text.replace('+', " ")));
            text.map_err(|_| Error::new(Kind::InvalidArgument, "a parameter is not UTF-8"))
        };
        let mut list = Self { max: PAGE_MAX, ..Self::default() };
        for (name, value) in query_pairs(query) {
            let value = decoded(value)?;
            match name {
                "prefix" => list.prefix = Some(value),
                "bucket-region" => list.region = Some(value),
                "continuation-token" if !value.is_empty() => list.behind = untoken(&value)?,
                "max-buckets" => {
                    let wrong =
                        || Error::new(Kind::InvalidArgument, format!("max-buckets must be an integer between 1 and {PAGE_MAX}"));
                    list.max = value.parse().ok().filter(|max| (1..=PAGE_MAX).contains(max)).ok_or_else(wrong)?;
                }
                _ => {}
            }
        }
        Ok(list)
    }

    /// Adds a bucket by its client's name, if it belongs on the page.
    fn add(&mut self, name: &str, bucket: &Listed) {
        let elsewhere = self.region.is_some() && bucket.region.is_some() && bucket.region != self.region;
        let prefixed = self.prefix.as_deref().is_none_or(|prefix| name.starts_with(prefix));
        if elsewhere || !prefixed || name <= self.behind.as_str() || BucketName::new(name).is_none() {
            return;
        }
        if self.kept.len() > self.max && self.kept.last_key_value().is_some_and(|(last, _)| name > last.as_str()) {
            return;
        }
        let arn = bucket.arn.clone().filter(|_| name == bucket.name);
        self.kept.insert(name.to_owned(), Listed { name: String::new(), arn, ..bucket.clone() });
        if self.kept.len() > self.max + 1 {
            self.kept.pop_last();
        }
    }

    fn finish(mut self, owner: Option<Owner>) -> Bytes {
        let more = self.kept.len() > self.max;
        if more {
            self.kept.pop_last();
        }
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        out.push_str("<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        if let Some(Owner { id, name }) = owner {
            out.push_str("<Owner>");
            optional(&mut out, "ID", &id);
            optional(&mut out, "DisplayName", &name);
            out.push_str("</Owner>");
        }
        out.push_str("<Buckets>");
        for (name, bucket) in &self.kept {
            out.push_str("<Bucket>");
            element(&mut out, "Name", name);
            optional(&mut out, "CreationDate", &bucket.created);
            optional(&mut out, "BucketRegion", &bucket.region);
            optional(&mut out, "BucketArn", &bucket.arn);
            out.push_str("</Bucket>");
        }
        out.push_str("</Buckets>");
        if let Some((last, _)) = self.kept.last_key_value().filter(|_| more) {
            element(&mut out, "ContinuationToken", &URL_SAFE_NO_PAD.encode(format!("{TOKEN_MARK}{last}")));
        }
        optional(&mut out, "Prefix", &self.prefix);
        out.push_str("</ListAllMyBucketsResult>");
        out.into()
    }
}

fn optional(out: &mut String, name: &str, value: &Option<String>) {
    if let Some(value) = value {
        element(out, name, value);
    }
}

/// The name behind which a page begins.
fn untoken(token: &str) -> Result<String> {
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let name = text.as_deref().and_then(|text| text.strip_prefix(TOKEN_MARK)).filter(|name| BucketName::new(name).is_some());
    name.map(str::to_owned).ok_or_else(|| Error::new(Kind::InvalidArgument, "the continuation token provided is incorrect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<?xml version=\"1.0\"?>\n<a:ListAllMyBucketsResult xmlns:a=\"x\"><a:Owner><a:ID>i</a:ID><a:DisplayName>n&amp;m\
        </a:DisplayName></a:Owner><a:Buckets><a:Bucket><a:Name><![CDATA[one]]></a:Name><a:CreationDate>2020</a:CreationDate></a:Bucket>\
        <a:Bucket><a:Name>t&#119;o</a:Name><a:BucketRegion>eu</a:BucketRegion></a:Bucket></a:Buckets>\
        <a:ContinuationToken>t</a:ContinuationToken></a:ListAllMyBucketsResult>";

    #[test]
    fn a_backends_page_is_read_however_it_is_written() {
        let mut buckets = Vec::new();
        let page = Page::read(DOCUMENT.as_bytes(), |bucket| buckets.push(bucket.clone())).expect("well-formed");
        let names: Vec<_> = buckets.iter().map(|bucket| bucket.name.as_str()).collect();
        assert_eq!((names, page.token.as_deref()), (vec!["one", "two"], Some("t")));
        assert_eq!(page.owner, Some(Owner { id: Some("i".into()), name: Some("n&m".into()) }));
        assert_eq!((buckets[1].region.as_deref(), buckets[1].created.as_deref()), (Some("eu"), None), "each has its own");
        let empty = Page::read(b"<ListAllMyBucketsResult/>", |_| unreachable!("none")).expect("well-formed");
        assert_eq!(empty, Page::default());
    }

    #[test]
    fn buckets_without_a_name_cost_nothing() {
        let many = "<Bucket/><Bucket><Name/></Bucket>".repeat(100_000);
        let document = format!("<ListAllMyBucketsResult><Buckets>{many}</Buckets></ListAllMyBucketsResult>");
        assert_eq!(Page::read(document.as_bytes(), |_| unreachable!("no name")), Some(Page::default()));
    }

    #[test]
    fn half_a_page_is_none() {
        for end in 0..DOCUMENT.len() {
            assert_eq!(Page::read(&DOCUMENT.as_bytes()[..end], |_| {}), None, "{end}");
        }
        let long = format!("<ListAllMyBucketsResult><Buckets><Bucket><Name>{}", "x".repeat(TEXT_BYTES_MAX + 1));
        let long = format!("{long}</Name></Bucket></Buckets></ListAllMyBucketsResult>");
        let token = "x".repeat(TOKEN_BYTES_MAX + 1);
        let token = format!("<ListAllMyBucketsResult><ContinuationToken>{token}</ContinuationToken></ListAllMyBucketsResult>");
        for text in
            ["<Error><Code>x</Code></Error>", "<html/>", "{}", "<ListAllMyBucketsResult/><b/>", "<!DOCTYPE x><a/>", &long, &token]
        {
            assert_eq!(Page::read(text.as_bytes(), |_| {}), None, "{text}");
        }
    }

    fn page(query: &str, names: &[&str]) -> String {
        let mut list = List::asked(query).expect("valid");
        for name in names {
            list.add(
                name,
                &Listed { name: (*name).into(), region: name.starts_with('e').then(|| "eu".into()), ..Listed::default() },
            );
            assert!(list.kept.len() <= list.max + 1);
        }
        String::from_utf8(list.finish(None).to_vec()).expect("text")
    }

    fn names(page: &str) -> Vec<&str> {
        page.split("<Name>").skip(1).map(|rest| &rest[..rest.find('<').expect("closed")]).collect()
    }

    #[test]
    fn pages_are_sorted_and_follow_one_another() {
        let all = ["c", "a", "eb", "ea", "d", "b", "a"];
        assert_eq!(names(&page("", &all)), ["a", "b", "c", "d", "ea", "eb"]);
        assert!(!page("", &all).contains("ContinuationToken"));
        let mut query = "max-buckets=2".to_owned();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let page = page(&query, &all);
            seen.extend(names(&page).iter().map(|name| (*name).to_owned()));
            match page.split_once("<ContinuationToken>") {
                Some((_, rest)) => query = format!("max-buckets=2&continuation-token={}", &rest[..rest.find('<').expect("closed")]),
                None => query.clear(),
            }
        }
        assert_eq!((seen.join(" "), query.as_str()), ("a b c d ea eb".to_owned(), ""));
        assert_eq!(names(&page("prefix=e", &all)), ["ea", "eb"]);
        assert!(page("prefix=e", &all).contains("<Prefix>e</Prefix>"));
        assert_eq!(names(&page("bucket-region=us&prefix=e", &all)), Vec::<&str>::new());
        assert_eq!(names(&page("", &["a/b", "..", "ok"])), ["ok"], "what no client could ask for");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for query in
            ["max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=x", "continuation-token=YQ", "prefix=%ff"]
        {
            assert_eq!(List::asked(query).expect_err(query).kind, Kind::InvalidArgument);
        }
    }
}
