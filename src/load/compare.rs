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
        let both = summary(&first, &second);
        assert_eq!(both.speed, Some(Spread { median: 3.0, low: 2.5, high: 8.0, rounds: 3 }));
        assert!(both.own_cpu.is_some_and(|cpu| (cpu.median - 0.5).abs() < 1e-9), "{:?}", both.own_cpu);
        assert_eq!((both.first.objects(), both.first.seconds, both.second.objects()), (1600, 3.0, 400));
    }

    #[test]
    fn a_round_that_was_cut_short_or_brought_nothing_has_no_ratio() {
        let whole = part(100, 1.0, 0.1, false);
        let both = summary(&[whole.clone(), part(5, 1.0, 0.0, true)], &[whole.clone(), part(100, 1.0, 0.1, false)]);
        assert_eq!(both.speed.map(|speed| (speed.median, speed.rounds)), Some((1.0, 1)));
        assert!(both.first.cut_short && !both.second.cut_short);
        let none = summary(&[whole], &[part(0, 1.0, 0.1, false)]);
        assert_eq!((none.speed, none.own_cpu), (None, None));
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
