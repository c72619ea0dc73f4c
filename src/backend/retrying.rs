//! One logical read made of as many attempts as its deadline allows. [`Read::open`] brings the head of a good answer,
//! [`Read::next`] its bytes; where an attempt breaks, the read goes on from its offset, pinned to the object that it began
//! with. It sits above [`super::breaker`], [`super::retry_budget`] and [`super::limited`], whose leave it takes for each attempt
//! and gives back between them, and beneath whoever holds the bytes.
//!
//! Invariants: the bytes that leave are a prefix of one object's, or the read fails; the clock of the deadline runs during
//! attempts, back-off and pauses, while the breaker is open, and while a permit is awaited only as long as the backend completes
//! nothing, be it for anyone or for a batch that has heard of nothing but failures and pleas; a plea to slow down is no failure and costs no retry.

mod attempt;
mod clock;
mod own;
mod turn;

pub use clock::{Clock, Ran};
pub use own::OwnOutage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::breaker::{Cause, Outage, Target};
use super::limited::{Lane, Permit};
use super::registry::Backend;
use super::verdict::{Pin, Verdict};
use super::{Body, ReadAsk};
use attempt::Judged;

/// Bytes after which the deadline starts anew.
const DEADLINE_STEP_BYTES: u64 = 1 << 20;

/// When to try again, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct RetryConfig {
    /// Full jitter draws from zero to this, doubled for each failure…
    pub backoff_base: Duration,
    /// …up to this.
    pub backoff_max: Duration,
    /// Time that a read may take until its head, and again for each further MiB.
    pub deadline: Duration,
}

/// What the reads of a batch have in common: what they cost, for its summary, and the outage that they are in.
#[derive(Debug, Default)]
pub struct ReadStats {
    /// Attempts sent.
    pub requests: AtomicU64,
    /// Bytes of bodies received.
    pub bytes: AtomicU64,
    /// None of them has completed anything since it began.
    pub outage: OwnOutage,
}

/// The head of an answer that has a body or is 304.
#[derive(Debug)]
pub struct Head {
    /// 200, 206 or 304.
    pub status: StatusCode,
    /// The store's headers, as they came.
    pub headers: HeaderMap,
    /// Length of the body, if it was said; 0 for 304.
    pub length: Option<u64>,
}

/// Why a read ended without all its bytes.
#[derive(Debug)]
pub enum Failure {
    /// The store's own refusal or last failure.
    Answered {
        /// Its status, 4xx or 5xx.
        status: StatusCode,
        /// The S3 code of its body, if there was one that can be read.
        code: Option<String>,
        /// Its headers.
        headers: HeaderMap,
    },
    /// It answered something that no right store would.
    Lying,
    /// There is nothing to sign a request with, so none was sent.
    NoCredentials,
    /// The deadline passed without any answer.
    DeadlinePassed,
    /// The deadline passed, and the store had only asked for fewer requests: of this read, or of all.
    Paced,
    /// The deadline passed while the store could not be reached, or its breaker was open.
    Unavailable,
    /// The object is not what the read began with, or nothing pins it: the read cannot go on, but may begin anew.
    Unpinned,
}

/// A read under way.
pub struct Read {
    backend: Arc<Backend>,
    config: RetryConfig,
    lane: Lane,
    place: u32,
    target: Target,
    ask: Arc<ReadAsk>,
    stats: Arc<ReadStats>,
    asked_at: Instant,
    clock: Clock,
    /// The first attempt was sent.
    begun: bool,
    /// Failures in a row.
    failures: u32,
    /// How the backend failed it last.
    cause: Option<Cause>,
    /// The next attempt is a retry of a failed one, which the budget of retries has not yet paid for.
    owes_retry: bool,
    /// How often in a row the budget refused to.
    refusals: u32,
    /// The backend's last words to it that were no answer.
    last_words: Option<Failure>,
    pin: Option<Pin>,
    length: Option<u64>,
    done: u64,
    /// The most that `done` ever was.
    furthest: u64,
    open: Option<(Body, Permit)>,
    /// A body whose permit was given back because its reader stalled.
    idle: Option<Body>,
    unread: Option<Bytes>,
}

