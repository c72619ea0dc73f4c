//! Who is asking. The untouched head of a request enters, before anything was added to it or taken from it; the identity that
//! signed it and the rules for its body leave. The body is not read here, so that a refusal costs the client no upload. Every
//! `x-amz-*` header must be covered by the signature, because it would be signed anew, with more power, on its way to a backend.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::UNIX_EPOCH;

use http::request::Parts;
use lru::LruCache;
use s3s_sigv4::{AmzContentSha256, calculate_signature_with_key, derive_signing_key};
use subtle::ConstantTimeEq;

use super::canonical::{Canonical, host, hosts, single};
use super::claim::{Claim, Claimed, Presigned};
use super::declared::{Declared, parse_payload};
use super::refusals::{expired, no_match, no_version_2, skewed};
use super::{Authenticated, ChunkSeal, Identity, Payload, Scheme, sigv2};
use crate::error::{Error, Kind, Result};
use crate::types::{S3Target, WallClock};

/// How far the client's clock may be from ours, in seconds: S3's fifteen minutes.
pub const SKEW_SECONDS_MAX: i64 = 15 * 60;

/// Derived keys that are remembered: one for each identity and day in use, far more than a gateway has.
const SIGNING_KEYS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Verifies signatures for a set of identities; shared by all requests.
pub struct Authenticator {
    /// Held only to take or to put the pointer; a request goes on with the set that it found.
    known: RwLock<Arc<Known>>,
    region: String,
    chunk_bytes_max: u64,
    now: WallClock,
    also: Also,
}

/// What is let in beside Signature Version 4 for the one region; nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Also {
    /// Signature Version 2.
    pub version_2: bool,
    /// Requests without any signature.
    pub nobody: bool,
    /// Signatures of Version 4 for any other region.
    pub any_region: bool,
}

/// One set of identities, with what was derived from their secrets: a key of an old set can never verify for a new one.
struct Known {
    identities: HashMap<String, (usize, Arc<Identity>)>,
    /// Those for the region that is served; deriving one costs four HMACs, more than the verification itself.
    keys: Mutex<LruCache<(usize, String), [u8; 32]>>,
}

impl Known {
    fn new(identities: Vec<Identity>) -> Arc<Self> {
        let identities = identities.into_iter().enumerate();
        let identities = identities.map(|(index, identity)| (identity.access_key.clone(), (index, Arc::new(identity)))).collect();
        Arc::new(Self { identities, keys: Mutex::new(LruCache::new(SIGNING_KEYS_MAX)) })
    }

