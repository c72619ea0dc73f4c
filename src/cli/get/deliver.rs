//! From what happens to entries to what becomes of them. What enters are events; what leaves goes to a place and to the totals.
//! An entry that fails is counted and said once, whether the endpoint or the place refused it.

use std::collections::HashSet;

use super::super::aws::no_credentials;
use super::place::{Place, PlaceError};
use super::plan::Plan;
use super::progress::Progress;
use crate::client::error::Refusal;
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
            Err(ClientError::NoCredentials(why)) => return Err(format!("{url}: {}", no_credentials(&why))),
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
                self.progress.retries(&format!("{}: {error}; asking again in {:.1} s", self.url, wait.as_secs_f64()));
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
            // Of many in one answer, the request's id says nothing.
            false => Refusal { request_id: String::new(), ..refusal.clone() }.to_string(),
        };
        self.progress.failed(&self.plan.shown(entry), &why);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    /// Takes every entry but `refused`, which it does not take at all, and `late`, which it does not take at its end.
    #[derive(Default)]
    struct Scripted(Vec<String>);

    impl Place for Scripted {
        fn begin(&mut self, name: &str, _: &Head) -> Result<(), PlaceError> {
            self.0.push(format!("begin {name}"));
            if name == "refused" { Err(PlaceError::Entry("no".into())) } else { Ok(()) }
        }

        fn data(&mut self, octets: &[u8]) -> Result<(), PlaceError> {
            self.0.push(format!("data {}", octets.len()));
            Ok(())
        }

        fn end(&mut self) -> Result<(), PlaceError> {
            self.0.push("end".into());
            if self.0.contains(&"begin late".to_owned()) { Err(PlaceError::Entry("no".into())) } else { Ok(()) }
        }

        fn void(&mut self) -> Result<(), PlaceError> {
            self.0.push("void".into());
            Ok(())
        }

        fn finish(&mut self) -> Result<(), PlaceError> {
            Ok(())
        }
    }

    fn begins(index: usize, status: u16) -> Event {
        Event::Begins(Head::new(index, status, 2, HeaderMap::new()))
    }

    fn data() -> Event {
        Event::Data(Bytes::from_static(b"xy"))
    }

    fn retries() -> Event {
        Event::Retries { error: ClientError::Broken(String::new()), wait: Duration::ZERO }
    }

    fn fails(index: usize, code: &str) -> Event {
        let refusal = Refusal { status: 404, code: code.into(), ..Refusal::default() };
        Event::Fails { index, error: ClientError::Refused(refusal) }
    }

    /// What the place saw, and (delivered, unchanged, failed, bytes).
    fn after(keys: &[&str], events: Vec<Event>) -> (Vec<String>, (usize, usize, usize, u64)) {
        let entries: Vec<_> = keys.iter().map(|key| Entry::new(*key)).collect();
        let (plan, progress, mut place) = (Plan::default(), Progress::new(keys.len()), Scripted::default());
        let mut delivery = Delivery {
            plan: &plan,
            entries: &entries,
            place: &mut place,
            progress: &progress,
            url: "u",
            state: State::Idle,
            current: 0,
            refused: None,
            buckets: HashSet::new(),
        };
        events.into_iter().for_each(|event| delivery.take(event).expect("nothing ends all"));
        let totals = progress.totals();
        (place.0, (totals.delivered, totals.unchanged, totals.failed, totals.bytes))
    }

    #[tokio::test]
    async fn an_entry_that_breaks_off_is_voided_and_counted_once() {
        let events = vec![begins(0, 200), data(), retries(), begins(0, 200), data(), Event::Ends];
        let (seen, counts) = after(&["a"], events);
        assert_eq!(seen, ["begin a", "data 2", "void", "begin a", "data 2", "end"]);
        assert_eq!(counts, (1, 0, 0, 2));
    }

    #[tokio::test]
    async fn an_entry_that_the_place_refuses_fails_once_however_often_it_comes() {
        let events = vec![begins(0, 200), data(), retries(), begins(0, 200), data(), Event::Ends, begins(1, 206), Event::Ends];
        let (seen, counts) = after(&["refused", "b"], events);
        assert_eq!(seen, ["begin refused", "void", "begin b", "end"]);
        assert_eq!(counts, (1, 0, 1, 0));
        let broken = vec![begins(0, 200), retries(), begins(0, 200), fails(0, "X")];
        assert_eq!(after(&["refused"], broken).1, (0, 0, 1, 0));
        let late = vec![begins(0, 200), data(), Event::Ends];
        assert_eq!(after(&["late"], late), (["begin late", "data 2", "end", "void"].map(str::to_owned).to_vec(), (0, 0, 1, 0)));
    }

    #[tokio::test]
    async fn what_fails_or_is_unchanged_never_reaches_the_place() {
        let events = vec![fails(0, "NoSuchKey"), begins(1, 304), Event::Ends, begins(2, 200), data(), fails(2, "SlowDown")];
        let (seen, counts) = after(&["a", "b", "c"], events);
        assert_eq!(seen, ["begin c", "data 2", "void"]);
        assert_eq!(counts, (0, 1, 2, 0));
    }
}
