//! How a bench is run. What enters is its command line: names of measures (none means all) and `--quick` or `--json`, or the
//! part that this program plays in a process of its own (`origin`, `load`); what leaves are tables.
//! Invariant: what was measured is printed before a bound that was not kept fails the run.

use std::process::ExitCode;

use serde_json::json;

use super::table::Table;
use super::{Fallible, fail, origin};

/// A measure by its name, which others may have too.
pub type Measure<E> = (&'static str, fn(E) -> Fallible<Table>);

/// A bench. `E` says how thorough to be.
pub struct Bench<E: 'static> {
    /// As cargo knows it.
    pub name: &'static str,
    /// For figures.
    pub full: E,
    /// To see that it works.
    pub quick: E,
    /// In the order in which they are measured.
    pub measures: &'static [Measure<E>],
    /// What does a job, if the load is a process of its own.
    pub load: Option<fn(&str) -> Fallible<()>>,
    /// What all figures are of, besides the cores: for programs a name of it, and words.
    pub note: fn() -> Option<(&'static str, String)>,
}

impl<E: Copy> Bench<E> {
    /// Plays the part that the arguments ask for.
    pub fn main(&self) -> ExitCode {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let done = match (args.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), self.load) {
            (["origin", address, concurrency], _) => origin::run(address, concurrency),
            (["load", job], Some(load)) => load(job),
            (args, _) => self.measure(args),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    fn measure(&self, args: &[&str]) -> Fallible<()> {
        let (mut effort, mut as_json, mut names) = (self.full, false, Vec::new());
        for arg in args {
            match *arg {
                "--quick" => effort = self.quick,
                "--json" => as_json = true,
                // Cargo says so to every bench.
                "--bench" => {}
                name if self.measures.iter().any(|(known, _)| *known == name) => names.push(name),
                other => return fail(format!("`{other}` is unknown; {}", self.usage())),
            }
        }
        let cores = std::thread::available_parallelism()?.get();
        let note = (self.note)();
        if !as_json {
            let words = note.as_ref().map_or_else(String::new, |(_, words)| format!("; {words}"));
            println!("{} bench on {cores} cores, over loopback{words}\n", self.name);
        }
        let (mut tables, mut broken) = (Vec::new(), None);
        for (_, measure) in self.measures.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
            let table = measure(effort)?;
            if as_json {
                tables.push(table.to_json());
            } else {
                println!("{}", table.to_text());
            }
            broken = broken.or(table.broken);
        }
        if as_json {
            let mut all = json!({"cores": cores, "measures": tables});
            if let Some((name, words)) = note {
                all[name] = words.into();
            }
            println!("{all}");
        }
        broken.map_or(Ok(()), fail)
    }

    fn usage(&self) -> String {
        let mut names: Vec<_> = self.measures.iter().map(|(name, _)| *name).collect();
        names.dedup();
        format!("usage: {} [--quick] [--json] [{}]...", self.name, names.join(" | "))
    }
}
