//! What a user sees while objects come: a bar where stderr is a terminal, a line for what went wrong, the totals at the end.
//! Invariant: every entry is counted once.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::time::Instant;

use crate::client::printable;

/// How often the bar is drawn at the most, and its text made.
const REDRAW: Duration = Duration::from_millis(100);

/// Most lines about entries that failed, and as many about what is asked for again.
const LINES_MAX: usize = 100;

const MIB: f64 = 1024.0 * 1024.0;

/// What it came to.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Totals {
    /// Entries that were given.
    pub entries: usize,
    /// Those that are there now, whole.
    pub delivered: usize,
    /// Those of which the endpoint said that they are as `IfNoneMatch` has them.
    pub unchanged: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those of them whose bucket is not there.
    #[serde(skip)]
    pub without_bucket: usize,
    /// Those that were there already, or are the same as another one.
    pub skipped: usize,
    /// Bytes of what was delivered.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// How they were asked for, `batch-get` or `get`.
    pub way: &'static str,
    /// Why the rest did not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts and shows.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    counted: Mutex<Counted>,
}

struct Counted {
    totals: Totals,
    drawn: Instant,
    /// Lines about entries that failed, those that were not said included.
    failures: usize,
    /// Lines about what is asked for again, likewise.
    retries: usize,
}

impl Progress {
    /// For so many entries.
    pub fn new(entries: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(entries as u64), ProgressDrawTarget::stderr());
        // No colours: there is nothing that NO_COLOR would have to take away.
        bar.set_style(ProgressStyle::with_template("[{bar:30}] {pos}/{len} objects {msg}").expect("a valid template"));
        let started = Instant::now();
        let totals = Totals { entries, way: "batch-get", ..Totals::default() };
        Self { bar, started, counted: Mutex::new(Counted { totals, drawn: started, failures: 0, retries: 0 }) }
    }

    /// A line that stays.
    pub fn line(&self, what: &str) {
        let what = printable(what);
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "batchgate: {what}");
        });
    }

    /// An entry failed, and why.
    pub fn failed(&self, which: &str, why: &str) {
        self.count(|totals| totals.failed += 1);
        self.one_of_many(|counted| &mut counted.failures, &format!("{which}: {why}"));
    }

    /// Something is asked for again, and why.
    pub fn retries(&self, what: &str) {
        self.one_of_many(|counted| &mut counted.retries, what);
    }

    /// A line of a kind of which there may be as many as entries.
    fn one_of_many(&self, kind: impl FnOnce(&mut Counted) -> &mut usize, what: &str) {
        let count = {
            let mut counted = self.counted();
            let count = kind(&mut counted);
            *count += 1;
            *count
        };
        if count <= LINES_MAX {
            self.line(what);
        }
    }

    /// Changes the totals and shows what they are now.
    pub fn count(&self, change: impl FnOnce(&mut Totals)) {
        let mut counted = self.counted();
        change(&mut counted.totals);
        if !self.bar.is_hidden() && counted.drawn.elapsed() >= REDRAW {
            counted.drawn = Instant::now();
            let Totals { delivered, unchanged, failed, skipped, bytes, .. } = counted.totals;
            let seconds = self.started.elapsed().as_secs_f64();
            let mib = bytes as f64 / MIB;
            self.bar.set_message(format!("{mib:.1} MiB, {:.0} objects/s, {:.1} MiB/s", delivered as f64 / seconds, mib / seconds));
            self.bar.set_position((delivered + unchanged + failed + skipped) as u64);
        }
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        let totals = self.counted().totals.clone();
        Totals { seconds: self.started.elapsed().as_secs_f64(), ..totals }
    }

    /// Takes the bar away, and says how much was not said.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        for line in self.unsaid() {
            self.line(&line);
        }
    }

    fn unsaid(&self) -> Vec<String> {
        let counted = self.counted();
        let more = [(counted.retries, "attempts that broke off"), (counted.failures, "objects that failed")];
        let more = more.into_iter().map(|(count, what)| (count.saturating_sub(LINES_MAX), what));
        more.filter(|(count, _)| *count > 0).map(|(count, what)| format!("and {count} more {what}")).collect()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().expect("counting does not panic")
    }
}

impl Totals {
    /// One line for people.
    pub fn to_text(&self) -> String {
        let (seconds, mib) = (self.seconds.max(1e-3), self.bytes as f64 / MIB);
        let rates = format!("{:.0} objects/s, {:.1} MiB/s", self.delivered as f64 / seconds, mib / seconds);
        let mut text = format!("{} of {} objects, {mib:.1} MiB in {:.2} s ({rates})", self.delivered, self.entries, self.seconds);
        let others = [(self.failed, "failed"), (self.skipped, "there already"), (self.unchanged, "not changed")];
        for (count, what) in others.iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {what}");
        }
        text + "\n"
    }

    /// One line for scripts.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts are JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_to_say_is_counted() {
        let progress = Progress::new(1000);
        for at in 0..LINES_MAX {
            progress.failed(&format!("s3://b/{at}"), "why");
        }
        assert_eq!(progress.unsaid(), [""; 0]);
        for _ in 0..LINES_MAX + 7 {
            progress.retries("again");
        }
        progress.failed("s3://b/k", "why");
        assert_eq!(progress.unsaid(), ["and 7 more attempts that broke off", "and 1 more objects that failed"]);
        assert_eq!(progress.totals().failed, LINES_MAX + 1);
    }

    #[test]
    fn totals_are_one_line() {
        let some = Totals { entries: 5, delivered: 2, failed: 1, skipped: 2, bytes: 3 << 20, seconds: 2.0, ..Totals::default() };
        assert_eq!(some.to_text(), "2 of 5 objects, 3.0 MiB in 2.00 s (1 objects/s, 1.5 MiB/s), 1 failed, 2 there already\n");
        let json: serde_json::Value = serde_json::from_str(&some.to_json()).unwrap();
        assert_eq!((json["delivered"].as_u64(), json["bytes"].as_u64(), json.get("error")), (Some(2), Some(3 << 20), None));
        assert!(Totals::default().to_text().starts_with("0 of 0 objects"));
    }
}
