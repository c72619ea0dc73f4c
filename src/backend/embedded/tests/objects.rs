//! Objects: what was put comes back, byte for byte and header for header, from both doors; listings; what is refused by name.

use super::*;
use crate::types::ByteRange;

#[tokio::test]
async fn keys_are_kept_byte_for_byte() {
    let store = store().await;
    let long = "k".repeat(1024);
    let names =
        ["a//b", "/lead", ".", "..", "a/../b", "dir/", "dir/x", "%0A", "%C3%BC", "100%25", "a+b", "%01", "%0D", "a%2Fb", &long];
    for (i, name) in names.iter().enumerate() {
        assert_eq!(put(&store, &format!("/bucket/{name}"), format!("{i}").as_bytes()).await.status, 200, "{name}");
    }
    for (i, name) in names.iter().enumerate() {
        assert_eq!(get(&store, &format!("/bucket/{name}"), &[]).await.body, format!("{i}"), "{name}");
    }
    let keys = get(&store, "/bucket?list-type=2", &[]).await.texts("Key");
    assert_eq!(keys.len(), names.len());
    assert!(keys.contains(&"&#x1;".into()) && keys.contains(&"\n".into()) && keys.contains(&"..".into()), "{keys:?}");
    let keys = get(&store, "/bucket?list-type=2&encoding-type=url", &[]).await.texts("Key");
    assert!(keys.contains(&"%01".into()) && keys.contains(&"a%2Bb".into()) && keys.contains(&"a//b".into()), "{keys:?}");
    let too_long = put(&store, &format!("/bucket/{long}k"), b"").await;
    assert_eq!((too_long.status, too_long.code().as_str()), (400, "KeyTooLongError"));
    assert_eq!(put(&store, "/bucket/%FF", b"").await.code(), "InvalidURI");
}

