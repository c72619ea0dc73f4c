//! `batchgate demo`: the first minute. Starts a gateway and an embedded store in this process, writes objects with a stock S3
//! client, reads them in several ways over real HTTP, compares every byte, and prints what was how fast. What enters is a
//! handful of arguments; what leaves is a story of a screen on the writer it is given, and the exit code.

mod stock;
mod ways;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::serve::{Signals, first_identity};
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, complain};
use crate::app::{self, Running};
use crate::config::{
    BackendConfig, IdentityConfig, RouteConfig, Settings, format_duration, format_size, parse_duration, parse_size,
};
use crate::load::Keys;
use crate::load::report::length;
use crate::telemetry::start_logging;
use stock::Stock;
use ways::{Way, Ways};

/// Where the objects are.
const BUCKET: &str = "demo";

/// How long each way of reading is measured.
const MEASURED: Duration = Duration::from_secs(1);

/// How many objects are written at a time, and read by those clients that read many at a time.
const WORKERS: usize = 32;

/// Entries of the BatchGets that are compared; the last is cut to the number of objects.
const BATCHES: [usize; 3] = [32, 128, 1000];

/// Most bytes that the objects may have together: the embedded store lives in memory.
const BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Most objects: more would take minutes to write.
const OBJECTS_MAX: u64 = 50_000;

/// Latest answers of the store; the gateway gives up on a store that is not much later.
const LATENCY_MAX: Duration = Duration::from_secs(2);

/// Most objects that are written at a time to a store that answers late.
const WRITERS_MAX: usize = 256;

/// Longest time that writing may wait for a store that answers late.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);

/// From this time on, what takes long is announced.
const LONG: Duration = Duration::from_secs(3);

/// What `demo` can be told.
#[derive(Clone, Debug, Args)]
#[command(
    about = "Try it: a gateway, a store and a measurement in one command",
    long_about = "Try it: starts a gateway and a store that lives in memory on free loopback ports, writes objects with a stock S3 \
                  client (the AWS SDK for Rust), reads them back by GET and by BatchGet, compares every byte and prints how fast \
                  each way was.\n\nEverything is real: HTTP, signatures, bytes. Nothing outside this process is touched, and nothing is left behind.",
    after_help = "Examples:\n  batchgate demo\n\n  # As if the store were remote\n  batchgate demo --backend-latency 5ms\n\n  \
                  # And keep it for your own tools\n  batchgate demo --serve\n\n  \
                  batchgate demo --objects 5000 --size 4KiB\n\n\
                  Exit codes: 0 all went well, 2 wrong usage, 3 it could not be done."
)]
pub struct DemoArgs {
    /// How many objects are written and read, at most 50000
    #[arg(long, value_name = "NUMBER", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=OBJECTS_MAX))]
    objects: u64,
    /// Bytes of each object, such as 10KiB
    #[arg(long, value_name = "SIZE", default_value = "10KiB", value_parser = parse_size)]
    size: u64,
    /// How long the store waits before each answer, such as 5ms; at most 2s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    backend_latency: Duration,
    /// Keep serving afterwards, until Ctrl-C
    #[arg(long)]
    serve: bool,
}

/// What is written and read.
pub struct Objects {
    /// Where.
    pub bucket: &'static str,
    /// Which objects.
    pub keys: Keys,
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub size: u64,
}

/// Runs the demo to its end.
///
/// # Errors
/// Only those of `out`.
pub fn run(args: &DemoArgs, out: &mut dyn Write) -> io::Result<u8> {
    if let Err(what) = is_too_much(args) {
        return Ok(complain(&what, EXIT_USAGE));
    }
    if let Err(what) = start_logging("error", false) {
        return Ok(complain(&what, EXIT_FAILED));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let story = tell(args, out);
        tokio::select! {
            told = story => match told? {
                Ok(running) => finish(args, running, &mut signals).await,
                Err(what) => Ok(complain(&what, EXIT_FAILED)),
            },
            () = signals.told() => Ok(complain("interrupted", EXIT_FAILED)),
        }
    });
    runtime.shutdown_background();
    done
}

