//! One request over one connection, and what its end says of the address: it answered, it stumbled, it failed. What enters is a
//! signed request, what leaves is its answer as it came, whose body goes on to be watched.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connect::{Client, READ_BUFFER_BYTES_MAX, classify};
use super::resolve::{Addresses, Peer};
use crate::backend::{BackendError, BackendErrorKind, Body, BoxError};

/// The connection that the pool gave is not to be trusted; nothing was sent that matters.
pub(super) struct Distrusted;

/// Sends `request`. If it `may_repeat`, then not over a kept connection to an address that has failed since it was made.
pub(super) async fn exchange(
    client: &Client,
    mut request: Request<Body>,
    addresses: &Arc<Addresses>,
    may_repeat: bool,
) -> Result<Result<Response<Incoming>, BackendError>, Distrusted> {
    // How long an upload takes is its client's affair.
    let watched = request.body().is_end_stream();
    let head = request.method() == Method::HEAD;
    let mut waiting = Waiting { connection: capture_connection(&mut request), addresses, since: Instant::now(), watched };
    let mut answer = client.request(request);
    // The first poll takes a kept connection, if there is one, and leaves the request in its queue.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut answer).poll(cx))).await;
    let answer = match first {
        Poll::Ready(answer) => answer,
        Poll::Pending if may_repeat && waiting.peer().is_some_and(|peer| addresses.distrusts(&peer)) => {
            waiting.watched = false;
            return Err(Distrusted);
        }
        Poll::Pending => answer.await,
    };
    waiting.watched = false;
    Ok(match answer {
        Ok(response) => {
            if let Some(peer) = response.extensions().get::<Peer>() {
                match response.status() {
                    // A 503 may be a plea for pace; another address may have more of it.
                    StatusCode::INTERNAL_SERVER_ERROR
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT => addresses.stumbled(peer.address),
                    _ => addresses.answered(peer.address),
                }
            }
            // Ceph refuses some keys so early that it forgets of a HEAD, and sends the error's document all the same.
            if head && response.status() == StatusCode::BAD_REQUEST {
                waiting.forsake();
            }
            Ok(response)
        }
        Err(error) => {
            let error = classify(error);
            if matches!(error.kind, BackendErrorKind::NoAnswer | BackendErrorKind::Garbled)
                && let Some(peer) = waiting.peer()
            {
                addresses.failed(peer.address);
            }
            Err(error)
        }
    })
}

/// A request that waits for the head of its answer.
struct Waiting<'a> {
    connection: CaptureConnection,
    addresses: &'a Arc<Addresses>,
    since: Instant,
    watched: bool,
}

impl Waiting<'_> {
    /// Nobody else gets the connection.
    fn forsake(&self) {
        if let Some(connected) = self.connection.connection_metadata().as_ref() {
            connected.poison();
        }
    }

    fn peer(&self) -> Option<Peer> {
        let mut extras = Extensions::new();
        self.connection.connection_metadata().as_ref()?.get_extras(&mut extras);
        extras.get::<Peer>().copied()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.watched
            && self.since.elapsed() >= self.addresses.silence()
            && let Some(peer) = self.peer()
        {
            self.addresses.failed(peer.address);
        }
    }
}

/// Leave for an answer to come in large pieces. It goes back when the last of them has gone.
#[derive(Clone)]
pub(super) struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Room {
    /// Takes one if there is one.
    pub(super) fn take(of: &Arc<Semaphore>) -> Option<Self> {
        Arc::clone(of).try_acquire_owned().ok().map(|permit| Self { _permit: Arc::new(permit) })
    }
}

/// A piece that is larger than it would be without its [`Room`]. It may outlive the body, in what waits for the client's socket.
struct Large {
    bytes: Bytes,
    _room: Room,
}

fn roomy(room: Option<&Room>, bytes: Bytes) -> Bytes {
    match room {
        Some(room) if bytes.len() > READ_BUFFER_BYTES_MAX => Bytes::from_owner(Large { bytes, _room: room.clone() }),
        _ => bytes,
    }
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer: one that breaks, or is given up because it stalls, is a failure of its address.
pub(super) struct Watched {
    inner: Incoming,
    addresses: Arc<Addresses>,
    peer: Option<Peer>,
    stalled_since: Option<Instant>,
    room: Option<Room>,
}

impl Watched {
    pub(super) fn of(response: Response<Incoming>, addresses: &Arc<Addresses>, room: Option<Room>) -> Response<Body> {
        let peer = response.extensions().get::<Peer>().copied();
        response.map(|inner| Body::new(Self { inner, addresses: Arc::clone(addresses), peer, stalled_since: None, room }))
    }

    fn failed(&self) {
        if let Some(peer) = self.peer {
            self.addresses.failed(peer.address);
        }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_pending() && self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
        }
        let frame = ready!(polled);
        self.stalled_since = None;
        if let Some(Err(_)) = frame {
            self.failed();
        }
        Poll::Ready(
            frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| roomy(self.room.as_ref(), bytes))).map_err(BoxError::from)),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.stalled_since.is_some_and(|since| since.elapsed() >= self.addresses.silence()) {
            self.failed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_piece_keeps_its_room_and_a_small_one_does_not() {
        let rooms = Arc::new(Semaphore::new(1));
        let room = Room::take(&rooms).expect("free");
        assert!(Room::take(&rooms).is_none(), "there is one only");
        let piece = |bytes| roomy(Some(&room), Bytes::from(vec![7; bytes]));
        let (small, large) = (piece(READ_BUFFER_BYTES_MAX), piece(READ_BUFFER_BYTES_MAX + 1));
        let rest = large.slice(READ_BUFFER_BYTES_MAX..);
        drop((room, large));
        assert_eq!((rooms.available_permits(), &rest[..]), (0, &[7][..]));
        drop(rest);
        assert_eq!((rooms.available_permits(), small.len()), (1, READ_BUFFER_BYTES_MAX));
    }
}
