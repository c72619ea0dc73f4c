//! What is tried on one backend, in order: each try uses what those before it found to work. In come its settings and a bucket,
//! out goes a [`Report`]. Invariants: without leave to write, only GET and HEAD are sent; whatever was written is deleted, also
//! after a failure or a signal; every attempt has its time, and one that was not answered tells nothing of what a store takes.

use http::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::asker::{Asker, Carried, Failure, Said};
use super::report::{Outcome, Report};
use super::written::Written;
use crate::backend::s3::chunks::{SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER};
use crate::backend::s3::sign::UNSIGNED_PAYLOAD;
use crate::backend::s3::{is_about_our_signature, object_path};
use crate::checksum::{Algorithm, Checksum};
use crate::cli::{EXIT_FAILED, complain};
use crate::config::{Addressing, BackendConfig, Checksums, PayloadSigning};
use crate::types::{WallClock, hex32};

const CRC32: &str = "x-amz-checksum-crc32";

/// What the probe objects hold.
const DATA: &[u8] = b"written by batchgate config check --probe, which deletes it again";

/// A checksum that [`DATA`] and the list of a delete do not have.
const WRONG: &str = "AAAAAQ==";

type Tried = Result<Said, String>;

/// What a probe may use.
pub struct Ground<'a> {
    /// A bucket that there should be, by its name at the store.
    pub bucket: Option<&'a str>,
    /// Whether objects may be written to it.
    pub may_write: bool,
    /// What the keys of probe objects begin with: nobody else's do.
    pub prefix: String,
    /// For signatures.
    pub now: WallClock,
}

/// Tries all of it, until `told` to end.
pub async fn probe(config: &BackendConfig, ground: &Ground<'_>, told: &mut oneshot::Receiver<()>) -> Report {
    let mut report = Report::new(&config.name, &config.endpoint);
    let begun = tokio::select! {
        begun = Trial::begin(config, ground, &mut report) => Some(begun),
        _ = &mut *told => None,
    };
    match begun {
        Some(Ok(Some(mut trial))) => {
            let whole = tokio::select! {
                () = trial.writing(&mut report) => true,
                _ = told => false,
            };
            if !whole {
                report.interrupted = true;
                complain("interrupted: what was written is being deleted; once more, and it is left", EXIT_FAILED);
            }
            trial.clean_up(&mut report).await;
        }
        Some(Ok(None)) => {
            let why = "only tried with --probe-bucket, which writes small objects and deletes them".to_owned();
            for (key, value) in unwritten(config) {
                report.found(key, value.clone(), value, Outcome::Untried, why.clone());
            }
        }
        Some(Err(why)) => {
            report.reached = false;
            report.notes.push(why);
        }
        None => report.interrupted = true,
    }
    if report.interrupted {
        report.notes.push("interrupted before all was tried".to_owned());
    }
    report
}

/// The settings that only writing tries.
fn unwritten(config: &BackendConfig) -> [(&'static str, Value); 3] {
    [
        ("payload_signing", named(config.payload_signing)),
        ("checksums", named(config.checksums)),
        ("content_md5", config.content_md5.into()),
    ]
}

fn named(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("a word")
}

struct Trial<'a> {
    /// What was found to work so far.
    config: BackendConfig,
    asker: Asker,
    bucket: String,
    ground: &'a Ground<'a>,
    written: Written<'a>,
}

impl<'a> Trial<'a> {
    /// Whether the store answers, in which region, and how buckets are addressed. Nothing is left to try where nothing may be
    /// written.
    async fn begin(config: &BackendConfig, ground: &'a Ground<'a>, report: &mut Report) -> Result<Option<Self>, String> {
        let mut config = config.clone();
        let (configured_region, configured_style) = (config.region.clone(), config.addressing);
        let mut asker = open(&config, ground).await?;
        let started = Instant::now();
        let mut listed = read(&asker, "/").await?;
        if let Some(region) = other_region(&listed, &config.region) {
            config.region = region;
            asker = open(&config, ground).await?;
            listed = read(&asker, "/").await?;
        }
        let known = listed.code.is_some() || listed.is_ok() && has(&listed, "<ListAllMyBucketsResult");
        if !known {
            return Err(format!("what answers there is no S3 store: it said {listed} to a list of buckets"));
        }
        if let Some(code) = listed.code.as_deref().filter(|code| is_about_our_signature(code)) {
            return Err(format!("it refuses the credentials or what was signed with them: {code}"));
        }
        report.reached = true;
        report.notes.push(format!("answers, after {} ms", started.elapsed().as_millis()));
        report.notes.push(match listed.is_ok() {
            true => "takes the credentials, and lists buckets".to_owned(),
            false => format!("knows the credentials, but does not list buckets for them ({listed})"),
        });
        let first = || between(&listed, "<Name>", "</Name>");
        let Some(bucket) = ground.bucket.map(str::to_owned).or_else(first) else {
            region_found(report, &configured_region, &config.region);
            let why = "there is no bucket to try it on; name one with --probe-bucket".to_owned();
            report.found("addressing", named(configured_style), named(configured_style), Outcome::Untried, why);
            return Ok(None);
        };
        if let Ok(said) = asker.ask(Method::HEAD, &format!("/{bucket}"), &[], Carried::default()).await
            && let Some(region) = said.region.filter(|region| *region != config.region)
        {
            config.region = region;
        }
        region_found(report, &configured_region, &config.region);
        let written = Written::new(&bucket, &ground.prefix);
        let mut trial = Self { asker: open(&config, ground).await?, config, bucket, ground, written };
        let addressed = trial.addressing(report).await?;
        Ok((addressed && ground.may_write).then_some(trial))
    }

