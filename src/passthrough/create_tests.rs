//! What a store in another region is told of a new bucket, and what the head says of that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt as _;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::checksum::{Algorithm, Checksum};
use crate::config::PayloadSigning;
use crate::passthrough::deletes::Reserved;
use crate::types::hex32;

const XMLNS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
const TAGS: &str = "<Tags><Tag><Key>&lt;LocationConstraint/></Key><Value><!-- v -->EU</Value></Tag></Tags>";

/// From the region of the clients to that of the store; nothing where the document stays.
fn told(document: &str, clients: &str, stores: &str) -> Option<String> {
    let told = Regions { clients, stores: stores.into() }.at_store(document.as_bytes());
    told.map(|told| String::from_utf8(told.to_vec()).expect("text"))
}

fn new(region: &str) -> String {
    format!("<CreateBucketConfiguration {XMLNS}><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>")
}

#[test]
fn the_stores_region_stands_where_the_gateways_did_and_nothing_else_is_another() {
    let decl = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    for (before, behind) in [
        ("<CreateBucketConfiguration><LocationConstraint>", "</LocationConstraint></CreateBucketConfiguration>".to_owned()),
        (
            &format!("{decl}<CreateBucketConfiguration {XMLNS}>\n  {TAGS}<LocationConstraint a='>'>"),
            format!("</LocationConstraint >\n<!-- LocationConstraint --></CreateBucketConfiguration>\n{decl}"),
        ),
        (
            "<a:CreateBucketConfiguration xmlns:a='x'><a:LocationConstraint>",
            format!("</a:LocationConstraint>{TAGS}<a:Bucket/></a:CreateBucketConfiguration>"),
        ),
        (
            "<CreateBucketConfiguration><Location><Name>z</Name></Location><LocationConstraint>",
            format!("</LocationConstraint>{TAGS}</CreateBucketConfiguration>"),
        ),
    ] {
        for (named, clients) in
            [("eu-west-1", "eu-west-1"), (" eu-west-1\n", "eu-west-1"), ("EU", "eu-west-1"), ("us-east-1", "us-east-1")]
        {
            for mark in ["", "\u{feff}"] {
                let document = format!("{mark}{before}{named}{behind}");
                assert_eq!(told(&document, clients, "mars"), Some(format!("{mark}{before}mars{behind}")), "{document}");
            }
        }
    }
}

#[test]
fn a_region_without_a_name_is_named_to_a_store_elsewhere() {
    let (open, close) = (format!("<CreateBucketConfiguration {XMLNS}>"), "</CreateBucketConfiguration>");
    let constraint = "<LocationConstraint>mars</LocationConstraint>";
    for (document, expected) in [
        (String::new(), new("mars")),
        (format!("<CreateBucketConfiguration {XMLNS}/>"), new("mars")),
        (format!("{open}{close}"), new("mars")),
        (format!("{open}<LocationConstraint/>{close}"), new("mars")),
        (format!("{open}<LocationConstraint></LocationConstraint>{close}"), new("mars")),
        (format!("{open}\n{TAGS}\n{close}"), format!("{open}{constraint}\n{TAGS}\n{close}")),
        (format!("{open}{TAGS}<LocationConstraint b=\"/\" />{close}"), format!("{open}{TAGS}<LocationConstraint b=\"/\" >mars</LocationConstraint>{close}")),
        (
            "<a:CreateBucketConfiguration xmlns:a='/' />".to_owned(),
            "<a:CreateBucketConfiguration xmlns:a='/' ><a:LocationConstraint>mars</a:LocationConstraint></a:CreateBucketConfiguration>".to_owned(),
        ),
    ] {
        if !document.is_empty() {
            assert_eq!(told(&format!("\u{feff}{document}"), "us-east-1", "mars"), Some(format!("\u{feff}{expected}")));
        }
        assert_eq!(told(&document, "us-east-1", "mars"), Some(expected), "{document}");
        assert_eq!(told(&document, "eu-west-1", "mars"), None, "another than the gateway's: {document}");
        assert_eq!(told(&document, "eu-west-1", "us-east-1"), None, "as the store wants it: {document}");
    }
}

