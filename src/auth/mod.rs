//! Who is asking, is the body what was signed, and may this identity do this. The head of a client's request enters first and
//! an [`Authenticated`] leaves; its body enters a [`VerifiedBody`] and leaves decoded, never ending cleanly unless all of it
//! was what the client signed; what the request needs is named by [`action`] and asked of the identity's [`policy`]. Nothing
//! here knows what is served behind it. In reading order: `authenticator` (over `claim`, `canonical` and `refusals`; `sigv2` for
//! old clients), `body` (over `chunked` and `checksum`; `held` reads it whole), `policy` (over `reading`), `action` (over `copy_source`), `delete`;
//! and `form`, where all of this is in the body.

pub mod action;
mod authenticator;
mod body;
mod body_error;
mod canonical;
mod checksum;
mod chunked;
mod claim;
mod copy_source;
mod declared;
pub mod delete;
pub mod form;
mod held;
pub mod policy;
mod reading;
mod refusals;
mod sigv2;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use action::{Permission, permissions};
pub use authenticator::{Also, Authenticator, SKEW_SECONDS_MAX};
pub use body::{OBJECT_BYTES_MAX, Verdict, VerifiedBody};
pub use body_error::BodyError;
pub use canonical::check_host;
pub use checksum::trailer_value_length;
pub use claim::EXPIRES_SECONDS_MAX;
pub use copy_source::CopySource;
pub use held::{HELD_TIMEOUT, Payer};
pub use policy::Policy;
pub use reading::has_dots;

use http::HeaderMap;

use crate::backend::{KeyPair, Sender};
use crate::error::{Error, Kind, Result};

/// Someone who may ask: a pair of keys and what it may do.
pub struct Identity {
    /// The name in settings and logs.
    pub name: String,
    /// The public half of the credentials.
    pub access_key: String,
    secret_key: String,
    session_token: Option<String>,
    /// What it may do.
    pub policy: Policy,
    /// Its own accounts at backends, by their names.
    accounts: HashMap<String, Arc<KeyPair>>,
}

impl Identity {
    /// An identity; with a `session_token` its requests must carry that token, without one they must carry none.
    pub fn new(
        name: impl Into<String>,
        access_key: impl Into<String>,
        secret_key: &str,
        session_token: Option<String>,
        policy: Policy,
    ) -> Self {
        let accounts = HashMap::new();
        Self {
            name: name.into(),
            access_key: access_key.into(),
            secret_key: secret_key.to_owned(),
            session_token,
            policy,
            accounts,
        }
    }

    /// With `accounts` of its own at backends, by their names.
    pub fn with_accounts(self, accounts: HashMap<String, Arc<KeyPair>>) -> Self {
        Self { accounts, ..self }
    }

    /// In whose name `backend` is asked for it.
    pub fn sender(&self, backend: &str) -> Sender {
        self.accounts.get(backend).map_or(Sender::Gateway, |pair| Sender::Client(Arc::clone(pair)))
    }

    /// Asks for all of `needed`.
    ///
    /// # Errors
    /// `AccessDenied` naming the first action that is not allowed, and its resource.
    pub fn authorise(&self, needed: &[Permission]) -> Result<()> {
        // No policy speaks for a list of deletes as a whole, not even one that allows everything.
        let denied = |p: &&Permission| p.action == action::DELETE_OBJECTS || !self.policy.allows(p.action, &p.resource());
        match needed.iter().find(denied) {
            None => Ok(()),
            Some(Permission { action, .. }) if *action == action::DELETE_OBJECTS => {
                Err(Error::new(Kind::AccessDenied, "DeleteObjects is judged key by key."))
            }
            Some(permission) => {
                let (action, resource) = (permission.action, permission.resource().arn());
                Err(Error::new(Kind::AccessDenied, format!("Not authorised to perform {action} on {resource:?}.")))
            }
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// How a request was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By Signature Version 4.
    V4,
    /// By Signature Version 2, which covers neither the body nor most of the headers and of the query.
    V2,
    /// Not at all.
    Nobody,
}

/// A request whose signature was verified, or that has none.
#[derive(Debug)]
pub struct Authenticated {
    /// Who signed it. Nobody's request has an identity that may do nothing.
    pub identity: Arc<Identity>,
    /// How.
    pub scheme: Scheme,
    /// How its body is to be verified.
    pub payload: Payload,
    /// Whether the signature covers the bytes of the body, by their hash or chunk by chunk.
    pub payload_pinned: bool,
    /// Whether it was signed in the query, of which then a part is for us alone.
    pub presigned: bool,
    /// The names of the signed headers, joined by semicolons, as the client listed them.
    pub signed_headers: String,
}

/// The name of who asks without a signature, in logs.
pub const NOBODY: &str = "anonymous";

impl Authenticated {
    /// A request without a signature.
    pub(crate) fn nobody() -> Self {
        Self {
            identity: Arc::new(Identity::new(NOBODY, "", "", None, Policy::none())),
            scheme: Scheme::Nobody,
            payload: Payload::Unsigned,
            payload_pinned: false,
            presigned: false,
            signed_headers: String::new(),
        }
    }

    /// In whose name `backend` is asked.
    pub fn sender(&self, backend: &str) -> Sender {
        match self.scheme {
            Scheme::Nobody => Sender::Nobody,
            Scheme::V4 | Scheme::V2 => self.identity.sender(backend),
        }
    }

    /// What of the request's `query` its permissions depend on.
    pub fn query_to_judge<'a>(&self, query: &'a str) -> Cow<'a, str> {
        if self.presigned && self.scheme == Scheme::V2 { Cow::Owned(sigv2::judged(query)) } else { Cow::Borrowed(query) }
    }

