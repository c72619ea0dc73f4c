//! Holds what clients got against what the store was, did and recorded. What enters is a run that has ended; what leaves is
//! every invariant of the contract that it broke, in words.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use tokio::time::Instant;

use super::clients::{Gateway, Got, Outcome, Plain};
use super::world::{Batch, What, World, Write};
use crate::backend::ReadAsk;
use crate::batch::tests::judge::{Shape, is_error, same_as_lone};
use crate::batch::tests::objects::{Object, SECRET, healthy};
use crate::batch::tests::reader::Part;
use crate::batch::tests::store::{Act, Fault, FaultWindow, Met};
use crate::batch::tests::{Answer, Client, Ended, Wanted};
use crate::error::Kind;
use crate::types::ByteRange;

/// Times that a plain read may be sent.
const PLAIN_ATTEMPTS_MAX: usize = 3;

/// Pauses between them, all together: at most 50 ms, then at most 100 ms.
const PLAIN_BACKOFF_MAX: Duration = Duration::from_millis(150);

/// What a plain answer waits for, `response_timeout` for each: a permit, its head however often it is asked for, the body of a
/// refusal.
const PLAIN_WAITS_MAX: u32 = 3;

/// What a client is told of a write of which nobody knows.
const UNKNOWN: &str = "the outcome is unknown";

/// See the module.
pub(super) struct Judge<'a> {
    pub(super) world: &'a World,
    pub(super) gateway: &'a Gateway,
    pub(super) begun: Instant,
    /// Batches that were held to what an outage longer than their deadline may cost.
    pub(super) outages_judged: Cell<usize>,
    /// Attempts by job.
    met: HashMap<u32, Vec<Met>>,
    /// How often the write of a job was carried out.
    carried: HashMap<u32, usize>,
}

impl<'a> Judge<'a> {
    pub fn new(world: &'a World, gateway: &'a Gateway, begun: Instant) -> Self {
        let mut met: HashMap<u32, Vec<Met>> = HashMap::new();
        for one in gateway.rig.store.met() {
            met.entry(one.asker.0.expect("every request has a number")).or_default().push(one);
        }
        let mut carried = HashMap::new();
        for one in gateway.rig.store.carried() {
            *carried.entry(one.expect("every request has a number")).or_default() += 1;
        }
        Self { world, gateway, begun, outages_judged: Cell::new(0), met, carried }
    }

    /// Everything that is wrong with the run.
    pub async fn violations(&self, outcomes: &[Outcome]) -> Vec<String> {
        let judged = outcomes.iter().filter_map(|outcome| {
            let wrong = self.outcome(outcome).err()?;
            let (from, until) = (outcome.started.duration_since(self.begun), outcome.ended.duration_since(self.begun));
            let windows: Vec<_> = self.world.windows.iter().filter(|w| w.from <= until && from <= w.until).collect();
            let Outcome { job, .. } = outcome;
            let met = self.met(outcome);
            Some(format!(
                "job {} from {from:?} to {until:?}: {wrong}\n  in {windows:?}\n  of {:?}\n  met {met:?}",
                job.number, job.what
            ))
        });
        let mut violations: Vec<_> = judged.collect();
        let hung = self.world.jobs.len() - outcomes.len();
        if hung > 0 {
            violations.push(format!("{hung} requests hang"));
        }
        violations.extend(self.held_for_something(outcomes).err());
        violations.extend(self.gateway.rig.store.wrong());
        violations.extend(self.gateway.rig.settled().await.err());
        let (peak, max) = (self.gateway.rig.store.watched_peak(), self.gateway.rig.shared.max());
        if peak > max {
            violations.push(format!("{peak} bytes were reserved of {max}"));
        }
        let (peak, max) = (self.gateway.rig.store.reading_peak(), self.world.numbers.permits);
        // A plain read without a head for so long waits without its permit.
        let patience = self.world.numbers.attempt_timeout;
        let hung = outcomes.iter().filter(|o| matches!(o.job.what, What::Read { .. }) && o.headed - o.started >= patience).count();
        if peak > max + hung {
            violations.push(format!("{peak} reads waited for the store with {max} permits, {hung} of them for long"));
        }
        violations
    }

    pub(super) fn met(&self, outcome: &Outcome) -> &[Met] {
        self.met.get(&outcome.job.number).map_or(&[], Vec::as_slice)
    }

