//! Notices readers that have stalled. A body cannot notice by itself: nobody polls it while its reader takes nothing. So it
//! says when it hands something out and when it is asked again, and one task looks at all of them from time to time.
//!
//! It is also the one place that knows who stalled longest, and so whom to break off where somebody else wants what that
//! reader holds ([`StallWatch::make_room`]): a request's slot, or the bytes and entries of a batch.

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

/// How long a batch that is broken off may take to let go of what it holds.
const BREAK_OFF_TIMEOUT: Duration = Duration::from_millis(100);

/// All bodies that are watched.
#[derive(Default)]
pub struct StallWatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    watched: HashMap<u64, Arc<Watched>>,
    /// Readers that had stalled for longer than the grace when they were last searched for, the longest stalled last.
    candidates: Vec<u64>,
    searched_at: Option<Instant>,
}

struct Watched {
    waiting_since: Mutex<Option<Instant>>,
    after: Duration,
    on_end: Box<dyn Fn(End) + Send + Sync>,
    /// What it holds that others may want; nothing for what is not a whole answer.
    holds: Option<Holds>,
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
    /// It took nothing for longer than [`STALL_GRACE`], and others want what it holds.
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
        let watched = Arc::new(Watched { waiting_since: Mutex::new(Some(Instant::now())), after, on_end, holds });
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.watched.insert(number, Arc::clone(&watched));
        Watch { owner: Arc::clone(self), number, watched }
    }

    /// Breaks off the reader that has stalled longest of those that hold some of what is `wanted`, if for longer than
    /// [`STALL_GRACE`], and says whether there was one. It has then let go of what it held, or was given
    /// [`BREAK_OFF_TIMEOUT`] to do so; it is found but once. Nobody is broken off where all of them together hold too little.
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
        let stalled = |(number, w): (&u64, &Arc<Watched>)| {
            let since = (*w.since())?;
            (w.holds.is_some() && now.duration_since(since) > STALL_GRACE).then_some((since, *number))
        };
        let mut found: Vec<_> = self.watched.iter().filter_map(stalled).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        self.candidates = found.into_iter().map(|(_, number)| number).collect();
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
            let stalled = watched.since().is_some_and(|since| now.duration_since(since) > STALL_GRACE);
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
            if let Some(watched) = self.watched.get(&number).filter(|w| w.take_stalled(now, grace)) {
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

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.waiting_since.lock().expect("no code panics while it holds the lock")
    }

    /// Whether the reader has taken nothing for `after`; a stall is told of once.
    fn take_stalled(&self, now: Instant, after: Duration) -> bool {
        let mut since = self.since();
        let stalled = since.is_some_and(|since| now.duration_since(since) >= after);
        if stalled {
            *since = None;
        }
        stalled
    }
}

impl Watch {
    /// The reader has asked; whoever takes time now is not the reader.
    pub fn asked(&self) {
        *self.watched.since() = None;
    }

    /// The reader has been given something, and it is the reader's turn.
    pub fn given(&self) {
        *self.watched.since() = Some(Instant::now());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.owner.lock().watched.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn only_a_reader_that_takes_nothing_has_stalled() {
        let watch = Arc::new(StallWatch::default());
        let task = tokio::spawn(Arc::clone(&watch).run());
        let stalls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&stalls);
        let body = watch.watch(Duration::from_secs(1), move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        body.asked();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(stalls.load(Ordering::SeqCst), 0, "the backend takes its time");
        body.given();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(stalls.load(Ordering::SeqCst), 1, "once a stall");
        body.given();
        drop(body);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(stalls.load(Ordering::SeqCst), 1);
        task.abort();
    }

    struct Readers {
        watch: Arc<StallWatch>,
        ended: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Readers {
        fn add(&self, name: &'static str, holds: Holds) -> Watch {
            let ended = Arc::clone(&self.ended);
            self.watch.reader(Duration::from_secs(600), holds, move |end| {
                assert_eq!(end, End::MakesRoom);
                ended.lock().expect("no panic").push(name);
            })
        }

        async fn room(&self, wanted: Wanted) -> Option<&'static str> {
            let before = self.ended.lock().expect("no panic").len();
            let made = self.watch.make_room(wanted).await;
            let ended = self.ended.lock().expect("no panic");
            assert_eq!(ended.len() - before, usize::from(made), "one at a time");
            ended.get(before).copied()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_reader_that_stalled_longest_makes_room_and_only_for_what_it_holds() {
        let readers = Readers { watch: Arc::default(), ended: Arc::default() };
        let batch = BreakOff::default();
        batch.held.bytes.store(5, Ordering::Relaxed);
        let mut watches = Vec::new();
        for (name, holds) in [("a", Holds::Slot), ("b", Holds::Batch(batch.clone())), ("c", Holds::Slot), ("d", Holds::Slot)] {
            watches.push(readers.add(name, holds));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(readers.room(Wanted::Slot).await, None, "nobody has stalled for long");
        tokio::time::advance(STALL_GRACE - Duration::from_secs(2)).await;
        assert_eq!(readers.room(Wanted::Bytes(6)).await, None, "that is more than all of them have");
        assert_eq!(readers.room(Wanted::Entries(1)).await, None, "nobody has any");
        assert_eq!(readers.room(Wanted::Bytes(5)).await, Some("b"), "a plain answer has nothing that a batch wants");
        assert!(batch.told.is_cancelled());
        watches[2].asked();
        watches[2].given();
        drop(watches.remove(3));
        assert_eq!(readers.room(Wanted::Slot).await, Some("a"));
        tokio::time::advance(TICK).await;
        assert_eq!(readers.room(Wanted::Slot).await, None, "c has read and d has gone");
        tokio::time::advance(STALL_GRACE + TICK).await;
        assert_eq!(readers.room(Wanted::Slot).await, Some("c"));
        assert_eq!(readers.room(Wanted::Slot).await, None, "each is found once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_does_not_let_go_is_not_waited_for() {
        let readers = Readers { watch: Arc::default(), ended: Arc::default() };
        let batch = BreakOff::default();
        batch.held.entries.store(1, Ordering::Relaxed);
        let _watch = readers.add("b", Holds::Batch(batch));
        tokio::time::advance(STALL_GRACE + TICK).await;
        let started = Instant::now();
        assert_eq!(readers.room(Wanted::Entries(1)).await, Some("b"));
        assert!(started.elapsed() < 2 * BREAK_OFF_TIMEOUT);
    }
}
