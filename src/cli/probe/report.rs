//! What a probe found of one backend, as data for scripts, and the exit code that follows. Pure.

use serde::Serialize;
use serde_json::Value;

use super::diagnosis::Problem;
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

/// What became of an account of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Taken {
    /// The store does not refuse the pair, whatever it lets it do.
    Works,
    /// It does not.
    Refused,
    /// It did not say.
    Unanswered,
}

/// An account that identities have at the backend.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// The identities that have it.
    pub identities: Vec<String>,
    /// Whether the store takes it.
    pub outcome: Taken,
    /// The code of the store's error, if it sent one.
    pub code: Option<String>,
    /// Why it is not taken, in one sentence; may be empty.
    pub why: String,
    /// What to do; may be empty.
    pub fix: String,
}

/// All that was found of one backend. What it is serialised to is described by `config check --help`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// Its endpoint; nothing for an embedded store.
    pub endpoint: String,
    /// Whether it answers as an S3 store that takes the credentials.
    pub reached: bool,
    /// What kept it from being tried.
    pub problems: Vec<Problem>,
    /// One for each setting that can be tried.
    pub settings: Vec<Setting>,
    /// One for each account of identities that was tried.
    pub accounts: Vec<Account>,
    /// How many more there are.
    pub accounts_untried: usize,
    /// What else there is to say, in sentences.
    pub notes: Vec<String>,
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
            problems: Vec::new(),
            settings: Vec::new(),
            accounts: Vec::new(),
            accounts_untried: 0,
            notes: Vec::new(),
            left_behind: Vec::new(),
            interrupted: false,
        }
    }

    /// Adds what was found of a setting.
    pub fn found(
        &mut self,
        key: &'static str,
        configured: impl Into<Value>,
        set: impl Into<Value>,
        outcome: Outcome,
        why: impl Into<String>,
    ) {
        self.settings.push(Setting { key, configured: configured.into(), set: set.into(), outcome, why: why.into() });
    }

    /// The exit code: 0 all works as it is set, 2 something is to be set otherwise, 3 it could not be found out or nothing works.
    pub fn exit(&self) -> u8 {
        let has = |outcome| self.settings.iter().any(|setting| setting.outcome == outcome);
        let an_account = |outcome| self.accounts.iter().any(|account| account.outcome == outcome);
        let unknown = self.interrupted || has(Outcome::Unanswered) || an_account(Taken::Unanswered);
        if !self.reached || !self.problems.is_empty() || unknown || !self.left_behind.is_empty() || has(Outcome::Fails) {
            EXIT_FAILED
        } else if has(Outcome::Change) || an_account(Taken::Refused) {
            EXIT_USAGE
        } else {
            EXIT_OK
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::probe::diagnosis::Kind;

    #[test]
    fn the_worst_that_was_found_is_the_exit_code() {
        use Outcome::{Change, Fails, Unanswered, Untried, Works};
        let report = |outcomes: &[Outcome]| {
            let mut report = Report { reached: true, ..Report::new("store", "http://a:1") };
            outcomes.iter().for_each(|outcome| report.found("checksums", "forward", "verify", *outcome, ""));
            report
        };
        let cases = [(vec![Works, Untried], 0), (vec![Works, Change], 2), (vec![Change, Fails], 3), (vec![Change, Unanswered], 3)];
        for (outcomes, exit) in cases {
            assert_eq!(report(&outcomes).exit(), exit, "{outcomes:?}");
        }
        assert_eq!(Report { reached: false, ..report(&[Works]) }.exit(), 3);
        assert_eq!(Report { interrupted: true, ..report(&[Works]) }.exit(), 3);
        assert_eq!(Report { left_behind: vec!["k".into()], ..report(&[Works]) }.exit(), 3);
        assert_eq!(Report { problems: vec![Problem::new(Kind::Bucket, "", "")], ..report(&[Works]) }.exit(), 3);
        for (outcome, exit) in [(Taken::Works, 0), (Taken::Refused, 2), (Taken::Unanswered, 3)] {
            let account = Account { identities: vec!["a".into()], outcome, code: None, why: String::new(), fix: String::new() };
            assert_eq!(Report { accounts: vec![account], ..report(&[Works]) }.exit(), exit, "{outcome:?}");
        }
    }
}
