"""Which endpoints have BatchGet, and what is read from those that do not."""

import json
import threading
import time
import urllib.parse
import warnings
from collections import Counter

import pytest
from scripted import CAPABILITIES, Answer, Endpoint, Exchange, body_of, hang_up, honest, refuse

import batchgate


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("batchgate._patience.wait", lambda seconds, cancelled: slept.append(seconds))
    return slept


def says(status: int, document: object) -> Answer:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda exchange: exchange.send(status, {}, body)


def plain(exchange: Exchange) -> None:
    """A store: objects by their path."""
    key = urllib.parse.unquote(exchange.path.split("?")[0]).removeprefix("/b/")
    if key.startswith("missing"):
        return exchange.refuse(404, "NoSuchKey")
    exchange.send(200, {"ETag": '"e"', "Date": "now", "Server": "s"}, body_of(key))


NONE = [
    says(200, b"<ListAllMyBucketsResult/>"),
    says(200, {**CAPABILITIES, "Version": 2}),
    says(200, {**CAPABILITIES, "Version": True}),
    says(200, {**CAPABILITIES, "Version": "1"}),
    says(200, [CAPABILITIES]),
    says(200, b"1"),
    says(200, b""),
    says(204, CAPABILITIES),
    says(201, CAPABILITIES),
    refuse(403, "AccessDenied"),
    refuse(400, "InvalidRequest"),
    refuse(404, "NoSuchBucket"),
    refuse(405, "MethodNotAllowed"),
    refuse(501, "NotImplemented"),
    says(200, b"<" + b"x" * 200_000),
]


@pytest.mark.parametrize("answer", NONE)
def test_an_endpoint_without_batchget_is_read_by_gets_with_one_warning(answer: Answer) -> None:
    with Endpoint(capabilities=answer, objects=plain) as endpoint:
        client = endpoint.client()
        with pytest.warns(batchgate.BatchGetUnavailableWarning, match="single GETs") as told:
            first = list(client.get_many(["a", "b/c d"]))
        assert len(told) == 1 and told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = list(client.get_many(["a", "b/c d"]))
        assert endpoint.posts == [] and len(endpoint.gets) == 1
    for parts in (first, again):
        assert [(p.index, p.bucket, p.key, p.status, p.data, p.etag) for p in parts] == [
            (0, "b", "a", 200, body_of("a"), '"e"'), (1, "b", "b/c d", 200, body_of("b/c d"), '"e"'),
        ]  # fmt: skip
        assert parts[0].headers == {"etag": '"e"'}


def test_whoever_makes_the_warning_an_error_keeps_getting_it() -> None:
    with Endpoint(capabilities=NONE[0], objects=plain) as endpoint, warnings.catch_warnings():
        warnings.simplefilter("error")
        client = endpoint.client()
        for _ in range(2):
            with pytest.raises(batchgate.BatchGetUnavailableWarning):
                list(client.get_many(["a"]))


@pytest.mark.parametrize(
    "answer, kind",
    [
        (refuse(403, "InvalidAccessKeyId"), batchgate.RequestPermissionError),
        (refuse(403, "SignatureDoesNotMatch"), batchgate.RequestPermissionError),
        (refuse(403, "RequestTimeTooSkewed"), batchgate.RequestPermissionError),
        (refuse(403, ""), batchgate.RequestPermissionError),
        (refuse(400, "AuthorizationHeaderMalformed"), batchgate.RequestError),
        (refuse(400, "ExpiredToken"), batchgate.RequestError),
        (refuse(400, "InvalidURI"), batchgate.RequestError),
        (refuse(500, "InternalError"), batchgate.RequestError),
        (refuse(503, "SlowDown"), batchgate.RequestError),
        (refuse(301, "PermanentRedirect"), batchgate.RequestError),
        (hang_up, batchgate.EndpointError),
    ],
)
def test_trouble_is_no_reason_to_fall_back(answer: Answer, kind: type[Exception]) -> None:
    with Endpoint(honest, capabilities=answer, objects=plain) as endpoint, pytest.raises(kind):
        list(endpoint.client().get_many(["a"]))


def test_trouble_that_passes_is_waited_out() -> None:
    answers = iter([hang_up, refuse(503, "SlowDown"), says(200, CAPABILITIES)])
    with Endpoint(honest, capabilities=lambda e: next(answers)(e)) as endpoint:
        assert len(list(endpoint.client().get_many(["a"]))) == 1


