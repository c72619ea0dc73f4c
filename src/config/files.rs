//! What settings name instead of saying it: files and variables. What enters is the key of a name; what leaves is the text
//! that it leads to, or a problem. Invariants: no file is read beyond its largest size; and a name that leads nowhere is not
//! repeated where a secret may stand in its place, as in `secret_key_env = "THE SECRET"`.

use std::io;
use std::path::{Path, PathBuf};

use super::problem::Origin;
use super::reader::{Reader, Section};
use super::value::Secret;

/// Largest file of settings, and largest file of identities: some 50,000 of them.
pub const TABLES_BYTES_MAX: u64 = 16 << 20;

/// Largest certificate chain, private key, bundle of authorities, and policy, though that has a smaller maximum of its own.
pub const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// Largest file with a key or a token.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Tables with a secret: by a slip it may stand at any of their keys, so none of their values is repeated in a problem.
const PRIVATE: [&str; 4] = ["identities", "credentials", "tls", "backend_credentials"];

/// A path, and the text of its file or why there is none.
type Opened = (PathBuf, Result<String, (Origin, String)>);

impl Reader<'_> {
    /// The path at `key`, whose file must be readable and at most a document. A path in a file is relative to that file's folder.
    pub fn file_path(&mut self, section: &mut Section, key: &str) -> Option<PathBuf> {
        // A PEM file may have any bytes around its blocks.
        let any_bytes = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
        let (path, read) = self.open(section, key, DOCUMENT_BYTES_MAX, &any_bytes)?;
        read.map_err(|(origin, message)| self.problem(&origin, section.path_of(key), message)).ok()?;
        Some(path)
    }

    /// The text of the file that `key` names.
    pub fn file_text(&mut self, section: &mut Section, key: &str, bytes_max: u64) -> Option<String> {
        self.file(section, key, bytes_max).map(|(_, text)| text)
    }

    /// The path of the file that `key` names, and its text.
    pub fn file(&mut self, section: &mut Section, key: &str, bytes_max: u64) -> Option<(PathBuf, String)> {
        let (path, read) = self.open(section, key, bytes_max, &|_| false)?;
        let text = read.map_err(|(origin, message)| self.problem(&origin, section.path_of(key), message)).ok()?;
        Some((path, text))
    }

    fn open(&mut self, section: &mut Section, key: &str, bytes_max: u64, bears: &dyn Fn(&io::Error) -> bool) -> Option<Opened> {
        let name: String = self.get(section, key)?;
        let origin = self.origins[&section.path_of(key)].clone();
        let folder = match (&origin, &self.sources.file) {
            // Its name as a path, since the origin has it as text for people.
            (Origin::File { file, .. }, Some((settings, _))) if settings.display().to_string() == *file => folder_of(settings),
            (Origin::File { file, .. }, _) => folder_of(Path::new(file)),
            _ => PathBuf::new(),
        };
        let path = folder.join(&name);
        if name.is_empty() {
            return Some((path, Err((origin, "is empty; write the name of a file".into()))));
        }
        let read = match (self.sources.read_file)(&path, bytes_max) {
            Ok(text) => Ok(text),
            Err(error) if bears(&error) => Ok(String::new()),
            Err(error) if is_private(&section.path) && leads_nowhere(&error) => {
                let start =
                    if folder.as_os_str().is_empty() { "the working directory".into() } else { folder.display().to_string() };
                Err((origin, format!("cannot be read: {error}; a relative path starts at {start}")))
            }
            Err(error) => Err((origin, format!("{} cannot be read: {error}", path.display()))),
        };
        Some((path, read))
    }

    /// A text that may stand in the settings, in a file (`…_file`) or in a variable (`…_env`), and must not be empty.
    pub fn secret(&mut self, section: &mut Section, key: &str) -> Option<String> {
        let ways = [key.to_owned(), format!("{key}_file"), format!("{key}_env")];
        self.at_most_one(section, &ways);
        let given = ways.iter().find(|way| section.has(way)).unwrap_or(&ways[0]).clone();
        let origin = section.left.get(&given).map(|node| node.origin.clone());
        let before = self.problems.len();
        let plain = self.get(section, &ways[0]);
        let from_file = self.file_text(section, &ways[1], SECRET_BYTES_MAX);
        let from_file = from_file.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        let variable: Option<String> = self.get(section, &ways[2]);
        let from_env = variable.and_then(|name| {
            let found = self.sources.env.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| text.clone()).or_else(|| {
                let origin = self.origins[&section.path_of(&ways[2])].clone();
                let message = format!("the environment has no variable of this name; the {key} itself goes into {key:?}");
                self.problem(&origin, section.path_of(&ways[2]), message);
                None
            })
        });
        let text: Option<String> = plain.or(from_file).or(from_env);
        let wrong = match text.as_deref() {
            Some("") => Some("is empty"),
            Some(text) if text.contains(char::is_control) => Some("has a line break or another control character in it"),
            _ => None,
        };
        if let (Some(wrong), true) = (wrong, self.problems.len() == before) {
            self.problem(&origin.unwrap_or(Origin::Default), section.path_of(&given), wrong);
        }
        text
    }

    /// As [`Reader::secret`], for one that has no default.
    pub fn required_secret(&mut self, section: &mut Section, key: &str) -> String {
        if !["", "_file", "_env"].iter().any(|way| section.has(&format!("{key}{way}"))) {
            let message = format!("is required; {key}_file or {key}_env may stand in its place");
            self.problem(&section.origin.clone(), section.path_of(key), message);
        }
        self.secret(section, key).unwrap_or_default()
    }

    /// A secret that may be absent.
    pub fn optional_secret(&mut self, section: &mut Section, key: &str) -> Option<Secret> {
        self.secret(section, key).map(Secret::new)
    }
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_owned()
}

/// Whether the table at `path` is one of those with a secret, or in one.
fn is_private(path: &str) -> bool {
    path.split('.').any(|part| PRIVATE.contains(&part.split('[').next().unwrap_or_default()))
}

/// Whether the text of a path may be anything, for all that is known. Any other failure is that of a file that is there.
fn leads_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput)
}
