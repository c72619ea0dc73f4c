//! The certificate of the S3 port. What enters is two PEM files; what leaves is an acceptor for each handshake, made of the
//! pair that was put in force last. Invariant: a pair is in force only once its key was found to be that of its certificate.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::backend::BoxError;

/// A certificate chain with its key, ready for handshakes.
#[derive(Clone)]
pub struct Pair {
    acceptor: TlsAcceptor,
    expiry: Option<u64>,
}

impl Pair {
    /// Reads PEM files: the chain, leaf first, and the leaf's private key.
    ///
    /// # Errors
    /// A file that cannot be read or holds no such thing, and a key that is not the certificate's; each names its file.
    pub fn read(cert_file: &Path, key_file: &Path) -> Result<Self, BoxError> {
        let named = |file: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let certificates = CertificateDer::pem_file_iter(cert_file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = certificates.map_err(|e| named(cert_file, &e))?;
        let leaf = certificates.first().ok_or_else(|| named(cert_file, &"there is no certificate in it"))?;
        let expiry = Certificate::from_der(leaf).ok().map(|leaf| not_after(&leaf));
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| named(key_file, &e))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|e| format!("{} with {}: {e}", cert_file.display(), key_file.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), expiry })
    }

    /// When the leaf's time ends, in Unix seconds; unknown where it is not as the standard has it, which a handshake may bear.
    pub fn expiry(&self) -> Option<u64> {
        self.expiry
    }
}

fn not_after(leaf: &Certificate) -> u64 {
    leaf.tbs_certificate().validity().not_after.to_unix_duration().as_secs()
}

/// What handshakes use, which may change between two of them.
pub struct Tls(RwLock<Pair>);

impl Tls {
    /// Begins with `pair`.
    pub fn new(pair: Pair) -> Self {
        Self(RwLock::new(pair))
    }

    /// From the next handshake on, `pair` is used, and no session of before is resumed. Open connections stay as they are.
    pub fn replace(&self, pair: Pair) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pair;
    }

    /// For one handshake.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }
}
