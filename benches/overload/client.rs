//! One request of a client that waits for so long and no longer. What enters is which request; what leaves is what came of it.
//! Invariant: an answer is right only if every object of it is whole and has the right bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchgate::backend::s3::credentials::{Credentials, KeyPair};
use batchgate::client::{BatchRequest, ClientError, Endpoint, EndpointConfig, Entry, Event};
use batchgate::config::Addressing;
use batchgate::load::content;
use tokio::time::{Instant, timeout_at};

use crate::common::process::{ACCESS_KEY, SECRET_KEY};
use crate::common::{Fallible, names, wall_clock};

/// Bytes of each object.
const SIZE: u64 = 1024;

/// Connections that are kept: more than a gateway at its defaults lets be in use.
const IDLE_CONNECTIONS_MAX: usize = 2_048;

/// Which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// GetObject.
    Get,
    /// BatchGet of so many entries.
    Batch(u64),
}

impl What {
    /// Objects of one.
    pub fn objects(self) -> u64 {
        match self {
            Self::Get => 1,
            Self::Batch(entries) => entries,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// All of it, and right: so many objects.
    Right(u64),
    /// 503 `SlowDown` with `Retry-After`.
    SlowDown,
    /// Nothing or not all of it in time: the client left.
    GivenUp,
    /// Another refusal, a break, or an object of a batch that was an error.
    Failed(String),
}

/// A client with its connections.
pub struct Client {
    endpoint: Endpoint,
    bucket: String,
    patience: Duration,
    next: AtomicU64,
}

impl Client {
    /// For the gateway at `address`.
    pub fn new(address: SocketAddr, bucket: String, patience: Duration) -> Fallible<Self> {
        let config = EndpointConfig {
            url: format!("http://{address}"),
            region: "us-east-1".to_owned(),
            addressing: Addressing::Path,
            credentials: Credentials::Static(Arc::new(KeyPair::new(ACCESS_KEY, SECRET_KEY, None)?)),
            ca_file: None,
            // Its patience is for the whole answer and ends first.
            connect_timeout: patience * 2,
            idle_timeout: patience * 2,
            idle_connections_max: IDLE_CONNECTIONS_MAX,
        };
        Ok(Self { endpoint: Endpoint::new(config, wall_clock)?, bucket, patience, next: AtomicU64::new(0) })
    }

    /// Sends a request, whose patience counts from `since`.
    pub async fn ask(&self, what: What, since: Instant) -> Came {
        let count = what.objects();
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let answer = async {
            match what {
                What::Get => self.get(first).await,
                What::Batch(_) => self.batch(first, count).await,
            }
        };
        match timeout_at(since + self.patience, answer).await {
            Ok(Ok(())) => Came::Right(count),
            // The refusal that the contract has for too much load.
            Ok(Err(ClientError::Refused(refusal)))
                if (refusal.status, refusal.code.as_str()) == (503, "SlowDown") && refusal.retry_after_seconds.is_some() =>
            {
                Came::SlowDown
            }
            // By status and code, since each refusal's own text has an id of its own.
            Ok(Err(ClientError::Refused(refusal))) => Came::Failed(format!("{} {}", refusal.status, refusal.code)),
            Ok(Err(error)) => Came::Failed(error.to_string()),
            Err(_) => Came::GivenUp,
        }
    }

    async fn get(&self, number: u64) -> Result<(), ClientError> {
        let answer = self.endpoint.get_object(&self.bucket, &Entry::new(names::key(SIZE, number))).await?;
        let mut object = Object { number, at: 0 };
        let mut body = answer.into_body();
        while let Some(bytes) = self.endpoint.data(&mut body).await? {
            object.take(&bytes);
        }
        object.whole()
    }

    async fn batch(&self, first: u64, count: u64) -> Result<(), ClientError> {
        let entries: Vec<_> = (first..first + count).map(|number| Entry::new(names::key(SIZE, number))).collect();
        let mut answer = self.endpoint.batch_get(Some(&self.bucket), &BatchRequest::new(&entries)).await?;
        let mut object = Object { number: first, at: 0 };
        let mut failed = None;
        while let Some(event) = answer.next().await? {
            match event {
                Event::Part(head) if head.status != 200 => failed = Some(head.status),
                Event::Part(head) => object = Object { number: first + u64::from(head.index), at: 0 },
                Event::Data(bytes) if failed.is_none() => object.take(&bytes),
                Event::End if failed.is_none() => object.whole()?,
                _ => {}
            }
        }
        failed.map_or(Ok(()), |status| Err(ClientError::Wrong(format!("a part is {status}"))))
    }
}

/// One object as it comes.
struct Object {
    number: u64,
    at: u64,
}

impl Object {
    fn take(&mut self, bytes: &[u8]) {
        assert!(content::is(self.number, self.at, bytes), "object {} has other bytes at {}", self.number, self.at);
        self.at += bytes.len() as u64;
    }

    fn whole(&self) -> Result<(), ClientError> {
        match self.at {
            SIZE => Ok(()),
            at => Err(ClientError::Wrong(format!("an object has {at} of {SIZE} bytes"))),
        }
    }
}
