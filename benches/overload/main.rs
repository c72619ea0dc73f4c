//! What the gateway does when it is asked for more than it can have: `cargo bench --ignore-rust-version --bench overload`. What
//! enters are names of measures (`gets`, `batches`, `fairness`, `recovery`; none means all) and `--quick` or `--json`; what
//! leaves are tables. Gateway and origin are processes of their own: this program is the origin too, by its first argument, and
//! the clients. Capacity is set by the origin's delay and concurrency, so that nobody here is short of CPU.
//!
//! Invariant: a wrong byte or memory over its bound fails the run; a time or a share never does.
//!
//! In reading order: `rig` (what is measured), `client` (one request, with its patience), `drive` (how requests follow one
//! another), `log` (what came of them), `watch` (the admin port meanwhile), then the measures `goodput`, `fairness` and
//! `recovery`; then [`common`].

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a bench is for")]

mod client;
#[expect(dead_code, reason = "other benches use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod drive;
mod fairness;
mod goodput;
mod log;
mod recovery;
mod rig;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use client::What;
use common::Fallible;
use common::run::Bench;
use common::table::Table;
use rig::Effort;

/// Entries of the batches whose goodput is measured.
const BATCH: u64 = 64;

const BENCH: Bench<Effort> = Bench {
    name: "overload",
    full: Effort::FULL,
    quick: Effort::QUICK,
    measures: &[
        ("gets", |effort| on_one_thread(goodput::measure(effort, What::Get, Duration::from_secs(5)))),
        ("gets", |effort| on_one_thread(goodput::measure(effort, What::Get, Duration::from_secs(1)))),
        ("batches", |effort| on_one_thread(goodput::measure(effort, What::Batch(BATCH), Duration::from_secs(5)))),
        ("fairness", |effort| on_one_thread(fairness::measure(effort))),
        ("recovery", |effort| on_one_thread(recovery::measure(effort))),
    ],
    load: None,
    note: || Some(("about", rig::ABOUT.to_owned())),
};

fn main() -> ExitCode {
    BENCH.main()
}

/// So that the clients take one core at the most.
fn on_one_thread(measure: impl Future<Output = Fallible<Table>>) -> Fallible<Table> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure)
}
