//! Where a bucket is, where a store says that it is not where it was asked for. What enters is an answer of the store: a redirect, or a
//! signature for the wrong region. What leaves is a [`Lesson`], and from then on the [`Place`] to which that bucket's requests go
//! and the region that they are signed for (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingRouting.html>).
//!
//! Invariants: a store leads its requests to hosts of its own and nowhere else, whatever it says: the host that was configured, or
//! that host in another region ([`Endpoint::sibling`]); port and scheme stay, so nothing is sent in clear that was not; the path is
//! the one that was asked for. What is remembered is bounded, and forgotten after a while.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use lru::LruCache;
use tokio::time::Instant;

use super::sign::Signer;
use super::{error_code, error_member};

/// Most buckets of which it is remembered where they are; the least used is forgotten.
const BUCKETS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// How long a bucket is asked for where its store said that it is.
const LASTING: Duration = Duration::from_secs(60 * 60);

/// The same for a temporary redirect, whose host one shall not go on using, and for the making of a bucket: long enough for a client
/// to send its write again.
const PASSING: Duration = Duration::from_secs(30);

/// Longest name of a region, in bytes; it is a label of a host.
const REGION_BYTES_MAX: usize = 63;

/// Bytes of a redirect or a refusal that are looked through.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long such a body is waited for once its head is here.
pub(super) const BODY_PATIENCE: Duration = Duration::from_secs(1);

/// Where requests go, and for which region they are signed.
#[derive(Clone, Debug)]
pub struct Place {
    /// Host and port, without the bucket's name.
    pub authority: Authority,
    /// The signer for the region.
    pub signer: Arc<Signer>,
}

/// What an answer says of the bucket's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lesson {
    pub(super) authority: Authority,
    pub(super) region: String,
    /// It is not only for now.
    pub(super) lasting: bool,
}

/// The store as it was configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) authority: &'a Authority,
    pub(super) region: &'a str,
}

/// An answer, as far as it may tell of a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub(super) method: &'a Method,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// What came of its body, up to [`BODY_BYTES_MAX`].
    pub(super) body: &'a [u8],
}

/// Whether an answer with this status may tell of a place.
pub(super) fn may_teach(status: StatusCode) -> bool {
    status == StatusCode::BAD_REQUEST || is_redirect(status)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

/// Reads the answer to a request for something in `bucket` that was sent to `asked`. Nothing where it brings no news, or none that
/// may be followed.
pub(super) fn lesson(endpoint: Endpoint<'_>, bucket: &str, asked: &Place, told: Told<'_>) -> Option<Lesson> {
    let named = told.headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let region = named.or_else(|| error_member(told.body, "Region")).filter(|region| is_region(region));
    let lesson = if is_redirect(told.status) {
        let base = |authority: Authority| without_bucket(authority, bucket);
        let location = told.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|value| value.parse::<Uri>().ok()?.into_parts().authority).and_then(base);
        let named = || error_member(told.body, "Endpoint")?.trim().parse().ok().and_then(base);
        let allowed = location.or_else(named).and_then(|host| endpoint.sibling(&host));
        let lasting = matches!(told.status.as_u16(), 301 | 308);
        match (allowed, region) {
            (Some((authority, theirs)), region) => {
                let region = region.or(theirs).unwrap_or_else(|| asked.signer.region().to_owned());
                Lesson { authority, region, lasting }
            }
            (None, Some(region)) => {
                let authority = endpoint.in_region(&region).unwrap_or_else(|| asked.authority.clone());
                Lesson { authority, region, lasting }
            }
            (None, None) => return None,
        }
    } else {
        // Any answer may name the region; only this one says that another was signed for. The answer to a HEAD has no code.
        let is_about_region = match told.body {
            [] => told.method == Method::HEAD,
            body => error_code(body).as_deref() == Some("AuthorizationHeaderMalformed"),
        };
        let region = region.filter(|_| told.status == StatusCode::BAD_REQUEST && is_about_region)?;
        Lesson { authority: asked.authority.clone(), region, lasting: true }
    };
    let news = lesson.authority != asked.authority || lesson.region != asked.signer.region();
    news.then_some(lesson)
}

