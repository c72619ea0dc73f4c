//! Where a request goes. Reads the address off an S3 request (path style, or virtual-host style under a configured domain) and
//! finds the backend of a bucket. Pure: no request is changed here. Invariant: the raw path is cut, never rebuilt.

use http::request::Parts;
use http::{HeaderValue, Method, header};

use crate::error::{Error, Kind, Result};
use crate::types::{BucketName, Pattern, Pieces, S3Target, percent_decode, query_pairs};

/// What kind of handling a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `POST` with `?batch-get`.
    BatchGet,
    /// `GET /?batch-get`.
    Capabilities,
    /// POST Object: a form, which says in its body who signed it.
    Form,
    /// What a browser asks before it lets a page of another site send a request. Nobody signs it.
    Preflight,
    /// Every other S3 request.
    Passthrough,
}

/// Reads the verb off method, path level and query.
pub fn verb(method: &Method, target: &S3Target, query: &str) -> Verb {
    let named = query_pairs(query).any(|(name, value)| name == "batch-get" && value.is_empty());
    match (named, method) {
        (true, &Method::POST) if target.key.is_none() => Verb::BatchGet,
        (true, &Method::GET) if target.bucket.is_none() => Verb::Capabilities,
        _ => Verb::Passthrough,
    }
}

/// The verb of a request that is not signed in its head, but is not anonymous for that.
pub fn unsigned_verb(head: &Parts, target: &S3Target) -> Option<Verb> {
    let has = |name: &str| head.headers.contains_key(name);
    let plain = head.uri.query().unwrap_or_default().is_empty() && target.key.is_none() && !has("authorization");
    match head.method {
        _ if target.bucket.is_none() => None,
        Method::POST if plain && is_form(head) => Some(Verb::Form),
        // One that does not ask is nobody's too: S3 says what it lacks, and looks at no signature. One that is signed for its own
        // sake is no browser's.
        Method::OPTIONS if !has("authorization") || (has("origin") && has("access-control-request-method")) => {
            Some(Verb::Preflight)
        }
        _ => None,
    }
}

/// Refuses what S3 does not have where no bucket is named: there some stores have other services (accounts, tokens, queues), which
/// would be asked in the gateway's name.
///
/// # Errors
/// `MethodNotAllowed`.
pub fn check_service_level(head: &Parts, target: &S3Target, verb: Verb) -> Result<()> {
    let is_action = |(name, _): (&str, _)| percent_decode(name).eq_ignore_ascii_case(b"action");
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if target.bucket.is_some()
        || verb != Verb::Passthrough
        || (reads && !query_pairs(head.uri.query().unwrap_or_default()).any(is_action))
    {
        return Ok(());
    }
    Err(Error::new(Kind::MethodNotAllowed, "The specified method is not allowed against this resource.")
        .with_detail("Method", head.method.as_str())
        .with_detail("ResourceType", "SERVICE")
        .with_source("without a bucket there is only ListBuckets, by GET or HEAD"))
}

/// Whether the body is `multipart/form-data`.
fn is_form(head: &Parts) -> bool {
    let value = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    value.split(|b| *b == b';').next().is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data"))
}

/// The host that the client asked for: `Host`, or over HTTP/2 the authority of the URI.
pub fn host(head: &Parts) -> Option<&str> {
    let host = head.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    host.or_else(|| head.uri.authority().map(|authority| authority.as_str()))
}

/// Bucket and key of a request. `domains` are those under which a host's first labels name the bucket; all paths begin with
/// `base_path`, which may be empty.
///
/// # Errors
/// `InvalidUri` for what is no path, or one outside of the base path: not a 404, which would pass for an object that is not
/// there. `InvalidBucketName`.
pub fn target(head: &Parts, domains: &[String], base_path: &str) -> Result<S3Target> {
    let path = below(head.uri.path(), base_path)?;
    let rest = &path[1..];
    if let Some(bucket) = host(head).and_then(|host| bucket_of_host(host, domains)) {
        let bucket = Some(bucket_name(bucket.as_bytes())?);
        return Ok(S3Target { bucket, path: path.to_owned(), bucket_in_host: true, ..key(rest) });
    }
    if rest.is_empty() {
        return Ok(S3Target { path: path.to_owned(), ..S3Target::default() });
    }
    let (bucket, raw_key) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(S3Target { bucket: Some(bucket_name(&percent_decode(bucket))?), path: path.to_owned(), ..key(raw_key) })
}

