//! Plain requests over a store that fails in one way, end to end: what its breaker is told, and what others may still do.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, header};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::{Instant, sleep};

use super::clients::{Gateway, Got};
use crate::backend::breaker::Target;
use crate::backend::{BackendErrorKind, Body, BoxError, empty_body};
use crate::batch::tests::objects::{Object, content};
use crate::batch::tests::store::{Act, Step};
use crate::batch::tests::writes::GENERATION;
use crate::batch::tests::{Client, Numbers, Rig, Wanted, request};

const SECOND: Duration = Duration::from_secs(1);

/// What opens a breaker that sees nothing else, and a few.
const MANY: usize = 30;

fn gateway(otherwise: Step, response_timeout: Duration) -> Gateway {
    let numbers = Numbers {
        entry_bytes: 4096,
        window_bytes: 1 << 20,
        shared_bytes: 1 << 20,
        heads_bytes: 1 << 20,
        concurrency: 8,
        permits: 8,
        permits_min: 2,
        deadline: 8 * SECOND,
        attempt_timeout: SECOND,
        response_timeout,
        queue_wait: 2 * SECOND,
        backoff_max: SECOND,
    };
    let rig = Rig::new(numbers, otherwise, 1);
    (0..MANY).for_each(|at| rig.store.put(&format!("k{at}"), Object::of(100)));
    Gateway::over(rig)
}

async fn read(gateway: &Gateway, method: Method, key: &str, body: Body) -> Got {
    let asked = Request::builder().method(method).uri(format!("/b/{key}")).body(body).expect("valid");
    gateway.plain(asked, Client::Eager).await.1
}

fn status(got: &Got) -> u16 {
    match got {
        Got::Plain(plain) => plain.status,
        Got::Failed { kind, .. } => kind.status(),
        got => panic!("{got:?}"),
    }
}

/// Reads of different objects one after the other; how often the breaker opened.
async fn opened(method: Method, act: Act) -> u64 {
    let gateway = gateway(Step::of(act), 10 * SECOND);
    for at in 0..MANY {
        read(&gateway, method.clone(), &format!("k{at}"), empty_body()).await;
        sleep(SECOND / 10).await;
    }
    gateway.rig.backend.metrics.breaker_opened.get()
}

