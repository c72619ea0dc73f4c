//! Notices readers that have stalled. A body cannot notice by itself: nobody polls it while its reader takes nothing. So it
//! says when it hands something out and when it is asked again, and one task looks at all of them from time to time.
//!
//! It is also the one place that knows who stalled longest and who is slowest, and so whom to break off where somebody else wants
//! what that client holds ([`StallWatch::make_room`]): a request's slot, or the bytes and entries of a batch. A client that owes
//! us bytes is watched for that as one that takes them: its turn is when we wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;

/// How often the task looks: a stall is noticed this much late at the most.
const TICK: Duration = Duration::from_millis(250);

/// A reader that has stalled for longer than this may be broken off for the sake of somebody new.
pub const STALL_GRACE: Duration = Duration::from_secs(30);

/// A client that has moved less than [`SLOW_BYTES`] in this much time of its own may be broken off for somebody who has no slot.
/// What we or a store took is not in it, so it is the client's own pace: less than 18 kB a second.
pub const SLOW_WINDOW: Duration = Duration::from_secs(60);

/// See [`SLOW_WINDOW`].
pub const SLOW_BYTES: u64 = 1024 * 1024;

/// How long a batch that is broken off may take to let go of what it holds.
const BREAK_OFF_TIMEOUT: Duration = Duration::from_secs(1);

/// All bodies that are watched.
#[derive(Default)]
pub struct StallWatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    watched: HashMap<u64, Arc<Watched>>,
    /// Who had stalled for longer than the grace, or was slow, when they were last searched for: the slow ones, the slowest last,
    /// and then the others, the longest stalled last.
    candidates: Vec<u64>,
    searched_at: Option<Instant>,
}

struct Watched {
    turn: Mutex<Turn>,
    after: Duration,
    on_end: Box<dyn Fn(End) + Send + Sync>,
    /// What it holds that others may want; nothing for what is not a whole answer.
    holds: Option<Holds>,
}

/// The client's turn, and its pace over all of them.
struct Turn {
    /// Since when it has moved nothing, if it is its turn.
    since: Option<Instant>,
    /// What of this turn belongs to the window.
    counted_from: Instant,
    /// Time of its turns in this window, before this one.
    waited: Duration,
    /// Bytes moved in this window.
    bytes: u64,
    /// Bytes moved in the window before, once there was one.
    pace: Option<u64>,
}

/// What an answer holds as long as its reader takes its time.
#[derive(Debug)]
pub enum Holds {
    /// The slot of a request.
    Slot,
    /// That, and what a batch was admitted with.
    Batch(BreakOff),
}

/// Ways to reach a batch whose reader has stalled. A batch's answer carries it among its extensions.
#[derive(Clone, Debug, Default)]
pub struct BreakOff {
    /// Tells the batch to end as broken.
    pub told: CancellationToken,
    /// Cancelled once it has let go of everything.
    pub gone: CancellationToken,
    /// What it would let go of; the batch keeps it true.
    pub held: Arc<Held>,
}

/// What a batch holds of the budgets that new batches are admitted by.
#[derive(Debug, Default)]
pub struct Held {
    /// Bytes that are kept for heads and requests.
    pub bytes: AtomicU64,
    /// Entries in flight.
    pub entries: AtomicU64,
}

/// Why a reader is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It took nothing for the time that it was watched with.
    Stalled,
    /// It took nothing for longer than [`STALL_GRACE`], or too little in [`SLOW_WINDOW`], and others want what it holds.
    MakesRoom,
}

/// What whoever makes room wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The slot of any request.
    Slot,
    /// So many bytes more than are free, of those that batches are admitted with.
    Bytes(u64),
    /// So many entries in flight more than are free.
    Entries(u64),
}

impl Wanted {
    /// How much is wanted, in its own unit.
    fn amount(self) -> u64 {
        match self {
            Self::Slot => 1,
            Self::Bytes(amount) | Self::Entries(amount) => amount,
        }
    }

    /// How much of it `holds` has.
    fn part_of(self, holds: &Holds) -> u64 {
        match (self, holds) {
            (Self::Slot, _) => 1,
            (_, Holds::Slot) => 0,
            (Self::Bytes(_), Holds::Batch(batch)) => batch.held.bytes.load(Ordering::Relaxed),
            (Self::Entries(_), Holds::Batch(batch)) => batch.held.entries.load(Ordering::Relaxed),
        }
    }
}

