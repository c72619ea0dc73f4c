//! The fault proxy between gateway and store. What enters are requests of the gateway as octets; each is given its fault by
//! [`decide`], and what leaves is what that fault makes of the store's answer. It keeps, for each request of a client, which
//! faults its reads met and how often its write was sent on, so that every error can be held against its cause.

mod answer;
mod calamity;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::faults::{Asked, Calamity, Fault, decide, in_burst};
use crate::plant::{Plant, Plants};
use crate::wire::{Head, read_body, read_head};
use crate::world::World;

pub use calamity::{ADDRESSES, NAME, Streets};

/// Longest time that a stalled request is held. The gateway gives up long before.
const STALL_MAX: Duration = Duration::from_secs(30);

/// What became of one client's request at the proxy.
#[derive(Clone, Debug, Default)]
pub struct Story {
    asked: HashMap<String, u32>,
    /// Faults by the path that met them.
    pub met: Vec<(String, Fault)>,
    /// How often a write was sent on to the store.
    pub forwarded: u32,
    /// Requests that are here now.
    pub under_way: u32,
}

/// When a calamity was.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// What.
    pub what: Calamity,
    /// From when.
    pub from: Instant,
    /// Until when; none while it lasts.
    pub to: Option<Instant>,
}

/// See the module.
pub struct Proxy {
    seed: u64,
    origin: SocketAddr,
    world: Arc<World>,
    plants: Plants,
    /// Whether anything goes wrong at all.
    pub raging: AtomicBool,
    /// Requests that came.
    pub requests: AtomicU64,
    /// Times the store itself did not answer; none is due.
    pub store_failures: AtomicU64,
    burst: Mutex<Option<Calamity>>,
    stories: Mutex<HashMap<u128, Story>>,
    counts: Mutex<BTreeMap<Fault, u64>>,
    past: Mutex<Vec<Past>>,
    /// When an outage ended of which nobody has seen the end.
    unrecovered: Mutex<Option<Instant>>,
    /// The first answers for objects that change, where stale ones are planted.
    firsts: Mutex<HashMap<String, (Head, Vec<u8>)>>,
}

/// How a connection is to end.
enum End {
    Cleanly,
    Reset,
}

impl Proxy {
    /// A proxy in front of `origin`, which accepts nothing yet.
    pub fn new(seed: u64, origin: SocketAddr, world: &Arc<World>, plants: Plants) -> Arc<Self> {
        Arc::new(Self {
            seed,
            origin,
            world: Arc::clone(world),
            plants,
            raging: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            burst: Mutex::default(),
            stories: Mutex::default(),
            counts: Mutex::default(),
            past: Mutex::default(),
            unrecovered: Mutex::default(),
            firsts: Mutex::default(),
        })
    }

    /// What became of a request until now.
    pub fn story(&self, id: u128) -> Story {
        locked(&self.stories).get(&id).cloned().unwrap_or_default()
    }

    /// Forgets a request, unless something of it is here still.
    pub fn forget(&self, id: u128) {
        let mut stories = locked(&self.stories);
        if stories.get(&id).is_some_and(|story| story.under_way == 0) {
            stories.remove(&id);
        }
    }

    /// Forgets every request of which nothing is here.
    pub fn forget_all(&self) {
        locked(&self.stories).retain(|_, story| story.under_way > 0);
    }

    /// Requests that are here now.
    pub fn under_way(&self) -> u32 {
        locked(&self.stories).values().map(|story| story.under_way).sum()
    }

    /// Faults that requests met, by kind.
    pub fn counts(&self) -> BTreeMap<Fault, u64> {
        locked(&self.counts).clone()
    }

    /// Calamities, by kind.
    pub fn calamities(&self) -> Vec<Past> {
        locked(&self.past).clone()
    }

    /// Whether a calamity of some kind befell the store in this time.
    pub fn befell(&self, from: Instant, to: Instant, kind: impl Fn(Calamity) -> bool) -> bool {
        let past = locked(&self.past);
        past.iter().rev().any(|past| kind(past.what) && past.from <= to && past.to.is_none_or(|ended| ended >= from))
    }

    /// The time since an outage ended, once for each.
    pub fn recovered(&self) -> Option<Duration> {
        locked(&self.unrecovered).take().map(|ended| ended.elapsed())
    }

    fn fate(&self, asked: Asked<'_>) -> Option<Fault> {
        if !self.raging.load(Ordering::Relaxed) {
            return None;
        }
        match *locked(&self.burst) {
            Some(Calamity::SlowDowns) if in_burst(self.seed, asked) => Some(Fault::SlowDown),
            Some(Calamity::Unavailables) if in_burst(self.seed, asked) => Some(Fault::Unavailable),
            _ => decide(self.seed, asked),
        }
    }

    fn changes(&self, path: &str) -> bool {
        self.world.by_path(path).is_some_and(|object| self.world.is_changing(object.index))
    }

    fn note(&self, id: u128, path: &str, fault: Fault) {
        *locked(&self.counts).entry(fault).or_default() += 1;
        locked(&self.stories).entry(id).or_default().met.push((path.to_owned(), fault));
    }

