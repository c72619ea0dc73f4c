//! SigV4 in the `Authorization` header, by which a backend knows us
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>). Signs `host`, `content-md5`,
//! `content-type` and every `x-amz-*` header of the request; the path is encoded once and never normalised. The day's key is
//! derived once and kept.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, header};
use lru::LruCache;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::super::BoxError;
use super::super::form::PostForm;
use super::credentials::KeyPair;
use crate::config::Secret;
use crate::types::{hex32, query_pairs};

/// What `x-amz-content-sha256` says of a body that is not signed.
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// SHA-256 of nothing, in hex.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Key pairs whose newest derived key is kept: the backend's own, and those of the clients that have accounts there.
const PAIRS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Signs for one region. Cheap to share.
#[derive(Debug)]
pub struct Signer {
    region: String,
    /// What was last derived for a pair, by its place in memory: only the newest is ever needed. The pair is kept with it, so
    /// that no other can come to stand there.
    newest: Mutex<LruCache<usize, Derived>>,
}

/// What requests of the same second by the same key pair have in common.
#[derive(Clone, Debug)]
struct Derived {
    second: i64,
    pair: Arc<KeyPair>,
    /// `20130524T000000Z`
    stamp: HeaderValue,
    /// `20130524/us-east-1/s3/aws4_request`
    scope: Arc<str>,
    /// HMAC keyed with the day's key, so that signing only clones its state.
    mac: Hmac<Sha256>,
}

/// Signs the chunks of one body, each on from the one before.
pub struct Seal {
    stamp: HeaderValue,
    scope: Arc<str>,
    mac: Hmac<Sha256>,
    previous: [u8; 64],
}

impl Seal {
    /// The next signature, in hex, over what `algorithm` puts behind the one before: lines of `rest`.
    pub fn next(&mut self, algorithm: &str, rest: &[&[u8]]) -> [u8; 64] {
        let mut mac = self.mac.clone();
        let lines = [algorithm.as_bytes(), self.stamp.as_bytes(), self.scope.as_bytes(), &self.previous];
        for (i, line) in lines.iter().chain(rest).enumerate() {
            if i > 0 {
                mac.update(b"\n");
            }
            mac.update(line);
        }
        self.previous = hex32(&mac.finalize().into_bytes().into());
        self.previous
    }
}

impl Signer {
    /// A signer for `region`, service `s3`.
    pub fn new(region: &str) -> Self {
        Self { region: region.to_owned(), newest: Mutex::new(LruCache::new(PAIRS_MAX)) }
    }

    /// The region that it signs for.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Adds `x-amz-date`, the session token if there is one, and `authorization`. The request's `host` and
    /// `x-amz-content-sha256` must be there already.
    pub fn sign(&self, method: &Method, path: &PathAndQuery, headers: &mut HeaderMap, pair: &Arc<KeyPair>, now: SystemTime) {
        let Derived { stamp, scope, mut mac, .. } = self.derived(pair, now);
        headers.insert("x-amz-date", stamp.clone());
        if let Some(token) = &pair.session_token {
            headers.insert("x-amz-security-token", token.clone());
        }
        let (canonical, signed_names) = canonical_request(method, path, headers);
        let hash = hex32(&Sha256::digest(&canonical).into());
        for part in [b"AWS4-HMAC-SHA256\n", stamp.as_bytes(), b"\n", scope.as_bytes(), b"\n", &hash] {
            mac.update(part);
        }
        let signature = hex32(&mac.finalize().into_bytes().into());
        let access_key = pair.access_key.as_bytes();
        let parts: [&[u8]; 8] = [
            b"AWS4-HMAC-SHA256 Credential=",
            access_key,
            b"/",
            scope.as_bytes(),
            b",SignedHeaders=",
            signed_names.as_bytes(),
            b",Signature=",
            &signature,
        ];
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(&parts.concat()).expect(HEADER_SAFE));
    }

    /// What signatures of a body's chunks go on from, after [`Self::sign`] has signed its head, with the same `pair` at the same
    /// time.
    pub fn seal(&self, headers: &HeaderMap, pair: &Arc<KeyPair>, now: SystemTime) -> Seal {
        let Derived { stamp, scope, mac, .. } = self.derived(pair, now);
        let signature = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().last_chunk());
        Seal { stamp, scope, mac, previous: *signature.expect("it was signed, and a signature is the last of it") }
    }

    /// All of a form before its file, with its policy signed
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-authentication-HTTPPOST.html>).
    pub fn sign_form(&self, form: &PostForm, pair: &Arc<KeyPair>, now: SystemTime) -> Result<Bytes, BoxError> {
        let Derived { stamp, scope, mut mac, .. } = self.derived(pair, now);
        let credential = format!("{}/{scope}", pair.access_key);
        let mut signed = vec![
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", credential.as_str()),
            ("x-amz-date", stamp.to_str()?),
        ];
        if let Some(token) = &pair.session_token {
            signed.push(("x-amz-security-token", token.to_str()?));
        }
        let policy = form.policy(&signed);
        mac.update(policy.as_bytes());
        let signature = hex32(&mac.finalize().into_bytes().into());
        signed.extend([("policy", policy.as_str()), ("x-amz-signature", std::str::from_utf8(&signature)?)]);
        Ok(form.head(&signed))
    }

    fn derived(&self, pair: &Arc<KeyPair>, now: SystemTime) -> Derived {
        let now = OffsetDateTime::from(now);
        let second = now.unix_timestamp();
        let mut newest = self.newest.lock().expect("deriving a key does not panic");
        let place = Arc::as_ptr(pair).addr();
        let known = newest.get(&place).filter(|known| Arc::ptr_eq(&known.pair, pair));
        if let Some(known) = known.filter(|known| known.second == second) {
            return known.clone();
        }
        let stamp = iso8601(now);
        let scope = format!("{}/{}/s3/aws4_request", &stamp[..8], self.region);
        let mac = match known.filter(|known| *known.scope == scope) {
            Some(known) => known.mac.clone(),
            None => day_key(&pair.secret_key, &scope),
        };
        let stamp = HeaderValue::from_str(&stamp).expect(HEADER_SAFE);
        let derived = Derived { second, pair: Arc::clone(pair), stamp, scope: scope.into(), mac };
        newest.put(place, derived.clone());
        derived
    }
}

