"""How the gateway ends: it announces that it will, lets what is under way finish, waits for nobody who owes it
something, and obeys a second signal at once."""

import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from support.batch import batch_get, batch_request, document, read_batch
from support.faulty import SMALL, FaultyBackend, body_of
from support.gateway import FULL, Backend, Gateway
from support.process import wait_for
from support.rawsocket import exchange, read_answer, read_head
from support.store import Target
from support.wire import call, sign

BUCKET = "drained"
LEAD_SECONDS = 2.0
Start = Callable[[str], Gateway]


@pytest.fixture(scope="module")
def backend() -> Iterator[FaultyBackend]:
    server = FaultyBackend()
    yield server
    server.stop()


@pytest.fixture
def start(start_gateway: Callable[..., Gateway], backend: FaultyBackend) -> Start:
    """Starts a gateway for one test to end, with more lines for `[server]`."""
    return lambda server: start_gateway(
        [Backend("slow", "*", Target(backend.endpoint, FULL))], name="drained", server=server
    )


def ended_within(gateway: Gateway, seconds: float) -> None:
    """It ends by itself, as told."""
    assert gateway.process.child.wait(seconds) == 0, gateway.process.stderr()[-2000:]
    assert "panicked" not in gateway.process.stderr()


def get_once(gateway: Gateway, key: str) -> bytes:
    """Over a connection of its own."""
    return exchange(gateway.s3, sign(gateway.s3, "GET", f"/{BUCKET}/{key}").raw())[0].body


def test_the_end_is_announced_before_the_port_closes(start: Start) -> None:
    gateway = start(f'drain_lead = "{LEAD_SECONDS:.0f}s"')
    assert gateway.admin_get("/readyz")[0] == 200
    with socket.create_connection(gateway.s3.address, timeout=20) as kept, kept.makefile("rb") as stream:
        raw = sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept").raw()
        kept.sendall(raw)
        assert read_answer(stream).body == body_of("fine/kept", SMALL)
        gateway.process.terminate()
        told = time.monotonic()
        wait_for("/readyz says no", lambda: gateway.admin_get("/readyz")[0] == 503, LEAD_SECONDS / 2)
        assert gateway.admin_get("/livez")[0] == 200
        while time.monotonic() - told < LEAD_SECONDS * 0.7:
            assert get_once(gateway, "fine/new") == body_of("fine/new", SMALL)
            assert batch_get(gateway.s3, BUCKET, ["fine/batch"]).parts[0].status == 200
            kept.sendall(raw)
            assert read_answer(stream).body == body_of("fine/kept", SMALL)
            time.sleep(0.2)
        begun = batch_request(gateway.s3, BUCKET, document(["drip/late"])).raw()
        kept.sendall(begun)
        assert read_batch(read_answer(stream)).parts[0].body == body_of("drip/late", SMALL)
    ended_within(gateway, LEAD_SECONDS + 3)
    assert time.monotonic() - told >= LEAD_SECONDS


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /drained/k HTTP/1.1\r\nHost: a\r\n", b"PRI * HTTP/2.0\r\n"])
def test_a_connection_that_owes_its_head_holds_nothing_up(start: Start, sent: bytes) -> None:
    gateway = start("")
    with socket.create_connection(gateway.s3.address, timeout=20) as sock:
        sock.sendall(sent)
        assert get_once(gateway, "fine/beside") == body_of("fine/beside", SMALL)
        started = time.monotonic()
        gateway.process.terminate()
        ended_within(gateway, 5)
        assert time.monotonic() - started < 2


def test_a_head_that_is_half_sent_on_a_used_connection_holds_nothing_up(start: Start) -> None:
    gateway = start("")
    raw = sign(gateway.s3, "GET", f"/{BUCKET}/fine/used").raw()
    with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(raw)
        assert read_answer(stream).status == 200
        sock.sendall(raw[: len(raw) // 2])
        time.sleep(0.1)
        started = time.monotonic()
        gateway.process.terminate()
        ended_within(gateway, 5)
        assert time.monotonic() - started < 2


def test_hangup_changes_nothing(start: Start) -> None:
    """It is what many ask a daemon to reload with; it is told that there is no such thing, before the drain and in it."""
    gateway = start('drain_lead = "1s"')
    gateway.process.child.send_signal(signal.SIGHUP)
    wait_for("the log says so", lambda: "not reloaded" in gateway.process.stderr(), 5)
    assert call(gateway.s3, "GET", f"/{BUCKET}/fine/after").body == body_of("fine/after", SMALL)
    assert gateway.admin_get("/readyz")[0] == 200
    gateway.process.terminate()
    told = time.monotonic()
    wait_for("/readyz says no", lambda: gateway.admin_get("/readyz")[0] == 503, 1)
    gateway.process.child.send_signal(signal.SIGHUP)
    ended_within(gateway, 5)
    assert time.monotonic() - told >= 1, "a hangup is no second signal to end"


@pytest.mark.parametrize("server", ["", 'drain_lead = "20s"'], ids=["in the drain", "in its lead"])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(start: Start, server: str, second: signal.Signals) -> None:
    gateway = start(server)
    request = batch_request(gateway.s3, BUCKET, document(["fine/first", "silent/in-flight"]))
    with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(request.raw())
        assert read_head(stream)[0] == 200
        gateway.process.terminate()
        time.sleep(0.5)
        gateway.process.assert_running()
        gateway.process.child.send_signal(second)
        ended_within(gateway, 2)
        assert not stream.read().endswith(b"0\r\n\r\n"), "what was broken off does not look whole"
