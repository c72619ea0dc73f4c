//! A store in memory on the simulated clock. Each key has a script of misbehaviours for its successive attempts; behind the
//! script stand [`Faults`] in windows of time, and behind these it is healthy and keeps to HTTP. It counts who waits for it, and
//! remembers what it was asked, what each key held at what time, and every write.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep, sleep_until};

use crate::backend::{Attempt, BackendError, BackendErrorKind, Body, Forward, ObjectRead, ReadAsk, empty_body};
use crate::budget::Pool;
use crate::types::ByteRange;

pub use super::faults::{Act, Fault, FaultWindow, Faults, Step};
use super::objects::{Object, SECRET, healthy, refusal};
use super::sim_body::{Ends, SimBody};
use super::uploads::Uploads;

/// Header by which a test knows its own requests at the store.
pub const JOB: &str = "x-of-job";

/// Whose attempt it is: the number of the request in [`JOB`], and the key.
pub type Asker = (Option<u32>, String);

/// One attempt that came.
#[derive(Clone, Debug)]
pub struct Met {
    pub at: Instant,
    pub asker: Asker,
    pub act: Act,
    /// The object changed before it.
    pub changes: bool,
}

#[derive(Default)]
struct State {
    objects: HashMap<String, Object>,
    scripts: HashMap<String, VecDeque<Step>>,
    otherwise: HashMap<String, Step>,
    all: Option<Step>,
    waiting: usize,
    waiting_peak: usize,
    reading: usize,
    reading_peak: usize,
    bodies: usize,
    given_bytes: usize,
    /// When bytes of good answers, or their ends, were handed out.
    gave_at: Vec<Instant>,
    asked: Vec<(Instant, ReadAsk)>,
    faults: Option<Faults>,
    met: Vec<Met>,
    /// The numbers of the writes that were carried out.
    carried: Vec<Option<u32>>,
    uploads: Uploads,
    /// What each key held from when on.
    history: HashMap<String, Vec<(Instant, Option<Object>)>>,
    /// How long the store was waited for, by asker.
    busy: HashMap<Asker, Duration>,
    /// What no client of HTTP may do to a store, in words.
    wrong: Vec<String>,
    /// Looked at whenever something happens here.
    watched: Option<Pool>,
    watched_peak: u64,
}

impl State {
    fn look(&mut self) {
        let used = self.watched.as_ref().map_or(0, |pool| pool.max() - pool.free());
        self.watched_peak = self.watched_peak.max(used);
    }

    fn set(&mut self, key: &str, object: Option<Object>) {
        self.history.entry(key.to_owned()).or_default().push((Instant::now(), object.clone()));
        match object {
            Some(object) => self.objects.insert(key.to_owned(), object),
            None => self.objects.remove(key),
        };
    }
}

/// See the module. Cheap to clone: all clones are one store.
#[derive(Clone)]
pub struct SimStore {
    state: Arc<Mutex<State>>,
    otherwise: Step,
}

impl SimStore {
    /// An empty store that does `otherwise` where no script says more.
    pub fn new(otherwise: Step) -> Self {
        Self { state: Arc::default(), otherwise }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }

    pub fn put(&self, key: &str, object: Object) {
        self.lock().set(key, Some(object));
    }

    /// Sets the windows of time in which it is not healthy.
    pub fn faults(&self, faults: Faults) {
        self.lock().faults = Some(faults);
    }

    pub fn object(&self, key: &str) -> Option<Object> {
        self.lock().objects.get(key).cloned()
    }

    /// Other bytes, another tag.
    pub fn change(&self, key: &str) {
        let mut state = self.lock();
        if let Some(object) = state.objects.get(key).cloned() {
            state.set(key, Some(Object { generation: object.generation + 1, ..object }));
        }
    }

    /// What the next attempts on `key` do, one after the other.
    pub fn script(&self, key: &str, steps: impl IntoIterator<Item = Step>) {
        self.lock().scripts.entry(key.to_owned()).or_default().extend(steps);
    }

    /// What every attempt on `key` does behind its script.
    pub fn always(&self, key: &str, step: Step) {
        self.lock().otherwise.insert(key.to_owned(), step);
    }

    /// What every attempt does, whatever scripts say, until told otherwise.
    pub fn all(&self, step: Option<Step>) {
        self.lock().all = step;
    }

    /// Attempts of reads that there were.
    pub fn asked_count(&self) -> usize {
        self.lock().asked.len()
    }

    /// Those of them that came this long after the first, or later.
    pub fn asked_since(&self, after: Duration) -> usize {
        let state = self.lock();
        state.asked.iter().filter(|(at, _)| *at - state.asked[0].0 >= after).count()
    }

    /// Reads that wait for the store now, for a head or for bytes.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// The most of them at any time.
    pub fn waiting_peak(&self) -> usize {
        self.lock().waiting_peak
    }

    /// The most reads, plain ones too, that waited at any time; uploads are none.
    pub fn reading_peak(&self) -> usize {
        self.lock().reading_peak
    }

    /// Bodies that somebody holds.
    pub fn bodies(&self) -> usize {
        self.lock().bodies
    }

