//! The workers: each does its operations one after another and has every answer judged. An error needs a cause: a fault that a
//! read of the same request met, or a calamity around that time.

mod batch;
mod plain;
mod tarred;
mod writes;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, Keys, chain};
use crate::faults::{Calamity, Fault};
use crate::gateway::limits;
use crate::judge::Sent;
use crate::plan::{Condition, Entry, Op, Reading, plan};
use crate::plant::{Plant, Plants};
use crate::proxy::{Proxy, Story};
use crate::report::{Invariant, Report};
use crate::watch::Lateness;
use crate::world::World;

/// How long after a calamity an error may still come of it: a breaker's pause, a probe and a back-off.
pub const GRACE: Duration = Duration::from_millis(2500);

/// How long after a burst of `SlowDown` permits may still be so few that a lone read gets none in time.
const SCARCE: Duration = Duration::from_secs(10);

/// What the longest recovery is shown as a share of; no limit.
const RECOVERY_MOST: Duration = Duration::from_secs(10);

/// What a loaded machine may add to a deadline.
pub const SLACK: Duration = Duration::from_secs(15);

/// What the workers are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Go on.
    Run,
    /// Finish what is under way and close the connection.
    Rest,
    /// As at a pause, and for good.
    Stop,
}

/// What the workers share.
pub struct Shared {
    /// What is drawn from.
    pub seed: u64,
    /// What the store holds.
    pub world: Arc<World>,
    /// What stands before the store.
    pub proxy: Arc<Proxy>,
    /// What was found.
    pub report: Report,
    /// What is planted.
    pub plants: Plants,
    /// The gateway.
    pub gateway: SocketAddr,
    /// Who asks.
    pub keys: Arc<Keys>,
    /// When the machine was late.
    pub lateness: Lateness,
    /// What must not be seen by a client.
    pub needles: Vec<String>,
    /// The listing of what stays, as the store gives it.
    pub listing: Bytes,
    /// Requests sent.
    pub asked: AtomicU64,
    /// Workers that have closed their connections.
    pub resting: AtomicUsize,
    /// Since when nothing goes wrong any more.
    pub calm_since: std::sync::Mutex<Option<Instant>>,
}

/// What became of a request, for its account.
struct Account<'a> {
    shared: &'a Shared,
    id: u128,
    time: Range<Instant>,
    story: Story,
}

impl Account<'_> {
    /// Something that befell all, or the machine. A burst of `SlowDown` is none: whoever fails of it has met it.
    fn is_excused(&self) -> bool {
        let fails_all = |what| what != Calamity::SlowDowns;
        self.befell(GRACE, fails_all) || self.shared.lateness.between(self.time.start, self.time.end)
    }

    /// Whether permits are few because of a burst.
    fn is_scarce(&self) -> bool {
        self.befell(SCARCE, |what| what == Calamity::SlowDowns)
    }

    fn befell(&self, before: Duration, kind: impl Fn(Calamity) -> bool) -> bool {
        self.shared.proxy.befell(self.time.start - before, self.time.end, kind)
    }

    fn met(&self, path: &str, faults: &[Fault]) -> bool {
        self.story.met.iter().any(|(at, fault)| at == path && (faults.is_empty() || faults.contains(fault)))
    }

    /// Whether an error status of what is read at `path` has a cause.
    fn explains(&self, path: &str, status: u16) -> bool {
        match status {
            403 => self.met(path, &[Fault::Forbidden]),
            404 => self.met(path, &[Fault::Missing]),
            416 => self.met(path, &[Fault::WrongRange]),
            500..=599 => self.met(path, &[]) || self.is_excused(),
            _ => false,
        }
    }

    fn violate(&self, invariant: Invariant, what: impl AsRef<str>) {
        self.shared.report.violate(invariant, self.id, what);
    }
}

impl Shared {
    fn account(&self, id: u128, began: Instant) -> Account<'_> {
        Account { shared: self, id, time: began..Instant::now(), story: self.proxy.story(id) }
    }

    /// Something was read from the store.
    fn read_well(&self) {
        if let Some(took) = self.proxy.recovered() {
            self.report.took("recovery", took, RECOVERY_MOST, || "from the end of an outage to the first good answer".into());
            self.report.count("outages recovered from", 1);
            self.report.count("outages recovered from: milliseconds, all together", took.as_millis() as u64);
        }
    }

    /// An error that a client saw; counted, and noted if it came after all was over.
    fn failed(&self, kind: &str, what: &str, began: Instant) {
        self.report.count(format!("errors: {kind} {what}"), 1);
        let calm = *self.calm_since.lock().expect("nothing under this lock panics");
        if let Some(calm) = calm.filter(|calm| began >= *calm) {
            self.report.took("recovery", began - calm, GRACE, || {
                format!("the last {kind} that failed began so long after the last fault")
            });
        }
    }

    fn check_secrets(&self, id: u128, headers: &HeaderMap, octets: &[u8]) {
        for needle in &self.needles {
            let in_headers = headers.values().any(|value| memchr::memmem::find(value.as_bytes(), needle.as_bytes()).is_some());
            if in_headers || memchr::memmem::find(octets, needle.as_bytes()).is_some() {
                self.report.violate(Invariant::Secrets, id, format!("{needle:?} stands in an answer"));
            }
        }
    }

    /// Judges how long a request took.
    fn check_time(&self, id: u128, kind: &'static str, began: Instant, most: Duration) {
        let most = if self.plants.has(Plant::Deadline) { Duration::from_nanos(1) } else { most + SLACK };
        let took = began.elapsed();
        self.report.took(kind, took, most, || format!("request {}", crate::report::name(id)));
        if took > most && !self.lateness.between(began, Instant::now()) {
            let what = format!("a {kind} took {:.1} s where {:.1} s is the most", took.as_secs_f64(), most.as_secs_f64());
            self.report.violate(Invariant::Deadline, id, what);
        }
    }

    /// An entry with the ETags of this moment.
    fn sent(&self, entry: &Entry) -> Sent {
        let now = entry.object.map(|index| self.world.objects[index].newest().etag);
        let (if_match, if_none_match) = match entry.condition {
            Condition::No => (None, None),
            Condition::Match => (now, None),
            Condition::MatchWrong => (Some("\"0123456789abcdef0123456789abcdef\"".to_owned()), None),
            Condition::NoneMatch => (None, now),
        };
        Sent { entry: entry.clone(), if_match, if_none_match }
    }

    /// Key and raw path of an entry.
    fn place(&self, entry: &Entry) -> (String, String) {
        match entry.object {
            Some(index) => (self.world.objects[index].key.clone(), self.world.objects[index].path.clone()),
            None => ("nowhere".to_owned(), format!("/{}/nowhere", crate::world::BUCKET)),
        }
    }
}

