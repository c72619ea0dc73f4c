//! What a connection is doing, shared by its socket, its requests, its supervisor and whoever wants its place: since when it has
//! been sending the head of a request, whether an answer is under way, whether its client takes what is written to it.
//!
//! Invariant: a connection is idle only if all that was said on it has been taken.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::stall::STALL_GRACE;

/// See the module.
#[derive(Debug)]
pub struct Activity {
    state: Mutex<State>,
    told: Notify,
    http2: CancellationToken,
}

#[derive(Debug)]
struct State {
    in_flight: usize,
    since: Since,
    /// Since when its client has taken nothing of what is written, if something is.
    blocked: Option<Instant>,
    /// Answers that we gave up while HTTP/2 still has something of them to send: since when, and a number.
    given_up: BTreeSet<(Instant, u64)>,
    next: u64,
    told_to_close: bool,
    lingers: bool,
    resets: bool,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// Part of a head has come, or it is owed because the connection is new.
    Head(Instant),
    /// Nothing has come since the last answer was taken.
    Idle(Instant),
}

impl State {
    fn idle_since(&self) -> Option<Instant> {
        let (Since::Head(since) | Since::Idle(since)) = self.since;
        let writes = self.blocked.is_some_and(|at| at.elapsed() < STALL_GRACE);
        (self.in_flight == 0 && !writes).then_some(since)
    }
}

impl Activity {
    /// A new connection owes a head.
    pub fn new() -> Arc<Self> {
        let state = State {
            in_flight: 0,
            since: Since::Head(Instant::now()),
            blocked: None,
            given_up: BTreeSet::new(),
            next: 0,
            told_to_close: false,
            lingers: false,
            resets: false,
        };
        Arc::new(Self { state: Mutex::new(state), told: Notify::new(), http2: CancellationToken::new() })
    }

    /// A head has come whole.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        state.in_flight += 1;
        state.told_to_close = false;
        UnderWay(Arc::clone(self))
    }

    fn end(&self) {
        let mut state = self.state();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.since = Since::Idle(Instant::now());
        }
    }

    /// Bytes have come. On HTTP/2 that says nothing: they may be of a request, of an answer, or of the connection.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.in_flight == 0 && matches!(state.since, Since::Idle(_)) && !self.http2.is_cancelled() {
            state.since = Since::Head(Instant::now());
            // The request that has just begun is not to be cut.
            state.told_to_close = false;
        }
    }

    /// The client takes nothing of what is written, or does so again.
    pub(super) fn blocked(&self, is_blocked: bool) {
        let mut state = self.state();
        if is_blocked {
            state.blocked.get_or_insert_with(Instant::now);
        } else if state.blocked.take().is_some() && matches!(state.since, Since::Idle(_)) {
            state.since = Since::Idle(Instant::now());
        }
    }

    /// What came was the preface of HTTP/2.
    pub(super) fn speaks_http2(&self) {
        self.http2.cancel();
    }

    /// Waits until the client has said that it speaks HTTP/2.
    pub async fn http2(&self) {
        self.http2.cancelled().await;
    }

    /// From now on the client may be sending what we will not read, since it was told to go away in the middle.
    pub fn linger(&self) {
        self.state().lingers = true;
    }

    pub(super) fn lingers(&self) -> bool {
        self.state().lingers
    }

    /// Whether an answer is under way whose end would look like its being broken off.
    pub(super) fn resets(&self) -> bool {
        self.state().resets
    }

    pub(super) fn forgot(&self) {
        self.state().since = Since::Idle(Instant::now());
    }

    /// Why the connection should end now, if it should. A socket that takes nothing of an answer has a time of its own.
    pub fn overdue(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<&'static str> {
        let state = self.state();
        if state.in_flight > 0 || state.blocked.is_some() {
            return None;
        }
        match state.since {
            Since::Head(since) => (since.elapsed() >= header_timeout).then_some("header_timeout"),
            Since::Idle(since) => (since.elapsed() >= idle_timeout).then_some("idle"),
        }
    }

    /// Part of a head has come, or is owed, and nothing else is under way. On HTTP/2 nobody is cut for that, who can be told.
    pub fn owes_head(&self) -> bool {
        let state = self.state();
        state.idle_since().is_some() && matches!(state.since, Since::Head(_)) && !self.http2.is_cancelled()
    }

    /// Since when no request is under way, if none is. A head that is not whole is none; an answer whose end was written is
    /// one until it has been taken, or until nothing of it has been for [`STALL_GRACE`].
    pub fn idle_since(&self) -> Option<Instant> {
        self.state().idle_since()
    }

    /// How long an answer has been given up that HTTP/2 still holds, the longest of them.
    pub fn given_up(&self) -> Option<Duration> {
        self.state().given_up.first().map(|(since, _)| since.elapsed())
    }

    /// Tells the connection to close, unless it has not been idle since `since`; says which. A request that begins before the
    /// connection heeds it takes the word back.
    pub fn tell_to_close(&self, since: Instant) -> bool {
        let mut state = self.state();
        if state.idle_since() != Some(since) || state.told_to_close {
            return false;
        }
        state.told_to_close = true;
        self.told.notify_one();
        true
    }

    /// Whether it was told to close, and nothing has begun since.
    pub fn is_told_to_close(&self) -> bool {
        self.state().told_to_close
    }

    /// Waits until the connection is told to close; whether that still holds must be asked.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// A request on a connection, until its answer has been taken.
