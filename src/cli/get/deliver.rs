//! From what happens to entries to what becomes of them. What enters are events; what leaves goes to a place and to the totals.
//! An entry that fails is counted and said once, whether the endpoint or the place refused it.

use std::collections::HashSet;

use super::place::{Place, PlaceError};
use super::plan::Plan;
use super::progress::Progress;
use crate::client::many::{Event, Head};
use crate::client::{ClientError, Entry, Many};

/// What is to become of the entry whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not begun.
    Idle,
    /// It goes to the place.
    Open { bytes: u64 },
    /// The place does not take it; what comes of it is let go.
    Refused,
    /// There is nothing new to take.
    Unchanged,
}

/// Reads everything.
///
/// # Errors
/// What ends all, in words for people.
pub(super) async fn deliver(
    many: &mut Many,
    plan: &Plan,
    entries: &[Entry],
    place: &mut dyn Place,
    progress: &Progress,
    url: &str,
) -> Result<(), String> {
    let mut delivery =
        Delivery { plan, entries, place, progress, url, state: State::Idle, current: 0, refused: None, buckets: HashSet::new() };
    loop {
        match many.next().await {
            Ok(None) => return delivery.place.finish().map_err(PlaceError::into_text),
            Ok(Some(event)) => delivery.take(event)?,
            Err(error) => return Err(format!("{url}: {error}")),
        }
    }
}

struct Delivery<'a> {
    plan: &'a Plan,
    /// Those of the plan.
    entries: &'a [Entry],
    place: &'a mut dyn Place,
    progress: &'a Progress,
    url: &'a str,
    state: State,
    /// The entry that began last.
    current: usize,
    /// The entry that the place refused last; after a break it comes once more.
    refused: Option<usize>,
    /// Buckets of which it was said that they are missing.
    buckets: HashSet<String>,
}

impl Delivery<'_> {
    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::FallsBack => {
                self.progress.count(|totals| totals.way = "get");
                self.progress.line(&format!("{} has no BatchGet; falling back to a GET for each object", self.url));
            }
            Event::Retries { error, wait } => {
                self.void()?;
                self.progress.line(&format!("{}: {error}; asking again in {:.1} s", self.url, wait.as_secs_f64()));
            }
            Event::Begins(head) => self.begin(&head)?,
            Event::Data(octets) => {
                if let State::Open { bytes } = &mut self.state {
                    *bytes += octets.len() as u64;
                    let done = self.place.data(&octets);
                    self.taken(done)?;
                }
            }
            Event::Ends => {
                let done = if matches!(self.state, State::Open { .. }) { self.place.end() } else { Ok(()) };
                self.taken(done)?;
                let state = std::mem::replace(&mut self.state, State::Idle);
                self.progress.count(|totals| match state {
                    State::Open { bytes } => {
                        totals.delivered += 1;
                        totals.bytes += bytes;
                    }
                    State::Unchanged => totals.unchanged += 1,
                    State::Refused | State::Idle => {}
                });
            }
            Event::Fails { index, error } => {
                self.void()?;
                if self.refused != Some(index) {
                    self.fails(index, &error);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, head: &Head) -> Result<(), String> {
        if head.status == 304 {
            self.state = State::Unchanged;
            return Ok(());
        }
        if self.refused == Some(head.index) {
            self.state = State::Refused;
            return Ok(());
        }
        self.state = State::Open { bytes: 0 };
        self.current = head.index;
        let begun = self.place.begin(&self.plan.name(&self.entries[head.index]), head);
        self.taken(begun)
    }

    /// What the place says of the entry whose turn it is. Where it does not take it, the others are none the worse.
    fn taken(&mut self, done: Result<(), PlaceError>) -> Result<(), String> {
        match done {
            Ok(()) => Ok(()),
            Err(PlaceError::All(what)) => Err(what),
            Err(PlaceError::Entry(what)) => {
                self.place.void().map_err(PlaceError::into_text)?;
                self.state = State::Refused;
                self.refused = Some(self.current);
                self.progress.failed(&self.plan.shown(&self.entries[self.current]), &what);
                Ok(())
            }
        }
    }

    fn void(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Open { .. } => self.place.void().map_err(PlaceError::into_text),
            _ => Ok(()),
        }
    }

    fn fails(&mut self, index: usize, error: &ClientError) {
        let entry = &self.entries[index];
        let ClientError::Refused(refusal) = error else {
            return self.progress.failed(&self.plan.shown(entry), &error.to_string());
        };
        if refusal.code == "NoSuchBucket" {
            let bucket = entry.bucket.as_deref().or(self.plan.bucket.as_deref()).unwrap_or_default();
            self.progress.count(|totals| {
                totals.failed += 1;
                totals.without_bucket += 1;
            });
            // All of its entries have it; one line says so.
            if self.buckets.insert(bucket.to_owned()) {
                self.progress.line(&format!("s3://{bucket}: there is no such bucket (404 NoSuchBucket)"));
            }
            return;
        }
        let why = match refusal.code.is_empty() {
            true => refusal.to_string(),
            false => format!("{} {}", refusal.status, refusal.code),
        };
        self.progress.failed(&self.plan.shown(entry), &why);
    }
}