/// One who does operations.
pub struct Worker {
    shared: Arc<Shared>,
    number: u64,
    client: Client,
}

impl Worker {
    /// The worker of this number, from 1. Every third speaks HTTP/2.
    pub fn new(shared: &Arc<Shared>, number: u64) -> Self {
        let client = Client::new(shared.gateway, &shared.keys, number.is_multiple_of(3));
        Self { shared: Arc::clone(shared), number, client }
    }

    /// Works until it is told to stop; through `operations` if they are given.
    pub async fn work(mut self, mut phase: watch::Receiver<Phase>, operations: Option<Range<u64>>) {
        let mut number = operations.as_ref().map_or(0, |operations| operations.start);
        loop {
            if *phase.borrow_and_update() != Phase::Run {
                self.client.close();
                self.shared.resting.fetch_add(1, Ordering::SeqCst);
                let told = phase.wait_for(|phase| *phase != Phase::Rest).await.map_or(Phase::Stop, |phase| *phase);
                if told == Phase::Stop {
                    return;
                }
                self.shared.resting.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            self.operate(number).await;
            number += 1;
            if let Some(operations) = operations.as_ref().filter(|operations| number >= operations.end) {
                number = operations.start;
            }
        }
    }

    async fn operate(&mut self, number: u64) {
        let id = u128::from(self.number) << 64 | u128::from(number) << 8;
        let op = plan(self.shared.seed, self.number, number);
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let (kind, began) = (op.kind(), Instant::now());
        match op {
            Op::Batch(batch) => self.batch(id, batch).await,
            Op::Read(read) => self.read(id, read).await,
            Op::List => self.list(id).await,
            Op::Put(put) => self.put(id, put).await,
            Op::Multipart { parts, abort } => self.multipart(id, &parts, abort).await,
            Op::Delete => self.delete(id).await,
            Op::HalfHead => self.half_head(id).await,
        }
        self.shared.report.count(format!("milliseconds of clients: {kind}"), began.elapsed().as_millis() as u64);
        for step in 0..8 {
            self.shared.proxy.forget(id | step);
        }
    }
}

/// How a body ended.
enum Ended {
    /// As it should.
    Cleanly,
    /// The client had enough.
    Left,
    /// In an error.
    Broken(String),
}

/// A body that is read at its client's pace.
struct Paced {
    body: Incoming,
    reading: Reading,
    read: u64,
    since_pause: u64,
    /// Time that the client itself let go by.
    own: Duration,
}

impl Paced {
    fn new(answer: Response<Incoming>, reading: Reading) -> Self {
        Self { body: answer.into_body(), reading, read: 0, since_pause: 0, own: Duration::ZERO }
    }

    /// The next octets, or how it ended.
    async fn next(&mut self) -> Result<Bytes, Ended> {
        if let Reading::Leave(after) = self.reading
            && self.read >= after
        {
            return Err(Ended::Left);
        }
        let pause = match self.reading {
            Reading::Slow(every, pause) if self.since_pause >= every => Some(pause),
            Reading::Stall(after, pause) if self.read >= after => {
                self.reading = Reading::Steady;
                Some(pause)
            }
            _ => None,
        };
        if let Some(pause) = pause {
            self.since_pause = 0;
            self.own += pause;
            tokio::time::sleep(pause).await;
        }
        loop {
            match tokio::time::timeout(PATIENCE, self.body.frame()).await {
                Err(_) => return Err(Ended::Broken(format!("no octet for {PATIENCE:?}"))),
                Ok(None) => return Err(Ended::Cleanly),
                Ok(Some(Err(error))) => return Err(Ended::Broken(chain(&error))),
                Ok(Some(Ok(frame))) => {
                    let Ok(octets) = frame.into_data() else { continue };
                    self.read += octets.len() as u64;
                    self.since_pause += octets.len() as u64;
                    return Ok(octets);
                }
            }
        }
    }

    /// Whether the gateway may have broken it off because the client read nothing.
    fn stalled(&self) -> bool {
        self.own >= limits::CLIENT_STALL / 2
    }
}

/// After so long without an octet the campaign gives up on an answer, long after the gateway had to.
const PATIENCE: Duration = Duration::from_secs(120);

/// A text among headers.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
