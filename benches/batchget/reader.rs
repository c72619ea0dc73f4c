//! A strict reader of `multipart/mixed` as the contract narrows it. What enters are octets in pieces of any size; what leaves
//! are the parts, through a [`Sink`]. It never looks for the boundary: it reads a header block, exactly `content-length`
//! octets, CRLF, and the next delimiter. Invariant: whatever else comes, or is missing at the end, is an error.

use crate::{Fallible, fail};

/// Longest line of a header block, in bytes.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Whoever takes the parts.
pub trait Sink {
    /// A part begins.
    fn part(&mut self, head: &PartHead) -> Fallible<()>;
    /// The next octets of its body.
    fn bytes(&mut self, bytes: &[u8]) -> Fallible<()>;
    /// Its body was whole.
    fn end(&mut self) -> Fallible<()>;
}

/// What every part must say.
#[derive(Debug, Default)]
pub struct PartHead {
    /// Index of the entry.
    pub index: u64,
    /// `batch-status`
    pub status: u16,
    /// `content-length`
    pub length: u64,
}

/// Reads one answer.
pub struct Reader {
    boundary: String,
    line: Vec<u8>,
    state: State,
    id: Option<u64>,
    status: Option<u16>,
    length: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    First,
    Header,
    Body { left: u64 },
    AfterBody,
    Delimiter,
    Closed,
}

impl Reader {
    /// A reader for the answer whose `Content-Type` is this.
    pub fn new(content_type: &str) -> Fallible<Self> {
        let boundary = content_type.strip_prefix("multipart/mixed; boundary=").unwrap_or_default();
        if boundary.len() != 32 || !boundary.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return fail(format!("`{content_type}` has no boundary of 32 hex digits"));
        }
        Ok(Self { boundary: boundary.to_owned(), line: Vec::new(), state: State::First, id: None, status: None, length: None })
    }

    /// Takes in the next octets.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Fallible<()> {
        while !bytes.is_empty() {
            if let State::Body { left } = &mut self.state {
                let (now, rest) = bytes.split_at(bytes.len().min(usize::try_from(*left)?));
                sink.bytes(now)?;
                *left -= now.len() as u64;
                bytes = rest;
                self.end_body(sink)?;
                continue;
            }
            let Some(end) = bytes.iter().position(|b| *b == b'\n') else {
                self.line.extend_from_slice(bytes);
                return if self.line.len() > LINE_BYTES_MAX { fail("a line does not end") } else { Ok(()) };
            };
            let (now, rest) = bytes.split_at(end + 1);
            self.line.extend_from_slice(now);
            bytes = rest;
            let line = std::mem::take(&mut self.line);
            let Some(text) = line.strip_suffix(b"\r\n") else { return fail("a line does not end in CRLF") };
            self.line(std::str::from_utf8(text)?, sink)?;
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    /// No more octets will come.
    pub fn finish(self) -> Fallible<()> {
        if self.state == State::Closed {
            Ok(())
        } else {
            fail(format!("the answer ends without its closing delimiter, in {:?}", self.state))
        }
    }

    fn line(&mut self, line: &str, sink: &mut impl Sink) -> Fallible<()> {
        match self.state {
            State::First | State::Delimiter => match line.strip_prefix("--").and_then(|l| l.strip_prefix(&self.boundary)) {
                Some("") => self.state = State::Header,
                Some("--") if self.state == State::Delimiter => self.state = State::Closed,
                _ => return fail(format!("`{line}` is no delimiter")),
            },
            State::Header if line.is_empty() => {
                let (Some(index), Some(status), Some(length)) = (self.id.take(), self.status.take(), self.length.take()) else {
                    return fail("a part lacks content-id, batch-status or content-length");
                };
                sink.part(&PartHead { index, status, length })?;
                self.state = State::Body { left: length };
                self.end_body(sink)?;
            }
            State::Header => self.header(line)?,
            State::AfterBody if line.is_empty() => self.state = State::Delimiter,
            State::AfterBody => return fail("a body is longer than its content-length"),
            State::Closed | State::Body { .. } => return fail("there is something behind the closing delimiter"),
        }
        Ok(())
    }

    fn header(&mut self, line: &str) -> Fallible<()> {
        let Some((name, value)) = line.split_once(": ") else { return fail(format!("`{line}` is no header")) };
        if name.is_empty() || name.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii_graphic()) {
            return fail(format!("`{name}` is no header name in lower case"));
        }
        let before = match name {
            "content-id" => {
                let index = value.strip_prefix('<').and_then(|v| v.strip_suffix('>')).and_then(|v| v.split_once('@'));
                self.id.replace(index.ok_or("content-id is not <index@request>")?.0.parse()?)
            }
            "batch-status" => self.status.replace(value.parse()?).map(u64::from),
            "content-length" => self.length.replace(value.parse()?),
            _ => None,
        };
        if before.is_some() { fail(format!("{name} comes twice")) } else { Ok(()) }
    }

    fn end_body(&mut self, sink: &mut impl Sink) -> Fallible<()> {
        if self.state == (State::Body { left: 0 }) {
            self.state = State::AfterBody;
            sink.end()?;
        }
        Ok(())
    }
}

/// Shows that the reader takes what is right and refuses what is not; without this, that it complains about nothing would
/// mean nothing.
pub fn prove() -> Fallible<()> {
    const BOUNDARY: &str = "0123456789abcdef0123456789abcdef";
    let whole = format!(
        "--{BOUNDARY}\r\ncontent-length: 2\r\ncontent-id: <0@r>\r\nbatch-status: 200\r\netag: \"e\"\r\n\r\nhi\r\n\
         --{BOUNDARY}\r\ncontent-length: 0\r\ncontent-id: <1@r>\r\nbatch-status: 200\r\n\r\n\r\n--{BOUNDARY}--\r\n"
    );
    let read = |text: &str, piece: usize| -> Fallible<String> {
        let mut reader = Reader::new(&format!("multipart/mixed; boundary={BOUNDARY}"))?;
        let mut told = Told(String::new());
        text.as_bytes().chunks(piece).try_for_each(|piece| reader.feed(piece, &mut told))?;
        reader.finish()?;
        Ok(told.0)
    };
    for piece in [1, 2, 7, whole.len()] {
        if read(&whole, piece)? != "0:200:2 hi; 1:200:0 ; " {
            return fail("the reader misreads a right answer");
        }
    }
    let wrong = [
        whole[..whole.len() - 2].to_owned(),
        whole.replace("hi", "h"),
        whole.replace("hi", "hi!"),
        whole.replace("--\r\n", "\r\n"),
        whole.replacen("\r\n", "\n", 1),
        whole.replace("content-id: <1@r>\r\n", ""),
        whole.replace("etag", "ETag"),
        whole.replace("etag: \"e\"", "content-length: 2"),
        format!("\r\n{whole}"),
        format!("{whole}\r\n"),
    ];
    match wrong.iter().find(|text| read(text, 5).is_ok()) {
        Some(text) => fail(format!("the reader takes a wrong answer: {text:?}")),
        None => Ok(()),
    }
}

struct Told(String);

impl Sink for Told {
    fn part(&mut self, head: &PartHead) -> Fallible<()> {
        self.0 += &format!("{}:{}:{} ", head.index, head.status, head.length);
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Fallible<()> {
        self.0 += std::str::from_utf8(bytes)?;
        Ok(())
    }

    fn end(&mut self) -> Fallible<()> {
        self.0 += "; ";
        Ok(())
    }
}
