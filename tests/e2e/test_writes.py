"""Requests that get no answer: a write reaches the store at most once and its client learns whether anything was sent; a GET
or HEAD is sent again.

Each test asks for its own key (`FAULT/name of the test`), so that what the backend has seen of it can be counted.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from support.batch import batch_get
from support.faulty import FAILED_LATE, LARGE, SMALL, FaultyBackend, body_of
from support.gateway import Backend, Gateway
from support.process import wait_for
from support.rawsocket import read_answer
from support.store import Credentials, Target
from support.wire import Answer, call, object_path, send, sign

BUCKET, DEAD_BUCKET = "faulty-bucket", "dead-bucket"
UNKNOWN = "batchgate_passthrough_unknown_outcomes_total"
IMPATIENT = 'attempt_timeout = "500ms"\nconnect_timeout = "500ms"\nresponse_timeout = "1s"'


@dataclass(frozen=True)
class Write:
    """A request that changes something; `advice` is what its client is told to do about an unknown outcome."""

    method: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    advice: str = "HEAD"


WRITES = {
    "put": Write("PUT", body=b"x" * SMALL),
    "put-empty": Write("PUT"),
    "put-if-none-match": Write(
        "PUT", headers={"If-None-Match": "*"}, body=b"x" * SMALL, advice="its condition may fail"
    ),
    "delete": Write("DELETE"),
    "copy": Write("PUT", headers={"x-amz-copy-source": "/BUCKET/fine/source"}),
    "begin-upload": Write("POST", "uploads", advice="list the bucket's uploads"),
    "upload-part": Write("PUT", "partNumber=1&uploadId=u", body=b"x" * SMALL, advice="list the parts"),
    "complete-upload": Write("POST", "uploadId=u", body=b"<CompleteMultipartUpload/>"),
    "abort-upload": Write("DELETE", "uploadId=u", advice="list the bucket's uploads"),
}

# How the store fails, and the client's status.
UNANSWERED = {
    "hang-up": 502,
    "half-head": 502,
    "endless-head": 502,
    "garbage": 502,
    "silent": 504,
    "early-hang-up": 502,
}


@pytest.fixture(scope="module")
def faulty(start_gateway: Callable[..., Gateway], backend: FaultyBackend) -> Iterator[Gateway]:
    """`faulty-*` leads to the faulty backend, `dead-*` to a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pair = Credentials("BACKENDKEY", "secret-of-the-backend")
        dead = Target(f"http://127.0.0.1:{unused.getsockname()[1]}", pair)
        backends = [
            Backend("faulty", "faulty-*", Target(backend.endpoint, pair), IMPATIENT),
            Backend("dead", "dead-*", dead, IMPATIENT),
        ]
        running = start_gateway(backends, name="writes")
        yield running
    running.assert_gauges_at_zero()
    assert running.stop() == 0
    assert "panicked" not in running.process.stderr()


@pytest.fixture(autouse=True)
def in_use(faulty: Gateway) -> None:
    """Faults of the test before must not keep the backend out of use for this one."""
    path = object_path(BUCKET, "fine/probe")
    wait_for("the backend is in use", lambda: call(faulty.s3, "GET", path).status == 200, 30)


def ask(gateway: Gateway, write: Write, key: str, bucket: str = BUCKET) -> Answer:
    headers = {name: value.replace("BUCKET", bucket) for name, value in write.headers.items()}
    return call(gateway.s3, write.method, object_path(bucket, key, write.query), headers, write.body)


