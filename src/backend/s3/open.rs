//! From settings to a store: an [`S3Store`] as one `[[backends]]` table describes it. Reads the certificate file that it names;
//! sends nothing, but for what the credential chain asks.

use std::sync::Arc;

use http::Uri;

use super::credentials::{Credentials, KeyPair};
use super::redirect::Learnt;
use super::sign::Signer;
use super::{S3Store, connect};
use crate::backend::BoxError;
use crate::config::{BackendConfig, CredentialsConfig};
use crate::telemetry::BackendMetrics;
use crate::types::WallClock;

impl S3Store {
    /// The store at the endpoint of `config`, asked with its credentials.
    ///
    /// # Errors
    /// An endpoint that is no URL, a certificate that cannot be read, a key pair that no request could carry.
    pub async fn open(config: &BackendConfig, metrics: BackendMetrics, now: WallClock) -> Result<Self, BoxError> {
        let endpoint: Uri = config.endpoint.parse()?;
        let (Some(scheme), Some(authority)) = (endpoint.scheme(), endpoint.authority()) else {
            return Err(format!("the endpoint of backend {} is no URL", config.name).into());
        };
        let credentials = match &config.credentials {
            CredentialsConfig::Chain => Credentials::chain(now, metrics.credentials_expiry.clone()).await,
            CredentialsConfig::Static { access_key, secret_key, session_token } => {
                let token = session_token.as_ref().map(|token| token.expose());
                Credentials::Static(Arc::new(KeyPair::new(access_key, secret_key.expose(), token)?))
            }
        };
        let https = scheme == &http::uri::Scheme::HTTPS;
        Ok(Self {
            clients: connect::clients(
                config.connect_timeout,
                config.attempt_timeout,
                config.concurrency,
                https,
                config.ca_file.as_deref(),
            )?,
            scheme: scheme.clone(),
            authority: authority.clone(),
            base_path: String::new(),
            addressing: config.addressing,
            credentials,
            signer: Arc::new(Signer::new(&config.region)),
            learnt: Learnt::default(),
            now,
            metrics,
        })
    }
}
