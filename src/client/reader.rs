//! A strict reader of `multipart/mixed` as the contract narrows it. What enters are octets in pieces of any size; what leaves
//! are [`Event`]s. It never looks for the boundary: it reads a header block, exactly `content-length` octets, CRLF, and the
//! next delimiter; bodies are slices of what came in, never copied. Invariant: whatever else comes, or is missing at the end,
//! is an error, and so is an answer with another number of parts than it owes.

use bytes::{Buf, Bytes, BytesMut};

use super::count::Seen;
pub use super::count::{Owed, Summary};
use super::error::printable;

/// Longest header block, in bytes: what the gateway takes from a store, and room for what it adds.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest summary, in bytes.
const SUMMARY_BYTES_MAX: u64 = 64 * 1024;

/// Hex digits of a boundary.
const BOUNDARY_BYTES: usize = 32;

/// What an answer is made of, in order.
#[derive(Debug)]
pub enum Event {
    /// A part begins.
    Part(PartHead),
    /// The next octets of its body.
    Data(Bytes),
    /// Its body was whole: the part is final, whatever comes after.
    End,
    /// The summary; nothing comes behind it.
    Summary(Summary),
}

/// The head of a part.
#[derive(Debug)]
pub struct PartHead {
    /// Index of the entry in the request.
    pub index: u32,
    /// Status of the entry.
    pub status: u16,
    /// Octets of the body.
    pub length: u64,
    block: Bytes,
}

impl PartHead {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        lines(&self.block).find_map(|(n, value)| n.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
    }

    /// Whether the entry failed.
    pub fn is_failed(&self) -> bool {
        self.status >= 400
    }
}

/// Why octets are not an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

pub(super) fn wrong<T>(what: impl AsRef<str>) -> Result<T, Wrong> {
    // It may hold octets of the answer.
    Err(Wrong(printable(what.as_ref())))
}

/// Reads one answer: [`Reader::feed`] takes octets, [`Reader::next`] gives what they hold, [`Reader::finish`] ends it.
#[derive(Debug)]
pub struct Reader {
    boundary: [u8; BOUNDARY_BYTES],
    owed: Owed,
    /// What came and was not read yet.
    input: Bytes,
    /// The beginning of a line or a block whose end has not come yet.
    partial: BytesMut,
    state: State,
    seen: Seen,
    summary: Option<(u64, BytesMut)>,
    told: Option<Summary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    First,
    Head,
    Body { left: u64 },
    AfterBody,
    Delimiter,
    Closed,
}

