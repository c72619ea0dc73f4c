//! aws-chunked framing taken off. Framed bytes enter in any cut, data leaves piece by piece, and at the end the headers that came
//! behind it. Signatures of chunks are not judged: whoever stands before the store has done so.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html>.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::fault::{Done, Fault};

/// Longest line of the framing, in bytes: a chunk's with its signature has about 100, a trailer's less than 200.
const LINE_BYTES_MAX: usize = 1024;

/// Most headers behind the data.
const TRAILERS_MAX: usize = 16;

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// In the line that opens a chunk.
    Open,
    /// In its data.
    Data,
    /// In the line end behind it.
    Close,
    /// In the headers behind the last chunk.
    Trailers,
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Unframe {
    state: State,
    line: Vec<u8>,
    /// Bytes of data that the chunk still owes.
    owed: u64,
    trailers: HeaderMap,
}

impl Unframe {
    pub fn new() -> Self {
        Self { state: State::Open, line: Vec::new(), owed: 0, trailers: HeaderMap::new() }
    }

    /// Takes in framed bytes and gives their data to `out`.
    ///
    /// # Errors
    /// `IncompleteBody` where the framing is broken.
    pub fn feed(&mut self, mut input: &[u8], out: &mut dyn FnMut(&[u8]) -> Done<()>) -> Done<()> {
        while !input.is_empty() {
            if self.state == State::Data {
                let take = self.owed.min(input.len() as u64) as usize;
                out(&input[..take])?;
                input = &input[take..];
                self.owed -= take as u64;
                if self.owed == 0 {
                    self.state = State::Close;
                }
                continue;
            }
            let end = input.iter().position(|b| *b == b'\n');
            let take = end.map_or(input.len(), |at| at + 1);
            if self.state == State::Done || self.line.len() + take > LINE_BYTES_MAX {
                return Err(broken());
            }
            self.line.extend_from_slice(&input[..take]);
            input = &input[take..];
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                self.line(line.trim_ascii_end())?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Done<()> {
        self.state = match self.state {
            State::Open => {
                let size = line.split(|b| *b == b';').next().unwrap_or_default();
                let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
                self.owed = size.ok_or_else(broken)?;
                if self.owed == 0 { State::Trailers } else { State::Data }
            }
            State::Close if line.is_empty() => State::Open,
            State::Trailers if line.is_empty() => State::Done,
            State::Trailers if self.trailers.len() < TRAILERS_MAX => {
                let colon = line.iter().position(|b| *b == b':').ok_or_else(broken)?;
                let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| broken())?;
                let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| broken())?;
                self.trailers.insert(name, value);
                State::Trailers
            }
            _ => return Err(broken()),
        };
        Ok(())
    }

    /// The headers behind the data, once all of it is here.
    ///
    /// # Errors
    /// `IncompleteBody` if something is missing.
    pub fn finish(self) -> Done<HeaderMap> {
        if self.state == State::Done { Ok(self.trailers) } else { Err(broken()) }
    }
}

fn broken() -> Fault {
    Fault::new("IncompleteBody", "The chunk framing of the body is broken or ends early.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framed: &[u8], cut: usize) -> Done<(Vec<u8>, HeaderMap)> {
        let mut data = Vec::new();
        let mut unframe = Unframe::new();
        for piece in framed.chunks(cut) {
            unframe.feed(piece, &mut |bytes| {
                data.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok((data, unframe.finish()?))
    }

    #[test]
    fn data_and_trailers_come_out_however_it_is_cut() {
        let framed = b"3;chunk-signature=ab\r\na\r\n\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32: AAAAAA==\r\n\r\n";
        for cut in 1..=framed.len() {
            let (data, trailers) = decode(framed, cut).expect("whole");
            assert_eq!((&data[..], &trailers["x-amz-checksum-crc32"]), (&b"a\r\nde"[..], &HeaderValue::from_static("AAAAAA==")));
        }
        assert_eq!(decode(b"0\r\n\r\n", 9).expect("empty").0, b"");
    }

    #[test]
    fn broken_framing_is_refused_wherever_it_ends() {
        let framed = b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for end in 0..framed.len() {
            assert!(decode(&framed[..end], 7).is_err() || end == 0, "{end}");
        }
        for broken in
            [&b"x\r\nabc\r\n"[..], b"3\r\nabcd\r\n0\r\n\r\n", b"0\r\n\r\nmore\r\n", b"0\r\nno header\r\n\r\n", &[b'1'; 2000]]
        {
            assert_eq!(decode(broken, 5).expect_err("broken").code, "IncompleteBody");
        }
    }
}