    async fn serve(&self, mut client: TcpStream, reset: CancellationToken) {
        // A connection without it is only slower.
        let _ = client.set_nodelay(true);
        let end = tokio::select! {
            () = reset.cancelled() => End::Reset,
            end = self.converse(&mut client) => end,
        };
        match end {
            End::Reset => drop(client.set_zero_linger()),
            End::Cleanly => drop(client.shutdown().await),
        }
    }

    async fn converse(&self, client: &mut TcpStream) -> End {
        let (mut buffer, mut store) = (BytesMut::new(), None);
        loop {
            let Ok(Some(head)) = read_head(client, &mut buffer).await else { return End::Cleanly };
            let id = id_of(&head);
            let _here = Here::enter(self, id);
            self.requests.fetch_add(1, Ordering::Relaxed);
            // A body that does not come whole never reaches the store.
            let Ok(body) = read_body(client, &mut buffer, &head, false).await else { return End::Cleanly };
            if let Some(end) = self.answer(client, &mut store, id, head, body).await {
                return end;
            }
        }
    }

    /// Answers one request; an end if the connection does not go on.
    async fn answer(
        &self,
        client: &mut TcpStream,
        store: &mut Option<TcpStream>,
        id: u128,
        head: Head,
        body: Vec<u8>,
    ) -> Option<End> {
        let (method, path) = (head.word(0).to_owned(), head.word(1).to_owned());
        let nth = {
            let mut stories = locked(&self.stories);
            let times = stories.entry(id).or_default().asked.entry(format!("{method} {path}")).or_default();
            *times += 1;
            *times - 1
        };
        let asked = Asked { id, method: &method, path: &path, nth };
        let fault = self.fate(asked);
        if let Some(end) = self.before(client, asked, fault).await {
            return end;
        }
        let is_write = !matches!(method.as_str(), "GET" | "HEAD");
        let mut sent = head.clone();
        if fault == Some(Fault::WrongRange) {
            match sent.get("range") {
                Some(_) if nth.is_multiple_of(2) => sent.remove("range"),
                _ => sent.set("range", "bytes=0-0"),
            }
        }
        if is_write {
            locked(&self.stories).entry(id).or_default().forwarded += 1;
        }
        let mut got = self.forward(store, &sent, &body, is_write).await;
        if self.plants.strikes(Plant::DoubleWrite, asked) && is_write {
            locked(&self.stories).entry(id).or_default().forwarded += 1;
            got = self.forward(store, &sent, &body, is_write).await;
        }
        let Ok((mut answer, mut octets)) = got else {
            self.store_failures.fetch_add(1, Ordering::Relaxed);
            return Some(End::Reset);
        };
        if self.plants.strikes(Plant::WrongByte, asked) && method == "GET" && !octets.is_empty() && answer.word(1).starts_with("20")
        {
            let middle = octets.len() / 2;
            octets[middle] ^= 1;
        }
        if self.plants.has(Plant::Stale) && answer.word(1) == "200" && method == "GET" && self.changes(&path) {
            let first = locked(&self.firsts).entry(path.clone()).or_insert_with(|| (answer.clone(), octets.clone())).clone();
            if self.plants.strikes(Plant::Stale, asked) {
                (answer, octets) = first;
            }
        }
        if self.plants.strikes(Plant::Address, asked) {
            answer.set("x-amz-meta-where", self.origin.to_string());
        }
        self.after(client, asked, fault, (answer, octets)).await
    }

    /// Sends a request to the store and reads its answer whole.
    async fn forward(
        &self,
        kept: &mut Option<TcpStream>,
        head: &Head,
        body: &[u8],
        fresh: bool,
    ) -> std::io::Result<(Head, Vec<u8>)> {
        let mut store = match kept.take().filter(|_| !fresh) {
            Some(store) => store,
            None => TcpStream::connect(self.origin).await?,
        };
        store.set_nodelay(true)?;
        // Bodies were read without their framing.
        let mut head = head.clone();
        head.remove("transfer-encoding");
        if !body.is_empty() || head.get("content-length").is_some() {
            head.set("content-length", body.len().to_string());
        }
        store.write_all(&head.octets()).await?;
        store.write_all(body).await?;
        let mut buffer = BytesMut::new();
        loop {
            let answer = read_head(&mut store, &mut buffer).await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            let status: u16 = answer.word(1).parse().unwrap_or_default();
            if status / 100 == 1 {
                continue;
            }
            let bodiless = head.word(0) == "HEAD" || matches!(status, 204 | 304);
            let octets = read_body(&mut store, &mut buffer, &answer, bodiless).await?;
            if answer.get("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
                *kept = Some(store);
            }
            return Ok((answer, octets));
        }
    }
}

/// A request that is here, for as long as it is.
struct Here<'a>(&'a Proxy, u128);

impl<'a> Here<'a> {
    fn enter(proxy: &'a Proxy, id: u128) -> Self {
        locked(&proxy.stories).entry(id).or_default().under_way += 1;
        Self(proxy, id)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        if let Some(story) = locked(&self.0.stories).get_mut(&self.1) {
            story.under_way -= 1;
        }
    }
}

/// The id in a request's `traceparent`; 0 where there is none.
fn id_of(head: &Head) -> u128 {
    let trace = head.get("traceparent").and_then(|value| value.split('-').nth(1));
    trace.and_then(|hex| u128::from_str_radix(hex, 16).ok()).unwrap_or_default()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing under this lock panics")
}
