//! All that decides a run, drawn from one seed: the gateway's numbers, what the store holds, what goes wrong with it and when,
//! and what clients ask for at what instant.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::troubles::windows;
use super::uploads::{Step, Upload};
use crate::batch::tests::objects::Object;
use crate::batch::tests::store::FaultWindow;
use crate::batch::tests::{Client, Numbers, Wanted, request};

/// Keys of small objects, of large ones, and of those that are also written.
const SMALL: usize = 40;
const LARGE: usize = 4;
const WRITTEN: usize = 12;

/// Numbers of two writes differ by this much, so that the changes which others make between them have numbers of their own.
const GENERATIONS: u32 = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct World {
    pub seed: u64,
    pub numbers: Numbers,
    pub objects: Vec<(String, Object)>,
    pub windows: Vec<FaultWindow>,
    pub jobs: Vec<Job>,
}

/// Something that a client asks for.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// After the beginning.
    pub at: Duration,
    pub number: u32,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Batch(Batch),
    Read {
        key: String,
        head: bool,
        range: Option<String>,
        client: Client,
    },
    Write(Write),
    Upload(Upload),
    /// Of an upload.
    Step(Upload, Step),
}

#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub wanted: Vec<Wanted>,
    pub completion: bool,
    pub on_error: &'static str,
    pub summary: bool,
    /// Entries have ids then, and fail the batch or are left out.
    pub tar: bool,
    pub client: Client,
}

