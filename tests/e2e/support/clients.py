"""Stock S3 clients behind one small interface, each left at its defaults.

A method that a client has no command for is missing; `supports` says so. Files come and go through a work folder.
"""

import json
import os
import subprocess
import sys
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import obstore
from botocore.config import Config
from minio import Minio
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject
from obstore.store import S3Store

from support.store import Target
from support.wire import call

BIN = Path(sys.executable).parent


class Client:
    """What every client can do. `list_keys` with a delimiter gives common prefixes too."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self.folder = folder

    def supports(self, method: str) -> bool:
        return hasattr(self, method)


class Boto3(Client):
    def __init__(self, target: Target, folder: Path) -> None:
        super().__init__(target, folder)
        self.s3: Any = boto3_client(target)

    def make_bucket(self, bucket: str) -> None:
        self.s3.create_bucket(Bucket=bucket)

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.s3.put_object(Bucket=bucket, Key=key, Body=source.read_bytes())

    def put_large(self, bucket: str, key: str, source: Path) -> None:
        self.s3.upload_file(str(source), bucket, key)

    def get(self, bucket: str, key: str) -> bytes:
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def get_range(self, bucket: str, key: str, first: int, last: int) -> bytes:
        return self.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{last}")["Body"].read()

    def size(self, bucket: str, key: str) -> int:
        return self.s3.head_object(Bucket=bucket, Key=key)["ContentLength"]

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        found: list[str] = []
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter=delimiter, PaginationConfig={"PageSize": 3}
        )
        for page in pages:
            found += [item["Key"] for item in page.get("Contents", [])]
            found += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
        return sorted(found)

    def copy(self, bucket: str, source: str, key: str) -> None:
        self.s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": source})

    def delete(self, bucket: str, key: str) -> None:
        self.s3.delete_object(Bucket=bucket, Key=key)

    def delete_many(self, bucket: str, prefix: str) -> None:
        objects = [{"Key": key} for key in self.list_keys(bucket, prefix)]
        answer = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
        assert len(answer["Deleted"]) == len(objects) and "Errors" not in answer, answer

    def presigned_get(self, bucket: str, key: str) -> bytes:
        params = {"Bucket": bucket, "Key": key}
        return download(self.s3.generate_presigned_url("get_object", Params=params, ExpiresIn=60))

    def presigned_put(self, bucket: str, key: str, body: bytes) -> None:
        params = {"Bucket": bucket, "Key": key}
        upload(self.s3.generate_presigned_url("put_object", Params=params, ExpiresIn=60), body)


def boto3_client(target: Target) -> Any:
    """boto3 as README shows it: path addressing, and `s3v4` so that it presigns with SigV4; all else by default."""
    return boto3.client(
        "s3",
        endpoint_url=target.endpoint,
        region_name=target.region,
        aws_access_key_id=target.credentials.access_key,
        aws_secret_access_key=target.credentials.secret_key,
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )


def download(url: str) -> bytes:
    """What a presigned URL gives to a client that knows nothing of S3."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def upload(url: str, body: bytes) -> None:
    """Writes by a presigned URL."""
    with urllib.request.urlopen(urllib.request.Request(url, body, method="PUT"), timeout=30) as answer:
        assert answer.status == 200


