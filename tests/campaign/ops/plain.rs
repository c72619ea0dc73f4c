//! Lone reads, listings, and a head that is never finished.

use std::sync::Arc;
use std::time::Duration;

use batchgate::backend::s3::{error_code, error_member};
use bytes::BytesMut;
use http::{Method, Response};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Ended, Paced, Shared, Worker, text};
use crate::client::{Ask, Trouble};
use crate::faults::Fault;
use crate::gateway::limits;
use crate::judge::{Coming, Said, Sent};
use crate::plan::{Read, Reading};
use crate::report::Invariant;
use crate::world::BUCKET;

/// Faults by which a lone answer says openly that it is not what was asked for; it is passed on as it is.
const OPEN_LIES: &[Fault] = &[Fault::WrongRange, Fault::TooShort, Fault::ChunkedTooLong, Fault::TooLong];

/// The longest that the settings let a lone read take beside its body: for a permit, and three tries.
pub(super) const READ_MOST: Duration =
    Duration::from_millis((4 * limits::RESPONSE.as_millis() + 6 * limits::CONNECT.as_millis()) as u64);

/// The longest that the store's drip makes a body, with a silence at its end.
const BODY_MOST: Duration = Duration::from_secs(8 + limits::RESPONSE.as_secs());

impl Worker {
    pub(super) async fn read(&mut self, id: u128, read: Read) {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        let sent = shared.sent(&read.entry);
        let (_, path) = shared.place(&read.entry);
        let method = if read.head { Method::HEAD } else { Method::GET };
        let mut ask = Ask::new(id, method, path.clone());
        for (name, value) in [("range", &read.entry.range), ("if-match", &sent.if_match), ("if-none-match", &sent.if_none_match)] {
            if let Some(value) = value {
                ask = ask.with(name, value);
            }
        }
        shared.report.count("plain reads", 1);
        let mut own = Duration::ZERO;
        match self.client.send(&ask, false).await {
            Err(trouble) => self.no_answer(id, "read", began, trouble),
            Ok(answer) if matches!(answer.status().as_u16(), 200 | 206) => {
                let left = self.object(id, &read, &sent, &path, began, answer, &mut own).await;
                if left && !self.client.is_second() {
                    self.client.close();
                }
            }
            Ok(answer) if answer.status() == 304 => {
                let account = shared.account(id, began);
                let said = Said { status: 304, ..Said::default() };
                match sent.not_modified(&shared.world, said, &account.time) {
                    Ok(()) => shared.report.count("plain reads right", 1),
                    Err(wrong) => account.violate(Invariant::Bytes, wrong),
                }
            }
            Ok(answer) => {
                let status = answer.status().as_u16();
                let (code, message, _) = error_body(answer, &shared, id).await;
                let account = shared.account(id, began);
                if sent.is_due(&shared.world, status, &account.time) {
                    shared.report.count("plain reads refused as they must be", 1);
                } else {
                    shared.failed("read", &format!("{status} {code}"), began);
                    if !(account.explains(&path, status) || status == 503 && account.is_scarce()) {
                        let met = &account.story.met;
                        account
                            .violate(Invariant::Explained, format!("{path} fails with {status} {code}: {message}; it met {met:?}"));
                    }
                }
            }
        }
        shared.check_time(id, "read", began, READ_MOST + BODY_MOST + own);
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of one read")]
    async fn object(
        &mut self,
        id: u128,
        read: &Read,
        sent: &Sent,
        path: &str,
        began: Instant,
        answer: Response<Incoming>,
        own: &mut Duration,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        shared.check_secrets(id, &headers, &[]);
        let length = text(&headers, "content-length").and_then(|length| length.parse().ok());
        let said = Said { status, etag: text(&headers, "etag"), length, range: text(&headers, "content-range") };
        let mut paced = Paced::new(answer, read.reading);
        let mut coming: Option<Coming> = None;
        match sent.begin(&shared.world, said, &(began..Instant::now())) {
            Ok(begun) => coming = Some(begun),
            Err(wrong) => {
                let account = shared.account(id, began);
                if account.met(path, OPEN_LIES) {
                    shared.report.count("plain reads whose head shows the store's lie", 1);
                } else {
                    account.violate(Invariant::Bytes, format!("{path}: {wrong}"));
                }
            }
        }
        let ended = loop {
            match paced.next().await {
                Ok(octets) => {
                    if let Some(coming) = &mut coming {
                        coming.take(&shared.world, &octets);
                    }
                }
                Err(ended) => break ended,
            }
        };
        *own = paced.own;
        let account = shared.account(id, began);
        let wrong = coming.as_ref().and_then(|coming| coming.wrong(&shared.world));
        let lies = account.met(path, OPEN_LIES);
        if let Some(wrong) = wrong.filter(|_| !lies) {
            account.violate(Invariant::Bytes, format!("{path}: {wrong}"));
        }
        match ended {
            Ended::Cleanly if read.head => shared.report.count("plain reads right", u64::from(coming.is_some())),
            Ended::Cleanly => {
                match coming.as_ref().map(|coming| coming.finish(&shared.world)) {
                    Some(Ok(())) => {
                        shared.report.count("plain reads right", 1);
                        shared.read_well();
                    }
                    Some(Err(wrong)) if !lies => account.violate(Invariant::Bytes, format!("{path} ends cleanly: {wrong}")),
                    _ => {}
                }
                return false;
            }
            Ended::Left => shared.report.count("plain reads left by their clients", 1),
            Ended::Broken(why) => {
                shared.failed("read", "broken off", began);
                if !account.met(path, &[]) && !account.is_excused() && !paced.stalled() {
                    account.violate(Invariant::Explained, format!("{path} breaks off: {why}"));
                }
            }
        }
        true
    }

    pub(super) async fn list(&mut self, id: u128) {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        let path = format!("/{BUCKET}?list-type=2&prefix=s%2F");
        shared.report.count("listings", 1);
        match self.client.send(&Ask::new(id, Method::GET, path.clone()), false).await {
            Err(trouble) => self.no_answer(id, "listing", began, trouble),
            Ok(answer) => {
                let status = answer.status().as_u16();
                shared.check_secrets(id, answer.headers(), &[]);
                let (body, ended) = read_all(answer).await;
                let account = shared.account(id, began);
                match ended {
                    Ended::Cleanly if status == 200 => {
                        if body == shared.listing {
                            shared.report.count("listings right", 1);
                        } else {
                            let what =
                                format!("a listing of {} bytes differs from the store's of {}", body.len(), shared.listing.len());
                            account.violate(Invariant::Bytes, what);
                        }
                    }
                    ended => {
                        let code = error_code(&body).unwrap_or_default();
                        let broken = matches!(ended, Ended::Broken(_));
                        shared.failed("listing", &if broken { "broken off".to_owned() } else { format!("{status} {code}") }, began);
                        let explained = match broken {
                            true => account.met(&path, &[]) || account.is_excused(),
                            false => account.explains(&path, status) || status == 503 && account.is_scarce(),
                        };
                        if !explained {
                            account.violate(Invariant::Explained, format!("a listing fails with {status} {code}"));
                        }
                    }
                }
            }
        }
        shared.check_time(id, "read", began, READ_MOST + BODY_MOST);
    }

    /// Half a head: the connection must be closed in time, with or without a word.
    pub(super) async fn half_head(&mut self, id: u128) {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        shared.report.count("half-sent heads", 1);
        let sent = async {
            let mut stream = TcpStream::connect(shared.gateway).await?;
            stream.write_all(b"GET /campaign/half HTTP/1.1\r\nHost: half\r\nx-ha").await?;
            let mut nothing = Vec::new();
            stream.read_to_end(&mut nothing).await
        };
        // How it ends is all the same.
        drop(tokio::time::timeout(limits::HEADER * 2 + super::SLACK, sent).await);
        shared.check_time(id, "half head", began, limits::HEADER * 2);
    }

    /// A request that got nothing, not even an error. Over HTTP/2 a stream that is reset may lose the head that was not sent yet:
    /// there it is an answer that broke off.
    pub(super) fn no_answer(&self, id: u128, kind: &str, began: Instant, trouble: Trouble) {
        let (Trouble::Connect(why) | Trouble::Broken(why)) = trouble;
        let shared = &self.shared;
        let account = shared.account(id, began);
        let reset = self.client.is_second() && why.contains("stream error");
        shared.failed(kind, if reset { "reset" } else { "without an answer" }, began);
        let explained = reset && (!account.story.met.is_empty() || account.is_excused());
        if !explained && !shared.lateness.between(began, Instant::now()) {
            account.violate(Invariant::Explained, format!("a {kind} has no answer: {why}"));
        }
    }
}

/// All of an answer that came, and how it ended.
async fn read_all(answer: Response<Incoming>) -> (BytesMut, Ended) {
    let mut paced = Paced::new(answer, Reading::Steady);
    let mut body = BytesMut::new();
    loop {
        match paced.next().await {
            Ok(octets) => body.extend_from_slice(&octets),
            Err(ended) => return (body, ended),
        }
    }
}

/// Code and message of a refusal, and whether its body was whole.
pub(super) async fn error_body(answer: Response<Incoming>, shared: &Shared, id: u128) -> (String, String, bool) {
    let headers = answer.headers().clone();
    let (body, ended) = read_all(answer).await;
    shared.check_secrets(id, &headers, &body);
    let code = error_code(&body).unwrap_or_default();
    let message = error_member(&body, "Message").unwrap_or_default();
    (code, message, matches!(ended, Ended::Cleanly))
}
