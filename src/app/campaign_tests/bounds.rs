//! How long anything may take, and how much may be held for it, from outside: what a client saw is held against bounds that follow
//! from the settings and from the windows of trouble alone. The clock of an entry's deadline stands still while it waits for a
//! permit in a queue that moves, so the times in which permits were short ([`Monitor`]) come on top, as does the client's own
//! time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::clients::{Got, Outcome};
use super::judge::Judge;
use super::world::{Batch, What};
use crate::batch::tests::store::{Act, Fault, Met};
use crate::batch::tests::{Answer, Rig, Wait, Wanted};

/// Bytes after which an entry has its deadline again.
const MIB: usize = 1 << 20;

/// From one probe to the next, as the rig has it.
const BREAKER_PAUSE: Duration = Duration::from_secs(1);

/// How often the monitor looks.
const TICK: Duration = Duration::from_millis(50);

/// What bounds of seconds leave to the work of a healthy store and to the monitor's tick.
const SLACK: Duration = Duration::from_secs(1);

/// What the gateway was seen to be at an instant, and until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// A batch's read may have to wait for a permit.
    crowded: bool,
    breaker_open: bool,
    heads_taken: u64,
    entries_taken: u64,
}

/// Looks at a gateway from time to time.
pub(super) struct Monitor {
    seen: Arc<Mutex<Vec<(Instant, Seen)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Monitor {
    pub fn of(rig: &Rig) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, backend, heads, entries) = (Arc::clone(&seen), Arc::clone(&rig.backend), rig.heads.clone(), rig.entries.clone());
        let task = tokio::spawn(async move {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut last = None;
            loop {
                let at = ticks.tick().await;
                let limit = backend.limiter.limit();
                let for_batches = limit.saturating_sub(limit.div_ceil(4)).max(1);
                let now = Seen {
                    crowded: backend.limiter.in_use() >= for_batches,
                    breaker_open: backend.breaker.is_open(),
                    heads_taken: heads.max() - heads.free(),
                    entries_taken: entries.max() - entries.free(),
                };
                if last.replace(now) != Some(now) {
                    lock(&log).push((at, now));
                }
            }
        });
        Self { seen, task }
    }

    /// How much of the time from one instant to another was like this.
    fn time(&self, from: Instant, until: Instant, like: impl Fn(&Seen) -> bool) -> Duration {
        let seen = lock(&self.seen);
        let first = seen.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let mut sum = Duration::ZERO;
        for (at, (since, what)) in seen.iter().enumerate().skip(first) {
            if *since >= until {
                break;
            }
            let next = seen.get(at + 1).map_or(until, |(next, _)| *next).min(until);
            if like(what) {
                sum += next.saturating_duration_since((*since).max(from));
            }
        }
        sum
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Vec<(Instant, Seen)>>) -> MutexGuard<'_, Vec<(Instant, Seen)>> {
    seen.lock().expect("no code panics while it holds the lock")
}

/// What two times have in common, if anything.
fn overlap(a: (Instant, Instant), b: (Instant, Instant)) -> Option<(Instant, Instant)> {
    let both = (a.0.max(b.0), a.1.min(b.1));
    (both.0 < both.1).then_some(both)
}