#[tokio::test]
async fn headers_come_back_and_can_be_overridden() {
    let store = store().await;
    let headers = [
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
        ("cache-control", "max-age=1"),
        ("expires", "whenever"),
        ("x-amz-meta-a", "two  words"),
        ("x-amz-acl", "private"),
    ];
    let etag = ask(&store, "PUT", "/bucket/k", &headers, b"hello").await.header("etag").to_owned();
    assert_eq!(etag, "\"5d41402abc4b2a76b9719d911017c592\"");
    for method in ["GET", "HEAD"] {
        let answer = ask(&store, method, "/bucket/k", &[], b"").await;
        for (name, value) in &headers[..5] {
            assert_eq!(answer.header(name), *value);
        }
        assert_eq!(answer.body, if method == "GET" { "hello" } else { "" });
        assert_eq!((answer.header("content-length"), answer.header("etag")), ("5", etag.as_str()));
        assert_eq!(answer.header("last-modified"), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(answer.headers.get("x-amz-acl").is_none() && answer.headers.get("x-amz-checksum-crc64nvme").is_none());
    }
    let answer = get(&store, "/bucket/k?response-content-type=a%2Fb&response-expires=never", &[]).await;
    assert_eq!((answer.header("content-type"), answer.header("expires")), ("a/b", "never"));
    put(&store, "/bucket/k", b"").await;
    let answer = get(&store, "/bucket/k", &[]).await;
    assert_eq!((answer.header("content-type"), answer.header("content-length")), ("binary/octet-stream", "0"));
    assert!(answer.headers.get("x-amz-meta-a").is_none(), "a write replaces all of it");
}

#[tokio::test]
async fn ranges_are_those_of_the_rfc() {
    let store = store().await;
    put(&store, "/bucket/k", b"0123456789").await;
    put(&store, "/bucket/empty", b"").await;
    for (range, status, body, content_range) in [
        ("bytes=0-0", 206, "0", "bytes 0-0/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=-4", 206, "6789", "bytes 6-9/10"),
        ("bytes=-40", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, "89", "bytes 8-9/10"),
        ("bytes=10-", 416, "", "bytes */10"),
        ("bytes=5-18446744073709551615", 206, "56789", "bytes 5-9/10"),
        ("bytes=5-99999999999999999999999", 206, "56789", "bytes 5-9/10"),
        ("bytes=-18446744073709551615", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=18446744073709551615-", 416, "", "bytes */10"),
        ("bytes=99999999999999999999999-", 416, "", "bytes */10"),
        ("bytes=-0", 416, "", "bytes */10"),
        ("bytes=5-2", 200, "0123456789", ""),
        ("bytes=0-1,3-4", 200, "0123456789", ""),
        ("lines=0-1", 200, "0123456789", ""),
    ] {
        let answer = get(&store, "/bucket/k", &[("range", range)]).await;
        assert_eq!((answer.status, answer.header("content-range")), (status, content_range), "{range}");
        if status == 416 {
            assert_eq!(answer.code(), "InvalidRange");
        } else {
            assert_eq!((answer.body.as_ref(), answer.header("content-length")), (body.as_bytes(), body.len().to_string().as_str()));
        }
    }
    let answer = get(&store, "/bucket/empty", &[("range", "bytes=0-")]).await;
    assert_eq!((answer.status, answer.header("content-range")), (416, "bytes */0"));
    let answer = get(&store, "/bucket/k", &[("range", "bytes=0-1"), ("if-range", "\"other\"")]).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_batchs_read_and_a_get_are_one_answer() {
    let store = store().await;
    let etag = put(&store, "/bucket/k", b"0123456789").await.header("etag").to_owned();
    let plain = ReadAsk::plain("bucket", "k");
    let tag = HeaderValue::from_str(&etag).expect("a tag");
    let ranged = ReadAsk { range: Some(ByteRange::From { first: 4 }), if_match: Some(tag.clone()), ..plain.clone() };
    let cached = ReadAsk { if_none_match: Some(tag), ..plain.clone() };
    let gone = ReadAsk::plain("bucket", "gone");
    let versioned = ReadAsk { version: Some("v1".into()), ..plain.clone() };
    for (read, uri, headers) in [
        (plain, "/bucket/k", vec![]),
        (ranged, "/bucket/k", vec![("range", "bytes=4-"), ("if-match", etag.as_str())]),
        (cached, "/bucket/k", vec![("if-none-match", etag.as_str())]),
        (gone, "/bucket/gone", vec![]),
        (versioned, "/bucket/k?versionId=v1", vec![]),
    ] {
        let ours = whole(store.read(&read).await.expect("an answer")).await;
        let mut theirs = get(&store, uri, &headers).await;
        theirs.headers.remove("x-amz-request-id");
        assert_eq!((ours.status, &ours.headers, ours.code()), (theirs.status, &theirs.headers, theirs.code()), "{uri} {headers:?}");
        if ours.status < 400 {
            assert_eq!(ours.body, theirs.body);
        }
    }
}

#[tokio::test]
async fn nothing_is_copied_on_the_way_out() {
    let store = store().await;
    put(&store, "/bucket/k", &[7; 100_000]).await;
    let address = |answer: Answer| answer.body.as_ptr();
    let whole = address(get(&store, "/bucket/k", &[]).await);
    assert_eq!(whole, address(get(&store, "/bucket/k", &[]).await));
    let part = address(get(&store, "/bucket/k", &[("range", "bytes=5-99999")]).await);
    assert_eq!(part, whole.wrapping_add(5));
    // A copy shares the bytes as well.
    assert_eq!(ask(&store, "PUT", "/bucket/c", &[("x-amz-copy-source", "bucket/k")], b"").await.status, 200);
    assert_eq!(whole, address(get(&store, "/bucket/c", &[]).await));
}

#[tokio::test]
async fn what_is_not_done_is_refused_by_its_name() {
    let store = store().await;
    put(&store, "/bucket/k", b"x").await;
    for (method, uri, name) in [
        ("GET", "/bucket?acl", "GetBucketAcl"),
        ("PUT", "/bucket?lifecycle", "PutBucketLifecycleConfiguration"),
        ("GET", "/bucket/k?tagging", "GetObjectTagging"),
        ("DELETE", "/bucket/k?tagging", "DeleteObjectTagging"),
        ("PUT", "/bucket?versioning", "PutBucketVersioning"),
        ("POST", "/bucket", "PostObject"),
    ] {
        let answer = ask(&store, method, uri, &[], b"").await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{method} {uri}");
        assert!(String::from_utf8_lossy(&answer.body).contains(name), "{method} {uri}");
    }
    for (name, value) in [
        ("x-amz-tagging", "a=b"),
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-acl", "public-read"),
        ("x-amz-storage-class", "GLACIER"),
        ("x-amz-checksum-blake3", "AAAAAAAAAAA="),
    ] {
        let answer = ask(&store, "PUT", "/bucket/n", &[(name, value)], b"x").await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{name}");
        assert!(String::from_utf8_lossy(&answer.body).contains(name), "{name}");
    }
    let id = ask(&store, "POST", "/bucket/n?uploads", &[], b"").await.texts("UploadId").remove(0);
    let part = format!("/bucket/n?uploadId={id}&partNumber=1");
    let (source, key) = (("x-amz-copy-source", "bucket/k"), "x-amz-server-side-encryption-customer-key-md5");
    let source_key = "x-amz-copy-source-server-side-encryption-customer-algorithm";
    for (uri, headers) in [
        (part.as_str(), vec![(key, "AAAA")]),
        (&part, vec![source, (key, "AAAA")]),
        (&part, vec![source, (source_key, "AES256")]),
        ("/bucket/n", vec![source, (source_key, "AES256")]),
    ] {
        let answer = ask(&store, "PUT", uri, &headers, b"x").await;
        assert_eq!((answer.status, answer.code().as_str()), (501, "NotImplemented"), "{uri} {headers:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains(headers.last().expect("one").0), "{uri} {headers:?}");
    }
    assert_eq!(get(&store, &format!("/bucket/n?uploadId={id}"), &[]).await.texts("Part").len(), 0);
    assert_eq!(get(&store, "/bucket/k", &[(key, "AAAA")]).await.code(), "InvalidRequest");
    assert_eq!(get(&store, "/bucket/k", &[]).await.body, "x", "a refused delete of its tags leaves the object");
    assert_eq!(get(&store, "/bucket/n", &[]).await.status, 404);
    assert_eq!(get(&store, "/nowhere?acl", &[]).await.code(), "NoSuchBucket");
    assert_eq!(ask(&store, "POST", "/bucket/k", &[], b"").await.code(), "MethodNotAllowed");
}

#[tokio::test]
async fn nobody_is_answered() {
    let store = store().await;
    put(&store, "/bucket/k", b"x").await;
    let read = ReadAsk { sender: Sender::Nobody, ..ReadAsk::plain("bucket", "k") };
    assert_eq!(store.read(&read).await.expect("an answer").status(), 403);
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = Request::builder().method(method).uri("/bucket/k").extension(Sender::Nobody);
        let answer = store.forward(request.body(full_body("y")).expect("valid")).await.expect("an answer");
        assert_eq!(answer.status(), 403);
    }
    assert_eq!(get(&store, "/bucket/k", &[]).await.body, "x");
}

#[tokio::test]
async fn who_means_the_bucket_of_somebody_else_is_refused() {
    let store = store().await;
    put(&store, "/bucket/k", b"x").await;
    let (other, ours) = (("x-amz-expected-bucket-owner", "111122223333"), ("x-amz-expected-bucket-owner", "batchgate"));
    for (method, uri) in [
        ("GET", "/bucket/k"),
        ("PUT", "/bucket/k"),
        ("DELETE", "/bucket/k"),
        ("GET", "/bucket?list-type=2"),
        ("POST", "/bucket/k?uploads"),
        ("DELETE", "/bucket"),
    ] {
        let answer = ask(&store, method, uri, &[other], b"y").await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "AccessDenied"), "{method} {uri}");
    }
    assert_eq!(get(&store, "/bucket/k", &[ours]).await.body, "x");
    assert_eq!(get(&store, "/nowhere/k", &[other]).await.code(), "NoSuchBucket");
    let copy = [("x-amz-copy-source", "bucket/k"), ("x-amz-source-expected-bucket-owner", "111122223333")];
    assert_eq!(ask(&store, "PUT", "/bucket/c", &copy, b"").await.code(), "AccessDenied");
    let read = ReadAsk {
        headers: Arc::new([other].map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).into_iter().collect()),
        ..ReadAsk::plain("bucket", "k")
    };
    assert_eq!(whole(store.read(&read).await.expect("an answer")).await.code(), "AccessDenied");
}

