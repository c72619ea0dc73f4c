//! What load there is to be, as data: which requests, for which objects, how they follow one another and for how long. What
//! enters are the choices of whoever measures; what leaves are the draws: the next request's kind and objects, the same for
//! the same seed. Nothing here waits or asks.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the objects are.
    pub bucket: Arc<str>,
    /// The objects; each request takes some of them at random, all alike.
    pub keys: Keys,
    /// Which requests.
    pub mode: Mode,
    /// How they follow one another.
    pub pace: Pace,
    /// How many of them.
    pub extent: Extent,
    /// The same load for so long before anything is measured: connections open, caches and memory settle.
    pub warm_up: Duration,
    /// Whether bytes are compared; only made objects can be. Lengths always are.
    pub verify: bool,
    /// Of the random choice.
    pub seed: u64,
}

/// Which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// GetObject.
    Get,
    /// BatchGet of so many entries.
    Batch(usize),
    /// Several kinds, each by its weight.
    Mixed(Mix),
}

/// How often each kind of request is chosen, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// GetObject.
    pub get: u32,
    /// BatchGet.
    pub batch: u32,
    /// PutObject, of the bytes that the object has anyway.
    pub put: u32,
    /// Entries of a BatchGet.
    pub entries: usize,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// GetObject.
    #[default]
    Get,
    /// BatchGet.
    Batch,
    /// PutObject.
    Put,
}

/// How requests follow one another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each worker sends its next request when its last is done.
    Closed {
        /// How many of them there are.
        workers: usize,
    },
    /// Open loop: requests start at even intervals whether others are done or not, and their time counts from then.
    Open {
        /// Requests a second.
        rate: f64,
        /// Most requests under way. One that is due meanwhile is not started, and counted as such.
        in_flight_max: usize,
    },
}

/// When it ends. What is under way then is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No request starts after this time.
    Duration(Duration),
    /// So many requests.
    Requests(u64),
}

/// The objects that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Objects made for this, whose bytes follow from their number. The key of one is prefix, size and number.
    Made {
        /// What keys begin with.
        prefix: Arc<str>,
        /// How many objects.
        count: u64,
        /// Bytes of each.
        size: u64,
    },
    /// Objects that are there, of whatever size; at least one.
    Listed(Arc<[String]>),
}

impl Keys {
    /// How many objects there are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Made { count, .. } => *count,
            Self::Listed(keys) => keys.len() as u64,
        }
    }

    /// Bytes of each object, where they are known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Made { size, .. } => Some(*size),
            Self::Listed(_) => None,
        }
    }

    /// The key of object `number`, which is less than [`Keys::count`].
    pub fn key(&self, number: u64) -> String {
        let mut key = String::new();
        self.key_into(number, &mut key);
        key
    }

    /// As [`Keys::key`], in place of what `key` holds.
    pub fn key_into(&self, number: u64, key: &mut String) {
        key.clear();
        match self {
            Self::Made { prefix, size, .. } => write!(key, "{prefix}{size}/{number:08}").expect("a text grows"),
            Self::Listed(keys) => key.push_str(&keys[number as usize]),
        }
    }
}

impl Mode {
    /// The kind of the next request.
    pub fn kind(&self, random: &mut SmallRng) -> Kind {
        match self {
            Self::Get => Kind::Get,
            Self::Batch(_) => Kind::Batch,
            Self::Mixed(mix) => mix.kind(random.random_range(0..mix.total())),
        }
    }

    /// Entries of its BatchGets, if it has any.
    pub fn entries(&self) -> Option<usize> {
        match self {
            Self::Get => None,
            Self::Batch(entries) => Some(*entries),
            Self::Mixed(mix) => (mix.batch > 0).then_some(mix.entries),
        }
    }

    /// The word for it on a command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Batch(_) => "batch",
            Self::Mixed(_) => "mixed",
        }
    }
}

impl Mix {
    fn total(&self) -> u64 {
        u64::from(self.get) + u64::from(self.batch) + u64::from(self.put)
    }

