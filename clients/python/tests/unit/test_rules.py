"""What may be asked and what may be answered, which is the same by BatchGet and by single GETs."""

from collections.abc import Callable

import pytest
from scripted import Answer, Endpoint, Exchange, honest, refuse
from wire import CLOSE, error_part, part, summary

import batchgate
from batchgate._rules import name_of

pytestmark = pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")

Entry = batchgate.Entry
GOOD = [
    *(batchgate.Entry(key) for key in ("/", "..", "a//b/", "k" * 1024, "é" * 512, "\x00\n")),
    *(Entry("k", bucket=bucket) for bucket in ("a", "a.b", "..a", "A_b-9", "x" * 255)),
    *(Entry("k", range=f"bytes={wanted}") for wanted in ("0-0", "5-", "-1", "00-01", "0-9999999999999999999")),
    *(Entry("k", version_id=text, if_match=text, if_none_match=text) for text in ("x", '"a b"', "~" * 1024)),
    *(Entry("k", id=tag) for tag in ("!", "~" * 256)),
]
BAD = [
    *(Entry(key) for key in ("", "k" * 1025, "é" * 513, "\udc80")),
    *(Entry("k", bucket=bucket) for bucket in ("", ".", "..", "a/b", "a b", "é", "a\n", "x" * 256)),
    *(
        Entry("k", range=wanted)
        for wanted in (
            "", "garbage", "bytes=", "bytes=-", "bytes=-0", "bytes=2-1", "bytes=0-0,1-1", "bytes= 0-1", "bytes=0-1 ",
            "bytes=0-1\n", "Bytes=0-1", "lines=0-1", "bytes=٠-٠", "bytes=0-" + "9" * 20,
        )
    ),
    *(
        Entry("k", **{member: text})
        for member in ("version_id", "if_match", "if_none_match")
        for text in ("", "é", "a\nb", "a\n", "\x7f", "x" * 1025)
    ),
    *(Entry("k", id=tag) for tag in ("", "a b", "é", "a\n", "x" * 257)),
]  # fmt: skip


def by_batch(answer: Answer) -> Endpoint:
    return Endpoint(answer)


def by_gets(answer: Answer) -> Endpoint:
    return Endpoint(capabilities=refuse(501, "NotImplemented"), objects=answer)


both_ways = pytest.mark.parametrize("way", [by_batch, by_gets])


@pytest.mark.parametrize("entry", GOOD, ids=ascii)
def test_what_the_contract_allows_may_be_asked(entry: batchgate.Entry) -> None:
    assert name_of(entry, "b", 0) == (entry.bucket or "b", entry.key)


@both_ways
def test_what_the_contract_forbids_is_refused_before_it_is_sent(way: Callable[[Answer], Endpoint]) -> None:
    with way(honest) as endpoint:
        client = endpoint.client()
        for entry in BAD:
            with pytest.raises(batchgate.RequestError, match=r"keys\[0\]: .* it must be ") as told:
                list(client.get_many([entry], on_error="omit"))
            assert (told.value.status, told.value.code, told.value.request_id) == (400, "InvalidArgument", ""), entry
        for key in ("", "k" * 1025, "é" * 513, ("b", ""), ("a/b", "k")):
            with pytest.raises(batchgate.RequestError, match=r"keys\[0\]"):
                list(client.get_many([key]))
        for wrong in (("b", 1), (1, "k"), Entry(b"k"), Entry("k", range=5), Entry("k", id=b"i")):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                list(client.get_many([wrong]))  # type: ignore[list-item]
        assert endpoint.posts == []


def test_the_position_is_that_among_all_keys() -> None:
    with by_batch(honest) as endpoint:
        parts = endpoint.client(entries_max=2).get_many(["a", "b", "c", ""])
        assert [next(parts).key for _ in range(2)] == ["a", "b"]
        with pytest.raises(batchgate.RequestError, match=r"keys\[3\]: a key of 0 bytes: it must be 1 to 1,024 bytes"):
            next(parts)


def test_a_bucket_that_cannot_be_is_a_setting_that_cannot_work() -> None:
    for bucket in ("", "a/b", ".."):
        with pytest.raises(batchgate.ConfigurationError, match="bucket"):
            batchgate.Client(endpoint_url="http://127.0.0.1:9", bucket=bucket)


