//! When a read may wait for a backend. A [`Permit`] counts one read or request that waits; there are as many as the adaptive
//! limit says. It halves when the backend says slow down and grows back by one for each limit's worth of answers.
//!
//! A plain request that is not begun waits in the order of arrival, and not for ever. One that has waited for `queue_wait` in
//! vain, or left after a quarter of it, waiting still or just being served ([`Permit::serving`]), shows that the backend is
//! overloaded: from then on only the newest two for each permit wait, and all others are refused at once, so that those who wait
//! are served soon, while they are still there. It is over once nobody waits and nobody was refused for `queue_wait`. A batch
//! does not wait: it begins, or is refused because as many wait already as can be read for ([`Limiter::is_full_of_batches`]).
//!
//! Invariants: no more permits than the limit are given; batches together leave `plain_share` of them to plain requests, and these
//! leave as many to batches while one waits;
//! waiting goes round-robin over lanes, and inside a lane to the lowest place first, so a read that asks again keeps its turn;
//! what is begun is not refused.

mod leaving;
pub(super) mod queue;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::telemetry::BackendMetrics;
use leaving::Leave;
pub use leaving::Serving;
use queue::{NEW, Queue};

/// The limit halves at most this often: the answers that were under way when it did say nothing new.
const HALVING_PAUSE: Duration = Duration::from_millis(500);

/// Doublings of the pause are counted up to here; whoever pauses has a maximum in time.
const PLEAS_MAX: u32 = 16;

/// A client that goes away after this part of `queue_wait`, one over it, has lost its patience; before that it may be gone for
/// reasons of its own.
const PATIENCE_SHARE: u32 = 4;

/// Plain requests that wait for each permit of an overloaded backend: one would now and then leave a permit without anybody.
const PLAIN_PER_PERMIT: usize = 2;

/// Batches may wait up to this number, however few permits there are: the limit falls for seconds, a batch may last for minutes.
const BATCHES_WAITING: usize = 32;

/// Who waits: all plain requests share lane 0, each batch has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(u64);

impl Lane {
    /// Requests that are not part of a batch.
    pub const PLAIN: Self = Self(0);

    /// The lane of the batch with this number, counted from 1 in the process.
    pub fn batch(number: u64) -> Self {
        assert!(number > 0, "lane 0 belongs to plain requests");
        Self(number)
    }
}

/// Numbers of a limiter.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    /// Most permits.
    pub max: usize,
    /// Fewest permits, however often the backend says slow down.
    pub min: usize,
    /// Share of the permits that batches leave to plain requests.
    pub plain_share: f64,
    /// The longest that a plain request waits to begin.
    pub queue_wait: Duration,
}

/// The backend has more to do than it can: a plain request has waited in vain, or need not begin to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded;

/// The permits of one backend.
#[derive(Debug)]
pub struct Limiter {
    config: LimitConfig,
    metrics: BackendMetrics,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: f64,
    in_use: usize,
    in_use_by_batches: usize,
    queue: Queue<Permit>,
    /// Plain requests come faster than they are served: when it last showed.
    overloaded_at: Option<Instant>,
    progressed_at: Instant,
    halved_at: Option<Instant>,
    /// Pleas to slow down that the limit could not follow, fewer by each answer that was none.
    pleas: u32,
}

/// Leave to wait for the backend; dropping it lets the next one go.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<Limiter>,
    lane: Lane,
    /// Since when a plain request wanted to begin.
    since: Option<Instant>,
}

impl Limiter {
    /// A limiter with all its permits free.
    pub fn new(config: LimitConfig, metrics: BackendMetrics) -> Arc<Self> {
        assert!(config.min >= 1 && config.min <= config.max, "settings are validated");
        let state = State {
            limit: config.max as f64,
            in_use: 0,
            in_use_by_batches: 0,
            queue: Queue::default(),
            overloaded_at: None,
            progressed_at: Instant::now(),
            halved_at: None,
            pleas: 0,
        };
        let limiter = Arc::new(Self { config, metrics, state: Mutex::new(state) });
        limiter.show_limit(&limiter.lock());
        limiter.metrics.overloaded.set(0);
        limiter
    }

    /// A permit, if there is room and nobody of the lane waits.
    pub fn try_acquire(self: &Arc<Self>, lane: Lane) -> Option<Permit> {
        let mut state = self.lock();
        let free = !state.queue.waits(lane) && self.room(&state)(lane);
        free.then(|| self.take(&mut state, lane))
    }