    fn find(&self, access_key: &str) -> Result<(usize, &Arc<Identity>)> {
        let message = "The AWS Access Key Id you provided does not exist in our records.";
        let unknown = || Error::new(Kind::InvalidAccessKeyId, message).with_detail("AWSAccessKeyId", access_key);
        self.identities.get(access_key).map(|(index, identity)| (*index, identity)).ok_or_else(unknown)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Serves `identities` in `region`; a signature for another region is refused, as on S3, unless that is let in too.
    /// `chunk_bytes_max` bounds a signed chunk of an upload, in bytes.
    ///
    /// # Hidden contract
    /// Access keys are unique; of two identities with one key the later would win.
    pub fn new(identities: Vec<Identity>, region: &str, chunk_bytes_max: u64, now: WallClock) -> Self {
        let known = RwLock::new(Known::new(identities));
        Self { known, region: region.to_owned(), chunk_bytes_max, now, also: Also::default() }
    }

    /// Lets in `also`.
    pub fn letting_in(self, also: Also) -> Self {
        Self { also, ..self }
    }

    /// From the next request on, these are all identities there are. A request whose identity was found already, a batch with
    /// all its entries too, ends under that one.
    ///
    /// # Hidden contract
    /// As of [`Authenticator::new`].
    pub fn replace(&self, identities: Vec<Identity>) {
        let known = Known::new(identities);
        let before = std::mem::replace(&mut *self.known.write().unwrap_or_else(PoisonError::into_inner), known);
        // Its end is not the lock's business.
        drop(before);
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The identity with this access key, and its key for the day and the region of a signature of Version 4.
    pub(super) fn identity_of(&self, claim: &Claim<'_>) -> Result<(Arc<Identity>, [u8; 32])> {
        let known = self.known();
        let (index, identity) = known.find(&claim.access_key)?;
        Ok((Arc::clone(identity), self.signing_key(&known, index, identity, claim)))
    }

    /// The identity with this access key.
    pub(super) fn identity(&self, access_key: &str) -> Result<Arc<Identity>> {
        self.known().find(access_key).map(|(_, identity)| Arc::clone(identity))
    }

    /// The region that a signature for `region` should have been for; nothing if it may be for that one.
    pub(super) fn region_instead_of(&self, region: &str) -> Option<&str> {
        (region != self.region && !self.also.any_region).then_some(&self.region)
    }

    /// What is let in beside Version 4.
    pub(super) fn also(&self) -> Also {
        self.also
    }

    /// The time, in seconds since 1970.
    pub(super) fn seconds(&self) -> i64 {
        self.age(0)
    }

    /// Finds out who signed `head`, which is about `target`.
    ///
    /// # Errors
    /// S3's own codes: `AccessDenied` (anonymous, expired, unsigned `x-amz-*`), `AuthorizationHeaderMalformed`,
    /// `AuthorizationQueryParametersError`, `InvalidAccessKeyId`, `InvalidArgument`, `InvalidRequest` (Version 2 where it is not
    /// let in), `InvalidToken`, `NotImplemented`, `RequestTimeTooSkewed`, `SignatureDoesNotMatch`.
    pub fn authenticate(&self, head: &Parts, target: &S3Target) -> Result<Authenticated> {
        match Claimed::read(head)? {
            Claimed::V4(claim) => self.version_4(head, *claim),
            Claimed::V2(header) if self.also.version_2 => self.version_2(head, target, header),
            Claimed::V2(_) => Err(no_version_2()),
            Claimed::Nobody if self.also.nobody => {
                host(head)?;
                Ok(Authenticated::nobody())
            }
            Claimed::Nobody => {
                // An unsigned HEAD of a bucket is how clients ask which region to sign for.
                let message = "Anonymous requests are not allowed; sign with Signature Version 4.";
                Err(Error::new(Kind::AccessDenied, message).with_detail("Region", &self.region))
            }
        }
    }

    fn version_4(&self, head: &Parts, claim: Claim<'_>) -> Result<Authenticated> {
        self.check_scope(&claim)?;
        self.check_time(&claim)?;
        let known = self.known();
        let (index, identity) = known.find(&claim.access_key)?;
        let declared = Declared::of(head, &claim)?;
        check_headers_signed(head, &claim)?;
        let key = self.signing_key(&known, index, identity, &claim);
        // Before the signature, as on S3, where it is part of what names the key.
        check_token(identity, claim.token.as_deref())?;
        let signature = verify(head, &claim, &declared, &key)?;
        let seal = || ChunkSeal {
            key,
            previous: signature,
            scope: format!("{}\n{}/{}/s3/aws4_request\n", claim.stamp, claim.day, claim.region),
            chunk_bytes_max: self.chunk_bytes_max,
        };
        let payload = match declared.kind {
            AmzContentSha256::SingleChunk(sha256) => Payload::Signed { sha256 },
            AmzContentSha256::UnsignedPayload => Payload::Unsigned,
            AmzContentSha256::StreamingUnsignedPayloadTrailer => Payload::UnsignedTrailer,
            AmzContentSha256::StreamingAws4HmacSha256Payload => Payload::SignedChunks(seal()),
            AmzContentSha256::StreamingAws4HmacSha256PayloadTrailer => Payload::SignedChunksTrailer(seal()),
            AmzContentSha256::StreamingAws4EcdsaP256Sha256Payload
            | AmzContentSha256::StreamingAws4EcdsaP256Sha256PayloadTrailer => {
                return Err(Error::new(Kind::NotImplemented, "AWS4-ECDSA-P256-SHA256 is not implemented; use AWS4-HMAC-SHA256."));
            }
        };
        let covers_body = !matches!(payload, Payload::Unsigned | Payload::UnsignedTrailer);
        Ok(Authenticated {
            identity: Arc::clone(identity),
            scheme: Scheme::V4,
            payload,
            payload_pinned: covers_body && declared.signed,
            presigned: claim.presigned.is_some(),
            signed_headers: claim.signed_headers.into_owned(),
        })
    }

    fn version_2(&self, head: &Parts, target: &S3Target, header: Option<&[u8]>) -> Result<Authenticated> {
        let claim = match header {
            Some(value) => sigv2::Claim::from_header(head, value)?,
            None => sigv2::Claim::from_query(head.uri.query().unwrap_or_default())?,
        };
        match claim.time {
            sigv2::Time::At(seconds) if self.age(seconds).abs() > SKEW_SECONDS_MAX => return Err(skewed()),
            sigv2::Time::Until(seconds) if self.age(seconds) > 0 => return Err(expired()),
            _ => {}
        }
        let known = self.known();
        let (_, identity) = known.find(&claim.access_key)?;
        host(head)?;
        let payload = match single(&head.headers, "x-amz-content-sha256")? {
            None => Payload::Unsigned,
            Some(value) => match parse_payload(&String::from_utf8_lossy(value))? {
                AmzContentSha256::SingleChunk(sha256) => Payload::Signed { sha256 },
                AmzContentSha256::UnsignedPayload => Payload::Unsigned,
                AmzContentSha256::StreamingUnsignedPayloadTrailer => Payload::UnsignedTrailer,
                _ => return Err(Error::new(Kind::NotImplemented, "Signature Version 2 cannot sign the chunks of an upload.")),
            },
        };
        if !claim.is_signed_by(&identity.secret_key, head, target)? {
            return Err(no_match(&claim.access_key));
        }
        check_token(identity, claim.token.as_deref())?;
        Ok(Authenticated {
            identity: Arc::clone(identity),
            scheme: Scheme::V2,
            payload_pinned: matches!(payload, Payload::Signed { .. }),
            payload,
            presigned: claim.is_presigned(),
            signed_headers: String::new(),
        })
    }

    /// How long ago it was, in seconds.
    fn age(&self, seconds: i64) -> i64 {
        let now = (self.now)().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(seconds)
    }

    fn check_scope(&self, claim: &Claim<'_>) -> Result<()> {
        if let Some(region) = self.region_instead_of(&claim.region) {
            let what = format!("the region '{}' is wrong; expecting '{region}'", claim.region);
            return Err(claim.malformed(what).with_detail("Region", region));
        }
        if !claim.stamp.starts_with(&claim.day) {
            return Err(claim.other_day());
        }
        if !claim.signs("host") {
            return Err(claim.malformed("the host header must be signed."));
        }
        if claim.repeats_a_header() {
            return Err(claim.malformed("a signed header is listed twice."));
        }
        Ok(())
    }

    fn check_time(&self, claim: &Claim<'_>) -> Result<()> {
        let age = self.age(claim.seconds);
        match &claim.presigned {
            None if age.abs() > SKEW_SECONDS_MAX => Err(skewed()),
            Some(_) if age < -SKEW_SECONDS_MAX => Err(Error::new(Kind::AccessDenied, "Request is not valid yet")),
            Some(Presigned { expires, .. }) if age > i64::try_from(*expires).unwrap_or(i64::MAX) => Err(expired()),
            _ => Ok(()),
        }
    }

    fn signing_key(&self, known: &Known, index: usize, identity: &Identity, claim: &Claim<'_>) -> [u8; 32] {
        let derive = || derive_signing_key(identity.secret_key.as_bytes(), &claim.date, &claim.region, "s3");
        if claim.region != self.region {
            // Names of regions are whatever clients make up: they must not push out the keys that are in use.
            return derive();
        }
        // A poisoned cache is still a cache: its entries are written whole.
        let mut keys = known.keys.lock().unwrap_or_else(PoisonError::into_inner);
        *keys.get_or_insert((index, claim.day.clone()), derive)
    }
}

/// Refuses what the signer did not see and a backend would act on. The payload's hash is checked on its own.
fn check_headers_signed(head: &Parts, claim: &Claim<'_>) -> Result<()> {
    let open = head.headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
    let mut open: Vec<_> = open.filter(|name| *name != "x-amz-content-sha256" && !claim.signs(name)).collect();
    if open.is_empty() {
        return Ok(());
    }
    open.sort_unstable();
    let message = "There were headers present in the request which were not signed";
    Err(Error::new(Kind::AccessDenied, message).with_detail("HeadersNotSigned", open.join(", ")))
}

/// The signature, once it was found to be that of one of the forms in which this request can be signed.
fn verify(head: &Parts, claim: &Claim<'_>, declared: &Declared<'_>, key: &[u8; 32]) -> Result<[u8; 32]> {
    let mut to_sign = String::with_capacity(160);
    for host in hosts(host(head)?) {
        let canonical = Canonical::new(head, &host, &claim.signed_headers)?;
        for path in canonical.paths() {
            for line in declared.lines.into_iter().flatten() {
                to_sign.clear();
                for piece in ["AWS4-HMAC-SHA256\n", &claim.stamp, "\n", &claim.day, "/", &claim.region, "/s3/aws4_request\n"] {
                    to_sign.push_str(piece);
                }
                push_hex(&mut to_sign, &canonical.digest(&path, line));
                let signature = calculate_signature_with_key(&to_sign, key);
                if signature.ct_eq(&claim.signature).into() {
                    return Ok(signature);
                }
            }
        }
    }
    let mut provided = String::with_capacity(64);
    push_hex(&mut provided, &claim.signature);
    Err(no_match(&claim.access_key).with_detail("StringToSign", to_sign).with_detail("SignatureProvided", provided))
}

pub(super) fn check_token(identity: &Identity, token: Option<&[u8]>) -> Result<()> {
    let fits = match (&identity.session_token, token) {
        (None, None) => true,
        (Some(expected), Some(given)) => expected.as_bytes().ct_eq(given).into(),
        _ => false,
    };
    if fits { Ok(()) } else { Err(Error::new(Kind::InvalidToken, "The provided token is malformed or otherwise invalid.")) }
}

pub(super) fn push_hex(out: &mut String, bytes: &[u8; 32]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
#[path = "authenticator_tests.rs"]
mod tests;
