//! An outage, as all who ask a backend see it together, or as one batch does alone: since when it has completed nothing for them
//! and failed, or put off, whoever asked. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::Cause;

/// A time in which the backend completed nothing and failed or put off whoever asked.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// When it began.
    pub since: Instant,
    /// A read that was given time in spite of it has failed too.
    pub confirmed: bool,
    /// How it failed last; nothing if it only pleaded to slow down.
    pub cause: Option<Cause>,
    met_at: Instant,
}

impl Outage {
    /// The outage once somebody got nothing, who asked at `since` if it is the first. Where nobody has met it for `memory`, it
    /// is another.
    pub fn met(before: Option<Self>, since: Instant, cause: Option<Cause>, memory: Duration) -> Self {
        let now = Instant::now();
        let before = before.filter(|outage| outage.goes_on_at(now, memory));
        let outage = before.unwrap_or(Self { since, confirmed: false, cause: None, met_at: now });
        Self { met_at: now, cause: cause.or(outage.cause), ..outage }
    }

    /// Of two views of it the one that goes back further, with all that is known of the cause.
    pub fn older(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        let (older, newer) = if one.since <= other.since { (one, other) } else { (other, one) };
        Some(Self { cause: older.cause.or(newer.cause), ..older })
    }

    /// Whether it may still last.
    pub fn goes_on_at(&self, now: Instant, memory: Duration) -> bool {
        now.duration_since(self.met_at) < memory
    }
}
