//! Who the gateway deals with: backends, the routes to them, and the identities of clients. Data only, as in `mod`; what
//! leaves when it is serialised is what a file would say, with secrets hidden.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::quirks::{Checksums, PayloadSigning, Quirks};
use super::schema;
use super::value::{self, ByteSize, DurationText, Secret, format_duration, format_size};

/// One S3 store behind the gateway (`[[backends]]`). Written out, it has the keys of its kind
/// only; so the attributes for that are the schema's, and the writing is by hand.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[serde(default = "BackendConfig::unnamed", deny_unknown_fields)]
pub struct BackendConfig {
    /// The name that routes, logs and metrics use: letters, digits, `.`, `_`, `-`; unique. Required.
    pub name: String,
    /// What it is. Default `"s3"`.
    pub kind: BackendKind,
    /// `http://host[:port]` or `https://host[:port]`, without path or user. Required for `"s3"`.
    pub endpoint: String,
    /// The region that requests to it are signed for. Default `"us-east-1"`.
    pub region: String,
    /// Where the bucket's name goes in a request to it. Default `"path"`.
    pub addressing: Addressing,
    /// Whose key pair signs requests to it. Default `{ source = "chain" }`.
    #[schemars(schema_with = "schema::credentials")]
    pub credentials: CredentialsConfig,
    /// PEM file with the authorities that its certificate is checked against. Default: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// What becomes of the checksums that clients send with their data. Default `"forward"`.
    pub checksums: Checksums,
    /// Whether the signature of a request to it covers the bytes of its body. Default `"when-known"`.
    pub payload_signing: PayloadSigning,
    /// Whether a document, such as the list of DeleteObjects or a bucket's lifecycle, gets a `Content-MD5` where the client
    /// sent none. Default false.
    pub content_md5: bool,
    /// Longest time to connect, TLS included. Default `"2s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub connect_timeout: Duration,
    /// How long a batch's read may yield no byte before it is tried again. A plain request that has no head by then waits on, but
    /// lets others ask. Default `"5s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub attempt_timeout: Duration,
    /// How long any other request may yield no byte of its answer. Default `"5m"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub response_timeout: Duration,
    /// Most requests to it at once. Default 256.
    pub concurrency: usize,
    /// How low that limit may fall while the backend says `SlowDown`. Default 4.
    pub concurrency_min: usize,
    /// A wait before each request to it, to try what a store further away would be like. Default `"0s"`.
    #[serde(serialize_with = "value::as_duration")]
    #[schemars(with = "DurationText")]
    pub latency: Duration,
    /// Of an embedded store: the most memory that its objects take, with their names, headers and parts, at least
    /// `"1MiB"`. Default `"1GiB"`.
    #[serde(serialize_with = "value::as_size")]
    #[schemars(with = "ByteSize")]
    pub memory_bytes_max: u64,
}

impl BackendConfig {
    /// A backend with every default; only these two have none.
    pub fn new(name: impl Into<String>, endpoint: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: BackendKind::S3,
            endpoint: endpoint.into(),
            region: "us-east-1".into(),
            addressing: Addressing::Path,
            credentials: CredentialsConfig::Chain,
            ca_file: None,
            checksums: Checksums::default(),
            payload_signing: PayloadSigning::default(),
            content_md5: false,
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5 * 60),
            concurrency: 256,
            concurrency_min: 4,
            latency: Duration::ZERO,
            memory_bytes_max: 1 << 30,
        }
    }

    /// An embedded store with every default.
    pub fn embedded(name: impl Into<String>) -> Self {
        Self { kind: BackendKind::Embedded, ..Self::new(name, "") }
    }

    /// What it wants otherwise than S3 itself.
    pub fn quirks(&self) -> Quirks {
        Quirks { checksums: self.checksums, payload_signing: self.payload_signing, content_md5: self.content_md5 }
    }

    pub(super) fn unnamed() -> Self {
        Self::new("", "")
    }
}

