//! The command line of the campaign.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::OsRng;
use rand::{Rng, SeedableRng};

use crate::plant::Plants;

/// What it can be told.
pub const USAGE: &str = "usage: campaign [--seconds N] [--seed N] [--workers N] [--report FILE] [--sample SECONDS] [--no-faults]
                [--only WORKER:OPERATION[-OPERATION]] [--origin URL ACCESS_KEY SECRET_KEY] [--plant NAMES] [--keep FOLDER]

  --seconds   how long, pauses included; 60
  --seed      of everything that is drawn; a new one, which is printed, where none is given
  --workers   clients at a time; 24
  --report    also writes every sample, as CSV
  --sample    seconds between two samples; 10, or a sixth of the run
  --no-faults nothing goes wrong on purpose
  --only      one worker, which does one operation, or these, again and again
  --origin    another store, at http://ADDRESS:PORT with a key pair; the bucket `campaign` there is the campaign's
  --plant     plants violations, which must be found: exit code 0 if each was. `all`, or names with commas between
  --keep      settings and logs of the processes stay, in this folder";

/// Another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its address.
    pub address: std::net::SocketAddr,
    /// Its access key.
    pub access_key: String,
    /// Its secret key.
    pub secret_key: String,
}

/// See [`USAGE`].
#[derive(Clone, Debug)]
pub struct Args {
    /// How long.
    pub length: Duration,
    /// Of all that is drawn.
    pub seed: u64,
    /// Clients at a time.
    pub workers: u64,
    /// Where samples go.
    pub report: Option<PathBuf>,
    /// Between two samples.
    pub sample: Duration,
    /// Whether anything goes wrong.
    pub faults: bool,
    /// One worker and its operations.
    pub only: Option<(u64, Range<u64>)>,
    /// Another store.
    pub origin: Option<Origin>,
    /// What is planted.
    pub plants: Plants,
    /// Where files stay.
    pub keep: Option<PathBuf>,
}

impl Args {
    /// From words.
    ///
    /// # Errors
    /// In one line, what cannot be understood.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut random = rand::rngs::StdRng::try_from_rng(&mut OsRng).map_err(|error| error.to_string())?;
        let seed = random.random_range(1..1_000_000_000);
        let mut args = Self {
            length: Duration::from_secs(60),
            seed,
            workers: 24,
            report: None,
            sample: Duration::ZERO,
            faults: true,
            only: None,
            origin: None,
            plants: Plants::default(),
            keep: None,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word {
                "--seconds" => args.length = Duration::from_secs(number(value()?)?),
                "--seed" => args.seed = number(value()?)?,
                "--workers" => args.workers = number(value()?)?.max(1),
                "--report" => args.report = Some(value()?.into()),
                "--sample" => args.sample = Duration::from_secs(number(value()?.trim_end_matches('s'))?.max(1)),
                "--no-faults" => args.faults = false,
                "--only" => args.only = Some(only(value()?)?),
                "--origin" => {
                    let url = value()?;
                    let address = url.trim_start_matches("http://").trim_end_matches('/').parse();
                    let address = address.map_err(|_| format!("{url} is not http://ADDRESS:PORT"))?;
                    args.origin = Some(Origin { address, access_key: value()?.into(), secret_key: value()?.into() });
                }
                "--plant" => args.plants = Plants::parse(value()?)?,
                "--keep" => args.keep = Some(value()?.into()),
                "--help" => return Err(String::new()),
                _ => return Err(format!("{word:?} is not understood")),
            }
        }
        if args.sample.is_zero() {
            args.sample = (args.length / 6).clamp(Duration::from_secs(1), Duration::from_secs(10));
        }
        Ok(args)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// `3:17`, `3:17.2` as violations have it, or `3:10-20`.
fn only(text: &str) -> Result<(u64, Range<u64>), String> {
    let (worker, operations) = text.split_once(':').ok_or_else(|| format!("{text:?} is no WORKER:OPERATION"))?;
    let operations = operations.split('.').next().unwrap_or_default();
    let (from, to) = operations.split_once('-').unwrap_or((operations, operations));
    let (from, to) = (number(from)?, number(to)?);
    Ok((number(worker)?, from..to.max(from) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Args, String> {
        Args::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let args = parse("--seconds 30 --seed 7 --only 3:17.2 --no-faults --sample 10s").expect("right");
        assert_eq!((args.length, args.seed, args.faults), (Duration::from_secs(30), 7, false));
        assert_eq!((args.only, args.sample), (Some((3, 17..18)), Duration::from_secs(10)));
        assert_eq!(parse("--only 2:5-9").expect("right").only, Some((2, 5..10)));
        assert_eq!(parse("").expect("right").sample, Duration::from_secs(10));
        assert!(parse("--origin http://127.0.0.1:8333 AK SK").expect("right").origin.is_some());
        for wrong in ["--seconds", "--seconds x", "--only 3", "--what", "--plant weed", "--origin x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
