//! What only reading finds out: whether a store answers, whom it knows, in which region it is, where the bucket's name goes. In come
//! the settings of one backend, out go what works of them and what there is to set. Invariant: only GET and HEAD are sent.

use http::Method;
use tokio::time::Instant;

use super::Ground;
use super::asker::{Asker, Carried, Cause, Said, Silence, Tried};
use super::diagnosis::{Kind, Problem, Signed, not_s3, of_refusal, of_silence};
use super::report::{Outcome, Report};
use super::trials::{has, named};
use crate::config::{Addressing, BackendConfig, CredentialsConfig, nearest};
use crate::types::BucketName;

/// Most buckets of a store's list that are looked at.
const BUCKETS_MAX: usize = 10_000;

/// Why nothing is tried on the bucket that was named.
pub const NO_BUCKET: &str = "needs a bucket that can be used";

/// A store that speaks S3.
pub struct Reached {
    /// What was found to work so far.
    pub config: BackendConfig,
    /// Asks as that says.
    pub asker: Asker,
    /// The buckets that it lists.
    pub buckets: Vec<String>,
    /// Whether it does not refuse the pair of the backend.
    pub takes_us: bool,
}

/// Asks for a list of buckets. Nothing where no pair would get an answer; why is in the report.
pub async fn reach(config: &BackendConfig, ground: &Ground<'_>, report: &mut Report) -> Option<Reached> {
    match listed(config.clone(), ground, report).await {
        Ok(reached) => Some(reached),
        Err(problem) => {
            report.problems.push(problem);
            None
        }
    }
}

async fn listed(mut config: BackendConfig, ground: &Ground<'_>, report: &mut Report) -> Result<Reached, Problem> {
    let unheard = |silence: Silence| of_silence(&silence);
    let mut asker = Asker::open(&config, ground.now).await.map_err(unheard)?;
    let started = Instant::now();
    let mut said = asker.read("/").await.map_err(unheard)?;
    let took = started.elapsed();
    if let Some(region) = said.region.clone().filter(|region| *region != config.region && !said.is_ok()) {
        config.region = region;
        asker = Asker::open(&config, ground.now).await.map_err(unheard)?;
        said = asker.read("/").await.map_err(unheard)?;
    }
    if said.code.is_none() && !(said.is_ok() && has(&said, "<ListAllMyBucketsResult")) {
        return Err(not_s3(&said));
    }
    let access_key = asker.access_key().await.unwrap_or_default();
    let table = matches!(config.credentials, CredentialsConfig::Static { .. }).then_some("credentials");
    let refusal = of_refusal(&said, Signed { access_key: &access_key, region: &config.region, table });
    let takes_us = match refusal {
        Some(problem) if problem.kind == Kind::Credentials => {
            report.problems.push(problem);
            false
        }
        Some(problem) => return Err(problem),
        None => true,
    };
    let buckets = buckets(&said);
    if takes_us {
        report.reached = true;
        let of_us = match said.is_ok() {
            true => format!("takes the access key {access_key:?}, lists buckets ({})", buckets.len()),
            false => format!("does not refuse the access key {access_key:?}, but lists no buckets for it ({said})"),
        };
        report.notes.push(format!("answered after {} ms, {of_us}", took.as_millis()));
    }
    Ok(Reached { config, asker, buckets, takes_us })
}

impl Reached {
    /// A bucket to try things on, and where its name goes in a request; what there is to set is in the report. Nothing where there
    /// is none, or none that can be listed.
    pub async fn bucket(&mut self, ground: &Ground<'_>, report: &mut Report) -> Option<String> {
        let first = self.buckets.first().filter(|_| !ground.may_write).cloned();
        let candidates: Vec<String> = ground.bucket.map(str::to_owned).into_iter().chain(first).collect();
        for bucket in candidates {
            let head = self.asker.ask(Method::HEAD, &format!("/{bucket}"), &[], Carried::default()).await;
            if let Some(region) = head.ok().and_then(|said| said.region).filter(|region| *region != self.config.region) {
                self.config.region = region;
                self.reopen(ground).await;
            }
            let Some(problem) = self.addressing(&bucket, ground, report).await else { return Some(bucket) };
            match (problem, ground.may_write) {
                (Untryable::Addressing, _) => return None,
                (Untryable::Bucket(problem), true) => report.problems.push(problem),
                (Untryable::Bucket(problem), false) => report.notes.push(format!("{}: {}", problem.why, problem.fix)),
            }
        }
        let style = named(self.config.addressing);
        let why = if ground.may_write { NO_BUCKET } else { "there is no bucket to try it on; name one with --probe-bucket" };
        report.found("addressing", style.clone(), style, Outcome::Untried, why);
        None
    }

