//! What the benches have in common. In reading order: [`run`] (arguments, roles, what is printed), [`rounds`] (what is compared
//! takes turns), [`table`] (figures), [`load`] (the client's process); then what is asked: `process` (the gateway and the
//! origin), `origin`, `names`.

pub mod load;
pub mod names;
pub mod origin;
pub mod process;
pub mod rounds;
pub mod run;
pub mod table;

use std::time::SystemTime;

/// Whatever goes wrong here ends the run with its message.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A failure with this message.
pub fn fail<T>(what: impl Into<String>) -> Fallible<T> {
    Err(what.into().into())
}

/// Bytes of a KiB.
pub const KIB: u64 = 1024;
/// Bytes of a MiB.
pub const MIB: u64 = 1024 * KIB;

/// So many bytes in MiB.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// The time to sign with.
#[expect(clippy::disallowed_methods, reason = "a client reads the system's clock")]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}
