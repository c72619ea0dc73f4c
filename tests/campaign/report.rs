//! What the campaign found: violations of its invariants, each said at once, and counts of everything else. What leaves at the
//! end is a table and, where asked for, a file of samples.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Every byte is right, and of one generation that was there while it was read.
    Bytes,
    /// Parts come in order, once each, and as many as are due.
    Count,
    /// A short batch never looks whole.
    Whole,
    /// An error has a cause among the faults.
    Explained,
    /// Gauges are at zero when nobody asks.
    Gauges,
    /// Memory is within its budget.
    Memory,
    /// Memory, descriptors and threads do not grow.
    Flat,
    /// No request lasts longer than the settings allow.
    Deadline,
    /// No write is sent to the store more often than by its client.
    Once,
    /// What was accepted is there, what was refused is not, and nothing is there in part.
    Kept,
    /// After a lost answer the client hears that the outcome is unknown.
    Unknown,
    /// The gateway neither panics nor ends.
    Process,
    /// Neither secrets nor the store's address reach a client or the log.
    Secrets,
}

/// All of them, with what they say.
pub const INVARIANTS: &[(Invariant, &str)] = &[
    (Invariant::Bytes, "every byte right, of one generation that was there"),
    (Invariant::Count, "order and count of parts right"),
    (Invariant::Whole, "a short batch never looks whole"),
    (Invariant::Explained, "every error explained by a fault"),
    (Invariant::Gauges, "gauges at zero at rest"),
    (Invariant::Memory, "memory within its bound"),
    (Invariant::Flat, "memory, descriptors and threads flat"),
    (Invariant::Deadline, "no request beyond its deadline"),
    (Invariant::Once, "no write repeated"),
    (Invariant::Kept, "accepted writes there, refused ones not, none in part"),
    (Invariant::Unknown, "a lost answer said to be unknown"),
    (Invariant::Process, "the process neither panics nor ends"),
    (Invariant::Secrets, "no secret and no address given away"),
];

/// Violations that are shown one by one.
const SHOWN_MAX: u64 = 100;

/// Violations of one invariant that are kept in their words.
const TEXTS_MAX: u64 = 1000;

#[derive(Debug, Default)]
struct Found {
    violations: BTreeMap<Invariant, u64>,
    /// What was said of the first of them.
    texts: Vec<(Invariant, String)>,
    counts: BTreeMap<String, u64>,
    /// The most of its time that a request took, by kind: the share and what it was.
    closest: BTreeMap<&'static str, (f64, String)>,
}

/// See the module.
pub struct Report {
    seed: u64,
    found: Mutex<Found>,
}

impl Report {
    /// Nothing found yet.
    pub fn new(seed: u64) -> Self {
        Self { seed, found: Mutex::default() }
    }

    /// An invariant does not hold; said at once. `id` is the request's, 0 if it is none's.
    pub fn violate(&self, invariant: Invariant, id: u128, what: impl AsRef<str>) {
        let count = {
            let mut found = self.found();
            let nth = found.violations.entry(invariant).or_default();
            *nth += 1;
            if *nth <= TEXTS_MAX {
                found.texts.push((invariant, what.as_ref().to_owned()));
            }
            found.violations.values().sum::<u64>()
        };
        if count <= SHOWN_MAX {
            say(format!("VIOLATION seed {} request {} {invariant:?}: {}", self.seed, name(id), what.as_ref()));
        }
    }

    /// One more of something.
    pub fn count(&self, what: impl Into<String>, times: u64) {
        *self.found().counts.entry(what.into()).or_default() += times;
    }

    /// How much there was of something.
    pub fn counted(&self, what: &str) -> u64 {
        self.found().counts.get(what).copied().unwrap_or_default()
    }

    /// How much there was of everything whose name begins so.
    pub fn counted_all(&self, begins: &str) -> u64 {
        self.found().counts.iter().filter(|(what, _)| what.starts_with(begins)).map(|(_, count)| count).sum()
    }

    /// Violations until now.
    pub fn violations(&self) -> u64 {
        self.found().violations.values().sum()
    }

    /// Whether an invariant was violated in these words.
    pub fn has(&self, (invariant, word): (Invariant, &str)) -> bool {
        self.found().texts.iter().any(|(of, text)| *of == invariant && text.contains(word))
    }

    /// A request of this kind took so long of what it may.
    pub fn took(&self, kind: &'static str, took: Duration, most: Duration, what: impl FnOnce() -> String) {
        let share = took.as_secs_f64() / most.as_secs_f64();
        let mut found = self.found();
        let closest = found.closest.entry(kind).or_default();
        if share > closest.0 {
            *closest = (share, format!("{:.1} s of {:.1} s, {}", took.as_secs_f64(), most.as_secs_f64(), what()));
        }
    }

    /// The counts, the closest calls and the invariants.
    pub fn table(&self) -> String {
        let found = self.found();
        let mut out = String::new();
        for (what, count) in &found.counts {
            let _ = writeln!(out, "  {what:<52} {count:>10}");
        }
        for (kind, (_, what)) in &found.closest {
            let _ = writeln!(out, "  longest {kind:<12} {what}");
        }
        let _ = writeln!(out);
        for (invariant, says) in INVARIANTS {
            let verdict = match found.violations.get(invariant) {
                None => "held".to_owned(),
                Some(count) => format!("VIOLATED {count} times"),
            };
            let _ = writeln!(out, "  {says:<58} {verdict}");
        }
        out
    }

    /// How many invariants held, and how many did not.
    pub fn verdict(&self) -> (usize, usize) {
        let violated = self.found().violations.len();
        (INVARIANTS.len() - violated, violated)
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().expect("nothing under this lock panics")
    }
}

/// A request's id as it can be given to `--only`: worker, operation and, behind a dot, the step of it.
pub fn name(id: u128) -> String {
    match id {
        0 => "-".to_owned(),
        id => format!("{}:{}.{}", id >> 64, (id as u64) >> 8, id as u8),
    }
}

/// A line for whoever watches.
pub fn say(line: impl AsRef<str>) {
    // Nobody may be there to read it.
    drop(writeln!(std::io::stderr().lock(), "{}", line.as_ref()));
}

/// The result.
pub fn print(text: impl AsRef<str>) {
    // Nobody may be there to read it.
    drop(write!(std::io::stdout().lock(), "{}", text.as_ref()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_counted_with_its_invariant() {
        let report = Report::new(1);
        assert_eq!(report.verdict(), (INVARIANTS.len(), 0));
        report.violate(Invariant::Bytes, 0, "planted by a test");
        report.violate(Invariant::Bytes, 3 << 64 | 7 << 8 | 1, "planted by a test");
        assert_eq!(report.verdict(), (INVARIANTS.len() - 1, 1));
        assert!(
            report.has((Invariant::Bytes, "planted")) && !report.has((Invariant::Count, "planted")) && report.violations() == 2
        );
        assert!(report.table().contains("VIOLATED 2 times"));
        assert_eq!(name(3 << 64 | 7 << 8 | 1), "3:7.1");
    }
}
