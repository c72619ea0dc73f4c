//! Text to one tree. What enters is the settings file, the environment and the flags; what leaves is a tree of values in
//! which the later source won, and each value still knows where it came from. No key is known or checked here.
//! Invariant: a broken file yields what can be read of it, so that one round names every mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::env::PREFIX;
use super::problem::{Origin, Problem};
use super::value::Secret;

/// Everything that settings are made from.
pub struct Sources<'a> {
    /// The settings file: its name, as problems show it, and its text.
    pub file: Option<(&'a Path, String)>,
    /// The whole environment of the process.
    pub env: Vec<(String, String)>,
    /// What the command line says; the later one wins.
    pub flags: Vec<Flag>,
    /// Reads a file that a `…_file` key names, of at most so many bytes. The path is relative to the working directory.
    pub read_file: &'a dyn Fn(&Path, u64) -> io::Result<String>,
    /// Says what is wrong with a policy document, which is not for this room to know.
    pub check_policy: &'a dyn Fn(&str) -> Result<(), String>,
}

/// One setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as the user typed it, such as `--listen`.
    pub name: String,
    /// The dotted key that it sets, such as `server.listen`.
    pub key: String,
    /// The value.
    pub value: Value,
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub origin: Origin,
    pub kind: Kind,
}

/// The shape of a value.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(Value),
    /// From the environment: what it is depends on what the key wants.
    Text(String),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    fn empty(origin: Origin) -> Self {
        Self { origin, kind: Kind::Table(BTreeMap::new()) }
    }

    /// The value of text from the environment, read as TOML.
    pub fn parsed(&self) -> Result<Self, String> {
        let Kind::Text(text) = &self.kind else { return Ok(self.clone()) };
        let value = DeValue::parse(text).map_err(|e| format!("is no TOML value: {}", e.message()))?;
        Ok(from_toml(value.get_ref(), &|_| self.origin.clone(), self.origin.clone()))
    }
}

/// Merges all sources. A file's syntax errors go to `problems`; nothing is left where a heading is broken, since every key
/// below it would stand in the wrong table.
pub(super) fn merge(sources: &Sources<'_>, problems: &mut Vec<Problem>) -> Option<Node> {
    let mut root = match &sources.file {
        Some((name, text)) => parse_file(name, text, problems)?,
        None => Node::empty(Origin::Default),
    };
    let mut variables: Vec<_> = sources.env.iter().filter_map(|(name, text)| Some((name.strip_prefix(PREFIX)?, text))).collect();
    // A whole table comes before its members, so that both can be given.
    variables.sort_by_key(|(path, _)| (path.split("__").count(), *path));
    for (path, text) in variables {
        let origin = Origin::Environment { variable: format!("{PREFIX}{path}") };
        let path = path.to_ascii_lowercase();
        let leaf = Node { origin: origin.clone(), kind: Kind::Text(text.clone()) };
        if path.split("__").any(str::is_empty) {
            problems.push(Problem::new(origin, "", "a level has no name; write BATCHGATE__SECTION__KEY"));
        } else if let Err(message) = overlay(&mut root, &path.split("__").collect::<Vec<_>>(), leaf) {
            problems.push(Problem::new(origin, path.replace("__", "."), message));
        }
    }
    for flag in &sources.flags {
        let origin = Origin::Flag { flag: flag.name.clone() };
        let leaf = from_flag(&flag.value, &origin);
        if let Err(message) = overlay(&mut root, &flag.key.split('.').collect::<Vec<_>>(), leaf) {
            problems.push(Problem::new(origin, flag.key.clone(), message));
        }
    }
    Some(root)
}

/// Puts `leaf` at `path`; an index of a list may replace an element or add the next one.
fn overlay(at: &mut Node, path: &[&str], leaf: Node) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *at = leaf;
        return Ok(());
    };
    if matches!(at.kind, Kind::Text(_)) {
        *at = at.parsed()?;
    }
    let next = match &mut at.kind {
        Kind::Table(table) => {
            if rest.is_empty() {
                forget_alternatives(table, step);
            }
            table.entry((*step).to_owned()).or_insert_with(|| placeholder(rest, &leaf.origin))
        }
        Kind::Array(list) => {
            let index: usize = step.parse().map_err(|_| format!("is a list; write a number in place of {step:?}"))?;
            if index > list.len() {
                return Err(format!("the list has {} elements so far, so the next index is {}", list.len(), list.len()));
            }
            if index == list.len() {
                list.push(placeholder(rest, &leaf.origin));
            }
            &mut list[index]
        }
        Kind::Scalar(_) | Kind::Text(_) => return Err(format!("is no table, so {step:?} cannot be set in it")),
    };
    overlay(next, rest, leaf)
}

/// What a level that nobody has given yet starts as: a list where an index follows.
fn placeholder(rest: &[&str], origin: &Origin) -> Node {
    match rest.first() {
        Some(step) if step.bytes().all(|b| b.is_ascii_digit()) => Node { origin: origin.clone(), kind: Kind::Array(Vec::new()) },
        _ => Node::empty(origin.clone()),
    }
}

