"""Whole conversations with an endpoint that answers by script: breaks, refusals, limits, early ends."""

import hashlib
import json
import multiprocessing
import os
import pickle
import threading
import time
import warnings
from collections.abc import Iterator

import pytest
from botocore.credentials import Credentials, ReadOnlyCredentials
from scripted import CAPABILITIES, Answer, Endpoint, Exchange, body_of, cut, hang_up, honest, parts_of, refuse
from wire import BOUNDARY, CLOSE, part, summary

import batchgate
from batchgate import _patience

KEYS = [f"key-{i:02}" for i in range(20)]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; what would have been waited is remembered."""
    slept: list[float] = []
    monkeypatch.setattr("batchgate._patience.wait", lambda seconds, cancelled: slept.append(seconds))
    return slept


def read(endpoint: Endpoint, **options: object) -> list[batchgate.Part]:
    return list(endpoint.client().get_many(KEYS, on_error="return", **options))  # type: ignore[arg-type]


def assert_whole(parts: list[batchgate.Part]) -> None:
    assert [part.key for part in parts] == KEYS and [part.index for part in parts] == list(range(len(KEYS)))
    assert all(part.data == body_of(part.key) and part.bucket == "b" and part.etag == '"e"' for part in parts)


def test_the_request_is_signed_over_its_body_and_keeps_the_contract() -> None:
    with Endpoint(honest) as endpoint:
        assert_whole(read(endpoint))
        (post,), (get,) = endpoint.posts, endpoint.gets
    assert (post.method, post.path, get.path) == ("POST", "/b?batch-get=", "/?batch-get=")
    assert post.document == {"Objects": [{"Key": key} for key in KEYS], "OnError": "Continue", "Order": "Request"}
    assert post.headers["x-amz-content-sha256"] == hashlib.sha256(post.body).hexdigest()
    assert post.headers["content-type"] == "application/json" and "SignedHeaders" in post.headers["authorization"]
    assert post.connection == get.connection, "the connection was kept"


@pytest.mark.parametrize(
    "script, asked",
    [
        ([hang_up, honest], [20, 20]),
        ([cut(0), honest], [20, 20]),
        ([cut(7), honest], [20, 13]),
        ([cut(7, into_the_next=0), honest], [20, 13]),
        ([cut(19, into_the_next=200), honest], [20, 1]),
        ([cut(5), hang_up, cut(5), honest], [20, 15, 15, 10]),
        ([cut(20, into_the_next=3)], [20]),
        ([refuse(503, "SlowDown"), refuse(500, "InternalError"), honest], [20, 20, 20]),
    ],
)
def test_parts_before_a_break_are_final_and_only_the_rest_is_asked_again(
    script: list[Answer], asked: list[int]
) -> None:
    with Endpoint(*script) as endpoint:
        assert_whole(read(endpoint))
        assert [len(post.keys) for post in endpoint.posts] == asked
        assert all(post.keys == KEYS[len(KEYS) - len(post.keys) :] for post in endpoint.posts)


def test_a_break_under_completion_asks_for_what_is_missing(pauses: list[float]) -> None:
    def shuffled(exchange: Exchange) -> None:
        parts = parts_of(exchange)
        parts = parts[3:9] + parts[:3] + parts[9:]
        exchange.batch(b"".join(parts), cut_after=sum(map(len, parts[:7])) + 5)

    with Endpoint(shuffled, honest) as endpoint:
        parts = read(endpoint, order="completion")
        assert endpoint.posts[1].keys == KEYS[1:3] + KEYS[9:]
    assert [part.index for part in parts] == [3, 4, 5, 6, 7, 8, 0, 1, 2, *range(9, 20)]
    assert_whole(sorted(parts, key=lambda part: part.index))


def test_a_break_under_omit_asks_behind_the_last_part() -> None:
    def omitting(exchange: Exchange) -> None:
        bodies = [(i, body_of(key)) for i, key in enumerate(exchange.keys) if i % 2]
        parts = [part(i, body, 'etag: "e"') for i, body in bodies]
        last = summary(len(exchange.keys), [body for _, body in bodies], Omitted=len(exchange.keys) - len(bodies))
        cut_after = sum(map(len, parts[:4])) if len(exchange.keys) == 20 else None
        exchange.batch(b"".join(parts) + last + CLOSE, cut_after)

    with Endpoint(omitting) as endpoint:
        found = list(endpoint.client().get_many(KEYS, on_error="omit"))
        assert [post.document["OnError"] for post in endpoint.posts] == ["Omit", "Omit"]
    assert [p.index for p in found] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
    assert all(p.data == body_of(p.key) for p in found)


def test_attempts_are_bounded_and_pauses_grow(pauses: list[float]) -> None:
    with Endpoint(cut(3), hang_up) as endpoint:
        parts = endpoint.client(attempts_max=4).get_many(KEYS)
        assert [next(parts).index for _ in range(3)] == [0, 1, 2], "what was whole is not lost"
        with pytest.raises(batchgate.EndpointError, match="4 attempts") as told:
            next(parts)
        assert isinstance(told.value, ConnectionError) and told.value.__cause__ is not None
        # The first of the four is the cut one, which also made progress.
        assert len(endpoint.posts) == 4 and len(pauses) == 3
    for number, pause in enumerate(pauses):
        assert 0.5 <= pause / (_patience.BACKOFF_BASE_SECONDS * 2**number) <= 1


def test_slow_down_says_how_long_to_wait(pauses: list[float]) -> None:
    with Endpoint(
        refuse(503, "SlowDown", retry_after="7"), refuse(503, "SlowDown", retry_after="900"), honest
    ) as endpoint:
        assert_whole(read(endpoint))
    assert pauses == [7, _patience.RETRY_AFTER_MAX_SECONDS]


@pytest.mark.parametrize(
    "status, code, attempts",
    [(400, "InvalidArgument", 1), (403, "SignatureDoesNotMatch", 1), (404, "NoSuchBucket", 1), (503, "SlowDown", 6)],
)
def test_a_refused_request_is_a_typed_error(status: int, code: str, attempts: int) -> None:
    with Endpoint(refuse(status, code)) as endpoint:
        with pytest.raises(batchgate.RequestError, match="so it is") as told:
            read(endpoint)
        assert len(endpoint.posts) == attempts
    assert (told.value.status, told.value.code, told.value.request_id) == (status, code, "r-1")
    assert isinstance(told.value, PermissionError) == (status == 403)


@pytest.mark.parametrize(
    "lie",
    [
        lambda e: e.batch(b"".join(parts_of(e)[:-1]) + CLOSE),
        lambda e: e.batch(b"".join(parts_of(e)) + CLOSE + b"more"),
        lambda e: e.batch(b"".join(parts_of(e)) + CLOSE, count=21),
        lambda e: e.send(200, {"content-type": "text/html"}, b"<p>hello"),
        lambda e: e.send(200, {}, b""),
    ],
)
def test_a_lying_endpoint_is_not_asked_again(lie: Answer) -> None:
    with Endpoint(lie) as endpoint:
        with pytest.raises(batchgate.ProtocolError):
            read(endpoint)
        assert len(endpoint.posts) == 1


def test_raise_gives_what_came_before_and_raises_in_its_turn() -> None:
    with Endpoint(honest) as endpoint:
        parts = endpoint.client(entries_max=4).get_many([*KEYS[:5], "missing-1", "missing-2"])
        assert [next(parts).key for _ in range(5)] == KEYS[:5]
        with pytest.raises(batchgate.EntryNotFoundError) as told:
            next(parts)
        assert (told.value.index, told.value.key, told.value.bucket, told.value.code) == (
            5,
            "missing-1",
            "b",
            "NoSuchKey",
        )
        assert isinstance(told.value, FileNotFoundError) and told.value.message.endswith("NoSuchKey: why & how")
        with pytest.raises(StopIteration):
            next(parts)
        assert [post.document["OnError"] for post in endpoint.posts] == ["Stop", "Stop"]


def test_return_gives_errors_as_parts() -> None:
    with Endpoint(honest) as endpoint:
        parts = list(endpoint.client().get_many(["a", "missing", "b"], on_error="return"))
    assert [(p.status, p.error is None, p.data) for p in parts] == [
        (200, True, body_of("a")), (404, False, b""), (200, True, body_of("b")),
    ]  # fmt: skip
    assert isinstance(parts[1].error, FileNotFoundError) and parts[1].content_type == "application/xml"


def limits(entries: object, body_bytes: object) -> Answer:
    told = {**CAPABILITIES, "Limits": {"Entries": entries, "BodyBytes": body_bytes}}
    return lambda exchange: exchange.send(200, {}, json.dumps(told).encode())


@pytest.mark.parametrize(
    "entries, body_bytes, asked", [(7, 1 << 20, [7, 7, 6]), (1000, 250, [7, 7, 6]), (None, "x", [20])]
)
def test_requests_keep_to_the_limits_of_the_endpoint(entries: object, body_bytes: object, asked: list[int]) -> None:
    with Endpoint(honest, capabilities=limits(entries, body_bytes)) as endpoint:
        client = endpoint.client()
        for _ in range(2):
            assert_whole(list(client.get_many(KEYS)) if entries else read(endpoint))
        assert [len(post.keys) for post in endpoint.posts[: len(asked)]] == asked
        assert all(isinstance(body_bytes, str) or len(post.body) <= body_bytes for post in endpoint.posts)  # type: ignore[operator]
        assert len(endpoint.gets) == (1 if entries else 2), "asked once a client"


def test_keys_are_taken_as_they_are_needed() -> None:
    taken: list[str] = []

    def endless() -> Iterator[str]:
        while True:
            taken.append(f"k{len(taken)}")
            yield taken[-1]

    with Endpoint(honest) as endpoint, endpoint.client(entries_max=10).get_many(endless()) as parts:
        for part_ in parts:
            assert len(taken) <= part_.index + 10
            if part_.index == 95:
                break
        assert len(endpoint.posts) == 10


@pytest.mark.parametrize("how", ["break", "close", "with", "error"])
def test_leaving_early_ends_the_connection(how: str) -> None:
    release = threading.Event()

    def endless(exchange: Exchange) -> None:
        exchange.sock.settimeout(10)
        exchange.sock.sendall(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nbatch-count: 20\r\n"
            b"content-type: multipart/mixed; boundary=%s\r\n\r\n" % BOUNDARY
        )
        first = part(0, b"x")
        exchange.sock.sendall(b"%x\r\n%s\r\n" % (len(first), first))
        assert exchange.sock.recv(1) == b"", "nothing but the end comes"
        release.set()
        raise ConnectionAbortedError

    with Endpoint(endless) as endpoint:
        client = endpoint.client()
        if how == "break":
            for _ in client.get_many(KEYS):
                break
        elif how == "close":
            parts = client.get_many(KEYS)
            next(parts)
            parts.close()
        elif how == "with":
            with client.get_many(KEYS) as parts:
                for _ in parts:
                    break
        else:
            with pytest.raises(ZeroDivisionError):
                for _ in client.get_many(KEYS):
                    raise ZeroDivisionError
        assert release.wait(5)


def test_a_client_survives_pickling_with_what_it_has_learnt() -> None:
    with Endpoint(honest) as endpoint:
        client = endpoint.client(entries_max=7)
        assert_whole(list(client.get_many(KEYS)))
        copy = pickle.loads(pickle.dumps(client))
        assert_whole(list(copy.get_many(KEYS)))
        assert len(endpoint.gets) == 1 and len(endpoint.posts) == 6


def _in_child(
    client: batchgate.Client, begun: Iterator[batchgate.Part], answers: "multiprocessing.SimpleQueue[object]"
) -> None:
    assert_whole(list(client.get_many(KEYS)))
    try:
        answers.put(f"given {next(begun)}")
    except batchgate.BatchGateError as error:
        answers.put(str(error))


def test_a_fork_makes_connections_of_its_own() -> None:
    # More than what is read at once, so that the child could go on from what was read and from the connection.
    keys = [f"long-{'x' * 900}-{i}" for i in range(500)]
    with Endpoint(honest) as endpoint:
        client = endpoint.client()
        parts = client.get_many(keys)
        next(parts)
        context = multiprocessing.get_context("fork")
        answers: multiprocessing.SimpleQueue[object] = context.SimpleQueue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads: the endpoint's
            child = context.Process(target=_in_child, args=(client, parts, answers))
            child.start()
        child.join(30)
        assert child.exitcode == 0
        assert "fork" in str(answers.get())
        assert [p.index for p in parts] == list(range(1, 500)), "the parent's iteration is untouched"
        assert endpoint.connections == 2
        assert os.getpid() != child.pid


def test_threads_share_a_client() -> None:
    with Endpoint(honest) as endpoint:
        client = endpoint.client()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(10):
                    assert_whole(list(client.get_many(KEYS)))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == [] and len(endpoint.posts) == 80
        assert endpoint.connections <= 8 and len(endpoint.gets) == 1


def test_credentials_are_asked_for_with_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter(range(100))

    def fresh(_: Credentials) -> ReadOnlyCredentials:
        number = next(given)
        return ReadOnlyCredentials(f"AK{number}", "SK", f"token-{number}")

    monkeypatch.setattr(Credentials, "get_frozen_credentials", fresh)
    with Endpoint(honest) as endpoint:
        assert_whole(list(endpoint.client(entries_max=10).get_many(KEYS)))
        signed = [*endpoint.gets, *endpoint.posts]
    assert [exchange.headers["x-amz-security-token"] for exchange in signed] == ["token-0", "token-1", "token-2"]
    assert [f"Credential=AK{i}/" in exchange.headers["authorization"] for i, exchange in enumerate(signed)] == [
        True
    ] * 3


def test_time_is_not_wasted_on_the_last_part() -> None:
    """The last part is given before the endpoint has closed the answer."""

    def slow_close(exchange: Exchange) -> None:
        body = b"".join(parts_of(exchange)) + CLOSE
        exchange.sock.sendall(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nbatch-count: 20\r\n"
            b"content-type: multipart/mixed; boundary=%s\r\n\r\n" % BOUNDARY
        )
        exchange.sock.sendall(b"%x\r\n%s\r\n" % (len(body) - len(CLOSE), body[: -len(CLOSE)]))
        exchange.sock.recv(1)
        raise ConnectionAbortedError

    with Endpoint(slow_close) as endpoint:
        begun = time.monotonic()
        parts = endpoint.client().get_many(KEYS)
        assert_whole([next(parts) for _ in KEYS])
        parts.close()
        assert time.monotonic() - begun < 5
