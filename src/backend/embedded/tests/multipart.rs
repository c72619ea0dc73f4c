//! Uploads in parts: from the first part to the object, and everything that must not become one.

use super::super::object::{Made, Object};
use super::super::pieces::Pieces;
use super::*;

const PART: usize = 5 << 20;

async fn begin(store: &EmbeddedStore, headers: &[(&'static str, &str)]) -> String {
    let answer = ask(store, "POST", "/bucket/big?uploads", headers, b"").await;
    answer.texts("UploadId").remove(0)
}

async fn begin_at(store: &EmbeddedStore, key: &str) -> String {
    ask(store, "POST", &format!("/bucket/{key}?uploads"), &[], b"").await.texts("UploadId").remove(0)
}

async fn part(store: &EmbeddedStore, id: &str, number: u16, body: &[u8]) -> String {
    let answer = put(store, &format!("/bucket/big?uploadId={id}&partNumber={number}"), body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer.header("etag").to_owned()
}

async fn complete(store: &EmbeddedStore, id: &str, parts: &[(u16, &str)], headers: &[(&'static str, &str)]) -> Answer {
    let part = |(number, etag): &(u16, &str)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    let parts: String = parts.iter().map(part).collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    ask(store, "POST", &format!("/bucket/big?uploadId={id}"), headers, document.as_bytes()).await
}

#[tokio::test]
async fn parts_become_one_object() {
    let store = store().await;
    let id = begin(&store, &[("content-type", "a/b")]).await;
    let (first, last) = (vec![1; PART], vec![2; 10]);
    // In any order, and one of them twice.
    let two = part(&store, &id, 7, &last).await;
    part(&store, &id, 1, &last).await;
    let one = part(&store, &id, 1, &first).await;
    let listed = get(&store, &format!("/bucket/big?uploadId={id}&max-parts=1"), &[]).await;
    assert_eq!((listed.texts("PartNumber"), listed.texts("NextPartNumberMarker")), (vec!["1".into()], vec!["1".into()]));
    assert_eq!(listed.texts("Size"), [PART.to_string()]);
    assert_eq!(get(&store, "/bucket?uploads", &[]).await.texts("UploadId"), std::slice::from_ref(&id));
    assert_eq!(get(&store, "/bucket/big", &[]).await.status, 404);
    let done = complete(&store, &id, &[(1, &one), (7, &two)], &[]).await;
    assert!(done.status == 200 && done.texts("ETag")[0].ends_with("-2\""), "{:?}", done.body);
    assert_eq!(done.texts("ChecksumType"), ["FULL_OBJECT"]);
    let answer = get(&store, "/bucket/big", &[("x-amz-checksum-mode", "ENABLED")]).await;
    assert_eq!(answer.body, [&first[..], &last].concat());
    assert_eq!((answer.header("content-type"), answer.header("etag")), ("a/b", done.texts("ETag")[0].as_str()));
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), done.texts("ChecksumCRC64NVME")[0]);
    let answer = get(&store, "/bucket/big", &[("range", &format!("bytes={}-{}", PART - 1, PART))]).await;
    assert_eq!((answer.status, answer.body.as_ref()), (206, &[1, 2][..]), "across the seam");
    let answer = get(&store, "/bucket/big?partNumber=2", &[]).await;
    assert_eq!((answer.status, answer.body.as_ref(), answer.header("x-amz-mp-parts-count")), (206, &last[..], "2"));
    assert_eq!(get(&store, "/bucket/big?partNumber=3", &[]).await.code(), "InvalidPartNumber");
    assert!(get(&store, "/bucket?uploads", &[]).await.texts("UploadId").is_empty());
}

#[tokio::test]
async fn who_completes_once_more_gets_the_same_answer() {
    let store = store().await;
    let id = begin(&store, &[]).await;
    let (one, two) = (part(&store, &id, 1, &vec![1; PART]).await, part(&store, &id, 2, b"end").await);
    let parts = [(1, one.as_str()), (2, two.as_str())];
    let done = complete(&store, &id, &parts, &[("if-none-match", "*")]).await;
    let again = complete(&store, &id, &parts, &[("if-none-match", "*")]).await;
    assert_eq!((done.status, again.status, &done.body), (200, 200, &again.body));
    assert_eq!(complete(&store, &id, &parts[..1], &[]).await.code(), "NoSuchUpload", "other parts");
    assert_eq!(complete(&store, "other", &parts, &[]).await.code(), "NoSuchUpload", "another upload");
    assert_eq!(complete(&store, "", &parts, &[]).await.code(), "NoSuchUpload");
    put(&store, "/bucket/big", b"x").await;
    assert_eq!(complete(&store, &id, &parts, &[]).await.code(), "NoSuchUpload", "its object is gone");
    assert_eq!(get(&store, "/bucket/big", &[]).await.body, "x");
}

#[tokio::test]
async fn an_empty_part_is_empty() {
    let store = store().await;
    let id = begin(&store, &[]).await;
    let (one, two) = (part(&store, &id, 1, &vec![1; PART]).await, part(&store, &id, 2, b"").await);
    assert_eq!(complete(&store, &id, &[(1, &one), (2, &two)], &[]).await.status, 200);
    for method in ["GET", "HEAD"] {
        let answer = ask(&store, method, "/bucket/big?partNumber=2", &[], b"").await;
        assert_eq!((answer.status, answer.body.len(), answer.header("content-length")), (206, 0, "0"), "{method}");
        assert_eq!((answer.header("content-range"), answer.header("x-amz-mp-parts-count")), ("", "2"));
    }
    let answer = get(&store, "/bucket/big?partNumber=1", &[]).await;
    assert_eq!((answer.status, answer.body.len()), (206, PART));
    put(&store, "/bucket/none", b"").await;
    let answer = get(&store, "/bucket/none?partNumber=1", &[]).await;
    assert_eq!((answer.status, answer.header("content-length")), (200, "0"), "all of nothing");
}

#[tokio::test]
async fn copies_share_bytes_and_lists_however_many_pieces_there_are() {
    let store = store().await;
    let id = begin(&store, &[]).await;
    let (one, two) = (part(&store, &id, 1, &vec![1; PART]).await, part(&store, &id, 2, &[2; 1000]).await);
    assert_eq!(complete(&store, &id, &[(1, &one), (2, &two)], &[]).await.status, 200);
    let whole = get(&store, "/bucket/big", &[]).await.body;
    let before = store.memory.used();
    let source = ("x-amz-copy-source", "bucket/big");
    assert_eq!(ask(&store, "PUT", "/bucket/copy", &[source], b"").await.status, 200);
    let id = begin(&store, &[]).await;
    let uri = |number: u16| format!("/bucket/big?uploadId={id}&partNumber={number}");
    let one = ask(&store, "PUT", &uri(1), &[source], b"").await.texts("ETag").remove(0);
    let range = format!("bytes={}-{}", PART - 2, PART + 1);
    let two = ask(&store, "PUT", &uri(2), &[source, ("x-amz-copy-source-range", &range)], b"").await.texts("ETag").remove(0);
    assert_eq!(two, "\"dc77fc3afe223760b5e4d2dd17a70e52\"");
    assert_eq!(complete(&store, &id, &[(1, &one), (2, &two)], &[]).await.status, 200);
    assert!(store.memory.used() - before < 20_000, "{}", store.memory.used() - before);
    assert_eq!(get(&store, "/bucket/copy", &[]).await.body, whole);
    assert_eq!(get(&store, "/bucket/big", &[]).await.body, [&whole[..], &[1, 1, 2, 2]].concat());
}

#[tokio::test]
async fn what_is_too_much_for_one_copy_is_refused_before_anything_is_done() {
    let store = store().await;
    let id = begin(&store, &[]).await;
    // 6 GiB that are one MiB.
    let piece = Pieces::of(Bytes::from_static(&[0; 1 << 20]));
    let huge = Made {
        pieces: Pieces::joined(&vec![piece; 6 << 10], &store.memory).expect("fits"),
        etag: "e-6144".into(),
        modified: 0,
        checksum: None,
        parts: vec![1 << 20; 6 << 10],
        upload: None,
        headers: HeaderMap::new(),
        reservation: store.memory.take(0).expect("fits"),
    };
    let at = Key::from(&b"huge"[..]);
    store.state_mut().bucket_mut("bucket").expect("there").objects.insert(at, Arc::new(Object::new(huge)));
    let before = store.memory.used();
    let source = ("x-amz-copy-source", "bucket/huge");
    let part = ask(&store, "PUT", &format!("/bucket/big?uploadId={id}&partNumber=1"), &[source], b"").await;
    assert_eq!((part.status, part.code().as_str()), (400, "EntityTooLarge"));
    assert_eq!(ask(&store, "PUT", "/bucket/copy", &[source], b"").await.code(), "InvalidRequest");
    assert_eq!(store.memory.used(), before);
    let head = ask(&store, "HEAD", "/bucket/huge", &[], b"").await;
    assert_eq!(head.header("content-length"), (6u64 << 30).to_string());
    let end = get(&store, "/bucket/huge", &[("range", "bytes=-5")]).await;
    assert_eq!((end.status, end.body.len()), (206, 5));
}

#[tokio::test]
async fn what_is_wrong_makes_no_object() {
    let store = store().await;
    let id = begin(&store, &[]).await;
    let small = part(&store, &id, 1, b"small").await;
    let other = part(&store, &id, 2, b"other").await;
    let code = async |parts: &[(u16, &str)], headers: &[(&'static str, &str)]| complete(&store, &id, parts, headers).await.code();
    assert_eq!(code(&[(1, &small), (2, &other)], &[]).await, "EntityTooSmall");
    assert_eq!(code(&[(2, &other), (1, &small)], &[]).await, "InvalidPartOrder");
    assert_eq!(code(&[(1, &other)], &[]).await, "InvalidPart");
    assert_eq!(code(&[(3, &other)], &[]).await, "InvalidPart");
    assert_eq!(code(&[], &[]).await, "MalformedXML");
    assert_eq!(code(&[(1, &small)], &[("x-amz-mp-object-size", "6")]).await, "InvalidRequest");
    put(&store, "/bucket/big", b"there").await;
    assert_eq!(code(&[(1, &small)], &[("if-none-match", "*")]).await, "PreconditionFailed");
    for number in ["0", "10001", "x"] {
        let answer = put(&store, &format!("/bucket/big?uploadId={id}&partNumber={number}"), b"").await;
        assert_eq!(answer.code(), "InvalidArgument", "{number}");
    }
    assert_eq!(get(&store, "/bucket/big", &[]).await.body, "there");
    assert_eq!(code(&[(2, &other)], &[]).await, "", "one small part alone is an object");
    assert_eq!(get(&store, "/bucket/big", &[]).await.body, "other");
}

#[tokio::test]
async fn parts_are_copied_from_objects_by_range() {
    let store = store().await;
    put(&store, "/bucket/source", b"0123456789").await;
    let id = begin(&store, &[]).await;
    let uri = format!("/bucket/big?uploadId={id}&partNumber=1");
    let copy = async |range: &str| {
        ask(&store, "PUT", &uri, &[("x-amz-copy-source", "bucket/source"), ("x-amz-copy-source-range", range)], b"").await
    };
    assert_eq!(copy("bytes=0-10").await.code(), "InvalidArgument");
    assert_eq!(copy("bytes=2-").await.code(), "InvalidArgument");
    let etag = copy("bytes=2-4").await.texts("ETag").remove(0);
    assert_eq!(complete(&store, &id, &[(1, &etag)], &[]).await.status, 200);
    assert_eq!(get(&store, "/bucket/big", &[]).await.body, "234");
    // A copy of an object that came in parts is written at once.
    let copied = ask(&store, "PUT", "/bucket/again", &[("x-amz-copy-source", "bucket/big")], b"").await;
    assert_eq!(copied.texts("ETag"), ["\"289dff07669d7a23de0ef88d2f7129e7\""]);
}

#[tokio::test]
async fn uploads_are_listed_in_order_and_page_by_page() {
    let store = store().await;
    let mut ids = Vec::new();
    for key in ["b", "a/1", "a/1", "a/2"] {
        ids.push(begin_at(&store, key).await);
    }
    let (mut seen, mut at) = (Vec::new(), String::new());
    loop {
        let page = get(&store, &format!("/bucket?uploads&max-uploads=1{at}"), &[]).await;
        seen.extend(page.texts("Key"));
        if page.texts("IsTruncated") == ["false"] {
            break;
        }
        let (key, id) = (page.texts("NextKeyMarker").remove(0), page.texts("NextUploadIdMarker").remove(0));
        at = format!("&key-marker={key}&upload-id-marker={id}");
    }
    assert_eq!(seen, ["a/1", "a/1", "a/2", "b"]);
    assert_eq!(get(&store, "/bucket?uploads&key-marker=a/1", &[]).await.texts("Key"), ["a/2", "b"]);
    let folded = get(&store, "/bucket?uploads&delimiter=/", &[]).await;
    assert_eq!((folded.texts("Key"), folded.texts("CommonPrefixes")), (vec!["b".into()], vec!["<Prefix>a/</Prefix>".into()]));
}

#[tokio::test]
async fn uploads_are_grouped_and_paged_by_their_keys_alone() {
    let store = store().await;
    for key in ["a/", "a/1", "b"] {
        begin_at(&store, key).await;
    }
    let first = begin_at(&store, "a%00").await;
    for delimiter in "0123456789abcdef".chars().filter(|c| !"ab1".contains(*c)) {
        let page = get(&store, &format!("/bucket?uploads&delimiter={delimiter}"), &[]).await;
        assert_eq!((page.texts("Key").len(), page.texts("CommonPrefixes").len()), (4, 0), "{delimiter}");
    }
    let keys = async |query: &str| get(&store, &format!("/bucket?uploads&encoding-type=url&{query}"), &[]).await.texts("Key");
    assert_eq!(keys("").await, ["a%00", "a/", "a/1", "b"]);
    assert_eq!(keys("key-marker=a/&prefix=a/&delimiter=/").await, ["a/1"]);
    assert_eq!(keys("key-marker=a/&delimiter=/").await, ["b"], "all that a common prefix stands for");
    assert_eq!(keys("key-marker=a%00&upload-id-marker=0").await, ["a%00", "a/", "a/1", "b"]);
    assert_eq!(keys(&format!("key-marker=a%00&upload-id-marker={first}")).await, ["a/", "a/1", "b"]);
    assert_eq!(keys("key-marker=a%00&upload-id-marker=0&prefix=b").await, ["b"]);
    let second = begin_at(&store, "a%00").await;
    assert_eq!(keys(&format!("key-marker=a%00&upload-id-marker={first}&max-uploads=1")).await, ["a%00"]);
    assert_eq!(keys(&format!("key-marker=a%00&upload-id-marker={second}&max-uploads=1")).await, ["a/"]);
    let other = ask(&store, "DELETE", &format!("/bucket/a?uploadId=%00{first}"), &[], b"").await;
    assert_eq!(other.code(), "NoSuchUpload", "an id is of one key");
}

#[tokio::test]
async fn a_composite_checksum_is_made_of_those_of_the_parts() {
    let store = store().await;
    let id = begin(&store, &[("x-amz-checksum-algorithm", "CRC32")]).await;
    let uri = format!("/bucket/big?uploadId={id}&partNumber=1");
    assert_eq!(put(&store, &uri, b"hello").await.code(), "InvalidRequest", "no checksum where one was agreed on");
    let other = ask(&store, "PUT", &uri, &[("x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00=")], b"hello").await;
    assert_eq!(other.code(), "InvalidRequest");
    let part = ask(&store, "PUT", &uri, &[("x-amz-checksum-crc32", "NhCmhg==")], b"hello").await;
    let etag = part.header("etag").to_owned();
    assert_eq!(complete(&store, &id, &[(1, &etag)], &[]).await.code(), "InvalidRequest", "it has to be listed too");
    let document = |sum: &str| {
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag><ChecksumCRC32>{sum}</ChecksumCRC32></Part>");
        format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>").into_bytes()
    };
    let uri = format!("/bucket/big?uploadId={id}");
    assert_eq!(ask(&store, "POST", &uri, &[], &document("AAAAAA==")).await.code(), "InvalidPart");
    let wrong = [("x-amz-checksum-crc32", "AAAAAA==-1")];
    assert_eq!(ask(&store, "POST", &uri, &wrong, &document("NhCmhg==")).await.code(), "BadDigest");
    let done = ask(&store, "POST", &uri, &[], &document("NhCmhg==")).await;
    assert_eq!((done.texts("ChecksumType"), done.texts("ChecksumCRC32")), (vec!["COMPOSITE".into()], vec!["FKTmaw==-1".into()]));
}