    /// Waits for a permit for something that is begun: a read of a batch, or a plain request that goes on, at place 0. `place`
    /// orders the waiters of one lane; dropping the future gives up the turn.
    pub async fn acquire(self: &Arc<Self>, lane: Lane, place: u32) -> Permit {
        assert!(lane != Lane::PLAIN || place < NEW, "a plain request that is not begun is admitted or refused");
        if let Some(permit) = self.try_acquire(lane) {
            return permit;
        }
        let (mut turn, ticket) = self.lock().queue.push(lane, place);
        let _leave = Leave::new(self, ticket, Instant::now());
        // A lane may have room while an earlier one waits for want of its own share.
        self.dispatch();
        (&mut turn).await.expect("a waiter is only ever removed with its permit or by itself")
    }

    /// A permit for a plain request that is not begun: it waits behind few others, or for `queue_wait` at the longest.
    ///
    /// # Errors
    /// [`Overloaded`]: the request is to be refused.
    pub async fn admit(self: &Arc<Self>) -> Result<Permit, Overloaded> {
        let (mut turn, ticket) = {
            let mut state = self.lock();
            self.calm_down(&mut state);
            if !state.queue.waits(Lane::PLAIN) && self.room(&state)(Lane::PLAIN) {
                return Ok(self.take(&mut state, Lane::PLAIN));
            }
            if state.overloaded_at.is_some() && state.queue.plain() >= state.plain_max() {
                state.overloaded_at = Some(Instant::now());
                return Err(Overloaded);
            }
            let pushed = state.queue.push(Lane::PLAIN, NEW);
            self.show_plain(&state);
            pushed
        };
        let since = Instant::now();
        let _leave = Leave::new(self, ticket, since);
        self.dispatch();
        loop {
            match timeout(self.config.queue_wait, &mut turn).await {
                // Who is taken out of the queue is told the same as who leaves it.
                Ok(given) => return given.map(|permit| permit.waited_for(since)).map_err(|_| Overloaded),
                Err(_) if self.lock().is_crowded() => return Err(Overloaded),
                // As few wait as would in an overload: the backend is slow, and would serve nobody sooner if this one left.
                Err(_) => {}
            }
        }
    }

    /// Whether no new batch is to begin: as many wait for a permit as there are permits for batches, so that each of them has
    /// one read under way on average and moves as fast as GETs one after another would. Batches that wait for their readers, or
    /// for the breaker, do not count.
    pub fn is_full_of_batches(&self) -> bool {
        let state = self.lock();
        state.queue.batches() >= self.for_batches(&state).max(BATCHES_WAITING)
    }

    /// The backend moved something for someone. Deadlines of reads that wait for a permit stand still while it does.
    pub fn progress(&self) {
        self.lock().progressed_at = Instant::now();
    }

    /// When [`Limiter::progress`] was last told.
    pub fn progressed_at(&self) -> Instant {
        self.lock().progressed_at
    }

    /// An answer came that was no plea to slow down: the limit creeps back. Whether anything moved is another question: a head
    /// may be all that ever comes.
    pub fn answered(self: &Arc<Self>) {
        let mut state = self.lock();
        state.pleas = state.pleas.saturating_sub(1);
        if state.limit < self.config.max as f64 {
            state.limit = (state.limit + 1.0 / state.limit).min(self.config.max as f64);
            self.show_limit(&state);
            drop(state);
            self.dispatch();
        }
    }

    /// The backend said slow down: half as many may wait for it. Says how often the pause that a plea costs is to be doubled:
    /// more and more, once the limit cannot halve any further.
    pub fn slow_down(&self) -> u32 {
        let mut state = self.lock();
        let now = Instant::now();
        if state.halved_at.is_none_or(|at| now - at >= HALVING_PAUSE) {
            state.halved_at = Some(now);
            if state.limit > self.config.min as f64 {
                state.limit = (state.limit / 2.0).max(self.config.min as f64);
                self.show_limit(&state);
            } else {
                state.pleas = (state.pleas + 1).min(PLEAS_MAX);
            }
        }
        state.pleas
    }

    /// Permits taken now.
    pub fn in_use(&self) -> usize {
        self.lock().in_use
    }

    /// Permits that there are now.
    pub fn limit(&self) -> usize {
        self.lock().limit as usize
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }

