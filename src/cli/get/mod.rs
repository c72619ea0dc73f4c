//! `batchgate get`: objects from the shell. In reading order: [`list`] (what is asked for), [`plan`] (under which name it will
//! be found), [`place`] with [`folder`] and [`stream`] (where it goes), [`deliver`] (from one to the other), [`progress`] (what
//! the user sees).

mod deliver;
mod folder;
mod list;
mod place;
mod plan;
mod progress;
mod stream;

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::aws::{self, AwsArgs};
use super::config::World;
use super::{EXIT_FAILED, EXIT_OK, EXIT_PARTLY, EXIT_USAGE, complain};
use crate::client::{Endpoint, Entry, Many, ManyConfig};
use crate::types::BucketName;
use folder::Folder;
use place::Place;
use plan::Plan;
use progress::{Progress, Totals};
use stream::Stream;

/// Connections that are kept while unused; as many as there are GETs at a time.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// Most lines of wrong input that are said.
const WRONG_LINES_MAX: usize = 20;

/// How long what is under way may take to take back what is not whole, once it is told to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  batchgate get s3://train/labels.json                         # into the current folder
  batchgate get --from keys.txt --bucket train --out samples   # a file for each key of a list
  batchgate get --from keys.txt --bucket train --out shard.tar # one tar file
  batchgate get --from keys.txt --bucket train --out - | tar -x --directory samples
  batchgate get s3://train/labels.json --out - | jq .          # the bytes of one object
  batchgate get --from keys.txt --bucket train --out samples --skip-existing   # goes on

  # Everything in a bucket, listed with the AWS CLI
  aws s3api list-objects-v2 --bucket train --query 'Contents[].[Key]' --output text |
    batchgate get --from - --bucket train --out samples

A line of a list is one of
  s3://BUCKET/KEY
  KEY                          of --bucket; byte for byte, spaces and all
  {\"Key\": \"a.bin\", \"Range\": \"bytes=0-1023\", \"Id\": \"head-of-a\"}
                               also Bucket, VersionId, IfMatch, IfNoneMatch
and empty lines say nothing. An object is found under its Id, else under its key; with its
bucket before the key where there are several buckets.

Exit codes:
  0  everything is there
  1  some entries failed, a line for each on stderr; the rest is there
  2  wrong usage, settings or list; nothing was asked for
  3  it could not be done: no connection, no access, no such bucket, output not writable,
     interrupted";

/// What to get, and where to put it.
#[derive(Clone, Debug, Args)]
#[command(
    about = "Get objects by BatchGet, many in one request",
    long_about = "Get objects by BatchGet, many in one request.\n\n\
        Objects become files below a folder, members of a tar file, or a stream. A file has its final name only once it is whole, \
        and no key leads outside the folder. What breaks off is asked for again. An object that cannot be had is one line on \
        stderr, and the others come all the same. An endpoint without BatchGet is asked by GETs, many at a time.",
    after_help = EXAMPLES
)]
pub struct GetArgs {
    /// Objects to get
    #[arg(value_name = "S3URI")]
    uris: Vec<String>,
    /// A list of objects, one a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The bucket of keys that are listed without one
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// Where objects go. DIR: a file for each, made if it is not there; files of the same name are replaced.
    /// FILE.tar: one tar file. `-`: standard output, as a tar stream, or as the bytes alone for one S3URI
    #[arg(long, value_name = "DIR|FILE.tar|-", default_value = ".")]
    out: PathBuf,
    /// Replace FILE.tar if it is there
    #[arg(long)]
    overwrite: bool,
    /// Leave out what is in DIR already, so that an interrupted run can go on
    #[arg(long)]
    skip_existing: bool,
    /// Most objects in one request. Default: as many as the endpoint takes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Print the totals as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    aws: AwsArgs,
}

/// Where objects go.
enum Out {
    Folder,
    Archive,
    Stdout { archive: bool },
}