fn is_region(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=REGION_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') && !name.ends_with('-')
}

fn without_bucket(authority: Authority, bucket: &str) -> Option<Authority> {
    // Someone else's name before the host would be sent along.
    if authority.as_str().contains('@') {
        return None;
    }
    let rest = authority.as_str().strip_prefix(bucket).and_then(|rest| rest.strip_prefix('.'));
    match rest {
        Some(rest) => rest.parse().ok(),
        None => Some(authority),
    }
}

impl Endpoint<'_> {
    /// `host` as an authority to ask, and the region that it is in, if it is this endpoint or this endpoint in another region.
    /// A port that is not said is the configured one: it is left out where the scheme is another, which is not followed.
    fn sibling(&self, host: &Authority) -> Option<(Authority, Option<String>)> {
        if host.port().is_some() && host.port_u16() != self.authority.port_u16() {
            return None;
        }
        let name = host.host().to_ascii_lowercase();
        let own = self.authority.host().to_ascii_lowercase();
        if name == own {
            return Some((self.authority.clone(), None));
        }
        let region = regions_of(&own, self.region, &name)?;
        Some((self.with_host(&name)?, Some(region)))
    }

    /// This endpoint in another region, where its host names the region that it is in.
    fn in_region(&self, region: &str) -> Option<Authority> {
        let own = self.authority.host().to_ascii_lowercase();
        let mut labels: Vec<_> = own.split('.').collect();
        if let Some(at) = region_label(&labels, self.region) {
            labels[at] = region;
            return self.with_host(&labels.join("."));
        }
        let domain = global_domain(&own)?;
        self.with_host(&format!("s3.{region}.{domain}"))
    }

    fn with_host(&self, host: &str) -> Option<Authority> {
        let text = match self.authority.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        text.parse().ok()
    }
}

/// What stands behind `s3.` in the name of an endpoint for all regions of AWS.
fn global_domain(own: &str) -> Option<&str> {
    own.strip_prefix("s3.").filter(|domain| matches!(*domain, "amazonaws.com" | "amazonaws.com.cn"))
}

/// Which label of a host says the region. Never the first, nor one with fewer than two labels behind it: what it would be exchanged
/// for could then be a host or a domain that anyone may own. Nor one of an address.
fn region_label(labels: &[&str], region: &str) -> Option<usize> {
    let is_a_name = labels.last().is_some_and(|label| label.starts_with(|first: char| first.is_ascii_alphabetic()));
    let behind_the_first = 1..labels.len().saturating_sub(2);
    behind_the_first.into_iter().find(|at| is_a_name && labels[*at] == region)
}

/// The region of `name`, if it is the host `own` but for that: one label that was `region` is another one; or both are endpoints of
/// S3 on AWS, whose names have a few forms. Nobody but the owner of a host's domain can have such a name.
fn regions_of(own: &str, region: &str, name: &str) -> Option<String> {
    let (ours, theirs): (Vec<_>, Vec<_>) = (own.split('.').collect(), name.split('.').collect());
    if let Some(at) = region_label(&ours, region)
        && ours.len() == theirs.len()
        && (0..ours.len()).all(|i| i == at || ours[i] == theirs[i])
        && is_region(theirs[at])
    {
        return Some(theirs[at].to_owned());
    }
    let domain = [".amazonaws.com", ".amazonaws.com.cn"].into_iter().find(|domain| own.ends_with(domain))?;
    aws_region(own.strip_suffix(domain)?)?;
    aws_region(name.strip_suffix(domain)?)
}

/// The region in what stands before the domain of AWS: `s3`, `s3-REGION`, `s3.REGION`, `s3.dualstack.REGION`.
fn aws_region(service: &str) -> Option<String> {
    let region = match service {
        "s3" => "us-east-1",
        _ => {
            service.strip_prefix("s3.dualstack.").or_else(|| service.strip_prefix("s3.")).or_else(|| service.strip_prefix("s3-"))?
        }
    };
    is_region(region).then(|| region.to_owned())
}

/// What is remembered of a bucket.
struct Known {
    place: Place,
    until: Instant,
    /// How long it is also made there: where its making was told so. Nothing else says where a bucket that is yet to be made goes.
    made_there_until: Option<Instant>,
}