impl Read {
    /// A read that has not begun, for a client that asked at `asked_at`. `lane` and `place` order it among those that wait for
    /// a permit.
    pub fn new(
        backend: Arc<Backend>,
        config: RetryConfig,
        (lane, place): (Lane, u32),
        asked_at: Instant,
        ask: ReadAsk,
        stats: Arc<ReadStats>,
    ) -> Self {
        let clock = Clock::new(config.deadline);
        Self {
            backend,
            config,
            lane,
            place,
            target: Target::of((&ask.bucket, ask.key.as_str(), &ask.version)),
            ask: Arc::new(ask),
            stats,
            asked_at,
            clock,
            begun: false,
            failures: 0,
            cause: None,
            owes_retry: false,
            refusals: 0,
            last_words: None,
            pin: None,
            length: None,
            done: 0,
            furthest: 0,
            open: None,
            idle: None,
            unread: None,
        }
    }

    /// Begins the read, from its first byte and under its own preconditions, whatever was read before.
    pub async fn open(&mut self) -> Result<Head, Failure> {
        self.park();
        (self.pin, self.length, self.done) = (None, None, 0);
        let outage = self.outage();
        let chance = self.backend.attempt_timeout + self.backend.breaker.longest_wait();
        if self.failures == 0 && !self.clock.charge_outage(outage, self.asked_at, chance) {
            return Err(self.out_of_time());
        }
        loop {
            let ask = Arc::clone(&self.ask);
            let Some((head, body, permit)) = self.attempt(&ask).await? else { continue };
            let (status, headers) = (head.status, head.headers);
            return Ok(match head.verdict {
                Verdict::Body { length, range } => {
                    self.pin = length.and_then(|length| Pin::of(&ask, &headers, length, range.as_ref()));
                    self.length = length;
                    self.open = Some((body, permit));
                    Head { status, headers, length }
                }
                _ => {
                    self.length = Some(0);
                    Head { status, headers, length: Some(0) }
                }
            });
        }
    }

