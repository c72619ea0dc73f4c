//! What is looked at while the campaign runs: the gateway's resources and gauges, as a curve; how late the machine itself is;
//! and whether what must be flat is flat.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::Fallible;
use crate::gateway::{Resources, metrics, resources};

/// One look.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds since the beginning.
    pub at: f64,
    /// Whether it was taken at a pause, with nobody asking.
    pub rest: bool,
    /// Of the kernel.
    pub resources: Resources,
    /// Of the gateway: permits, reserved bytes, batches, requests, connections.
    pub gauges: [f64; 5],
    /// Requests of the campaign until then.
    pub requests: u64,
}

/// The gauges of a sample.
pub const GAUGES: [&str; 5] = [
    "batchgate_backend_permits_in_use",
    "batchgate_memory_reserved_bytes",
    "batchgate_batch_in_flight",
    "batchgate_edge_requests_in_flight",
    "batchgate_edge_connections",
];

/// Looks once.
pub async fn sample(pid: u32, admin: SocketAddr, began: Instant, rest: bool, requests: u64) -> Fallible<Sample> {
    let metrics = metrics(admin).await?;
    let gauges = GAUGES.map(|name| metrics.get(name).copied().unwrap_or(f64::NAN));
    Ok(Sample { at: began.elapsed().as_secs_f64(), rest, resources: resources(pid)?, gauges, requests })
}

/// The curve, one line for each sample, at most `most` of them.
pub fn curve(samples: &[Sample], most: usize) -> String {
    let mut out =
        String::from("      s  rest  RSS MiB  peak MiB  threads  fds  permits  reserved KiB  batches  requests  conns   asked\n");
    let step = samples.len().div_ceil(most).max(1);
    for sample in samples.iter().step_by(step) {
        let Resources { rss, peak, threads, descriptors } = sample.resources;
        let [permits, reserved, batches, requests, connections] = sample.gauges;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(
            out,
            "{:>7.1}  {:>4}  {:>7.1}  {:>8.1}  {threads:>7}  {descriptors:>3}  {permits:>7}  {:>12.0}  {batches:>7}  {requests:>8}  {connections:>5}  {:>6}",
            sample.at,
            if sample.rest { "rest" } else { "" },
            mib(rss),
            mib(peak),
            reserved / 1024.0,
            sample.requests,
        );
    }
    out
}

/// All samples as a file.
pub fn csv(samples: &[Sample]) -> String {
    let mut out = String::from(
        "seconds,rest,rss_bytes,peak_bytes,threads,descriptors,permits,reserved_bytes,batches,requests_in_flight,connections,requests_asked\n",
    );
    for Sample { at, rest, resources: r, gauges: [permits, reserved, batches, requests, connections], requests: asked } in samples {
        let _ = writeln!(
            out,
            "{at:.1},{},{},{},{},{},{permits},{reserved},{batches},{requests},{connections},{asked}",
            u8::from(*rest),
            r.rss,
            r.peak,
            r.threads,
            r.descriptors
        );
    }
    out
}

/// Shortest run whose memory is judged: before that it still fills its caches.
const FLAT_MEMORY_AFTER: f64 = 600.0;

/// What memory may grow by from the second to the last quarter of a run: a tenth and 4 MiB.
const GROWTH: (f64, f64) = (1.10, 4.0 * 1024.0 * 1024.0);

/// Descriptors and threads that may be there more at the last pause than at the first: idle connections to the store.
const MORE_DESCRIPTORS: u64 = 72;

/// Threads that may be more: those that wait for files and names come and go.
const MORE_THREADS: u64 = 24;