/// Why this is more than a demo can be.
fn is_too_much(args: &DemoArgs) -> Result<(), String> {
    if args.size.saturating_mul(args.objects) > BYTES_MAX {
        return Err(format!(
            "--objects times --size is more than the demo's store in memory takes ({}); give fewer or smaller objects",
            format_size(BYTES_MAX)
        ));
    }
    let latency = format_duration(args.backend_latency);
    if args.backend_latency > LATENCY_MAX {
        return Err(format!("--backend-latency {latency} is too long for a demo: give at most {}", format_duration(LATENCY_MAX)));
    }
    let (_, wait) = writers(args);
    if wait > WRITE_WAIT_MAX {
        return Err(format!(
            "to write {} objects to a store that answers {latency} late takes {} s: give fewer --objects or less --backend-latency",
            thousands(args.objects),
            wait.as_secs()
        ));
    }
    Ok(())
}

/// How many objects are written at a time, so many that the store's lateness costs a second or little more; and what it costs.
fn writers(args: &DemoArgs) -> (usize, Duration) {
    let late = args.backend_latency.as_secs_f64() * args.objects as f64;
    let writers = (late.ceil() as usize).clamp(WORKERS, WRITERS_MAX);
    // The bucket comes before them.
    let turns = 1 + args.objects.div_ceil(writers as u64);
    (writers, args.backend_latency.mul_f64(turns as f64))
}

/// Serves on if that was asked for, then ends the gateway.
async fn finish(args: &DemoArgs, running: Running, signals: &mut Signals) -> io::Result<u8> {
    if args.serve {
        signals.told().await;
    }
    running.finish(signals.told()).await;
    Ok(EXIT_OK)
}

