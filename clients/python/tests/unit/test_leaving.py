"""Single GETs and how they end: with the loop, with the process, and in a child after a fork, whatever the endpoint does."""

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import Endpoint, Exchange, body_of, refuse

import batchgate

pytestmark = pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
KEYS = ["now", "later", "dribble", "hang", "hang"]
SOURCES = Path(batchgate.__file__).parents[1]


def stubborn(exchange: Exchange) -> None:
    """Gives `now`, refuses `later` for long, and comes to no end with anything else."""
    how = exchange.path.removeprefix("/b/")
    if how == "now":
        return exchange.send(200, {}, body_of(how))
    if how == "later":
        return exchange.refuse(503, "SlowDown", retry_after="30")
    if how == "dribble":
        exchange.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            exchange.sock.sendall(b"1\r\nx\r\n")
            time.sleep(0.02)
    exchange.sock.recv(1)
    raise ConnectionAbortedError


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(capabilities=refuse(501, "NotImplemented"), objects=stubborn) as endpoint:
        yield endpoint


def threads() -> int:
    return sum(thread.name.startswith("batchgate") for thread in threading.enumerate())


def test_what_is_under_way_ends_at_its_next_step(endpoint: Endpoint) -> None:
    client = endpoint.client(read_timeout=1)
    for part in client.get_many(KEYS):
        assert part.data == body_of("now") and 1 <= threads() <= len(KEYS)
        break
    until = time.monotonic() + 10
    while threads() and time.monotonic() < until:
        time.sleep(0.02)
    # Neither the pause of 30 seconds nor the attempts after a timeout were waited for.
    assert threads() == 0


PROGRAM = f"""
import sys, warnings
sys.path.insert(0, {str(SOURCES)!r})
import batchgate
warnings.simplefilter("ignore")
pair = {{"aws_access_key_id": "AK", "aws_secret_access_key": "SK"}}
client = batchgate.Client(endpoint_url=sys.argv[1], bucket="b", region_name="us-east-1", **pair)
parts = client.get_many({KEYS!r})
print(next(parts).key, flush=True)
"""
WAYS = {
    "closes": "parts.close()",
    "ends": "",
    "keeps it": "import builtins; builtins.parts = parts",
    "waits": "next(parts)",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_leaves_ends_at_once(endpoint: Endpoint, way: str) -> None:
    argv = [sys.executable, "-c", PROGRAM + WAYS[way], endpoint.url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "now\n"
            if way == "waits":
                time.sleep(0.2)
                child.send_signal(signal.SIGINT)
            begun = time.monotonic()
            _, said = child.communicate(timeout=20)
            # About a second is promised; the machine may have other work.
            assert time.monotonic() - begun < 5
        finally:
            child.kill()
    if way == "waits":
        assert child.returncode == -signal.SIGINT and said.rstrip().endswith("KeyboardInterrupt")
    else:
        assert (child.returncode, said) == (0, "")


def _in_child(begun: Iterator[batchgate.Part], told: "multiprocessing.SimpleQueue[str]") -> None:
    try:
        told.put(f"given {next(begun)}")
    except batchgate.BatchGateError as error:
        told.put(str(error))


def test_a_child_is_told_that_the_gets_are_its_parents(endpoint: Endpoint) -> None:
    parts = endpoint.client().get_many(["now", "now", *KEYS])
    next(parts)
    context = multiprocessing.get_context("fork")
    told: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads
        child = context.Process(target=_in_child, args=(parts, told))
        child.start()
    child.join(10)
    try:
        assert child.exitcode == 0
        assert told.get() == "an iteration that began before a fork goes on in the parent only"
        assert next(parts).data == body_of("now"), "the parent's iteration is untouched"
    finally:
        child.kill()
        parts.close()
