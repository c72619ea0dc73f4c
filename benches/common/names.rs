//! Names that tell the simulated origin what to answer. What enters is a size, a number or a delay; what leaves is a key or a
//! bucket, and the other way round.

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
