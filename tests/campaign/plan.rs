//! What each worker does: its operations, one after another. What enters is the seed, the worker and the operation's number;
//! what leaves is the operation. Pure: the same three give the same operation.

use std::time::Duration;

use batchgate::client::{OnError, Order};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::faults::mix;
use crate::gateway::limits;
use crate::world::{CHANGING, STILL};

/// One operation of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A BatchGet.
    Batch(Batch),
    /// A GET or HEAD of one object.
    Read(Read),
    /// A listing of the objects that stay.
    List,
    /// A PUT.
    Put(Put),
    /// An upload in parts, of these sizes; given up at the end if so.
    Multipart {
        /// Lengths of the parts.
        parts: Vec<u64>,
        /// Whether it is aborted.
        abort: bool,
    },
    /// A DELETE of an object that was put for it.
    Delete,
    /// Half a head, and then nothing.
    HalfHead,
}

impl Op {
    /// Its kind, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Batch(_) => "batches",
            Self::Read(_) => "plain reads",
            Self::List => "listings",
            Self::Put(_) => "puts",
            Self::Multipart { .. } => "uploads in parts",
            Self::Delete => "deletes",
            Self::HalfHead => "half heads",
        }
    }
}

/// A BatchGet.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// What is asked for.
    pub entries: Vec<Entry>,
    /// What becomes of failures.
    pub on_error: OnError,
    /// In which order.
    pub order: Order,
    /// Whether a summary is asked for.
    pub summary: bool,
    /// Whether the answer is a tar.
    pub tar: bool,
    /// How it is read.
    pub reading: Reading,
}

/// An object with what is asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Which object; none of them if there is none.
    pub object: Option<usize>,
    /// Of what range.
    pub range: Option<String>,
    /// Under which condition.
    pub condition: Condition,
}

/// A precondition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None.
    No,
    /// `If-Match` of what it is now.
    Match,
    /// `If-Match` of what it never was.
    MatchWrong,
    /// `If-None-Match` of what it is now.
    NoneMatch,
}

/// A lone GET or HEAD.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// Of what.
    pub entry: Entry,
    /// Whether it is a HEAD.
    pub head: bool,
    /// How it is read.
    pub reading: Reading,
}

/// How an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As it comes.
    Steady,
    /// With a pause after so many bytes each.
    Slow(u64, Duration),
    /// With one long pause after so many bytes.
    Stall(u64, Duration),
    /// Not beyond so many bytes.
    Leave(u64),
}

/// A PUT of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its length.
    pub size: u64,
    /// In which way.
    pub kind: PutKind,
}

/// Ways to put an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutKind {
    /// Under a new key.
    Plain,
    /// Under a new key if there is none.
    IfNone,
    /// Over an object that stays, if there is none: to be refused.
    IfNoneThere(usize),
    /// In pieces with pauses.
    Slow,
    /// In pieces with pauses that are too long.
    Stalled,
    /// Half of it.
    Half,
}

/// The operation of a worker.
pub fn plan(seed: u64, worker: u64, number: u64) -> Op {
    let mut random = SmallRng::seed_from_u64(mix(seed ^ mix(worker << 40 ^ number)));
    let random = &mut random;
    match random.random_range(0..1000) {
        0..560 => Op::Batch(batch(random)),
        560..780 => Op::Read(Read { entry: entry(random, true), head: random.random_ratio(1, 5), reading: reading(random) }),
        780..810 => Op::List,
        810..920 => Op::Put(put(random)),
        920..950 => multipart(random),
        950..994 => Op::Delete,
        _ => Op::HalfHead,
    }
}

fn batch(random: &mut SmallRng) -> Batch {
    let tar = random.random_ratio(1, 8);
    let most = match random.random_range(0..100) {
        0..60 => 6,
        60..90 => 16,
        90..98 => 60,
        _ => 300,
    };
    let count = random.random_range(1..=most);
    let mut entries: Vec<Entry> = (0..count).map(|_| entry(random, !tar)).collect();
    if random.random_ratio(1, 3) {
        // The same again.
        let again = entries[random.random_range(0..entries.len())].clone();
        entries.push(again);
    }
    let on_error = match (tar, random.random_range(0..10)) {
        (false, 0..6) => OnError::Continue,
        (_, 6..8) => OnError::Omit,
        _ => OnError::Stop,
    };
    let order = if random.random_ratio(1, 4) { Order::Completion } else { Order::Request };
    Batch { entries, on_error, order, summary: random.random_ratio(1, 4), tar, reading: reading(random) }
}

