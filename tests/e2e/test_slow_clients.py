"""Clients that are slow, half there, or gone: each is bounded in time, ends as the contract says, gives back all that it
took, and leaves one line in the log; and a lone GET beside them goes on as if they were not there."""

import json
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import http2
from support.batch import batch_request, document
from support.faulty import FaultyBackend
from support.gateway import FULL, Backend, Gateway
from support.process import wait_for
from support.rawsocket import exchange, read_answer, read_head, stalled
from support.store import Credentials, Target
from support.wire import Request, call, sign

BUCKET = "faulty"
NOBODY = Credentials("GKNOBODY", "secret-of-nobody")
# Where uploads go.
STORED = "stored"
TIMEOUT_SECONDS = 1.0
# What a timeout may be late by: a head is looked after four times in it, and the machine has other work.
LATE_SECONDS = 3.0
JSON_LOG = '[log]\nformat = "json"\n'
SHORT = 'header_timeout = "1s"\nidle_timeout = "4s"\nbody_idle_timeout = "1s"\n'


Start = Callable[[str, str], Gateway]


@pytest.fixture(scope="module")
def start(start_gateway: Callable[..., Gateway], backend: FaultyBackend) -> Start:
    """Starts a gateway with more lines for `[server]`, and more sections."""
    backends = [
        Backend("faulty", f"{BUCKET}*", Target(backend.endpoint, FULL), "concurrency = 64"),
        Backend("stored", f"{STORED}*", None),
    ]

    def started(server: str, sections: str = JSON_LOG) -> Gateway:
        return start_gateway(backends, sections, "slow-clients", server)

    return started


@pytest.fixture(scope="module")
def gate(start: Start) -> Iterator[Gateway]:
    running = start(SHORT, JSON_LOG)
    assert call(running.s3, "PUT", f"/{STORED}").status == 200
    yield running
    released(running)
    running.process.assert_running()
    assert "panicked" not in running.process.stderr()
    assert running.stop() == 0


GAUGES = (
    "batchgate_batch_entries_in_flight",
    "batchgate_batch_in_flight",
    "batchgate_backend_permits_in_use",
    "batchgate_edge_requests_in_flight",
    "batchgate_memory_reserved_bytes",
)


def released(gateway: Gateway) -> None:
    """All that clients took is given back."""
    held: dict[str, float] = {}

    def nothing_held() -> bool:
        held.update({name: gateway.metric(name) for name in GAUGES})
        return not any(held.values())

    try:
        wait_for("everything is released", nothing_held, 15)
    except TimeoutError as error:
        raise AssertionError(f"not given back: {held}") from error


def lines(gateway: Gateway, path: str) -> list[dict[str, Any]]:
    """The access lines of a path."""
    found = []
    for text in gateway.process.stderr().splitlines():
        line = json.loads(text)
        fields = line.get("fields", line)
        if line.get("target") == "batchgate::access" and fields["http.path"] == path:
            found.append(fields)
    return found


def one_line(gateway: Gateway, path: str) -> dict[str, Any]:
    wait_for(f"the line of {path}", lambda: lines(gateway, path), 10)
    found = lines(gateway, path)
    assert len(found) == 1, found
    return found[0]


def count(gateway: Gateway, name: str, label: str) -> float:
    """One child of a counter; one that was never used is 0."""
    _, text = gateway.admin_get("/metrics")
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return sum(float(value) for value in values)


def cuts(gateway: Gateway, reason: str) -> float:
    return count(gateway, "batchgate_edge_connections_cut_total", f'reason="{reason}"')


@contextmanager
def a_lone_get_beside_it(gateway: Gateway) -> Iterator[None]:
    """Reads a small object again and again, each time over a new connection; it must not suffer."""
    stop = threading.Event()
    took: list[float] = []
    failed: list[object] = []

    def read() -> None:
        while not stop.is_set():
            started = time.monotonic()
            try:
                answer = exchange(gateway.s3, sign(gateway.s3, "GET", f"/{BUCKET}/fine/lone").raw())[0]
                if answer.status != 200 or answer.broken:
                    failed.append(answer)
            except OSError as error:
                failed.append(error)
            took.append(time.monotonic() - started)
            stop.wait(0.05)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    assert not failed, failed[:3]
    assert took and max(took) < 2, f"{len(took)} reads, the slowest took {max(took):.2f} s"