class MinioPy(Client):
    """It asks for a bucket's location before all else, and signs chunks of what is large."""

    def __init__(self, target: Target, folder: Path) -> None:
        super().__init__(target, folder)
        pair = target.credentials
        host = target.endpoint.removeprefix("http://")
        self.minio = Minio(host, access_key=pair.access_key, secret_key=pair.secret_key, secure=False)

    def make_bucket(self, bucket: str) -> None:
        self.minio.make_bucket(bucket_name=bucket)

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.minio.fput_object(bucket_name=bucket, object_name=key, file_path=str(source))

    put_large = put

    def get(self, bucket: str, key: str, offset: int = 0, length: int = 0) -> bytes:
        answer = self.minio.get_object(bucket_name=bucket, object_name=key, offset=offset, length=length)
        try:
            return answer.read()
        finally:
            answer.close()
            answer.release_conn()

    def get_range(self, bucket: str, key: str, first: int, last: int) -> bytes:
        return self.get(bucket, key, first, last - first + 1)

    def size(self, bucket: str, key: str) -> int:
        size = self.minio.stat_object(bucket_name=bucket, object_name=key).size
        assert size is not None
        return size

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        found = self.minio.list_objects(bucket_name=bucket, prefix=prefix, recursive=not delimiter)
        return sorted(item.object_name or "" for item in found)

    def copy(self, bucket: str, source: str, key: str) -> None:
        origin = CopySource(bucket_name=bucket, object_name=source)
        self.minio.copy_object(bucket_name=bucket, object_name=key, source=origin)

    def delete(self, bucket: str, key: str) -> None:
        self.minio.remove_object(bucket_name=bucket, object_name=key)

    def delete_many(self, bucket: str, prefix: str) -> None:
        doomed = [DeleteObject(key) for key in self.list_keys(bucket, prefix)]
        assert not list(self.minio.remove_objects(bucket_name=bucket, delete_object_list=doomed))

    def presigned_get(self, bucket: str, key: str) -> bytes:
        return download(self.minio.get_presigned_url(method="GET", bucket_name=bucket, object_name=key))

    def presigned_put(self, bucket: str, key: str, body: bytes) -> None:
        upload(self.minio.get_presigned_url(method="PUT", bucket_name=bucket, object_name=key), body)


class Obstore(Client):
    """The object_store of Rust, which DataFusion, Polars and many others read and write with."""

    def __init__(self, target: Target, folder: Path) -> None:
        super().__init__(target, folder)
        self.stores: dict[str, S3Store] = {}

    def store(self, bucket: str) -> S3Store:
        if bucket not in self.stores:
            self.stores[bucket] = S3Store(
                bucket,
                endpoint=self.target.endpoint,
                region=self.target.region,
                access_key_id=self.target.credentials.access_key,
                secret_access_key=self.target.credentials.secret_key,
                client_options={"allow_http": True},
            )
        return self.stores[bucket]

    def make_bucket(self, bucket: str) -> None:
        """It has no such thing."""
        assert call(self.target, "PUT", f"/{bucket}").status == 200

    def put(self, bucket: str, key: str, source: Path) -> None:
        obstore.put(self.store(bucket), key, source)

    put_large = put

    def get(self, bucket: str, key: str) -> bytes:
        return bytes(obstore.get(self.store(bucket), key).bytes())

    def get_range(self, bucket: str, key: str, first: int, last: int) -> bytes:
        return bytes(obstore.get_range(self.store(bucket), key, start=first, end=last + 1))

    def size(self, bucket: str, key: str) -> int:
        return obstore.head(self.store(bucket), key)["size"]

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        """It lists by whole names, and gives a folder's without the slash."""
        if delimiter:
            found = obstore.list_with_delimiter(self.store(bucket), prefix)
            return sorted([*(f"{name}/" for name in found["common_prefixes"]), *(o["path"] for o in found["objects"])])
        return sorted(item["path"] for page in obstore.list(self.store(bucket), prefix) for item in page)

    def copy(self, bucket: str, source: str, key: str) -> None:
        obstore.copy(self.store(bucket), source, key)

    def delete(self, bucket: str, key: str) -> None:
        obstore.delete(self.store(bucket), key)

    def delete_many(self, bucket: str, prefix: str) -> None:
        obstore.delete(self.store(bucket), self.list_keys(bucket, prefix))

    def presigned_get(self, bucket: str, key: str) -> bytes:
        return download(obstore.sign(self.store(bucket), "GET", key, timedelta(minutes=1)))

    def presigned_put(self, bucket: str, key: str, body: bytes) -> None:
        upload(obstore.sign(self.store(bucket), "PUT", key, timedelta(minutes=1)), body)


class _Command(Client):
    """A client that is a command; credentials and region come as every AWS tool finds them."""

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "AWS_ACCESS_KEY_ID": self.target.credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": self.target.credentials.secret_key,
            "AWS_REGION": self.target.region,
            "AWS_DEFAULT_REGION": self.target.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "RCLONE_CONFIG": "/dev/null",
        }

    def run(self, *argv: str) -> bytes:
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True
        )
        assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def fetched(self) -> bytes:
        """The file that the last get wrote."""
        return (self.folder / "fetched").read_bytes()


