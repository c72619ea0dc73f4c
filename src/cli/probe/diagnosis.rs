//! What keeps a store from being used, and what to set. In goes what one try brought, out comes a [`Problem`], or that there is none
//! that is about who signs, for which region and by which clock. Pure.

use serde::Serialize;

use super::asker::{Cause, Said, Silence};
use crate::backend::s3::is_about_our_signature;

/// How long before and after its time S3 takes a signature, in seconds
/// (<https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>, `RequestTimeTooSkewed`).
const SKEW_SECONDS_MAX: i64 = 15 * 60;

/// What is to be looked after. Its names are a part of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The network, or the endpoint's host and port.
    NoConnection,
    /// Certificates, or whether it is `https` at all.
    Tls,
    /// The store, which says nothing or that it fails.
    NoAnswer,
    /// The endpoint, where something else answers, or that is a part of a store.
    NotS3,
    /// The key pair.
    Credentials,
    /// The region.
    Region,
    /// A clock.
    Clock,
    /// The bucket, or what the key pair may do with it.
    Bucket,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What sort of it.
    pub kind: Kind,
    /// What was seen, in one sentence.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Problem {
    /// One of them.
    pub fn new(kind: Kind, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { kind, why: why.into(), fix: fix.into() }
    }
}

/// Who signed, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The access key.
    pub access_key: &'a str,
    /// The region.
    pub region: &'a str,
    /// The table of the settings that the pair stands in; nothing where the chain found it.
    pub table: Option<&'a str>,
}

/// Why nothing came from the endpoint, or nothing that can be used.
pub fn of_silence(silence: &Silence) -> Problem {
    let (kind, fix) = match silence.cause {
        Cause::NoCredentials => {
            (Kind::Credentials, "give the chain a pair (environment, profile, role), or set credentials to a \"static\" one")
        }
        Cause::NoConnection => {
            (Kind::NoConnection, "set endpoint to the store's S3 API (host and port); see that it runs and no firewall is between")
        }
        Cause::UnknownIssuer => (Kind::Tls, "set ca_file to the PEM file of the authority that signed the store's certificate"),
        Cause::OtherHost => (Kind::Tls, "set endpoint to a host name that stands in the store's certificate"),
        Cause::Certificate => (
            Kind::Tls,
            "give the store a certificate that is in time, not an authority's own (CA:TRUE), and signed by one in ca_file",
        ),
        Cause::Tls => (Kind::Tls, "set endpoint to http:// if that port speaks no TLS"),
        Cause::NotHttp => (Kind::NotS3, "set endpoint to the store's S3 API; if that port speaks TLS, begin it with https://"),
        Cause::Silent => {
            (Kind::NoAnswer, "see that the store is well, and that endpoint is its S3 API; if it speaks TLS, write https://")
        }
    };
    Problem::new(kind, silence.why.clone(), fix)
}

/// Why what was said to a list of buckets is nothing that an S3 store says.
pub fn not_s3(said: &Said) -> Problem {
    if said.is_ok() && said.document().contains("<ListBucketResult") {
        return names_a_bucket(said);
    }
    let why = format!("what answers there is no S3 store: a list of buckets gets {said}, and nothing of S3 in it");
    let fix = match said.status {
        300..400 => return redirects(said),
        408 | 429 => return not_now(said),
        502..=504 => "a proxy before the store answers in its place: see that the store runs, and that the proxy finds it",
        _ => "set endpoint to the store's S3 API, whose port is not that of its console or administration",
    };
    Problem::new(Kind::NotS3, why, fix)
}

fn names_a_bucket(said: &Said) -> Problem {
    let why = format!("the endpoint names a bucket: a list of buckets is taken for a list of its objects ({said})");
    Problem::new(Kind::NotS3, why, "leave the bucket out of endpoint: it stands before the host's own name")
}

fn redirects(said: &Said) -> Problem {
    let (to, fix) = match &said.other_host {
        Some(host) => (format!(" to {host}"), format!("set endpoint to {host}, with https:// if that is what it speaks")),
        None => (String::new(), "set endpoint to where it redirects to, which is often the same host with https://".to_owned()),
    };
    Problem::new(Kind::NotS3, format!("what answers there redirects{to} ({said})"), fix)
}

