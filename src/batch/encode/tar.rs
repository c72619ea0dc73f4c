//! Parts as members of a tar archive (POSIX pax interchange format): a ustar header before each body, zeros up to the next
//! block behind it, and an extended header only where a name or a size does not fit the fields of ustar. Everything but name,
//! size and time is the same for all members. Pure: writes into a buffer that it is given. Invariants: the archive's blocks are
//! whole once [`Tar::close`] has written; two zero blocks are written there alone.
//!
//! The time of a member is its object's `Last-Modified`; where that is missing or before 1970 it is 0, so that the same
//! objects give the same octets. For the same reason the summary's is 0.

use bytes::{BufMut, BytesMut};
use http::{HeaderValue, StatusCode};
use tar::{EntryType, Header};
use time::{Date, Month, PrimitiveDateTime, Time};

use super::member::{Member, Naming, SUMMARY};
use super::{Encode, Format, PartHeaders, PartName};
use crate::batch::outcome::{FailedEntry, Totals};

/// What everything in an archive is a multiple of.
const BLOCK_BYTES: u64 = 512;

/// The largest number that ustar's fields of 12 octets hold: 11 octal digits. One byte less than 8 GiB, or the year 2242.
const FIELD_MAX: u64 = (1 << 33) - 1;

/// Longest name field.
const NAME_BYTES_MAX: usize = 100;

/// Longest prefix field, which readers put before the name with a slash.
const PREFIX_BYTES_MAX: usize = 155;

const MODE: u32 = 0o644;

/// The encoder of one answer.
#[derive(Clone, Debug)]
pub struct Tar {
    naming: Naming,
    /// Zeros that are owed behind the last body.
    padding: usize,
}

impl Tar {
    /// An encoder whose members are named like this.
    pub fn new(naming: Naming) -> Self {
        Self { naming, padding: 0 }
    }

    /// Writes what stands before a member's body, and takes note of what is owed behind it.
    pub fn member(&mut self, out: &mut BytesMut, name: &str, mtime: u64, size: u64) {
        out.put_bytes(0, self.padding);
        let mut records = Vec::new();
        let stand_in;
        let fields = match Fields::of(name) {
            Some(fields) => fields,
            None => {
                record(&mut records, "path", name);
                stand_in = ascii_of(name);
                Fields { prefix: b"", name: stand_in.as_bytes() }
            }
        };
        if size > FIELD_MAX {
            record(&mut records, "size", itoa::Buffer::new().format(size));
        }
        if !records.is_empty() {
            // Its name is for readers that know no extended headers and unpack it as a file.
            let fields = Fields { prefix: b"", name: b"PaxHeaders/next" };
            header(out, &fields, EntryType::XHeader, 0, records.len() as u64);
            out.put_slice(&records);
            out.put_bytes(0, padding(records.len() as u64));
        }
        header(out, &fields, EntryType::Regular, mtime, if size > FIELD_MAX { 0 } else { size });
        self.padding = padding(size);
    }
}

impl Encode for Tar {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(Format::Tar.media_type())
    }

    fn begin(&mut self, out: &mut BytesMut, name: PartName<'_>, _: StatusCode, headers: &PartHeaders, length: u64) {
        let mtime = headers.get("last-modified").and_then(unix_seconds).unwrap_or(0);
        self.member(out, &Member::of(name, self.naming).text(), mtime, length);
    }

    fn failed(&mut self, _: &mut BytesMut, _: PartName<'_>, _: &FailedEntry) -> Option<u64> {
        None
    }

    fn summary(&mut self, out: &mut BytesMut, totals: &Totals) {
        let body = totals.to_json();
        self.member(out, SUMMARY, 0, body.len() as u64);
        out.put_slice(&body);
    }

    fn close(&mut self, out: &mut BytesMut) {
        out.put_bytes(0, std::mem::take(&mut self.padding) + 2 * BLOCK_BYTES as usize);
    }
}

/// Zeros between the end of `size` octets and the next block.
fn padding(size: u64) -> usize {
    (size.wrapping_neg() % BLOCK_BYTES) as usize
}

/// A name as ustar has it.
struct Fields<'a> {
    prefix: &'a [u8],
    name: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The name in ustar's fields, if it fits. Names that are not ASCII do not: what charset the fields are in nobody says.
    fn of(name: &'a str) -> Option<Self> {
        let bytes = name.as_bytes();
        if !name.is_ascii() {
            return None;
        }
        if bytes.len() <= NAME_BYTES_MAX {
            return Some(Self { prefix: b"", name: bytes });
        }
        // The slash at which the two are cut stands in neither.
        let first = bytes.len().checked_sub(NAME_BYTES_MAX + 1)?;
        let last = PREFIX_BYTES_MAX.min(bytes.len() - 2);
        let cut = (first.max(1)..=last).find(|at| bytes[*at] == b'/')?;
        Some(Self { prefix: &bytes[..cut], name: &bytes[cut + 1..] })
    }
}

/// What readers that know no extended headers see of a name that ustar cannot hold.
fn ascii_of(name: &str) -> String {
    let ascii = name.chars().map(|c| if c.is_ascii() { c } else { '_' });
    let cut: String = ascii.take(NAME_BYTES_MAX).collect();
    cut.trim_end_matches('/').to_owned()
}

fn header(out: &mut BytesMut, fields: &Fields<'_>, kind: EntryType, mtime: u64, size: u64) {
    let mut header = Header::new_ustar();
    let ustar = header.as_ustar_mut().expect("it was made as one");
    ustar.prefix[..fields.prefix.len()].copy_from_slice(fields.prefix);
    ustar.name[..fields.name.len()].copy_from_slice(fields.name);
    ustar.set_device_major(0);
    ustar.set_device_minor(0);
    header.set_entry_type(kind);
    header.set_mode(MODE);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(mtime.min(FIELD_MAX));
    header.set_size(size);
    header.set_cksum();
    out.put_slice(header.as_bytes());
}

/// Appends one record of an extended header, `LENGTH key=value\n`, whose length counts its own digits.
fn record(out: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let digits = |length: usize| length.to_string().len();
    let mut length = rest + digits(rest);
    length = rest + digits(length);
    out.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
}

/// Seconds since 1970 of an HTTP date as senders must write it (RFC 9110 section 5.6.7, IMF-fixdate); nothing if it is another
/// text or before 1970.
pub fn unix_seconds(date: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(date).ok()?.strip_suffix(" GMT")?;
    let (_, text) = text.split_once(", ")?;
    let mut words = text.split(' ');
    let mut word = || words.next();
    let (day, month, year, clock) = (word()?.parse().ok()?, month(word()?)?, word()?.parse().ok()?, word()?);
    let mut numbers = clock.split(':').map(|number| number.parse::<u8>().ok());
    let mut number = || numbers.next().flatten();
    // A leap second is counted as the one before it.
    let time = Time::from_hms(number()?, number()?, number()?.min(59)).ok()?;
    let date = Date::from_calendar_date(year, month, day).ok()?;
    u64::try_from(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp()).ok()
}

fn month(name: &str) -> Option<Month> {
    const NAMES: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = NAMES.iter().position(|other| *other == name)?;
    Month::try_from(at as u8 + 1).ok()
}

#[cfg(test)]
#[path = "tar_tests.rs"]
mod tests;
