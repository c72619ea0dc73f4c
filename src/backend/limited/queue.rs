//! Who waits for something of one backend, a permit or the turn to probe, and in which order: round-robin over lanes, inside a
//! lane the lowest place first, and of those the oldest. Pure: what enters are lanes and places, what leaves is the next to be served.
//!
//! Invariant: a lane is in the ring if, and only if, somebody of it waits.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;

use super::Lane;

/// Place of a plain request that is not begun: only such a one is refused, and those that are begun go before it.
pub(super) const NEW: u32 = 1;

/// A place in the queue: the lane, the place in it, and a number that grows.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Ticket {
    lane: Lane,
    at: (u32, u64),
}

impl Ticket {
    /// Whether it is that of a plain request that is not begun.
    pub fn is_new(self) -> bool {
        self.lane == Lane::PLAIN && self.at.0 == NEW
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::backend) struct Queue<T> {
    /// Lanes with someone waiting, the next to be served first.
    ring: VecDeque<Lane>,
    waiting: BTreeMap<Lane, BTreeMap<(u32, u64), oneshot::Sender<T>>>,
    numbers: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { ring: VecDeque::new(), waiting: BTreeMap::new(), numbers: 0 }
    }
}

impl<T> Queue<T> {
    /// Lets somebody wait: what is given brings what is waited for, or an error if it is taken out of the queue.
    pub fn push(&mut self, lane: Lane, place: u32) -> (oneshot::Receiver<T>, Ticket) {
        self.numbers += 1;
        let at = (place, self.numbers);
        let (sender, receiver) = oneshot::channel();
        if !self.waits(lane) {
            self.ring.push_back(lane);
        }
        self.waiting.entry(lane).or_default().insert(at, sender);
        (receiver, Ticket { lane, at })
    }

    /// Takes out the next that there is room for.
    pub fn pop(&mut self, has_room: impl Fn(Lane) -> bool) -> Option<(Lane, oneshot::Sender<T>)> {
        let place = self.ring.iter().position(|lane| has_room(*lane))?;
        let lane = self.ring.remove(place).expect("the place was just found");
        let waiters = self.waiting.get_mut(&lane).expect("a lane in the ring has waiters");
        let (_, sender) = waiters.pop_first().expect("a lane in the ring has waiters");
        if waiters.is_empty() {
            self.waiting.remove(&lane);
        } else {
            self.ring.push_back(lane);
        }
        Some((lane, sender))
    }

    /// Takes out whoever has this ticket, and says whether anybody had it still.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let waited = self.waiting.get_mut(&ticket.lane).is_some_and(|waiters| waiters.remove(&ticket.at).is_some());
        self.forget_if_empty(ticket.lane);
        waited
    }

    /// Takes out the oldest of the plain requests that are not begun until no more than `max` wait.
    pub fn cut(&mut self, max: usize) {
        let Some(waiters) = self.waiting.get_mut(&Lane::PLAIN) else { return };
        while waiters.len() > max {
            let Some(oldest) = waiters.range((NEW, 0)..).next().map(|(at, _)| *at) else { break };
            waiters.remove(&oldest);
        }
        self.forget_if_empty(Lane::PLAIN);
    }

    /// Whether somebody of `lane` waits.
    pub fn waits(&self, lane: Lane) -> bool {
        self.waiting.contains_key(&lane)
    }

    /// Plain requests that wait.
    pub fn plain(&self) -> usize {
        self.waiting.get(&Lane::PLAIN).map_or(0, BTreeMap::len)
    }

    /// Batches that wait with at least one read.
    pub fn batches(&self) -> usize {
        self.waiting.len() - usize::from(self.waits(Lane::PLAIN))
    }

    fn forget_if_empty(&mut self, lane: Lane) {
        if self.waiting.get(&lane).is_some_and(BTreeMap::is_empty) {
            self.waiting.remove(&lane);
            self.ring.retain(|other| *other != lane);
        }
    }
}
