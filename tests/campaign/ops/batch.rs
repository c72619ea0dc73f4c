//! BatchGets, judged part by part.

use std::time::Duration;

use batchgate::backend::s3::error_code;
use batchgate::client::reader::Unfinished;
use batchgate::client::{Event, OnError, Order, Owed, PartHead};
use bytes::Bytes;
use http::{Method, Response};
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::Instant;

use super::tarred::Members;
use super::{Account, Ended, Paced, Shared, Worker, text};
use crate::client::{Ask, Pace};
use crate::faults::{Fault, mix};
use crate::gateway::limits;
use crate::judge::{Coming, Said, Sent, is_whole};
use crate::plan::Batch;
use crate::plant::Plant;
use crate::report::Invariant;

/// What is on its way in.
enum Part {
    None,
    Object(usize, Coming),
    /// 304.
    Unchanged,
    /// A failure, with its body.
    Error(usize, u16, Vec<u8>),
    /// Its head is not what is due: a violation if it is ever whole.
    Doubtful(usize, String),
    /// Said to be wrong already.
    Wrong,
}

/// A batch that is being judged.
struct Judged<'a> {
    shared: &'a Shared,
    id: u128,
    batch: &'a Batch,
    sent: Vec<Sent>,
    began: Instant,
    seen: Vec<bool>,
    part: Part,
    /// Failures that came as parts: index and status.
    failures: Vec<(usize, u16)>,
}

impl Worker {
    pub(super) async fn batch(&mut self, id: u128, batch: Batch) {
        let shared = std::sync::Arc::clone(&self.shared);
        let began = Instant::now();
        let sent: Vec<Sent> = batch.entries.iter().map(|entry| shared.sent(entry)).collect();
        let ask = ask(&shared, id, &batch, &sent);
        shared.report.count("batches", 1);
        shared.report.count("entries asked for", sent.len() as u64);
        let seen = vec![false; sent.len()];
        let mut judged = Judged { shared: &shared, id, batch: &batch, sent, began, seen, part: Part::None, failures: Vec::new() };
        let mut own = Duration::ZERO;
        match self.client.send(&ask, false).await {
            Ok(answer) if answer.status() == 200 => {
                let left = judged.read(answer, &mut own).await;
                if left && !self.client.is_second() {
                    self.client.close();
                }
            }
            Ok(answer) => {
                judged.refused(answer).await;
            }
            // The head of a batch does not wait for the store.
            Err(trouble) => self.no_answer(id, "batch", began, trouble),
        }
        shared.check_time(id, "batch", began, most(&shared, &batch) + own);
    }
}

/// The longest that the settings let a batch take: as many entries at a time as the fan-out has, each with its deadline, and
/// that again for each MiB; one more for an outage.
fn most(shared: &Shared, batch: &Batch) -> Duration {
    let sizes = batch.entries.iter().filter_map(|entry| entry.object).map(|index| shared.world.objects[index].newest().size);
    let mib: u64 = sizes.map(|size| size >> 20).sum();
    let waves = (batch.entries.len() as u64).div_ceil(limits::FAN_OUT);
    limits::ENTRY * (1 + waves + mib) as u32
}

fn ask(shared: &Shared, id: u128, batch: &Batch, sent: &[Sent]) -> Ask {
    let objects: Vec<_> = sent
        .iter()
        .enumerate()
        .map(|(index, sent)| {
            let mut object = json!({"Key": shared.place(&sent.entry).0});
            let members = [
                ("Range", sent.entry.range.clone()),
                ("IfMatch", sent.if_match.clone()),
                ("IfNoneMatch", sent.if_none_match.clone()),
                ("Id", (batch.tar || index % 7 == 0).then(|| format!("m{index}"))),
            ];
            for (name, value) in members {
                if let Some(value) = value {
                    object[name] = value.into();
                }
            }
            object
        })
        .collect();
    let mut document = json!({"Objects": objects, "OnError": batch.on_error, "Order": batch.order});
    if batch.summary {
        document["Summary"] = true.into();
    }
    let ask = Ask::new(id, Method::POST, format!("/{}?batch-get=", crate::world::BUCKET));
    let ask = ask.with("content-type", "application/json").carrying(document.to_string().into(), Pace::Whole);
    if batch.tar { ask.with("accept", "application/x-tar") } else { ask }
}

