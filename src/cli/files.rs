//! Reads the files of settings. What enters is a path and the most bytes that it may have; what leaves is those bytes, or why
//! not. Invariant: a file that is too large costs no more than a look at its length, or at one byte too many.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::config::format_size;

/// The content of a file, a pipe too.
///
/// # Errors
/// Those of reading; `FileTooLarge` for more than `bytes_max`.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > bytes_max {
        let most = format_size(bytes_max);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {length} bytes, and at most {most} are read")));
    }
    // What was measured may grow, and a pipe has no length.
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        let most = format_size(bytes_max);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than the {most} that are read at most")));
    }
    Ok(content)
}

/// The text of a file, without the mark that some editors put before it.
///
/// # Errors
/// `InvalidData` for what is no UTF-8.
pub(super) fn text(content: Vec<u8>) -> io::Result<String> {
    // With its mark, or without it, where every second byte of plain text is 0.
    if content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]) || content.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is UTF-16 or no text at all; save it as UTF-8"));
    }
    let text = String::from_utf8(content).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// As [`read`] and [`text`].
pub(super) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    read(path, bytes_max).and_then(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_maximum_and_not_a_byte_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it has 5 bytes, and at most 4 are read")
        );
        // Endless, and without a length.
        assert_eq!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(&folder.path().join("none"), 5).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn text_is_utf_8_with_or_without_a_mark() {
        assert_eq!(text(b"\xef\xbb\xbfa\r\n".to_vec()).unwrap(), "a\r\n");
        assert_eq!(text("ä".as_bytes().to_vec()).unwrap(), "ä");
        for (content, message) in
            [(&b"\xff\xfea\0"[..], "UTF-16"), (b"\xfe\xff\0a", "UTF-16"), (b"a\0b\0", "UTF-16"), (b"a\xe4", "no UTF-8")]
        {
            let error = text(content.to_vec()).unwrap_err();
            assert!(error.kind() == io::ErrorKind::InvalidData && error.to_string().contains(message), "{error}");
        }
    }
}