#[tokio::test(start_paused = true)]
async fn errors_with_a_body_open_the_breaker_and_pleas_and_refusals_do_not() {
    for act in [Act::Status(500, "InternalError"), Act::Status(503, "ServiceUnavailable"), Act::Reset] {
        assert_eq!(opened(Method::GET, act).await, 1, "{act:?}");
    }
    for act in [Act::Status(503, "SlowDown"), Act::Status(404, "NoSuchKey"), Act::Status(403, "AccessDenied")] {
        assert_eq!(opened(Method::GET, act).await, 0, "{act:?}");
        assert_eq!(opened(Method::HEAD, act).await, 0, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_503_is_counted_as_what_its_code_says() {
    for (method, code, counted) in
        [(Method::GET, "SlowDown", (1, 0)), (Method::GET, "ServiceUnavailable", (0, 1)), (Method::HEAD, "SlowDown", (1, 0))]
    {
        let gateway = gateway(Step::of(Act::Status(503, code)), 10 * SECOND);
        read(&gateway, method, "k1", empty_body()).await;
        let metrics = &gateway.rig.backend.metrics;
        assert_eq!((metrics.attempts_slow_down.get(), metrics.attempts_failed.get()), counted, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_whose_body_never_comes_ends_no_outage() {
    let gateway = gateway(Step::of(Act::Healthy), 5 * SECOND);
    gateway.rig.store.always("k0", Step::of(Act::Reset));
    gateway.rig.store.always("k1", Step::of(Act::StallAfter(0)));
    read(&gateway, Method::GET, "k0", empty_body()).await;
    let before = gateway.rig.backend.breaker.outage().expect("it failed").since;
    read(&gateway, Method::GET, "k1", empty_body()).await;
    assert_eq!(gateway.rig.backend.breaker.outage().expect("nothing has moved").since, before);
    assert_eq!(status(&read(&gateway, Method::GET, "k2", empty_body()).await), 200);
    assert!(gateway.rig.backend.breaker.outage().is_none(), "bytes have");
}

#[tokio::test(start_paused = true)]
async fn requests_that_hang_do_not_keep_others_from_the_store() {
    let gateway = std::sync::Arc::new(gateway(Step::of(Act::Healthy), 300 * SECOND));
    let mut hung = Vec::new();
    for at in 0..8 {
        gateway.rig.store.always(&format!("k{at}"), Step::of(Act::Silent));
        let gateway = std::sync::Arc::clone(&gateway);
        hung.push(tokio::spawn(async move { status(&read(&gateway, Method::GET, &format!("k{at}"), empty_body()).await) }));
    }
    sleep(SECOND / 10).await;
    assert_eq!(gateway.rig.backend.limiter.in_use(), 8);
    let wanted: Vec<_> = (10..14).map(|at| Wanted::of(format!("k{at}"))).collect();
    let answer = gateway.rig.run(&request(&wanted), Client::Eager).await;
    assert!(answer.parts().expect("readable").iter().all(|part| part.status == 200));
    assert!(answer.took < 2 * SECOND, "{:?}", answer.took);
    assert_eq!(gateway.rig.backend.limiter.in_use(), 0);
    for hung in hung {
        assert_eq!(hung.await.expect("no panic"), 504, "they go on for as long as they may");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_still_the_clients() {
    let gateway = gateway(Step { head_ms: 5000, ..Step::of(Act::Healthy) }, 60 * SECOND);
    let started = Instant::now();
    assert_eq!(status(&read(&gateway, Method::GET, "k1", empty_body()).await), 200);
    assert!(started.elapsed() >= 5 * SECOND);
    assert_eq!((gateway.rig.store.asked_count(), gateway.rig.backend.limiter.in_use()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_drips_keeps_its_client_no_longer_than_an_attempt() {
    for code in [400, 403, 503] {
        let step = Step { frame_ms: 900, frame_bytes: 1, ..Step::of(Act::Status(code, "AccessDenied")) };
        let gateway = gateway(step, 300 * SECOND);
        let started = Instant::now();
        assert_eq!(status(&read(&gateway, Method::GET, "k1", empty_body()).await), 502);
        assert!(started.elapsed() < 2 * SECOND, "{code}: {:?}", started.elapsed());
        let failed = code == 503;
        assert_eq!(gateway.rig.backend.breaker.outage().is_some_and(|outage| outage.cause.is_some()), failed, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_of_no_use_is_an_answer() {
    for (kind, opens) in [(BackendErrorKind::HeadTooLarge, 0), (BackendErrorKind::Unframed, 0), (BackendErrorKind::RequestBody, 1)]
    {
        let gateway = gateway(Step::of(Act::Healthy), SECOND);
        let backend = &gateway.rig.backend;
        for at in 0..MANY {
            for failure in [BackendErrorKind::NoAnswer, kind] {
                if let Ok(pass) = backend.breaker.admit(Target::of(at)) {
                    pass.unanswered(failure, false);
                }
            }
            sleep(SECOND / 20).await;
        }
        assert_eq!(backend.metrics.breaker_opened.get(), opens, "{kind:?}");
    }
}

/// A body whose pieces come with pauses before them.
fn paced(pieces: Vec<Bytes>, pause: Duration) -> Body {
    let paced = stream::iter(pieces).then(move |piece| async move {
        sleep(pause).await;
        Ok::<_, BoxError>(Frame::data(piece))
    });
    Body::new(StreamBody::new(Box::pin(paced)))
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_its_client_stalls_says_nothing_of_the_store() {
    let gateway = gateway(Step::of(Act::Healthy), 2 * SECOND);
    gateway.rig.store.put("k1", Object::of(100));
    let whole = Bytes::from(content("k1", 7, 1000));
    let put = || {
        let asked = Request::builder().method(Method::PUT).uri("/b/k1").header(header::CONTENT_LENGTH, 1000).header(GENERATION, 7);
        asked.body(paced(vec![whole.slice(..500), whole.slice(500..)], 9 * SECOND)).expect("valid")
    };
    assert_eq!(status(&gateway.plain(put(), Client::Eager).await.1), 200);
    assert!(gateway.rig.backend.breaker.outage().is_none());
    gateway.rig.store.always("k1", Step::of(Act::Silent));
    let started = Instant::now();
    assert_eq!(status(&gateway.plain(put(), Client::Eager).await.1), 504);
    assert_eq!(started.elapsed(), 20 * SECOND, "the store's time begins with the last byte");
    assert!(gateway.rig.backend.breaker.outage().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_get_whose_body_ends_empty_has_none() {
    let gateway = gateway(Step::of(Act::Healthy), 2 * SECOND);
    gateway.rig.store.script("k1", [Step::of(Act::Reset)]);
    let got = read(&gateway, Method::GET, "k1", paced(vec![Bytes::new()], SECOND / 10)).await;
    assert_eq!((status(&got), gateway.rig.store.asked_count()), (200, 2), "it is sent again");
}
