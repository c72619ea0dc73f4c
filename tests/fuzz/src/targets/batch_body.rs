//! The body of a BatchGet. The first octet says for which format and whether the URL names a bucket. What is accepted must be
//! what another reader of JSON finds, every member within the contract's bounds, and no more memory than was asked for.

use batchgate::batch::encode::Format;
use batchgate::batch::request::{self, BatchRequest, Entry, OnError, Order};
use batchgate::error::Kind;
use serde_json::Value;

/// Few, so that short inputs reach the limit.
const ENTRIES_MAX: usize = 8;

/// Longest refusal, in characters.
const MESSAGE_CHARS_MAX: usize = 2_100;

/// See the module.
pub fn run(data: &[u8]) {
    let Some((flags, body)) = data.split_first().filter(|_| data.len() <= super::INPUT_BYTES_MAX) else { return };
    let format = if flags & 1 == 0 { Format::Multipart } else { Format::Tar };
    let bucket = (flags & 2 == 0).then_some("bucket-of-the-url");
    match request::parse(body, ENTRIES_MAX, bucket, format) {
        Ok(batch) => accepted(&batch, body, bucket, format),
        Err(error) => {
            assert!(matches!(error.kind, Kind::InvalidArgument | Kind::EntityTooLarge), "{error:?}");
            assert!((1..=MESSAGE_CHARS_MAX).contains(&error.message.chars().count()), "{error:?}");
        }
    }
}

fn accepted(batch: &BatchRequest, body: &[u8], bucket: Option<&str>, format: Format) {
    let document: Value = serde_json::from_slice(body).expect("what was accepted is JSON");
    let members = document.as_object().expect("it is an object");
    assert!(members.keys().all(|name| matches!(name.as_str(), "Objects" | "OnError" | "Order" | "Summary")), "{members:?}");
    let on_error = match document.get("OnError").and_then(Value::as_str) {
        Some("Continue") => OnError::Continue,
        Some("Stop") => OnError::Stop,
        Some("Omit") => OnError::Omit,
        _ if format == Format::Tar => OnError::Stop,
        _ => OnError::Continue,
    };
    assert_eq!(batch.on_error, on_error);
    let completion = document.get("Order").and_then(Value::as_str) == Some("Completion");
    assert_eq!(batch.order == Order::Completion, completion);
    assert_eq!(batch.summary, document.get("Summary").and_then(Value::as_bool).unwrap_or(false));
    let objects = document.get("Objects").and_then(Value::as_array).expect("it has a list");
    assert!((1..=ENTRIES_MAX).contains(&objects.len()) && objects.len() == batch.entries.len());
    batch.entries.iter().zip(objects).for_each(|(entry, object)| is_what_was_written(entry, object, bucket));
    let cost: u64 = batch.entries.iter().map(Entry::cost).sum();
    assert!(cost <= request::parsed_bytes_max(body, ENTRIES_MAX), "{cost} bytes are more than were paid for");
}

fn is_what_was_written(entry: &Entry, object: &Value, bucket: Option<&str>) {
    let members = ["Key", "Bucket", "VersionId", "IfMatch", "IfNoneMatch", "Range", "Id"];
    assert!(object.as_object().expect("an object").keys().all(|name| members.contains(&name.as_str())), "{object}");
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    assert_eq!(Some(entry.key.as_str()), text("Key"));
    assert!((1..=1024).contains(&entry.key.as_str().len()));
    assert_eq!(entry.bucket.as_ref().map(|name| name.as_str()), text("Bucket"));
    assert!(entry.bucket.is_some() || bucket.is_some(), "nothing says where it is");
    let options = entry.options.as_deref();
    let header = |value: Option<&http::HeaderValue>| value.map(|value| value.to_str().expect("visible").to_owned());
    assert_eq!(options.and_then(|options| options.version.as_deref()), text("VersionId"));
    assert_eq!(header(options.and_then(|options| options.if_match.as_ref())).as_deref(), text("IfMatch"));
    assert_eq!(header(options.and_then(|options| options.if_none_match.as_ref())).as_deref(), text("IfNoneMatch"));
    for name in ["VersionId", "IfMatch", "IfNoneMatch"] {
        let fits = |text: &str| (1..=1024).contains(&text.len()) && text.bytes().all(|octet| matches!(octet, b' '..=b'~'));
        assert!(text(name).is_none_or(fits), "{name} of {object}");
    }
    let id = header(options.and_then(|options| options.id.as_ref()));
    assert_eq!(id.as_deref(), text("Id"));
    assert!(id.is_none_or(|id| (1..=256).contains(&id.len()) && id.bytes().all(|octet| octet.is_ascii_graphic())));
    let range = options.and_then(|options| options.range).map(|range| range.to_string());
    // A number may have been written with zeros before it.
    let plain = |text: &str| text.split_inclusive(['=', '-']).map(without_zeros).collect::<String>();
    assert_eq!(range, text("Range").map(plain));
}

/// `007` as `7` and `000` as `0`.
fn without_zeros(number: &str) -> &str {
    let digits = number.trim_start_matches('0');
    let is_zero = number.starts_with('0') && !digits.starts_with(|c: char| c.is_ascii_digit());
    if is_zero { &number[number.len() - digits.len() - 1..] } else { digits }
}
