//! What came of requests, and when. What enters is one note a request; what leaves are rates, times and counts. It holds a note
//! for each request of one measure, some ten thousands of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use batchgate::load::Times;
use tokio::time::Instant;

use crate::client::Came;

/// Rates by which a recovery is told are of so long.
const WINDOW: Duration = Duration::from_millis(500);

/// How far apart those windows begin.
const STEP: Duration = Duration::from_millis(50);

/// Kinds of trouble that are told one by one.
const TROUBLES_MAX: usize = 5;

/// Notes in the order in which requests ended.
#[derive(Default)]
pub struct Log(Mutex<Vec<Note>>);

struct Note {
    ended: Instant,
    took: Duration,
    came: Came,
}

impl Log {
    /// A request that began at `since` has ended.
    pub fn note(&self, since: Instant, came: Came) {
        let ended = Instant::now();
        self.0.lock().expect("nobody panics with it").push(Note { ended, took: ended - since, came });
    }

    /// Right objects a second among those that ended from `from` to `to`.
    pub fn rate(&self, from: Instant, to: Instant) -> f64 {
        let notes = self.0.lock().expect("nobody panics with it");
        let objects = notes.iter().filter(|note| (from..to).contains(&note.ended)).map(|note| match note.came {
            Came::Right(objects) => objects,
            _ => 0,
        });
        objects.sum::<u64>() as f64 / (to - from).as_secs_f64()
    }

    /// Times of those that came to something like that.
    pub fn times(&self, like: impl Fn(&Came) -> bool) -> Times {
        let mut times = Times::default();
        self.0.lock().expect("nobody panics with it").iter().filter(|n| like(&n.came)).for_each(|n| times.record(n.took));
        times
    }

    /// What went wrong in other ways than by a plea to slow down or by the client's leaving, and how often; with a colon before it.
    pub fn troubles(&self) -> String {
        let mut counts = BTreeMap::<String, u64>::new();
        for note in self.0.lock().expect("nobody panics with it").iter() {
            if let Came::Failed(why) = &note.came {
                *counts.entry(why.clone()).or_default() += 1;
            }
        }
        let others = counts.len().saturating_sub(TROUBLES_MAX);
        let mut list: Vec<_> = counts.iter().take(TROUBLES_MAX).map(|(what, count)| format!("{count} x {what}")).collect();
        if others > 0 {
            list.push(format!("{others} kinds more"));
        }
        if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) }
    }

    /// How long after `from` half a second begins that has nine tenths of the rate `full`; nothing if none did until `to`.
    pub fn recovered(&self, from: Instant, to: Instant, full: f64) -> Option<Duration> {
        let mut begins = from;
        while begins + WINDOW <= to {
            if self.rate(begins, begins + WINDOW) >= 0.9 * full {
                return Some(begins - from);
            }
            begins += STEP;
        }
        None
    }
}
