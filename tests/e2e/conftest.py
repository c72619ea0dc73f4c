"""What the end-to-end tests run against: one SeaweedFS for the session, a gateway before it, and the clients' views.

With BATCHGATE_E2E_DIRECT=1 the gateway is left out: tests of stock clients then speak straight to the store, as a
control, and all others are skipped.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.gateway import BINARY, Backend, Gateway, settings
from support.store import SeaweedFs, Target

DIRECT = os.environ.get("BATCHGATE_E2E_DIRECT") == "1"


def pytest_sessionstart() -> None:
    """SIGTERM ends the session like an interrupt does, so that fixtures stop what they started."""

    def terminated(number: int, _frame: object) -> None:
        pytest.exit(f"signal {number}", returncode=128 + number)

    signal.signal(signal.SIGTERM, terminated)
    # Clients under test bring their own certificates and credentials, or none.
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """SeaweedFS, asked directly."""
    server = SeaweedFs(tmp_path_factory.mktemp("store"))
    yield server.target
    server.stop()


@pytest.fixture(scope="session")
def start_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Gateway]]:
    """Starts gateways on settings; each is stopped at the end, if not before."""
    if DIRECT:
        pytest.skip("BATCHGATE_E2E_DIRECT leaves the gateway out")
    assert BINARY.is_file(), f"{BINARY} is missing: cargo build --ignore-rust-version"
    started: list[Gateway] = []

    def start(backends: list[Backend], sections: str = "", name: str = "gateway", server: str = "") -> Gateway:
        folder: Path = tmp_path_factory.mktemp(name)
        started.append(Gateway(folder, settings(backends, sections, server), name))
        return started[-1]

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture(scope="session")
def gateway(start_gateway: Callable[..., Gateway], store: Target) -> Iterator[Gateway]:
    """The gateway that most tests share: everything goes to the store."""
    running = start_gateway([Backend("store", "*", store)])
    yield running
    running.process.assert_running()
    assert "panicked" not in running.process.stderr(), running.process.stderr()[-4000:]
    assert running.stop() == 0, running.process.stderr()[-4000:]


@pytest.fixture(scope="session")
def client_target(request: pytest.FixtureRequest) -> Target:
    """What stock clients speak to: the gateway, or in direct mode the store."""
    if DIRECT:
        return request.getfixturevalue("store")
    return request.getfixturevalue("gateway").s3
