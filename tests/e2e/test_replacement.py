"""Two gateways behind HAProxy, each replaced in turn under load: no request is lost and no batch is cut.

HAProxy runs `config/haproxy.cfg` with its ports moved and its check made faster. Clients are Python's own HTTP client and
never ask twice, so that whatever goes wrong on the way is seen.
"""

import collections
import http.client
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.batch import batch_request, document, read_batch
from support.gateway import FULL, REPOSITORY, Backend, Gateway, settings
from support.process import Process, free_ports, wait_for
from support.store import Target
from support.wire import Answer, Request, call, object_path, open_stream, sign

BUCKET = "replaced"
OBJECTS = 50
LEAD_SECONDS = 1
ROUNDS = 2
# At 20 ms for each of four reads at a time, 240 entries take 1.2 s at least.
ENTRIES = 240
PACE = "[batch]\nconcurrency = 4\n"


def body_of(number: int) -> bytes:
    return f"object {number} ".encode() * 100


class Load:
    """Threads that ask until told to stop; whatever is not right is noted."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stop = threading.Event()
        self.done: collections.Counter[str] = collections.Counter()
        self.lost: list[str] = []
        self.numbers = itertools.count()
        self.threads: list[threading.Thread] = []

    def begin(self, name: str, ask: Callable[[http.client.HTTPConnection], None], keep: bool) -> None:
        """One more thread that does `ask` again and again, over one connection or over new ones."""
        self.threads.append(threading.Thread(target=self._run, args=(name, ask, keep), name=name))
        self.threads[-1].start()

    def _run(self, name: str, ask: Callable[[http.client.HTTPConnection], None], keep: bool) -> None:
        connection = self._connect()
        while not self.stop.is_set():
            started = time.monotonic()
            try:
                ask(connection)
                self.done[name] += 1
            except Exception as error:
                self.lost.append(f"{name} after {time.monotonic() - started:.3f} s: {error!r}"[:600])
                keep_this = False
            else:
                keep_this = keep
            if not keep_this:
                connection.close()
                connection = self._connect()
            time.sleep(0.005)
        connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.target.address, timeout=30)

    def exchange(self, connection: http.client.HTTPConnection, request: Request) -> Answer:
        response = open_stream(connection, request)
        return Answer(response.status, response.getheaders(), response.read())

    def get(self, connection: http.client.HTTPConnection) -> None:
        number = next(self.numbers) % OBJECTS
        answer = self.exchange(connection, sign(self.target, "GET", object_path(BUCKET, f"object-{number}")))
        assert answer.status == 200 and answer.body == body_of(number), answer

    def put(self, connection: http.client.HTTPConnection) -> None:
        number = next(self.numbers) % OBJECTS
        request = sign(self.target, "PUT", object_path(BUCKET, f"written-{number}"), body=body_of(number))
        answer = self.exchange(connection, request)
        assert answer.status == 200, answer

    def batch(self, connection: http.client.HTTPConnection) -> None:
        numbers = [n % OBJECTS for n in range(ENTRIES)]
        request = batch_request(self.target, BUCKET, document([f"object-{n}" for n in numbers]))
        batch = read_batch(self.exchange(connection, request))
        assert [(part.status, part.body) for part in batch.parts] == [(200, body_of(n)) for n in numbers]

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(30)


class Pair:
    """Two gateways before one store, at fixed ports, each of which can be replaced."""

    def __init__(self, folder: Path, store: Target, ports: list[int]) -> None:
        self.folder = folder
        self.ports = [tuple(ports[:2]), tuple(ports[2:])]
        self.store = store
        self.generation = itertools.count()
        self.running = [self.start(0), self.start(1)]

    def start(self, which: int) -> Gateway:
        s3, admin = self.ports[which]
        backend = Backend("store", "*", self.store, 'latency = "20ms"')
        text = settings([backend], PACE, server=f'drain_lead = "{LEAD_SECONDS}s"')
        text = text.replace('["127.0.0.1:0"]', f'["127.0.0.1:{s3}"]').replace('"127.0.0.1:0"', f'"127.0.0.1:{admin}"')
        return Gateway(self.folder, text, f"gateway-{which}-{next(self.generation)}")

    def wait_until_both_serve(self, *operations: str) -> None:
        for gateway in self.running:
            for operation in operations:
                wait_for(f"{gateway.process.name} serves {operation}", partial(answered, gateway, operation), 10)

    def replace(self, which: int) -> None:
        """Ends one as an operator would; it takes its time and leaves well. Then a new one comes to its place."""
        gateway, told = self.running[which], time.monotonic()
        gateway.process.terminate()
        assert gateway.process.child.wait(20) == 0, gateway.process.stderr()[-4000:]
        assert time.monotonic() - told >= LEAD_SECONDS
        for trouble in ("panicked", "drain deadline passed"):
            assert trouble not in gateway.process.stderr(), gateway.process.stderr()[-4000:]
        self.running[which] = self.start(which)

    def stop(self) -> None:
        for gateway in self.running:
            gateway.stop()


def answered(gateway: Gateway, operation: str) -> float:
    """Requests of this kind that it has answered with 200; none yet is none."""
    text = gateway.admin_get("/metrics")[1]
    wanted = f'batchgate_edge_requests_total{{operation="{operation}",status="200"}} '
    return sum(float(line.removeprefix(wanted)) for line in text.splitlines() if line.startswith(wanted))


@pytest.fixture
def ports() -> list[int]:
    return free_ports(5)


@pytest.fixture
def pair(start_gateway: object, seaweedfs: Target, tmp_path: Path, ports: list[int]) -> Iterator[Pair]:
    pair = Pair(tmp_path, seaweedfs, ports[1:])
    yield pair
    pair.stop()


@pytest.fixture
def haproxy(pair: Pair, tmp_path: Path, ports: list[int]) -> Iterator[Target]:
    """HAProxy as `config/haproxy.cfg` has it, but for its ports, and with checks that fit the test's short lead."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert program, "haproxy is missing; tests/run installs it"
    text = (REPOSITORY / "config" / "haproxy.cfg").read_text()
    front, *behind = ports
    moves = {"127.0.0.1:8000": front, "127.0.0.1:9000": behind[0], "127.0.0.1:9010": behind[2]}
    for shown, port in moves.items():
        assert f"{shown}" in text, shown
        text = text.replace(shown, f"127.0.0.1:{port}")
    changes = {"port 9001": f"port {behind[1]}", "port 9011": f"port {behind[3]}", "inter 1s": "inter 200ms"}
    changes["timeout check 2s"] = "timeout check 500ms"
    for shown, changed in changes.items():
        assert shown in text, shown
        text = text.replace(shown, changed)
    (tmp_path / "haproxy.cfg").write_text(text)
    process = Process("haproxy", [program, "-db", "-f", "haproxy.cfg"], tmp_path)
    target = Target(f"http://127.0.0.1:{front}", FULL)
    process.wait_until_ready(lambda: call(target, "GET", "/").status < 600, 10)
    yield target
    process.stop(5)


