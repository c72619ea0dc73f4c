//! Writes. Each has a key of its own, so that what is there afterwards is its doing alone; what is there is asked of the store
//! itself, once nothing of the write is on its way any more.

use std::sync::Arc;
use std::time::Duration;

use batchgate::backend::s3::error_member;
use bytes::Bytes;
use http::Method;
use tokio::time::Instant;

use super::plain::error_body;
use super::{Account, Worker};
use crate::client::{Ask, Pace, Trouble};
use crate::gateway::limits;
use crate::plan::{Put, PutKind};
use crate::plant::Plant;
use crate::report::Invariant;
use crate::world::{BUCKET, written};

/// Between two pieces of a body that comes slowly.
const SLOW: Duration = Duration::from_millis(150);

/// The longest that the settings let a write take behind its body.
const WRITE_MOST: Duration = Duration::from_secs(2 * limits::RESPONSE.as_secs() + limits::CONNECT.as_secs() + 1);

/// How a write ended for its client.
#[derive(Clone, Debug)]
enum Outcome {
    /// 2xx, with what the answer holds.
    Done(http::HeaderMap, Bytes),
    /// An error, with its code and its message.
    Refused(u16, String, String),
    /// No answer.
    Nothing(String),
}

impl Outcome {
    fn is_done(&self) -> bool {
        matches!(self, Self::Done(..))
    }
}

impl Worker {
    /// Sends one write and judges all but what is there afterwards: its time, its error, and how often the store had it.
    async fn write(&mut self, ask: &Ask, what: &'static str, own: Duration) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        shared.report.count(format!("writes: {what}"), 1);
        // A connection that the other side has just closed would lose it.
        let outcome = match self.client.send(ask, true).await {
            Err(Trouble::Connect(why) | Trouble::Broken(why)) => Outcome::Nothing(why),
            Ok(answer) if answer.status().is_success() => {
                let headers = answer.headers().clone();
                shared.check_secrets(ask.id, &headers, &[]);
                match http_body_util::BodyExt::collect(answer.into_body()).await {
                    Ok(body) => Outcome::Done(headers, body.to_bytes()),
                    Err(error) => Outcome::Nothing(error.to_string()),
                }
            }
            Ok(answer) => {
                let status = answer.status().as_u16();
                let (code, message, _) = error_body(answer, &shared, ask.id).await;
                Outcome::Refused(status, code, message)
            }
        };
        if ask.pace != Pace::Whole || !outcome.is_done() {
            // Whoever answers before it has the whole body closes the connection behind the answer.
            self.client.close();
        }
        shared.check_time(ask.id, "write", began, WRITE_MOST + own);
        self.settle(ask.id).await;
        let account = shared.account(ask.id, began);
        if account.story.forwarded > 1 {
            account
                .violate(Invariant::Once, format!("{what} {} was sent to the store {} times", ask.path, account.story.forwarded));
        }
        judge_error(&account, ask, what, &outcome);
        outcome
    }

