//! Bodies: any framing decodes to the same bytes, and nothing that was tampered with ends cleanly.

use std::collections::VecDeque;
use std::task::Waker;

use base64::Engine as _;
use proptest::prelude::*;
use s3s_sigv4::{AmzDate, create_chunk_string_to_sign, create_trailer_string_to_sign, derive_signing_key};

use super::*;
use crate::auth::claim::parse_hex32;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const STAMP: &str = "20130524T000000Z";
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// A body in given frames, then its end or an error.
struct Frames {
    frames: VecDeque<Bytes>,
    error: Option<Box<dyn StdError + Send + Sync>>,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(Frame::data(frame)))),
            None => Poll::Ready(self.error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.frames.iter().map(|frame| frame.len() as u64).sum())
    }
}

fn frames(bytes: &[u8], cuts: &[usize]) -> Frames {
    let mut frames = VecDeque::new();
    let mut rest = Bytes::copy_from_slice(bytes);
    for cut in cuts.iter().cycle() {
        if cuts.is_empty() || rest.is_empty() {
            break;
        }
        frames.push_back(rest.split_to((*cut).min(rest.len())));
    }
    if !rest.is_empty() {
        frames.push_back(rest);
    }
    Frames { frames, error: None }
}

fn seal() -> ChunkSeal {
    let date = AmzDate::parse(STAMP).expect("valid");
    ChunkSeal {
        key: derive_signing_key(SECRET, &date, "us-east-1", "s3"),
        previous: parse_hex32(SEED.as_bytes()).expect("hex"),
        scope: format!("{STAMP}\n20130524/us-east-1/s3/aws4_request\n"),
        chunk_bytes_max: CHUNK_BYTES_MAX,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Signed,
    SignedTrailer,
    UnsignedTrailer,
}

impl Mode {
    fn payload(self) -> Payload {
        match self {
            Self::Signed => Payload::SignedChunks(seal()),
            Self::SignedTrailer => Payload::SignedChunksTrailer(seal()),
            Self::UnsignedTrailer => Payload::UnsignedTrailer,
        }
    }

    fn headers(self, length: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-decoded-content-length", HeaderValue::from(length));
        if self != Self::Signed {
            headers.insert("x-amz-trailer", HeaderValue::from_static("x-amz-checksum-crc32c"));
        }
        headers
    }
}

fn crc32c(data: &[u8]) -> String {
    let crc = u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data)).expect("32 bits");
    base64::prelude::BASE64_STANDARD.encode(crc.to_be_bytes())
}

