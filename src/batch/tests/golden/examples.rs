//! Whole answers, one for each thing that a reader may stumble over.

use super::*;

/// When every object was last modified that says so.
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// The same in seconds since 1970.
pub(super) const MODIFIED_SECONDS: u64 = 784_111_777;

fn headers(pairs: &[(&'static str, &str)]) -> Vec<Header> {
    pairs.iter().map(|(name, value)| (*name, value.as_bytes().to_vec())).collect()
}

/// A whole object with the headers that most have.
fn object(index: u32, body: impl Into<Vec<u8>>) -> End {
    let body = body.into();
    let etag = format!("\"etag-of-{index}\"");
    let headers =
        headers(&[("content-type", "image/jpeg"), ("etag", &etag), ("last-modified", MODIFIED), ("x-amz-meta-label", "7")]);
    End::Whole { index, status: 200, headers, body }
}

fn range(index: u32, body: &str, content_range: &str) -> End {
    let headers = headers(&[("content-range", content_range), ("etag", "\"e\""), ("last-modified", MODIFIED)]);
    End::Whole { index, status: 206, headers, body: body.into() }
}

fn failed(index: u32, status: u16, code: &'static str) -> End {
    End::Failed { index, status, code, headers: Vec::new() }
}

fn keys(keys: &[&str]) -> Value {
    json!({"Objects": keys.iter().map(|key| json!({"Key": key})).collect::<Vec<_>>()})
}

fn with(mut request: Value, member: &str, value: impl Into<Value>) -> Value {
    request[member] = value.into();
    request
}

/// All of them.
pub(super) fn all() -> Vec<Example> {
    let format = |name: &str| if name.starts_with("tar-") { Format::Tar } else { Format::Multipart };
    let example = |(name, request, ends)| Example { name, format: format(name), request, ends };
    multipart().into_iter().chain(tar()).map(example).collect()
}

fn multipart() -> Vec<(&'static str, Value, Vec<End>)> {
    let three = keys(&["train/1.jpg", "train/2.jpg", "train/3.jpg"]);
    let objects = [object(0, "the first"), object(1, "number two\r\n"), object(2, "3")];
    let [first, second, third] = objects.clone();
    let boundary = "00112233445566778899aabbccddeeff";
    let ranges = json!({"Objects": [
        {"Key": "k", "Range": "bytes=0-3"}, {"Key": "k", "Range": "bytes=6-"}, {"Key": "k", "Range": "bytes=-2"}, {"Key": "k"}]});
    let not_modified = headers(&[("etag", "\"e\""), ("last-modified", MODIFIED)]);
    let unsatisfied = headers(&[("content-range", "bytes */9")]);
    let marker = headers(&[("x-amz-delete-marker", "true"), ("x-amz-version-id", "v7")]);
    let odd = vec![
        ("content-disposition", b"attachment; filename=\"a: b\"; x=y".to_vec()),
        ("x-amz-meta-empty", Vec::new()),
        ("x-amz-meta-latin-1", b"caf\xe9".to_vec()),
        ("x-amz-meta-looks-like", b"--00112233445566778899aabbccddeeff".to_vec()),
        ("x-amz-meta-tab", b"a\tb,  c".to_vec()),
        ("x-amz-meta-utf-8", "caf\u{e9} \u{9375}".into()),
    ];
    let like_a_delimiter = format!("\r\n--{boundary}\r\ncontent-length: 5\r\n\r\n");
    let like_the_end = format!("x\r\n--{boundary}--\r\n");
    vec![
        ("multipart-plain", three.clone(), objects.to_vec()),
        ("multipart-one-object", keys(&["k"]), vec![object(0, "all there is")]),
        (
            "multipart-ranges",
            ranges,
            vec![
                range(0, "0123", "bytes 0-3/9"),
                range(1, "678", "bytes 6-8/9"),
                range(2, "78", "bytes 7-8/9"),
                object(3, "012345678"),
            ],
        ),
        ("multipart-empty-object", keys(&["full", "empty", "empty"]), vec![object(0, "x"), object(1, ""), object(2, "")]),
        (
            "multipart-not-modified",
            json!({"Objects": [{"Key": "k", "IfNoneMatch": "\"e\""}, {"Key": "k", "IfNoneMatch": "\"other\""}]}),
            vec![End::Whole { index: 0, status: 304, headers: not_modified, body: Vec::new() }, object(1, "newer")],
        ),
        (
            "multipart-failed",
            json!({"Objects": [
                {"Key": "there"}, {"Key": "missing"}, {"Key": "short", "Range": "bytes=9-"}, {"Key": "secret"},
                {"Key": "<odd> & \u{1}\u{e9}"}, {"Key": "k", "IfMatch": "\"e\""}, {"Key": "deleted"}, {"Key": "k", "Bucket": "nowhere"},
                {"Key": "late"}, {"Key": "there"}]}),
            vec![
                object(0, "fine"),
                failed(1, 404, "NoSuchKey"),
                End::Failed { index: 2, status: 416, code: "InvalidRange", headers: unsatisfied },
                failed(3, 403, "AccessDenied"),
                failed(4, 404, "NoSuchKey"),
                failed(5, 412, "PreconditionFailed"),
                End::Failed { index: 6, status: 404, code: "NoSuchKey", headers: marker },
                failed(7, 404, "NoSuchBucket"),
                failed(8, 504, "GatewayTimeout"),
                object(9, "fine too"),
            ],
        ),
        (
            "multipart-ids",
            json!({"Objects": [{"Key": "k", "Id": "a"}, {"Key": "k", "Id": "a"}, {"Key": "k"}, {"Key": "gone", "Id": "~!#$%:<>\"?"}]}),
            vec![object(0, "same"), object(1, "same"), object(2, "same"), failed(3, 404, "NoSuchKey")],
        ),
        (
            "multipart-completion",
            with(with(three.clone(), "Order", "Completion"), "Summary", true),
            vec![third.clone(), failed(0, 404, "NoSuchKey"), second.clone()],
        ),
        ("multipart-stop", with(three.clone(), "OnError", "Stop"), vec![first.clone(), failed(1, 404, "NoSuchKey")]),
        ("multipart-stop-without-failure", with(three.clone(), "OnError", "Stop"), objects.to_vec()),
        ("multipart-omit", with(three.clone(), "OnError", "Omit"), vec![first, failed(1, 403, "AccessDenied"), third]),
        (
            "multipart-omit-all",
            with(three, "OnError", "Omit"),
            vec![failed(0, 404, "NoSuchKey"), failed(1, 404, "NoSuchKey"), failed(2, 404, "NoSuchKey")],
        ),
        (
            "multipart-odd-headers",
            keys(&["odd", "none"]),
            vec![
                End::Whole { index: 0, status: 200, headers: odd, body: b"odd".to_vec() },
                End::Whole { index: 1, status: 200, headers: Vec::new(), body: b"none".to_vec() },
            ],
        ),
        (
            "multipart-binary-bodies",
            keys(&["delimiter", "end", "octets", "lines", "dashes"]),
            vec![
                object(0, like_a_delimiter),
                object(1, like_the_end),
                object(2, (0..=255).collect::<Vec<u8>>()),
                object(3, "\r\n\r\n\n\r"),
                object(4, "--"),
            ],
        ),
    ]
}

fn tar() -> Vec<(&'static str, Value, Vec<End>)> {
    let three = keys(&["train/1.jpg", "train/2.jpg", "train/3.jpg"]);
    let objects = [object(0, "the first"), object(1, [7; 512]), object(2, [9; 513])];
    let [first, _, third] = objects.clone();
    let whole = |count: u32| (0..count).map(|index| object(index, format!("body {index}"))).collect::<Vec<_>>();
    let long = [
        "n".repeat(100),
        "n".repeat(101),
        format!("{}/{}", "p".repeat(155), "n".repeat(100)),
        format!("{}/{}", "p".repeat(156), "n".repeat(99)),
        format!("{}k", "d/".repeat(100)),
        "k".repeat(1024),
    ];
    let long: Vec<_> = long.iter().map(String::as_str).collect();
    let without_time = End::Whole { index: 0, status: 200, headers: headers(&[("etag", "\"e\"")]), body: b"when?".to_vec() };
    vec![
        ("tar-plain", three.clone(), objects.to_vec()),
        ("tar-long-names", keys(&long), whole(6)),
        (
            "tar-unicode",
            keys(&["\u{fc}n\u{ef}code/\u{43a}\u{43b}\u{44e}\u{447}/\u{9375}.jpg", "\u{1f600}", "a+b c%20d\\e\tf"]),
            whole(3),
        ),
        ("tar-empty-member", keys(&["full", "empty"]), vec![object(0, "x"), object(1, "")]),
        (
            "tar-ids-and-buckets",
            json!({"Objects": [{"Key": "a/k"}, {"Key": "a/k", "Bucket": "other"}, {"Key": "a//k/", "Id": "0001.jpg"}]}),
            whole(3),
        ),
        (
            "tar-ranges",
            json!({"Objects": [{"Key": "k", "Range": "bytes=0-3", "Id": "first"}, {"Key": "k", "Range": "bytes=-2", "Id": "last"}]}),
            vec![range(0, "0123", "bytes 0-3/9"), range(1, "78", "bytes 7-8/9")],
        ),
        ("tar-without-time", keys(&["k"]), vec![without_time]),
        ("tar-completion", with(three.clone(), "Order", "Completion"), objects.into_iter().rev().collect()),
        ("tar-omit", with(three.clone(), "OnError", "Omit"), vec![first.clone(), failed(1, 404, "NoSuchKey"), third]),
        ("tar-omit-all", with(keys(&["k"]), "OnError", "Omit"), vec![failed(0, 403, "AccessDenied")]),
        ("tar-stop", three, vec![first, failed(1, 404, "NoSuchKey")]),
    ]
}
