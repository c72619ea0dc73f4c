//! `batchgate config check|show|schema`. What enters is the arguments and the environment; what leaves is text on the
//! writer it is given and an exit code: 0, or 2 where the settings are wrong. It listens nowhere, and asks no backend unless
//! `--probe` says so.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{EXIT_OK, complain, probe};
use crate::config::{Flag, Origin, Problem, Settings, Sources, TABLES_BYTES_MAX, load, overlooked, schema};

/// Exit code of wrong usage and wrong settings.
const EXIT_SETTINGS: u8 = 2;

const CHECK_EXAMPLES: &str = "\
Examples:
  batchgate config check --config batchgate.toml
  batchgate config check --config batchgate.toml --json
  # Reads only
  batchgate config check --config batchgate.toml --probe
  # Writes a few small objects to a bucket of one store, and deletes them
  batchgate config check --config batchgate.toml --probe --backend store --probe-bucket scratch";

const CHECK_JSON: &str = "\
With --json, a list. Of problems {source, key, message}, with file and line, variable or flag by its
source: without --probe, or where settings or flags are wrong. With --probe, of each backend:
  backend, endpoint  as they are set
  reached            whether it is an S3 store that does not refuse the credentials
  problems           list of {kind, why, fix}; kind: no-connection, tls, no-answer, not-s3,
                     credentials, region, clock, bucket
  settings           list of {key, configured, set, outcome, why}; outcome: works, change (from
                     configured to set), fails, untried, unanswered
  accounts           list of {identities, outcome, code, why, fix}; outcome: works, refused,
                     unanswered; code: what the store said, or null
  accounts_untried   how many more there are
  notes              list of sentences: what else there is to say
  left_behind        list of keys that were written and could not be deleted
  interrupted        whether it was told to end before all was tried";

/// What to do with the settings.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say every problem of the settings, or `ok`
    ///
    /// Reads the settings as `serve` would: defaults, then the file, then the environment (BATCHGATE__SERVER__LISTEN=...).
    /// Each problem is one line, `file:line: key: message`. Files that the settings name must be readable; no backend is
    /// asked, unless --probe is given. Exit code 0 if there is no problem, 2 if there is. `serve --config` wants a backend as
    /// well; settings without one are no problem here.
    ///
    /// With --probe each backend is asked, at most 10 seconds a time, for what stores differ in: region, addressing, and with
    /// --probe-bucket also payload_signing, checksums and content_md5. Each is a line as it would stand in the file, with
    /// whether it works, or what to change. The accounts that identities have there (backend_credentials) are tried with a list
    /// of buckets each, 100 of them at the most. Exit code 0 if all works as it is set, 2 if something is to be set otherwise or
    /// an account is refused, 3 if a backend cannot be reached, refuses the credentials or does not answer in time, if the bucket
    /// cannot be used, if nothing works, or if something that was written is left. An interrupt ends it once what was written is
    /// deleted, with 3; a second one at once.
    #[command(after_help = CHECK_EXAMPLES, after_long_help = format!("{CHECK_JSON}\n\n{CHECK_EXAMPLES}"))]
    Check(CheckArgs),
    /// Print the effective settings, with secrets hidden
    ///
    /// Shows every key, defaults included, as a settings file in TOML (or as JSON). A secret shows as "<hidden>". Exit code 2,
    /// with the problems, if the settings are wrong.
    #[command(
        after_help = "Examples:\n  batchgate config show                   # the defaults and the environment\n  batchgate config show --config batchgate.toml"
    )]
    Show(ConfigArgs),
    /// Print the JSON schema of a settings file
    ///
    /// For editors that complete and check TOML, and for checks in a pipeline (JSON schema, draft 2020-12).
    #[command(after_help = "Example:\n  batchgate config schema > batchgate.schema.json")]
    Schema,
}

/// Where the settings are, and how to print.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// The settings file; without it there are only the defaults and the environment
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// The settings, and whether to ask the backends.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The settings
    #[command(flatten)]
    pub settings: ConfigArgs,
    /// Ask each backend what it can do, and say what to set
    #[arg(long)]
    pub probe: bool,
    /// Ask only this backend; may be given several times
    #[arg(long, value_name = "NAME", requires = "probe")]
    pub backend: Vec<String>,
    /// A bucket, by its name at the store, to which the probe may write small objects; it deletes them. Without it nothing is written
    #[arg(long, value_name = "NAME", requires = "probe")]
    pub probe_bucket: Option<String>,
}

/// What a command prints, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The text, which ends with a newline.
    pub text: String,
    /// The exit code.
    pub exit: u8,
}

/// Where settings outside the command line come from.
pub struct World<'a> {
    /// The whole environment of the process.
    pub env: Vec<(String, String)>,
    /// Reads a file of at most so many bytes as text.
    pub read_file: &'a dyn Fn(&Path, u64) -> io::Result<String>,
    /// Says what is wrong with a policy document.
    pub check_policy: &'a dyn Fn(&str) -> Result<(), String>,
}

/// Runs one command and returns its exit code.
///
/// # Errors
/// Only those of `out`.
pub fn run(command: &ConfigCommand, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let answer = match command {
        ConfigCommand::Check(args) => {
            for what in overlooked(&world.env) {
                complain(&what, EXIT_OK);
            }
            let (file, json) = (args.settings.config.as_deref(), args.settings.json);
            match settings(file, Vec::new(), world) {
                Ok(settings) if args.probe => {
                    let asked = probe::Asked { backends: &args.backend, bucket: args.probe_bucket.as_deref(), json };
                    probe::run(&settings, asked)?
                }
                loaded => check(loaded, json),
            }
        }
        ConfigCommand::Show(args) => show(settings(args.config.as_deref(), Vec::new(), world), args.json),
        ConfigCommand::Schema => schema_text(),
    };
    out.write_all(answer.text.as_bytes())?;
    out.flush()?;
    Ok(answer.exit)
}

