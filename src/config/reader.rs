//! Tree to values. What enters is a merged tree; what leaves is values of the types that the settings want, and a problem
//! for each one that does not fit. Which keys exist is `load`'s to say: every key that it asks a [`Section`] for is known,
//! and what is left over is not. Invariant: reading goes on after a mistake, with the default in its place.

use std::collections::BTreeMap;

use toml::Value;

use super::problem::{Origin, Problem, nearest};
use super::tree::{Kind, Node, Sources, join};

/// Collects what is wrong, and where each key came from.
pub(super) struct Reader<'a> {
    pub sources: &'a Sources<'a>,
    pub problems: Vec<Problem>,
    /// What is no TOML in a file that the settings name; what else stands on such a line is no problem of its own.
    pub syntax: Vec<Problem>,
    /// The origin of every value that some source gave, by dotted key.
    pub origins: BTreeMap<String, Origin>,
}

/// A table whose keys are being read.
pub(super) struct Section {
    pub path: String,
    pub origin: Origin,
    pub left: BTreeMap<String, Node>,
    asked: Vec<String>,
}

impl Section {
    /// The dotted path of `key` in this table.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Whether some source gives `key`.
    pub fn has(&self, key: &str) -> bool {
        self.left.contains_key(key)
    }

    /// Takes the value of `key`, which is known from now on.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        self.asked.push(key.to_owned());
        self.left.remove(key)
    }
}

impl Reader<'_> {
    /// Notes that something is wrong with the value at `path`.
    pub fn problem(&mut self, origin: &Origin, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(origin.clone(), path, message));
    }

    /// Opens the table at `path`; without a node it is empty.
    pub fn section(&mut self, path: &str, node: Option<Node>) -> Section {
        let mut section = Section { path: path.to_owned(), origin: Origin::Default, left: BTreeMap::new(), asked: Vec::new() };
        let Some(node) = node else { return section };
        section.origin = node.origin.clone();
        self.origins.insert(path.to_owned(), node.origin.clone());
        match self.structured(&node, path).map(|n| n.kind) {
            Some(Kind::Table(table)) => section.left = table,
            Some(other) => self.problem(&node.origin, path, format!("expected a table, found {}", describe(&other))),
            None => {}
        }
        section
    }

    /// Closes a table: what nobody asked for is unknown.
    pub fn finish(&mut self, section: Section) {
        for (key, node) in section.left {
            let near = nearest(&key, section.asked.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; the nearest known key is {near:?}"));
            self.problem(&node.origin, join(&section.path, &key), format!("unknown key{near}"));
        }
    }

    /// The elements of the list at `key`, each with its path.
    pub fn list(&mut self, section: &mut Section, key: &str) -> Vec<(String, Node)> {
        let path = section.path_of(key);
        let Some(node) = section.take(key) else { return Vec::new() };
        self.elements(&node, &path).unwrap_or_default()
    }

    pub fn elements(&mut self, node: &Node, path: &str) -> Option<Vec<(String, Node)>> {
        self.origins.insert(path.to_owned(), node.origin.clone());
        match self.structured(node, path)?.kind {
            Kind::Array(list) => Some(list.into_iter().enumerate().map(|(i, n)| (format!("{path}[{i}]"), n)).collect()),
            other => {
                self.problem(&node.origin, path, format!("expected a list, found {}", describe(&other)));
                None
            }
        }
    }

    /// The node, with text from the environment read as TOML.
    fn structured(&mut self, node: &Node, path: &str) -> Option<Node> {
        node.parsed().map_err(|message| self.problem(&node.origin, path, message)).ok()
    }

    /// The value of `key`, if some source gives it and it fits.
    pub fn get<T: Read>(&mut self, section: &mut Section, key: &str) -> Option<T> {
        let path = section.path_of(key);
        let node = section.take(key)?;
        self.origins.insert(path.clone(), node.origin.clone());
        T::read(&node, &path, self)
    }

    /// Puts the value of `key` over the default in `to`.
    pub fn set<T: Read>(&mut self, section: &mut Section, key: &str, to: &mut T) {
        if let Some(value) = self.get(section, key) {
            *to = value;
        }
    }

    /// The value of a key that has no default; empty where it is missing, which is a problem.
    pub fn required(&mut self, section: &mut Section, key: &str) -> String {
        if !section.has(key) {
            self.problem(&section.origin.clone(), section.path_of(key), "is required");
        }
        self.get(section, key).unwrap_or_default()
    }

    /// Of several ways to say one thing only one may be used.
    pub fn at_most_one(&mut self, section: &Section, ways: &[String]) {
        let given: Vec<&String> = ways.iter().filter(|way| section.has(way)).collect();
        if let [first, others @ ..] = given.as_slice() {
            for other in others {
                let origin = section.left[*other].origin.clone();
                self.problem(&origin, section.path_of(other), format!("cannot stand beside {first:?}; keep one of them"));
            }
        }
    }
}

/// What a value is, for a problem; never its text.
pub(super) fn describe(kind: &Kind) -> &'static str {
    match kind {
        Kind::Scalar(Value::String(_)) | Kind::Text(_) => "a string",
        Kind::Scalar(Value::Integer(_)) => "an integer",
        Kind::Scalar(Value::Float(_)) => "a float",
        Kind::Scalar(Value::Boolean(_)) => "a boolean",
        Kind::Scalar(_) => "a date",
        Kind::Array(_) => "a list",
        Kind::Table(_) => "a table",
    }
}

/// A type that a key can want.
pub(super) trait Read: Sized {
    /// The value of `node`, or nothing once what is wrong with it is noted.
    fn read(node: &Node, path: &str, reader: &mut Reader<'_>) -> Option<Self>;
}
