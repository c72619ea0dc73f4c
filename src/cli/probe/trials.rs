//! What writing finds out, in order: each try uses what those before it found to work. In come the settings of a backend and a
//! bucket, out goes a [`Report`]. Invariants: nothing is written without leave; whatever was written is deleted, also after a
//! failure or a signal; every attempt has its time, and one that was not answered tells nothing of what a store takes.

use http::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::asker::{Asker, Carried, Said, Silence};
use super::diagnosis::{Kind, Problem};
use super::reach::{NO_BUCKET, reach};
use super::report::{Outcome, Report};
use super::written::Written;
use super::{Ground, accounts};
use crate::backend::s3::chunks::{SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER};
use crate::backend::s3::object_path;
use crate::backend::s3::sign::UNSIGNED_PAYLOAD;
use crate::checksum::{Algorithm, Checksum};
use crate::cli::{EXIT_FAILED, complain};
use crate::config::{BackendConfig, Checksums, PayloadSigning};
use crate::types::hex32;

const CRC32: &str = "x-amz-checksum-crc32";

/// What the probe objects hold.
const DATA: &[u8] = b"written by batchgate config check --probe, which deletes it again";

/// A checksum that [`DATA`] and the list of a delete do not have.
const WRONG: &str = "AAAAAQ==";

/// Why an upload did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// Who asks may not write there.
    Denied(String),
    /// The store said no, or did something else.
    Refused(String),
    /// The store said nothing: it may be slow, or away.
    Unanswered(String),
}

impl Failure {
    /// Why the store did not take it, where it said so.
    fn refusal(&self) -> Option<&str> {
        match self {
            Self::Denied(why) | Self::Refused(why) => Some(why),
            Self::Unanswered(_) => None,
        }
    }

    fn silence(&self) -> Option<&str> {
        match self {
            Self::Unanswered(why) => Some(why),
            Self::Denied(_) | Self::Refused(_) => None,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Denied(why) | Self::Refused(why) | Self::Unanswered(why)) = self;
        f.write_str(why)
    }
}

