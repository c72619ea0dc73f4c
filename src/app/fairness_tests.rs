//! Both halves of the gateway over one backend, under a simulated clock: readers that stall, of batches and of plain objects,
//! more of them than the backend has permits, and others that go on all the same.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};

use crate::auth::{Authenticated, Identity, Policy, Scheme};
use crate::backend::{Body, empty_body};
use crate::batch::tests::judge::same_as_lone;
use crate::batch::tests::objects::{Object, content};
use crate::batch::tests::store::{Act, Step};
use crate::batch::tests::{Client, Numbers, Rig, Wanted, request};
use crate::budget::Pool;
use crate::passthrough::{Ask, Passthrough};
use crate::route::target;
use crate::stall::StallWatch;

const READERS: usize = 6;
const PERMITS: usize = 2;
const LENGTH: usize = 400_000;
/// Each read takes a fifth of a second.
const SOON: Duration = Duration::from_secs(5);

struct Plain {
    passthrough: Passthrough,
    identity: Arc<Identity>,
}

impl Plain {
    async fn get(&self, key: &str) -> Body {
        let (head, ()) = http::Request::get(format!("/b/{key}")).body(()).expect("valid").into_parts();
        let target = target(&head, &[], "").expect("valid");
        let identity = Arc::clone(&self.identity);
        let authenticated = Authenticated { identity, scheme: Scheme::V4, ..Authenticated::nobody() };
        let ask = Ask { head: &head, target: &target, authenticated, secure: true };
        self.passthrough.answer(ask, empty_body()).await.expect("the store is well").into_body()
    }
}

async fn some(body: &mut Body) -> Vec<u8> {
    let frame = body.frame().await.expect("there is more").expect("the store is well");
    frame.into_data().expect("no trailers").to_vec()
}

#[tokio::test(start_paused = true)]
async fn more_readers_stall_than_there_are_permits_and_the_others_go_on() {
    let numbers = Numbers { permits: PERMITS, shared_bytes: 1 << 20, heads_bytes: 1 << 20, ..Numbers::default() };
    let step = Step { head_ms: 10, frame_ms: 1, frame_bytes: 8192, ..Step::of(Act::Healthy) };
    let rig = Rig::new(numbers, step, 1);
    for key in ["large", "other", "more"] {
        rig.store.put(key, Object::of(LENGTH));
    }
    let stalls = Arc::new(StallWatch::default());
    let watching = tokio::spawn(Arc::clone(&stalls).run());
    let plain = Plain {
        passthrough: Passthrough::new(Arc::clone(&rig.routes), stalls, Pool::new(1 << 20, None)),
        identity: Arc::new(Identity::new("i", "a", "s", None, Policy::full_access())),
    };
    let large = vec![Wanted::of("large"), Wanted::of("other"), Wanted::of("large")];
    let mut batches = Vec::new();
    let mut plains = Vec::new();
    for _ in 0..READERS {
        batches.push(rig.start(&request(&large)).await);
        let mut body = timeout(SOON, plain.get("large")).await.expect("stalled readers hold nobody up");
        let begun = timeout(SOON, some(&mut body)).await.expect("nor in mid-body");
        plains.push((begun, body));
    }
    sleep(Duration::from_secs(60)).await;
    assert!(READERS > PERMITS && rig.store.bodies() >= READERS, "they are in the middle of bodies");
    assert_eq!(rig.backend.limiter.in_use(), 0, "and none of them waits for the store");

    let wanted = vec![Wanted::of("more"), Wanted::of("other")];
    let answer = timeout(SOON, rig.run(&request(&wanted), Client::Eager)).await.expect("a batch goes on");
    let (parts, _) = answer.whole().expect("whole");
    for (part, wanted) in parts.iter().zip(&wanted) {
        same_as_lone(part, wanted, &rig.store.lone(&wanted.ask())).expect("right");
    }
    let body = timeout(SOON, plain.get("more")).await.expect("a plain read begins");
    let bytes = timeout(SOON, body.collect()).await.expect("a plain read goes on").expect("whole").to_bytes();
    assert!(bytes == content("more", 0, LENGTH));

    // Who stalled reads on, all of them at a time, and gets the rest.
    let readers = batches.into_iter().map(|response| tokio::spawn(Client::Eager.take(response, Instant::now())));
    let readers: Vec<_> = readers.collect();
    for (mut bytes, body) in plains {
        bytes.extend(timeout(READERS as u32 * SOON, body.collect()).await.expect("goes on").expect("whole").to_bytes());
        assert!(bytes == content("large", 0, LENGTH));
    }
    for reader in readers {
        let answer = timeout(READERS as u32 * SOON, reader).await.expect("goes on").expect("no panic");
        for (part, wanted) in answer.whole().expect("whole").0.iter().zip(&large) {
            same_as_lone(part, wanted, &rig.store.lone(&wanted.ask())).expect("right");
        }
    }
    rig.settled().await.expect("settled");
    watching.abort();
}
