//! `batchgate config check --probe`: tries what stores differ in on each configured backend and says what to set. What enters is
//! settings that are right in themselves; what leaves is text or JSON and an exit code. It asks stores, and writes only where it
//! was told to.

mod accounts;
mod asker;
mod diagnosis;
mod reach;
mod report;
mod text;
mod trials;
mod written;

use rand::Rng;
use rand::rngs::OsRng;
use rand::{SeedableRng, rngs::StdRng};

use super::config::{Answer, pretty, refusal};
use super::signals::told_to_end;
use crate::app::system_clock;
use crate::config::{BackendConfig, BackendKind, Origin, Problem, ServerConfig, Settings, nearest};
use crate::types::{BucketName, WallClock};
use accounts::{Held, held};
use report::Report;
use trials::probe;

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The backends to probe, by name; all of them where there is none.
    pub backends: &'a [String],
    /// The bucket that may be written to, by its name at the store.
    pub bucket: Option<&'a str>,
    /// Whether to print JSON.
    pub json: bool,
}

/// What a probe of one backend may use.
struct Ground<'a> {
    /// A bucket that there should be, by its name at the store.
    bucket: Option<&'a str>,
    /// Whether objects may be written to it.
    may_write: bool,
    /// What the keys of probe objects begin with: nobody else's do.
    prefix: String,
    /// The accounts that identities have there.
    accounts: Vec<Held<'a>>,
    /// For signatures.
    now: WallClock,
}

/// Probes the backends, one after another, until a signal tells it to end: what was written is deleted first.
///
/// # Errors
/// That there is no runtime for it, or that signals cannot be waited for.
pub fn run(settings: &Settings, asked: Asked<'_>) -> std::io::Result<Answer> {
    let mistakes = mistakes(settings, asked);
    if !mistakes.is_empty() {
        return Ok(refusal(&mistakes, asked.json));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut random = StdRng::try_from_rng(&mut OsRng).expect("the system has randomness");
    let mut told = told_to_end()?;
    let mut reports: Vec<Report> = Vec::new();
    let is_asked = |config: &&BackendConfig| asked.backends.is_empty() || asked.backends.contains(&config.name);
    for config in settings.backends.iter().filter(is_asked) {
        let ground = Ground {
            bucket: asked.bucket.or_else(|| routed(settings, config)),
            may_write: asked.bucket.is_some(),
            prefix: format!("batchgate-probe-{:016x}-", random.random::<u64>()),
            accounts: held(&settings.identities, &config.name),
            now: system_clock,
        };
        let mut report = match config.kind {
            BackendKind::S3 => runtime.block_on(probe(config, &ground, &mut told)),
            BackendKind::Embedded => embedded(config),
        };
        report.notes.extend(other_region(&settings.server, &report));
        reports.push(report);
        if reports.last().is_some_and(|report| report.interrupted) {
            break;
        }
    }
    Ok(answer(&reports, asked.json))
}

/// What of the command line cannot be meant.
fn mistakes(settings: &Settings, asked: Asked<'_>) -> Vec<Problem> {
    let problem = |flag: &str, message| Problem::new(Origin::Flag { flag: flag.into() }, "", message);
    let names = || settings.backends.iter().map(|backend| backend.name.as_str());
    let unknown = asked.backends.iter().filter(|name| names().all(|known| known != name.as_str()));
    let mut mistakes: Vec<_> = unknown
        .map(|name| match nearest(name, names()) {
            Some(near) => format!("no backend is called {name:?}; the nearest is {near:?}"),
            None => format!("no backend is called {name:?}; there is no [[backends]] at all"),
        })
        .map(|message| problem("--backend", message))
        .collect();
    let bucket = asked.bucket.filter(|name| BucketName::new(name).is_none());
    mistakes.extend(bucket.map(|name| problem("--probe-bucket", format!("{name:?} is no bucket's name"))));
    mistakes
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

/// What clients notice where the store is not in the gateway's region. Nothing is translated for those that may sign for any.
fn other_region(server: &ServerConfig, report: &Report) -> Option<String> {
    let region = report.settings.iter().find(|setting| setting.key == "region")?.set.as_str()?;
    let noticed = match server.any_region {
        true => "GetBucketLocation names the store's own, and a CreateBucket that names another may be refused",
        false => "ListBuckets names the store's own",
    };
    (region != server.region).then(|| {
        format!(
            "server.region is {:?}, and this backend is asked for {region:?}; clients may notice: {noticed}. Best set both to the \
             store's own",
            server.region
        )
    })
}

fn answer(reports: &[Report], json: bool) -> Answer {
    let exit = reports.iter().map(Report::exit).max().unwrap_or(super::EXIT_OK);
    let text = match reports {
        _ if json => pretty(&reports),
        [] => "there is no backend to try\n".to_owned(),
        reports => reports.iter().map(text::text).collect(),
    };
    Answer { text, exit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::Outcome;

    #[test]
    fn another_region_is_told_of_by_what_is_not_translated() {
        for (region, any_region, noticed) in [
            ("here", false, None),
            ("here", true, None),
            ("mars", false, Some("notice: ListBuckets names the store's own. Best")),
            ("mars", true, Some("notice: GetBucketLocation names the store's own, and a CreateBucket that names another")),
        ] {
            let server = ServerConfig { region: "here".into(), any_region, ..ServerConfig::default() };
            let mut report = Report::new("store", "");
            report.found("region", "set", region, Outcome::Change, "");
            let note = other_region(&server, &report);
            assert_eq!(note.is_some(), noticed.is_some(), "{note:?}");
            let told = note.unwrap_or_default();
            assert!(told.contains(noticed.unwrap_or_default()), "{told}");
        }
        assert_eq!(other_region(&ServerConfig::default(), &Report::new("embedded", "")), None);
    }
}
