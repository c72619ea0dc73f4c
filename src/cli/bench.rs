//! `batchgate bench`: flags in, load on an endpoint, a report out, and an exit code that says whether anything failed. What is
//! run is decided in [`plan`]; the load itself is [`crate::load`]'s. Prints its report on the writer that it is given, and
//! progress on stderr where that is a terminal.

mod args;
mod list;
mod plan;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::config::World;
use super::{EXIT_FAILED, EXIT_OK, EXIT_PARTLY, EXIT_USAGE, aws, complain};
use crate::backend::s3::is_about_our_signature;
use crate::client::{ClientError, Endpoint, printable};
use crate::load::report::Report;
use crate::load::{self, Control, Keys, Unready};
pub use args::BenchArgs;
use plan::Plan;

/// How often progress is shown anew.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the load and prints what it measured.
///
/// # Errors
/// Only those of `out` and of the runtime.
pub fn run(args: &BenchArgs, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let plan = match plan::plan(args, &super::list::read, cores) {
        Ok(plan) => plan,
        Err(problems) => return Ok(complain(&problems.join("\nbatchgate: "), EXIT_USAGE)),
    };
    let mut runtime = match plan.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(plan.threads).enable_all().build()?;
    let done = runtime.block_on(bench(args, &plan, world, out));
    runtime.shutdown_background();
    done
}

async fn bench(args: &BenchArgs, plan: &Plan, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let endpoint = match aws::endpoint(&args.aws, &world.env, plan.in_flight_max()).await {
        Ok(endpoint) => Arc::new(endpoint),
        Err(what) => return Ok(complain(&printable(&what), EXIT_USAGE)),
    };
    let control = Arc::new(Control::default());
    stop_when_told(&control)?;
    let progress = show_progress(&control);
    let done = load(&endpoint, plan, &control).await;
    progress.abort();
    let exit = match done {
        Ok(outcome) if control.stop.is_cancelled() && outcome.measured.iter().all(load::Measured::is_empty) => stopped(),
        Ok(outcome) => {
            let report = Report {
                endpoint: endpoint.url(),
                threads: plan.threads,
                jobs: plan.jobs.iter().take(outcome.measured.len()).collect(),
                measured: outcome.measured.iter().collect(),
                comparison: outcome.comparison.as_ref(),
            };
            if args.json {
                writeln!(out, "{:#}", report.to_json())?;
            } else {
                out.write_all(report.to_text().as_bytes())?;
            }
            out.flush()?;
            exit_of(&outcome.measured)
        }
        Err(_) if control.stop.is_cancelled() => stopped(),
        Err(unready) => complain(&printable(&explain(&unready, plan, &endpoint)), EXIT_FAILED),
    };
    Ok(exit)
}

fn stopped() -> u8 {
    complain("stopped before anything was measured", EXIT_FAILED)
}

/// What came of a plan.
struct Outcome {
    measured: Vec<load::Measured>,
    comparison: Option<load::Comparison>,
}

async fn load(endpoint: &Arc<Endpoint>, plan: &Plan, control: &Arc<Control>) -> Result<Outcome, Unready> {
    let first = &plan.jobs[0];
    let ready = async {
        if plan.prepare {
            // Before much is written for nothing.
            for job in &plan.jobs {
                load::check_endpoint(endpoint, job).await?;
            }
            let prepared = load::prepare(endpoint, &first.bucket, &first.keys, control).await?;
            let _ = writeln!(io::stderr(), "prepared: {} objects written, {} were there", prepared.written, prepared.kept);
        }
        for job in &plan.jobs {
            load::check(endpoint, job).await?;
        }
        Ok(())
    };
    // Told to stop before anything is measured, there is nothing to report; the caller asks who cancelled.
    control.stop.run_until_cancelled(ready).await.unwrap_or(Err(Unready::Stopped))?;
    Ok(match plan.jobs.as_slice() {
        [first, second] => {
            let mut comparison = load::compare(endpoint, first, second, plan.rounds, control).await;
            let measured = [&mut comparison.first, &mut comparison.second].map(std::mem::take);
            Outcome { measured: measured.into(), comparison: Some(comparison) }
        }
        _ => Outcome { measured: vec![load::run(endpoint, first, control).await], comparison: None },
    })
}

fn exit_of(measured: &[load::Measured]) -> u8 {
    if measured.iter().any(|measured| measured.cut_short) {
        EXIT_FAILED
    } else if measured.iter().any(load::Measured::failed) {
        EXIT_PARTLY
    } else if measured.iter().any(|measured| measured.objects() == 0) {
        complain("nothing was measured; give a longer --duration", EXIT_FAILED)
    } else {
        EXIT_OK
    }
}