def listening(gateway: Gateway, key: str, body: bytes) -> Answer:
    """A PUT by a client that reads while it writes, and does not mind if nobody wants the rest of its body."""
    request = sign(gateway.s3, "PUT", object_path(BUCKET, key), {}, body).raw()

    def write(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(request)

    with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        writer = threading.Thread(target=write, args=(sock,))
        writer.start()
        answer = read_answer(stream)
        sock.close()
        writer.join(20)
    return answer


def unknown_outcomes(gateway: Gateway) -> float:
    return gateway.metric(UNKNOWN)


@pytest.mark.parametrize("fault", UNANSWERED)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_without_an_answer_is_sent_once_and_its_outcome_is_unknown(
    faulty: Gateway, backend: FaultyBackend, name: str, fault: str
) -> None:
    write, key = WRITES[name], f"{fault}/{name}"
    before = unknown_outcomes(faulty)
    answer = ask(faulty, write, key)
    message = answer.xml("Message") or ""
    assert answer.status == UNANSWERED[fault] and "the outcome is unknown: " in message, answer
    assert write.advice in message, message
    assert [seen.method for seen in backend.requests(key)] == [write.method]
    assert unknown_outcomes(faulty) == before + 1
    request_id = answer.get("x-batchgate-request-id") or ""
    assert request_id

    def told() -> bool:
        lines = [line for line in faulty.process.stderr().splitlines() if request_id in line and "WARN" in line]
        return len(lines) == 1 and "the outcome is unknown" in lines[0]

    wait_for("the log says so, with the request's id", told, 5)


@pytest.mark.parametrize("name", WRITES)
def test_of_a_write_to_a_dead_store_nothing_was_sent(faulty: Gateway, name: str) -> None:
    before = unknown_outcomes(faulty)
    answer = ask(faulty, WRITES[name], f"fine/{name}", DEAD_BUCKET)
    message = answer.xml("Message") or ""
    assert (answer.status, answer.xml("Code")) == (503, "ServiceUnavailable"), answer
    assert "nothing was sent" in message and "unknown" not in message, message
    assert unknown_outcomes(faulty) == before


@pytest.mark.parametrize(("fault", "status"), [("early-403", 403), ("early-503", 503)])
def test_an_answer_before_the_body_was_read_is_passed_on(
    faulty: Gateway, backend: FaultyBackend, fault: str, status: int
) -> None:
    """The store refuses after the head and hangs up, while the body is still on its way."""
    before = unknown_outcomes(faulty)
    for size in (SMALL, LARGE):
        key = f"{fault}/{size}"
        answer = listening(faulty, key, b"x" * size)
        assert answer.status == status and answer.xml("Message"), answer
        assert len(backend.requests(key)) == 1
    assert unknown_outcomes(faulty) == before


@pytest.mark.parametrize("name", ["complete-upload", "copy"])
def test_a_success_that_breaks_off_does_not_look_whole(faulty: Gateway, backend: FaultyBackend, name: str) -> None:
    key = f"completes-cut/{name}"
    before = unknown_outcomes(faulty)
    answer = ask(faulty, WRITES[name], key)
    assert answer.status == 200 and answer.broken, answer
    assert len(backend.requests(key)) == 1
    wait_for("it is counted", lambda: unknown_outcomes(faulty) == before + 1, 5)
    wait_for("the log says so", lambda: "the answer to a write broke off" in faulty.process.stderr(), 5)


@pytest.mark.parametrize("name", ["complete-upload", "copy"])
def test_an_error_inside_a_success_is_the_clients_to_see(faulty: Gateway, backend: FaultyBackend, name: str) -> None:
    """S3 says so once it has said 200 (CompleteMultipartUpload, CopyObject); SDKs look for it."""
    key = f"completes-with-an-error/{name}"
    before = unknown_outcomes(faulty)
    answer = ask(faulty, WRITES[name], key)
    assert answer.status == 200 and not answer.broken and answer.body.endswith(FAILED_LATE), answer
    assert len(backend.requests(key)) == 1 and unknown_outcomes(faulty) == before


@pytest.mark.parametrize("fault", ["hang-up-then-fine", "half-head-then-fine"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_without_an_answer_is_sent_again(
    faulty: Gateway, backend: FaultyBackend, method: str, fault: str
) -> None:
    key = f"{fault}/{method}"
    answer = call(faulty.s3, method, object_path(BUCKET, key))
    assert answer.status == 200 and answer.get("content-length") == str(SMALL), answer
    assert answer.body == (body_of(key, SMALL) if method == "GET" else b"")
    assert [seen.method for seen in backend.requests(key)] == [method] * 3
    assert all(seen.headers["authorization"] for seen in backend.requests(key))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_is_given_up_after_three_times(faulty: Gateway, backend: FaultyBackend, method: str) -> None:
    key = f"hang-up-thrice/{method}"
    before = unknown_outcomes(faulty)
    answer = call(faulty.s3, method, object_path(BUCKET, key))
    assert answer.status == 502 and b"outcome" not in answer.body, answer
    assert len(backend.requests(key)) == 3 and unknown_outcomes(faulty) == before


@pytest.mark.parametrize(
    ("fault", "status"), [("503-always", 503), ("500-then-fine", 500), ("404", 404), ("garbage", 502), ("silent", 504)]
)
def test_a_read_that_was_answered_is_not_sent_again(
    faulty: Gateway, backend: FaultyBackend, fault: str, status: int
) -> None:
    key = f"{fault}/lone-read"
    assert call(faulty.s3, "GET", object_path(BUCKET, key)).status == status
    assert len(backend.requests(key)) == 1


def test_a_body_that_breaks_stays_broken(faulty: Gateway, backend: FaultyBackend) -> None:
    key = "cut-small/lone-read"
    answer = call(faulty.s3, "GET", object_path(BUCKET, key))
    assert answer.status == 200 and answer.broken, answer
    assert len(backend.requests(key)) == 1


def test_a_get_with_a_body_is_sent_once(faulty: Gateway, backend: FaultyBackend) -> None:
    key = "hang-up-then-fine/with-body"
    assert call(faulty.s3, "GET", object_path(BUCKET, key), {}, b"body").status == 502
    assert len(backend.requests(key)) == 1


def test_a_store_that_closes_idle_connections_costs_no_read(faulty: Gateway, backend: FaultyBackend) -> None:
    """At once after the answer, which says nothing of it: the next request may be on its way already."""
    for number in range(50):
        key = f"closes-idle/{number}"
        answer = call(faulty.s3, "GET", object_path(BUCKET, key))
        assert (answer.status, answer.body) == (200, body_of(key, SMALL)), answer
    keys = [f"closes-idle/{number}" for number in range(100)]
    for part, key in zip(batch_get(faulty.s3, BUCKET, keys).parts, keys, strict=True):
        assert (part.status, part.body) == (200, body_of(key, SMALL))


def test_a_write_after_a_closed_connection_is_sent_at_most_once(faulty: Gateway, backend: FaultyBackend) -> None:
    done = 0
    for number in range(30):
        call(faulty.s3, "GET", object_path(BUCKET, f"closes-idle/before-{number}"))
        key = f"fine/after-{number}"
        request = sign(faulty.s3, "PUT", object_path(BUCKET, key), {}, b"x")
        answer = send(faulty.s3, request)
        seen = len(backend.requests(key))
        assert seen <= 1 and (answer.status != 200 or seen == 1), answer
        done += answer.status == 200
    assert done >= 25, f"only {done} of 30: a connection that is known to be closed is not used"
