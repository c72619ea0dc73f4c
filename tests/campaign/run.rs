//! The campaign from its beginning to its end: processes start, storms and calms follow one another with a pause behind each, at
//! which everything must be at rest, and at the end it is added up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::args::Args;
use crate::client::{Ask, Keys};
use crate::gateway::{
    CLIENT, Process, REGION, STORE, at_rest, gateway_settings, limits, metrics, own_names, resources, store_settings,
};
use crate::ops::{GRACE, Phase, SLACK, Shared, Worker};
use crate::plan::plan;
use crate::plant::Plant;
use crate::proxy::{ADDRESSES, NAME, Proxy, Streets};
use crate::report::{Invariant, Report, print, say};
use crate::watch::{Lateness, Sample, csv, curve, not_flat, quarters, sample};
use crate::world::{BUCKET, CHANGING, STILL, World};
use crate::{Fallible, fail};

/// About how long a storm, its calm and the pause behind them take.
const ROUND: Duration = Duration::from_secs(20);

/// How long clients go on after the last fault of a storm.
const CALM: Duration = Duration::from_secs(4);

/// How often something changes in the store without anybody's doing, on average.
const CHANGE: Duration = Duration::from_millis(250);

/// How long the gateway may take to be at rest once its clients are.
const REST_MOST: Duration = Duration::from_secs(30);

/// Everything that runs.
struct Campaign<'a> {
    args: &'a Args,
    shared: Arc<Shared>,
    streets: Streets,
    gateway: Process,
    phase: watch::Sender<Phase>,
    workers: usize,
    began: Instant,
    samples: Arc<std::sync::Mutex<Vec<Sample>>>,
}

/// Runs it; says whether everything held, or where violations were planted, whether each was found.
///
/// # Errors
/// Where the campaign itself cannot go on.
pub async fn run(args: &Args) -> Fallible<bool> {
    say(format!("seed {}", args.seed));
    let temporary = tempfile::tempdir()?;
    let folder: PathBuf = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    // It lives until the end of the campaign.
    let (store, origin, pair) = match &args.origin {
        Some(origin) => (None, origin.address, (origin.access_key.as_str(), origin.secret_key.as_str())),
        None => {
            let store = Process::start(&folder, "store", &store_settings(), None)?;
            let address = store.s3;
            (Some(store), address, STORE)
        }
    };
    let store_keys = Keys::new(pair.0, pair.1, REGION);
    let world = World::create(args.seed, origin, &store_keys).await?;
    let proxy = Proxy::new(args.seed, origin, &world, args.plants.clone());
    let hosts = folder.join("hosts");
    let way = own_names(&hosts);
    let streets = Streets::open(&proxy, way.map(|_| hosts.clone())).await?;
    if way.is_none() {
        say("no table of names can be given to a process here: the store has one address, and a move is a short outage");
    }
    let settings = gateway_settings(&streets.endpoint(), pair);
    let gateway = Process::start(&folder, "gateway", &settings, way.map(|way| (hosts.as_path(), way)))?;
    let listed = world.at_store(&Ask::new(0, Method::GET, format!("/{BUCKET}?list-type=2&prefix=s%2F"))).await?.2;
    // Whole addresses: a port alone is found in a number of a summary, sooner or later.
    let places = ADDRESSES.map(|address| SocketAddr::new(address, streets.port).to_string());
    let needles = places.into_iter().chain([origin.to_string(), pair.1.to_owned(), CLIENT.1.to_owned(), NAME.to_owned()]);
    let shared = Arc::new(Shared {
        seed: args.seed,
        world,
        proxy,
        report: Report::new(args.seed),
        plants: args.plants.clone(),
        gateway: gateway.s3,
        keys: Keys::new(CLIENT.0, CLIENT.1, REGION),
        lateness: Lateness::default(),
        needles: needles.collect(),
        listing: listed,
        asked: AtomicU64::new(0),
        resting: AtomicUsize::new(0),
        calm_since: std::sync::Mutex::default(),
    });
    let workers = if args.only.is_some() { 1 } else { args.workers as usize };
    let (phase, _) = watch::channel(Phase::Rest);
    let began = Instant::now();
    let samples = Arc::default();
    let mut campaign = Campaign { args, shared, streets, gateway, phase, workers, began, samples };
    let held = campaign.all().await;
    drop(store);
    held
}