/// What has been learnt, by the store's names of buckets.
pub struct Learnt {
    known: Mutex<LruCache<String, Known>>,
    /// Whether there is anything: as a rule nothing is, and costs no lock.
    some: AtomicBool,
}

impl Default for Learnt {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(BUCKETS_MAX)), some: AtomicBool::new(false) }
    }
}

impl Learnt {
    /// Where `bucket` is, if that is not where it was configured.
    pub(super) fn place(&self, bucket: &str) -> Option<Place> {
        if bucket.is_empty() || !self.some.load(Ordering::Relaxed) {
            return None;
        }
        let mut known = self.lock();
        let found = known.get(bucket)?;
        if Instant::now() < found.until {
            return Some(found.place.clone());
        }
        known.pop(bucket);
        None
    }

    /// Remembers where `bucket` is, which may have been told to what `makes` it, and says whether nothing was known of it.
    pub(super) fn learn(&self, bucket: &str, lesson: Lesson, makes: bool) -> bool {
        let now = Instant::now();
        let until = now + if lesson.lasting { LASTING } else { PASSING };
        let mut known = self.lock();
        let kept = known.iter().find(|(_, other)| other.place.signer.region() == lesson.region);
        let signer = kept.map_or_else(|| Arc::new(Signer::new(&lesson.region)), |(_, other)| Arc::clone(&other.place.signer));
        let place = Place { authority: lesson.authority, signer };
        let before = known.put(bucket.to_owned(), Known { place, until, made_there_until: makes.then(|| now + PASSING) });
        self.some.store(true, Ordering::Relaxed);
        before.is_none()
    }

    /// The bucket is gone.
    pub(super) fn forget(&self, bucket: &str) {
        if self.some.load(Ordering::Relaxed) {
            self.lock().pop(bucket);
        }
    }

    /// The bucket is about to be made, here or where its document says; unless the store has just told its making where to.
    pub(super) fn forget_to_make(&self, bucket: &str) {
        if self.region_to_make(bucket).is_none() {
            self.forget(bucket);
        }
    }

