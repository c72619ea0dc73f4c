//! Files of a folder: what is written, what is replaced, and what no name can do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use http::{HeaderMap, HeaderValue};

use super::*;

fn head() -> Head {
    let mut headers = HeaderMap::new();
    headers.insert("last-modified", HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    Head::new(0, 200, 4, headers)
}

fn put(folder: &mut Folder, name: &str, octets: &[u8]) -> Result<(), PlaceError> {
    folder.begin(name, &head())?;
    folder.data(octets)?;
    folder.end()
}

/// Every file below a folder; links are not followed.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(path),
                kind if kind.is_file() => drop(found.insert(path.display().to_string(), fs::read(root.join(&path)).unwrap())),
                _ => {}
            }
        }
    }
    found
}

fn expected(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

#[test]
fn files_have_their_bytes_and_times_and_replace_older_ones() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("new/out");
    let mut folder = Folder::open(&root).unwrap();
    for (name, text) in [("a/b/c", "old"), ("a/b/d", "two"), ("e", "three"), ("a/b/c", "one")] {
        put(&mut folder, name, text.as_bytes()).unwrap();
    }
    assert_eq!(files(&root), expected(&[("a/b/c", "one"), ("a/b/d", "two"), ("e", "three")]));
    let modified = fs::metadata(root.join("e")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
    assert!(folder.has("a/b/d") && !folder.has("a/b") && !folder.has("a/x") && !folder.has("x/y/z"));
    assert!(!root.join("x").exists(), "to look makes nothing");
}

#[test]
fn what_is_not_whole_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let mut folder = Folder::open(temporary.path()).unwrap();
    put(&mut folder, "a", b"whole").unwrap();
    folder.begin("a", &head()).unwrap();
    folder.data(b"ha").unwrap();
    assert_eq!(files(temporary.path()).len(), 2, "it is there under a name of ours");
    folder.void().unwrap();
    assert_eq!(files(temporary.path()), expected(&[("a", "whole")]));
    folder.begin("b/c", &head()).unwrap();
    folder.data(b"ha").unwrap();
    drop(folder);
    assert_eq!(files(temporary.path()), expected(&[("a", "whole")]));
}

#[test]
fn no_link_is_followed_and_only_the_entry_fails() {
    let temporary = tempfile::tempdir().unwrap();
    let (root, outside) = (temporary.path().join("out"), temporary.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "not ours").unwrap();
    let mut folder = Folder::open(&root).unwrap();
    put(&mut folder, "deep/a", b"a").unwrap();
    symlink(&outside, root.join("link")).unwrap();
    symlink(&outside, root.join("deep/link")).unwrap();
    symlink(outside.join("file"), root.join("file")).unwrap();
    for name in ["link/x", "link/file", "deep/link/x"] {
        assert!(matches!(put(&mut folder, name, b"x"), Err(PlaceError::Entry(what)) if what.contains("out/")), "{name}");
        assert!(!folder.has(name), "{name}");
    }
    // What is not followed is not taken for a file either; what has the name is replaced.
    assert!(!folder.has("file"));
    put(&mut folder, "file", b"ours").unwrap();
    assert_eq!(files(&outside), expected(&[("file", "not ours")]));
    assert_eq!(files(&root), expected(&[("deep/a", "a"), ("file", "ours")]));
    // A folder that becomes a link while we write is the one that it was.
    folder.begin("deep/b", &head()).unwrap();
    fs::rename(root.join("deep"), root.join("moved")).unwrap();
    symlink(&outside, root.join("deep")).unwrap();
    folder.end().unwrap();
    assert_eq!(files(&outside), expected(&[("file", "not ours")]));
    assert!(root.join("moved/b").exists());
}

#[test]
fn a_name_that_is_a_folder_and_one_that_is_too_long_fail_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let mut folder = Folder::open(temporary.path()).unwrap();
    put(&mut folder, "a", b"1").unwrap();
    put(&mut folder, "b/c", b"2").unwrap();
    for name in ["a/x", "b", &"n".repeat(256), &format!("{}/x", "n".repeat(256))] {
        assert!(matches!(put(&mut folder, name, b"x"), Err(PlaceError::Entry(_))), "{name}");
        folder.void().unwrap();
    }
    assert_eq!(files(temporary.path()), expected(&[("a", "1"), ("b/c", "2")]));
}

#[test]
fn a_name_of_ours_that_is_taken_is_not_overwritten() {
    let temporary = tempfile::tempdir().unwrap();
    let taken = format!(".batchgate-{}-1.part", std::process::id());
    fs::write(temporary.path().join(&taken), "of another").unwrap();
    let mut folder = Folder::open(temporary.path()).unwrap();
    put(&mut folder, "a", b"1").unwrap();
    assert_eq!(files(temporary.path()), expected(&[(&taken, "of another"), ("a", "1")]));
}

#[test]
fn a_folder_that_cannot_be_made_is_said_in_one_line() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [&file, &file.join("x")] {
        let what = Folder::open(path).err().unwrap();
        assert!(what.contains("cannot be written to: ") && !what.contains('\n'), "{what}");
    }
}
