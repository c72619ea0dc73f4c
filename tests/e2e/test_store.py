"""What S3 promises of a store, asked with boto3 through the gateway, over the embedded store and over SeaweedFS alike.

Where SeaweedFS itself does otherwise, the test is marked for the embedded store alone, with what SeaweedFS does.
"""

import base64
import hashlib
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.clients import boto3_client
from support.gateway import BINARY, Backend, Gateway
from support.process import Process
from support.store import BOTH, Credentials, Target
from support.wire import call, object_path

STORES = BOTH
PART_BYTES = 5 << 20


@pytest.fixture
def s3(gateway: Gateway) -> Any:
    return boto3_client(gateway.s3)


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """A bucket of the test's own, empty at its start; on SeaweedFS it stays, with whatever is in it."""
    name = "store-" + hashlib.md5(request.node.name.encode()).hexdigest()[:16]
    s3.create_bucket(Bucket=name)
    return name


def refused(action: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """Status and code with which it is refused."""
    with pytest.raises(ClientError) as error:
        action(**arguments)
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def code(action: Callable[..., Any], **arguments: Any) -> str:
    return refused(action, **arguments)[1]


# Buckets


def test_buckets_come_and_go(s3: Any, bucket: str, store_kind: str) -> None:
    assert bucket in [found["Name"] for found in s3.list_buckets()["Buckets"]]
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert not s3.get_bucket_location(Bucket=bucket).get("LocationConstraint")
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    if store_kind == "embedded":  # SeaweedFS deletes what is in it, too.
        assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    assert refused(s3.head_bucket, Bucket=bucket)[0] == 404
    assert code(s3.list_objects_v2, Bucket=bucket) == "NoSuchBucket"
    if store_kind == "embedded":  # SeaweedFS makes the bucket.
        assert code(s3.put_object, Bucket=bucket, Key="k", Body=b"x") == "NoSuchBucket"


# Objects


def test_an_object_is_what_was_put(s3: Any, bucket: str) -> None:
    body = random.Random(1).randbytes(100_000)
    extras = {
        "ContentType": "image/png",
        "ContentEncoding": "gzip",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a.png"',
        "ContentLanguage": "de",
        "Metadata": {"note": "two  words, a comma"},
    }
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, **extras)
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    for found in (s3.get_object(Bucket=bucket, Key="k"), s3.head_object(Bucket=bucket, Key="k")):
        assert {name: found[name] for name in extras} == extras
        assert (found["ContentLength"], found["ETag"], found["AcceptRanges"]) == (len(body), put["ETag"], "bytes")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body
    shown = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="text/plain", ResponseCacheControl="no-store")
    assert (shown["ContentType"], shown["CacheControl"]) == ("text/plain", "no-store")
    assert code(s3.get_object, Bucket=bucket, Key="none") == "NoSuchKey"
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_object(Bucket=bucket, Key="k")
    assert refused(s3.head_object, Bucket=bucket, Key="k")[0] == 404


ODD_KEYS = [
    "a//b", "/lead", "trail/", ".", "..", "a/../b", "./x", "dir", "dir/x", "new\nline", "tab\t", "ü/é/鍵", "\U0001f600",
    "100%25", "a+b c", "<&>\"'", "?q=1#f", "k" * 1024,
]  # fmt: skip


@pytest.mark.only_on("embedded", reason="SeaweedFS folds slashes and dots, and a key is a file or a folder")
def test_keys_are_kept_byte_for_byte(gateway: Gateway, s3: Any, bucket: str) -> None:
    for key in ODD_KEYS:
        assert call(gateway.s3, "PUT", object_path(bucket, key), {}, key.encode()).status == 200, key
    for key in ODD_KEYS:
        assert call(gateway.s3, "GET", object_path(bucket, key)).body == key.encode(), key
    listed = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert listed == sorted(ODD_KEYS, key=str.encode)
    found = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in listed]})
    assert len(found["Deleted"]) == len(ODD_KEYS)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_ranges(s3: Any, bucket: str, store_kind: str) -> None:
    body = bytes(range(256))
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    spans = {"0-0": (0, 0), "5-9": (5, 9), "250-999": (250, 255), "200-": (200, 255), "-3": (253, 255)}
    for text, (first, last) in spans.items():
        answer = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={text}")
        assert answer["Body"].read() == body[first : last + 1], text
        assert answer["ContentRange"] == f"bytes {first}-{last}/256"
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert refused(s3.get_object, Bucket=bucket, Key="k", Range="bytes=256-") == (416, "InvalidRange")
    if store_kind == "embedded":  # SeaweedFS answers a HEAD with 200.
        assert refused(s3.head_object, Bucket=bucket, Key="k", Range="bytes=300-400")[0] == 416


