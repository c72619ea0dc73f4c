//! What a request needs to be allowed to do. Method, target, query and headers enter; the permissions leave, by the names of
//! AWS's service authorization reference (<https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html>).
//! This is the one table from S3's operations to IAM's actions. Invariant: what the table does not know for certain becomes
//! [`EVERY_ACTION`], never a plain read or write, so that a new sub-resource cannot slip through as GetObject or PutObject.

use std::borrow::Cow;

use http::{HeaderMap, Method};

use super::copy_source::CopySource;
use super::policy::{EVERY_ACTION, Resource};
use super::reading::has_dots;
use crate::error::{Error, Kind, Result};
use crate::types::{S3Target, percent_decode, query_pairs};

/// Stands for DeleteObjects, whose real permissions are in its body: see [`super::delete::DeleteList::permissions`]. No policy
/// allows it, so that a forgotten body is a refusal.
pub const DELETE_OBJECTS: &str = "DeleteObjects";

/// What a new bucket needs, and nothing else does.
pub const CREATE_BUCKET: &str = "s3:CreateBucket";

/// What a list of buckets needs.
pub const LIST_BUCKETS: &str = "s3:ListAllMyBuckets";

/// One action on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// `s3:GetObject` and the like, [`EVERY_ACTION`] or [`DELETE_OBJECTS`].
    pub action: &'static str,
    /// The bucket by the client's name; nothing on the service level.
    pub bucket: Option<String>,
    /// The key, decoded; nothing on the bucket's level.
    pub key: Option<Vec<u8>>,
}

