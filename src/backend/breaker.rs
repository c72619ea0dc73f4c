//! Whether a backend is asked at all. In come the outcomes of whoever asked it, out goes leave to ask: a [`Pass`]. One state
//! for each backend, pure but for tokio's clock.
//!
//! It opens on failures of the backend in a row, no success among them, once there are enough of them and the first is a second
//! old. While it is open nothing is sent but probes: one of a batch's read and one plain request for each pause. An answer
//! closes it. Any answer that is no failure is a success, a refusal and a plea to slow down included.
//!
//! Beside that it remembers the outage: since when the backend has moved nothing for anyone and failed or put off whoever
//! asked. It begins with the first of them, long before the breaker opens, and entries that wait behind others are charged by it.
//!
//! Invariants: at most one read probes at a time, and from the start of one probe to the next there is a pause, whatever becomes of
//! it: one that vanishes frees the place, but not before; batches take turns to probe; what is said of one object, however often,
//! opens nothing, unless it is that no connection can be had; whoever waits is woken once, when it closes, and only one of them
//! watches the time.

mod outage;
mod pass;
mod row;
mod turns;

pub use outage::Outage;
pub use pass::Pass;
pub use row::Target;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::BackendErrorKind;
use super::limited::Lane;
use super::limited::queue::Ticket;
use crate::telemetry::BackendMetrics;
use pass::Probe;
use row::Row;
use turns::Turns;

/// An outage that nobody has met for this long may be over: whoever comes next finds out. Where attempts may be silent for longer,
/// it is longer: [`BreakerConfig::memory`].
const OUTAGE_MEMORY_MIN: Duration = Duration::from_secs(10);

/// Numbers of a breaker.
#[derive(Clone, Copy, Debug)]
pub struct BreakerConfig {
    /// Failures in a row that open it.
    pub failures: u32,
    /// Time from one probe to the next.
    pub pause: Duration,
    /// A plain request that probes and says nothing for this long keeps others from probing no longer.
    pub attempt_timeout: Duration,
}

impl BreakerConfig {
    /// How long an outage is remembered that nobody meets. One attempt after the other that is silent until its timeout, with a
    /// pause between them, is one outage.
    fn memory(&self) -> Duration {
        OUTAGE_MEMORY_MIN.max(self.attempt_timeout.saturating_mul(2).saturating_add(self.pause))
    }
}

/// How a backend fails. What it prints is for logs and `/readyz`: no address, no word of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection can be had.
    Unreachable,
    /// It breaks off.
    NoAnswer,
    /// It says nothing for too long.
    TimedOut,
    /// It answers with this 5xx.
    Status(StatusCode),
}

impl Cause {
    /// The backend's failure behind a missing answer; nothing where it is no failure of the backend's.
    pub fn of(kind: BackendErrorKind) -> Option<Self> {
        match kind {
            BackendErrorKind::Unreachable => Some(Self::Unreachable),
            BackendErrorKind::NoAnswer | BackendErrorKind::Garbled => Some(Self::NoAnswer),
            BackendErrorKind::HeadTooLarge | BackendErrorKind::Unframed => None,
            BackendErrorKind::NoCredentials | BackendErrorKind::RequestBody => None,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable => f.write_str("cannot be reached"),
            Self::NoAnswer => f.write_str("breaks off"),
            Self::TimedOut => f.write_str("does not answer in time"),
            Self::Status(status) => write!(f, "answers {}", status.as_u16()),
        }
    }
}

/// The breaker is open, and this is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open;

/// The breaker of one backend.
#[derive(Debug)]
pub struct Breaker {
    name: String,
    config: BreakerConfig,
    metrics: BackendMetrics,
    state: Mutex<State>,
    /// Whether there is anything that a success would change: spares the lock for each piece of a body.
    uneasy: AtomicBool,
    closed: Notify,
    /// For the one that watches for the time of the next probe, and then hands it to whoever's turn it is.
    watch: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    row: Option<Row>,
    opened: Option<Opened>,
    /// When a plain request was last answered that had been given up for the breaker.
    late_at: Option<Instant>,
    /// Reads that wait.
    turns: Turns,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    at: Instant,
    cause: Cause,
    read_probe_at: Instant,
    plain_probe_at: Instant,
    /// What the last plain probe asked for, if the backend answered it with a failure.
    plain_failed: Option<Target>,
    /// When somebody last came, whether it was let through or not.
    asked_at: Instant,
}

