"""The TLS listener: what SDKs send only over TLS, and what is accepted only there."""

import http.client
import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from ssl import create_default_context
from typing import Any

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials

from support.gateway import FULL, Backend, Gateway
from support.store import Target

BUCKET = "over-tls"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=batchgate test"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def secure(start_gateway: Callable[..., Gateway], store: Target, certificate: Path) -> Gateway:
    tls = f'[server.tls]\ncert_file = "{certificate}"\nkey_file = "{certificate.parent / "key.pem"}"\n'
    return start_gateway([Backend("store", "*", store)], tls, "secure")


@pytest.fixture(scope="module")
def s3(secure: Gateway, certificate: Path) -> Any:
    client = boto3.client(
        "s3",
        endpoint_url=secure.s3.endpoint,
        aws_access_key_id=FULL.access_key,
        aws_secret_access_key=FULL.secret_key,
        region_name="us-east-1",
        verify=str(certificate),
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.mark.parametrize("algorithm", [None, "CRC32", "SHA1", "SHA256"])
@pytest.mark.parametrize("size", [0, 5, (1 << 20) - 1, 1 << 20, 3_500_000])
def test_sdk_uploads_with_a_checksum_behind_the_body(s3: Any, store: Target, algorithm: str | None, size: int) -> None:
    """boto3 frames its uploads over TLS; the store gets the decoded bytes and a checksum that it can check again."""
    body, key = bytes(i * 31 % 251 for i in range(size)), f"{algorithm}-{size}"
    s3.put_object(Bucket=BUCKET, Key=key, Body=body, **({"ChecksumAlgorithm": algorithm} if algorithm else {}))
    direct = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=store.credentials.access_key,
        aws_secret_access_key=store.credentials.secret_key,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    stored = direct.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert stored["Body"].read() == body
    assert f"Checksum{algorithm or 'CRC32'}" in stored, "the store knows the client's checksum"
    assert "ContentEncoding" not in stored


def unsigned_batch(secure: Gateway) -> urllib.request.Request:
    url = f"{secure.s3.endpoint}/{BUCKET}?batch-get="
    body = json.dumps({"Objects": [{"Key": "None-5"}]}).encode()
    request = AWSRequest("POST", url, data=body, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    request.context["payload_signing_enabled"] = False
    request.context["client_config"] = Config(s3={"payload_signing_enabled": False})
    S3SigV4Auth(BotoCredentials(FULL.access_key, FULL.secret_key), "s3", "us-east-1").add_auth(request)
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    return urllib.request.Request(url, body, dict(request.prepare().headers), method="POST")


def test_an_unsigned_batch_is_accepted_over_tls(secure: Gateway, s3: Any, certificate: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key="None-5", Body=b"bytes")
    context = create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(unsigned_batch(secure), context=context, timeout=30) as answer:
        assert answer.status == 200
        assert b"\r\nbatch-status: 200\r\n" in (body := answer.read()) and b"\r\n\r\nbytes\r\n" in body


@pytest.mark.parametrize(("flag", "version"), [("--http1.1", "HTTP/1.1 200"), ("--http2", "HTTP/2 200")])
def test_both_versions_are_offered(secure: Gateway, certificate: Path, flag: str, version: str) -> None:
    argv = ["curl", "--silent", "--show-error", "--include", flag, "--cacert", str(certificate), "--max-time", "30"]
    argv += ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{FULL.access_key}:{FULL.secret_key}"]
    argv += ["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"{secure.s3.endpoint}/?batch-get="]
    answer = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert answer.startswith(version), answer
    assert json.loads(answer.splitlines()[-1])["Version"] == 1


def test_plain_http_on_the_tls_port_is_closed(secure: Gateway) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(secure.s3.endpoint.replace("https", "http"), timeout=10)
