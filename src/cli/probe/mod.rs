//! `batchgate config check --probe`: tries what stores differ in on each configured backend and says what to set. What enters is
//! settings that are right in themselves; what leaves is text or JSON and an exit code. It asks stores, and writes only where it
//! was told to.

mod asker;
mod report;
mod trials;
mod written;

use std::fmt::Write as _;

use rand::Rng;
use rand::rngs::OsRng;
use rand::{SeedableRng, rngs::StdRng};

use super::config::{Answer, pretty};
use super::signals::told_to_end;
use crate::app::system_clock;
use crate::config::{BackendConfig, BackendKind, Settings};
use crate::types::BucketName;
use report::Report;
use trials::{Ground, probe};

/// Probes every backend of `settings`, one after another, until a signal tells it to end: what was written is deleted first.
/// `probe_bucket` may be written to, by its name at the store.
///
/// # Errors
/// That there is no runtime for it, or that signals cannot be waited for.
pub fn run(settings: &Settings, probe_bucket: Option<&str>, json: bool) -> std::io::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut random = StdRng::try_from_rng(&mut OsRng).expect("the system has randomness");
    let mut told = told_to_end()?;
    let mut reports: Vec<Report> = Vec::new();
    for config in &settings.backends {
        let prefix = format!("batchgate-probe-{:016x}-", random.random::<u64>());
        let bucket = probe_bucket.or_else(|| routed(settings, config));
        let ground = Ground { bucket, may_write: probe_bucket.is_some(), prefix, now: system_clock };
        reports.push(match config.kind {
            BackendKind::S3 => runtime.block_on(probe(config, &ground, &mut told)),
            BackendKind::Embedded => embedded(config),
        });
        if reports.last().is_some_and(|report| report.interrupted) {
            break;
        }
    }
    Ok(answer(&reports, json))
}

/// A bucket of that backend that the routes name without a wildcard, by its name there.
fn routed<'a>(settings: &'a Settings, config: &BackendConfig) -> Option<&'a str> {
    let of_it = settings.routes.iter().filter(|route| route.backend == config.name);
    let mut names = of_it.map(|route| route.rename.as_deref().unwrap_or(&route.bucket));
    names.find(|name| BucketName::new(name).is_some())
}

fn embedded(config: &BackendConfig) -> Report {
    let notes = vec!["is embedded: there is nothing to try".to_owned()];
    Report { reached: true, notes, ..Report::new(&config.name, "") }
}

fn answer(reports: &[Report], json: bool) -> Answer {
    let exit = reports.iter().map(Report::exit).max().unwrap_or(super::EXIT_OK);
    if json {
        return Answer { text: pretty(&reports), exit };
    }
    let mut text: String = reports.iter().map(Report::text).collect();
    if reports.is_empty() {
        let _ = writeln!(text, "there is no backend to try");
    }
    Answer { text, exit }
}
