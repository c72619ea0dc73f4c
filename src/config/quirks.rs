//! What a store wants otherwise than S3 itself: settings of a backend whose defaults suit most. Data only, as in `mod`.

use schemars::JsonSchema;
use serde::Serialize;

/// All of them together, as whoever forwards requests takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// See [`Checksums`].
    pub checksums: Checksums,
    /// See [`PayloadSigning`].
    pub payload_signing: PayloadSigning,
    /// Whether documents get a `Content-MD5`.
    pub content_md5: bool,
}

/// What becomes of the checksums that clients send with their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// They go on to the store, which checks and keeps them.
    #[default]
    Forward,
    /// They are checked here while the data streams, and the store sees none of them: for one that refuses or ignores them.
    Verify,
}

/// Whether the signature of a request to the store covers the bytes of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadSigning {
    /// Where the hash is known before the body goes out: the client signed it, or the gateway holds the body whole.
    #[default]
    WhenKnown,
    /// No body is signed.
    Never,
    /// Every one: by its hash, or in chunks that are signed one by one.
    Always,
}
