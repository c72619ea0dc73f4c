//! The aws-chunked coding, decoded as it flows. Framed bytes enter in any pieces; the data leaves, uncopied, while its hashes
//! grow. Invariants: at most one line or one trailer section is ever kept, never a chunk; [`Decoder::finish`] succeeds only if
//! every chunk signature, the final chunk, the trailer's signature, the checksum and the announced length were all right.
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html> and `sigv4-streaming-trailers.html` there.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use s3s_sigv4::{EMPTY_STRING_SHA256_HASH, calculate_signature_with_key};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ChunkSeal;
use super::authenticator::push_hex;
use super::body_error::BodyError;
use super::checksum::check;
use super::claim::parse_hex32;
use super::refusals::SIGNATURE_DOES_NOT_MATCH;
use crate::checksum::Checksum;
use crate::error::Kind;

/// Longest header line of a chunk, in bytes: 16 digits, `;chunk-signature=`, 64 digits and the line end are 99.
const CHUNK_LINE_BYTES_MAX: usize = 128;

/// Longest trailer section, in bytes: one checksum and one signature are below 300.
const TRAILER_BYTES_MAX: usize = 4096;

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// The checksum announced by `x-amz-trailer`.
pub(super) struct Trailer {
    pub(super) name: HeaderName,
    pub(super) checksum: Checksum,
}

enum State {
    /// In the line that opens a chunk.
    Line,
    /// In a chunk's data; so many bytes are to come.
    Data(u64),
    /// Between the data and the next line.
    DataEnd,
    /// Behind the final chunk, to the end of the body.
    Rest,
}

/// Decodes one body.
pub(super) struct Decoder {
    state: State,
    seal: Option<ChunkSeal>,
    /// Whether the coding ends in a trailer section.
    trailers: bool,
    trailer: Option<Trailer>,
    /// Bytes of data that are still to be announced by chunks.
    unannounced: u64,
    /// The chunk that is open holds more than that: it goes nowhere, and is read to tell this from a broken line.
    surplus: bool,
    /// What is kept until it is whole: a line, or what follows the final chunk.
    kept: Vec<u8>,
    chunk_hash: Sha256,
    chunk_signature: [u8; 32],
}

impl Decoder {
    pub(super) fn new(seal: Option<ChunkSeal>, trailers: bool, trailer: Option<Trailer>, decoded_length: u64) -> Self {
        Self {
            state: State::Line,
            seal,
            trailers,
            trailer,
            unannounced: decoded_length,
            surplus: false,
            kept: Vec::new(),
            chunk_hash: Sha256::new(),
            chunk_signature: [0; 32],
        }
    }

