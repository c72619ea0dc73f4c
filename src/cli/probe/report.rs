//! What a probe found of one backend: a line for each setting, as it would stand in the settings file. Text for people, or data
//! for scripts. Pure.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::cli::{EXIT_FAILED, EXIT_OK, EXIT_USAGE};

/// What is to be made of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was tried as it is, and it works.
    Works,
    /// It does not work as it is; `set` does.
    Change,
    /// Nothing that there is to set works.
    Fails,
    /// It was not tried, or the tries say nothing.
    Untried,
    /// It was tried, and the store gave no answer.
    Unanswered,
}

/// One setting of the backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key in `[[backends]]`.
    pub key: &'static str,
    /// What the settings say.
    pub configured: Value,
    /// What to set, which may be the same.
    pub set: Value,
    /// Whether that was seen to work.
    pub outcome: Outcome,
    /// Why, in one sentence; may be empty.
    pub why: String,
}

/// All that was found of one backend.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// Its endpoint; nothing for an embedded store.
    pub endpoint: String,
    /// Whether it answers as an S3 store that takes the credentials.
    pub reached: bool,
    /// What else there is to say, in sentences.
    pub notes: Vec<String>,
    /// One for each setting that can be tried.
    pub settings: Vec<Setting>,
    /// Probe objects that could not be deleted.
    pub left_behind: Vec<String>,
    /// Whether it was told to end before all was tried.
    pub interrupted: bool,
}

impl Report {
    /// Nothing is known yet.
    pub fn new(backend: &str, endpoint: &str) -> Self {
        Self {
            backend: backend.to_owned(),
            endpoint: endpoint.to_owned(),
            reached: false,
            notes: Vec::new(),
            settings: Vec::new(),
            left_behind: Vec::new(),
            interrupted: false,
        }
    }

    /// Adds what was found of a setting.
    pub fn found(&mut self, key: &'static str, configured: impl Into<Value>, set: impl Into<Value>, outcome: Outcome, why: String) {
        self.settings.push(Setting { key, configured: configured.into(), set: set.into(), outcome, why });
    }

    /// The exit code: 0 all works as it is set, 2 something is to be set otherwise, 3 it could not be found out or nothing works.
    pub fn exit(&self) -> u8 {
        let has = |outcome| self.settings.iter().any(|setting| setting.outcome == outcome);
        let unknown = self.interrupted || has(Outcome::Unanswered);
        if !self.reached || unknown || !self.left_behind.is_empty() || has(Outcome::Fails) {
            EXIT_FAILED
        } else if has(Outcome::Change) {
            EXIT_USAGE
        } else {
            EXIT_OK
        }
    }

    /// For people: every line of a setting can be pasted into the file.
    pub fn text(&self) -> String {
        let mut out = format!("backend {}", self.backend);
        if !self.endpoint.is_empty() {
            let _ = write!(out, " at {}", self.endpoint);
        }
        out.push_str(if self.reached { "\n" } else { ": FAILED\n" });
        for note in &self.notes {
            let _ = writeln!(out, "  # {note}");
        }
        for Setting { key, configured, set, outcome, why } in &self.settings {
            let said = match outcome {
                Outcome::Works => "works".to_owned(),
                Outcome::Change => format!("CHANGE, from {configured}"),
                Outcome::Fails => "FAILED".to_owned(),
                Outcome::Untried | Outcome::Unanswered => "not known".to_owned(),
            };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            let line = format!("{key} = {set}");
            let _ = writeln!(out, "  {line:<32}  # {said}{why}");
        }
        for key in &self.left_behind {
            let _ = writeln!(out, "  # LEFT BEHIND: the probe object {key} could not be deleted");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let mut report = Report { reached: true, notes: vec!["answers".into()], ..Report::new("store", "http://a:1") };
        outcomes.iter().for_each(|outcome| report.found("checksums", "forward", "verify", *outcome, "it refuses them".into()));
        report
    }

    #[test]
    fn the_worst_that_was_found_is_the_exit_code() {
        use Outcome::{Change, Fails, Unanswered, Untried, Works};
        let cases = [(vec![Works, Untried], 0), (vec![Works, Change], 2), (vec![Change, Fails], 3), (vec![Change, Unanswered], 3)];
        for (outcomes, exit) in cases {
            assert_eq!(report(&outcomes).exit(), exit, "{outcomes:?}");
        }
        assert_eq!(Report { reached: false, ..report(&[Works]) }.exit(), 3);
        assert_eq!(Report { interrupted: true, ..report(&[Works]) }.exit(), 3);
        assert_eq!(Report { left_behind: vec!["k".into()], ..report(&[Works]) }.exit(), 3);
    }

    #[test]
    fn every_line_is_toml() {
        let mut report = report(&[Outcome::Change, Outcome::Works]);
        report.settings[1].key = "content_md5";
        report.settings[1].set = true.into();
        let text = report.text();
        let lines: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let table: toml::Table = lines.parse().expect("TOML");
        assert_eq!((table["checksums"].as_str(), table["content_md5"].as_bool()), (Some("verify"), Some(true)));
        assert!(text.contains("# CHANGE, from \"forward\": it refuses them\n"), "{text}");
    }
}
