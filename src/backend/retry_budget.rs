//! How many of the requests to a backend may be retries. In come first attempts and wishes to retry, out goes leave or none.
//! Invariant: retries of the last ten seconds are at most a share of the first attempts of that time, and ten a second beside
//! them; so an outage is not multiplied, and a backend with little traffic, or with none that is new, is still tried.

use std::time::Duration;

use tower::retry::budget::{Budget, TpsBudget};

use crate::telemetry::BackendMetrics;

/// For how long a first attempt pays for retries.
const TTL: Duration = Duration::from_secs(10);

/// Retries that need no traffic, each second anew: what is left of them is not kept, lest they all go at the beginning of an
/// outage and none be left for its end.
const FLOOR_PER_SECOND: u32 = 10;

/// The retries of one backend.
#[derive(Debug)]
pub struct RetryBudget {
    share: TpsBudget,
    floor: TpsBudget,
    metrics: BackendMetrics,
}

impl RetryBudget {
    /// A budget of `share`, from 0.0 to 1.0, of the first attempts.
    pub fn new(share: f64, metrics: BackendMetrics) -> Self {
        assert!((0.0..=1.0).contains(&share), "settings are validated");
        let floor = TpsBudget::new(Duration::from_secs(1), FLOOR_PER_SECOND, 0.0);
        Self { share: TpsBudget::new(TTL, 0, share as f32), floor, metrics }
    }

    /// The first attempt of a read or request is sent.
    pub fn deposit(&self) {
        self.share.deposit();
    }

    /// Whether a retry may be sent now; a refusal is counted. Who is refused waits another back-off and asks again.
    pub fn withdraw(&self) -> bool {
        let granted = self.share.withdraw() || self.floor.withdraw();
        if !granted {
            self.metrics.retries_refused.inc();
        }
        granted
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
        std::iter::repeat_with(|| budget.withdraw()).take_while(|granted| *granted).count() as u32
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