#[tokio::test]
async fn buckets_are_listed_page_by_page() {
    let store = store().await;
    for name in ["abc", "other", "zzz"] {
        put(&store, &format!("/{name}"), b"").await;
    }
    let (mut seen, mut at) = (Vec::new(), String::new());
    loop {
        let page = get(&store, &format!("/?max-buckets=1{at}"), &[]).await;
        assert_eq!(page.texts("Name").len(), 1);
        seen.extend(page.texts("Name"));
        let Some(token) = page.texts("ContinuationToken").pop() else { break };
        at = format!("&continuation-token={token}");
    }
    assert_eq!(seen, ["abc", "bucket", "other", "zzz"]);
    let some = get(&store, "/?prefix=b", &[]).await;
    assert_eq!((some.texts("Name"), some.texts("Prefix")), (vec!["bucket".into()], vec!["b".into()]));
    assert!(get(&store, "/?bucket-region=eu-west-1", &[]).await.texts("Name").is_empty());
    assert_eq!(get(&store, "/?bucket-region=us-east-1", &[]).await.texts("Name").len(), 4);
    for query in ["max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=%3F", "continuation-token="] {
        assert_eq!(get(&store, &format!("/?{query}"), &[]).await.code(), "InvalidArgument", "{query}");
    }
}

