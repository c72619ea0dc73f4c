"""The real thing: SeaweedFS, a gateway before it, and objects that were put into the store directly.

What they are made of is shared with the gateway's own end-to-end tests (`tests/e2e/support`).
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.gateway import BINARY, Backend, Gateway, settings
from support.store import SeaweedFs, Target
from support.wire import call, object_path

import batchgate

BUCKET, OTHER = "py-main", "py-other"
ODD_KEYS = 'with space|ünï/ключ|a//b|/lead|100%25.txt|a+b|q?x=y#z|say "hi"\\x|tab\there'.split("|")


def pytest_sessionstart() -> None:
    """SIGTERM ends the session like an interrupt does, so that fixtures stop what they started."""

    def terminated(number: int, _frame: object) -> None:
        pytest.exit(f"signal {number}", returncode=128 + number)

    signal.signal(signal.SIGTERM, terminated)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]


def client_of(target: Target, **options: object) -> batchgate.Client:
    """A client with the target's key pair."""
    pair = target.credentials
    given = {
        "endpoint_url": target.endpoint,
        "bucket": BUCKET,
        "region_name": target.region,
        "aws_access_key_id": pair.access_key,
        "aws_secret_access_key": pair.secret_key,
    }
    return batchgate.Client(**{**given, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    server = SeaweedFs(tmp_path_factory.mktemp("store"))
    yield server.target
    server.stop()


@pytest.fixture(scope="session")
def start_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Gateway]]:
    """Starts gateways; each is stopped at the end."""
    assert BINARY.is_file(), f"{BINARY} is missing: cargo build --ignore-rust-version"
    started: list[Gateway] = []

    def start(backends: list[Backend], sections: str = "") -> Gateway:
        started.append(Gateway(tmp_path_factory.mktemp("gateway"), settings(backends, sections)))
        return started[-1]

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture(scope="session")
def gateway(start_gateway: Callable[..., Gateway], store: Target) -> Gateway:
    return start_gateway([Backend("store", "*", store)])


@pytest.fixture(scope="session")
def objects(store: Target) -> dict[tuple[str, str], bytes]:
    """Everything that is in the store, by bucket and key."""
    for bucket in (BUCKET, OTHER):
        assert call(store, "PUT", f"/{bucket}").status == 200
    made = random.Random(11)
    found = {(BUCKET, f"small/{i:03}"): made.randbytes(made.randrange(20_000)) for i in range(200)}
    found |= {(BUCKET, key): made.randbytes(100) for key in ODD_KEYS}
    found |= {(OTHER, "small/000"): b"of the other bucket", (BUCKET, "empty"): b""}
    found |= {(BUCKET, f"large/{i}"): made.randbytes(size) for i, size in enumerate([262144, 1 << 20, (5 << 20) + 7])}

    def put(item: tuple[tuple[str, str], bytes]) -> None:
        answer = call(store, "PUT", object_path(*item[0]), {"Content-Type": "image/x-test"}, item[1])
        assert answer.status == 200, (item[0], answer)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, found.items()))
    return found


@pytest.fixture
def client(gateway: Gateway) -> batchgate.Client:
    return client_of(gateway.s3)