    /// Tries both styles; whether one works.
    async fn addressing(&mut self, report: &mut Report) -> Result<bool, String> {
        let configured = self.config.addressing;
        let other = if configured == Addressing::Path { Addressing::Virtual } else { Addressing::Path };
        let path = format!("/{}?list-type=2&max-keys=1", self.bucket);
        let name = format!("<Name>{}</Name>", self.bucket);
        let works = |tried: &Tried| tried.as_ref().is_ok_and(|said| has(said, "<ListBucketResult") && has(said, &name));
        let mut tries = Vec::new();
        for style in [configured, other] {
            let config = BackendConfig { addressing: style, ..self.config.clone() };
            let asker = open(&config, self.ground).await?;
            tries.push(read(&asker, &path).await);
        }
        let described = |tried: &Tried| match tried {
            Ok(said) if said.is_ok() => "the answer is not that bucket's list".to_owned(),
            Ok(said) => said.to_string(),
            Err(why) => why.clone(),
        };
        let (set, outcome, why) = match (works(&tries[0]), works(&tries[1])) {
            (true, true) => (configured, Outcome::Works, format!("{} would do as well", named(other))),
            (true, false) => (configured, Outcome::Works, format!("{} does not ({})", named(other), described(&tries[1]))),
            (false, true) => (other, Outcome::Change, described(&tries[0])),
            (false, false) => {
                (configured, Outcome::Fails, format!("the bucket {} cannot be listed ({})", self.bucket, described(&tries[0])))
            }
        };
        report.found("addressing", named(configured), named(set), outcome, why);
        if set != configured {
            self.config.addressing = set;
            self.asker = open(&self.config, self.ground).await?;
        }
        Ok(outcome != Outcome::Fails)
    }

    /// Tries all that only writing tries.
    async fn writing(&mut self, report: &mut Report) {
        self.payload_signing(report).await;
        self.checksums(report).await;
        self.content_md5(report).await;
    }

    /// Which bodies the store takes, by how they are signed.
    async fn payload_signing(&mut self, report: &mut Report) {
        let sha256 = |value: &str| vec![("x-amz-content-sha256", value.to_owned())];
        let unsigned = self.put("unsigned", sha256(UNSIGNED_PAYLOAD), Carried::plain(DATA)).await;
        let hashed = self.put("hashed", sha256(&hash_of(DATA)), Carried::plain(DATA)).await;
        let mut headers = sha256(SIGNED_CHUNKS);
        headers.push(("x-amz-decoded-content-length", DATA.len().to_string()));
        let chunks = self.put("chunks", headers, Carried::plain(DATA)).await;
        let fits = |signing| match signing {
            PayloadSigning::WhenKnown => all_taken(&[&unsigned, &hashed]),
            PayloadSigning::Never => all_taken(&[&unsigned]),
            PayloadSigning::Always => all_taken(&[&hashed, &chunks]),
        };
        let configured = self.config.payload_signing;
        let choices = [PayloadSigning::WhenKnown, PayloadSigning::Always, PayloadSigning::Never];
        let refused: Vec<String> =
            [("an unsigned body", &unsigned), ("a body signed by its hash", &hashed), ("signed chunks", &chunks)]
                .into_iter()
                .filter_map(|(what, tried)| Some(format!("{what}: {}", tried.as_ref().err()?)))
                .collect();
        let other = choices.into_iter().find(|signing| fits(*signing) == Some(true));
        let (set, outcome) = match (fits(configured), other) {
            (Some(true), _) => (configured, Outcome::Works),
            (None, _) => (configured, Outcome::Unanswered),
            (Some(false), Some(other)) => (other, Outcome::Change),
            (Some(false), None) if choices.into_iter().any(|signing| fits(signing).is_none()) => (configured, Outcome::Unanswered),
            (Some(false), None) => (configured, Outcome::Fails),
        };
        report.found("payload_signing", named(configured), named(set), outcome, refused.join("; "));
        self.config.payload_signing = set;
    }

