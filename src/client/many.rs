//! Any number of entries, read whatever it takes. What enters is a list; what leaves are [`Event`]s, entry after entry in the
//! order of the list, the same whether they come from BatchGets or, where the endpoint has none, from GETs ([`gets`](super::gets)).
//!
//! The list is cut at the endpoint's limits; after a break it is asked for again from the first entry that was not whole.
//! Invariants: what [`Event::Ends`] was whole and is never asked for again; memory is a few buffers beside the list, whatever
//! the sizes; attempts that bring nothing are bounded, for an entry and, where one entry after another breaks off, for the list.
//!
//! What is tried again are requests. A part of a batch that is an error is final, a 503 too: the gateway has asked its store for
//! as long as it gives an entry. By GETs, where nobody did so before, an entry's 503 is asked for again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::endpoint::{Answer, Endpoint, Limits};
use super::entry::{BatchRequest, Entry};
use super::error::{ClientError, Refusal};
use super::gets::Gets;
use super::pace::{BACKOFF_BASE, InVain, Pace};
use super::reader::{self, PartHead};

/// What a request has besides its entries, in bytes, and more.
const REQUEST_BYTES: usize = 256;

/// GETs at a time, unless told otherwise: what saturates a store over a network without being rude to it.
const GETS_MAX: usize = 32;

/// Most bytes of an entry's error that are looked at; the contract allows less.
const ERROR_BYTES_MAX: usize = 128 * 1024;

/// How to ask.
#[derive(Clone, Debug)]
pub struct ManyConfig {
    /// Bucket of the entries that name none.
    pub bucket: Option<String>,
    /// Most entries of one BatchGet; the endpoint's limit holds besides.
    pub batch_entries_max: usize,
    /// Most GETs at a time where there is no BatchGet.
    pub gets_max: usize,
    /// The wait after a first attempt in vain; it doubles with each further one.
    pub backoff_base: Duration,
}

impl ManyConfig {
    /// As is good for most: batches as large as the endpoint takes them.
    pub fn new(bucket: Option<String>) -> Self {
        Self { bucket, batch_entries_max: usize::MAX, gets_max: GETS_MAX, backoff_base: BACKOFF_BASE }
    }
}

/// What happens while entries are read.
#[derive(Debug)]
pub enum Event {
    /// The endpoint has no BatchGet: GETs it will be. Comes first if it comes.
    FallsBack,
    /// After `wait` there is another attempt. An entry that had begun begins anew: what came of it is void.
    Retries {
        /// Why.
        error: ClientError,
        /// How long nothing happens.
        wait: Duration,
    },
    /// An entry begins, by an answer that is one to it: 206 where it has a range, 304 where it has an `IfNoneMatch`, 200.
    Begins(Head),
    /// The next octets of it.
    Data(Bytes),
    /// It was whole, and is done with.
    Ends,
    /// An entry failed, and is done with. If it had begun, what came of it is void.
    Fails {
        /// Which.
        index: usize,
        /// Why.
        error: ClientError,
    },
}

/// The head of an entry's answer.
#[derive(Debug)]
pub struct Head {
    /// Position in the list.
    pub index: usize,
    /// Status.
    pub status: u16,
    /// Octets of the body.
    pub length: u64,
    headers: Headers,
}

#[derive(Debug)]
enum Headers {
    Part(PartHead),
    Answer(HeaderMap),
}

impl Head {
    /// That of an answer with these headers.
    pub fn new(index: usize, status: u16, length: u64, headers: HeaderMap) -> Self {
        Self { index, status, length, headers: Headers::Answer(headers) }
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        match &self.headers {
            Headers::Part(head) => head.header(name),
            Headers::Answer(headers) => headers.get(name).map(|value| value.as_bytes()),
        }
    }
}

/// Reads a list of entries.
pub struct Many {
    endpoint: Arc<Endpoint>,
    entries: Arc<[Entry]>,
    config: ManyConfig,
    /// The first entry that is not done with.
    next: usize,
    /// Whether it had begun.
    begun: bool,
    pace: Pace,
    in_vain: InVain,
    /// What ends all, once the last event was taken.
    over: Option<ClientError>,
    wait: Option<Duration>,
    state: State,
}

enum State {
    /// Nothing is known of the endpoint.
    Unknown,
    /// It has BatchGet.
    Idle(Limits),
    /// One is being read.
    Reading(Limits, Box<Reading>),
    /// It has none.
    Gets(Gets),
}

struct Reading {
    answer: Answer,
    /// The entry at index 0 of the batch.
    first: usize,
    end: usize,
    /// The status of a failed entry, with what came of its body.
    failed: Option<(u16, BytesMut)>,
}

impl Many {
    /// Asks for nothing yet.
    pub fn new(endpoint: Arc<Endpoint>, entries: Arc<[Entry]>, config: ManyConfig) -> Self {
        let pace = Pace::new(config.backoff_base);
        let (in_vain, over) = (InVain::default(), None);
        Self { endpoint, entries, config, next: 0, begun: false, pace, in_vain, over, wait: None, state: State::Unknown }
    }

