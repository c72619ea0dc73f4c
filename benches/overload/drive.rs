//! How requests follow one another. What enters is whom to ask for what, and for how long; what leaves are entries of a log.
//! Invariant: no more than [`IN_FLIGHT_MAX`] requests are under way; one that is due then is counted as failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Came, Client, What};
use crate::log::Log;

/// Most requests of an open loop that are under way.
const IN_FLIGHT_MAX: usize = 8_000;

/// Who was not served waits for so long, or it would take a core to be refused again and again.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts `rate` requests a second at even intervals for `lasts`, whether others are done or not. What is given is still
/// under way; to drop it is to leave.
pub async fn open(client: &Arc<Client>, what: What, rate: f64, lasts: Duration, log: &Arc<Log>) -> JoinSet<()> {
    let (started, mut tasks) = (Instant::now(), JoinSet::new());
    for number in 0.. {
        let after = Duration::from_secs_f64(f64::from(number) / rate);
        tokio::time::sleep_until(started + after.min(lasts)).await;
        if after >= lasts {
            break;
        }
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= IN_FLIGHT_MAX {
            log.note(Instant::now(), Came::Failed(format!("{IN_FLIGHT_MAX} were under way")));
            continue;
        }
        let (client, log) = (Arc::clone(client), Arc::clone(log));
        tasks.spawn(async move {
            let since = Instant::now();
            let came = client.ask(what, since).await;
            log.note(since, came);
        });
    }
    tasks
}

/// Workers that ask one request after another until they are dropped.
pub fn closed(client: &Arc<Client>, what: What, workers: usize, log: &Arc<Log>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (client, log) = (Arc::clone(client), Arc::clone(log));
        tasks.spawn(async move {
            loop {
                let since = Instant::now();
                let came = client.ask(what, since).await;
                let served = matches!(came, Came::Right(_));
                log.note(since, came);
                if !served {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }
    tasks
}
