//! Which entry is written next: a pure state machine over indices. It knows neither bytes nor time. Invariants: every entry is
//! written at most once; in request order the head only ever moves up.

use std::collections::VecDeque;

use super::request::Order;
use crate::types::EntryIndex;

/// The turn-keeping of one batch.
#[derive(Debug)]
pub struct Turns {
    order: Order,
    /// One flag for each entry: its part is written (or it is known to leave none).
    written: Vec<bool>,
    unwritten: usize,
    lowest_unwritten: usize,
    /// In completion order: whole or failed entries, the earliest first.
    whole: VecDeque<EntryIndex>,
}

impl Turns {
    /// Nothing is written yet of `count` entries.
    pub fn new(order: Order, count: usize) -> Self {
        Self { order, written: vec![false; count], unwritten: count, lowest_unwritten: 0, whole: VecDeque::new() }
    }

    /// An entry became whole or failed.
    pub fn became_whole(&mut self, index: EntryIndex) {
        if self.order == Order::Completion {
            self.whole.push_back(index);
        }
    }

    /// The entry whose part comes next, or nothing when all are written. In completion order that is the one that became
    /// whole first; while there is none, the unwritten entry with the lowest index may stream.
    pub fn head(&self) -> Option<EntryIndex> {
        self.whole.front().copied().or_else(|| self.lowest_unwritten())
    }

    /// The entry that everything else may come to wait for.
    pub fn lowest_unwritten(&self) -> Option<EntryIndex> {
        (self.lowest_unwritten < self.written.len()).then_some(EntryIndex(self.lowest_unwritten as u32))
    }

    /// How many entries are not written yet.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// The head's part is begun, or it leaves none.
    pub fn write(&mut self, index: EntryIndex) {
        assert_eq!(self.head(), Some(index), "only the head is written");
        if self.whole.front() == Some(&index) {
            self.whole.pop_front();
        }
        self.written[index.at()] = true;
        self.unwritten -= 1;
        while self.written.get(self.lowest_unwritten) == Some(&true) {
            self.lowest_unwritten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn completion_order_prefers_what_is_whole_and_falls_back_to_the_lowest() {
        let mut turns = Turns::new(Order::Completion, 3);
        assert_eq!(turns.head(), Some(EntryIndex(0)));
        turns.became_whole(EntryIndex(2));
        turns.became_whole(EntryIndex(1));
        assert_eq!(turns.head(), Some(EntryIndex(2)));
        turns.write(EntryIndex(2));
        turns.write(EntryIndex(1));
        assert_eq!(turns.head(), Some(EntryIndex(0)));
        turns.write(EntryIndex(0));
        assert_eq!(turns.head(), None);
    }

    proptest! {
        #[test]
        fn prop_each_entry_is_written_once_and_request_order_is_the_order_asked(
            completions in Just((0..50u32).collect::<Vec<_>>()).prop_shuffle(),
            by_completion: bool,
        ) {
            let order = if by_completion { Order::Completion } else { Order::Request };
            let mut turns = Turns::new(order, completions.len());
            let mut whole = vec![false; completions.len()];
            let mut written = Vec::new();
            for index in &completions {
                whole[*index as usize] = true;
                turns.became_whole(EntryIndex(*index));
                while let Some(head) = turns.head().filter(|head| whole[head.at()]) {
                    turns.write(head);
                    written.push(head.0);
                }
            }
            let expected = if by_completion { completions.clone() } else { (0..50).collect() };
            prop_assert_eq!(written, expected);
            prop_assert_eq!(turns.head(), None);
        }
    }
}
