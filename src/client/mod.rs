//! A client of BatchGet, for the command line and for Rust programs. Reading order: [`entry`] (what is asked for),
//! [`endpoint`] (one signed request to where `url` says, one answer), [`reader`] (the octets of an answer as parts, strictly),
//! [`error`] (why there is no answer), [`many`] (any number of entries, tried again where it helps).
//!
//! An [`Endpoint`] never tries twice; what retries stands above it. Invariant: what is handed out as whole is whole.

mod count;
pub mod endpoint;
pub mod entry;
pub mod error;
mod gets;
pub mod many;
mod pace;
pub mod reader;
mod url;

pub use endpoint::{Answer, Capabilities, Endpoint, EndpointConfig};
pub use entry::{BatchRequest, Entry, OnError, Order};
pub use error::{ClientError, printable};
pub use many::{Many, ManyConfig};
pub use reader::{Event, Owed, PartHead, Summary};
