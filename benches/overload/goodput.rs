//! Right answers in time under one, two and four times the load that the origin can take, and once more right after. What
//! enters is which requests and how patient their clients are; what leaves is a table. The peak is that of a closed loop.

use std::sync::Arc;
use std::time::Duration;

use batchgate::load::Times;
use tokio::time::{Instant, sleep};

use crate::client::{Came, What};
use crate::common::Fallible;
use crate::common::table::{Goal, Meant, Samples, Table};
use crate::drive::{closed, open};
use crate::log::Log;
use crate::rig::{Effort, Rig};
use crate::watch::Watch;

/// Objects that the closed loop which finds the peak has under way: twice what the origin answers at once, and more.
const PEAK_OBJECTS: u64 = 128;

/// Multiples of the peak.
const LOADS: [u32; 3] = [1, 2, 4];

/// For requests of one kind.
pub async fn measure(effort: Effort, what: What, patience: Duration) -> Fallible<Table> {
    let rig = Rig::start()?;
    let client = rig.client(patience)?;
    let watch = Watch::begin(rig.gateway.listening("admin")?);
    let peak = peak(effort, &client, what).await;
    let (mut rows, mut goals) = (vec![("peak, closed loop".to_owned(), row(peak, peak, &Log::default()))], Vec::new());
    let (settle, lasts) = (effort.seconds(4), effort.seconds(12));
    let one = |samples| Samples::new(vec![samples]);
    for load in LOADS {
        let (log, begun) = (Arc::new(Log::default()), Instant::now());
        let rate = peak / what.objects() as f64;
        let mut under_way = open(&client, what, rate * f64::from(load), lasts, &log).await;
        let goodput = log.rate(begun + settle, begun + lasts);
        rows.push((format!("{load}x{}", log.troubles()), row(goodput, peak, &log)));
        goals.push(Goal {
            what: format!("goodput at {load}x in % of the peak"),
            samples: one(goodput / peak * 100.0),
            meant: Meant::AtLeast(80.0),
        });
        if load < LOADS[LOADS.len() - 1] {
            while under_way.join_next().await.is_some() {}
            sleep(effort.seconds(1)).await;
            continue;
        }
        // Those that are under way go on, as they would: what was begun is not over when no more comes.
        let (after, ended) = (Arc::new(Log::default()), Instant::now());
        let rest = open(&client, what, rate, lasts, &after).await;
        let goodput = after.rate(ended + settle, ended + lasts);
        rows.push((format!("1x, right after{}", after.troubles()), row(goodput, peak, &after)));
        let recovered = after.recovered(ended, ended + lasts, peak);
        goals.push(Goal {
            what: "seconds from the end of 4x until 1x is served to 90 %".to_owned(),
            samples: one(recovered.map_or(f64::INFINITY, |time| time.as_secs_f64())),
            meant: Meant::AtMost(patience.as_secs_f64()),
        });
        drop(rest);
    }
    for (page, times) in watch.end()? {
        let millis = |share| Samples::new(vec![times.quantile(share).as_secs_f64() * 1e3]);
        for (name, share) in [("P99", 0.99), ("worst", 1.0)] {
            let meant = if share < 1.0 { Meant::AtMost(1000.0) } else { Meant::Anything };
            goals.push(Goal { what: format!("{page} meanwhile, {name} in ms"), samples: millis(share), meant });
        }
    }
    let (memory, broken) = rig.memory()?;
    goals.push(memory);
    Ok(Table {
        name: if what == What::Get { "goodput, GETs" } else { "goodput, batches" },
        about: format!(
            "{} against an open loop of so many times the peak; clients leave after {} s; goodput is objects of answers that \
             came whole, right and in time",
            if what == What::Get { "GETs".to_owned() } else { format!("BatchGets of {}", what.objects()) },
            patience.as_secs()
        ),
        columns: vec!["objects/s", "% of peak", "P50 ms", "P99 ms", "SlowDown", "their P99 ms", "given up"],
        rows,
        goals,
        broken,
    })
}

async fn peak(effort: Effort, client: &Arc<crate::client::Client>, what: What) -> f64 {
    let log = Arc::new(Log::default());
    let workers = closed(client, what, PEAK_OBJECTS.div_ceil(what.objects()) as usize, &log);
    sleep(effort.seconds(2)).await;
    let begun = Instant::now();
    sleep(effort.seconds(4)).await;
    let peak = log.rate(begun, Instant::now());
    drop(workers);
    peak
}

fn row(goodput: f64, peak: f64, log: &Log) -> Vec<Option<Samples>> {
    let right = log.times(|came| matches!(came, Came::Right(_)));
    let refused = log.times(|came| *came == Came::SlowDown);
    let one = |figure| Some(Samples::new(vec![figure]));
    let millis = |times: &Times, share| (times.count() > 0).then(|| Samples::new(vec![times.quantile(share).as_secs_f64() * 1e3]));
    let share = one(goodput / peak * 100.0);
    let given_up = log.times(|came| *came == Came::GivenUp);
    let [refusals, given_up] = [&refused, &given_up].map(|times| one(times.count() as f64));
    vec![one(goodput), share, millis(&right, 0.5), millis(&right, 0.99), refusals, millis(&refused, 0.99), given_up]
}
