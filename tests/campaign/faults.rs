//! Which fault a request to the store meets. What enters is the seed and what is asked, for the how-manieth time by the same
//! client's request; what leaves is a fault or none. Pure: the same seed gives a client's request the same faults, whatever
//! else goes on. Beside them there is a calendar of what befalls the store as a whole, by the seed and the round.

use std::time::Duration;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection is reset in place of an answer; nothing reached the store.
    Reset,
    /// No answer comes; nothing reached the store.
    Stall,
    /// The body comes in small pieces with pauses.
    Drip,
    /// The connection is reset in the middle of the answer's head.
    CutHead,
    /// The connection is reset in the middle of the body.
    CutBody,
    /// The connection ends cleanly in the middle of the body.
    EndBody,
    /// The body stops in the middle and the connection stays.
    StallBody,
    /// `Content-Length` is more than the body has.
    TooLong,
    /// `Content-Length` and body agree, and are less than what `Content-Range` says.
    TooShort,
    /// A chunked body that has more than `Content-Range` says.
    ChunkedTooLong,
    /// A right body in chunks, without a length.
    Chunked,
    /// A chunked body without its last chunk.
    ChunkedCut,
    /// Another range than was asked for, or the whole.
    WrongRange,
    /// Garbage in place of a head.
    Garbage,
    /// Garbage behind a right answer.
    GarbageBehind,
    /// The object changes, and the answer breaks in the middle of the body.
    Changed,
    /// 503 with the code `SlowDown`.
    SlowDown,
    /// 503 with the code `ServiceUnavailable`.
    Unavailable,
    /// 500.
    Internal,
    /// 403.
    Forbidden,
    /// 404.
    Missing,
    /// A write reaches the store, and the connection is reset in place of the answer.
    LostAnswer,
    /// A write reaches the store, and no answer comes.
    LostInSilence,
    /// A write reaches the store, and the connection is reset in the middle of the answer's head.
    LostInHead,
    /// A write reaches the store, and garbage comes in place of the answer.
    LostInGarbage,
}

use Fault::*;

/// What befalls a read of an object, with its weight.
const OF_READS: &[(Fault, u32)] = &[
    (Reset, 8),
    (Stall, 3),
    (Drip, 5),
    (CutHead, 5),
    (CutBody, 8),
    (EndBody, 6),
    (StallBody, 2),
    (TooLong, 5),
    (TooShort, 5),
    (ChunkedTooLong, 4),
    (Chunked, 6),
    (ChunkedCut, 5),
    (WrongRange, 5),
    (Garbage, 3),
    (GarbageBehind, 5),
    (Changed, 8),
    (SlowDown, 4),
    (Unavailable, 5),
    (Internal, 6),
    (Forbidden, 2),
    (Missing, 2),
];

/// What befalls a listing or a HEAD.
const OF_QUESTIONS: &[(Fault, u32)] = &[
    (Reset, 8),
    (Stall, 2),
    (Drip, 3),
    (CutHead, 5),
    (CutBody, 8),
    (EndBody, 6),
    (Garbage, 4),
    (SlowDown, 5),
    (Unavailable, 5),
    (Internal, 5),
    (Forbidden, 3),
];

/// What befalls a write.
const OF_WRITES: &[(Fault, u32)] = &[
    (Reset, 8),
    (Stall, 3),
    (SlowDown, 5),
    (Unavailable, 5),
    (Internal, 5),
    (Forbidden, 3),
    (LostAnswer, 8),
    (LostInSilence, 4),
    (LostInHead, 4),
    (LostInGarbage, 4),
];

impl Fault {
    /// Whether a write that met it has reached the store.
    pub fn loses_the_answer(self) -> bool {
        matches!(self, LostAnswer | LostInSilence | LostInHead | LostInGarbage)
    }

    /// Its name in tables.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push(' ');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
}

/// A request to the store, as far as its fate depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Which of the clients' requests caused it.
    pub id: u128,
    /// Method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// How often the same client's request has asked this before.
    pub nth: u32,
}

/// How much goes wrong: of a thousand requests, so many meet a fault.
pub const FAULTS_PER_MILLE: u64 = 120;

/// Of a thousand requests during a burst, so many get its 503.
pub const BURST_PER_MILLE: u64 = 700;

/// The fault that a request meets.
pub fn decide(seed: u64, asked: Asked<'_>) -> Option<Fault> {
    let random = hash(seed, asked);
    if random % 1000 >= FAULTS_PER_MILLE {
        return None;
    }
    let kinds = match asked.method {
        "GET" if !is_listing(asked.path) => OF_READS,
        "GET" | "HEAD" => OF_QUESTIONS,
        _ => OF_WRITES,
    };
    let total: u32 = kinds.iter().map(|(_, weight)| weight).sum();
    let mut at = ((random >> 32) % u64::from(total)) as u32;
    for (fault, weight) in kinds {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return Some(*fault),
        }
    }
    None
}

/// Whether a request is one of those that a burst of 503 meets.
pub fn in_burst(seed: u64, asked: Asked<'_>) -> bool {
    hash(seed ^ 0xb0b5, asked) % 1000 < BURST_PER_MILLE
}

fn is_listing(path: &str) -> bool {
    path.contains("list-type=") || path.contains("uploads")
}

/// What befalls the store as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Calamity {
    /// New connections are refused at every address; those there are go on.
    Refuse,
    /// All connections are reset, and new ones are refused at every address.
    Restart,
    /// The store leaves its address for another: connections to the old one are reset and refused.
    Move,
    /// Most requests get 503 `SlowDown`.
    SlowDowns,
    /// Most requests get 503 `ServiceUnavailable`.
    Unavailables,
}

