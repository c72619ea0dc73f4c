//! The ways of reading that the demo compares. What enters is a way and a time; what leaves is how many objects a second it
//! read whole, with every byte right; anything else ends the demo.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Objects;
use super::stock::Stock;
use crate::app::system_clock;
use crate::backend::s3::credentials::{Credentials, KeyPair};
use crate::client::{Endpoint, EndpointConfig};
use crate::config::{Addressing, IdentityConfig};
use crate::load::{self, Control, Extent, Job, Mode, Pace};

/// How objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// GETs by the stock client.
    Stock {
        /// How many at a time.
        workers: usize,
    },
    /// GETs by a client that does no more than it must.
    Bare {
        /// How many at a time.
        workers: usize,
    },
    /// BatchGets, one after another.
    Batch {
        /// Objects of each.
        entries: usize,
    },
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock { workers: 1 } => write!(f, "GET, one after another, AWS SDK"),
            Self::Stock { workers } => write!(f, "GET, {workers} at a time, AWS SDK"),
            Self::Bare { workers } => write!(f, "GET, {workers} at a time, bare HTTP client"),
            Self::Batch { entries } => write!(f, "BatchGet of {}, bare HTTP client", super::thousands(*entries as u64)),
        }
    }
}

/// The clients that read.
pub struct Ways {
    stock: Stock,
    endpoint: Arc<Endpoint>,
    objects: Arc<Objects>,
}

impl Ways {
    /// Clients of the S3 endpoint at `url`.
    pub fn new(url: &str, identity: &IdentityConfig, stock: Stock, objects: Arc<Objects>) -> Result<Self, String> {
        let pair = KeyPair::new(&identity.access_key, identity.secret_key.expose(), None).map_err(|e| e.to_string())?;
        let endpoint = Endpoint::new(
            EndpointConfig {
                url: url.to_owned(),
                region: "us-east-1".to_owned(),
                addressing: Addressing::Path,
                credentials: Credentials::Static(Arc::new(pair)),
                ca_file: None,
                connect_timeout: Duration::from_secs(5),
                idle_timeout: Duration::from_secs(60),
                idle_connections_max: super::WORKERS,
            },
            system_clock,
        )?;
        Ok(Self { stock, endpoint: Arc::new(endpoint), objects })
    }

    /// Objects a second.
    pub async fn measure(&self, way: Way, time: Duration) -> Result<f64, String> {
        let (mode, workers) = match way {
            Way::Stock { workers } => {
                let started = Instant::now();
                let read = self.stock.read(workers, time).await?;
                return Ok(read as f64 / started.elapsed().as_secs_f64());
            }
            Way::Bare { workers } => (Mode::Get, workers),
            Way::Batch { entries } => (Mode::Batch(entries), 1),
        };
        let job = Job {
            bucket: self.objects.bucket.into(),
            keys: self.objects.keys.clone(),
            mode,
            pace: Pace::Closed { workers },
            extent: Extent::Duration(time),
            warm_up: Duration::ZERO,
            verify: true,
            seed: 0,
        };
        let measured = load::run(&self.endpoint, &job, &Arc::new(Control::default())).await;
        match measured.errors.iter().next() {
            Some((_, error)) => Err(error.first.clone()),
            None => Ok(measured.objects_per_second()),
        }
    }
}