    /// The region that the store has just told the making of `bucket`.
    pub(super) fn region_to_make(&self, bucket: &str) -> Option<String> {
        if !self.some.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.lock();
        let found = known.peek(bucket)?;
        found.made_there_until.is_some_and(|until| Instant::now() < until).then(|| found.place.signer.region().to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Known>> {
        self.known.lock().expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, region: &str) -> Place {
        Place { authority: host.parse().expect("an authority"), signer: Arc::new(Signer::new(region)) }
    }

    /// Status, method, headers and body of an answer to a request for `b` at `host`, and where it leads.
    fn learnt(host: &str, region: &str, status: u16, pairs: &[(&'static str, &str)], body: &str) -> Option<(String, String, bool)> {
        let place = at(host, region);
        let headers: HeaderMap =
            pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value"))).collect();
        let status = StatusCode::from_u16(status).expect("valid");
        let method = if body == "HEAD" { Method::HEAD } else { Method::GET };
        let told = Told { method: &method, status, headers: &headers, body: if body == "HEAD" { b"" } else { body.as_bytes() } };
        let lesson = lesson(Endpoint { authority: &place.authority, region }, "b", &place, told)?;
        Some((lesson.authority.to_string(), lesson.region, lesson.lasting))
    }

    fn to(host: &str, region: &str, lasting: bool) -> Option<(String, String, bool)> {
        Some((host.to_owned(), region.to_owned(), lasting))
    }

    const EU: (&str, &str) = ("x-amz-bucket-region", "eu-west-1");

    #[test]
    fn a_redirect_of_aws_leads_to_the_bucket() {
        let (global, regional) = ("s3.amazonaws.com", "s3.us-east-1.amazonaws.com");
        let eu = to("s3.eu-west-1.amazonaws.com", "eu-west-1", true);
        for host in [global, regional] {
            assert_eq!(learnt(host, "us-east-1", 301, &[EU], "HEAD"), eu, "{host}");
            let body = "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>";
            assert_eq!(learnt(host, "us-east-1", 301, &[], body), eu, "{host}");
            let location = [("location", "https://b.s3-eu-west-1.amazonaws.com/k?x=1")];
            let passing = to("s3-eu-west-1.amazonaws.com", "eu-west-1", false);
            assert_eq!(learnt(host, "us-east-1", 307, &location, ""), passing, "{host}");
        }
        let china = [("location", "https://s3.cn-north-1.amazonaws.com.cn/b/k")];
        assert_eq!(learnt(regional, "us-east-1", 307, &china, ""), None, "another partition is another store");
    }

    #[test]
    fn a_signature_for_another_region_is_made_anew_where_it_was() {
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
        assert_eq!(learnt("10.0.0.1:80", "us-east-1", 400, &[], body), to("10.0.0.1:80", "eu-west-1", true));
        assert_eq!(learnt("store:80", "us-east-1", 400, &[EU], "HEAD"), to("store:80", "eu-west-1", true));
        assert_eq!(learnt("store:80", "eu-west-1", 400, &[EU], "HEAD"), None, "no news");
        assert_eq!(learnt("store:80", "us-east-1", 400, &[EU], "<Error><Code>InvalidArgument</Code></Error>"), None);
        assert_eq!(learnt("store:80", "us-east-1", 403, &[EU], "HEAD"), None);
        let odd = body.replace("eu-west-1", "eu/west.1");
        assert_eq!(learnt("store:80", "us-east-1", 400, &[], &odd), None);
    }

    #[test]
    fn the_region_in_a_host_may_be_another() {
        let location = [("location", "http://b.s3.two.store.test:9000/k")];
        let two = to("s3.two.store.test:9000", "two", false);
        assert_eq!(learnt("s3.one.store.test:9000", "one", 307, &location, ""), two);
        assert_eq!(
            learnt("s3.one.store.test:9000", "one", 301, &[("x-amz-bucket-region", "two")], ""),
            to("s3.two.store.test:9000", "two", true)
        );
        assert_eq!(
            learnt("store.test", "one", 301, &[("x-amz-bucket-region", "two")], ""),
            to("store.test", "two", true),
            "none in it"
        );
    }

    #[test]
    fn a_store_cannot_lead_us_elsewhere() {
        for location in [
            "http://169.254.169.254/latest",
            "http://evil.test:9000/b/k",
            "http://s3.two.evil.test:9000/b/k",
            "http://s3.two.store.test:9001/b/k",
            "http://s3.one.two.store.test:9000/b/k",
            "http://evil.test.s3.two.store.test:9000/b/k",
            "http://user@s3.two.store.test:9000/b/k",
            "http://[::1]:9000/b/k",
            "/b/other-key",
            "http:///",
            "http://s3.one.store.test:9000/b/other-key",
        ] {
            assert_eq!(learnt("s3.one.store.test:9000", "one", 307, &[("location", location)], ""), None, "{location}");
        }
        // What is left is the region that it names; the endpoint stays.
        let both = [("location", "http://evil.test/b/k"), ("x-amz-bucket-region", "two")];
        assert_eq!(learnt("10.0.0.1:80", "one", 301, &both, ""), to("10.0.0.1:80", "two", true));
        for name in ["s3-evil-1.us-east-1.elb.amazonaws.com", "ec2-1.compute-1.amazonaws.com", "s3.evil.amazonaws.com.evil.test"] {
            let location = format!("https://{name}/b/k");
            assert_eq!(learnt("s3.amazonaws.com", "us-east-1", 307, &[("location", &location)], ""), None, "{name}");
        }
        assert_eq!(learnt("one.test", "one", 307, &[("location", "http://two.test/")], ""), None, "anyone may own it");
        assert_eq!(learnt("one.pages.test", "one", 307, &[("location", "http://two.pages.test/")], ""), None, "so may this be");
    }

    #[test]
    fn a_host_that_is_a_regions_name_is_no_other_regions_host() {
        for (host, region) in [
            ("garage:3900", "garage"),
            ("one.test:80", "one"),
            ("one.pages.test", "one"),
            ("s3.one.test", "one"),
            ("s3.one", "one"),
            ("10.0.0.1:80", "0"),
            ("s3.5.0.1", "5"),
            ("[::ffff:10.0.0.1]:80", "0"),
            ("s3.one.test.", "one"),
        ] {
            for name in ["localhost", "169", "two"] {
                let named = [("x-amz-bucket-region", name)];
                assert_eq!(learnt(host, region, 301, &named, ""), to(host, name, true), "the region only, and the host stays");
                let evil = [("location", "http://169.254.169.254/"), named[0]];
                assert_eq!(learnt(host, region, 307, &evil, ""), to(host, name, false));
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, cases: 2000, ..Default::default() })]

        /// Whatever a store says, it is asked at the authority that was configured, or at one with the same port and the last two
        /// labels of it, which is no address.
        #[test]
        fn a_store_is_asked_where_it_was_configured_or_beside_it(
            labels in proptest::collection::vec("(one|two|s3|s3-one|dualstack|0|10|a|amazonaws|com|cn|localhost)", 1..6),
            region in "(one|two|s3|0|10|a|com)",
            port in "(:80|:9000)?",
            status in proptest::sample::select(vec![301u16, 302, 307, 308, 400]),
            said in "(two|localhost|169|10|evil\\.test|a-b|-x|\\[::1\\]|[a-z0-9.-]{1,8})",
            names in proptest::bool::ANY,
            other in proptest::collection::vec("(one|two|s3|s3-two|a|10|0|evil|amazonaws|com|cn|localhost)", 1..6),
            other_port in "(:80|:9000)?",
        ) {
            let configured = format!("{}{port}", labels.join("."));
            let location = format!("http://{}{other_port}/b/k", other.join("."));
            let mut pairs = vec![("location", location.as_str())];
            pairs.extend(names.then_some(("x-amz-bucket-region", said.as_str())));
            let body = format!("<Error><Code>AuthorizationHeaderMalformed</Code><Region>{said}</Region><Endpoint>{said}</Endpoint></Error>");
            for pairs in [&pairs[..], &pairs[1..]] {
                let Some((asked, ..)) = learnt(&configured, &region, status, pairs, &body) else { continue };
                if asked == configured {
                    continue;
                }
                let asked: Authority = asked.parse().expect("an authority");
                let tail = |host: &str| host.rsplit('.').take(2).map(str::to_owned).collect::<Vec<_>>();
                proptest::prop_assert!(asked.port_u16() == configured.parse::<Authority>().expect("an authority").port_u16());
                proptest::prop_assert!(labels.len() >= 3 && tail(asked.host()) == labels.iter().rev().take(2).cloned().collect::<Vec<_>>());
                proptest::prop_assert!(asked.host().parse::<std::net::IpAddr>().is_err());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_learnt_is_bounded_and_forgotten() {
        let known = Learnt::default();
        let lesson = |lasting| Lesson { authority: "h".parse().expect("valid"), region: "r".into(), lasting };
        assert!(known.place("b").is_none());
        assert!(known.learn("b", lesson(true), false) && !known.learn("b", lesson(false), false));
        assert!(known.learn("c", lesson(true), false));
        let region = |bucket| known.place(bucket).map(|place| place.signer.region().to_owned());
        assert_eq!((region("b").as_deref(), region("c").as_deref(), region("d")), (Some("r"), Some("r"), None));
        tokio::time::advance(PASSING).await;
        assert!(known.place("b").is_none() && known.place("c").is_some());
        tokio::time::advance(LASTING).await;
        assert!(known.place("c").is_none());
        known.learn("b", lesson(true), true);
        known.forget("b");
        assert!(known.place("b").is_none());
        for (makes, kept) in [(false, false), (true, true)] {
            known.learn("b", lesson(true), makes);
            known.forget_to_make("b");
            assert_eq!(known.place("b").is_some(), kept, "its making was told so, or not: {makes}");
        }
        tokio::time::advance(PASSING).await;
        assert!(known.place("b").is_some());
        known.forget_to_make("b");
        assert!(known.place("b").is_none(), "that was another making");
        assert!((0..5000).all(|n| known.learn(&n.to_string(), lesson(true), false)), "each is new");
        assert_eq!(known.lock().len(), BUCKETS_MAX.get());
    }
}