    /// Whether the store checks what the gateway would leave to it.
    async fn checksums(&mut self, report: &mut Report) {
        let right = sum(Algorithm::Crc32, DATA);
        let behind = self.put_trailer("trailer", &right).await;
        let wrong_behind = self.put_trailer("wrong-trailer", WRONG).await;
        let before = self.put("header", in_head(&right), Carried::plain(DATA)).await;
        let wrong_before = self.put("wrong-header", in_head(WRONG), Carried::plain(DATA)).await;
        let flaw = match (&behind, &before, &wrong_behind, &wrong_before) {
            (Err(Failure::Refused(why)), ..) => Some(format!("an upload with its checksum behind the data: {why}")),
            (_, Err(Failure::Refused(why)), ..) => Some(format!("an upload with its checksum before the data: {why}")),
            (.., Ok(()), _) => Some("a wrong checksum behind the data is taken for right".to_owned()),
            (.., Ok(())) => Some("a wrong checksum before the data is taken for right".to_owned()),
            _ => None,
        };
        let unanswered = [&behind, &wrong_behind, &before, &wrong_before].into_iter().find_map(|tried| match tried {
            Err(Failure::Unanswered(why)) => Some(why.clone()),
            _ => None,
        });
        let configured = self.config.checksums;
        let (set, outcome, why) = match (configured, flaw, unanswered) {
            (Checksums::Forward, Some(flaw), _) => (Checksums::Verify, Outcome::Change, flaw),
            (Checksums::Forward, None, Some(why)) => (configured, Outcome::Unanswered, why),
            (Checksums::Forward, None, None) => (configured, Outcome::Works, "the store checks them".to_owned()),
            (Checksums::Verify, Some(flaw), _) => (configured, Outcome::Works, flaw),
            (Checksums::Verify, None, Some(why)) => (configured, Outcome::Works, format!("of \"forward\" nothing is known: {why}")),
            (Checksums::Verify, None, None) => (configured, Outcome::Works, "\"forward\" would do as well".to_owned()),
        };
        report.found("checksums", named(configured), named(set), outcome, why);
        self.config.checksums = set;
    }

    /// Whether the store takes a document as new SDKs send it, without an MD5. It deletes a probe object.
    async fn content_md5(&mut self, report: &mut Report) {
        let key = self.key("header");
        let document = format!("<Delete><Object><Key>{key}</Key></Object><Quiet>true</Quiet></Delete>").into_bytes();
        let mut plain = vec![("content-type", "application/xml".to_owned())];
        match self.config.payload_signing {
            PayloadSigning::Never => plain.push(("x-amz-content-sha256", UNSIGNED_PAYLOAD.to_owned())),
            _ => plain.push(("x-amz-content-sha256", hash_of(&document))),
        }
        if self.config.checksums == Checksums::Forward {
            plain.push((CRC32, sum(Algorithm::Crc32, &document)));
        }
        let with_md5 = [plain.clone(), vec![("content-md5", sum(Algorithm::Md5, &document))]].concat();
        let path = format!("/{}?delete=", self.bucket);
        let mut tries = Vec::new();
        for headers in [plain, with_md5] {
            let tried = self.asker.ask(Method::POST, &path, &headers, Carried::plain(&document)).await;
            tries.push(match tried {
                Ok(said) if has(&said, "<DeleteResult") => Ok(()),
                Ok(said) => Err(Failure::Refused(said.to_string())),
                Err(why) => Err(Failure::Unanswered(why)),
            });
        }
        let configured = self.config.content_md5;
        let (set, outcome, why) = match (configured, &tries[0], &tries[1]) {
            (false, Ok(()), _) => (false, Outcome::Works, String::new()),
            (_, Err(Failure::Unanswered(why)), _) | (_, _, Err(Failure::Unanswered(why))) => {
                (configured, Outcome::Unanswered, format!("DeleteObjects: {why}"))
            }
            (false, Err(why), Ok(())) => (true, Outcome::Change, format!("DeleteObjects without one: {why}")),
            (true, Ok(()), Ok(())) => (true, Outcome::Works, "DeleteObjects does not need it".to_owned()),
            (true, Err(why), Ok(())) => (true, Outcome::Works, format!("DeleteObjects without one: {why}")),
            (_, _, Err(why)) => (configured, Outcome::Untried, format!("DeleteObjects with one: {why}")),
        };
        report.found("content_md5", configured, set, outcome, why);
    }

