//! The arguments of `batchgate get`. What enters is what the user typed and the list that it names; what leaves are the kind of
//! place, the entries, and the plan for them, or what is wrong in words. Nothing is asked for here.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::aws::AwsArgs;
use super::super::list;
use super::folder::Folder;
use super::place::Place;
use super::plan::Plan;
use super::progress::Totals;
use super::stream::Stream;
use crate::client::Entry;
use crate::types::BucketName;

const EXAMPLES: &str = "\
Examples:
  # Into the current folder
  batchgate get s3://train/labels.json

  # A file for each key of a list; again with --skip-existing it goes on after an interruption
  batchgate get --from keys.txt --bucket train --out samples
  batchgate get --from keys.txt --bucket train --out samples --skip-existing

  # One tar file, or a tar stream
  batchgate get --from keys.txt --bucket train --out shard.tar
  batchgate get --from keys.txt --bucket train --out - | tar -x --directory samples

  # The bytes of one object
  batchgate get s3://train/labels.json --out - | jq .

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
  1  some entries failed or all of them, each for itself, access denied for instance; a line for
     each of the first 100 on stderr; the rest is there
  2  wrong usage, settings or list; nothing was asked for
  3  it could not be done: no connection, credentials missing or refused, none of the buckets
     there, output not writable, interrupted

Files are not forced to the disk one by one: after a power failure, files of the last minute may
be empty under their names, and --skip-existing would leave them out.";

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
    /// FILE.tar: one tar file (FILE.tar/ is a folder). `-`: standard output, as a tar stream, or as the bytes alone for one S3URI
    #[arg(long, value_name = "DIR|FILE.tar|-", default_value = ".")]
    pub(super) out: PathBuf,
    /// Replace FILE.tar if it is there
    #[arg(long)]
    overwrite: bool,
    /// Leave out what is in DIR already under its name, whatever it holds, so that an interrupted run can go on
    #[arg(long)]
    skip_existing: bool,
    /// Most objects in one request. Default: as many as the endpoint takes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) batch: Option<u32>,
    /// Print the totals as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) aws: AwsArgs,
}

/// Where objects go.
pub(super) enum Out {
    Folder,
    Archive,
    Stdout { archive: bool },
}

impl GetArgs {
    /// Which kind of place `--out` is.
    pub(super) fn out(&self) -> Result<Out, Vec<String>> {
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
            let wrong = self
                .is_compressed()
                .then_some("a tar is written as it is: pipe --out - through a compressor, or end the name in .tar");
            (Out::Folder, wrong)
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
    pub(super) fn what_is_there(&self, totals: &Totals) -> String {
        let is_folder = self.out != Path::new("-") && !self.is_tar();
        match totals.delivered {
            count if is_folder && count > 0 => {
                format!("; {count} of {} objects are there, and --skip-existing goes on from them", totals.entries)
            }
            _ => String::new(),
        }
    }

    /// A name that no folder would be given.
    fn is_compressed(&self) -> bool {
        let name = self.out.to_string_lossy();
        !self.out.is_dir() && [".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"].iter().any(|end| name.ends_with(end))
    }

    fn is_tar(&self) -> bool {
        // `x.tar/` is a folder by its own word, whether it is there or not.
        let is_folder = self.out.as_os_str().as_encoded_bytes().ends_with(b"/");
        !is_folder && self.out.extension().is_some_and(|extension| extension == "tar") && !self.out.is_dir()
    }

    /// What is asked for, arguments first.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Vec<String>> {
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
                let name = file.display().to_string();
                let text = list::read(file).map_err(|error| vec![format!("--from: {name} cannot be read: {error}")])?;
                entries.extend(list::of_text(&name, &text, self.bucket.is_some())?);
            }
        }
        Ok(entries)
    }

    /// The place, and what goes there.
    pub(super) fn plan(&self, out: Out, entries: Vec<Entry>) -> Result<(Box<dyn Place>, Plan), String> {
        let bucket = self.bucket.clone();
        Ok(match out {
            Out::Stdout { archive: false } => (Box::new(Stream::to_stdout(false)?), Plan::without_names(entries, bucket)),
            Out::Stdout { archive: true } => (Box::new(Stream::to_stdout(true)?), Plan::with_names(entries, bucket, |_| false)),
            Out::Archive => (Box::new(Stream::to_file(&self.out, self.overwrite)?), Plan::with_names(entries, bucket, |_| false)),
            Out::Folder => {
                let mut folder = Folder::open(&self.out)?;
                let plan = Plan::with_names(entries, bucket, |name| self.skip_existing && folder.has(name));
                (Box::new(folder), plan)
            }
        })
    }
}
