//! The bound on memory: whatever is done and undone, all of it comes back, and nobody gets more than there is.

use std::collections::BTreeMap;

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use proptest::prelude::*;

use super::super::memory::ITEM_BYTES;
use super::*;
use crate::backend::BoxError;

async fn upload(store: &EmbeddedStore, uri: &str, length: u64, frames: Vec<Result<Bytes, BoxError>>) -> Attempt {
    let frames = frames.into_iter().map(|frame| frame.map(Frame::data));
    let body = Body::new(StreamBody::new(stream::iter(frames)));
    store.forward(request("PUT", uri, &[("content-length", &length.to_string())], body)).await
}

#[tokio::test]
async fn a_full_store_says_so_and_what_to_do() {
    let store = store_of(200_000);
    put(&store, "/bucket", b"").await;
    assert_eq!(put(&store, "/bucket/a", &[1; 150_000]).await.status, 200);
    let full = put(&store, "/bucket/b", &[1; 60_000]).await;
    assert_eq!((full.status, full.code().as_str()), (507, "InsufficientStorage"));
    assert!(String::from_utf8_lossy(&full.body).contains("memory_bytes_max"));
    assert_eq!(get(&store, "/bucket/a", &[]).await.body.len(), 150_000, "reads go on");
    assert_eq!(ask(&store, "DELETE", "/bucket/a", &[], b"").await.status, 204, "and so do deletes");
    assert_eq!(put(&store, "/bucket/b", &[1; 60_000]).await.status, 200);
}

#[tokio::test]
async fn counts_are_bounded_as_well() {
    let store = store_of(100 * ITEM_BYTES);
    put(&store, "/bucket", b"").await;
    let mut stored = 0;
    while put(&store, &format!("/bucket/{stored}"), b"").await.status == 200 {
        stored += 1;
        assert!(stored < 100, "empty objects are not free");
    }
    assert!(stored > 20, "{stored}");
}

#[tokio::test]
async fn an_upload_that_breaks_gives_its_bytes_back() {
    let store = store().await;
    let before = store.memory.used();
    let broken = vec![Ok(Bytes::from_static(&[1; 1000])), Err("gone".into())];
    let error = upload(&store, "/bucket/k", 2000, broken).await.expect_err("no answer");
    assert_eq!((error.kind, store.memory.used()), (BackendErrorKind::RequestBody, before));
    // One that is dropped in the middle as well.
    let body = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
    let mut waiting = store.forward(request("PUT", "/bucket/k", &[("content-length", "5000")], body));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert!(store.memory.used() >= before + 5000, "reserved before the first byte");
    drop(waiting);
    assert_eq!(store.memory.used(), before);
    assert_eq!(get(&store, "/bucket/k", &[]).await.status, 404);
}

#[tokio::test]
async fn uploads_at_once_cannot_overrun() {
    let store = store_of(1 << 20);
    put(&store, "/bucket", b"").await;
    let pending = |i: usize| {
        let body = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
        request("PUT", &format!("/bucket/{i}"), &[("content-length", "300000")], body)
    };
    let mut uploads: Vec<_> = (0..5).map(|i| store.forward(pending(i))).collect();
    let mut refused = 0;
    for upload in &mut uploads {
        match futures_util::poll!(upload) {
            std::task::Poll::Pending => {}
            std::task::Poll::Ready(answer) => {
                assert_eq!(answer.expect("an answer").status(), 507);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 2);
    assert!(store.memory.used() <= 1 << 20);
}

#[tokio::test]
async fn bytes_that_are_still_read_are_still_paid_for() {
    let store = store().await;
    let empty = store.memory.used();
    put(&store, "/bucket/k", &[1; 10_000]).await;
    let answer = store.forward(request("GET", "/bucket/k", &[], full_body(""))).await.expect("an answer");
    ask(&store, "DELETE", "/bucket/k", &[], b"").await;
    assert!(store.memory.used() >= empty + 10_000);
    drop(answer);
    assert_eq!(store.memory.used(), empty);
}

/// Something that a client does.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    Delete(u8),
    Copy(u8, u8),
    Multipart(u8, usize),
    Abandon(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..4, 0usize..20_000).prop_map(|(key, length)| Step::Put(key, length)),
        (0u8..4).prop_map(Step::Delete),
        (0u8..4, 0u8..4).prop_map(|(from, to)| Step::Copy(from, to)),
        (0u8..4, 0usize..20_000).prop_map(|(key, length)| Step::Multipart(key, length)),
        (0u8..4).prop_map(Step::Abandon),
    ]
}

async fn run(steps: &[Step]) {
    let store = store_of(100_000);
    put(&store, "/bucket", b"").await;
    let empty = store.memory.used();
    for step in steps {
        match step {
            Step::Put(key, length) => drop(put(&store, &format!("/bucket/{key}"), &vec![*key; *length]).await),
            Step::Delete(key) => drop(ask(&store, "DELETE", &format!("/bucket/{key}"), &[], b"").await),
            Step::Copy(from, to) => {
                let source = format!("bucket/{from}");
                ask(&store, "PUT", &format!("/bucket/{to}"), &[("x-amz-copy-source", source.as_str())], b"").await;
            }
            Step::Multipart(key, length) => {
                let begun = ask(&store, "POST", &format!("/bucket/{key}?uploads"), &[], b"").await;
                let Some(id) = begun.texts("UploadId").pop() else { continue };
                let part = put(&store, &format!("/bucket/{key}?uploadId={id}&partNumber=1"), &vec![*key; *length]).await;
                let etag = part.header("etag");
                let document = format!(
                    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
                );
                ask(&store, "POST", &format!("/bucket/{key}?uploadId={id}"), &[], document.as_bytes()).await;
            }
            Step::Abandon(key) => drop(ask(&store, "POST", &format!("/bucket/{key}?uploads"), &[], b"").await),
        }
        assert!(store.memory.used() <= 100_000);
    }
    for key in 0..4 {
        ask(&store, "DELETE", &format!("/bucket/{key}"), &[], b"").await;
    }
    let uploads: Vec<Key> = store
        .state()
        .bucket("bucket")
        .expect("there")
        .uploads
        .values()
        .flat_map(BTreeMap::values)
        .map(|u| Arc::clone(&u.key))
        .collect();
    let ids = get(&store, "/bucket?uploads", &[]).await.texts("UploadId");
    for (key, id) in uploads.iter().zip(&ids) {
        let key = String::from_utf8(key.to_vec()).expect("text");
        assert_eq!(ask(&store, "DELETE", &format!("/bucket/{key}?uploadId={id}"), &[], b"").await.status, 204);
    }
    assert_eq!(store.memory.used(), empty, "{steps:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn prop_all_memory_comes_back(steps in prop::collection::vec(step(), 0..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(&steps));
    }
}
