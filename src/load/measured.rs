//! What was measured. What enters is one [`Sample`] a request; what leaves are counts, histograms and errors. Invariant: memory
//! does not grow with what is counted, since histograms have a fixed size.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::errors::Errors;
use super::job::Kind;

/// Shortest time that a histogram tells from none, in nanoseconds.
const TIME_NANOS_MIN: u64 = 100;

/// Longest time that a histogram tells from longer ones, in nanoseconds: an hour.
const TIME_NANOS_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a time.
const TIME_DIGITS: u8 = 3;

/// Times, as a histogram of a fixed size.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(TIME_NANOS_MIN, TIME_NANOS_MAX, TIME_DIGITS);
        Self(bounds.expect("the bounds are more than a factor of two apart"))
    }
}

impl Times {
    /// Counts a time.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of all did not exceed, to three digits; zero if there were none.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share).min(self.0.max()))
    }

    /// The mean, zero if there were none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The longest, zero if there were none.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

/// What came of one request. At most as long as the request has entries.
#[derive(Debug, Default)]
pub struct Sample {
    /// Of what kind it was.
    pub kind: Kind,
    /// From its start (in an open loop, from when it was due) to its whole answer; none if it failed.
    pub took: Option<Duration>,
    /// For each object that was whole and right, the time since the one before, or since the request's start.
    pub object_times: Vec<Duration>,
    /// Bytes of those objects.
    pub bytes: u64,
    /// Objects that did not come, or not right.
    pub objects_failed: u64,
    /// What went wrong.
    pub errors: Errors,
    /// Whether there was nobody to ask.
    pub unreachable: bool,
}

impl Sample {
    /// Makes it ready for the next request of this kind.
    pub fn begin(&mut self, kind: Kind) {
        self.kind = kind;
        self.took = None;
        self.object_times.clear();
        self.bytes = 0;
        self.objects_failed = 0;
        self.errors.clear();
        self.unreachable = false;
    }
}

/// What was counted of the requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that ended, failed ones too.
    pub requests: u64,
    /// Those whose answer was an error or not whole.
    pub requests_failed: u64,
    /// Objects that came (or went, in a PUT) whole and right.
    pub objects: u64,
    /// Objects that did not.
    pub objects_failed: u64,
    /// Bytes of the whole and right ones.
    pub bytes: u64,
    /// Times of requests that did not fail.
    pub request_times: Times,
    /// Times of objects that were whole and right: see [`Sample::object_times`].
    pub object_times: Times,
}

impl Tally {
    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.requests_failed += other.requests_failed;
        self.objects += other.objects;
        self.objects_failed += other.objects_failed;
        self.bytes += other.bytes;
        self.request_times.add(&other.request_times);
        self.object_times.add(&other.object_times);
    }
}

/// What a job came to.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From the first request's start to the last one's end.
    pub seconds: f64,
    /// CPU time of this whole process meanwhile, to a hundredth of a second; none where there is no `/proc`.
    pub own_cpu_seconds: Option<f64>,
    /// By kind of request; kinds that did not occur are not there.
    pub kinds: BTreeMap<Kind, Tally>,
    /// What went wrong.
    pub errors: Errors,
    /// Requests of an open loop that were due while the most were under way.
    pub not_started: u64,
    /// Whether it was told to stop before its end; requests that were under way then are not counted.
    pub cut_short: bool,
}

impl Measured {
    /// Counts a request.
    pub fn take(&mut self, sample: &Sample) {
        let tally = self.kinds.entry(sample.kind).or_default();
        tally.requests += 1;
        match sample.took {
            Some(took) => tally.request_times.record(took),
            None => tally.requests_failed += 1,
        }
        tally.objects += sample.object_times.len() as u64;
        tally.objects_failed += sample.objects_failed;
        tally.bytes += sample.bytes;
        sample.object_times.iter().for_each(|time| tally.object_times.record(*time));
        self.errors.add(&sample.errors);
    }

    /// Adds another part of the same job, which did not run at the same time.
    pub fn add(&mut self, other: &Self) {
        let own = self.own_cpu_seconds.filter(|_| self.seconds > 0.0).unwrap_or_default();
        self.own_cpu_seconds = other.own_cpu_seconds.map(|seconds| own + seconds);
        self.seconds += other.seconds;
        other.kinds.iter().for_each(|(kind, tally)| self.kinds.entry(*kind).or_default().add(tally));
        self.errors.add(&other.errors);
        self.not_started += other.not_started;
        self.cut_short |= other.cut_short;
    }

