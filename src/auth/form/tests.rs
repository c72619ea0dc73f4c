//! Forms from bytes to judgement: the reader over any split of its bytes, the file's way through, and the policy's conditions.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use proptest::prelude::*;
use s3s_sigv4::{AmzDate, calculate_signature};

use super::reader::boundary;
use super::*;
use crate::auth::held::tests::Purse;
use crate::auth::{Also, Authenticator, Identity, NOBODY, Policy};

type Source = Box<dyn StdError + Send + Sync>;

/// A body of these pieces, whose length is announced; or which breaks off behind them.
struct Pieces {
    pieces: std::vec::IntoIter<Bytes>,
    announced: Option<u64>,
    breaks: bool,
}

impl Pieces {
    fn new(pieces: Vec<Bytes>) -> Self {
        let announced = Some(pieces.iter().map(|piece| piece.len() as u64).sum());
        Self { pieces: pieces.into_iter(), announced, breaks: false }
    }

    /// Cut at these places.
    fn cut(bytes: &[u8], cuts: &[usize]) -> Self {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        Self::new(cuts.windows(2).map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]])).collect())
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Source;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::result::Result<Frame<Bytes>, Source>>> {
        std::task::Poll::Ready(match self.pieces.next() {
            Some(piece) => {
                self.announced = self.announced.map(|left| left - piece.len() as u64);
                Some(Ok(Frame::data(piece)))
            }
            None if self.breaks => Some(Err("cut".into())),
            None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.announced.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

fn field(name: &str, value: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

const FILE: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\n";

fn begin_cut(text: &[u8], cuts: &[usize]) -> Result<Begun<Pieces>> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=b"));
    block_on(begin(&headers, Pieces::cut(text, cuts), &mut Purse::default()))
}

fn begin_whole(text: &str) -> Result<Begun<Pieces>> {
    begin_cut(text.as_bytes(), &[])
}

/// What leaves of a form, as far as it leaves, and why it broke off if it did.
fn sent(begun: Begun<Pieces>, allowed: std::ops::RangeInclusive<u64>) -> (Vec<u8>, Option<Kind>) {
    let (mut body, verdict) = match FileBody::new(begun, allowed, "new") {
        Ok(made) => made,
        Err(error) => return (Vec::new(), Some(error.kind)),
    };
    let announced = body.bytes();
    let mut out = Vec::new();
    block_on(async {
        loop {
            match body.frame().await {
                None => {
                    assert_eq!(out.len() as u64, announced, "as many bytes as were announced");
                    assert!(verdict.verified() && body.size_hint().exact() == Some(0));
                    return (out, None);
                }
                Some(Ok(frame)) => out.extend_from_slice(&frame.into_data().expect("data")),
                Some(Err(error)) => {
                    assert!(verdict.failure().is_some_and(|failure| failure.kind == error.kind));
                    let again = body.frame().await.expect("it stays failed").expect_err("it stays failed");
                    assert_eq!(again.kind, error.kind);
                    return (out, Some(error.kind));
                }
            }
        }
    })
}

fn kind_of(text: &str) -> Kind {
    begin_whole(text).map(|begun| sent(begun, 0..=u64::MAX).1.expect("refused")).unwrap_or_else(|error| error.kind)
}

#[test]
fn a_form_is_read_up_to_its_file() {
    let text = format!("{}{}{FILE}data\r\n--b--\r\n", field("Key", "k"), field("x-amz-meta-a", "\r\n--a\r\n"));
    let begun = begin_whole(&text).expect("well-formed");
    let form = &begun.form;
    assert_eq!(form.get("key"), Some(&b"k"[..]));
    assert_eq!(form.get("x-amz-meta-a"), Some(&b"\r\n--a\r\n"[..]));
    assert_eq!(
        (form.file_name.as_str(), form.file_type.as_ref().expect("there")),
        ("f.txt", &HeaderValue::from_static("text/plain"))
    );
    assert_eq!(begun.bytes, b"data\r\n--b--\r\n".len() as u64);
    assert_eq!(sent(begun, 4..=4), (b"data\r\n--new--\r\n".to_vec(), None));
}

#[test]
fn names_of_files_are_read_as_clients_write_them() {
    for (written, name) in [
        ("filename=\"a b.txt\"", "a b.txt"),
        ("filename=a.txt", "a.txt"),
        ("filename=\"C:\\dir\\f.txt\"", "f.txt"),
        ("filename=\"/tmp/f.txt\"", "f.txt"),
        ("filename=\"a\\\"b\"", "a\"b"),
        ("filename=\"a;b=c\" ; x=y", "a;b=c"),
        ("filename=\"\u{e9}\"", "\u{e9}"),
        ("filename*=utf-8''%C3%A9%2Ff", "f"),
        ("filename*=latin1''%E9", ""),
        ("filename=\"\"", ""),
    ] {
        let text = format!("--b\r\ncontent-disposition:form-data; name=file; {written}\r\n\r\n");
        assert_eq!(begin_whole(&text).expect(written).form.file_name, name, "{written}");
    }
}

#[test]
fn what_readers_could_read_differently_is_refused() {
    let part = |headers: &str| format!("--b\r\n{headers}\r\n\r\nv\r\n{FILE}d\r\n--b--\r\n");
    for text in [
        "--x\r\n".to_owned(),
        "\r\n--b\r\n".to_owned(),
        "--bb\r\n".to_owned(),
        "--b \r\n".to_owned(),
        "--b\n".to_owned(),
        part("Content-Type: text/plain"),
        part("Content-Disposition: form-data"),
        part("Content-Disposition: attachment; name=\"key\""),
        part("Content-Disposition: form-data; name=\"\""),
        part("Content-Disposition: form-data; name=\"a\"; name=\"b\""),
        part("Content-Disposition: form-data; name=\"a\" b"),
        part("Content-Disposition: form-data; name=\"a"),
        part("Content-Disposition: form-data; name=\"a b\""),
        part("Content-Disposition: form-data; name=\"a%22\""),
        part("Content-Disposition: form-data; name=\"a\\\"b\""),
        part("Content-Disposition: form-data;\r\n name=\"a\""),
        part("Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"b\""),
        part("Content-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64"),
        part("Content-Disposition : form-data; name=\"a\""),
        part("X: 1\nContent-Disposition: form-data; name=\"a\""),
        part("nonsense"),
        format!("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n--b\r\n{FILE}"),
        format!("{}{FILE}--b--\r\n", field("key", "k")),
        format!("{}{FILE}d\r\n--bx--\r\n", field("key", "k")),
        format!("{}{FILE}d\r\n--b \r\n", field("key", "k")),
        field("key", "k"),
    ] {
        assert_eq!(kind_of(&text), Kind::MalformedPostRequest, "{text}");
    }
    let twice = format!("{}{}{FILE}d\r\n--b--\r\n", field("acl", "private"), field("ACL", "public-read"));
    assert_eq!(kind_of(&twice), Kind::InvalidArgument);
    assert_eq!(kind_of(&format!("{}--b--\r\n", field("key", "k"))), Kind::InvalidArgument, "no file");
}

#[test]
fn a_boundary_is_one_of_rfc_2046() {
    for (value, expected) in [
        ("multipart/form-data; boundary=----WebKitFormBoundaryAbC", "----WebKitFormBoundaryAbC"),
        ("multipart/form-data;charset=utf-8; Boundary=\"a b:c\"", "a b:c"),
    ] {
        assert_eq!(boundary(value.as_bytes()).expect(value), expected);
    }
    let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
    for value in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"a\\\"b\"",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a\r\n\"",
        &long,
    ] {
        assert_eq!(boundary(value.as_bytes()).expect_err(value).kind, Kind::MalformedPostRequest, "{value}");
    }
}

#[test]
fn the_head_is_bounded_whatever_comes() {
    let head = field("key", "") + FILE;
    let room = FORM_HEAD_BYTES_MAX - head.len();
    let fits = format!("{}{FILE}", field("key", &"k".repeat(room)));
    assert_eq!(fits.len(), FORM_HEAD_BYTES_MAX);
    assert!(begin_whole(&fits).is_ok());
    for text in [format!("{}{FILE}", field("key", &"k".repeat(room + 1))), format!("--b\r\n{}", "x".repeat(1 << 20))] {
        assert_eq!(kind_of(&text), Kind::MaxPostPreDataLengthExceeded);
    }
    let mut reader = HeadReader::new("b");
    let endless = [b"--b\r\nX: ".to_vec(), vec![b'x'; 1 << 16]].concat();
    let fed = endless.iter().position(|byte| reader.push(&[*byte]).is_err()).expect("refused");
    assert_eq!(fed, FORM_HEAD_BYTES_MAX);
}

#[test]
fn a_form_is_paid_for_as_it_comes() {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=b"));
    let paid = |text: &str, max: u64| {
        let mut purse = Purse { max, paid: 0 };
        let pieces = text.as_bytes().chunks(1000).map(Bytes::copy_from_slice).collect();
        let result = block_on(begin(&headers, Pieces::new(pieces), &mut purse)).map(|_| ()).map_err(|error| error.kind);
        (result, purse.paid)
    };
    let copies = COPIES as u64;
    assert_eq!(paid(FILE, u64::MAX), (Ok(()), copies * 4096));
    let long = field("key", &"k".repeat(9000)) + FILE;
    assert_eq!(paid(&long, u64::MAX), (Ok(()), copies * 12_288));
    assert_eq!(paid(&long, copies * 8192), (Err(Kind::SlowDown), copies * 8192));
    let endless = field("key", &"k".repeat(1 << 20));
    assert_eq!(paid(&endless, u64::MAX), (Err(Kind::MaxPostPreDataLengthExceeded), copies * FORM_HEAD_BYTES_MAX as u64));
}

#[test]
fn a_form_without_a_length_or_cut_short_is_refused() {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=b"));
    let of = |body| block_on(begin(&headers, body, &mut Purse::default())).err().expect("refused").kind;
    assert_eq!(of(Pieces { announced: None, ..Pieces::new(vec![Bytes::from(FILE)]) }), Kind::MissingContentLength);
    assert_eq!(of(Pieces { breaks: true, ..Pieces::new(vec![Bytes::from("--b\r\n")]) }), Kind::IncompleteBody);
    assert_eq!(of(Pieces::new(vec![Bytes::from("--b\r\n")])), Kind::MalformedPostRequest);
}

#[test]
fn the_end_leaves_only_once_all_of_the_form_is_here() {
    let text = format!("{FILE}data\r\n--b--\r\n");
    for length in FILE.len()..text.len() {
        for breaks in [true, false] {
            let begun = begin_whole(&text[..FILE.len()]).expect("a head");
            let rest = Pieces { breaks, ..Pieces::new(vec![Bytes::copy_from_slice(&text.as_bytes()[FILE.len()..length])]) };
            let bytes = (text.len() - FILE.len()) as u64;
            let (body, _) = FileBody::new(Begun { first: Bytes::new(), rest, bytes, ..begun }, 0..=9, "new").expect("it may fit");
            let out = block_on(body.collect());
            // Whoever announced too much is caught by HTTP; without a cut, two dashes are the end.
            let whole = !breaks && text[..length].contains("\r\n--b--");
            assert_eq!(out.is_ok(), whole, "{length} {breaks}");
        }
    }
}

#[test]
fn a_file_without_an_end_is_shorter_than_the_message_that_was_announced() {
    for boundary in ["n", "a-longer-boundary"] {
        for size in [0, 1, 7, 8, 9, 40] {
            let text = format!("{FILE}{}", "x".repeat(size));
            let Ok((mut body, _)) = FileBody::new(begin_whole(&text).expect("a head"), 0..=99, boundary) else {
                panic!("any length is allowed");
            };
            let announced = body.bytes();
            let (mut left, mut failed) = (0, None);
            block_on(async {
                while let Some(frame) = body.frame().await {
                    match frame {
                        Ok(frame) => left += frame.data_ref().map_or(0, Bytes::len) as u64,
                        Err(error) => return failed = Some(error.kind),
                    }
                }
            });
            assert_eq!(failed, Some(Kind::MalformedPostRequest));
            assert!(left < announced.max(1), "{left} of {announced}");
        }
    }
}

#[test]
fn what_stands_behind_the_file_never_reaches_a_store() {
    let more = format!("{FILE}data\r\n{}--b--\r\n", field("acl", "public-read"));
    let (out, why) = sent(begin_whole(&more).expect("a head"), 0..=99);
    assert_eq!(why, None);
    let out = String::from_utf8(out).expect("text");
    assert_eq!(out.trim_end(), "data\r\n--new--");
    assert!(out.starts_with("data\r\n--new--\r\n "));
    let epilogue = format!("{FILE}data\r\n--b--{}", "x".repeat(FORM_HEAD_BYTES_MAX + 1));
    assert_eq!(kind_of(&epilogue), Kind::MalformedPostRequest);
    assert_eq!(sent(begin_whole(&format!("{FILE}data\r\n--b--")).expect("a head"), 0..=9).0, b"data\r\n--new--");
}

#[test]
fn trap_a_form_longer_than_any_object_is_refused_before_it_is_reckoned_with() {
    for (announced, fits) in [(OBJECT_BYTES_MAX, true), (OBJECT_BYTES_MAX + 1, false), (u64::MAX - 2, false), (u64::MAX, false)] {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("multipart/form-data; boundary=b"));
        let body = Pieces { announced: Some(announced), ..Pieces::cut(format!("{FILE}data").as_bytes(), &[]) };
        let begun = block_on(begin(&headers, body, &mut Purse::default()));
        assert_eq!(
            begun.map(|_| ()).map_err(|error| error.kind),
            if fits { Ok(()) } else { Err(Kind::EntityTooLarge) },
            "{announced}"
        );
    }
}

#[test]
fn a_file_is_as_long_as_its_policy_says() {
    let of = |length: usize, allowed: std::ops::RangeInclusive<u64>| {
        let text = format!("{FILE}{}\r\n--b--\r\n", "x".repeat(length));
        let (out, why) = sent(begin_whole(&text).expect("a head"), allowed);
        assert!(why.is_none() || !out.ends_with(b"--\r\n"), "what does not fit has no end");
        why
    };
    assert_eq!(of(5, 5..=5), None);
    assert_eq!(of(0, 0..=0), None);
    assert_eq!(of(6, 0..=5), Some(Kind::EntityTooLarge));
    assert_eq!(of(100_000, 0..=5), Some(Kind::EntityTooLarge));
    assert_eq!(of(4, 5..=9), Some(Kind::EntityTooSmall));
    assert_eq!(of(4, 9..=9), Some(Kind::EntityTooSmall));
    #[expect(clippy::reversed_empty_ranges, reason = "two conditions that contradict each other")]
    let never = 7..=3;
    assert!(of(5, never).is_some());
}

/// What forms are made of, and what breaks them.
const PIECES: &[&[u8]] = &[
    b"--b",
    b"\r\n",
    b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n",
    b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n",
    b"\r\n--b--\r\n",
    b"--",
    b"Content-Disposition: form-data; name=\"a\"",
    b"\"",
    b";",
    b"\\",
    b": ",
    b"\xff",
    b"x",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prop_any_split_gives_the_same_form(
        values in prop::collection::vec("[ -~\r\n]{0,40}", 0..5),
        file in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'c'), any::<u8>()], 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        // The boundary is `b`: a value with it would be another form.
        let values: Vec<_> = values.iter().map(|value| value.replace("--b", "--c")).collect();
        let file: Vec<_> = file.into_iter().map(|byte| if byte == b'b' { b'c' } else { byte }).collect();
        let mut text: Vec<u8> = values.iter().enumerate().flat_map(|(i, value)| field(&format!("f{i}"), value).into_bytes()).collect();
        text.extend_from_slice(FILE.as_bytes());
        text.extend_from_slice(&file);
        text.extend_from_slice(b"\r\n--b--\r\n");
        let begun = begin_cut(&text, &cuts).expect("well-formed");
        let read: Vec<_> = begun.form.fields.iter().map(|field| field.value.to_vec()).collect();
        prop_assert_eq!(read, values.iter().map(|value| value.clone().into_bytes()).collect::<Vec<_>>());
        let (out, why) = sent(begun, 0..=u64::MAX);
        prop_assert_eq!(why, None);
        prop_assert_eq!(out, [&file[..], b"\r\n--new--\r\n"].concat());
    }

    #[test]
    fn prop_nothing_breaks_the_reader(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let text = pieces.concat();
        let whole = begin_cut(&text, &[]).map(|begun| (begun.form.clone(), sent(begun, 0..=9)));
        let split = begin_cut(&text, &cuts).map(|begun| (begun.form.clone(), sent(begun, 0..=9)));
        match (whole, split) {
            (Ok((form, (_, why))), Ok((split_form, (_, split_why)))) => {
                prop_assert_eq!(form, split_form);
                prop_assert_eq!(why, split_why);
            }
            (Err(error), Err(split)) => prop_assert_eq!(error.kind, split.kind),
            (whole, split) => prop_assert!(false, "whole {} split {}", whole.is_ok(), split.is_ok()),
        }
    }
}