    fn outcome(&self, outcome: &Outcome) -> Result<(), String> {
        match (&outcome.job.what, &outcome.got) {
            (What::Batch(batch), Got::Batch(answer)) => self.batch(outcome, batch, answer),
            (What::Batch(_), Got::Failed { kind: Kind::SlowDown, heads_free, full, .. }) => self.refused(*heads_free, *full),
            (What::Read { key, head, range, client }, got) => {
                self.plain_in_time(outcome, Duration::ZERO)?;
                if self.met(outcome).len() > PLAIN_ATTEMPTS_MAX {
                    return Err("sent again too often".into());
                }
                let range = range.as_deref().map(|range| ByteRange::parse(range).expect("valid"));
                let ask = ReadAsk { range, ..Wanted::of(key).ask() };
                match got {
                    Got::Plain(plain) => self.read(outcome, &ask, *head, *client, plain),
                    Got::Failed { kind, message, .. } => self.failed(outcome, *kind, message),
                    got => Err(format!("it got {got:?}")),
                }
            }
            (What::Write(write), got) => self.write(outcome, write, got),
            (What::Upload(_), Got::Steps(steps)) => steps.iter().try_for_each(|step| self.step(step)),
            (_, got) => Err(format!("it got {got:?}")),
        }
    }

    /// A batch is refused only if there is no room for its head, or too many others wait for the store.
    fn refused(&self, heads_free: u64, full: bool) -> Result<(), String> {
        let numbers = self.world.numbers;
        // No request of a campaign is longer.
        let room = numbers.entry_bytes + 8 * 1024;
        if full || heads_free < room { Ok(()) } else { Err(format!("refused with {heads_free} bytes free")) }
    }

    fn batch(&self, outcome: &Outcome, batch: &Batch, answer: &Answer) -> Result<(), String> {
        answer.keeps_secrets()?;
        if answer.ended == Ended::Left && !matches!(batch.client, Client::Leave { .. }) {
            return Err("it left by itself".into());
        }
        if answer.ended == Ended::Never {
            return Err("the answer hangs".into());
        }
        let count = if batch.tar { self.archive(outcome, batch, answer)? } else { self.parts(outcome, batch, answer)? };
        let is_faulty = |met: &Met| met.act != Act::Healthy || met.changes;
        if answer.ended == Ended::Broken && !self.met(outcome).iter().any(is_faulty) && !self.is_trouble(outcome) {
            return Err("the message broke for nothing".into());
        }
        self.in_time(outcome, batch, answer, count)
    }

    /// The number of parts that there are.
    fn parts(&self, outcome: &Outcome, batch: &Batch, answer: &Answer) -> Result<usize, String> {
        let Batch { completion, on_error, summary, .. } = *batch;
        let (parts, told) = if answer.ended == Ended::Cleanly { answer.whole()? } else { (answer.parts()?, None) };
        if answer.ended == Ended::Cleanly {
            Shape { entries: batch.wanted.len(), completion, on_error, summary }.counts(&parts, told.as_ref())?;
            if on_error == "Omit" {
                let there = |at| parts.iter().any(|part| part.index() == at);
                let missing = (0..batch.wanted.len()).find(|at| !there(*at) && !self.may_fail(outcome, &batch.wanted[*at]));
                if let Some(at) = missing {
                    return Err(format!("entry {at} was left out for nothing"));
                }
            }
        }
        for part in &parts {
            self.part(outcome, part, &batch.wanted[part.index()])?;
        }
        Ok(parts.len())
    }

    /// The bytes of one generation that the object had meanwhile, or an error that says why not.
    fn part(&self, outcome: &Outcome, part: &Part, wanted: &Wanted) -> Result<(), String> {
        if wanted.key.starts_with("denied") {
            is_error(part, wanted)?;
            let right = part.status == 403 && part.error("Code").as_deref() == Some("AccessDenied");
            return if right { Ok(()) } else { Err(format!("a denied entry is {}", part.status)) };
        }
        // A store that is blind to If-Match is so to lone reads too.
        let blind = self.met_by(outcome, &wanted.key).any(|met| met.act == Act::Unconditional);
        let asks = [Some(wanted.ask()), blind.then(|| ReadAsk { if_match: None, ..wanted.ask() })];
        let versions = self.versions(&wanted.key, outcome.started, outcome.ended);
        let mut wrong = None;
        for ask in asks.iter().flatten() {
            for version in &versions {
                // Only one generation can be meant; the others would only cost time.
                let other = |object: &Object| part.status < 400 && part.header("etag") != Some(&object.etag());
                if version.as_ref().is_some_and(other) {
                    continue;
                }
                match same_as_lone(part, wanted, &healthy(ask, version.as_ref())) {
                    Ok(()) => return Ok(()),
                    Err(why) => wrong = Some(why),
                }
            }
        }
        if part.status < 400 {
            return Err(wrong.unwrap_or_else(|| format!("{:?} is of no generation that there was meanwhile: {part:?}", part.id)));
        }
        is_error(part, wanted)?;
        let code = part.error("Code").unwrap_or_default();
        if self.explains(outcome, &wanted.key, part.status, &code) {
            return Ok(());
        }
        Err(format!("{:?} is {} {code} for nothing", part.id, part.status))
    }

