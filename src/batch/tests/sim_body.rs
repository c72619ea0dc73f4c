//! The body of a simulated store's answer: frames at the step's pace, and the end that the step has for it. It counts who
//! waits for it, and breaks when the store goes down.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::backend::BoxError;

use super::faults::Step;
use super::objects::SECRET;
use super::store::{Asker, SimStore, Waiting};

#[derive(Clone, Copy, Debug)]
pub enum Ends {
    Clean,
    Broken,
    Never,
}

pub struct SimBody {
    store: SimStore,
    asker: Asker,
    rest: Bytes,
    step: Step,
    ends: Ends,
    pause: Option<Pin<Box<Sleep>>>,
    /// There if the store goes down at some time.
    reset: Option<Pin<Box<Sleep>>>,
    /// There while a reader waits for the next frame.
    waiting: Option<Waiting>,
}

impl SimBody {
    pub fn new(store: SimStore, asker: Asker, rest: Bytes, step: Step, ends: Ends, reset: Option<Instant>) -> Self {
        store.body_begins();
        let reset = reset.map(|at| Box::pin(sleep_until(at)));
        Self { store, asker, rest, step, ends, pause: None, reset, waiting: None }
    }
}

impl Drop for SimBody {
    fn drop(&mut self) {
        self.store.body_ends();
    }
}

impl http_body::Body for SimBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.waiting.is_none() {
            self.waiting = Some(Waiting::new(&self.store, &self.asker, true));
        }
        if self.reset.as_mut().is_some_and(|reset| reset.as_mut().poll(cx).is_ready()) {
            (self.rest, self.ends, self.reset) = (Bytes::new(), Ends::Broken, None);
        } else if self.step.frame_ms > 0 {
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
            if !broken {
                self.store.gave(0, self.step.act);
            }
            self.ends = Ends::Clean;
            return Poll::Ready(broken.then(|| Err(SECRET.into())));
        }
        let count = self.step.frame_bytes.clamp(1, self.rest.len());
        let frame = self.rest.split_to(count);
        self.store.gave(count, self.step.act);
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}