/// The whole story; gives the gateway that still runs, or why it could not be told to its end.
async fn tell(args: &DemoArgs, out: &mut dyn Write) -> io::Result<Result<Running, String>> {
    let identity = first_identity();
    let running = match start(args, identity.clone()).await {
        Ok(running) => running,
        Err(what) => return Ok(Err(what)),
    };
    let address = running.listening.first().copied().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let url = format!("http://{address}");
    let keys = Keys::Made { prefix: "samples/".into(), count: args.objects, size: args.size };
    let first_key = keys.key(0);
    let objects = Arc::new(Objects { bucket: BUCKET, keys, count: args.objects, size: args.size });
    let latency = match args.backend_latency {
        Duration::ZERO => "answers at once (try --backend-latency 5ms)".to_owned(),
        latency => format!("answers {} late, as a remote one", format_duration(latency)),
    };
    writeln!(out, "One request, many objects: BatchGet against GETs, over real HTTP with real signatures.\n")?;
    writeln!(out, "  store     in memory, in this process; {latency}")?;
    writeln!(out, "  gateway   {url}, in this process too; all requests below go through it")?;
    let stock = Stock::new(&url, &identity.access_key, identity.secret_key.expose(), Arc::clone(&objects));
    let (writers, wait) = writers(args);
    if wait >= LONG {
        writeln!(out, "  writing   takes {} s or more, since the store is that late", wait.as_secs())?;
    }
    let started = Instant::now();
    if let Err(what) = stock.write(writers).await {
        return Ok(Err(what));
    }
    let seconds = started.elapsed().as_secs_f64();
    writeln!(
        out,
        "  objects   {} of {}, written by the AWS SDK for Rust in {seconds:.1} s\n",
        thousands(args.objects),
        length(args.size)
    )?;
    // What is under way when the time is over is waited for.
    let at_least = if args.backend_latency * 10 > MEASURED { "at least " } else { "" };
    writeln!(out, "Reading them, {at_least}{} s each way, comparing every byte:\n", MEASURED.as_secs())?;
    writeln!(out, "  {:<42} {:>11} {:>10}", "", "objects/s", "speed-up")?;
    let ways = match Ways::new(&url, &identity, stock, objects) {
        Ok(ways) => ways,
        Err(what) => return Ok(Err(what)),
    };
    let (mut first, mut gets, mut batches) = (None, 0.0_f64, 0.0_f64);
    for way in compared(args.objects) {
        let rate = match ways.measure(way, MEASURED).await {
            Ok(rate) => rate,
            Err(what) => return Ok(Err(format!("{way}: {what}"))),
        };
        let speed_up = rate / *first.get_or_insert(rate);
        let best = if matches!(way, Way::Batch { .. }) { &mut batches } else { &mut gets };
        *best = best.max(rate);
        writeln!(out, "  {:<42} {:>11} {:>9.1}x", way.to_string(), figure(rate), speed_up)?;
        out.flush()?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    writeln!(
        out,
        "\nBatchGets go one after another. Speed-up is against the first line; against the fastest GETs, the fastest BatchGet is"
    )?;
    writeln!(out, "{:.1}x. Client, gateway and store share the {cores} cores of this machine.", batches / gets)?;
    if cfg!(debug_assertions) {
        writeln!(out, "This is a debug build, whose figures say little: `cargo run --release` makes one that is worth measuring.")?;
    }
    next(args, out, &url, &identity, &first_key)?;
    out.flush()?;
    Ok(Ok(running))
}

/// The ways that are compared, the one that others are measured by first.
fn compared(objects: u64) -> Vec<Way> {
    let mut ways = vec![Way::Stock { workers: 1 }, Way::Stock { workers: WORKERS }, Way::Bare { workers: WORKERS }];
    let mut entries = BATCHES.map(|entries| entries.min(objects as usize)).to_vec();
    entries.dedup();
    ways.extend(entries.into_iter().map(|entries| Way::Batch { entries }));
    ways
}

/// What to type next.
fn next(args: &DemoArgs, out: &mut dyn Write, url: &str, identity: &IdentityConfig, first_key: &str) -> io::Result<()> {
    if args.serve {
        writeln!(out, "\nIt keeps serving until Ctrl-C. From another terminal:\n")?;
        writeln!(out, "  export AWS_ENDPOINT_URL={url} AWS_DEFAULT_REGION=us-east-1")?;
        writeln!(out, "  export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}", identity.access_key, identity.secret_key.expose())?;
        writeln!(out, "  batchgate get s3://{BUCKET}/{first_key} --out .")?;
        return writeln!(out, "  batchgate bench --bucket {BUCKET} --prepare --mode batch --compare get");
    }
    writeln!(out, "\nNext:\n")?;
    if args.backend_latency.is_zero() {
        writeln!(out, "  batchgate demo --backend-latency 5ms               the same with a store that is remote")?;
    }
    writeln!(out, "  batchgate demo --serve                             keep it running for your own tools")?;
    writeln!(out, "  batchgate serve --backend http://127.0.0.1:8333    in front of your own store")
}

async fn start(args: &DemoArgs, identity: IdentityConfig) -> Result<Running, String> {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut settings = Settings::default();
    settings.server.listen = vec![any];
    settings.admin.listen = any;
    settings.backends = vec![BackendConfig { latency: args.backend_latency, ..BackendConfig::embedded("memory") }];
    settings.routes = vec![RouteConfig { bucket: "*".to_owned(), backend: "memory".to_owned(), rename: None }];
    settings.identities = vec![identity];
    let app = app::build(&settings, String::new()).await.map_err(|e| e.to_string())?;
    app.spawn().await.map_err(|e| e.to_string())
}

/// A rate: `12,345`, or `0.5` where a whole number would say little.
fn figure(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { thousands(rate.round() as u64) }
}

/// `12,345`
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let all = [0, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn slow_rates_have_a_decimal() {
        assert_eq!([0.46, 9.94, 9.96, 1234.5].map(figure), ["0.5", "9.9", "10", "1,235"]);
    }

    #[test]
    fn what_would_take_long_is_written_by_more_or_refused() {
        let of = |objects, millis| DemoArgs { objects, size: 1, backend_latency: Duration::from_millis(millis), serve: false };
        let wait = |objects, millis| writers(&of(objects, millis));
        assert_eq!(wait(2000, 0), (32, Duration::ZERO));
        assert_eq!(wait(2000, 5), (32, Duration::from_millis(320)));
        assert_eq!(wait(2000, 50), (100, Duration::from_millis(1050)));
        assert_eq!(wait(2000, 2000), (256, Duration::from_secs(18)));
        assert!(is_too_much(&of(2000, 2000)).is_ok() && is_too_much(&of(50_000, 100)).is_ok());
        assert!(is_too_much(&of(1, 2001)).is_err_and(|what| what.contains("at most 2s")));
        assert!(is_too_much(&of(50_000, 1000)).is_err_and(|what| what.contains("takes 197 s: give fewer --objects")));
    }

    #[test]
    fn no_batch_asks_for_more_than_there_is_and_none_comes_twice() {
        let batches = |objects| compared(objects)[3..].to_vec();
        let of = |entries| Way::Batch { entries };
        assert_eq!(batches(2000), [of(32), of(128), of(1000)]);
        assert_eq!(batches(100), [of(32), of(100)]);
        assert_eq!(batches(1), [of(1)]);
    }
}