    /// Takes from `input` up to the next piece of data; nothing once `input` is used up.
    pub(super) fn feed(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, BodyError> {
        while !input.is_empty() {
            match self.state {
                State::Line => {
                    if self.keep_line(input, CHUNK_LINE_BYTES_MAX)? {
                        self.open_chunk()?;
                        self.kept.clear();
                    }
                }
                State::Data(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let data = input.split_to(here);
                    if self.seal.is_some() {
                        self.chunk_hash.update(&data);
                    }
                    if let Some(trailer) = &mut self.trailer {
                        trailer.checksum.update(&data);
                    }
                    let left = left - here as u64;
                    self.state = State::Data(left);
                    if left == 0 {
                        let hash = self.chunk_hash.finalize_reset();
                        self.close_chunk(&hash.into())?;
                        self.state = State::DataEnd;
                    }
                    if !self.surplus {
                        return Ok(Some(data));
                    }
                }
                State::DataEnd => {
                    if self.keep_line(input, 2)? {
                        if self.kept != b"\r\n" {
                            return Err(malformed("a chunk is not as long as it says"));
                        }
                        if self.surplus {
                            return Err(other_length("the chunks hold more than x-amz-decoded-content-length says"));
                        }
                        self.kept.clear();
                        self.state = State::Line;
                    }
                }
                State::Rest => {
                    let max = if self.trailers { TRAILER_BYTES_MAX } else { 2 };
                    if self.kept.len() + input.len() > max {
                        return Err(malformed("there are too many bytes behind the final chunk"));
                    }
                    self.kept.extend_from_slice(&std::mem::take(input));
                }
            }
        }
        Ok(None)
    }

    /// Judges the body at its end; gives back the trailer that was verified.
    pub(super) fn finish(&mut self) -> Result<Option<(HeaderName, HeaderValue)>, BodyError> {
        if !matches!(self.state, State::Rest) {
            return Err(malformed("it ended before its final chunk"));
        }
        if !self.trailers {
            // Some clients leave out the last line end.
            return match self.kept.as_slice() {
                b"" | b"\r\n" => Ok(None),
                _ => Err(malformed("there are bytes behind the final chunk")),
            };
        }
        if self.kept != b"\r\n" && !self.kept.ends_with(b"\r\n\r\n") {
            return Err(malformed("it ended before the end of its trailers"));
        }
        let (value, signature) = self.read_trailers()?;
        if let (Some(trailer), None) = (&self.trailer, &value) {
            return Err(bad_trailer(format!("{} was announced and did not come", trailer.name)));
        }
        if let Some(seal) = &self.seal {
            let mut hash = Sha256::new();
            if let (Some(trailer), Some(value)) = (&self.trailer, &value) {
                hash.update(format!("{}:{value}\n", trailer.name));
            }
            let mut rest = String::with_capacity(64);
            push_hex(&mut rest, &hash.finalize().into());
            let given = signature.ok_or_else(|| malformed(format!("{TRAILER_SIGNATURE} is missing")))?;
            if !bool::from(seal.sign("AWS4-HMAC-SHA256-TRAILER", &rest).ct_eq(&given)) {
                return Err(no_match("that of the trailer"));
            }
        }
        let (Some(trailer), Some(value)) = (&self.trailer, value) else { return Ok(None) };
        check(&trailer.checksum, "trailing header", &value)?;
        let value = HeaderValue::try_from(value).expect("base64 is a header value");
        Ok(Some((trailer.name.clone(), value)))
    }

    /// Keeps bytes up to and with the next line feed; whether it came.
    fn keep_line(&mut self, input: &mut Bytes, max: usize) -> Result<bool, BodyError> {
        let room = max - self.kept.len();
        let window = &input[..input.len().min(room)];
        let end = window.iter().position(|b| *b == b'\n');
        let take = end.map_or(window.len(), |at| at + 1);
        self.kept.extend_from_slice(&input.split_to(take));
        match end {
            Some(_) => Ok(true),
            None if self.kept.len() == max => Err(malformed("a chunk does not start or end where it should")),
            None => Ok(false),
        }
    }

    /// Reads the kept line: the size in hex and, where chunks are signed, the signature.
    fn open_chunk(&mut self) -> Result<(), BodyError> {
        let line = self.kept.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok());
        let line = line.ok_or_else(|| malformed("the line of a chunk does not end as it should"))?;
        let (size, signature) = match &self.seal {
            None => (line, None),
            Some(_) => {
                let (size, signature) =
                    line.split_once(";chunk-signature=").ok_or_else(|| malformed("a chunk has no signature"))?;
                let signature = parse_hex32(signature.as_bytes());
                (size, Some(signature.ok_or_else(|| malformed("the signature of a chunk is not 64 hex digits"))?))
            }
        };
        let digits = !size.is_empty() && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| digits);
        let size = size.ok_or_else(|| malformed("the size of a chunk is not a hexadecimal number"))?;
        if let Some(max) = self.seal.as_ref().map(|seal| seal.chunk_bytes_max).filter(|max| size > *max) {
            let message = format!("A signed chunk may have at most {max} bytes, this one has {size}.");
            return Err(BodyError::new(Kind::EntityTooLarge, message));
        }
        match self.unannounced.checked_sub(size) {
            Some(unannounced) => self.unannounced = unannounced,
            None => self.surplus = true,
        }
        self.chunk_signature = signature.unwrap_or_default();
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        if self.unannounced > 0 {
            return Err(other_length("the chunks hold less than x-amz-decoded-content-length says"));
        }
        self.close_chunk(&Sha256::digest(b"").into())?;
        self.state = State::Rest;
        Ok(())
    }

    fn close_chunk(&mut self, hash: &[u8; 32]) -> Result<(), BodyError> {
        let Some(seal) = &mut self.seal else { return Ok(()) };
        let mut rest = String::with_capacity(130);
        rest.push_str(EMPTY_STRING_SHA256_HASH);
        rest.push('\n');
        push_hex(&mut rest, hash);
        let signature = seal.sign("AWS4-HMAC-SHA256-PAYLOAD", &rest);
        if !bool::from(signature.ct_eq(&self.chunk_signature)) {
            return Err(no_match("that of a chunk"));
        }
        seal.previous = signature;
        Ok(())
    }

    /// The value of the announced checksum and the signature, whichever came.
    fn read_trailers(&self) -> Result<(Option<String>, Option<[u8; 32]>), BodyError> {
        let text = std::str::from_utf8(&self.kept).map_err(|_| bad_trailer("they are not text"))?;
        let (mut value, mut signature, mut wrong) = (None, None, None);
        // Empty lines stand at different places with different clients.
        for line in text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).filter(|line| !line.is_empty()) {
            let Some((name, given)) = line.split_once(':') else {
                wrong = Some("a line has no colon".to_owned());
                continue;
            };
            let (name, given) = (name.to_ascii_lowercase(), given.trim_matches([' ', '\t']));
            let slot_was_free = if name == TRAILER_SIGNATURE && self.seal.is_some() {
                let given = parse_hex32(given.as_bytes());
                signature.replace(given.ok_or_else(|| malformed("the signature of the trailer is not 64 hex digits"))?).is_none()
            } else if self.trailer.as_ref().is_some_and(|trailer| trailer.name.as_str() == name) {
                value.replace(given.to_owned()).is_none()
            } else {
                wrong = Some(format!("{name:?} was not announced by x-amz-trailer"));
                continue;
            };
            if !slot_was_free {
                wrong = Some(format!("{name} stands twice"));
            }
        }
        match wrong {
            // A line that is spoilt may be the signature's.
            Some(what) if self.seal.is_some() && signature.is_none() => Err(malformed(what)),
            Some(what) => Err(bad_trailer(what)),
            None => Ok((value, signature)),
        }
    }
}

