//! How many connections may be open, over all listeners. Over the maximum the one that has been idle longest is told to close
//! for a new one (no request is under way on it; a half-sent head is none), or the new one is refused if none is idle.
//! Invariants: no connection with a request is told; the open ones never exceed the maximum by more than those that have been
//! told and are about to close, which are bounded too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use crate::telemetry::Metrics;

/// Idle connections are searched for this often at the most, unless the last search found many: it looks at all of them.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// A search that found at least this part of all connections has paid for the next one.
const FOUND_MANY: usize = 8;

/// The log tells of the maximum this often at the most.
const SAY_PAUSE: Duration = Duration::from_secs(1);

/// Connections that are about to close may be as many as this part of the maximum, and some more.
const CLOSING_SHARE: usize = 8;
const CLOSING_MORE: usize = 16;

/// Most sockets that are open for at most `max` connections, those that are about to close included.
pub fn sockets_max(max: usize) -> usize {
    max + max / CLOSING_SHARE + CLOSING_MORE
}

/// The open connections.
pub struct Connections {
    max: usize,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: HashMap<u64, Arc<Activity>>,
    /// Told to close.
    closing: Vec<u64>,
    /// Found idle by the last search, the longest idle last.
    idle: Vec<(Instant, u64)>,
    found: usize,
    searched_at: Option<Instant>,
    said_at: Option<Instant>,
    /// Not told to the log yet.
    closed: u64,
    refused: u64,
}

/// The place of an open connection.
pub struct Open {
    owner: Arc<Connections>,
    number: u64,
    /// What the connection is doing.
    pub activity: Arc<Activity>,
}

impl Connections {
    /// At most `max` connections.
    pub fn new(max: usize, metrics: Metrics) -> Arc<Self> {
        metrics.connections_max.set(max as i64);
        Arc::new(Self { max, metrics, state: Mutex::default() })
    }

    /// A place for a new connection, or nothing if there is none.
    pub fn admit(self: &Arc<Self>) -> Option<Open> {
        let mut state = self.lock();
        let over = state.live() + 1;
        let crowded = state.open.len() >= sockets_max(self.max);
        if crowded || !(self.max..over).all(|_| state.close_longest_idle()) {
            state.refused += 1;
            self.metrics.refused_total.with_label_values(&["connections"]).inc();
            self.say(&mut state);
            return None;
        }
        if over > self.max {
            self.say(&mut state);
        }
        state.next += 1;
        let (number, activity) = (state.next, Activity::new());
        state.open.insert(number, Arc::clone(&activity));
        self.metrics.connections.inc();
        Some(Open { owner: Arc::clone(self), number, activity })
    }

    /// Tells the connection that has been idle longest to close: what it takes is wanted for another.
    pub fn close_one(&self) {
        self.lock().close_longest_idle();
    }

    fn say(&self, state: &mut State) {
        let now = Instant::now();
        if state.said_at.is_none_or(|at| now.duration_since(at) >= SAY_PAUSE) {
            let (closed, refused) = (std::mem::take(&mut state.closed), std::mem::take(&mut state.refused));
            state.said_at = Some(now);
            tracing::warn!(max = self.max, closed, refused, "as many connections are open as are allowed (server.connections_max)");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    /// Connections that are open and not about to close. Who was told and has a request since stays.
    fn live(&mut self) -> usize {
        let Self { open, closing, .. } = self;
        closing.retain(|number| open.get(number).is_some_and(|activity| activity.is_told_to_close()));
        open.len() - closing.len()
    }

    fn close_longest_idle(&mut self) -> bool {
        if self.close_found() {
            return true;
        }
        let now = Instant::now();
        let early = self.searched_at.is_some_and(|at| now.duration_since(at) < SEARCH_PAUSE);
        if early && self.found * FOUND_MANY < self.open.len() {
            return false;
        }
        let since = |(number, activity): (&u64, &Arc<Activity>)| {
            let idle = (!activity.is_told_to_close()).then(|| activity.idle_since()).flatten();
            idle.map(|since| (since, *number))
        };
        self.idle = self.open.iter().filter_map(since).collect();
        self.idle.sort_unstable_by(|a, b| b.cmp(a));
        (self.found, self.searched_at) = (self.idle.len(), Some(now));
        self.close_found()
    }

    fn close_found(&mut self) -> bool {
        while let Some((since, number)) = self.idle.pop() {
            if self.open.get(&number).is_some_and(|activity| activity.tell_to_close(since)) {
                self.closing.push(number);
                self.closed += 1;
                return true;
            }
        }
        false
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.owner.lock().open.remove(&self.number);
        self.owner.metrics.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn later() {
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_makes_room_and_one_with_a_request_never_does() {
        let metrics = Metrics::new();
        let connections = Connections::new(3, metrics.clone());
        let first = connections.admit().expect("fits");
        later().await;
        let second = connections.admit().expect("fits");
        later().await;
        let third = connections.admit().expect("fits");
        let busy = first.activity.begin();
        later().await;
        let fourth = connections.admit().expect("the second is idle longest");
        assert!(second.activity.is_told_to_close());
        assert!(![&first, &third, &fourth].iter().any(|open| open.activity.is_told_to_close()));
        drop(second);
        let others = [third.activity.begin(), fourth.activity.begin()];
        later().await;
        assert!(connections.admit().is_none(), "none is idle");
        assert_eq!(metrics.refused_total.with_label_values(&["connections"]).get(), 1);
        drop(busy);
        later().await;
        connections.admit().expect("the first is idle now");
        assert!(first.activity.is_told_to_close());
        drop((first, third, fourth, others));
        assert_eq!(metrics.connections.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_just_begun_takes_the_word_back_and_the_next_one_pays_for_it() {
        let connections = Connections::new(2, Metrics::new());
        let first = connections.admit().expect("fits");
        later().await;
        let second = connections.admit().expect("fits");
        later().await;
        let third = connections.admit().expect("the first is told");
        let request = first.activity.begin();
        assert!(!first.activity.is_told_to_close(), "it is not cut");
        later().await;
        let fourth = connections.admit().expect("two are told for it");
        assert!(second.activity.is_told_to_close() && third.activity.is_told_to_close());
        drop((request, second, third));
        assert_eq!(connections.lock().live(), 2);
        drop((first, fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_that_does_not_close_is_bounded() {
        let connections = Connections::new(100, Metrics::new());
        let open: Vec<_> = (0..1000).map_while(|_| connections.admit()).collect();
        assert_eq!(open.len(), sockets_max(100));
    }
}