const HEADER_SAFE: &str = "made of header-safe characters: dates, hex and validated settings";

/// HMAC keyed with what the secret and the parts of the scope, one after another, derive.
fn day_key(secret_key: &Secret, scope: &str) -> Hmac<Sha256> {
    let secret = format!("AWS4{}", secret_key.expose());
    scope.split('/').fold(keyed(secret.as_bytes()), |mut mac, part| {
        mac.update(part.as_bytes());
        keyed(&mac.finalize().into_bytes())
    })
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("hmac takes keys of any length")
}

/// `20130524T000000Z`
fn iso8601(t: OffsetDateTime) -> String {
    format!("{:04}{:02}{:02}T{:02}{:02}{:02}Z", t.year(), u8::from(t.month()), t.day(), t.hour(), t.minute(), t.second())
}

fn is_signed(name: &str) -> bool {
    matches!(name, "host" | "content-md5" | "content-type") || name.starts_with("x-amz-")
}

/// The canonical request and the names of the headers in it, joined by `;`.
fn canonical_request(method: &Method, path: &PathAndQuery, headers: &HeaderMap) -> (Vec<u8>, String) {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b'\n');
    canonical_path(&mut out, path.path());
    out.push(b'\n');
    if let Some(query) = path.query() {
        canonical_query(&mut out, query);
    }
    out.push(b'\n');
    let mut names: Vec<_> = headers.keys().map(|name| name.as_str()).filter(|name| is_signed(name)).collect();
    names.sort_unstable();
    for name in &names {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        for (i, value) in headers.get_all(*name).iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            // Bytes, not text: a value need not be UTF-8.
            let words = value.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            for (j, word) in words.enumerate() {
                if j > 0 {
                    out.push(b' ');
                }
                out.extend_from_slice(word);
            }
        }
        out.push(b'\n');
    }
    let names = names.join(";");
    out.push(b'\n');
    out.extend_from_slice(names.as_bytes());
    out.push(b'\n');
    let payload = headers.get("x-amz-content-sha256").expect("callers set it");
    out.extend_from_slice(payload.as_bytes());
    (out, names)
}

/// The path as the receiver will read it, encoded once: `a%20b` and `a b` are the same, `%2520` stays what it is.
fn canonical_path(out: &mut Vec<u8>, raw: &str) {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'/');
    if raw.bytes().all(plain) {
        out.extend_from_slice(raw.as_bytes());
        return;
    }
    let decoded: Vec<u8> = percent_decode_str(raw).collect();
    out.extend(percent_encode(&decoded, PATH).flat_map(str::bytes));
}

