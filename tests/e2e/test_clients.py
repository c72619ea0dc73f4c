"""A stock client's day, each client at its defaults, and what the store holds afterwards.

Every byte that came through the client is compared, and the object is fetched from the store directly as well, so that
chunk framing or a mangled key cannot hide behind a gateway that undoes what it did.
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import clients
from support.gateway import Gateway
from support.store import BOTH, Target
from support.wire import Request, aws_chunked, call, object_path, send, sign

STORES = BOTH
LARGE_BYTES = 64 << 20
SMALL_KEYS = ["top.bin", "dir/a.bin", "dir/b.bin", "dir/ü+ñ %.bin", "dir/sub/e.bin"]


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.bin"
    path.write_bytes(random.Random(1).randbytes(LARGE_BYTES))
    return path


@pytest.fixture(params=clients.ALL, ids=lambda kind: kind.__name__.lower())
def client(request: pytest.FixtureRequest, client_target: Target, tmp_path: Path) -> Any:
    """One of the stock clients; which methods it has is its own affair."""
    return request.param(client_target, tmp_path)


def assert_stored(store: Target, bucket: str, key: str, body: bytes) -> None:
    """The store itself holds exactly these bytes, with no framing and no coding of the transfer."""
    answer = call(store, "GET", object_path(bucket, key))
    assert answer.status == 200, answer
    assert answer.body == body
    assert "aws-chunked" not in (answer.get("content-encoding") or "")


# The AWS CLI takes a second or more to start, on a busy machine many.
@pytest.mark.timeout(400)
def test_a_clients_day(client: Any, store: Target, tmp_path: Path, large_file: Path) -> None:
    name = type(client).__name__.lower()
    bucket = f"day-of-{name}"
    client.make_bucket(bucket)
    assert call(store, "HEAD", f"/{bucket}").status == 200

    bodies = {key: random.Random(key).randbytes(1000 + len(key)) for key in SMALL_KEYS}
    for key, body in bodies.items():
        source = tmp_path / "source"
        source.write_bytes(body)
        client.put(bucket, key, source)
        assert_stored(store, bucket, key, body)
    for key in ("top.bin", "dir/ü+ñ %.bin"):
        assert client.get(bucket, key) == bodies[key]
    assert client.size(bucket, "top.bin") == len(bodies["top.bin"])
    if client.supports("get_range"):
        assert client.get_range(bucket, "top.bin", 10, 99) == bodies["top.bin"][10:100]

    under_dir = sorted(key for key in SMALL_KEYS if key.startswith("dir/"))
    folded = sorted([key for key in under_dir if "sub" not in key] + ["dir/sub/"])
    assert client.list_keys(bucket, "dir/") == under_dir
    assert [without_folder(key) for key in client.list_keys(bucket, "dir/", "/")] == [without_folder(k) for k in folded]

    client.copy(bucket, "top.bin", "copied.bin")
    assert_stored(store, bucket, "copied.bin", bodies["top.bin"])
    client.delete(bucket, "copied.bin")
    assert call(store, "HEAD", object_path(bucket, "copied.bin")).status == 404
    client.delete_many(bucket, "dir/")
    assert [call(store, "HEAD", object_path(bucket, key)).status for key in under_dir] == [404] * len(under_dir)
    assert client.list_keys(bucket) == ["top.bin"]

    if client.supports("presigned_put"):
        client.presigned_put(bucket, "pre signed.bin", b"presigned")
        assert_stored(store, bucket, "pre signed.bin", b"presigned")
        assert client.presigned_get(bucket, "pre signed.bin") == b"presigned"

    content = large_file.read_bytes()
    client.put_large(bucket, "large.bin", large_file)
    assert_stored(store, bucket, "large.bin", content)
    etag = call(store, "HEAD", f"/{bucket}/large.bin").get("etag") or ""
    assert "-" in etag, f"not a multipart upload: {etag}"
    assert client.get(bucket, "large.bin") == content


@pytest.mark.only_on("seaweedfs", reason="it takes seconds, and asks nothing of a store that a day does not")
def test_a_backup_is_restored(client_target: Target, store: Target, tmp_path: Path) -> None:
    """restic (minio-go) with its repository behind the gateway: made, written twice, proved, pruned and restored."""
    bucket = "backups"
    restic = clients.Restic(client_target, tmp_path, bucket)
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for number in range(20):
        (source / "sub" / f"{number} ü.bin").write_bytes(random.Random(number).randbytes(100_000 * number))
    restic.restic("init")
    restic.restic("backup", str(source))
    (source / "sub" / "3 ü.bin").unlink()
    (source / "new.bin").write_bytes(random.Random(99).randbytes(3_000_000))
    restic.restic("backup", str(source))
    restic.restic("forget", "--keep-last", "1", "--prune")
    restic.restic("check", "--read-data")
    restic.restic("restore", "latest", "--target", str(tmp_path / "restored"))
    restored = tmp_path / "restored" / source.relative_to("/")
    assert files_of(restored) == files_of(source)
    left = clients.boto3_client(store).list_objects_v2(Bucket=bucket)["Contents"]
    kinds = {item["Key"].split("/")[1] for item in left}
    assert kinds == {"config", "data", "index", "keys", "snapshots"}, "no lock is left behind"
    assert len([item for item in left if "/snapshots/" in item["Key"]]) == 1


def test_a_client_of_another_region_is_told_which_to_sign_for(gateway: Gateway, tmp_path: Path) -> None:
    """boto3 signs anew for the region that it is told, by HEAD too, with which every download begins."""
    clients.boto3_client(gateway.s3).create_bucket(Bucket="elsewhere")
    away = clients.boto3_client(replace(gateway.s3, region="eu-north-1"))
    away.put_object(Bucket="elsewhere", Key="key", Body=b"body")
    assert clients.boto3_client(replace(gateway.s3, region="eu-north-1")).head_object(Bucket="elsewhere", Key="key")
    clients.boto3_client(replace(gateway.s3, region="eu-north-1")).download_file(
        "elsewhere", "key", str(tmp_path / "got")
    )
    assert (tmp_path / "got").read_bytes() == b"body"
    for bucket in ("elsewhere", "nowhere"):
        unsigned = send(gateway.s3, Request("HEAD", f"/{bucket}", [("Host", "localhost")]))
        assert (unsigned.status, unsigned.get("x-amz-bucket-region")) == (403, gateway.s3.region)


def without_folder(key: str) -> str:
    """s5cmd names listed items relative to the folder, the others by their whole key."""
    return key.removeprefix("dir/")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CHECKSUM = {"x-amz-checksum-crc32": "NSRBwg=="}


@pytest.mark.parametrize("coding", [None, "aws-chunked", "gzip,aws-chunked"])
def test_unsigned_trailer_upload_stores_the_decoded_bytes(
    client_target: Target, store: Target, store_kind: str, coding: str | None
) -> None:
    """What SDKs send by default over TLS: unsigned chunks and a checksum trailer."""
    call(store, "PUT", "/trailer-uploads")
    headers = {"x-amz-decoded-content-length": "3", "x-amz-trailer": "x-amz-checksum-crc32"}
    if coding:
        headers["Content-Encoding"] = coding
    body = aws_chunked([b"a", b"bc"], CHECKSUM)
    request = sign(client_target, "PUT", "/trailer-uploads/k", headers, body, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    answer = send(client_target, request)
    assert answer.status == 200, answer
    stored = call(store, "GET", "/trailer-uploads/k", {"x-amz-checksum-mode": "ENABLED"})
    assert stored.body == b"abc"
    assert stored.get("x-amz-checksum-crc32") == CHECKSUM["x-amz-checksum-crc32"]
    if client_target != store or store_kind == "embedded":  # SeaweedFS itself keeps aws-chunked.
        assert stored.get("content-encoding") == ("gzip" if coding and "gzip" in coding else None)
