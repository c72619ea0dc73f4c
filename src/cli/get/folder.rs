//! Objects as files below a folder. Every step from the folder to a file is opened by itself and never through a link, so that
//! no name leads elsewhere, whatever is there or comes to be there. A file has a name of ours until it is whole, and that name
//! is removed if it never is.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::place::{NAMES_TRIED_MAX, PARTS_IN_THE_WAY, Place, PlaceError};
use crate::batch::encode::tar::unix_seconds;
use crate::client::many::Head;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
const NEW_FILE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::WRONLY);

/// A folder that takes objects.
pub(super) struct Folder {
    shown: String,
    root: Arc<OwnedFd>,
    /// The folder that was written to last, by its path below the root: lists mostly stay in one for a while.
    last: (String, Arc<OwnedFd>),
    /// Counts files, for names.
    count: u32,
    open: Option<Open>,
}

/// A file that is not whole. Dropped, it is removed.
struct Open {
    folder: Arc<OwnedFd>,
    /// What it is called for now.
    temporary: String,
    /// Its name below the root.
    name: String,
    file: File,
    modified: Option<u64>,
    whole: bool,
}

impl Folder {
    /// The folder at `path`, which is made if it is not there.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let opened = std::fs::create_dir_all(path).and_then(|()| {
            // The user's own path may well lead through links.
            let root = openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
            // Better said once now than of every object, and before any is asked for.
            accessat(&root, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
            Ok(root)
        });
        let root = Arc::new(opened.map_err(|error| format!("{shown} cannot be written to: {error}"))?);
        Ok(Self { shown, last: (String::new(), Arc::clone(&root)), root, count: 0, open: None })
    }

    /// Whether there is a file of this name.
    pub fn has(&mut self, name: &str) -> bool {
        let (parent, file) = split(name);
        let Ok(folder) = self.folder(parent, false) else { return false };
        statat(&*folder, file, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Opens a folder below the root, step by step.
    fn folder(&mut self, path: &str, make: bool) -> io::Result<Arc<OwnedFd>> {
        if self.last.0 == path {
            return Ok(Arc::clone(&self.last.1));
        }
        let mut at = Arc::clone(&self.root);
        for step in path.split('/').filter(|step| !step.is_empty()) {
            let mut opened = openat(&*at, step, FOLDER, Mode::empty());
            if make && matches!(opened, Err(Errno::NOENT)) {
                match mkdirat(&*at, step, Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => opened = openat(&*at, step, FOLDER, Mode::empty()),
                    Err(error) => return Err(error.into()),
                }
            }
            at = Arc::new(opened?);
        }
        self.last = (path.to_owned(), Arc::clone(&at));
        Ok(at)
    }

    fn error(&self, name: &str, error: &io::Error) -> PlaceError {
        PlaceError::of(&format!("{}/{name}", self.shown.trim_end_matches('/')), error)
    }

    fn create(&mut self, folder: &OwnedFd) -> io::Result<(String, File)> {
        for _ in 0..NAMES_TRIED_MAX {
            self.count = self.count.wrapping_add(1);
            let name = format!(".batchgate-{}-{}.part", std::process::id(), self.count);
            match openat(folder, &name, NEW_FILE, Mode::from_bits_truncate(0o666)) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => return Ok((name, file.into())),
            }
        }
        // Not `EXIST`, which would be a matter of this one file.
        Err(io::Error::other(PARTS_IN_THE_WAY))
    }
}

impl Place for Folder {
    fn begin(&mut self, name: &str, head: &Head) -> Result<(), PlaceError> {
        let (parent, _) = split(name);
        let folder = self.folder(parent, true).map_err(|e| self.error(parent, &e))?;
        let (temporary, file) = self.create(&folder).map_err(|e| self.error(name, &e))?;
        let modified = head.header("last-modified").and_then(unix_seconds);
        self.open = Some(Open { folder, temporary, name: name.to_owned(), file, modified, whole: false });
        Ok(())
    }

    fn data(&mut self, octets: &[u8]) -> Result<(), PlaceError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Err(error) = open.file.write_all(octets) else { return Ok(()) };
        let name = open.name.clone();
        Err(self.error(&name, &error))
    }

    fn end(&mut self) -> Result<(), PlaceError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.keep().map_err(|(name, error)| self.error(&name, &error))
    }

    fn void(&mut self) -> Result<(), PlaceError> {
        self.open = None;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PlaceError> {
        Ok(())
    }
}

impl Open {
    /// Gives the file its final name, in place of what had it.
    fn keep(mut self) -> Result<(), (String, io::Error)> {
        if let Some(seconds) = self.modified {
            // As `aws s3 cp` does; a file system that keeps no such times is none the worse.
            let _ = self.file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        }
        match renameat(&*self.folder, &self.temporary, &*self.folder, split(&self.name).1) {
            Ok(()) => self.whole = true,
            Err(error) => return Err((std::mem::take(&mut self.name), error.into())),
        }
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.whole {
            let _ = unlinkat(&*self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// A name as its folder and its last component.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