impl Breaker {
    /// A closed breaker of the backend called `name`.
    pub fn new(name: impl Into<String>, config: BreakerConfig, metrics: BackendMetrics) -> Arc<Self> {
        assert!(config.failures >= 1 && !config.pause.is_zero(), "settings are validated");
        metrics.breaker_open.set(0);
        Arc::new(Self {
            name: name.into(),
            config,
            metrics,
            state: Mutex::default(),
            uneasy: AtomicBool::new(false),
            closed: Notify::new(),
            watch: Arc::new(Semaphore::new(1)),
        })
    }

    /// Leave for a plain request, at once or not at all; a refusal is counted.
    ///
    /// # Errors
    /// [`Open`], unless it is the turn of a plain request to probe.
    pub fn admit(self: &Arc<Self>, target: Target) -> Result<Pass, Open> {
        let mut state = self.lock();
        let Some(opened) = &mut state.opened else { return Ok(self.pass(target, None)) };
        let now = Instant::now();
        opened.asked_at = now;
        // What was answered with a failure just now leaves the turn to others, if there are any.
        let later = if opened.plain_failed == Some(target) { self.config.pause } else { Duration::ZERO };
        if now < opened.plain_probe_at + later {
            self.metrics.breaker_refused.inc();
            return Err(Open);
        }
        opened.plain_probe_at = now + self.config.pause.max(self.config.attempt_timeout);
        Ok(self.pass(target, Some(Probe::Plain { since: now })))
    }

    /// Leave for a read, if the breaker is closed.
    pub fn try_enter(self: &Arc<Self>, target: Target) -> Option<Pass> {
        (!self.is_open()).then(|| self.pass(target, None))
    }

    /// Leave for a read that can wait: it comes when the breaker closes or it is this read's turn to probe. Waiting has no
    /// end of its own; to drop the future is to leave the queue. `again` if the backend has failed this very read before.
    pub async fn enter(self: &Arc<Self>, lane: Lane, target: Target, again: bool) -> Pass {
        loop {
            let mut closed = std::pin::pin!(self.closed.notified());
            closed.as_mut().enable();
            let (mut turn, ticket) = {
                let mut state = self.lock();
                let Some(opened) = &mut state.opened else { return self.pass(target, None) };
                opened.asked_at = Instant::now();
                state.turns.of(again).push(lane, 0)
            };
            let _leave = Leave { breaker: self, ticket, again };
            tokio::select! {
                Ok(probe) = &mut turn => return self.pass(target, Some(probe)),
                () = closed => {}
                () = self.keep_watch() => {}
            }
        }
    }

    /// Waits for the watch, then for the time of the next probe, and gives it away, watch and all, until the breaker is closed.
    async fn keep_watch(&self) {
        loop {
            let watch = Arc::clone(&self.watch).acquire_owned().await.expect("it is never closed");
            loop {
                let at = {
                    let mut state = self.lock();
                    let Some(opened) = &mut state.opened else { return };
                    let now = Instant::now();
                    if opened.read_probe_at <= now {
                        // Who vanishes says nothing, and many may vanish in one instant: the deadline of their batch.
                        opened.read_probe_at = now + self.config.pause;
                        if let Some(next) = state.turns.next() {
                            // Whoever left in this very moment lets go of the watch.
                            drop(next.send(Probe::Read { _watch: watch }));
                        }
                        break;
                    }
                    opened.read_probe_at
                };
                sleep_until(at).await;
            }
        }
    }

    /// The longest that the next in line waits for its turn to probe.
    pub fn longest_wait(&self) -> Duration {
        if self.is_open() { self.config.pause } else { Duration::ZERO }
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.uneasy.load(Ordering::Acquire) && self.lock().opened.is_some()
    }

    /// The outage, if the backend has moved nothing for anyone up to now.
    pub fn outage(&self) -> Option<Outage> {
        let now = Instant::now();
        self.lock().outage.filter(|outage| outage.goes_on_at(now, self.memory()))
    }

    /// Failures in a row that open it.
    pub fn failures(&self) -> u32 {
        self.config.failures
    }

    /// How long an outage is remembered that nobody meets.
    pub fn memory(&self) -> Duration {
        self.config.memory()
    }