    /// Bytes of bodies handed out.
    pub fn given_bytes(&self) -> usize {
        self.lock().given_bytes
    }

    /// Whether it handed out bytes of any good answer, or the end of one, within a time.
    pub fn gave_within(&self, from: Instant, until: Instant) -> bool {
        let state = self.lock();
        let first = state.gave_at.partition_point(|at| *at < from);
        state.gave_at.get(first).is_some_and(|at| *at <= until)
    }

    /// Keeps an eye on how much of `pool` is taken.
    pub fn watch(&self, pool: Pool) {
        self.lock().watched = Some(pool);
    }

    /// The most that was taken of the pool.
    pub fn watched_peak(&self) -> u64 {
        self.lock().watched_peak
    }

    /// When which reads of `key` came.
    pub fn asked(&self, key: &str) -> Vec<(Instant, ReadAsk)> {
        self.lock().asked.iter().filter(|(_, ask)| ask.key.as_str() == key).cloned().collect()
    }

    /// What a healthy store says to `ask`: the lone read that parts are held against.
    pub fn lone(&self, ask: &ReadAsk) -> (StatusCode, HeaderMap, Vec<u8>) {
        healthy(ask, self.object(ask.key.as_str()).as_ref())
    }

    /// All attempts that came, in order.
    pub fn met(&self) -> Vec<Met> {
        self.lock().met.clone()
    }

    /// The numbers of all writes that were carried out, in order.
    pub fn carried(&self) -> Vec<Option<u32>> {
        self.lock().carried.clone()
    }

    /// What `key` held, each from its instant on.
    pub fn history(&self, key: &str) -> Vec<(Instant, Option<Object>)> {
        self.lock().history.get(key).cloned().unwrap_or_default()
    }

    /// How long `asker` has waited for the store, all attempts together.
    pub fn busy(&self, asker: &Asker) -> Duration {
        self.lock().busy.get(asker).copied().unwrap_or_default()
    }

    /// What came that no client of HTTP may send.
    pub fn wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    pub(super) fn body_begins(&self) {
        self.lock().bodies += 1;
    }

    pub(super) fn body_ends(&self) {
        self.lock().bodies -= 1;
    }

    pub(super) fn gave(&self, bytes: usize, act: Act) {
        let mut state = self.lock();
        state.look();
        state.given_bytes += bytes;
        if !matches!(act, Act::Status(..)) {
            state.gave_at.push(Instant::now());
        }
    }

    pub(super) fn carry_out(&self, job: Option<u32>, key: &str, object: Option<Object>) {
        let mut state = self.lock();
        state.set(key, object);
        state.carried.push(job);
    }

    /// A step of an upload was carried out.
    pub(super) fn carried_step(&self, job: Option<u32>) {
        self.lock().carried.push(job);
    }

    pub(super) fn with_uploads<T>(&self, work: impl FnOnce(&mut Uploads) -> T) -> T {
        work(&mut self.lock().uploads)
    }

    pub(super) fn is_wrong(&self, what: String) {
        self.lock().wrong.push(what);
    }

    /// What the next attempt of `asker` does, with `of` of its act. A change is made when the attempt is answered.
    pub(super) fn next_step(&self, asker: &Asker, is_write: bool, of: impl Fn(Act) -> Act) -> Step {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.look();
        let key = asker.1.as_str();
        let all = state.all;
        let scripted = all.or_else(|| state.scripts.get_mut(key).and_then(VecDeque::pop_front));
        let step = scripted.or_else(|| state.otherwise.get(key).copied()).unwrap_or_else(|| match &mut state.faults {
            Some(faults) => faults.step(key, self.otherwise),
            None => self.otherwise,
        });
        let step = Step { act: of(step.act), changes: step.changes && !is_write, ..step };
        let step = match step.act {
            Act::Drip(frame_ms) => Step { frame_ms, frame_bytes: 16, ..step },
            _ => step,
        };
        let (act, changes) = (step.act, step.changes);
        state.met.push(Met { at: Instant::now(), asker: asker.clone(), act, changes });
        step
    }

    /// When what `key` has open is reset, if it will be.
    pub(super) fn next_reset(&self, key: &str) -> Option<Instant> {
        self.lock().faults.as_ref().and_then(|faults| faults.next_reset(key))
    }

    async fn attempt(&self, ask: &ReadAsk, of: impl Fn(Act) -> Act) -> Attempt {
        let key = ask.key.as_str();
        let asker = (job_of(&ask.headers), key.to_owned());
        self.lock().asked.push((Instant::now(), ask.clone()));
        let step = self.next_step(&asker, false, of);
        let _waiting = Waiting::new(self, &asker, true);
        let reset = self.next_reset(key);
        let answer = async {
            sleep(Duration::from_millis(step.head_ms)).await;
            if step.changes {
                self.change(key);
            }
            match step.act {
                Act::Unreachable => failed(BackendErrorKind::Unreachable),
                Act::Reset => failed(BackendErrorKind::NoAnswer),
                Act::Garbled => failed(BackendErrorKind::Garbled),
                Act::Silent => std::future::pending().await,
                act => Ok(self.answer(act, step, ask)),
            }
        };
        unless_reset(reset, answer).await
    }