impl ChunkSeal {
    /// Signs what follows the date, the scope and the signature before this one.
    fn sign(&self, algorithm: &str, rest: &str) -> [u8; 32] {
        let mut to_sign = String::with_capacity(320);
        to_sign.push_str(algorithm);
        to_sign.push('\n');
        to_sign.push_str(&self.scope);
        push_hex(&mut to_sign, &self.previous);
        to_sign.push('\n');
        to_sign.push_str(rest);
        calculate_signature_with_key(&to_sign, &self.key)
    }
}

// The client is told what S3 says, word by word; the log has what it is.

fn malformed(what: impl Into<String>) -> BodyError {
    BodyError::new(Kind::IncompleteBody, "The request body terminated unexpectedly").because(what)
}

fn other_length(what: &str) -> BodyError {
    let message = "You did not provide the number of bytes specified by the Content-Length HTTP header";
    BodyError::new(Kind::IncompleteBody, message).because(what)
}

fn no_match(what: &str) -> BodyError {
    BodyError::new(Kind::SignatureDoesNotMatch, SIGNATURE_DOES_NOT_MATCH).because(what)
}

fn bad_trailer(what: impl Into<String>) -> BodyError {
    let message = "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    BodyError::new(Kind::MalformedTrailerError, message).because(what)
}