    /// All kinds together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.kinds.values().for_each(|tally| total.add(tally));
        total
    }

    /// Objects that came or went whole and right.
    pub fn objects(&self) -> u64 {
        self.kinds.values().map(|tally| tally.objects).sum()
    }

    /// Objects a second.
    pub fn objects_per_second(&self) -> f64 {
        ratio(self.objects() as f64, self.seconds)
    }

    /// Mebibytes a second.
    pub fn mib_per_second(&self) -> f64 {
        let bytes: u64 = self.kinds.values().map(|tally| tally.bytes).sum();
        ratio(bytes as f64 / f64::from(1 << 20), self.seconds)
    }

    /// CPU time of this process for each object, in microseconds.
    pub fn own_cpu_micros_per_object(&self) -> Option<f64> {
        let objects = self.objects();
        self.own_cpu_seconds.filter(|_| objects > 0).map(|seconds| seconds * 1e6 / objects as f64)
    }

    /// Whether there is nothing to report: no request ended, and none was left out.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.not_started == 0
    }

    /// Whether anything failed or could not be started.
    pub fn failed(&self) -> bool {
        self.not_started > 0 || self.kinds.values().any(|tally| tally.requests_failed + tally.objects_failed > 0)
    }
}

/// A quotient, zero where there is nothing to divide by.
pub fn ratio(above: f64, below: f64) -> f64 {
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn near(a: Duration, b: Duration) -> bool {
        a.abs_diff(b) <= b / 500
    }

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut times = Times::default();
        (1..=1000).for_each(|n| times.record(MS * n));
        for (share, expected) in [(0.5, 500), (0.95, 950), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            assert!(near(times.quantile(share), MS * expected), "{share}: {:?}", times.quantile(share));
        }
        assert!(near(times.mean(), Duration::from_micros(500_500)) && near(times.max(), MS * 1000));
        assert_eq!((Times::default().quantile(0.99), Times::default().max()), (Duration::ZERO, Duration::ZERO));
        let mut long = Times::default();
        long.record(Duration::from_secs(100_000));
        assert!(near(long.max(), Duration::from_secs(3600)), "a time beyond the bounds counts as the longest");
    }

    #[test]
    fn requests_and_objects_are_counted_apart() {
        let mut measured = Measured::default();
        let mut sample = Sample::default();
        sample.begin(Kind::Batch);
        sample.took = Some(MS * 9);
        sample.object_times = vec![MS * 7, MS, MS];
        sample.bytes = 300;
        sample.objects_failed = 1;
        sample.errors.note("404 NoSuchKey", || "k".into());
        measured.take(&sample);
        sample.begin(Kind::Get);
        sample.objects_failed = 1;
        sample.errors.note("unreachable", || "refused".into());
        measured.take(&sample);
        measured.seconds = 0.5;
        let (batch, get) = (&measured.kinds[&Kind::Batch], &measured.kinds[&Kind::Get]);
        assert_eq!((batch.requests, batch.requests_failed, batch.objects, batch.objects_failed, batch.bytes), (1, 0, 3, 1, 300));
        assert_eq!((get.requests, get.requests_failed, get.objects, get.objects_failed, get.bytes), (1, 1, 0, 1, 0));
        assert_eq!((batch.request_times.count(), batch.object_times.count(), get.request_times.count()), (1, 3, 0));
        assert_eq!((measured.objects(), measured.objects_per_second(), measured.errors.count()), (3, 6.0, 2));
        assert!(measured.failed());
        let total = measured.total();
        assert_eq!((total.requests, total.objects, total.objects_failed), (2, 3, 2));
    }

    #[test]
    fn parts_of_a_job_add_up() {
        let part = |cpu, sample_ms: u32| {
            let mut sample = Sample::default();
            sample.begin(Kind::Get);
            sample.took = Some(MS * sample_ms);
            sample.object_times = vec![MS * sample_ms];
            sample.bytes = 1 << 20;
            let mut part = Measured { seconds: 2.0, own_cpu_seconds: cpu, ..Measured::default() };
            part.take(&sample);
            part
        };
        let mut sum = Measured::default();
        sum.add(&part(Some(1.0), 1));
        sum.add(&part(Some(0.5), 3));
        assert_eq!((sum.seconds, sum.own_cpu_seconds, sum.objects(), sum.mib_per_second()), (4.0, Some(1.5), 2, 0.5));
        assert_eq!(sum.own_cpu_micros_per_object(), Some(750_000.0));
        assert!(near(sum.total().request_times.quantile(0.5), MS) && near(sum.total().request_times.max(), MS * 3));
        assert!(!sum.failed());
        assert_eq!(Measured::default().objects_per_second(), 0.0);
    }
}
