//! The limiter on a clock that stands still unless it is told.

use super::*;
use crate::telemetry::Metrics;

const WAIT: Duration = Duration::from_secs(2);

fn limiter(max: usize, min: usize, plain_share: f64) -> Arc<Limiter> {
    Limiter::new(LimitConfig { max, min, plain_share, queue_wait: WAIT }, Metrics::new().backend("b"))
}

/// Starts a waiter that reports `name` when it gets its permit and holds it until told.
fn waiter(limiter: &Arc<Limiter>, lane: Lane, place: u32, order: &Arc<Mutex<Vec<(Lane, u32)>>>) -> tokio::task::JoinHandle<Permit> {
    let (limiter, order) = (Arc::clone(limiter), Arc::clone(order));
    tokio::spawn(async move {
        let permit = limiter.acquire(lane, place).await;
        order.lock().expect("no panic").push((lane, place));
        permit
    })
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn permits_go_round_robin_over_lanes_and_lowest_place_first() {
    let limiter = limiter(1, 1, 0.0);
    let first = limiter.acquire(Lane::PLAIN, 0).await;
    let order = Arc::default();
    let mut tasks = Vec::new();
    for (lane, place) in [(1, 5), (1, 3), (1, 4), (2, 9), (2, 1)] {
        tasks.push(waiter(&limiter, Lane::batch(lane), place, &order));
        settle().await;
    }
    drop(first);
    for task in tasks {
        // Each permit is dropped with its join result, which serves the next waiter.
        tokio::spawn(async move { drop(task.await) });
    }
    settle().await;
    let got: Vec<_> = order.lock().expect("no panic").iter().map(|(lane, place)| (lane.0, *place)).collect();
    assert_eq!(got, [(1, 3), (2, 1), (1, 4), (2, 9), (1, 5)]);
    assert_eq!(limiter.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn batches_leave_a_share_to_plain_requests() {
    let limiter = limiter(8, 1, 0.25);
    let order = Arc::default();
    let held: Vec<_> = (0..8).map(|i| waiter(&limiter, Lane::batch(1), i, &order)).collect();
    settle().await;
    assert_eq!(limiter.in_use(), 6, "a quarter of eight is kept");
    let _a = limiter.acquire(Lane::PLAIN, 0).await;
    let _b = limiter.acquire(Lane::PLAIN, 0).await;
    assert_eq!(limiter.in_use(), 8);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn plain_requests_leave_as_much_to_batches_that_wait() {
    for (limit, plain_share, kept) in [(8, 0.25, 2), (8, 0.0, 1), (8, 0.9, 1), (2, 0.25, 1)] {
        let limiter = limiter(limit, 1, plain_share);
        let mut hung: Vec<_> = std::iter::from_fn(|| limiter.try_acquire(Lane::PLAIN)).collect();
        assert_eq!(hung.len(), limit, "all, while no batch waits");
        let order = Arc::default();
        let waiters: Vec<_> = [Lane::PLAIN, Lane::batch(1)]
            .into_iter()
            .flat_map(|lane| (0..limit as u32).map(move |place| (lane, if lane == Lane::PLAIN { 0 } else { place })))
            .map(|(lane, place)| waiter(&limiter, lane, place, &order))
            .collect();
        settle().await;
        let served = || {
            let order: std::sync::MutexGuard<'_, Vec<(Lane, u32)>> = order.lock().expect("no panic");
            (order.len(), order.iter().filter(|(lane, _)| *lane != Lane::PLAIN).count())
        };
        for _ in 0..kept {
            drop(hung.pop());
            settle().await;
        }
        assert_eq!(served(), (kept, kept), "{limit} {plain_share}: although plain ones came first");
        drop(hung.pop());
        settle().await;
        assert_eq!(served(), (kept + 1, kept), "{limit} {plain_share}: no more than that");
        waiters.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_blocks_nobody() {
    let limiter = limiter(1, 1, 0.0);
    let first = limiter.acquire(Lane::batch(1), 0).await;
    let order = Arc::default();
    let gone = waiter(&limiter, Lane::batch(1), 1, &order);
    let stays = waiter(&limiter, Lane::batch(1), 2, &order);
    settle().await;
    gone.abort();
    settle().await;
    drop(first);
    drop(stays.await.expect("served"));
    assert_eq!(*order.lock().expect("no panic"), [(Lane::batch(1), 2)]);
    assert_eq!(limiter.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_limit_halves_on_slow_down_and_grows_back() {
    let limiter = limiter(16, 4, 0.0);
    limiter.slow_down();
    limiter.slow_down();
    assert_eq!(limiter.limit(), 8, "answers of one burst halve once");
    for _ in 0..4 {
        tokio::time::advance(HALVING_PAUSE).await;
        limiter.slow_down();
    }
    assert_eq!(limiter.limit(), 4, "never below the minimum");
    for _ in 0..200 {
        limiter.answered();
    }
    assert_eq!(limiter.limit(), 16);
}

#[tokio::test(start_paused = true)]
async fn pleas_at_the_lowest_limit_make_the_pauses_longer() {
    let limiter = limiter(4, 2, 0.0);
    assert_eq!(limiter.slow_down(), 0, "the limit halves");
    for times in [1, 2, 3] {
        tokio::time::advance(HALVING_PAUSE).await;
        assert_eq!((limiter.slow_down(), limiter.limit()), (times, 2));
        assert_eq!(limiter.slow_down(), times, "answers of one burst say it once");
    }
    limiter.answered();
    limiter.answered();
    assert_eq!(limiter.slow_down(), 1, "and answers make them shorter");
}

/// Plain requests that each take `takes` once they are let in, `rate` of them a second over `lasts`; what each came to, and
/// after how long. `patience` is how long a client waits for its answer.
async fn open_loop(
    limiter: &Arc<Limiter>,
    rate: u32,
    lasts: Duration,
    takes: Duration,
    patience: Duration,
) -> Vec<(Instant, Duration, Option<bool>)> {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..rate * lasts.as_secs() as u32 {
        tokio::time::sleep_until(begun + Duration::from_secs(1) / rate * number).await;
        let limiter = Arc::clone(limiter);
        tasks.push(tokio::spawn(async move {
            let since = Instant::now();
            let admitted = timeout(patience, limiter.admit()).await;
            let waited = since.elapsed();
            let came = match admitted {
                Err(_) => None,
                Ok(Err(Overloaded)) => Some(false),
                Ok(Ok(permit)) => {
                    let serving = permit.serving();
                    let served = timeout(patience.saturating_sub(waited), tokio::time::sleep(takes)).await.ok();
                    served.map(|()| {
                        serving.answered();
                        true
                    })
                }
            };
            (since, waited, came)
        }));
    }
    let mut came = Vec::new();
    for task in tasks {
        came.push(task.await.expect("no panic"));
    }
    came
}

/// An overload is over once it has not shown for a while, and not before.
async fn ends(limiter: &Arc<Limiter>) {
    limiter.admit().await.expect("there is room");
    assert_eq!(limiter.metrics.overloaded.get(), 1, "those who were refused may come again");
    tokio::time::sleep(WAIT).await;
    limiter.admit().await.expect("there is room");
    assert_eq!(limiter.metrics.overloaded.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn bursts_with_nobody_waiting_between_them_are_one_overload() {
    let limiter = limiter(4, 1, 0.25);
    let mut tasks = Vec::new();
    // Twenty could be served between two bursts, eighty come.
    for burst in 0..100 {
        for _ in 0..80 {
            let limiter = Arc::clone(&limiter);
            tasks.push(tokio::spawn(async move {
                let since = Instant::now();
                if let Ok(permit) = limiter.admit().await {
                    let waited = since.elapsed();
                    tokio::time::sleep(SERVICE).await;
                    drop(permit);
                    assert!(burst < 30 || waited <= 2 * SERVICE, "{waited:?} in burst {burst}");
                }
            }));
        }
        tokio::time::sleep(5 * SERVICE).await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(limiter.metrics.overloads.get(), 1);
    ends(&limiter).await;
}

const SERVICE: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn patient_clients_that_wait_for_less_than_queue_wait_are_never_refused() {
    let limiter = limiter(4, 1, 0.25);
    let begun = Instant::now();
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let permit = limiter.admit().await.expect("320 ms are no overload");
                    tokio::time::sleep(SERVICE).await;
                    drop(permit);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("never refused");
    }
    assert!(begun.elapsed() <= 16 * 50 * (SERVICE + Duration::from_millis(1)), "{:?}", begun.elapsed());
    assert_eq!((limiter.metrics.overloads.get(), limiter.metrics.plain_waiting.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn in_an_overload_those_who_wait_are_served_soon_and_all_others_refused_at_once() {
    // The first clients would wait for ever, the others leave before `queue_wait` is over.
    for (rate, patience) in [(800, 60 * WAIT), (800, WAIT * 9 / 10), (800, WAIT / 3), (400, WAIT * 9 / 10), (300, WAIT * 2 / 3)] {
        let limiter = limiter(4, 1, 0.25);
        let begun = Instant::now();
        // 200 a second are served.
        let came = open_loop(&limiter, rate, Duration::from_secs(12), SERVICE, patience).await;
        let settled = begun + 2 * WAIT;
        let late: Vec<_> = came.iter().filter(|(since, ..)| *since >= settled).collect();
        let served: Vec<_> = late.iter().filter(|(.., came)| *came == Some(true)).collect();
        assert!(served.len() >= 8 * 180, "{} of 1600 with a patience of {patience:?}", served.len());
        for (_, waited, _) in &served {
            assert!(*waited <= 3 * SERVICE, "{waited:?}");
        }
        for (_, waited, came) in late {
            assert!(*came == Some(true) || (*came == Some(false) && waited.is_zero()), "{came:?} after {waited:?}");
        }
        assert!(came.iter().all(|(_, waited, _)| *waited <= WAIT));
        assert_eq!((limiter.metrics.overloads.get(), limiter.metrics.overloaded.get()), (1, 1));
        assert_eq!((limiter.in_use(), limiter.metrics.plain_waiting.get()), (0, 0));
        ends(&limiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_overload_refuses_the_oldest_and_ends_once_nobody_waits() {
    let limiter = limiter(2, 1, 0.0);
    let held = [limiter.admit().await.expect("free"), limiter.admit().await.expect("free")];
    let mut waiters: Vec<_> = Vec::new();
    for _ in 0..10 {
        let limiter = Arc::clone(&limiter);
        waiters.push(tokio::spawn(async move { limiter.admit().await.map(drop) }));
        tokio::time::sleep(WAIT / 20).await;
    }
    assert_eq!(limiter.metrics.plain_waiting.get(), 10);
    tokio::time::sleep(WAIT / 2 + WAIT / 100).await;
    assert_eq!((limiter.metrics.overloaded.get(), limiter.metrics.plain_waiting.get()), (1, 4));
    assert_eq!(limiter.admit().await.err(), Some(Overloaded), "two wait for each permit");
    drop(held);
    let mut served = Vec::new();
    for waiter in waiters {
        served.push(waiter.await.expect("no panic").is_ok());
    }
    assert_eq!(served, [false, false, false, false, false, false, true, true, true, true]);
    assert_eq!(limiter.metrics.plain_waiting.get(), 0);
    ends(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_early_is_no_overload() {
    let limiter = limiter(1, 1, 0.0);
    let held = limiter.admit().await.expect("free");
    assert!(timeout(WAIT / 5, limiter.admit()).await.is_err());
    assert_eq!((limiter.metrics.overloads.get(), limiter.metrics.plain_waiting.get()), (0, 0));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_waits_for_as_long_as_it_takes_and_goes_first() {
    let limiter = limiter(1, 1, 0.0);
    let held = limiter.admit().await.expect("free");
    let order = Arc::default();
    let begun: Vec<_> = (0..5).map(|_| waiter(&limiter, Lane::PLAIN, 0, &order)).collect();
    settle().await;
    assert_eq!(limiter.admit().await.err(), Some(Overloaded), "after queue_wait");
    assert_eq!(limiter.metrics.plain_waiting.get(), 5, "none of them is cut");
    drop(held);
    for waiter in begun {
        drop(waiter.await.expect("served"));
    }
    ends(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_falls_to_its_minimum_refuses_no_burst_that_it_can_serve_in_time() {
    let limiter = limiter(64, 4, 0.25);
    for _ in 0..4 {
        limiter.slow_down();
        tokio::time::advance(HALVING_PAUSE).await;
    }
    assert_eq!(limiter.limit(), 4);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                let permit = limiter.admit().await.expect("half a second at the lowest limit");
                tokio::time::sleep(SERVICE).await;
                drop(permit);
                limiter.answered();
            })
        })
        .collect();
    for client in clients {
        client.await.expect("never refused");
    }
    assert_eq!(limiter.metrics.overloads.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_batch_begins_while_as_many_wait_as_there_are_permits_for_them() {
    // Three quarters of 64; and however few there are, 32.
    for (max, full) in [(64, 48), (8, 32)] {
        let limiter = limiter(max, 1, 0.25);
        let order = Arc::default();
        // The first has all the permits, each other one waits with two reads.
        let first: Vec<_> = (0..max as u32 + 1).map(|place| waiter(&limiter, Lane::batch(1), place, &order)).collect();
        let mut others = Vec::new();
        for lane in 2..=full {
            assert!(!limiter.is_full_of_batches(), "{lane}");
            others.extend([0, 1].map(|place| waiter(&limiter, Lane::batch(lane), place, &order)));
            settle().await;
        }
        assert!(limiter.is_full_of_batches());
        let gone = others.pop().into_iter().chain(others.pop());
        gone.for_each(|waiter| waiter.abort());
        settle().await;
        assert!(!limiter.is_full_of_batches(), "one has gone");
        drop((first, others));
    }
}

#[tokio::test(start_paused = true)]
async fn where_few_wait_for_a_slow_backend_none_is_refused() {
    let limiter = limiter(4, 1, 0.25);
    let held: Vec<_> = (0..4).map(|_| limiter.try_acquire(Lane::PLAIN).expect("free")).collect();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move { limiter.admit().await.is_ok() })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(limiter.lock().queue.plain(), 8);
    drop(held);
    for one in waiting {
        assert!(one.await.expect("no panic"), "two for each permit may wait for as long as it takes");
    }
}
