//! One request to the endpoint, its answer read to the last byte. What enters is a [`Turn`] with its random choice; what leaves
//! is the turn's sample. Invariant: an object that is short, long, failed or not the right bytes is never among the counted.

use std::sync::Arc;

use bytes::BytesMut;
use http::StatusCode;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use super::content;
use super::job::{Job, Keys, Kind};
use super::measured::Sample;
use super::pace::Ask;
use crate::backend::s3::error_code;
use crate::client::{BatchRequest, ClientError, Endpoint, Entry, Event};

/// Most octets of a failed entry's body that are looked at for its code.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// What a worker takes from request to request.
pub struct Turn {
    /// Its choices.
    pub random: SmallRng,
    /// When the request counts from.
    pub started: Instant,
    /// What came of it.
    pub sample: Sample,
    entries: Vec<Entry>,
    numbers: Vec<u64>,
}

impl Turn {
    /// For a worker with these choices.
    pub fn new(random: SmallRng, started: Instant) -> Self {
        Self { random, started, sample: Sample::default(), entries: Vec::new(), numbers: Vec::new() }
    }

    /// Draws `count` objects.
    fn draw(&mut self, keys: &Keys, count: usize) {
        self.entries.resize_with(count, Entry::default);
        self.numbers.clear();
        for entry in &mut self.entries {
            let number = self.random.random_range(0..keys.count());
            self.numbers.push(number);
            keys.key_into(number, &mut entry.key);
        }
    }
}

/// Sends a job's requests.
pub struct Asker {
    endpoint: Arc<Endpoint>,
    job: Job,
}

/// An object as it comes.
struct Object {
    number: u64,
    size: Option<u64>,
    verify: bool,
    at: u64,
    is_wrong: bool,
}

impl Object {
    fn take(&mut self, octets: &[u8]) {
        self.is_wrong |= self.verify && !content::is(self.number, self.at, octets);
        self.at += octets.len() as u64;
    }

    /// What is wrong with all that came.
    fn fault(&self) -> Option<&'static str> {
        match self.size {
            Some(size) if size != self.at => Some("wrong length"),
            _ => self.is_wrong.then_some("wrong bytes"),
        }
    }
}

impl Ask for Asker {
    async fn ask(&self, turn: &mut Turn) {
        let kind = self.job.mode.kind(&mut turn.random);
        turn.sample.begin(kind);
        let count = if kind == Kind::Batch { self.job.mode.entries().unwrap_or(1) } else { 1 };
        turn.draw(&self.job.keys, count);
        let done = match kind {
            Kind::Get => self.get(turn).await,
            Kind::Batch => self.batch(turn).await,
            Kind::Put => self.put(turn).await,
        };
        match done {
            Ok(()) => turn.sample.took = Some(turn.started.elapsed()),
            Err(error) => {
                let sample = &mut turn.sample;
                // Whatever had no fate yet failed with the request.
                sample.objects_failed = (count - sample.object_times.len()) as u64;
                sample.unreachable = matches!(error, ClientError::Unreachable(_));
                sample.errors.note(&label(&error), || match kind {
                    Kind::Batch => error.to_string(),
                    Kind::Get | Kind::Put => format!("{}: {error}", turn.entries[0].key),
                });
            }
        }
    }
}

impl Asker {
    /// For the requests of `job`.
    pub fn new(endpoint: &Arc<Endpoint>, job: &Job) -> Self {
        Self { endpoint: Arc::clone(endpoint), job: job.clone() }
    }

    fn object(&self, number: u64) -> Object {
        let size = self.job.keys.size();
        Object { number, size, verify: self.job.verify && size.is_some(), at: 0, is_wrong: false }
    }

    async fn get(&self, turn: &mut Turn) -> Result<(), ClientError> {
        let answer = self.endpoint.get_object(&self.job.bucket, &turn.entries[0]).await?;
        if answer.status() != StatusCode::OK {
            return Err(ClientError::Wrong(format!("its status is {}", answer.status())));
        }
        let mut object = self.object(turn.numbers[0]);
        let mut body = answer.into_body();
        while let Some(octets) = self.endpoint.data(&mut body).await? {
            object.take(&octets);
        }
        let since = turn.started;
        turn.whole(&object, 0, since, Instant::now());
        Ok(())
    }

    async fn put(&self, turn: &mut Turn) -> Result<(), ClientError> {
        let size = self.job.keys.size().expect("a job that writes has made objects");
        let body = content::whole(turn.numbers[0], size);
        self.endpoint.put_object(&self.job.bucket, &turn.entries[0].key, body).await?;
        turn.sample.object_times.push(turn.started.elapsed());
        turn.sample.bytes += size;
        Ok(())
    }

    async fn batch(&self, turn: &mut Turn) -> Result<(), ClientError> {
        let request = BatchRequest::new(&turn.entries);
        let mut answer = self.endpoint.batch_get(Some(&self.job.bucket), &request).await?;
        let mut last = turn.started;
        let mut part = None;
        // Why a failed entry failed.
        let mut reason = BytesMut::new();
        while let Some(event) = answer.next().await? {
            match (event, &mut part) {
                (Event::Part(head), _) => {
                    reason.clear();
                    let index = head.index as usize;
                    part = Some((index, head.status, self.object(turn.numbers[index])));
                }
                (Event::Data(octets), Some((_, 200, object))) => object.take(&octets),
                (Event::Data(octets), Some(_)) if reason.len() + octets.len() <= ERROR_BODY_BYTES_MAX => {
                    reason.extend_from_slice(&octets);
                }
                (Event::End, Some((index, 200, object))) => {
                    let now = Instant::now();
                    let index = *index;
                    if turn.whole(object, index, last, now) {
                        last = now;
                    }
                }
                (Event::End, Some((index, status, _))) => {
                    let code = error_code(&reason).unwrap_or_default();
                    let key = &turn.entries[*index].key;
                    turn.sample.objects_failed += 1;
                    turn.sample.errors.note(format!("{status} {code}").trim_end(), || format!("{key}: {status} {code}"));
                }
                // No summary is asked for, and octets come in parts only.
                _ => {}
            }
        }
        Ok(())
    }
}

impl Turn {
    /// Counts an object whose last byte came at `now`; says whether it was right.
    fn whole(&mut self, object: &Object, index: usize, since: Instant, now: Instant) -> bool {
        match object.fault() {
            None => {
                self.sample.object_times.push(now - since);
                self.sample.bytes += object.at;
                true
            }
            Some(fault) => {
                self.sample.objects_failed += 1;
                let key = &self.entries[index].key;
                self.sample.errors.note(fault, || match object.size {
                    Some(size) if size != object.at => format!("{key}: {} bytes instead of {size}", object.at),
                    _ => format!("{key}: not the bytes that were written"),
                });
                false
            }
        }
    }
}

/// The kind of an error, in few words.
fn label(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable(_) => "cannot connect".into(),
        ClientError::NoCredentials(_) => "no credentials".into(),
        ClientError::Broken(_) => "broken off".into(),
        ClientError::Wrong(_) => "wrong answer".into(),
        ClientError::Refused(refusal) | ClientError::NotHere(refusal) => {
            format!("{} {}", refusal.status, refusal.code).trim_end().to_owned()
        }
    }
}
