//! Clients that owe bytes and readers that take them slowly, on a paused clock.

use std::collections::VecDeque;

use http_body_util::BodyExt;

use super::*;
use crate::backend::full_body;
use crate::edge::activity::Activity;
use crate::edge::slots::Slots;
use crate::stall::{STALL_GRACE, Wanted};
use crate::telemetry::Metrics;
use crate::types::RequestId;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A client that sends these many bytes after these many seconds each.
struct Client {
    frames: VecDeque<(u64, usize)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Client {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some((seconds, bytes)) = self.frames.front().copied() else { return Poll::Ready(None) };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(Duration::from_secs(seconds))));
        ready!(sleep.as_mut().poll(cx));
        self.sleep = None;
        self.frames.pop_front();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; bytes])))))
    }
}

/// What comes of a body, and after how many seconds.
async fn sends(frames: impl IntoIterator<Item = (u64, usize)>) -> (Result<usize, Kind>, u64) {
    let started = Instant::now();
    let body = Owed::new(Client { frames: frames.into_iter().collect(), sleep: None }, TIMEOUT);
    let got = body.collect().await.map(|body| body.to_bytes().len());
    let kind = |error: BoxError| error.downcast::<Error>().expect("ours").kind;
    (got.map_err(kind), started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_given_up_whatever_it_sent_before() {
    assert_eq!(sends([(31, 1)]).await, (Err(Kind::RequestTimeout), 30));
    assert_eq!(sends([(20, 1 << 20), (31, 1)]).await, (Err(Kind::RequestTimeout), 50));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_is_given_up_and_a_slow_one_is_not() {
    let dripped = sends((0..100).map(|_| (29, 1))).await;
    assert_eq!(dripped, (Err(Kind::RequestTimeout), 30), "one byte each 29 seconds");
    assert_eq!(sends((0..1000).map(|_| (1, 900))).await, (Err(Kind::RequestTimeout), 30));
    assert_eq!(sends((0..1000).map(|_| (1, 1100))).await, (Ok(1_100_000), 1000));
    // In bursts, as a radio link has them.
    assert_eq!(sends((0..50).map(|_| (25, 80_000))).await, (Ok(4_000_000), 1250));
    assert_eq!(sends([(10, 5), (10, 5)]).await, (Ok(10), 20), "a short body has a window's time");
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_nobody_asks_is_not_the_clients() {
    let frames = VecDeque::from(vec![(0, 64); 20]);
    let mut body = Owed::new(Client { frames, sleep: None }, TIMEOUT);
    while let Some(frame) = body.frame().await {
        frame.expect("the store is slow, not the client");
        tokio::time::sleep(2 * TIMEOUT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_slowly_makes_room_when_a_place_is_wanted_and_one_that_keeps_us_waiting_little_does_not() {
    for (frame, seconds, makes_room) in [((1, 1100), 61, true), ((1, 40_000), 61, false), ((0, 10), 0, false)] {
        let scene = Scene::new();
        let slot = scene.slots.take().expect("free");
        let mut body = Owed::new(Client { frames: VecDeque::from(vec![frame; 200]), sleep: None }, TIMEOUT);
        body.makes_room(&scene.stalls, &slot);
        for _ in 0..seconds {
            body.frame().await.expect("there").expect("it keeps pace");
        }
        if seconds == 0 {
            body.frame().await.expect("there").expect("it keeps pace");
            tokio::time::advance(Duration::from_secs(300)).await;
        }
        assert_eq!(scene.stalls.make_room(Wanted::Slot).await, makes_room);
        assert_eq!(scene.slot_is_free(), makes_room);
        let next = body.frame().await.expect("there").map_err(|error| error.downcast::<Error>().expect("ours").kind);
        assert_eq!(next.err(), makes_room.then_some(Kind::SlowDown));
    }
}

/// An answer that is served to a reader of ours.
struct Scene {
    metrics: Arc<Metrics>,
    stalls: Arc<StallWatch>,
    slots: Arc<Slots>,
    activity: Arc<Activity>,
}

impl Scene {
    fn new() -> Self {
        let metrics = Arc::new(Metrics::new());
        Self { slots: Slots::new(1, &metrics), metrics, stalls: Arc::default(), activity: Activity::new() }
    }

    fn serve(&self, body: Body, cut: Option<CancellationToken>) -> Served {
        let (head, ()) = http::Request::get("/b/k").body(()).expect("valid").into_parts();
        let mut line = AccessLine::begin(&head, RequestId(1), true, &self.metrics, self.activity.begin());
        line.slot = self.slots.take();
        assert!(line.slot.is_some());
        Served::new(body, line, &self.stalls, Duration::from_secs(600), cut, None)
    }

    fn slot_is_free(&self) -> bool {
        self.slots.take().is_some()
    }

    fn cuts(&self, reason: &str) -> u64 {
        self.metrics.connections_cut_total.with_label_values(&[reason]).get()
    }
}

/// As many frames, each taken whole by a reader.
fn frames(count: usize) -> Body {
    Body::new(Client { frames: VecDeque::from(vec![(0, 1024); count]), sleep: None })
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stalls_gives_its_slot_to_somebody_new_but_not_before_its_time() {
    for cut in [Some(CancellationToken::new()), None] {
        let scene = Scene::new();
        let mut body = scene.serve(frames(10), cut.clone());
        body.frame().await.expect("there").expect("well");
        tokio::time::advance(STALL_GRACE).await;
        assert!(!scene.stalls.make_room(Wanted::Slot).await && !scene.slot_is_free());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(scene.stalls.make_room(Wanted::Slot).await);
        assert!(scene.slot_is_free(), "though the reader has not been told yet");
        assert_eq!(scene.cuts("broken_off"), 1);
        assert!(scene.activity.idle_since().is_some(), "nothing is under way on its connection");
        assert!(cut.is_none_or(|cut| cut.is_cancelled()));
        assert!(body.frame().await.expect("no clean end").is_err());
        drop(body);
        assert_eq!(scene.cuts("broken_off"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_drips_has_stalled_between_two_drops() {
    let scene = Scene::new();
    let task = tokio::spawn(Arc::clone(&scene.stalls).run());
    let mut body = scene.serve(frames(100), None);
    for _ in 0..3 {
        // The connection's buffer hides the drops: it asks again only when it has room.
        tokio::time::sleep(Duration::from_secs(590)).await;
        body.frame().await.expect("there").expect("it reads within client_stall");
    }
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(scene.stalls.make_room(Wanted::Slot).await, "but it makes room");
    drop(body);
    let body = scene.serve(frames(100), None);
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(scene.cuts("client_stall"), 1);
    assert!(scene.slot_is_free());
    drop(body);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ended_makes_no_room() {
    let scene = Scene::new();
    let body = scene.serve(full_body("x"), None);
    assert_eq!(body.collect().await.expect("whole").to_bytes(), "x");
    tokio::time::advance(2 * STALL_GRACE).await;
    assert!(!scene.stalls.make_room(Wanted::Slot).await);
    assert!(scene.slot_is_free());
}

/// All that an answer has, handed out as to a connection that keeps it back.
async fn handed_out(scene: &Scene) -> Piece {
    let mut body = scene.serve(full_body("all of it"), None);
    body.frame().await.expect("there").expect("well").into_data().unwrap_or_else(|_| panic!("no data"))
}

#[tokio::test(start_paused = true)]
async fn an_answer_lasts_until_its_last_byte_was_taken() {
    let scene = Scene::new();
    let mut piece = handed_out(&scene).await;
    assert!(!scene.slot_is_free() && scene.activity.idle_since().is_none(), "nothing was taken yet");
    piece.advance(8);
    tokio::time::advance(STALL_GRACE).await;
    assert!(!scene.stalls.make_room(Wanted::Slot).await);
    piece.advance(1);
    drop(piece);
    assert!(scene.slot_is_free() && scene.activity.idle_since().is_some());
    assert_eq!(scene.activity.given_up(), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_known_for_as_long_as_the_connection_holds_it() {
    let scene = Scene::new();
    let piece = handed_out(&scene).await;
    tokio::time::advance(STALL_GRACE + Duration::from_secs(1)).await;
    assert!(scene.stalls.make_room(Wanted::Slot).await && scene.slot_is_free());
    assert_eq!(scene.activity.given_up(), Some(Duration::ZERO));
    drop(piece);
    assert_eq!(scene.activity.given_up(), None);
}