/// The path below the base path, from its slash on: octets are compared, since nothing of a path is ever rewritten.
fn below<'a>(path: &'a str, base_path: &str) -> Result<&'a str> {
    if !path.starts_with('/') {
        return Err(Error::new(Kind::InvalidUri, "the request target is not a path"));
    }
    match path.strip_prefix(base_path) {
        Some("") => Ok("/"),
        Some(rest) if rest.starts_with('/') => Ok(rest),
        _ => {
            let message = format!("the path is outside of this endpoint, whose paths begin with {base_path:?} (server.base_path)");
            Err(Error::new(Kind::InvalidUri, message))
        }
    }
}

/// A name that means the same to whoever judges it and to the store: nothing in it could be decoded or cut once more.
fn bucket_name(name: &[u8]) -> Result<String> {
    let valid = std::str::from_utf8(name).ok().and_then(BucketName::new);
    let refused = || Error::new(Kind::InvalidBucketName, "The specified bucket is not valid.");
    valid.map(|name| name.as_str().to_owned()).ok_or_else(refused)
}

fn key(raw: &str) -> S3Target {
    let key = (!raw.is_empty()).then(|| percent_decode(raw));
    S3Target { key, raw_key: raw.to_owned(), ..S3Target::default() }
}

fn bucket_of_host(host: &str, domains: &[String]) -> Option<String> {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let name = name.to_ascii_lowercase();
    // A name may be written to its very end, the root.
    let name = name.strip_suffix('.').unwrap_or(&name);
    // What stands before a domain; of those that fit, the longest domain leaves the shortest. A domain itself names no bucket,
    // though it may be below another one.
    let before = |domain: &String| match name.strip_suffix(&domain.to_ascii_lowercase())? {
        "" => Some(""),
        rest => rest.strip_suffix('.'),
    };
    let bucket = domains.iter().filter_map(before).min_by_key(|bucket| bucket.len())?;
    (!bucket.is_empty()).then(|| bucket.to_owned())
}

/// Which backend has a bucket, and by what name. `B` is whatever the composition root calls a backend.
#[derive(Clone, Debug)]
pub struct Routes<B> {
    rules: Vec<Rule<B>>,
}

#[derive(Clone, Debug)]
struct Rule<B> {
    pattern: Pattern,
    backend: B,
    rename: Option<String>,
}

impl<B> Default for Routes<B> {
    fn default() -> Self {
        Self { rules: Vec::new() }
    }
}

impl<B> Routes<B> {
    /// Adds a rule after those that are there. In `pattern`, `*` stands for any run of characters and `?` for one.
    pub fn push(&mut self, pattern: &str, backend: B, rename: Option<String>) {
        self.rules.push(Rule { pattern: Pattern::new(pattern), backend, rename });
    }