impl Reader {
    /// A reader for an answer of this `Content-Type`.
    ///
    /// # Errors
    /// If the type names no boundary as the contract wants it.
    pub fn new(content_type: &str, owed: Owed) -> Result<Self, Wrong> {
        let boundary = content_type.strip_prefix("multipart/mixed; boundary=").map(str::as_bytes);
        let boundary = boundary.and_then(|b| <[u8; BOUNDARY_BYTES]>::try_from(b).ok());
        match boundary.filter(|b| b.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))) {
            None => wrong(format!("its type `{content_type}` names no boundary of {BOUNDARY_BYTES} hex digits")),
            Some(boundary) => Ok(Self {
                boundary,
                owed,
                input: Bytes::new(),
                partial: BytesMut::new(),
                state: State::First,
                seen: Seen::new(owed.entries),
                summary: None,
                told: None,
            }),
        }
    }

    /// Takes in the next octets. Everything that came before must have been read: [`Reader::next`] gave `None`.
    pub fn feed(&mut self, octets: Bytes) {
        assert!(self.input.is_empty(), "what came before was read");
        self.input = octets;
    }

    /// The next event, or `None` where more octets are needed.
    ///
    /// # Errors
    /// If the octets are not what the contract says. The reader is of no use afterwards.
    #[expect(clippy::should_implement_trait, reason = "it fails, and it goes on after `None`")]
    pub fn next(&mut self) -> Result<Option<Event>, Wrong> {
        loop {
            match self.state {
                State::Body { left: 0 } => {
                    self.state = State::AfterBody;
                    match self.end_of_summary()? {
                        Some(summary) => return Ok(Some(Event::Summary(summary))),
                        None => return Ok(Some(Event::End)),
                    }
                }
                State::Body { left } => {
                    if self.input.is_empty() {
                        return Ok(None);
                    }
                    let now = usize::try_from(left).map_or(self.input.len(), |left| left.min(self.input.len()));
                    self.state = State::Body { left: left - now as u64 };
                    let octets = self.input.split_to(now);
                    match &mut self.summary {
                        Some((_, text)) => text.extend_from_slice(&octets),
                        None => return Ok(Some(Event::Data(octets))),
                    }
                }
                State::Head => match self.take_until(b"\r\n\r\n")? {
                    None => return Ok(None),
                    Some(block) => {
                        if let Some(head) = self.head(block)? {
                            return Ok(Some(Event::Part(head)));
                        }
                    }
                },
                State::Closed if self.input.is_empty() => return Ok(None),
                State::Closed => return wrong("there is something behind the closing delimiter"),
                State::First | State::AfterBody | State::Delimiter => match self.take_until(b"\r\n")? {
                    None => return Ok(None),
                    Some(line) => self.line(&line)?,
                },
            }
        }
    }

    /// No more octets will come.
    ///
    /// # Errors
    /// [`Unfinished`] where the answer was cut, [`Wrong`] where it ended and lacks parts.
    pub fn finish(&self) -> Result<(), Unfinished> {
        if self.state != State::Closed {
            return Err(Unfinished::Cut);
        }
        let entries = u64::from(self.owed.entries);
        let what = match &self.told {
            None if self.owed.summary => "it has no summary".to_owned(),
            None if self.seen.count != entries => format!("it has {} parts for {entries} entries", self.seen.count),
            Some(told) if !self.seen.agrees(told, self.owed) => {
                format!("its summary, {told:?}, does not agree with its {} parts for {entries} entries", self.seen.count)
            }
            _ => return Ok(()),
        };
        Err(Unfinished::Wrong(Wrong(what)))
    }

    /// What comes up to and with `end`, without it.
    fn take_until(&mut self, end: &[u8]) -> Result<Option<Bytes>, Wrong> {
        if self.partial.is_empty()
            && let Some(at) = find(&self.input, end)
        {
            let taken = self.input.split_to(at);
            self.input.advance(end.len());
            return Ok(Some(taken));
        }
        // The end may lie across two pieces: what is kept is looked through again from a little before where it ended.
        let from = self.partial.len().saturating_sub(end.len() - 1);
        let room = HEAD_BYTES_MAX - self.partial.len();
        let before = self.partial.len();
        self.partial.extend_from_slice(&self.input[..self.input.len().min(room)]);
        match find(&self.partial[from..], end) {
            Some(at) => {
                let at = from + at;
                self.input.advance(at + end.len() - before);
                let taken = std::mem::take(&mut self.partial).freeze();
                Ok(Some(taken.slice(..at)))
            }
            None if self.partial.len() == HEAD_BYTES_MAX => wrong("a line or a header block does not end"),
            None => {
                self.input.clear();
                Ok(None)
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Wrong> {
        if self.state == State::AfterBody {
            self.state = State::Delimiter;
            return if line.is_empty() { Ok(()) } else { wrong("a body is longer than its content-length") };
        }
        match line.strip_prefix(b"--").and_then(|line| line.strip_prefix(&self.boundary)) {
            Some(b"--") if self.state == State::Delimiter => self.state = State::Closed,
            Some(b"") if self.told.is_some() => return wrong("there is a part behind the summary"),
            Some(b"") => self.state = State::Head,
            _ => return wrong(format!("`{}` is no delimiter", String::from_utf8_lossy(&line[..line.len().min(80)]))),
        }
        Ok(())
    }

    /// Reads a header block; gives nothing where it is the summary's.
    fn head(&mut self, block: Bytes) -> Result<Option<PartHead>, Wrong> {
        let (mut id, mut status, mut length) = (None, None, None);
        for (name, value) in lines(&block) {
            let slot = match name.len() {
                10 if name.eq_ignore_ascii_case(b"content-id") => &mut id,
                12 if name.eq_ignore_ascii_case(b"batch-status") => &mut status,
                14 if name.eq_ignore_ascii_case(b"content-length") => &mut length,
                _ if name.is_empty() => return wrong("a line of a header block is no header"),
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return wrong(format!("a part has {} twice", String::from_utf8_lossy(name)));
            }
        }
        let (Some(id), Some(status), Some(length)) = (id, status, length) else {
            return wrong("a part lacks content-id, batch-status or content-length");
        };
        let (Some(length), Some(status)) = (number(length), number(status).filter(|status| (100..600).contains(status))) else {
            return wrong("a part's content-length or batch-status is no number");
        };
        self.state = State::Body { left: length };
        let id = id.strip_prefix(b"<").and_then(|id| id.strip_suffix(b">")).unwrap_or_default();
        let name = &id[..find(id, b"@").unwrap_or_default()];
        if name == b"summary" {
            if length > SUMMARY_BYTES_MAX {
                return wrong("the summary is too long");
            }
            self.summary = Some((length, BytesMut::new()));
            return Ok(None);
        }
        let Some(index) = number(name).and_then(|index| u32::try_from(index).ok()) else {
            return wrong("a part's content-id is not <index@request>");
        };
        self.seen.take(index, status >= 400, length, self.owed.in_order)?;
        Ok(Some(PartHead { index, status: status as u16, length, block }))
    }

    fn end_of_summary(&mut self) -> Result<Option<Summary>, Wrong> {
        let Some((_, text)) = self.summary.take() else { return Ok(None) };
        match serde_json::from_slice::<Summary>(&text) {
            Ok(summary) => {
                self.told = Some(summary.clone());
                Ok(Some(summary))
            }
            Err(error) => wrong(format!("the summary is not what it must be: {error}")),
        }
    }
}

/// Why an answer is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It ended before its closing delimiter.
    Cut,
    /// It ended, and lacks what it owes.
    Wrong(Wrong),
}

/// Names and values of a header block; a line that is no header has an empty name.
fn lines(block: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = Some(block);
    std::iter::from_fn(move || {
        let block = rest.take()?;
        let line = match find(block, b"\r\n") {
            Some(end) => {
                rest = Some(&block[end + 2..]);
                &block[..end]
            }
            None => block,
        };
        let colon = memchr::memchr(b':', line).filter(|colon| line.get(colon + 1) == Some(&b' '));
        let colon = colon.filter(|_| memchr::memchr2(b'\r', b'\n', line).is_none());
        Some(match colon {
            Some(colon) => (&line[..colon], line[colon + 2..].trim_ascii()),
            None => (&line[..0], line),
        })
    })
}

fn find(octets: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(octets, what)
}

/// Decimal digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
