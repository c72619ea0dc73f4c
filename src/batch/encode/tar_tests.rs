//! Archives as octets, and as other readers see them.

use std::io::{Cursor, Read};

use http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;

use super::*;
use crate::types::EntryIndex;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn headers(modified: &'static str) -> PartHeaders {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-meta-last-modified", HeaderValue::from_static("1"));
    headers.insert(header::LAST_MODIFIED, HeaderValue::from_static(modified));
    PartHeaders::of(&headers)
}

fn begin(tar: &mut Tar, out: &mut BytesMut, key: &str, headers: &PartHeaders, length: u64) {
    let name = PartName { index: EntryIndex(0), id: None, bucket: "b", key };
    tar.begin(out, name, StatusCode::OK, headers, length);
}

fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut tar, mut out) = (Tar::new(Naming::Key), BytesMut::new());
    for (name, body) in members {
        begin(&mut tar, &mut out, name, &headers(DATE), body.len() as u64);
        out.put_slice(body);
    }
    tar.summary(&mut out, &Totals::default());
    tar.close(&mut out);
    out.to_vec()
}

/// Names and bodies as the `tar` crate reads them.
fn read_back(octets: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = ::tar::Archive::new(octets);
    let entries = archive.entries().expect("an archive");
    let member = |entry: std::io::Result<::tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("a member");
        assert_eq!(entry.header().entry_type(), EntryType::Regular);
        let mut body = Vec::new();
        entry.read_to_end(&mut body).expect("whole");
        (String::from_utf8(entry.path_bytes().into_owned()).expect("text"), body)
    };
    entries.map(member).collect()
}

/// What stands in a header's field, up to its first NUL.
fn field(block: &[u8], from: usize, len: usize) -> &str {
    let octets = block[from..from + len].split(|octet| *octet == 0).next().expect("split gives one");
    std::str::from_utf8(octets).expect("ASCII")
}

/// The number of extended headers.
fn extended(octets: &[u8]) -> usize {
    let is_header = |block: &&[u8]| block[257..265] == *b"ustar\x0000";
    octets.chunks(512).filter(is_header).filter(|block| block[156] == b'x').count()
}

#[test]
fn a_members_header_is_ustar_as_posix_has_it() {
    let octets = archive(&[("dir/a b".into(), b"hello".to_vec())]);
    let block = &octets[..512];
    let fields = [
        ("name", 0, 100, "dir/a b"),
        ("mode", 100, 8, "0000644"),
        ("uid", 108, 8, "0000000"),
        ("gid", 116, 8, "0000000"),
        ("size", 124, 12, "00000000005"),
        ("mtime", 136, 12, "05657114241"),
        ("typeflag", 156, 1, "0"),
        ("linkname", 157, 100, ""),
        ("magic", 257, 6, "ustar"),
        ("version", 263, 2, "00"),
        ("uname", 265, 32, ""),
        ("gname", 297, 32, ""),
        ("devmajor", 329, 8, "0000000"),
        ("devminor", 337, 8, "0000000"),
        ("prefix", 345, 155, ""),
    ];
    for (what, from, len, expected) in fields {
        assert_eq!(field(block, from, len), expected, "{what}");
    }
    let sum: u32 = block.iter().enumerate().map(|(at, octet)| if (148..156).contains(&at) { 32 } else { u32::from(*octet) }).sum();
    assert_eq!(u32::from_str_radix(field(block, 148, 8), 8), Ok(sum));
    assert_eq!(&octets[512..517], b"hello");
    assert!(octets[517..1024].iter().all(|octet| *octet == 0), "zeros up to the next block");
    assert_eq!(field(&octets[1024..], 0, 100), SUMMARY);
    assert_eq!(octets.len(), 512 * 6, "two members of two blocks, and two of zeros");
    assert!(octets[512 * 4..].iter().all(|octet| *octet == 0));
}

#[test]
fn only_names_that_do_not_fit_have_an_extended_header() {
    let split = |prefix: usize, name: usize| format!("{}/{}", "p".repeat(prefix), "n".repeat(name));
    for (name, extends) in [
        ("n".repeat(100), false),
        ("n".repeat(101), true),
        (split(155, 100), false),
        (split(156, 100), true),
        (split(155, 101), true),
        (split(1, 100), false),
        ("d/".repeat(127) + "n", false),
        ("d/".repeat(511) + "n", true),
        ("é".into(), true),
        (format!("{}é", "n".repeat(99)), true),
        ("tab\tand\nline".into(), false),
        ("k".repeat(1024), true),
    ] {
        let octets = archive(&[(name.clone(), b"x".to_vec()), ("after".into(), b"y".to_vec())]);
        assert_eq!(extended(&octets), usize::from(extends), "{name}");
        let found = read_back(&octets);
        assert_eq!(found[0], (name, b"x".to_vec()));
        assert_eq!(found[1], ("after".into(), b"y".to_vec()), "the header is of one member alone");
    }
}

