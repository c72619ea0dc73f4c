"""The gateway as a process: how it starts, what its admin port shows, how it ends, and that clients which go away or
stall take nothing with them."""

import base64
import hashlib
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from support.batch import batch_get, batch_request, document, read_batch
from support.faulty import SMALL, FaultyBackend, body_of
from support.gateway import BINARY, FULL, LIMITED, NOTHING, READ_ONLY, Backend, Gateway, clean_environment, settings
from support.process import Process, wait_for
from support.rawsocket import read_answer, read_head, stalled
from support.store import BOTH, Credentials, Target
from support.wire import Answer, call, send, sign

T = TypeVar("T")
STORES = BOTH
BUCKET = "lifecycle"
LARGE_BYTES = 16 << 20


def run(folder: Path, *argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BINARY), *argv],
        cwd=folder,
        env=clean_environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )


@pytest.fixture(scope="module", autouse=True)
def objects(store: Target) -> None:
    call(store, "PUT", f"/{BUCKET}")
    body = bytes(range(256)) * (LARGE_BYTES >> 8)
    for i in range(4):
        assert call(store, "PUT", f"/{BUCKET}/large-{i}", {}, body).status == 200
    assert call(store, "PUT", f"/{BUCKET}/k", {}, b"value").status == 200


# Starting