    /// What of the request's `query` may go on to a backend.
    pub fn query_to_forward<'a>(&self, query: &'a str) -> Cow<'a, str> {
        match self.scheme {
            _ if !self.presigned => Cow::Borrowed(query),
            Scheme::V2 => Cow::Owned(sigv2::forwarded(query)),
            Scheme::V4 | Scheme::Nobody => Cow::Owned(claim::strip_auth_query(query)),
        }
    }

    /// Adds to `headers` what the request's `query` means as headers.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that no header can have.
    pub fn lift_headers(&self, query: &str, headers: &mut HeaderMap) -> Result<()> {
        if self.presigned && self.scheme == Scheme::V2 { sigv2::lift(query, headers) } else { Ok(()) }
    }

    /// Refuses a batch, or what is about batches, that is not signed by Version 4: nothing else covers what is in it.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn needs_version_4(&self) -> Result<()> {
        let denied = |why| Err(Error::new(Kind::AccessDenied, why));
        match self.scheme {
            Scheme::V4 => Ok(()),
            Scheme::V2 => denied("a BatchGet must be signed by Signature Version 4: Version 2 covers no body"),
            Scheme::Nobody => denied("a BatchGet must be signed: it is answered by the gateway, which lets nobody read unnamed"),
        }
    }
}

/// What the client said about the body, by `x-amz-content-sha256`.
#[derive(Clone, Debug)]
pub enum Payload {
    /// The whole body has this hash.
    Signed {
        /// SHA-256 of the bytes as sent.
        sha256: [u8; 32],
    },
    /// Nothing is known of the body.
    Unsigned,
    /// aws-chunked without signatures, with a checksum behind the data.
    UnsignedTrailer,
    /// aws-chunked, each chunk signed.
    SignedChunks(ChunkSeal),
    /// aws-chunked, each chunk and the checksum behind the data signed.
    SignedChunksTrailer(ChunkSeal),
}

/// What the signatures of chunks continue from.
#[derive(Clone)]
pub struct ChunkSeal {
    key: [u8; 32],
    /// The signature of the head, then of each chunk: what the next one builds on.
    previous: [u8; 32],
    /// Date and scope, as two lines of a string to sign.
    scope: String,
    chunk_bytes_max: u64,
}

impl fmt::Debug for ChunkSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkSeal").field("chunk_bytes_max", &self.chunk_bytes_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(policy: Policy, action: &'static str) -> Result<()> {
        let needed = [Permission { action, bucket: Some("b".into()), key: Some(b"k \xff".to_vec()) }];
        Identity::new("n", "a", "s", None, policy).authorise(&needed)
    }

    #[test]
    fn a_refusal_names_the_action_and_the_resource() {
        may(Policy::read_only(), "s3:GetObject").expect("allowed");
        let error = may(Policy::read_only(), "s3:PutObject").expect_err("denied");
        assert_eq!(error.kind, Kind::AccessDenied);
        assert!(error.message.contains("s3:PutObject") && error.message.contains("arn:aws:s3:::b/k"), "{error}");
    }

    #[test]
    fn a_list_of_deletes_is_never_allowed_as_a_whole() {
        let error = may(Policy::full_access(), action::DELETE_OBJECTS).expect_err("denied");
        assert_eq!(error.kind, Kind::AccessDenied);
    }
}
