//! One page of a listing. An ordered map of keys and what is asked enter; the page leaves. The map is walked from where the page
//! starts, and a common prefix is stepped over in one go, so that a page costs what is on it and not what is in the bucket.
//! Order is that of the keys' bytes, which for UTF-8 is S3's. Pure.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A key: UTF-8, 1 to 1,024 bytes.
pub type Key = Arc<[u8]>;

/// What is asked.
pub struct Ask<'a> {
    pub prefix: &'a [u8],
    /// Empty: none.
    pub delimiter: &'a [u8],
    /// Where the page starts: behind this key or common prefix. Empty: at the beginning.
    pub after: &'a [u8],
    /// Most keys and common prefixes, together.
    pub max: usize,
}

/// A line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<V> {
    /// A key, with its value.
    Key(Key, V),
    /// All the keys that begin so.
    CommonPrefix(Vec<u8>),
}

impl<V> Entry<V> {
    /// What the next page goes on behind.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Key(key, _) => key,
            Self::CommonPrefix(prefix) => prefix,
        }
    }
}

/// A page; `truncated` if there is more behind it.
#[derive(Debug)]
pub struct Page<V> {
    pub entries: Vec<Entry<V>>,
    pub truncated: bool,
}

/// Makes the page.
pub fn page<V: Clone>(map: &BTreeMap<Key, V>, ask: &Ask<'_>) -> Page<V> {
    let owned = |entry| match entry {
        Entry::Key(key, value) => Entry::Key(key, V::clone(value)),
        Entry::CommonPrefix(prefix) => Entry::CommonPrefix(prefix),
    };
    cut(lines(map, ask).map(owned), ask.max)
}

/// The first `max` lines as a page.
pub fn cut<V>(mut lines: impl Iterator<Item = Entry<V>>, max: usize) -> Page<V> {
    let entries = lines.by_ref().take(max).collect();
    Page { entries, truncated: max > 0 && lines.next().is_some() }
}

/// All lines from where the page starts, each made when it is asked for.
pub fn lines<'a, V>(map: &'a BTreeMap<Key, V>, ask: &'a Ask<'a>) -> impl Iterator<Item = Entry<&'a V>> {
    let mut from = first(ask);
    std::iter::from_fn(move || {
        let (key, value) = map.range::<[u8], _>((bound(&from), Bound::Unbounded)).next()?;
        if !key.starts_with(ask.prefix) {
            return None;
        }
        let (next, line) = match group(key, ask) {
            Some(group) => (behind_all(group), Entry::CommonPrefix(group.to_vec())),
            None => (Bound::Excluded(key.to_vec()), Entry::Key(Arc::clone(key), value)),
        };
        from = next;
        Some(line)
    })
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Where the walk begins.
fn first(ask: &Ask<'_>) -> Bound<Vec<u8>> {
    if ask.after < ask.prefix || ask.after.is_empty() {
        return Bound::Included(ask.prefix.to_vec());
    }
    match group(ask.after, ask) {
        // A page that ended with a common prefix goes on behind all that it stands for.
        Some(group) if group == ask.after => behind_all(group),
        _ => Bound::Excluded(ask.after.to_vec()),
    }
}

/// The common prefix that `key` belongs to, if it does.
pub fn group<'a>(key: &'a [u8], ask: &Ask<'_>) -> Option<&'a [u8]> {
    if ask.delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(ask.prefix)?;
    let at = rest.windows(ask.delimiter.len()).position(|window| window == ask.delimiter)?;
    Some(&key[..ask.prefix.len() + at + ask.delimiter.len()])
}