impl Judged<'_> {
    fn account(&self) -> Account<'_> {
        self.shared.account(self.id, self.began)
    }

    /// A request as a whole is refused for want of room only.
    async fn refused(&mut self, answer: Response<Incoming>) {
        let status = answer.status().as_u16();
        let retry_after = text(answer.headers(), "retry-after").is_some();
        let (code, message, ended) = super::plain::error_body(answer, self.shared, self.id).await;
        self.shared.failed("batch", &format!("{status} {code}"), self.began);
        if (status, code.as_str(), retry_after, ended) != (503, "SlowDown", true, true) {
            self.account().violate(Invariant::Explained, format!("a batch is refused: {status} {code}: {message}"));
        }
    }

    /// Reads the answer; says whether the client left it.
    async fn read(&mut self, answer: Response<Incoming>, own: &mut Duration) -> bool {
        self.shared.check_secrets(self.id, answer.headers(), &[]);
        let count = text(answer.headers(), "batch-count").and_then(|count| count.parse::<usize>().ok());
        if count != Some(self.sent.len()) {
            self.account().violate(Invariant::Count, format!("Batch-Count is {count:?} for {} entries", self.sent.len()));
        }
        let kind = text(answer.headers(), "content-type").unwrap_or_default().to_owned();
        let mut paced = Paced::new(answer, self.batch.reading);
        let ended = if self.batch.tar { self.members(&kind, &mut paced).await } else { self.parts(&kind, &mut paced).await };
        *own = paced.own;
        match ended {
            Ok(Ended::Cleanly) => {
                self.shared.report.count("batches whole", 1);
                if self.failures.is_empty() {
                    self.shared.read_well();
                }
                self.all_there();
                false
            }
            Ok(Ended::Left) => {
                self.shared.report.count("batches left by their clients", 1);
                true
            }
            Ok(Ended::Broken(why)) => {
                self.shared.failed("batch", "broken off", self.began);
                let account = self.account();
                if account.story.met.is_empty() && !account.is_excused() && !paced.stalled() {
                    account.violate(Invariant::Explained, format!("a batch breaks off: {why}"));
                }
                true
            }
            Err((invariant, what)) => {
                self.account().violate(invariant, what);
                true
            }
        }
    }

    async fn parts(&mut self, kind: &str, paced: &mut Paced) -> Result<Ended, (Invariant, String)> {
        let wrong = |wrong: batchgate::client::reader::Wrong| (Invariant::Count, wrong.0);
        let owed = Owed {
            entries: self.sent.len() as u32,
            in_order: self.batch.order == Order::Request,
            summary: self.batch.on_error != OnError::Continue,
        };
        let mut summarised = false;
        let mut reader = batchgate::client::reader::Reader::new(kind, owed).map_err(wrong)?;
        loop {
            while let Some(event) = reader.next().map_err(wrong)? {
                match event {
                    Event::Part(head) => self.begin(&head),
                    Event::Data(octets) => self.data(&octets),
                    Event::End => self.end(),
                    Event::Summary(_) => summarised = true,
                }
            }
            let next = match paced.next().await {
                Err(Ended::Broken(_) | Ended::Left) if self.shared.plants.has(Plant::LooksWhole) => Err(Ended::Cleanly),
                next => next,
            };
            match next {
                Ok(octets) => {
                    // All octets of some batches; in a build for development it takes its time.
                    if mix(self.id as u64).is_multiple_of(8) {
                        self.shared.check_secrets(self.id, &http::HeaderMap::new(), &octets);
                    }
                    reader.feed(octets);
                }
                Err(Ended::Cleanly) => {
                    return match reader.finish() {
                        Ok(()) if self.batch.summary && !summarised => Err((Invariant::Count, "it has no summary".into())),
                        Ok(()) => Ok(Ended::Cleanly),
                        Err(Unfinished::Cut) => {
                            Err((Invariant::Whole, "the message ends cleanly before its last delimiter".into()))
                        }
                        Err(Unfinished::Wrong(wrong)) => Err((Invariant::Count, wrong.0)),
                    };
                }
                Err(Ended::Broken(why)) => {
                    self.abandon();
                    return Ok(Ended::Broken(why));
                }
                Err(Ended::Left) => {
                    self.abandon();
                    return Ok(Ended::Left);
                }
            }
        }
    }

    /// What came of a part that was not finished is judged all the same. A large one begins with the head that the store gave
    /// it; where the store lied there, it must never be whole.
    fn abandon(&mut self) {
        let (index, wrong) = match std::mem::replace(&mut self.part, Part::None) {
            Part::Object(index, coming) => (index, coming.wrong(&self.shared.world)),
            Part::Doubtful(index, wrong) => {
                let path = self.shared.place(&self.sent[index].entry).1;
                (index, Some(wrong).filter(|_| !self.account().met(&path, &[Fault::TooLong])))
            }
            _ => return,
        };
        if let Some(wrong) = wrong {
            self.account().violate(Invariant::Bytes, format!("entry {index}: {wrong}"));
        }
    }

    fn begin(&mut self, head: &PartHead) {
        let index = head.index as usize;
        let sent = &self.sent[index];
        let of = |name: &str| head.header(name).and_then(|value| std::str::from_utf8(value).ok());
        let id = index.is_multiple_of(7).then(|| format!("m{index}"));
        if of("batch-id") != id.as_deref() {
            self.account()
                .violate(Invariant::Count, format!("entry {index}: batch-id is {:?} where {id:?} is due", of("batch-id")));
        }
        if let Some(place) = of("x-amz-meta-where") {
            self.shared.check_secrets(self.id, &http::HeaderMap::new(), place.as_bytes());
        }
        let said = Said { status: head.status, etag: of("etag"), length: Some(head.length), range: of("content-range") };
        let time = self.began..Instant::now();
        self.part = match head.status {
            200 | 206 => match sent.begin(&self.shared.world, said, &time) {
                Ok(coming) => Part::Object(index, coming),
                Err(wrong) => Part::Doubtful(index, wrong),
            },
            304 => match sent.not_modified(&self.shared.world, said, &time) {
                Ok(()) => Part::Unchanged,
                Err(wrong) => {
                    self.account().violate(Invariant::Bytes, format!("entry {index}: {wrong}"));
                    Part::Wrong
                }
            },
            status => Part::Error(index, status, Vec::new()),
        };
        // One that is overlooked is not seen.
        self.seen[index] = !(self.shared.plants.has(Plant::LostPart) && index % 5 == 4);
    }

    fn data(&mut self, octets: &Bytes) {
        match &mut self.part {
            Part::Object(_, coming) => coming.take(&self.shared.world, octets),
            Part::Error(_, _, body) => body.extend_from_slice(octets),
            Part::None | Part::Unchanged | Part::Doubtful(..) | Part::Wrong => {}
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.part, Part::None) {
            Part::Object(index, coming) => match coming.finish(&self.shared.world) {
                Ok(()) => self.shared.report.count("entries right", 1),
                Err(wrong) => self.account().violate(Invariant::Bytes, format!("entry {index}: {wrong}")),
            },
            Part::Unchanged => self.shared.report.count("entries right", 1),
            Part::Error(index, status, body) => {
                self.shared.check_secrets(self.id, &http::HeaderMap::new(), &body);
                let code = error_code(&body).unwrap_or_default();
                self.failure(index, status, &code);
            }
            Part::Doubtful(index, wrong) => self.account().violate(Invariant::Bytes, format!("entry {index}: {wrong}")),
            Part::None | Part::Wrong => {}
        }
    }

    /// An entry that failed, as a part or by its absence.
    fn failure(&mut self, index: usize, status: u16, code: &str) {
        let (sent, account) = (&self.sent[index], self.account());
        if code.is_empty() {
            account.violate(Invariant::Explained, format!("entry {index}: an error {status} without a code"));
        }
        if sent.is_due(&self.shared.world, status, &account.time) {
            self.shared.report.count("entries refused as they must be", 1);
        } else {
            self.shared.failed("entry", &format!("{status} {code}"), self.began);
            let (key, path) = self.shared.place(&sent.entry);
            if !account.explains(&path, status) {
                let met = &account.story.met;
                account.violate(Invariant::Explained, format!("entry {index} ({key}) fails with {status} {code}, and met {met:?}"));
            }
        }
        drop(account);
        self.failures.push((index, status));
    }

    /// After an answer that was whole: nothing is missing that is not to be.
    fn all_there(&mut self) {
        let missing: Vec<usize> = (0..self.seen.len()).filter(|index| !self.seen[*index]).collect();
        match self.batch.on_error {
            OnError::Continue if !missing.is_empty() => {
                self.account().violate(Invariant::Count, format!("entries {missing:?} have no part"));
            }
            OnError::Omit => {
                for index in missing {
                    let (account, sent) = (self.account(), &self.sent[index]);
                    let path = self.shared.place(&sent.entry).1;
                    let due = [404, 412, 416].iter().any(|status| sent.is_due(&self.shared.world, *status, &account.time));
                    if !due && !account.met(&path, &[]) && !account.is_excused() {
                        account.violate(Invariant::Explained, format!("entry {index} is left out for no reason"));
                    }
                }
            }
            // In a tar the failed entry leaves no member.
            OnError::Stop if !missing.is_empty() && self.failures.is_empty() && !self.batch.tar => {
                self.account().violate(Invariant::Count, format!("nothing failed, and entries {missing:?} have no part"));
            }
            _ => {}
        }
    }

    async fn members(&mut self, kind: &str, paced: &mut Paced) -> Result<Ended, (Invariant, String)> {
        if kind != "application/x-tar" {
            return Err((Invariant::Count, format!("a tar is asked for, and {kind} comes")));
        }
        let mut members = Members::default();
        loop {
            while let Some((name, octets)) = members.next().map_err(|wrong| (Invariant::Count, wrong))? {
                self.member(&name, &octets)?;
            }
            match paced.next().await {
                Ok(octets) => members.feed(&octets),
                Err(Ended::Cleanly) => {
                    let stopped = members.finish().map_err(|wrong| (Invariant::Whole, wrong))?;
                    if let Some((index, status)) = stopped {
                        self.failure(index, status, "of a summary");
                    }
                    let wrong = members.disagrees(self.seen.len(), self.seen.iter().filter(|seen| **seen).count());
                    return match wrong.filter(|_| !self.shared.plants.has(Plant::LostPart)) {
                        Some(wrong) => Err((Invariant::Count, wrong)),
                        None => Ok(Ended::Cleanly),
                    };
                }
                Err(Ended::Broken(why)) => return Ok(Ended::Broken(why)),
                Err(Ended::Left) => return Ok(Ended::Left),
            }
        }
    }

    fn member(&mut self, name: &str, octets: &[u8]) -> Result<(), (Invariant, String)> {
        let index = name.strip_prefix('m').and_then(|index| index.parse::<usize>().ok()).filter(|index| *index < self.seen.len());
        let Some(index) = index else { return Err((Invariant::Count, format!("a member is called {name:?}"))) };
        if std::mem::replace(&mut self.seen[index], true) {
            return Err((Invariant::Count, format!("member {index} comes twice")));
        }
        if self.batch.order == Order::Request && self.seen[index + 1..].iter().any(|seen| *seen) {
            return Err((Invariant::Count, format!("member {index} is out of order")));
        }
        let time = self.began..Instant::now();
        if is_whole(&self.shared.world, &self.sent[index], octets, &time) {
            self.shared.report.count("entries right", 1);
        } else {
            let what = format!("member {index} is of {} bytes that are not what it should be", octets.len());
            self.account().violate(Invariant::Bytes, what);
        }
        Ok(())
    }
}
