//! The three measures. What enters is how thorough to be; what leaves are tables. Times are printed and never asserted; bytes,
//! cardinality and the closing delimiter are asserted by the load, the bound of memory here.

use std::net::SocketAddr;

use crate::common::load::spawn;
use crate::common::process::{ANYWHERE, Process};
use crate::common::rounds::{self, Effort};
use crate::common::table::{Goal, Meant, Samples, Table};
use crate::common::{Fallible, KIB, MIB, mib};
use crate::load::{How, Job, Outcome};

/// Bytes of the objects that stand for small ones.
const SMALL: u64 = 10 * KIB;

/// What memory may be used beside the budgets, in bytes.
const MEMORY_BESIDE_BUDGETS: u64 = 64 * MIB;

/// `batch.window_bytes` and `batch.entry_bytes` as they are by default: what one batch may hold.
const WINDOW_AND_HEAD: u64 = 32 * MIB + 256 * KIB;

type Mode = rounds::Mode<Job, Outcome>;

/// Lets every mode have its turn in each round, with objects that were not read before.
fn take_turns(modes: &mut [Mode], rounds: usize) -> Fallible<()> {
    let mut first = 0;
    rounds::take_turns(modes, rounds, |job| {
        let job = Job { first, ..job.clone() };
        first += job.warm_up + job.objects;
        spawn(&job)
    })
}

fn job(address: SocketAddr, how: How, size: u64, objects: u64) -> Job {
    Job { address, how, delay_ms: 0, size, first: 0, warm_up: 0, objects, threads: 1, compare: true, watched: Vec::new() }
}

fn own_micros(outcome: &Outcome) -> f64 {
    outcome.own_cpu_seconds / outcome.objects as f64 * 1e6
}

fn watched_micros(at: usize) -> impl Fn(&Outcome) -> f64 {
    move |outcome| outcome.cpu_seconds[at] / outcome.objects as f64 * 1e6
}

fn objects_a_second(outcome: &Outcome) -> f64 {
    outcome.objects as f64 / outcome.seconds
}

fn seconds_an_object(outcome: &Outcome) -> f64 {
    outcome.seconds / outcome.objects as f64
}

/// CPU of the gateway for an object of a cold BatchGet of 128, against that of a bare signed hyper client that GETs them.
pub fn cpu(effort: Effort) -> Fallible<Table> {
    let origin = Process::origin(ANYWHERE, usize::MAX)?;
    let gateway = Process::gateway(origin.address, "", "")?;
    let objects = 38_400 / effort.divisor;
    let cores = std::thread::available_parallelism()?.get();
    let bare = |threads| Job { threads, warm_up: 1_280, compare: false, ..job(origin.address, How::Gets(128), SMALL, objects) };
    let through = |how| Job { warm_up: 1_280, watched: vec![gateway.pid()], ..job(gateway.address, how, SMALL, objects) };
    let mut modes = [
        Mode::new("client: signed GETs to the origin, 128 at once, 1 thread", bare(1)),
        Mode::new(format!("client: the same on {cores} threads, as the gateway"), bare(cores)),
        Mode::new("gateway: BatchGet of 128, one after another", through(How::Batches(128))),
        Mode::new("gateway: plain GETs, 128 at once", through(How::Gets(128))),
    ];
    take_turns(&mut modes, effort.rounds)?;
    let [bare_1, bare_all, batch, plain] = &modes;
    let rows = [bare_1, bare_all]
        .into_iter()
        .map(|m| (m.what.clone(), vec![Some(m.samples(own_micros)), Some(m.samples(objects_a_second))]));
    let more = [batch, plain]
        .into_iter()
        .map(|m| (m.what.clone(), vec![Some(m.samples(watched_micros(0))), Some(m.samples(objects_a_second))]));
    let goal = |what: &str, samples, meant| Goal { what: what.to_owned(), samples, meant };
    Ok(Table {
        name: "cpu",
        about: format!(
            "CPU time that a process takes for an object of 10 KiB; {objects} objects a round, the origin answers at once"
        ),
        columns: vec!["CPU us/object", "objects/s"],
        rows: rows.chain(more).collect(),
        goals: vec![
            goal(
                "gateway's BatchGet / client on 1 thread",
                batch.ratio_of(watched_micros(0), bare_1, own_micros),
                Meant::AtMost(2.0),
            ),
            goal(
                &format!("gateway's BatchGet / client on {cores} threads"),
                batch.ratio_of(watched_micros(0), bare_all, own_micros),
                Meant::AtMost(2.0),
            ),
            goal("gateway's BatchGet / gateway's plain GET", batch.ratio(plain, watched_micros(0)), Meant::Anything),
            goal("client's CPU by BatchGet / by GETs on 1 thread", batch.ratio(bare_1, own_micros), Meant::Anything),
        ],
        broken: None,
    })
}

