//! A body that must be held whole. The stream enters, its bytes leave in one piece. Invariant: at any time no more is held than
//! was paid for, and no more is asked to be paid for than has come, but for one [`PIECE_BYTES`]: what a client only announced,
//! and does not send, keeps nobody else out.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::timeout;

use super::VerifiedBody;
use crate::error::{Error, Kind, Result};

/// How long a body that must be held whole may take: the bytes that it is held in are a budget that others wait for. 16 MiB,
/// the longest, come in that time at 280 KiB a second, the entries of a usual batch at a tenth of that.
pub const HELD_TIMEOUT: Duration = Duration::from_secs(60);

/// What is paid for at a time. Small, because a thousand clients may have begun such a body and not go on.
const PIECE_BYTES: usize = 16 * 1024;

/// Whoever pays for the memory of a body.
pub trait Payer {
    /// Pays for `bytes` in all, or refuses; it may wait until others have made room, but not for long.
    fn pay(&mut self, bytes: u64) -> impl Future<Output = Result<()>> + Send;
}

impl<B> VerifiedBody<B>
where
    B: Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>>,
{
    /// Reads all of it, in [`HELD_TIMEOUT`] at the most. Where it came in more than one piece, `payer` pays twice for a moment,
    /// while they are joined; to shrink what was paid to what is left is the caller's part.
    ///
    /// # Errors
    /// As the stream's and the payer's, `too_long` once there are more than `bytes_max` bytes, `RequestTimeout` when the time is
    /// over.
    pub async fn collect(self, bytes_max: usize, too_long: impl FnOnce() -> Error, payer: &mut impl Payer) -> Result<Bytes> {
        let late = || {
            let seconds = HELD_TIMEOUT.as_secs();
            Error::new(Kind::RequestTimeout, format!("the body, which must be held whole, did not come within {seconds} seconds"))
        };
        timeout(HELD_TIMEOUT, self.collect_all(bytes_max, too_long, payer)).await.map_err(|_| late())?
    }

    async fn collect_all(self, bytes_max: usize, too_long: impl FnOnce() -> Error, payer: &mut impl Payer) -> Result<Bytes> {
        // Most bodies are announced and fit into one piece, which is then no larger than they are.
        let first = self.decoded_length().map_or(PIECE_BYTES, |length| PIECE_BYTES.min(length as usize).max(1));
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let (mut paid, mut length) = (0, 0);
        let mut body = pin!(self);
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let data = frame?.into_data().unwrap_or_default();
            length += data.len();
            if length > bytes_max {
                return Err(too_long());
            }
            let mut rest = &data[..];
            while !rest.is_empty() {
                match pieces.last_mut().filter(|piece| piece.len() < piece.capacity()) {
                    Some(piece) => {
                        let (now, later) = rest.split_at(rest.len().min(piece.capacity() - piece.len()));
                        piece.extend_from_slice(now);
                        rest = later;
                    }
                    None => {
                        let more = if pieces.is_empty() { first } else { PIECE_BYTES };
                        payer.pay((paid + more) as u64).await?;
                        paid += more;
                        pieces.push(Vec::with_capacity(more));
                    }
                }
            }
        }
        if pieces.len() <= 1 {
            return Ok(pieces.pop().unwrap_or_default().into());
        }
        payer.pay((paid + length) as u64).await?;
        Ok(pieces.concat().into())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use http::HeaderMap;
    use http_body::Frame;
    use http_body_util::{BodyExt, Full};
    use proptest::prelude::*;
    use tokio::time::{Instant, Sleep, sleep};

    use super::*;
    use crate::auth::Payload;
    use crate::backend::BoxError;

    /// Pays up to a maximum, and notes what it paid last.
    pub struct Purse {
        pub max: u64,
        pub paid: u64,
    }

    impl Default for Purse {
        fn default() -> Self {
            Self { max: u64::MAX, paid: 0 }
        }
    }

    impl Payer for Purse {
        async fn pay(&mut self, bytes: u64) -> Result<()> {
            if bytes > self.max {
                return Err(Error::new(Kind::SlowDown, "no more"));
            }
            self.paid = bytes;
            Ok(())
        }
    }

    /// A body that sends so many bytes each 20 seconds, and would go on for ever.
    struct Endless(Pin<Box<Sleep>>, usize);

    impl Body for Endless {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
            ready!(self.0.as_mut().poll(cx));
            self.0 = Box::pin(sleep(Duration::from_secs(20)));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; self.1])))))
        }
    }

    fn endless(bytes: usize) -> VerifiedBody<Endless> {
        let endless = Endless(Box::pin(sleep(Duration::ZERO)), bytes);
        VerifiedBody::new(Payload::Unsigned, &HeaderMap::new(), endless).expect("nothing to verify yet").0
    }

    #[tokio::test(start_paused = true)]
    async fn it_has_a_bound_in_time_and_is_paid_for_as_it_comes() {
        let mut purse = Purse { max: 1 << 30, paid: 0 };
        let started = Instant::now();
        let error = endless(1000).collect(1 << 20, || unreachable!("it is short"), &mut purse).await.expect_err("it never ends");
        assert_eq!((error.kind, started.elapsed()), (Kind::RequestTimeout, HELD_TIMEOUT));
        assert_eq!(purse.paid, PIECE_BYTES as u64, "3,000 bytes came");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_pays_for_is_not_held() {
        let mut purse = Purse { max: 40_000, paid: 0 };
        let error = endless(30_000).collect(1 << 20, || unreachable!("it is short"), &mut purse).await.expect_err("too dear");
        assert_eq!((error.kind, purse.paid), (Kind::SlowDown, 2 * PIECE_BYTES as u64));
        let error = endless(1000).collect(1500, too_long, &mut purse).await.expect_err("too long");
        assert_eq!(error.kind, Kind::EntityTooLarge);
    }

    fn too_long() -> Error {
        Error::new(Kind::EntityTooLarge, "too long")
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn prop_the_bytes_are_those_that_came_and_are_paid_for(length in prop_oneof![0..100usize, 0..5 * PIECE_BYTES]) {
            let data: Bytes = (0..length).map(|at| at as u8).collect();
            let body = Full::new(data.clone()).map_err(BoxError::from);
            let (body, _) = VerifiedBody::new(Payload::Unsigned, &HeaderMap::new(), body).expect("nothing to verify yet");
            let mut purse = Purse::default();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let whole = runtime.block_on(body.collect(length, too_long, &mut purse)).expect("whole");
            prop_assert_eq!(&whole, &data);
            let pieces = if length > PIECE_BYTES { 2 * length } else { length };
            prop_assert!((pieces as u64..=(pieces + PIECE_BYTES) as u64).contains(&purse.paid), "{} for {}", purse.paid, length);
        }
    }
}
