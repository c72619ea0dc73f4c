//! From flags to jobs. What enters are the flags of `bench`; what leaves is a [`Plan`], or every contradiction in them at once.
//! Pure but for the list of keys that it is given a reader for.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::args::{BenchArgs, ModeName};
use crate::load::{Extent, Job, Keys, Mix, Mode, Pace};
use crate::types::BucketName;

const PREFIX: &str = "batchgate-bench/";
const OBJECTS: u64 = 1000;
const SIZE_BYTES: u64 = 10 << 10;
const BATCH: usize = 128;
const MIX: &str = "get=90,put=10";
const WORKERS: usize = 8;
const IN_FLIGHT_MAX: usize = 1000;
const DURATION: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(2);
const ROUNDS: u64 = 5;

/// Largest object: one that is written is in memory, one for each worker.
const SIZE_BYTES_MAX: u64 = 256 << 20;

/// Most workers, requests under way, entries or rounds: beyond is a slip of the hand.
const COUNT_MAX: usize = 100_000;

/// Most requests a second.
const RATE_MAX: f64 = 1e6;

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// One job, or the two to be compared.
    pub jobs: Vec<Job>,
    /// Turns of each of two.
    pub rounds: u64,
    /// Whether objects are written first.
    pub prepare: bool,
    /// Threads of this process.
    pub threads: usize,
}

impl Plan {
    /// Most requests under way at a time.
    pub fn in_flight_max(&self) -> usize {
        let most = self.jobs.iter().map(|job| match job.pace {
            Pace::Closed { workers } => workers,
            Pace::Open { in_flight_max, .. } => in_flight_max,
        });
        most.max().unwrap_or(1)
    }
}

/// What the flags mean on a machine of so many cores.
///
/// # Errors
/// Everything that is wrong with them, a sentence each.
pub fn plan(args: &BenchArgs, read_file: &dyn Fn(&Path) -> io::Result<String>, cores: usize) -> Result<Plan, Vec<String>> {
    let mut problems = contradictions(args);
    let mut wrong = |problem: String| problems.push(problem);
    let bucket = match args.bucket.as_deref() {
        None => {
            wrong("--bucket is missing: the bucket with the objects".into());
            ""
        }
        Some(bucket) => {
            if BucketName::new(bucket).is_none() {
                wrong(format!("--bucket {bucket:?} is no name of a bucket"));
            }
            bucket
        }
    };
    let numbers = [
        ("--objects", args.objects),
        ("--requests", args.requests),
        ("--batch", args.batch.map(|n| n as u64)),
        ("--compare-batch", args.compare_batch.map(|n| n as u64)),
        ("--workers", args.workers.map(|n| n as u64)),
        ("--compare-workers", args.compare_workers.map(|n| n as u64)),
        ("--in-flight", args.in_flight.map(|n| n as u64)),
        ("--rounds", args.rounds),
        ("--threads", args.threads.map(|n| n as u64)),
    ];
    for (flag, number) in numbers {
        match number {
            Some(0) => wrong(format!("{flag} must be at least 1")),
            Some(n) if n > COUNT_MAX as u64 && !matches!(flag, "--objects" | "--requests") => {
                wrong(format!("{flag} must be at most {COUNT_MAX}"));
            }
            _ => {}
        }
    }
    if args.rate.is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX)) {
        wrong(format!("--rate must be more than 0 and at most {RATE_MAX}"));
    }
    if args.size.is_some_and(|size| size > SIZE_BYTES_MAX) {
        wrong("--size must be at most 256MiB".into());
    }
    if args.duration.is_some_and(|duration| duration.is_zero()) {
        wrong("--duration must be more than 0s".into());
    }
    let keys = match &args.from {
        None => Keys::Made {
            prefix: args.prefix.as_deref().unwrap_or(PREFIX).into(),
            count: args.objects.unwrap_or(OBJECTS),
            size: args.size.unwrap_or(SIZE_BYTES),
        },
        Some(file) => match read_file(file).map(|text| keys_of(&text)) {
            Ok(keys) if keys.is_empty() => {
                wrong(format!("--from {} names no key", file.display()));
                Keys::Listed(Arc::new([]))
            }
            Ok(keys) => Keys::Listed(keys.into()),
            Err(error) => {
                wrong(format!("--from {} cannot be read: {error}", file.display()));
                Keys::Listed(Arc::new([]))
            }
        },
    };
    let entries = args.batch.unwrap_or(BATCH);
    let mix = match mix(args.mix.as_deref().unwrap_or(MIX), entries) {
        Ok(mix) => mix,
        Err(problem) => {
            wrong(problem);
            Mix { get: 1, batch: 0, put: 0, entries }
        }
    };
    let rounds = args.rounds.unwrap_or(ROUNDS);
    if args.compare.is_some() && args.requests.is_some_and(|requests| requests < rounds) {
        wrong(format!("--requests must be at least the number of rounds, {rounds}"));
    }
    let mode = |name: ModeName, entries: usize| match name {
        ModeName::Get => Mode::Get,
        ModeName::Batch => Mode::Batch(entries),
        ModeName::Mixed => Mode::Mixed(Mix { entries, ..mix }),
    };
    let pace = |workers: usize| match args.rate {
        None => Pace::Closed { workers },
        Some(rate) => Pace::Open { rate, in_flight_max: args.in_flight.unwrap_or(IN_FLIGHT_MAX) },
    };
    let workers = args.workers.unwrap_or(WORKERS);
    let first = Job {
        bucket: bucket.into(),
        keys,
        mode: mode(args.mode.unwrap_or(ModeName::Get), entries),
        pace: pace(workers),
        extent: args.requests.map_or(Extent::Duration(args.duration.unwrap_or(DURATION)), Extent::Requests),
        warm_up: args.warm_up.unwrap_or(WARM_UP),
        verify: !args.no_verify,
        seed: args.seed.unwrap_or(0),
    };
    let second = args.compare.map(|name| Job {
        mode: mode(name, args.compare_batch.unwrap_or(entries)),
        pace: pace(args.compare_workers.unwrap_or(workers)),
        ..first.clone()
    });
    let jobs: Vec<_> = std::iter::once(first).chain(second).collect();
    if args.from.is_some() && jobs.iter().any(|job| job.mode.writes()) {
        wrong("--from names objects of others, which --mix put would overwrite; give weights for get and batch only".into());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut plan = Plan { jobs, rounds, prepare: args.prepare, threads: 1 };
    plan.threads = args.threads.unwrap_or((cores / 2).clamp(1, plan.in_flight_max()));
    Ok(plan)
}

