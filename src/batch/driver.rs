//! The loop that turns fetches into one ordered stream. One task a batch: it starts fetches as far as bytes are reserved for
//! them, writes what is the turn of, and sends chunks while the client takes them. Dropping it, or its channel, releases
//! every fetch, permit and byte.
//!
//! Invariants: it never holds more than the batch's window, its head reservation and a chunk or two; the word `End` is sent
//! only after an answer that is whole was closed.

mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::admission::Admitted;
use super::body::Chunk;
use super::encode::Encode;
use super::fetch::{Claim, Done, Fetch, Fetched, Pools};
use super::order::Turns;
use super::outcome::Totals;
use super::plan::{Plan, Planned};
use super::request::OnError;
use crate::backend::limited::Lane;
use crate::backend::retrying::{Failure, Read, ReadStats, RetryConfig};
use crate::budget::Reservation;
use crate::stall::{BreakOff, Held};
use crate::types::EntryIndex;
use writing::Writing;

/// A chunk is sent as soon as it has this many bytes; what is less is sent before the stream waits.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// A client that has taken nothing for this long gives its read's permit back.
const STALL: Duration = Duration::from_secs(1);

/// Everything that one batch runs on.
pub struct Driver {
    /// What to read.
    pub plan: Arc<Plan>,
    /// Who is written next.
    pub turns: Turns,
    /// What a failed entry does.
    pub on_error: OnError,
    /// Whether the answer ends in a summary.
    pub has_summary: bool,
    /// Writes parts.
    pub encoder: Box<dyn Encode>,
    /// To the body.
    pub chunks: mpsc::Sender<Chunk>,
    /// This batch's number, by which permits go round.
    pub number: u64,
    /// When and for how long reads are tried again.
    pub retry: RetryConfig,
    /// Most fetches at a time.
    pub concurrency: usize,
    /// Bytes that are reserved for an entry before its length is known.
    pub entry_bytes: u64,
    /// Where entries ahead of the head get their bytes.
    pub pools: Pools,
    /// What the batch was admitted with.
    pub admitted: Option<Admitted>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All parts were written.
    Complete,
    /// A failed entry was the last, as asked.
    Stopped,
    /// A part could not be finished.
    Broken,
    /// Nobody reads any more.
    ClientGone,
    /// A reader that stalled had to make room.
    BrokenOff,
}

impl Ending {
    /// The label of its counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Stopped => "stopped",
            Self::Broken => "broken",
            Self::ClientGone => "client_gone",
            Self::BrokenOff => "broken_off",
        }
    }
}

impl Driver {
    /// Runs the batch to its end and says what came of it.
    pub async fn run(self, break_off: &BreakOff) -> (Ending, Totals) {
        let mut state = Loop::new(self, Arc::clone(&break_off.held));
        let ending = state.drive(&break_off.told).await;
        (ending, state.totals())
    }
}

/// The bytes that a streaming read brings next, with the read itself.
type NextBytes = BoxFuture<'static, (Box<Read>, Result<Option<Bytes>, Failure>)>;

struct Loop {
    driver: Driver,
    /// Lives as long as the batch: the parsed request is that large at the most.
    _request: Reservation,
    /// As many entries as are not written yet, and still may be.
    entries: Reservation,
    /// Says what others would win if this batch were broken off.
    held: Arc<Held>,
    /// The head's reservation, while it is not lent to an entry.
    head_claim: Option<Claim>,
    /// Index of the entry that is written next, for the fetches.
    head: Arc<AtomicU32>,
    stats: Arc<ReadStats>,
    fetches: FuturesUnordered<BoxFuture<'static, Done>>,
    ready: HashMap<EntryIndex, (Fetched, Claim)>,
    /// How many of `ready` are larger than what was reserved for them.
    large: usize,
    next_to_start: usize,
    /// In the queue for shared bytes, once a fetch could not be started for want of them.
    waiting_for_bytes: Option<BoxFuture<'static, Reservation>>,
    /// What the queue gave.
    granted: Option<Reservation>,
    out: BytesMut,
    writing: Writing,
    next: Option<NextBytes>,
    /// Set once nothing more is written: what shows that the answer is whole is in `out`, or a part could not be finished.
    closed_as: Option<Ending>,
    totals: Totals,
    started_at: Instant,
    /// Since when the entries that have not started wait for the backend, and not for the client.
    asked_at: Instant,
    /// Since when the client has not taken what is there for it.
    blocked_since: Option<Instant>,
    /// It has stalled: its reads have given their permits back.
    rests: bool,
}

