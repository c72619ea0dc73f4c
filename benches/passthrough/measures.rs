//! The measures. What enters is how thorough to be; what leaves are tables. Times are printed and never asserted; bytes and
//! answers are asserted by the load and the origin, the bound of memory here.

use std::net::SocketAddr;

use crate::common::load::spawn;
use crate::common::process::{ANYWHERE, Process};
use crate::common::rounds::{Effort, Mode, take_turns};
use crate::common::table::{Goal, Meant, Samples, Table};
use crate::common::{Fallible, KIB, MIB, mib};
use crate::load::{Job, Outcome, What};
use crate::nginx::Nginx;

/// Settings of the gateway besides the defaults: no log of requests, as nginx has none.
const SETTINGS: &str = "[log]\naccess = false";

/// Objects of one size.
pub struct Size {
    name: &'static str,
    bytes: u64,
    /// Requests that are under way at once.
    workers: u64,
    /// Requests of a round.
    requests: u64,
    /// The most that the gateway may take of nginx's CPU time.
    goal: f64,
}

/// Requests, and hardly bytes.
pub const SMALL: Size = Size { name: "10 KiB", bytes: 10 * KIB, workers: 32, requests: 16_000, goal: 1.2 };
/// As SDKs part large objects, nearly.
pub const MEDIUM: Size = Size { name: "1 MiB", bytes: MIB, workers: 8, requests: 1_000, goal: 1.0 };
/// Bytes, and hardly requests.
pub const LARGE: Size = Size { name: "64 MiB", bytes: 64 * MIB, workers: 4, requests: 24, goal: 1.0 };

/// Requests that are under way at once where memory is measured.
const MEMORY_WORKERS: u64 = 8;

/// By how much more the gateway's peak of memory may be for large objects than for small ones. One of those that are under way
/// is more.
const MEMORY_MORE: u64 = 32 * MIB;

/// What is asked for, one after another.
const ASKED: [(What, &str); 3] =
    [(What::Get, "GET"), (What::PutSigned, "PUT, SHA-256 signed"), (What::PutUnsigned, "PUT, body unsigned")];

fn job(size: &Size, address: SocketAddr, what: What, watched: Vec<u32>, divisor: u64) -> Job {
    let requests = (size.requests / divisor).max(size.workers);
    Job { address, what, size: size.bytes, workers: size.workers, warm_up: size.workers * 2, requests, watched }
}

fn micros(outcome: &Outcome) -> f64 {
    outcome.cpu_seconds / outcome.requests as f64 * 1e6
}

fn requests_a_second(outcome: &Outcome) -> f64 {
    outcome.requests as f64 / outcome.seconds
}

fn mib_a_second(outcome: &Outcome) -> f64 {
    mib(outcome.bytes) / outcome.seconds
}

/// CPU time of a proxy for a request with an object of `size`, and how fast such requests are.
pub fn cost(effort: Effort, size: &Size) -> Fallible<Table> {
    let origin = Process::origin(ANYWHERE, usize::MAX)?;
    let gateway = Process::gateway(origin.address, SETTINGS, "")?;
    let cores = std::thread::available_parallelism()?.get();
    let nginx = Nginx::start(origin.address, cores)?;
    let mut ways = vec![("straight to the origin", origin.address, Vec::new())];
    ways.extend(nginx.as_ref().map(|nginx| ("through nginx", nginx.address, nginx.pids.clone())));
    ways.push(("through the gateway", gateway.address, vec![gateway.pid()]));
    let mut modes: Vec<Mode<Job, Outcome>> = Vec::new();
    for (what, name) in ASKED {
        for (way, address, watched) in &ways {
            let job = job(size, *address, what, watched.clone(), effort.divisor);
            modes.push(Mode::new(format!("{name}, {way}"), job));
        }
    }
    take_turns(&mut modes, effort.rounds, spawn)?;
    let mut goals = Vec::new();
    let goal = |what: String, samples, meant| Goal { what, samples, meant };
    for (compared, (_, name)) in modes.chunks(ways.len()).zip(ASKED) {
        if let [direct, nginx, gateway] = compared {
            let meant = Meant::AtMost(size.goal);
            goals.push(goal(format!("{name}: CPU of the gateway / of nginx"), gateway.ratio(nginx, micros), meant));
            let speed = gateway.ratio(nginx, requests_a_second);
            goals.push(goal(format!("{name}: requests/s through the gateway / through nginx"), speed, Meant::Anything));
            let speed = gateway.ratio(direct, requests_a_second);
            goals.push(goal(format!("{name}: requests/s through the gateway / straight"), speed, Meant::Anything));
        } else if let [direct, gateway] = compared {
            let speed = gateway.ratio(direct, requests_a_second);
            goals.push(goal(format!("{name}: requests/s through the gateway / straight"), speed, Meant::Anything));
        }
    }
    let rows = modes.iter().map(|mode| {
        let cpu = (!mode.job.watched.is_empty()).then(|| mode.samples(micros));
        (mode.what.clone(), vec![cpu, Some(mode.samples(requests_a_second)), Some(mode.samples(mib_a_second))])
    });
    Ok(Table {
        name: size.name,
        about: format!("{} requests a round, {} at once, client and origin on 1 thread each", modes[0].job.requests, size.workers),
        columns: vec!["proxy CPU us/request", "requests/s", "MiB/s"],
        rows: rows.collect(),
        goals,
        broken: None,
    })
}

/// Peak memory of a fresh gateway, for small objects and for large ones.
pub fn memory(effort: Effort) -> Fallible<Table> {
    let origin = Process::origin(ANYWHERE, usize::MAX)?;
    let (mut rows, mut goals, mut broken) = (Vec::new(), Vec::new(), None);
    for (what, name) in ASKED {
        let mut peaks: [Vec<u64>; 2] = Default::default();
        for _ in 0..effort.memory_rounds {
            for (size, peaks) in [&SMALL, &LARGE].into_iter().zip(&mut peaks) {
                let gateway = Process::gateway(origin.address, SETTINGS, "")?;
                let job = job(size, gateway.address, what, Vec::new(), effort.divisor);
                spawn::<_, Outcome>(&Job { workers: MEMORY_WORKERS, requests: job.requests.max(MEMORY_WORKERS), ..job })?;
                peaks.push(gateway.peak_bytes()?);
            }
        }
        let [small, large] = peaks;
        let highest = small.iter().zip(&large).map(|(small, large)| large.saturating_sub(*small)).max().unwrap_or(0);
        if highest > MEMORY_MORE {
            broken = Some(format!("{name}: the peak is {} MiB more for large objects than for small ones", highest / MIB));
        }
        let more = small.iter().zip(&large).map(|(small, large)| mib(*large) - mib(*small)).collect();
        goals.push(Goal {
            what: format!("{name}: MiB more for 64 MiB than for 10 KiB"),
            samples: Samples::new(more),
            meant: Meant::AtMost(mib(MEMORY_MORE)),
        });
        let column = |bytes: Vec<u64>| Some(Samples::new(bytes.into_iter().map(mib).collect()));
        rows.push((name.to_owned(), vec![column(small), column(large)]));
    }
    Ok(Table {
        name: "memory",
        about: format!("peak resident memory of a fresh gateway, {MEMORY_WORKERS} requests at once"),
        columns: vec!["10 KiB: peak MiB", "64 MiB: peak MiB"],
        rows,
        goals,
        broken,
    })
}
