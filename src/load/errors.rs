//! Errors by their kind. What enters are errors; what leaves is how often each kind came, and its first example. Invariant:
//! memory does not grow with what is counted, since there is a maximum of kinds.

use std::collections::BTreeMap;

/// Most kinds of errors that are told apart: codes are an endpoint's to invent.
const ERROR_KINDS_MAX: usize = 32;

/// The kind of those beyond.
const OTHER_ERRORS: &str = "others";

/// Errors by their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(BTreeMap<String, ErrorCount>);

/// One kind of error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    /// How often.
    pub count: u64,
    /// The first one, in one line.
    pub first: String,
}

impl Errors {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts an error; `text` is asked only for the first of a kind.
    pub fn note(&mut self, kind: &str, text: impl FnOnce() -> String) {
        self.add_count(kind, 1, text);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        for (kind, seen) in &other.0 {
            self.add_count(kind, seen.count, || seen.first.clone());
        }
    }

    /// Kinds with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ErrorCount)> {
        self.0.iter().map(|(kind, seen)| (kind.as_str(), seen))
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.values().map(|seen| seen.count).sum()
    }

    fn add_count(&mut self, kind: &str, count: u64, text: impl FnOnce() -> String) {
        let kind = if self.0.contains_key(kind) || self.0.len() < ERROR_KINDS_MAX { kind } else { OTHER_ERRORS };
        match self.0.get_mut(kind) {
            Some(seen) => seen.count += count,
            None => drop(self.0.insert(kind.to_owned(), ErrorCount { count, first: text() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_are_bounded_and_the_first_is_kept() {
        let mut errors = Errors::default();
        for n in 0..1000 {
            errors.note(&format!("{} Code{}", 400, n % 100), || format!("text {n}"));
        }
        assert_eq!(errors.count(), 1000);
        assert_eq!(errors.iter().count(), ERROR_KINDS_MAX + 1);
        assert!(errors.iter().any(|(kind, seen)| kind == "400 Code0" && seen.first == "text 0" && seen.count == 10));
        assert!(errors.iter().any(|(kind, seen)| kind == OTHER_ERRORS && seen.count == 680));
    }
}