/// A PUT of `length` bytes, or a DELETE.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub key: String,
    pub generation: u32,
    pub length: Option<usize>,
    pub condition: Condition,
    /// Between the frames of its body.
    pub pause_ms: u64,
    /// The client's connection breaks after so many bytes of its body.
    pub breaks_after: Option<usize>,
    /// The client goes away after so long.
    pub leaves_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match` with the tag that the object has when the request is sent.
    Current,
}

impl Batch {
    /// What the client sends.
    pub fn request(&self) -> Value {
        let mut request = request(&self.wanted);
        request["OnError"] = json!(self.on_error);
        request["Order"] = json!(if self.completion { "Completion" } else { "Request" });
        request["Summary"] = json!(self.summary);
        request
    }
}

impl World {
    /// `jobs` requests spread over `span`.
    pub fn of(seed: u64, jobs: usize, span: Duration) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let numbers = numbers(&mut random);
        let mut objects = Vec::new();
        for at in 0..SMALL {
            let weak = random.random_bool(0.1);
            let length = *[0, 1, 300, 1000, 1024, 1500, 3000, 6000].choose(&mut random).expect("some");
            objects.push((small(at), Object { weak, versioned: random.random_bool(0.2), ..Object::of(length) }));
        }
        objects.extend((0..LARGE).map(|at| (large(at), Object::of(random.random_range(60_000..140_000)))));
        objects.extend((0..WRITTEN / 2).map(|at| (written(at), Object::of(random.random_range(0..2000)))));
        let windows = windows(&mut random, span);
        let jobs = (0..jobs as u32).map(|number| job(&mut random, number, span)).collect();
        Self { seed, numbers, objects, windows, jobs }
    }
}

fn small(at: usize) -> String {
    format!("o/{}/{}", at % 4, at / 4)
}

fn large(at: usize) -> String {
    format!("large/{at}")
}

fn written(at: usize) -> String {
    format!("written/{at}")
}

fn numbers(random: &mut SmallRng) -> Numbers {
    let entry_bytes = *[1024u64, 4096, 16_384].choose(random).expect("some");
    Numbers {
        entry_bytes,
        window_bytes: entry_bytes * random.random_range(2..8),
        shared_bytes: entry_bytes * random.random_range(12..64),
        heads_bytes: entry_bytes * random.random_range(8..64) + 32 * 1024,
        concurrency: random.random_range(2..17),
        permits: random.random_range(3..25),
        permits_min: random.random_range(1..4),
        deadline: Duration::from_secs(random.random_range(8..31)),
        attempt_timeout: Duration::from_millis(random.random_range(1500..5000)),
        response_timeout: Duration::from_millis(random.random_range(10_001..40_000)),
        queue_wait: Duration::from_millis(1500),
        backoff_max: Duration::from_millis(random.random_range(200..2000)),
    }
}

fn any_key(random: &mut SmallRng) -> String {
    match random.random_range(0..40) {
        0 => "missing".into(),
        1..=3 => large(random.random_range(0..LARGE)),
        4..=8 => written(random.random_range(0..WRITTEN)),
        _ => small(random.random_range(0..SMALL)),
    }
}

fn range(random: &mut SmallRng) -> Option<String> {
    let (a, b) = (random.random_range(0..5000u64), random.random_range(0..5000u64));
    match random.random_range(0..8) {
        0 => Some(format!("bytes={}-{}", a.min(b), a.max(b))),
        1 => Some(format!("bytes=-{}", a + 1)),
        2 => Some(format!("bytes={a}-")),
        _ => None,
    }
}

fn client(random: &mut SmallRng) -> Client {
    match random.random_range(0..10) {
        0 => Client::Drip { pause_ms: random.random_range(1..2000) },
        1 => Client::Stall { after: random.random_range(0..60_000), secs: random.random_range(1..60) },
        2 => Client::Leave { after: random.random_range(0..40_000) },
        _ => Client::Eager,
    }
}

fn wanted(random: &mut SmallRng) -> Wanted {
    let condition = random.random_range(0..16);
    let tag = || Some("\"generation-0\"".to_owned());
    Wanted {
        key: if random.random_bool(0.02) { "denied/one".into() } else { any_key(random) },
        range: range(random),
        if_match: if condition == 0 { tag() } else { None },
        if_none_match: if condition == 1 { tag() } else { None },
        ..Wanted::default()
    }
}

fn job(random: &mut SmallRng, number: u32, span: Duration) -> Job {
    let at = span.mul_f64(random.random::<f64>());
    let what = match random.random_range(0..10) {
        0..=3 => What::Batch(batch(random)),
        4..=6 => {
            let head = random.random_bool(0.2);
            What::Read { key: any_key(random), head, range: range(random), client: client(random) }
        }
        7 if random.random_bool(0.4) => What::Upload(Upload {
            key: written(random.random_range(0..WRITTEN)),
            generation: (number + 1) * GENERATIONS,
            parts: (0..random.random_range(1..4)).map(|_| random.random_range(1..3000)).collect(),
            aborts: random.random_bool(0.2),
        }),
        _ => What::Write(write(random, number)),
    };
    Job { at, number, what }
}

fn batch(random: &mut SmallRng) -> Batch {
    let mut wanted: Vec<_> = (0..random.random_range(1..24)).map(|_| wanted(random)).collect();
    let tar = random.random_bool(0.15);
    if tar {
        for (at, wanted) in wanted.iter_mut().enumerate() {
            (wanted.id, wanted.if_none_match) = (Some(format!("e/{at}")), None);
        }
    }
    let on_errors =
        if tar { ["Stop", "Stop", "Omit", "Omit", "Omit"] } else { ["Continue", "Continue", "Continue", "Stop", "Omit"] };
    Batch {
        wanted,
        completion: random.random_bool(0.4),
        on_error: on_errors.choose(random).expect("some"),
        summary: random.random_bool(0.5),
        tar,
        client: client(random),
    }
}

fn write(random: &mut SmallRng, number: u32) -> Write {
    let length = random.random_bool(0.85).then(|| *[0, 1, 700, 1500, 5000].choose(random).expect("some"));
    let conditions = [Condition::None, Condition::None, Condition::Absent, Condition::Current];
    Write {
        key: written(random.random_range(0..WRITTEN)),
        generation: (number + 1) * GENERATIONS,
        length,
        condition: *conditions.choose(random).expect("some"),
        pause_ms: if random.random_bool(0.2) { random.random_range(1..500) } else { 0 },
        breaks_after: length.filter(|length| *length > 1 && random.random_bool(0.1)).map(|length| random.random_range(0..length)),
        leaves_after: random.random_bool(0.05).then(|| Duration::from_millis(random.random_range(1..3000))),
    }
}