impl Judge<'_> {
    /// A batch takes no longer than its entries' deadlines allow: neither any of its silences nor all of it.
    pub(super) fn in_time(&self, outcome: &Outcome, batch: &Batch, answer: &Answer, parts: usize) -> Result<(), String> {
        batch.wanted.iter().try_for_each(|wanted| self.busy_in_time(outcome, batch, wanted))?;
        let omitted = if batch.on_error == "Omit" { batch.wanted.len() - parts } else { 0 };
        answer.waits.iter().try_for_each(|wait| self.silence(wait, omitted as u32))?;
        self.altogether(outcome, batch, answer)
    }

    /// Deadlines that an entry has: one until it can be written, and where it streams one more and one for each further MiB.
    fn deadlines(&self, key: &str) -> u32 {
        let history = self.gateway.rig.store.history(key);
        let lengths: Vec<_> = history.iter().filter_map(|(_, object)| object.as_ref().map(|object| object.length)).collect();
        let longest = lengths.iter().max().copied().unwrap_or(0);
        // Where the length changes it may be more than what was left reserved.
        let fits = longest as u64 <= self.world.numbers.entry_bytes && lengths.iter().all(|length| *length == longest);
        if fits { 1 } else { 2 + (longest / MIB) as u32 }
    }

    /// The store's time that an entry's attempts took, all together, is within its deadlines.
    fn busy_in_time(&self, outcome: &Outcome, batch: &Batch, wanted: &Wanted) -> Result<(), String> {
        let times = batch.wanted.iter().filter(|other| other.key == wanted.key).count() as u32;
        let most = times * self.deadlines(&wanted.key) * self.world.numbers.deadline;
        let busy = self.gateway.rig.store.busy(&(Some(outcome.job.number), wanted.key.clone()));
        if busy <= most { Ok(()) } else { Err(format!("{} took {busy:?} of the store's time, {most:?} at the most", wanted.key)) }
    }

    /// While a client waits, the clock of the entry that is written next runs: whatever ends that shows, but for entries left out.
    fn silence(&self, wait: &Wait, omitted: u32) -> Result<(), String> {
        let took = wait.until - wait.since;
        let deadline = self.world.numbers.deadline;
        if took <= deadline {
            return Ok(());
        }
        let crowded = self.gateway.monitor.time(wait.since, wait.until, |seen| seen.crowded);
        let most = (1 + omitted) * deadline + crowded + SLACK;
        if took <= most { Ok(()) } else { Err(format!("nothing came for {took:?}, {most:?} at the most ({crowded:?} crowded)")) }
    }

    /// Times in which the whole store moved nothing for anyone who began then. Of overlapping windows the first holds.
    fn outages(&self) -> Vec<(Instant, Instant)> {
        let windows = &self.world.windows;
        let is_total = |fault: &Fault| match fault {
            Fault::Down | Fault::Mute => true,
            Fault::Says(status, _) => *status >= 429,
            _ => false,
        };
        let mut outages = Vec::new();
        for (at, window) in windows.iter().enumerate() {
            let from = windows[..at].iter().map(|earlier| earlier.until).max().unwrap_or_default().max(window.from);
            if window.prefix.is_empty() && is_total(&window.fault) && from < window.until {
                outages.push((self.begun + from, self.begun + window.until));
            }
        }
        outages
    }

    /// The longest that an outage of such a length may cost a batch: about one deadline. What was met first may have been a few
    /// bad objects, so that two more reads are given the time to try once.
    fn costs(&self, outage: Duration) -> Duration {
        let numbers = self.world.numbers;
        outage.min(numbers.deadline + 2 * (numbers.attempt_timeout + BREAKER_PAUSE) + SLACK)
    }

    /// All of the time that a client waited for a batch.
    fn altogether(&self, outcome: &Outcome, batch: &Batch, answer: &Answer) -> Result<(), String> {
        let (numbers, monitor) = (self.world.numbers, &self.gateway.monitor);
        let life = (outcome.started, outcome.ended);
        let waited: Duration = answer.waits.iter().map(|wait| wait.until - wait.since).sum();
        let outages: Vec<_> = self.outages().into_iter().filter_map(|outage| overlap(outage, life)).collect();
        // What began before an outage may go on in it; then the store is not down for everyone, and deadlines stand still.
        if outages.iter().any(|(from, until)| self.gateway.rig.store.gave_within(*from + Duration::from_millis(1), *until)) {
            return Ok(());
        }
        let outside = |like: fn(&Seen) -> bool| {
            let inside: Duration = outages.iter().map(|(from, until)| monitor.time(*from, *until, like)).sum();
            monitor.time(life.0, life.1, like).saturating_sub(inside)
        };
        let crowded = outside(|seen| seen.crowded);
        // The breaker is open while the store is unwell, and until the next probe.
        let probe = BREAKER_PAUSE + numbers.attempt_timeout;
        let unwell = self.world.windows.iter().filter_map(|w| overlap((self.begun + w.from, self.begun + w.until), life));
        let unwell: Duration = unwell.map(|(from, until)| until - from).sum();
        let open = outside(|seen| seen.breaker_open).min(unwell + probe);
        let in_outages: Duration = outages.iter().map(|(from, until)| self.costs(*until - *from)).sum();
        // Who is under way when one ends has an attempt to finish, a probe to wait for, and pauses.
        let after = outages.len() as u32 * (probe + 4 * numbers.backoff_max);
        let of_entries: Duration = batch.wanted.iter().map(|wanted| self.entry_takes(outcome, wanted, &outages)).sum();
        let most = of_entries + in_outages + after + crowded + open + SLACK;
        let is_whole_deadline = |(from, until): &(Instant, Instant)| *until - *from > numbers.deadline;
        if outages.iter().any(is_whole_deadline) {
            self.outages_judged.set(self.outages_judged.get() + 1);
        }
        if waited <= most {
            return Ok(());
        }
        Err(format!(
            "it took {waited:?}, {most:?} at the most: {of_entries:?} of entries, {in_outages:?} in outages, {after:?} after them, \
             {crowded:?} crowded, breaker open for {open:?}"
        ))
    }

    /// The longest that an entry may take outside of outages: its deadlines if it met anything that is tried again, else the time of
    /// a healthy store, twice, because it may be read on later.
    fn entry_takes(&self, outcome: &Outcome, wanted: &Wanted, outages: &[(Instant, Instant)]) -> Duration {
        let troubles = |met: &&Met| {
            let is_final = matches!(met.act, Act::Healthy | Act::Status(403 | 404 | 501, _));
            !outages.iter().any(|(from, until)| (*from..*until).contains(&met.at)) && (met.changes || !is_final)
        };
        if self.met_by(outcome, &wanted.key).any(|met| troubles(&met)) {
            return self.deadlines(&wanted.key) * self.world.numbers.deadline;
        }
        let history = self.gateway.rig.store.history(&wanted.key);
        let longest = history.iter().filter_map(|(_, object)| object.as_ref().map(|object| object.length)).max().unwrap_or(0);
        2 * Duration::from_millis(8 + 2 * (longest as u64 / 2000 + 2))
    }

    /// Bytes for heads, and entries, are taken for batches that are under way, and of these only for what no client has whole.
    pub(super) fn held_for_something(&self, outcomes: &[Outcome]) -> Result<(), String> {
        // Who goes away is missed in the next moment.
        const MOMENT: Duration = Duration::from_millis(1);
        let mut batches = Vec::new();
        for outcome in outcomes {
            let (What::Batch(batch), Got::Batch(answer)) = (&outcome.job.what, &outcome.got) else { continue };
            let bytes = serde_json::to_vec(&batch.request()).expect("JSON").len() as u64;
            let had_at = |end: usize| answer.waits.iter().find(|wait| wait.octets >= end).map(|wait| wait.until);
            // Where a member of an archive ends is not known here.
            let parts = if batch.tar { Vec::new() } else { answer.parts()? };
            let had: Vec<_> = parts.iter().filter_map(|part| had_at(part.end)).collect();
            batches.push((outcome, batch.wanted.len() as u64, bytes + self.world.numbers.entry_bytes, had));
        }
        for (at, seen) in lock(&self.gateway.monitor.seen).iter() {
            let (mut heads, mut entries) = (0, 0);
            for (outcome, count, bytes, had) in &batches {
                if outcome.started <= *at && *at <= outcome.ended + MOMENT {
                    heads += bytes;
                    entries += count - had.partition_point(|had| had < at) as u64;
                }
            }
            if seen.heads_taken > heads || seen.entries_taken > entries {
                let of = format!("{} bytes of heads of {heads}, {} entries of {entries}", seen.heads_taken, seen.entries_taken);
                return Err(format!("{of} are taken at {:?}", *at - self.begun));
            }
        }
        Ok(())
    }
}