#[test]
fn us_east_1_is_told_by_silence() {
    let (open, close) = ("<CreateBucketConfiguration>", "</CreateBucketConfiguration>");
    let constraint = "<LocationConstraint>eu-west-1</LocationConstraint>";
    for (inner, left) in [
        (constraint.to_owned(), None),
        (format!("\n  {constraint}<!-- no more -->\n"), None),
        (format!("{constraint}{TAGS}"), Some(TAGS.to_owned())),
        (format!("\n  {TAGS}\n  {constraint}\n"), Some(format!("\n  {TAGS}\n  \n"))),
        (format!("{constraint}<Bucket/>"), Some("<Bucket/>".to_owned())),
    ] {
        let expected = left.map_or(String::new(), |left| format!("{open}{left}{close}"));
        assert_eq!(told(&format!("{open}{inner}{close}"), "eu-west-1", "us-east-1"), Some(expected), "{inner}");
    }
    let marked = format!("\u{feff}{open}{constraint}{TAGS}{close}");
    assert_eq!(told(&marked, "eu-west-1", "us-east-1"), Some(format!("\u{feff}{open}{TAGS}{close}")));
}

#[test]
fn what_names_another_place_or_is_not_understood_stays() {
    let whole = new("eu-west-1");
    for end in 1..whole.len() {
        assert_eq!(told(&whole[..end], "eu-west-1", "mars"), None, "{end}");
    }
    for named in [
        "eu-west-2",
        "mars",
        "us-east-1",
        ":cold",
        "eu-west-1:cold",
        "default:cold",
        "Eu-West-1",
        "&#101;u-west-1",
        "<!-- -->eu-west-1",
        "<a/>",
        "<![CDATA[eu-west-1]]>",
    ] {
        assert_eq!(told(&new(named), "eu-west-1", "mars"), None, "{named}");
        assert_eq!(told(&new(named), "us-east-1", "mars").is_some(), named == "us-east-1", "{named}");
    }
    let constraint = "<LocationConstraint>eu-west-1</LocationConstraint>";
    for document in [
        " ",
        "eu-west-1",
        "{\"LocationConstraint\": \"eu-west-1\"}",
        constraint,
        "<Tagging/>",
        &format!("<Other>{constraint}</Other>"),
        &format!("<CreateBucketConfiguration>{constraint}{constraint}</CreateBucketConfiguration>"),
        &format!("<CreateBucketConfiguration><Tags>{constraint}</Tags></CreateBucketConfiguration>"),
        &format!("<CreateBucketConfiguration>{constraint} mars</CreateBucketConfiguration>"),
        &format!("<CreateBucketConfiguration>&mars;{constraint}</CreateBucketConfiguration>"),
        &format!("<!DOCTYPE x><CreateBucketConfiguration>{constraint}</CreateBucketConfiguration>"),
        &format!("<CreateBucketConfiguration>{constraint}</CreateBucketConfiguration><CreateBucketConfiguration/>"),
        &format!("<CreateBucketConfiguration>{constraint}</CreateBucketConfiguration></CreateBucketConfiguration>"),
    ] {
        assert_eq!(told(document, "eu-west-1", "mars"), None, "{document}");
    }
    // A zone is one place, and a region would be another.
    let zone = "<CreateBucketConfiguration><Location><Name>use1-az4</Name></Location><Bucket/></CreateBucketConfiguration>";
    assert_eq!(told(zone, "us-east-1", "mars"), None);
    let region = Regions { clients: "eu-west-1", stores: "mars".into() };
    assert_eq!(region.at_store(b"<CreateBucketConfiguration>\xff</CreateBucketConfiguration>"), None);
}

/// The head and the body that go to a store in `stores`, or the code of the refusal.
async fn sent(
    payload: Payload,
    stores: &str,
    quirks: Quirks,
    head: &[(&'static str, &str)],
    document: &str,
) -> std::result::Result<(HeaderMap, String), &'static str> {
    let pool = crate::budget::Pool::new(4 << 20, None);
    let mut headers: HeaderMap =
        head.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("valid"))).collect();
    let regions = Regions { clients: "eu-west-1", stores: stores.into() };
    let mut held = Reserved::nothing(&pool);
    let prepared = prepare(payload, regions, quirks, &mut headers, full_body(document.to_owned()), &mut held).await;
    let (body, _) = prepared.map_err(|error| error.kind.code())?;
    assert_eq!(http_body::Body::is_end_stream(&body), headers["content-length"] == "0");
    let body = body.collect().await.expect("it is here").to_bytes();
    Ok((headers, String::from_utf8(body.to_vec()).expect("text")))
}

fn md5(document: &str) -> String {
    STANDARD.encode(Md5::digest(document))
}