fn not_now(said: &Said) -> Problem {
    Problem::new(Kind::NoAnswer, format!("the store gives no proper answer now ({said})"), "try again once the store is well")
}

/// What a store that speaks S3 said of the pair, the region, the clock or the endpoint, where it is that which it refuses. Nothing
/// where it does not refuse them: it did what it was asked, or said that this account may not.
pub fn of_refusal(said: &Said, signed: Signed<'_>) -> Option<Problem> {
    let code = said.code.as_deref().unwrap_or_default();
    let Signed { access_key, region, table } = signed;
    let skew = said.clock_ahead.filter(|seconds| seconds.abs() >= SKEW_SECONDS_MAX);
    let is_refusal = matches!(said.status, 401 | 403) || is_about_our_signature(code);
    if code == "RequestTimeTooSkewed" || is_refusal && skew.is_some() {
        let why = match skew {
            Some(ahead) if ahead > 0 => format!("this host's clock is {} behind the store's ({said})", span(ahead)),
            Some(ahead) => format!("this host's clock is {} ahead of the store's ({said})", span(-ahead)),
            None => format!("this host's clock and the store's are too far apart ({said})"),
        };
        return Some(Problem::new(Kind::Clock, why, "let NTP set both clocks; a signature holds for 15 minutes"));
    }
    if code == "AuthorizationHeaderMalformed" {
        let why = format!("it refuses signatures for the region {region:?}, and names no other ({said})");
        return Some(Problem::new(Kind::Region, why, "set region to the one that the store itself is set to"));
    }
    if said.is_ok() || matches!(code, "AccessDenied" | "NotImplemented" | "MethodNotAllowed") {
        return None;
    }
    match said.status {
        _ if is_refusal => {}
        300..400 => return Some(redirects(said)),
        408 | 429 | 500.. => return Some(not_now(said)),
        // Some stores say so of what was too slow in coming, and of too many.
        _ if matches!(code, "RequestTimeout" | "SlowDown" | "TooManyRequests") => return Some(not_now(said)),
        _ if code == "NoSuchBucket" => return Some(names_a_bucket(said)),
        _ => {
            let why = format!("the endpoint is not the root of an S3 store: a list of buckets gets {said}");
            let fix = "set endpoint to a host and port whose root is a store's S3 API; one that is below a path cannot be used";
            return Some(Problem::new(Kind::NotS3, why, fix));
        }
    }
    let place = table.unwrap_or("credentials");
    let (why, fix) = match code {
        "InvalidAccessKeyId" => (
            format!("the store does not know the access key {access_key:?} ({said})"),
            format!("set {place}.access_key and {place}.secret_key to a pair of this store"),
        ),
        "SignatureDoesNotMatch" => (
            format!("the secret key is not that of the access key {access_key:?} ({said})"),
            format!("set {place}.secret_key anew; if it is right, a proxy before the store changes path or Host"),
        ),
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => (
            format!("the session token has ended, or is not that of the access key {access_key:?} ({said})"),
            format!("set {place}.session_token anew, or none for a pair that lasts"),
        ),
        _ => (
            format!("it refuses the access key {access_key:?} ({said})"),
            format!("see at the store what is the matter with that account, or set another pair in {place}"),
        ),
    };
    let fix = match table {
        Some(_) => fix,
        None => {
            "the chain (environment, profile, role) found that pair: mend it there, or set credentials to a \"static\" one".into()
        }
    };
    Some(Problem::new(Kind::Credentials, why, fix))
}

