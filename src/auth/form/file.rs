//! The file of a form on its way on. In: the bytes from where the file begins to the end of the client's form; out: as many, the
//! file byte for byte, and behind it the end of a form with another boundary. What a client put behind its file, which S3
//! ignores, becomes white space of that length, because a store might not ignore it.
//!
//! Invariant: the end of the form leaves only once all of the client's has come and the file is as long as its policy says. So
//! a form that breaks off, or does not fit, never reaches its end on the way to a store, and leaves no object.

use std::error::Error as StdError;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem;

use super::Begun;
use super::reader::MALFORMED;
use crate::auth::body_error::too_large;
use crate::auth::{BodyError, Verdict};
use crate::error::{Error, Kind, Result};

/// Most bytes behind the file. They are not held, but there is no use in more.
const TAIL_BYTES_MAX: u64 = super::FORM_HEAD_BYTES_MAX as u64;

/// What stands behind a boundary at the end of a form.
const LAST: &[u8] = b"--\r\n";

/// See the module.
#[derive(Debug)]
pub struct FileBody<B> {
    inner: B,
    /// CRLF, two dashes and the client's boundary.
    delimiter: Vec<u8>,
    /// The same with the boundary of the form to send.
    new_delimiter: Vec<u8>,
    allowed: RangeInclusive<u64>,
    /// Came, but may be the beginning of the delimiter.
    held: Bytes,
    /// Length of the file up to here.
    length: u64,
    /// How long it can be at the most: whoever sends it on was told a length that has room for the form's end, and would take
    /// the message for whole if the file alone were as long.
    longest: u64,
    /// Once the file has ended, what came behind its delimiter: how much, and how it begins.
    tail: Option<(u64, Vec<u8>)>,
    /// Bytes that are to leave in all from here.
    owed: u64,
    ended: bool,
    verdict: Verdict,
}

impl<B> FileBody<B>
where
    B: Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Unpin,
{
    /// The file of `begun`, for a form with `new_boundary`; its length must be one of `allowed`. The verdict says, after a
    /// failed request, whether it was the client's form that failed it.
    ///
    /// # Errors
    /// `EntityTooLarge` where the form's length alone shows it.
    pub fn new(begun: Begun<B>, allowed: RangeInclusive<u64>, new_boundary: &str) -> Result<(Self, Verdict)> {
        let Begun { first, rest, bytes, boundary, .. } = begun;
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        let new_delimiter = format!("\r\n--{new_boundary}").into_bytes();
        // Behind the delimiter two bytes stand at the least.
        let longest = bytes.saturating_sub(delimiter.len() as u64 + 2);
        let shortest = longest.saturating_sub(TAIL_BYTES_MAX);
        if shortest > *allowed.end() {
            return Err(too_large(shortest, *allowed.end()).into());
        }
        let owed = (bytes + new_delimiter.len() as u64).saturating_sub(delimiter.len() as u64);
        let verdict = Verdict::default();
        let body = Self {
            inner: rest,
            delimiter,
            new_delimiter,
            allowed,
            held: first,
            length: 0,
            longest,
            tail: None,
            owed,
            ended: false,
            verdict: verdict.clone(),
        };
        Ok((body, verdict))
    }

    /// How many bytes leave in all, from here on.
    pub fn bytes(&self) -> u64 {
        self.owed
    }

    /// Takes what is held, and what comes; gives what of the file may leave.
    fn file(&mut self) -> std::result::Result<Bytes, BodyError> {
        if let Some((bytes, begins)) = &mut self.tail {
            let came = std::mem::take(&mut self.held);
            begins.extend_from_slice(&came[..came.len().min(2 - begins.len().min(2))]);
            *bytes += came.len() as u64;
            let is_end = begins.len() < 2 || begins == b"--" || begins == b"\r\n";
            return if is_end && *bytes <= TAIL_BYTES_MAX { Ok(Bytes::new()) } else { Err(malformed()) };
        }
        // Some readers take a boundary at the very beginning for the end of the part.
        if self.length == 0 && self.held.starts_with(&self.delimiter[2..]) {
            return Err(malformed());
        }
        if let Some(end) = memmem::find(&self.held, &self.delimiter) {
            let file = self.held.split_to(end);
            self.held = self.held.split_off(self.delimiter.len());
            self.grow(&file)?;
            if self.length < *self.allowed.start() {
                return Err(too_small(self.length, &self.allowed));
            }
            self.tail = Some((0, Vec::with_capacity(2)));
            self.file()?;
            return Ok(file);
        }
        // Only what may be the beginning of the delimiter has to wait for the rest of it.
        let begins = |length: &usize| self.held.ends_with(&self.delimiter[..*length]);
        let mut keep = (1..self.delimiter.len()).rev().find(begins).unwrap_or(0);
        if self.length == 0 && self.delimiter[2..].starts_with(&self.held) {
            keep = self.held.len();
        }
        let file = self.held.split_to(self.held.len() - keep);
        self.grow(&file)?;
        Ok(file)
    }

    fn grow(&mut self, file: &Bytes) -> std::result::Result<(), BodyError> {
        self.length += file.len() as u64;
        match self.length {
            length if length > *self.allowed.end() => Err(too_large(length, *self.allowed.end())),
            length if length > self.longest => Err(malformed()),
            _ => Ok(()),
        }
    }

    /// The end of the form to send, once all of the client's is here.
    fn end(&self) -> std::result::Result<Bytes, BodyError> {
        let Some((bytes, _)) = self.tail.as_ref().filter(|(_, begins)| begins.len() == 2) else {
            return Err(malformed());
        };
        let mut end = BytesMut::from(&self.new_delimiter[..]);
        end.extend_from_slice(LAST);
        // White space behind the end, or no end of the last line: as many bytes as were announced.
        end.resize(self.new_delimiter.len() + *bytes as usize, b' ');
        Ok(end.freeze())
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<Bytes, BodyError>> {
        loop {
            if !self.held.is_empty() {
                let file = self.file()?;
                if !file.is_empty() {
                    return Poll::Ready(Ok(file));
                }
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(frame) => {
                    let data = frame.map_err(BodyError::of_source)?.into_data().unwrap_or_default();
                    self.held = match self.held.is_empty() {
                        true => data,
                        false => [&self.held[..], &data[..]].concat().into(),
                    };
                }
                None => {
                    let end = self.end()?;
                    (self.ended, self.owed) = (true, end.len() as u64);
                    self.verdict.pass();
                    return Poll::Ready(Ok(end));
                }
            }
        }
    }
}

fn malformed() -> BodyError {
    BodyError::new(Kind::MalformedPostRequest, MALFORMED).because("its file has no end")
}

fn too_small(length: u64, allowed: &RangeInclusive<u64>) -> BodyError {
    BodyError::new(Kind::EntityTooSmall, "Your proposed upload is smaller than the minimum allowed size")
        .with_detail("ProposedSize", length.to_string())
        .with_detail("MinSizeAllowed", allowed.start().to_string())
}

impl<B> Body for FileBody<B>
where
    B: Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        // A form that failed stays failed: whoever asks again must not take it for ended.
        if let Some(failure) = self.verdict.failure() {
            return Poll::Ready(Some(Err(failure.into())));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.next(cx)) {
            Ok(data) => {
                self.owed = self.owed.saturating_sub(data.len() as u64);
                Ok(Frame::data(data))
            }
            Err(error) => {
                self.verdict.fail(error.clone());
                Err(error.into())
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.owed)
    }
}
