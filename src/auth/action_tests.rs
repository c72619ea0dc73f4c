//! The table of actions: an operation of each kind, and what must not slip through it.

use http::{HeaderName, HeaderValue};

use super::*;
use crate::error::Kind;

fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Vec<Permission>> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let target = S3Target {
        bucket: Some(bucket.to_owned()).filter(|b| !b.is_empty()),
        key: Some(percent_decode(key)).filter(|k| !k.is_empty()),
        raw_key: key.to_owned(),
        ..S3Target::default()
    };
    let headers = headers
        .iter()
        .map(|(n, v)| (HeaderName::from_bytes(n.as_bytes()).expect("name"), HeaderValue::from_str(v).expect("value")))
        .collect();
    permissions(&method.parse().expect("method"), &target, query, &headers)
}

fn actions(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<&'static str> {
    ask(method, path, headers).expect("valid").into_iter().map(|p| p.action).collect()
}

#[test]
fn every_representative_operation_has_its_action() {
    let cases = [
        ("GET", "/", "s3:ListAllMyBuckets"),
        ("GET", "/?max-buckets=5&x-id=ListBuckets", "s3:ListAllMyBuckets"),
        ("GET", "/b", "s3:ListBucket"),
        ("GET", "/b?list-type=2&prefix=a%2F&delimiter=%2F&max-keys=3&encoding-type=url&fetch-owner=true", "s3:ListBucket"),
        ("HEAD", "/b", "s3:ListBucket"),
        ("PUT", "/b", "s3:CreateBucket"),
        ("DELETE", "/b", "s3:DeleteBucket"),
        ("POST", "/b?delete", DELETE_OBJECTS),
        ("POST", "/b?delete=", DELETE_OBJECTS),
        ("GET", "/b?versions&key-marker=a&version-id-marker=b", "s3:ListBucketVersions"),
        ("GET", "/b?uploads&upload-id-marker=x", "s3:ListBucketMultipartUploads"),
        ("GET", "/b?location", "s3:GetBucketLocation"),
        ("GET", "/b?session", "s3express:CreateSession"),
        ("GET", "/b?acl", "s3:GetBucketAcl"),
        ("PUT", "/b?acl", "s3:PutBucketAcl"),
        ("GET", "/b?accelerate", "s3:GetAccelerateConfiguration"),
        ("PUT", "/b?analytics&id=x", "s3:PutAnalyticsConfiguration"),
        ("GET", "/b?cors", "s3:GetBucketCORS"),
        ("DELETE", "/b?cors", "s3:PutBucketCORS"),
        ("PUT", "/b?encryption", "s3:PutEncryptionConfiguration"),
        ("DELETE", "/b?intelligent-tiering&id=x", "s3:PutIntelligentTieringConfiguration"),
        ("GET", "/b?inventory&id=x", "s3:GetInventoryConfiguration"),
        ("PUT", "/b?lifecycle", "s3:PutLifecycleConfiguration"),
        ("GET", "/b?logging", "s3:GetBucketLogging"),
        ("POST", "/b?metadataTable", "s3:CreateBucketMetadataTableConfiguration"),
        ("PUT", "/b?metadataInventoryTable", "s3:UpdateBucketMetadataInventoryTableConfiguration"),
        ("GET", "/b?metrics&id=x", "s3:GetMetricsConfiguration"),
        ("PUT", "/b?notification", "s3:PutBucketNotification"),
        ("PUT", "/b?object-lock", "s3:PutBucketObjectLockConfiguration"),
        ("DELETE", "/b?ownershipControls", "s3:PutBucketOwnershipControls"),
        ("GET", "/b?policy", "s3:GetBucketPolicy"),
        ("DELETE", "/b?policy", "s3:DeleteBucketPolicy"),
        ("GET", "/b?policyStatus", "s3:GetBucketPolicyStatus"),
        ("PUT", "/b?publicAccessBlock", "s3:PutBucketPublicAccessBlock"),
        ("GET", "/b?replication", "s3:GetReplicationConfiguration"),
        ("GET", "/b?requestPayment", "s3:GetBucketRequestPayment"),
        ("DELETE", "/b?tagging", "s3:PutBucketTagging"),
        ("PUT", "/b?versioning", "s3:PutBucketVersioning"),
        ("DELETE", "/b?website", "s3:DeleteBucketWebsite"),
        ("GET", "/b/k", "s3:GetObject"),
        ("GET", "/b/k?partNumber=2&response-content-type=a%2Fb&x-id=GetObject", "s3:GetObject"),
        ("HEAD", "/b/k", "s3:GetObject"),
        ("GET", "/b/k?versionId=v", "s3:GetObjectVersion"),
        ("HEAD", "/b/k?versionId=v", "s3:GetObjectVersion"),
        ("PUT", "/b/k", "s3:PutObject"),
        ("DELETE", "/b/k", "s3:DeleteObject"),
        ("DELETE", "/b/k?versionId=null", "s3:DeleteObjectVersion"),
        ("GET", "/b/k?acl", "s3:GetObjectAcl"),
        ("PUT", "/b/k?acl&versionId=v", "s3:PutObjectVersionAcl"),
        ("GET", "/b/k?legal-hold", "s3:GetObjectLegalHold"),
        ("PUT", "/b/k?retention&versionId=v", "s3:PutObjectRetention"),
        ("POST", "/b/k?restore&versionId=v", "s3:RestoreObject"),
        ("POST", "/b/k?select&select-type=2", "s3:GetObject"),
        ("GET", "/b/k?tagging&versionId=v", "s3:GetObjectVersionTagging"),
        ("DELETE", "/b/k?tagging", "s3:DeleteObjectTagging"),
        ("GET", "/b/k?torrent", "s3:GetObjectTorrent"),
        ("POST", "/b/k?uploads", "s3:PutObject"),
        ("PUT", "/b/k?partNumber=1&uploadId=u", "s3:PutObject"),
        ("GET", "/b/k?uploadId=u&max-parts=3&part-number-marker=2", "s3:ListMultipartUploadParts"),
        ("POST", "/b/k?uploadId=u", "s3:PutObject"),
        ("DELETE", "/b/k?uploadId=u", "s3:AbortMultipartUpload"),
        ("GET", "/b/k?X-Amz-Algorithm=x&X-Amz-SignedHeaders=host;range&X-Amz-Signature=y", "s3:GetObject"),
        ("GET", "/b/k?%61cl", "s3:GetObjectAcl"),
    ];
    for (method, path, action) in cases {
        assert_eq!(actions(method, path, &[]), [action], "{method} {path}");
    }
}

