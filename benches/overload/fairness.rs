//! What small requests feel of greedy ones. What enters is how thorough to be; what leaves is a table: times of a lone GET and of
//! a small batch, one after another, alone and beside four batches of 8,000.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::{Came, Client, What};
use crate::common::table::{Goal, Meant, Samples, Table};
use crate::common::{Fallible, fail};
use crate::drive::closed;
use crate::log::Log;
use crate::rig::{Effort, Rig};

/// Greedy batches at a time.
const GREEDY: usize = 4;

/// What is small, and how many times its P99 may be: a plain request has permits of its own, a batch shares with the others.
const SMALL: [(&str, What, f64); 2] = [("a lone GET", What::Get, 2.0), ("a batch of 16", What::Batch(16), (GREEDY + 1) as f64)];

/// The rule that the gateway goes by.
const RULE: &str = "permits go round-robin over the batches that wait, each to its first entry that waits, and all plain \
                    requests take turns as one batch does; batches together leave a quarter (tail.plain_share) to plain requests; \
                    a batch begins only while fewer others wait than there are permits for batches, or 16";

/// Both, alone and beside.
pub async fn measure(effort: Effort) -> Fallible<Table> {
    let rig = Rig::start()?;
    let client = rig.client(Duration::from_secs(600))?;
    let mut rows = Vec::new();
    let mut medians = Vec::new();
    for beside in [false, true] {
        let greedy_log = Arc::new(Log::default());
        let greedy = beside.then(|| closed(&client, What::Batch(8_000), GREEDY, &greedy_log));
        sleep(effort.seconds(2)).await;
        for (name, what, _) in SMALL {
            let [p50, p99] = times(effort, &client, what).await;
            let how = if beside { "beside four batches of 8,000" } else { "alone" };
            let ms = |seconds: f64| Some(Samples::new(vec![seconds * 1e3]));
            rows.push((format!("{name}, {how}"), vec![ms(p50), ms(p99)]));
            medians.push([p50, p99]);
        }
        drop(greedy);
        let troubles = greedy_log.troubles();
        if !troubles.is_empty() {
            return fail(format!("greedy batches came to trouble{troubles}"));
        }
    }
    let mut goals = Vec::new();
    for (at, (name, _, limit)) in SMALL.into_iter().enumerate() {
        let (alone, beside) = (medians[at], medians[SMALL.len() + at]);
        for (which, quantile) in ["P50", "P99"].into_iter().enumerate() {
            goals.push(Goal {
                what: format!("{quantile} of {name}, beside / alone"),
                samples: Samples::new(vec![beside[which] / alone[which]]),
                meant: Meant::AtMost(limit),
            });
        }
    }
    let (memory, broken) = rig.memory()?;
    goals.push(memory);
    Ok(Table { name: "fairness", about: RULE.to_owned(), columns: vec!["P50 ms", "P99 ms"], rows, goals, broken })
}

/// P50 and P99 in seconds of requests one after another.
async fn times(effort: Effort, client: &Arc<Client>, what: What) -> [f64; 2] {
    let log = Arc::new(Log::default());
    let lone = closed(client, what, 1, &log);
    sleep(effort.seconds(8)).await;
    drop(lone);
    let right = log.times(|came| matches!(came, Came::Right(_)));
    [0.5, 0.99].map(|share| right.quantile(share).as_secs_f64())
}