fn entry(random: &mut SmallRng, may_be_unchanged: bool) -> Entry {
    let object = match random.random_range(0..1000) {
        0..12 => None,
        12..250 => Some(STILL + random.random_range(0..CHANGING)),
        _ => Some(random.random_range(0..STILL)),
    };
    let range = random.random_ratio(1, 5).then(|| match random.random_range(0..4) {
        0 => format!("bytes=0-{}", random.random_range(0..20_000)),
        1 => format!("bytes={}-", random.random_range(0..2_000)),
        2 => format!("bytes=-{}", random.random_range(1..50_000)),
        _ => {
            let from = random.random_range(0..1_500);
            format!("bytes={from}-{}", from + random.random_range(0..200_000))
        }
    });
    let condition = match random.random_range(0..40) {
        0 | 1 => Condition::Match,
        2 => Condition::MatchWrong,
        3 if may_be_unchanged => Condition::NoneMatch,
        _ => Condition::No,
    };
    Entry { object, range, condition }
}

fn reading(random: &mut SmallRng) -> Reading {
    let bytes = 1 << random.random_range(10..20);
    match random.random_range(0..100) {
        0..80 => Reading::Steady,
        80..90 => Reading::Slow(64 * 1024, Duration::from_millis(random.random_range(1..30))),
        90..93 => Reading::Stall(bytes, Duration::from_millis(random.random_range(500..1500))),
        93..94 => Reading::Stall(bytes, limits::CLIENT_STALL + Duration::from_secs(2)),
        _ => Reading::Leave(bytes),
    }
}

fn put(random: &mut SmallRng) -> Put {
    let size = match random.random_range(0..20) {
        0 => 0,
        1..12 => random.random_range(1..20_000),
        12..19 => random.random_range(20_000..300_000),
        _ => 2_000_000,
    };
    let kind = match random.random_range(0..40) {
        0..24 => PutKind::Plain,
        24..30 => PutKind::IfNone,
        30..33 => PutKind::IfNoneThere(random.random_range(0..STILL)),
        33..36 => PutKind::Slow,
        36 => PutKind::Stalled,
        _ => PutKind::Half,
    };
    Put { size: size.max(if matches!(kind, PutKind::Stalled | PutKind::Half) { 64 } else { 0 }), kind }
}

fn multipart(random: &mut SmallRng) -> Op {
    let mut parts = vec![random.random_range(1..100_000)];
    if random.random_ratio(1, 8) {
        // All but the last have at least so much.
        parts.insert(0, 5 << 20);
    }
    Op::Multipart { parts, abort: random.random_ratio(1, 4) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_the_seeds() {
        let all = |seed, worker| (0..200).map(|number| plan(seed, worker, number)).collect::<Vec<_>>();
        assert_eq!(all(1, 1), all(1, 1));
        assert_ne!(all(1, 1), all(1, 2));
        assert_ne!(all(1, 1), all(2, 1));
    }

    #[test]
    fn everything_is_asked_for_sooner_or_later() {
        let ops: Vec<Op> = (0..5000).map(|number| plan(9, 3, number)).collect();
        let batches: Vec<&Batch> = ops.iter().filter_map(|op| if let Op::Batch(batch) = op { Some(batch) } else { None }).collect();
        let some = |what: &dyn Fn(&Batch) -> bool| batches.iter().any(|batch| what(batch));
        assert!(batches.len() > 2500 && some(&|b| b.tar) && some(&|b| b.entries.len() > 200));
        for on_error in [OnError::Continue, OnError::Stop, OnError::Omit] {
            for order in [Order::Request, Order::Completion] {
                assert!(some(&|b| b.on_error == on_error && b.order == order && !b.tar), "{on_error:?} {order:?}");
            }
        }
        assert!(!some(&|b| b.tar && b.on_error == OnError::Continue), "no tar has a place for errors");
        assert!(!some(&|b| b.tar && b.entries.iter().any(|entry| entry.condition == Condition::NoneMatch)));
        for condition in [Condition::No, Condition::Match, Condition::MatchWrong, Condition::NoneMatch] {
            assert!(some(&|b| b.entries.iter().any(|entry| entry.condition == condition)), "{condition:?}");
        }
        let kinds = |op: &&Op| match op {
            Op::Batch(_) => 0,
            Op::Read(read) => 1 + usize::from(read.head),
            Op::List => 3,
            Op::Put(put) => 4 + std::mem::discriminant(&put.kind).eq(&std::mem::discriminant(&PutKind::Half)) as usize,
            Op::Multipart { abort, .. } => 6 + usize::from(*abort),
            Op::Delete => 8,
            Op::HalfHead => 9,
        };
        let met: std::collections::BTreeSet<usize> = ops.iter().map(|op| kinds(&op)).collect();
        assert_eq!(met.len(), 10);
    }
}
