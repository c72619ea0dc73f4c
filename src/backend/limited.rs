//! When a read may wait for a backend. A [`Permit`] counts one read or request that waits; there are as many as the adaptive
//! limit says. It halves when the backend says slow down and grows back by one for each limit's worth of answers.
//!
//! Invariants: no more permits than the limit are given; batches together leave `plain_share` of them to plain requests;
//! waiting goes round-robin over lanes, and inside a lane to the lowest place first, so a read that asks again keeps its turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::telemetry::BackendMetrics;

/// The limit halves at most this often: the answers that were under way when it did say nothing new.
const HALVING_PAUSE: Duration = Duration::from_millis(500);

/// Doublings of the pause are counted up to here; whoever pauses has a maximum in time.
const PLEAS_MAX: u32 = 16;

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
}

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
    /// Lanes with someone waiting, the next to be served first.
    ring: VecDeque<Lane>,
    waiting: BTreeMap<Lane, BTreeMap<(u32, u64), oneshot::Sender<Permit>>>,
    ticket: u64,
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
}

impl Limiter {
    /// A limiter with all its permits free.
    pub fn new(config: LimitConfig, metrics: BackendMetrics) -> Arc<Self> {
        assert!(config.min >= 1 && config.min <= config.max, "settings are validated");
        metrics.permits_limit.set(config.max as f64);
        let state = State {
            limit: config.max as f64,
            in_use: 0,
            in_use_by_batches: 0,
            ring: VecDeque::new(),
            waiting: BTreeMap::new(),
            ticket: 0,
            progressed_at: Instant::now(),
            halved_at: None,
            pleas: 0,
        };
        Arc::new(Self { config, metrics, state: Mutex::new(state) })
    }

    /// A permit, if there is room and nobody of the lane waits.
    pub fn try_acquire(self: &Arc<Self>, lane: Lane) -> Option<Permit> {
        let mut state = self.lock();
        let free = !state.waiting.contains_key(&lane) && self.has_room(&state, lane);
        free.then(|| self.take(&mut state, lane))
    }

    /// Waits for a permit. `place` orders the waiters of one lane; dropping the future gives up the turn.
    pub async fn acquire(self: &Arc<Self>, lane: Lane, place: u32) -> Permit {
        if let Some(permit) = self.try_acquire(lane) {
            return permit;
        }
        let (mut turn, ticket) = {
            let mut state = self.lock();
            state.ticket += 1;
            let ticket = (place, state.ticket);
            let (sender, receiver) = oneshot::channel();
            if !state.waiting.contains_key(&lane) {
                state.ring.push_back(lane);
            }
            state.waiting.entry(lane).or_default().insert(ticket, sender);
            (receiver, ticket)
        };
        let _leave = Leave { limiter: self, lane, ticket };
        // A lane may have room while an earlier one waits for want of its own share.
        self.dispatch();
        (&mut turn).await.expect("a waiter is only ever removed with its permit or by itself")
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
            self.metrics.permits_limit.set(state.limit.floor());
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
                self.metrics.permits_limit.set(state.limit.floor());
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

    fn has_room(&self, state: &State, lane: Lane) -> bool {
        let limit = state.limit as usize;
        if lane == Lane::PLAIN {
            return state.in_use < limit;
        }
        // At least one for batches, or they would never move.
        let kept = (limit as f64 * self.config.plain_share).ceil() as usize;
        state.in_use < limit && state.in_use_by_batches < limit.saturating_sub(kept).max(1)
    }

    fn take(self: &Arc<Self>, state: &mut State, lane: Lane) -> Permit {
        state.in_use += 1;
        state.in_use_by_batches += usize::from(lane != Lane::PLAIN);
        self.metrics.permits_in_use.set(state.in_use as i64);
        Permit { limiter: Arc::clone(self), lane }
    }

    /// Gives permits to waiters while there is room; they are sent outside the lock, which dropping one takes.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let (permit, sender) = {
                let mut state = self.lock();
                let Some(at) = state.ring.iter().position(|lane| self.has_room(&state, *lane)) else { return };
                let lane = state.ring.remove(at).expect("the place was just found");
                let waiters = state.waiting.get_mut(&lane).expect("a lane in the ring has waiters");
                let (_, sender) = waiters.pop_first().expect("a lane in the ring has waiters");
                if waiters.is_empty() {
                    state.waiting.remove(&lane);
                } else {
                    state.ring.push_back(lane);
                }
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
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.release(self.lane);
        self.limiter.dispatch();
    }
}

