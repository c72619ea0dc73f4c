//! Reads settings again. What enters is a hangup or time going by; what leaves is loaded settings, or what is wrong with them,
//! for whoever puts them in force. Invariant: a changed file is read only once its content was the same twice in a row, so
//! that a half-written one is not taken for a whole one; and what was read once, good or bad, is not read for nothing again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;

use super::config::{World, settings};
use super::serve::first_identity;
use super::{check_policy, files};
use crate::app::reload::Reloader;
use crate::config::{BackendConfig, Flag, IdentityConfig, RouteConfig, Settings};
use crate::telemetry::LogLevel;

/// What the files that settings lead to had in them.
pub(super) type Seen = BTreeMap<PathBuf, Found>;

/// What a file had in it, of so many bytes at most.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Found {
    bytes_max: u64,
    /// A hash, or why there is none.
    content: Result<[u8; 32], io::ErrorKind>,
}

/// Where the settings of this process come from.
pub(super) struct Source {
    config: Option<PathBuf>,
    flags: Vec<Flag>,
    env: Vec<(String, String)>,
    /// The text of the settings file that is in force.
    text: Option<String>,
    /// Whoever may do everything where there is no file; the same as long as the process runs.
    made: Option<IdentityConfig>,
}

/// When settings are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// At the start: any file will do, a pipe too.
    Start,
    /// By hand, the settings file too.
    Hangup,
    /// Because a file that they name has changed.
    Change,
}

/// What came of reading.
struct Read {
    loaded: Result<Settings, Vec<String>>,
    seen: Seen,
    text: Option<String>,
}

impl Source {
    pub(super) fn new(config: Option<PathBuf>, flags: Vec<Flag>, env: Vec<(String, String)>) -> Self {
        Self { config, flags, env, text: None, made: None }
    }

    /// The settings to start with, and what they were read from.
    pub(super) fn first(&mut self) -> (Result<Settings, Vec<String>>, Seen) {
        let read = self.read(When::Start);
        self.text = read.text;
        (read.loaded, read.seen)
    }

    /// The identity that was made because nobody named one.
    pub(super) fn made_identity(&self) -> Option<&IdentityConfig> {
        self.made.as_ref()
    }

    fn read(&mut self, when: When) -> Read {
        let seen = RefCell::new(Seen::new());
        let text = RefCell::new(None);
        let read_file = |path: &Path, bytes_max: u64| {
            let is_config = self.config.as_deref() == Some(path);
            if let (true, When::Change, Some(text)) = (is_config, when, &self.text) {
                return Ok(text.clone());
            }
            let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
            // A pipe has been read at the start, and would be waited for in vain.
            let read = if is_special && when != When::Start { Err(irregular()) } else { files::read(path, bytes_max) };
            if is_config {
                let read = files::text(read?)?;
                *text.borrow_mut() = Some(read.clone());
                return Ok(read);
            }
            if !is_special || when != When::Start {
                seen.borrow_mut().entry(path.to_owned()).or_insert_with(|| Found { bytes_max, content: hashed(&read) });
            }
            files::text(read?)
        };
        let world = World { env: self.env.clone(), read_file: &read_file, check_policy: &check_policy };
        let loaded = settings(self.config.as_deref(), self.flags.clone(), &world)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
            .and_then(|settings| complete(settings, self.config.is_some(), &mut self.made));
        Read { loaded, seen: seen.into_inner(), text: text.into_inner() }
    }
}

fn hashed(read: &io::Result<Vec<u8>>) -> Result<[u8; 32], io::ErrorKind> {
    read.as_ref().map(|bytes| Sha256::digest(bytes).into()).map_err(io::Error::kind)
}

/// Adds what a process without a settings file needs, and refuses a file without a backend.
fn complete(mut settings: Settings, has_file: bool, made: &mut Option<IdentityConfig>) -> Result<Settings, Vec<String>> {
    if settings.backends.is_empty() {
        // Whoever wrote a file and forgot the store must not find out when its data is lost.
        if has_file {
            let what = "there is no backend to serve. Give --backend URL, or a [[backends]] table in the settings file \
                        (name, kind = \"s3\", endpoint; or kind = \"embedded\" for a store in memory); see config/minimal.toml";
            return Err(vec![what.to_owned()]);
        }
        // All buckets in an embedded store, for a first try without any settings.
        let backend = BackendConfig::embedded("store");
        settings.routes.push(RouteConfig { bucket: "*".to_owned(), backend: backend.name.clone(), rename: None });
        settings.backends.push(backend);
    }
    if settings.identities.is_empty() && !has_file {
        settings.identities.push(made.get_or_insert_with(first_identity).clone());
    }
    Ok(settings)
}

/// Notices that settings should be read again.
pub(super) struct Watch {
    source: Source,
    /// What was read last, whatever came of it.
    seen: Seen,
    /// What was there at the last look, where that is something else.
    candidate: Option<Seen>,
    refused: Refused,
    interval: Duration,
}

/// The numbers of problems in what was refused and is still there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Refused {
    /// A settings file, and what it names. It is read on a hangup only, so it is refused until a hangup finds a better one.
    settings: Option<usize>,
    /// Files that the settings in force name.
    files: Option<usize>,
}

