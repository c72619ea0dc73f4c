"""What the end-to-end tests run against: one SeaweedFS for the session, a gateway before it, a gateway with the
embedded store, and the clients' views.

A module that sets `STORES = BOTH` runs over both stores, each test once with each; `store` and `gateway` are then those
of the store in turn. A test that asks for what one of them has not is marked `only_on`, with the reason.

With BATCHGATE_E2E_DIRECT=1 the gateway is left out: tests of stock clients then speak straight to the store, as a
control, and all others are skipped.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.faulty import FaultyBackend
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the tests of a module over the stores that it names."""
    if "store_kind" not in metafunc.fixturenames or not hasattr(metafunc.module, "STORES"):
        return
    only = metafunc.definition.get_closest_marker("only_on")
    kinds = [kind for kind in metafunc.module.STORES if not (DIRECT and kind == "embedded")]
    kinds = [kind for kind in kinds if only is None or kind in only.args]
    metafunc.parametrize("store_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def store_kind(request: pytest.FixtureRequest) -> str:
    """Which store the test is about: `seaweedfs` or `embedded`."""
    return getattr(request, "param", "seaweedfs")


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest, store_kind: str) -> Target:
    """The store, asked directly. The embedded one has no other door than its gateway's."""
    if store_kind == "embedded":
        return request.getfixturevalue("embedded_gateway").s3
    return request.getfixturevalue("seaweedfs")


@pytest.fixture(scope="session")
def gateway(request: pytest.FixtureRequest, store_kind: str) -> Gateway:
    """The gateway that most tests share: everything goes to the store."""
    return request.getfixturevalue("embedded_gateway" if store_kind == "embedded" else "seaweedfs_gateway")


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
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
def seaweedfs_gateway(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> Iterator[Gateway]:
    """A gateway before SeaweedFS."""
    running = start_gateway([Backend("store", "*", seaweedfs)])
    yield running
    assert_ended_well(running)


@pytest.fixture(scope="session")
def embedded_gateway(start_gateway: Callable[..., Gateway]) -> Iterator[Gateway]:
    """A gateway with an embedded store."""
    running = start_gateway([Backend("store", "*", None)], name="embedded")
    yield running
    assert_ended_well(running)


@pytest.fixture(scope="module")
def backend() -> Iterator[FaultyBackend]:
    """A store that lies, breaks off and stalls, of the module's own."""
    server = FaultyBackend()
    yield server
    server.stop()


def assert_ended_well(running: Gateway) -> None:
    running.process.assert_running()
    assert "panicked" not in running.process.stderr(), running.process.stderr()[-4000:]
    assert running.stop() == 0, running.process.stderr()[-4000:]


@pytest.fixture(scope="session")
def client_target(request: pytest.FixtureRequest, store: Target) -> Target:
    """What stock clients speak to: the gateway, or in direct mode the store."""
    return store if DIRECT else request.getfixturevalue("gateway").s3