    /// Tries the style that is set, and the other one where that would be the default or the remedy.
    async fn addressing(&mut self, bucket: &str, ground: &Ground<'_>, report: &mut Report) -> Option<Untryable> {
        let configured = self.config.addressing;
        let other = if configured == Addressing::Path { Addressing::Virtual } else { Addressing::Path };
        let tried = self.list(bucket, configured, ground).await;
        let works = is_list_of(&tried, bucket);
        if works && configured == Addressing::Path {
            report.found("addressing", named(configured), named(configured), Outcome::Works, "");
            return None;
        }
        let tried_other = self.list(bucket, other, ground).await;
        let other_works = is_list_of(&tried_other, bucket);
        if !works && !other_works {
            if let Some(problem) = self.of_bucket(bucket, [&tried, &tried_other]) {
                return Some(Untryable::Bucket(problem));
            }
            let silent = |tried: &Tried| tried.as_ref().is_err_and(|silence| silence.cause == Cause::Silent);
            let outcome = if silent(&tried) || silent(&tried_other) { Outcome::Unanswered } else { Outcome::Fails };
            let why = format!(
                "the bucket {bucket:?} cannot be listed in either way: {}; {}",
                told(configured, &tried),
                told(other, &tried_other)
            );
            report.found("addressing", named(configured), named(configured), outcome, why);
            return Some(Untryable::Addressing);
        }
        let (set, outcome, why) = match (works, other_works) {
            (true, true) => (configured, Outcome::Works, format!("{} would do as well", named(other))),
            (true, false) => (configured, Outcome::Works, format!("needed: {}", told(other, &tried_other))),
            (false, _) => (other, Outcome::Change, told(configured, &tried)),
        };
        report.found("addressing", named(configured), named(set), outcome, why);
        if set != configured {
            self.config.addressing = set;
            self.reopen(ground).await;
        }
        None
    }

    async fn list(&self, bucket: &str, style: Addressing, ground: &Ground<'_>) -> Tried {
        let config = BackendConfig { addressing: style, ..self.config.clone() };
        Asker::open(&config, ground.now).await?.read(&format!("/{bucket}?list-type=2&max-keys=1")).await
    }

    /// What was found is asked with from now on.
    async fn reopen(&mut self, ground: &Ground<'_>) {
        if let Ok(asker) = Asker::open(&self.config, ground.now).await {
            self.asker = asker;
        }
    }

    /// What is the matter with the bucket itself, where it is not how it was named.
    fn of_bucket(&self, bucket: &str, tries: [&Tried; 2]) -> Option<Problem> {
        let codes = || tries.into_iter().filter_map(|tried| tried.as_ref().ok()?.code.as_deref());
        let refused = tries.into_iter().find_map(|tried| tried.as_ref().ok().filter(|said| said.code.is_some()))?;
        if codes().any(|code| code == "NoSuchBucket") {
            let near = nearest(bucket, self.buckets.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; the nearest that there is: {near:?}"));
            let fix = format!("make it at the store, or name another{near}");
            return Some(Problem::new(Kind::Bucket, format!("the bucket {bucket:?} does not exist at this backend"), fix));
        }
        codes().any(|code| code == "AccessDenied").then(|| {
            let why = format!("these credentials may not list the bucket {bucket:?} ({refused})");
            Problem::new(Kind::Bucket, why, "allow it to them at the store (s3:ListBucket), or name another with --probe-bucket")
        })
    }
}

/// Why there is nothing to try on a bucket.
enum Untryable {
    /// It is the bucket's fault.
    Bucket(Problem),
    /// There is no way to name it. That is reported.
    Addressing,
}

fn is_list_of(tried: &Tried, bucket: &str) -> bool {
    let name = format!("<Name>{bucket}</Name>");
    tried.as_ref().is_ok_and(|said| has(said, "<ListBucketResult") && has(said, &name))
}

/// What a style got instead of the bucket's list.
fn told(style: Addressing, tried: &Tried) -> String {
    let what = match tried {
        Ok(said) if said.is_ok() => "an answer that is not that bucket's list".to_owned(),
        Ok(said) => said.to_string(),
        Err(silence) if silence.cause == Cause::NoConnection && style == Addressing::Virtual => {
            format!("{silence} (it needs a DNS record for the bucket's name before the host's)")
        }
        Err(silence) => silence.to_string(),
    };
    format!("{} gets {what}", named(style))
}

/// The names in a list of buckets.
fn buckets(said: &Said) -> Vec<String> {
    let text = said.document();
    let names = text.split("<Name>").skip(1).filter_map(|rest| Some(rest.split_once("</Name>")?.0));
    names.filter(|name| BucketName::new(name).is_some()).take(BUCKETS_MAX).map(str::to_owned).collect()
}