#[tokio::test]
async fn buckets_are_made_listed_and_removed_once_empty() {
    let store = store().await;
    let code = async |method: &str, uri: &str| ask(&store, method, uri, &[], b"").await.code();
    assert_eq!(code("PUT", "/bucket").await, "BucketAlreadyOwnedByYou");
    assert_eq!(code("PUT", "/No_Bucket").await, "InvalidBucketName");
    put(&store, "/bucket/k", b"x").await;
    assert_eq!(code("DELETE", "/bucket").await, "BucketNotEmpty");
    assert_eq!(get(&store, "/", &[]).await.texts("Name"), ["bucket"]);
    let location = get(&store, "/bucket?location", &[]).await;
    assert!(location.body.ends_with(b"/\"></LocationConstraint>"), "{:?}", location.body);
    assert!(get(&store, "/bucket?versioning", &[]).await.body.ends_with(b"></VersioningConfiguration>"));
    assert_eq!(ask(&store, "DELETE", "/bucket/k", &[], b"").await.status, 204);
    assert_eq!(ask(&store, "DELETE", "/bucket/k", &[], b"").await.status, 204, "twice is once");
    assert_eq!(ask(&store, "DELETE", "/bucket", &[], b"").await.status, 204);
    for (method, uri) in
        [("HEAD", "/bucket"), ("DELETE", "/bucket"), ("GET", "/bucket"), ("GET", "/bucket/k"), ("PUT", "/bucket/k")]
    {
        assert_eq!(ask(&store, method, uri, &[], b"").await.status, 404, "{method} {uri}");
    }
}

