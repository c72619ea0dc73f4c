//! What was measured, as people and scripts read it. What enters is a [`Report`]; what leaves is an aligned text, or one JSON
//! object. Nothing is computed here but rates, percentiles and units.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::compare::{Comparison, Spread};
use super::job::{Extent, Job, Keys, Kind, Mode, Pace};
use super::measured::{Measured, Tally, Times, ratio};
use crate::client::printable;
use crate::config::format_size;

/// Percentiles that are shown, with their names.
const PERCENTILES: [(&str, &str, f64); 4] =
    [("p50", "P50", 0.5), ("p95", "P95", 0.95), ("p99", "P99", 0.99), ("p999", "P99.9", 0.999)];

/// From this share of its threads' time on, the client is what limits a closed loop.
const BUSY_SHARE: f64 = 0.9;

/// Everything that one run has to say.
pub struct Report<'a> {
    /// Whom it asked.
    pub endpoint: String,
    /// Threads of this process.
    pub threads: usize,
    /// The job, or both.
    pub jobs: Vec<&'a Job>,
    /// What each came to.
    pub measured: Vec<&'a Measured>,
    /// Their ratio, where there were two.
    pub comparison: Option<&'a Comparison>,
}

impl Report<'_> {
    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if let Some(job) = self.jobs.first() {
            let what = match &job.keys {
                Keys::Made { prefix, count, size } => {
                    format!("{count} objects of {} under {}", length(*size), printable(prefix))
                }
                Keys::Listed(keys) => format!("{} objects of a list", keys.len()),
            };
            line(&mut text, format_args!("{}, bucket {}: {what}", self.endpoint, job.bucket));
        }
        for (job, measured) in self.jobs.iter().zip(&self.measured) {
            text.push('\n');
            self.one(&mut text, job, measured);
        }
        if let (Some(comparison), [first, second]) = (self.comparison, self.jobs.as_slice()) {
            let of = |spread: &Spread| {
                format!("{:.2} ({:.2} to {:.2} in {} rounds)", spread.median, spread.low, spread.high, spread.rounds)
            };
            line(
                &mut text,
                format_args!("\n{} ({}) by {} ({}), round by round:", first.mode, first.pace, second.mode, second.pace),
            );
            match &comparison.speed {
                Some(speed) => line(&mut text, format_args!("  objects/s            {}", of(speed))),
                None => line(&mut text, format_args!("  no round was finished with objects on both sides")),
            }
            match comparison.rounds_without_ratio {
                0 => {}
                1 => line(&mut text, format_args!("  1 round is left out: a side got no object in it")),
                count => line(&mut text, format_args!("  {count} rounds are left out: a side got no object in them")),
            }
            if let Some(cpu) = &comparison.own_cpu {
                line(&mut text, format_args!("  client CPU an object {}", of(cpu)));
            }
        }
        text
    }

    fn one(&self, text: &mut String, job: &Job, measured: &Measured) {
        let cut = if measured.cut_short { ", CUT SHORT" } else { "" };
        line(text, format_args!("{}, {}: {:.2} s{cut}", job.mode, job.pace, measured.seconds));
        let total = measured.total();
        let per_second = |count: u64| ratio(count as f64, measured.seconds);
        let counts = [("objects", total.objects, total.objects_failed), ("requests", total.requests, total.requests_failed)];
        let mut grid = Vec::new();
        for (name, count, failed) in counts {
            let mut row = vec![name.to_owned(), count.to_string(), format!("{}/s", figure(per_second(count)))];
            row.push(if name == "objects" { format!("{} MiB/s", figure(measured.mib_per_second())) } else { String::new() });
            row.push(format!("{failed} failed"));
            grid.push(row);
        }
        *text += &aligned(&grid);
        let head = ["milliseconds"].into_iter().chain(PERCENTILES.iter().map(|(_, name, _)| *name)).chain(["max", "mean"]);
        let mut grid = vec![head.map(str::to_owned).collect::<Vec<_>>()];
        for (kind, tally) in &measured.kinds {
            let name = kind.name();
            grid.push(times_row(format!("each {name} request"), &tally.request_times));
            // A lone GET or PUT is one object: both times are the same.
            if *kind == Kind::Batch {
                grid.push(times_row(format!("each {name} object"), &tally.object_times));
            }
        }
        *text += &aligned(&grid);
        if measured.not_started > 0 {
            let most = if let Pace::Open { in_flight_max, .. } = job.pace { in_flight_max } else { 0 };
            line(text, format_args!("  {} requests were due while {most} were under way, and not started", measured.not_started));
        }
        for (kind, seen) in measured.errors.iter() {
            // Codes are the endpoint's words, and keys may be a stranger's.
            line(text, format_args!("  {} x {}; the first: {}", seen.count, printable(kind), printable(&seen.first)));
        }
        if let Some((cpu, busy)) = measured.own_cpu_micros_per_object().zip(self.busy_share(measured)) {
            let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
            line(text, format_args!("  client CPU {} µs an object, {:.0} % of {threads}", figure(cpu), busy * 100.0));
            if busy >= BUSY_SHARE {
                line(text, format_args!("  the client was the limit: give it more --threads if the machine has cores for them"));
            }
        }
    }

    fn busy_share(&self, measured: &Measured) -> Option<f64> {
        measured.own_cpu_seconds.map(|cpu| ratio(cpu, measured.seconds * self.threads as f64))
    }

    /// For scripts.
    pub fn to_json(&self) -> Value {
        let runs: Vec<_> = self.jobs.iter().zip(&self.measured).map(|(job, measured)| self.run_json(job, measured)).collect();
        let mut report = json!({ "endpoint": self.endpoint, "threads": self.threads, "runs": runs });
        if let Some(comparison) = self.comparison {
            report["ratio"] = json!({
                "objects_per_second": comparison.speed.map(spread_json),
                "client_cpu_per_object": comparison.own_cpu.map(spread_json),
                "rounds_left_out": comparison.rounds_without_ratio,
            });
        }
        report
    }

    fn run_json(&self, job: &Job, measured: &Measured) -> Value {
        let total = measured.total();
        let per_second = |count: u64| ratio(count as f64, measured.seconds);
        let kinds: Map<_, _> = measured.kinds.iter().map(|(kind, tally)| (kind.name().to_owned(), tally_json(tally))).collect();
        let errors: Vec<_> =
            measured.errors.iter().map(|(kind, e)| json!({"kind": kind, "count": e.count, "first": e.first})).collect();
        let (workers, rate, in_flight_max) = match job.pace {
            Pace::Closed { workers } => (Some(workers), None, None),
            Pace::Open { rate, in_flight_max } => (None, Some(rate), Some(in_flight_max)),
        };
        let (duration, requests) = match job.extent {
            Extent::Duration(duration) => (Some(duration.as_secs_f64()), None),
            Extent::Requests(requests) => (None, Some(requests)),
        };
        let mix = match job.mode {
            Mode::Mixed(mix) => Some(json!({"get": mix.get, "batch": mix.batch, "put": mix.put})),
            Mode::Get | Mode::Batch(_) => None,
        };
        json!({
            "job": {
                "mode": job.mode.name(), "mix": mix, "batch": job.mode.entries(), "workers": workers, "rate": rate,
                "in_flight_max": in_flight_max, "duration_seconds": duration, "requests": requests,
                "warm_up_seconds": job.warm_up.as_secs_f64(), "bucket": &*job.bucket, "objects": job.keys.count(),
                "size_bytes": job.keys.size(), "verify": job.verify && job.keys.size().is_some(), "seed": job.seed,
            },
            "seconds": measured.seconds,
            "cut_short": measured.cut_short,
            "objects": total.objects,
            "objects_failed": total.objects_failed,
            "objects_per_second": measured.objects_per_second(),
            "bytes": total.bytes,
            "mib_per_second": measured.mib_per_second(),
            "requests": total.requests,
            "requests_failed": total.requests_failed,
            "requests_per_second": per_second(total.requests),
            "requests_not_started": measured.not_started,
            "client_cpu_us_per_object": measured.own_cpu_micros_per_object(),
            "client_cpu_share": self.busy_share(measured),
            "kinds": kinds,
            "errors": errors,
        })
    }
}

