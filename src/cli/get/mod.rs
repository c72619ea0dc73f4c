//! `batchgate get`: objects from the shell. In reading order: [`args`] with [`list`](super::list) (what is asked for), [`plan`] (under which name it will
//! be found), [`place`] with [`folder`] and [`stream`] (where it goes), [`deliver`] (from one to the other), [`progress`] (what
//! the user sees), [`super::signals`] (when it is to end early).

mod args;
mod deliver;
mod folder;
mod place;
mod plan;
mod progress;
mod stream;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::aws;
use super::config::World;
use super::{EXIT_FAILED, EXIT_OK, EXIT_PARTLY, EXIT_USAGE, complain, list};
use crate::client::{Endpoint, Entry, Many, ManyConfig, printable};
pub use args::GetArgs;
use args::Out;
use place::Place;
use plan::Plan;
use progress::{Progress, Totals};

/// Connections that are kept while unused; as many as there are GETs at a time.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// How long what is under way may take to take back what is not whole, once it is told to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Gets everything.
///
/// # Errors
/// Only those of `out`.
pub fn run(args: &GetArgs, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let (to, entries) = match args.out().and_then(|to| Ok((to, args.entries()?))) {
        Ok(given) => given,
        Err(wrong) => {
            for line in list::said(&wrong) {
                complain(&line, EXIT_USAGE);
            }
            return Ok(EXIT_USAGE);
        }
    };
    // One thread reads and writes, the other has the connection.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let got = get(args, world, to, entries, &runtime);
    // What is stuck in writing ends with the process.
    runtime.shutdown_background();
    let totals = match got {
        Ok(totals) => totals,
        Err((what, exit)) => return Ok(complain(&printable(&what), exit)),
    };
    let text = match &totals.error {
        Some(what) => {
            complain(&printable(&format!("{what}{}", args.what_is_there(&totals))), EXIT_FAILED);
            String::new()
        }
        None => totals.to_text(),
    };
    let text = if args.json { totals.to_json() } else { text };
    // Objects are where they are, whether or not anybody reads how many there were.
    let _ = if args.out == Path::new("-") {
        io::stderr().write_all(text.as_bytes())
    } else {
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    Ok(exit_code(&totals))
}

fn exit_code(totals: &Totals) -> u8 {
    let without_any_bucket = totals.without_bucket > 0 && totals.without_bucket == totals.entries;
    match totals {
        _ if totals.error.is_some() || without_any_bucket => EXIT_FAILED,
        Totals { failed: 0, .. } => EXIT_OK,
        _ => EXIT_PARTLY,
    }
}

fn get(args: &GetArgs, world: &World<'_>, out: Out, entries: Vec<Entry>, runtime: &Runtime) -> Result<Totals, (String, u8)> {
    let endpoint = runtime.block_on(aws::endpoint(&args.aws, &world.env, IDLE_CONNECTIONS_MAX));
    let endpoint = endpoint.map_err(|what| (what, EXIT_USAGE))?;
    // From here on there is something to take back.
    let told = super::signals::told_to_end().map_err(|error| (format!("signals cannot be waited for: {error}"), EXIT_FAILED))?;
    let progress = Arc::new(Progress::new(entries.len()));
    let to_stdout = matches!(out, Out::Stdout { .. });
    let (place, plan) = args.plan(out, entries).map_err(|what| (what, EXIT_FAILED))?;
    for (which, why) in &plan.failed {
        progress.failed(which, why);
    }
    progress.count(|totals| totals.skipped = plan.skipped);
    let config = ManyConfig {
        batch_entries_max: args.batch.map_or(usize::MAX, |count| count as usize),
        ..ManyConfig::new(plan.bucket.clone())
    };
    let mut task = runtime.spawn(work(endpoint, config, plan, place, Arc::clone(&progress)));
    // The clock of the other runtime stands still where writing blocks its threads.
    let watch = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let watch = watch.map_err(|error| (format!("no clock: {error}"), EXIT_FAILED))?;
    let done = watch.block_on(async {
        tokio::select! {
            done = &mut task => done.unwrap_or_else(|error| Err(format!("a fault of this program: {error}"))),
            Ok(()) = told => {
                task.abort();
                Err(match to_stdout || tokio::time::timeout(END_TIMEOUT, task).await.is_ok() {
                    true if to_stdout => "interrupted".to_owned(),
                    true => "interrupted; what is not whole was taken back".to_owned(),
                    false => "interrupted, while writing is stuck; a file that is not whole may be left (.*batchgate-*.part)".to_owned(),
                })
            }
        }
    });
    progress.end();
    Ok(Totals { error: done.err().map(|what| printable(&what)), ..progress.totals() })
}

/// Gets the entries of the plan. Dropped, it takes back what is not whole.
async fn work(
    endpoint: Endpoint,
    config: ManyConfig,
    mut plan: Plan,
    mut place: Box<dyn Place>,
    progress: Arc<Progress>,
) -> Result<(), String> {
    let url = endpoint.url();
    let entries: Arc<[Entry]> = std::mem::take(&mut plan.entries).into();
    let mut many = Many::new(Arc::new(endpoint), Arc::clone(&entries), config);
    deliver::deliver(&mut many, &plan, &entries, place.as_mut(), &progress, &url).await
}
