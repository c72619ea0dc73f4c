//! Keys that a store may read as other keys: stores that keep objects as files resolve `..`, and some take `\` for `/` or `//` for
//! `/`. A key enters; every reading of it leaves, so that a policy can be asked for each. Invariant: a plain key, which all
//! stores read alike, is told apart without an allocation.

/// Whether every store reads `key` alike.
pub(super) fn is_plain(key: &[u8]) -> bool {
    let mut segments = key.split(|b| *b == b'/');
    // A slash at the end is part of a name.
    let last = segments.next_back().unwrap_or_default();
    !key.contains(&b'\\') && !is_dots(last) && segments.all(|segment| !segment.is_empty() && !is_dots(segment))
}

/// Whether there is a `.` or a `..` in `text` that a store could resolve, were it a part of a path.
pub fn has_dots(text: &[u8]) -> bool {
    text.split(|b| matches!(b, b'/' | b'\\')).any(is_dots)
}

/// The readings of `key`, itself among them; nothing in place of one that is no key of its bucket.
pub(super) fn readings(key: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> + '_ {
    Reading::ALL.iter().map(|reading| reading.of(key).filter(|key| !key.is_empty()))
}

/// Whether `key` starts with `prefix` for everyone, whichever way both are read. What stands behind the last slash of a prefix may be
/// the beginning of a longer name, so it stays as it is.
pub(super) fn starts_with(key: &[u8], prefix: &[u8]) -> bool {
    let fits = |reading: &Reading| {
        let end = prefix.iter().rposition(|b| reading.cuts(*b)).map_or(0, |at| at + 1);
        let (Some(key), Some(mut start)) = (reading.of(key), reading.of(&prefix[..end])) else { return false };
        start.extend_from_slice(&prefix[end..]);
        !key.is_empty() && key.starts_with(&start)
    };
    key.starts_with(prefix) && (is_plain(key) || Reading::ALL.iter().all(fits))
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// What a store does to a key.
struct Reading {
    backslash_cuts: bool,
    empty_vanish: bool,
    dots_resolve: bool,
}

impl Reading {
    /// In every mix.
    const ALL: [Self; 8] = {
        const fn mix(n: u8) -> Reading {
            Reading { backslash_cuts: n & 1 > 0, empty_vanish: n & 2 > 0, dots_resolve: n & 4 > 0 }
        }
        [mix(0), mix(1), mix(2), mix(3), mix(4), mix(5), mix(6), mix(7)]
    };

    fn cuts(&self, byte: u8) -> bool {
        byte == b'/' || (byte == b'\\' && self.backslash_cuts)
    }

    /// `key` as it is read, perhaps as nothing; `None` for one that leaves its bucket.
    fn of(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut kept: Vec<&[u8]> = Vec::new();
        let mut ends_in_slash = false;
        let mut segments = key.split(|b| self.cuts(*b)).peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            match segment {
                b"." | b".." if self.dots_resolve => {
                    if segment == b".." {
                        kept.pop()?;
                    }
                    // URLs are resolved to a folder then, paths of files to its name: with empty names or without.
                    ends_in_slash = is_last && !self.empty_vanish;
                }
                b"" if is_last => ends_in_slash = true,
                b"" if self.empty_vanish => {}
                _ => kept.push(segment),
            }
        }
        let mut read = kept.join(&b'/');
        if ends_in_slash && !kept.is_empty() {
            read.push(b'/');
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn read(key: &str) -> BTreeSet<Option<String>> {
        readings(key.as_bytes()).map(|read| read.map(|read| String::from_utf8(read).expect("text"))).collect()
    }

    fn some(keys: &[&str]) -> BTreeSet<Option<String>> {
        keys.iter().map(|key| Some((*key).to_owned())).collect()
    }

    #[test]
    fn a_plain_key_has_one_reading_and_an_odd_one_all_of_its() {
        for key in ["k", "a/b", "a/", "a/.b/..c/...", "a b%2F", "é"] {
            assert!(is_plain(key.as_bytes()), "{key}");
            assert_eq!(read(key), some(&[key]), "{key}");
        }
        assert_eq!(read("//private/k"), some(&["//private/k", "private/k"]));
        assert_eq!(read("private\\k"), some(&["private\\k", "private/k"]));
        assert_eq!(read("./private/k"), some(&["./private/k", "private/k"]));
        assert_eq!(read("x/../private/k"), some(&["x/../private/k", "private/k"]));
        assert_eq!(read("a/x/.."), some(&["a/x/..", "a/", "a"]));
        assert_eq!(read("a/x/./"), some(&["a/x/./", "a/x/"]));
        assert_eq!(read("a\\b/../c"), some(&["a\\b/../c", "a/b/../c", "c", "a/c"]));
        assert_eq!(read("a//../c"), some(&["a//../c", "a/../c", "a/c", "c"]));
        for key in ["..", "../k", "mine/../../other/k", "mine\\..\\..\\other", "a//../../k", "/", "x/..", "//."] {
            assert!(!is_plain(key.as_bytes()) && read(key).contains(&None), "{key}");
        }
    }

    #[test]
    fn a_prefix_holds_in_every_reading() {
        let starts = |key: &str, prefix: &str| starts_with(key.as_bytes(), prefix.as_bytes());
        assert!(starts("mine/k", "mine/") && starts("mine//k", "mine/") && starts("mine/a/../k", "mine/"));
        assert!(starts("/up/k", "/up/") && starts("x/.hidden\\k", "x/.") && starts("a\\b", "") && starts("a", "a"));
        assert!(!starts("mine/../k", "mine/") && !starts("mine\\..\\k", "mine") && !starts("mine/../../other/k", ""));
        assert!(!starts("x/.a/../y", "x/.") && !starts("/up/../k", "/up/") && !starts("other/k", "mine/") && !starts("..", ""));
    }

    /// By replacing text until nothing changes.
    fn naive(key: &str, backslash: bool, empty: bool, dots: bool) -> Option<String> {
        let mut key = format!("/{}", if backslash { key.replace('\\', "/") } else { key.to_owned() });
        if empty {
            while key.contains("//") {
                key = key.replace("//", "/");
            }
        }
        let dots_at = |key: &str| {
            let mut slashes = key.match_indices('/');
            slashes.find(|(at, _)| key[*at..].starts_with("/./") || key[*at..].starts_with("/../")).map(|(at, _)| at)
        };
        if dots && (key.ends_with("/.") || key.ends_with("/..")) {
            key.push('/');
        }
        while let Some(at) = dots_at(&key).filter(|_| dots) {
            if key[at..].starts_with("/./") {
                key.replace_range(at..at + 2, "");
            } else {
                let from = key[..at].rfind('/')?;
                key.replace_range(from..at + 3, "");
            }
        }
        Some(key[1..].to_owned())
    }

    proptest! {
        #[test]
        fn prop_a_key_is_read_as_by_hand(key in r"[a./\\]{1,10}") {
            let all = (0..8).map(|n: u8| (n & 1 > 0, n & 2 > 0, n & 4 > 0));
            let by_hand: Vec<_> = all.map(|(backslash, empty, dots)| naive(&key, backslash, empty, dots)).collect();
            prop_assert_eq!(is_plain(key.as_bytes()), by_hand.iter().all(|read| read.as_deref() == Some(&key)));
            let bare = |key: &str| key.trim_end_matches('/').to_owned();
            for (read, expected) in readings(key.as_bytes()).zip(by_hand) {
                // Whether a resolved folder keeps its slash is told by the examples.
                let read = read.map(|read| bare(&String::from_utf8(read).expect("text")));
                prop_assert_eq!(read.unwrap_or_default(), expected.map(|key| bare(&key)).unwrap_or_default());
            }
        }
    }
}
