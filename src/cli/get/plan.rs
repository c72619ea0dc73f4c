//! What is asked for and under which name it will be found. What enters are the entries of a user; what leaves are those worth
//! asking for, and a reason for each that is not. Pure. Invariants: a name that is kept leads to a file of its own below the
//! output; no two entries that are kept have the same one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use crate::batch::encode::member::fault_of;
use crate::client::{Entry, printable};

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// What is asked for, in the order given.
    pub entries: Vec<Entry>,
    /// Bucket of the entries that name none.
    pub bucket: Option<String>,
    /// How entries are named.
    pub naming: Naming,
    /// What cannot be: which object, and why.
    pub failed: Vec<(String, String)>,
    /// Entries that are there already, in the list or in the output.
    pub skipped: usize,
}

/// How entries are named that have no `Id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// Everything is of one bucket.
    #[default]
    Key,
    /// It is not.
    BucketAndKey,
}

impl Plan {
    /// The plan for entries that go to one place without names.
    pub fn without_names(entries: Vec<Entry>, bucket: Option<String>) -> Self {
        let (entries, bucket, naming) = by_bucket(entries, bucket);
        Self { entries, bucket, naming, ..Self::default() }
    }

    /// The plan for entries that are found by their names; `exists` says of a name whether it is there already.
    pub fn with_names(entries: Vec<Entry>, bucket: Option<String>, mut exists: impl FnMut(&str) -> bool) -> Self {
        let (entries, bucket, naming) = by_bucket(entries, bucket);
        let (mut failed, mut skipped, mut keep) = (Vec::new(), 0, Vec::with_capacity(entries.len()));
        let mut first_of = HashMap::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let name = naming.name(entry, bucket.as_deref());
            let mut fails = |why: String| failed.push((shown(entry, bucket.as_deref()), why));
            keep.push(false);
            if let Some(fault) = fault_of(&name) {
                fails(format!("its name {fault}, so it leads to no file below the output; an Id in --from gives it another"));
                continue;
            }
            if exists(&name) {
                skipped += 1;
                continue;
            }
            match first_of.entry(name) {
                Slot::Vacant(slot) => {
                    slot.insert(at);
                    keep[at] = true;
                }
                Slot::Occupied(first) if entries[*first.get()] == *entry => skipped += 1,
                Slot::Occupied(_) => fails("another entry has the same name; an Id in --from gives it its own".into()),
            }
        }
        drop(first_of);
        let mut keep = keep.into_iter();
        let entries = entries.into_iter().filter(|_| keep.next() == Some(true)).collect();
        Self { entries, bucket, naming, failed, skipped }
    }

    /// The name of an entry of this plan.
    pub fn name<'a>(&'a self, entry: &'a Entry) -> Cow<'a, str> {
        self.naming.name(entry, self.bucket.as_deref())
    }

    /// An entry of this plan, for people.
    pub fn shown(&self, entry: &Entry) -> String {
        shown(entry, self.bucket.as_deref())
    }
}

impl Naming {
    fn name<'a>(self, entry: &'a Entry, bucket: Option<&'a str>) -> Cow<'a, str> {
        match (&entry.id, self) {
            (Some(id), _) => Cow::Borrowed(id),
            (None, Self::Key) => Cow::Borrowed(&entry.key),
            (None, Self::BucketAndKey) => {
                let bucket = entry.bucket.as_deref().or(bucket).unwrap_or_default();
                Cow::Owned(format!("{bucket}/{}", entry.key))
            }
        }
    }
}

/// Where all entries are of one bucket, no entry needs to name it.
fn by_bucket(mut entries: Vec<Entry>, default: Option<String>) -> (Vec<Entry>, Option<String>, Naming) {
    let bucket_of = |entry: &Entry| entry.bucket.clone().or_else(|| default.clone());
    let first = entries.first().and_then(bucket_of);
    let same = |entry: &Entry| entry.bucket.as_deref().or(default.as_deref()) == first.as_deref();
    if !entries.iter().all(same) {
        return (entries, default, Naming::BucketAndKey);
    }
    for entry in &mut entries {
        entry.bucket = None;
    }
    (entries, first.or(default), Naming::Key)
}

/// The S3 URI of an entry as it may stand in a terminal.
fn shown(entry: &Entry, bucket: Option<&str>) -> String {
    let bucket = entry.bucket.as_deref().or(bucket).unwrap_or_default();
    format!("s3://{bucket}/{}", printable(&entry.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bucket: &str, key: &str) -> Entry {
        Entry { bucket: Some(bucket.into()), ..Entry::new(key) }
    }

    fn names(plan: &Plan) -> Vec<String> {
        plan.entries.iter().map(|entry| plan.name(entry).into_owned()).collect()
    }

    #[test]
    fn the_bucket_is_part_of_a_name_only_where_there_are_several() {
        let one = Plan::with_names(vec![of("b", "x"), Entry::new("y/z")], Some("b".into()), |_| false);
        assert_eq!((names(&one), one.bucket.as_deref()), (vec!["x".into(), "y/z".into()], Some("b")));
        assert_eq!(one.entries, [Entry::new("x"), Entry::new("y/z")]);
        let two = Plan::with_names(vec![of("b", "x"), Entry::new("x")], Some("c".into()), |_| false);
        assert_eq!(names(&two), ["b/x", "c/x"]);
        let id = Entry { id: Some("i".into()), ..of("b", "..") };
        assert_eq!(names(&Plan::with_names(vec![id, of("c", "x")], None, |_| false)), ["i", "c/x"]);
    }

    #[test]
    fn names_that_lead_elsewhere_fail_and_those_that_repeat() {
        let keys = ["../x", "/etc/passwd", "a//b", "a/./b", "dir/", "nul\0", "..", "fine", "fine", "a\\..\\b"];
        let plan = Plan::with_names(keys.map(|key| of("b", key)).to_vec(), None, |_| false);
        assert_eq!(names(&plan), ["fine", "a\\..\\b"]);
        assert_eq!((plan.failed.len(), plan.skipped), (7, 1));
        assert_eq!(plan.failed[5].0, "s3://b/nul\\u{0}");
        let ranges = ["bytes=0-1", "bytes=2-3"].map(|range| Entry { range: Some(range.into()), ..of("b", "k") });
        let plan = Plan::with_names(ranges.to_vec(), None, |_| false);
        assert_eq!((plan.entries.len(), plan.failed.len(), plan.skipped), (1, 1, 0));
    }

    #[test]
    fn what_exists_is_skipped() {
        let plan = Plan::with_names(["a", "b", "c"].map(|key| of("b", key)).to_vec(), None, |name| name != "b");
        assert_eq!((names(&plan), plan.skipped), (vec!["b".to_owned()], 2));
    }

    proptest! {
        #[test]
        fn prop_names_stay_below_the_output_and_apart(keys in prop::collection::vec("[ab./\0\\\\]{1,6}", 1..12), buckets in 1..3usize) {
            let entries: Vec<_> = keys.iter().enumerate().map(|(at, key)| of(["x", "y"][at % buckets], key)).collect();
            let plan = Plan::with_names(entries.clone(), None, |_| false);
            prop_assert_eq!(plan.entries.len() + plan.failed.len() + plan.skipped, entries.len());
            let names = names(&plan);
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            for name in names {
                let path = std::path::Path::new(&name);
                let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(plain && path.components().count() == name.split('/').count() && !name.contains('\0'), "{:?}", name);
            }
        }
    }
}