def test_preconditions_of_reads(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    modified = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    before = modified.replace(year=modified.year - 1)
    for method in (s3.get_object, s3.head_object):
        name = {"Bucket": bucket, "Key": "k"}
        assert method(**name, IfMatch=etag)["ETag"] == etag
        assert method(**name, IfNoneMatch='"other"')["ETag"] == etag
        assert method(**name, IfModifiedSince=before)["ETag"] == etag
        assert refused(method, **name, IfMatch='"other"')[0] == 412
        assert refused(method, **name, IfUnmodifiedSince=before)[0] == 412
        assert refused(method, **name, IfNoneMatch=etag)[0] == 304
        assert refused(method, **name, IfModifiedSince=modified)[0] == 304
        # A tag goes before a date.
        assert method(**name, IfMatch=etag, IfUnmodifiedSince=before)["ETag"] == etag
        assert refused(method, **name, IfNoneMatch=etag, IfModifiedSince=before)[0] == 304


def test_writes_on_condition(s3: Any, bucket: str) -> None:
    name = {"Bucket": bucket, "Key": "k"}
    etag = s3.put_object(**name, Body=b"one", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, **name, Body=b"two", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.put_object, **name, Body=b"two", IfMatch='"other"') == (412, "PreconditionFailed")
    assert s3.get_object(**name)["Body"].read() == b"one"
    s3.put_object(**name, Body=b"two", IfMatch=etag)
    assert s3.get_object(**name)["Body"].read() == b"two"


@pytest.mark.only_on("embedded", reason="SeaweedFS answers 412, where S3 has 404")
def test_a_condition_on_an_object_that_is_not_there(s3: Any, bucket: str) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key="none", Body=b"x", IfMatch='"e"') == (404, "NoSuchKey")


def test_of_many_who_create_one_wins(s3: Any, bucket: str) -> None:
    def create(i: int) -> bool:
        try:
            s3.put_object(Bucket=bucket, Key="k", Body=b"%d" % i, IfNoneMatch="*")
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(24)))
    assert won.count(True) == 1
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"%d" % won.index(True)


def test_copies(s3: Any, bucket: str) -> None:
    source = {"Bucket": bucket, "Key": "a dir/ü+k"}
    etag = s3.put_object(**source, Body=b"body", ContentType="a/b", Metadata={"m": "1"})["ETag"]
    s3.copy_object(Bucket=bucket, Key="kept", CopySource=source)
    s3.copy_object(
        Bucket=bucket, Key="new", CopySource=source, MetadataDirective="REPLACE", ContentType="c/d", Metadata={"n": "2"}
    )
    kept, new = s3.get_object(Bucket=bucket, Key="kept"), s3.get_object(Bucket=bucket, Key="new")
    assert (kept["Body"].read(), kept["ContentType"], kept["Metadata"]) == (b"body", "a/b", {"m": "1"})
    assert kept["ETag"] == etag
    assert (new["Body"].read(), new["ContentType"], new["Metadata"]) == (b"body", "c/d", {"n": "2"})
    to = {"Bucket": bucket, "Key": "no", "CopySource": source}
    assert refused(s3.copy_object, **to, CopySourceIfMatch='"other"')[0] == 412
    assert refused(s3.copy_object, **to, CopySourceIfNoneMatch=etag)[0] == 412
    assert refused(s3.copy_object, Bucket=bucket, Key="no", CopySource={"Bucket": bucket, "Key": "none"})[0] == 404
    assert refused(s3.head_object, Bucket=bucket, Key="no")[0] == 404


ALGORITHMS = {"CRC32": "ChecksumCRC32", "CRC32C": "ChecksumCRC32C", "SHA1": "ChecksumSHA1", "SHA256": "ChecksumSHA256"}


