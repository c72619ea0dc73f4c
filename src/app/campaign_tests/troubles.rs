//! What goes wrong with the store of a run, and when: windows of time, each with a trouble that is dealt from a deck, so that every
//! run meets all of them. All chance comes from the run's seed.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};

use crate::batch::tests::store::{Act, Fault, FaultWindow};

/// Kinds of trouble. Each comes once before any comes again, so that every run meets all of them several times.
#[derive(Clone, Copy)]
enum Trouble {
    Down,
    Mute,
    Says,
    Moved,
    /// Some attempts do any of some acts.
    Mixed,
    /// A part of the keys is mute for longer than a deadline, while all others are well.
    MuteKeys,
    /// A part of the keys drips, so that no read of them ends within its deadline.
    Drips,
    /// Bodies break, objects change, and the store is blind to If-Match: what is resumed is of another generation.
    Blind,
    /// What streams breaks, and is another object then.
    Torn,
    /// Answers to writes are lost.
    Lost,
    /// Everything is denied: an answer, and no failure.
    Denied,
}

const DECK: [Trouble; 16] = [
    Trouble::Down,
    Trouble::Down,
    Trouble::Mute,
    Trouble::Says,
    Trouble::Says,
    Trouble::Moved,
    Trouble::Mixed,
    Trouble::Mixed,
    Trouble::Mixed,
    Trouble::Mixed,
    Trouble::MuteKeys,
    Trouble::Drips,
    Trouble::Blind,
    Trouble::Torn,
    Trouble::Lost,
    Trouble::Denied,
];

/// Calm times between troubles of all kinds.
pub(super) fn windows(random: &mut SmallRng, span: Duration) -> Vec<FaultWindow> {
    let mut windows = Vec::new();
    let mut from = Duration::from_secs(20);
    let mut deck = Vec::new();
    while from < span {
        if deck.is_empty() {
            deck = DECK.to_vec();
            deck.shuffle(random);
        }
        let trouble = deck.pop().expect("just filled");
        let length = Duration::from_millis(length_ms(random, trouble));
        windows.push(FaultWindow {
            from,
            until: from + length,
            prefix: prefix(random, trouble).to_owned(),
            fault: fault(random, trouble),
        });
        // Now and then one trouble overlaps another.
        let calm = if random.random_bool(0.2) { 0..2000 } else { 5000..60_000 };
        from += length / 2 + Duration::from_millis(random.random_range(calm));
    }
    windows
}

fn length_ms(random: &mut SmallRng, trouble: Trouble) -> u64 {
    let range = match trouble {
        Trouble::MuteKeys | Trouble::Drips => 40_000..100_000,
        Trouble::Blind | Trouble::Torn | Trouble::Lost | Trouble::Denied => 30_000..60_000,
        // Longer than a deadline, or shorter.
        Trouble::Down | Trouble::Mute | Trouble::Says if random.random_bool(0.3) => 35_000..100_000,
        _ => 500..25_000,
    };
    random.random_range(range)
}

/// Of the keys that meet it.
fn prefix(random: &mut SmallRng, trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::MuteKeys => ["o/0", "o/1"].choose(random).expect("some"),
        Trouble::Drips => ["o/2", "o/3", "large"].choose(random).expect("some"),
        Trouble::Blind => ["o/", ""].choose(random).expect("some"),
        Trouble::Torn => "large",
        Trouble::Lost => "written",
        Trouble::Denied => "",
        _ if random.random_bool(0.4) => ["o/0", "o/1/3", "large", "written"].choose(random).expect("some"),
        _ => "",
    }
}

fn fault(random: &mut SmallRng, trouble: Trouble) -> Fault {
    let answers = [
        (503, "SlowDown"),
        (503, "SlowDown"),
        (503, "ServiceUnavailable"),
        (500, "InternalError"),
        (403, "AccessDenied"),
        (429, "TooManyRequests"),
        (503, "ThrottlingException"),
    ];
    match trouble {
        Trouble::Down => Fault::Down,
        Trouble::Mute | Trouble::MuteKeys => Fault::Mute,
        Trouble::Says => {
            let (status, code) = *answers.choose(random).expect("some");
            Fault::Says(status, code)
        }
        Trouble::Moved => Fault::Moved { attempts: random.random_range(1..30) },
        Trouble::Mixed => Fault::Mixed {
            share: *[0.03, 0.1, 0.3, 0.6].choose(random).expect("some"),
            change_share: *[0.0, 0.05, 0.3].choose(random).expect("some"),
            acts: (0..random.random_range(1..8)).map(|_| act(random)).collect(),
        },
        Trouble::Drips => Fault::Mixed { share: 1.0, change_share: 0.0, acts: vec![Act::Drip(random.random_range(200..800))] },
        Trouble::Blind => Fault::Mixed {
            share: 0.7,
            change_share: 0.4,
            acts: vec![Act::Cut(200), Act::EndEarly(900), Act::Cut(3000), Act::Unconditional, Act::Unconditional],
        },
        Trouble::Denied => Fault::Says(403, "AccessDenied"),
        Trouble::Lost => Fault::Mixed {
            share: 0.5,
            change_share: 0.0,
            acts: vec![Act::LostAnswer, Act::LostAnswer, Act::HalfArrives, Act::Reset, Act::Unreachable],
        },
        Trouble::Torn => Fault::Mixed {
            share: 0.6,
            change_share: 0.5,
            acts: vec![Act::Cut(3000), Act::Cut(20_000), Act::Cut(50_000), Act::StallAfter(30_000)],
        },
    }
}

fn act(random: &mut SmallRng) -> Act {
    let at = *[0usize, 1, 200, 900, 1024, 3000, 30_000].choose(random).expect("some");
    let answers = [
        (500, "InternalError"),
        (502, "BadGateway"),
        (503, "ServiceUnavailable"),
        (503, "SlowDown"),
        (503, "RequestLimitExceeded"),
        (504, "GatewayTimeout"),
        (403, "AccessDenied"),
        (404, "NoSuchKey"),
        (429, "TooManyRequests"),
        (501, "NotImplemented"),
    ];
    match random.random_range(0..22) {
        0 => Act::Unreachable,
        1 => Act::Reset,
        2 => Act::Garbled,
        3 => Act::Silent,
        4..=6 => {
            let (status, code) = *answers.choose(random).expect("some");
            Act::Status(status, code)
        }
        7 | 8 => Act::Cut(at),
        9 => Act::EndEarly(at),
        10 => Act::StallAfter(at),
        11 => Act::Drip(random.random_range(1..40)),
        12 => Act::NoLength,
        13 => Act::NoLengthCut(at),
        14 => Act::Longer(1 + at),
        15 => Act::Everything,
        16 => Act::Unconditional,
        17 => Act::OtherRange,
        18 => Act::NoContentRange,
        19 => *[Act::LostAnswer, Act::NotModified].choose(random).expect("some"),
        20 => Act::SilentAfterWrite,
        _ => Act::HalfArrives,
    }
}