#[tokio::test]
async fn listings_are_paged_in_both_versions() {
    let store = store().await;
    for key in ["a", "b/1", "b/2", "c", "d/1"] {
        put(&store, &format!("/bucket/{key}"), b"x").await;
    }
    let first = get(&store, "/bucket?list-type=2&delimiter=/&max-keys=2", &[]).await;
    assert_eq!(
        (first.texts("Key"), first.texts("IsTruncated"), first.texts("KeyCount")),
        (vec!["a".into()], vec!["true".into()], vec!["2".into()])
    );
    assert_eq!(first.texts("CommonPrefixes"), ["<Prefix>b/</Prefix>"]);
    let token = first.texts("NextContinuationToken").remove(0);
    let second = get(&store, &format!("/bucket?list-type=2&delimiter=/&max-keys=2&continuation-token={token}"), &[]).await;
    assert_eq!((second.texts("Key"), second.texts("CommonPrefixes")), (vec!["c".into()], vec!["<Prefix>d/</Prefix>".into()]));
    assert_eq!((second.texts("IsTruncated"), second.texts("NextContinuationToken").len()), (vec!["false".into()], 0));
    let first = get(&store, "/bucket?delimiter=/&max-keys=2", &[]).await;
    assert_eq!(first.texts("NextMarker"), ["b/"]);
    let second = get(&store, "/bucket?delimiter=/&marker=b/", &[]).await;
    assert_eq!((second.texts("Key"), second.texts("CommonPrefixes").len()), (vec!["c".into()], 1));
    assert_eq!(get(&store, "/bucket?list-type=2&start-after=b/1", &[]).await.texts("Key"), ["b/2", "c", "d/1"]);
    assert_eq!(get(&store, "/bucket?versions&prefix=b", &[]).await.texts("VersionId"), ["null", "null"]);
    let none = get(&store, "/bucket?list-type=2&max-keys=0", &[]).await;
    assert_eq!((none.texts("Key").len(), none.texts("IsTruncated")), (0, vec!["false".into()]));
    for query in
        ["max-keys=-1", "max-keys=x", "encoding-type=x", "list-type=2&continuation-token=%3F", "list-type=2&continuation-token="]
    {
        assert_eq!(get(&store, &format!("/bucket?{query}"), &[]).await.code(), "InvalidArgument", "{query}");
    }
}

#[tokio::test]
async fn many_are_deleted_at_once_and_each_is_told_of() {
    let store = store().await;
    put(&store, "/bucket/a", b"x").await;
    put(&store, "/bucket/b", b"x").await;
    let document = "<Delete><Object><Key>a</Key></Object><Object><Key>never</Key></Object>\
                    <Object><Key>b</Key><VersionId>v1</VersionId></Object></Delete>";
    let answer = ask(&store, "POST", "/bucket?delete", &[], document.as_bytes()).await;
    assert_eq!(answer.texts("Deleted"), ["<Key>a</Key>", "<Key>never</Key>"]);
    let late = b"<Delete><Object><Key>b</Key></Object><Object><VersionId>v1</VersionId></Object></Delete>";
    assert_eq!(ask(&store, "POST", "/bucket?delete", &[], late).await.code(), "MalformedXML");
    assert_eq!(get(&store, "/bucket/b", &[]).await.body, "x", "a mistake further down deletes nothing");
    assert_eq!((answer.texts("Code"), answer.texts("VersionId")), (vec!["NoSuchVersion".into()], vec!["v1".into()]));
    let quiet = b"<Delete><Quiet>true</Quiet><Object><Key>b</Key></Object></Delete>";
    assert!(ask(&store, "POST", "/bucket?delete", &[], quiet).await.texts("Deleted").is_empty());
    assert!(get(&store, "/bucket", &[]).await.texts("Key").is_empty());
    for broken in ["<Delete></Delete>", "<Delete><Object/></Delete>", "no xml"] {
        assert_eq!(ask(&store, "POST", "/bucket?delete", &[], broken.as_bytes()).await.code(), "MalformedXML", "{broken}");
    }
}
