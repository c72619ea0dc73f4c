//! What goes wrong with a simulated store, and when. [`Act`] is what one attempt does, [`Step`] adds how long it takes;
//! [`Faults`] are windows of simulated time in which attempts on some keys meet a [`Fault`]. All chance comes from one seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// What an attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Healthy,
    Unreachable,
    /// The connection breaks after the request was sent: no answer. A write has not arrived.
    Reset,
    Garbled,
    /// No head, ever. A write is not carried out.
    Silent,
    /// An error with this status and this code.
    Status(u16, &'static str),
    /// The body breaks after so many bytes.
    Cut(usize),
    /// The body ends early, without an error.
    EndEarly(usize),
    /// The body says nothing more after so many bytes.
    StallAfter(usize),
    /// The body comes, but 16 bytes at a time, with so many milliseconds before each.
    Drip(u64),
    /// Healthy, but the length is not said.
    NoLength,
    /// The length is not said, and the body breaks after so many bytes.
    NoLengthCut(usize),
    /// So many bytes more than was said.
    Longer(usize),
    /// 200 with everything, whatever was asked.
    Everything,
    /// Healthy, but blind to If-Match.
    Unconditional,
    /// Another range than was asked for, and it says so.
    OtherRange,
    /// Another total than the object has.
    OtherTotal,
    /// A range without a Content-Range.
    NoContentRange,
    /// 304 though nothing was asked to be compared.
    NotModified,
    /// A write is carried out, and its answer is lost with the connection. A read is reset.
    LostAnswer,
    /// A write is carried out, and then nothing is ever heard. A read gets no head.
    SilentAfterWrite,
    /// Half the body of a write arrives, then the connection breaks. A read is reset.
    HalfArrives,
}

impl Act {
    /// What this does to a request that goes through as it is. A client of HTTP sees to lengths, so that a body which ends
    /// early breaks and one that is longer does not; and nobody holds a plain answer against what was asked.
    pub fn of_plain_read(self) -> Self {
        match self {
            Self::EndEarly(at) | Self::NoLengthCut(at) => Self::Cut(at),
            Self::NoLength
            | Self::Longer(_)
            | Self::Everything
            | Self::Unconditional
            | Self::OtherRange
            | Self::OtherTotal
            | Self::NoContentRange
            | Self::NotModified => Self::Healthy,
            act => act.of_read(),
        }
    }

    /// What this does to a read: the faults of writes are no answers.
    pub fn of_read(self) -> Self {
        match self {
            Self::LostAnswer | Self::HalfArrives => Self::Reset,
            Self::SilentAfterWrite => Self::Silent,
            act => act,
        }
    }

    /// What this does to a write: the faults of bodies that come back are none.
    pub fn of_write(self) -> Self {
        match self {
            Self::Unreachable
            | Self::Reset
            | Self::Garbled
            | Self::Silent
            | Self::Status(..)
            | Self::LostAnswer
            | Self::SilentAfterWrite
            | Self::HalfArrives => self,
            _ => Self::Healthy,
        }
    }
}

/// One attempt: what it does, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub act: Act,
    /// The object changes before this attempt.
    pub changes: bool,
    pub head_ms: u64,
    pub frame_ms: u64,
    pub frame_bytes: usize,
}

impl Step {
    pub fn of(act: Act) -> Self {
        Self { act, changes: false, head_ms: 5, frame_ms: 0, frame_bytes: 700 }
    }
}

/// What attempts meet in a window.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nobody listens; what was open when it began is reset.
    Down,
    /// Connections are taken and nothing is said.
    Mute,
    /// Every attempt is answered with this status and this code.
    Says(u16, &'static str),
    /// The store has another address: so many attempts still go to the old one, where half are refused and half are reset.
    Moved { attempts: u32 },
    /// An attempt does one of `acts` with the probability `share`; before it the object changes with `change_share`.
    Mixed { share: f64, change_share: f64, acts: Vec<Act> },
}

/// A fault, from when to when after the beginning, and on which keys.
#[derive(Clone, Debug)]
pub struct FaultWindow {
    pub from: Duration,
    pub until: Duration,
    /// Of the keys that meet it.
    pub prefix: String,
    pub fault: Fault,
}

impl FaultWindow {
    /// On all keys.
    pub fn of(fault: Fault, from: Duration, until: Duration) -> Self {
        Self { from, until, prefix: String::new(), fault }
    }
}

/// The windows of a store. The first that holds decides.
pub struct Faults {
    begun: Instant,
    windows: Vec<FaultWindow>,
    random: SmallRng,
}

impl Faults {
    /// Must be made inside a runtime whose clock is paused; windows count from now.
    pub fn new(windows: Vec<FaultWindow>, seed: u64) -> Self {
        Self { begun: Instant::now(), windows, random: SmallRng::seed_from_u64(seed) }
    }

    /// What the next attempt on `key` does, where it would do `otherwise`.
    pub fn step(&mut self, key: &str, otherwise: Step) -> Step {
        let now = self.begun.elapsed();
        let holds = |w: &&mut FaultWindow| w.from <= now && now < w.until && key.starts_with(&w.prefix);
        let spent = |w: &&mut FaultWindow| matches!(w.fault, Fault::Moved { attempts: 0 });
        let Some(window) = self.windows.iter_mut().filter(|w| !spent(w)).find(holds) else { return otherwise };
        let act = |act| Step { act, ..otherwise };
        match &mut window.fault {
            Fault::Down => act(Act::Unreachable),
            Fault::Mute => act(Act::Silent),
            Fault::Says(status, code) => act(Act::Status(*status, code)),
            Fault::Moved { attempts } => {
                *attempts -= 1;
                act(if *attempts % 2 == 0 { Act::Unreachable } else { Act::Reset })
            }
            Fault::Mixed { share, change_share, acts } => {
                let changes = self.random.random_bool(*change_share);
                let meets = self.random.random_bool(*share);
                let drawn = acts[self.random.random_range(0..acts.len())];
                Step { act: if meets { drawn } else { otherwise.act }, changes, ..otherwise }
            }
        }
    }

    /// When what is open on `key` now will be reset, if ever.
    pub fn next_reset(&self, key: &str) -> Option<Instant> {
        let now = self.begun.elapsed();
        let resets = |w: &&FaultWindow| matches!(w.fault, Fault::Down) && w.from > now && key.starts_with(&w.prefix);
        self.windows.iter().filter(resets).map(|w| self.begun + w.from).min()
    }
}