    /// A read that was given time in spite of the outage has failed too: it was not a few bad objects.
    pub fn confirm_outage(&self) {
        if let Some(outage) = &mut self.lock().outage {
            outage.confirmed = true;
        }
    }

    /// The backend completed something for someone. That ends an outage, but closes nothing and leaves the failures in a row as
    /// they are: an old body may yet flow while everyone new is turned away.
    pub fn moved(&self) {
        if self.uneasy.load(Ordering::Acquire) {
            let mut state = self.lock();
            state.outage = None;
            self.note_unease(&state);
        }
    }

    /// A body broke off, long after its head was a success.
    pub fn body_failed(&self, cause: Cause) {
        self.failed(cause, None);
    }

    /// What `/readyz` says of the backend while the breaker is open. Without traffic nobody finds out whether it is back.
    pub fn reason(&self) -> Option<String> {
        let state = self.lock();
        let Opened { at, cause, read_probe_at, plain_probe_at, asked_at, .. } = state.opened.as_ref()?;
        let (at, asked) = (at.elapsed().as_secs(), asked_at.elapsed());
        let idle =
            asked > self.config.pause && (*read_probe_at).max(*plain_probe_at) <= Instant::now() && state.turns.nobody_waits();
        let since =
            if idle { format!("; nobody has asked for {} s, the next to ask finds out", asked.as_secs()) } else { String::new() };
        Some(format!("backend {}: breaker open for {at} s ({cause}){since}", self.name))
    }

    fn pass(self: &Arc<Self>, target: Target, probe: Option<Probe>) -> Pass {
        Pass { breaker: Arc::clone(self), target, probe }
    }

    /// The backend failed, for the first time for `target`'s reader if there is one.
    fn failed(&self, cause: Cause, target: Option<Target>) {
        let now = Instant::now();
        let mut state = self.lock();
        let memory = self.memory();
        state.outage = Some(Outage::met(state.outage, now, Some(cause), memory));
        let row = Row::after(state.row.take(), now, cause, target, (self.config.failures, memory));
        let (opens, failures) = (row.opens(self.config.failures), row.count());
        state.row = Some(row);
        if let Some(opened) = &mut state.opened {
            opened.cause = cause;
        } else if opens {
            let next = now + self.config.pause;
            let (read_probe_at, plain_probe_at) = (next, next);
            state.opened = Some(Opened { at: now, cause, read_probe_at, plain_probe_at, plain_failed: None, asked_at: now });
            self.metrics.breaker_open.set(1);
            self.metrics.breaker_opened.inc();
            tracing::warn!(backend = self.name, failures, %cause, "breaker opens: the backend fails everyone");
        }
        self.note_unease(&state);
    }

    /// The backend is there. Whether the outage is over is another question: a head may be all that ever comes.
    fn answered(&self) {
        if !self.uneasy.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        state.row = None;
        let opened = state.opened.take();
        self.note_unease(&state);
        if let Some(Opened { at, .. }) = opened {
            self.metrics.breaker_open.set(0);
            drop(state);
            tracing::info!(backend = self.name, open.ms = at.elapsed().as_millis() as u64, "breaker closes: the backend answers");
            self.closed.notify_waiters();
        }
    }

    /// An answer came to a plain request that had been given up for the breaker: the backend is slow, and works.
    pub(super) fn answered_late(&self) {
        self.lock().late_at = Some(Instant::now());
        self.answered();
    }

    /// Whether plain requests have lately been answered later than `attempt_timeout`.
    fn answers_late(&self) -> bool {
        let late_at = self.lock().late_at;
        late_at.is_some_and(|at| at.elapsed() < self.memory())
    }

    fn paced(&self) {
        self.answered();
        let mut state = self.lock();
        state.outage = Some(Outage::met(state.outage, Instant::now(), None, self.memory()));
        self.note_unease(&state);
    }

    fn note_unease(&self, state: &State) {
        let uneasy = state.outage.is_some() || state.row.is_some() || state.opened.is_some();
        self.uneasy.store(uneasy, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// Takes a read out of the queue when it goes on or away.
struct Leave<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
    again: bool,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.breaker.lock().turns.of(self.again).leave(self.ticket);
    }
}

#[cfg(test)]
mod tests;
