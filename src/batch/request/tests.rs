//! What is read, what is refused and in what words, and what it costs.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn refusal(body: &str) -> (Kind, String) {
    let error = parse(body.as_bytes(), 3, None, Format::Multipart).expect_err(body);
    (error.kind, error.message.into_owned())
}

#[test]
fn a_whole_request_is_read_as_the_contract_says() {
    let body = r#"{"Objects": [{"Key": "a//../é", "Bucket": "b", "Id": "l-1", "Range": "bytes=0-1"},
        {"Key": "x", "Bucket": "B", "VersionId": null, "IfMatch": "\"9b2c\""}], "OnError": "Omit", "Order": "Completion", "Summary": null}"#;
    let batch = parse(body.as_bytes(), 2, None, Format::Multipart).expect("valid");
    assert_eq!(batch.entries[0].key.as_str(), "a//../é");
    assert_eq!(batch.entries[1].options.as_ref().expect("some").if_match.as_ref().expect("some"), "\"9b2c\"");
    assert_eq!((batch.on_error, batch.order, batch.summary), (OnError::Omit, Order::Completion, false));
    assert!(batch.has_summary());
    let batch = parse(br#"{"Objects": [{"Key": "x"}], "OnError": null}"#, 2, Some("b"), Format::Multipart).expect("valid");
    assert_eq!((batch.on_error, batch.order, batch.has_summary()), (OnError::Continue, Order::Request, false));
}