def leave(sock: socket.socket, abruptly: bool) -> None:
    """Closes: with a reset, as a process that dies with unread data leaves, or cleanly."""
    if abruptly:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# Gone


@pytest.mark.parametrize("abruptly", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize(
    "stage", ["half a head", "half a body", "half a batch", "before the answer", "in the answer", "idle"]
)
def test_a_client_that_vanishes_leaves_one_line_and_nothing_else(gate: Gateway, stage: str, abruptly: bool) -> None:
    name = f"{stage.replace(' ', '-')}-{abruptly}"
    with a_lone_get_beside_it(gate):
        sock = socket.create_connection(gate.s3.address, timeout=20)
        if stage == "half a head":
            sock.sendall(sign(gate.s3, "GET", f"/{BUCKET}/fine/{name}").raw()[:40])
            path, statuses = f"/{BUCKET}/fine/{name}", []
        elif stage == "half a body":
            sock.sendall(sign(gate.s3, "PUT", f"/{STORED}/{name}", {}, bytes(1 << 20)).raw()[: 1 << 19])
            path, statuses = f"/{STORED}/{name}", [400, 499]
        elif stage == "half a batch":
            # Each test's batch has a bucket of its own, so that its line can be told from others'.
            sock.sendall(batch_request(gate.s3, f"{BUCKET}-{name}", document(["fine/k"] * 999)).raw()[:9000])
            path, statuses = f"/{BUCKET}-{name}", [400, 499]
        elif stage == "before the answer":
            sock.sendall(sign(gate.s3, "GET", f"/{BUCKET}/silent/{name}").raw())
            path, statuses = f"/{BUCKET}/silent/{name}", [499]
        elif stage == "in the answer":
            sock = stalled_after_head(gate, sign(gate.s3, "GET", f"/{BUCKET}/fine-large/{name}"), sock)
            path, statuses = f"/{BUCKET}/fine-large/{name}", [200]
        else:
            sock.sendall(sign(gate.s3, "GET", f"/{BUCKET}/fine/{name}").raw())
            with sock.makefile("rb") as stream:
                assert read_answer(stream).status == 200
            path, statuses = f"/{BUCKET}/fine/{name}", [200]
        time.sleep(0.2)
        leave(sock, abruptly)
        if statuses:
            line = one_line(gate, path)
            assert line["http.status"] in statuses, line
            # Who closes only its own half is still told that its body broke off.
            assert line["http.status"] == 400 or line["whole"] == (stage == "idle"), line
        released(gate)
    assert len(lines(gate, path)) == len(statuses[:1]), "a head that never came whole is no request"


def stalled_after_head(gateway: Gateway, request: Request, instead_of: socket.socket) -> socket.socket:
    """A reader that has taken the head of its answer and no more."""
    instead_of.close()
    sock = stalled(gateway.s3, request)
    with sock.makefile("rb", buffering=0) as stream:
        assert stream.read(12) == b"HTTP/1.1 200"
    return sock


@pytest.mark.parametrize("how", ["RST_STREAM", "GOAWAY", "drop"])
@pytest.mark.parametrize("stage", ["before the answer", "in the answer", "in a batch"])
def test_an_http2_client_that_vanishes_leaves_one_line_and_nothing_else(gate: Gateway, stage: str, how: str) -> None:
    name = f"http2-{stage.replace(' ', '-')}-{how}"
    key = f"silent/{name}" if stage == "before the answer" else f"fine-large/{name}"
    path = f"/{BUCKET}/{key}"
    request = sign(gate.s3, "GET", path)
    if stage == "in a batch":
        path = f"/{BUCKET}-{name.lower()}"
        request = batch_request(gate.s3, path[1:], document([key] * 20))
    with a_lone_get_beside_it(gate), http2.begin(gate.s3) as sock, sock.makefile("rb") as stream:
        http2.ask(sock, request)
        if stage == "before the answer":
            time.sleep(0.2)
        else:
            http2.read_until(stream, http2.DATA)
        if how == "RST_STREAM":
            sock.sendall(http2.frame(http2.RST_STREAM, struct.pack(">I", 8), stream=1))
            line = one_line(gate, path)
            # The connection is as good as before, once what came for the stream is out of its window.
            sock.sendall(http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", 1 << 20)))
            http2.ask(sock, sign(gate.s3, "GET", f"/{BUCKET}/404/{name}"), 3)
            while http2.read_until(stream, http2.HEADERS).stream != 3:
                pass
        else:
            if how == "GOAWAY":
                sock.sendall(http2.frame(http2.GOAWAY, struct.pack(">II", 0, 0)))
            sock.shutdown(socket.SHUT_RDWR)
            line = one_line(gate, path)
        assert line["http.status"] == (499 if stage == "before the answer" else 200), line
        assert line["whole"] is False, line
        released(gate)


def test_a_client_that_leaves_in_the_tls_handshake_takes_nothing_along(
    start: Start, tls_files: tuple[Path, Path]
) -> None:
    cert, key = tls_files
    secure = start(SHORT, f'[server.tls]\ncert_file = "{cert}"\nkey_file = "{key}"\n{JSON_LOG}')
    address = Target(secure.s3.endpoint.replace("https", "http"), FULL).address
    # The beginning of a ClientHello, then nothing; and what is no TLS at all.
    with socket.create_connection(address, timeout=20) as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert closed_within(half, TIMEOUT_SECONDS + LATE_SECONDS) > TIMEOUT_SECONDS / 2
    assert cuts(secure, "header_timeout") == 1
    for left in (b"", b"\x16\x03\x01\x02\x00\x01"):
        with socket.create_connection(address, timeout=20) as sock:
            sock.sendall(left)
    wait_for("they are gone", lambda: secure.metric("batchgate_edge_connections") == 0, 10)
    with socket.create_connection(address, timeout=20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        closed_within(plain, LATE_SECONDS)
    assert cuts(secure, "tls_handshake") == 1
    assert secure.process.stderr().count("its TLS handshake failed") == 1
    assert secure.stop() == 0


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=batchgate test"]
    subprocess.run([*argv, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def closed_within(sock: socket.socket, seconds: float) -> float:
    """Waits for the peer to close, however it does; gives the seconds until then."""
    started = time.monotonic()
    sock.settimeout(seconds)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


# Slow


def test_heads_that_are_half_sent_or_dripped_end_in_time(gate: Gateway) -> None:
    """On both versions of HTTP, on a new connection and on a kept one; the timeout begins with the first byte."""
    head = sign(gate.s3, "GET", f"/{BUCKET}/fine/never").raw()
    fields = http2.field_block(sign(gate.s3, "GET", f"/{BUCKET}/fine/never"))
    before, beyond = cuts(gate, "header_timeout"), cuts(gate, "protocol")
    with ExitStack() as stack, a_lone_get_beside_it(gate):
        drips: list[tuple[socket.socket, bytes]] = []
        for sent, dripped in (
            (b"", b""),
            (head[:30], b""),
            (b"", head),
            (http2.PREFACE[:10], b""),
            (b"", http2.PREFACE),
            (http2.PREFACE + http2.settings() + http2.frame(http2.HEADERS, fields[:5], http2.END_STREAM, 1), b""),
        ):
            sock = stack.enter_context(socket.create_connection(gate.s3.address, timeout=20))
            sock.sendall(sent)
            drips.append((sock, dripped))
        kept = stack.enter_context(socket.create_connection(gate.s3.address, timeout=20))
        kept.sendall(sign(gate.s3, "GET", f"/{BUCKET}/fine/first").raw())
        with kept.makefile("rb") as stream:
            assert read_answer(stream).status == 200
        drips.append((kept, head))
        # A block of fields that never ends, a byte in each frame.
        endless = stack.enter_context(http2.begin(gate.s3))
        endless.sendall(http2.frame(http2.HEADERS, fields[:5], http2.END_STREAM, 1))
        started, late = time.monotonic(), TIMEOUT_SECONDS + LATE_SECONDS
        open_still, at = {sock for sock, _ in drips} | {endless}, 0
        while open_still and time.monotonic() - started < late:
            for sock, dripped in drips:
                if sock in open_still:
                    drop(sock, dripped[at : at + 1], open_still)
            if endless in open_still:
                drop(endless, http2.frame(http2.CONTINUATION, fields[5 + at : 6 + at], 0, 1), open_still)
            at += 1
            time.sleep(0.1)
        assert not open_still, f"{len(open_still)} were not cut"
    assert cuts(gate, "header_timeout") - before == len(drips)
    assert cuts(gate, "protocol") - beyond == 1, "so many frames for one head are not HTTP/2"


def drop(sock: socket.socket, data: bytes, open_still: set[socket.socket]) -> None:
    """Sends a little more and looks whether the peer has closed."""
    sock.setblocking(False)
    try:
        if data:
            sock.send(data)
        while True:
            if sock.recv(1 << 16) == b"":
                open_still.discard(sock)
                return
    except BlockingIOError:
        pass
    except ConnectionError:
        open_still.discard(sock)


def drip_body(gateway: Gateway, request: Request, step: int, seconds: float) -> tuple[int, str | None, float]:
    """Sends the head, then `step` bytes of the body each 50 ms, until there is an answer. Gives its status and code, and
    when it came."""
    raw = request.raw()
    with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        at = len(raw) - len(request.body)
        sock.sendall(raw[:at])
        started = time.monotonic()
        sock.settimeout(0.05)
        while time.monotonic() - started < seconds:
            try:
                if sock.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                sock.sendall(raw[at : at + step])
                at += step
        took = time.monotonic() - started
        sock.settimeout(20)
        answer = read_answer(stream)
        return answer.status, answer.xml("Code") if answer.body else None, took


def test_a_body_that_drips_is_a_request_timeout_and_a_slow_one_is_not(gate: Gateway) -> None:
    """One byte restarts no clock: 1 KiB must come in each `body_idle_timeout`, which is 1 s here."""
    before = count(gate, "batchgate_edge_errors_total", 'code="RequestTimeout"')
    with a_lone_get_beside_it(gate):
        for request in (
            sign(gate.s3, "PUT", f"/{STORED}/dripped", {}, bytes(1 << 20)),
            batch_request(gate.s3, f"{BUCKET}-dripped", document(["fine/k"] * 999)),
        ):
            status, code, took = drip_body(gate, request, 1, 10)
            assert (status, code) == (400, "RequestTimeout"), request
            assert took < TIMEOUT_SECONDS + LATE_SECONDS
        slow = sign(gate.s3, "PUT", f"/{STORED}/slow", {}, bytes(40_000))
        status, _, took = drip_body(gate, slow, 500, 20)
        assert status == 200 and took > 2 * TIMEOUT_SECONDS
    released(gate)
    for path in (f"/{STORED}/dripped", f"/{BUCKET}-dripped"):
        line = one_line(gate, path)
        assert (line["http.status"], line["error.code"]) == (400, "RequestTimeout"), line
        assert "1 KiB a second" in line["error.message"], line
    assert count(gate, "batchgate_edge_errors_total", 'code="RequestTimeout"') == before + 2


def test_readers_that_stall_do_not_lock_everyone_out(start: Start) -> None:
    """All slots are held by readers that take nothing; after 30 s the one that stalled longest makes room for who comes."""
    full = start("requests_max = 4\n", JSON_LOG)
    large = [f"fine-large/{i}" for i in range(4)]
    with ExitStack() as stack:
        plain, batch = sign(full.s3, "GET", f"/{BUCKET}/{large[0]}"), batch_request(full.s3, BUCKET, document(large))
        for request in (plain, batch):
            stack.enter_context(stalled(full.s3, request))
            sock = stack.enter_context(http2.begin(full.s3))
            http2.ask(sock, request)
        wait_for("all slots are taken", lambda: full.metric("batchgate_edge_requests_in_flight") == 4, 10)
        refused = exchange(full.s3, sign(full.s3, "GET", f"/{BUCKET}/fine/k").raw())[0]
        assert (refused.status, refused.xml("Code"), refused.get("retry-after")) == (503, "SlowDown", "1")
        assert cuts(full, "broken_off") == 0
        # They have stalled once what is between them and the gateway is full, which a busy machine takes a moment for.
        time.sleep(35)
        with ExitStack() as held:
            for i in range(4):
                sock = held.enter_context(socket.create_connection(full.s3.address, timeout=20))
                sock.sendall(sign(full.s3, "GET", f"/{BUCKET}/drip/{i}").raw())
                assert read_head(held.enter_context(sock.makefile("rb")))[0] == 200
            assert full.metric("batchgate_edge_requests_in_flight") == 4
            again = exchange(full.s3, sign(full.s3, "GET", f"/{BUCKET}/fine/k").raw())[0]
            assert again.status == 503, "those that read on are not broken off"
        assert cuts(full, "broken_off") == 4
        assert count(full, "batchgate_batch_batches_total", 'outcome="broken_off"') == 2
        released(full)
    for path in (f"/{BUCKET}/{large[0]}", f"/{BUCKET}"):
        found = [line for line in lines(full, path) if line.get("cut") == "broken_off"]
        assert len(found) == 2 and not any(line["whole"] for line in found), found
    assert full.stop() == 0


# Too many connections


def test_over_the_maximum_the_longest_idle_connection_is_closed(start: Start) -> None:
    few = start("connections_max = 3\n", JSON_LOG)
    with ExitStack() as stack:
        fresh, used, half = (
            stack.enter_context(socket.create_connection(few.s3.address, timeout=20)) for _ in range(3)
        )
        wait_for("they are open", lambda: few.metric("batchgate_edge_connections") == 3, 10)
        half.sendall(b"GET / HT")
        used.sendall(sign(few.s3, "GET", f"/{BUCKET}/fine/used").raw())
        stream = stack.enter_context(used.makefile("rb"))
        assert read_answer(stream).status == 200
        # Three more, each of which has a request: first goes who never sent a thing, at last who was used.
        busy = []
        for victim in (fresh, half, used):
            sock = stack.enter_context(socket.create_connection(few.s3.address, timeout=20))
            sock.sendall(sign(few.s3, "GET", f"/{BUCKET}/silent/busy-{len(busy)}").raw())
            busy.append(sock)
            closed_within(victim, 5)
            wait_for("it is under way", lambda: few.metric("batchgate_edge_requests_in_flight") == len(busy), 10)
        wait_for("all three are counted", lambda: cuts(few, "connections_max") == 3, 5)
        # None is idle now: the new one is closed at once, and those under way go on.
        with socket.create_connection(few.s3.address, timeout=20) as late:
            assert closed_within(late, 5) < 5
        assert count(few, "batchgate_edge_refused_total", 'reason="connections"') == 1
        assert few.metric("batchgate_edge_connections") == 3
        assert "server.connections_max" in few.process.stderr()
        for sock in busy:
            sock.close()
    wait_for("all are closed", lambda: few.metric("batchgate_edge_connections") == 0, 10)
    assert exchange(few.s3, sign(few.s3, "GET", f"/{BUCKET}/fine/after").raw())[0].status == 200
    assert few.stop() == 0


def test_a_thousand_idle_connections_cost_little(start: Start) -> None:
    crowd = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = crowd + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    gateway = start(f"connections_max = {crowd + 100}\n", JSON_LOG)
    raw = sign(gateway.s3, "GET", f"/{BUCKET}/404/idle").raw()
    exchange(gateway.s3, raw)
    before = gateway.metric("process_resident_memory_bytes")
    try:
        with ExitStack() as stack, a_lone_get_beside_it(gateway):
            for _ in range(crowd):
                sock = stack.enter_context(socket.create_connection(gateway.s3.address, timeout=20))
                sock.sendall(raw)
                assert sock.recv(1 << 16).startswith(b"HTTP/1.1 404")
            assert gateway.metric("batchgate_edge_connections") >= crowd
            each = (gateway.metric("process_resident_memory_bytes") - before) / crowd
            assert each < 48 << 10, f"{each / 1024:.1f} KiB a connection"
        wait_for("all are closed", lambda: gateway.metric("batchgate_edge_connections") == 0, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert gateway.stop() == 0


# One line and one counter for each refusal


@pytest.mark.parametrize("access", [True, False])
def test_each_refusal_leaves_one_line_and_one_count(start: Start, access: bool) -> None:
    """Also where requests that went well leave none."""
    limits = '[batch]\nentries_max = 10\nentries_in_flight_max = 10\nbody_bytes_max = "8KiB"\n'
    gateway = start("", f"{limits}{JSON_LOG}access = {str(access).lower()}\n")
    s3, bucket = gateway.s3, BUCKET
    refusals = {
        "SignatureDoesNotMatch": sign(s3, "GET", f"/{bucket}/fine/a").set("x-amz-content-sha256", "0" * 64),
        "InvalidAccessKeyId": sign(s3.with_credentials(NOBODY), "GET", f"/{bucket}/fine/b"),
        "AccessDenied": Request("GET", f"/{bucket}/fine/c", [("Host", "x")]),
        "NoSuchBucket": sign(s3, "GET", "/nowhere/d"),
        "EntityTooLarge": batch_request(s3, f"{bucket}-e", document(["fine/k"] * 11)),
        "InvalidArgument": batch_request(s3, f"{bucket}-f", b'{"Objects": [{"Key": "k", "Colour": 1}]}'),
        "MissingContentLength": batch_request(s3, f"{bucket}-g", document(["k"])).set("content-length", None),
    }
    for code, request in refusals.items():
        if code == "MissingContentLength":
            request.set("transfer-encoding", "chunked")
            request.body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(request.body), request.body)
        answer = exchange(s3, request.raw())[0]
        assert answer.xml("Code") == code, answer
        path = request.path.split("?")[0]
        line = one_line(gateway, path)
        assert (line["error.code"], line["http.status"]) == (code, answer.status), line
        assert line["request.id"] == answer.xml("RequestId") and line["error.message"] == answer.xml("Message"), line
        assert count(gateway, "batchgate_edge_errors_total", f'code="{code}"') == 1
        told = [text for text in gateway.process.stderr().splitlines() if line["request.id"] in text]
        assert len(told) == 1, told
    # All entries that may be in flight are, so that one more is too many.
    with stalled(s3, batch_request(s3, bucket, document([f"fine-large/{i}" for i in range(10)]))):
        wait_for("they are in flight", lambda: gateway.metric("batchgate_batch_entries_in_flight") >= 8, 10)
        refused = exchange(s3, batch_request(s3, f"{bucket}-h", document(["fine/k"] * 10)).raw())[0]
        assert (refused.status, refused.xml("Code"), refused.get("retry-after")) == (503, "SlowDown", "1"), refused
        assert "batch.entries_in_flight_max" in (refused.xml("Message") or "")
        assert count(gateway, "batchgate_edge_refused_total", 'reason="entries"') == 1
        assert one_line(gateway, f"/{bucket}-h")["error.code"] == "SlowDown"
    released(gateway)
    assert exchange(s3, sign(s3, "GET", f"/{bucket}/fine/well").raw())[0].status == 200
    if access:
        one_line(gateway, f"/{bucket}/fine/well")
    else:
        assert lines(gateway, f"/{bucket}/fine/well") == []
    assert gateway.stop() == 0


def test_what_is_not_http_is_counted_and_told_of(gate: Gateway) -> None:
    before = cuts(gate, "protocol")
    told = gate.process.stderr().count("what came is not HTTP")
    for raw, status in (
        (b"this is not HTTP\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % i for i in range(300)) + b"\r\n", 431),
    ):
        with socket.create_connection(gate.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(raw)
            assert read_head(stream)[0] == status
    with http2.begin(gate.s3) as sock, sock.makefile("rb") as stream:
        # A frame that no stream is open for.
        sock.sendall(http2.frame(http2.DATA, b"x", 0, 1))
        http2.read_until(stream, http2.GOAWAY)
    wait_for("they are counted", lambda: cuts(gate, "protocol") == before + 4, 10)
    assert gate.process.stderr().count("what came is not HTTP") == told + 4