/// The settings of a process: the file, if there is one, the environment and `flags`.
///
/// # Errors
/// Every problem; also that the file cannot be read.
pub fn settings(file: Option<&Path>, flags: Vec<Flag>, world: &World<'_>) -> Result<Settings, Vec<Problem>> {
    let file = match file {
        None => None,
        Some(path) => match (world.read_file)(path, TABLES_BYTES_MAX) {
            Ok(text) => Some((path, text)),
            Err(error) => {
                let origin = Origin::Flag { flag: "--config".into() };
                return Err(vec![Problem::new(origin, "", format!("{} cannot be read: {error}", path.display()))]);
            }
        },
    };
    load(&Sources { file, env: world.env.clone(), flags, read_file: world.read_file, check_policy: world.check_policy })
}

/// Every problem, a line each, or `ok`. As JSON: a list of objects, empty if there is none.
pub fn check(loaded: Result<Settings, Vec<Problem>>, json: bool) -> Answer {
    match loaded {
        Err(problems) => refusal(&problems, json),
        Ok(_) if json => Answer { text: "[]\n".into(), exit: 0 },
        Ok(_) => Answer { text: "ok\n".into(), exit: 0 },
    }
}

/// The effective settings as TOML or JSON, or every problem.
pub fn show(loaded: Result<Settings, Vec<Problem>>, json: bool) -> Answer {
    let text = match loaded {
        Err(problems) => return refusal(&problems, json),
        Ok(settings) if json => pretty(&settings),
        Ok(settings) => toml::to_string(&settings).expect("settings are tables of texts, numbers and lists"),
    };
    Answer { text, exit: 0 }
}

/// The JSON schema of a settings file.
pub fn schema_text() -> Answer {
    Answer { text: pretty(&schema()), exit: 0 }
}

/// All problems, for people or for scripts.
pub fn refusal(problems: &[Problem], json: bool) -> Answer {
    let text = if json { pretty(&problems) } else { problems.iter().map(|problem| format!("{problem}\n")).collect() };
    Answer { text, exit: EXIT_SETTINGS }
}

pub(super) fn pretty(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("settings, problems and schemas have text keys");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const GOOD: &str = r#"
[[backends]]
name = "store"
endpoint = "http://127.0.0.1:8333"
credentials = { source = "static", access_key = "AK", secret_key = "backend-secret-key", session_token = "backend-token" }
[[identities]]
name = "trainer"
access_key = "GK"
secret_key = "client-secret-key"
policy_json = '{"Statement": []}'
"#;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: ConfigCommand,
    }

    fn run_on(text: &str, args: &[&str]) -> (String, u8) {
        let read_file = |path: &Path, _: u64| {
            if path == Path::new("gate.toml") { Ok(text.to_owned()) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        let world = World { env: Vec::new(), read_file: &read_file, check_policy: &|_| Ok(()) };
        let command = Cli::try_parse_from([&["config"], args].concat()).unwrap().command;
        let mut out = Vec::new();
        let exit = run(&command, &world, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), exit)
    }

    #[test]
    fn check_says_ok_or_every_problem() {
        assert_eq!(run_on(GOOD, &["check", "--config", "gate.toml"]), ("ok\n".into(), 0));
        assert_eq!(run_on(GOOD, &["check", "--config", "gate.toml", "--json"]), ("[]\n".into(), 0));
        let bad = "[batch]\nconcurency = 3\n[log]\nformat = \"yaml\"\n";
        let (text, exit) = run_on(bad, &["check", "--config", "gate.toml"]);
        let expected = "gate.toml:2: batch.concurency: unknown key; the nearest known key is \"concurrency\"\n\
                        gate.toml:4: log.format: \"yaml\" is not \"text\" or \"json\"\n";
        assert_eq!((text.as_str(), exit), (expected, 2));
        let (text, exit) = run_on(bad, &["check", "--config", "gate.toml", "--json"]);
        let problems: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((problems[0]["file"].as_str(), problems[0]["line"].as_u64(), exit), (Some("gate.toml"), Some(2), 2));
        assert_eq!((problems[1]["key"].as_str(), problems.as_array().unwrap().len()), (Some("log.format"), 2));
    }

    #[test]
    fn an_unreadable_file_is_a_problem() {
        let (text, exit) = run_on(GOOD, &["check", "--config", "other.toml"]);
        assert!(text.starts_with("flag --config: other.toml cannot be read: "), "{text}");
        assert_eq!(exit, 2);
    }

    #[test]
    fn show_prints_settings_that_load_again_and_hides_secrets() {
        for json in [false, true] {
            let args: &[&str] =
                if json { &["show", "--config", "gate.toml", "--json"] } else { &["show", "--config", "gate.toml"] };
            let (text, exit) = run_on(GOOD, args);
            assert_eq!(exit, 0);
            assert_eq!(text.matches("<hidden>").count(), 3, "{text}");
            for secret in ["backend-secret-key", "backend-token", "client-secret-key"] {
                assert!(!text.contains(secret), "{text}");
            }
            if !json {
                assert_eq!(run_on(&text, &["show", "--config", "gate.toml"]), (text, 0));
            }
        }
    }

    #[test]
    fn schema_is_json() {
        let (text, exit) = run_on(GOOD, &["schema"]);
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((schema["title"].as_str(), exit), (Some("Batchgate settings"), 0));
    }
}