fn form(fields: &[(&str, &str)]) -> Form {
    let field = |(name, value): &(&str, &str)| Field { name: (*name).to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) };
    Form { fields: fields.iter().map(field).collect(), file_name: "f.txt".to_owned(), file_type: None }
}

#[test]
fn the_key_has_the_files_name_filled_in() {
    let key = |value: &str, name: &str| Form { file_name: name.to_owned(), ..form(&[("KEY", value)]) }.key();
    assert_eq!(key("u/${filename}", "f.txt").expect("valid"), "u/f.txt");
    assert_eq!(key("u/${filename}", "").expect("valid"), "u/");
    assert_eq!(key("plain", "f").expect("valid"), "plain");
    for (value, name) in [("${filename}", "${filename}"), ("${file${filename}}", "name"), ("", "f"), ("${filename}", "")] {
        assert_eq!(key(value, name).expect_err(value).kind, Kind::InvalidArgument, "{value} {name}");
    }
    assert_eq!(form(&[]).key().expect_err("none").kind, Kind::InvalidArgument);
    assert_eq!(key(&"k".repeat(1025), "f").expect("the store judges it").len(), 1025);
}

#[test]
fn fields_need_what_the_headers_of_a_put_would() {
    let needed = |fields: &[(&str, &str)]| {
        let needed = form(fields).permissions("b", "k").expect("no copy");
        assert!(needed.iter().all(|p| p.bucket.as_deref() == Some("b") && p.key.as_deref() == Some(b"k")));
        needed.iter().map(|permission| permission.action).collect::<Vec<_>>()
    };
    assert_eq!(needed(&[("key", "k"), ("Content-Type", "t"), ("x-amz-meta-a", "v")]), ["s3:PutObject"]);
    assert_eq!(needed(&[("ACL", "private")]), ["s3:PutObject", "s3:PutObjectAcl"]);
    assert_eq!(needed(&[("x-amz-grant-read", "x")]), ["s3:PutObject", "s3:PutObjectAcl"]);
    assert_eq!(needed(&[("Tagging", "<Tagging/>")]), ["s3:PutObject", "s3:PutObjectTagging"]);
    assert_eq!(needed(&[("x-amz-object-lock-mode", "x")]), ["s3:PutObject", "s3:PutObjectRetention"]);
    assert_eq!(form(&[("X-Amz-Copy-Source", "b/k")]).permissions("b", "k").expect_err("a copy").kind, Kind::NotImplemented);
}