/// Gets everything.
///
/// # Errors
/// Only those of `out`.
pub fn run(args: &GetArgs, world: &World<'_>, out: &mut dyn Write) -> io::Result<u8> {
    let (to, entries) = match args.out().and_then(|to| Ok((to, args.entries()?))) {
        Ok(given) => given,
        Err(mut wrong) => {
            let more = wrong.len().saturating_sub(WRONG_LINES_MAX);
            wrong.truncate(WRONG_LINES_MAX);
            if more > 0 {
                wrong.push(format!("and {more} more"));
            }
            for line in &wrong {
                complain(line, EXIT_USAGE);
            }
            return Ok(EXIT_USAGE);
        }
    };
    // One thread reads and writes, the other has the connection.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let got = runtime.block_on(get(args, world, to, entries));
    // What is stuck in writing ends with the process.
    runtime.shutdown_background();
    let totals = match got {
        Ok(totals) => totals,
        Err((what, exit)) => return Ok(complain(&what, exit)),
    };
    let text = match &totals.error {
        Some(what) => {
            complain(&format!("{what}{}", args.what_is_there(&totals)), EXIT_FAILED);
            String::new()
        }
        None => totals.to_text(),
    };
    let text = if args.json { totals.to_json() } else { text };
    if args.out == Path::new("-") {
        io::stderr().write_all(text.as_bytes())?;
    } else {
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(exit_code(&totals))
}

fn exit_code(totals: &Totals) -> u8 {
    let without_any_bucket = totals.without_bucket > 0 && totals.without_bucket == totals.entries;
    match totals {
        _ if totals.error.is_some() || without_any_bucket => EXIT_FAILED,
        Totals { failed: 0, .. } => EXIT_OK,
        _ => EXIT_PARTLY,
    }
}

impl GetArgs {
    /// Which kind of place `--out` is.
    fn out(&self) -> Result<Out, Vec<String>> {
        let one = self.uris.len() == 1 && self.from.is_none();
        let (out, wrong) = if self.out == Path::new("-") {
            let wrong = (!one && io::stdout().is_terminal())
                .then_some("a tar stream is nothing for a terminal; send it to a file or a command");
            (Out::Stdout { archive: !one }, wrong)
        } else if self.is_tar() {
            let in_the_way = !self.overwrite && self.out.symlink_metadata().is_ok();
            let wrong = in_the_way.then(|| format!("{} is there already; --overwrite replaces it", self.out.display()));
            if let Some(wrong) = wrong {
                return Err(vec![wrong]);
            }
            (Out::Archive, None)
        } else {
            (Out::Folder, None)
        };
        let is_folder = matches!(out, Out::Folder);
        let wrong = match wrong {
            Some(wrong) => Some(wrong),
            None if self.skip_existing && !is_folder => Some("--skip-existing is for files in a folder, and --out is none"),
            None if self.overwrite && is_folder => Some("--overwrite is for a tar file; files in a folder are replaced anyway"),
            None => None,
        };
        wrong.map_or(Ok(out), |wrong| Err(vec![wrong.to_owned()]))
    }

    /// What a failed run was good for, to be said behind why it failed.
    fn what_is_there(&self, totals: &Totals) -> String {
        let is_folder = self.out != Path::new("-") && !self.is_tar();
        match totals.delivered {
            count if is_folder && count > 0 => {
                format!("; {count} of {} objects are there, and --skip-existing goes on from them", totals.entries)
            }
            _ => String::new(),
        }
    }

    fn is_tar(&self) -> bool {
        self.out.extension().is_some_and(|extension| extension == "tar") && !self.out.is_dir()
    }

    /// What is asked for, arguments first.
    fn entries(&self) -> Result<Vec<Entry>, Vec<String>> {
        if let Some(bucket) = self.bucket.as_ref().filter(|bucket| BucketName::new(bucket).is_none()) {
            return Err(vec![format!("--bucket: `{bucket}` is no name of a bucket")]);
        }
        let mut entries = list::of_arguments(&self.uris)?;
        match &self.from {
            None if entries.is_empty() => {
                return Err(vec!["there is nothing to get: give an S3URI or --from FILE; see --help".into()]);
            }
            None => {}
            Some(file) => {
                let mut text = Vec::new();
                let read = match file == Path::new("-") {
                    true => io::stdin().lock().read_to_end(&mut text).map(drop),
                    false => std::fs::read(file).map(|bytes| text = bytes),
                };
                let name = file.display().to_string();
                read.map_err(|error| vec![format!("--from: {name} cannot be read: {error}")])?;
                entries.extend(list::of_text(&name, &text, self.bucket.is_some())?);
            }
        }
        Ok(entries)
    }

    /// The place, and what goes there.
    fn plan(&self, out: Out, entries: Vec<Entry>) -> Result<(Box<dyn Place>, Plan), String> {
        let bucket = self.bucket.clone();
        Ok(match out {
            Out::Stdout { archive: false } => (Box::new(Stream::to_stdout(false)?), Plan::without_names(entries, bucket)),
            Out::Stdout { archive: true } => (Box::new(Stream::to_stdout(true)?), Plan::with_names(entries, bucket, |_| false)),
            Out::Archive => (Box::new(Stream::to_file(&self.out)?), Plan::with_names(entries, bucket, |_| false)),
            Out::Folder => {
                let mut folder = Folder::open(&self.out)?;
                let plan = Plan::with_names(entries, bucket, |name| self.skip_existing && folder.has(name));
                (Box::new(folder), plan)
            }
        })
    }
}

async fn get(args: &GetArgs, world: &World<'_>, out: Out, entries: Vec<Entry>) -> Result<Totals, (String, u8)> {
    let endpoint = aws::endpoint(&args.aws, &world.env, IDLE_CONNECTIONS_MAX).await.map_err(|what| (what, EXIT_USAGE))?;
    // From here on there is something to take back.
    let told = told_to_end().map_err(|error| (format!("signals cannot be waited for: {error}"), EXIT_FAILED))?;
    let progress = Arc::new(Progress::new(entries.len()));
    let (place, plan) = args.plan(out, entries).map_err(|what| (what, EXIT_FAILED))?;
    for (which, why) in &plan.failed {
        progress.failed(which, why);
    }
    progress.count(|totals| totals.skipped = plan.skipped);
    let config = ManyConfig {
        batch_entries_max: args.batch.map_or(usize::MAX, |count| count as usize),
        ..ManyConfig::new(plan.bucket.clone())
    };
    let mut task = tokio::spawn(work(endpoint, config, plan, place, Arc::clone(&progress)));
    let done = tokio::select! {
        done = &mut task => done.unwrap_or_else(|error| Err(format!("a fault of this program: {error}"))),
        () = told => {
            task.abort();
            let _ = tokio::time::timeout(END_TIMEOUT, task).await;
            Err("interrupted; what is not whole was taken back".to_owned())
        }
    };
    progress.end();
    Ok(Totals { error: done.err(), ..progress.totals() })
}

/// Gets the entries of the plan. Dropped, it takes back what is not whole.
async fn work(
    endpoint: Endpoint,
    config: ManyConfig,
    mut plan: Plan,
    mut place: Box<dyn Place>,
    progress: Arc<Progress>,
) -> Result<(), String> {
    let url = endpoint.url();
    let entries: Arc<[Entry]> = std::mem::take(&mut plan.entries).into();
    let mut many = Many::new(Arc::new(endpoint), Arc::clone(&entries), config);
    deliver::deliver(&mut many, &plan, &entries, place.as_mut(), &progress, &url).await
}

/// Waits for whatever asks a process to end.
fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
