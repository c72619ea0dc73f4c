//! What made objects hold. What enters is an object's number and a place in it; what leaves are the bytes there, the same in
//! every process. Invariant: another place of the same object (short of [`PERIOD`] further on) has other bytes, and so has the
//! same place of another object, unless their numbers are a multiple of [`PERIOD`] apart; a mix-up hardly passes for right.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use md5::{Digest, Md5};

/// Bytes after which an object repeats itself. Prime, so that it falls together with no buffer's size.
const PERIOD: usize = 65_521;

/// How far apart the beginnings of two objects with neighbouring numbers are.
const STEP: u64 = 4_099;

/// Two periods, so that any run of one period lies in one piece.
static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let period: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(PERIOD)
    .collect();
    Bytes::from(period.repeat(2))
});

/// The bytes of object `number` from `offset`, at most `most` of them and at most one period; no copy is made.
pub fn at(number: u64, offset: u64, most: u64) -> Bytes {
    let from = ((number % PERIOD as u64 * STEP + offset % PERIOD as u64) % PERIOD as u64) as usize;
    TABLE.slice(from..from + most.min(PERIOD as u64) as usize)
}

/// Whether `bytes` are those of object `number` at `offset`.
pub fn is(number: u64, mut offset: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let expected = at(number, offset, bytes.len() as u64);
        let (now, rest) = bytes.split_at(expected.len());
        if now != expected {
            return false;
        }
        (offset, bytes) = (offset + now.len() as u64, rest);
    }
    true
}

/// All bytes of object `number`; a copy is made only where it is longer than a period.
pub fn whole(number: u64, size: u64) -> Bytes {
    if size <= PERIOD as u64 {
        return at(number, 0, size);
    }
    let mut bytes = BytesMut::new();
    while (bytes.len() as u64) < size {
        bytes.extend_from_slice(&at(number, bytes.len() as u64, size - bytes.len() as u64));
    }
    bytes.freeze()
}

/// The MD5 of object `number` in hex, as its ETag has it; no object is held for it.
pub fn md5(number: u64, size: u64) -> String {
    let mut hash = Md5::new();
    let mut offset = 0;
    while offset < size {
        let bytes = at(number, offset, size - offset);
        hash.update(&bytes);
        offset += bytes.len() as u64;
    }
    hash.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// Whether an ETag without its quotes may be an MD5.
pub fn is_md5(etag: &str) -> bool {
    etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_md5_is_that_of_the_whole() {
        assert_eq!(md5(7, 0), "d41d8cd98f00b204e9800998ecf8427e");
        for size in [1, PERIOD as u64, PERIOD as u64 + 1, 200_000] {
            let whole: String = Md5::digest(whole(7, size)).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(md5(7, size), whole);
            assert!(is_md5(&whole) && !is_md5(&whole[1..]));
        }
    }

    #[test]
    fn an_object_is_itself_in_pieces_and_nobody_else() {
        for size in [0, 1, 1000, PERIOD as u64, PERIOD as u64 + 1, 200_000] {
            let bytes = whole(7, size);
            assert_eq!(bytes.len() as u64, size);
            let (before, after) = bytes.split_at(bytes.len() / 3);
            assert!(is(7, 0, before) && is(7, before.len() as u64, after));
            if size >= 1000 {
                assert!(!is(8, 0, &bytes) && !is(7, 1, &bytes));
                let mut wrong = bytes.to_vec();
                *wrong.last_mut().unwrap() ^= 1;
                assert!(!is(7, 0, &wrong));
            }
        }
    }
}
