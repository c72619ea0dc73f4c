//! What a request must be for its answer to be an archive: no option that needs a place for a status, and for every member a name
//! of its own that leads nowhere else. Pure; what is wrong is said in words that name it and the way out.

use std::collections::HashSet;

use super::{BatchRequest, OnError};
use crate::batch::encode::member::Member;
use crate::types::EntryIndex;

/// Checks it; `bucket` is that of the URL.
pub fn check(batch: &BatchRequest, bucket: &str) -> Result<(), String> {
    if batch.on_error == OnError::Continue {
        return Err(
            "OnError is \"Continue\", but a tar has no place for the status of a failed entry; it must be Stop or Omit, or \
                    the answer multipart/mixed"
                .into(),
        );
    }
    let naming = batch.naming();
    let mut names = HashSet::with_capacity(batch.entries.len());
    for (index, entry) in batch.entries.iter().enumerate() {
        if entry.options.as_deref().is_some_and(|options| options.if_none_match.is_some()) {
            return Err(format!(
                "Objects[{index}].IfNoneMatch cannot be answered in a tar, which has no place for the status 304; leave it out, or \
                 ask for multipart/mixed"
            ));
        }
        let member = Member::of(entry.part(EntryIndex(index as u32), bucket), naming);
        let fault = member.fault().or_else(|| (!names.insert(member.cut())).then_some("repeats that of an entry before it"));
        if let Some(fault) = fault {
            let (name, id) = (member.text(), member.suggestion(index));
            return Err(format!(
                "Objects[{index}]: {name:?} cannot be the name of a tar member, because it {fault}; give the entry an Id, such as {id:?}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::batch::encode::Format;
    use crate::batch::request::{BatchRequest, OnError, parse};
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn read(request: &Value, bucket: Option<&str>) -> Result<BatchRequest> {
        parse(&serde_json::to_vec(request).expect("JSON"), 10, bucket, Format::Tar)
    }

    fn refusal(request: &Value) -> String {
        let error = read(request, Some("b")).expect_err("refused");
        assert_eq!(error.kind, Kind::InvalidArgument);
        error.message.into_owned()
    }

    #[test]
    fn stop_is_the_default_and_a_summary_is_owed() {
        let batch = read(&json!({"Objects": [{"Key": "a"}]}), Some("b")).expect("valid");
        assert!(batch.on_error == OnError::Stop && batch.has_summary());
        let omit = read(&json!({"Objects": [{"Key": "a"}], "OnError": "Omit", "Summary": false}), Some("b")).expect("valid");
        assert!(omit.on_error == OnError::Omit && omit.has_summary());
    }

    #[test]
    fn what_needs_a_status_is_refused() {
        let error = refusal(&json!({"Objects": [{"Key": "a"}], "OnError": "Continue"}));
        assert!(error.starts_with("OnError is \"Continue\""), "{error}");
        let error = refusal(&json!({"Objects": [{"Key": "a"}, {"Key": "b", "IfNoneMatch": "\"e\""}]}));
        assert!(error.starts_with("Objects[1].IfNoneMatch "), "{error}");
        read(&json!({"Objects": [{"Key": "a", "IfMatch": "\"e\"", "Range": "bytes=0-1", "VersionId": "v"}]}), Some("b"))
            .expect("valid");
    }

    #[test]
    fn a_name_that_cannot_be_is_named_and_an_id_is_suggested() {
        let error = refusal(&json!({"Objects": [{"Key": "ok"}, {"Key": "a//b.jpg"}]}));
        assert_eq!(
            error,
            "Objects[1]: \"a//b.jpg\" cannot be the name of a tar member, because it has an empty component; give the entry an Id, \
             such as \"1-b.jpg\""
        );
        let error = refusal(&json!({"Objects": [{"Key": "x", "Id": "../up"}]}));
        assert!(error.contains("\"../up\"") && error.contains("`..`"), "{error}");
        let error = refusal(&json!({"Objects": [{"Key": "a\u{0}"}]}));
        assert!(error.contains("holds a NUL") && error.contains(r#""0-a_""#), "{error}");
    }

    #[test]
    fn names_that_repeat_are_refused_whatever_they_are_made_of() {
        let repeats =
            |request| assert!(refusal(&request).contains("Objects[1]: ") && refusal(&request).contains("repeats"), "{request}");
        repeats(json!({"Objects": [{"Key": "a"}, {"Key": "a"}]}));
        repeats(json!({"Objects": [{"Key": "a"}, {"Key": "x", "Id": "a"}]}));
        repeats(json!({"Objects": [{"Key": "a", "Bucket": "c"}, {"Key": "x", "Id": "c/a"}]}));
        repeats(json!({"Objects": [{"Key": "a"}, {"Key": "a", "Bucket": "b"}]}));
        read(&json!({"Objects": [{"Key": "a"}, {"Key": "a", "Id": "again"}, {"Key": "A"}]}), Some("b")).expect("three names");
        read(&json!({"Objects": [{"Key": "a", "Bucket": "c"}, {"Key": "a", "Bucket": "d"}]}), None).expect("two names");
    }

    #[test]
    fn a_key_is_no_part_of_the_name_once_there_is_an_id() {
        read(&json!({"Objects": [{"Key": "/a//../", "Id": "a"}, {"Key": "b", "Bucket": "c", "Id": "b"}]}), Some("b"))
            .expect("valid");
    }
}
