"""How the gateway ends: it announces that it will, lets what is under way finish, serves who is in its queue, waits long for
nobody who owes it something, and obeys a second signal at once."""

import http.client
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from support import http2
from support.batch import batch_get, batch_request, document, read_batch
from support.faulty import SMALL, FaultyBackend, body_of
from support.gateway import BINARY, FULL, Backend, Gateway, clean_environment
from support.process import Process, wait_for
from support.rawsocket import exchange, read_answer, read_head, stalled
from support.store import Target
from support.wire import Request, call, sign

BUCKET = "drained"
LEAD_SECONDS = 2.0

# In the drain, who has no request under way has this long to send one.
GRACE_SECONDS = 1.0
Start = Callable[[str], Gateway]


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
        # A kept connection serves once more, and says that it was the last time.
        kept.sendall(raw)
        answer = read_answer(stream)
        assert (answer.body, answer.get("connection")) == (body_of("fine/kept", SMALL), "close")
        assert stream.read() == b""
    while time.monotonic() - told < LEAD_SECONDS * 0.7:
        assert get_once(gateway, "fine/new") == body_of("fine/new", SMALL)
        batch = batch_get(gateway.s3, BUCKET, ["fine/batch"])
        assert (batch.parts[0].status, batch.answer.get("connection")) == (200, "close")
        time.sleep(0.2)
    begun = batch_request(gateway.s3, BUCKET, document(["drip/late"])).raw()
    with socket.create_connection(gateway.s3.address, timeout=20) as late, late.makefile("rb") as stream:
        late.sendall(begun)
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
        assert time.monotonic() - started < GRACE_SECONDS + 1


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
        assert time.monotonic() - started < GRACE_SECONDS + 1


def test_who_is_connected_is_served_once_more(start: Start) -> None:
    """Without a lead: a connection that was just made, and one that was just used."""
    gateway = start("")
    raw = sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept").raw()
    connect = partial(socket.create_connection, gateway.s3.address, timeout=20)
    with ExitStack() as stack:
        used, new, silent = (stack.enter_context(connect()) for _ in range(3))
        streams = [stack.enter_context(sock.makefile("rb")) for sock in (used, new)]
        used.sendall(raw)
        assert read_answer(streams[0]).body == body_of("fine/kept", SMALL)
        gateway.process.terminate()
        started = time.monotonic()
        wait_for("it takes no new ones", lambda: refuses(gateway), 5)
        for sock, stream in zip((used, new), streams, strict=True):
            sock.sendall(raw)
            answer = read_answer(stream)
            assert (answer.body, answer.get("connection")) == (body_of("fine/kept", SMALL), "close")
            assert stream.read() == b""
        assert silent.recv(1) == b"", "it is closed, and not reset"
        ended_within(gateway, 5)
        assert GRACE_SECONDS * 0.9 <= time.monotonic() - started < GRACE_SECONDS + 1


def refuses(gateway: Gateway) -> bool:
    try:
        socket.create_connection(gateway.s3.address, timeout=20).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("lead", [0, 1])