impl Campaign<'_> {
    async fn all(&mut self) -> Fallible<bool> {
        let background = self.background();
        if let Some((worker, operations)) = &self.args.only {
            for number in operations.clone().take(20) {
                say(format!("operation {worker}:{number} is {:?}", plan(self.args.seed, *worker, number)));
            }
        }
        for number in 1..=self.workers as u64 {
            let (number, operations) = match &self.args.only {
                Some((worker, operations)) => (*worker, Some(operations.clone())),
                None => (number, None),
            };
            tokio::spawn(Worker::new(&self.shared, number).work(self.phase.subscribe(), operations));
        }
        // What grows is seen between two pauses.
        let least = if self.shared.plants.any() { 2 } else { 1 };
        let rounds = (self.args.length.as_secs() / ROUND.as_secs()).max(least);
        let storm = (self.args.length / rounds as u32).saturating_sub(CALM + Duration::from_secs(1)).max(Duration::from_secs(2));
        let mut going_on = Ok(());
        for round in 0..rounds {
            going_on = self.round(round, storm).await;
            if going_on.is_err() {
                break;
            }
        }
        self.phase.send_replace(Phase::Stop);
        background.iter().for_each(tokio::task::JoinHandle::abort);
        // An end of the gateway is the finding; what it kept from going on is not.
        if let Err(error) = going_on
            && self.gateway.ended().is_none()
        {
            return Err(error);
        }
        self.end().await?;
        self.tell()
    }

    fn background(&self) -> Vec<tokio::task::JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let late = tokio::spawn(async move { shared.lateness.watch().await });
        let (shared, samples, began, every) = (Arc::clone(&self.shared), Arc::clone(&self.samples), self.began, self.args.sample);
        let (pid, admin) = (self.gateway.pid(), self.gateway.admin);
        let look = tokio::spawn(async move {
            let mut next = began + every;
            loop {
                tokio::time::sleep_until(next).await;
                next += every;
                let asked = shared.asked.load(Ordering::Relaxed);
                match sample(pid, admin, began, false, asked).await {
                    Ok(sample) => {
                        progress(&shared, &sample);
                        samples.lock().expect("nothing under this lock panics").push(sample);
                    }
                    Err(error) => shared.report.violate(Invariant::Process, 0, format!("the gateway cannot be looked at: {error}")),
                }
            }
        });
        let shared = Arc::clone(&self.shared);
        let change = tokio::spawn(async move {
            let mut random = SmallRng::seed_from_u64(shared.seed);
            loop {
                tokio::time::sleep(CHANGE.mul_f64(random.random_range(0.1..1.9))).await;
                let index = STILL + random.random_range(0..CHANGING);
                if shared.world.change(index).await.is_err() {
                    shared.proxy.store_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        vec![late, look, change]
    }

    async fn round(&mut self, round: u64, storm: Duration) -> Fallible<()> {
        let shared = Arc::clone(&self.shared);
        *shared.calm_since.lock().expect("nothing under this lock panics") = None;
        shared.proxy.raging.store(self.args.faults, Ordering::SeqCst);
        self.phase.send_replace(Phase::Run);
        if self.args.faults && self.args.only.is_none() {
            self.streets.storm(self.args.seed, round, storm).await?;
        } else {
            tokio::time::sleep(storm).await;
        }
        shared.proxy.raging.store(false, Ordering::SeqCst);
        *shared.calm_since.lock().expect("nothing under this lock panics") = Some(Instant::now());
        tokio::time::sleep(CALM).await;
        self.phase.send_replace(Phase::Rest);
        self.rest().await
    }

    /// A pause: clients finish, and then nothing must be in use.
    async fn rest(&mut self) -> Fallible<()> {
        let shared = &self.shared;
        let most = limits::ENTRY * 40 + SLACK;
        let until = Instant::now() + most;
        while shared.resting.load(Ordering::SeqCst) < self.workers {
            if let Some(how) = self.gateway.ended() {
                shared.report.violate(Invariant::Process, 0, format!("the gateway has ended: {how}"));
                return fail("there is no gateway any more");
            }
            if Instant::now() > until {
                shared.report.violate(Invariant::Deadline, 0, format!("some clients have no answer {most:?} after the last fault"));
                return fail("clients are stuck");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let until = Instant::now() + REST_MOST;
        loop {
            let mut used: BTreeMap<String, f64> = metrics(self.gateway.admin).await?;
            used.retain(|name, value| at_rest(name) && *value != 0.0);
            if shared.plants.has(Plant::Leak) {
                used.insert("planted".into(), 1.0);
            }
            if used.is_empty() && shared.proxy.under_way() == 0 {
                break;
            }
            if Instant::now() > until || shared.plants.has(Plant::Leak) {
                let here = shared.proxy.under_way();
                shared.report.violate(
                    Invariant::Gauges,
                    0,
                    format!("at rest, {used:?} are in use, and {here} requests are at the store"),
                );
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let asked = shared.asked.load(Ordering::Relaxed);
        let mut seen = sample(self.gateway.pid(), self.gateway.admin, self.began, true, asked).await?;
        let mut samples = self.samples.lock().expect("nothing under this lock panics");
        if shared.plants.has(Plant::Descriptors) {
            seen.resources.descriptors += 100 * samples.iter().filter(|sample| sample.rest).count() as u64;
        }
        samples.push(seen);
        shared.proxy.forget_all();
        shared.report.count("pauses", 1);
        Ok(())
    }

    /// What is judged once everything is over.
    async fn end(&mut self) -> Fallible<()> {
        let report = &self.shared.report;
        let plants = &self.shared.plants;
        if let Ok(now) = resources(self.gateway.pid()) {
            let most = if plants.has(Plant::Memory) { 1 << 20 } else { limits::MEMORY_BYTES + limits::MEMORY_OVER_BYTES };
            if now.peak > most {
                report.violate(Invariant::Memory, 0, format!("the gateway took {} bytes where {most} are the most", now.peak));
            }
        }
        for what in not_flat(&self.samples.lock().expect("nothing under this lock panics")) {
            report.violate(Invariant::Flat, 0, what);
        }
        if plants.has(Plant::Kill) {
            self.gateway.kill();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        match self.gateway.stop(Duration::from_secs(60)).await {
            Ok(how) if how == "exit status: 0" => {}
            Ok(how) | Err(how) => report.violate(Invariant::Process, 0, format!("the gateway did not end as told: {how}")),
        }
        let log = self.gateway.log()?;
        for line in log.lines().filter(|line| line.contains("panicked at")) {
            report.violate(Invariant::Process, 0, line);
        }
        for needle in &self.shared.needles {
            if let Some(line) = log.lines().find(|line| line.contains(needle.as_str())) {
                report.violate(Invariant::Secrets, 0, format!("{needle:?} stands in the log: {line}"));
            }
        }
        let failures = self.shared.proxy.store_failures.load(Ordering::Relaxed);
        if failures > 0 {
            return fail(format!(
                "the store behind the proxy failed {failures} times by itself; nothing of this is worth anything"
            ));
        }
        Ok(())
    }

    /// The tables, and the verdict.
    fn tell(&self) -> Fallible<bool> {
        let shared = &self.shared;
        let samples = self.samples.lock().expect("nothing under this lock panics");
        let mut faults = String::new();
        for (fault, count) in shared.proxy.counts() {
            faults += &format!("  {:<52} {count:>10}\n", fault.name());
        }
        let mut calamities: BTreeMap<String, u64> = BTreeMap::new();
        for past in shared.proxy.calamities() {
            *calamities.entry(format!("store: {:?}", past.what).to_lowercase()).or_default() += 1;
        }
        for (what, count) in calamities {
            faults += &format!("  {what:<52} {count:>10}\n");
        }
        let met: u64 = shared.proxy.counts().values().sum();
        let report = &shared.report;
        let writes = report.counted_all("writes: ");
        let faults = format!(
            "{} batches, {} entries, {} plain reads, {} listings, {writes} writes; {met} faults; {} violations\n\n{faults}",
            report.counted("batches"),
            report.counted("entries asked for"),
            report.counted("plain reads"),
            report.counted("listings"),
            report.violations(),
        );
        let table = format!(
            "\nseed {}, {:.0} s, {} clients, {} operations, {} requests to the store\n{faults}\n{}\n{}",
            shared.seed,
            self.began.elapsed().as_secs_f64(),
            self.workers,
            shared.asked.load(Ordering::Relaxed),
            shared.proxy.requests.load(Ordering::Relaxed),
            shared.report.table(),
            curve(&samples, 40),
        );
        print(table);
        if let Some((second, last)) = quarters(&samples) {
            let mib = f64::from(1 << 20);
            print(format!("\nmedian RSS of the second quarter {:.1} MiB, of the last {:.1} MiB\n", second / mib, last / mib));
        }
        let late = shared.lateness.times();
        if late > 0 {
            print(format!(
                "this machine was late by {:?} and more {late} times; what failed then is not counted\n",
                crate::watch::LATE
            ));
        }
        if let Some(path) = &self.args.report {
            write_report(path, &samples)?;
        }
        let (held, violated) = shared.report.verdict();
        if !shared.plants.any() {
            print(format!("invariants: {held} held, {violated} violated (seed {})\n", shared.seed));
            return Ok(violated == 0);
        }
        let missed = shared.plants.missed(&shared.report);
        let found = shared.plants.count() - missed.len();
        print(format!("plants: {found} found, {} missed {missed:?}\n", missed.len()));
        Ok(missed.is_empty())
    }
}

fn write_report(path: &Path, samples: &[Sample]) -> Fallible<()> {
    Ok(std::fs::write(path, csv(samples))?)
}

fn progress(shared: &Shared, sample: &Sample) {
    let mib = sample.resources.rss as f64 / f64::from(1 << 20);
    let faults: u64 = shared.proxy.counts().values().sum();
    say(format!(
        "{:>6.0} s: {} operations, {} batches, {} entries right, {faults} faults, {} violations; RSS {mib:.0} MiB, {} fds, {} threads",
        sample.at,
        sample.requests,
        shared.report.counted("batches"),
        shared.report.counted("entries right"),
        shared.report.violations(),
        sample.resources.descriptors,
        sample.resources.threads,
    ));
}

const _: () = assert!(GRACE.as_millis() < CALM.as_millis(), "in a calm there is time behind the grace");
