//! The tests of the campaign's parts, which `cargo test` runs: what it draws, what it judges and what it plants. The campaign
//! itself is `main.rs`.

#![expect(dead_code, reason = "all of the campaign is here, and only its tests are run")]

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

/// As in `main.rs`.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// As in `main.rs`.
pub fn fail<T>(what: impl Into<String>) -> Fallible<T> {
    Err(what.into().into())
}