/// Takes a waiter out of the queue when its future is dropped before its turn.
struct Leave<'a> {
    limiter: &'a Limiter,
    lane: Lane,
    ticket: (u32, u64),
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        if let Some(waiters) = state.waiting.get_mut(&self.lane) {
            waiters.remove(&self.ticket);
            if waiters.is_empty() {
                state.waiting.remove(&self.lane);
                state.ring.retain(|lane| *lane != self.lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    fn limiter(max: usize, min: usize, plain_share: f64) -> Arc<Limiter> {
        Limiter::new(LimitConfig { max, min, plain_share }, Metrics::new().backend("b"))
    }

    /// Starts a waiter that reports `name` when it gets its permit and holds it until told.
    fn waiter(
        limiter: &Arc<Limiter>,
        lane: Lane,
        place: u32,
        order: &Arc<Mutex<Vec<(Lane, u32)>>>,
    ) -> tokio::task::JoinHandle<Permit> {
        let (limiter, order) = (Arc::clone(limiter), Arc::clone(order));
        tokio::spawn(async move {
            let permit = limiter.acquire(lane, place).await;
            order.lock().expect("no panic").push((lane, place));
            permit
        })
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn permits_go_round_robin_over_lanes_and_lowest_place_first() {
        let limiter = limiter(1, 1, 0.0);
        let first = limiter.acquire(Lane::PLAIN, 0).await;
        let order = Arc::default();
        let mut tasks = Vec::new();
        for (lane, place) in [(1, 5), (1, 3), (1, 4), (2, 9), (2, 1)] {
            tasks.push(waiter(&limiter, Lane::batch(lane), place, &order));
            settle().await;
        }
        drop(first);
        for task in tasks {
            // Each permit is dropped with its join result, which serves the next waiter.
            tokio::spawn(async move { drop(task.await) });
        }
        settle().await;
        let got: Vec<_> = order.lock().expect("no panic").iter().map(|(lane, place)| (lane.0, *place)).collect();
        assert_eq!(got, [(1, 3), (2, 1), (1, 4), (2, 9), (1, 5)]);
        assert_eq!(limiter.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_leave_a_share_to_plain_requests() {
        let limiter = limiter(8, 1, 0.25);
        let order = Arc::default();
        let held: Vec<_> = (0..8).map(|i| waiter(&limiter, Lane::batch(1), i, &order)).collect();
        settle().await;
        assert_eq!(limiter.in_use(), 6, "a quarter of eight is kept");
        let _a = limiter.acquire(Lane::PLAIN, 0).await;
        let _b = limiter.acquire(Lane::PLAIN, 0).await;
        assert_eq!(limiter.in_use(), 8);
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_queue_blocks_nobody() {
        let limiter = limiter(1, 1, 0.0);
        let first = limiter.acquire(Lane::batch(1), 0).await;
        let order = Arc::default();
        let gone = waiter(&limiter, Lane::batch(1), 1, &order);
        let stays = waiter(&limiter, Lane::batch(1), 2, &order);
        settle().await;
        gone.abort();
        settle().await;
        drop(first);
        drop(stays.await.expect("served"));
        assert_eq!(*order.lock().expect("no panic"), [(Lane::batch(1), 2)]);
        assert_eq!(limiter.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_halves_on_slow_down_and_grows_back() {
        let limiter = limiter(16, 4, 0.0);
        limiter.slow_down();
        limiter.slow_down();
        assert_eq!(limiter.limit(), 8, "answers of one burst halve once");
        for _ in 0..4 {
            tokio::time::advance(HALVING_PAUSE).await;
            limiter.slow_down();
        }
        assert_eq!(limiter.limit(), 4, "never below the minimum");
        for _ in 0..200 {
            limiter.answered();
        }
        assert_eq!(limiter.limit(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn pleas_at_the_lowest_limit_make_the_pauses_longer() {
        let limiter = limiter(4, 2, 0.0);
        assert_eq!(limiter.slow_down(), 0, "the limit halves");
        for times in [1, 2, 3] {
            tokio::time::advance(HALVING_PAUSE).await;
            assert_eq!((limiter.slow_down(), limiter.limit()), (times, 2));
            assert_eq!(limiter.slow_down(), times, "answers of one burst say it once");
        }
        limiter.answered();
        limiter.answered();
        assert_eq!(limiter.slow_down(), 1, "and answers make them shorter");
    }
}
