//! What a fault makes of an answer: in place of it, or of its octets on their way to the gateway.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{End, Proxy, STALL_MAX};
use crate::faults::{Asked, Fault, mix};
use crate::plant::Plant;
use crate::wire::{Head, chunked};

/// Between two pieces of a body that drips.
const DRIP_PAUSE: Duration = Duration::from_millis(100);

/// What no HTTP message looks like.
const GARBAGE: &[u8] = b"\x16\x03\x01 no http at all \0\xff\r\n\r\nmore of it\r\n\r\n";

impl Proxy {
    /// Faults that keep a request from the store: `Some(None)` if the answer was given and the connection goes on.
    pub(super) async fn before(&self, client: &mut TcpStream, asked: Asked<'_>, fault: Option<Fault>) -> Option<Option<End>> {
        if self.plants.strikes(Plant::Unexplained, asked) {
            return Some(refuse(client, asked, 403, "AccessDenied").await);
        }
        let fault = fault?;
        let noted = |fault| self.note(asked.id, asked.path, fault);
        let answer = match fault {
            Fault::Reset => {
                noted(fault);
                return Some(Some(End::Reset));
            }
            Fault::Stall => {
                noted(fault);
                return Some(Some(stall(client).await));
            }
            Fault::SlowDown => (503, "SlowDown"),
            Fault::Unavailable => (503, "ServiceUnavailable"),
            Fault::Internal => (500, "InternalError"),
            Fault::Forbidden => (403, "AccessDenied"),
            Fault::Missing => (404, "NoSuchKey"),
            _ => return None,
        };
        noted(fault);
        Some(refuse(client, asked, answer.0, answer.1).await)
    }

    /// Sends the store's answer on, as the fault leaves it.
    pub(super) async fn after(
        &self,
        client: &mut TcpStream,
        asked: Asked<'_>,
        fault: Option<Fault>,
        (mut head, body): (Head, Vec<u8>),
    ) -> Option<End> {
        if !matches!(asked.method, "HEAD") && head.word(1) != "204" && head.word(1) != "304" {
            head.remove("transfer-encoding");
            head.set("content-length", body.len().to_string());
        }
        let changes = self.changes(asked.path);
        let Some(fault) = fault.map(|fault| fit(fault, asked.method, &head, body.len(), changes)) else {
            return whole(client, &head, &body).await;
        };
        self.note(asked.id, asked.path, fault);
        let half = body.len() / 2;
        let octets = head.octets();
        let sent = match fault {
            Fault::LostAnswer => return Some(End::Reset),
            Fault::LostInSilence => return Some(stall(client).await),
            Fault::Garbage | Fault::LostInGarbage => {
                drop(client.write_all(GARBAGE).await);
                return Some(End::Cleanly);
            }
            Fault::CutHead | Fault::LostInHead => {
                drop(client.write_all(&octets[..octets.len() / 2]).await);
                // What was sent is to be seen before the end.
                tokio::time::sleep(Duration::from_millis(5)).await;
                return Some(End::Reset);
            }
            Fault::CutBody | Fault::EndBody | Fault::StallBody | Fault::Changed => {
                drop(client.write_all(&octets).await);
                drop(client.write_all(&body[..half]).await);
                return Some(self.broken(client, asked, fault).await);
            }
            Fault::TooLong => {
                head.set("content-length", (body.len() + 1 + half % 100).to_string());
                drop(client.write_all(&[head.octets(), body].concat()).await);
                return Some(End::Cleanly);
            }
            Fault::TooShort => {
                head.set("content-length", half.to_string());
                [head.octets(), body[..half].to_vec()].concat()
            }
            Fault::Chunked | Fault::ChunkedTooLong | Fault::ChunkedCut => {
                head.remove("content-length");
                head.set("transfer-encoding", "chunked");
                let mut more = body.clone();
                if fault == Fault::ChunkedTooLong {
                    more.extend_from_slice(b"more than there is");
                }
                let out = [head.octets(), chunked(&more, fault != Fault::ChunkedCut)].concat();
                if fault == Fault::ChunkedCut {
                    drop(client.write_all(&out).await);
                    return Some(End::Cleanly);
                }
                out
            }
            Fault::GarbageBehind => {
                drop(client.write_all(&[octets, body, GARBAGE.to_vec()].concat()).await);
                tokio::time::sleep(Duration::from_millis(5)).await;
                return Some(End::Cleanly);
            }
            Fault::Drip => return drip(client, asked, &octets, &body).await,
            // The octets are right for what they say; what they say is not what was asked for.
            _ => return whole(client, &head, &body).await,
        };
        client.write_all(&sent).await.err().map(|_| End::Cleanly)
    }

    async fn broken(&self, client: &mut TcpStream, asked: Asked<'_>, fault: Fault) -> End {
        // Most of what was sent is to be taken before the end.
        tokio::time::sleep(Duration::from_millis(5)).await;
        match fault {
            Fault::StallBody => stall(client).await,
            Fault::EndBody => End::Cleanly,
            Fault::Changed => {
                if let Some(object) = self.world.by_path(asked.path)
                    && let Err(error) = self.world.change(object.index).await
                {
                    self.store_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    drop(error);
                }
                End::Reset
            }
            _ => End::Reset,
        }
    }
}

/// The fault, or one that this answer can meet: what has no body cannot be cut in it.
fn fit(fault: Fault, method: &str, head: &Head, length: usize, changes: bool) -> Fault {
    let status = head.word(1);
    let is_part = status == "206" && head.get("content-range").is_some();
    let of_body = !matches!(fault, Fault::Garbage | Fault::CutHead | Fault::GarbageBehind) && !fault.loses_the_answer();
    match fault {
        _ if of_body && fault != Fault::WrongRange && (length < 2 || method == "HEAD" || !status.starts_with('2')) => {
            Fault::CutHead
        }
        Fault::TooShort | Fault::ChunkedTooLong if !is_part => Fault::CutBody,
        Fault::Changed if !changes => Fault::CutBody,
        other => other,
    }
}

async fn whole(client: &mut TcpStream, head: &Head, body: &[u8]) -> Option<End> {
    let octets = [&head.octets(), body].concat();
    client.write_all(&octets).await.err().map(|_| End::Cleanly)
}

/// Waits until the other side gives up.
async fn stall(client: &mut TcpStream) -> End {
    let mut nothing = [0; 1];
    drop(tokio::time::timeout(STALL_MAX, client.peek(&mut nothing)).await);
    End::Cleanly
}

async fn drip(client: &mut TcpStream, asked: Asked<'_>, head: &[u8], body: &[u8]) -> Option<End> {
    // One in four drips for longer than an entry has.
    let pieces = if mix(asked.id as u64 ^ u64::from(asked.nth)).is_multiple_of(4) { 80 } else { 6 };
    if client.write_all(head).await.is_err() {
        return Some(End::Cleanly);
    }
    for piece in body.chunks(body.len().div_ceil(pieces).max(1)) {
        tokio::time::sleep(DRIP_PAUSE).await;
        if client.write_all(piece).await.is_err() {
            return Some(End::Cleanly);
        }
    }
    None
}

async fn refuse(client: &mut TcpStream, asked: Asked<'_>, status: u16, code: &str) -> Option<End> {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>planned</Message></Error>");
    let mut head = Head { start: format!("HTTP/1.1 {status} Planned"), headers: Vec::new() };
    head.set("content-type", "application/xml");
    head.set("content-length", body.len().to_string());
    let body = if asked.method == "HEAD" { "" } else { &body };
    whole(client, &head, body.as_bytes()).await
}
