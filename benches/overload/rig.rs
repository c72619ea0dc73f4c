//! What is measured: an origin that answers few requests at once and each after a while, and a gateway with as many permits.
//! What enters is nothing but how thorough to be; what leaves are running processes, clients of theirs, and rows about memory.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::common::process::{ANYWHERE, Process};
use crate::common::table::{Goal, Meant, Samples};
use crate::common::{Fallible, MIB, mib, names};

/// In words.
pub const ABOUT: &str = "the origin answers 16 requests at once, each after 20 ms, and so 800 a second at most; \
                         the gateway has 16 permits for it and else its defaults, but 128 MiB of server.memory_bytes_max";

/// Requests that the origin answers at once, and permits of the gateway.
const CONCURRENCY: usize = 16;

/// How long the origin takes for each.
const DELAY_MS: u64 = 20;

/// `server.memory_bytes_max`.
const BUDGET: u64 = 128 * MIB;

/// What memory may be used beside the budget, in bytes.
const BESIDE_BUDGET: u64 = 64 * MIB;

/// How thorough to be.
#[derive(Clone, Copy)]
pub struct Effort {
    divisor: u32,
}

impl Effort {
    /// For figures.
    pub const FULL: Self = Self { divisor: 1 };
    /// To see that it works.
    pub const QUICK: Self = Self { divisor: 4 };

    /// So many seconds, or fewer.
    pub fn seconds(self, full: u32) -> Duration {
        Duration::from_secs(full.into()) / self.divisor
    }
}

/// Gateway and origin.
pub struct Rig {
    /// In a process of its own.
    pub gateway: Process,
    origin: Option<Process>,
}

impl Rig {
    /// Starts both.
    pub fn start() -> Fallible<Self> {
        let origin = Process::origin(ANYWHERE, CONCURRENCY)?;
        let server = format!("memory_bytes_max = {BUDGET}\n[batch]\nbody_bytes_max = \"1MiB\"");
        let gateway = Process::gateway(origin.address, &server, &format!("concurrency = {CONCURRENCY}"))?;
        Ok(Self { gateway, origin: Some(origin) })
    }

    /// A client that gives each request up after `patience`.
    pub fn client(&self, patience: Duration) -> Fallible<Arc<Client>> {
        Ok(Arc::new(Client::new(self.gateway.listening("s3")?, names::bucket(DELAY_MS), patience)?))
    }

    /// Ends the origin, which refuses connections from now on, and lets it come back at its address after `outage`.
    pub async fn break_for(&mut self, outage: Duration) -> Fallible<()> {
        let address = self.origin.take().expect("it runs between outages").address;
        tokio::time::sleep(outage).await;
        self.origin = Some(Process::origin(address, CONCURRENCY)?);
        Ok(())
    }

    /// The gateway's peak memory beside its budget, and what is wrong with it.
    pub fn memory(&self) -> Fallible<(Goal, Option<String>)> {
        let (peak, bound) = (self.gateway.peak_bytes()?, BUDGET + BESIDE_BUDGET);
        let goal = Goal {
            what: format!("peak memory of the gateway in MiB, whose budget is {}", BUDGET / MIB),
            samples: Samples::new(vec![mib(peak)]),
            meant: Meant::AtMost(mib(bound)),
        };
        let broken = (peak > bound).then(|| format!("the peak of {} MiB is over the bound of {}", peak / MIB, bound / MIB));
        Ok((goal, broken))
    }
}