    pub(super) fn met_by<'b>(&'b self, outcome: &Outcome, key: &'b str) -> impl Iterator<Item = &'b Met> {
        self.met.get(&outcome.job.number).into_iter().flatten().filter(move |met| met.asker.1 == key)
    }

    /// What the key held between two instants, nothing included.
    pub(super) fn versions(&self, key: &str, from: Instant, until: Instant) -> Vec<Option<Object>> {
        let history = self.gateway.rig.store.history(key);
        let mut versions = Vec::new();
        if history.first().is_none_or(|(at, _)| *at > from) {
            versions.push(None);
        }
        for (at, (since, object)) in history.iter().enumerate() {
            let ends_before = history.get(at + 1).is_some_and(|(next, _)| *next < from);
            if *since <= until && !ends_before {
                versions.push(object.clone());
            }
        }
        versions
    }

    pub(super) fn plain_in_time(&self, outcome: &Outcome, sending: Duration) -> Result<(), String> {
        let timeout = self.world.numbers.response_timeout;
        let most = sending + PLAIN_BACKOFF_MAX + PLAIN_WAITS_MAX * timeout;
        let took = outcome.headed.duration_since(outcome.started);
        if took <= most { Ok(()) } else { Err(format!("the answer took {took:?}, {most:?} at the most")) }
    }

    /// A plain read's answer is the store's, and the store's is right.
    fn read(&self, outcome: &Outcome, ask: &ReadAsk, head: bool, client: Client, plain: &Plain) -> Result<(), String> {
        let last = self.met(outcome).last().ok_or("an answer that nobody gave")?;
        match plain.ended {
            Ended::Never => return Err("the body hangs".into()),
            Ended::Left if !matches!(client, Client::Leave { .. }) => return Err("it left by itself".into()),
            Ended::Broken => {
                let cut = matches!(last.act, Act::Cut(_) | Act::StallAfter(_) | Act::Drip(_));
                let down = self.resets(outcome, &last.asker.1);
                return if cut || down { Ok(()) } else { Err("the body broke for nothing".into()) };
            }
            _ => {}
        }
        if let Act::Status(status, code) = last.act
            && plain.status == status
        {
            let says = head || plain.ended == Ended::Left || String::from_utf8_lossy(&plain.bytes).contains(code);
            return if says { Ok(()) } else { Err(format!("{status} without {code}")) };
        }
        let whole = plain.ended == Ended::Cleanly && !head;
        let is_right = |version: &Option<Object>| {
            let (status, headers, bytes) = healthy(ask, version.as_ref());
            let same = |name: header::HeaderName| plain.headers.get(&name) == headers.get(&name);
            let prefix = if whole { plain.bytes == bytes } else { bytes.starts_with(&plain.bytes) };
            plain.status == status.as_u16() && same(header::ETAG) && same(header::CONTENT_RANGE) && prefix
        };
        let versions = self.versions(ask.key.as_str(), outcome.started, outcome.headed);
        let shows = plain.headers.iter().any(|(name, value)| is_of_the_hop(name.as_str()) && value.as_bytes() == SECRET.as_bytes());
        match versions.iter().any(is_right) {
            true if shows => Err("headers of the store's own hop came through".into()),
            true => Ok(()),
            false => Err(format!("{} with {} bytes is no generation that there was meanwhile", plain.status, plain.bytes.len())),
        }
    }

