//! Troubles of a store by name, end to end: what each costs a batch, and how soon all is as before.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::clients::{Gateway, Got, Outcome};
use super::world::{Job, What};
use crate::batch::tests::judge::same_as_lone;
use crate::batch::tests::objects::Object;
use crate::batch::tests::store::{Act, Fault, FaultWindow, Faults, Met, SimStore, Step};
use crate::batch::tests::{Answer, Client, Numbers, Rig, Wanted, part_of, request};
use crate::budget::Pool;

const SECOND: Duration = Duration::from_secs(1);

const DEADLINE: Duration = Duration::from_secs(30);

/// The gateway's defaults, with small windows where only small objects are read.
fn numbers() -> Numbers {
    Numbers {
        entry_bytes: 4096,
        window_bytes: 8 << 20,
        shared_bytes: 32 << 20,
        heads_bytes: 16 << 20,
        concurrency: 128,
        permits: 256,
        permits_min: 4,
        deadline: DEADLINE,
        attempt_timeout: 5 * SECOND,
        response_timeout: 300 * SECOND,
        queue_wait: 3 * SECOND / 2,
        backoff_max: 2 * SECOND,
    }
}

fn wanted(count: usize) -> Vec<Wanted> {
    (0..count).map(|at| Wanted::of(format!("k{at}"))).collect()
}

/// A rig over `count` objects of 100 bytes, each read of which takes `head_ms`, with these troubles.
fn rig(count: usize, head_ms: u64, windows: Vec<FaultWindow>) -> Rig {
    let rig = Rig::new(numbers(), Step { head_ms, ..Step::of(Act::Healthy) }, 1);
    for wanted in wanted(count) {
        rig.store.put(&wanted.key, Object::of(100));
    }
    rig.store.faults(Faults::new(windows, 1));
    rig
}

fn from_to(fault: Fault, from: u32, until: u32) -> FaultWindow {
    FaultWindow::of(fault, from * SECOND, until * SECOND)
}

fn summarised(wanted: &[Wanted]) -> Value {
    let mut request = request(wanted);
    request["Summary"] = true.into();
    request
}

fn all_right(rig: &Rig, answer: &Answer, wanted: &[Wanted]) {
    let (parts, _) = answer.whole().expect("whole");
    for (at, wanted) in wanted.iter().enumerate() {
        same_as_lone(part_of(&parts, at), wanted, &rig.store.lone(&wanted.ask())).expect("right");
    }
}