/// Flags that are given and cannot be meant together.
fn contradictions(args: &BenchArgs) -> Vec<String> {
    let is = |name: ModeName| args.mode.unwrap_or(ModeName::Get) == name || args.compare == Some(name);
    let mix_has_batch = args.mix.as_deref().unwrap_or(MIX).contains("batch");
    let batches = is(ModeName::Batch) || is(ModeName::Mixed) && mix_has_batch;
    let compared_batches = match args.compare {
        Some(ModeName::Batch) => true,
        Some(ModeName::Mixed) => mix_has_batch,
        Some(ModeName::Get) | None => false,
    };
    let rules = [
        (args.duration.is_some() && args.requests.is_some(), "--duration and --requests exclude each other"),
        (args.rate.is_some() && args.workers.is_some(), "--rate and --workers exclude each other: an open loop has no workers"),
        (args.rate.is_some() && args.compare.is_some(), "--rate and --compare exclude each other: a given rate has no ratio"),
        (args.in_flight.is_some() && args.rate.is_none(), "--in-flight needs --rate"),
        (args.batch.is_some() && !batches, "--batch needs a mode that sends BatchGets"),
        (args.mix.is_some() && !is(ModeName::Mixed), "--mix needs --mode mixed"),
        (args.compare_workers.is_some() && args.compare.is_none(), "--compare-workers needs --compare"),
        (args.compare_batch.is_some() && args.compare.is_none(), "--compare-batch needs --compare"),
        (
            args.compare_batch.is_some() && args.compare.is_some() && !compared_batches,
            "--compare-batch needs a --compare that sends BatchGets",
        ),
        (args.rounds.is_some() && args.compare.is_none(), "--rounds needs --compare"),
        (args.from.is_some() && args.prepare, "--from and --prepare exclude each other: listed objects are there"),
        (args.from.is_some() && args.objects.is_some(), "--from and --objects exclude each other"),
        (args.from.is_some() && args.size.is_some(), "--from and --size exclude each other"),
        (args.from.is_some() && args.prefix.is_some(), "--from and --prefix exclude each other"),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, rule)| rule.to_owned()).collect()
}

/// One key a line, byte for byte; empty lines are none.
fn keys_of(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn mix(text: &str, entries: usize) -> Result<Mix, String> {
    let mut mix = Mix { get: 0, batch: 0, put: 0, entries };
    for pair in text.split(',') {
        let slot = match pair.split_once('=').map(|(name, weight)| (name.trim(), weight.trim().parse::<u32>())) {
            Some(("get", Ok(weight))) => Some((&mut mix.get, weight)),
            Some(("batch", Ok(weight))) => Some((&mut mix.batch, weight)),
            Some(("put", Ok(weight))) => Some((&mut mix.put, weight)),
            _ => None,
        };
        match slot {
            Some((slot, weight)) if *slot == 0 => *slot = weight,
            _ => return Err(format!("--mix {text:?} is none: give get, batch or put once each with a number, as in {MIX}")),
        }
    }
    if mix.get == 0 && mix.batch == 0 && mix.put == 0 { Err("--mix has no weight above 0".into()) } else { Ok(mix) }
}