#[derive(Debug)]
pub struct UnderWay(Arc<Activity>);

impl UnderWay {
    /// Only the connection's end will say where its answer ends (HTTP/1.0 without a length): until it has [`UnderWay::ended`], the
    /// connection is reset where it is closed.
    pub fn ends_with_its_connection(&self) {
        self.0.state().resets = true;
    }

    /// All of its answer was taken.
    pub fn ended(&self) {
        self.0.state().resets = false;
    }

    /// Its answer is given up; for as long as the protocol still holds some of it.
    pub fn give_up(&self) -> GivenUp {
        let mut state = self.0.state();
        state.next += 1;
        let of = (Instant::now(), state.next);
        state.given_up.insert(of);
        GivenUp(Arc::clone(&self.0), of)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// An answer that was given up and of which something is held still.
#[derive(Debug)]
pub struct GivenUp(Arc<Activity>, (Instant, u64));

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.state().given_up.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn overdue(activity: &Activity) -> Option<&'static str> {
        activity.overdue(3 * SECOND, 6 * SECOND)
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_owed_sooner_than_the_next_request() {
        let activity = Activity::new();
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"), "a new connection owes a head");
        let request = activity.begin();
        tokio::time::advance(60 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a request is under way");
        drop(request);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(overdue(&activity), None);
        activity.received();
        assert!(activity.owes_head());
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(overdue(&activity), None, "a head has begun to come");
        tokio::time::advance(SECOND).await;
        assert_eq!(overdue(&activity), Some("header_timeout"));
        drop(activity.begin());
        tokio::time::advance(6 * SECOND).await;
        assert_eq!(overdue(&activity), Some("idle"));
    }

    #[tokio::test(start_paused = true)]
    async fn on_http2_what_comes_between_requests_is_no_head() {
        let activity = Activity::new();
        activity.speaks_http2();
        drop(activity.begin());
        tokio::time::advance(2 * SECOND).await;
        activity.received();
        assert!(!activity.owes_head());
        tokio::time::advance(3 * SECOND).await;
        assert_eq!(overdue(&activity), None, "the time for a head is over");
        tokio::time::advance(SECOND).await;
        assert_eq!(overdue(&activity), Some("idle"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_still_takes_the_end_of_an_answer_is_not_idle_and_who_does_not_is_after_a_while() {
        let activity = Activity::new();
        drop(activity.begin());
        activity.blocked(true);
        tokio::time::advance(29 * SECOND).await;
        assert_eq!((overdue(&activity), activity.idle_since(), activity.owes_head()), (None, None, false));
        activity.blocked(false);
        let taken = Instant::now();
        tokio::time::advance(SECOND).await;
        assert_eq!((overdue(&activity), activity.idle_since()), (None, Some(taken)), "idle since the last byte was taken");
        activity.blocked(true);
        tokio::time::advance(STALL_GRACE).await;
        assert_eq!((overdue(&activity), activity.idle_since()), (None, Some(taken)), "others may have its place");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_is_known_until_it_is_let_go() {
        let activity = Activity::new();
        let (first, second) = (activity.begin(), activity.begin());
        let given_up = first.give_up();
        drop(first);
        tokio::time::advance(SECOND).await;
        let later = second.give_up();
        drop(second);
        assert!(activity.idle_since().is_some());
        assert_eq!(activity.given_up(), Some(SECOND));
        drop(given_up);
        assert_eq!(activity.given_up(), Some(Duration::ZERO));
        drop(later);
        assert_eq!(activity.given_up(), None);
    }
}
