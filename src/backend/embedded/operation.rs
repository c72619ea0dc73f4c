//! Which operation of S3 a request asks for: method, level and query enter, its name leaves. What the store does not do still
//! has a name, for the refusal. Pure.
//! Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html>.

use http::{HeaderMap, Method};

use super::get::parameter;

/// The operations that the store does, each by the name that S3 gives it, and the names of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    AbortMultipartUpload,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    DeleteObjects,
    GetBucketLocation,
    GetBucketVersioning,
    GetObject,
    HeadBucket,
    ListBuckets,
    ListMultipartUploads,
    ListObjectVersions,
    ListObjects,
    ListObjectsV2,
    ListParts,
    PutObject,
    UploadPart,
    UploadPartCopy,
    /// One that the store does not do.
    Other(String),
    /// The method has no operation there.
    NoMethod,
}
use Operation::*;

/// Sub-resources that the store does not have, and what S3 calls them behind the verb and the level.
const ELSEWHERE: &[(&str, &str)] = &[
    ("abac", "Abac"),
    ("accelerate", "AccelerateConfiguration"),
    ("acl", "Acl"),
    ("analytics", "AnalyticsConfiguration"),
    ("attributes", "Attributes"),
    ("cors", "Cors"),
    ("encryption", "Encryption"),
    ("intelligent-tiering", "IntelligentTieringConfiguration"),
    ("inventory", "InventoryConfiguration"),
    ("legal-hold", "LegalHold"),
    ("lifecycle", "LifecycleConfiguration"),
    ("logging", "Logging"),
    ("metadataConfiguration", "MetadataConfiguration"),
    ("metadataTable", "MetadataTableConfiguration"),
    ("metrics", "MetricsConfiguration"),
    ("notification", "NotificationConfiguration"),
    ("object-lock", "ObjectLockConfiguration"),
    ("ownershipControls", "OwnershipControls"),
    ("policy", "Policy"),
    ("policyStatus", "PolicyStatus"),
    ("publicAccessBlock", "PublicAccessBlock"),
    ("renameObject", "Rename"),
    ("replication", "Replication"),
    ("requestPayment", "RequestPayment"),
    ("restore", "Restore"),
    ("retention", "Retention"),
    ("select", "SelectContent"),
    ("session", "Session"),
    ("tagging", "Tagging"),
    ("torrent", "Torrent"),
    ("versioning", "Versioning"),
    ("website", "Website"),
];

/// How much of bucket and key a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Service,
    Bucket,
    Object,
}

/// The operation of a request.
pub fn operation(method: &Method, level: Level, query: &[(String, String)], headers: &HeaderMap) -> Operation {
    let has = |name: &str| parameter(query, name).is_some();
    let copies = headers.contains_key("x-amz-copy-source");
    let known = match (level, method.as_str()) {
        (Level::Service, "GET") => Some(ListBuckets),
        (Level::Bucket, "GET") if has("location") => Some(GetBucketLocation),
        (Level::Bucket, "GET") if has("versioning") => Some(GetBucketVersioning),
        (Level::Bucket, "GET") if has("uploads") => Some(ListMultipartUploads),
        (Level::Bucket, "GET") if has("versions") => Some(ListObjectVersions),
        (Level::Bucket, "POST") if has("delete") => Some(DeleteObjects),
        (Level::Object, "GET") if has("uploadId") => Some(ListParts),
        (Level::Object, "PUT") if has("uploadId") && copies => Some(UploadPartCopy),
        (Level::Object, "PUT") if has("uploadId") => Some(UploadPart),
        (Level::Object, "POST") if has("uploads") => Some(CreateMultipartUpload),
        (Level::Object, "POST") if has("uploadId") => Some(CompleteMultipartUpload),
        (Level::Object, "DELETE") if has("uploadId") => Some(AbortMultipartUpload),
        _ => None,
    };
    let elsewhere = || ELSEWHERE.iter().find(|(name, _)| has(name)).map(|(_, what)| Other(named(method, level, what)));
    known.or_else(elsewhere).unwrap_or_else(|| match (level, method.as_str()) {
        (Level::Bucket, "GET") if parameter(query, "list-type") == Some("2") => ListObjectsV2,
        (Level::Bucket, "GET") => ListObjects,
        (Level::Bucket, "HEAD") => HeadBucket,
        (Level::Bucket, "PUT") => CreateBucket,
        (Level::Bucket, "DELETE") => DeleteBucket,
        (Level::Bucket, "POST") => Other("PostObject".into()),
        (Level::Object, "GET" | "HEAD") => GetObject,
        (Level::Object, "PUT") if copies => CopyObject,
        (Level::Object, "PUT") => PutObject,
        (Level::Object, "DELETE") => DeleteObject,
        _ => NoMethod,
    })
}

fn named(method: &Method, level: Level, what: &str) -> String {
    let verb = match method.as_str() {
        "GET" | "HEAD" => "Get",
        "PUT" => "Put",
        "DELETE" => "Delete",
        _ => "Post",
    };
    match (what, level) {
        ("SelectContent", _) => "SelectObjectContent".into(),
        ("Restore" | "Rename", _) => format!("{what}Object"),
        ("Session", _) => "CreateSession".into(),
        // S3 has these without a level.
        ("ObjectLockConfiguration" | "PublicAccessBlock", Level::Bucket) => format!("{verb}{what}"),
        (_, Level::Object) => format!("{verb}Object{what}"),
        (_, Level::Service | Level::Bucket) => format!("{verb}Bucket{what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, level: Level, query: &[(&str, &str)]) -> Operation {
        let query: Vec<_> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        operation(&method.parse().expect("a method"), level, &query, &HeaderMap::new())
    }

    #[test]
    fn what_the_store_does_is_found_by_method_level_and_query() {
        assert_eq!(read("GET", Level::Service, &[]), ListBuckets);
        assert_eq!(read("GET", Level::Bucket, &[("list-type", "2")]), ListObjectsV2);
        assert_eq!(read("GET", Level::Bucket, &[("prefix", "x")]), ListObjects);
        assert_eq!(read("HEAD", Level::Object, &[("x-id", "HeadObject")]), GetObject);
        assert_eq!(read("PUT", Level::Object, &[("uploadId", "u"), ("partNumber", "1")]), UploadPart);
        assert_eq!(read("POST", Level::Object, &[]), NoMethod);
    }

    #[test]
    fn what_it_does_not_do_has_the_name_of_s3() {
        let other = |name: &str| Other(name.to_owned());
        assert_eq!(read("GET", Level::Bucket, &[("acl", "")]), other("GetBucketAcl"));
        assert_eq!(read("PUT", Level::Object, &[("tagging", "")]), other("PutObjectTagging"));
        assert_eq!(read("PUT", Level::Bucket, &[("versioning", "")]), other("PutBucketVersioning"));
        assert_eq!(read("GET", Level::Bucket, &[("object-lock", "")]), other("GetObjectLockConfiguration"));
        assert_eq!(read("POST", Level::Object, &[("select", ""), ("select-type", "2")]), other("SelectObjectContent"));
        assert_eq!(read("POST", Level::Bucket, &[]), other("PostObject"));
        // A sub-resource must never be taken for the object itself.
        assert_eq!(read("DELETE", Level::Object, &[("tagging", "")]), other("DeleteObjectTagging"));
    }
}