#[test]
fn what_is_wrong_is_named() {
    let entry = |members: &str| format!(r#"{{"Objects": [{{"Key": "k", "Bucket": "b"}}, {{"Bucket": "b", {members}}}]}}"#);
    let key = |n| entry(&format!(r#""Key": "{}""#, "k".repeat(n)));
    for (body, named) in [
        ("{".to_owned(), "not a BatchGet"),
        ("[]".to_owned(), "Objects"),
        ("{}".to_owned(), "`Objects` is missing"),
        (r#"{"Objects": null}"#.to_owned(), "`Objects` is missing"),
        (r#"{"Objects": []}"#.to_owned(), "`Objects` is empty"),
        (r#"{"Objects": {}}"#.to_owned(), "`Objects` to be an array"),
        (r#"{"Objects": [], "Object": 1}"#.to_owned(), "`Object`"),
        (r#"{"Objects": [], "Summary": true, "Summary": true}"#.to_owned(), "`Summary`"),
        (r#"{"Objects": [], "OnError": "continue"}"#.to_owned(), "OnError is \"continue\""),
        (r#"{"Objects": []} x"#.to_owned(), "trailing"),
        (r#"{"Objects": [{"Key": "k"}]}"#.to_owned(), "Objects[0].Bucket is missing"),
        (entry(r#""Key": "k", "Member": "x""#), "Objects[1]: unknown field `Member`"),
        (entry(r#""Key": "k", "Key": "k""#), "Objects[1]: duplicate field `Key`"),
        (r#"{"Objects": [["k", "b", null, null, null, null, null]]}"#.to_owned(), "Objects[0]: not an object"),
        (r#"[[{"Key": "k", "Bucket": "b"}], null, null, null]"#.to_owned(), "must be a JSON object"),
        (entry(r#""Key": 5"#), "Objects[1]: invalid type"),
        (entry(r#""Key": null"#), "Objects[1].Key is missing"),
        (key(0), "Objects[1].Key has 0 bytes"),
        (key(1025), "Objects[1].Key has 1025 bytes"),
        (entry(r#""Key": "k", "Range": "bytes=2-1""#), "Objects[1].Range"),
        (entry(r#""Key": "k", "Id": "a b""#), "Objects[1].Id"),
        (entry(r#""Key": "k", "Id": """#), "Objects[1].Id"),
        (entry(r#""Key": "k", "IfMatch": "\u00e9""#), "Objects[1].IfMatch"),
        (entry(r#""Key": "k", "IfNoneMatch": "a\nb""#), "Objects[1].IfNoneMatch"),
        (entry(r#""Key": "k", "VersionId": """#), "Objects[1].VersionId"),
        (r#"{"Objects": [{"Key": "k", "Bucket": "a/b"}]}"#.to_owned(), "Objects[0].Bucket"),
    ] {
        let (kind, message) = refusal(&body);
        assert_eq!(kind, Kind::InvalidArgument, "{body}");
        assert!(message.contains(named), "{message} should name {named}");
    }
    let invalid_utf8 = parse(b"{\"Objects\": [{\"Key\": \"\xff\"}]}", 3, Some("b"), Format::Multipart).expect_err("not UTF-8");
    assert_eq!(invalid_utf8.kind, Kind::InvalidArgument);
}

#[test]
fn too_many_entries_are_refused_with_the_limit() {
    let body = format!(r#"{{"Objects": [{}]}}"#, [r#"{"Key": "k", "Bucket": "b"}"#; 4].join(","));
    let (kind, message) = refusal(&body);
    assert_eq!(kind, Kind::EntityTooLarge);
    assert!(message.contains("limit of 3"), "{message}");
}

#[test]
fn a_refusal_does_not_repeat_all_of_what_was_wrong() {
    let long = "\u{1}".repeat(100_000);
    for body in [
        json!({"Objects": [], "OnError": long}),
        json!({"Objects": [], "Order": long}),
        json!({"Objects": [], long.clone(): 1}),
        json!({"Objects": [{"Key": long}]}),
        json!({"Objects": [{long.clone(): 1}]}),
    ] {
        let (kind, message) = refusal(&body.to_string());
        assert!(kind == Kind::InvalidArgument && message.len() < 10_000, "{} bytes", message.len());
    }
    let (_, message) = refusal(&format!(r#"{{"Objects": [{{"Key": "k"{}}}]}}"#, " ".repeat(1 << 16)));
    assert!(message.starts_with("Objects[0]: has 65548 bytes"), "{message}");
}

fn text(max: usize) -> impl Strategy<Value = String> {
    prop_oneof![Just("{\"\\{".to_owned()), "[!-~]{1,30}", (1..=max).prop_map(|length| "x".repeat(length))]
}

fn member(max: usize) -> impl Strategy<Value = Option<String>> {
    proptest::option::of(text(max))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_is_read_costs_all_its_texts_and_no_more_than_was_foreseen(
        texts in proptest::collection::vec((text(1024), member(1024), member(1024), member(1024), member(256), any::<bool>()), 1..20),
    ) {
        let objects: Vec<_> = texts.iter().map(|(key, version, if_match, if_none_match, id, bucket)| {
            let bucket = bucket.then_some("bucket");
            let entry = json!({"Key": key, "VersionId": version, "IfMatch": if_match, "IfNoneMatch": if_none_match, "Id": id, "Bucket": bucket});
            let Value::Object(members) = entry else { unreachable!("an object") };
            members.into_iter().filter(|(_, value)| !value.is_null()).collect::<serde_json::Map<_, _>>()
        }).collect();
        let body = serde_json::to_vec(&json!({"Objects": objects})).expect("JSON");
        let batch = parse(&body, 30, Some("b"), Format::Multipart).expect("valid");
        for (entry, (key, version, if_match, if_none_match, id, bucket)) in batch.entries.iter().zip(&texts) {
            let options = [version, if_match, if_none_match, id];
            let owned: usize = options.into_iter().flatten().map(String::len).sum::<usize>() + key.len() + if *bucket { 6 } else { 0 };
            let structs = size_of::<Entry>() + entry.options.as_ref().map_or(0, |_| size_of::<EntryOptions>());
            prop_assert!(entry.cost() >= (owned + structs) as u64, "{} for {owned}", entry.cost());
        }
        let cost: u64 = batch.entries.iter().map(Entry::cost).sum();
        prop_assert!(cost <= parsed_bytes_max(&body, 30), "{cost}");
        prop_assert_eq!(batch.entries.capacity(), batch.entries.len());
    }
}
