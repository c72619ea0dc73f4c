//! One function for each target: any octets enter, and where a promise does not hold it panics. No target waits, reads a clock or
//! depends on what it did before, so that an input which fails once fails always.

pub mod batch_body;
pub mod head;
pub mod multipart;
pub mod policy;
pub mod ranges;

/// A function that panics where its promise does not hold.
pub type Target = fn(&[u8]);

/// Names and functions. A name is also that of the folder with the kept inputs, below `corpus`.
pub const ALL: &[(&str, Target)] = &[
    ("batch_body", batch_body::run),
    ("head", head::run),
    ("multipart", multipart::run),
    ("policy", policy::run),
    ("ranges", ranges::run),
];

/// Longest input that is looked at, in octets: the references are slow on purpose.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The lines of an input up to the `count`th, and the rest. Lines that are missing are empty.
fn lines<const COUNT: usize>(data: &[u8]) -> ([&[u8]; COUNT], &[u8]) {
    let mut rest = data;
    let lines = std::array::from_fn(|_| {
        let end = rest.iter().position(|octet| *octet == b'\n');
        let (line, left) = end.map_or((rest, &rest[rest.len()..]), |end| (&rest[..end], &rest[end + 1..]));
        rest = left;
        line
    });
    (lines, rest)
}

/// Headers written as `name: value`, one a line. What cannot be a header is left out.
fn headers(text: &[u8]) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for line in text.split(|octet| *octet == b'\n').take(100) {
        let Some(colon) = line.iter().position(|octet| *octet == b':') else { continue };
        let name = http::HeaderName::from_bytes(&line[..colon]);
        let value = http::HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}
