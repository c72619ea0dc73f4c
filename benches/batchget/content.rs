//! What the objects of the simulated origin hold. What enters is an object's number and a place in it; what leaves are the
//! bytes there, the same in every process. Invariant: neither another object nor another place of the same object (short of
//! [`PERIOD`] further on) has the same bytes, so a mix-up cannot pass for right.

use std::sync::LazyLock;

use bytes::Bytes;

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
    let from = ((number * STEP + offset) % PERIOD as u64) as usize;
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

/// The key of object `number` with `size` bytes.
pub fn key(size: u64, number: u64) -> String {
    format!("{size}-{number}")
}

/// Size and number out of a key.
pub fn parse_key(key: &str) -> Option<(u64, u64)> {
    let (size, number) = key.split_once('-')?;
    Some((size.parse().ok()?, number.parse().ok()?))
}

/// The bucket whose objects the origin answers after `delay_ms`.
pub fn bucket(delay_ms: u64) -> String {
    format!("after-{delay_ms}ms")
}

/// The delay that a bucket's name stands for, in milliseconds.
pub fn parse_bucket(bucket: &str) -> Option<u64> {
    bucket.strip_prefix("after-")?.strip_suffix("ms")?.parse().ok()
}