/// The length of an object: `10KiB`, or `1500 bytes` where a number alone would not say what it counts.
pub fn length(bytes: u64) -> String {
    match format_size(bytes) {
        _ if bytes == 1 => "1 byte".to_owned(),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => format!("{text} bytes"),
        text => text,
    }
}

fn tally_json(tally: &Tally) -> Value {
    json!({
        "requests": tally.requests,
        "requests_failed": tally.requests_failed,
        "objects": tally.objects,
        "objects_failed": tally.objects_failed,
        "bytes": tally.bytes,
        "request_ms": times_json(&tally.request_times),
        "object_ms": times_json(&tally.object_times),
    })
}

fn times_json(times: &Times) -> Value {
    if times.count() == 0 {
        return Value::Null;
    }
    let percentiles = PERCENTILES.iter().map(|(name, _, share)| ((*name).to_owned(), json!(millis(times.quantile(*share)))));
    let rest = [("max", times.max()), ("mean", times.mean())].map(|(name, time)| (name.to_owned(), json!(millis(time))));
    Value::Object(percentiles.chain(rest).collect())
}

fn spread_json(spread: Spread) -> Value {
    json!({"median": spread.median, "low": spread.low, "high": spread.high, "rounds": spread.rounds})
}

fn times_row(name: String, times: &Times) -> Vec<String> {
    let shown = |time: Duration| if times.count() == 0 { "-".to_owned() } else { figure(millis(time)) };
    let percentiles = PERCENTILES.iter().map(|(_, _, share)| shown(times.quantile(*share)));
    std::iter::once(name).chain(percentiles).chain([shown(times.max()), shown(times.mean())]).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Three significant digits, or all before the point.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a text grows");
}