impl Permission {
    /// What the action is done to.
    pub fn resource(&self) -> Resource<'_> {
        Resource { bucket: self.bucket.as_deref(), key: self.key.as_deref() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Service,
    Bucket,
    Object,
}
use Level::{Bucket, Object, Service};

/// Level, method, sub-resource (empty: none), action, and the action where `versionId` is given (empty: it has no place here).
type Row = (Level, &'static str, &'static str, &'static str, &'static str);

/// HEAD is looked up as GET. Where AWS has no action of its own for a DELETE, it is the one for PUT.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    (Service, "GET", "", LIST_BUCKETS, ""),
    (Bucket, "GET", "", "s3:ListBucket", ""),
    (Bucket, "PUT", "", CREATE_BUCKET, ""),
    (Bucket, "DELETE", "", "s3:DeleteBucket", ""),
    (Bucket, "POST", "delete", DELETE_OBJECTS, ""),
    (Bucket, "GET", "versions", "s3:ListBucketVersions", ""),
    (Bucket, "GET", "uploads", "s3:ListBucketMultipartUploads", ""),
    (Bucket, "GET", "location", "s3:GetBucketLocation", ""),
    (Bucket, "GET", "session", "s3express:CreateSession", ""),
    (Bucket, "GET", "abac", "s3:GetBucketAbac", ""),
    (Bucket, "PUT", "abac", "s3:PutBucketAbac", ""),
    (Bucket, "GET", "accelerate", "s3:GetAccelerateConfiguration", ""),
    (Bucket, "PUT", "accelerate", "s3:PutAccelerateConfiguration", ""),
    (Bucket, "GET", "acl", "s3:GetBucketAcl", ""),
    (Bucket, "PUT", "acl", "s3:PutBucketAcl", ""),
    (Bucket, "GET", "analytics", "s3:GetAnalyticsConfiguration", ""),
    (Bucket, "PUT", "analytics", "s3:PutAnalyticsConfiguration", ""),
    (Bucket, "DELETE", "analytics", "s3:PutAnalyticsConfiguration", ""),
    (Bucket, "GET", "cors", "s3:GetBucketCORS", ""),
    (Bucket, "PUT", "cors", "s3:PutBucketCORS", ""),
    (Bucket, "DELETE", "cors", "s3:PutBucketCORS", ""),
    (Bucket, "GET", "encryption", "s3:GetEncryptionConfiguration", ""),
    (Bucket, "PUT", "encryption", "s3:PutEncryptionConfiguration", ""),
    (Bucket, "DELETE", "encryption", "s3:PutEncryptionConfiguration", ""),
    (Bucket, "GET", "intelligent-tiering", "s3:GetIntelligentTieringConfiguration", ""),
    (Bucket, "PUT", "intelligent-tiering", "s3:PutIntelligentTieringConfiguration", ""),
    (Bucket, "DELETE", "intelligent-tiering", "s3:PutIntelligentTieringConfiguration", ""),
    (Bucket, "GET", "inventory", "s3:GetInventoryConfiguration", ""),
    (Bucket, "PUT", "inventory", "s3:PutInventoryConfiguration", ""),
    (Bucket, "DELETE", "inventory", "s3:PutInventoryConfiguration", ""),
    (Bucket, "GET", "lifecycle", "s3:GetLifecycleConfiguration", ""),
    (Bucket, "PUT", "lifecycle", "s3:PutLifecycleConfiguration", ""),
    (Bucket, "DELETE", "lifecycle", "s3:PutLifecycleConfiguration", ""),
    (Bucket, "GET", "logging", "s3:GetBucketLogging", ""),
    (Bucket, "PUT", "logging", "s3:PutBucketLogging", ""),
    (Bucket, "GET", "metadataConfiguration", "s3:GetBucketMetadataTableConfiguration", ""),
    (Bucket, "POST", "metadataConfiguration", "s3:CreateBucketMetadataTableConfiguration", ""),
    (Bucket, "DELETE", "metadataConfiguration", "s3:DeleteBucketMetadataTableConfiguration", ""),
    (Bucket, "PUT", "metadataInventoryTable", "s3:UpdateBucketMetadataInventoryTableConfiguration", ""),
    (Bucket, "PUT", "metadataJournalTable", "s3:UpdateBucketMetadataJournalTableConfiguration", ""),
    (Bucket, "GET", "metadataTable", "s3:GetBucketMetadataTableConfiguration", ""),
    (Bucket, "POST", "metadataTable", "s3:CreateBucketMetadataTableConfiguration", ""),
    (Bucket, "DELETE", "metadataTable", "s3:DeleteBucketMetadataTableConfiguration", ""),
    (Bucket, "GET", "metrics", "s3:GetMetricsConfiguration", ""),
    (Bucket, "PUT", "metrics", "s3:PutMetricsConfiguration", ""),
    (Bucket, "DELETE", "metrics", "s3:PutMetricsConfiguration", ""),
    (Bucket, "GET", "notification", "s3:GetBucketNotification", ""),
    (Bucket, "PUT", "notification", "s3:PutBucketNotification", ""),
    (Bucket, "GET", "object-lock", "s3:GetBucketObjectLockConfiguration", ""),
    (Bucket, "PUT", "object-lock", "s3:PutBucketObjectLockConfiguration", ""),
    (Bucket, "GET", "ownershipControls", "s3:GetBucketOwnershipControls", ""),
    (Bucket, "PUT", "ownershipControls", "s3:PutBucketOwnershipControls", ""),
    (Bucket, "DELETE", "ownershipControls", "s3:PutBucketOwnershipControls", ""),
    (Bucket, "GET", "policy", "s3:GetBucketPolicy", ""),
    (Bucket, "PUT", "policy", "s3:PutBucketPolicy", ""),
    (Bucket, "DELETE", "policy", "s3:DeleteBucketPolicy", ""),
    (Bucket, "GET", "policyStatus", "s3:GetBucketPolicyStatus", ""),
    (Bucket, "GET", "publicAccessBlock", "s3:GetBucketPublicAccessBlock", ""),
    (Bucket, "PUT", "publicAccessBlock", "s3:PutBucketPublicAccessBlock", ""),
    (Bucket, "DELETE", "publicAccessBlock", "s3:PutBucketPublicAccessBlock", ""),
    (Bucket, "GET", "replication", "s3:GetReplicationConfiguration", ""),
    (Bucket, "PUT", "replication", "s3:PutReplicationConfiguration", ""),
    (Bucket, "DELETE", "replication", "s3:PutReplicationConfiguration", ""),
    (Bucket, "GET", "requestPayment", "s3:GetBucketRequestPayment", ""),
    (Bucket, "PUT", "requestPayment", "s3:PutBucketRequestPayment", ""),
    (Bucket, "GET", "tagging", "s3:GetBucketTagging", ""),
    (Bucket, "PUT", "tagging", "s3:PutBucketTagging", ""),
    (Bucket, "DELETE", "tagging", "s3:PutBucketTagging", ""),
    (Bucket, "GET", "versioning", "s3:GetBucketVersioning", ""),
    (Bucket, "PUT", "versioning", "s3:PutBucketVersioning", ""),
    (Bucket, "GET", "website", "s3:GetBucketWebsite", ""),
    (Bucket, "PUT", "website", "s3:PutBucketWebsite", ""),
    (Bucket, "DELETE", "website", "s3:DeleteBucketWebsite", ""),
    (Object, "GET", "", "s3:GetObject", "s3:GetObjectVersion"),
    (Object, "PUT", "", "s3:PutObject", ""),
    (Object, "DELETE", "", "s3:DeleteObject", "s3:DeleteObjectVersion"),
    (Object, "GET", "acl", "s3:GetObjectAcl", "s3:GetObjectVersionAcl"),
    (Object, "PUT", "acl", "s3:PutObjectAcl", "s3:PutObjectVersionAcl"),
    (Object, "GET", "attributes", "s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"),
    (Object, "PUT", "encryption", "s3:UpdateObjectEncryption", "s3:UpdateObjectEncryption"),
    (Object, "GET", "legal-hold", "s3:GetObjectLegalHold", "s3:GetObjectLegalHold"),
    (Object, "PUT", "legal-hold", "s3:PutObjectLegalHold", "s3:PutObjectLegalHold"),
    (Object, "POST", "restore", "s3:RestoreObject", "s3:RestoreObject"),
    (Object, "GET", "retention", "s3:GetObjectRetention", "s3:GetObjectRetention"),
    (Object, "PUT", "retention", "s3:PutObjectRetention", "s3:PutObjectRetention"),
    (Object, "POST", "select", "s3:GetObject", ""),
    (Object, "GET", "tagging", "s3:GetObjectTagging", "s3:GetObjectVersionTagging"),
    (Object, "PUT", "tagging", "s3:PutObjectTagging", "s3:PutObjectVersionTagging"),
    (Object, "DELETE", "tagging", "s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging"),
    (Object, "GET", "torrent", "s3:GetObjectTorrent", "s3:GetObjectVersionTorrent"),
    (Object, "POST", "uploads", "s3:PutObject", ""),
    (Object, "GET", "uploadId", "s3:ListMultipartUploadParts", ""),
    (Object, "PUT", "uploadId", "s3:PutObject", ""),
    (Object, "POST", "uploadId", "s3:PutObject", ""),
    (Object, "DELETE", "uploadId", "s3:AbortMultipartUpload", ""),
];

