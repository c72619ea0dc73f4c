//! Batchgate: a stateless S3-compatible gateway with BatchGet. Rooms in the order in which they depend on one another; an
//! import may only point up this list, never down (`tests/tidy.rs` holds it so).

pub mod types;

pub mod error;

pub mod budget;
pub mod checksum;
pub mod config;
pub mod peer;
pub mod stall;
pub mod telemetry;

pub mod backend;

pub mod auth;
pub mod client;
pub mod route;

pub mod batch;
pub mod passthrough;

pub mod edge;

pub mod app;

pub mod cli;
