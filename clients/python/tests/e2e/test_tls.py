"""Certificates are verified, and CA bundles found, as botocore does it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BUCKET, client_of
from support.gateway import LISTEN_ON_BOTH_FAMILIES, Backend, Gateway, settings
from support.store import Target

import batchgate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and ::1 with its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=batchgate test"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1,IP:::1"]
    argv += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, store: Target, certificate: Path) -> Iterator[Gateway]:
    """It listens on both families of addresses."""
    tls = f'[server.tls]\ncert_file = "{certificate}"\nkey_file = "{certificate.parent / "key.pem"}"\n'
    text = settings([Backend("store", "*", store)], tls, listen=LISTEN_ON_BOTH_FAMILIES)
    running = Gateway(tmp_path_factory.mktemp("secure"), text)
    yield running
    running.stop()


@pytest.fixture(params=["IPv4", "IPv6"])
def secure(request: pytest.FixtureRequest, gateway: Gateway) -> Target:
    return gateway.s3 if request.param == "IPv4" else gateway.over_ipv6()


@pytest.mark.parametrize("how", ["argument", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_ca_bundle_is_found(
    secure: Target,
    certificate: Path,
    objects: dict[tuple[str, str], bytes],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if how == "argument":
        client = client_of(secure, verify=str(certificate))
    else:
        monkeypatch.setenv(how, str(certificate))
        client = client_of(secure)
    keys = [key for bucket, key in objects if bucket == BUCKET]
    assert [part.data for part in client.get_many(keys)] == [objects[BUCKET, key] for key in keys]


def test_a_stranger_is_not_spoken_to(secure: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with pytest.raises(batchgate.EndpointError, match="certificate") as told:
        list(client_of(secure).get_many(["k"]))
    assert "attempts" not in str(told.value), "another attempt would not help"