    fn kind(&self, drawn: u64) -> Kind {
        match drawn {
            drawn if drawn < u64::from(self.get) => Kind::Get,
            drawn if drawn < u64::from(self.get) + u64::from(self.batch) => Kind::Batch,
            _ => Kind::Put,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("GET"),
            Self::Batch(entries) => write!(f, "BatchGet of {entries}"),
            Self::Mixed(mix) => {
                let kinds = [("get", mix.get), ("batch", mix.batch), ("put", mix.put)];
                let kinds: Vec<_> = kinds.iter().filter(|(_, w)| *w > 0).map(|(name, weight)| format!("{name}={weight}")).collect();
                write!(f, "mixed {}", kinds.join(","))?;
                if mix.batch > 0 { write!(f, " (batches of {})", mix.entries) } else { Ok(()) }
            }
        }
    }
}

impl Kind {
    /// Its word in a mix and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Batch => "batch",
            Self::Put => "put",
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { workers: 1 } => f.write_str("1 worker"),
            Self::Closed { workers } => write!(f, "{workers} workers"),
            Self::Open { rate, .. } => write!(f, "{rate} requests/s"),
        }
    }
}

impl Extent {
    /// This in `rounds` parts; requests that do not divide go to the first ones.
    pub fn part(self, round: u64, rounds: u64) -> Self {
        match self {
            Self::Duration(whole) => Self::Duration(whole.div_f64(rounds as f64)),
            Self::Requests(whole) => Self::Requests(whole / rounds + u64::from(round < whole % rounds)),
        }
    }
}

/// The random choices of one worker (or of one request of an open loop) in one part of a run.
pub fn random(seed: u64, phase: u64, stream: u64) -> SmallRng {
    // Odd, so that no two seeds are one; phase and stream are far apart in it.
    SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((phase << 44) + stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_by_number_and_size() {
        let made = |size| Keys::Made { prefix: "p/".into(), count: 10, size };
        assert_eq!(made(100).key(7), "p/100/00000007");
        assert_ne!(made(100).key(7), made(101).key(7));
        let listed = Keys::Listed(vec!["a".to_owned(), "b c".to_owned()].into());
        assert_eq!((listed.key(1).as_str(), listed.count(), listed.size()), ("b c", 2, None));
    }

    #[test]
    fn a_mix_is_drawn_by_its_weights() {
        let mode = Mode::Mixed(Mix { get: 70, batch: 20, put: 10, entries: 8 });
        let mut random = random(1, 0, 0);
        let mut drawn = [0_u32; 3];
        (0..10_000).for_each(|_| drawn[mode.kind(&mut random) as usize] += 1);
        for (drawn, meant) in drawn.into_iter().zip([7000_u32, 2000, 1000]) {
            assert!(drawn.abs_diff(meant) < 300, "{drawn} instead of {meant}");
        }
        assert_eq!(mode.to_string(), "mixed get=70,batch=20,put=10 (batches of 8)");
        let never = Mode::Mixed(Mix { get: 1, batch: 0, put: 0, entries: 8 });
        assert!((0..1000).all(|_| never.kind(&mut random) == Kind::Get));
        assert_eq!(never.entries(), None);
    }

    #[test]
    fn parts_of_an_extent_add_up() {
        let parts: Vec<_> = (0..4).map(|round| Extent::Requests(10).part(round, 4)).collect();
        assert_eq!(parts, [3, 3, 2, 2].map(Extent::Requests));
        let second = Extent::Duration(Duration::from_secs(1));
        assert_eq!(second.part(1, 5), Extent::Duration(Duration::from_millis(200)));
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_does_not() {
        let draw = |seed, phase, stream| -> Vec<u64> {
            let mut random = random(seed, phase, stream);
            (0..8).map(|_| random.random_range(0..1_000_000)).collect()
        };
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        for other in [draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)] {
            assert_ne!(draw(1, 2, 3), other);
        }
    }
}
