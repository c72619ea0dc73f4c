//! HTTP/1.1 messages as octets: heads and bodies are read as far as their framing says and kept as they came, so that they can
//! be sent on, or sent on wrongly. Knows no more of HTTP than the gateway and a store need of each other.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest body, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// The head of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The first line.
    pub start: String,
    /// Names and values as they came.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The value of a header, by its name in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Replaces a header, or adds it.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.into()));
    }

    /// Takes a header away.
    pub fn remove(&mut self, name: &str) {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
    }

    /// The word of the first line at `at`.
    pub fn word(&self, at: usize) -> &str {
        self.start.split(' ').nth(at).unwrap_or_default()
    }

    /// As octets, with the empty line.
    pub fn octets(&self) -> Vec<u8> {
        let mut out = self.start.clone();
        for (name, value) in &self.headers {
            out += &format!("\r\n{name}: {value}");
        }
        out += "\r\n\r\n";
        out.chars().map(|c| c as u8).collect()
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }
}

/// Reads a head; nothing where the peer ends before it begins.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            // Octets as characters of the same number, so that nothing is lost.
            let text: String = buffer[..end].iter().map(|b| char::from(*b)).collect();
            buffer.advance(end + 4);
            let mut lines = text.split("\r\n");
            let start = lines.next().unwrap_or_default().to_owned();
            let header = |line: &str| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
            return Ok(Some(Head { start, headers: lines.filter_map(header).collect() }));
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("a head does not end"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return if buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    }
}

/// Reads the body behind `head` without its framing. `bodiless` is for answers that have none whatever their head says.
pub async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    head: &Head,
    bodiless: bool,
) -> io::Result<Vec<u8>> {
    if bodiless {
        return Ok(Vec::new());
    }
    if !head.is_chunked() {
        let length = head.get("content-length").map_or(Ok(0), str::parse::<u64>).map_err(io::Error::other)?;
        return take(stream, buffer, length).await;
    }
    let mut body = Vec::new();
    loop {
        let line = read_line(stream, buffer).await?;
        let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).map_err(io::Error::other)?;
        if size == 0 {
            while !read_line(stream, buffer).await?.is_empty() {}
            return Ok(body);
        }
        body.extend(take(stream, buffer, size).await?);
        take(stream, buffer, 2).await?;
    }
}

async fn read_line(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<String> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n") {
            let line = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.advance(end + 2);
            return Ok(line);
        }
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn take(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut, length: u64) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(io::Error::other("a body is too long"));
    }
    let length = length as usize;
    buffer.reserve(length.saturating_sub(buffer.len()));
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.split_to(length).to_vec())
}

/// `body` as one chunk and, if `whole`, the last one.
pub fn chunked(body: &[u8], whole: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 32);
    if !body.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
    if whole {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_read_as_their_framing_says() {
        let mut input: &[u8] = b"PUT /k HTTP/1.1\r\nA: 1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n";
        let mut buffer = BytesMut::new();
        let head = read_head(&mut input, &mut buffer).await.expect("read").expect("there");
        assert_eq!((head.word(0), head.word(1), head.get("a")), ("PUT", "/k", Some("1")));
        assert_eq!(read_body(&mut input, &mut buffer, &head, false).await.expect("whole"), b"abc");
        let head = read_head(&mut input, &mut buffer).await.expect("read").expect("there");
        assert_eq!(read_body(&mut input, &mut buffer, &head, false).await.expect("whole"), b"xy");
        assert!(read_head(&mut input, &mut buffer).await.expect("ended").is_none());
    }

    #[tokio::test]
    async fn what_is_cut_is_no_message() {
        for cut in
            ["PUT /k HT", "PUT /k HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", "P / H\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"]
        {
            let mut input = cut.as_bytes();
            let mut buffer = BytesMut::new();
            let read = match read_head(&mut input, &mut buffer).await {
                Ok(Some(head)) => read_body(&mut input, &mut buffer, &head, false).await.map(drop),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            assert!(read.is_err(), "{cut}");
        }
    }

    #[test]
    fn heads_and_chunks_are_written_as_they_are_read() {
        let mut head = Head { start: "HTTP/1.1 200 OK".into(), headers: vec![("A".into(), "b".into())] };
        head.set("content-length", "2");
        head.set("Content-Length", "3");
        assert_eq!(head.octets(), b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(chunked(b"ab", true), b"2\r\nab\r\n0\r\n\r\n");
        assert_eq!(chunked(b"", false), b"");
    }
}
