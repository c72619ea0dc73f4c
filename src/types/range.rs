//! One HTTP byte range, asked for (`Range`) and answered (`Content-Range`), RFC 9110 section 14. Inside the house a range of
//! bytes is half-open and `u64`; the inclusive form of the wire is made and read here alone.

use std::fmt;
use std::ops::Range;

/// A single byte range as a client may ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `bytes=a-b`, both included.
    Between {
        /// First byte.
        first: u64,
        /// Last byte, not before the first.
        last: u64,
    },
    /// `bytes=a-`.
    From {
        /// First byte.
        first: u64,
    },
    /// `bytes=-n`, the last `n` bytes, `n` at least 1.
    Suffix {
        /// Number of bytes.
        length: u64,
    },
}

/// The text is not one range of the form that the contract allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseRangeError;

/// Longest run of digits in a range: the largest count that always fits in `u64`.
const DIGITS_MAX: usize = 19;

fn number(digits: &str) -> Result<u64, ParseRangeError> {
    let plain = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().map_err(|_| ParseRangeError) } else { Err(ParseRangeError) }
}

/// A number of any length; one that is too large stands for the largest, which no object's size comes near.
fn number_or_largest(digits: &str) -> Result<u64, ParseRangeError> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { Ok(digits.parse().unwrap_or(u64::MAX)) } else { Err(ParseRangeError) }
}

impl ByteRange {
    /// Reads `bytes=a-b`, `bytes=a-` or `bytes=-n`, with no spaces, and numbers of at most 19 digits.
    pub fn parse(text: &str) -> Result<Self, ParseRangeError> {
        Self::read(text, number)
    }

    /// Reads the same with numbers of any length, as HTTP has them. On an object a number that is too large means what the largest
    /// means.
    pub fn parse_any(text: &str) -> Result<Self, ParseRangeError> {
        Self::read(text, number_or_largest)
    }

    fn read(text: &str, number: fn(&str) -> Result<u64, ParseRangeError>) -> Result<Self, ParseRangeError> {
        let (first, last) = text.strip_prefix("bytes=").and_then(|r| r.split_once('-')).ok_or(ParseRangeError)?;
        match (first, last) {
            ("", n) => match number(n)? {
                0 => Err(ParseRangeError),
                length => Ok(Self::Suffix { length }),
            },
            (a, "") => Ok(Self::From { first: number(a)? }),
            (a, b) => {
                let (first, last) = (number(a)?, number(b)?);
                if first <= last { Ok(Self::Between { first, last }) } else { Err(ParseRangeError) }
            }
        }
    }

    /// The range that asks for the bytes `span`, which must not be empty.
    pub fn of(span: Range<u64>) -> Self {
        assert!(span.start < span.end, "an empty span cannot be asked for");
        Self::Between { first: span.start, last: span.end - 1 }
    }

    /// The bytes that this range means on an object of `total` bytes; nothing if it cannot be satisfied.
    pub fn resolve(self, total: u64) -> Option<Range<u64>> {
        let span = match self {
            Self::Between { first, last } => first..last.saturating_add(1).min(total),
            Self::From { first } => first..total,
            Self::Suffix { length } => total.saturating_sub(length)..total,
        };
        (span.start < span.end).then_some(span)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { first, last } => write!(f, "bytes={first}-{last}"),
            Self::From { first } => write!(f, "bytes={first}-"),
            Self::Suffix { length } => write!(f, "bytes=-{length}"),
        }
    }
}

/// A satisfied `Content-Range` (`bytes a-b/total`): which bytes an answer holds, of how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes of the answer, half-open.
    pub span: Range<u64>,
    /// Size of the whole object.
    pub total: u64,
}

impl ContentRange {
    /// Reads `bytes a-b/total`; an unknown total (`*`) is refused, since nothing could be checked against it.
    pub fn parse(text: &str) -> Result<Self, ParseRangeError> {
        let (span, total) = text.strip_prefix("bytes ").and_then(|r| r.split_once('/')).ok_or(ParseRangeError)?;
        let (first, last) = span.split_once('-').ok_or(ParseRangeError)?;
        let (first, last, total) = (number(first)?, number(last)?, number(total)?);
        if first <= last && last < total { Ok(Self { span: first..last + 1, total }) } else { Err(ParseRangeError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_the_contract() {
        for text in ["bytes=0-0", "bytes=5-", "bytes=-1", "bytes=0-9999999999999999999"] {
            assert_eq!(ByteRange::parse(text).expect(text).to_string(), text);
        }
        for text in [
            "",
            "bytes=",
            "bytes=-",
            "bytes=-0",
            "bytes=2-1",
            "bytes=0-1,3-4",
            "bytes= 0-1",
            "Bytes=0-1",
            "bytes=0 -1",
            "items=0-1",
            "bytes=+1-2",
            "bytes=00000000000000000001-",
            "bytes=1-2-3",
            "0-1",
        ] {
            assert_eq!(ByteRange::parse(text), Err(ParseRangeError), "{text}");
        }
    }

    #[test]
    fn numbers_of_any_length_mean_what_the_largest_means() {
        let r = |text: &str| ByteRange::parse_any(text).map(|range| range.resolve(10));
        for digits in ["18446744073709551615", "18446744073709551616", &"9".repeat(100)] {
            assert_eq!(r(&format!("bytes=5-{digits}")), Ok(Some(5..10)));
            assert_eq!(r(&format!("bytes={digits}-")), Ok(None));
            assert_eq!(r(&format!("bytes=-{digits}")), Ok(Some(0..10)));
        }
        assert_eq!(r("bytes=00000000000000000000001-2"), Ok(Some(1..3)));
        for text in ["bytes=-", "bytes=-0", "bytes=2-1", "bytes=1-+2", "bytes=1-2,3-4", "items=1-2"] {
            assert_eq!(r(text), Err(ParseRangeError), "{text}");
        }
    }

    #[test]
    fn resolving_clips_to_the_object() {
        let r = |t: &str, total| ByteRange::parse(t).expect(t).resolve(total);
        assert_eq!(r("bytes=2-100", 10), Some(2..10));
        assert_eq!(r("bytes=-100", 10), Some(0..10));
        assert_eq!(r("bytes=-3", 10), Some(7..10));
        assert_eq!(r("bytes=10-", 10), None);
        assert_eq!(r("bytes=0-", 0), None);
        assert_eq!(r("bytes=-1", 0), None);
    }

    #[test]
    fn content_range_must_be_whole_and_consistent() {
        assert_eq!(ContentRange::parse("bytes 2-4/10"), Ok(ContentRange { span: 2..5, total: 10 }));
        for text in ["bytes 2-4/*", "bytes */10", "bytes 4-2/10", "bytes 2-10/10", "bytes=2-4/10", "2-4/10"] {
            assert_eq!(ContentRange::parse(text), Err(ParseRangeError), "{text}");
        }
    }
}
