//! What the gateway does when it is asked for more than it can have: `cargo bench --ignore-rust-version --bench overload`. What
//! enters are names of measures (`gets`, `batches`, `fairness`, `recovery`; none means all) and `--quick` or `--json`; what
//! leaves are tables. Gateway and origin are processes of their own: this program is the origin too, by its first argument, and
//! the clients. Capacity is set by the origin's delay and concurrency, so that nobody here is short of CPU.
//!
//! Invariant: a wrong byte or memory over its bound fails the run; a time or a share never does.
//!
//! In reading order: `rig` (what is measured), `client` (one request, with its patience), `drive` (how requests follow one
//! another), `log` (what came of them), `watch` (the admin port meanwhile), then the measures `goodput`, `fairness` and
//! `recovery`; shared with the other bench: `process`, `origin`, `names`, `table`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a bench is for")]

mod client;
mod drive;
mod fairness;
mod goodput;
mod log;
#[path = "../common/names.rs"]
mod names;
#[path = "../common/origin.rs"]
mod origin;
#[path = "../common/process.rs"]
mod process;
mod recovery;
mod rig;
#[path = "../common/table.rs"]
mod table;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::json;

use client::What;
use rig::Effort;
use table::Table;

/// Whatever goes wrong here ends the run with its message.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A failure with this message.
pub fn fail<T>(what: impl Into<String>) -> Fallible<T> {
    Err(what.into().into())
}

/// A measure by its name.
type Measure = (&'static str, fn(Effort) -> LocalBoxFuture<'static, Fallible<Table>>);

/// Entries of the batches whose goodput is measured.
const BATCH: u64 = 64;

const MEASURES: &[Measure] = &[
    ("gets", |effort| Box::pin(goodput::measure(effort, What::Get, Duration::from_secs(5)))),
    ("gets", |effort| Box::pin(goodput::measure(effort, What::Get, Duration::from_secs(1)))),
    ("batches", |effort| Box::pin(goodput::measure(effort, What::Batch(BATCH), Duration::from_secs(5)))),
    ("fairness", |effort| Box::pin(fairness::measure(effort))),
    ("recovery", |effort| Box::pin(recovery::measure(effort))),
];

const USAGE: &str = "usage: overload [--quick] [--json] [gets | batches | fairness | recovery]...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["origin", address, concurrency] => origin::run(address, concurrency),
        args => bench(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &[&str]) -> Fallible<()> {
    let (mut effort, mut as_json, mut names) = (Effort::FULL, false, Vec::new());
    for arg in args {
        match *arg {
            "--quick" => effort = Effort::QUICK,
            "--json" => as_json = true,
            // Cargo says so to every bench.
            "--bench" => {}
            name if MEASURES.iter().any(|(known, _)| *known == name) => names.push(name),
            other => return fail(format!("`{other}` is unknown; {USAGE}")),
        }
    }
    let cores = std::thread::available_parallelism()?.get();
    if !as_json {
        println!("overload bench on {cores} cores, over loopback; {}\n", rig::ABOUT);
    }
    // One thread, so that the clients take one core at the most.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut tables, mut broken) = (Vec::new(), None);
    for (_, measure) in MEASURES.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        let table = runtime.block_on(measure(effort))?;
        if as_json {
            tables.push(table.to_json());
        } else {
            println!("{}", table.to_text());
        }
        broken = broken.or(table.broken);
    }
    if as_json {
        println!("{}", json!({"cores": cores, "measures": tables}));
    }
    broken.map_or(Ok(()), fail)
}