def test_without_a_balancer_every_request_is_answered_or_refused(start: Start, lead: int) -> None:
    """Clients that retry nothing, on kept connections and on new ones, until the port is closed: no reset, no empty
    answer. Without a lead a kept connection is safe only for who asks again soon, as these do: its last answer may have
    been under way already, and so could not say that it is the last."""
    gateway = start(f'drain_lead = "{lead}s"')
    requests = [sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept")]
    requests.append(sign(gateway.s3, "PUT", f"/{BUCKET}/fine/put", {}, b"x" * 10_000))
    failed: list[str] = []
    answered = [0, 0]
    refused: list[bool] = []

    def ask(request: Request, keep: bool) -> None:
        connection = http.client.HTTPConnection(*gateway.s3.address, timeout=20)
        while not refused or connection.sock:
            try:
                connection.connect() if not connection.sock else None
            except ConnectionRefusedError:
                refused.append(keep)
                return
            except OSError as error:
                failed.append(f"to connect: {error!r}")
                return
            try:
                connection.request(request.method, request.path, request.body, dict(request.headers))
                answer = connection.getresponse()
                assert answer.status == 200
                answer.read()
            except (OSError, http.client.HTTPException, AssertionError) as error:
                failed.append(f"{request.method}, kept {keep}: {error!r}")
                return
            answered[keep] += 1
            if not keep:
                connection.close()

    clients = [threading.Thread(target=ask, args=(requests[at % 2], at % 4 < 2), daemon=True) for at in range(32)]
    for client in clients:
        client.start()
    time.sleep(0.5)
    gateway.process.terminate()
    for client in clients:
        client.join(20)
    ended_within(gateway, lead + 3)
    assert failed == [] and min(answered) > 20 and refused, (failed, answered)


def test_requests_of_http2_are_all_answered_or_refused(start: Start) -> None:
    """GOAWAY tells a used connection in the lead that it may open no more streams; the one that was opened meanwhile is
    served, and there is a new connection until the port is closed."""
    gateway = start(f'drain_lead = "{LEAD_SECONDS:.0f}s"')
    request = sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept")
    failed: list[str] = []
    streams: list[int] = []

    def ask_until_told(sock: socket.socket, stream: BinaryIO) -> int:
        told, number = False, 1
        while not told:
            http2.ask(sock, request, number)
            whole = False
            while not whole:
                got = http2.read_frame(stream)
                if got.kind == http2.GOAWAY:
                    assert got.payload[4:8] == b"\0\0\0\0", "no error"
                    told = True
                elif got.kind == http2.PING and not got.flags:
                    sock.sendall(http2.frame(http2.PING, got.payload, 1))
                elif got.kind == http2.HEADERS:
                    assert got.payload[:1] == b"\x88", "200"
                elif got.kind == http2.DATA and got.payload:
                    more = len(got.payload).to_bytes(4)
                    sock.sendall(http2.frame(http2.WINDOW_UPDATE, more))
                whole = got.stream == number and bool(got.flags & http2.END_STREAM)
            number += 2
        return number // 2

    def ask() -> None:
        while True:
            try:
                with http2.begin(gateway.s3, 1 << 20) as sock, sock.makefile("rb") as stream:
                    streams.append(ask_until_told(sock, stream))
            except ConnectionRefusedError:
                return
            except (OSError, AssertionError) as error:
                failed.append(repr(error))
                return

    clients = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for client in clients:
        client.start()
    time.sleep(0.5)
    told = time.monotonic()
    gateway.process.terminate()
    for client in clients:
        client.join(20)
    closed = time.monotonic()
    assert failed == [] and len(streams) > 2 * len(clients) and max(streams) > 2, (failed, streams[:20])
    assert closed - told >= LEAD_SECONDS, "until the port is closed"
    ended_within(gateway, 3)


@pytest.mark.parametrize("what", ["a batch", "a plain answer"])
def test_the_end_of_an_answer_that_http2_keeps_back_is_sent_in_the_drain(start: Start, what: str) -> None:
    """The client's window lacks the last byte; a PING, as keep-alives send it, is no request that is owed."""
    gateway = start("")
    request = sign(gateway.s3, "GET", f"/{BUCKET}/fine/end")
    if what == "a batch":
        request = batch_request(gateway.s3, BUCKET, document(["fine/end"]))
    more = http2.frame(http2.WINDOW_UPDATE, (1 << 20).to_bytes(4))

    def whole(stream: BinaryIO, length: int) -> int:
        """Bytes of data until the stream's end, or until there are so many."""
        got = 0
        while got != length:
            frame = http2.read_frame(stream)
            got += len(frame.payload) if frame.kind == http2.DATA else 0
            assert frame.kind != http2.RST_STREAM
            if frame.flags & http2.END_STREAM and frame.kind == http2.DATA:
                break
        return got

    with http2.begin(gateway.s3, 1 << 20) as sock, sock.makefile("rb") as stream:
        sock.sendall(more)
        http2.ask(sock, request)
        length = whole(stream, -1)
    with http2.begin(gateway.s3, length - 1) as sock, sock.makefile("rb") as stream:
        sock.sendall(more)
        http2.ask(sock, request)
        assert whole(stream, length - 1) == length - 1
        sock.sendall(http2.frame(http2.PING, b"12345678"))
        http2.read_until(stream, http2.PING)
        gateway.process.terminate()
        http2.read_until(stream, http2.GOAWAY)
        time.sleep(GRACE_SECONDS + 0.5)
        sock.sendall(http2.frame(http2.WINDOW_UPDATE, (1).to_bytes(4), stream=1))
        assert whole(stream, -1) == 1
    ended_within(gateway, 3)


@pytest.mark.parametrize("used", [False, True])
def test_who_is_idle_on_http2_is_told(start: Start, used: bool) -> None:
    """GOAWAY, whatever frames came last, and whether or not there was a request."""
    gateway = start("")
    with http2.begin(gateway.s3, 1 << 20) as sock, sock.makefile("rb") as stream:
        if used:
            http2.ask(sock, sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept"))
            while not (frame := http2.read_until(stream, http2.DATA)).flags & http2.END_STREAM:
                sock.sendall(http2.frame(http2.WINDOW_UPDATE, len(frame.payload).to_bytes(4)) if frame.payload else b"")
        sock.sendall(http2.frame(http2.PING, b"12345678"))
        http2.read_until(stream, http2.PING)
        gateway.process.terminate()
        assert http2.read_until(stream, http2.GOAWAY).payload[4:8] == b"\0\0\0\0"
        ended_within(gateway, 4)


def test_clients_that_keep_connections_lose_nothing(start: Start) -> None:
    """They ask without a pause while the lead goes by; each answer that was the last of its connection says so."""
    gateway = start(f'drain_lead = "{LEAD_SECONDS:.0f}s"')
    raw = sign(gateway.s3, "GET", f"/{BUCKET}/fine/kept").raw()
    failed: list[str] = []
    answered = [0, 0]
    until = time.monotonic() + LEAD_SECONDS + 0.5

    def ask() -> None:
        while time.monotonic() < until - 1:
            with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
                last = False
                while not last and time.monotonic() < until - 1:
                    try:
                        sock.sendall(raw)
                        answer = read_answer(stream)
                    except OSError as error:
                        failed.append(repr(error))
                        return
                    assert answer.body == body_of("fine/kept", SMALL)
                    last = answer.get("connection") == "close"
                    answered[last] += 1

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    gateway.process.terminate()
    for thread in threads:
        thread.join(20)
    ended_within(gateway, LEAD_SECONDS + 3)
    assert failed == [] and min(answered) > 10, (failed, answered)


def test_hangup_is_no_signal_to_end(start: Start) -> None:
    """Before the drain and in it."""
    gateway = start('drain_lead = "1s"')
    gateway.process.child.send_signal(signal.SIGHUP)
    wait_for("the log says so", lambda: "settings were loaded anew" in gateway.process.stderr(), 5)
    assert call(gateway.s3, "GET", f"/{BUCKET}/fine/after").body == body_of("fine/after", SMALL)
    assert gateway.admin_get("/readyz")[0] == 200
    gateway.process.terminate()
    told = time.monotonic()
    wait_for("/readyz says no", lambda: gateway.admin_get("/readyz")[0] == 503, 1)
    gateway.process.child.send_signal(signal.SIGHUP)
    ended_within(gateway, 5)
    assert time.monotonic() - told >= 1, "a hangup is no second signal to end"


def test_it_ends_while_it_waits_for_credentials(tmp_path: Path) -> None:
    """Whoever gives them out takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = clean_environment() | {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": address,
            "HOME": str(tmp_path),
        }
        argv = [str(BINARY), "serve", "--backend", address, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        process = Process("waiting", argv, tmp_path, env)
        silent.settimeout(10)
        try:
            asked, _ = silent.accept()
            with asked:
                assert "listening" not in process.stdout()
                process.child.send_signal(signal.SIGHUP)
                process.terminate()
                assert process.child.wait(2) == 0, process.stderr()
        finally:
            process.stop(0)


class TestDeadline:
    """What is not finished by then breaks, as an error, whatever it waits for."""

    @pytest.mark.parametrize("lead", [0, 1])
    def test_nothing_holds_the_end_up(self, start: Start, lead: int) -> None:
        gateway = start(f'drain_lead = "{lead}s"\ndrain_deadline = "1s"')
        batch = batch_request(gateway.s3, BUCKET, document(["fine/first", "silent/in-flight"]))
        keys = ["fine-large/stalled", "no-length-large/stalled"]
        with ExitStack() as stack:
            begun = stack.enter_context(stalled(gateway.s3, batch))
            begun_stream = stack.enter_context(begun.makefile("rb"))
            assert read_head(begun_stream)[0] == 200
            readers = [
                stack.enter_context(stalled(gateway.s3, sign(gateway.s3, "GET", f"/{BUCKET}/{key}"))) for key in keys
            ]
            readers.append(stack.enter_context(stalled(gateway.s3, batch_request(gateway.s3, BUCKET, document(keys)))))
            waiting = stack.enter_context(stalled(gateway.s3, sign(gateway.s3, "GET", f"/{BUCKET}/silent/plain")))
            for reader in readers:
                assert reader.recv(1, socket.MSG_PEEK)
            gateway.process.terminate()
            told = time.monotonic()
            ended_within(gateway, lead + 1 + 1)
            assert time.monotonic() - told >= lead + 1, "until then they are waited for"
            with suppress(ConnectionError):
                assert not begun_stream.read().endswith(b"0\r\n\r\n")
            for reader, key in zip(readers, [*keys, "a batch"], strict=True):
                with reader.makefile("rb") as stream, suppress(ConnectionError):
                    assert read_answer(stream).broken is not None, key
            with suppress(ConnectionError):
                assert waiting.recv(1 << 16) == b"", "no answer is better than a wrong one"

    @pytest.mark.parametrize("what", ["a batch", "a plain answer"])
    def test_a_stream_of_http2_is_reset(self, start: Start, tmp_path: Path, what: str) -> None:
        gateway = start('drain_deadline = "1s"')
        if what == "a batch":
            request = batch_request(gateway.s3, BUCKET, document(["fine/first", "silent/in-flight"]))
        else:
            request = sign(gateway.s3, "GET", f"/{BUCKET}/pauses/plain")
        argv = ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--no-buffer", "--max-time", "20"]
        argv += ["--request", request.method, "--output", str(tmp_path / "answer"), "--dump-header", "-"]
        for name, value in request.headers:
            argv += ["--header", f"{name}: {value}"]
        if request.body:
            argv += ["--data-binary", request.body.decode()]
        client = subprocess.Popen(
            [*argv, gateway.s3.endpoint + request.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        answer = tmp_path / "answer"
        wait_for("the answer has begun", lambda: answer.exists() and answer.stat().st_size > 100, 10)
        gateway.process.terminate()
        told = time.monotonic()
        ended_within(gateway, 2)
        assert time.monotonic() - told >= 1
        out, err = client.communicate(timeout=10)
        assert out.startswith(b"HTTP/2 200") and client.returncode not in (0, 28), (client.returncode, err)

    def test_an_upload_leaves_no_object(self, start_gateway: Callable[..., Gateway], store: Target) -> None:
        gateway = start_gateway([Backend("store", "*", store)], name="uploads", server='drain_deadline = "1s"')
        assert call(store, "PUT", f"/{BUCKET}").status == 200
        body = b"x" * (1 << 20)
        with socket.create_connection(gateway.s3.address, timeout=20) as sock:
            raw = sign(gateway.s3, "PUT", f"/{BUCKET}/half", {}, body).raw()
            sock.sendall(raw[: -(len(body) // 2)])
            wait_for("it is under way", lambda: gateway.metric("batchgate_edge_requests_in_flight") == 1, 5)
            gateway.process.terminate()
            ended_within(gateway, 2)
            with suppress(ConnectionError):
                assert sock.recv(1 << 16) == b"", "nobody is told that it went well"
        time.sleep(0.5)
        assert call(store, "GET", f"/{BUCKET}/half").status == 404

    @pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "half a hello"])
    def test_a_handshake_holds_nothing_up(
        self, start_gateway: Callable[..., Gateway], tmp_path: Path, sent: bytes
    ) -> None:
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        argv += ["-subj", "/CN=drain", "-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
        subprocess.run(argv, check=True, capture_output=True)
        tls = f'[server.tls]\ncert_file = "{tmp_path}/tls.crt"\nkey_file = "{tmp_path}/tls.key"\n'
        gateway = start_gateway([Backend("store", "*", None)], tls, "handshake")
        port = int(gateway.s3.endpoint.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(sent)
            wait_for("it is accepted", lambda: gateway.metric("batchgate_edge_connections") == 1, 5)
            gateway.process.terminate()
            ended_within(gateway, GRACE_SECONDS + 1)


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
