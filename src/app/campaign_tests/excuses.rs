//! What excuses an error that a client got: what the store did to the key itself, or to everyone, while the request was under
//! way. In comes an outcome, out goes whether there was a reason for it.

use super::clients::Outcome;
use super::judge::Judge;
use crate::batch::tests::Wanted;
use crate::batch::tests::objects::{Object, healthy};
use crate::batch::tests::store::{Act, Fault, FaultWindow};
use crate::error::code_of_status;

impl Judge<'_> {
    /// Whether what the key's own attempts met, or an outage of the whole store, ends in such an error. What may be better when
    /// it is tried again is an end only once the deadline has passed.
    pub(super) fn explains(&self, outcome: &Outcome, key: &str, status: u16, code: &str) -> bool {
        let trouble = self.is_trouble(outcome) || self.is_left_behind(outcome);
        let late = status == 504 || (status == 503 && matches!(code, "ServiceUnavailable" | "SlowDown"));
        let tried = outcome.ended - outcome.started >= self.world.numbers.deadline || trouble;
        let says = |named: &str| code == named || code == code_of_status(status);
        let own = self.met_by(outcome, key).any(|met| match met.act {
            Act::Status(said @ (500 | 502 | 503 | 504), named) => tried && (late || said == status && says(named)),
            Act::Status(429, _) => tried && late,
            Act::Status(said, named) => said == status && says(named),
            Act::Garbled
            | Act::Longer(_)
            | Act::Everything
            | Act::Unconditional
            | Act::OtherRange
            | Act::NoContentRange
            | Act::NotModified
            | Act::NoLength => status == 502,
            // Without a length it is held whole or not at all.
            Act::NoLengthCut(_) => status == 502 || (tried && late),
            Act::Healthy => met.changes && tried && late,
            _ => tried && late,
        });
        own || (trouble && late)
    }

    /// Whether an entry may have been without a turn until its deadline, or have got it too late: enough of the store was unwell to
    /// take all permits or to open the breaker.
    fn is_left_behind(&self, outcome: &Outcome) -> bool {
        outcome.ended - outcome.started >= self.world.numbers.deadline && self.is_unwell(outcome)
    }

    pub(super) fn may_fail(&self, outcome: &Outcome, wanted: &Wanted) -> bool {
        let versions = self.versions(&wanted.key, outcome.started, outcome.ended);
        let refuses = |version: &Option<Object>| healthy(&wanted.ask(), version.as_ref()).0.as_u16() >= 400;
        wanted.key.starts_with("denied")
            || versions.iter().any(refuses)
            || self.met_by(outcome, &wanted.key).any(|met| met.act != Act::Healthy || met.changes)
            || self.is_trouble(outcome)
            || self.is_left_behind(outcome)
    }

    /// Whether the store as a whole was unwell while the request was under way, or shortly before.
    pub(super) fn is_trouble(&self, outcome: &Outcome) -> bool {
        self.is_bad(outcome, |window| window.prefix.is_empty())
    }

    /// Whether anything was: if nobody asks for anything else, a part of the keys is all that the breaker sees.
    pub(super) fn is_unwell(&self, outcome: &Outcome) -> bool {
        self.is_bad(outcome, |_| true)
    }

    fn is_bad(&self, outcome: &Outcome, like: impl Fn(&FaultWindow) -> bool) -> bool {
        let (from, until) = (outcome.started.duration_since(self.begun), outcome.ended.duration_since(self.begun));
        let from = from.saturating_sub(self.gateway.rig.backend.breaker.memory());
        let bad = |fault: &Fault| !matches!(fault, Fault::Says(403, _));
        self.world.windows.iter().any(|w| like(w) && bad(&w.fault) && w.from <= until && from <= w.until)
    }
}
