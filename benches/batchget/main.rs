//! What the gateway costs and gains, as ratios inside one run: `cargo bench --ignore-rust-version --bench batchget`. What enters
//! are names of measures (`cpu`, `speed`, `memory`; none means all) and `--quick` or `--json`; what leaves are tables. Gateway,
//! simulated origin and load are processes of their own: this program is the last two as well, by its first argument.
//! Invariant: a wrong byte, a missing part or memory over its bound fails the run; a time never does.
//!
//! In reading order: [`measures`] (what is compared with what), `load` (what the client does); then [`common`].

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a bench is for")]

#[path = "../common/mod.rs"]
mod common;
mod load;
mod measures;

use std::process::ExitCode;

use common::rounds::Effort;
use common::run::Bench;

const BENCH: Bench<Effort> = Bench {
    name: "batchget",
    full: Effort { rounds: 5, memory_rounds: 3, divisor: 1 },
    quick: Effort { rounds: 1, memory_rounds: 1, divisor: 8 },
    measures: &[
        ("cpu", measures::cpu),
        ("speed", |effort| measures::speed(effort, 0)),
        ("speed", |effort| measures::speed(effort, 5)),
        ("memory", measures::memory),
    ],
    load: Some(load::run),
    note: || None,
};

fn main() -> ExitCode {
    BENCH.main()
}