/// Tries all of it, until `told` to end.
pub async fn probe(config: &BackendConfig, ground: &Ground<'_>, told: &mut oneshot::Receiver<()>) -> Report {
    let mut report = Report { accounts_untried: ground.accounts.len(), ..Report::new(&config.name, &config.endpoint) };
    let begun = tokio::select! {
        begun = Trial::begin(config, ground, &mut report) => Some(begun),
        _ = &mut *told => None,
    };
    match begun {
        Some(Some(mut trial)) => {
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
        Some(None) if report.reached => {
            let why = match ground.may_write {
                true => NO_BUCKET,
                false => "only tried with --probe-bucket, which writes small objects to that bucket and deletes them",
            };
            untried(&mut report, &unwritten(config), why);
        }
        Some(None) => {}
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

fn untried(report: &mut Report, settings: &[(&'static str, Value)], why: &str) {
    for (key, value) in settings {
        report.found(key, value.clone(), value.clone(), Outcome::Untried, why);
    }
}

/// The word for a setting's value.
pub fn named(value: impl serde::Serialize) -> Value {
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
    /// All that only reading finds out. Nothing is left to try where nothing may be written, or there is nowhere to.
    async fn begin(config: &BackendConfig, ground: &'a Ground<'a>, report: &mut Report) -> Option<Self> {
        let mut reached = reach(config, ground, report).await?;
        accounts::try_all(&reached.config, ground, report).await;
        let bucket = match reached.takes_us {
            true => reached.bucket(ground, report).await,
            false => None,
        };
        let found = &reached.config.region;
        if *found != config.region {
            let why = "the store names this one as its own, or as the bucket's";
            report.found("region", config.region.clone(), found.clone(), Outcome::Change, why);
        } else if reached.takes_us {
            report.found("region", found.clone(), found.clone(), Outcome::Works, "");
        }
        report.settings.sort_by_key(|setting| setting.key != "region");
        let bucket = bucket.filter(|_| ground.may_write)?;
        let written = Written::new(&bucket, &ground.prefix);
        Some(Self { config: reached.config, asker: reached.asker, bucket, ground, written })
    }

    /// Tries all that only writing tries.
    async fn writing(&mut self, report: &mut Report) {
        if self.payload_signing(report).await {
            self.checksums(report).await;
            self.content_md5(report).await;
        } else {
            untried(report, &unwritten(&self.config)[1..], "no upload works that it could be tried with");
        }
    }

    /// Which bodies the store takes, by how they are signed; whether it takes any.
    async fn payload_signing(&mut self, report: &mut Report) -> bool {
        let sha256 = |value: &str| vec![("x-amz-content-sha256", value.to_owned())];
        let unsigned = self.put("unsigned", sha256(UNSIGNED_PAYLOAD), Carried::plain(DATA)).await;
        let hashed = self.put("hashed", sha256(&hash_of(DATA)), Carried::plain(DATA)).await;
        let mut headers = sha256(SIGNED_CHUNKS);
        headers.push(("x-amz-decoded-content-length", DATA.len().to_string()));
        let chunks = self.put("chunks", headers, Carried::plain(DATA)).await;
        let configured = self.config.payload_signing;
        if let (Err(Failure::Denied(why)), Err(Failure::Denied(_)), Err(Failure::Denied(_))) = (&unsigned, &hashed, &chunks) {
            let why = format!("these credentials may not write to the bucket {:?} ({why})", self.bucket);
            let fix = "allow them s3:PutObject, s3:GetObject and s3:DeleteObject there, or name another bucket";
            report.problems.push(Problem::new(Kind::Bucket, why, fix));
            untried(report, &unwritten(&self.config)[..1], "no upload works that it could be tried with");
            return false;
        }
        let tries = [("an unsigned body", unsigned), ("a body signed by its hash", hashed), ("signed chunks", chunks)];
        let needed = |signing| match signing {
            PayloadSigning::WhenKnown => &tries[..2],
            PayloadSigning::Never => &tries[..1],
            PayloadSigning::Always => &tries[1..],
        };
        let fits = |signing| all_taken(needed(signing).iter().map(|(_, tried)| tried));
        let choices = [PayloadSigning::WhenKnown, PayloadSigning::Always, PayloadSigning::Never];
        let other = choices.into_iter().find(|signing| fits(*signing) == Some(true));
        let default = PayloadSigning::default();
        let (set, outcome, why) = match (fits(configured), fits(default), other) {
            (Some(true), Some(true), _) if configured != default => {
                (configured, Outcome::Works, format!("{} would do as well", named(default)))
            }
            (Some(true), Some(false), _) => (configured, Outcome::Works, format!("needed: {}", refusals(needed(default)))),
            (Some(true), ..) => (configured, Outcome::Works, String::new()),
            (Some(false), _, Some(other)) => (other, Outcome::Change, refusals(needed(configured))),
            (None, ..) => (configured, Outcome::Unanswered, refusals(needed(configured))),
            (Some(false), _, None) if choices.iter().any(|signing| fits(*signing).is_none()) => {
                (configured, Outcome::Unanswered, refusals(&tries))
            }
            (Some(false), _, None) => (configured, Outcome::Fails, refusals(&tries)),
        };
        report.found("payload_signing", named(configured), named(set), outcome, why);
        self.config.payload_signing = set;
        outcome != Outcome::Fails
    }

    /// Whether the store checks what the gateway would leave to it.
    async fn checksums(&mut self, report: &mut Report) {
        let right = sum(Algorithm::Crc32, DATA);
        let behind = self.put_trailer("trailer", &right).await;
        let wrong_behind = self.put_trailer("wrong-trailer", WRONG).await;
        let before = self.put("header", in_head(&right), Carried::plain(DATA)).await;
        let wrong_before = self.put("wrong-header", in_head(WRONG), Carried::plain(DATA)).await;
        let refused = |tried: &Result<(), Failure>| tried.as_ref().err().and_then(Failure::refusal).map(str::to_owned);
        let flaw = match (refused(&behind), refused(&before)) {
            (Some(why), _) => Some(format!("an upload with its checksum behind the data: {why}")),
            (None, Some(why)) => Some(format!("an upload with its checksum before the data: {why}")),
            (None, None) if wrong_behind.is_ok() => Some("the store takes a wrong checksum behind the data for right".to_owned()),
            (None, None) if wrong_before.is_ok() => Some("the store takes a wrong checksum before the data for right".to_owned()),
            (None, None) => None,
        };
        let tries = [&behind, &wrong_behind, &before, &wrong_before];
        let unanswered = tries.into_iter().find_map(|tried| tried.as_ref().err()?.silence());
        let configured = self.config.checksums;
        let (set, outcome, why) = match (configured, flaw, unanswered) {
            (Checksums::Forward, Some(flaw), _) => (Checksums::Verify, Outcome::Change, flaw),
            (Checksums::Forward, None, Some(why)) => (configured, Outcome::Unanswered, why.to_owned()),
            (Checksums::Forward, None, None) => (configured, Outcome::Works, String::new()),
            (Checksums::Verify, Some(flaw), _) => (configured, Outcome::Works, format!("needed: {flaw}")),
            (Checksums::Verify, None, Some(_)) => (configured, Outcome::Works, String::new()),
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
                Err(silence) => Err(Failure::Unanswered(silence.to_string())),
            });
        }
        let configured = self.config.content_md5;
        let (set, outcome, why) = match (configured, &tries[0], &tries[1]) {
            (false, Ok(()), _) => (false, Outcome::Works, String::new()),
            (_, Err(Failure::Unanswered(why)), _) | (_, _, Err(Failure::Unanswered(why))) => {
                (configured, Outcome::Unanswered, format!("DeleteObjects: {why}"))
            }
            (false, Err(why), Ok(())) => (true, Outcome::Change, format!("DeleteObjects without one: {why}")),
            (true, Ok(()), Ok(())) => (true, Outcome::Works, "false would do as well".to_owned()),
            (true, Err(why), Ok(())) => (true, Outcome::Works, format!("needed: DeleteObjects without one: {why}")),
            (_, _, Err(why)) => (configured, Outcome::Untried, format!("DeleteObjects, with one or without: {why}")),
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
        let unanswered = |silence: Silence| Failure::Unanswered(silence.to_string());
        let said = self.asker.ask(Method::PUT, &path, &headers, carried).await.map_err(unanswered)?;
        self.written.answered(&key, &said);
        match said.code.as_deref() {
            _ if said.is_ok() => {}
            Some("AccessDenied") => return Err(Failure::Denied(said.to_string())),
            _ => return Err(Failure::Refused(said.to_string())),
        }
        let stored = self.asker.read(&path).await.map_err(unanswered)?;
        match stored.is_ok() {
            true if stored.body == DATA => Ok(()),
            true => Err(Failure::Refused("taken, but what is stored is not what was sent".to_owned())),
            false => Err(Failure::Refused(format!("taken, but what is stored cannot be read: {stored}"))),
        }
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
fn all_taken<'t>(tries: impl Iterator<Item = &'t Result<(), Failure>> + Clone) -> Option<bool> {
    let refused = tries.clone().any(|tried| tried.as_ref().is_err_and(|failure| failure.refusal().is_some()));
    let mut tries = tries;
    if refused { Some(false) } else { tries.all(Result::is_ok).then_some(true) }
}

/// What was not taken, and why.
fn refusals(tries: &[(&str, Result<(), Failure>)]) -> String {
    let failed = tries.iter().filter_map(|(what, tried)| Some(format!("{what}: {}", tried.as_ref().err()?)));
    failed.collect::<Vec<_>>().join("; ")
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

/// Whether `text` stands in the document.
pub fn has(said: &Said, text: &str) -> bool {
    said.document().contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_is_neither_taken_nor_refused() {
        let (taken, refused, silent) = (Ok(()), Err(Failure::Refused("403".into())), Err(Failure::Unanswered("late".into())));
        assert_eq!(all_taken([&taken, &taken].into_iter()), Some(true));
        assert_eq!(all_taken([&taken, &silent].into_iter()), None);
        assert_eq!(all_taken([&silent, &refused].into_iter()), Some(false));
    }
}