fn policy(conditions: &str) -> Result<PostPolicy> {
    PostPolicy::parse(
        format!("{{\"expiration\": \"2013-05-24T12:00:00Z\", \"conditions\": [{{\"bucket\": \"b\"}}{conditions}]}}").as_bytes(),
    )
}

/// Noon of the policies above, in seconds since 1970.
const NOON: i64 = 1_369_396_800;

#[test]
fn conditions_are_asked_of_every_field() {
    let check = |conditions: &str, fields: &[(&str, &str)]| {
        let result = policy(conditions).expect("valid").check(&form(fields), "b", "u/f.txt", NOON);
        result.map_err(|error| {
            assert_eq!(error.kind, Kind::AccessDenied);
            error.message.strip_prefix("Invalid according to Policy: ").expect("S3's words").to_owned()
        })
    };
    let key = ("key", "u/${filename}");
    assert_eq!(check(r#", {"key": "u/f.txt"}"#, &[key]), Ok(()));
    assert_eq!(check(r#", ["STARTS-WITH", "$Key", "u/"]"#, &[key]), Ok(()));
    assert_eq!(check(r#", ["eq", "$key", "u/"]"#, &[key]), Err(r#"Policy Condition failed: ["eq", "$key", "u/"]"#.to_owned()));
    assert_eq!(
        check(r#", ["starts-with", "$key", "v/"]"#, &[key]),
        Err(r#"Policy Condition failed: ["starts-with", "$key", "v/"]"#.to_owned())
    );
    let below = |prefix: &str, key: &str| {
        let policy = policy(&format!(r#", ["starts-with", "$key", "{prefix}"]"#)).expect("valid");
        policy.check(&form(&[("key", key)]), "b", key, NOON).is_ok()
    };
    assert!(below("u/", "u/a//b") && !below("u/", "u/../k") && !below("u/", "u\\..\\k") && !below("", "u/../../other/k"));
    let any = r#", ["starts-with", "$key", ""]"#;
    assert_eq!(check(any, &[key, ("x-amz-meta-a", "v")]), Err("Extra input fields: x-amz-meta-a".to_owned()));
    assert_eq!(check("", &[key]), Err("Extra input fields: key".to_owned()));
    let free = [("policy", "p"), ("X-Amz-Signature", "s"), ("x-ignore-me", "i"), ("AWSAccessKeyId", "a"), ("signature", "s")];
    assert_eq!(check(any, &[&[key], &free[..]].concat()), Ok(()));
    assert_eq!(check(any, &[key, ("x-amz-date", "d")]), Err("Extra input fields: x-amz-date".to_owned()));
    let and_acl = &format!(r#"{any}, {{"ACL": "private"}}"#);
    assert_eq!(check(and_acl, &[key, ("acl", "private")]), Ok(()));
    assert!(check(and_acl, &[key]).is_err(), "a condition on a field that is missing");
    assert!(check(and_acl, &[key, ("acl", "Private")]).is_err(), "values have a case");
    let images = &format!(r#"{any}, ["starts-with", "$Content-Type", "image/"]"#);
    assert_eq!(check(images, &[key, ("Content-Type", "image/png, image/jpeg")]), Ok(()));
    assert!(check(images, &[key, ("Content-Type", "image/png,text/html")]).is_err());
    assert_eq!(check(any, &[key, ("bucket", "b")]), Ok(()));
    assert!(check(any, &[key, ("bucket", "c")]).is_err());
    let elsewhere = policy(any).expect("valid").check(&form(&[key]), "c", "k", NOON).expect_err("another bucket");
    assert!(elsewhere.message.contains(r#"["eq", "$bucket", "b"]"#), "{elsewhere}");
    let anywhere = PostPolicy::parse(br#"{"expiration": "2013-05-24T12:00:00Z", "conditions": [["starts-with", "$key", ""]]}"#);
    let anywhere = anywhere.expect("valid").check(&form(&[key]), "b", "k", NOON).expect_err("no bucket");
    assert!(anywhere.message.ends_with("Extra input fields: bucket"), "{anywhere}");
    let late = policy(any).expect("valid").check(&form(&[key]), "b", "k", NOON + 1).expect_err("late");
    assert!(late.message.ends_with("Policy expired."), "{late}");
}

#[test]
fn a_policy_is_read_strictly() {
    for conditions in [
        ", {}",
        r#", {"a": "b", "c": "d"}"#,
        r#", {"a": 1}"#,
        r#", ["eq", "$key"]"#,
        r#", ["eq", "$key", 1]"#,
        ", []",
        r#", ["eq", "$key", "v", "w"]"#,
        r#", ["ends-with", "$key", "v"]"#,
        r#", ["content-length-range", 1]"#,
        r#", ["content-length-range", -1, 2]"#,
        r#", ["content-length-range", "a", 2]"#,
        r#", "x""#,
        ", 1",
        ",",
    ] {
        assert_eq!(policy(conditions).expect_err(conditions).kind, Kind::InvalidPolicyDocument, "{conditions}");
    }
    for document in [
        "",
        "[]",
        "{}",
        r#"{"expiration": "2013-05-24T12:00:00Z"}"#,
        r#"{"conditions": []}"#,
        r#"{"expiration": "tomorrow", "conditions": []}"#,
        r#"{"expiration": "2013-05-24 12:00:00Z", "conditions": []}"#,
        r#"{"expiration": "2013-13-24T12:00:00Z", "conditions": []}"#,
        r#"{"expiration": "2013-05-24T12:00:00+01:00", "conditions": []}"#,
        r#"{"expiration": "2013-05-24T12:00:00Z", "expiration": "2014-05-24T12:00:00Z", "conditions": []}"#,
        r#"{"expiration": "2013-05-24T12:00:00Z", "conditions": [], "more": 1}"#,
    ] {
        assert_eq!(PostPolicy::parse(document.as_bytes()).expect_err(document).kind, Kind::InvalidPolicyDocument, "{document}");
    }
    let undollared =
        policy(r#", ["eq","key","v"]"#).expect("valid").check(&form(&[("key", "v")]), "b", "v", NOON).expect_err("no field");
    assert!(undollared.kind == Kind::AccessDenied && undollared.message.ends_with(r#"["eq","key","v"]"#), "{undollared}");
    let end = |at: &str| PostPolicy::parse(format!(r#"{{"expiration": "{at}", "conditions": []}}"#).as_bytes());
    assert_eq!(end("9999-12-31T23:59:59Z").expect("never").expiration, "9999-12-31T23:59:59Z");
    assert!(
        end("9998-12-31T23:59:59.999Z").is_ok() && end("9999-13-31T23:59:59Z").is_err() && end("9999-12-31T25:59:59Z").is_err()
    );
    let fraction = PostPolicy::parse(br#"{"expiration": "2013-05-24T12:00:00.999Z", "conditions": []}"#);
    assert!(fraction.is_ok());
}

#[test]
fn lengths_are_those_that_all_conditions_allow() {
    assert_eq!(policy("").expect("valid").lengths(), 0..=u64::MAX);
    let two = policy(r#", ["content-length-range", 1, 10], ["content-length-range", "5", "20"]"#).expect("valid");
    assert_eq!(two.lengths(), 5..=10);
}

#[test]
fn a_store_gets_the_conditions_that_are_not_about_the_signer() {
    let all = policy(
        r#", {"X-Amz-Credential": "c"}, ["eq", "$x-amz-date", "d"], {"x-amz-algorithm": "a"}, ["starts-with", "$Bucket", ""],
           ["eq", "$x-amz-security-token", "t"], {"Key": "a\"\$b"}, ["content-length-range", 1, 2], ["starts-with", "$acl", ""]"#,
    );
    let kept = [r#"["eq", "$Key", "a\"$b"]"#, r#"["content-length-range", 1, 2]"#, r#"["starts-with", "$acl", ""]"#];
    assert_eq!(all.expect("valid").conditions_for_store(), kept);
}

/// Noon of 24 May 2013.
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOON as u64)
}

/// A form, signed by `secret` unless its fields are changed afterwards.
struct Signed {
    credential: &'static str,
    date: &'static str,
    document: String,
    secret: &'static str,
    token: Option<&'static str>,
}

impl Default for Signed {
    fn default() -> Self {
        let credential = "AK/20130524/us-east-1/s3/aws4_request";
        let document = r#"{"expiration": "2013-05-24T12:00:00Z", "conditions": [{"bucket": "b"}, {"key": "k"},
            ["starts-with", "$x-amz-credential", ""], ["starts-with", "$x-amz-date", ""], ["starts-with", "$x-amz-algorithm", ""]]}"#;
        Self { credential, date: "20130524T110000Z", document: document.to_owned(), secret: "SK", token: None }
    }
}

impl Signed {
    fn form(&self) -> Form {
        let policy = STANDARD.encode(&self.document);
        let stamp = AmzDate::parse("20130524T000000Z").expect("valid");
        let region = self.credential.split('/').nth(2).unwrap_or("us-east-1");
        let signature = calculate_signature(&policy, self.secret, &stamp, region, "s3");
        let mut fields = vec![
            ("key", "k"),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", self.credential),
            ("X-Amz-Date", self.date),
            ("Policy", &policy),
            ("X-Amz-Signature", &signature),
        ];
        fields.extend(self.token.map(|token| ("x-amz-security-token", token)));
        form(&fields)
    }
}

fn authenticate(form: &Form) -> Result<String> {
    let_in(form, Also::default()).map(|(name, _)| name)
}

/// The signer's name, and whether a policy was found.
fn let_in(form: &Form, also: Also) -> Result<(String, bool)> {
    let identity = Identity::new("i", "AK", "SK", None, Policy::full_access());
    let authenticator = Authenticator::new(vec![identity], "us-east-1", 1 << 20, noon).letting_in(also);
    let result = authenticator.authenticate_form(form, "b", "k");
    result.map(|(authenticated, policy)| (authenticated.identity.name.clone(), policy.is_some()))
}

#[test]
fn a_signed_form_names_its_signer() {
    assert_eq!(authenticate(&Signed::default().form()).expect("signed"), "i");
}

#[test]
fn a_form_that_is_not_rightly_signed_is_refused_as_s3_would() {
    let refused = |signed: Signed| authenticate(&signed.form()).expect_err("refused").kind;
    let default = Signed::default;
    assert_eq!(refused(Signed { secret: "other", ..default() }), Kind::SignatureDoesNotMatch);
    assert_eq!(refused(Signed { credential: "XX/20130524/us-east-1/s3/aws4_request", ..default() }), Kind::InvalidAccessKeyId);
    for credential in [
        "AK/20130524/eu-west-1/s3/aws4_request",
        "AK/20130524/us-east-1/sts/aws4_request",
        "AK",
        "AK/20130523/us-east-1/s3/aws4_request",
    ] {
        assert_eq!(refused(Signed { credential, ..default() }), Kind::InvalidArgument, "{credential}");
    }
    for date in ["yesterday", "20130525T110000Z"] {
        assert_eq!(refused(Signed { date, ..default() }), Kind::InvalidArgument, "{date}");
    }
    assert_eq!(refused(Signed { date: "20130524T130000Z", ..default() }), Kind::AccessDenied, "not valid yet");
    assert_eq!(refused(Signed { token: Some("t"), ..default() }), Kind::InvalidToken);
    let early = default().document.replace("T12:", "T11:");
    assert_eq!(refused(Signed { document: early, ..default() }), Kind::AccessDenied, "expired");
    assert_eq!(refused(Signed { document: "no JSON".to_owned(), ..default() }), Kind::InvalidPolicyDocument);
}

#[test]
fn a_form_of_another_region_is_let_in_only_where_that_is_wanted() {
    let any_region = Also { any_region: true, ..Also::default() };
    let signed = Signed { credential: "AK/20130524/eu-west-1/s3/aws4_request", ..Signed::default() };
    assert_eq!(let_in(&signed.form(), any_region).expect("signed"), ("i".to_owned(), true));
    let error = authenticate(&signed.form()).expect_err("refused");
    assert!(error.kind == Kind::InvalidArgument && error.message.contains("expecting \"us-east-1\""), "{error}");
    let forged = Signed { secret: "other", ..signed };
    assert_eq!(let_in(&forged.form(), any_region).expect_err("forged").kind, Kind::SignatureDoesNotMatch);
}

#[test]
fn a_form_that_lacks_a_field_is_told_which() {
    let whole = Signed::default().form();
    for name in ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "Policy", "X-Amz-Signature"] {
        let mut form = whole.clone();
        form.fields.retain(|field| field.name != name);
        let error = authenticate(&form).expect_err(name);
        assert_eq!(error.kind, Kind::InvalidArgument);
        assert!(error.message.contains(&name.to_ascii_lowercase()), "{error}");
    }
    assert_eq!(authenticate(&form(&[("key", "k")])).expect_err("anonymous").kind, Kind::AccessDenied);
}

#[test]
fn nobody_is_let_in_only_where_that_is_wanted_and_never_half_signed() {
    let nobody = Also { nobody: true, ..Also::default() };
    assert_eq!(let_in(&form(&[("key", "k")]), nobody).expect("let in"), (NOBODY.to_owned(), false));
    for name in ["policy", "x-amz-signature", "x-amz-security-token", "AWSAccessKeyId", "signature", "X-Amz-Date"] {
        let error = let_in(&form(&[("key", "k"), (name, "x")]), nobody).expect_err(name);
        assert_eq!(error.kind, Kind::InvalidArgument, "{name}");
    }
}

#[test]
fn version_2_is_let_in_only_where_that_is_wanted() {
    let policy = STANDARD.encode(r#"{"expiration": "2013-05-24T12:00:00Z", "conditions": [{"bucket": "b"}, {"key": "k"}]}"#);
    let signed = |secret: &str| {
        use hmac::{Hmac, KeyInit, Mac};
        let mut mac = Hmac::<sha1::Sha1>::new_from_slice(secret.as_bytes()).expect("any length");
        mac.update(policy.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    };
    let of =
        |key: &str, signature: &str| form(&[("key", "k"), ("AWSAccessKeyId", key), ("policy", &policy), ("signature", signature)]);
    let version_2 = Also { version_2: true, ..Also::default() };
    assert_eq!(let_in(&of("AK", &signed("SK")), version_2).expect("signed"), ("i".to_owned(), true));
    let refused = |form: &Form, also: Also| let_in(form, also).expect_err("refused").kind;
    assert_eq!(refused(&of("AK", &signed("SK")), Also::default()), Kind::InvalidRequest);
    assert_eq!(refused(&of("AK", &signed("other")), version_2), Kind::SignatureDoesNotMatch);
    assert_eq!(refused(&of("XX", &signed("SK")), version_2), Kind::InvalidAccessKeyId);
    for unreadable in ["no base64", "=QUJD", ""] {
        assert_eq!(refused(&of("AK", unreadable), version_2), Kind::SignatureDoesNotMatch, "{unreadable:?}");
    }
    let mut both = Signed::default().form();
    both.fields.push(Field { name: "signature".to_owned(), value: Bytes::from("x") });
    assert_eq!(refused(&both, version_2), Kind::InvalidArgument);
}
