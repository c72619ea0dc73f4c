//! Objects as one stream: members of a tar archive, or the bytes of one object. It goes to a file, which has a name of ours
//! until it is whole, or to standard output. What was written of an entry that begins anew is taken back where it goes to a
//! file; where it cannot be taken back, the same object goes on behind it, and another one is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use http::HeaderValue;

use super::place::{Place, PlaceError};
use crate::batch::encode::Encode;
use crate::batch::encode::member::Naming;
use crate::batch::encode::tar::{Tar, unix_seconds};
use crate::client::many::Head;
use crate::types::strong_etag;

/// What is written at a time, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// A stream of objects.
pub(super) struct Stream {
    shown: String,
    out: BufWriter<File>,
    /// Where it ends.
    at: u64,
    /// The file, if it is one that can be taken back.
    file: Option<Unfinished>,
    archive: Option<Tar>,
    open: Option<Open>,
    /// What was written of an entry that did not become whole, and cannot be taken back.
    half: Option<Open>,
    /// Octets of the entry that are there already.
    skip: u64,
}

/// An entry that is being written.
#[derive(Debug)]
struct Open {
    /// Where it starts, its head included.
    start: u64,
    written: u64,
    name: String,
    etag: Option<HeaderValue>,
    length: u64,
    /// Of the archive, as it was at the start.
    before: Option<Tar>,
}

/// A file under a name of ours. Dropped, it is removed.
struct Unfinished {
    name: PathBuf,
    final_name: PathBuf,
    whole: bool,
}

impl Stream {
    /// An archive at `path`. Whether there may be another file now is for the caller to know.
    pub fn to_file(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = path.with_file_name(format!(".{file_name}.batchgate-{}.part", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&name);
        let file = file.map_err(|error| format!("{shown} cannot be written: {error}"))?;
        let unfinished = Unfinished { name, final_name: path.to_owned(), whole: false };
        Ok(Self { file: Some(unfinished), ..Self::new(shown, file, true) })
    }

    /// A stream to standard output, as an archive or as the bytes alone.
    pub fn to_stdout(archive: bool) -> Result<Self, String> {
        let shown = "standard output".to_owned();
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(stdout) => Ok(Self::new(shown, stdout.into(), archive)),
            Err(error) => Err(format!("{shown} cannot be written: {error}")),
        }
    }

    fn new(shown: String, file: File, archive: bool) -> Self {
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let archive = archive.then(|| Tar::new(Naming::Key));
        Self { shown, out, at: 0, file: None, archive, open: None, half: None, skip: 0 }
    }

    fn write(&mut self, octets: &[u8]) -> Result<(), PlaceError> {
        self.at += octets.len() as u64;
        let written = self.out.write_all(octets);
        written.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &io::Error) -> PlaceError {
        PlaceError::All(format!("{} cannot be written: {error}", self.shown))
    }

    /// Goes back to where an entry started.
    fn take_back(&mut self, open: Open) -> Result<(), PlaceError> {
        self.at = open.start;
        self.archive = open.before;
        let mut back = || {
            self.out.flush()?;
            self.out.get_ref().set_len(self.at)?;
            self.out.seek(SeekFrom::Start(self.at))
        };
        let done = back();
        done.map(drop).map_err(|error| self.error(&error))
    }
}

impl Place for Stream {
    fn begin(&mut self, name: &str, head: &Head) -> Result<(), PlaceError> {
        let etag = head.header("etag").and_then(|etag| HeaderValue::from_bytes(etag).ok());
        let etag = etag.filter(|etag| strong_etag(etag).is_some());
        if let Some(half) = self.half.take() {
            let same = half.name == name && half.length == head.length && half.etag.is_some() && half.etag == etag;
            if !same {
                return Err(PlaceError::All(format!(
                    "{} has a part of {}, which broke off and cannot be taken back: it is another object now",
                    self.shown, half.name
                )));
            }
            self.skip = half.written;
            self.open = Some(half);
            return Ok(());
        }
        let (start, before) = (self.at, self.archive.clone());
        self.open = Some(Open { start, written: 0, name: name.to_owned(), etag, length: head.length, before });
        if let Some(archive) = &mut self.archive {
            let mut around = BytesMut::new();
            let modified = head.header("last-modified").and_then(unix_seconds);
            archive.member(&mut around, name, modified.unwrap_or_default(), head.length);
            self.write(&around)?;
        }
        Ok(())
    }

    fn data(&mut self, octets: &[u8]) -> Result<(), PlaceError> {
        let there = octets.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= there as u64;
        if let Some(open) = &mut self.open {
            open.written += (octets.len() - there) as u64;
        }
        self.write(&octets[there..])
    }

    fn end(&mut self) -> Result<(), PlaceError> {
        self.open = None;
        Ok(())
    }

    fn void(&mut self) -> Result<(), PlaceError> {
        self.skip = 0;
        match self.open.take() {
            None => Ok(()),
            Some(open) if self.file.is_some() => self.take_back(open),
            Some(open) => {
                self.half = Some(open);
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<(), PlaceError> {
        if let Some(half) = &self.half {
            return Err(PlaceError::All(format!("{} has a part of {} and no more", self.shown, half.name)));
        }
        if let Some(archive) = &mut self.archive {
            let mut end = BytesMut::new();
            archive.close(&mut end);
            self.write(&end)?;
        }
        let mut done = self.out.flush();
        if let Some(file) = &mut self.file {
            done = done.and_then(|()| std::fs::rename(&file.name, &file.final_name));
            file.whole = done.is_ok();
        }
        done.map_err(|error| self.error(&error))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.whole {
            let _ = std::fs::remove_file(&self.name);
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