/// A later source that gives `secret_key_file` replaces an earlier `secret_key`: both are ways to say the same thing.
fn forget_alternatives(table: &mut BTreeMap<String, Node>, key: &str) {
    for stem in ["access_key", "secret_key", "session_token", "policy"] {
        let ways = [stem.to_owned(), format!("{stem}_file"), format!("{stem}_env"), format!("{stem}_json")];
        if ways.iter().any(|way| way == key) {
            table.retain(|name, _| !ways.contains(name));
        }
    }
}

fn from_flag(value: &Value, origin: &Origin) -> Node {
    let kind = match value {
        Value::Array(list) => Kind::Array(list.iter().map(|v| from_flag(v, origin)).collect()),
        Value::Table(table) => Kind::Table(table.iter().map(|(k, v)| (k.clone(), from_flag(v, origin))).collect()),
        scalar => Kind::Scalar(scalar.clone()),
    };
    Node { origin: origin.clone(), kind }
}

/// Most lines of a file whose syntax errors are named. With more it is no TOML at all, and nothing is read of it.
const BROKEN_MAX: usize = 100;

/// The tree of one file; its syntax errors go to `problems`, and there is none where a heading is broken.
pub(super) fn parse_file(name: &Path, text: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    let file = name.display().to_string();
    let ends: Vec<usize> = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at).collect();
    let line_of = |offset: usize| 1 + ends.partition_point(|end| *end < offset);
    let origin_of = |offset: usize| Origin::File { file: file.clone(), line: line_of(offset) };
    let (document, errors) = DeTable::parse_recoverable(text);
    let table = DeValue::Table(document.into_inner());
    let root = from_toml(&table, &origin_of, origin_of(0));
    let mut broken = BTreeSet::new();
    for error in &errors {
        let line = line_of(error.span().map_or(0, |span| span.start));
        // The first error of a line is the mistake; those after it are its echoes.
        if !broken.insert(line) || broken.len() > BROKEN_MAX {
            continue;
        }
        let origin = Origin::File { file: file.clone(), line };
        let key = key_at(&root, "", &origin).unwrap_or_default();
        problems.push(Problem::new(origin, key, error.message()));
    }
    if broken.len() > BROKEN_MAX {
        let message = format!("{} lines are no TOML, and only the first of them are named", broken.len());
        problems.push(Problem::new(Origin::File { file, line: 1 }, "", message));
        return None;
    }
    let heading = |line: usize| {
        let start = line.checked_sub(2).and_then(|before| ends.get(before)).map_or(0, |end| end + 1);
        text[start..].trim_start_matches([' ', '\t', '\r']).starts_with('[')
    };
    (!broken.into_iter().any(heading)).then_some(root)
}

/// The dotted key of the innermost value that begins at `origin`.
fn key_at(node: &Node, path: &str, origin: &Origin) -> Option<String> {
    let inner = match &node.kind {
        Kind::Table(table) => table.iter().find_map(|(key, value)| key_at(value, &join(path, key), origin)),
        Kind::Array(list) => list.iter().enumerate().find_map(|(i, value)| key_at(value, &format!("{path}[{i}]"), origin)),
        Kind::Scalar(_) | Kind::Text(_) => None,
    };
    inner.or_else(|| (node.origin == *origin && !path.is_empty()).then(|| path.to_owned()))
}

/// `path.key`. What is no word may be a secret that stands where a key should.
pub(super) fn join(path: &str, key: &str) -> String {
    let key = if is_word(key) { key } else { Secret::HIDDEN };
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Longest key that is shown; the longest that means something has 21 letters.
const WORD_MAX: usize = 24;

/// Keys that have digits and are no secrets.
const WITH_DIGITS: &[&str] = &["content_md5", "sigv2"];

/// Whether a key is one that people write, misspelt or not. Secrets are longer, or have digits.
fn is_word(key: &str) -> bool {
    WITH_DIGITS.contains(&key) || key.len() <= WORD_MAX && key.bytes().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-'))
}

fn from_toml(value: &DeValue<'_>, origin_of: &dyn Fn(usize) -> Origin, origin: Origin) -> Node {
    let kind = match value {
        DeValue::Table(table) => {
            let member = |key: &toml::Spanned<_>, value: &toml::Spanned<DeValue<'_>>| {
                from_toml(value.get_ref(), origin_of, origin_of(key.span().start))
            };
            Kind::Table(table.iter().map(|(key, value)| (key.get_ref().to_string(), member(key, value))).collect())
        }
        DeValue::Array(list) => {
            Kind::Array(list.iter().map(|v| from_toml(v.get_ref(), origin_of, origin_of(v.span().start))).collect())
        }
        DeValue::String(text) => Kind::Scalar(Value::String(text.to_string())),
        DeValue::Boolean(yes) => Kind::Scalar(Value::Boolean(*yes)),
        DeValue::Datetime(when) => Kind::Scalar(Value::Datetime(*when)),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            // Too large for TOML: kept as text, which no key that wants a number takes.
            Kind::Scalar(parsed.map_or_else(|_| Value::String(number.to_string()), Value::Integer))
        }
        DeValue::Float(number) => {
            Kind::Scalar(number.as_str().parse().map_or_else(|_| Value::String(number.to_string()), Value::Float))
        }
    };
    Node { origin, kind }
}
