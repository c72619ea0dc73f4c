//! Counts the parts of an answer against what its request is owed. What enters are heads of parts and the summary; what leaves
//! is what does not add up. Invariant: an answer that lacks a part adds up with no summary, whatever that says.

use serde::Deserialize;

use super::reader::{Wrong, wrong};

/// What a batch adds up to, by its own words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Summary {
    /// Entries asked for.
    pub entries: u64,
    /// Parts before the summary.
    pub delivered: u64,
    /// Entries that ended in an error.
    pub failed: u64,
    /// Entries left out.
    pub omitted: u64,
    /// Index of the entry that stopped the batch.
    pub stopped_at: Option<u32>,
    /// Sum of the lengths of the parts.
    pub bytes: u64,
}

/// What an answer owes, by its request.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    /// Entries of the request.
    pub entries: u32,
    /// Whether parts come in the order of the entries.
    pub in_order: bool,
    /// Whether a summary must come.
    pub summary: bool,
}

/// Which entries had their part.
#[derive(Debug)]
pub(super) struct Seen {
    by_index: Vec<bool>,
    pub count: u64,
    failed: u64,
    /// The index of the last part, and whether it is a failure.
    last: Option<(u32, bool)>,
    bytes: u64,
}

impl Seen {
    /// Nothing of so many entries.
    pub fn new(entries: u32) -> Self {
        Self { by_index: vec![false; entries as usize], count: 0, failed: 0, last: None, bytes: 0 }
    }

    /// A part begins.
    pub fn take(&mut self, index: u32, failed: bool, length: u64, in_order: bool) -> Result<(), Wrong> {
        match self.by_index.get_mut(index as usize) {
            None => return wrong(format!("part {index} answers no entry")),
            Some(true) => return wrong(format!("part {index} comes twice")),
            Some(seen) => *seen = true,
        }
        if in_order && self.last.is_some_and(|(last, _)| last > index) {
            return wrong(format!("part {index} is out of order"));
        }
        self.last = Some((index, failed));
        self.count += 1;
        self.failed += u64::from(failed);
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }

    /// Whether the summary tells of the parts that came, and of no entry less than there were.
    pub fn agrees(&self, told: &Summary, owed: Owed) -> bool {
        let counted = (told.entries, told.delivered, told.bytes) == (u64::from(owed.entries), self.count, self.bytes);
        counted
            && match told.stopped_at {
                // Under `Stop`, the entry that failed is the last part; in order, all before it came.
                Some(at) => {
                    let stopped = self.last == Some((at, true)) && self.failed == 1 && told.omitted == 0 && told.failed >= 1;
                    owed.summary && stopped && (!owed.in_order || self.count == u64::from(at) + 1)
                }
                // Under `Stop` and `Omit`, a part that came did not fail.
                None if owed.summary => {
                    self.failed == 0 && told.failed == told.omitted && self.count.checked_add(told.omitted) == Some(told.entries)
                }
                None => (told.failed, told.omitted, self.count) == (self.failed, 0, told.entries),
            }
    }
}
