//! What of an upload goes to a store, by what the client sent and what the store wants.

use http_body_util::{BodyExt as _, StreamBody};

use super::*;
use crate::checksum::{Algorithm, Checksum};

/// Pays for everything.
struct Rich;

impl Payer for Rich {
    async fn pay(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

const DATA: &[u8] = b"hello world";

fn quirks(checksums: Checksums, payload_signing: PayloadSigning, content_md5: bool) -> Quirks {
    Quirks { checksums, payload_signing, content_md5 }
}

fn crc32() -> String {
    let mut checksum = Checksum::new(Algorithm::Crc32);
    checksum.update(DATA);
    checksum.encoded()
}

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_str(v).expect("valid"))).collect()
}

fn signed() -> Payload {
    Payload::Signed { sha256: Sha256::digest(DATA).into() }
}

/// In two frames, so that something is sent before the end is known.
fn body(bytes: &[u8]) -> Body {
    let (first, last) = bytes.split_at(bytes.len() / 2);
    let frames = [first, last].map(|part| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(part))));
    let bytes = bytes.len() as u64;
    Body::new(Sized { inner: Body::new(StreamBody::new(futures_util::stream::iter(frames))), bytes })
}

/// A body whose length was announced.
struct Sized {
    inner: Body,
    bytes: u64,
}

impl http_body::Body for Sized {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("absent", |value| value.to_str().expect("ASCII"))
}

fn trailing() -> Vec<u8> {
    let line = format!("\r\n0\r\nx-amz-checksum-crc32:{}\r\n\r\n", crc32());
    [format!("{:x}\r\n", DATA.len()).as_bytes(), DATA, line.as_bytes()].concat()
}

