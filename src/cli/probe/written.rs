//! What a probe has written, and that it goes again. In: the keys that were sent, and what the store said; out: what is left.
//! Invariants: nothing is deleted but below the prefix of this probe; where a bucket keeps versions, they are deleted, and the
//! marks of deletions too; what the store lists in the end is what is said to be left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use tokio::time::{Instant, sleep_until};

use super::asker::{ATTEMPT_TIMEOUT, Asker, Carried, Said};
use crate::backend::s3::object_path;

/// How long after its time a request that nobody answered may still be carried out by a store.
const LATE: Duration = Duration::from_secs(5);

/// How often what the store lists is deleted.
const SWEEPS: usize = 3;

/// An object, or one version of it.
type Item = (String, Option<String>);

/// See the module.
pub struct Written<'a> {
    bucket: String,
    prefix: &'a str,
    known: BTreeSet<Item>,
    /// Keys whose upload was not answered, and when it was sent.
    unanswered: BTreeMap<String, Instant>,
}

impl<'a> Written<'a> {
    /// Nothing yet; of `bucket`, by its name at the store, only what begins with `prefix`.
    pub fn new(bucket: &str, prefix: &'a str) -> Self {
        Self { bucket: bucket.to_owned(), prefix, known: BTreeSet::new(), unanswered: BTreeMap::new() }
    }

    /// `key` is about to be written.
    pub fn begun(&mut self, key: &str) {
        self.known.insert((key.to_owned(), None));
        self.unanswered.insert(key.to_owned(), Instant::now());
    }

    /// What the store said to that.
    pub fn answered(&mut self, key: &str, said: &Said) {
        self.unanswered.remove(key);
        if said.is_ok() && said.version.is_some() {
            self.known.remove(&(key.to_owned(), None));
            self.known.insert((key.to_owned(), said.version.clone()));
        }
    }

    /// Deletes all of it. What is left is given by key, with the version where it is one; and keys that may be there later.
    pub async fn clean_up(mut self, asker: &Asker) -> (Vec<String>, Vec<String>) {
        let known = std::mem::take(&mut self.known);
        let mut undeleted = self.delete(asker, known).await;
        let mut seen = self.sweep(asker).await;
        if let Some(last) = self.unanswered.values().max() {
            sleep_until(*last + ATTEMPT_TIMEOUT + LATE).await;
            let late = self.unanswered.keys().map(|key| (key.clone(), None)).collect();
            undeleted.extend(self.delete(asker, late).await);
            seen = self.sweep(asker).await;
        }
        let left = match seen {
            None => undeleted,
            // A version that could not be deleted may be one that is not listed.
            Some(seen) => undeleted.into_iter().filter(|(_, version)| version.is_some()).chain(seen).collect(),
        };
        let shown = |(key, version): Item| match version {
            Some(version) => format!("{key}?versionId={version}"),
            None => key,
        };
        (left.into_iter().map(shown).collect(), self.unanswered.into_keys().collect())
    }

    /// Deletes what the store lists, until it lists nothing; gives what it lists in the end, if it lists at all.
    async fn sweep(&self, asker: &Asker) -> Option<BTreeSet<Item>> {
        for _ in 0..SWEEPS {
            let seen = self.seen(asker).await?;
            if seen.is_empty() {
                return Some(seen);
            }
            self.delete(asker, seen).await;
        }
        self.seen(asker).await
    }

    /// What there is by the store's own lists.
    async fn seen(&self, asker: &Asker) -> Option<BTreeSet<Item>> {
        let (bucket, prefix) = (&self.bucket, self.prefix);
        let (mut seen, mut is_listed) = (BTreeSet::new(), false);
        for query in [format!("prefix={prefix}&versions="), format!("list-type=2&prefix={prefix}")] {
            let said = asker.ask(Method::GET, &format!("/{bucket}?{query}"), &[], Carried::default()).await;
            let Ok(said) = said.as_ref().map(Said::document) else { continue };
            is_listed |= said.contains("<ListBucketResult") || said.contains("<ListVersionsResult");
            for (key, version) in listed(&said, prefix) {
                let is_known = version.is_none() && seen.iter().any(|(known, _)| *known == key);
                if !is_known {
                    seen.insert((key, version));
                }
            }
        }
        is_listed.then_some(seen)
    }

    /// Deletes `items`, and the marks that this leaves; gives those that could not be.
    async fn delete(&self, asker: &Asker, items: BTreeSet<Item>) -> BTreeSet<Item> {
        let mut undeleted = BTreeSet::new();
        for (key, version) in items.into_iter().filter(|(key, _)| key.starts_with(self.prefix)) {
            match self.delete_one(asker, &key, version.as_deref()).await {
                None => drop(undeleted.insert((key, version))),
                Some(Said { is_marker: true, version: Some(marker), .. }) if version.is_none() => {
                    if self.delete_one(asker, &key, Some(&marker)).await.is_none() {
                        undeleted.insert((key, Some(marker)));
                    }
                }
                Some(_) => {}
            }
        }
        undeleted
    }

    async fn delete_one(&self, asker: &Asker, key: &str, version: Option<&str>) -> Option<Said> {
        let path = object_path(&self.bucket, key, version);
        for _ in 0..2 {
            let said = asker.ask(Method::DELETE, &path, &[], Carried::default()).await;
            if let Some(said) = said.ok().filter(|said| said.is_ok() || said.status == 404) {
                return Some(said);
            }
        }
        None
    }
}

/// The objects, versions and marks in a list of them that begin with `prefix`, which no XML would escape.
fn listed(list: &str, prefix: &str) -> Vec<Item> {
    let mut found = Vec::new();
    for kind in ["Contents", "Version", "DeleteMarker"] {
        for entry in list.split(&format!("<{kind}>")).skip(1) {
            let entry = entry.split(&format!("</{kind}>")).next().unwrap_or_default();
            let text = |name: &str| {
                let from = entry.split_once(&format!("<{name}>"))?.1;
                Some(from.split_once(&format!("</{name}>"))?.0.to_owned())
            };
            if let Some(key) = text("Key").filter(|key| key.starts_with(prefix)) {
                found.push((key, text("VersionId")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_for_what_is_ours() {
        let versions = "<ListVersionsResult><Prefix>p-1</Prefix><Version><Key>p-1a</Key><VersionId>v1</VersionId></Version>\
                        <Version><Key>other</Key><VersionId>v2</VersionId></Version>\
                        <DeleteMarker><VersionId>v3</VersionId><Key>p-1a</Key></DeleteMarker></ListVersionsResult>";
        let item = |key: &str, version: Option<&str>| (key.to_owned(), version.map(str::to_owned));
        assert_eq!(listed(versions, "p-1"), [item("p-1a", Some("v1")), item("p-1a", Some("v3"))]);
        let plain = "<ListBucketResult><Contents><Key>p-1b</Key></Contents><Contents><Key>x</Key></Contents></ListBucketResult>";
        assert_eq!(listed(plain, "p-1"), [item("p-1b", None)]);
        assert_eq!(listed("<ListBucketResult></ListBucketResult>", "p-1"), []);
    }
}
