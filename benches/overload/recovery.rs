//! How soon an outage of the origin is over for clients once it is over. What enters is how thorough to be; what leaves is a
//! table: the time from the moment when the origin listens again until clients in a closed loop have nine tenths of what they
//! had. In the outage it refuses connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::What;
use crate::common::Fallible;
use crate::common::table::{Goal, Meant, Samples, Table};
use crate::drive::closed;
use crate::log::Log;
use crate::rig::{Effort, Rig};

/// How long the outage is.
const OUTAGE: Duration = Duration::from_secs(5);

/// What is asked for, and by how many workers. Who is refused asks again 100 ms later.
const ASKED: [(&str, What, usize); 2] = [("GETs, 32 at a time", What::Get, 32), ("batches of 64, 4 at a time", What::Batch(64), 4)];

/// GETs and batches, each with an outage of its own.
pub async fn measure(effort: Effort) -> Fallible<Table> {
    let (mut rows, mut goals, mut broken) = (Vec::new(), Vec::new(), None);
    for (name, what, workers) in ASKED {
        let mut rig = Rig::start()?;
        let client = rig.client(Duration::from_secs(60))?;
        let log = Arc::new(Log::default());
        let asking = closed(&client, what, workers, &log);
        sleep(effort.seconds(2)).await;
        let measured = Instant::now();
        sleep(effort.seconds(4)).await;
        let begun = Instant::now();
        let full = log.rate(measured, begun);
        rig.break_for(OUTAGE).await?;
        let ended = Instant::now();
        sleep(effort.seconds(10)).await;
        drop(asking);
        let meanwhile = log.rate(begun, ended);
        let after = log.rate(ended + effort.seconds(6), ended + effort.seconds(10));
        let figures = [full, meanwhile, after].map(|figure| Some(Samples::new(vec![figure])));
        rows.push((format!("{name}{}", log.troubles()), figures.to_vec()));
        let recovered = log.recovered(ended, ended + effort.seconds(10), full);
        goals.push(Goal {
            what: format!("{name}: seconds from its end until 90 % of full goodput"),
            samples: Samples::new(vec![recovered.map_or(f64::INFINITY, |time| time.as_secs_f64())]),
            meant: Meant::AtMost(2.0),
        });
        let (memory, over) = rig.memory()?;
        goals.push(memory);
        broken = broken.or(over);
    }
    Ok(Table {
        name: "recovery",
        about: format!("an outage of the origin for {} s, which refuses connections meanwhile", OUTAGE.as_secs()),
        columns: vec!["objects/s before", "in it", "after it"],
        rows,
        goals,
        broken,
    })
}
