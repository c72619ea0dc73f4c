//! From flags to jobs. What enters are the flags of `bench`; what leaves is a [`Plan`], or every contradiction in them at once.
//! Pure but for the list of keys that it is given a reader for.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::args::{BenchArgs, ModeName};
use super::list;
use crate::config::format_duration;
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
const COUNT_MAX: u64 = 100_000;

/// Most threads: beyond what machines have cores, each only costs.
const THREADS_MAX: u64 = 256;

/// Shortest time that is measured in one piece: a few requests end in it.
const ROUND_MIN: Duration = Duration::from_millis(10);

/// Fewest requests a second: one in a quarter of an hour.
const RATE_MIN: f64 = 0.001;

/// Most requests a second.
const RATE_MAX: f64 = 1e6;

/// Longest prefix: a key has room for size and number behind it.
const PREFIX_BYTES_MAX: usize = 960;

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
pub fn plan(args: &BenchArgs, read_file: &dyn Fn(&Path) -> io::Result<Vec<u8>>, cores: usize) -> Result<Plan, Vec<String>> {
    let mut problems = contradictions(args);
    problems.extend(beyond_limits(args));
    let keys = keys(args, read_file).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Keys::Listed(Arc::new([]))
    });
    let entries = args.batch.unwrap_or(BATCH);
    let mix = mix(args.mix.as_deref().unwrap_or(MIX), entries).unwrap_or_else(|problem| {
        problems.push(problem);
        Mix { get: 1, batch: 0, put: 0, entries }
    });
    let rounds = args.rounds.unwrap_or(ROUNDS);
    if args.compare.is_some() && args.requests.is_some_and(|requests| requests < rounds) {
        problems.push(format!("--requests must be at least the number of rounds, {rounds}"));
    }
    let pieces = if args.compare.is_some() { rounds.max(1) } else { 1 };
    let duration = args.duration.unwrap_or(DURATION);
    if args.requests.is_none() && duration.as_secs_f64() / (pieces as f64) < ROUND_MIN.as_secs_f64() {
        let of_each = if pieces > 1 { format!(" for each of {pieces} rounds") } else { String::new() };
        problems.push(format!("--duration must be at least {}{of_each}", format_duration(ROUND_MIN)));
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
        bucket: args.bucket.as_deref().unwrap_or_default().into(),
        keys,
        mode: mode(args.mode.unwrap_or(ModeName::Get), entries),
        pace: pace(workers),
        extent: args.requests.map_or(Extent::Duration(duration), Extent::Requests),
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
        problems.push("--from names objects of others, which put would overwrite: give --mix without it".into());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut plan = Plan { jobs, rounds, prepare: args.prepare, threads: 1 };
    plan.threads = args.threads.unwrap_or((cores / 2).clamp(1, plan.in_flight_max()));
    Ok(plan)
}

/// Flags that are missing or out of their bounds.
fn beyond_limits(args: &BenchArgs) -> Vec<String> {
    let mut problems = Vec::new();
    match args.bucket.as_deref() {
        None => problems.push("--bucket is missing: the bucket with the objects".to_owned()),
        Some(bucket) if BucketName::new(bucket).is_none() => problems.push(format!("--bucket {bucket:?} is no name of a bucket")),
        Some(_) => {}
    }
    let wide = |number: Option<usize>| number.map(|n| n as u64);
    let numbers = [
        ("--objects", args.objects, u64::MAX),
        ("--requests", args.requests, u64::MAX),
        ("--batch", wide(args.batch), COUNT_MAX),
        ("--compare-batch", wide(args.compare_batch), COUNT_MAX),
        ("--workers", wide(args.workers), COUNT_MAX),
        ("--compare-workers", wide(args.compare_workers), COUNT_MAX),
        ("--in-flight", wide(args.in_flight), COUNT_MAX),
        ("--rounds", args.rounds, COUNT_MAX),
        ("--threads", wide(args.threads), THREADS_MAX),
    ];
    for (flag, number, max) in numbers {
        match number {
            Some(0) => problems.push(format!("{flag} must be at least 1")),
            Some(n) if n > max => problems.push(format!("{flag} must be at most {max}")),
            _ => {}
        }
    }
    if args.rate.is_some_and(|rate| !(RATE_MIN..=RATE_MAX).contains(&rate)) {
        problems.push(format!("--rate must be from {RATE_MIN} to {RATE_MAX}"));
    }
    if args.size.is_some_and(|size| size > SIZE_BYTES_MAX) {
        problems.push("--size must be at most 256MiB".into());
    }
    if args.prefix.as_ref().is_some_and(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        problems.push(format!("--prefix must have at most {PREFIX_BYTES_MAX} bytes"));
    }
    problems
}