/// One body's line to the watch; dropping it ends the watching.
pub struct Watch {
    owner: Arc<StallWatch>,
    number: u64,
    watched: Arc<Watched>,
}

impl StallWatch {
    /// Looks for stalled readers until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            self.look();
        }
    }

    /// Watches a body whose reader has stalled when it takes nothing for `after`; `on_stall` is then called, once a stall.
    pub fn watch(self: &Arc<Self>, after: Duration, on_stall: impl Fn() + Send + Sync + 'static) -> Watch {
        self.insert(after, None, Box::new(move |_| on_stall()))
    }

    /// Watches a whole answer, which `on_end` gives up: when its reader takes nothing for `after`, or sooner where what it
    /// holds is wanted.
    pub fn reader(self: &Arc<Self>, after: Duration, holds: Holds, on_end: impl Fn(End) + Send + Sync + 'static) -> Watch {
        self.insert(after, Some(holds), Box::new(on_end))
    }

    fn insert(self: &Arc<Self>, after: Duration, holds: Option<Holds>, on_end: Box<dyn Fn(End) + Send + Sync>) -> Watch {
        let watched = Arc::new(Watched { turn: Mutex::new(Turn::begin(Instant::now())), after, on_end, holds });
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.watched.insert(number, Arc::clone(&watched));
        Watch { owner: Arc::clone(self), number, watched }
    }

    /// Breaks off the reader that has stalled longest of those that hold some of what is `wanted`, if for longer than
    /// [`STALL_GRACE`], and says whether there was one. For a slot it may also be the slowest client, reader or not
    /// ([`SLOW_WINDOW`]), if nobody has stalled. It has then let go of what it held, or was given [`BREAK_OFF_TIMEOUT`] to do so;
    /// it is found but once. Nobody is broken off where all of them together hold too little.
    pub async fn make_room(&self, wanted: Wanted) -> bool {
        let Some(watched) = self.longest_stalled(wanted) else { return false };
        let Some(Holds::Batch(batch)) = &watched.holds else {
            (watched.on_end)(End::MakesRoom);
            return true;
        };
        // Told before its answer is dropped, so that it knows why.
        batch.told.cancel();
        (watched.on_end)(End::MakesRoom);
        let _ = timeout(BREAK_OFF_TIMEOUT, batch.gone.cancelled()).await;
        true
    }

    /// Searches all readers once a [`TICK`] at the most: under overload there may be thousands of refusals in that time.
    fn longest_stalled(&self, wanted: Wanted) -> Option<Arc<Watched>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.provide(wanted, now).then(|| state.next_candidate(wanted, now))?
    }

    /// Whether readers that have stalled for longer than [`STALL_GRACE`] hold as much as is `wanted`. Breaks off nobody.
    pub fn has_room(&self, wanted: Wanted) -> bool {
        self.lock().provide(wanted, Instant::now())
    }

    fn look(&self) {
        let now = Instant::now();
        // Called outside the lock: what a stall lets go of may be watched itself.
        let stalled: Vec<_> = self.lock().watched.values().filter(|w| w.take_stalled(now, w.after)).cloned().collect();
        for watched in stalled {
            (watched.on_end)(End::Stalled);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    fn search(&mut self, now: Instant) {
        let (mut stalled, mut slow) = (Vec::new(), Vec::new());
        for (number, watched) in self.watched.iter().filter(|(_, w)| w.holds.is_some()) {
            let mut turn = watched.turn();
            turn.count(now);
            match turn.since {
                Some(since) if now.duration_since(since) > STALL_GRACE => stalled.push((since, *number)),
                _ => slow.extend(turn.pace.filter(|pace| *pace < SLOW_BYTES).map(|pace| (pace, *number))),
            }
        }
        stalled.sort_unstable_by(|a, b| b.cmp(a));
        slow.sort_unstable_by(|a, b| b.cmp(a));
        self.candidates = slow.into_iter().map(|(_, n)| n).chain(stalled.into_iter().map(|(_, n)| n)).collect();
        self.searched_at = Some(now);
    }

    /// Whether the candidates hold as much as is wanted; searches anew if those of the last [`TICK`] do not.
    fn provide(&mut self, wanted: Wanted, now: Instant) -> bool {
        if self.suffices(wanted, now) {
            return true;
        }
        if self.searched_at.is_some_and(|at| now.duration_since(at) < TICK) {
            return false;
        }
        self.search(now);
        self.suffices(wanted, now)
    }

    fn suffices(&self, wanted: Wanted, now: Instant) -> bool {
        let mut missing = wanted.amount();
        self.candidates.iter().rev().filter_map(|number| self.watched.get(number)).any(|watched| {
            let mut turn = watched.turn();
            let stalled = turn.since.is_some_and(|since| now.duration_since(since) > STALL_GRACE);
            let stalled = stalled || wanted == Wanted::Slot && turn.is_slow(now);
            drop(turn);
            missing = missing.saturating_sub(if stalled { watched.part(wanted) } else { 0 });
            missing == 0
        })
    }

    fn next_candidate(&mut self, wanted: Wanted, now: Instant) -> Option<Arc<Watched>> {
        let grace = STALL_GRACE + Duration::from_nanos(1);
        loop {
            let fits = |w: &Arc<Watched>| w.part(wanted) > 0;
            // Those that have ended since are taken out on the way.
            let at = self.candidates.iter().rposition(|number| self.watched.get(number).is_none_or(fits))?;
            let number = self.candidates.remove(at);
            if let Some(watched) =
                self.watched.get(&number).filter(|w| w.take_stalled(now, grace) || wanted == Wanted::Slot && w.take_slow(now))
            {
                return Some(Arc::clone(watched));
            }
        }
    }
}

impl Watched {
    /// How much it has of what is wanted.
    fn part(&self, wanted: Wanted) -> u64 {
        self.holds.as_ref().map_or(0, |holds| wanted.part_of(holds))
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().expect("no code panics while it holds the lock")
    }

    /// Whether the reader has taken nothing for `after`; a stall is told of once.
    fn take_stalled(&self, now: Instant, after: Duration) -> bool {
        let mut turn = self.turn();
        let stalled = turn.since.is_some_and(|since| now.duration_since(since) >= after);
        if stalled {
            turn.end(now);
            turn.pace = None;
        }
        stalled
    }

    /// Whether its last window was a slow one; told of once for each.
    fn take_slow(&self, now: Instant) -> bool {
        let mut turn = self.turn();
        let slow = turn.is_slow(now);
        if slow {
            turn.end(now);
            turn.pace = None;
        }
        slow
    }
}

impl Turn {
    fn begin(now: Instant) -> Self {
        Self { since: Some(now), counted_from: now, waited: Duration::ZERO, bytes: 0, pace: None }
    }

    /// Whether its last whole window was a slow one.
    fn is_slow(&mut self, now: Instant) -> bool {
        self.count(now);
        self.pace.is_some_and(|pace| pace < SLOW_BYTES)
    }

    fn end(&mut self, now: Instant) {
        self.count(now);
        if self.since.take().is_some() {
            self.waited += now.duration_since(self.counted_from);
        }
    }

    /// Ends the window if it has lasted long enough.
    fn count(&mut self, now: Instant) {
        let running = self.since.map_or(Duration::ZERO, |_| now.duration_since(self.counted_from));
        if self.waited + running >= SLOW_WINDOW {
            self.pace = Some(self.bytes);
            (self.bytes, self.waited, self.counted_from) = (0, Duration::ZERO, now);
        }
    }
}

impl Watch {
    /// The reader has asked; whoever takes time now is not the reader.
    pub fn asked(&self) {
        self.watched.turn().end(Instant::now());
    }

    /// The client has taken some of what it was given, or sent some. That is its pace; it does not end its turn.
    pub fn moved(&self, bytes: u64) {
        let (now, mut turn) = (Instant::now(), self.watched.turn());
        turn.bytes += bytes;
        turn.count(now);
    }

    /// The reader has been given something, and it is the reader's turn.
    pub fn given(&self) {
        let (now, mut turn) = (Instant::now(), self.watched.turn());
        if turn.since.replace(now).is_none() {
            turn.counted_from = now;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.owner.lock().watched.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
