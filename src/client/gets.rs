//! Entries read by GETs, for endpoints without BatchGet. What leaves are the events that a BatchGet would give, in the order of
//! the list. A fixed number of GETs is under way; each holds a few buffers until it is its entry's turn, then streams. Invariant:
//! memory is that number times those buffers, whatever the sizes.

use std::collections::VecDeque;
use std::sync::Arc;

use http::header;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::endpoint::Endpoint;
use super::entry::Entry;
use super::error::ClientError;
use super::many::{Event, Head, ManyConfig};
use super::pace::{InVain, Pace};
use crate::backend::s3::is_about_our_signature;

/// Events that a GET may be ahead of whoever reads them; a piece of a body is at most the connection's read buffer, 32 KiB.
const EVENTS_AHEAD_MAX: usize = 8;

type Happens = Result<Event, ClientError>;

/// Reads a list of entries.
pub(super) struct Gets {
    shared: Arc<Shared>,
    /// The first entry that was not asked for yet.
    next: usize,
    under_way: VecDeque<Get>,
    in_vain: InVain,
    /// What ends all, once the last event was taken.
    over: Option<ClientError>,
}

struct Shared {
    endpoint: Arc<Endpoint>,
    entries: Arc<[Entry]>,
    config: ManyConfig,
}

struct Get {
    events: mpsc::Receiver<Happens>,
    _task: AbortOnDropHandle<()>,
}

impl Gets {
    pub fn new(endpoint: Arc<Endpoint>, entries: Arc<[Entry]>, config: ManyConfig) -> Self {
        let shared = Arc::new(Shared { endpoint, entries, config });
        Self { shared, next: 0, under_way: VecDeque::new(), in_vain: InVain::default(), over: None }
    }

    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if let Some(error) = self.over.take() {
            return Err(error);
        }
        loop {
            while self.under_way.len() < self.shared.config.gets_max.max(1) && self.next < self.shared.entries.len() {
                let (to, events) = mpsc::channel(EVENTS_AHEAD_MAX);
                let task = tokio::spawn(Arc::clone(&self.shared).get(self.next, to));
                self.under_way.push_back(Get { events, _task: AbortOnDropHandle::new(task) });
                self.next += 1;
            }
            let Some(get) = self.under_way.front_mut() else { return Ok(None) };
            match get.events.recv().await {
                Some(happens) => {
                    match &happens {
                        Ok(Event::Ends) => self.in_vain.progress(),
                        Ok(Event::Fails { error, .. }) => self.over = self.in_vain.failed(error),
                        _ => {}
                    }
                    return happens.map(Some);
                }
                None => drop(self.under_way.pop_front()),
            }
        }
    }
}

impl Shared {
    /// Gets one entry, however often it takes. Ends early where nobody listens any more.
    async fn get(self: Arc<Self>, index: usize, to: mpsc::Sender<Happens>) {
        let mut pace = Pace::new(self.config.backoff_base);
        loop {
            let Err(error) = self.attempt(index, &to).await else { return };
            let wait = pace.wait_after(&error);
            let happens = match wait {
                Some(wait) => Ok(Event::Retries { error, wait }),
                None if ends_all(&error) => Err(error),
                None => Ok(Event::Fails { index, error }),
            };
            if to.send(happens).await.is_err() {
                return;
            }
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return,
            }
        }
    }

    async fn attempt(&self, index: usize, to: &mpsc::Sender<Happens>) -> Result<(), ClientError> {
        let entry = &self.entries[index];
        let answer = self.endpoint.get_object(self.config.bucket.as_deref().unwrap_or_default(), entry).await?;
        let (head, mut body) = answer.into_parts();
        let status = head.status.as_u16();
        let length = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        // A 304 may tell how long the object is (RFC 9110, 15.4.5), or nothing.
        let length = if status == 304 { Some(0) } else { length };
        let Some(length) = length else { return Err(ClientError::Wrong("it does not say how long it is".into())) };
        entry.check(status, length, head.headers.get(header::CONTENT_RANGE).map(|said| said.as_bytes()))?;
        // A send fails where nobody listens any more; then the task is about to be ended.
        let begins = Event::Begins(Head::new(index, status, length, head.headers));
        let _ = to.send(Ok(begins)).await;
        let mut came = 0;
        while let Some(data) = self.endpoint.data(&mut body).await? {
            came += data.len() as u64;
            let _ = to.send(Ok(Event::Data(data))).await;
        }
        if came != length {
            return Err(ClientError::Wrong(format!("it has {came} bytes and says {length}")));
        }
        let _ = to.send(Ok(Event::Ends)).await;
        Ok(())
    }
}

/// Whether an error is no entry's own: every other one would have it too.
fn ends_all(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable(_) | ClientError::NoCredentials(_) | ClientError::NotHere(_) => true,
        ClientError::Refused(refusal) => is_about_our_signature(&refusal.code),
        ClientError::Broken(_) | ClientError::Wrong(_) => false,
    }
}