fn trailing_headers() -> HeaderMap {
    map(&[
        ("x-amz-decoded-content-length", "11"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-sdk-checksum-algorithm", "CRC32"),
        ("content-encoding", "aws-chunked"),
    ])
}

/// The head and the body that go out, and the trailers behind it.
async fn prepared(
    payload: Payload,
    carried: Carried,
    quirks: Quirks,
    mut headers: HeaderMap,
    sent: &[u8],
) -> std::result::Result<(HeaderMap, Bytes, Option<HeaderMap>), String> {
    let (body, verdict) = prepare(payload, carried, quirks, &mut headers, body(sent), &mut Rich)
        .await
        .map_err(|error| error.kind.code().to_owned())?;
    let whole = body.collect().await;
    let whole = whole.map_err(|_| verdict.failure().map_or("none", |failure| failure.kind.code()).to_owned())?;
    let trailers = whole.trailers().cloned();
    Ok((headers, whole.to_bytes(), trailers))
}

#[tokio::test]
async fn a_trailer_goes_on_as_one_unless_it_is_verified_here() {
    use {Checksums::*, PayloadSigning::*};
    let framed = trailing();
    let framed_length = framed.len().to_string();
    let sent = |quirks| prepared(Payload::UnsignedTrailer, Carried::Data, quirks, trailing_headers(), &framed);
    let (headers, bytes, _) = sent(quirks(Forward, WhenKnown, false)).await.expect("right");
    assert_eq!((text(&headers, "x-amz-content-sha256"), &bytes[..]), (UNSIGNED_CHUNKS_TRAILER, &framed[..]));
    assert_eq!((text(&headers, "content-length"), headers.contains_key("content-encoding")), (framed_length.as_str(), false));
    let (headers, bytes, _) = sent(quirks(Verify, WhenKnown, false)).await.expect("right");
    assert_eq!((text(&headers, "x-amz-content-sha256"), &bytes[..]), (UNSIGNED_PAYLOAD, DATA));
    assert_eq!(headers.len(), 2, "length and hash: {headers:?}");
    let (headers, bytes, trailers) = sent(quirks(Forward, Always, false)).await.expect("right");
    assert_eq!((text(&headers, "x-amz-content-sha256"), &bytes[..]), (SIGNED_CHUNKS_TRAILER, DATA));
    assert_eq!(trailers.expect("there")["x-amz-checksum-crc32"], crc32().as_str());
    let (headers, bytes, trailers) = sent(quirks(Verify, Always, false)).await.expect("right");
    assert_eq!((text(&headers, "x-amz-content-sha256"), &bytes[..], trailers), (SIGNED_CHUNKS, DATA, None));
}

#[tokio::test]
async fn trap_a_length_that_wraps_when_it_is_framed_reaches_no_store() {
    use {Checksums::*, PayloadSigning::*};
    for length in [u64::MAX, u64::MAX - 1, 18_446_568_153_526_815_022, 1 << 63, crate::auth::OBJECT_BYTES_MAX + 1] {
        for (checksums, signing) in [(Forward, WhenKnown), (Forward, Always), (Verify, WhenKnown)] {
            let mut headers = trailing_headers();
            headers.insert("x-amz-decoded-content-length", HeaderValue::from(length));
            let quirks = quirks(checksums, signing, false);
            let refused = prepared(Payload::UnsignedTrailer, Carried::Data, quirks, headers, &trailing()).await;
            assert_eq!(refused.expect_err("too long"), "EntityTooLarge", "{length} {checksums:?} {signing:?}");
        }
    }
}

#[tokio::test]
async fn what_is_yet_to_be_sent_of_a_framed_body_is_known_at_any_time() {
    let (mut headers, framed) = (trailing_headers(), trailing());
    let quirks = quirks(Checksums::Forward, PayloadSigning::WhenKnown, false);
    let prepared = prepare(Payload::UnsignedTrailer, Carried::Data, quirks, &mut headers, body(&framed), &mut Rich).await;
    let mut body = begun(prepared.expect("right").0).await.expect("it begins");
    let mut left = framed.len() as u64;
    while let Some(frame) = body.frame().await {
        left -= frame.expect("right").into_data().expect("data").len() as u64;
        assert_eq!(body.size_hint().exact(), Some(left));
    }
    assert_eq!(left, 0);
}

#[test]
fn the_length_of_the_framing_is_exact_or_none() {
    assert_eq!(framed_length(0), Some(0));
    assert_eq!(framed_length(11), Some(1 + 2 + 11 + 2));
    assert_eq!(framed_length(CHUNK_BYTES + 1), Some(6 + 2 + CHUNK_BYTES + 2 + 1 + 2 + 1 + 2));
    assert_eq!(framed_length(crate::auth::OBJECT_BYTES_MAX), Some(53_687_603_200_000));
    for length in [18_446_568_153_526_815_022, u64::MAX - 1, u64::MAX] {
        assert_eq!(framed_length(length), None, "{length}");
    }
}

#[tokio::test]
async fn a_checksum_in_the_head_is_verified_here_only_where_the_store_does_not_see_it() {
    use {Checksums::*, PayloadSigning::*};
    let right = crc32();
    for payload in [signed(), Payload::Unsigned] {
        let sent = |checksums, value: &str| {
            let headers = map(&[("content-length", "11"), ("x-amz-checksum-crc32", value)]);
            prepared(payload.clone(), Carried::Data, quirks(checksums, WhenKnown, false), headers, DATA)
        };
        let (headers, bytes, _) = sent(Forward, "AAAAAQ==").await.expect("the store's to judge");
        assert_eq!((text(&headers, "x-amz-checksum-crc32"), &bytes[..]), ("AAAAAQ==", DATA));
        let (headers, bytes, _) = sent(Verify, &right).await.expect("right");
        assert_eq!((headers.contains_key("x-amz-checksum-crc32"), &bytes[..]), (false, DATA));
        assert_eq!(sent(Verify, "AAAAAQ==").await.expect_err("other data"), "BadDigest");
        assert_eq!(sent(Verify, "AAAA").await.expect_err("no checksum"), "InvalidRequest");
    }
    let two = map(&[("x-amz-checksum-crc32", &right), ("x-amz-checksum-sha1", &right)]);
    let refused = prepared(signed(), Carried::Data, quirks(Verify, WhenKnown, false), two, DATA).await;
    assert_eq!(refused.expect_err("two"), "InvalidRequest");
    // That of the whole object, which did not come with this request.
    let of_object = map(&[("content-length", "11"), ("x-amz-checksum-crc32", "AAAAAQ==")]);
    let (headers, ..) = prepared(signed(), Carried::Parts, quirks(Verify, WhenKnown, false), of_object, DATA).await.expect("sent");
    assert!(!headers.contains_key("x-amz-checksum-crc32"));
}

#[tokio::test]
async fn a_content_md5_of_data_is_verified_with_the_rest() {
    use {Checksums::*, PayloadSigning::*};
    let (right, wrong, crc32) = ("XrY7u+Ae7tCTyyK7j1rNww==", "1B2M2Y8AsgTpgAmY7PhCfg==", crc32());
    for carried in [Carried::Data, Carried::Document, Carried::Parts] {
        for payload in [signed(), Payload::Unsigned] {
            let sent = |checksums, md5: &str| {
                let headers = map(&[("content-length", "11"), ("content-md5", md5), ("x-amz-checksum-crc32", &crc32)]);
                prepared(payload.clone(), carried, quirks(checksums, WhenKnown, false), headers, DATA)
            };
            let (headers, bytes, _) = sent(Verify, right).await.expect("right");
            assert_eq!((text(&headers, "content-md5"), &bytes[..]), (right, DATA));
            assert_eq!(sent(Verify, wrong).await.expect_err("other data"), "BadDigest");
            sent(Forward, wrong).await.expect("the store's to judge");
        }
    }
    for (md5, expected) in [(right, Ok(())), (wrong, Err("BadDigest".to_owned()))] {
        let mut headers = trailing_headers();
        headers.insert("content-md5", HeaderValue::from_str(md5).expect("valid"));
        let sent = prepared(Payload::UnsignedTrailer, Carried::Data, quirks(Verify, WhenKnown, false), headers, &trailing()).await;
        assert_eq!(sent.map(|_| ()), expected, "of the data, not of its framing");
    }
}

#[tokio::test]
async fn a_list_of_parts_is_told_to_a_store_as_it_knows_them() {
    use {Checksums::*, PayloadSigning::*};
    let whole = b"<C><Part><PartNumber>1</PartNumber><ETag>e</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part></C>".as_slice();
    let left = b"<C><Part><PartNumber>1</PartNumber><ETag>e</ETag></Part></C>".as_slice();
    let md5 = |document: &[u8]| STANDARD.encode(Md5::digest(document));
    let hash = |document: &[u8]| String::from_utf8(hex32(&Sha256::digest(document).into()).to_vec()).expect("hex");
    for payload in [Payload::Signed { sha256: Sha256::digest(whole).into() }, Payload::Unsigned] {
        let sent = |checksums, signing| {
            let length = whole.len().to_string();
            let headers =
                [("content-length", length.as_str()), ("content-md5", &md5(whole)), ("x-amz-checksum-type", "FULL_OBJECT")];
            prepared(payload.clone(), Carried::Parts, quirks(checksums, signing, false), map(&headers), whole)
        };
        let (headers, bytes, _) = sent(Forward, WhenKnown).await.expect("sent");
        assert_eq!((&bytes[..], text(&headers, "x-amz-checksum-type")), (whole, "FULL_OBJECT"));
        for (signing, signed) in [(WhenKnown, hash(left)), (Always, hash(left)), (Never, UNSIGNED_PAYLOAD.to_owned())] {
            let (headers, bytes, _) = sent(Verify, signing).await.expect("sent");
            assert_eq!(&bytes[..], left, "{signing:?}");
            assert_eq!(text(&headers, "content-length"), left.len().to_string());
            assert_eq!(
                (text(&headers, "content-md5"), text(&headers, "x-amz-content-sha256")),
                (md5(left).as_str(), signed.as_str())
            );
            assert_eq!(headers.len(), 3, "{headers:?}");
        }
    }
    let refused = prepared(signed(), Carried::Parts, quirks(Verify, WhenKnown, false), map(&[]), left).await;
    assert_eq!(refused.expect_err("another hash"), "XAmzContentSHA256Mismatch");
    let long = vec![b' '; DOCUMENT_BYTES_MAX as usize + 1];
    let refused = prepared(Payload::Unsigned, Carried::Parts, quirks(Verify, WhenKnown, false), map(&[]), &long).await;
    assert_eq!(refused.expect_err("no such list"), "EntityTooLarge");
}

#[tokio::test]
async fn what_is_signed_is_the_stores_choice() {
    use {Checksums::Forward, PayloadSigning::*};
    let hash = String::from_utf8(hex32(&Sha256::digest(DATA).into()).to_vec()).expect("hex");
    let cases = [
        (signed(), Carried::Data, WhenKnown, hash.as_str()),
        (signed(), Carried::Data, Never, UNSIGNED_PAYLOAD),
        (signed(), Carried::Data, Always, &hash),
        (Payload::Unsigned, Carried::Data, WhenKnown, UNSIGNED_PAYLOAD),
        (Payload::Unsigned, Carried::Data, Always, SIGNED_CHUNKS),
        (Payload::Unsigned, Carried::Document, WhenKnown, UNSIGNED_PAYLOAD),
        (Payload::Unsigned, Carried::Document, Always, &hash),
        (Payload::Unsigned, Carried::Parts, Always, &hash),
    ];
    for (payload, carried, signing, expected) in cases {
        let label = format!("{payload:?} {carried:?} {signing:?}");
        let headers = map(&[("content-length", "11")]);
        let (headers, bytes, _) = prepared(payload, carried, quirks(Forward, signing, false), headers, DATA).await.expect("sent");
        assert_eq!((text(&headers, "x-amz-content-sha256"), &bytes[..]), (expected, DATA), "{label}");
    }
}

#[tokio::test]
async fn a_document_gets_an_md5_and_data_does_not() {
    use {Checksums::Forward, PayloadSigning::*};
    let sent = |carried, signing, given: &[(&'static str, &str)]| {
        let headers = map(&[&[("content-length", "11")], given].concat());
        prepared(signed(), carried, quirks(Forward, signing, true), headers, DATA)
    };
    let md5 = "XrY7u+Ae7tCTyyK7j1rNww==";
    let (headers, bytes, _) = sent(Carried::Document, WhenKnown, &[]).await.expect("sent");
    assert_eq!((text(&headers, "content-md5"), &bytes[..]), (md5, DATA));
    let (headers, ..) = sent(Carried::Document, Never, &[]).await.expect("sent");
    assert_eq!((text(&headers, "content-md5"), text(&headers, "x-amz-content-sha256")), (md5, UNSIGNED_PAYLOAD));
    let (headers, ..) = sent(Carried::Document, WhenKnown, &[("content-md5", "its own")]).await.expect("sent");
    assert_eq!(headers["content-md5"], "its own");
    let (headers, ..) = sent(Carried::Data, WhenKnown, &[]).await.expect("sent");
    assert!(!headers.contains_key("content-md5"));
    let wrong = Payload::Signed { sha256: [0; 32] };
    let headers = map(&[("content-length", "11")]);
    let refused = prepared(wrong, Carried::Document, quirks(Forward, WhenKnown, true), headers, DATA).await;
    assert_eq!(refused.expect_err("another hash"), "XAmzContentSHA256Mismatch");
}

#[test]
fn what_a_request_carries_is_told_by_its_target() {
    let of = |method, has_key, query| Carried::of(&method, has_key, query);
    for query in ["", "x-id=PutObject", "partNumber=1&uploadId=u", "X-Amz-Signature=s&X-Amz-Expires=1", "part%4eumber=1&uploadId=u"]
    {
        assert_eq!(of(Method::PUT, true, query), Carried::Data, "{query}");
    }
    for query in ["tagging", "acl=", "partNumber=1&tagging"] {
        assert_eq!(of(Method::PUT, true, query), Carried::Document, "{query}");
    }
    assert_eq!(of(Method::PUT, false, ""), Carried::Document);
    assert_eq!(of(Method::POST, true, "uploadId=u"), Carried::Parts);
    assert_eq!(of(Method::POST, true, "uploads"), Carried::Document);
    assert_eq!(of(Method::POST, true, "select&select-type=2"), Carried::Document);
}

#[test]
fn only_data_comes_in_chunks() {
    assert!(check_framing(&Payload::UnsignedTrailer, Carried::Data).expect("data"));
    assert!(!check_framing(&signed(), Carried::Document).expect("plain"));
    for carried in [Carried::Document, Carried::Parts] {
        assert_eq!(check_framing(&Payload::UnsignedTrailer, carried).expect_err("a document").kind, Kind::InvalidRequest);
    }
}
