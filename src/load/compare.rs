//! Two jobs in turns, so that whatever else the machine does meets both alike. What enters are the jobs and a number of rounds;
//! what leaves is what each came to, and the ratio of the two in each round, as a median with its spread.

use std::sync::Arc;

use super::ask::Asker;
use super::job::Job;
use super::measured::{Measured, ratio};
use super::{Control, measure, warm_up};
use crate::client::Endpoint;

/// What two jobs came to.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The first job, all rounds together.
    pub first: Measured,
    /// The second one.
    pub second: Measured,
    /// Objects a second of the first by those of the second; none if no round was finished.
    pub speed: Option<Spread>,
    /// This process's CPU time for an object of the first by that of the second.
    pub own_cpu: Option<Spread>,
}

/// A figure that was measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many there were.
    pub rounds: usize,
}

impl Spread {
    /// Of these figures, if there are any.
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (low, high, rounds) = (*figures.first()?, *figures.last()?, figures.len());
        Some(Self { median: (figures[(rounds - 1) / 2] + figures[rounds / 2]) / 2.0, low, high, rounds })
    }
}

/// Runs both jobs in turns, each in `rounds` parts of its extent, after the warm-up of each.
pub async fn compare(endpoint: &Arc<Endpoint>, first: &Job, second: &Job, rounds: u64, control: &Arc<Control>) -> Comparison {
    let jobs = [first, second].map(|job| (Arc::new(Asker::new(endpoint, job)), job));
    for (phase, (asker, job)) in (0..).zip(&jobs) {
        warm_up(asker, job, control, phase).await;
    }
    let mut parts = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (side, (asker, job)) in jobs.iter().enumerate() {
            if control.stop.is_cancelled() {
                break;
            }
            control.say(format!("round {} of {rounds}: {}, {}", round + 1, job.mode, job.pace));
            // Both sides of a round draw the same objects where they ask alike.
            let part = measure(asker, job, job.extent.part(round, rounds), control, 2 + round).await;
            parts[side].push(part);
        }
    }
    summary(&parts[0], &parts[1])
}

fn summary(first: &[Measured], second: &[Measured]) -> Comparison {
    let whole = || first.iter().zip(second).filter(|(a, b)| !a.cut_short && !b.cut_short);
    let speed = whole().filter(|(_, b)| b.objects() > 0).map(|(a, b)| ratio(a.objects_per_second(), b.objects_per_second()));
    let own_cpu = whole().filter_map(|(a, b)| {
        let (a, b) = (a.own_cpu_micros_per_object()?, b.own_cpu_micros_per_object()?);
        // To a hundredth of a second, a short round may have taken none.
        (a > 0.0 && b > 0.0).then(|| a / b)
    });
    Comparison {
        speed: Spread::of(speed.collect()),
        own_cpu: Spread::of(own_cpu.collect()),
        first: sum(first),
        second: sum(second),
    }
}

fn sum(parts: &[Measured]) -> Measured {
    let mut sum = Measured::default();
    parts.iter().for_each(|part| sum.add(part));
    sum
}