impl Refused {
    /// For `/readyz`, a line each.
    fn lines(&self) -> Option<String> {
        let settings = self.settings.map(|problems| {
            format!("reload: the settings file was refused on SIGHUP (problems: {problems}, see the log), that of before stays")
        });
        let files = self.files.map(|problems| {
            format!("reload: files that the settings name were refused (problems: {problems}, see the log), those of before stay")
        });
        let lines: Vec<String> = settings.into_iter().chain(files).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

impl Watch {
    /// Looks every `interval`, never if that is nothing; begins with what `source` was read from.
    pub(super) fn new(source: Source, seen: Seen, interval: Duration) -> Self {
        Self { source, seen, candidate: None, refused: Refused::default(), interval }
    }

    /// Gives `reloader` what there is to give, and `log` to change; never ends.
    pub(super) async fn run(mut self, reloader: Arc<Reloader>, log: LogLevel, mut hangup: Signal) {
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let by_hand = tokio::select! {
                _ = hangup.recv() => true,
                _ = ticks.tick(), if !self.interval.is_zero() => false,
            };
            let when = if by_hand { When::Hangup } else { When::Change };
            // Files may lie where reading takes long.
            let done = tokio::task::spawn_blocking(move || {
                let read = (by_hand || self.has_changed()).then(|| self.source.read(when));
                (self, read)
            });
            let read;
            (self, read) = done.await.expect("reading does not panic");
            if let Some(Read { loaded, seen, text }) = read {
                let outcome = reloader.reload(loaded, &log);
                self.settle(when, seen, text, outcome);
                reloader.tell(self.refused.lines());
            }
        }
    }

    /// Whether what was there at the last look is there still, and was not read yet.
    fn has_changed(&mut self) -> bool {
        let look = |(path, found): (&PathBuf, &Found)| {
            let content = hashed(&read_again(path, found.bytes_max));
            (path.clone(), Found { bytes_max: found.bytes_max, content })
        };
        let now: Seen = self.seen.iter().map(look).collect();
        if now == self.seen {
            self.candidate = None;
            return false;
        }
        let twice = self.candidate.as_ref() == Some(&now);
        self.candidate = Some(now);
        twice
    }

    /// Keeps in mind what came of what was read: `Ok` where it is in force now.
    fn settle(&mut self, when: When, seen: Seen, text: Option<String>, outcome: Result<(), usize>) {
        self.candidate = None;
        let same_text = when == When::Change || text == self.source.text;
        let problems = outcome.err();
        // A settings file that was refused leads nowhere: the files of the one in force are watched on, and read with it.
        if !same_text && problems.is_some() {
            self.refused.settings = problems;
            return;
        }
        self.seen = seen;
        self.refused.files = problems;
        if when == When::Hangup {
            self.refused.settings = None;
            self.source.text = text;
        }
    }
}

/// What replaced a regular file might never come to an end.
fn read_again(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() { files::read(path, bytes_max) } else { Err(irregular()) }
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "it is no regular file, so it cannot be read again")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is refused after each step of: when, the text of the settings file, what came of it.
    fn refused_after(steps: &[(When, Option<&str>, Result<(), usize>)]) -> Vec<(Option<usize>, Option<usize>)> {
        let text = Some("old".to_owned());
        let source = Source { config: Some("gate.toml".into()), flags: Vec::new(), env: Vec::new(), text, made: None };
        let mut watch = Watch::new(source, Seen::new(), Duration::ZERO);
        let step = |(when, text, outcome): &(When, Option<&str>, Result<(), usize>)| {
            watch.settle(*when, Seen::new(), text.map(str::to_owned), *outcome);
            (watch.refused.settings, watch.refused.files)
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn a_refused_settings_file_is_remembered_until_a_hangup_finds_a_better_one() {
        use When::{Change, Hangup};
        let steps = [
            (Hangup, Some("bad"), Err(2)),
            (Change, None, Ok(())),
            (Change, None, Err(1)),
            (Change, None, Ok(())),
            (Hangup, Some("worse"), Err(3)),
            (Hangup, Some("new"), Ok(())),
        ];
        let expected = [(Some(2), None), (Some(2), None), (Some(2), Some(1)), (Some(2), None), (Some(3), None), (None, None)];
        assert_eq!(refused_after(&steps), expected);
    }

    #[test]
    fn what_the_settings_in_force_name_is_mended_by_a_change() {
        use When::{Change, Hangup};
        // The settings file is as it was, so what was refused are the files that it names.
        assert_eq!(refused_after(&[(Hangup, Some("old"), Err(1)), (Change, None, Ok(()))]), [(None, Some(1)), (None, None)]);
        // It is put back as it was, and then a hangup finds nothing wrong with it.
        let steps = [(Hangup, Some("bad"), Err(2)), (Hangup, Some("old"), Err(1)), (Hangup, None, Err(1)), (Change, None, Ok(()))];
        assert_eq!(refused_after(&steps), [(Some(2), None), (None, Some(1)), (Some(1), Some(1)), (Some(1), None)]);
    }
}
