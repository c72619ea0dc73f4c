//! Streams: members of an archive, and what becomes of an entry that begins anew, where it can be taken back and where not.

use std::fs;

use http::{HeaderMap, HeaderValue};

use super::*;

fn head(length: u64, etag: &'static str) -> Head {
    let mut headers = HeaderMap::new();
    headers.insert("etag", HeaderValue::from_static(etag));
    Head::new(0, 200, length, headers)
}

fn put(stream: &mut Stream, name: &str, octets: &[u8]) -> Result<(), PlaceError> {
    stream.begin(name, &head(octets.len() as u64, "\"e\""))?;
    octets.chunks(7).try_for_each(|octets| stream.data(octets))?;
    stream.end()
}

/// A stream that cannot be taken back, and where it goes.
fn to_pipe(archive: bool) -> (tempfile::NamedTempFile, Stream) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let stream = Stream::new("a pipe".into(), file.reopen().unwrap(), archive);
    (file, stream)
}

#[test]
fn an_archive_has_its_name_once_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let mut stream = Stream::to_file(&path, true).unwrap();
    put(&mut stream, "a", b"one").unwrap();
    assert!(names().len() == 1 && !path.exists());
    stream.finish().unwrap();
    assert_eq!(names(), ["x.tar"]);
    // A header, a block, and two blocks of zeros at the end.
    let octets = fs::read(&path).unwrap();
    assert_eq!((octets.len(), &octets[512..515], &octets[..2]), (4 * 512, b"one".as_slice(), b"a\0".as_slice()));
    let mut stream = Stream::to_file(&path, true).unwrap();
    put(&mut stream, "b", b"two").unwrap();
    drop(stream);
    assert_eq!((names().len(), fs::read(&path).unwrap()), (1, octets), "the old one stays");
}

#[test]
fn what_came_to_be_there_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let mut stream = Stream::to_file(&path, false).unwrap();
    put(&mut stream, "a", b"one").unwrap();
    fs::write(&path, b"another's").unwrap();
    let Err(PlaceError::All(why)) = stream.finish() else { panic!("it replaced another file") };
    assert!(why.contains("--overwrite"), "{why}");
    drop(stream);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "its own was taken back");
    fs::remove_file(&path).unwrap();
    let mut stream = Stream::to_file(&path, false).unwrap();
    stream.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 1024);
}

#[test]
fn a_name_of_ours_that_is_taken_is_not_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    for count in 0..3 {
        fs::write(folder.path().join(format!(".x.tar.batchgate-{}-{count}.part", std::process::id())), b"old").unwrap();
    }
    Stream::to_file(&path, false).unwrap().finish().unwrap();
    assert!(path.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "those of others stay");
}

#[test]
fn what_began_anew_is_taken_back_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, broken: bool| {
        let path = folder.path().join(name);
        let mut stream = Stream::to_file(&path, true).unwrap();
        put(&mut stream, "a", b"one").unwrap();
        if broken {
            // Two that broke off, and are another object or none when they come again.
            stream.begin("b", &head(1_000_000, "\"old\"")).unwrap();
            stream.data(&[7; 600_000]).unwrap();
            stream.void().unwrap();
            stream.begin("b", &head(9, "\"older\"")).unwrap();
            stream.void().unwrap();
        }
        put(&mut stream, "c", &[8; 1000]).unwrap();
        stream.finish().unwrap();
        fs::read(path).unwrap()
    };
    assert_eq!(write("plain.tar", false), write("broken.tar", true));
}

#[test]
fn the_same_object_goes_on_where_nothing_can_be_taken_back() {
    for archive in [false, true] {
        let (plain, mut stream) = to_pipe(archive);
        put(&mut stream, "a", b"0123456789").unwrap();
        stream.finish().unwrap();
        let (broken, mut stream) = to_pipe(archive);
        for written in [4, 2, 7] {
            stream.begin("a", &head(10, "\"e\"")).unwrap();
            stream.data(&b"0123456789"[..written]).unwrap();
            stream.void().unwrap();
        }
        put(&mut stream, "a", b"0123456789").unwrap();
        stream.finish().unwrap();
        assert_eq!(fs::read(broken.path()).unwrap(), fs::read(plain.path()).unwrap(), "archive: {archive}");
    }
}

#[test]
fn another_object_does_not_go_on_behind_a_part_of_the_first() {
    let others: [(&str, Head); 4] =
        [("a", head(10, "\"other\"")), ("a", head(11, "\"e\"")), ("b", head(10, "\"e\"")), ("a", head(10, "W/\"e\""))];
    for (name, other) in others {
        let (_file, mut stream) = to_pipe(true);
        stream.begin("a", &head(10, "\"e\"")).unwrap();
        stream.data(b"0123").unwrap();
        stream.void().unwrap();
        assert!(matches!(stream.begin(name, &other), Err(PlaceError::All(_))), "{name} {other:?}");
    }
    let (_file, mut stream) = to_pipe(false);
    stream.begin("a", &head(10, "\"e\"")).unwrap();
    stream.void().unwrap();
    assert!(matches!(stream.finish(), Err(PlaceError::All(_))));
}