    /// What happens next, or `None` once every entry is done with.
    ///
    /// # Errors
    /// Those that end all: whoever asks is not known, the endpoint cannot be reached, answers what it must not, or brings
    /// nothing however often it is asked. Entries that were done with are good all the same.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if let Some(error) = self.over.take() {
            return Err(error);
        }
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            match &mut self.state {
                State::Gets(gets) => return gets.next().await,
                State::Reading(..) => {
                    if let Some(event) = self.read().await? {
                        return Ok(Some(event));
                    }
                }
                _ if self.next == self.entries.len() => return Ok(None),
                State::Unknown => match self.endpoint.capabilities().await {
                    Ok(Some(capabilities)) => self.state = State::Idle(capabilities.limits),
                    Ok(None) => {
                        self.state = State::Gets(self.gets());
                        return Ok(Some(Event::FallsBack));
                    }
                    // Where nothing ever listened, nothing is worth waiting for.
                    Err(error @ ClientError::Unreachable(_)) => return Err(error),
                    Err(error) => return self.retry(error).map(Some),
                },
                State::Idle(limits) => {
                    let limits = *limits;
                    let entries_max = limits.entries.min(self.config.batch_entries_max);
                    let end = batch_end(&self.entries, self.next, entries_max, limits.body_bytes);
                    let request = BatchRequest::new(&self.entries[self.next..end]);
                    match self.endpoint.batch_get(self.config.bucket.as_deref(), &request).await {
                        Ok(answer) => {
                            let reading = Reading { answer, first: self.next, end, failed: None };
                            self.state = State::Reading(limits, Box::new(reading));
                        }
                        Err(error) => return self.retry(error).map(Some),
                    }
                }
            }
        }
    }

    fn gets(&self) -> Gets {
        Gets::new(Arc::clone(&self.endpoint), Arc::clone(&self.entries), self.config.clone())
    }

    /// The next event of the batch that is being read; none where it was its end.
    async fn read(&mut self) -> Result<Option<Event>, ClientError> {
        let State::Reading(limits, reading) = &mut self.state else { return Ok(None) };
        match reading.answer.next().await {
            Ok(Some(reader::Event::Part(head))) => {
                let index = reading.first + head.index as usize;
                if index != self.next {
                    return Err(ClientError::Wrong(format!("part {} comes where another entry is owed", head.index)));
                }
                if head.is_failed() {
                    reading.failed = Some((head.status, BytesMut::new()));
                    return Ok(None);
                }
                self.entries[index].check(head.status, head.length, head.header("content-range"))?;
                self.begun = true;
                let (status, length) = (head.status, head.length);
                Ok(Some(Event::Begins(Head { index, status, length, headers: Headers::Part(head) })))
            }
            Ok(Some(reader::Event::Data(data))) => match &mut reading.failed {
                None => Ok(Some(Event::Data(data))),
                Some((_, body)) => {
                    let room = ERROR_BYTES_MAX - body.len();
                    body.extend_from_slice(&data[..data.len().min(room)]);
                    Ok(None)
                }
            },
            Ok(Some(reader::Event::End)) => {
                let index = self.next;
                let refusal =
                    reading.failed.take().map(|(status, body)| Refusal::read(status, &body, reading.answer.request_id.clone()));
                self.done();
                Ok(Some(refusal.map_or(Event::Ends, |refusal| Event::Fails { index, error: ClientError::Refused(refusal) })))
            }
            // Nobody asked for one, and what it says was held against what came.
            Ok(Some(reader::Event::Summary(_))) => Ok(None),
            Ok(None) => {
                self.state = State::Idle(*limits);
                Ok(None)
            }
            Err(error) => {
                let whole = self.next == reading.end;
                self.state = State::Idle(*limits);
                // What was whole is final: there is nothing left to ask for.
                if whole && error.may_pass() { Ok(None) } else { self.retry(error).map(Some) }
            }
        }
    }

    /// The entry whose turn it was is done with.
    fn done(&mut self) {
        self.in_vain.progress();
        self.pass_over();
    }

    fn pass_over(&mut self) {
        self.next += 1;
        self.begun = false;
        self.pace.progress();
    }

    /// After an attempt that ended early.
    fn retry(&mut self, error: ClientError) -> Result<Event, ClientError> {
        match self.pace.wait_after(&error) {
            Some(wait) => {
                self.wait = Some(wait);
                self.begun = false;
                Ok(Event::Retries { error, wait })
            }
            // All the rest can still be had if it is this entry that breaks off each time.
            None if self.begun && error.may_pass() => {
                let index = self.next;
                self.pass_over();
                self.over = self.in_vain.failed(&error);
                Ok(Event::Fails { index, error })
            }
            None => Err(error),
        }
    }
}

/// Where a batch that begins at entry `from` ends: at the limit of entries or of bytes, whichever comes first, but behind one
/// entry at the least.
fn batch_end(entries: &[Entry], from: usize, entries_max: usize, body_bytes_max: usize) -> usize {
    let mut bytes = REQUEST_BYTES;
    let fits = |entry: &&Entry| {
        bytes += BatchRequest::entry_bytes(entry);
        bytes <= body_bytes_max
    };
    let rest = &entries[from..];
    from + rest[..rest.len().min(entries_max.max(1))].iter().take_while(fits).count().max(1)
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
