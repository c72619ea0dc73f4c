//! Holds the house in order: every room's imports point strictly down its floors, and every file says what it is for.
//! Reads the sources as text; knows nothing of what they do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms by floor, the lowest first. Rooms of one floor do not import each other, except those below.
const FLOORS: &[&[&str]] = &[
    &["types", "error"],
    &["budget", "checksum", "config", "peer", "stall", "telemetry"],
    &["backend"],
    &["auth", "client", "route"],
    // `load` stands on `client` and needs nothing of the gateway; `cli` runs it.
    &["batch", "load", "passthrough"],
    &["edge"],
    &["app"],
    &["cli"],
];

/// The edges inside one floor, with the reason for each.
const SAME_FLOOR: &[(&str, &str)] = &[
    // A kind of failure is told in words of the house.
    ("error", "types"),
];

/// Longest source file without its tests, in lines.
const LINES_MAX: usize = 400;

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn files() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    assert!(paths.len() > 30, "the walk found the sources");
    let relative = |path: &Path| path.strip_prefix(&src).expect("under src").to_string_lossy().into_owned();
    paths.iter().map(|path| (relative(path), fs::read_to_string(path).expect("readable"))).collect()
}

fn room(file: &str) -> &str {
    file.split(['/', '.']).next().expect("split gives one")
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that a file's code names by `crate::room`; comments may speak of any.
fn imports(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.match_indices("crate::").map(move |(at, _)| &line[at + "crate::".len()..]))
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect()
}

fn upward_edges(files: &[(String, String)]) -> Vec<String> {
    let mut wrong = BTreeMap::new();
    for (file, text) in files {
        let from = room(file);
        let Some(floor) = floor_of(from) else { continue };
        for to in imports(text).iter().filter(|to| *to != from) {
            let allowed = floor_of(to).is_some_and(|other| other < floor) || SAME_FLOOR.contains(&(from, to.as_str()));
            if !allowed {
                wrong.insert(format!("{file}: {from} -> {to}"), ());
            }
        }
    }
    wrong.into_keys().collect()
}

fn lines_without_tests(text: &str) -> usize {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().count()
}

#[test]
fn imports_point_strictly_down() {
    assert_eq!(upward_edges(&files()), Vec::<String>::new());
}

#[test]
fn an_upward_or_a_sideways_import_would_be_seen() {
    let edges = |file: &str, text: &str| upward_edges(&[(file.to_owned(), text.to_owned())]);
    assert_eq!(edges("types/name.rs", "use crate::error::Kind;\n").len(), 1, "upward");
    assert_eq!(edges("route.rs", "fn f() { crate::auth::action::x() }").len(), 1, "sideways, without a use line");
    assert_eq!(edges("batch/mod.rs", "use crate::unknown::X;").len(), 1, "a room without a floor");
    assert_eq!(edges("batch/mod.rs", "// crate::edge may be spoken of\nuse crate::backend::Body;").len(), 0);
}

#[test]
fn every_room_has_a_floor() {
    let without: Vec<_> =
        files().into_iter().filter(|(file, _)| floor_of(room(file)).is_none() && !matches!(room(file), "lib" | "main")).collect();
    assert!(without.is_empty(), "{:?}", without.iter().map(|(file, _)| file).collect::<Vec<_>>());
}

#[test]
fn every_file_says_what_it_is_for_and_stays_readable() {
    for (file, text) in files() {
        assert!(text.starts_with("//! "), "{file} opens without saying what it is for");
        let lines = lines_without_tests(&text);
        let is_test = file.contains("tests");
        assert!(is_test || lines <= LINES_MAX, "{file} has {lines} lines");
    }
}

/// The metrics that a page speaks of, and where a name ends in `{` or not.
fn metrics_in(page: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = page.match_indices("batchgate_").filter(|(at, _)| !page[..*at].ends_with(|c: char| is_name(c) || c == '.'));
    starts.map(|(at, _)| &page[at..at + page[at..].find(|c| !is_name(c)).unwrap_or(page.len() - at)]).collect()
}

#[test]
fn pages_speak_of_metrics_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("readable");
    let names = read("src/telemetry/names.rs");
    let mut count = 0;
    for page in ["README.md", "tests/README.md", "config/reference.toml", "src/cli/serve.rs"] {
        let text = read(page);
        for name in metrics_in(&text).into_iter().filter(|name| *name != "batchgate_") {
            count += 1;
            assert!(names.contains(&format!("\"{name}\"")), "{page}: there is no {name}");
        }
        // A table gives names without what all begin with.
        for name in text.split('`').filter(|word| {
            ["backend_", "edge_", "batch_", "config_", "passthrough_", "credentials_"].iter().any(|room| word.starts_with(room))
        }) {
            let name = name.split('{').next().expect("split gives one");
            if !name.contains(['.', ' ']) && page == "README.md" && !["backend_bucket", "backend_credentials"].contains(&name) {
                count += 1;
                assert!(names.contains(&format!("\"batchgate_{name}\"")), "{page}: there is no batchgate_{name}");
            }
        }
    }
    assert!(count > 30, "{count}");
}

/// The names of functions that the table of traps has, each in backticks.
fn tests_in(page: &str) -> Vec<&str> {
    let section = page.split("\n## ").find(|section| section.starts_with("Traps\n")).expect("there is a section of traps");
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| trap "));
    let cells = rows.flat_map(|row| row.splitn(3, " | ").skip(1));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.filter(|word| word.contains('_') && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))).collect()
}

#[test]
fn the_table_of_traps_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("tests/README.md")).expect("readable");
    let mut code: String = files().into_iter().map(|(_, text)| text).collect();
    for entry in fs::read_dir(root.join("tests/e2e")).expect("tests are there") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "py") {
            code += &fs::read_to_string(path).expect("readable");
        }
    }
    let names = tests_in(&page);
    assert!(names.len() > 60, "{}", names.len());
    // `x_amz_acl`, which is a header.
    let missing = |name: &&&str| !["def", "fn"].iter().any(|word| code.contains(&format!("{word} {name}(")));
    let missing: Vec<_> = names.iter().filter(missing).filter(|name| **name != "x_amz_acl").collect();
    assert_eq!(missing, Vec::<&&str>::new());
}