@pytest.fixture
def load(haproxy: Target) -> Load:
    """With the objects that it asks for."""
    wait_for("HAProxy knows of a gateway", lambda: call(haproxy, "GET", "/").status == 200, 10)
    assert call(haproxy, "PUT", f"/{BUCKET}").status in (200, 409)
    for number in range(OBJECTS):
        path = object_path(BUCKET, f"object-{number}")
        assert call(haproxy, "PUT", path, {}, body_of(number)).status == 200
    return Load(haproxy)


def test_a_rolling_replacement_loses_nothing(pair: Pair, load: Load) -> None:
    try:
        for name, ask in (("get", load.get), ("put", load.put), ("batch", load.batch)):
            load.begin(f"{name}, kept connection", ask, keep=True)
            load.begin(f"{name}, new connections", ask, keep=False)
        pair.wait_until_both_serve("passthrough", "batch")
        for which in [0, 1] * ROUNDS:
            pair.replace(which)
            # As whoever replaces must: before HAProxy has the new one, the other one must not go.
            pair.wait_until_both_serve("passthrough", "batch")
    finally:
        load.end()
    assert not load.lost, f"{len(load.lost)} lost of {load.done}: " + "\n".join(load.lost[:10])
    assert len(load.done) == 6 and min(load.done.values()) >= 2 * ROUNDS, load.done
    assert not any(thread.is_alive() for thread in load.threads)


def test_reads_survive_a_gateway_that_dies(pair: Pair, load: Load) -> None:
    """Nobody was told. What it had not begun to answer is asked of the other one."""
    try:
        for n in range(4):
            load.begin(f"get {n}", load.get, keep=n % 2 == 0)
        for which in (0, 1):
            pair.wait_until_both_serve("passthrough")
            gateway = pair.running[which]
            gateway.process.child.kill()
            gateway.process.child.wait(5)
            done = load.done.total()
            wait_for("the other one serves all", lambda done=done: load.done.total() > done + 40, 10)
            pair.running[which] = pair.start(which)
    finally:
        load.end()
    assert not load.lost, f"{len(load.lost)} lost of {load.done}: " + "\n".join(load.lost[:10])
