//! Data as it lies in memory: one piece for each part that it came in. Pieces and the list of them are shared by whatever holds
//! the same data (an object, its copies, parts made of it, answers that are still being read), and are paid for once, as long as
//! any of these is there. Nothing is ever copied.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::fault::Done;
use super::memory::Memory;
use crate::backend::{Body, BoxError, empty_body, full_body};
use crate::budget::Reservation;
use crate::checksum::{Algorithm, Checksum};

/// What one more piece takes in a list, beside its data.
const PIECE_BYTES: u64 = size_of::<Bytes>() as u64;

/// Bytes between two points where others may run.
const SUM_BYTES: usize = 1 << 20;

/// See the module. No piece is empty.
#[derive(Debug)]
pub struct Pieces {
    list: Vec<Bytes>,
    length: u64,
    /// Pays for the list and for whatever it is the data of; the pieces pay for themselves.
    _reservation: Option<Reservation>,
}

impl Pieces {
    /// A piece that came by itself; the constant that it has paid is enough for a list of one.
    pub fn of(piece: Bytes) -> Arc<Self> {
        let length = piece.len() as u64;
        Arc::new(Self { list: if piece.is_empty() { Vec::new() } else { vec![piece] }, length, _reservation: None })
    }

    /// Several behind each other.
    pub fn joined(parts: &[Arc<Self>], memory: &Memory) -> Done<Arc<Self>> {
        Self::collected(memory, || parts.iter().flat_map(|part| part.list.iter().cloned()))
    }

    /// Those of `span`, which lies within.
    pub fn slice(&self, span: &Range<u64>, memory: &Memory) -> Done<Arc<Self>> {
        Self::collected(memory, || self.cut(span))
    }

    /// What `pieces` gives, which is counted and paid for before there is a list.
    fn collected<I: Iterator<Item = Bytes>>(memory: &Memory, pieces: impl Fn() -> I) -> Done<Arc<Self>> {
        let count = pieces().count();
        let reservation = memory.take(PIECE_BYTES.saturating_mul(count as u64))?;
        let mut list = Vec::with_capacity(count);
        list.extend(pieces());
        let length = list.iter().map(|piece| piece.len() as u64).sum();
        Ok(Arc::new(Self { list, length, _reservation: Some(reservation) }))
    }

    fn cut(&self, span: &Range<u64>) -> impl Iterator<Item = Bytes> {
        let mut at = 0;
        self.list.iter().filter_map(move |piece| {
            let start = at;
            at += piece.len() as u64;
            let (from, to) = (span.start.max(start), span.end.min(at));
            (from < to).then(|| piece.slice((from - start) as usize..(to - start) as usize))
        })
    }

    /// Bytes in all.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// A checksum of all of it, which lets others run while it is made.
    pub async fn sum(&self, algorithm: Algorithm) -> Checksum {
        let mut sum = Checksum::new(algorithm);
        for chunk in self.list.iter().flat_map(|piece| piece.chunks(SUM_BYTES)) {
            sum.update(chunk);
            if chunk.len() == SUM_BYTES {
                tokio::task::yield_now().await;
            }
        }
        sum
    }

    /// A body of the bytes of `span`, which lies within.
    pub fn body(self: &Arc<Self>, span: &Range<u64>) -> Body {
        match &self.list[..] {
            _ if span.is_empty() => empty_body(),
            [piece] => full_body(piece.slice(span.start as usize..span.end as usize)),
            list => {
                let (mut next, mut skip) = (0, span.start);
                while let Some(rest) = list.get(next).and_then(|piece| skip.checked_sub(piece.len() as u64)) {
                    (next, skip) = (next + 1, rest);
                }
                Body::new(Reader { pieces: Arc::clone(self), next, skip, left: span.end - span.start })
            }
        }
    }
}

/// A body that goes over several pieces.
struct Reader {
    pieces: Arc<Pieces>,
    /// The piece that comes next, and how much of it does not belong.
    next: usize,
    skip: u64,
    left: u64,
}

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(piece) = self.pieces.list.get(self.next).filter(|_| self.left > 0) else { return Poll::Ready(None) };
        let end = (self.skip + self.left).min(piece.len() as u64);
        let piece = piece.slice(self.skip as usize..end as usize);
        self.left -= piece.len() as u64;
        (self.next, self.skip) = (self.next + 1, 0);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::super::memory::{ITEM_BYTES, paid};
    use super::*;

    #[tokio::test]
    async fn what_is_cut_or_sent_crosses_pieces_and_copies_nothing() {
        let memory = Memory::new(1 << 20, None);
        let piece = |data: &[u8]| Pieces::of(paid(data.to_vec(), memory.take(data.len() as u64).expect("fits")));
        let parts = [piece(b"abc"), piece(b""), piece(b"defgh")];
        let all = Pieces::joined(&parts, &memory).expect("fits");
        assert_eq!((all.length(), all.list.len()), (8, 2));
        for (start, end) in [(0, 8), (0, 3), (3, 8), (2, 4), (7, 8), (4, 4), (8, 8), (0, 0)] {
            let expected = &b"abcdefgh"[start as usize..end as usize];
            let cut = all.slice(&(start..end), &memory).expect("fits");
            assert_eq!((cut.list.concat(), cut.length()), (expected.to_vec(), end - start), "{start}..{end}");
            let body = all.body(&(start..end));
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some(end - start));
            assert_eq!(body.collect().await.expect("whole").to_bytes(), expected, "{start}..{end}");
        }
        assert_eq!(all.list[1].as_ptr(), parts[2].list[0].as_ptr());
        let (before, sliced) = (memory.used(), all.slice(&(2..5), &memory).expect("fits"));
        assert_eq!(memory.used() - before, ITEM_BYTES + 2 * PIECE_BYTES, "a list pays for itself");
        drop((all, parts));
        assert!(memory.used() >= 8, "and keeps the bytes paid for");
        drop(sliced);
        assert_eq!(memory.used(), 0);
    }
}
