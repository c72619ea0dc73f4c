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
//! it: one that vanishes frees the place, but not before; what several tries of one read say of one object opens nothing; whoever waits is woken once, when it closes, and only one of them watches the time.

mod pass;

pub use pass::Pass;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::BackendErrorKind;
use crate::telemetry::BackendMetrics;
use pass::Probe;

/// Failures of one instant may be of one cause that is over in the next: only those that go on for this long open it.
const ROW_MIN: Duration = Duration::from_secs(1);

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
            BackendErrorKind::NoCredentials | BackendErrorKind::HeadTooLarge | BackendErrorKind::RequestBody => None,
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

/// A time in which the backend moved nothing and failed or put off whoever asked.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// When it began.
    pub since: Instant,
    /// A read that was given time in spite of it has failed too.
    pub confirmed: bool,
    /// How it failed last; nothing if it only pleaded to slow down.
    pub cause: Option<Cause>,
    met_at: Instant,
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
    /// For the one that watches for the time of the next probe, and then is it. First come, first served: a read whose probe
    /// failed goes behind all others, so that a few bad objects do not speak for the backend.
    watch: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    row: Option<Row>,
    opened: Option<Opened>,
}

/// Failures without a success among them.
#[derive(Clone, Copy, Debug)]
struct Row {
    since: Instant,
    last: Instant,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    at: Instant,
    cause: Cause,
    read_probe_at: Instant,
    plain_probe_at: Instant,
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
    pub fn admit(self: &Arc<Self>) -> Result<Pass, Open> {
        let mut state = self.lock();
        let Some(opened) = &mut state.opened else { return Ok(self.pass(None)) };
        let now = Instant::now();
        if now < opened.plain_probe_at {
            self.metrics.breaker_refused.inc();
            return Err(Open);
        }
        opened.plain_probe_at = now + self.config.pause.max(self.config.attempt_timeout);
        Ok(self.pass(Some(Probe::Plain { since: now })))
    }

    /// Leave for a read, if the breaker is closed.
    pub fn try_enter(self: &Arc<Self>) -> Option<Pass> {
        (!self.is_open()).then(|| self.pass(None))
    }

    /// Leave for a read that can wait: it comes when the breaker closes or it is this read's turn to probe. Waiting has no
    /// end of its own; to drop the future is to leave the queue.
    pub async fn enter(self: &Arc<Self>) -> Pass {
        if let Some(pass) = self.try_enter() {
            return pass;
        }
        loop {
            let mut closed = std::pin::pin!(self.closed.notified());
            closed.as_mut().enable();
            if let Some(pass) = self.try_enter() {
                return pass;
            }
            tokio::select! {
                () = closed => {}
                probe = self.turn_to_probe() => {
                    if probe.is_some() {
                        return self.pass(probe);
                    }
                }
            }
        }
    }

    /// Waits for the watch, then for the time of the next probe; nothing if the breaker has closed meanwhile.
    async fn turn_to_probe(&self) -> Option<Probe> {
        let watch = Arc::clone(&self.watch).acquire_owned().await.expect("it is never closed");
        loop {
            let at = {
                let mut state = self.lock();
                let opened = state.opened.as_mut()?;
                let now = Instant::now();
                if opened.read_probe_at <= now {
                    // Who vanishes says nothing, and many may vanish in one instant: the deadline of their batch.
                    opened.read_probe_at = now + self.config.pause;
                    return Some(Probe::Read { _watch: watch });
                }
                opened.read_probe_at
            };
            sleep_until(at).await;
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

    /// The backend moved something for someone. That ends an outage, but closes nothing: an old body may yet flow while
    /// everyone new is turned away.
    pub fn moved(&self) {
        if self.uneasy.load(Ordering::Acquire) {
            let mut state = self.lock();
            (state.outage, state.row) = (None, None);
            self.note_unease(&state);
        }
    }

    /// A body broke off, long after its head was a success.
    pub fn body_failed(&self, cause: Cause) {
        self.failed(cause, true);
    }

    /// What `/readyz` says of the backend while the breaker is open.
    pub fn reason(&self) -> Option<String> {
        let Opened { at, cause, .. } = self.lock().opened?;
        Some(format!("backend {}: breaker open for {} s ({cause})", self.name, at.elapsed().as_secs()))
    }

    fn pass(self: &Arc<Self>, probe: Option<Probe>) -> Pass {
        Pass { breaker: Arc::clone(self), probe }
    }

    fn failed(&self, cause: Cause, again: bool) {
        let now = Instant::now();
        let mut state = self.lock();
        state.meet(now, Some(cause), self.memory());
        // An object may be bad as often as it is asked for. A connection that cannot be had is nobody's but the backend's.
        let says_more = !again || cause == Cause::Unreachable;
        let before = state.row.filter(|row| now - row.last < self.memory()).unwrap_or(Row { since: now, last: now, count: 0 });
        let row = Row { last: now, count: before.count.saturating_add(u32::from(says_more)), ..before };
        state.row = Some(row);
        if let Some(opened) = &mut state.opened {
            opened.cause = cause;
        } else if row.count >= self.config.failures && now - row.since >= ROW_MIN {
            let at = now + self.config.pause;
            state.opened = Some(Opened { at: now, cause, read_probe_at: at, plain_probe_at: at });
            self.metrics.breaker_open.set(1);
            self.metrics.breaker_opened.inc();
            tracing::warn!(backend = self.name, failures = row.count, %cause, "breaker opens: the backend fails everyone");
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

    fn paced(&self) {
        self.answered();
        let mut state = self.lock();
        state.meet(Instant::now(), None, self.memory());
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

impl State {
    /// Somebody got nothing.
    fn meet(&mut self, now: Instant, cause: Option<Cause>, memory: Duration) {
        let before = self.outage.filter(|outage| outage.goes_on_at(now, memory));
        let outage = before.unwrap_or(Outage { since: now, confirmed: false, cause: None, met_at: now });
        self.outage = Some(Outage { met_at: now, cause: cause.or(outage.cause), ..outage });
    }
}

impl Outage {
    fn goes_on_at(&self, now: Instant, memory: Duration) -> bool {
        now.duration_since(self.met_at) < memory
    }
}

#[cfg(test)]
mod tests;