    /// Whether there is a permit for somebody of a lane.
    fn room(&self, state: &State) -> impl Fn(Lane) -> bool + use<> {
        let free = state.in_use < state.limit as usize;
        let for_plain = free && state.in_use - state.in_use_by_batches < self.for_plain(state);
        let for_batches = free && state.in_use_by_batches < self.for_batches(state);
        move |lane| if lane == Lane::PLAIN { for_plain } else { for_batches }
    }

    /// The permits that batches may take; at least one, or they would never move.
    fn for_batches(&self, state: &State) -> usize {
        let limit = state.limit as usize;
        let kept = (limit as f64 * self.config.plain_share).ceil() as usize;
        limit.saturating_sub(kept).max(1)
    }

    /// The permits that plain requests may take; at least one. What batches may not take is more than enough for these to leave,
    /// so that together they may always take all.
    fn for_plain(&self, state: &State) -> usize {
        let (limit, for_batches) = (state.limit as usize, self.for_batches(state));
        let kept = if state.queue.batches() > 0 { (limit - for_batches).clamp(1, for_batches) } else { 0 };
        limit.saturating_sub(kept).max(1)
    }

    fn take(self: &Arc<Self>, state: &mut State, lane: Lane) -> Permit {
        state.in_use += 1;
        state.in_use_by_batches += usize::from(lane != Lane::PLAIN);
        self.metrics.permits_in_use.set(state.in_use as i64);
        Permit { limiter: Arc::clone(self), lane, since: None }
    }

    /// Gives permits to waiters while there is room; they are sent outside the lock, which dropping one takes.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let (permit, sender) = {
                let mut state = self.lock();
                let room = self.room(&state);
                let Some((lane, sender)) = state.queue.pop(room) else { return };
                self.show_plain(&state);
                (self.take(&mut state, lane), sender)
            };
            // Whoever left in this very moment drops the permit, which serves the next one.
            drop(sender.send(permit));
        }
    }

    fn release(&self, lane: Lane) {
        let mut state = self.lock();
        state.in_use -= 1;
        state.in_use_by_batches -= usize::from(lane != Lane::PLAIN);
        self.metrics.permits_in_use.set(state.in_use as i64);
        self.calm_down(&mut state);
    }

    /// A client that has less patience than `queue_wait` says it by going away, from a queue that is too long.
    fn left(&self, state: &mut State, since: Instant, crowded: bool) {
        if crowded && since.elapsed() >= self.config.queue_wait / PATIENCE_SHARE {
            self.overload(state);
            self.show_plain(state);
        }
    }

    /// A plain request has waited for too long: those that came before the newest few have, too, or soon will have.
    fn overload(&self, state: &mut State) {
        if state.overloaded_at.replace(Instant::now()).is_none() {
            self.metrics.overloaded.set(1);
            self.metrics.overloads.inc();
        }
        let max = state.plain_max();
        state.queue.cut(max);
    }

    /// Ends an overload that has not shown for `queue_wait`, if nobody waits. A moment in which nobody does is no sign: those who
    /// were refused come again together.
    fn calm_down(&self, state: &mut State) {
        let over = state.overloaded_at.is_some_and(|at| at.elapsed() >= self.config.queue_wait);
        if over && !state.queue.waits(Lane::PLAIN) {
            state.overloaded_at = None;
            self.metrics.overloaded.set(0);
        }
    }

    fn show_plain(&self, state: &State) {
        self.metrics.plain_waiting.set(state.queue.plain() as i64);
    }

    fn show_limit(&self, state: &State) {
        self.metrics.permits_limit.set(state.limit.floor());
        self.metrics.plain_waiting_max.set(state.plain_max() as i64);
    }
}

impl State {
    /// The most plain requests that wait in an overload.
    fn plain_max(&self) -> usize {
        self.limit as usize * PLAIN_PER_PERMIT
    }

    /// Whether more plain requests wait than may in an overload.
    fn is_crowded(&self) -> bool {
        self.queue.plain() > self.plain_max()
    }
}

impl Permit {
    /// Its client, from now until the backend answers: a queue that settles just below the clients' patience serves them only
    /// to see them go.
    pub fn serving(&self) -> Serving {
        Serving::new(Arc::clone(&self.limiter), self.since)
    }

    fn waited_for(mut self, since: Instant) -> Self {
        self.since = Some(since);
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.release(self.lane);
        self.limiter.dispatch();
    }
}

#[cfg(test)]
mod tests;
