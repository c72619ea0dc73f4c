//! How often the same thing is asked for, and how long before it is asked again; how many things may be asked for in vain. Pure:
//! what enters is why there was no answer; what leaves is a time to wait, or nothing where it was asked for often enough.

use std::time::Duration;

use super::error::ClientError;

/// Most attempts in a row that bring nothing.
const ATTEMPTS_MAX: u32 = 6;

/// The wait after the first of them, unless told otherwise; it doubles with each: 0.2 s, 0.4 s, … 3.2 s, 6.2 s in all.
pub const BACKOFF_BASE: Duration = Duration::from_millis(200);

/// Longest wait that a `Retry-After` is given.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Most entries in a row that fail because every attempt at them brought nothing: an endpoint that breaks off each of thousands
/// is not worth their waits. More than a few, since entries that stand side by side may well be broken for the same reason.
const ENTRIES_IN_VAIN_MAX: u32 = 5;

/// Counts entries that failed because every attempt at them brought nothing.
#[derive(Debug, Default)]
pub(super) struct InVain(u32);

impl InVain {
    /// An entry is done with in another way: what was in vain is forgotten.
    pub fn progress(&mut self) {
        self.0 = 0;
    }

    /// An entry failed by this error. Gives the error that ends all where there were too many of them.
    pub fn failed(&mut self, error: &ClientError) -> Option<ClientError> {
        self.0 = if error.may_pass() { self.0 + 1 } else { 0 };
        let gives_up = self.0 >= ENTRIES_IN_VAIN_MAX;
        gives_up.then(|| ClientError::Broken(format!("{} objects in a row failed however often they were asked for", self.0)))
    }
}

/// Counts attempts that bring nothing.
#[derive(Debug)]
pub(super) struct Pace {
    backoff_base: Duration,
    attempts: u32,
}

impl Pace {
    /// The first wait is `backoff_base`.
    pub fn new(backoff_base: Duration) -> Self {
        Self { backoff_base, attempts: 0 }
    }

    /// Something came: what was in vain is forgotten.
    pub fn progress(&mut self) {
        self.attempts = 0;
    }

    /// How long to wait after an attempt that ended like this, or `None` where another one would be in vain.
    pub fn wait_after(&mut self, error: &ClientError) -> Option<Duration> {
        self.attempts += 1;
        if !error.may_pass() || self.attempts >= ATTEMPTS_MAX {
            return None;
        }
        let asked = match error {
            ClientError::Refused(refusal) => refusal.retry_after_seconds.map_or(Duration::ZERO, Duration::from_secs),
            _ => Duration::ZERO,
        };
        Some((self.backoff_base * 2u32.pow(self.attempts - 1)).max(asked.min(RETRY_AFTER_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::error::Refusal;

    fn refused(status: u16, retry_after_seconds: Option<u64>) -> ClientError {
        ClientError::Refused(Refusal { status, retry_after_seconds, ..Refusal::default() })
    }

    #[test]
    fn waits_double_and_end_and_begin_anew_after_progress() {
        let mut pace = Pace::new(BACKOFF_BASE);
        let waits = |pace: &mut Pace| -> Vec<_> {
            std::iter::from_fn(|| pace.wait_after(&ClientError::Broken(String::new()))).map(|wait| wait.as_millis()).collect()
        };
        assert_eq!(waits(&mut pace), [200, 400, 800, 1600, 3200]);
        pace.progress();
        assert_eq!(waits(&mut pace).len(), 5);
    }

    #[test]
    fn entries_in_vain_are_counted_in_a_row() {
        let mut in_vain = InVain::default();
        let broken = ClientError::Broken(String::new());
        let until_end = |in_vain: &mut InVain| (1..100).find(|_| in_vain.failed(&broken).is_some());
        assert_eq!(until_end(&mut in_vain), Some(5));
        in_vain.progress();
        assert_eq!(until_end(&mut in_vain), Some(5));
        assert!(in_vain.failed(&refused(404, None)).is_none());
        assert_eq!(until_end(&mut in_vain), Some(5));
    }

    #[test]
    fn retry_after_is_honoured_within_bounds_and_what_cannot_pass_is_not_tried_again() {
        for (asked, seconds) in [(None, 0.2), (Some(0), 0.2), (Some(3), 3.0), (Some(u64::MAX), 60.0)] {
            let wait = Pace::new(BACKOFF_BASE).wait_after(&refused(503, asked));
            assert_eq!(wait.map(|wait| wait.as_secs_f64()), Some(seconds));
        }
        assert_eq!(Pace::new(BACKOFF_BASE).wait_after(&refused(403, Some(1))), None);
        assert_eq!(Pace::new(BACKOFF_BASE).wait_after(&ClientError::Wrong(String::new())), None);
    }
}