class AwsCli(_Command):
    def aws(self, *argv: str) -> bytes:
        return self.run(str(BIN / "aws"), "--endpoint-url", self.target.endpoint, *argv)

    def make_bucket(self, bucket: str) -> None:
        self.aws("s3", "mb", f"s3://{bucket}")

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.aws("s3", "cp", str(source), f"s3://{bucket}/{key}")

    put_large = put

    def get(self, bucket: str, key: str) -> bytes:
        self.aws("s3", "cp", f"s3://{bucket}/{key}", "fetched")
        return self.fetched()

    def get_range(self, bucket: str, key: str, first: int, last: int) -> bytes:
        self.aws("s3api", "get-object", "--bucket", bucket, "--key", key, "--range", f"bytes={first}-{last}", "fetched")
        return self.fetched()

    def size(self, bucket: str, key: str) -> int:
        return json.loads(self.aws("s3api", "head-object", "--bucket", bucket, "--key", key))["ContentLength"]

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        argv = ["s3api", "list-objects-v2", "--bucket", bucket, "--page-size", "3"]
        argv += [*(["--prefix", prefix] if prefix else []), *(["--delimiter", delimiter] if delimiter else [])]
        found = json.loads(self.aws(*argv) or b"{}")
        keys = [item["Key"] for item in found.get("Contents", [])]
        return sorted(keys + [item["Prefix"] for item in found.get("CommonPrefixes") or []])

    def copy(self, bucket: str, source: str, key: str) -> None:
        self.aws("s3", "cp", f"s3://{bucket}/{source}", f"s3://{bucket}/{key}")

    def delete(self, bucket: str, key: str) -> None:
        self.aws("s3", "rm", f"s3://{bucket}/{key}")

    def delete_many(self, bucket: str, prefix: str) -> None:
        objects = [{"Key": key} for key in self.list_keys(bucket, prefix)]
        self.aws("s3api", "delete-objects", "--bucket", bucket, "--delete", json.dumps({"Objects": objects}))


class S5cmd(_Command):
    def s5cmd(self, *argv: str) -> bytes:
        return self.run(str(BIN / "s5cmd"), "--endpoint-url", self.target.endpoint, *argv)

    def make_bucket(self, bucket: str) -> None:
        self.s5cmd("mb", f"s3://{bucket}")

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.s5cmd("cp", str(source), f"s3://{bucket}/{key}")

    put_large = put

    def get(self, bucket: str, key: str) -> bytes:
        self.s5cmd("cp", f"s3://{bucket}/{key}", "fetched")
        return self.fetched()

    def size(self, bucket: str, key: str) -> int:
        return json.loads(self.s5cmd("--json", "head", f"s3://{bucket}/{key}"))["size"]

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        pattern = prefix if delimiter else prefix + "*"
        lines = self.s5cmd("--json", "ls", f"s3://{bucket}/{pattern}").splitlines()
        return sorted(json.loads(line)["key"].removeprefix(f"s3://{bucket}/") for line in lines)

    def copy(self, bucket: str, source: str, key: str) -> None:
        self.s5cmd("cp", f"s3://{bucket}/{source}", f"s3://{bucket}/{key}")

    def delete(self, bucket: str, key: str) -> None:
        self.s5cmd("rm", f"s3://{bucket}/{key}")

    def delete_many(self, bucket: str, prefix: str) -> None:
        self.s5cmd("rm", f"s3://{bucket}/{prefix}*")