/// Objects in a second by BatchGets of several lengths and by GETs, the origin answering after `delay_ms`.
pub fn speed(effort: Effort, delay_ms: u64) -> Fallible<Table> {
    let origin = Process::origin(ANYWHERE, usize::MAX)?;
    let gateway = Process::gateway(origin.address, "", "")?;
    let watched = vec![gateway.pid(), origin.pid()];
    let mode = |what: &str, address, how, objects: u64| {
        let (warm_up, objects) = match how {
            // Whole batches only.
            How::Batches(entries) => (entries.min(1_024), (objects / effort.divisor).div_ceil(entries) * entries),
            _ => (128, objects / effort.divisor),
        };
        Mode::new(what, Job { delay_ms, warm_up, watched: watched.clone(), ..job(address, how, SMALL, objects) })
    };
    // One worker waits for each object; as many as the others would take it minutes.
    let few = if delay_ms == 0 { 3_000 } else { 240 };
    let mut modes = vec![
        mode("1 worker, GETs to the origin", origin.address, How::Gets(1), few),
        mode("1 worker, GETs through the gateway", gateway.address, How::Gets(1), few),
        mode("32 workers, GETs to the origin", origin.address, How::Gets(32), 8_192),
        mode("32 workers, GETs through the gateway", gateway.address, How::Gets(32), 8_192),
    ];
    modes.extend([32, 128, 1_024, 8_000].map(|n| mode(&format!("BatchGet of {n}"), gateway.address, How::Batches(n), 8_192)));
    take_turns(&mut modes, effort.rounds)?;
    let [straight, through, many, _, _, of_128, of_1024, of_8000] = modes.as_slice() else {
        unreachable!("there are eight modes");
    };
    let rows = modes.iter().map(|m| {
        let through_gateway = m.job.address == gateway.address;
        let gateways = through_gateway.then(|| m.samples(watched_micros(0)));
        let figures =
            [Some(m.samples(objects_a_second)), gateways, Some(m.samples(watched_micros(1))), Some(m.samples(own_micros))];
        (m.what.clone(), figures.to_vec())
    });
    let faster =
        |what: &str, m: &Mode, than: &Mode, meant| Goal { what: what.to_owned(), samples: m.ratio(than, objects_a_second), meant };
    let waiting = |meant| if delay_ms == 0 { Meant::Anything } else { meant };
    let cost = |what: &str, than: &Mode| Goal {
        what: what.to_owned(),
        samples: of_8000.ratio(than, seconds_an_object),
        meant: Meant::AtMost(1.1),
    };
    Ok(Table {
        name: if delay_ms == 0 { "speed, origin answers at once" } else { "speed, origin waits" },
        about: format!("objects of 10 KiB in a second, one client on 1 thread; the origin waits {delay_ms} ms before it answers"),
        columns: vec!["objects/s", "gateway CPU us/object", "origin CPU us/object", "client CPU us/object"],
        rows: rows.collect(),
        goals: vec![
            faster("BatchGet of 128 / 1 worker to the origin", of_128, straight, waiting(Meant::AtLeast(20.0))),
            faster("BatchGet of 128 / 1 worker through the gateway", of_128, through, waiting(Meant::AtLeast(20.0))),
            faster("BatchGet of 128 / 32 workers to the origin", of_128, many, Meant::Anything),
            cost("time of an object in a BatchGet of 8000 / of 128", of_128),
            Goal { meant: Meant::Anything, ..cost("time of an object in a BatchGet of 8000 / of 1024", of_1024) },
        ],
        broken: None,
    })
}

/// Peak memory of a fresh gateway, for a batch of many, for one of large objects, and with a hundred readers that stall.
pub fn memory(effort: Effort) -> Fallible<Table> {
    let origin = Process::origin(ANYWHERE, usize::MAX)?;
    let readers = 100;
    let stalled = How::Stalled { entries: 64, pause_ms: 3_000 };
    let of = |how, size, objects| job(origin.address, how, size, objects);
    let cases = [
        ("one BatchGet of 8000 x 10 KiB", "", WINDOW_AND_HEAD, of(How::Batches(8_000), SMALL, 8_000)),
        ("one BatchGet of 200 x 16 MiB", "", WINDOW_AND_HEAD, of(How::Batches(200), 16 * MIB, 200)),
        (
            "100 readers of 64 x 1 MiB that stall 3 s, then read",
            "memory_bytes_max = \"128MiB\"\n[batch]\nbody_bytes_max = \"1MiB\"",
            128 * MIB,
            of(stalled, MIB, 64 * readers),
        ),
    ];
    let samples = |bytes: &[u64]| Samples::new(bytes.iter().copied().map(mib).collect());
    let (mut rows, mut goals, mut broken) = (Vec::new(), Vec::new(), None);
    for (what, settings, budget, job) in cases {
        let (mut idle, mut peak) = (Vec::new(), Vec::new());
        for _ in 0..effort.memory_rounds {
            let gateway = Process::gateway(origin.address, settings, "")?;
            idle.push(gateway.peak_bytes()?);
            spawn::<_, Outcome>(&Job { address: gateway.listening("s3")?, ..job.clone() })?;
            peak.push(gateway.peak_bytes()?);
        }
        let bound = budget + MEMORY_BESIDE_BUDGETS;
        let highest = peak.iter().copied().max().unwrap_or(0);
        if highest > bound {
            broken = Some(format!("{what}: the peak of {} MiB is over the bound of {} MiB", highest / MIB, bound / MIB));
        }
        let figures = [&idle[..], &peak, &[budget], &[bound]].map(|bytes| Some(samples(bytes)));
        rows.push((what.to_owned(), figures.to_vec()));
        goals.push(Goal { what: what.to_owned(), samples: samples(&peak), meant: Meant::AtMost(mib(bound)) });
    }
    Ok(Table {
        name: "memory",
        about: "peak resident memory of a fresh gateway; the budget is the window and head of one batch, or for many readers \
                server.memory_bytes_max = 128 MiB, and the bound is the budget and 64 MiB"
            .to_owned(),
        columns: vec!["idle MiB", "peak MiB", "budget MiB", "bound MiB"],
        rows,
        goals,
        broken,
    })
}
