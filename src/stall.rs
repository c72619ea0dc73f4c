//! Notices readers that have stalled. A body cannot notice by itself: nobody polls it while its reader takes nothing. So it
//! says when it hands something out and when it is asked again, and one task looks at all of them from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, interval};

/// How often the task looks: a stall is noticed this much late at the most.
const TICK: Duration = Duration::from_millis(250);

/// All bodies that are watched.
#[derive(Default)]
pub struct StallWatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    watched: HashMap<u64, Arc<Watched>>,
}

struct Watched {
    waiting_since: Mutex<Option<Instant>>,
    after: Duration,
    on_stall: Box<dyn Fn() + Send + Sync>,
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
        let watched = Arc::new(Watched { waiting_since: Mutex::new(Some(Instant::now())), after, on_stall: Box::new(on_stall) });
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.watched.insert(number, Arc::clone(&watched));
        Watch { owner: Arc::clone(self), number, watched }
    }

    fn look(&self) {
        let now = Instant::now();
        // Called outside the lock: what a stall lets go of may be watched itself.
        let stalled: Vec<_> = self.lock().watched.values().filter(|w| w.has_stalled(now)).cloned().collect();
        for watched in stalled {
            (watched.on_stall)();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl Watched {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.waiting_since.lock().expect("no code panics while it holds the lock")
    }

    fn has_stalled(&self, now: Instant) -> bool {
        let mut since = self.since();
        let stalled = since.is_some_and(|since| now.duration_since(since) >= self.after);
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
}
