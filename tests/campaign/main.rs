//! A seeded campaign of faults over real sockets: `tests/run campaign [arguments]`. Clients of every kind ask a gateway whose
//! store is behind a proxy that does whatever a network or a store may do wrong, and everything that comes back is judged.
//! What enters are arguments; what leaves is a table and the exit code, 1 if an invariant did not hold.
//!
//! In reading order: [`faults`] (what goes wrong, from a seed), [`plan`] (what is asked, from a seed), [`world`] (what the store
//! holds), [`judge`] (what is right), [`proxy`] and [`wire`] (the faults themselves), [`client`] and [`ops`] (who asks and has
//! it judged), [`gateway`] (processes), [`watch`] and [`report`] (what was found), [`plant`] (that it can be found), [`run`].

#![expect(
    dead_code,
    unused_imports,
    reason = "without a harness the tests of the parts are not there, but their helpers and imports are"
)]

mod args;
mod client;
mod faults;
mod gateway;
mod judge;
mod ops;
mod plan;
mod plant;
mod proxy;
mod report;
mod run;
mod watch;
mod wire;
mod world;

use std::process::ExitCode;

/// Whatever keeps the campaign itself from going on ends it with its message.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A failure with this message.
pub fn fail<T>(what: impl Into<String>) -> Fallible<T> {
    Err(what.into().into())
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let args = match args::Args::parse(&given) {
        Ok(args) => args,
        Err(why) if why.is_empty() => {
            report::print(format!("{}\n", args::USAGE));
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            report::say(format!("{why}\n\n{}", args::USAGE));
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be made");
    let done = runtime.block_on(async {
        // What is dropped then ends its processes.
        tokio::select! {
            done = run::run(&args) => done,
            () = told_to_end() => fail("it was told to end"),
        }
    });
    runtime.shutdown_background();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            report::say(format!("the campaign cannot go on: {error}"));
            ExitCode::from(3)
        }
    }
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let [Ok(mut terminate), Ok(mut interrupt)] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
