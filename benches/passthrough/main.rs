//! What plain requests cost on their way through the gateway, beside nginx with `proxy_pass` and beside no proxy at all, as
//! ratios inside one run: `cargo bench --ignore-rust-version --bench passthrough`. What enters are names of measures (`10KiB`,
//! `1MiB`, `64MiB`, `memory`; none means all) and `--quick` or `--json`; what leaves are tables. Gateway, nginx, simulated
//! origin and load are processes of their own: this program is the last two as well, by its first argument. Where nginx is not
//! installed its rows are left out.
//! Invariant: a wrong byte, a wrong answer or memory over its bound fails the run; a time never does.
//!
//! In reading order: [`measures`] (what is compared with what), `load` (what the client does), `nginx`; then [`common`].

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a bench is for")]

#[expect(dead_code, reason = "other benches use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod load;
mod measures;
mod nginx;

use std::process::ExitCode;

use common::rounds::Effort;
use common::run::Bench;
use measures::{LARGE, MEDIUM, SMALL};

const BENCH: Bench<Effort> = Bench {
    name: "passthrough",
    full: Effort { rounds: 7, memory_rounds: 3, divisor: 1 },
    quick: Effort { rounds: 1, memory_rounds: 1, divisor: 4 },
    measures: &[
        ("10KiB", |effort| measures::cost(effort, &SMALL)),
        ("1MiB", |effort| measures::cost(effort, &MEDIUM)),
        ("64MiB", |effort| measures::cost(effort, &LARGE)),
        ("memory", measures::memory),
    ],
    load: Some(load::run),
    note: || {
        let beside = nginx::version().unwrap_or_else(|| "no nginx here, so there is nothing beside the gateway".to_owned());
        Some(("beside", beside))
    },
};

fn main() -> ExitCode {
    BENCH.main()
}