fn canonical_query(out: &mut Vec<u8>, raw: &str) {
    // Receivers read a raw `+` in a query as a space.
    let encode = |part: &str| {
        let spaced = part.replace('+', " ");
        let decoded: Vec<u8> = percent_decode_str(&spaced).collect();
        percent_encode(&decoded, UNRESERVED).to_string()
    };
    let mut pairs: Vec<_> = query_pairs(raw).map(|(name, value)| (encode(name), encode(value))).collect();
    pairs.sort_unstable();
    for (i, (name, value)) in pairs.iter().enumerate() {
        if i > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(format!("{name}={value}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The key pair and the instant of the examples in the S3 documentation.
    fn example() -> (Arc<KeyPair>, SystemTime) {
        let pair = KeyPair::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None).expect("valid");
        (Arc::new(pair), SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600))
    }

    fn signature(path: &'static str, extra: &[(&'static str, &'static str)], method: Method) -> String {
        let (pair, now) = example();
        let mut headers: HeaderMap = [("host", "examplebucket.s3.amazonaws.com"), ("x-amz-content-sha256", EMPTY_SHA256)]
            .iter()
            .chain(extra)
            .map(|(n, v)| (http::HeaderName::from_static(n), HeaderValue::from_static(v)))
            .collect();
        Signer::new("us-east-1").sign(&method, &PathAndQuery::from_static(path), &mut headers, &pair, now);
        let authorization = headers["authorization"].to_str().expect("text").to_owned();
        authorization.rsplit_once("Signature=").expect("signed").1.to_owned()
    }

    #[test]
    fn signatures_equal_the_documented_examples() {
        assert_eq!(signature("/?lifecycle", &[], Method::GET), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        assert_eq!(
            signature("/?max-keys=2&prefix=J", &[], Method::GET),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn a_form_is_signed_over_the_base64_of_its_policy() {
        let (pair, now) = example();
        let form = PostForm {
            boundary: "b0".to_owned(),
            bucket: "b".to_owned(),
            expiration: "2013-05-25T00:00:00Z".to_owned(),
            conditions: Vec::new(),
            fields: Vec::new(),
            file_name: String::new(),
            file_type: None,
        };
        let head = Signer::new("us-east-1").sign_form(&form, &pair, now).expect("text");
        let head = std::str::from_utf8(&head).expect("text");
        let field = |name: &str| {
            let (_, rest) = head.split_once(&format!("name=\"{name}\"\r\n\r\n")).expect(name);
            rest.split_once("\r\n").expect("a line").0
        };
        let scope = "20130524/us-east-1/s3/aws4_request";
        assert_eq!(field("x-amz-credential"), format!("AKIAIOSFODNN7EXAMPLE/{scope}"));
        let mut mac = day_key(&pair.secret_key, scope);
        mac.update(field("policy").as_bytes());
        assert_eq!(field("x-amz-signature").as_bytes(), hex32(&mac.finalize().into_bytes().into()));
        assert!(!head.contains("x-amz-security-token"));
        let temporary = Arc::new(KeyPair::new("A", "S", Some("T")).expect("valid"));
        let head = Signer::new("r").sign_form(&form, &temporary, now).expect("text");
        assert!(std::str::from_utf8(&head).expect("text").contains("name=\"x-amz-security-token\"\r\n\r\nT\r\n"));
    }

    #[test]
    fn paths_are_canonicalised_as_the_receiver_reads_them() {
        for (raw, canonical) in [
            ("/b/a b", "/b/a%20b"),
            ("/b/a%20b", "/b/a%20b"),
            ("/b/100%2525", "/b/100%2525"),
            ("/b/@('!*=)", "/b/%40%28%27%21%2A%3D%29"),
            ("/b//../.", "/b//../."),
        ] {
            let mut out = Vec::new();
            canonical_path(&mut out, raw);
            assert_eq!(out, canonical.as_bytes(), "{raw}");
        }
        let mut out = Vec::new();
        canonical_query(&mut out, "prefix=a+b&delimiter=%2F&acl");
        assert_eq!(out, b"acl=&delimiter=%2F&prefix=a%20b");
    }

    #[test]
    fn a_new_day_or_a_new_pair_gets_a_new_key() {
        let signer = Signer::new("r");
        let (pair, now) = example();
        let key = |pair: &Arc<KeyPair>, now: SystemTime| signer.derived(pair, now).mac.finalize().into_bytes();
        let one = key(&pair, now);
        assert_eq!(key(&pair, now + Duration::from_secs(86_399)), one);
        assert_ne!(key(&pair, now + Duration::from_secs(86_400)), one);
        let other = Arc::new(KeyPair::new("A", "S", None).expect("valid"));
        assert_ne!(key(&other, now), one);
        assert_eq!(signer.derived(&pair, now + Duration::from_secs(1)).stamp, "20130524T000001Z");
    }

    #[test]
    fn the_keys_of_many_pairs_are_kept_side_by_side_and_are_not_more_than_so_many() {
        let signer = Signer::new("r");
        let (_, now) = example();
        let pair_of = |n: usize| Arc::new(KeyPair::new("A", &n.to_string(), None).expect("valid"));
        let pairs: Vec<_> = (0..PAIRS_MAX.get() + 10).map(pair_of).collect();
        let key = |pair: &Arc<KeyPair>| signer.derived(pair, now).mac.finalize().into_bytes();
        for _ in 0..2 {
            // As a new signer has it, which knows no other pair.
            pairs.iter().for_each(|pair| assert_eq!(key(pair), Signer::new("r").derived(pair, now).mac.finalize().into_bytes()));
        }
        assert_eq!(signer.newest.lock().expect("not poisoned").len(), PAIRS_MAX.get());
    }
}
