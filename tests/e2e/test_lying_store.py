"""A store whose answers are no HTTP, or not what they say that they are: its client gets a correct S3 error or a message that is
seen to be broken, never wrong bytes that look whole, and nothing of the store's address or credentials. Whatever one answer
was, the next one is right.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from support.batch import batch_get
from support.gateway import Backend, Gateway
from support.process import wait_for
from support.scripted import CLOSE, Ask, ScriptedStore, answer
from support.wire import Answer, call, sign, send

BODY = b"0123456789" * 100
FORGED = b'HTTP/1.1 200 OK\r\ncontent-length: 6\r\netag: "f"\r\n\r\nforged'
ADDRESS = "10.9.8.7:8333"


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedStore]:
    server = ScriptedStore()
    server.on("lie-fine", lambda ask: answer(200, {"etag": '"e"'}, b"" if ask.method == "HEAD" else BODY))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def gateway(start_gateway: Callable[..., Gateway], scripted: ScriptedStore) -> Iterator[Gateway]:
    extra = 'attempt_timeout = "1s"\nresponse_timeout = "4s"'
    sections = '[batch]\nentry_deadline = "2s"\n[tail]\nbreaker_failures = 10000\n'
    running = start_gateway([Backend("scripted", "lie-*", scripted.target, extra)], sections, "lied-to")
    yield running
    wait_for("nothing is held", lambda: running.metric("batchgate_backend_permits_in_use") == 0, 20)
    assert running.stop() == 0
    log = running.process.stderr()
    assert "panicked" not in log and scripted.target.credentials.secret_key not in log


@pytest.fixture(autouse=True)
def the_next_is_right(gateway: Gateway) -> Iterator[None]:
    """Nothing of a lie is left in a connection for whoever comes next."""
    yield
    for _ in range(5):
        heard = call(gateway.s3, "GET", "/lie-fine/k")
        assert (heard.status, heard.body) == (200, BODY), heard
        assert call(gateway.s3, "HEAD", "/lie-fine/k").status == 200
    assert batch_get(gateway.s3, "lie-fine", ["k"] * 3).parts[2].body == BODY


def assert_nothing_of(heard: Answer, scripted: ScriptedStore) -> None:
    whole = "\n".join(f"{name}: {value}" for name, value in heard.headers).encode("latin-1") + heard.body
    pair = scripted.target.credentials
    for secret in (scripted.authority, ADDRESS, pair.access_key, pair.secret_key):
        assert secret.encode() not in whole, heard


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, 'etag: "l"', *lines, "", ""]).encode("latin-1")


def chunked(body: bytes) -> bytes:
    return head("transfer-encoding: chunked") + body


# No head that can be read, or that may be believed: a lone request and a batch's read are told so.
NO_ANSWER = {
    "words": b"220 this is not HTTP at " + ADDRESS.encode() + b"\r\n" * 20 + CLOSE,
    "nothing-but-line-ends": b"\r\n" * 2000 + CLOSE,
    "binary": bytes(range(128, 256)) * 8 + CLOSE,
    "another-protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + CLOSE,
    "another-version": head("content-length: 2", status="HTTP/3.7 200 OK") + b"ok" + CLOSE,
    "no-status": head("content-length: 2", status="HTTP/1.1 OK") + b"ok" + CLOSE,
    "status-of-four-digits": head("content-length: 2", status="HTTP/1.1 2000 OK") + b"ok" + CLOSE,
    "status-099": head("content-length: 2", status="HTTP/1.1 099 OK") + b"ok" + CLOSE,
    "status-600": head("content-length: 2", status="HTTP/1.1 600 Odd") + b"ok",
    "status-999": head("content-length: 2", status="HTTP/1.1 999 Odd") + b"ok",
    "switching": head("connection: upgrade", "upgrade: h2c", status="HTTP/1.1 101 Switching Protocols") + FORGED,
    "header-without-colon": head("content-length: 2", "words") + b"ok" + CLOSE,
    "header-name-with-a-space": head("content length: 2") + b"ok" + CLOSE,
    "control-in-a-value": head("content-length: 2", "x-odd: a\0b") + b"ok" + CLOSE,
    "a-large-header": head("content-length: 2", "x-large: " + "x" * (64 << 10)) + b"ok" + CLOSE,
    "many-headers": head("content-length: 2", *(f"x-flood-{n}: {n}" for n in range(300))) + b"ok" + CLOSE,
    "many-large-headers": head("content-length: 2", *(f"x-flood-{n}: {'x' * 4000}" for n in range(200))) + b"ok" + CLOSE,
    "one-header-many-times": head("content-length: 2", *["set-cookie: a=b"] * 3000) + b"ok" + CLOSE,
    "length-that-is-no-number": head("content-length: ten") + b"0123456789" + CLOSE,
    "negative-length": head("content-length: -1") + b"0123456789" + CLOSE,
    "signed-length": head("content-length: +10") + b"0123456789" + CLOSE,
    "length-beyond-reason": head("content-length: 99999999999999999999999") + b"0123456789" + CLOSE,
    "two-lengths": head("content-length: 10", "content-length: 5") + b"0123456789" + CLOSE,
    "two-lengths-in-one": head("content-length: 10, 5") + b"0123456789" + CLOSE,
    "length-and-chunks": head("content-length: 3", "transfer-encoding: chunked") + b"a\r\n0123456789\r\n0\r\n\r\n",
    "chunks-and-length": head("transfer-encoding: chunked", "content-length: 10") + b"3\r\n012\r\n0\r\n\r\n",
    "gzip-transfer": head("transfer-encoding: gzip") + b"0123456789" + CLOSE,
    "chunked-not-last": head("transfer-encoding: chunked, identity") + b"a\r\n0123456789\r\n0\r\n\r\n" + CLOSE,
    "chunks-of-http-1.0": head("transfer-encoding: chunked", status="HTTP/1.0 200 OK") + b"a\r\n0123456789\r\n0\r\n\r\n" + CLOSE,
    "no-length": head() + b"0123456789" + CLOSE,
}  # fmt: skip


@pytest.mark.parametrize("lie", NO_ANSWER)
def test_trap_what_is_no_answer_is_a_bad_gateway(gateway: Gateway, scripted: ScriptedStore, lie: str) -> None:
    scripted.on("lie-head", lambda _: NO_ANSWER[lie])
    for method, body in (("GET", b""), ("PUT", b"body"), ("DELETE", b"")):
        heard = call(gateway.s3, method, "/lie-head/k", {}, body)
        assert (heard.status, heard.xml("Code")) == (502, "BadGateway"), heard
        assert ("outcome is unknown" in (heard.xml("Message") or "")) == (method != "GET"), heard
        assert_nothing_of(heard, scripted)
    part = batch_get(gateway.s3, "lie-head", ["k"]).parts[0]
    assert part.status in (502, 504) and part.code in ("BadGateway", "GatewayTimeout"), part
    assert ADDRESS.encode() not in part.body and scripted.authority.encode() not in part.body


# What breaks off, and what it holds up to there.
BROKEN = {
    "half-of-it": answer(200, {"etag": '"l"', "content-length": "2000"}, BODY) + CLOSE,
    "a-byte-too-few": answer(200, {"etag": '"l"', "content-length": "1001"}, BODY) + CLOSE,
    "no-last-chunk": chunked(b"3e8\r\n" + BODY + b"\r\n") + CLOSE,
    "half-a-chunk": chunked(b"7d0\r\n" + BODY) + CLOSE,
    "no-end-of-the-last-chunk": chunked(b"3e8\r\n" + BODY + b"\r\n0\r\n") + CLOSE,
    "a-chunk-without-its-line-end": chunked(b"3e8\r\n" + BODY + b"0\r\n\r\n") + CLOSE,
    "a-chunk-of-no-size": chunked(b"3e8\r\n" + BODY + b"\r\nxyz\r\n") + CLOSE,
    "a-chunk-of-too-large-a-size": chunked(b"3e8\r\n" + BODY + b"\r\nfffffffffffffffff\r\n0\r\n\r\n") + CLOSE,
    "a-chunk-of-a-negative-size": chunked(b"3e8\r\n" + BODY + b"\r\n-5\r\n0\r\n\r\n") + CLOSE,
    "endless-chunk-extensions": chunked(b"3e8\r\n" + BODY + b"\r\n5;" + b"x" * (1 << 20) + b"\r\n12345\r\n0\r\n\r\n") + CLOSE,
    "endless-trailers": chunked(b"3e8\r\n" + BODY + b"\r\n0\r\n" + b"x: y\r\n" * 100_000) + CLOSE,
}  # fmt: skip


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 503])
def test_a_short_error_that_breaks_off_is_a_bad_gateway(gateway: Gateway, scripted: ScriptedStore, status: int) -> None:
    """The client has heard nothing yet, and so is told what became of its request."""
    half = answer(status, {"content-length": "300"}, b"<Error><Code>X</Code>" + ADDRESS.encode()) + CLOSE
    scripted.on("lie-error", lambda _: half)
    counter = "batchgate_passthrough_unknown_outcomes_total"
    for method, body in (("GET", b""), ("PUT", b"body"), ("DELETE", b"")):
        before = gateway.metric(counter)
        heard = call(gateway.s3, method, "/lie-error/k", {}, body)
        message = heard.xml("Message") or ""
        assert (heard.status, heard.xml("Code")) == (502, "BadGateway"), heard
        assert '(backend "scripted")' in message, heard
        assert ("outcome is unknown" in message) == (method != "GET"), heard
        assert gateway.metric(counter) == before + (method != "GET")
        assert_nothing_of(heard, scripted)


@pytest.mark.parametrize("lie", BROKEN)
def test_an_answer_that_breaks_off_is_seen_to_break(gateway: Gateway, scripted: ScriptedStore, lie: str) -> None:
    scripted.on("lie-body", lambda _: BROKEN[lie])
    heard = call(gateway.s3, "GET", "/lie-body/k")
    assert heard.status == 200 and heard.broken and BODY.startswith(heard.body), heard
    assert_nothing_of(heard, scripted)
    part = batch_get(gateway.s3, "lie-body", ["k"]).parts[0]
    assert part.status in (502, 504) or part.body == BODY, part


# Right answers, and what stands behind or before them.
MORE_THAN_SAID = {
    "more-than-announced": answer(200, {"etag": '"l"'}, BODY) + b"and more",
    "another-answer": answer(200, {"etag": '"l"'}, BODY) + FORGED,
    "the-same-length-twice": head(f"content-length: {len(BODY)}", f"content-length: {len(BODY)}") + BODY,
    "the-same-length-twice-in-one": head(f"content-length: {len(BODY)}, {len(BODY)}") + BODY,
    "behind-the-last-chunk": chunked(b"3e8\r\n" + BODY + b"\r\n0\r\n\r\n") + FORGED,
    "a-trailer": chunked(b"3e8\r\n" + BODY + b"\r\n0\r\nx-amz-meta-forged: yes\r\n\r\n"),
    "an-upgrade": head("connection: upgrade, x-hop", "upgrade: h2c", "x-hop: 1", f"content-length: {len(BODY)}") + BODY,
    "a-few-100": b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + answer(200, {"etag": '"l"'}, BODY),
    "many-103": b"HTTP/1.1 103 Early Hints\r\nlink: </>\r\n\r\n" * 5000 + answer(200, {"etag": '"l"'}, BODY),
}  # fmt: skip


@pytest.mark.parametrize("lie", MORE_THAN_SAID)
def test_what_is_more_than_said_is_nobodys(gateway: Gateway, scripted: ScriptedStore, lie: str) -> None:
    scripted.on("lie-more", lambda _: MORE_THAN_SAID[lie])
    for _ in range(3):
        heard = call(gateway.s3, "GET", "/lie-more/k")
        assert (heard.status, heard.body, heard.broken) == (200, BODY, None), heard
        headers = {name.lower() for name, _ in heard.headers}
        assert not headers & {"upgrade", "x-hop", "link", "x-amz-meta-forged"}, heard
        lengths = [value for name, value in heard.headers if name.lower() == "content-length"]
        assert lengths in ([], [str(len(BODY))]), heard
    part = batch_get(gateway.s3, "lie-more", ["k"]).parts[0]
    assert (part.status, part.body) == (200, BODY), part


# Answers that have no body by their nature, and one all the same.
@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", 200, {}),
        ("HEAD", 404, {}),
        ("DELETE", 204, {"content-length": ""}),
        ("DELETE", 204, {}),
        ("GET", 204, {}),
        ("GET", 304, {}),
        ("GET", 304, {"content-length": ""}),
    ],
)
@pytest.mark.parametrize("body", [BODY, FORGED], ids=["bytes", "another-answer"])
def test_trap_a_body_where_none_can_be_is_none(
    gateway: Gateway, scripted: ScriptedStore, method: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    scripted.on("lie-none", lambda _: answer(status, {"etag": '"l"', **headers}, body))
    for _ in range(3):
        heard = call(gateway.s3, method, "/lie-none/k", {"If-None-Match": '"l"'})
        assert (heard.status, heard.body, heard.broken) == (status, b"", None), heard
        right = call(gateway.s3, "GET", "/lie-fine/k")
        assert (right.status, right.body) == (200, BODY), right


def test_interim_answers_without_end_are_given_up(gateway: Gateway, scripted: ScriptedStore) -> None:
    """They are no answer, and what is held of them does not grow."""
    flood = b"HTTP/1.1 102 Processing\r\n\r\n" * 400_000 + CLOSE
    scripted.on("lie-interim", lambda _: flood)
    started = time.monotonic()
    heard = call(gateway.s3, "GET", "/lie-interim/k")
    assert heard.status in (502, 504) and heard.xml("Message"), heard
    assert time.monotonic() - started < 60
    assert_nothing_of(heard, scripted)


def test_an_answer_before_the_request_is_nobodys(gateway: Gateway, scripted: ScriptedStore) -> None:
    """What a store sends on an idle connection is not the answer to what is asked next."""
    scripted.on("lie-early", lambda _: answer(200, {"etag": '"l"'}, BODY) + FORGED * 3)
    for number in range(10):
        heard = call(gateway.s3, "GET", f"/lie-early/{number}")
        assert (heard.status, heard.body) == (200, BODY), heard
        right = call(gateway.s3, "GET", f"/lie-fine/{number}")
        assert (right.status, right.body) == (200, BODY), right


def test_a_success_without_sense_to_a_write_is_passed_on_as_it_is(gateway: Gateway, scripted: ScriptedStore) -> None:
    """Only the client knows what it asked for; the gateway adds nothing and takes nothing."""
    scripted.on("lie-odd", lambda ask: answer(299, {"x-odd": "yes"}, b"odd" if ask.method != "HEAD" else b""))
    request = sign(gateway.s3, "PUT", "/lie-odd/k", {}, b"body")
    heard = send(gateway.s3, request)
    assert (heard.status, heard.body, heard.get("x-odd")) == (299, b"odd", "yes"), heard


def test_a_lie_about_a_range_is_seen_in_its_head(gateway: Gateway, scripted: ScriptedStore) -> None:
    """A lone GET gets the store's own head, which says which bytes came; a batch does not take them for right."""
    other = {"etag": '"l"', "content-range": "bytes 5-14/1000"}
    scripted.on("lie-range", lambda _: answer(206, other, b"5678901234"))
    heard = call(gateway.s3, "GET", "/lie-range/k", {"Range": "bytes=0-9"})
    assert (heard.status, heard.get("content-range")) == (206, "bytes 5-14/1000"), heard
    part = batch_get(gateway.s3, "lie-range", [{"Key": "k", "Range": "bytes=0-9"}]).parts[0]
    assert (part.status, part.code) == (502, "BadGateway"), part


def test_a_batch_is_not_led_on_by_one_liar(gateway: Gateway, scripted: ScriptedStore) -> None:
    """Right entries among wrong ones, all over the same connections."""
    lies = [*MORE_THAN_SAID.values()]

    def mixed(ask: Ask) -> bytes:
        return lies[ask.number % len(lies)]

    scripted.on("lie-mixed", mixed)
    entries = [{"Bucket": "lie-mixed" if n % 2 else "lie-fine", "Key": f"k{n}"} for n in range(64)]
    batch = batch_get(gateway.s3, "lie-fine", entries)
    assert [(part.status, part.body) for part in batch.parts] == [(200, BODY)] * 64
