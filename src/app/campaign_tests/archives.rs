//! Holds a tar answer against the contract: members are those of a lone read, in order, and a short archive never looks whole.

use super::clients::Outcome;
use super::judge::Judge;
use super::world::Batch;
use crate::batch::tests::objects::{Object, healthy};
use crate::batch::tests::untar::{self, Member};
use crate::batch::tests::{Answer, Ended, Wanted};

impl Judge<'_> {
    /// The number of members that there are.
    pub(super) fn archive(&self, outcome: &Outcome, batch: &Batch, answer: &Answer) -> Result<usize, String> {
        let whole = untar::whole(&answer.octets);
        if answer.ended != Ended::Cleanly {
            if answer.ended == Ended::Broken && whole.is_ok() {
                return Err("a broken archive looks whole".into());
            }
            let members = untar::read(&answer.octets)?.members;
            // The last of them may be the summary.
            let entries = members.iter().filter(|member| member.name != untar::SUMMARY);
            entries.clone().try_for_each(|member| self.member(outcome, batch, member))?;
            return Ok(entries.count());
        }
        let (members, summary) = whole?;
        members.iter().try_for_each(|member| self.member(outcome, batch, member))?;
        let indices: Vec<_> = members.iter().filter_map(|member| index(batch, member)).collect();
        if !batch.completion && !indices.is_sorted() {
            return Err(format!("out of order: {indices:?}"));
        }
        let missing: Vec<_> = (0..batch.wanted.len()).filter(|at| !indices.contains(at)).collect();
        let stopped_at = summary["StoppedAt"].as_u64().map(|at| at as usize);
        let may_be_missing = match (batch.on_error, stopped_at) {
            ("Omit", None) => missing.iter().all(|at| self.may_fail(outcome, &batch.wanted[*at])),
            ("Stop", None) => missing.is_empty(),
            ("Stop", Some(at)) => {
                let follows = batch.completion || missing.first() == Some(&at) && missing.len() == batch.wanted.len() - at;
                follows && missing.contains(&at) && self.may_fail(outcome, &batch.wanted[at])
            }
            _ => false,
        };
        let adds_up =
            summary["Entries"] == batch.wanted.len() && summary["Bytes"] == members.iter().map(|m| m.body.len()).sum::<usize>();
        match may_be_missing && adds_up {
            true => Ok(members.len()),
            false => Err(format!("{summary}, but {missing:?} are missing")),
        }
    }

    /// The bytes of one generation that the object had meanwhile.
    fn member(&self, outcome: &Outcome, batch: &Batch, member: &Member) -> Result<(), String> {
        let wanted =
            index(batch, member).map(|at| &batch.wanted[at]).ok_or_else(|| format!("nobody asked for {:?}", member.name))?;
        let versions = self.versions(&wanted.key, outcome.started, outcome.ended);
        let is_it = |object: &Option<Object>| {
            // A store that is blind to If-Match is so to lone reads too.
            let ask = Wanted { if_match: None, ..wanted.clone() }.ask();
            let (status, _, bytes) = healthy(&ask, object.as_ref());
            status.is_success() && bytes == member.body
        };
        match !wanted.key.starts_with("denied") && versions.iter().any(is_it) {
            true => Ok(()),
            false => Err(format!("{:?} with {} bytes is of no generation that there was", member.name, member.body.len())),
        }
    }
}

/// Members are named by the entry's id.
fn index(batch: &Batch, member: &Member) -> Option<usize> {
    batch.wanted.iter().position(|wanted| wanted.id.as_deref() == Some(&member.name))
}
