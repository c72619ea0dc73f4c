//! The flags of `batchgate bench`, and the page that teaches them. Every flag is optional here, so that [`super::plan`] can
//! tell what was given from what is a default, and name all contradictions at once.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::super::aws::AwsArgs;
use crate::config::{parse_duration, parse_size};

const LONG_ABOUT: &str = "Put load on an S3 endpoint and measure it: this gateway, or any other S3 store.

Each request reads objects chosen at random, all alike, with GetObject (--mode get), BatchGet (--mode batch) or several kinds \
(--mode mixed). The answer is read to its end; an object counts only if its length is right and, for objects that --prepare \
wrote, every byte.

Closed loop, the default: each of --workers sends its next request when its last is done, so a slow answer delays the next \
request. Open loop, with --rate: requests start at even intervals whatever the endpoint does, and one that starts late counts \
from when it was due. Use the first to find how much an endpoint can do, the second to find how long requests take at a given \
load.

What is printed:
- objects/s and MiB/s of objects that were whole and right, from the first request's start to the last one's end
- each request: the time from its start to the last byte of its answer
- each object: the time from the object before it in the same answer (of the first, from the request's start) to its last byte, \
that is, how long whoever reads the answer waits for the next object. Of a GET it is the request's time
- client CPU: what this process took for an object, in all its threads. If it was busy all the time, the client and not the \
endpoint is what was measured: give it more --threads

Percentiles come from histograms (HDR, three digits). Failed requests are in none of them.

Objects stay where --prepare wrote them, so that the next run finds them.";

const AFTER_HELP: &str = "Examples:
  # GETs of objects that are written first
  batchgate bench --bucket bench --prepare

  # BatchGets of the same objects, alone and against GETs
  batchgate bench --bucket bench --mode batch --batch 128
  batchgate bench --bucket bench --mode batch --workers 1 --compare get --compare-workers 32

  # An open loop: 500 requests a second, however long each takes
  batchgate bench --bucket bench --rate 500 --duration 60s --json

  # Several kinds of requests, and objects of your own
  batchgate bench --bucket bench --mode mixed --mix get=80,batch=15,put=5
  batchgate bench --bucket data --from keys.txt --mode batch

Exit codes: 0 all went well, 1 some requests failed or could not be started, 2 wrong usage, 3 it could not be done, measured \
nothing, or was cut short (what was measured until then is printed).";

/// What `bench` can be told.
#[derive(Clone, Debug, Default, Args)]
#[command(about = "Measure an S3 endpoint, this gateway or any other", long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(super) aws: AwsArgs,

    /// The bucket
    #[arg(long, value_name = "NAME", help_heading = "Objects")]
    pub(super) bucket: Option<String>,
    /// What keys begin with; size and number follow, as in PREFIX10240/00000007 [default: batchgate-bench/]
    #[arg(long, value_name = "PREFIX", help_heading = "Objects")]
    pub(super) prefix: Option<String>,
    /// How many objects there are [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Objects")]
    pub(super) objects: Option<u64>,
    /// Bytes of each object, such as 10KiB; at most 256MiB [default: 10KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Objects")]
    pub(super) size: Option<u64>,
    /// Write the objects first, and the bucket, unless they are there. One that is there with another length, or with the MD5
    /// of other bytes as its ETag, is written anew
    #[arg(long, help_heading = "Objects")]
    pub(super) prepare: bool,
    /// Read these objects instead: a list as `batchgate get` takes it, whole objects of --bucket only; `-` is standard input.
    /// Their bytes are not compared
    #[arg(long, value_name = "FILE", help_heading = "Objects")]
    pub(super) from: Option<PathBuf>,
    /// Compare lengths only, not bytes
    #[arg(long, help_heading = "Objects")]
    pub(super) no_verify: bool,
    /// Of the random choice of objects; the same seed chooses the same [default: 0]
    #[arg(long, value_name = "N", help_heading = "Objects")]
    pub(super) seed: Option<u64>,

    /// Which requests are sent [default: get]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Load")]
    pub(super) mode: Option<ModeName>,
    /// Entries of each BatchGet [default: 128]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) batch: Option<usize>,
    /// Weights of the kinds of requests of --mode mixed: get, batch and put, which writes an object again as it was
    /// [default: get=90,put=10]
    #[arg(long, value_name = "WEIGHTS", help_heading = "Load")]
    pub(super) mix: Option<String>,
    /// Requests at a time [default: 8]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) workers: Option<usize>,
    /// Requests a second, in an open loop in place of workers
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) rate: Option<f64>,
    /// Most requests of an open loop under way. One that is due meanwhile is not started, and reported [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) in_flight: Option<usize>,
    /// Start requests for so long, such as 30s, then wait for those under way [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Load")]
    pub(super) duration: Option<Duration>,
    /// Send so many requests, in place of a duration
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) requests: Option<u64>,
    /// The same load for so long before anything is measured, of each mode; 0s for none [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Load")]
    pub(super) warm_up: Option<Duration>,
    /// Threads of this process, at most 256 [default: half of the cores, no more than workers]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(super) threads: Option<usize>,

    /// Measure this mode too, in turns with --mode (who goes first alternates), and print how many times as fast --mode is: the
    /// median of the rounds, the lowest and the highest. Duration or requests are those of each mode, divided over the rounds
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Comparison")]
    pub(super) compare: Option<ModeName>,
    /// Workers of the other mode [default: those of --workers]
    #[arg(long, value_name = "N", help_heading = "Comparison")]
    pub(super) compare_workers: Option<usize>,
    /// Entries of each BatchGet of the other mode [default: those of --batch]
    #[arg(long, value_name = "N", help_heading = "Comparison")]
    pub(super) compare_batch: Option<usize>,
    /// How often the two take turns, each for at least 10ms of --duration [default: 5]
    #[arg(long, value_name = "N", help_heading = "Comparison")]
    pub(super) rounds: Option<u64>,

    /// Print JSON, for scripts
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
}

/// A mode by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeName {
    /// GetObject
    Get,
    /// BatchGet
    Batch,
    /// Several kinds of requests, by --mix
    Mixed,
}