/// What is not flat. Descriptors and threads are held against those of the first pause, in every run; in one of ten minutes and
/// more the median of the last quarter of the samples is held against that of the second.
pub fn not_flat(samples: &[Sample]) -> Vec<String> {
    let mut out = Vec::new();
    let rests: Vec<&Sample> = samples.iter().filter(|sample| sample.rest).collect();
    if let [first, .., last] = rests.as_slice() {
        let (was, is) = (first.resources, last.resources);
        if is.descriptors > was.descriptors + MORE_DESCRIPTORS {
            out.push(format!("{} descriptors at the last pause, {} at the first", is.descriptors, was.descriptors));
        }
        if is.threads > was.threads + MORE_THREADS {
            out.push(format!("{} threads at the last pause, {} at the first", is.threads, was.threads));
        }
    }
    if samples.last().is_some_and(|last| last.at >= FLAT_MEMORY_AFTER) {
        let quarter = samples.len() / 4;
        let of = |from: usize, what: &dyn Fn(&Sample) -> f64| median(samples[from..from + quarter].iter().map(what).collect());
        for (name, what, slack) in [
            ("bytes of resident memory", (&|s: &Sample| s.resources.rss as f64) as &dyn Fn(&Sample) -> f64, GROWTH.1),
            ("descriptors", &|s: &Sample| s.resources.descriptors as f64, 16.0),
            ("threads", &|s: &Sample| s.resources.threads as f64, 8.0),
        ] {
            let (second, last) = (of(quarter, what), of(samples.len() - quarter, what));
            if last > second * GROWTH.0 + slack {
                out.push(format!("the median of {name} went from {second} in the second quarter to {last} in the last"));
            }
        }
    }
    out
}

/// Medians of the second and the last quarter, for the table.
pub fn quarters(samples: &[Sample]) -> Option<(f64, f64)> {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return None;
    }
    let of = |from: usize| median(samples[from..from + quarter].iter().map(|s| s.resources.rss as f64).collect());
    Some((of(quarter), of(samples.len() - quarter)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Longest time that a task of the campaign may wake late before the machine, and not the gateway, is held to be at fault.
pub const LATE: Duration = Duration::from_millis(700);

/// When the machine gave nobody its processor.
#[derive(Debug, Default)]
pub struct Lateness(Mutex<Vec<(Instant, Instant)>>);

impl Lateness {
    /// Notes for ever when it was woken late.
    pub async fn watch(&self) {
        const STEP: Duration = Duration::from_millis(50);
        loop {
            let slept = Instant::now();
            tokio::time::sleep(STEP).await;
            let woke = Instant::now();
            if woke - slept > STEP + LATE {
                self.0.lock().expect("nothing under this lock panics").push((slept, woke));
            }
        }
    }

    /// Whether the machine was late in this time.
    pub fn between(&self, from: Instant, to: Instant) -> bool {
        self.0.lock().expect("nothing under this lock panics").iter().any(|(slept, woke)| *slept <= to && *woke >= from)
    }

    /// How often.
    pub fn times(&self) -> usize {
        self.0.lock().expect("nothing under this lock panics").len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, rss: impl Fn(f64) -> f64, descriptors: impl Fn(usize) -> u64) -> Vec<Sample> {
        let look = |nth: usize| {
            let at = seconds * nth as f64 / 99.0;
            let resources = Resources { rss: rss(at) as u64, peak: 0, threads: 9, descriptors: descriptors(nth) };
            Sample { at, rest: nth.is_multiple_of(10), resources, ..Sample::default() }
        };
        (0..100).map(look).collect()
    }

    #[test]
    fn what_grows_is_not_flat() {
        let mib = f64::from(1 << 20);
        assert_eq!(not_flat(&run(1800.0, |_| 50.0 * mib, |nth| 20 + nth as u64 % 7)), Vec::<String>::new());
        assert_eq!(not_flat(&run(1800.0, |at| (50.0 + at / 40.0) * mib, |_| 20)).len(), 1, "memory");
        assert_eq!(not_flat(&run(60.0, |at| (50.0 + at) * mib, |_| 20)).len(), 0, "a short run warms up");
        assert_eq!(not_flat(&run(60.0, |_| mib, |nth| 20 + nth as u64)).len(), 1, "descriptors");
        assert_eq!(not_flat(&run(1800.0, |_| mib, |nth| 20 + nth as u64)).len(), 2, "by both rules");
    }
}