/// SIGINT and SIGTERM end the load; what was measured so far is printed.
fn stop_when_told(control: &Arc<Control>) -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let control = Arc::clone(control);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        control.stop.cancel();
    });
    Ok(())
}

/// One line on stderr that is renewed while the load runs; nothing where stderr is no terminal.
fn show_progress(control: &Arc<Control>) -> tokio::task::JoinHandle<()> {
    let control = Arc::clone(control);
    tokio::spawn(async move {
        let bar = Cleared(ProgressBar::new_spinner());
        if bar.0.is_hidden() {
            return;
        }
        bar.0.set_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        let (mut before, mut at) = (0, Instant::now());
        loop {
            let now = ticks.tick().await;
            let objects = control.objects.load(Ordering::Relaxed);
            let seconds = (now - at).as_secs_f64();
            let rate = if seconds > 0.0 { objects.saturating_sub(before) as f64 / seconds } else { 0.0 };
            (before, at) = (objects, now);
            let errors = control.errors.load(Ordering::Relaxed);
            let phase = control.phase.lock().map(|phase| phase.clone()).unwrap_or_default();
            bar.0.set_message(format!("{phase}: {objects} objects, {rate:.0}/s, {errors} errors"));
            bar.0.tick();
        }
    })
}

/// A bar that leaves nothing behind.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Why nothing could be measured, and what to do.
fn explain(unready: &Unready, plan: &Plan, endpoint: &Endpoint) -> String {
    let (url, job) = (endpoint.url(), &plan.jobs[0]);
    match unready {
        Unready::NoAnswer(ClientError::Unreachable(what)) => format!("cannot connect to {url}: {what}; see --endpoint-url"),
        Unready::NoAnswer(ClientError::NoCredentials(what)) => {
            format!("there are no credentials: {what}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give --profile")
        }
        Unready::NoAnswer(ClientError::Refused(refusal)) if is_about_our_signature(&refusal.code) => {
            format!("{url} does not take these credentials: {refusal}; see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and --profile")
        }
        Unready::NoAnswer(error @ ClientError::NotHere(_)) => format!("{url}: {error}; see --endpoint-url"),
        Unready::NoAnswer(error) => format!("{url}, bucket {}: {error}", job.bucket),
        Unready::NoBucket => {
            format!("bucket {} does not exist at {url}; create it, or give --prepare, which creates it", job.bucket)
        }
        Unready::NoObject(key) => match &job.keys {
            Keys::Made { count, .. } => {
                format!("object {key} does not exist in bucket {}; give --prepare to write all {count}", job.bucket)
            }
            Keys::Listed(_) => format!("object {key} of the list does not exist in bucket {}", job.bucket),
        },
        Unready::WrongSize { key, found } => {
            format!("object {key} in bucket {} has {found} bytes; give --prepare to write it anew", job.bucket)
        }
        Unready::NoBatchGet => format!(
            "{url} has no BatchGet. Measure it with --mode get, or put a gateway before it (batchgate serve --backend {url}) and \
             give the gateway's URL"
        ),
        Unready::BatchTooLarge(max) => format!("{url} takes no more than {max} entries in a BatchGet; give a smaller --batch"),
        Unready::Stopped => "it was told to stop".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::measured::Sample;
    use crate::load::{Kind, Measured};

    fn measured(objects: usize, objects_failed: u64) -> Measured {
        let mut sample = Sample::default();
        sample.begin(Kind::Batch);
        sample.took = Some(Duration::from_millis(1));
        sample.object_times = vec![Duration::from_millis(1); objects];
        sample.objects_failed = objects_failed;
        let mut measured = Measured::default();
        measured.take(&sample);
        measured
    }

    #[test]
    fn all_went_well_only_if_every_side_has_something_and_nothing_failed() {
        let cut_short = Measured { cut_short: true, ..measured(5, 1) };
        assert_eq!(exit_of(&[measured(5, 0), measured(5, 0)]), EXIT_OK);
        assert_eq!(exit_of(&[measured(5, 0), measured(5, 1)]), EXIT_PARTLY);
        assert_eq!(exit_of(&[measured(5, 1), cut_short]), EXIT_FAILED);
        assert_eq!(exit_of(&[measured(5, 0), Measured::default()]), EXIT_FAILED);
        assert!(Measured::default().is_empty() && !measured(0, 1).is_empty());
    }
}