def answering(way: Callable[[Answer], Endpoint], status: int, content_range: str, body: bytes) -> Endpoint:
    """An endpoint that answers every entry so."""
    headers = {"content-range": content_range} if content_range else {}

    def in_a_batch(exchange: Exchange) -> None:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        parts = [part(i, body, *lines, status=status) for i in range(len(exchange.keys))]
        exchange.batch(b"".join(parts) + summary(len(parts), [body] * len(parts)) + CLOSE)

    return way(in_a_batch if way is by_batch else lambda exchange: exchange.send(status, headers, body))


RANGED, CONDITIONAL = Entry("k", range="bytes=2-5"), Entry("k", if_none_match='"e"')


@both_ways
@pytest.mark.parametrize(
    "asked, status, content_range, body",
    [
        ("k", 200, "", b"x"),
        (("b", "k"), 200, "", b""),
        (Entry("k", id="i"), 200, "", b"x"),
        (CONDITIONAL, 200, "", b"x"),
        (CONDITIONAL, 304, "", b""),
        (Entry("k", range="bytes=0-1", if_none_match="*"), 304, "", b""),
        (RANGED, 206, "bytes 2-5/6", b"wxyz"),
        (RANGED, 206, "bytes 2-3/4", b"wx"),
        (Entry("k", range="bytes=2-"), 206, "bytes 2-3/4", b"wx"),
        (Entry("k", range="bytes=-3"), 206, "bytes 1-3/4", b"wxy"),
        (Entry("k", range="bytes=-9"), 206, "bytes 0-1/2", b"wx"),
    ],
)
def test_an_answer_to_what_was_asked_is_given(
    way: Callable[[Answer], Endpoint], asked: batchgate.Key, status: int, content_range: str, body: bytes
) -> None:
    with answering(way, status, content_range, body) as endpoint:
        (found,) = endpoint.client().get_many([asked])
    assert (found.status, found.data, found.error) == (status, body, None)


@both_ways
@pytest.mark.parametrize("on_error", ["raise", "return", "omit"])
@pytest.mark.parametrize(
    "asked, status, content_range, body",
    [
        ("k", 206, "bytes 0-0/1", b"x"),
        (("b", "k"), 206, "bytes 0-0/1", b"x"),
        (Entry("k", id="i"), 206, "bytes 0-0/1", b"x"),
        ("k", 201, "", b"x"),
        ("k", 204, "", b""),
        ("k", 301, "", b""),
        ("k", 304, "", b""),
        (RANGED, 304, "", b""),
        (RANGED, 200, "", b"abwxyz"),
        (RANGED, 307, "", b""),
        (RANGED, 206, "", b"wxyz"),
        (RANGED, 206, "bytes 2-5/*", b"wxyz"),
        (RANGED, 206, "bytes 2-4/6", b"wxy"),
        (RANGED, 206, "bytes 1-5/6", b"bwxyz"),
        (RANGED, 206, "bytes 2-5/6", b"wxy"),
        (RANGED, 206, "bytes 2-1/2", b""),
        (Entry("k", range="bytes=2-"), 206, "bytes 2-3/5", b"wx"),
        (Entry("k", range="bytes=-3"), 206, "bytes 0-2/4", b"wxy"),
    ],
)
def test_an_answer_to_something_else_is_a_protocol_error(
    way: Callable[[Answer], Endpoint],
    on_error: str,
    asked: batchgate.Key,
    status: int,
    content_range: str,
    body: bytes,
) -> None:
    with answering(way, status, content_range, body) as endpoint:
        with pytest.raises(batchgate.ProtocolError, match=r"no answer to|octets where|GET of"):
            list(endpoint.client().get_many([asked], on_error=on_error))  # type: ignore[arg-type]
        assert len(endpoint.posts) == (way is by_batch), "it is not asked again"


def test_a_failure_that_should_have_been_left_out_is_a_protocol_error() -> None:
    def failing(exchange: Exchange) -> None:
        failed = error_part(0, 404, "NoSuchKey")
        body = failed.split(b"\r\n\r\n", 1)[1][:-2]
        exchange.batch(failed + summary(1, [body], Failed=1) + CLOSE)

    with by_batch(failing) as endpoint:
        with pytest.raises(batchgate.ProtocolError, match="left out"):
            list(endpoint.client().get_many(["k"], on_error="omit"))
        assert len(list(endpoint.client().get_many(["k"], on_error="return"))) == 1


def test_a_redirect_of_a_get_is_told_with_its_error() -> None:
    with by_gets(refuse(301, "PermanentRedirect")) as endpoint, pytest.raises(batchgate.ProtocolError) as told:
        list(endpoint.client().get_many(["k"], on_error="return"))
    assert "GET of s3://b/k: 301 PermanentRedirect: so it is" in str(told.value)
