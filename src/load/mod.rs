//! Load on an S3 endpoint, measured: for `bench`, `demo` and Rust programs. In reading order: [`job`] (what load there is to
//! be), [`content`] (what made objects hold), [`prepare`] (that they are there), [`ask`] (one request, its answer looked at to
//! the last byte), [`pace`] (how requests follow one another), [`measured`] and [`errors`] (what is counted), [`compare`] (two
//! jobs in turns), [`report`] (for people and scripts), [`cpu`].
//!
//! Invariants: an object counts only if it is whole and right; what is measured costs memory that does not grow with time.

mod ask;
pub mod compare;
pub mod content;
mod cpu;
pub mod errors;
pub mod job;
pub mod measured;
mod pace;
pub mod prepare;
pub mod report;

pub use compare::{Comparison, Spread, compare};
pub use cpu::cpu_seconds;
pub use job::{Extent, Job, Keys, Kind, Mix, Mode, Pace};
pub use measured::{Measured, Tally, Times};
pub use prepare::{Prepared, Unready, check, check_endpoint, prepare};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Endpoint;
use ask::Asker;
use measured::Sample;

/// What goes on, for whoever watches, and the way to end it.
#[derive(Debug, Default)]
pub struct Control {
    /// Cancelled, whatever runs ends at once with what it has measured so far.
    pub stop: CancellationToken,
    /// Objects so far that were whole and right, in all phases.
    pub objects: AtomicU64,
    /// Errors so far.
    pub errors: AtomicU64,
    /// What is being done, in a few words.
    pub phase: Mutex<String>,
}

impl Control {
    /// Says what is being done from now on.
    pub fn say(&self, phase: impl Into<String>) {
        *self.phase.lock().expect("nobody panics with it") = phase.into();
    }
}

/// Where samples go.
#[derive(Debug)]
struct Recorder {
    measured: Mutex<Measured>,
    control: Arc<Control>,
}

impl Recorder {
    fn take(&self, sample: &Sample) {
        self.control.objects.fetch_add(sample.object_times.len() as u64, Ordering::Relaxed);
        self.control.errors.fetch_add(sample.errors.count(), Ordering::Relaxed);
        self.measured.lock().expect("counting does not panic").take(sample);
    }

    fn not_started(&self) {
        self.control.errors.fetch_add(1, Ordering::Relaxed);
        self.measured.lock().expect("counting does not panic").not_started += 1;
    }
}

/// Runs a job: its warm-up, then what is measured.
pub async fn run(endpoint: &Arc<Endpoint>, job: &Job, control: &Arc<Control>) -> Measured {
    let asker = Arc::new(Asker::new(endpoint, job));
    warm_up(&asker, job, control, 0).await;
    control.say(format!("{}, {}", job.mode, job.pace));
    measure(&asker, job, job.extent, control, 1).await
}

async fn warm_up(asker: &Arc<Asker>, job: &Job, control: &Arc<Control>, phase: u64) {
    if !job.warm_up.is_zero() {
        control.say("warm-up");
        measure(asker, job, Extent::Duration(job.warm_up), control, phase).await;
    }
}

/// Runs a part of a job without a warm-up. No two parts of a run have the same `phase`.
async fn measure(asker: &Arc<Asker>, job: &Job, extent: Extent, control: &Arc<Control>, phase: u64) -> Measured {
    let recorder = Arc::new(Recorder { measured: Mutex::default(), control: Arc::clone(control) });
    let cpu = || cpu_seconds(std::process::id()).ok();
    let (cpu_before, started) = (cpu(), Instant::now());
    let driven = pace::drive(asker, job.pace, extent, &recorder, |stream| job::random(job.seed, phase, stream));
    let done = control.stop.run_until_cancelled(driven).await;
    let seconds = started.elapsed().as_secs_f64();
    // Where it was cut short, tasks that are about to end may hold the recorder still.
    let mut measured = std::mem::take(&mut *recorder.measured.lock().expect("counting does not panic"));
    measured.seconds = seconds;
    measured.own_cpu_seconds = cpu().zip(cpu_before).map(|(after, before)| after - before);
    measured.cut_short = done.is_none();
    measured
}
