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

use super::check_policy;
use super::config::{World, settings};
use super::serve::first_identity;
use crate::app::reload::Reloader;
use crate::config::{BackendConfig, Flag, IdentityConfig, RouteConfig, Settings};
use crate::telemetry::LogLevel;

/// What the files that settings lead to had in them: a hash, or why there is none.
pub(super) type Seen = BTreeMap<PathBuf, Result<[u8; 32], io::ErrorKind>>;

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
        let read_file = |path: &Path| {
            let is_config = self.config.as_deref() == Some(path);
            if let (true, When::Change, Some(text)) = (is_config, when, &self.text) {
                return Ok(text.clone());
            }
            let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
            // A pipe has been read at the start, and would be waited for in vain.
            let read = if is_special && when != When::Start { Err(irregular()) } else { fs::read(path) };
            if is_config {
                let read = String::from_utf8(read?).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                *text.borrow_mut() = Some(read.clone());
                return Ok(read);
            }
            if !is_special || when != When::Start {
                seen.borrow_mut().entry(path.to_owned()).or_insert_with(|| hashed(&read));
            }
            String::from_utf8(read?).map_err(|_| io::ErrorKind::InvalidData.into())
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
    interval: Duration,
    log: LogLevel,
}

impl Watch {
    /// Looks every `interval`, never if that is nothing; begins with what `source` was read from.
    pub(super) fn new(source: Source, seen: Seen, interval: Duration, log: LogLevel) -> Self {
        Self { source, seen, candidate: None, interval, log }
    }

    /// Gives `reloader` what there is to give; never ends.
    pub(super) async fn run(mut self, reloader: Arc<Reloader>, mut hangup: Signal) {
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let by_hand = tokio::select! {
                _ = hangup.recv() => true,
                _ = ticks.tick(), if !self.interval.is_zero() => false,
            };
            // Files may lie where reading takes long.
            let done = tokio::task::spawn_blocking(move || {
                let loaded = if by_hand { Some(self.load(When::Hangup)) } else { self.look() };
                (self, loaded)
            });
            let loaded;
            (self, loaded) = done.await.expect("reading does not panic");
            if let Some(loaded) = loaded {
                reloader.reload(loaded, &self.log);
            }
        }
    }

    /// Reads if what was there at the last look is there still, and was not read yet.
    fn look(&mut self) -> Option<Result<Settings, Vec<String>>> {
        let now: Seen = self.seen.keys().map(|path| (path.clone(), hashed(&read_again(path)))).collect();
        if now == self.seen {
            self.candidate = None;
            return None;
        }
        if self.candidate.as_ref() != Some(&now) {
            self.candidate = Some(now);
            return None;
        }
        Some(self.load(When::Change))
    }

    fn load(&mut self, when: When) -> Result<Settings, Vec<String>> {
        self.candidate = None;
        let read = self.source.read(when);
        let same_text = when == When::Change || read.text == self.source.text;
        // A settings file that was refused leads nowhere: the files of the one in force are watched on, and read with it.
        if read.loaded.is_ok() || same_text {
            self.seen = read.seen;
        }
        if read.loaded.is_ok() && read.text.is_some() {
            self.source.text = read.text;
        }
        read.loaded
    }
}

/// What replaced a regular file might never come to an end.
fn read_again(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() { fs::read(path) } else { Err(irregular()) }
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "it is no regular file, so it cannot be read again")
}