/// Parameters that shape what a listing shows and choose no operation. By Signature Version 2 nobody signs them, so anybody may add one.
pub(super) const OF_LISTINGS: &[&str] = &[
    "bucket-region",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "x-id",
];

/// Further parameters that shape an answer but choose no operation.
const HARMLESS: &[&str] = &[
    "id",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "select-type",
];

/// What a request needs, all of it.
///
/// # Errors
/// `InvalidArgument` for a copy source that cannot be read.
pub fn permissions(method: &Method, target: &S3Target, query: &str, headers: &HeaderMap) -> Result<Vec<Permission>> {
    let level = match (&target.bucket, &target.key) {
        (None, _) => Service,
        (Some(_), None) => Bucket,
        (Some(_), Some(_)) => Object,
    };
    let verb = if method == Method::HEAD { "GET" } else { method.as_str() };
    let query = Query::parse(query, verb);
    let row = TABLE.iter().find(|row| row.0 == level && row.1 == verb && row.2 == query.sub_resource).filter(|_| !query.unknown);
    let mut actions = match (row, query.version) {
        (None, _) => vec![EVERY_ACTION],
        (Some((.., action, _)), Version::None) => vec![*action],
        (Some((.., "")), _) => vec![EVERY_ACTION],
        (Some((.., version)), Version::Given) => vec![*version],
        // Some servers read the current object here, others refuse.
        (Some((.., action, version)), Version::Empty) => vec![*action, *version],
    };
    // `asked` is a whole name, or one to be continued if it ends in a dash.
    let fits = |name: &str, asked: &str| name == asked || (asked.ends_with('-') && name.starts_with(asked));
    let asks = |asked: &str| headers.keys().any(|n| fits(n.as_str(), asked)) || query.amz.iter().any(|(n, _)| fits(n, asked));
    let also: &[(&str, &'static str)] = match (level, actions[0]) {
        (Object, "s3:PutObject") => &[
            ("x-amz-acl", "s3:PutObjectAcl"),
            ("x-amz-grant-", "s3:PutObjectAcl"),
            ("x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold"),
            ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
            ("x-amz-object-lock-retain-until-date", "s3:PutObjectRetention"),
            ("x-amz-tagging", "s3:PutObjectTagging"),
        ],
        (Bucket, CREATE_BUCKET) => &[
            ("x-amz-acl", "s3:PutBucketAcl"),
            ("x-amz-bucket-object-lock-enabled", "s3:PutBucketObjectLockConfiguration"),
            ("x-amz-bucket-object-lock-enabled", "s3:PutBucketVersioning"),
            ("x-amz-grant-", "s3:PutBucketAcl"),
            ("x-amz-object-ownership", "s3:PutBucketOwnershipControls"),
        ],
        (Object, "s3:GetObjectAttributes") => &[("", "s3:GetObject")],
        (Object, "s3:GetObjectVersionAttributes") => &[("", "s3:GetObjectVersion")],
        _ => &[],
    };
    let also = also.iter().filter(|(header, _)| header.is_empty() || asks(header)).map(|(_, action)| *action);
    // A list of deletes is asked for it key by key.
    let bypasses = actions[0] != DELETE_OBJECTS && asks("x-amz-bypass-governance-retention");
    let bypass = bypasses.then_some("s3:BypassGovernanceRetention");
    for action in also.chain(bypass).collect::<Vec<_>>() {
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    let on_target = |action| Permission { action, bucket: target.bucket.clone(), key: target.key.clone() };
    let mut needed: Vec<_> = actions.into_iter().map(on_target).collect();
    // Whatever the operation: a server that takes the header for a copy reads the source.
    for value in headers.get_all("x-amz-copy-source") {
        push_source(&mut needed, value.as_bytes())?;
    }
    for (_, value) in query.amz.iter().filter(|(name, _)| name == "x-amz-copy-source") {
        push_source(&mut needed, value)?;
    }
    Ok(needed)
}

/// Refuses a version or an upload that would lead elsewhere, were it a part of a path: stores that keep these as files make it one,
/// and none gives out such a name. It is nothing that a policy could judge, so it is for everyone.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_ids(query: &str) -> Result<()> {
    for (name, value) in query_pairs(query) {
        let name = percent_decode(name);
        if matches!(&*name, b"uploadId" | b"versionId") && has_dots(&percent_decode(value)) {
            return Err(Error::new(Kind::InvalidArgument, format!("The {} is not valid.", String::from_utf8_lossy(&name))));
        }
    }
    Ok(())
}

fn push_source(needed: &mut Vec<Permission>, value: &[u8]) -> Result<()> {
    let source = CopySource::parse(value)?;
    let action = if source.version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
    let other = source.key_by_forms(value);
    for key in other.into_iter().chain([source.key]) {
        needed.push(Permission { action, bucket: Some(source.bucket.clone()), key: Some(key) });
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    None,
    Empty,
    Given,
}

/// A query, judged by its names alone.
struct Query<'a> {
    sub_resource: Cow<'a, str>,
    version: Version,
    /// `x-amz-*` parameters, folded: presigning clients put headers here.
    amz: Vec<(String, Vec<u8>)>,
    unknown: bool,
}

impl<'a> Query<'a> {
    fn parse(query: &'a str, verb: &str) -> Self {
        let mut parsed = Self { sub_resource: Cow::Borrowed(""), version: Version::None, amz: Vec::new(), unknown: false };
        let mut part_number = false;
        for (name, value) in query_pairs(query) {
            let name = match percent_encoding::percent_decode_str(name).decode_utf8() {
                Ok(name) if !name.is_empty() => name,
                _ => {
                    parsed.unknown = true;
                    continue;
                }
            };
            if name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-")) {
                parsed.amz.push((name.to_ascii_lowercase(), percent_decode(value)));
            } else if name == "versionId" {
                parsed.version = if value.is_empty() { Version::Empty } else { Version::Given };
            } else if name == "partNumber" {
                part_number = true;
            } else if name.contains(';') || value.contains(';') {
                // Old servers end a parameter here and would see another one behind it.
                parsed.unknown = true;
            } else if TABLE.iter().any(|row| row.2 == name) {
                parsed.unknown |= !parsed.sub_resource.is_empty() && parsed.sub_resource != name;
                parsed.sub_resource = name;
            } else {
                parsed.unknown |= ![OF_LISTINGS, HARMLESS].iter().any(|known| known.contains(&name.as_ref()));
            }
        }
        parsed.unknown |= part_number && !(parsed.sub_resource == "uploadId" || (verb == "GET" && parsed.sub_resource.is_empty()));
        parsed
    }
}

#[cfg(test)]
#[path = "action_tests.rs"]
mod tests;
