//! Two jobs in turns, so that whatever else the machine does meets both alike. What enters are the jobs and a number of rounds;
//! what leaves is what each came to, and the ratio of the two in each round, as a median with its spread. Invariant: both sides
//! are treated alike, in their order and in which rounds count.

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
    /// Objects a second of the first by those of the second; none if no round has a ratio.
    pub speed: Option<Spread>,
    /// Rounds that both sides finished and that have no ratio all the same, since a side got no object in them.
    pub rounds_without_ratio: usize,
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

/// Runs both jobs in turns, each in `rounds` parts of its extent, after the warm-up of each. The first job begins the first
/// round, the second one the next, and so on: whatever drifts meanwhile favours nobody.
pub async fn compare(endpoint: &Arc<Endpoint>, first: &Job, second: &Job, rounds: u64, control: &Arc<Control>) -> Comparison {
    let jobs = [first, second].map(|job| (Arc::new(Asker::new(endpoint, job)), job));
    for (phase, (asker, job)) in (0..).zip(&jobs) {
        warm_up(asker, job, control, phase).await;
    }
    let mut parts = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for side in turns(round) {
            let (asker, job) = &jobs[side];
            if control.stop.is_cancelled() {
                break;
            }
            control.say(format!("round {} of {rounds}: {}, {}", round + 1, job.mode, job.pace));
            // Both sides of a round draw the same objects where they ask alike.
            let part = measure(asker, job, job.extent.part(round, rounds), control, 2 + round).await;
            parts[side].push(part);
        }
    }
    summary(&parts[0], &parts[1], rounds)
}

/// Which side goes first in a round, and which second.
fn turns(round: u64) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

fn summary(first: &[Measured], second: &[Measured], rounds: u64) -> Comparison {
    let whole = || first.iter().zip(second).filter(|(a, b)| !a.cut_short && !b.cut_short);
    // A side that got nothing would make it zero or infinite.
    let speed = whole().filter(|(a, b)| a.objects() > 0 && b.objects() > 0);
    let speed: Vec<_> = speed.map(|(a, b)| ratio(a.objects_per_second(), b.objects_per_second())).collect();
    let own_cpu = whole().filter_map(|(a, b)| {
        let (a, b) = (a.own_cpu_micros_per_object()?, b.own_cpu_micros_per_object()?);
        // To a hundredth of a second, a short round may have taken none.
        (a > 0.0 && b > 0.0).then(|| a / b)
    });
    Comparison {
        rounds_without_ratio: whole().count() - speed.len(),
        speed: Spread::of(speed),
        own_cpu: Spread::of(own_cpu.collect()),
        first: sum(first, rounds),
        second: sum(second, rounds),
    }
}

/// A side that was told to stop before its last round began was cut short, whatever its rounds say.
fn sum(parts: &[Measured], rounds: u64) -> Measured {
    let mut sum = Measured { cut_short: (parts.len() as u64) < rounds, ..Measured::default() };
    parts.iter().for_each(|part| sum.add(part));
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::job::Kind;
    use super::super::measured::Sample;
    use super::*;

    fn part(objects: usize, seconds: f64, cpu_seconds: f64, cut_short: bool) -> Measured {
        let mut sample = Sample::default();
        sample.begin(Kind::Batch);
        sample.object_times = vec![Duration::from_millis(1); objects];
        let mut part = Measured { seconds, own_cpu_seconds: Some(cpu_seconds), cut_short, ..Measured::default() };
        part.take(&sample);
        part
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_with_its_spread() {
        let first: Vec<_> = [300, 800, 500].map(|objects| part(objects, 1.0, 0.3, false)).into();
        let second: Vec<_> = [100, 100, 200].map(|objects| part(objects, 1.0, 0.2, false)).into();
        let both = summary(&first, &second, 3);
        assert_eq!(both.speed, Some(Spread { median: 3.0, low: 2.5, high: 8.0, rounds: 3 }));
        assert!(both.own_cpu.is_some_and(|cpu| (cpu.median - 0.5).abs() < 1e-9), "{:?}", both.own_cpu);
        assert_eq!((both.first.objects(), both.first.seconds, both.second.objects()), (1600, 3.0, 400));
    }

    #[test]
    fn a_round_that_was_cut_short_has_no_ratio() {
        let whole = part(100, 1.0, 0.1, false);
        let both = summary(&[whole.clone(), part(5, 1.0, 0.0, true)], &[whole.clone(), whole], 2);
        assert_eq!(both.speed.map(|speed| (speed.median, speed.rounds)), Some((1.0, 1)));
        assert_eq!((both.first.cut_short, both.second.cut_short, both.rounds_without_ratio), (true, false, 0));
    }

    #[test]
    fn a_round_in_which_either_side_got_nothing_has_no_ratio() {
        let (some, none) = (part(100, 1.0, 0.1, false), part(0, 1.0, 0.1, false));
        for (first, second) in [(&none, &some), (&some, &none), (&none, &none)] {
            let both = summary(&[some.clone(), first.clone()], &[some.clone(), second.clone()], 2);
            assert_eq!(both.speed.map(|speed| (speed.low, speed.high, speed.rounds)), Some((1.0, 1.0, 1)));
            assert_eq!(both.rounds_without_ratio, 1);
        }
        let both = summary(&[some], &[none], 1);
        assert_eq!((both.speed, both.own_cpu, both.rounds_without_ratio), (None, None, 1));
    }

    #[test]
    fn a_side_that_did_not_have_all_its_rounds_was_cut_short() {
        let whole = part(100, 1.0, 0.1, false);
        let both = summary(&[], &[], 2);
        assert!(both.first.cut_short && both.second.cut_short, "stopped in the warm-up");
        let both = summary(&[whole.clone(), whole.clone()], &[whole], 2);
        assert!(!both.first.cut_short && both.second.cut_short);
    }

    #[test]
    fn who_goes_first_alternates() {
        assert_eq!([0, 1, 2, 3].map(turns), [[0, 1], [1, 0], [0, 1], [1, 0]]);
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
