//! Where objects go. What enters is what comes of entries, one after another; what leaves are files or a stream. Invariant of
//! every place: nothing that is not whole is found under a final name.

use std::io;

use rustix::io::Errno;

use crate::client::many::Head;
use crate::client::printable;

/// Most names that are tried for a file that is not whole; others are of a process that had our id and was killed.
pub(super) const NAMES_TRIED_MAX: u32 = 1000;

/// Where they are all taken.
pub(super) const PARTS_IN_THE_WAY: &str = "files of earlier runs that were killed are in the way (.*batchgate-*.part)";

/// Takes entries. `begin`, `data` and `end` come in this order for each, and `void` instead of the rest of them.
pub(super) trait Place: Send {
    /// An entry begins whose name is this.
    fn begin(&mut self, name: &str, head: &Head) -> Result<(), PlaceError>;

    /// The next octets of it.
    fn data(&mut self, octets: &[u8]) -> Result<(), PlaceError>;

    /// It was whole.
    fn end(&mut self) -> Result<(), PlaceError>;

    /// What came of it is not to be found.
    fn void(&mut self) -> Result<(), PlaceError>;

    /// Nothing more will come.
    fn finish(&mut self) -> Result<(), PlaceError>;
}

/// Why something cannot be put there; in words for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlaceError {
    /// This entry cannot.
    Entry(String),
    /// Nothing can.
    All(String),
}

impl PlaceError {
    /// The words.
    pub fn into_text(self) -> String {
        match self {
            Self::Entry(text) | Self::All(text) => text,
        }
    }

    /// What an error of the file `shown` means.
    pub fn of(shown: &str, error: &io::Error) -> Self {
        let of_the_name = [
            Errno::ACCESS,
            Errno::PERM,
            Errno::BUSY,
            Errno::TXTBSY,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::LOOP,
            Errno::NAMETOOLONG,
            Errno::EXIST,
            Errno::NOTEMPTY,
            Errno::INVAL,
            Errno::ILSEQ,
        ];
        let shown = printable(shown);
        match Errno::from_io_error(error) {
            // Another name may do better: a folder that is not ours to write to, a component too long, a file where a folder is
            // wanted, a link. Not so where the disk is full or read-only.
            Some(errno) if of_the_name.contains(&errno) => Self::Entry(format!("{shown} cannot be written: {error}")),
            _ => Self::All(format!("{shown} cannot be written: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_name_is_no_matter_of_the_others() {
        let of = |errno: Errno| PlaceError::of("out/a", &errno.into());
        for errno in [Errno::ACCESS, Errno::PERM, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::LOOP] {
            assert!(matches!(of(errno), PlaceError::Entry(_)), "{errno}");
        }
        for errno in [Errno::NOSPC, Errno::ROFS, Errno::DQUOT, Errno::FBIG, Errno::IO, Errno::MFILE] {
            assert!(matches!(of(errno), PlaceError::All(_)), "{errno}");
        }
    }
}
