//! Conditions and checksums: what holds goes on, what does not leaves everything as it was.

use super::*;

#[tokio::test]
async fn writes_happen_only_where_their_conditions_hold() {
    let store = store().await;
    let conditional = async |header: &'static str, value: &str| ask(&store, "PUT", "/bucket/k", &[(header, value)], b"new").await;
    let absent = conditional("if-match", "\"x\"").await;
    assert_eq!((absent.status, absent.code().as_str()), (404, "NoSuchKey"));
    let etag = conditional("if-none-match", "*").await.header("etag").to_owned();
    let taken = conditional("if-none-match", "*").await;
    assert_eq!((taken.status, taken.code().as_str()), (412, "PreconditionFailed"));
    assert_eq!(conditional("if-match", "\"other\"").await.status, 412);
    assert_eq!(conditional("if-match", &etag).await.status, 200);
    assert_eq!(conditional("if-none-match", &etag).await.status, 501);
    assert_eq!(ask(&store, "DELETE", "/bucket/k", &[("if-match", "\"other\"")], b"").await.status, 412);
    assert_eq!(get(&store, "/bucket/k", &[]).await.body, "new");
    assert_eq!(ask(&store, "DELETE", "/bucket/k", &[("if-match", &etag)], b"").await.status, 204);
}

#[tokio::test]
async fn of_many_who_create_one_wins() {
    let store = Arc::new(store().await);
    let create = |i: usize| {
        let store = Arc::clone(&store);
        tokio::spawn(
            async move { ask(&store, "PUT", "/bucket/k", &[("if-none-match", "*")], format!("{i}").as_bytes()).await.status },
        )
    };
    let tasks: Vec<_> = (0..20).map(create).collect();
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.expect("no panic"));
    }
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (200, &[412; 19][..]));
}

#[tokio::test]
async fn reads_and_copies_obey_their_conditions() {
    let store = store().await;
    let etag = put(&store, "/bucket/k", b"x").await.header("etag").to_owned();
    let answer = get(&store, "/bucket/k", &[("if-none-match", &etag)]).await;
    assert_eq!((answer.status, answer.header("etag"), answer.body.len()), (304, etag.as_str(), 0));
    assert!(!answer.header("last-modified").is_empty());
    let answer = ask(&store, "HEAD", "/bucket/k", &[("if-match", "\"other\"")], b"").await;
    assert_eq!((answer.status, answer.body.len()), (412, 0));
    let copy = async |header: &'static str, value: &str| {
        ask(&store, "PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/k"), (header, value)], b"").await.code()
    };
    assert_eq!(copy("x-amz-copy-source-if-none-match", &etag).await, "PreconditionFailed");
    assert_eq!(copy("x-amz-copy-source-if-match", "\"other\"").await, "PreconditionFailed");
    assert_eq!(get(&store, "/bucket/copy", &[]).await.status, 404);
    assert_eq!(copy("x-amz-copy-source-if-match", &etag).await, "");
    assert_eq!(get(&store, "/bucket/copy", &[]).await.body, "x");
}

#[tokio::test]
async fn a_copy_keeps_or_replaces_what_goes_with_the_object() {
    let store = store().await;
    ask(&store, "PUT", "/bucket/k", &[("x-amz-meta-a", "1"), ("content-type", "a/b")], b"x").await;
    let copy = async |to: &str, headers: &[(&'static str, &str)]| {
        let all: Vec<_> = [&[("x-amz-copy-source", "bucket/k")], headers].concat();
        ask(&store, "PUT", to, &all, b"").await
    };
    assert_eq!(copy("/bucket/kept", &[("x-amz-meta-a", "ignored")]).await.texts("ETag").len(), 1);
    let kept = get(&store, "/bucket/kept", &[]).await;
    assert_eq!((kept.header("x-amz-meta-a"), kept.header("content-type")), ("1", "a/b"));
    copy("/bucket/other", &[("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-b", "2")]).await;
    let other = get(&store, "/bucket/other", &[]).await;
    assert_eq!((other.header("x-amz-meta-a"), other.header("x-amz-meta-b")), ("", "2"));
    assert_eq!(copy("/bucket/k", &[]).await.code(), "InvalidRequest", "onto itself, changing nothing");
    assert_eq!(copy("/bucket/k", &[("x-amz-metadata-directive", "REPLACE")]).await.status, 200);
    for (source, code) in [("bucket/gone", "NoSuchKey"), ("gone/k", "NoSuchBucket"), ("bucket", "InvalidArgument")] {
        let answer = ask(&store, "PUT", "/bucket/n", &[("x-amz-copy-source", source)], b"").await;
        assert_eq!(answer.code(), code, "{source}");
    }
}

#[tokio::test]
async fn what_is_announced_must_be_what_arrives() {
    let store = store().await;
    let code = async |headers: &[(&'static str, &str)], body: &[u8]| ask(&store, "PUT", "/bucket/k", headers, body).await.code();
    assert_eq!(code(&[("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")], b"hellO").await, "BadDigest");
    assert_eq!(code(&[("content-md5", "XUFAKg==")], b"hello").await, "InvalidDigest");
    assert_eq!(code(&[("x-amz-checksum-crc32", "NhCmhg==")], b"hellO").await, "BadDigest");
    assert_eq!(code(&[("x-amz-checksum-crc32", "??")], b"hello").await, "InvalidRequest");
    assert_eq!(code(&[("x-amz-checksum-crc32", "NhCmhg=="), ("x-amz-checksum-sha1", "x")], b"hello").await, "InvalidRequest");
    assert_eq!(code(&[("content-length", "6")], b"hello").await, "IncompleteBody");
    assert_eq!(code(&[("content-length", "4")], b"hello").await, "IncompleteBody");
    assert_eq!(get(&store, "/bucket/k", &[]).await.status, 404, "nothing of it stayed");
    assert_eq!(code(&[("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="), ("x-amz-checksum-crc32", "NhCmhg==")], b"hello").await, "");
    let answer = get(&store, "/bucket/k", &[("x-amz-checksum-mode", "ENABLED")]).await;
    assert_eq!((answer.header("x-amz-checksum-crc32"), answer.header("x-amz-checksum-type")), ("NhCmhg==", "FULL_OBJECT"));
}

#[tokio::test]
async fn a_framed_body_is_stored_without_its_framing_and_its_trailer_is_verified() {
    let store = store().await;
    let headers = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-decoded-content-length", "5"),
    ];
    let framed = |sum: &str| format!("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n").into_bytes();
    assert_eq!(ask(&store, "PUT", "/bucket/k", &headers, &framed("AAAAAA==")).await.code(), "BadDigest");
    assert_eq!(ask(&store, "PUT", "/bucket/k", &headers, b"5\r\nhello\r\n0\r\n\r\n").await.code(), "IncompleteBody");
    let answer = ask(&store, "PUT", "/bucket/k", &headers, &framed("NhCmhg==")).await;
    assert_eq!((answer.status, answer.header("x-amz-checksum-crc32")), (200, "NhCmhg=="));
    let answer = get(&store, "/bucket/k", &[("x-amz-checksum-mode", "ENABLED")]).await;
    assert_eq!((answer.body.as_ref(), answer.header("x-amz-checksum-crc32")), (&b"hello"[..], "NhCmhg=="));
}
