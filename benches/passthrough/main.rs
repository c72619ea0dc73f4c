//! What plain requests cost on their way through the gateway, beside nginx with `proxy_pass` and beside no proxy at all, as
//! ratios inside one run: `cargo bench --ignore-rust-version --bench passthrough`. What enters are names of measures (`10KiB`,
//! `1MiB`, `64MiB`, `memory`; none means all) and `--quick` or `--json`; what leaves are tables. Gateway, nginx, simulated
//! origin and load are processes of their own: this program is the last two as well, by its first argument. Where nginx is not
//! installed its rows are left out.
//! Invariant: a wrong byte, a wrong answer or memory over its bound fails the run; a time never does.
//!
//! In reading order: [`measures`] (what is compared with what), `load` (the client), `nginx`; shared with the other benches:
//! `process` (what is measured), `origin` and `names` (the other end), `table`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a bench is for")]

mod load;
mod measures;
#[path = "../common/names.rs"]
mod names;
mod nginx;
#[path = "../common/origin.rs"]
mod origin;
#[expect(dead_code, reason = "other benches use more of it")]
#[path = "../common/process.rs"]
mod process;
#[expect(dead_code, reason = "other benches use more of it")]
#[path = "../common/table.rs"]
mod table;

use std::process::ExitCode;

use serde_json::json;

use measures::{Effort, LARGE, MEDIUM, SMALL};
use table::Table;

/// Whatever goes wrong here ends the run with its message.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A failure with this message.
pub fn fail<T>(what: impl Into<String>) -> Fallible<T> {
    Err(what.into().into())
}

const FULL: Effort = Effort { rounds: 7, memory_rounds: 3, divisor: 1 };
const QUICK: Effort = Effort { rounds: 1, memory_rounds: 1, divisor: 4 };

/// A measure by its name.
type Measure = (&'static str, fn(Effort) -> Fallible<Table>);

const MEASURES: &[Measure] = &[
    ("10KiB", |effort| measures::cost(effort, &SMALL)),
    ("1MiB", |effort| measures::cost(effort, &MEDIUM)),
    ("64MiB", |effort| measures::cost(effort, &LARGE)),
    ("memory", measures::memory),
];

const USAGE: &str = "usage: passthrough [--quick] [--json] [10KiB | 1MiB | 64MiB | memory]...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["origin", address, concurrency] => origin::run(address, concurrency),
        ["load", job] => load::run(job),
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
    let (mut effort, mut as_json, mut names) = (FULL, false, Vec::new());
    for arg in args {
        match *arg {
            "--quick" => effort = QUICK,
            "--json" => as_json = true,
            // Cargo says so to every bench.
            "--bench" => {}
            name if MEASURES.iter().any(|(known, _)| *known == name) => names.push(name),
            other => return fail(format!("`{other}` is unknown; {USAGE}")),
        }
    }
    let cores = std::thread::available_parallelism()?.get();
    let beside = nginx::version().unwrap_or_else(|| "no nginx here, so there is nothing beside the gateway".to_owned());
    if !as_json {
        println!("passthrough bench on {cores} cores, over loopback; {beside}\n");
    }
    let (mut tables, mut broken) = (Vec::new(), None);
    for (_, measure) in MEASURES.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        let table = measure(effort)?;
        if as_json {
            tables.push(table.to_json());
        } else {
            println!("{}", table.to_text());
        }
        broken = broken.or(table.broken);
    }
    if as_json {
        println!("{}", json!({"cores": cores, "beside": beside, "measures": tables}));
    }
    broken.map_or(Ok(()), fail)
}
