"""A backend that fails everyone: a batch waits for it within its deadlines, all else is told at once, the operator sees
it, and it is over as soon as the backend is back. A backend that fails some is not taken for one."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from support.batch import batch_get
from support.faulty import SMALL, FaultyBackend, body_of
from support.gateway import Backend, Gateway
from support.process import wait_for
from support.store import Credentials, Target
from support.wire import call, object_path

BUCKET = "faulty-bucket"
DEADLINE_SECONDS = 4.0
PAUSE_SECONDS = 0.5
SECTIONS = '[batch]\nentry_deadline = "4s"\nconcurrency = 32\n[tail]\nbreaker_pause = "500ms"\n'
IMPATIENT = 'attempt_timeout = "1s"\nconnect_timeout = "500ms"'
PAIR = Credentials("BACKENDKEY", "secret-of-the-backend")
OPEN, OPENED = "batchgate_backend_breaker_open", "batchgate_backend_breaker_opened_total"


@pytest.fixture
def dead_port() -> Iterator[socket.socket]:
    """Bound but not listening: nobody else can take the port, and connections are refused."""
    with socket.socket() as unused:
        unused.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        unused.bind(("127.0.0.1", 0))
        yield unused


def lines(gateway: Gateway, level: str, text: str) -> list[str]:
    return [line for line in gateway.process.stderr().splitlines() if level in line and text in line]


def test_why_a_store_is_not_reached_is_in_the_log_and_not_in_the_answer(
    start_gateway: Callable[..., Gateway], dead_port: socket.socket
) -> None:
    dead = Target(f"http://127.0.0.1:{dead_port.getsockname()[1]}", PAIR)
    behind = start_gateway([Backend("dead", "dead", dead, IMPATIENT)], SECTIONS, "unreached")
    # Whatever speaks HTTP and no TLS.
    plain = Target(behind.s3.endpoint.replace("http:", "https:"), PAIR)
    before = start_gateway([Backend("plain", "plain", plain, IMPATIENT)], SECTIONS, "without-tls")
    for gateway, bucket, why in ((behind, "dead", "Connection refused"), (before, "plain", "TLS fails: ")):
        answer = call(gateway.s3, "GET", f"/{bucket}/k")
        assert answer.status == 503, answer
        assert not any(word in answer.body for word in (b"127.0.0.1", b"refused", b"TLS")), answer

        def told() -> list[str]:
            return [line for line in lines(gateway, "WARN", f"Unreachable: {why}") if f"/{bucket}/k" in line]

        wait_for("the line", told, 5)


def test_a_dead_backend_is_known_to_be_dead_until_it_is_back(
    start_gateway: Callable[..., Gateway], dead_port: socket.socket
) -> None:
    port = dead_port.getsockname()[1]
    target = Target(f"http://127.0.0.1:{port}", PAIR)
    gateway = start_gateway([Backend("away", "faulty-*", target, IMPATIENT)], SECTIONS, "away")
    keys = [f"fine/{i}" for i in range(500)]
    started = time.monotonic()
    batch = batch_get(gateway.s3, BUCKET, keys)
    took = time.monotonic() - started
    # One deadline, and the time to find out that it was not the fault of those entries.
    assert DEADLINE_SECONDS <= took < DEADLINE_SECONDS + 3, took
    assert {(part.status, part.code) for part in batch.parts} == {(503, "ServiceUnavailable")}
    assert len(lines(gateway, "WARN", "breaker opens")) == 1
    failed = lines(gateway, "WARN", "batch has entries that a backend failed")
    assert len(failed) == 1 and "failed=500" in failed[0] and "first.status=503" in failed[0], failed

    status, body = gateway.admin_get("/readyz")
    assert status == 200 and "backend away: breaker open for " in body and "(cannot be reached)" in body, body
    assert str(port) not in body
    assert (gateway.metric(OPEN), gateway.metric(OPENED)) == (1, 1)

    def refused_unasked() -> bool:
        asked_at = time.monotonic()
        lone = call(gateway.s3, "GET", object_path(BUCKET, "fine/lone"))
        assert time.monotonic() - asked_at < 0.5
        assert (lone.status, lone.xml("Code"), lone.get("retry-after")) == (503, "ServiceUnavailable", "1"), lone
        assert lone.get("x-amz-request-id") == lone.xml("RequestId")
        # One of them is a probe now and then, and learns for itself.
        return b"does not ask it" in lone.body

    wait_for("a plain request is refused without being sent", refused_unasked, 2)
    assert call(gateway.s3, "PUT", object_path(BUCKET, "fine/new"), {}, b"x" * 100).status == 503
    assert gateway.metric("batchgate_backend_breaker_refused_total") >= 1

    dead_port.close()
    backend = FaultyBackend(port)
    back_at = time.monotonic()
    wait_for("it is back", lambda: call(gateway.s3, "GET", object_path(BUCKET, "fine/lone")).status == 200, 10)
    assert time.monotonic() - back_at < PAUSE_SECONDS + 1
    assert gateway.metric(OPEN) == 0
    assert gateway.admin_get("/readyz") == (200, "ready\n")
    assert len(lines(gateway, "INFO", "breaker closes")) == 1
    batch = batch_get(gateway.s3, BUCKET, keys[:50])
    assert [part.body for part in batch.parts] == [body_of(key, SMALL) for key in keys[:50]]
    assert str(port) not in gateway.process.stderr().replace(gateway.s3.endpoint, "")
    backend.stop()


def test_a_restart_in_the_middle_of_a_batch_costs_no_entry(start_gateway: Callable[..., Gateway]) -> None:
    first = FaultyBackend()
    backends = [Backend("restarted", "faulty-*", Target(first.endpoint, PAIR), IMPATIENT)]
    # Half a second and more for the read before, the outage, the pause, and the read anew.
    gateway = start_gateway(backends, SECTIONS.replace('"4s"', '"8s"'), "restarted")
    again: list[FaultyBackend] = []

    def restart() -> None:
        time.sleep(1)
        first.stop()
        time.sleep(2.5)
        again.append(FaultyBackend(first.port))

    thread = threading.Thread(target=restart)
    thread.start()
    # Three rounds of 1.5 s each.
    keys = [f"drip/{i}" for i in range(96)]
    batch = batch_get(gateway.s3, BUCKET, keys)
    thread.join()
    assert [(part.status, part.body == body_of(key, SMALL)) for part, key in zip(batch.parts, keys, strict=True)] == [
        (200, True)
    ] * len(keys)
    assert (gateway.metric(OPEN), gateway.metric(OPENED)) == (0, 1)
    gateway.assert_gauges_at_zero()
    again[0].stop()


def test_objects_that_always_fail_are_no_outage(start_gateway: Callable[..., Gateway]) -> None:
    backend = FaultyBackend()
    backends = [Backend("spotty", "faulty-*", Target(backend.endpoint, PAIR), IMPATIENT)]
    gateway = start_gateway(backends, SECTIONS, "spotty")
    bad = ["503-always", "silent", "cut-small-always"]
    keys = [f"{bad[i // 10 % 3] if i % 10 == 0 else 'fine'}/{i}" for i in range(150)]
    batch = batch_get(gateway.s3, BUCKET, keys)
    for part, key in zip(batch.parts, keys, strict=True):
        assert (part.status == 200) == key.startswith("fine"), part
    assert gateway.metric(OPENED) == 0
    assert gateway.admin_get("/readyz") == (200, "ready\n")
    backend.stop()
