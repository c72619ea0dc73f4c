//! Names of archive members: which name an entry's member has, why a name cannot be one, and an `Id` that could. Pure. Invariant:
//! a name without a [`Member::fault`] leads to a file below the folder in which the archive is unpacked. Names that are different
//! lead to different files, but not always to files that can be there together: of the keys `a` and `a/b` the first is a file
//! where the second needs a folder. An archive holds both, as a bucket does; who unpacks it gets one of them.

use std::borrow::Cow;

use super::PartName;

/// The name of the last member, which says how the batch went.
pub const SUMMARY: &str = ".batchget-summary.json";

/// Most bytes of a name that a suggestion keeps; with the index before it, it is a valid `Id`.
const SUGGESTED_BYTES_MAX: usize = 200;

/// How members are named that have no `Id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By key.
    Key,
    /// By bucket and key, since some entry names its bucket.
    BucketAndKey,
}

/// A member's name.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    bucket: Option<&'a str>,
    rest: &'a str,
}

impl<'a> Member<'a> {
    /// The name of an entry's member.
    pub fn of(part: PartName<'a>, naming: Naming) -> Self {
        match (part.id, naming) {
            (Some(id), _) => Self { bucket: None, rest: id.to_str().expect("an Id is visible ASCII") },
            (None, Naming::Key) => Self { bucket: None, rest: part.key },
            (None, Naming::BucketAndKey) => Self { bucket: Some(part.bucket), rest: part.key },
        }
    }

    /// The name's text.
    pub fn text(self) -> Cow<'a, str> {
        self.bucket.map_or(Cow::Borrowed(self.rest), |bucket| Cow::Owned(format!("{bucket}/{}", self.rest)))
    }

    /// Why it cannot be a member's name, in words that go on after "because it".
    pub fn fault(self) -> Option<&'static str> {
        match self.bucket {
            None if self.rest == SUMMARY => Some("is that of the summary"),
            // A bucket's name is a component without fault.
            Some(_) if self.rest.starts_with('/') => Some("has an empty component"),
            _ => fault_of(self.rest),
        }
    }

    /// The name in the form that equal names share, whatever they are made of: cut at the first slash, which no bucket has.
    pub fn cut(self) -> (&'a str, Option<&'a str>) {
        match self.bucket {
            Some(bucket) => (bucket, Some(self.rest)),
            None => self.rest.split_once('/').map_or((self.rest, None), |(first, rest)| (first, Some(rest))),
        }
    }

    /// An `Id` for an entry at `index` whose own name cannot be: its last component, made visible ASCII, behind the index.
    pub fn suggestion(self, index: usize) -> String {
        let last = self.rest.rsplit('/').find(|component| !matches!(*component, "" | "." | "..")).unwrap_or_default();
        let visible: Vec<_> = last.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        // The end holds what readers tell kinds of files by.
        let kept: String = visible[visible.len().saturating_sub(SUGGESTED_BYTES_MAX)..].iter().collect();
        if kept.is_empty() { index.to_string() } else { format!("{index}-{kept}") }
    }
}

/// Why a name does not lead to a file below a folder, in words that go on after "because it".
pub fn fault_of(name: &str) -> Option<&'static str> {
    if name.contains('\0') {
        Some("holds a NUL")
    } else if name.starts_with('/') {
        Some("starts with a slash")
    } else if name.ends_with('/') {
        Some("ends with a slash")
    } else if name.split('/').any(str::is_empty) {
        Some("has an empty component")
    } else if name.split('/').any(|component| matches!(component, "." | "..")) {
        Some("has a component `.` or `..`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::EntryIndex;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn part<'a>(id: Option<&'a HeaderValue>, bucket: &'a str, key: &'a str) -> PartName<'a> {
        PartName { index: EntryIndex(0), id, bucket, key }
    }

    fn fault(key: &str) -> Option<&'static str> {
        Member::of(part(None, "b", key), Naming::Key).fault()
    }

    #[test]
    fn a_member_is_named_by_its_id_or_its_key_or_with_its_bucket() {
        let id = HeaderValue::from_static("l-1");
        let name = |id, naming| Member::of(part(id, "b", "a/k"), naming).text().into_owned();
        assert_eq!(name(None, Naming::Key), "a/k");
        assert_eq!(name(None, Naming::BucketAndKey), "b/a/k");
        assert_eq!(name(Some(&id), Naming::BucketAndKey), "l-1");
    }

    #[test]
    fn names_that_lead_elsewhere_or_nowhere_have_a_fault() {
        for key in ["/", "/a", "a/", "a//b", "//", ".", "..", "a/../b", "./a", "a/.", "a\0b", SUMMARY] {
            assert!(fault(key).is_some(), "{key:?}");
        }
        for key in
            ["a", "...", "..a/b..", " ", "a\nb", "é/鍵", "\\", "C:\\x", ".batchget-summary.json/x", "x/.batchget-summary.json"]
        {
            assert_eq!(fault(key), None, "{key:?}");
        }
        let with_bucket = |key| Member::of(part(None, "b", key), Naming::BucketAndKey).fault();
        assert_eq!(with_bucket("/a"), Some("has an empty component"));
        assert_eq!(with_bucket(SUMMARY), None);
    }

    #[test]
    fn equal_names_are_cut_alike() {
        let id = HeaderValue::from_static("b/a/k");
        let of_id = Member::of(part(Some(&id), "x", "y"), Naming::BucketAndKey);
        let of_key = Member::of(part(None, "b", "a/k"), Naming::BucketAndKey);
        assert_eq!(of_id.cut(), of_key.cut());
        assert_eq!(Member::of(part(None, "b", "k"), Naming::Key).cut(), ("k", None));
    }

    proptest! {
        #[test]
        fn prop_a_suggestion_is_a_visible_name_without_fault(
            key in prop_oneof!["[a./\0é_ -]{1,12}", ".{1,1024}"],
            with_bucket: bool,
            index in 0..100_000usize,
        ) {
            let naming = if with_bucket { Naming::BucketAndKey } else { Naming::Key };
            let text = Member::of(part(None, "b", &key), naming).suggestion(index);
            prop_assert!((1..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()));
            let id = HeaderValue::from_str(&text).expect("visible");
            prop_assert_eq!(Member::of(part(Some(&id), "b", &key), naming).fault(), None);
        }

        #[test]
        fn prop_names_are_cut_alike_if_and_only_if_they_are_equal(
            a in ("[ab]", "[ab/]{1,4}"), b in ("[ab]", "[ab/]{1,4}"), with_bucket: (bool, bool),
        ) {
            let naming = |with| if with { Naming::BucketAndKey } else { Naming::Key };
            let (a, b) = (part(None, &a.0, &a.1), part(None, &b.0, &b.1));
            let (a, b) = (Member::of(a, naming(with_bucket.0)), Member::of(b, naming(with_bucket.1)));
            prop_assert_eq!(a.cut() == b.cut(), a.text() == b.text());
        }
    }
}