@pytest.mark.usefixtures("start_gateway")
class TestCommandLine:
    """What `serve` and `config` say to settings they cannot use; nothing is started."""

    def test_a_settings_file_without_a_backend_is_refused(self, tmp_path: Path) -> None:
        """Its writer must not learn at the end that everything was in memory."""
        (tmp_path / "empty.toml").write_text("")
        done = run(tmp_path, "serve", "--config", "empty.toml")
        assert done.returncode == 2
        assert "backend" in done.stderr and "embedded" in done.stderr and "listening" not in done.stdout

    def test_three_mistakes_are_three_reports(self, tmp_path: Path, store: Target) -> None:
        text = settings([Backend("store", "*", store)])
        broken = (
            text.replace("[server]", '[server]\nlissten = "x"\nidle_timeout = "soon"') + "[batch]\nentries_max = -1\n"
        )
        (tmp_path / "broken.toml").write_text(broken)
        for command in (("config", "check", "--config"), ("serve", "--config")):
            done = run(tmp_path, *command, "broken.toml")
            assert done.returncode == 2, done
            said = done.stdout + done.stderr
            for key, line in (("lissten", 2), ("idle_timeout", 3), ("entries_max", broken.count("\n"))):
                assert re.search(rf"broken\.toml:{line}\b.*{key}", said), said
            assert re.search(r"lissten.*\blisten\b", said), "the nearest known key is named"

    def test_good_settings_are_checked_and_shown_without_secrets(self, tmp_path: Path, store: Target) -> None:
        (tmp_path / "good.toml").write_text(settings([Backend("store", "*", store)]))
        assert run(tmp_path, "config", "check", "--config", "good.toml").returncode == 0
        shown = run(tmp_path, "config", "show", "--config", "good.toml")
        assert shown.returncode == 0 and "entry_deadline" in shown.stdout and FULL.access_key in shown.stdout
        assert_no_secrets(shown.stdout + shown.stderr, store)

    def test_a_missing_settings_file_is_named(self, tmp_path: Path) -> None:
        done = run(tmp_path, "serve", "--config", "nowhere.toml")
        assert done.returncode == 2 and "nowhere.toml" in done.stderr

    def test_an_address_in_use_cannot_be_served(self, tmp_path: Path, store: Target) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            text = settings([Backend("store", "*", store)]).replace('["127.0.0.1:0"]', f'["{address}"]')
            (tmp_path / "taken.toml").write_text(text)
            done = run(tmp_path, "serve", "--config", "taken.toml")
        assert done.returncode == 3 and f"cannot listen on {address} (server.listen): " in done.stderr

    def test_a_variable_that_looks_like_a_setting_and_is_none_is_told(self, tmp_path: Path) -> None:
        env = clean_environment() | {"BATCHGATE_LOG__LEVEL": "debug", "BATCHGATE_SERVICE_HOST": "10.0.0.1"}
        checked = run(tmp_path, "config", "check", env=env)
        assert (checked.returncode, checked.stdout) == (0, "ok\n"), checked
        served = run(tmp_path, "serve", "--config", "nowhere.toml", env=env)
        for done in (checked, served):
            assert done.stderr.count("BATCHGATE_LOG__LEVEL is no setting") == 1 and "SERVICE_HOST" not in done.stderr, done

    def test_an_address_in_use_prints_no_keys(self, tmp_path: Path, store: Target) -> None:
        """Those of the first identity would be of no use to anyone. The S3 port and the admin port alike."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for listen, admin in ((address, "127.0.0.1:0"), ("127.0.0.1:0", address)):
                done = run(
                    tmp_path, *FLAGS, store.endpoint, "--listen", listen, "--admin-listen", admin, env=empty(tmp_path)
                )
                assert done.returncode == 3 and address in done.stderr, done
                assert done.stdout == "" and "secret" not in done.stderr, done

    def test_help_tells_of_signals_and_of_the_order_of_settings(self, tmp_path: Path) -> None:
        done = run(tmp_path, "serve", "--help")
        assert done.returncode == 0
        said = " ".join(done.stdout.split())
        for word in ("SIGTERM", "SIGINT", "SIGHUP", "second signal", "drain_deadline", "Exit codes"):
            assert word in said, done.stdout
        assert re.search(r"defaults, then FILE, then the environment .*BATCHGATE__.* then these flags", said), (
            done.stdout
        )


FLAGS = ("serve", "--backend")


def empty(home: Path, **variables: str) -> dict[str, str]:
    """An environment in which no credentials can be found, but those that are given."""
    return {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", **variables}


@pytest.fixture
def with_flags(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> Iterator[Callable[..., tuple[Process, Target]]]:
    """Starts `serve --backend URL` without a settings file; gives it and how its first identity speaks to it."""
    started: list[Process] = []

    def start(url: str, env: dict[str, str]) -> tuple[Process, Target]:
        ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        process = Process("flags", [str(BINARY), *FLAGS, url, *ports], tmp_path, env)
        started.append(process)
        process.wait_until_ready(lambda: "listening admin" in process.stdout(), 10)
        pair = re.search(r"^identity access_key=(\S+) secret_key=(\S+)$", process.stdout(), re.M)
        endpoint = re.search(r"^listening s3 (\S+)$", process.stdout(), re.M)
        assert pair and endpoint, process.stdout()
        return process, Target(endpoint[1], Credentials(pair[1], pair[2]))

    yield start
    for process in started:
        assert process.stop(10) == 0, process.stderr()[-2000:]


def test_a_machine_without_credentials_is_told_so(
    with_flags: Callable[..., tuple[Process, Target]], store: Target, tmp_path: Path
) -> None:
    """The store is there; what is missing is named, not taken for a store that is away."""
    _, s3 = with_flags(store.endpoint, empty(tmp_path, BATCHGATE__BATCH__ENTRY_DEADLINE="2s"))
    for method, body in (("GET", b""), ("PUT", b"x")):
        answer = within(20, partial(call, s3, method, f"/{BUCKET}/k", {}, body))
        assert (answer.status, answer.xml("Code")) == (503, "ServiceUnavailable"), answer
        message = answer.xml("Message") or ""
        assert "credentials" in message and "reached" not in message, message
    part = within(10, lambda: batch_get(s3, BUCKET, ["k"])).parts[0]
    assert (part.status, part.code) == (503, "ServiceUnavailable"), part
    assert b"credentials" in part.body and b"reached" not in part.body, part
    assert call(store, "GET", f"/{BUCKET}/k").body == b"value"


@pytest.mark.parametrize("slashes", ["", "/"])
def test_a_backend_by_its_flag_with_or_without_a_slash(
    with_flags: Callable[..., tuple[Process, Target]], store: Target, tmp_path: Path, slashes: str
) -> None:
    pair = {"AWS_ACCESS_KEY_ID": store.credentials.access_key, "AWS_SECRET_ACCESS_KEY": store.credentials.secret_key}
    _, s3 = with_flags(store.endpoint + slashes, empty(tmp_path, **pair))
    assert call(s3, "GET", f"/{BUCKET}/k").body == b"value"
    assert batch_get(s3, BUCKET, ["k"]).parts[0].body == b"value"


def assert_no_secrets(text: str, store: Target) -> None:
    for pair in (FULL, READ_ONLY, LIMITED, NOTHING, store.credentials):
        assert pair.secret_key not in text


# The admin port


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/configz"])
def test_admin_pages_are_on_the_admin_port_only(gateway: Gateway, store: Target, path: str) -> None:
    status, text = gateway.admin_get(path)
    assert status == 200
    assert_no_secrets(text, store)
    # On the S3 port it is the name of a bucket, which the identity must be allowed to list.
    on_s3 = call(gateway.as_identity(NOTHING), "GET", path)
    assert on_s3.status == 403 and on_s3.xml("Code") == "AccessDenied"
    assert call(gateway.admin, "GET", f"/{BUCKET}/k").status == 404


def test_metrics_tell_of_requests_and_build(gateway: Gateway) -> None:
    batch_get(gateway.s3, BUCKET, ["k", "nowhere"])
    assert gateway.metric("batchgate_build_info") == 1
    _, text = gateway.admin_get("/metrics")
    assert "nowhere" not in text, "no key among the labels"
    assert re.search(r"^# HELP batchgate_batch_in_flight \S", text, re.M)


def test_no_secret_in_the_log(gateway: Gateway, store: Target) -> None:
    batch_get(gateway.s3, BUCKET, ["k"])
    assert_no_secrets(gateway.process.stdout() + gateway.process.stderr(), store)


# Ending


@pytest.fixture
def slow(start_gateway: Callable[..., Gateway]) -> Iterator[Gateway]:
    """A gateway of its own before a backend whose `drip` objects take about 1.5 s."""
    server = FaultyBackend()
    yield start_gateway([Backend("slow", "*", Target(server.endpoint, FULL))], name="slow")
    server.stop()


def test_sigterm_lets_what_is_in_flight_end(slow: Gateway) -> None:
    keys = ["drip/a", "drip/b", "fine/c"]
    with ExitStack() as stack:
        batch, plain = (stack.enter_context(socket.create_connection(slow.s3.address, timeout=20)) for _ in range(2))
        batch_stream, plain_stream = (stack.enter_context(sock.makefile("rb")) for sock in (batch, plain))
        batch.sendall(batch_request(slow.s3, BUCKET, document(keys)).raw())
        plain.sendall(sign(slow.s3, "GET", f"/{BUCKET}/drip/plain").raw())
        plain_head = read_head(plain_stream)
        time.sleep(0.2)
        slow.process.terminate()
        whole = read_batch(read_answer(batch_stream))
        assert [part.body for part in whole.parts] == [body_of(key, SMALL) for key in keys]
        assert plain_head[0] == 200 and plain_stream.read(SMALL) == body_of("drip/plain", SMALL)
    assert slow.process.child.wait(5) == 0, slow.process.stderr()[-2000:]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(slow.s3.address, timeout=5)


def test_sigterm_does_not_wait_for_idle_connections(slow: Gateway) -> None:
    with socket.create_connection(slow.s3.address, timeout=20) as fresh, socket.socket() as used:
        used.settimeout(20)
        used.connect(slow.s3.address)
        used.sendall(sign(slow.s3, "GET", f"/{BUCKET}/fine/idle").raw())
        with used.makefile("rb") as stream:
            assert read_answer(stream).status == 200
            started = time.monotonic()
            slow.process.terminate()
            assert slow.process.child.wait(5) == 0, slow.process.stderr()[-2000:]
            assert time.monotonic() - started < 3
            assert stream.read() == b"" and fresh.recv(1) == b""


# Clients that go away or stall


def large_batch(gateway: Gateway, count: int = 40) -> bytes:
    return batch_request(gateway.s3, BUCKET, document([f"large-{i % 4}" for i in range(count)])).raw()


def assert_all_released(gateway: Gateway) -> None:
    def released() -> bool:
        try:
            gateway.assert_gauges_at_zero()
        except AssertionError:
            return False
        return True

    wait_for("every fetch, permit and byte is released", released, 15)


@pytest.mark.parametrize("after_bytes", [0, 1, 200_000])
def test_a_client_that_goes_away_releases_everything(gateway: Gateway, after_bytes: int) -> None:
    socks = [socket.create_connection(gateway.s3.address, timeout=20) for _ in range(6)]
    for i, sock in enumerate(socks):
        sock.sendall(large_batch(gateway) if i % 2 else sign(gateway.s3, "GET", f"/{BUCKET}/large-0").raw())
        left = after_bytes
        while left > 0:
            left -= len(sock.recv(min(left, 65536)))
    for sock in socks:
        sock.close()
    assert_all_released(gateway)


def test_an_upload_that_goes_away_releases_everything(gateway: Gateway) -> None:
    raw = sign(gateway.s3, "PUT", f"/{BUCKET}/never", {}, bytes(4 << 20)).raw()
    body = batch_request(gateway.s3, BUCKET, document(["k"] * 5000)).raw()
    for part in (raw[: 2 << 20], body[: len(body) // 2]):
        with socket.create_connection(gateway.s3.address, timeout=20) as sock:
            sock.sendall(part)
            time.sleep(0.1)
    assert_all_released(gateway)


@pytest.fixture
def narrow(start_gateway: Callable[..., Gateway], store: Target) -> Gateway:
    """A gateway whose backend has sixteen permits."""
    return start_gateway([Backend("store", "*", store, "concurrency = 16")], name="narrow")


def test_stalled_readers_stop_nobody(narrow: Gateway) -> None:
    """More readers than permits, batch and plain, that take nothing: the others go on."""
    plain = sign(narrow.s3, "GET", f"/{BUCKET}/large-1")
    batch = batch_request(narrow.s3, BUCKET, document([f"large-{i}" for i in range(4)]))
    readers: list[socket.socket] = []
    try:
        for i in range(64):
            readers.append(stalled(narrow.s3, plain if i % 2 else batch))
            # Reads that wait for their clients give their permits back after a second; more at once would be an overload.
            if i % 8 == 7:
                time.sleep(1.5)
        wait_for("the batches are admitted", lambda: narrow.metric("batchgate_batch_in_flight") >= 32, 20)
        wait_for("no permit is held", lambda: narrow.metric("batchgate_backend_permits_in_use") == 0, 20)
        for _ in range(3):
            within(5, lambda: batch_get(narrow.s3, BUCKET, ["k"] * 100))
            within(5, lambda: call(narrow.s3, "GET", f"/{BUCKET}/large-2"))
        assert narrow.metric("batchgate_batch_in_flight") >= 32, "the stalled ones were not broken off for it"
        # Those that stalled lost nothing: one of each kind reads on to its end.
        for reader in readers[:2]:
            reader.settimeout(30)
            with reader.makefile("rb") as stream:
                answer = read_answer(stream)
            assert answer.broken is None
            if answer.get("batch-count"):
                assert {part.status for part in read_batch(answer).parts} == {200}
            else:
                assert len(answer.body) == LARGE_BYTES
    finally:
        for reader in readers:
            reader.close()
    assert_all_released(narrow)
    assert narrow.stop() == 0


# Admission


def test_one_request_too_many_is_asked_to_come_back(start_gateway: Callable[..., Gateway]) -> None:
    """Plain ones and batches count alike, and once one has ended the next is answered."""
    server = FaultyBackend()
    full = start_gateway([Backend("slow", "*", Target(server.endpoint, FULL))], name="full", server="requests_max = 2")
    with ExitStack() as stack:
        stack.callback(server.stop)
        for raw in (
            sign(full.s3, "GET", f"/{BUCKET}/drip/a").raw(),
            batch_request(full.s3, BUCKET, document(["drip/b"])).raw(),
        ):
            sock = stack.enter_context(socket.create_connection(full.s3.address, timeout=20))
            sock.sendall(raw)
            assert read_head(stack.enter_context(sock.makefile("rb")))[0] == 200
        for request in (
            sign(full.s3, "GET", f"/{BUCKET}/fine/c"),
            batch_request(full.s3, BUCKET, document(["fine/d"])),
        ):
            assert_slow_down(send(full.s3, request))
        assert full.metric("batchgate_edge_requests_in_flight") == 2
        assert full.metric("batchgate_edge_refused_total") == 2
        wait_for("the two have ended", lambda: full.metric("batchgate_edge_requests_in_flight") == 0, 10)
        assert call(full.s3, "GET", f"/{BUCKET}/fine/c").body == body_of("fine/c", SMALL)
        assert_all_released(full)
    assert full.stop() == 0


def assert_slow_down(answer: Answer) -> None:
    assert (answer.status, answer.xml("Code")) == (503, "SlowDown"), answer
    assert re.fullmatch(r"[1-9]\d*", answer.get("retry-after") or ""), answer.headers
    assert answer.get("x-amz-request-id") == answer.xml("RequestId")


def test_batches_beyond_the_memory_are_refused_and_it_all_comes_back(
    start_gateway: Callable[..., Gateway], store: Target
) -> None:
    """A quarter of 4 MiB holds the heads of fifteen small batches; readers that stall keep theirs."""
    tight = start_gateway(
        [Backend("store", "*", store)],
        '[batch]\nentries_max = 500\nbody_bytes_max = "256KiB"\nentry_bytes = "64KiB"\nwindow_bytes = "512KiB"\n',
        "tight",
        'memory_bytes_max = "4MiB"\nchunk_bytes_max = "1MiB"',
    )
    request = batch_request(tight.s3, BUCKET, document([f"large-{i}" for i in range(4)]))
    readers: list[socket.socket] = []
    try:
        for _ in range(15):
            readers.append(stalled(tight.s3, request))
        wait_for("they are admitted", lambda: tight.metric("batchgate_batch_in_flight") == 15, 20)
        for entries in (["k"], ["k"] * 100):
            assert_slow_down(send(tight.s3, batch_request(tight.s3, BUCKET, document(entries))))
        assert tight.metric("batchgate_batch_in_flight") == 15, "nobody was broken off for it before its time"
        assert tight.metric("batchgate_memory_reserved_bytes") <= 4 << 20
        assert call(tight.s3, "GET", f"/{BUCKET}/k").body == b"value", "plain requests go on"
        # One that reads on to its end makes room for another.
        with readers.pop().makefile("rb") as stream:
            assert {part.status for part in read_batch(read_answer(stream)).parts} == {200}
        wait_for("its head is free", lambda: tight.metric("batchgate_batch_in_flight") == 14, 10)
        assert batch_get(tight.s3, BUCKET, ["k"]).parts[0].body == b"value"
    finally:
        for reader in readers:
            reader.close()
    assert_all_released(tight)
    assert tight.stop() == 0


def test_bodies_that_are_sent_by_half_keep_nobody_out(start_gateway: Callable[..., Gateway], store: Target) -> None:
    """What was announced and did not come is nobody's memory, whoever asks: a quarter of 4 MiB is kept for batches."""
    tight = start_gateway(
        [Backend("store", "*", store)],
        '[batch]\nentries_max = 500\nbody_bytes_max = "256KiB"\nentry_bytes = "64KiB"\nwindow_bytes = "512KiB"\n',
        "half",
        'memory_bytes_max = "4MiB"\nchunk_bytes_max = "1MiB"',
    )
    list_of_one = b"<Delete><Object><Key>half-sent</Key></Object></Delete>"
    with ExitStack() as stack:
        for path, length in ((f"/{BUCKET}?batch-get=", 256 << 10), (f"/{BUCKET}?delete=", 4 << 20)):
            for _ in range(16):
                headers = {"Content-Type": "application/json"}
                request = sign(tight.as_identity(NOTHING), "POST", path, headers, payload_hash="0" * 64)
                request.set("Content-Length", str(length))
                sock = stack.enter_context(socket.create_connection(tight.s3.address))
                sock.sendall(request.raw() + b" " * 1024)
        wait_for("they are under way", lambda: tight.metric("batchgate_edge_requests_in_flight") >= 32, 20)
        assert tight.metric("batchgate_memory_reserved_bytes") <= 32 * (16 << 10)
        assert batch_get(tight.s3, BUCKET, ["k"]).parts[0].body == b"value"
        md5 = base64.b64encode(hashlib.md5(list_of_one).digest()).decode()
        assert call(tight.s3, "POST", f"/{BUCKET}?delete=", {"Content-MD5": md5}, list_of_one).status == 200
    assert_all_released(tight)
    assert tight.stop() == 0


def within(seconds: float, action: Callable[[], T]) -> T:
    """Runs the action in a thread, so that a hang is a failure and not a hang."""
    outcome: list[T | BaseException] = []

    def guarded() -> None:
        try:
            outcome.append(action())
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            outcome.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"not done within {seconds} s"
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