/// What woke the loop.
enum Event {
    Sent,
    Ended,
    Done(Done),
    Next((Box<Read>, Result<Option<Bytes>, Failure>)),
    Granted(Reservation),
    Stalled,
    Over(Ending),
}

impl Loop {
    fn new(mut driver: Driver, held: Arc<Held>) -> Self {
        let Admitted { head, request, entries } = driver.admitted.take().expect("a driver is run once");
        held.bytes.store(head.bytes() + request.bytes(), Ordering::Relaxed);
        held.entries.store(entries.bytes(), Ordering::Relaxed);
        let totals = Totals { entries: driver.plan.entries.len() as u64, ..Totals::default() };
        Self {
            driver,
            _request: request,
            entries,
            held,
            head_claim: Some(Claim::Head(head)),
            head: Arc::default(),
            stats: Arc::default(),
            fetches: FuturesUnordered::new(),
            ready: HashMap::new(),
            large: 0,
            next_to_start: 0,
            waiting_for_bytes: None,
            granted: None,
            out: BytesMut::new(),
            writing: Writing::Between,
            next: None,
            closed_as: None,
            totals,
            started_at: Instant::now(),
            asked_at: Instant::now(),
            blocked_since: None,
            rests: false,
        }
    }

    async fn drive(&mut self, told: &CancellationToken) -> Ending {
        loop {
            // What is written gives back bytes; an entry that leaves no part sends nothing that would bring us here again.
            while {
                self.start_fetches();
                self.write()
            } {}
            self.keep_entries(self.driver.turns.unwritten());
            self.pull();
            // The parts that were whole before a break still go out.
            if self.closed_as == Some(Ending::Broken) && self.out.is_empty() {
                return Ending::Broken;
            }
            match self.wait(told).await {
                Event::Sent => self.forget_stall(),
                Event::Ended => return self.closed_as.expect("End is sent after an answer was closed"),
                Event::Done(done) => {
                    self.take(done);
                    // Reads tend to end together: one turn of the loop serves them all.
                    while let Some(Some(done)) = self.fetches.next().now_or_never() {
                        self.take(done);
                    }
                }
                Event::Next((mut read, Ok(Some(mut bytes)))) => {
                    let rest = bytes.split_off(bytes.len().min(CHUNK_BYTES.saturating_sub(self.out.len())));
                    self.extend(&bytes);
                    if !rest.is_empty() {
                        read.unread(rest);
                    }
                    self.writing = Writing::Streaming(Some(read));
                }
                Event::Next((_, Ok(None))) => self.writing = Writing::Between,
                Event::Next((_, Err(failure))) => {
                    tracing::debug!(batch.number = self.driver.number, ?failure, "a part could not be finished");
                    self.break_off();
                }
                Event::Granted(bytes) => self.granted = Some(bytes),
                Event::Stalled => self.rests = true,
                Event::Over(ending) => return ending,
            }
        }
    }

