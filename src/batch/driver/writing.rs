//! The half of the loop that writes: from what is ready into the chunk, part after part, until the chunk is full or the next
//! part is not there yet. Waits for nothing. Invariant: a part that is begun gets exactly the octets that it announced, or the
//! loop ends as broken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CHUNK_BYTES, Ending, Loop};
use crate::backend::retrying::Read;
use crate::batch::fetch::{Claim, Fetch, Fetched, PartHead};
use crate::batch::outcome::FailedEntry;
use crate::batch::request::OnError;
use crate::types::EntryIndex;

/// Room behind a full chunk for the head of the part that ends it.
const HEADROOM_BYTES: usize = 4 * 1024;

/// What is being written.
pub(super) enum Writing {
    /// Nothing: between parts.
    Between,
    /// A body, or its beginning, that is held.
    Held { body: Vec<u8>, from: usize, claim: Claim, rest: Option<Box<Read>> },
    /// A body that streams. The read is here while it waits for room in the chunk; while it waits for the backend it is in
    /// `next`, and this is empty.
    Streaming(Option<Box<Read>>),
}

impl Loop {
    /// Writes into the chunk what can be written, until it is full. Says whether the next entry's turn has come.
    pub(super) fn write(&mut self) -> bool {
        let mut moved = false;
        while self.out.len() < CHUNK_BYTES && self.closed_as.is_none() {
            match std::mem::replace(&mut self.writing, Writing::Between) {
                Writing::Between => {
                    if !self.begin_part() {
                        return moved;
                    }
                    moved = true;
                }
                Writing::Held { body, from, claim, rest } => {
                    let to = body.len().min(from + CHUNK_BYTES - self.out.len());
                    self.extend(&body[from..to]);
                    if to < body.len() {
                        self.writing = Writing::Held { body, from: to, claim, rest };
                    } else {
                        self.release(claim);
                        self.writing = rest.map_or(Writing::Between, |read| Writing::Streaming(Some(read)));
                    }
                }
                streaming @ Writing::Streaming(_) => {
                    self.writing = streaming;
                    return moved;
                }
            }
        }
        moved
    }

    /// Appends to the chunk, whose room is made in one step: grown by doubling it would be copied on the way.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.make_room();
        self.out.extend_from_slice(bytes);
    }

    fn make_room(&mut self) {
        if self.out.capacity() < CHUNK_BYTES {
            self.out.reserve(CHUNK_BYTES + HEADROOM_BYTES - self.out.len());
        }
    }

    /// Begins the next part, or the end; says whether there was anything to write.
    fn begin_part(&mut self) -> bool {
        let Some(index) = self.driver.turns.head().filter(|_| self.totals.stopped.is_none()) else {
            self.close();
            return true;
        };
        self.head.store(index.0, Ordering::Relaxed);
        let Some((fetched, claim)) = self.ready.remove(&index) else { return false };
        self.large -= usize::from(matches!(fetched, Fetched::Large(_)));
        match fetched {
            Fetched::Large(large) if !large.read.is_open() => {
                let fetch = Fetch { index, claim, pools: self.driver.pools.clone(), head: Arc::clone(&self.head) };
                self.fetches.push(Box::pin(fetch.resume(large)));
                return false;
            }
            Fetched::Large(mut large) => {
                large.read.restart_clock();
                self.begin_body(index, &large.head);
                self.writing = Writing::Held { body: large.body, from: 0, claim, rest: Some(Box::new(large.read)) };
            }
            Fetched::Whole { head, body } => {
                self.begin_body(index, &head);
                self.writing = Writing::Held { body, from: 0, claim, rest: None };
            }
            Fetched::Failed(failed) => {
                self.write_failed(index, &failed);
                self.release(claim);
            }
        }
        true
    }

    fn begin_body(&mut self, index: EntryIndex, head: &PartHead) {
        self.driver.turns.write(index);
        self.make_room();
        self.driver.encoder.begin(&mut self.out, self.driver.plan.part(index), head.status, &head.headers, head.length);
        self.totals.delivered += 1;
        self.totals.bytes += head.length;
    }

    fn write_failed(&mut self, index: EntryIndex, failed: &FailedEntry) {
        self.driver.turns.write(index);
        if self.driver.on_error == OnError::Omit {
            self.totals.omitted += 1;
            return;
        }
        if let Some(length) = self.driver.encoder.failed(&mut self.out, self.driver.plan.part(index), failed) {
            self.totals.bytes += length;
            self.totals.delivered += 1;
        }
        if self.driver.on_error == OnError::Stop {
            self.totals.stopped = Some((index, failed.status, failed.code.clone().into_owned()));
            self.cancel();
        }
    }

    /// A part could not be finished: nothing more is written, and the message will break behind what is.
    pub(super) fn break_off(&mut self) {
        self.closed_as = Some(Ending::Broken);
        self.cancel();
    }

    /// Lets go of everything that is not written.
    fn cancel(&mut self) {
        self.fetches.clear();
        self.ready.clear();
        self.large = 0;
        (self.waiting_for_bytes, self.granted) = (None, None);
        self.keep_entries(0);
    }

    fn close(&mut self) {
        if self.driver.has_summary {
            let totals = self.totals();
            self.driver.encoder.summary(&mut self.out, &totals);
        }
        self.driver.encoder.close(&mut self.out);
        self.closed_as = Some(if self.totals.stopped.is_some() { Ending::Stopped } else { Ending::Complete });
    }

    /// Asks the streaming read for more, if there is room for it.
    pub(super) fn pull(&mut self) {
        if self.out.len() >= CHUNK_BYTES {
            return;
        }
        if let Writing::Streaming(read) = &mut self.writing
            && let Some(mut read) = read.take()
        {
            self.next = Some(Box::pin(async move {
                let bytes = read.next().await;
                (read, bytes)
            }));
        }
    }

    fn release(&mut self, claim: Claim) {
        if matches!(claim, Claim::Head(_)) {
            self.head_claim = Some(claim);
        }
    }

    /// Gives back the permits of reads that wait for the client.
    pub(super) fn rest(&mut self) {
        match &mut self.writing {
            Writing::Streaming(Some(read)) | Writing::Held { rest: Some(read), .. } => read.rest(),
            _ => {}
        }
        for (fetched, _) in self.ready.values_mut() {
            if let Fetched::Large(large) = fetched {
                large.read.rest();
            }
        }
    }
}