class S3cmd(_Command):
    def s3cmd(self, *argv: str) -> bytes:
        """With the host of the endpoint for every bucket: path style."""
        host = self.target.endpoint.removeprefix("http://")
        options = ["--config=/dev/null", "--no-ssl", f"--host={host}", f"--host-bucket={host}", "--no-progress"]
        return self.run(sys.executable, str(BIN / "s3cmd"), *options, f"--region={self.target.region}", *argv)

    def make_bucket(self, bucket: str) -> None:
        self.s3cmd("mb", f"s3://{bucket}")

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.s3cmd("put", str(source), f"s3://{bucket}/{key}")

    put_large = put

    def get(self, bucket: str, key: str) -> bytes:
        """It compares the MD5 of what came with the ETag, and the size with what the store said."""
        self.s3cmd("get", "--force", f"s3://{bucket}/{key}", "fetched")
        return self.fetched()

    def size(self, bucket: str, key: str) -> int:
        return int(self.s3cmd("du", f"s3://{bucket}/{key}").split()[0])

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        recursive = [] if delimiter else ["--recursive"]
        lines = self.s3cmd("ls", *recursive, f"s3://{bucket}/{prefix}").decode().splitlines()
        return sorted(line.split(f"s3://{bucket}/", 1)[1] for line in lines)

    def copy(self, bucket: str, source: str, key: str) -> None:
        self.s3cmd("cp", f"s3://{bucket}/{source}", f"s3://{bucket}/{key}")

    def delete(self, bucket: str, key: str) -> None:
        self.s3cmd("del", f"s3://{bucket}/{key}")

    def delete_many(self, bucket: str, prefix: str) -> None:
        self.s3cmd("del", "--recursive", f"s3://{bucket}/{prefix}")


class Rclone(_Command):
    def rclone(self, *argv: str) -> bytes:
        return self.run("rclone", "--retries", "1", *argv)

    def remote(self, path: str) -> str:
        options = f"provider=Other,env_auth=true,region={self.target.region},force_path_style=true"
        return f":s3,{options},endpoint='{self.target.endpoint}':{path}"

    def make_bucket(self, bucket: str) -> None:
        self.rclone("mkdir", self.remote(bucket))

    def put(self, bucket: str, key: str, source: Path) -> None:
        self.rclone("copyto", str(source), self.remote(f"{bucket}/{key}"))

    def put_large(self, bucket: str, key: str, source: Path) -> None:
        """Its default cut-off is 200 MiB."""
        self.rclone("--s3-upload-cutoff", "5M", "copyto", str(source), self.remote(f"{bucket}/{key}"))

    def get(self, bucket: str, key: str) -> bytes:
        self.rclone("copyto", "--ignore-times", self.remote(f"{bucket}/{key}"), "fetched")
        return self.fetched()

    def get_range(self, bucket: str, key: str, first: int, last: int) -> bytes:
        span = ["--offset", str(first), "--count", str(last - first + 1)]
        return self.rclone("cat", *span, self.remote(f"{bucket}/{key}"))

    def size(self, bucket: str, key: str) -> int:
        return json.loads(self.rclone("lsjson", "--stat", self.remote(f"{bucket}/{key}")))["Size"]

    def list_keys(self, bucket: str, prefix: str = "", delimiter: str = "") -> list[str]:
        """It lists folders; both kinds of names come relative to the folder."""
        options = ["--s3-list-chunk", "3", *([] if delimiter else ["--recursive", "--files-only"])]
        lines = self.rclone("lsf", *options, self.remote(f"{bucket}/{prefix}")).decode().splitlines()
        return sorted(prefix + line for line in lines)

    def copy(self, bucket: str, source: str, key: str) -> None:
        self.rclone("copyto", self.remote(f"{bucket}/{source}"), self.remote(f"{bucket}/{key}"))

    def delete(self, bucket: str, key: str) -> None:
        self.rclone("deletefile", self.remote(f"{bucket}/{key}"))

    def delete_many(self, bucket: str, prefix: str) -> None:
        self.rclone("delete", self.remote(f"{bucket}/{prefix}"))


class Restic(_Command):
    """Backups: one repository below `host` in a bucket, which it makes itself."""

    def __init__(self, target: Target, folder: Path, bucket: str) -> None:
        super().__init__(target, folder)
        self.repository = f"s3:{target.endpoint}/{bucket}/host"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "RESTIC_REPOSITORY": self.repository, "RESTIC_PASSWORD": "password"}

    def restic(self, *argv: str) -> bytes:
        return self.run("restic", *argv)


ALL: list[type[Client]] = [Boto3, MinioPy, Obstore, AwsCli, S5cmd, S3cmd, Rclone]