    /// Waits for whatever comes first. What has come from backends is taken in before a chunk that is not full is sent, so
    /// that chunks are large while there is that much to send.
    async fn wait(&mut self, told: &CancellationToken) -> Event {
        let full = self.out.len() >= CHUNK_BYTES;
        let some = !self.out.is_empty();
        let end = !some && self.closed_as.is_some_and(|ending| ending != Ending::Broken);
        if (some || end) && self.blocked_since.is_none() {
            self.blocked_since = Some(Instant::now());
        }
        let stalls_at = self.blocked_since.filter(|_| !self.rests).map(|since| since + STALL);
        if self.rests {
            self.rest();
        }
        let Self { driver: Driver { chunks, .. }, out, fetches, next, waiting_for_bytes, .. } = self;
        let send = |slot: Result<mpsc::Permit<'_, Chunk>, _>, out: &mut BytesMut| match slot {
            Ok(slot) => {
                slot.send(Chunk::Data(out.split().freeze()));
                Event::Sent
            }
            Err(mpsc::error::SendError(())) => Event::Over(Ending::ClientGone),
        };
        tokio::select! {
            biased;
            () = told.cancelled() => Event::Over(Ending::BrokenOff),
            slot = chunks.reserve(), if full => send(slot, out),
            Some(done) = fetches.next(), if !fetches.is_empty() => Event::Done(done),
            got = async { next.as_mut().expect("checked").await }, if next.is_some() => {
                *next = None;
                Event::Next(got)
            }
            bytes = async { waiting_for_bytes.as_mut().expect("checked").await }, if waiting_for_bytes.is_some() => {
                *waiting_for_bytes = None;
                Event::Granted(bytes)
            }
            slot = chunks.reserve(), if some && !full => send(slot, out),
            slot = chunks.reserve(), if end => match slot {
                Ok(slot) => {
                    slot.send(Chunk::End);
                    Event::Ended
                }
                Err(_) => Event::Over(Ending::ClientGone),
            },
            () = chunks.closed() => Event::Over(Ending::ClientGone),
            () = sleep_until(stalls_at.unwrap_or_else(Instant::now)), if stalls_at.is_some() => Event::Stalled,
        }
    }

    /// Starts fetches in the order asked, as far as there are bytes for them.
    fn start_fetches(&mut self) {
        if self.closed_as.is_some() || self.totals.stopped.is_some() {
            return;
        }
        if self.next_to_start == self.driver.plan.entries.len() {
            (self.waiting_for_bytes, self.granted) = (None, None);
        }
        while self.next_to_start < self.driver.plan.entries.len() && self.fan_out() < self.driver.concurrency {
            let index = EntryIndex(self.next_to_start as u32);
            let Some(claim) = self.claim(index) else { return };
            self.next_to_start += 1;
            let fetch = Fetch { index, claim, pools: self.driver.pools.clone(), head: Arc::clone(&self.head) };
            match self.driver.plan.entry(index) {
                Planned::Failed(failed) => self.take(fetch.failed(failed)),
                Planned::Read(backend, ask) => {
                    let lane = Lane::batch(self.driver.number);
                    let read = Read::new(backend, self.driver.retry, (lane, index.0), self.asked_at, ask, Arc::clone(&self.stats));
                    self.fetches.push(Box::pin(fetch.run(read)));
                }
            }
        }
    }

    /// Reads that are under way, with a place kept for the next one that was parked.
    fn fan_out(&self) -> usize {
        let streams = matches!(self.writing, Writing::Streaming(_) | Writing::Held { rest: Some(_), .. });
        self.fetches.len() + usize::from(streams) + usize::from(self.large > 0)
    }

    /// Bytes for one more entry: from the window, or for the entry that everything else waits for, the head's own.
    fn claim(&mut self, index: EntryIndex) -> Option<Claim> {
        let (pools, bytes) = (&self.driver.pools, self.driver.entry_bytes);
        if let Some(window) = pools.window.try_reserve(bytes) {
            if let Some(shared) = self.granted.take().or_else(|| pools.shared.try_reserve(bytes)) {
                return Some(Claim::Ahead { window, shared });
            }
            if self.waiting_for_bytes.is_none() {
                let shared = pools.shared.clone();
                self.waiting_for_bytes = Some(Box::pin(async move { shared.reserve(bytes).await }));
            }
        }
        if self.driver.turns.lowest_unwritten() == Some(index) { self.head_claim.take() } else { None }
    }

    /// Takes in a fetch that has ended. A large entry keeps its connection only if it is written right away.
    fn take(&mut self, done: Done) {
        let Done { index, mut fetched, claim } = done;
        match &mut fetched {
            Fetched::Whole { .. } => self.driver.turns.became_whole(index),
            Fetched::Failed(failed) => {
                self.totals.count_failed(failed);
                self.driver.turns.became_whole(index);
            }
            Fetched::Large(large) => {
                self.large += 1;
                let free = matches!(self.writing, Writing::Between) && self.out.len() < CHUNK_BYTES;
                let now = free && self.driver.turns.head() == Some(index);
                if !now {
                    large.read.park();
                }
            }
        }
        self.ready.insert(index, (fetched, claim));
    }

    /// Gives back all entries in flight but `count`.
    fn keep_entries(&mut self, count: usize) {
        self.entries.shrink_to(count as u64);
        self.held.entries.store(self.entries.bytes(), Ordering::Relaxed);
    }

    /// The client reads again.
    fn forget_stall(&mut self) {
        self.blocked_since = None;
        if std::mem::replace(&mut self.rests, false) {
            self.asked_at = Instant::now();
        }
    }

    fn totals(&self) -> Totals {
        Totals {
            backend_requests: self.stats.requests.load(Ordering::Relaxed),
            backend_bytes: self.stats.bytes.load(Ordering::Relaxed),
            elapsed_ms: self.started_at.elapsed().as_millis() as u64,
            ..self.totals.clone()
        }
    }
}