    /// Waits until nothing of a request is at the proxy any more.
    async fn settle(&self, id: u128) {
        let until = Instant::now() + 2 * (limits::RESPONSE + limits::BODY_IDLE) + super::SLACK;
        while self.shared.proxy.story(id).under_way > 0 {
            if Instant::now() > until {
                let what = "a write is at the store long after its client has its answer";
                return self.shared.report.violate(Invariant::Deadline, id, what);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is at a key of this write's own: nothing, or what `body` is.
    async fn kept(&self, id: u128, path: &str, body: &Bytes, outcome: &Outcome) {
        let shared = &self.shared;
        if shared.plants.has(Plant::LostWrite) && outcome.is_done() {
            drop(shared.world.at_store(&Ask::new(0, Method::DELETE, path)).await);
        }
        let Ok((status, _, octets)) = shared.world.at_store(&Ask::new(0, Method::GET, path)).await else {
            return shared.report.violate(Invariant::Kept, id, format!("{path} cannot be asked for at the store"));
        };
        let there = match status {
            200 if octets == *body => true,
            404 => false,
            200 => {
                let what = format!("{path} has {} bytes that are not the {} written", octets.len(), body.len());
                return shared.report.violate(Invariant::Kept, id, what);
            }
            _ => return shared.report.violate(Invariant::Kept, id, format!("the store answers {status} for {path}")),
        };
        let sent = shared.proxy.story(id).forwarded > 0;
        match outcome {
            Outcome::Done(..) if !there => {
                shared.report.violate(Invariant::Kept, id, format!("{path} was accepted and is not there"))
            }
            Outcome::Refused(400..=499, ..) if there => {
                shared.report.violate(Invariant::Kept, id, format!("{path} was refused and is there: {outcome:?}"));
            }
            _ if there && !sent => shared.report.violate(Invariant::Kept, id, format!("{path} is there and was never sent")),
            Outcome::Done(..) => shared.report.count("writes kept", 1),
            _ => shared.report.count(if there { "writes failed, and there" } else { "writes failed, and not there" }, 1),
        }
        drop(shared.world.at_store(&Ask::new(0, Method::DELETE, path)).await);
    }

    pub(super) async fn put(&mut self, id: u128, put: Put) {
        let body = written(id, put.size);
        let path = match put.kind {
            PutKind::IfNoneThere(index) => self.shared.world.objects[index].path.clone(),
            _ => format!("/{BUCKET}/w/{id:x}"),
        };
        let (pace, own) = match put.kind {
            PutKind::Slow => (Pace::Slow(SLOW), SLOW * 4),
            PutKind::Stalled => (Pace::Slow(limits::BODY_IDLE * 2), limits::BODY_IDLE * 8),
            PutKind::Half => (Pace::Half, limits::BODY_IDLE),
            _ => (Pace::Whole, Duration::ZERO),
        };
        let mut ask = Ask::new(id, Method::PUT, path.clone()).carrying(body.clone(), pace);
        if matches!(put.kind, PutKind::IfNone | PutKind::IfNoneThere(_)) {
            ask = ask.with("if-none-match", "*");
        }
        let what = match put.kind {
            PutKind::Plain => "puts",
            PutKind::IfNone | PutKind::IfNoneThere(_) => "puts if there is none",
            PutKind::Slow => "puts, slow",
            PutKind::Stalled => "puts, stalled",
            PutKind::Half => "puts, half",
        };
        let outcome = self.write(&ask, what, own).await;
        match put.kind {
            PutKind::IfNoneThere(_) if outcome.is_done() => {
                self.shared.report.violate(Invariant::Kept, id, format!("{path} was there and is written over"));
            }
            // Whether it is as it was, every other read looks.
            PutKind::IfNoneThere(_) => {}
            PutKind::Stalled | PutKind::Half if outcome.is_done() => {
                self.shared.report.violate(Invariant::Kept, id, format!("{path} is accepted though its body did not come in time"));
            }
            _ => self.kept(id, &path, &body, &outcome).await,
        }
    }

    pub(super) async fn multipart(&mut self, id: u128, parts: &[u64], abort: bool) {
        let path = format!("/{BUCKET}/w/{id:x}");
        let begun = self.write(&Ask::new(id, Method::POST, format!("{path}?uploads")), "uploads begun", Duration::ZERO).await;
        let Outcome::Done(_, answer) = &begun else { return };
        let upload =
            std::str::from_utf8(answer).ok().and_then(|text| text.split_once("<UploadId>")?.1.split_once('<')).map(|(id, _)| id);
        let Some(upload) = upload else {
            return self.shared.report.violate(Invariant::Kept, id, "an upload has begun and has no id");
        };
        let (mut listed, mut whole, mut all) = (String::new(), Vec::new(), true);
        for (index, size) in parts.iter().enumerate() {
            let (number, step) = (index + 1, id | (index as u128 + 1));
            let body = written(step, *size);
            whole.extend_from_slice(&body);
            let part =
                Ask::new(step, Method::PUT, format!("{path}?partNumber={number}&uploadId={upload}")).carrying(body, Pace::Whole);
            match self.write(&part, "parts", Duration::ZERO).await {
                Outcome::Done(headers, _) => {
                    let etag = super::text(&headers, "etag").unwrap_or_default().to_owned();
                    listed += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
                }
                _ => all = false,
            }
        }
        let step = id | 6;
        if all && !abort {
            let document = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
            let ask = Ask::new(step, Method::POST, format!("{path}?uploadId={upload}")).carrying(document.into(), Pace::Whole);
            let mut outcome = self.write(&ask, "uploads completed", Duration::ZERO).await;
            // S3 may say 200 before it knows.
            if let Outcome::Done(_, body) = &outcome
                && let Some(code) = error_member(body, "Code")
            {
                outcome = Outcome::Refused(500, code, String::new());
            }
            self.kept(step, &path, &whole.into(), &outcome).await;
        } else {
            let ask = Ask::new(step, Method::DELETE, format!("{path}?uploadId={upload}"));
            let outcome = self.write(&ask, "uploads aborted", Duration::ZERO).await;
            // An upload that was not completed is no object.
            let never = Outcome::Refused(404, String::new(), format!("{outcome:?}"));
            self.kept(step, &path, &whole.into(), &never).await;
        }
        // At the store itself: what was begun and is not ended takes its memory.
        drop(self.shared.world.at_store(&Ask::new(0, Method::DELETE, format!("{path}?uploadId={upload}"))).await);
    }

    pub(super) async fn delete(&mut self, id: u128) {
        let shared = Arc::clone(&self.shared);
        let path = format!("/{BUCKET}/w/{id:x}");
        let body = written(id, 500);
        let there = Ask::new(0, Method::PUT, path.clone()).carrying(body.clone(), Pace::Whole);
        if !shared.world.at_store(&there).await.is_ok_and(|(status, ..)| status == 200) {
            return shared.report.violate(Invariant::Kept, id, format!("{path} cannot be put at the store"));
        }
        let outcome = self.write(&Ask::new(id, Method::DELETE, path.clone()), "deletes", Duration::ZERO).await;
        let sent = shared.proxy.story(id).forwarded > 0;
        let Ok((status, _, octets)) = shared.world.at_store(&Ask::new(0, Method::GET, path.clone())).await else {
            return shared.report.violate(Invariant::Kept, id, format!("{path} cannot be asked for at the store"));
        };
        match (&outcome, status) {
            (Outcome::Done(..), 200) => shared.report.violate(Invariant::Kept, id, format!("{path} was deleted and is there")),
            (Outcome::Refused(400..=499, ..), 404) => {
                shared.report.violate(Invariant::Kept, id, format!("{path} was not to be deleted, and is: {outcome:?}"));
            }
            (_, 404) if !sent => {
                shared.report.violate(Invariant::Kept, id, format!("{path} is gone and its delete was never sent"))
            }
            (_, 200) if octets != body => shared.report.violate(Invariant::Kept, id, format!("{path} has changed")),
            _ => {}
        }
        drop(shared.world.at_store(&Ask::new(0, Method::DELETE, path)).await);
    }
}

/// Whether a write that failed has a cause, and says what it must.
fn judge_error(account: &Account<'_>, ask: &Ask, what: &str, outcome: &Outcome) {
    let shared = account.shared;
    let lost = account.story.met.iter().find(|(_, fault)| fault.loses_the_answer());
    if let Some((_, fault)) = lost {
        let says = match outcome {
            Outcome::Refused(500..=599, _, message) => message.contains("unknown") && !shared.plants.has(Plant::Unsaid),
            // Who hears nothing knows that it does not know.
            Outcome::Nothing(_) => true,
            // Its client went on.
            _ => ask.pace != Pace::Whole,
        };
        shared.report.count("writes whose answer was lost", 1);
        if !says {
            account.violate(
                Invariant::Unknown,
                format!("{what} {}: its answer was lost ({fault:?}), and the client hears {outcome:?}", ask.path),
            );
        }
    }
    let (status, code) = match outcome {
        Outcome::Done(..) => return,
        Outcome::Refused(status, code, _) => (*status, code.as_str()),
        Outcome::Nothing(_) => (0, "without an answer"),
    };
    let of_client = match ask.pace {
        Pace::Half => status == 0 || (400..500).contains(&status),
        Pace::Slow(pause) => pause > limits::BODY_IDLE && (status == 0 || (400..500).contains(&status)),
        Pace::Whole => false,
    };
    if of_client || ask.headers.contains_key("if-none-match") && status == 412 {
        shared.report.count("writes refused as they must be", 1);
        return;
    }
    shared.failed("write", &format!("{status} {code}"), account.time.start);
    if !(account.explains(&ask.path, status) || status == 503 && account.is_scarce()) {
        let met = &account.story.met;
        account.violate(Invariant::Explained, format!("{what} {} fails: {outcome:?}; it met {met:?}", ask.path));
    }
}
