//! Violations that are planted, so that the campaign can be seen to fail: each belongs to one of its invariants.

use crate::faults::{Asked, mix};
use crate::report::{Invariant, Report};

/// A planted violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// The proxy turns one bit of a body of the right length.
    WrongByte,
    /// The proxy answers with what an object was when it was first asked for.
    Stale,
    /// The client overlooks a part.
    LostPart,
    /// The client takes the end of a batch that broke, or that it left, for a clean one.
    LooksWhole,
    /// The proxy refuses with 403 and does not say so.
    Unexplained,
    /// A permit seems to be in use at a pause.
    Leak,
    /// The memory that is allowed is 1 MiB.
    Memory,
    /// A descriptor more seems to be open at each pause.
    Descriptors,
    /// A request may take no time at all.
    Deadline,
    /// The proxy sends writes twice.
    DoubleWrite,
    /// The campaign deletes what was written before it looks.
    LostWrite,
    /// The client does not hear that the outcome of a write is unknown.
    Unsaid,
    /// The store's address stands in a header.
    Address,
    /// The gateway is killed at the end.
    Kill,
}

impl Plant {
    /// Which invariant it violates, and a word of what is said of it.
    fn violates(self) -> (Invariant, &'static str) {
        match self {
            Self::WrongByte => (Invariant::Bytes, "wrong bytes"),
            Self::Stale => (Invariant::Bytes, "was not there while"),
            Self::LostPart => (Invariant::Count, "have no part"),
            Self::LooksWhole => (Invariant::Whole, "ends cleanly"),
            Self::Unexplained => (Invariant::Explained, "403"),
            Self::Leak => (Invariant::Gauges, "planted"),
            Self::Memory => (Invariant::Memory, "the most"),
            Self::Descriptors => (Invariant::Flat, "descriptors"),
            Self::Deadline => (Invariant::Deadline, "batch"),
            Self::DoubleWrite => (Invariant::Once, "2 times"),
            Self::LostWrite => (Invariant::Kept, "was accepted and is not there"),
            Self::Unsaid => (Invariant::Unknown, "its answer was lost"),
            Self::Address => (Invariant::Secrets, "stands in an answer"),
            Self::Kill => (Invariant::Process, "did not end as told"),
        }
    }
}

/// All of them, with their names.
pub const ALL: &[(&str, Plant)] = &[
    ("wrong-byte", Plant::WrongByte),
    ("stale", Plant::Stale),
    ("lost-part", Plant::LostPart),
    ("looks-whole", Plant::LooksWhole),
    ("unexplained", Plant::Unexplained),
    ("leak", Plant::Leak),
    ("memory", Plant::Memory),
    ("descriptors", Plant::Descriptors),
    ("deadline", Plant::Deadline),
    ("double-write", Plant::DoubleWrite),
    ("lost-write", Plant::LostWrite),
    ("unsaid", Plant::Unsaid),
    ("address", Plant::Address),
    ("kill", Plant::Kill),
];

/// One in so many requests meets what the proxy plants.
const ONE_IN: u64 = 6;

/// Which are planted.
#[derive(Clone, Debug, Default)]
pub struct Plants(Vec<Plant>);

impl Plants {
    /// By their names, or `all`.
    pub fn parse(names: &str) -> Result<Self, String> {
        if names == "all" {
            return Ok(Self(ALL.iter().map(|(_, plant)| *plant).collect()));
        }
        let find = |name: &str| ALL.iter().find(|(known, _)| *known == name).map(|(_, plant)| *plant);
        let plants = names.split(',').map(|name| find(name).ok_or_else(|| format!("{name:?} cannot be planted")));
        plants.collect::<Result<_, _>>().map(Self)
    }

    /// Whether this is planted.
    pub fn has(&self, plant: Plant) -> bool {
        self.0.contains(&plant)
    }

    /// How many are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that were not found as violations of what they violate.
    pub fn missed(&self, report: &Report) -> Vec<Plant> {
        self.0.iter().copied().filter(|plant| !report.has(plant.violates())).collect()
    }

    /// Whether anything is.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether this is planted and strikes here.
    pub fn strikes(&self, plant: Plant, asked: Asked<'_>) -> bool {
        self.has(plant) && mix(mix(asked.id as u64) ^ plant as u64 ^ u64::from(asked.nth) << 8).is_multiple_of(ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plants_are_known_by_their_names() {
        let plants = Plants::parse("leak,kill").expect("known");
        assert!(plants.has(Plant::Leak) && plants.has(Plant::Kill) && !plants.has(Plant::Memory));
        assert!(Plants::parse("weed").is_err() && !Plants::default().any());
        let all = Plants::parse("all").expect("known");
        assert!(ALL.iter().all(|(_, plant)| all.has(*plant)));
        let struck = (0..10_000).filter(|id| all.strikes(Plant::WrongByte, Asked { id: *id, method: "GET", path: "/", nth: 0 }));
        assert!((1400..1900).contains(&struck.count()));
    }
}