def no_batchget(objects: Answer) -> Endpoint:
    return Endpoint(capabilities=refuse(501, "NotImplemented"), objects=objects)


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_gets_mean_the_same_on_error() -> None:
    keys = ["a", "missing", "b"]
    with no_batchget(plain) as endpoint:
        client = endpoint.client()
        returned = list(client.get_many(keys, on_error="return"))
        assert [p.status for p in returned] == [200, 404, 200]
        assert isinstance(returned[1].error, FileNotFoundError) and returned[1].error.code == "NoSuchKey"
        assert [p.index for p in client.get_many(keys, on_error="omit")] == [0, 2]
        assert sorted(p.index for p in client.get_many(keys, on_error="omit", order="completion")) == [0, 2]
        parts = client.get_many(keys)
        assert next(parts).key == "a"
        with pytest.raises(FileNotFoundError) as told:
            next(parts)
        assert told.value.index == 1


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_conditions_and_ranges_are_headers_of_the_get() -> None:
    seen = []

    def remember(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.send(206, {"content-range": "bytes 0-1/9"}, b"xy")

    entry = batchgate.Entry(
        "//a/../ü?&=+", bucket="o", range="bytes=0-1", version_id="v+1", if_match='"e"', if_none_match='"f"', id="tag"
    )
    with no_batchget(remember) as endpoint:
        (part,) = endpoint.client().get_many([entry])
    assert seen[0].path == "/o///a/../%C3%BC%3F%26%3D%2B?versionId=v%2B1"
    asked = {name: seen[0].headers[name] for name in ("range", "if-match", "if-none-match")}
    assert asked == {"range": "bytes=0-1", "if-match": '"e"', "if-none-match": '"f"'}
    assert (part.status, part.data, part.id, part.bucket) == (206, b"xy", "tag", "o")
    assert part.header("Content-Range") == "bytes 0-1/9"


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_gets_in_flight_are_bounded_and_ordered() -> None:
    lock = threading.Lock()
    now = most = 0

    def slow(exchange: Exchange) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        # The later ones are faster.
        time.sleep(0.03 if exchange.path.endswith("0") else 0.005)
        with lock:
            now -= 1
        plain(exchange)

    keys = [f"k{i:02}" for i in range(40)]
    with no_batchget(slow) as endpoint:
        client = endpoint.client(gets_in_flight_max=5)
        assert [(p.index, p.key) for p in client.get_many(keys)] == list(enumerate(keys))
        assert 2 <= most <= 5
        assert endpoint.connections <= 6
        completed = [p.index for p in client.get_many(keys, order="completion")]
        assert sorted(completed) == list(range(40)) != completed
        with client.get_many(keys) as parts:
            next(parts)
        begun = time.monotonic()
        list(client.get_many(keys[:1]))
        assert time.monotonic() - begun < 2


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_a_get_that_breaks_off_is_made_again(pauses: list[float]) -> None:
    attempts: Counter[str] = Counter()

    def raw(head: str, body: bytes) -> Answer:
        def answer(exchange: Exchange) -> None:
            exchange.sock.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + body)
            raise ConnectionAbortedError

        return answer

    trouble = [
        raw("content-length: 50\r\n", b"short"),
        raw("", b"neither length nor chunks"),
        raw("transfer-encoding: chunked\r\n", b"5\r\nshort\r\n"),
        hang_up,
        refuse(503, "SlowDown", retry_after="3"),
    ]

    def answer(exchange: Exchange) -> None:
        attempts[exchange.path] += 1
        if attempts[exchange.path] <= len(trouble):
            return trouble[attempts[exchange.path] - 1](exchange)
        plain(exchange)

    with no_batchget(answer) as endpoint:
        parts = list(endpoint.client().get_many(["a", "b"]))
        assert [p.data for p in parts] == [body_of("a"), body_of("b")]
        assert pauses.count(3) == 2
        with pytest.raises(batchgate.EndpointError):
            list(endpoint.client(attempts_max=1).get_many(["c"], on_error="return"))


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_a_get_that_stays_refused_is_an_entry_that_failed() -> None:
    with no_batchget(refuse(503, "SlowDown")) as endpoint:
        parts = list(endpoint.client(attempts_max=3).get_many(["a"], on_error="return"))
        assert [(p.status, p.error.code if p.error else "") for p in parts] == [(503, "SlowDown")]
    with no_batchget(hang_up) as endpoint, pytest.raises(batchgate.EndpointError, match="3 attempts"):
        list(endpoint.client(attempts_max=3).get_many(["a"], on_error="return"))
