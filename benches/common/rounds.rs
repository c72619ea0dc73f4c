//! Rounds, in which what is compared takes turns: whatever else the machine does falls on all of it. What enters are jobs; what
//! leaves are samples, one for each round. Invariant: a ratio is made of the two figures of one round.

use super::Fallible;
use super::table::Samples;

/// How thorough to be.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds of each measure of time.
    pub rounds: usize,
    /// Rounds of each measure of memory, each with fresh gateways.
    pub memory_rounds: usize,
    /// By what the numbers of requests or objects are divided.
    pub divisor: u64,
}

/// One way to do a thing, with what came of it in each round.
pub struct Mode<J, O> {
    /// In words.
    pub what: String,
    /// What is done in a round.
    pub job: J,
    rounds: Vec<O>,
}

impl<J, O> Mode<J, O> {
    /// Before any round.
    pub fn new(what: impl Into<String>, job: J) -> Self {
        Self { what: what.into(), job, rounds: Vec::new() }
    }

    /// A figure of every round.
    pub fn samples(&self, of: impl Fn(&O) -> f64) -> Samples {
        Samples::new(self.rounds.iter().map(of).collect())
    }

    /// In each round, the figure of this mode over that of `other`.
    pub fn ratio(&self, other: &Self, of: impl Fn(&O) -> f64) -> Samples {
        self.ratio_of(&of, other, &of)
    }

    /// In each round, one figure of this mode over another one of `other`.
    pub fn ratio_of(&self, of: impl Fn(&O) -> f64, other: &Self, of_other: impl Fn(&O) -> f64) -> Samples {
        Samples::new(self.rounds.iter().zip(&other.rounds).map(|(a, b)| of(a) / of_other(b)).collect())
    }
}

/// Lets every mode have its turn in each round.
pub fn take_turns<J, O>(modes: &mut [Mode<J, O>], rounds: usize, mut turn: impl FnMut(&J) -> Fallible<O>) -> Fallible<()> {
    for _ in 0..rounds {
        for mode in modes.iter_mut() {
            mode.rounds.push(turn(&mode.job)?);
        }
    }
    Ok(())
}