#[test]
fn what_an_extended_header_says_counts_itself() {
    for length in [1, 80, 85, 86, 87, 88, 89, 90, 91, 92, 990, 1000, 1280] {
        let mut out = Vec::new();
        record(&mut out, "path", &"v".repeat(length));
        let (said, rest) = out.split_at(out.iter().position(|octet| *octet == b' ').expect("a space"));
        assert_eq!(std::str::from_utf8(said).expect("digits").parse(), Ok(out.len()));
        assert_eq!(rest, format!(" path={}\n", "v".repeat(length)).as_bytes());
    }
}

#[test]
fn readers_that_know_no_extended_headers_see_a_name_of_ascii() {
    assert_eq!(ascii_of("a/é鍵.jpg"), "a/__.jpg");
    assert_eq!(ascii_of(&format!("{}/{}", "d".repeat(99), "n".repeat(200))), "d".repeat(99), "no name of a folder");
}

#[test]
fn sizes_over_8_gib_are_said_in_an_extended_header() {
    for (size, extends) in [(0, false), (1, false), (FIELD_MAX, false), (FIELD_MAX + 1, true), (u64::MAX >> 1, true)] {
        let (mut tar, mut out) = (Tar::new(Naming::Key), BytesMut::new());
        begin(&mut tar, &mut out, "k", &headers(DATE), size);
        assert_eq!(extended(&out), usize::from(extends), "{size}");
        // A reader that can seek looks at no body.
        let mut archive = ::tar::Archive::new(Cursor::new(out.to_vec()));
        let first = archive.entries_with_seek().expect("an archive").next().expect("one").expect("a header");
        assert_eq!((first.size(), &*first.path_bytes()), (size, &b"k"[..]));
        assert_eq!((tar.padding as u64 + size) % 512, 0);
    }
}

#[test]
fn times_are_those_of_the_object_or_none() {
    for (date, seconds) in [
        (DATE, Some(784_111_777)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
        ("Sat, 29 Feb 2020 23:59:59 GMT", Some(1_583_020_799)),
        ("Fri, 30 Jun 2016 23:59:60 GMT", Some(1_467_331_199)),
        ("Wed, 31 Dec 1969 23:59:59 GMT", None),
        ("Sun, 30 Feb 2020 00:00:00 GMT", None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None),
        ("Sun Nov  6 08:49:37 1994", None),
        ("Sun, 06 Nov 1994 08:49:37 CET", None),
        ("Sun, 06 Nov 1994 25:49:37 GMT", None),
        ("", None),
    ] {
        assert_eq!(unix_seconds(date.as_bytes()), seconds, "{date}");
    }
    let mtime = |headers: &PartHeaders| {
        let (mut tar, mut out) = (Tar::new(Naming::Key), BytesMut::new());
        begin(&mut tar, &mut out, "k", headers, 0);
        field(&out, 136, 12).to_owned()
    };
    assert_eq!(mtime(&PartHeaders::default()), "00000000000");
    assert_eq!(mtime(&headers("Fri, 31 Dec 9999 23:59:59 GMT")), "77777777777", "as late as the field can say");
}

#[test]
fn a_failed_entry_has_no_place() {
    let (mut tar, mut out) = (Tar::new(Naming::Key), BytesMut::new());
    let name = PartName { index: EntryIndex(0), id: None, bucket: "b", key: "k" };
    let failed = FailedEntry::ours(crate::error::Kind::AccessDenied, "No.");
    assert_eq!(tar.failed(&mut out, name, &failed), None);
    assert!(out.is_empty());
}

proptest! {
    #[test]
    fn prop_members_are_read_back_as_they_were_written(
        // The reader of these tests takes a line feed in an extended header for the end of its record; others do not.
        names in prop::collection::vec(prop_oneof!["[a-c/]{1,300}", "[aé鍵/ ]{1,120}", "[^\0\n]{1,40}", "d{90,110}/[e/]{1,160}"], 1..6),
        sizes in prop::collection::vec(prop_oneof![Just(0usize), 1..3usize, 500..530usize, 1000..1050usize], 6),
    ) {
        let clean = |name: &String| Member::of(PartName { index: EntryIndex(0), id: None, bucket: "b", key: name }, Naming::Key).fault().is_none();
        let members: Vec<_> = names.into_iter().filter(clean).zip(sizes).map(|(name, size)| (name, vec![7; size])).collect();
        let octets = archive(&members);
        prop_assert_eq!(octets.len() % 512, 0);
        let mut found = read_back(&octets);
        let (summary, json) = found.pop().expect("the summary");
        prop_assert_eq!((&*summary, json), (SUMMARY, Totals::default().to_json()));
        prop_assert_eq!(found, members);
    }
}