def test_checksums_are_verified_and_kept(gateway: Gateway, s3: Any, bucket: str) -> None:
    for algorithm, member in ALGORITHMS.items():
        if algorithm == "CRC32C":  # boto3 has no code for it of its own.
            header = {"x-amz-checksum-crc32c": "yZRlqg=="}
            assert call(gateway.s3, "PUT", f"/{bucket}/{algorithm}", header, b"hello world").status == 200
        else:
            s3.put_object(Bucket=bucket, Key=algorithm, Body=b"hello world", ChecksumAlgorithm=algorithm)
        found = s3.head_object(Bucket=bucket, Key=algorithm, ChecksumMode="ENABLED")
        assert found.get(member), algorithm
    sha256 = base64.b64encode(hashlib.sha256(b"hello world").digest()).decode()
    assert s3.head_object(Bucket=bucket, Key="SHA256", ChecksumMode="ENABLED")["ChecksumSHA256"] == sha256
    assert "ChecksumSHA256" not in s3.head_object(Bucket=bucket, Key="SHA256", ChecksumMode="DISABLED")
    wrong_md5 = {"content-md5": base64.b64encode(hashlib.md5(b"other").digest()).decode()}
    answer = call(gateway.s3, "PUT", f"/{bucket}/wrong", wrong_md5, b"hello world")
    assert (answer.status, answer.xml("Code")) == (400, "BadDigest")
    assert refused(s3.head_object, Bucket=bucket, Key="wrong")[0] == 404


# Listings


# SeaweedFS has no key beside a folder of its name, and sorts a folder before what S3 sorts before its slash.
TREE = {"seaweedfs": ["a/1", "a/2/x", "a/2/y", "b/1", "c", "ü", "zz/" + "d" * 50]}
TREE["embedded"] = [*TREE["seaweedfs"], "a", "a-b", "a//", "a/2"]


@pytest.fixture
def tree(s3: Any, bucket: str, store_kind: str) -> list[str]:
    """Keys that are in the bucket, in S3's order."""
    for key in TREE[store_kind]:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return sorted(TREE[store_kind], key=str.encode)


def naive(keys: list[str], prefix: str, delimiter: str) -> list[str]:
    """What a listing has, in order: keys, and common prefixes in the place of what they fold."""
    names = []
    for key in sorted((key for key in keys if key.startswith(prefix)), key=str.encode):
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        names.append(key if at < 0 else key[: at + len(delimiter)])
    return list(dict.fromkeys(names))


def lines(page: dict[str, Any]) -> list[str]:
    """Keys and common prefixes of a page. A document has them apart; together they are in order."""
    found = [item["Key"] for item in page.get("Contents", [])]
    return sorted(found + [item["Prefix"] for item in page.get("CommonPrefixes", [])], key=str.encode)


FOLDS = [("", ""), ("", "/"), ("a", "/"), ("a/", "/"), ("a/2/", "/"), ("x", "")]


@pytest.mark.parametrize(("prefix", "delimiter"), FOLDS)
def test_listings_are_ordered_folded_and_paged(
    s3: Any, bucket: str, tree: list[str], prefix: str, delimiter: str
) -> None:
    expected = naive(tree, prefix, delimiter)
    for size in (1, 2, 1000):
        for name in ("list_objects_v2", "list_objects"):
            pages = list(
                s3.get_paginator(name).paginate(
                    Bucket=bucket, Prefix=prefix, Delimiter=delimiter, PaginationConfig={"PageSize": size}
                )
            )
            assert [line for page in pages for line in lines(page)] == expected, (name, size)
            assert all(len(lines(page)) <= size for page in pages)
            assert [page["IsTruncated"] for page in pages] == [True] * (len(pages) - 1) + [False]


def test_a_listing_starts_where_it_is_told(s3: Any, bucket: str, tree: list[str]) -> None:
    for start in ("a/1", "a/3", "bb", "zzz"):
        behind = [key for key in tree if key.encode() > start.encode()]
        assert lines(s3.list_objects_v2(Bucket=bucket, StartAfter=start)) == behind, start
        assert lines(s3.list_objects(Bucket=bucket, Marker=start)) == behind, start
    first = s3.list_objects_v2(Bucket=bucket, MaxKeys=1, FetchOwner=True)["Contents"][0]
    assert first["Owner"]["ID"] and first["Size"] == len(first["Key"]) and first["ETag"].startswith('"')
    none = s3.list_objects_v2(Bucket=bucket, MaxKeys=0)
    assert (lines(none), none["IsTruncated"]) == ([], False)


def test_many_are_deleted_at_once(s3: Any, bucket: str, tree: list[str]) -> None:
    objects = [{"Key": key} for key in ("a/1", "b/1", "never")]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    assert sorted(item["Key"] for item in answer["Deleted"]) == ["a/1", "b/1", "never"]
    quiet = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "c"}], "Quiet": True})
    assert not quiet.get("Deleted") and "Errors" not in quiet
    left = [key for key in tree if key not in ("a/1", "b/1", "c")]
    assert lines(s3.list_objects_v2(Bucket=bucket)) == left