    async fn clean_up(self, report: &mut Report) {
        let (left, late) = self.written.clean_up(&self.asker).await;
        report.left_behind = left;
        for key in late {
            report.notes.push(format!("the upload of {key} was not answered: should it arrive yet, that object stays"));
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.ground.prefix)
    }

    /// Writes a probe object and reads it again: whether it was taken, and is what was meant.
    async fn put(&mut self, name: &str, headers: Vec<(&'static str, String)>, carried: Carried) -> Result<(), Failure> {
        let key = self.key(name);
        let path = object_path(&self.bucket, &key, None);
        self.written.begun(&key);
        let said = self.asker.ask(Method::PUT, &path, &headers, carried).await.map_err(Failure::Unanswered)?;
        self.written.answered(&key, &said);
        if !said.is_ok() {
            return Err(Failure::Refused(said.to_string()));
        }
        let stored = read(&self.asker, &path).await.map_err(Failure::Unanswered)?;
        if stored.is_ok() && stored.body == DATA {
            return Ok(());
        }
        Err(Failure::Refused(format!("taken, but what is stored is not what was sent ({stored})")))
    }

    async fn put_trailer(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let always = self.config.payload_signing == PayloadSigning::Always;
        let sha256 = if always { SIGNED_CHUNKS_TRAILER } else { UNSIGNED_CHUNKS_TRAILER };
        let headers = vec![
            ("x-amz-content-sha256", sha256.to_owned()),
            ("x-amz-decoded-content-length", DATA.len().to_string()),
            ("x-amz-trailer", CRC32.to_owned()),
            ("x-amz-sdk-checksum-algorithm", "CRC32".to_owned()),
        ];
        let carried = match always {
            true => Carried { data: DATA.to_vec(), trailer: Some((CRC32, value.to_owned())) },
            false => {
                let end = format!("\r\n0\r\n{CRC32}:{value}\r\n\r\n");
                Carried::plain(&[format!("{:x}\r\n", DATA.len()).as_bytes(), DATA, end.as_bytes()].concat())
            }
        };
        self.put(name, headers, carried).await
    }
}

/// Whether the store took all of them; nothing where no answer says that it did not, and one is missing.
fn all_taken(tries: &[&Result<(), Failure>]) -> Option<bool> {
    let refused = tries.iter().any(|tried| matches!(tried, Err(Failure::Refused(_))));
    if refused { Some(false) } else { tries.iter().all(|tried| tried.is_ok()).then_some(true) }
}

async fn open(config: &BackendConfig, ground: &Ground<'_>) -> Result<Asker, String> {
    Asker::open(config, ground.now).await.map_err(|error| error.to_string())
}

async fn read(asker: &Asker, path: &str) -> Tried {
    asker.ask(Method::GET, path, &[], Carried::default()).await
}

fn region_found(report: &mut Report, configured: &str, found: &str) {
    let (outcome, why) = match found == configured {
        true => (Outcome::Works, String::new()),
        false => (Outcome::Change, "the store names this one as its own, or as the bucket's".to_owned()),
    };
    report.found("region", configured, found, outcome, why);
}

/// The region that the store wants, where it refuses that of the settings.
fn other_region(said: &Said, configured: &str) -> Option<String> {
    said.region.clone().filter(|region| region != configured && !said.is_ok())
}

fn in_head(value: &str) -> Vec<(&'static str, String)> {
    vec![("x-amz-content-sha256", hash_of(DATA)), (CRC32, value.to_owned())]
}

fn hash_of(data: &[u8]) -> String {
    String::from_utf8_lossy(&hex32(&Sha256::digest(data).into())).into_owned()
}

fn sum(algorithm: Algorithm, data: &[u8]) -> String {
    let mut checksum = Checksum::new(algorithm);
    checksum.update(data);
    checksum.encoded()
}

fn has(said: &Said, text: &str) -> bool {
    said.body.windows(text.len()).any(|window| window == text.as_bytes())
}

fn between(said: &Said, start: &str, end: &str) -> Option<String> {
    let text = std::str::from_utf8(&said.body).ok()?;
    let from = text.find(start)? + start.len();
    let name = &text[from..from + text[from..].find(end)?];
    crate::types::BucketName::new(name).is_some().then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_is_neither_taken_nor_refused() {
        let (taken, refused, silent) = (Ok(()), Err(Failure::Refused("403".into())), Err(Failure::Unanswered("late".into())));
        assert_eq!(all_taken(&[&taken, &taken]), Some(true));
        assert_eq!(all_taken(&[&taken, &silent]), None);
        assert_eq!(all_taken(&[&silent, &refused]), Some(false));
    }
}
