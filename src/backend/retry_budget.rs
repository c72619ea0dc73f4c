//! How many of the requests to a backend may be retries. In come first attempts and wishes to retry, out goes leave or none.
//! Invariants: retries of the last ten seconds are at most a share of the first attempts of that time, and ten a second beside
//! them; so an outage is not multiplied, and a backend with little traffic, or with none that is new, is still tried. Half of
//! both is kept for early retries: what fails again and again does not use up what others need once.

use std::time::Duration;

use tower::retry::budget::{Budget, TpsBudget};

use crate::telemetry::BackendMetrics;

/// For how long a first attempt pays for retries.
const TTL: Duration = Duration::from_secs(10);

/// Retries that need no traffic, each second anew: what is left of them is not kept, lest they all go at the beginning of an
/// outage and none be left for its end.
const FLOOR_PER_SECOND: u32 = 10;

/// Whose retry it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A read's first since anything came of it, or that of a request that is sent again no more than a few times.
    Early,
    /// Of a read that has been tried again in vain.
    Late,
}

/// The retries of one backend.
#[derive(Debug)]
pub struct RetryBudget {
    any: Half,
    early: Half,
    metrics: BackendMetrics,
}

impl RetryBudget {
    /// A budget of `share`, from 0.0 to 1.0, of the first attempts.
    pub fn new(share: f64, metrics: BackendMetrics) -> Self {
        assert!((0.0..=1.0).contains(&share), "settings are validated");
        Self { any: Half::new(share), early: Half::new(share), metrics }
    }

    /// The first attempt of a read or request is sent.
    pub fn deposit(&self) {
        self.any.share.deposit();
        self.early.share.deposit();
    }

    /// Whether a retry may be sent now; a refusal is counted. Who is refused waits another back-off and asks again.
    pub fn withdraw(&self, retry: Retry) -> bool {
        let granted = self.any.withdraw() || (retry == Retry::Early && self.early.withdraw());
        if !granted {
            self.metrics.retries_refused.inc();
        }
        granted
    }
}

/// Half of the share, and half of the floor.
#[derive(Debug)]
struct Half {
    share: TpsBudget,
    floor: TpsBudget,
}

impl Half {
    fn new(share: f64) -> Self {
        let floor = TpsBudget::new(Duration::from_secs(1), FLOOR_PER_SECOND / 2, 0.0);
        Self { share: TpsBudget::new(TTL, 0, share as f32 / 2.0), floor }
    }

    fn withdraw(&self) -> bool {
        self.share.withdraw() || self.floor.withdraw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    fn budget(share: f64) -> RetryBudget {
        RetryBudget::new(share, Metrics::new().backend("b"))
    }

    fn drain(budget: &RetryBudget) -> u32 {
        drain_by(budget, Retry::Early)
    }

    fn drain_by(budget: &RetryBudget, retry: Retry) -> u32 {
        std::iter::repeat_with(|| budget.withdraw(retry)).take_while(|granted| *granted).count() as u32
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_again_and_again_leaves_half_to_early_retries() {
        let budget = budget(0.2);
        for _ in 0..10 {
            (0..100).for_each(|_| budget.deposit());
            let late = drain_by(&budget, Retry::Late);
            let early = drain(&budget);
            assert!(early >= FLOOR_PER_SECOND / 2 + 10 && late <= early + 1, "{late} {early}");
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        // Early ones have all of it where nobody else retries.
        tokio::time::advance(2 * TTL).await;
        assert_eq!(drain(&budget), FLOOR_PER_SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_share_of_the_traffic_beside_a_floor() {
        let budget = budget(0.2);
        assert_eq!(drain(&budget), FLOOR_PER_SECOND);
        assert_eq!(budget.metrics.retries_refused.get(), 1);
        (0..1000).for_each(|_| budget.deposit());
        assert_eq!(drain(&budget), 200);
        // What was paid in and taken out is forgotten.
        tokio::time::advance(2 * TTL).await;
        assert_eq!(drain(&budget), FLOOR_PER_SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn the_floor_is_there_each_second_whatever_happened() {
        let budget = budget(0.0);
        (0..1000).for_each(|_| budget.deposit());
        let mut granted = 0;
        for _ in 0..100 {
            tokio::time::advance(TTL / 100).await;
            granted += drain(&budget);
        }
        assert!((90..=110).contains(&granted), "{granted} in ten seconds");
    }
}
