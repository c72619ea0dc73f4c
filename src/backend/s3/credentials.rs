//! The backend's credentials: fixed ones, or the chain that every AWS tool follows (aws-config). Temporary ones are fetched
//! anew well before they end, once for all who ask; a request never goes out with credentials that have ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use http::HeaderValue;
use prometheus::Gauge;
use tokio::sync::Mutex;

use super::super::BoxError;
use crate::config::Secret;
use crate::types::WallClock;

/// Temporary credentials are replaced this long before they end.
const REFRESH_LEAD: Duration = Duration::from_secs(5 * 60);

/// After a failed refresh the old ones, while they hold, are used for this long before the next try.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// Longest time that a provider may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);

/// An access key with its secret, valid for a signature.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// Access key id.
    pub access_key: String,
    /// Its secret.
    pub secret_key: Secret,
    /// For temporary credentials.
    pub session_token: Option<HeaderValue>,
}

impl KeyPair {
    /// The pair, unless a part of it could not stand in a header.
    pub fn new(access_key: &str, secret_key: &str, session_token: Option<&str>) -> Result<Self, BoxError> {
        HeaderValue::from_str(access_key)?;
        let session_token = session_token.map(HeaderValue::from_str).transpose()?;
        Ok(Self { access_key: access_key.to_owned(), secret_key: Secret::new(secret_key), session_token })
    }
}

/// Where the current pair comes from.
pub enum Credentials {
    /// From the settings.
    Static(Arc<KeyPair>),
    /// From a provider, kept until they are about to end.
    Provided(Box<Provided>),
}

/// A provider with what it last gave.
pub struct Provided {
    provider: SharedCredentialsProvider,
    now: WallClock,
    expiry: Gauge,
    /// Held across the fetch, so that one fetch serves all who wait.
    kept: Mutex<Option<Kept>>,
    /// After a fetch that left us with nothing: when, and why.
    failed: Mutex<Option<(SystemTime, String)>>,
}

struct Kept {
    pair: Arc<KeyPair>,
    ends: Option<SystemTime>,
    retry_at: Option<SystemTime>,
}

impl Credentials {
    /// The chain of every AWS tool: environment, profile files, web identity, ECS, EC2.
    pub async fn chain(now: WallClock, expiry: Gauge) -> Self {
        let chain = aws_config::default_provider::credentials::default_provider().await;
        Self::provided(SharedCredentialsProvider::new(chain), now, expiry)
    }

    /// What a provider gives; `expiry` shows when it ends, in seconds of Unix time.
    pub fn provided(provider: SharedCredentialsProvider, now: WallClock, expiry: Gauge) -> Self {
        Self::Provided(Box::new(Provided { provider, now, expiry, kept: Mutex::new(None), failed: Mutex::new(None) }))
    }

    /// The pair to sign with now.
    pub async fn current(&self) -> Result<Arc<KeyPair>, BoxError> {
        match self {
            Self::Static(pair) => Ok(Arc::clone(pair)),
            Self::Provided(provided) => provided.current().await,
        }
    }
}

impl Provided {
    async fn current(&self) -> Result<Arc<KeyPair>, BoxError> {
        let mut kept = self.kept.lock().await;
        let now = (self.now)();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.good_at(now)) {
            return Ok(Arc::clone(&kept.pair));
        }
        let mut failed = self.failed.lock().await;
        if let Some((_, why)) = failed.as_ref().filter(|(at, _)| now < *at + REFRESH_PAUSE) {
            return Err(why.clone().into());
        }
        match self.fetch().await {
            Ok(fresh) => {
                let since_epoch = fresh.ends.and_then(|ends| ends.duration_since(SystemTime::UNIX_EPOCH).ok());
                self.expiry.set(since_epoch.map_or(0.0, |d| d.as_secs_f64()));
                let pair = Arc::clone(&fresh.pair);
                *kept = Some(fresh);
                Ok(pair)
            }
            Err(error) => match kept.as_mut().filter(|kept| kept.ends.is_some_and(|ends| ends > now)) {
                Some(kept) => {
                    tracing::warn!(%error, "credentials could not be refreshed; the old ones still hold");
                    kept.retry_at = Some(now + REFRESH_PAUSE);
                    Ok(Arc::clone(&kept.pair))
                }
                None => {
                    tracing::warn!(%error, "no credentials for the backend");
                    *failed = Some((now, error.to_string()));
                    Err(error)
                }
            },
        }
    }

    async fn fetch(&self) -> Result<Kept, BoxError> {
        let given = tokio::time::timeout(PROVIDER_TIMEOUT, self.provider.provide_credentials()).await??;
        let pair = KeyPair::new(given.access_key_id(), given.secret_access_key(), given.session_token())?;
        Ok(Kept { pair: Arc::new(pair), ends: given.expiry(), retry_at: None })
    }
}

impl Kept {
    fn good_at(&self, now: SystemTime) -> bool {
        let fresh = self.ends.is_none_or(|ends| now + REFRESH_LEAD < ends);
        fresh || self.retry_at.is_some_and(|at| now < at) && self.ends.is_none_or(|ends| now < ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_credential_types::Credentials as Given;
    use aws_credential_types::provider::error::CredentialsError;
    use aws_credential_types::provider::future::ProvideCredentials as Provide;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    static NOW_SECONDS: AtomicU64 = AtomicU64::new(0);

    fn clock() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_SECONDS.load(Ordering::SeqCst))
    }

    /// Gives credentials that last an hour, or fails where it was told to.
    #[derive(Debug, Default)]
    struct Hourly {
        calls: AtomicUsize,
        fails_at: usize,
    }

    impl ProvideCredentials for Hourly {
        fn provide_credentials<'a>(&'a self) -> Provide<'a>
        where
            Self: 'a,
        {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            Provide::new(async move {
                tokio::task::yield_now().await;
                if call == self.fails_at {
                    return Err(CredentialsError::provider_timed_out(Duration::from_secs(1)));
                }
                let ends = clock() + Duration::from_secs(3600);
                Ok(Given::new(format!("AK{call}"), "s", Some("t".into()), Some(ends), "test"))
            })
        }
    }

    #[tokio::test]
    async fn credentials_are_fetched_once_for_all_and_again_before_they_end() {
        let gauge = Gauge::new("g", "g").expect("valid");
        let provider = SharedCredentialsProvider::new(Hourly { fails_at: 1, ..Hourly::default() });
        let credentials = Credentials::provided(provider, clock, gauge.clone());
        let many = futures_util::future::join_all((0..8).map(|_| credentials.current())).await;
        assert!(many.iter().all(|pair| pair.as_ref().is_ok_and(|p| p.access_key == "AK0")));
        assert_eq!(gauge.get(), 3600.0);
        let key = async |at: u64| {
            NOW_SECONDS.store(at, Ordering::SeqCst);
            credentials.current().await.map(|p| p.access_key.clone())
        };
        assert_eq!(key(3000).await.expect("fresh"), "AK0");
        assert_eq!(key(3400).await.expect("the refresh fails, the old ones hold"), "AK0");
        assert_eq!(key(3405).await.expect("no new try yet"), "AK0");
        assert_eq!(key(3411).await.expect("refreshed"), "AK2");
    }
}
