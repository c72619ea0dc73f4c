//! Objects as one stream: members of a tar archive, or the bytes of one object. It goes to a file, which has a name of ours
//! until it is whole, or to standard output. What was written of an entry that begins anew is taken back where it goes to a
//! file; where it cannot be taken back, the same object goes on behind it, and another one is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use http::HeaderValue;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::place::{NAMES_TRIED_MAX, PARTS_IN_THE_WAY, Place, PlaceError};
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
    /// Whether another file may have that name.
    overwrite: bool,
    whole: bool,
}

impl Stream {
    /// An archive at `path`, in place of another file only if `overwrite` says so.
    pub fn to_file(path: &Path, overwrite: bool) -> Result<Self, String> {
        let shown = path.display().to_string();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        for count in 0..NAMES_TRIED_MAX {
            let name = path.with_file_name(format!(".{file_name}.batchgate-{}-{count}.part", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&name) {
                Ok(file) => {
                    let unfinished = Unfinished { name, final_name: path.to_owned(), overwrite, whole: false };
                    return Ok(Self { file: Some(unfinished), ..Self::new(shown, file, true) });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{shown} cannot be written: {error}")),
            }
        }
        Err(format!("{shown} cannot be written: {PARTS_IN_THE_WAY}"))
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
        if error.kind() == io::ErrorKind::BrokenPipe {
            return PlaceError::All(format!("{}: whoever read it left before the end", self.shown));
        }
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
            done = done.and_then(|()| file.give_name());
            file.whole = done.is_ok();
        }
        done.map_err(|error| self.error(&error))
    }
}

impl Unfinished {
    /// Gives the file its final name, and looks in the same step whether that is free.
    fn give_name(&self) -> io::Result<()> {
        if self.overwrite {
            return std::fs::rename(&self.name, &self.final_name);
        }
        let given = match renameat_with(CWD, &self.name, CWD, &self.final_name, RenameFlags::NOREPLACE) {
            // Not every file system can do this; a second name of the same file is as good until the first is gone.
            Err(Errno::INVAL | Errno::NOSYS) => {
                std::fs::hard_link(&self.name, &self.final_name).and_then(|()| std::fs::remove_file(&self.name))
            }
            given => given.map_err(io::Error::from),
        };
        given.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::other("it came to be there meanwhile; --overwrite replaces it"),
            _ => error,
        })
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