/// A table as text: indented, the first column to the left, the others to the right.
pub fn aligned(grid: &[Vec<String>]) -> String {
    let columns = grid.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| grid.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    // Wider than that nothing can be formatted; a longer cell only leaves its column.
    let widths: Vec<_> = (0..columns).map(|column| width(column).min(usize::from(u16::MAX))).collect();
    let mut text = String::new();
    for row in grid {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 => format!("  {cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        text += cells.collect::<String>().trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::measured::Sample;
    use super::*;

    #[test]
    fn a_cell_of_any_length_is_printed_whole() {
        let long = "x".repeat(70_000);
        let grid = vec![vec![long.clone(), "1".to_owned()], vec!["y".to_owned(), "22".to_owned()]];
        let text = aligned(&grid);
        assert!(text.starts_with(&format!("  {long}   1\n  y ")));
        assert!(text.ends_with("  22\n"));
    }

    fn job(mode: Mode) -> Job {
        Job {
            bucket: "b".into(),
            keys: Keys::Made { prefix: "p/".into(), count: 1000, size: 10_240 },
            mode,
            pace: Pace::Closed { workers: 1 },
            extent: Extent::Requests(2),
            warm_up: Duration::ZERO,
            verify: true,
            seed: 7,
        }
    }

    fn measured() -> Measured {
        let mut sample = Sample::default();
        sample.begin(Kind::Batch);
        sample.took = Some(Duration::from_millis(20));
        sample.object_times = vec![Duration::from_millis(18), Duration::from_millis(2)];
        sample.bytes = 20_480;
        sample.objects_failed = 1;
        sample.errors.note("404 NoSuchKey", || "k: 404 NoSuchKey".into());
        let mut measured = Measured { seconds: 0.5, own_cpu_seconds: Some(0.46), ..Measured::default() };
        measured.take(&sample);
        measured
    }

    #[test]
    fn people_read_an_aligned_text() {
        let (job, measured) = (job(Mode::Batch(3)), measured());
        let comparison = Comparison {
            first: Measured::default(),
            second: Measured::default(),
            speed: Spread::of(vec![2.0, 4.0, 3.0]),
            rounds_without_ratio: 2,
            own_cpu: None,
        };
        let report = Report {
            endpoint: "http://e".into(),
            threads: 1,
            jobs: vec![&job, &job],
            measured: vec![&measured, &measured],
            comparison: Some(&comparison),
        };
        let text = report.to_text();
        let one = "BatchGet of 3, 1 worker: 0.50 s
  objects   2  4.00/s  0.0391 MiB/s  1 failed
  requests  1  2.00/s                0 failed
  milliseconds         P50   P95   P99  P99.9   max  mean
  each batch request  20.0  20.0  20.0   20.0  20.0  20.0
  each batch object   2.00  18.0  18.0   18.0  18.0  10.0
  1 x 404 NoSuchKey; the first: k: 404 NoSuchKey
  client CPU 230000 µs an object, 92 % of 1 thread
  the client was the limit: give it more --threads if the machine has cores for them
";
        let expected = format!(
            "http://e, bucket b: 1000 objects of 10KiB under p/\n\n{one}\n{one}\n\
             BatchGet of 3 (1 worker) by BatchGet of 3 (1 worker), round by round:\n  \
             objects/s            3.00 (2.00 to 4.00 in 3 rounds)\n  \
             2 rounds are left out: a side got no object in them\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_length_says_what_it_counts() {
        assert_eq!([0, 1, 1500, 10_240].map(length), ["0 bytes", "1 byte", "1500 bytes", "10KiB"]);
    }

    #[test]
    fn nothing_that_a_terminal_would_obey_is_in_the_text() {
        let (job, mut measured) = (job(Mode::Get), measured());
        measured.errors.note("400 \u{1b}[31mCode", || "k\u{202e}\r: 400".into());
        let report =
            Report { endpoint: "http://e".into(), threads: 1, jobs: vec![&job], measured: vec![&measured], comparison: None };
        let text = report.to_text();
        assert!(text.contains("  1 x 400 \\u{1b}[31mCode; the first: k\\u{202e}\\r: 400\n"), "{text}");
    }

    #[test]
    fn scripts_read_one_object() {
        let (job, measured) = (job(Mode::Batch(3)), measured());
        let report =
            Report { endpoint: "http://e".into(), threads: 1, jobs: vec![&job], measured: vec![&measured], comparison: None };
        let json = report.to_json();
        let run = &json["runs"][0];
        assert_eq!(
            (run["job"]["mode"].as_str(), run["job"]["batch"].as_u64(), run["job"]["seed"].as_u64()),
            (Some("batch"), Some(3), Some(7))
        );
        assert_eq!(
            (run["objects"].as_u64(), run["objects_failed"].as_u64(), run["objects_per_second"].as_f64()),
            (Some(2), Some(1), Some(4.0))
        );
        let p99 = run["kinds"]["batch"]["object_ms"]["p99"].as_f64().unwrap();
        assert!((17.9..18.1).contains(&p99), "{p99}");
        assert_eq!(run["errors"][0]["first"].as_str(), Some("k: 404 NoSuchKey"));
        assert_eq!((json["ratio"].is_null(), run["kinds"]["get"].is_null()), (true, true));
        assert_eq!(tally_json(&Tally::default())["request_ms"], Value::Null, "no request, no percentile");
    }
}
