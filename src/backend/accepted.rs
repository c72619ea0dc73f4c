//! Whether a store lately took a signature of the gateway's: then a signature that it refuses is no fault of the credentials.
//! Invariant: what was long ago counts for nothing, since keys change.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// For how long an answer shows that the credentials are right.
const FRESH: Duration = Duration::from_secs(60);

/// When the store last did what the gateway asked in its own name.
#[derive(Debug, Default)]
pub struct Accepted(Mutex<Option<Instant>>);

impl Accepted {
    /// Takes note of a success.
    pub fn note(&self) {
        *self.last() = Some(Instant::now());
    }

    /// Whether there was one in the last minute.
    pub fn is_fresh(&self) -> bool {
        self.last().is_some_and(|last| last.elapsed() < FRESH)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("reading the clock does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_success_counts_for_a_minute() {
        let accepted = Accepted::default();
        assert!(!accepted.is_fresh(), "there was none");
        accepted.note();
        tokio::time::advance(FRESH - Duration::from_secs(1)).await;
        assert!(accepted.is_fresh());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!accepted.is_fresh());
    }
}