# Uploads in parts


def test_an_upload_in_parts(s3: Any, bucket: str) -> None:
    name = {"Bucket": bucket, "Key": "big"}
    bodies = [random.Random(i).randbytes(PART_BYTES) for i in range(2)] + [b"the end"]
    upload = s3.create_multipart_upload(**name, ContentType="a/b", Metadata={"m": "1"})["UploadId"]
    parts = []
    for number, body in reversed(list(enumerate(bodies, 1))):
        put = s3.upload_part(**name, UploadId=upload, PartNumber=number, Body=body)
        assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
        parts.insert(0, {"PartNumber": number, "ETag": put["ETag"]})
    listed = s3.list_parts(**name, UploadId=upload)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(i, len(b)) for i, b in enumerate(bodies, 1)]
    assert [found["Key"] for found in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["big"]
    assert refused(s3.head_object, **name)[0] == 404
    done = s3.complete_multipart_upload(**name, UploadId=upload, MultipartUpload={"Parts": parts})
    digests = b"".join(hashlib.md5(body).digest() for body in bodies)
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-3"'
    whole = b"".join(bodies)
    found = s3.get_object(**name)
    assert (found["Body"].read(), found["ContentType"], found["Metadata"]) == (whole, "a/b", {"m": "1"})
    across = f"bytes={PART_BYTES - 3}-{PART_BYTES + 2}"
    assert s3.get_object(**name, Range=across)["Body"].read() == whole[PART_BYTES - 3 : PART_BYTES + 3]
    part = s3.get_object(**name, PartNumber=3)
    assert (part["Body"].read(), part["PartsCount"]) == (b"the end", 3)
    assert code(s3.list_parts, **name, UploadId=upload) == "NoSuchUpload"


def test_parts_that_make_no_object(s3: Any, bucket: str) -> None:
    name = {"Bucket": bucket, "Key": "big"}
    upload = s3.create_multipart_upload(**name)["UploadId"]
    etags = [s3.upload_part(**name, UploadId=upload, PartNumber=i, Body=b"small")["ETag"] for i in (1, 2)]

    def completed(*parts: tuple[int, str]) -> str:
        listed = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
        return code(s3.complete_multipart_upload, **name, UploadId=upload, MultipartUpload={"Parts": listed})

    assert completed((1, etags[0]), (2, etags[1])) == "EntityTooSmall"
    assert completed((2, etags[1]), (1, etags[0])) == "InvalidPartOrder"
    assert completed((1, '"00000000000000000000000000000000"')) == "InvalidPart"
    assert completed((3, etags[0])) == "InvalidPart"
    s3.abort_multipart_upload(**name, UploadId=upload)
    assert code(s3.upload_part, **name, UploadId=upload, PartNumber=1, Body=b"x") == "NoSuchUpload"
    assert refused(s3.head_object, **name)[0] == 404


def test_parts_are_copied_from_objects(s3: Any, bucket: str) -> None:
    body = random.Random(3).randbytes(PART_BYTES + 100)
    s3.put_object(Bucket=bucket, Key="source", Body=body)
    name = {"Bucket": bucket, "Key": "copied"}
    upload = s3.create_multipart_upload(**name)["UploadId"]
    parts = []
    for number, (first, last) in enumerate([(100, PART_BYTES + 99), (0, 99)], 1):
        copy = s3.upload_part_copy(
            **name,
            UploadId=upload,
            PartNumber=number,
            CopySource={"Bucket": bucket, "Key": "source"},
            CopySourceRange=f"bytes={first}-{last}",
        )
        parts.append({"PartNumber": number, "ETag": copy["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(**name, UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(**name)["Body"].read() == body[100:] + body[:100]


@pytest.mark.only_on("embedded", reason="SeaweedFS answers a part of nothing with the whole")
def test_what_came_in_parts_is_read_and_completed_once_more(s3: Any, bucket: str) -> None:
    name = {"Bucket": bucket, "Key": "big"}
    upload = {**name, "UploadId": s3.create_multipart_upload(**name)["UploadId"]}
    bodies = [random.Random(4).randbytes(PART_BYTES), b""]
    etags = [s3.upload_part(**upload, PartNumber=i, Body=body)["ETag"] for i, body in enumerate(bodies, 1)]
    parts = {"Parts": [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(etags, 1)]}
    done = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    again = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert again["ETag"] == done["ETag"]
    for number, body in enumerate(bodies, 1):
        part = s3.get_object(**name, PartNumber=number)
        assert (part["Body"].read(), part["PartsCount"]) == (body, 2)
    # A part that is copied may cross those that its source came in.
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=name)
    second = {**name, "UploadId": s3.create_multipart_upload(**name)["UploadId"]}
    copied = s3.upload_part_copy(**second, PartNumber=1, CopySource={"Bucket": bucket, "Key": "copy"})
    assert copied["CopyPartResult"]["ETag"] == f'"{hashlib.md5(bodies[0]).hexdigest()}"'
    assert code(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts["Parts"][:1]}) == "NoSuchUpload"


# What only the embedded store is


@pytest.mark.only_on("embedded", reason="SeaweedFS does all of these")
def test_what_is_not_done_is_refused_by_name(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for name, arguments in {
        "GetBucketAcl": {},
        "GetBucketTagging": {},
        "GetBucketPolicy": {},
        "GetObjectTagging": {"Key": "k"},
        "GetObjectAttributes": {"Key": "k", "ObjectAttributes": ["ETag"]},
    }.items():
        method = getattr(s3, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
        with pytest.raises(ClientError, match=name) as error:
            method(Bucket=bucket, **arguments)
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501, name
    assert refused(s3.put_object, Bucket=bucket, Key="t", Body=b"x", Tagging="a=b") == (501, "NotImplemented")
    assert refused(s3.head_object, Bucket=bucket, Key="t")[0] == 404
    name = {"Bucket": bucket, "Key": "k"}
    upload = {**name, "UploadId": s3.create_multipart_upload(**name)["UploadId"]}
    secret = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}
    assert code(s3.upload_part, **upload, PartNumber=1, Body=b"x", **secret) == "NotImplemented"
    assert code(s3.get_object, **name, ExpectedBucketOwner="111122223333") == "AccessDenied"


@pytest.mark.only_on("embedded", reason="a store on disk has no such bound")
def test_a_full_store_says_so_and_recovers(start_gateway: Callable[..., Gateway]) -> None:
    small = start_gateway([Backend("tiny", "*", None, 'memory_bytes_max = "1MiB"')], name="tiny")
    s3 = boto3_client(small.s3)
    s3.create_bucket(Bucket="tiny")
    s3.put_object(Bucket="tiny", Key="a", Body=bytes(600_000))
    with pytest.raises(ClientError, match="memory_bytes_max") as error:
        s3.put_object(Bucket="tiny", Key="b", Body=bytes(600_000))
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 507
    assert error.value.response["ResponseMetadata"]["RetryAttempts"] == 0, "trying again would not help"
    assert 600_000 < small.metric("batchgate_backend_stored_bytes") <= 1 << 20
    assert small.metric("batchgate_backend_stored_max_bytes") == 1 << 20
    s3.delete_object(Bucket="tiny", Key="a")
    s3.put_object(Bucket="tiny", Key="b", Body=bytes(600_000))
    s3.delete_object(Bucket="tiny", Key="b")
    s3.delete_bucket(Bucket="tiny")
    assert small.metric("batchgate_backend_stored_bytes") == 0
    assert "in memory" in small.process.stderr() and "lost" in small.process.stdout()
    assert "in memory" in small.admin_get("/readyz")[1]
    assert small.stop() == 0


@pytest.fixture
def bare(start_gateway: Callable[..., Gateway], tmp_path: Path) -> Iterator[Process]:
    """`serve` with no settings at all, but for its ports."""
    ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    process = Process("bare", [str(BINARY), "serve", *ports], tmp_path, {"HOME": str(tmp_path)})
    process.wait_until_ready(lambda: "listening admin" in process.stdout(), 10)
    yield process
    assert process.stop(10) == 0, process.stderr()[-2000:]


@pytest.mark.only_on("embedded", reason="it is what serves without settings")
def test_serve_without_settings(bare: Process, store: Target) -> None:
    said = bare.stdout()
    assert re.search(r"^backend \S+: .*in memory.*lost", said, re.M), said
    pair = re.search(r"^identity access_key=(\S+) secret_key=(\S+)$", said, re.M)
    endpoint = re.search(r"^listening s3 (\S+)$", said, re.M)
    assert pair and endpoint, said
    s3 = boto3_client(Target(endpoint[1], Credentials(pair[1], pair[2])))
    s3.create_bucket(Bucket="first")
    s3.put_object(Bucket="first", Key="k", Body=b"x")
    assert s3.get_object(Bucket="first", Key="k")["Body"].read() == b"x"
    assert endpoint[1] != store.endpoint