fn keys(args: &BenchArgs, read_file: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Keys, Vec<String>> {
    let Some(file) = &args.from else {
        return Ok(Keys::Made {
            prefix: args.prefix.as_deref().unwrap_or(PREFIX).into(),
            count: args.objects.unwrap_or(OBJECTS),
            size: args.size.unwrap_or(SIZE_BYTES),
        });
    };
    let name = file.display().to_string();
    let text = read_file(file).map_err(|error| vec![format!("--from {name} cannot be read: {error}")])?;
    let keys = list::keys(&name, &text, args.bucket.as_deref().unwrap_or_default())?;
    Ok(Keys::Listed(keys.into()))
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan_of(flags: &str) -> Result<Plan, Vec<String>> {
        let args =
            Cli::try_parse_from([&["bench"], flags.split_whitespace().collect::<Vec<_>>().as_slice()].concat()).unwrap().args;
        let read_file = |path: &Path| match path.to_str() {
            Some("keys.txt") => Ok(b"a\n\nb c\r\n/d\n".to_vec()),
            Some("empty.txt") => Ok(b"\n".to_vec()),
            Some("long.txt") => Ok(b"k".repeat(1025)),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        plan(&args, &read_file, 4)
    }

    #[test]
    fn defaults_are_those_of_the_help_page() {
        let plan = plan_of("--bucket b").unwrap();
        let job = &plan.jobs[0];
        assert_eq!((plan.jobs.len(), plan.threads, plan.prepare, plan.in_flight_max()), (1, 2, false, 8));
        assert_eq!((job.mode, job.pace, job.extent), (Mode::Get, Pace::Closed { workers: 8 }, Extent::Duration(DURATION)));
        assert_eq!(job.keys, Keys::Made { prefix: "batchgate-bench/".into(), count: 1000, size: 10_240 });
        assert_eq!((job.warm_up, job.verify, job.seed), (Duration::from_secs(2), true, 0));
    }

    #[test]
    fn a_comparison_is_two_jobs_on_the_same_objects() {
        let flags = "--bucket b --mode batch --workers 1 --compare get --compare-workers 32 --requests 50 --rounds 10 --seed 7";
        let plan = plan_of(flags).unwrap();
        let [first, second] = plan.jobs.as_slice() else { panic!("two jobs") };
        assert_eq!((first.mode, first.pace), (Mode::Batch(128), Pace::Closed { workers: 1 }));
        assert_eq!((second.mode, second.pace), (Mode::Get, Pace::Closed { workers: 32 }));
        assert_eq!((&first.keys, first.extent, second.extent), (&second.keys, Extent::Requests(50), Extent::Requests(50)));
        assert_eq!((first.seed, second.seed, plan.rounds, plan.in_flight_max(), plan.threads), (7, 7, 10, 32, 2));
        assert!(plan_of("--bucket b --compare batch --duration 50ms").is_ok());
        let plan = plan_of("--bucket b --mode batch --compare batch --compare-batch 1024").unwrap();
        assert_eq!((plan.jobs[0].mode, plan.jobs[1].mode), (Mode::Batch(128), Mode::Batch(1024)));
    }

    #[test]
    fn an_open_loop_and_a_list_are_understood() {
        let plan = plan_of("--bucket b --rate 12.5 --in-flight 3 --from keys.txt --no-verify --warm-up 0s").unwrap();
        let job = &plan.jobs[0];
        assert_eq!(job.pace, Pace::Open { rate: 12.5, in_flight_max: 3 });
        assert_eq!(job.keys, Keys::Listed(["a", "b c", "/d"].map(str::to_owned).into()));
        assert!(!job.verify && job.warm_up.is_zero());
        let plan = plan_of("--bucket b --mode mixed --mix put=1,batch=3 --batch 5").unwrap();
        assert_eq!(plan.jobs[0].mode, Mode::Mixed(Mix { get: 0, batch: 3, put: 1, entries: 5 }));
    }

    #[test]
    fn every_contradiction_is_named_at_once() {
        let flags = "--duration 5s --requests 3 --rate 5 --workers 3 --compare get --batch 9 --mix get=1 --from nowhere --prepare \
                     --objects 5 --size 1 --prefix p --compare-batch 4";
        let problems = plan_of(flags).unwrap_err();
        let expected = [
            "--duration and --requests exclude",
            "--rate and --workers exclude",
            "--rate and --compare exclude",
            "--batch needs",
            "--mix needs",
            "--compare-batch needs a --compare",
            "--from and --prepare",
            "--from and --objects",
            "--from and --size",
            "--from and --prefix",
            "--bucket is missing",
            "--from nowhere cannot be read",
            "--requests must be at least the number of rounds",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem} / {expected}");
        }
    }

    #[test]
    fn each_mistake_has_its_sentence() {
        for (flags, expected) in [
            ("--bucket a/b", "--bucket \"a/b\" is no name of a bucket"),
            ("--bucket b --workers 0", "--workers must be at least 1"),
            ("--bucket b --workers 100001", "--workers must be at most 100000"),
            ("--bucket b --rate 0", "--rate must be from 0.001 to 1000000"),
            ("--bucket b --rate nan", "--rate must be from 0.001 to 1000000"),
            ("--bucket b --size 257MiB", "--size must be at most 256MiB"),
            ("--bucket b --threads 257", "--threads must be at most 256"),
            ("--bucket b --duration 0s", "--duration must be at least 10ms"),
            ("--bucket b --duration 9ms", "--duration must be at least 10ms"),
            ("--bucket b --compare batch --rounds 1001", "--duration must be at least 10ms for each of 1001 rounds"),
            ("--bucket b --compare batch --duration 49ms", "--duration must be at least 10ms for each of 5 rounds"),
            ("--bucket b --in-flight 5", "--in-flight needs --rate"),
            ("--bucket b --rounds 5", "--rounds needs --compare"),
            ("--bucket b --compare-workers 5", "--compare-workers needs --compare"),
            ("--bucket b --mode mixed --batch 5", "--batch needs a mode that sends BatchGets"),
            ("--bucket b --mode mixed --mix get=0", "--mix has no weight above 0"),
            ("--bucket b --from empty.txt", "--from empty.txt names no key"),
            ("--bucket b --from long.txt", "--from long.txt:1: a key has 1 to 1024 bytes, this one has 1025"),
            ("--bucket b --from keys.txt --mode mixed", "--from names objects of others"),
        ] {
            let problems = plan_of(flags).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{flags}: {problems:?}");
        }
        for mix in ["", "get", "get=x", "get=1,get=2", "head=1", "get=-1"] {
            let problems = plan_of(&format!("--bucket b --mode mixed --mix={mix}")).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("is none: give get, batch or put"), "{mix}: {problems:?}");
        }
    }
}