    /// The backend of `bucket` and the bucket's name there; the first rule that matches wins.
    pub fn find<'a>(&'a self, bucket: &'a str) -> Option<(&'a B, &'a str)> {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(&Pieces([bucket.as_bytes()])))?;
        Some((&rule.backend, rule.rename.as_deref().unwrap_or(bucket)))
    }

    /// The rules that any bucket can get to: none behind one that takes every bucket.
    fn reached(&self) -> &[Rule<B>] {
        let last = self.rules.iter().position(|rule| rule.pattern == Pattern::Any);
        &self.rules[..last.map_or(self.rules.len(), |last| last + 1)]
    }

    /// The backend that has every bucket, each by its own name, if there is one. `same` says whether two are one.
    pub fn whole(&self, same: impl Fn(&B, &B) -> bool) -> Option<&B> {
        let last = self.reached().last().filter(|rule| rule.pattern == Pattern::Any)?;
        let all = self.reached().iter().all(|rule| rule.rename.is_none() && same(&rule.backend, &last.backend));
        all.then_some(&last.backend)
    }

    /// The backends that a bucket may be on, each once, in the order of their rules.
    pub fn reachable(&self, same: impl Fn(&B, &B) -> bool) -> Vec<&B> {
        let mut found: Vec<&B> = Vec::new();
        for rule in self.reached() {
            if !found.iter().any(|other| same(other, &rule.backend)) {
                found.push(&rule.backend);
            }
        }
        found
    }

    /// The names by which clients reach the bucket that a backend, for which `is` says so, has as `name`: its own, or those that it
    /// is renamed from, or none.
    pub fn names_of<'a>(&'a self, is: impl Fn(&B) -> bool, name: &'a str) -> Vec<&'a str> {
        let renamed =
            self.rules.iter().filter(|rule| rule.rename.as_deref() == Some(name)).filter_map(|rule| match &rule.pattern {
                Pattern::Exact(text) => std::str::from_utf8(text).ok(),
                _ => None,
            });
        let mut names: Vec<_> = std::iter::once(name).chain(renamed).collect();
        names.retain(|clients| self.find(clients).is_some_and(|(backend, stores)| is(backend) && stores == name));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The backend for requests that name no bucket: that of the first rule.
    pub fn first(&self) -> Option<&B> {
        self.rules.first().map(|rule| &rule.backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, host: Option<&str>) -> Parts {
        let mut builder = http::Request::builder().uri(uri);
        if let Some(host) = host {
            builder = builder.header("host", host);
        }
        builder.body(()).expect("valid").into_parts().0
    }

    fn read(uri: &str, host: Option<&str>) -> (Option<String>, Option<Vec<u8>>, String) {
        let target = target(&head(uri, host), &["s3.test".to_owned()], "").expect("valid");
        (target.bucket, target.key, target.raw_key)
    }

    #[test]
    fn paths_are_cut_and_never_normalised() {
        assert_eq!(read("/", None), (None, None, String::new()));
        assert_eq!(read("/b", None), (Some("b".into()), None, String::new()));
        assert_eq!(read("/b/", None), (Some("b".into()), None, String::new()));
        assert_eq!(read("/b//k/../", None), (Some("b".into()), Some(b"/k/../".to_vec()), "/k/../".into()));
        assert_eq!(read("/b/a%2Fb%2520", None), (Some("b".into()), Some(b"a/b%20".to_vec()), "a%2Fb%2520".into()));
        assert_eq!(read("/%62/k", None), (Some("b".into()), Some(b"k".to_vec()), "k".into()));
    }

    #[test]
    fn a_bucket_that_a_store_could_read_differently_is_refused() {
        let domains = ["s3.test".to_owned()];
        let refused = |uri: &str, host: Option<&str>| target(&head(uri, host), &domains, "").expect_err(uri).kind;
        for uri in ["//k", "/./k", "/../k", "/a%2Fb/k", "/%2573ecret/k", "/a%00/k", "/a%3Fb/k", "/a%FF/k", "/a+b/k"] {
            assert_eq!(refused(uri, None), Kind::InvalidBucketName, "{uri}");
        }
        for host in ["a%2Fb.s3.test", "a/../b.s3.test", "...s3.test"] {
            assert_eq!(refused("/k", Some(host)), Kind::InvalidBucketName, "{host}");
        }
    }

    #[test]
    fn a_host_under_a_domain_names_the_bucket() {
        assert_eq!(read("/k", Some("b.s3.test:9000")), (Some("b".into()), Some(b"k".to_vec()), "k".into()));
        assert_eq!(read("/", Some("a.b.S3.test")), (Some("a.b".into()), None, String::new()));
        assert_eq!(read("/b/k", Some("s3.test")).0, Some("b".into()));
        assert_eq!(read("/b/k", Some("xs3.test")).0, Some("b".into()));
        assert_eq!(read("/b/k", Some("127.0.0.1:9000")).0, Some("b".into()));
        assert_eq!(read("http://x.s3.test/k", None).0, Some("x".into()), "over HTTP/2 the authority is the host");
    }

    #[test]
    fn the_longest_domain_that_fits_names_the_bucket() {
        let domains = ["test", "s3.test", "eu.s3.test", "other.org"].map(str::to_owned);
        let mut turned = domains.clone();
        turned.reverse();
        for domains in [domains, turned] {
            let bucket = |host: &str| target(&head("/p/k", Some(host)), &domains, "").expect("valid").bucket.expect("one");
            assert_eq!(bucket("b.s3.test"), "b");
            assert_eq!(bucket("b.eu.s3.test:80"), "b");
            assert_eq!(bucket("a.b.us.s3.test"), "a.b.us");
            assert_eq!(bucket("b.other.org."), "b");
            assert_eq!(bucket("s3.s3.test"), "s3", "a bucket may be called as a domain is");
            assert_eq!(bucket("eu.eu.s3.test"), "eu");
            assert_eq!(bucket("us.test"), "us");
            for domain in &domains {
                assert_eq!(bucket(domain), "p", "a domain is no bucket of a shorter one");
            }
            assert_eq!(bucket("[::1]:9000"), "p");
        }
    }

    #[test]
    fn trap_a_base_path_is_taken_off_and_nothing_is_outside_of_it() {
        let below = |uri: &str, host: Option<&str>| target(&head(uri, host), &["s3.test".to_owned()], "/s3/v1");
        let read = |uri: &str, host: Option<&str>| {
            let target = below(uri, host).expect(uri);
            (target.bucket.unwrap_or_default(), target.raw_key, target.path)
        };
        let expected = |bucket: &str, key: &str, path: &str| (bucket.to_owned(), key.to_owned(), path.to_owned());
        assert_eq!(read("/s3/v1", None), expected("", "", "/"));
        assert_eq!(read("/s3/v1/", None), expected("", "", "/"));
        assert_eq!(read("/s3/v1/b", None), expected("b", "", "/b"));
        assert_eq!(read("/s3/v1/b//k/../", None), expected("b", "/k/../", "/b//k/../"));
        assert_eq!(read("/s3/v1/s3/v1/s3/v1", None), expected("s3", "v1/s3/v1", "/s3/v1/s3/v1"));
        assert_eq!(read("/s3/v1", Some("b.s3.test")), expected("b", "", "/"));
        assert_eq!(read("/s3/v1/a%2Fb", Some("b.s3.test")), expected("b", "a%2Fb", "/a%2Fb"));
        for uri in [
            "/",
            "/b/k",
            "/s3",
            "/s3/",
            "/s3/v1x/b",
            "/s3/v1%2Fb",
            "/S3/v1/b",
            "/%733/v1/b",
            "//s3/v1/b",
            "/s3//v1/b",
            "/s3/v2/../v1/b",
        ] {
            let error = below(uri, None).expect_err(uri);
            assert!(error.kind == Kind::InvalidUri && error.message.contains("/s3/v1"), "{uri}: {error}");
        }
        assert_eq!(below("/s3/v1//k", None).expect_err("no bucket").kind, Kind::InvalidBucketName);
    }

    #[test]
    fn the_verb_is_read_off_method_level_and_query() {
        let read = |method: Method, uri: &str| {
            let head = head(uri, None);
            verb(&method, &target(&head, &[], "").expect("valid"), head.uri.query().unwrap_or_default())
        };
        assert_eq!(read(Method::POST, "/b?batch-get"), Verb::BatchGet);
        assert_eq!(read(Method::POST, "/?batch-get="), Verb::BatchGet);
        assert_eq!(read(Method::GET, "/?batch-get"), Verb::Capabilities);
        assert_eq!(read(Method::POST, "/b/k?batch-get"), Verb::Passthrough);
        assert_eq!(read(Method::POST, "/b?batch-get=1"), Verb::Passthrough);
        assert_eq!(read(Method::GET, "/b?batch-get"), Verb::Passthrough);
    }

    #[test]
    fn trap_without_a_bucket_there_are_only_lists_of_buckets() {
        let check = |method: Method, uri: &str, host: Option<&str>| {
            let mut head = head(uri, host);
            head.method = method.clone();
            let target = target(&head, &["s3.test".to_owned()], "").expect("valid");
            check_service_level(&head, &target, verb(&method, &target, head.uri.query().unwrap_or_default()))
        };
        for (method, uri) in
            [(Method::GET, "/"), (Method::HEAD, "/?max-buckets=2"), (Method::POST, "/?batch-get"), (Method::POST, "/b")]
        {
            check(method, uri, None).expect(uri);
        }
        check(Method::POST, "/", Some("b.s3.test")).expect("the host names the bucket");
        for (method, uri) in [
            (Method::POST, "/"),
            (Method::POST, "/?Action=ListUsers"),
            (Method::PUT, "/"),
            (Method::DELETE, "/"),
            (Method::OPTIONS, "/"),
            (Method::GET, "/?Action=ListUsers&Version=2010-05-08"),
            (Method::GET, "/?x&%61ction=GetCallerIdentity"),
        ] {
            let error = check(method.clone(), uri, None).expect_err(uri);
            assert_eq!(error.kind, Kind::MethodNotAllowed, "{uri}");
            assert_eq!(error.message, "The specified method is not allowed against this resource.", "as S3 says it");
            assert_eq!(error.details, [("Method", method.to_string()), ("ResourceType", "SERVICE".to_owned())]);
        }
    }

    #[test]
    fn a_form_and_a_preflight_are_known_by_their_heads() {
        let read = |method: Method, uri: &str, headers: &[(&'static str, &'static str)]| {
            let mut head = head(uri, None);
            head.method = method;
            head.headers.extend(headers.iter().map(|(n, v)| (http::HeaderName::from_static(n), HeaderValue::from_static(v))));
            let target = target(&head, &[], "").expect("valid");
            unsigned_verb(&head, &target)
        };
        let form = ("content-type", "Multipart/Form-Data; boundary=b");
        assert_eq!(read(Method::POST, "/b", &[form]), Some(Verb::Form));
        assert_eq!(read(Method::POST, "/b/?", &[form]), Some(Verb::Form));
        for (method, uri) in [(Method::POST, "/b?batch-get"), (Method::POST, "/b?delete"), (Method::PUT, "/b")] {
            assert_eq!(read(method, uri, &[form]), None, "{uri}");
        }
        assert_eq!(read(Method::POST, "/b/k", &[form]), None);
        assert_eq!(read(Method::POST, "/", &[form]), None);
        assert_eq!(read(Method::POST, "/b", &[form, ("authorization", "AWS4-HMAC-SHA256")]), None);
        assert_eq!(read(Method::POST, "/b", &[("content-type", "multipart/form-datax")]), None);
        let asks = [("origin", "http://site"), ("access-control-request-method", "POST")];
        assert_eq!(read(Method::OPTIONS, "/b/k?a", &asks), Some(Verb::Preflight));
        assert_eq!(read(Method::OPTIONS, "/b/k?X-Amz-Signature=s", &asks[..1]), Some(Verb::Preflight), "it lacks a header");
        assert_eq!(read(Method::OPTIONS, "/b/k", &[("authorization", "AWS4-HMAC-SHA256")]), None);
        assert_eq!(read(Method::OPTIONS, "/", &asks), None);
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let mut routes = Routes::default();
        routes.push("logs-?", 1, None);
        routes.push("old", 2, Some("new".into()));
        routes.push("*a*b", 3, None);
        assert_eq!(routes.find("logs-1"), Some((&1, "logs-1")));
        assert_eq!(routes.find("old"), Some((&2, "new")));
        assert_eq!(routes.find("xxaxxab"), Some((&3, "xxaxxab")));
        assert_eq!(routes.find("logs-10"), None);
    }

    #[test]
    fn a_bucket_is_known_by_the_names_that_lead_to_it() {
        let mut routes = Routes::default();
        routes.push("old", 1, Some("new".into()));
        routes.push("older", 1, Some("new".into()));
        routes.push("logs-*", 2, None);
        routes.push("mine", 1, None);
        let names = |backend: i32, name| routes.names_of(|other| *other == backend, name);
        assert_eq!(names(1, "new"), ["old", "older"]);
        assert_eq!(names(1, "old"), Vec::<&str>::new(), "that name leads to another bucket");
        assert_eq!((names(2, "logs-1"), names(1, "logs-1")), (vec!["logs-1"], vec![]));
        assert_eq!((names(1, "mine"), names(1, "other")), (vec!["mine"], vec![]));
        let same = |a: &i32, b: &i32| a == b;
        assert_eq!((routes.whole(same), routes.reachable(same)), (None, vec![&1, &2]));
        routes.push("*", 3, None);
        routes.push("never", 4, None);
        assert_eq!((routes.whole(same), routes.reachable(same)), (None, vec![&1, &2, &3]));
        assert_eq!(routes.names_of(|other| *other == 3, "new"), ["new"]);
        let mut one = Routes::default();
        one.push("a-*", 1, None);
        assert_eq!(one.whole(same), None);
        one.push("*", 1, None);
        one.push("never", 2, None);
        assert_eq!(one.whole(same), Some(&1));
    }
}
