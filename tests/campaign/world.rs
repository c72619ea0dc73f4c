//! What the store holds, and since when. Content is a pure function of an object's number and its generation; which generation
//! was there at which time is kept here, so that an answer can be held against the time in which it was read. Changes go
//! straight to the store, past the gateway.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use batchgate::backend::s3::object_path;
use batchgate::load::content;
use bytes::Bytes;
use http::Method;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::client::{Ask, Client, Keys, Pace, Trouble};
use crate::faults::mix;
use crate::{Fallible, fail};

/// The bucket of the campaign.
pub const BUCKET: &str = "campaign";

/// Objects that stay as they are.
pub const STILL: usize = 300;

/// Objects that change.
pub const CHANGING: usize = 60;

/// What an object was for a while.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Its number, from 0.
    pub number: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Its ETag, with quotes.
    pub etag: String,
    /// When it was sent to the store.
    sent: Instant,
    /// When the store had it.
    settled: Option<Instant>,
}

/// An object that is read.
pub struct Object {
    /// Its place in the world.
    pub index: usize,
    /// Its key.
    pub key: String,
    /// Raw path at the store and at the gateway.
    pub path: String,
    history: Mutex<Vec<Generation>>,
    changing: tokio::sync::Mutex<()>,
}

impl Object {
    /// The generation with this ETag.
    pub fn by_etag(&self, etag: &str) -> Option<Generation> {
        self.history().iter().rev().find(|generation| generation.etag == etag).cloned()
    }

    /// The newest generation.
    pub fn newest(&self) -> Generation {
        self.history().last().expect("every object has one").clone()
    }

    /// The generations that may have been read in this time.
    pub fn between(&self, time: &Range<Instant>) -> Vec<Generation> {
        let history = self.history();
        let ended = |at: usize| history.get(at + 1).and_then(|next| next.settled);
        let current = |at: usize| history[at].sent <= time.end && ended(at).is_none_or(|ended| ended >= time.start);
        (0..history.len())
            .rev()
            .take_while(|at| current(*at) || history[*at].sent > time.end)
            .filter(|at| current(*at))
            .map(|at| history[at].clone())
            .collect()
    }

    /// Whether these are the bytes of a generation at `offset`.
    pub fn holds(&self, generation: &Generation, offset: u64, octets: &[u8]) -> bool {
        content::is(seed_of(self.index, generation.number), offset, octets)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, Vec<Generation>> {
        self.history.lock().expect("nothing under this lock panics")
    }
}

/// Two generations of one object that are near each other never begin alike.
fn seed_of(index: usize, generation: u64) -> u64 {
    index as u64 * 7_919 + generation
}

/// The content of a write, by its id.
pub fn written(id: u128, size: u64) -> Bytes {
    content::whole(1_000_000 + (mix(id as u64) % 60_000), size)
}

/// See the module.
pub struct World {
    /// Those that stay first.
    pub objects: Vec<Object>,
    seed: u64,
    store: tokio::sync::Mutex<Client>,
}

impl World {
    /// Makes the bucket and every object in it.
    pub async fn create(seed: u64, origin: SocketAddr, keys: &Arc<Keys>) -> Fallible<Arc<Self>> {
        let objects = (0..STILL + CHANGING).map(|index| {
            let kind = if index < STILL { 's' } else { 'c' };
            // Some names are no plain ASCII.
            let key = if index % 10 == 3 { format!("{kind}/{index:04} é+%20") } else { format!("{kind}/{index:04}") };
            let path = object_path(BUCKET, &key, None);
            Object { index, key, path, history: Mutex::default(), changing: tokio::sync::Mutex::default() }
        });
        let world = Self { objects: objects.collect(), seed, store: tokio::sync::Mutex::new(Client::new(origin, keys, false)) };
        let made = world.at_store(&Ask::new(0, Method::PUT, format!("/{BUCKET}"))).await?;
        if !matches!(made.0, 200 | 409) {
            return fail(format!("the bucket cannot be made: {}", made.0));
        }
        for index in 0..world.objects.len() {
            world.change(index).await?;
        }
        Ok(Arc::new(world))
    }

    /// Whether an object changes.
    pub fn is_changing(&self, index: usize) -> bool {
        index >= STILL
    }

    /// The object at a raw path.
    pub fn by_path(&self, path: &str) -> Option<&Object> {
        let digits = path.strip_prefix("/campaign/")?.get(2..6)?;
        self.objects.get(digits.parse::<usize>().ok()?).filter(|object| object.path == path)
    }

    fn size(&self, index: usize, generation: u64) -> u64 {
        let random = mix(self.seed ^ (index as u64) << 20);
        let around = |size: u64| size / 2 + mix(random) % size;
        let size = match random % 100 {
            0..3 => 0,
            3..8 => 1 + mix(random) % 100,
            8..30 => around(1_000),
            30..78 => around(10_000),
            78..92 => around(80_000),
            92..98 => around(200_000),
            98 => around(1_000_000),
            _ => around(2_500_000),
        };
        if self.is_changing(index) { size.max(2_000) + generation % 7 * 101 } else { size }
    }

    /// Overwrites an object with its next generation.
    pub async fn change(&self, index: usize) -> Fallible<()> {
        let object = &self.objects[index];
        let _one_at_a_time = object.changing.lock().await;
        let number = object.history().len() as u64;
        let size = self.size(index, number);
        let body = content::whole(seed_of(index, number), size);
        let etag = format!("\"{}\"", content::md5(seed_of(index, number), size));
        object.history().push(Generation { number, size, etag, sent: Instant::now(), settled: None });
        let ask = Ask::new(0, Method::PUT, object.path.clone()).carrying(body, Pace::Whole);
        let (status, etag, _) = self.at_store(&ask).await?;
        let mut history = object.history();
        let newest = history.last_mut().expect("it was pushed");
        newest.settled = Some(Instant::now());
        match (status, etag) {
            (200, Some(etag)) => newest.etag = etag,
            _ => return fail(format!("{} cannot be changed at the store: {status}", object.key)),
        }
        Ok(())
    }

    /// Asks the store itself: status, ETag and body.
    pub async fn at_store(&self, ask: &Ask) -> Fallible<(u16, Option<String>, Bytes)> {
        let mut store = self.store.lock().await;
        let mut tries = 0;
        let answer: Response<Incoming> = loop {
            match store.send(ask, false).await {
                Ok(answer) => break answer,
                // What is asked here may be asked twice: nobody else writes these keys.
                Err(_) if tries < 2 => tries += 1,
                Err(Trouble::Connect(why) | Trouble::Broken(why)) => {
                    return fail(format!("the store itself does not answer: {why}"));
                }
            }
        };
        let status = answer.status().as_u16();
        let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, etag, body))
    }
}