fn crc32(document: &str) -> String {
    let mut checksum = Checksum::new(Algorithm::Crc32);
    checksum.update(document.as_bytes());
    checksum.encoded()
}

fn hash(document: &str) -> String {
    String::from_utf8(hex32(&Sha256::digest(document).into()).to_vec()).expect("hex")
}

fn signed(document: &str) -> Payload {
    Payload::Signed { sha256: Sha256::digest(document).into() }
}

#[tokio::test]
async fn the_head_is_right_for_what_the_store_is_told() {
    let ours = new("eu-west-1");
    let (length, digest, sum) = (ours.len().to_string(), md5(&ours), crc32(&ours));
    let head = [
        ("content-length", length.as_str()),
        ("content-md5", &digest),
        ("content-type", "application/xml"),
        ("x-amz-acl", "private"),
        ("x-amz-checksum-crc32", &sum),
        ("x-amz-sdk-checksum-algorithm", "CRC32"),
    ];
    for (checksums, content_md5) in [(Checksums::Forward, false), (Checksums::Verify, true)] {
        let quirks = Quirks { checksums, content_md5, ..Quirks::default() };
        for payload in [signed(&ours), Payload::Unsigned] {
            for (stores, told) in [("mars", new("mars")), ("us-east-1", String::new())] {
                let (headers, body) = sent(payload.clone(), stores, quirks, &head, &ours).await.expect("right");
                assert_eq!(body, told);
                let expected = [
                    ("content-length", told.len().to_string()),
                    ("content-md5", md5(&told)),
                    ("content-type", "application/xml".to_owned()),
                    ("x-amz-acl", "private".to_owned()),
                    ("x-amz-content-sha256", hash(&told)),
                ];
                assert!(expected.iter().all(|(name, value)| headers[*name] == *value), "{headers:?}");
                assert_eq!(headers.len(), expected.len(), "{headers:?}");
            }
        }
    }
    let (headers, _) = sent(Payload::Unsigned, "mars", Quirks::default(), &[], &ours).await.expect("sent");
    assert_eq!(headers.len(), 2, "length and hash: {headers:?}");
    let never = Quirks { payload_signing: PayloadSigning::Never, ..Quirks::default() };
    let (headers, _) = sent(signed(&ours), "mars", never, &[], &ours).await.expect("sent");
    assert_eq!(headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
}

#[tokio::test]
async fn what_stays_keeps_its_checksums() {
    let other = new("eu-west-2");
    let head = [("content-md5", md5(&other)), ("x-amz-checksum-crc32", crc32(&other))];
    let head = head.each_ref().map(|(name, value)| (*name, value.as_str()));
    let (headers, body) = sent(signed(&other), "mars", Quirks::default(), &head, &other).await.expect("right");
    assert_eq!(body, other);
    assert!(head.iter().all(|(name, value)| headers[*name] == *value), "{headers:?}");
    let verify = Quirks { checksums: Checksums::Verify, ..Quirks::default() };
    let (headers, _) = sent(signed(&other), "mars", verify, &head, &other).await.expect("right");
    assert!(headers["content-md5"] == head[0].1 && !headers.contains_key("x-amz-checksum-crc32"), "{headers:?}");
}

#[tokio::test]
async fn what_the_client_signed_and_said_is_verified_before_it_is_another() {
    let ours = new("eu-west-1");
    let refused = async |payload, head: &[(&'static str, &str)], document: &str| {
        sent(payload, "mars", Quirks::default(), head, document).await.expect_err("wrong")
    };
    assert_eq!(refused(signed("another"), &[], &ours).await, "XAmzContentSHA256Mismatch");
    assert_eq!(refused(signed("another"), &[], "").await, "XAmzContentSHA256Mismatch");
    for document in [ours.as_str(), ""] {
        assert_eq!(refused(Payload::Unsigned, &[("content-md5", &md5("another"))], document).await, "BadDigest");
        assert_eq!(refused(Payload::Unsigned, &[("x-amz-checksum-crc32", &crc32("another"))], document).await, "BadDigest");
    }
    assert_eq!(refused(Payload::UnsignedTrailer, &[("x-amz-decoded-content-length", "0")], "").await, "InvalidRequest");
    let long = format!("{ours}{}", " ".repeat(CREATE_BODY_BYTES_MAX));
    assert_eq!(refused(Payload::Unsigned, &[], &long).await, "EntityTooLarge");
}