    fn answer(&self, act: Act, step: Step, ask: &ReadAsk) -> Response<Body> {
        let object = self.object(ask.key.as_str());
        let length = object.as_ref().map_or(0, |object| object.length as u64);
        let (mut status, mut headers, mut bytes) = match act {
            Act::Status(status, code) => refusal(StatusCode::from_u16(status).expect("valid"), code),
            Act::Unconditional => healthy(&ReadAsk { if_match: None, ..ask.clone() }, object.as_ref()),
            Act::Everything => healthy(&ReadAsk { range: None, ..ask.clone() }, object.as_ref()),
            Act::OtherRange if length > 1 => {
                let span = ask.range.and_then(|range| range.resolve(length)).unwrap_or(0..1);
                let other = if span.start > 0 { 0..span.start } else { span.end.min(length - 1)..length };
                healthy(&ReadAsk { range: Some(ByteRange::of(other)), ..ask.clone() }, object.as_ref())
            }
            _ => healthy(ask, object.as_ref()),
        };
        let mut ending = Ends::Clean;
        if status.is_success() {
            match act {
                Act::Cut(at) | Act::NoLengthCut(at) => {
                    bytes.truncate(at);
                    ending = Ends::Broken;
                }
                Act::EndEarly(at) => bytes.truncate(at),
                Act::StallAfter(at) => {
                    bytes.truncate(at);
                    ending = Ends::Never;
                }
                Act::Longer(more) => bytes.extend(std::iter::repeat_n(b'!', more)),
                Act::OtherTotal => {
                    let said = headers.get(header::CONTENT_RANGE).and_then(|v| v.to_str().ok()).map(|v| format!("{v}0"));
                    if let Some(said) = said {
                        headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(&said).expect("digits"));
                    }
                }
                Act::NoContentRange => drop(headers.remove(header::CONTENT_RANGE)),
                Act::NotModified if ask.if_none_match.is_none() => (status, bytes) = (StatusCode::NOT_MODIFIED, Vec::new()),
                _ => {}
            }
            if matches!(act, Act::NoLength | Act::NoLengthCut(_)) {
                headers.remove(header::CONTENT_LENGTH);
            }
        }
        let key = ask.key.as_str();
        let asker = (job_of(&ask.headers), key.to_owned());
        let body = SimBody::new(self.clone(), asker, bytes.into(), step, ending, self.next_reset(key));
        let mut response = Response::new(Body::new(body));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }
}

impl ObjectRead for SimStore {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        Box::pin(self.attempt(ask, Act::of_read))
    }
}

impl Forward for SimStore {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let (bucket, key) = path.split_once('/').expect("only objects are asked for");
        let header = |name| request.headers().get(name).cloned();
        let range = header(header::RANGE).map(|range| ByteRange::parse(range.to_str().expect("text")).expect("valid"));
        let ask = ReadAsk {
            range,
            if_match: header(header::IF_MATCH),
            if_none_match: header(header::IF_NONE_MATCH),
            headers: Arc::new(request.headers().clone()),
            ..ReadAsk::plain(bucket, key)
        };
        Box::pin(async move {
            match *request.method() {
                Method::GET => self.attempt(&ask, Act::of_plain_read).await,
                Method::HEAD => Ok(self.attempt(&ask, Act::of_plain_read).await?.map(|_| empty_body())),
                _ => self.write(request, &ask).await,
            }
        })
    }
}

/// The number of the request that this attempt is for.
pub(super) fn job_of(headers: &HeaderMap) -> Option<u32> {
    headers.get(JOB).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok())
}

pub(super) fn failed(kind: BackendErrorKind) -> Attempt {
    Err(BackendError { kind, source: SECRET.into() })
}

/// Runs `work`, which is reset when the store goes down at `reset`.
pub(super) async fn unless_reset(reset: Option<Instant>, work: impl Future<Output = Attempt>) -> Attempt {
    let Some(at) = reset else { return work.await };
    tokio::select! {
        biased;
        () = sleep_until(at) => failed(BackendErrorKind::NoAnswer),
        answer = work => answer,
    }
}

/// Somebody waits for the store as long as this lives.
pub(super) struct Waiting {
    store: SimStore,
    asker: Asker,
    is_read: bool,
    since: Instant,
}

impl Waiting {
    pub fn new(store: &SimStore, asker: &Asker, is_read: bool) -> Self {
        let mut state = store.lock();
        state.waiting += 1;
        state.waiting_peak = state.waiting_peak.max(state.waiting);
        state.reading += usize::from(is_read);
        state.reading_peak = state.reading_peak.max(state.reading);
        drop(state);
        Self { store: store.clone(), asker: asker.clone(), is_read, since: Instant::now() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        state.waiting -= 1;
        state.reading -= usize::from(self.is_read);
        *state.busy.entry(self.asker.clone()).or_default() += self.since.elapsed();
    }
}
