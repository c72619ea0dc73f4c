//! Failures of a backend without a success among them. Pure. Invariant: what is asked for counts once, however often it fails,
//! unless it is that no connection can be had.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use super::Cause;

/// Failures of one instant may be of one cause that is over in the next: only those that go on for this long open a breaker.
pub(super) const ROW_MIN: Duration = Duration::from_secs(1);

/// What is asked for, as far as a breaker must tell one from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(u64);

impl Target {
    /// The target that `name` names.
    pub fn of(name: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Row {
    since: Instant,
    last: Instant,
    /// Counted no further than it takes to open.
    count: u32,
    /// What was asked for by those that count.
    targets: Vec<Target>,
}

impl Row {
    /// The row with one failure more: of `target`, if it is the first of its reader. It counts up to `failures`; one that
    /// nobody has added to for `memory` begins anew.
    pub fn after(
        before: Option<Self>,
        now: Instant,
        cause: Cause,
        target: Option<Target>,
        (failures, memory): (u32, Duration),
    ) -> Self {
        let going = before.filter(|row| now - row.last < memory);
        let mut row = going.unwrap_or(Self { since: now, last: now, count: 0, targets: Vec::new() });
        row.last = now;
        if row.count < failures && row.says_more(cause, target) {
            row.count += 1;
        }
        row
    }

    /// Whether it is long enough to open a breaker.
    pub fn opens(&self, failures: u32) -> bool {
        self.count >= failures && self.last - self.since >= ROW_MIN
    }

    /// Failures that count.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// An object may be bad as often as it is asked for. A connection that cannot be had is nobody's but the backend's.
    fn says_more(&mut self, cause: Cause, target: Option<Target>) -> bool {
        let new = target.filter(|target| !self.targets.contains(target));
        self.targets.extend(new);
        new.is_some() || cause == Cause::Unreachable
    }
}