/// So many seconds as people say it.
fn span(seconds: i64) -> String {
    match seconds {
        ..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, code: &str, clock_ahead: i64) -> Said {
        Said { clock_ahead: Some(clock_ahead), ..Said::of(status, code) }
    }

    const SIGNED: Signed<'_> = Signed { access_key: "AK", region: "r", table: Some("credentials") };

    #[test]
    fn a_refusal_is_told_by_what_there_is_to_set() {
        let cases = [
            (403, "InvalidAccessKeyId", 0, Kind::Credentials, "does not know the access key \"AK\"", "credentials.access_key"),
            (403, "SignatureDoesNotMatch", 0, Kind::Credentials, "secret key is not that of", "set credentials.secret_key"),
            (400, "ExpiredToken", 0, Kind::Credentials, "session token has ended", "set credentials.session_token"),
            (403, "UserSuspended", 0, Kind::Credentials, "refuses the access key \"AK\"", "another pair in credentials"),
            (403, "RequestTimeTooSkewed", 1200, Kind::Clock, "is 20 min behind the store's", "NTP"),
            (403, "RequestTimeTooSkewed", 0, Kind::Clock, "are too far apart", "NTP"),
            (403, "AccessDenied", -10_000, Kind::Clock, "is 2 h ahead of the store's", "NTP"),
            (403, "SignatureDoesNotMatch", -200_000, Kind::Clock, "is 2 days ahead of", "NTP"),
            (400, "AuthorizationHeaderMalformed", 0, Kind::Region, "for the region \"r\"", "set region"),
            (401, "Unauthorized", 0, Kind::Credentials, "refuses the access key \"AK\"", "another pair in credentials"),
            (503, "SlowDown", 0, Kind::NoAnswer, "503 SlowDown", "try again"),
            (500, "InternalError", 0, Kind::NoAnswer, "no proper answer now", "try again"),
            (429, "TooManyRequests", 0, Kind::NoAnswer, "no proper answer now", "try again"),
            (408, "RequestTimeout", 0, Kind::NoAnswer, "no proper answer now", "try again"),
            (400, "RequestTimeout", 0, Kind::NoAnswer, "no proper answer now", "try again"),
            (301, "PermanentRedirect", 0, Kind::NotS3, "redirects (301 PermanentRedirect)", "where it redirects to"),
            (404, "NoSuchBucket", 0, Kind::NotS3, "the endpoint names a bucket", "leave the bucket out of endpoint"),
            (400, "InvalidURI", 0, Kind::NotS3, "not the root of an S3 store", "set endpoint to"),
            (404, "NoSuchKey", 0, Kind::NotS3, "not the root of an S3 store", "set endpoint to"),
            (400, "InvalidURI", 5000, Kind::NotS3, "not the root of an S3 store", "set endpoint to"),
        ];
        for (status, code, ahead, kind, why, fix) in cases {
            let problem = of_refusal(&said(status, code, ahead), SIGNED).expect(code);
            assert_eq!(problem.kind, kind, "{code}");
            assert!(problem.why.contains(why) && problem.fix.contains(fix), "{problem:?}");
        }
        let chained = of_refusal(&said(403, "InvalidAccessKeyId", 0), Signed { table: None, ..SIGNED }).expect("refused");
        assert!(chained.fix.starts_with("the chain"), "{}", chained.fix);
    }

    #[test]
    fn who_may_not_is_known_all_the_same() {
        let taken = [(200, "", 5000), (403, "AccessDenied", 60), (501, "NotImplemented", 0), (405, "MethodNotAllowed", 0)];
        for (status, code, ahead) in taken {
            assert_eq!(of_refusal(&said(status, code, ahead), SIGNED), None, "{status} {code}");
        }
    }

    #[test]
    fn what_is_no_store_is_told_by_what_it_does() {
        for (status, fix) in [(200, "console"), (404, "console"), (301, "https://"), (502, "a proxy before the store")] {
            let problem = not_s3(&said(status, "", 0));
            assert!(problem.kind == Kind::NotS3 && problem.fix.contains(fix), "{problem:?}");
        }
        assert_eq!(not_s3(&said(429, "", 0)).kind, Kind::NoAnswer);
        let of_objects = not_s3(&Said { body: "<a:ListBucketResult/>".into(), ..said(200, "", 0) });
        assert!(of_objects.fix.contains("leave the bucket out"), "{of_objects:?}");
    }

    #[test]
    fn a_redirect_names_the_host_to_set() {
        let redirect = Said { other_host: Some("s3.eu.example".into()), ..said(307, "TemporaryRedirect", 0) };
        for problem in [of_refusal(&redirect, SIGNED).expect("a problem"), not_s3(&Said { code: None, ..redirect.clone() })] {
            assert!(problem.why.contains("redirects to s3.eu.example (307"), "{problem:?}");
            assert!(problem.fix.contains("set endpoint to s3.eu.example"), "{problem:?}");
        }
    }
}
