//! A store's refusal on its way to the client. What it says of a signature is said in the gateway's own words: the store's quote what
//! was signed, and with it the store's address. In: an answer of 400, 403 or 503; out: the same, or the error that the client is told
//! in its place. Invariant: no more than 64 KiB are held, and none for longer than an attempt's time.

use http::Response;
use http::request::Parts;
use http_body::Body as _;
use tokio::time::Instant;

use super::outcome::Unanswered;
use crate::backend::breaker::Pass;
use crate::backend::peek::{End, Peeked, peek};
use crate::backend::warnings::Warning;
use crate::backend::{Backend, Body, Heard, Sender, WaitedSince, s3};
use crate::error::{Error, Kind, Result};

/// Bytes of a store's refusal that are looked through for its code.
pub const ERROR_BYTES_MAX: usize = 64 * 1024;

/// An error as it came, after a look at its code. One that is about the signature is ours to tell: the store means the
/// gateway's, of which a client need not know more. One that asks for pace is heeded. All of it has an attempt's time from its head
/// on; what is not here by then may say what a client need not know, so the answer is none, and the backend is judged by its status
/// alone.
pub async fn read_refusal(
    response: Response<Body>,
    asked: &Parts,
    backend: &Backend,
    sender: &Sender,
    pass: Option<Pass>,
) -> Result<Response<Body>> {
    let since = response.extensions().get().map_or_else(Instant::now, |WaitedSince(since)| *since);
    let until = since + backend.attempt_timeout;
    let (head, body) = response.into_parts();
    let heard = Heard { method: &asked.method, status: head.status, code: None, is_whole: body.is_end_stream() };
    let peeked = peek(body, ERROR_BYTES_MAX, until).await;
    let is_here = matches!(peeked.end, End::Whole | End::TooLong(_));
    let code = s3::error_code(&peeked.seen).filter(|_| is_here);
    backend.judge(pass, &Heard { code: code.as_deref(), ..heard });
    let broken = |source| Unanswered::broken(source, asked).counted(backend);
    let peeked = match peeked {
        Peeked { end: End::Broken(error), .. } => return Err(broken(error)),
        Peeked { end: End::TooSlow(_), .. } => return Err(broken("the rest of it did not come in time".into())),
        peeked => peeked,
    };
    if let Some(error) = code.as_deref().and_then(|code| refused_signature(code, backend, sender)) {
        return Err(error);
    }
    Ok(Response::from_parts(head, peeked.into_body()))
}

/// What the client is told of a refusal that is about a signature. Never in the store's own words: they quote what was signed,
/// and with it the store's address.
fn refused_signature(code: &str, backend: &Backend, sender: &Sender) -> Option<Error> {
    if !s3::is_about_our_signature(code) {
        return None;
    }
    if matches!(sender, Sender::Nobody) {
        // No credentials of ours were in it.
        return Some(Error::new(Kind::AccessDenied, "the store refuses a request without a signature"));
    }
    if code == "SignatureDoesNotMatch" && matches!(sender, Sender::Gateway) && backend.accepted.is_fresh() {
        // It is the request: stores differ in how they read a query that is not UTF-8, or that says something twice. No use in trying
        // again, which is what clients make of a 502.
        let message = "the store reads this request's signature in another way than the gateway does, which signed it anew: leave out \
                       what is odd in its address or headers";
        if backend.warnings.due(Warning::Credentials) {
            tracing::warn!(
                backend = backend.name,
                "the store reads the signature of a request in another way than the gateway does"
            );
        }
        return Some(Error::new(Kind::SignatureDoesNotMatch, message));
    }
    if sender.is_at_no_fault(code) {
        if backend.warnings.due(Warning::Credentials) {
            tracing::warn!(backend = backend.name, code, "the store refuses the gateway's credentials");
        }
        return Some(Error::new(Kind::BadGateway, "the store refuses the gateway's own credentials"));
    }
    let kind = match code {
        "ExpiredToken" => Kind::ExpiredToken,
        "InvalidToken" => Kind::InvalidToken,
        "InvalidAccessKeyId" => Kind::InvalidAccessKeyId,
        _ => Kind::SignatureDoesNotMatch,
    };
    if backend.warnings.due(Warning::Credentials) {
        tracing::warn!(backend = backend.name, code, "the store refuses an identity's own credentials (backend_credentials)");
    }
    Some(Error::new(
        kind,
        "the store refuses the account that this identity has there, not the key that the request is signed with",
    ))
}