impl Serialize for BackendConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("kind", &self.kind)?;
        if self.kind == BackendKind::S3 {
            map.serialize_entry("endpoint", &self.endpoint)?;
        }
        map.serialize_entry("region", &self.region)?;
        if self.kind == BackendKind::S3 {
            map.serialize_entry("addressing", &self.addressing)?;
            map.serialize_entry("credentials", &self.credentials)?;
            if let Some(file) = &self.ca_file {
                map.serialize_entry("ca_file", file)?;
            }
            map.serialize_entry("checksums", &self.checksums)?;
            map.serialize_entry("payload_signing", &self.payload_signing)?;
            map.serialize_entry("content_md5", &self.content_md5)?;
            map.serialize_entry("connect_timeout", &format_duration(self.connect_timeout))?;
        }
        map.serialize_entry("attempt_timeout", &format_duration(self.attempt_timeout))?;
        map.serialize_entry("response_timeout", &format_duration(self.response_timeout))?;
        map.serialize_entry("concurrency", &self.concurrency)?;
        map.serialize_entry("concurrency_min", &self.concurrency_min)?;
        map.serialize_entry("latency", &format_duration(self.latency))?;
        if self.kind == BackendKind::Embedded {
            map.serialize_entry("memory_bytes_max", &format_size(self.memory_bytes_max))?;
        }
        map.end()
    }
}

/// What a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A store that is spoken to with S3 over HTTP.
    S3,
    /// A store in this process, in memory, for trying and testing: it is empty at start and lost at the end.
    Embedded,
}

/// Where the bucket's name goes in a request to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// `http://host/bucket/key`: what nearly every store understands.
    Path,
    /// `http://bucket.host/key`.
    Virtual,
}

/// Whose key pair signs requests to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum CredentialsConfig {
    /// As every AWS tool finds them: environment, profile, web identity, container, instance; refreshed before they end.
    Chain,
    /// This key pair. In a file each may also be given as `…_file` or `…_env`.
    Static {
        /// The access key's id; no secret.
        access_key: String,
        /// The secret key.
        secret_key: Secret,
        /// The session token, where the pair is a temporary one.
        #[serde(skip_serializing_if = "Option::is_none")]
        session_token: Option<Secret>,
    },
}

/// One rule from bucket to backend (`[[routes]]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Pattern of bucket names: `*` is any run of characters, `?` any one. Required.
    pub bucket: String,
    /// The backend's name. Required.
    pub backend: String,
    /// The bucket's name on the backend. Default: the same. Only where `bucket` has no wildcard.
    #[serde(rename = "backend_bucket", skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
}

/// One client that may sign in (`[[identities]]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// The name that logs show; unique. Required.
    pub name: String,
    /// The access key's id that it signs with; unique. Required; also as `access_key_file` or `access_key_env`.
    pub access_key: String,
    /// The secret key that it signs with. Required; also as `secret_key_file` or `secret_key_env`.
    pub secret_key: Secret,
    /// The session token that it must send. Default none; also as `session_token_file` or `session_token_env`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// What it may do: exactly one of `policy`, `policy_file`, `policy_json`. Default: nothing.
    #[serde(flatten)]
    #[schemars(skip)]
    pub policy: PolicySource,
    /// By a backend's name, the account there that signs what this identity asks of it. Default: that of the backend itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::backend_credentials")]
    pub backend_credentials: BTreeMap<String, KeyPairConfig>,
}

/// An account at a backend, as an identity's `backend_credentials` name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyPairConfig {
    /// The access key's id; no secret.
    pub access_key: String,
    /// The secret key.
    pub secret_key: Secret,
    /// The session token, where the pair is a temporary one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
}

/// What an identity may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicySource {
    /// Nothing.
    #[default]
    None,
    /// Every read.
    ReadOnly,
    /// Everything.
    FullAccess,
    /// What this IAM policy document in JSON says.
    Document(String),
}

impl Serialize for PolicySource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let entry = match self {
            Self::None => None,
            Self::ReadOnly => Some(("policy", "read-only")),
            Self::FullAccess => Some(("policy", "full-access")),
            Self::Document(json) => Some(("policy_json", json.as_str())),
        };
        let mut map = to.serialize_map(Some(usize::from(entry.is_some())))?;
        if let Some((key, value)) = entry {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