    /// The next bytes, or nothing at the end. Resumes where an attempt breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(bytes) = self.unread.take() {
                self.done += bytes.len() as u64;
                return Ok(Some(bytes));
            }
            if self.length == Some(self.done) {
                self.expect_end().await?;
                self.park();
                return Ok(None);
            }
            if let Some(body) = self.idle.take() {
                let permit = self.permit().await?;
                self.open = Some((body, permit));
            }
            if self.open.is_none() {
                self.reopen().await?;
            }
            match self.frame().await? {
                Some(bytes) => return Ok(Some(bytes)),
                None if self.length.is_none() && self.open.is_some() => {
                    self.completed();
                    self.park();
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    /// The read has all that it asked for, or as much of it as a deadline is for.
    fn completed(&self) {
        self.backend.moved();
        self.stats.outage.ended();
    }

    /// The outage, if the backend completes nothing for anyone, or nothing for this batch.
    fn outage(&self) -> Option<Outage> {
        let breaker = &self.backend.breaker;
        Outage::older(breaker.outage(), self.stats.outage.now(breaker.memory()))
    }

    /// Whether bytes can be had without a new attempt.
    pub fn is_open(&self) -> bool {
        self.open.is_some() || self.idle.is_some()
    }

    /// Puts back bytes that [`Read::next`] has just given; they come again.
    pub fn unread(&mut self, bytes: Bytes) {
        self.done -= bytes.len() as u64;
        self.unread = Some(bytes);
    }

    /// Starts the deadline anew: the head of the entry could be written.
    pub fn restart_clock(&mut self) {
        self.clock.restart(self.config.deadline);
    }

    /// Gives back connection and permit; the read goes on from its offset when it is asked for more.
    pub fn park(&mut self) {
        self.unread = None;
        self.open = None;
        self.idle = None;
    }

    /// Gives back the permit alone, because whoever takes the bytes has stalled.
    pub fn rest(&mut self) {
        if let Some((body, _permit)) = self.open.take() {
            self.idle = Some(body);
        }
    }

    /// Goes on from the offset after a break or a parking, before more bytes are asked for.
    pub async fn reopen(&mut self) -> Result<(), Failure> {
        let Some(pin) = self.pin.clone() else { return Err(Failure::Unpinned) };
        let ask = pin.resumed(&self.ask, self.done);
        loop {
            match self.attempt(&ask).await {
                Ok(None) => {}
                Ok(Some((Judged { verdict: Verdict::Body { range: Some(range), .. }, headers, .. }, body, permit))) => {
                    if !pin.holds(&headers, &range) {
                        return Err(Failure::Unpinned);
                    }
                    self.open = Some((body, permit));
                    return Ok(());
                }
                // Whatever else it is now, it is not the object that the read began with.
                Ok(Some(_)) | Err(Failure::Lying) => return Err(Failure::Unpinned),
                Err(Failure::Answered { status, .. }) if status.is_client_error() => return Err(Failure::Unpinned),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A body whose length only its Content-Range told must end there. hyper sees to those with a Content-Length.
    async fn expect_end(&mut self) -> Result<(), Failure> {
        let Some((body, _)) = self.open.as_mut().filter(|(body, _)| http_body::Body::size_hint(body).exact().is_none()) else {
            return Ok(());
        };
        match self.clock.run_capped(self.backend.attempt_timeout, body.frame()).await {
            Ran::Done(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| !data.is_empty()) => Err(Failure::Lying),
            // All of the bytes are here; how the message ends does not change them.
            _ => Ok(()),
        }
    }

    /// The next bytes of the open body, nothing at its end, and nothing also where it broke: `open` tells which.
    async fn frame(&mut self) -> Result<Option<Bytes>, Failure> {
        let (body, _) = self.open.as_mut().expect("the caller has opened it");
        match self.clock.run_capped(self.backend.attempt_timeout, body.frame()).await {
            Ran::Done(Some(Ok(frame))) => {
                let Ok(bytes) = frame.into_data() else { return Ok(Some(Bytes::new())) };
                self.received(&bytes)?;
                Ok(Some(bytes))
            }
            // A body without a length ends here; one that said its length must not.
            Ran::Done(None) if self.length.is_none() => Ok(None),
            Ran::OutOfTime => Err(self.out_of_time()),
            broken @ (Ran::Done(_) | Ran::TooLong) => {
                tracing::debug!(backend = self.backend.name, offset = self.done, "body broke");
                let cause = if matches!(broken, Ran::TooLong) { Cause::TimedOut } else { Cause::NoAnswer };
                self.park();
                self.back_off(None, cause).await?;
                Ok(None)
            }
        }
    }

    fn received(&mut self, bytes: &Bytes) -> Result<(), Failure> {
        let count = bytes.len() as u64;
        self.stats.bytes.fetch_add(count, Ordering::Relaxed);
        if self.length.is_some_and(|length| self.done + count > length) {
            return Err(Failure::Lying);
        }
        self.done += count;
        // Bytes that are read again after a new beginning buy no time.
        let step = self.done / DEADLINE_STEP_BYTES > self.furthest / DEADLINE_STEP_BYTES;
        if step {
            self.clock.restart(self.config.deadline);
        }
        // Whoever waits behind this read is promised no more than it is: a drip is no sign of life.
        if step || self.length == Some(self.done) {
            self.completed();
        }
        self.furthest = self.furthest.max(self.done);
        (self.failures, self.cause) = (0, None);
        Ok(())
    }
}