/// An entry of the calendar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Appointment {
    /// Since the beginning of the storm.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
    /// What.
    pub what: Calamity,
}

/// What befalls the store in a storm of this length, one thing at a time, the first at once.
pub fn calendar(seed: u64, round: u64, storm: Duration) -> Vec<Appointment> {
    const KINDS: [Calamity; 5] = [Calamity::Restart, Calamity::SlowDowns, Calamity::Move, Calamity::Refuse, Calamity::Unavailables];
    let mut out = Vec::new();
    let mut at = Duration::from_millis(1500);
    let first = mix(seed ^ round.wrapping_mul(0x5851_f42d_4c95_7f2d)) as usize;
    for nth in 0..u64::MAX {
        let random = mix(seed ^ mix(round) ^ nth.wrapping_mul(0x9e37_79b9));
        let what = KINDS[(first + nth as usize) % KINDS.len()];
        let lasts = match what {
            Calamity::Restart => 500 + random % 2500,
            Calamity::Refuse => 300 + random % 1200,
            Calamity::Move => 300,
            Calamity::SlowDowns | Calamity::Unavailables => 500 + random % 1000,
        };
        let lasts = Duration::from_millis(lasts);
        if at + lasts > storm {
            break;
        }
        out.push(Appointment { at, lasts, what });
        at += lasts + Duration::from_millis(2500 + (random >> 20) % 3000);
    }
    out
}

/// A number from a number, well mixed.
pub fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn hash(seed: u64, asked: Asked<'_>) -> u64 {
    let mut state = mix(seed) ^ mix(asked.id as u64) ^ mix((asked.id >> 64) as u64 ^ 0x51ed).rotate_left(7);
    for byte in asked.method.bytes().chain([b' ']).chain(asked.path.bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(state ^ mix(u64::from(asked.nth)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(seed: u64, id: u128, method: &str, path: &str, nth: u32) -> Option<Fault> {
        decide(seed, Asked { id, method, path, nth })
    }

    #[test]
    fn the_same_question_meets_the_same_fault_and_another_need_not() {
        let all = |seed| (0..2000).map(|id| of(seed, id, "GET", "/b/k", 0)).collect::<Vec<_>>();
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
        let by_path = |path: &str| (0..2000).map(|id| of(7, id, "GET", path, 0)).collect::<Vec<_>>();
        assert_ne!(by_path("/b/k"), by_path("/b/l"));
        let by_turn = |nth| (0..2000).map(|id| of(7, id, "GET", "/b/k", nth)).collect::<Vec<_>>();
        assert_ne!(by_turn(0), by_turn(1));
    }

    #[test]
    fn every_kind_is_met_about_as_often_as_its_weight_says() {
        for (method, path, kinds) in [
            ("GET", "/b/k", OF_READS),
            ("HEAD", "/b/k", OF_QUESTIONS),
            ("GET", "/b?list-type=2", OF_QUESTIONS),
            ("PUT", "/b/k", OF_WRITES),
        ] {
            let mut met: BTreeMap<Fault, u32> = BTreeMap::new();
            let count = 100_000;
            for id in 0..count {
                if let Some(fault) = of(3, u128::from(id), method, path, 0) {
                    *met.entry(fault).or_default() += 1;
                }
            }
            let total: u32 = met.values().sum();
            let due = count * FAULTS_PER_MILLE as u32 / 1000;
            assert!(total.abs_diff(due) < due / 20, "{method} {total} of {due}");
            let weights: u32 = kinds.iter().map(|(_, weight)| weight).sum();
            assert_eq!(met.len(), kinds.len(), "{method}: {met:?}");
            for (fault, weight) in kinds {
                let due = total * weight / weights;
                assert!(met[fault].abs_diff(due) < due / 3 + 20, "{method} {fault:?}: {} of {due}", met[fault]);
            }
        }
    }

    #[test]
    fn only_writes_lose_their_answers() {
        for id in 0..20_000 {
            assert!(of(5, id, "GET", "/b/k", 0).is_none_or(|fault| !fault.loses_the_answer()));
            assert!(of(5, id, "PUT", "/b/k", 0).is_none_or(|fault| !matches!(fault, CutBody | WrongRange | Changed)));
        }
    }

    #[test]
    fn the_calendar_is_the_seeds_and_keeps_within_its_storm() {
        let storm = Duration::from_secs(20);
        for seed in 0..50 {
            let days = calendar(seed, 3, storm);
            assert_eq!(days, calendar(seed, 3, storm));
            assert!((2..8).contains(&days.len()), "{days:?}");
            assert!(days.windows(2).all(|two| two[0].at + two[0].lasts < two[1].at));
            assert!(days.iter().all(|day| day.at + day.lasts <= storm));
        }
        assert_ne!(calendar(1, 0, storm), calendar(1, 1, storm));
        assert_ne!(calendar(1, 0, storm), calendar(2, 0, storm));
    }

    #[test]
    fn a_burst_meets_most_and_spares_some() {
        let met = (0..1000).filter(|id| in_burst(1, Asked { id: *id, method: "GET", path: "/b/k", nth: 0 })).count();
        assert!((600..800).contains(&met), "{met}");
    }

    #[test]
    fn names_are_words() {
        assert_eq!(LostInGarbage.name(), "lost in garbage");
        assert_eq!(Reset.name(), "reset");
    }
}