/// Attempts that came within a time after `begun`.
fn attempts(store: &SimStore, begun: Instant, from: Duration, until: Duration) -> Vec<Met> {
    let within = |met: &Met| (from..until).contains(&met.at.duration_since(begun));
    store.met().into_iter().filter(within).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restart_shorter_than_the_deadline_costs_no_entry() {
    let wanted = wanted(600);
    let rig = rig(600, 500, vec![from_to(Fault::Down, 1, 21)]);
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    all_right(&rig, &answer, &wanted);
    // Two seconds of work before and after, and one back-off to notice.
    assert!(answer.took > 20 * SECOND && answer.took < 27 * SECOND, "{:?}", answer.took);
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn another_address_costs_no_entry() {
    let wanted = wanted(600);
    let rig = rig(600, 500, vec![from_to(Fault::Moved { attempts: 150 }, 1, 600)]);
    let answer = rig.run(&request(&wanted), Client::Eager).await;
    all_right(&rig, &answer, &wanted);
    rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_costs_a_batch_of_thousands_one_deadline() {
    const COUNT: usize = 8000;
    for fault in [Fault::Down, Fault::Mute, Fault::Says(500, "InternalError")] {
        let rig = rig(COUNT, 5, vec![from_to(fault.clone(), 0, 600)]);
        let answer = rig.run(&summarised(&wanted(COUNT)), Client::Eager).await;
        let (parts, summary) = answer.whole().expect("whole");
        assert_eq!(summary.expect("asked for")["Failed"], COUNT);
        assert!(parts.iter().all(|part| part.status >= 500));
        // Once the first have failed, a probe or two find out whether it was only they.
        let most = DEADLINE + 2 * (numbers().attempt_timeout + SECOND);
        assert!(answer.took >= DEADLINE && answer.took <= most, "{fault:?}: {:?}", answer.took);
        // The first attempts of two rounds, a fifth of them again, ten a second until the breaker opens, and a probe a second.
        let asked = rig.store.met().len();
        let rounds = 2 * numbers().concurrency;
        let opens_after = numbers().attempt_timeout.as_secs() as usize + 2;
        let (floor, probes) = (10 * opens_after, answer.took.as_secs() as usize + 1);
        assert!(asked <= rounds + rounds / 5 + floor + probes, "{fault:?}: {asked} attempts");
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_multiplied_however_many_ask() {
    const COUNT: usize = 300;
    let (down, up) = (10, 70);
    let rig = rig(COUNT, 20, vec![from_to(Fault::Down, down, up)]);
    // Two batches a second, each of which would ask for as long as its deadline lets it.
    let jobs: Vec<_> = (0..up * 2).map(|at| Job { at: at * SECOND / 2, number: at, what: What::Batch(batch(COUNT)) }).collect();
    let begun = Instant::now();
    let gateway = Arc::new(Gateway::over(rig));
    let outcomes = gateway.run(&jobs).await;
    assert_eq!(outcomes.len(), jobs.len());
    // It takes a second to open; then there is a probe a second, and whoever was under way when it opened asks no more.
    let first = attempts(&gateway.rig.store, begun, down * SECOND, (down + 2) * SECOND).len();
    let later = attempts(&gateway.rig.store, begun, (down + 2) * SECOND, up * SECOND).len();
    // Four batches begin in two seconds; ten seconds of good traffic, and ten retries a second, have paid for retries.
    let reads = 4 * numbers().concurrency;
    let paid = (10 * 2 * COUNT + reads) / 5 + 10 * 10;
    assert!(first <= reads + paid, "{first} attempts until it was open");
    assert!(later <= (up - down) as usize, "{later} attempts while it was open");
    gateway.rig.settled().await.expect("settled");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_all_is_as_before_within_seconds() {
    const COUNT: usize = 100;
    let (down, up, end) = (10, 45, 65);
    let rig = rig(COUNT, 20, vec![from_to(Fault::Down, down, up)]);
    // Each second a batch and twenty plain reads.
    let every_second = |second: u32| {
        let batch = Job { at: second * SECOND, number: 100_000 + second, what: What::Batch(batch(COUNT)) };
        let reads = (0..20).map(move |at| Job {
            at: second * SECOND + at * SECOND / 20,
            number: second * 20 + at,
            what: What::Read { key: format!("k{at}"), head: false, range: None, client: Client::Eager },
        });
        reads.chain([batch]).collect::<Vec<_>>()
    };
    let jobs: Vec<_> = (0..end).flat_map(every_second).collect();
    let begun = Instant::now();
    let gateway = Arc::new(Gateway::over(rig));
    let outcomes = gateway.run(&jobs).await;
    let good = |from: u32, until: u32| {
        let within = |o: &&Outcome| (from * SECOND..until * SECOND).contains(&o.ended.duration_since(begun));
        outcomes.iter().filter(within).map(delivered).sum::<usize>() as f64 / f64::from(until - from)
    };
    let before = good(3, down);
    assert!(before > 100.0, "{before} a second");
    let after = good(up + 3, end);
    assert!(after >= 0.99 * before, "{after} a second three seconds after the outage, {before} before it");
    gateway.rig.settled().await.expect("settled");
}

fn batch(count: usize) -> super::world::Batch {
    super::world::Batch {
        wanted: wanted(count),
        completion: false,
        on_error: "Continue",
        summary: false,
        tar: false,
        client: Client::Eager,
    }
}

/// Objects that a client got whole.
fn delivered(outcome: &Outcome) -> usize {
    match &outcome.got {
        Got::Batch(answer) => answer.parts().expect("readable").iter().filter(|part| part.status == 200).count(),
        Got::Plain(plain) => usize::from(plain.status == 200),
        _ => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn pleas_to_slow_down_cost_no_entry_within_the_deadline() {
    for (status, code) in [(503, "SlowDown"), (429, "TooManyRequests"), (503, "ThrottlingException")] {
        let wanted = wanted(600);
        let rig = rig(600, 100, vec![from_to(Fault::Says(status, code), 0, 20)]);
        let begun = Instant::now();
        let answer = rig.run(&request(&wanted), Client::Eager).await;
        all_right(&rig, &answer, &wanted);
        assert!(answer.took > 20 * SECOND && answer.took < 28 * SECOND, "{code}: {:?}", answer.took);
        // As many at a time as the minimum allows, each of which takes a tenth of a second.
        let asked = attempts(&rig.store, begun, 5 * SECOND, 20 * SECOND).len();
        assert!(asked > 0 && asked <= 15 * 10 * numbers().permits_min, "{asked} attempts in 15 s");
        assert_eq!(rig.backend.metrics.breaker_opened.get(), 0, "a plea is no failure");
        rig.settled().await.expect("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_body_that_the_store_breaks_off_is_told_to_the_breaker_and_one_that_its_client_leaves_is_not() {
    let leaves = Client::Leave { after: 10 };
    for (act, client, told) in [
        (Act::Cut(50), Client::Eager, true),
        (Act::StallAfter(50), Client::Eager, true),
        (Act::Healthy, Client::Eager, false),
        (Act::Healthy, leaves, false),
    ] {
        let rig = rig(1, 5, vec![]);
        rig.store.always("k0", Step { frame_bytes: 20, ..Step::of(act) });
        let what = What::Read { key: "k0".into(), head: false, range: None, client };
        let gateway = Arc::new(Gateway::over(rig));
        let outcomes = gateway.run(&[Job { at: Duration::ZERO, number: 0, what }]).await;
        assert!(matches!(&outcomes[0].got, Got::Plain(plain) if plain.status == 200), "{act:?}: {:?}", outcomes[0].got);
        assert_eq!(gateway.rig.backend.breaker.outage().is_some(), told, "{act:?} {client:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_breaker_holds_nothing() {
    const COUNT: usize = 300;
    let rig = rig(COUNT, 20, vec![from_to(Fault::Down, 0, 25)]);
    let begun = Instant::now();
    let task = async { rig.run(&request(&wanted(COUNT)), Client::Eager).await };
    let looks = async {
        let mut most = 0;
        for _ in 0..1000 {
            sleep(SECOND / 50).await;
            if begun.elapsed() > 3 * SECOND && rig.backend.breaker.is_open() {
                most = most.max(rig.backend.limiter.in_use());
            }
        }
        most
    };
    let (answer, most) = tokio::join!(task, looks);
    all_right(&rig, &answer, &wanted(COUNT));
    assert!(most <= 1, "{most} permits are held while the breaker is open; the probe needs one");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_leaves_waiting_holds_no_more_than_its_bytes() {
    const COUNT: usize = 100;
    // What is on its way to the client: a chunk that waits, and one that is filled.
    const SENT: usize = 2 * 64 * 1024;
    let (length, entry_bytes) = (10_000, 64 << 10);
    let numbers = Numbers { entry_bytes, window_bytes: 20 * entry_bytes, ..numbers() };
    let rig = Rig::new(numbers, Step::of(Act::Healthy), 1);
    for wanted in wanted(COUNT) {
        rig.store.put(&wanted.key, Object::of(length));
    }
    let response = rig.start(&request(&wanted(COUNT))).await;
    sleep(10 * SECOND).await;
    // With as many bytes as their reservations were, a fifth of them would be there.
    assert_eq!(rig.store.asked_count(), COUNT, "the window has room for all of them");
    let taken = |pool: &Pool| (pool.max() - pool.free()) as usize;
    let written = SENT / (length + 1000);
    assert!(taken(&rig.shared) <= COUNT * (length + 2000), "{} bytes are held", taken(&rig.shared));
    assert!(taken(&rig.entries) <= COUNT - written, "{} entries are in flight", taken(&rig.entries));
    drop(response);
    rig.settled().await.expect("settled");
}