/// The first place that no key with this prefix reaches. UTF-8 has no byte 255, so the last one can always be raised.
fn behind_all(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    let last = end.last_mut().expect("a group is not empty");
    *last = last.checked_add(1).expect("keys and delimiters are UTF-8");
    Bound::Included(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(keys: &[&str]) -> BTreeMap<Key, ()> {
        keys.iter().map(|key| (Key::from(key.as_bytes()), ())).collect()
    }

    fn text(entry: &Entry<()>) -> String {
        String::from_utf8(entry.name().to_vec()).expect("UTF-8")
    }

    fn ask<'a>(prefix: &'a str, delimiter: &'a str, after: &'a str, max: usize) -> Ask<'a> {
        Ask { prefix: prefix.as_bytes(), delimiter: delimiter.as_bytes(), after: after.as_bytes(), max }
    }

    /// Sorts, filters and folds all of it, then cuts: obviously right, and not fit for a bucket.
    fn naive(keys: &[&str], ask: &Ask<'_>) -> (Vec<String>, bool) {
        let mut keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut names: Vec<Vec<u8>> = Vec::new();
        for key in keys.into_iter().filter(|key| key.starts_with(ask.prefix)) {
            let rest = String::from_utf8(key[ask.prefix.len()..].to_vec()).expect("UTF-8");
            let delimiter = String::from_utf8(ask.delimiter.to_vec()).expect("UTF-8");
            let folded = if delimiter.is_empty() { None } else { rest.find(&delimiter) };
            let name = folded.map_or(key.to_vec(), |at| key[..ask.prefix.len() + at + delimiter.len()].to_vec());
            // A common prefix stays as long as there is a key of its behind the start, unless it is the start itself.
            let seen = key <= ask.after || (folded.is_some() && name == ask.after);
            if !seen && names.last() != Some(&name) {
                names.push(name);
            }
        }
        let truncated = ask.max > 0 && names.len() > ask.max;
        names.truncate(ask.max);
        (names.into_iter().map(|name| String::from_utf8(name).expect("UTF-8")).collect(), truncated)
    }

    #[test]
    fn a_folder_is_one_line_and_paging_goes_on_behind_it() {
        let keys = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla", "zz"];
        let map = map(&keys);
        let mut after = String::new();
        let mut seen = Vec::new();
        loop {
            let page = page(&map, &ask("", "/", &after, 1));
            seen.extend(page.entries.iter().map(text));
            if !page.truncated {
                break;
            }
            after = seen.last().expect("a page that goes on has a line").clone();
        }
        assert_eq!(seen, ["asdf", "boo/", "cquux/", "zz"]);
        let names = |ask| page(&map, &ask).entries.iter().map(text).collect::<Vec<_>>();
        assert_eq!(names(ask("boo/", "/", "", 10)), ["boo/bar", "boo/baz/"]);
        assert_eq!(names(ask("", "/", "boo/bar", 10)), ["boo/", "cquux/", "zz"]);
        assert_eq!(names(ask("", "", "", 0)), Vec::<String>::new());
        assert!(!page(&map, &ask("", "", "", 0)).truncated);
    }

    proptest! {
        #[test]
        fn prop_a_page_is_what_sorting_and_filtering_give(
            keys in prop::collection::vec("[ab/é\u{10ffff}]{1,5}", 0..30),
            prefix in "[ab/]{0,2}",
            delimiter in prop::sample::select(vec!["", "/", "a", "a/", "é"]),
            after in "[ab/é]{0,3}",
            max in 0usize..8,
        ) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let ask = ask(&prefix, delimiter, &after, max);
            let page = page(&map(&keys), &ask);
            let ours = (page.entries.iter().map(text).collect::<Vec<_>>(), page.truncated);
            prop_assert_eq!(ours, naive(&keys, &ask));
        }

        #[test]
        fn prop_pages_together_are_the_whole(
            keys in prop::collection::vec("[ab/]{1,6}", 0..40),
            delimiter in prop::sample::select(vec!["", "/", "b"]),
            max in 1usize..5,
        ) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let map = map(&keys);
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let page = page(&map, &ask("", delimiter, &after, max));
                seen.extend(page.entries.iter().map(text));
                if !page.truncated {
                    break;
                }
                after = seen.last().expect("a line").clone();
            }
            prop_assert_eq!(seen, naive(&keys, &ask("", delimiter, "", usize::MAX)).0);
        }
    }
}