#[test]
fn what_cannot_be_named_needs_every_action() {
    let cases = [
        ("PUT", "/b/k?renameObject"),
        ("GET", "/b/k?frobnicate"),
        ("GET", "/b?events=s3:*"),
        ("GET", "/b/k?ACL"),
        ("GET", "/b/k?acl&tagging"),
        ("GET", "/b/k?=x"),
        ("GET", "/b/k?%ff"),
        ("GET", "/b?prefix=a;acl"),
        ("PUT", "/b/k?versionId=v"),
        ("PUT", "/b/k?versionId="),
        ("PUT", "/b/k?partNumber=1"),
        ("GET", "/b/k?acl&partNumber=1"),
        ("GET", "/b?versionId=v"),
        ("GET", "/b/k?versions"),
        ("POST", "/b/k"),
        ("POST", "/b"),
        ("PUT", "/"),
        ("DELETE", "/b?versions"),
        ("PATCH", "/b/k"),
        ("OPTIONS", "/b/k"),
        ("GET", "/b?batch-get"),
    ];
    for (method, path) in cases {
        assert_eq!(actions(method, path, &[]), [EVERY_ACTION], "{method} {path}");
    }
}

#[test]
fn headers_that_do_more_need_more() {
    let all = [
        ("x-amz-acl", "public-read"),
        ("x-amz-grant-read", "id=x"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z"),
        ("x-amz-object-lock-legal-hold", "ON"),
        ("x-amz-bypass-governance-retention", "true"),
    ];
    let expected = [
        "s3:PutObject",
        "s3:PutObjectAcl",
        "s3:PutObjectLegalHold",
        "s3:PutObjectRetention",
        "s3:PutObjectTagging",
        "s3:BypassGovernanceRetention",
    ];
    assert_eq!(actions("PUT", "/b/k", &all), expected);
    assert_eq!(actions("POST", "/b/k?uploads", &all), expected);
    assert_eq!(actions("PUT", "/b/k", &[("x-amz-tagging-directive", "REPLACE"), ("x-amz-meta-a", "b")]), ["s3:PutObject"]);
    assert_eq!(
        actions("PUT", "/b/k?x-amz-acl=public-read&X-Amz-Tagging=a", &[]),
        ["s3:PutObject", "s3:PutObjectAcl", "s3:PutObjectTagging"]
    );
    assert_eq!(actions("PUT", "/b", &[("x-amz-acl", "private")]), ["s3:CreateBucket", "s3:PutBucketAcl"]);
    assert_eq!(actions("PUT", "/b/k?acl", &[("x-amz-acl", "private")]), ["s3:PutObjectAcl"]);
    assert_eq!(
        actions("DELETE", "/b/k?versionId=v", &[("x-amz-bypass-governance-retention", "true")]),
        ["s3:DeleteObjectVersion", "s3:BypassGovernanceRetention"]
    );
    assert_eq!(actions("POST", "/b?delete", &[("x-amz-bypass-governance-retention", "true")]), [DELETE_OBJECTS]);
    assert_eq!(actions("GET", "/b/k?attributes", &[]), ["s3:GetObjectAttributes", "s3:GetObject"]);
    assert_eq!(actions("GET", "/b/k?attributes&versionId=v", &[]), ["s3:GetObjectVersionAttributes", "s3:GetObjectVersion"]);
    assert_eq!(actions("DELETE", "/b/k?versionId=", &[]), ["s3:DeleteObject", "s3:DeleteObjectVersion"]);
}

#[test]
fn a_copy_reads_its_source() {
    let source = |value: &str| ask("PUT", "/b/k", &[("x-amz-copy-source", value)]);
    let on = |action, bucket: &str, key: &str| Permission { action, bucket: Some(bucket.into()), key: Some(key.into()) };
    assert_eq!(source("/src/a%2Fb").expect("valid"), [on("s3:PutObject", "b", "k"), on("s3:GetObject", "src", "a/b")]);
    assert_eq!(source("src/a?versionId=v").expect("valid")[1], on("s3:GetObjectVersion", "src", "a"));
    assert_eq!(source("src/a+b").expect("valid")[1..], [on("s3:GetObject", "src", "a b"), on("s3:GetObject", "src", "a+b")]);
    assert_eq!(source("src").expect_err("no key").kind, Kind::InvalidArgument);
    let part = ask("PUT", "/b/k?uploadId=u&partNumber=1&X-Amz-Copy-Source=src%2Fa%252Fb", &[]).expect("valid");
    assert_eq!(part[1], on("s3:GetObject", "src", "a/b"));
    assert_eq!(ask("GET", "/b/k", &[("x-amz-copy-source", "src/a")]).expect("valid").len(), 2);
}

#[test]
fn permissions_carry_the_decoded_key() {
    let needed = ask("GET", "/b/100%2525%20", &[]).expect("valid");
    assert_eq!(needed, [Permission { action: "s3:GetObject", bucket: Some("b".into()), key: Some(b"100%25 ".to_vec()) }]);
    assert_eq!(ask("GET", "/b?acl", &[]).expect("valid")[0].resource(), Resource { bucket: Some("b"), key: None });
}

#[test]
fn trap_a_version_and_an_upload_are_no_paths() {
    for query in ["", "versionId=v", "versionId=null", "uploadId=2~a.b_c-..d/e+f%3D%3D", "versionId=", "prefix=../x"] {
        check_ids(query).expect(query);
    }
    for query in ["uploadId=..%2F..%2Fother", "a&versionId=..", "%75ploadId=x/../y", "versionId=..%5Cx", "partNumber=1&uploadId=."]
    {
        assert_eq!(check_ids(query).expect_err(query).kind, Kind::InvalidArgument, "{query}");
    }
}
