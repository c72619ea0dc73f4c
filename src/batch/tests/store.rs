//! A store in memory on the simulated clock. Each key has a script of misbehaviours for its successive attempts; behind the
//! script it is healthy and keeps to HTTP. It counts who waits for it.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep};

use crate::backend::{Attempt, BackendError, BackendErrorKind, Body, BoxError, Forward, ObjectRead, ReadAsk};
use crate::budget::Pool;
use crate::types::ByteRange;

use super::objects::{Object, SECRET, ask, healthy, refusal};

/// What an attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Healthy,
    Unreachable,
    Reset,
    Garbled,
    /// No head, ever.
    Silent,
    /// An error with this status and this code.
    Status(u16, &'static str),
    /// The body breaks after so many bytes.
    Cut(usize),
    /// The body ends early, without an error.
    EndEarly(usize),
    /// The body says nothing more after so many bytes.
    StallAfter(usize),
    /// Healthy, but the length is not said.
    NoLength,
    /// The length is not said, and the body breaks after so many bytes.
    NoLengthCut(usize),
    /// So many bytes more than was said.
    Longer(usize),
    /// 200 with everything, whatever was asked.
    Everything,
    /// Healthy, but blind to If-Match.
    Unconditional,
    /// Another range than was asked for, and it says so.
    OtherRange,
    /// Another total than the object has.
    OtherTotal,
    /// A range without a Content-Range.
    NoContentRange,
    /// 304 though nothing was asked to be compared.
    NotModified,
}

/// One attempt: what it does, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub act: Act,
    /// The object changes before this attempt.
    pub changes: bool,
    pub head_ms: u64,
    pub frame_ms: u64,
    pub frame_bytes: usize,
}

impl Step {
    pub fn of(act: Act) -> Self {
        Self { act, changes: false, head_ms: 5, frame_ms: 0, frame_bytes: 700 }
    }
}

#[derive(Default)]
struct State {
    objects: HashMap<String, Object>,
    scripts: HashMap<String, VecDeque<Step>>,
    otherwise: HashMap<String, Step>,
    all: Option<Step>,
    waiting: usize,
    waiting_peak: usize,
    bodies: usize,
    given_bytes: usize,
    asked: Vec<(Instant, ReadAsk)>,
    /// Looked at whenever something happens here.
    watched: Option<Pool>,
    watched_peak: u64,
}

impl State {
    fn look(&mut self) {
        let used = self.watched.as_ref().map_or(0, |pool| pool.max() - pool.free());
        self.watched_peak = self.watched_peak.max(used);
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
        self.lock().objects.insert(key.to_owned(), object);
    }

    pub fn object(&self, key: &str) -> Option<Object> {
        self.lock().objects.get(key).cloned()
    }

    /// Other bytes, another tag.
    pub fn change(&self, key: &str) {
        if let Some(object) = self.lock().objects.get_mut(key) {
            object.generation += 1;
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

    /// Bodies that somebody holds.
    pub fn bodies(&self) -> usize {
        self.lock().bodies
    }

    /// Bytes of bodies handed out.
    pub fn given_bytes(&self) -> usize {
        self.lock().given_bytes
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

    async fn attempt(&self, ask: &ReadAsk) -> Attempt {
        let key = ask.key.as_str();
        let step = {
            let mut state = self.lock();
            state.look();
            state.asked.push((Instant::now(), ask.clone()));
            let scripted = state.all.or_else(|| state.scripts.get_mut(key).and_then(VecDeque::pop_front));
            scripted.or_else(|| state.otherwise.get(key).copied()).unwrap_or(self.otherwise)
        };
        let _waiting = Waiting::new(self);
        sleep(Duration::from_millis(step.head_ms)).await;
        if step.changes {
            self.change(key);
        }
        let failed = |kind| Err(BackendError { kind, source: SECRET.into() });
        match step.act {
            Act::Unreachable => failed(BackendErrorKind::Unreachable),
            Act::Reset => failed(BackendErrorKind::NoAnswer),
            Act::Garbled => failed(BackendErrorKind::Garbled),
            Act::Silent => std::future::pending().await,
            act => Ok(self.answer(act, step, ask)),
        }
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
        let body = SimBody::new(self.clone(), bytes.into(), step, ending);
        let mut response = Response::new(Body::new(body));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }
}

impl ObjectRead for SimStore {
    fn read<'a>(&'a self, ask: &'a ReadAsk) -> BoxFuture<'a, Attempt> {
        Box::pin(self.attempt(ask))
    }
}

impl Forward for SimStore {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Attempt> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let (bucket, key) = path.split_once('/').expect("only objects are asked for");
        let ask = ask(bucket, key);
        Box::pin(async move { self.attempt(&ask).await })
    }
}

/// Somebody waits for the store as long as this lives.
struct Waiting(SimStore);

impl Waiting {
    fn new(store: &SimStore) -> Self {
        let mut state = store.lock();
        state.waiting += 1;
        state.waiting_peak = state.waiting_peak.max(state.waiting);
        drop(state);
        Self(store.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    Clean,
    Broken,
    Never,
}

struct SimBody {
    store: SimStore,
    rest: Bytes,
    step: Step,
    ends: Ends,
    pause: Option<Pin<Box<Sleep>>>,
    /// There while a reader waits for the next frame.
    waiting: Option<Waiting>,
}

impl SimBody {
    fn new(store: SimStore, rest: Bytes, step: Step, ends: Ends) -> Self {
        store.lock().bodies += 1;
        Self { store, rest, step, ends, pause: None, waiting: None }
    }
}

impl Drop for SimBody {
    fn drop(&mut self) {
        self.store.lock().bodies -= 1;
    }
}

impl http_body::Body for SimBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.waiting.is_none() {
            self.waiting = Some(Waiting::new(&self.store));
        }
        if self.step.frame_ms > 0 {
            let pause = Duration::from_millis(self.step.frame_ms);
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(pause))).as_mut().poll(cx));
            self.pause = None;
        }
        if self.rest.is_empty() && matches!(self.ends, Ends::Never) {
            return Poll::Pending;
        }
        self.waiting = None;
        if self.rest.is_empty() {
            let broken = matches!(self.ends, Ends::Broken);
            self.ends = Ends::Clean;
            return Poll::Ready(broken.then(|| Err(SECRET.into())));
        }
        let count = self.step.frame_bytes.clamp(1, self.rest.len());
        let frame = self.rest.split_to(count);
        let mut state = self.store.lock();
        state.look();
        state.given_bytes += count;
        drop(state);
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}