    /// Whether the store went down while the request was under way.
    fn resets(&self, outcome: &Outcome, key: &str) -> bool {
        let (from, until) = (outcome.started.duration_since(self.begun), outcome.ended.duration_since(self.begun));
        let holds =
            |w: &FaultWindow| matches!(w.fault, Fault::Down) && key.starts_with(&w.prefix) && w.from <= until && from <= w.from;
        self.world.windows.iter().any(holds)
    }

    /// Our own answer to a plain request says what became of it.
    fn failed(&self, outcome: &Outcome, kind: Kind, message: &str) -> Result<(), String> {
        let acts: Vec<_> = self.met(outcome).iter().map(|met| met.act).collect();
        let any = |like: fn(&Act) -> bool| acts.iter().any(like);
        let down = self.resets(outcome, self.met(outcome).first().map_or("", |met| met.asker.1.as_str()));
        let right = match kind {
            // Where nothing was sent, the breaker was open.
            Kind::ServiceUnavailable => any(|act| matches!(act, Act::Unreachable)) || (acts.is_empty() && self.is_unwell(outcome)),
            Kind::BadGateway => down || any(|act| matches!(act, Act::Reset | Act::Garbled | Act::LostAnswer | Act::HalfArrives)),
            Kind::GatewayTimeout => any(|act| matches!(act, Act::Silent | Act::SilentAfterWrite)),
            // No permit came in time, to this one or to others before it.
            Kind::SlowDown => acts.is_empty() && self.gateway.rig.backend.metrics.overloads.get() > 0,
            _ => false,
        };
        if right { Ok(()) } else { Err(format!("{kind:?} ({message}) for nothing")) }
    }

    /// A write is sent once, carried out once at the most, and its client knows what is known.
    fn write(&self, outcome: &Outcome, write: &Write, got: &Got) -> Result<(), String> {
        let frames = write.length.unwrap_or(0).div_ceil(512) as u32 + 1;
        self.plain_in_time(outcome, frames * Duration::from_millis(write.pause_ms))?;
        let met = self.met(outcome);
        if met.len() > 1 {
            return Err(format!("a write was sent {} times", met.len()));
        }
        let carried = self.carried(outcome);
        if carried > 1 || (write.breaks_after.is_some() && carried > 0) {
            return Err(format!("carried out {carried} times"));
        }
        match got {
            Got::Left => Ok(()),
            Got::Plain(plain) if (200..300).contains(&plain.status) => {
                let tag = write.length.map(|length| Object { generation: write.generation, ..Object::of(length) }.etag());
                let told = plain.headers.get(header::ETAG).map(|tag| tag.to_str().expect("text").to_owned());
                if carried == 1 && told == tag { Ok(()) } else { Err(format!("{} for {carried} writes", plain.status)) }
            }
            Got::Plain(plain) => {
                let said = self.said(outcome, plain.status);
                let fails = plain.status == StatusCode::PRECONDITION_FAILED.as_u16();
                if carried == 0 && (said || fails) { Ok(()) } else { Err(format!("{} for {carried} writes", plain.status)) }
            }
            Got::Failed { kind: Kind::IncompleteBody, .. } if write.breaks_after.is_some() => Ok(()),
            Got::Failed { kind, message, .. } => self.told_truly(outcome, *kind, message),
            got => Err(format!("it got {got:?}")),
        }
    }

    /// How often the write was carried out.
    pub(super) fn carried(&self, outcome: &Outcome) -> usize {
        self.carried.get(&outcome.job.number).copied().unwrap_or(0)
    }

    /// Whether the store itself answered so.
    pub(super) fn said(&self, outcome: &Outcome, status: u16) -> bool {
        matches!(self.met(outcome).first().map(|met| met.act), Some(Act::Status(said, _)) if said == status)
    }

    /// Whoever says that nothing is known of a write may say so only where nothing is.
    pub(super) fn told_truly(&self, outcome: &Outcome, kind: Kind, message: &str) -> Result<(), String> {
        self.failed(outcome, kind, message)?;
        let sent = self.met(outcome).iter().any(|met| !matches!(met.act, Act::Unreachable));
        let carried = self.carried(outcome);
        if sent == message.contains(UNKNOWN) { Ok(()) } else { Err(format!("{message:?}, carried out {carried} times")) }
    }
}

fn is_of_the_hop(name: &str) -> bool {
    matches!(name, "x-of-this-hop" | "connection")
}

/// Some of the headers of an answer, for a trace.
pub(super) fn traced(headers: &HeaderMap) -> String {
    headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned()
}