/// Frames `chunks` as a client does, signed by code that is not ours.
fn encode(mode: Mode, chunks: &[&[u8]]) -> Vec<u8> {
    let date = AmzDate::parse(STAMP).expect("valid");
    let sign = |to_sign: &str| s3s_sigv4::calculate_signature(to_sign, SECRET, &date, "us-east-1", "s3");
    let mut previous = SEED.to_owned();
    let mut out = Vec::new();
    for chunk in chunks.iter().copied().chain([b"".as_slice()]) {
        out.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
        if mode != Mode::UnsignedTrailer {
            previous = sign(&create_chunk_string_to_sign(&date, "us-east-1", "s3", &previous, &[chunk]));
            out.extend_from_slice(format!(";chunk-signature={previous}").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !chunk.is_empty() {
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
    }
    if mode != Mode::Signed {
        let line = format!("x-amz-checksum-crc32c:{}", crc32c(&chunks.concat()));
        out.extend_from_slice(format!("{line}\r\n").as_bytes());
        if mode == Mode::SignedTrailer {
            let canonical = format!("{line}\n");
            let to_sign = create_trailer_string_to_sign(&date, "us-east-1", "s3", &previous, canonical.as_bytes());
            out.extend_from_slice(format!("x-amz-trailer-signature:{}\r\n", sign(&to_sign)).as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// What left the body before it ended or failed.
fn read<B: Body<Data = Bytes, Error = BodyError>>(body: B) -> (Vec<u8>, std::result::Result<(), BodyError>) {
    let mut body = pin!(body);
    let mut out = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    let hint = body.size_hint().exact();
    loop {
        match body.as_mut().poll_frame(&mut context) {
            Poll::Pending => panic!("the test's bodies are always ready"),
            Poll::Ready(None) => {
                assert!(hint.is_none_or(|exact| exact == out.len() as u64), "the size hint was right");
                assert!(body.is_end_stream());
                return (out, Ok(()));
            }
            Poll::Ready(Some(Ok(frame))) => out.extend_from_slice(&frame.into_data().expect("data")),
            Poll::Ready(Some(Err(error))) => {
                assert!(!body.is_end_stream());
                let again = body.as_mut().poll_frame(&mut context);
                assert!(matches!(again, Poll::Ready(Some(Err(_)))), "a failed body stays failed");
                return (out, Err(error));
            }
        }
    }
}

fn decode(mode: Mode, length: usize, encoded: &[u8], cuts: &[usize]) -> (Vec<u8>, std::result::Result<(), BodyError>, Verdict) {
    let (body, verdict) = VerifiedBody::new(mode.payload(), &mode.headers(length), frames(encoded, cuts)).expect("valid headers");
    let (out, end) = read(body);
    assert_eq!(verdict.verified(), end.is_ok());
    assert_eq!(verdict.failure().map(|f| f.kind), end.as_ref().err().map(|f| f.kind));
    (out, end, verdict)
}

fn failure(mode: Mode, length: usize, encoded: &[u8]) -> Kind {
    decode(mode, length, encoded, &[7]).1.expect_err("refused").kind
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html>
#[test]
fn aws_example_of_a_chunked_upload() {
    let (one, two) = (vec![b'a'; 65536], vec![b'a'; 1024]);
    let signatures = [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    let line = |size: &str, index: usize| format!("{size};chunk-signature={}\r\n", signatures[index]).into_bytes();
    let encoded =
        [line("10000", 0), one, b"\r\n".to_vec(), line("400", 1), two, b"\r\n".to_vec(), line("0", 2), b"\r\n".to_vec()].concat();
    assert_eq!(encoded.len(), 66824);
    let (out, end, _) = decode(Mode::Signed, 66560, &encoded, &[1000]);
    end.expect("the example is right");
    assert_eq!(out, vec![b'a'; 66560]);
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html>
#[test]
fn aws_example_of_a_signed_trailer() {
    let mut seal = seal();
    let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    seal.previous = parse_hex32(seed.as_bytes()).expect("hex");
    let (one, two) = (vec![b'a'; 65536], vec![b'a'; 1024]);
    let line = |size: &str, signature: &str| format!("{size};chunk-signature={signature}\r\n").into_bytes();
    let encoded = [
        line("10000", "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        one,
        b"\r\n".to_vec(),
        line("400", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
        two,
        b"\r\n".to_vec(),
        line("0", "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"),
        b"x-amz-checksum-crc32c:sOO8/Q==\n\r\n".to_vec(),
        b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n".to_vec(),
    ]
    .concat();
    let headers = Mode::SignedTrailer.headers(66560);
    let (body, verdict) =
        VerifiedBody::new(Payload::SignedChunksTrailer(seal), &headers, frames(&encoded, &[4096])).expect("valid");
    assert_eq!(body.decoded_length(), Some(66560));
    let (out, end) = read(body);
    end.expect("the example is right");
    assert_eq!(out.len(), 66560);
    let (name, value) = verdict.trailer().expect("verified");
    assert_eq!((name.as_str(), value.as_bytes()), ("x-amz-checksum-crc32c", b"sOO8/Q==".as_slice()));
}

#[test]
fn a_body_with_another_hash_loses_its_end() {
    let sha256: [u8; 32] = Sha256::digest(b"hello world").into();
    let verified = |bytes: &[u8]| {
        let (body, verdict) =
            VerifiedBody::new(Payload::Signed { sha256 }, &HeaderMap::new(), frames(bytes, &[6])).expect("not empty");
        assert_eq!(body.decoded_length(), Some(bytes.len() as u64));
        (read(body), verdict)
    };
    let ((out, end), verdict) = verified(b"hello world");
    assert!(out == b"hello world" && end.is_ok() && verdict.verified() && verdict.trailer().is_none());
    let ((out, end), verdict) = verified(b"hello World");
    assert_eq!((out.as_slice(), end.expect_err("other bytes").kind), (b"hello ".as_slice(), Kind::XAmzContentSha256Mismatch));
    assert_eq!(Error::from(verdict.failure().expect("failed")).kind, Kind::XAmzContentSha256Mismatch);
    let empty = VerifiedBody::new(Payload::Signed { sha256 }, &HeaderMap::new(), frames(b"", &[])).map(|_| ());
    assert_eq!(empty.expect_err("not what was signed").kind, Kind::XAmzContentSha256Mismatch);
}

#[test]
fn a_body_is_verified_without_being_asked_for_its_end() {
    let payloads = |data: &[u8]| [Payload::Unsigned, Payload::Signed { sha256: Sha256::digest(data).into() }];
    for payload in payloads(b"") {
        let (body, verdict) = VerifiedBody::new(payload, &HeaderMap::new(), frames(b"", &[])).expect("empty");
        assert!(body.is_end_stream() && verdict.verified());
    }
    for payload in payloads(b"ab") {
        let (body, verdict) = VerifiedBody::new(payload, &HeaderMap::new(), frames(b"ab", &[1])).expect("valid");
        let mut body = pin!(body);
        for _ in 0..2 {
            assert!(!body.is_end_stream() && !verdict.verified());
            let frame = body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
        }
        assert!(body.is_end_stream() && verdict.verified());
    }
}

#[test]
fn what_breaks_beneath_keeps_its_kind() {
    let broken = |error: Box<dyn StdError + Send + Sync>| {
        let body = Frames { frames: VecDeque::from([Bytes::from_static(b"a")]), error: Some(error) };
        read(VerifiedBody::new(Payload::Unsigned, &HeaderMap::new(), body).expect("valid").0)
    };
    let (out, end) = broken("connection reset".into());
    assert_eq!((out.as_slice(), end.expect_err("broken").kind), (b"a".as_slice(), Kind::IncompleteBody));
    let late = Error::new(Kind::RequestTimeout, "too slow");
    assert_eq!(broken(Box::new(late)).1.expect_err("late").kind, Kind::RequestTimeout);
}

#[test]
fn the_headers_of_a_chunked_upload_are_checked_first() {
    let refused = |name: &'static str, value: Option<&'static str>| {
        let mut headers = Mode::UnsignedTrailer.headers(1);
        headers.remove(name);
        headers.extend(value.map(|v| (HeaderName::from_static(name), HeaderValue::from_static(v))));
        VerifiedBody::new(Payload::UnsignedTrailer, &headers, frames(b"", &[])).map(|_| ()).expect_err("refused")
    };
    assert_eq!(refused("x-amz-decoded-content-length", None).kind, Kind::MissingContentLength);
    for value in ["", "-1", "+1", "0x1"] {
        assert_eq!(refused("x-amz-decoded-content-length", Some(value)).kind, Kind::MissingContentLength, "{value}");
    }
    for value in ["x-amz-checksum-md4", "x-amz-checksum-crc32,x-amz-checksum-sha1", ""] {
        let error = refused("x-amz-trailer", Some(value));
        assert!(error.kind == Kind::InvalidRequest && error.message.contains("x-amz-trailer"), "{error}");
        assert!(error.source.is_some_and(|source| source.to_string().contains(value)), "{value}: only the log has it");
    }
}

#[test]
fn trap_a_length_that_no_object_has_is_refused_before_it_is_reckoned_with() {
    for (length, fits) in [
        ("53687091200000", true),
        ("53687091200001", false),
        // With framing, this is 2,001 again in 64 bits.
        ("18446568153526815022", false),
        ("18446744073709551614", false),
        ("18446744073709551615", false),
        ("18446744073709551616", false),
        ("99999999999999999999999", false),
    ] {
        for mode in [Mode::Signed, Mode::SignedTrailer, Mode::UnsignedTrailer] {
            let mut headers = mode.headers(1);
            headers.insert("x-amz-decoded-content-length", HeaderValue::from_static(length));
            let made = VerifiedBody::new(mode.payload(), &headers, frames(b"", &[]));
            assert_eq!(
                made.map(|_| ()).map_err(|error| error.kind),
                if fits { Ok(()) } else { Err(Kind::EntityTooLarge) },
                "{length}"
            );
        }
    }
    let refused = VerifiedBody::new(Payload::Unsigned, &HeaderMap::new(), Announced(u64::MAX - 2))
        .map(|_| ())
        .expect_err("as a plain body too");
    assert_eq!((refused.kind, refused.details.len()), (Kind::EntityTooLarge, 2));
}

/// A body that says how long it is.
struct Announced(u64);

impl Body for Announced {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[test]
fn framing_that_is_wrong_is_told_apart() {
    let good = encode(Mode::Signed, &[b"hello", b" world"]);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    assert!(decode(Mode::Signed, 11, &good, &[1]).1.is_ok());
    assert!(decode(Mode::Signed, 11, &good[..good.len() - 2], &[1]).1.is_ok(), "the last line end may be missing");
    assert_eq!(failure(Mode::Signed, 11, &good[..good.len() - 3]), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 11, b""), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 12, &good), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 10, &good), Kind::IncompleteBody);
    assert_eq!(failure(Mode::UnsignedTrailer, 4, b"5\r\nhello\r\n0\r\n\r\n"), Kind::IncompleteBody);
    assert_eq!(failure(Mode::UnsignedTrailer, 5, b"5\r\nhello\r\n0\r\n"), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 11, &[good.as_slice(), b"x"].concat()), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 11, text(&good).replace("hello", "hallo").as_bytes()), Kind::SignatureDoesNotMatch);
    assert_eq!(failure(Mode::Signed, 11, text(&good).replacen("5;", "6;", 1).as_bytes()), Kind::SignatureDoesNotMatch);
    assert_eq!(failure(Mode::Signed, 11, text(&good).replacen("5;", "+5;", 1).as_bytes()), Kind::IncompleteBody);
    assert_eq!(failure(Mode::Signed, 11, text(&good).replacen(";chunk-signature=", ";sig=", 1).as_bytes()), Kind::IncompleteBody);
    let huge = format!("{:x};chunk-signature={SEED}\r\n", CHUNK_BYTES_MAX + 1);
    assert_eq!(failure(Mode::Signed, OBJECT_BYTES_MAX as usize, huge.as_bytes()), Kind::EntityTooLarge);
    assert_eq!(failure(Mode::Signed, 11, &[b'0'; 4096]), Kind::IncompleteBody);
    assert_eq!(failure(Mode::UnsignedTrailer, 5, b"5\r\nhello0\r\n"), Kind::IncompleteBody);
}

#[test]
fn trailers_that_are_wrong_are_told_apart() {
    let mode = Mode::UnsignedTrailer;
    let body = |trailer: &str| [b"5\r\nhello\r\n0\r\n".as_slice(), trailer.as_bytes()].concat();
    let sum = crc32c(b"hello");
    assert!(decode(mode, 5, &body(&format!("x-amz-checksum-crc32c:{sum}\r\n\r\n")), &[3]).1.is_ok());
    assert!(decode(mode, 5, &body(&format!("X-Amz-Checksum-CRC32C: {sum}\n\r\n\r\n")), &[3]).1.is_ok());
    assert_eq!(failure(mode, 5, &body(&format!("x-amz-checksum-crc32c:{sum}\r\n"))), Kind::IncompleteBody);
    let cases = [
        (String::new(), Kind::MalformedTrailerError),
        (format!("x-amz-checksum-crc32:{sum}\r\n"), Kind::MalformedTrailerError),
        (format!("x-amz-checksum-crc32c:{sum}\r\nx-amz-checksum-crc32c:{sum}\r\n"), Kind::MalformedTrailerError),
        (format!("x-amz-checksum-crc32c:{sum}\r\nx-amz-meta-a:b\r\n"), Kind::MalformedTrailerError),
        ("x-amz-checksum-crc32c\r\n".into(), Kind::MalformedTrailerError),
        ("x-amz-checksum-crc32c:AAAAAA==\r\n".into(), Kind::BadDigest),
        ("x-amz-checksum-crc32c:AAAA\r\n".into(), Kind::InvalidRequest),
        ("x".repeat(5000), Kind::IncompleteBody),
    ];
    for (trailer, kind) in cases {
        assert_eq!(failure(mode, 5, &body(&format!("{trailer}\r\n"))), kind, "{trailer:?}");
    }
    let signed = String::from_utf8(encode(Mode::SignedTrailer, &[b"hello"])).expect("text");
    let (start, _) = signed.split_once("x-amz-trailer-signature").expect("signed");
    assert_eq!(failure(Mode::SignedTrailer, 5, start.as_bytes()), Kind::IncompleteBody);
    assert_eq!(failure(Mode::SignedTrailer, 5, format!("{start}\r\n").as_bytes()), Kind::IncompleteBody);
    assert_eq!(
        failure(Mode::SignedTrailer, 5, format!("{start}x-amz-trailer-signature:{SEED}\r\n\r\n").as_bytes()),
        Kind::SignatureDoesNotMatch
    );
}

#[test]
fn an_empty_chunked_upload_can_be_proved_before_it_is_sent() {
    let prove = |encoded: &[u8]| {
        let (body, _) =
            VerifiedBody::new(Payload::SignedChunks(seal()), &Mode::Signed.headers(0), frames(encoded, &[5])).expect("valid");
        assert_eq!(body.decoded_length(), Some(0));
        assert!(!body.is_end_stream());
        let proof = pin!(body.prove_empty());
        match proof.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map_err(|error| error.kind),
            Poll::Pending => panic!("the test's bodies are always ready"),
        }
    };
    let good = encode(Mode::Signed, &[]);
    assert_eq!(prove(&good), Ok(()));
    assert_eq!(prove(&encode(Mode::Signed, &[b"x"])), Err(Kind::IncompleteBody));
    let forged = String::from_utf8(good).expect("text").replace("=", "=0");
    assert_eq!(prove(forged.as_bytes()), Err(Kind::IncompleteBody));
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Signed), Just(Mode::SignedTrailer), Just(Mode::UnsignedTrailer)]
}

fn upload() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 0..5)
}

proptest! {
    #[test]
    fn prop_any_framing_decodes_to_the_same_bytes(
        mode in mode(), chunks in upload(), cuts in proptest::collection::vec(1usize..50, 1..6),
    ) {
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let data = chunks.concat();
        let (out, end, verdict) = decode(mode, data.len(), &encode(mode, &chunks), &cuts);
        prop_assert!(end.is_ok(), "{:?}", end);
        prop_assert_eq!(&out, &data);
        let trailer = verdict.trailer().map(|(_, value)| value.to_str().expect("ASCII").to_owned());
        prop_assert_eq!(trailer, (mode != Mode::Signed).then(|| crc32c(&data)));
    }

    #[test]
    fn prop_no_corruption_ends_cleanly_with_other_bytes(
        mode in mode(), chunks in upload(), cuts in proptest::collection::vec(1usize..50, 1..6),
        at in any::<proptest::sample::Index>(), flip in 1u8..,
    ) {
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let data = chunks.concat();
        let mut encoded = encode(mode, &chunks);
        let at = at.index(encoded.len());
        let before = encoded[at];
        encoded[at] ^= flip;
        let (out, end, verdict) = decode(mode, data.len(), &encoded, &cuts);
        match end {
            // A hex digit or a name in the other case, a line end in its other form: nothing of the upload is changed by it.
            Ok(()) => {
                prop_assert_eq!(&out, &data);
                prop_assert!(encoded[at].eq_ignore_ascii_case(&before) || before == b'\r', "{} for {}", encoded[at], before);
                let trailer = verdict.trailer().map(|(_, value)| value.to_str().expect("ASCII").to_owned());
                prop_assert_eq!(trailer, (mode != Mode::Signed).then(|| crc32c(&data)));
            }
            Err(_) => prop_assert!(data.is_empty() || out.len() < data.len(), "the last byte is withheld"),
        }
    }

    #[test]
    fn prop_no_shortened_body_ends_cleanly(mode in mode(), chunks in upload(), cut in any::<proptest::sample::Index>()) {
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let data = chunks.concat();
        let encoded = encode(mode, &chunks);
        // The line ends behind the last signature or checksum say nothing.
        let kept = cut.index(encoded.len() - if mode == Mode::Signed { 2 } else { 4 });
        let (out, end, _) = decode(mode, data.len(), &encoded[..kept], &[9]);
        prop_assert!(end.is_err());
        prop_assert!(data.is_empty() || out.len() < data.len());
    }
}
