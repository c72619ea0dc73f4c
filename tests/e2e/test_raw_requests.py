"""Requests that no client of S3 sends, octet by octet: heads that are not HTTP, lengths that contradict each other, chunks
that are not framed, bodies that hide a second request. Each is refused in S3's words where its head could be read, or its
connection closes; nothing is written, what is left of a body is never the next request, and nothing stays taken."""

import contextlib
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from support import http2
from support.gateway import DOMAIN, Backend, Gateway
from support.process import wait_for
from support.rawsocket import read_answer
from support.store import BOTH, Target
from support.wire import Answer, Request, call, presign, sign

STORES = BOTH
BUCKET = "raw-requests"
WRITTEN, HIDDEN = f"/{BUCKET}/written", f"/{BUCKET}/hidden"
BODY = b"the body that was signed"
GAUGES = (
    "batchgate_backend_permits_in_use",
    "batchgate_edge_requests_in_flight",
    "batchgate_memory_reserved_bytes",
)


@pytest.fixture(scope="module")
def gate(start_gateway: Callable[..., Gateway], store: Target) -> Iterator[Gateway]:
    """A gateway that gives up soon who owes it something."""
    short = 'header_timeout = "3s"\nbody_idle_timeout = "2s"\nidle_timeout = "10s"\n'
    running = start_gateway([Backend("store", "*", store)], "", "raw", short)
    assert call(running.s3, "PUT", f"/{BUCKET}").status == 200
    assert call(running.s3, "PUT", f"/{BUCKET}/k", {}, b"value").status == 200
    yield running
    running.process.assert_running()
    assert "panicked" not in running.process.stderr()
    assert running.stop() == 0


@pytest.fixture(autouse=True)
def nothing_happened(gate: Gateway, store: Target) -> Iterator[None]:
    """After each: neither of the two objects is there, a good request is answered, all is given back."""
    yield
    keys = re.findall(rb"<Key>(.*?)</Key>", call(store, "GET", f"/{BUCKET}?list-type=2").body)
    for path in (WRITTEN, HIDDEN):
        call(store, "DELETE", path)
    assert keys == [b"k"], keys
    assert call(gate.s3, "GET", f"/{BUCKET}/k").body == b"value"
    wait_for("all is given back", lambda: not any(gate.metric(name) for name in GAUGES), 10)


def put(target: Target, path: str = WRITTEN, body: bytes = BODY) -> Request:
    """Good until it is spoilt."""
    return sign(target, "PUT", path, {"x-amz-meta-a": "b"}, body)


def closing(target: Target) -> bytes:
    """A good request that is the last of its connection."""
    request = sign(target, "GET", f"/{BUCKET}/k")
    return request.set("Connection", "close").raw()


def answers(target: Target, raw: bytes, seconds: float = 20) -> list[Answer]:
    """Everything that comes back until the connection closes, which it must."""
    found: list[Answer] = []
    method = raw.split(b" ", 1)[0].decode("latin-1")
    with socket.create_connection(target.address, timeout=seconds) as sock, sock.makefile("rb") as stream:
        try:
            sock.sendall(raw)
        except ConnectionError:
            pass
        try:
            while True:
                found.append(read_answer(stream, "GET" if found else method))
        except ConnectionError:
            return found


def told(answer: Answer) -> bool:
    """Whether it is an S3 error with its id in all three places."""
    request_id = answer.get("x-amz-request-id")
    if answer.get("content-type") != "application/xml" or not request_id:
        return False
    # An answer of the store keeps the store's id.
    assert answer.get("x-batchgate-request-id") and request_id == answer.xml("RequestId"), answer
    return bool(answer.xml("Code") and answer.xml("Message"))


def bare(answer: Answer) -> bool:
    """Refused before there was a request: nothing but the status, and the connection closes."""
    return answer.status in (400, 414, 431, 505) and answer.body == b"" and answer.get("connection") == "close"


# Request lines


def with_line(line: bytes) -> Callable[[Target], bytes]:
    return lambda target: line + b"\r\n" + put(target).raw().split(b"\r\n", 1)[1]


# What is not HTTP at all.
NOT_HTTP = {
    "a space in the method": with_line(b"PU T " + WRITTEN.encode() + b" HTTP/1.1"),
    "no method": with_line(b" " + WRITTEN.encode() + b" HTTP/1.1"),
    "a method that is no token": with_line(b"P(UT) " + WRITTEN.encode() + b" HTTP/1.1"),
    "NUL in the method": with_line(b"PU\0T " + WRITTEN.encode() + b" HTTP/1.1"),
    "a method in Latin-1": with_line(b"P\xdcT " + WRITTEN.encode() + b" HTTP/1.1"),
    "two spaces": with_line(b"PUT  " + WRITTEN.encode() + b" HTTP/1.1"),
    "no version": with_line(b"PUT " + WRITTEN.encode()),
    "version 0.9": with_line(b"PUT " + WRITTEN.encode() + b" HTTP/0.9"),
    "version 1.2": with_line(b"PUT " + WRITTEN.encode() + b" HTTP/1.2"),
    "version 2.0": with_line(b"PUT " + WRITTEN.encode() + b" HTTP/2.0"),
    "version in small letters": with_line(b"PUT " + WRITTEN.encode() + b" http/1.1"),
    "more behind the version": with_line(b"PUT " + WRITTEN.encode() + b" HTTP/1.1 x"),
    "a space in the path": with_line(b"PUT " + WRITTEN.encode() + b" x HTTP/1.1"),
    "NUL in the path": with_line(b"PUT " + WRITTEN.encode() + b"\0 HTTP/1.1"),
    "a control character in the path": with_line(b"PUT " + WRITTEN.encode() + b"\x01 HTTP/1.1"),
    "DEL in the path": with_line(b"PUT " + WRITTEN.encode() + b"\x7f HTTP/1.1"),
    "a bare CR in the path": with_line(b"PUT " + WRITTEN.encode() + b"\rx HTTP/1.1"),
    "a tab for a space": with_line(b"PUT\t" + WRITTEN.encode() + b"\tHTTP/1.1"),
    "a path that is too long": with_line(b"PUT " + WRITTEN.encode() + b"x" * 66_000 + b" HTTP/1.1"),
    "a query that is too long": with_line(b"PUT " + WRITTEN.encode() + b"?x=" + b"y" * 66_000 + b" HTTP/1.1"),
    "no target": with_line(b"PUT  HTTP/1.1"),
}


@pytest.mark.parametrize("name", NOT_HTTP)
def test_a_line_that_is_not_http_is_refused_bare(gate: Gateway, name: str) -> None:
    found = answers(gate.s3, NOT_HTTP[name](gate.s3))
    assert len(found) <= 1 and all(bare(answer) for answer in found), found


def with_target(target_text: str, method: str = "PUT") -> Callable[[Target], bytes]:
    """Signed over the path that is meant, sent with another target."""

    def make(target: Target) -> bytes:
        request = sign(target, method, WRITTEN, {}, BODY)
        host = target.endpoint.removeprefix("http://")
        request.path = target_text.replace("HOST", host)
        return request.raw()

    return make


# A target that HTTP has, and S3 has not: the codes that it may have.
BAD_TARGETS = {
    "another host in the target": (with_target(f"http://other.example{WRITTEN}"), {"InvalidRequest"}),
    "another port in the target": (with_target(f"http://127.0.0.1:1{WRITTEN}"), {"InvalidRequest"}),
    "a user in the target": (with_target(f"http://user:password@HOST{WRITTEN}"), {"InvalidRequest"}),
    "another bucket's host in the target": (with_target(f"http://other.{DOMAIN}/written"), {"InvalidRequest"}),
    "a tunnel": (with_target("HOST", "CONNECT"), {"MethodNotAllowed"}),
    "a tunnel to an object": (with_target(WRITTEN, "CONNECT"), {"MethodNotAllowed"}),
    "a host for a path": (with_target("HOST"), {"InvalidURI"}),
    "a star": (with_target("*"), {"InvalidURI"}),
    "a star of OPTIONS": (with_target("*", "OPTIONS"), {"InvalidURI"}),
    "a method in small letters": (lambda t: put(t).raw().replace(b"PUT", b"put", 1), {"MethodNotAllowed"}),
    "TRACE": (with_target(WRITTEN, "TRACE"), {"MethodNotAllowed"}),
    "a method that nobody has": (with_target(WRITTEN, "BREW"), {"MethodNotAllowed"}),
    "a method of other services": (with_target("/list-users", "PATCH"), {"MethodNotAllowed"}),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_a_target_that_is_not_of_s3_is_an_s3_error(gate: Gateway, name: str) -> None:
    make, codes = BAD_TARGETS[name]
    found = answers(gate.s3, make(gate.s3) + closing(gate.s3))
    assert told(found[0]) and found[0].xml("Code") in codes, found
    assert [answer.status for answer in found[1:]] in ([], [200]), found


def test_a_target_with_our_own_host_is_the_path(gate: Gateway, store: Target) -> None:
    """RFC 9112 section 3.2.2: a server must accept the absolute form."""
    found = answers(gate.s3, with_target(f"http://HOST{WRITTEN}")(gate.s3) + closing(gate.s3))
    assert [answer.status for answer in found] == [200, 200], found
    assert call(store, "GET", WRITTEN).body == BODY
    assert call(store, "DELETE", WRITTEN).status == 204


# Header fields


def with_field(field: bytes, first: bool = False) -> Callable[[Target], bytes]:
    """One more line in a head, octet by octet."""

    def make(target: Target) -> bytes:
        line, rest = put(target).raw().split(b"\r\n", 1)
        if first:
            return line + b"\r\n" + field + b"\r\n" + rest
        head, body = rest.split(b"\r\n\r\n", 1)
        return line + b"\r\n" + head + b"\r\n" + field + b"\r\n\r\n" + body

    return make


BAD_FIELDS = {
    "a folded value": with_field(b"x-one: a\r\n b"),
    "a fold with a tab": with_field(b"x-one: a\r\n\tb"),
    "a fold before the first field": with_field(b" x-one: a", first=True),
    "a blank before the colon": with_field(b"x-one : a"),
    "a tab before the colon": with_field(b"Content-Length\t: 3"),
    "a blank in the name": with_field(b"x one: a"),
    "NUL in the name": with_field(b"x\0one: a"),
    "NUL in the value": with_field(b"x-one: a\0b"),
    "a bare CR in the value": with_field(b"x-one: a\rx-two: b"),
    "no name": with_field(b": a"),
    "no colon": with_field(b"x-one"),
    "a name that is no token": with_field(b"x(one): a"),
    "a name in Latin-1": with_field("x-öne: a".encode("latin-1")),
    "a value that is too long": with_field(b"x-one: " + b"a" * 66_000),
    "a name that is too long": with_field(b"x" * 66_000 + b": a"),
    "300 fields": with_field(b"\r\n".join(b"x-%d: a" % i for i in range(300))),
    "300 fields without values": with_field(b"\r\n".join([b"x:"] * 300)),
    "two lengths": with_field(b"Content-Length: 3"),
    "two lengths, the other first": with_field(b"Content-Length: 3", first=True),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_field_that_is_not_http_is_refused_bare(gate: Gateway, name: str) -> None:
    found = answers(gate.s3, BAD_FIELDS[name](gate.s3) + put(gate.s3, HIDDEN).raw())
    assert len(found) <= 1 and all(bare(answer) for answer in found), found


BAD_LENGTHS = [
    "+24",
    "-24",
    "0x18",
    "24,24",
    "24, 24",
    "24;",
    "2 4",
    "",
    "٢٤",
    "18446744073709551616",
    "18446744073709551615",
]


@pytest.mark.parametrize("length", BAD_LENGTHS)
def test_a_length_that_is_none_is_refused_bare(gate: Gateway, length: str) -> None:
    request = put(gate.s3).set("Content-Length", None)
    head, body = request.raw().split(b"\r\n\r\n", 1)
    raw = head + b"\r\nContent-Length: " + length.encode() + b"\r\n\r\n" + body
    found = answers(gate.s3, raw + put(gate.s3, HIDDEN).raw())
    assert len(found) <= 1 and all(bare(answer) for answer in found), found


def hosted(*hosts: str) -> Callable[[Target], bytes]:
    def make(target: Target) -> bytes:
        request = put(target).set("Host", None)
        request.headers += [("Host", host.replace("OURS", target.endpoint.removeprefix("http://"))) for host in hosts]
        return request.raw()

    return make


BAD_HOSTS = {
    "none": hosted(),
    "the same twice": hosted("OURS", "OURS"),
    "another behind it": hosted("OURS", "other.example"),
    "another before it": hosted("other.example", "OURS"),
    "a bucket's behind it": hosted("OURS", f"other.{DOMAIN}"),
    "a list": hosted("OURS, other.example"),
    "an empty one": hosted(""),
    "a path": hosted("OURS/other"),
    "a user": hosted("user@OURS"),
}


@pytest.mark.parametrize("name", BAD_HOSTS)
def test_a_host_that_is_not_one_is_an_s3_error(gate: Gateway, name: str) -> None:
    found = answers(gate.s3, BAD_HOSTS[name](gate.s3) + closing(gate.s3))
    assert told(found[0]) and found[0].status in (400, 403), found
    assert [answer.status for answer in found[1:]] in ([], [200]), found


# Lengths that contradict each other


def chunked(target: Target, framed: bytes, *fields: str, body: bytes = BODY, how: str = "chunked") -> bytes:
    """A PUT that is signed for `body` and sent as `framed`."""
    request = put(target, body=body).set("Content-Length", None)
    request.headers += [("Transfer-Encoding", how)] if how else []
    request.headers += [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
    return request.raw().removesuffix(body) + framed


def frames(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


BOTH_LENGTHS = [
    ("Content-Length: {}", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: {}"),
]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("ends", ["at the chunks' end", "behind the hidden request"])
def test_of_two_lengths_at_once_nothing_behind_is_a_request(
    gate: Gateway, store: Target, order: int, ends: str
) -> None:
    """RFC 9112 section 6.3: the chunks count, and the connection closes behind them; or it is refused."""
    hidden = put(gate.s3, HIDDEN).raw()
    framed = frames(BODY)
    length = len(framed) if ends == "at the chunks' end" else len(framed + hidden)
    fields = [field.format(length) for field in BOTH_LENGTHS[order]]
    found = answers(gate.s3, chunked(gate.s3, framed + hidden, *fields, how=""))
    assert len(found) <= 1, found
    if found and found[0].status == 200:
        assert call(store, "GET", WRITTEN).body == BODY
        assert call(store, "DELETE", WRITTEN).status == 204


BAD_CODINGS = [
    "identity", "gzip", "xchunked", "chunked, identity", "chunked, gzip", "identity, chunked", "gzip, chunked",
    "chunked, chunked", "x, chunked", "chunked;q=1", "chunked x", '"chunked"', "\x0bchunked", ",chunked", "",
]  # fmt: skip


@pytest.mark.parametrize("coding", BAD_CODINGS)
def test_a_transfer_coding_that_we_have_not_is_refused(gate: Gateway, coding: str) -> None:
    """What is coded in a way that we cannot undo would be stored coded."""
    raw = chunked(gate.s3, frames(BODY) + put(gate.s3, HIDDEN).raw(), f"Transfer-Encoding: {coding}", how="")
    found = answers(gate.s3, raw)
    assert len(found) <= 1, found
    assert all(bare(answer) or told(answer) and answer.status in (400, 501) for answer in found), found


def test_two_transfer_codings_in_two_fields_are_refused(gate: Gateway) -> None:
    for codings in (["gzip", "chunked"], ["chunked", "chunked"], ["chunked", "identity"]):
        raw = chunked(gate.s3, frames(BODY), *(f"Transfer-Encoding: {coding}" for coding in codings), how="")
        found = answers(gate.s3, raw + put(gate.s3, HIDDEN).raw())
        assert len(found) <= 1, found
        assert all(bare(answer) or told(answer) and answer.status in (400, 501) for answer in found), found


def test_chunks_in_http_1_0_are_refused(gate: Gateway) -> None:
    raw = chunked(gate.s3, frames(BODY)).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    assert all(answer.status >= 400 for answer in answers(gate.s3, raw))


# Chunks of HTTP

FLOOD = 20_000
BAD_CHUNKS = {
    "no size": b"\r\n" + BODY,
    "a size that is no number": b"g\r\n" + BODY,
    "a negative size": b"-18\r\n" + BODY,
    "a signed size": b"+18\r\n" + BODY,
    "a size with a prefix": b"0x18\r\n" + BODY,
    "two sizes": b"18 18\r\n" + BODY,
    "a blank before the size": b" 18\r\n" + BODY,
    "a size of 64 bits": b"ffffffffffffffff\r\n" + BODY,
    "a size of more than 64 bits": b"10000000000000018\r\n" + BODY,
    "a size of many digits": b"0" * FLOOD + b"18\r\n" + BODY,
    "a size that ends in LF": b"18\n" + BODY,
    "a size that ends in CR": b"18\r" + BODY,
    "NUL in the size": b"1\x008\r\n" + BODY,
    "no line end behind the chunk": b"18\r\n" + BODY + b"0\r\n\r\n",
    "LF behind the chunk": b"18\r\n" + BODY + b"\n0\r\n\r\n",
    "CR behind the chunk": b"18\r\n" + BODY + b"\r0\r\n\r\n",
    "more than the size": b"4\r\n" + BODY + b"\r\n0\r\n\r\n",
    "LF in an extension": b"18;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a long extension": b"18;" + b"a" * FLOOD + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "many extensions": b"18;" + b"a=b;" * FLOOD + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension for every byte": b"".join(b"1;%s\r\n%c\r\n" % (b"a" * 1000, b) for b in BODY) + b"0\r\n\r\n",
    "a trailer that is no field": frames(BODY)[:-2] + b"no colon\r\n\r\n",
    "a trailer with a blank in its name": frames(BODY)[:-2] + b"x y: z\r\n\r\n",
    "a folded trailer": frames(BODY)[:-2] + b"x: y\r\n z\r\n\r\n",
    "a long trailer": frames(BODY)[:-2] + b"x: " + b"y" * 2 * FLOOD + b"\r\n\r\n",
    "many trailers": frames(BODY)[:-2] + b"x: y\r\n" * FLOOD + b"\r\n",
    "a last chunk that ends in LF": frames(BODY)[:-4] + b"\n\n",
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_chunks_that_are_not_framed_write_nothing(gate: Gateway, name: str) -> None:
    """The head was read, so there is an S3 error, or the connection closes. The request behind it is not one. (The
    embedded store refuses a PUT without a length whatever its chunks are.)"""
    found = answers(gate.s3, chunked(gate.s3, BAD_CHUNKS[name] + put(gate.s3, HIDDEN).raw()))
    assert len(found) <= 1, found
    assert all(told(answer) and answer.status in (400, 411) for answer in found), found


GOOD_CHUNKS = {
    "large letters": b"%X\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    "leading zeros": b"0000%x\r\n%s\r\n00\r\n\r\n" % (len(BODY), BODY),
    "an extension": b'%x;a="b"\r\n%s\r\n0;c\r\n\r\n' % (len(BODY), BODY),
    "one byte each": frames(*(BODY[i : i + 1] for i in range(len(BODY)))),
    "trailers that nobody asked for": frames(BODY)[:-2] + b"x-amz-meta-b: c\r\nx-amz-acl: public-read\r\n\r\n",
}


@pytest.mark.only_on("seaweedfs", reason="the embedded store wants a length")
@pytest.mark.parametrize("name", GOOD_CHUNKS)
def test_chunks_that_are_framed_oddly_are_the_body(gate: Gateway, store: Target, name: str) -> None:
    found = answers(gate.s3, chunked(gate.s3, GOOD_CHUNKS[name]) + closing(gate.s3))
    assert [answer.status for answer in found] == [200, 200], found
    stored = call(store, "GET", WRITTEN)
    assert stored.body == BODY and stored.get("x-amz-meta-a") == "b"
    assert stored.get("x-amz-meta-b") is None, "a trailer is no header"
    assert call(store, "DELETE", WRITTEN).status == 204


def test_chunks_that_are_another_body_write_nothing(gate: Gateway) -> None:
    for framed in (frames(BODY + b"!"), frames(BODY[:-1]), frames(), frames(BODY[::-1])):
        found = answers(gate.s3, chunked(gate.s3, framed) + closing(gate.s3))
        assert told(found[0]) and found[0].status == 400, found


# Bodies that end early or not at all

CUTS = {
    "in the head": (lambda t: put(t).raw()[:60], True),
    "behind the head": (lambda t: put(t).raw().removesuffix(BODY), False),
    "in the body": (lambda t: put(t).raw()[:-1], False),
    "in a chunk's size": (lambda t: chunked(t, b"18"), False),
    "in a chunk's extension": (lambda t: chunked(t, b"18;a="), False),
    "in a chunk": (lambda t: chunked(t, b"18\r\n" + BODY[:5]), False),
    "behind a chunk": (lambda t: chunked(t, b"18\r\n" + BODY), False),
    "before the last chunk": (lambda t: chunked(t, frames(BODY)[:-5]), False),
    "in the last chunk": (lambda t: chunked(t, frames(BODY)[:-2]), False),
    "in a trailer": (lambda t: chunked(t, frames(BODY)[:-2] + b"x: y"), False),
}


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_a_client_that_stops_writes_nothing(gate: Gateway, cut: str, leaves: bool) -> None:
    """It is told so when it is still there, and had sent a head."""
    make, in_head = CUTS[cut]
    if leaves:
        with socket.create_connection(gate.s3.address, timeout=20) as sock:
            sock.sendall(make(gate.s3))
            sock.shutdown(socket.SHUT_WR)
            assert b" 200 " not in sock.recv(65536)
        return
    found = answers(gate.s3, make(gate.s3))
    assert len(found) == (0 if in_head else 1), found
    assert all(told(answer) and answer.xml("Code") == "RequestTimeout" for answer in found), found


# Requests that are hidden in a body


def hiding(request: Request, target: Target, filler: int) -> bytes:
    """The request with a body of which a good request is the rest."""
    hidden = b"x" * filler + put(target, HIDDEN).raw()
    return request.set("Content-Length", str(len(hidden))).raw().removesuffix(request.body) + hidden


REFUSED: dict[str, Callable[[Target], Request]] = {
    "unsigned": lambda t: Request("PUT", WRITTEN, [("Host", "s3")]),
    "forged": lambda t: put(t).set("x-amz-date", "20200101T000000Z"),
    "another body": put,
    "no such bucket": lambda t: put(t, "/no-such-bucket-of-ours/k"),
    "bad bucket": lambda t: put(t, "/bad%2Fbucket/k"),
    "presigned and late": lambda t: presign(t, "PUT", WRITTEN.replace("?", ""), expires_seconds=1).set("Host", "s3"),
    "a batch that is none": lambda t: sign(t, "POST", f"/{BUCKET}?batch-get="),
    "it expects 100": lambda t: Request("PUT", WRITTEN, [("Host", "s3"), ("Expect", "100-continue")]),
    "it expects more": lambda t: Request("PUT", WRITTEN, [("Host", "s3"), ("Expect", "everything")]),
    "a read with a body": lambda t: sign(t, "GET", f"/{BUCKET}/absent"),
    "a head with a body": lambda t: sign(t, "HEAD", f"/{BUCKET}/absent"),
    "an upgrade": lambda t: Request("GET", WRITTEN, [("Host", "s3"), ("Connection", "upgrade"), ("Upgrade", "h2c")]),
}


@pytest.mark.parametrize("filler", [0, 3_000_000])
@pytest.mark.parametrize("name", REFUSED)
def test_a_request_in_the_body_of_a_refused_one_is_none(gate: Gateway, name: str, filler: int) -> None:
    """The body is read to its end or the connection closes; what comes behind it is answered or is not."""
    found = answers(gate.s3, hiding(REFUSED[name](gate.s3), gate.s3, filler) + closing(gate.s3))
    assert all(answer.status >= 400 for answer in found[:1]), found
    assert [answer.body for answer in found[1:]] in ([], [b"value"]), found


def test_requests_behind_one_that_is_not_http_are_none(gate: Gateway) -> None:
    found = answers(gate.s3, b"GET /\r\n\r\n" + put(gate.s3, HIDDEN).raw())
    assert len(found) <= 1 and all(bare(answer) for answer in found), found


def test_requests_in_one_write_are_answered_in_their_order(gate: Gateway) -> None:
    refused = Request("GET", f"/{BUCKET}/k", [("Host", "s3")]).raw()
    good = sign(gate.s3, "GET", f"/{BUCKET}/k").raw()
    found = answers(gate.s3, good + refused + good + b"\r\n" + refused + closing(gate.s3))
    assert [answer.status for answer in found] == [200, 403, 200, 403, 200], found


# HTTP/2


def http2_outcome(
    target: Target, fields: list[tuple[str, str]], body: bytes = b"", end: bool = True
) -> tuple[str, bytes]:
    """What becomes of a request: `answer` with its body, or `refused` with nothing."""
    with http2.begin(target) as sock, sock.makefile("rb") as stream:
        flags = http2.END_HEADERS | (0 if body or not end else http2.END_STREAM)
        sock.sendall(http2.frame(http2.HEADERS, http2.encode(fields), flags, 1))
        # A head that is refused may have ended the connection already.
        with contextlib.suppress(ConnectionError):
            if body:
                sock.sendall(http2.frame(http2.DATA, body, http2.END_STREAM if end else 0, 1))
        data, head = b"", b""
        try:
            while True:
                frame = http2.read_frame(stream)
                if frame.kind in (http2.RST_STREAM, http2.GOAWAY):
                    # An answer that is whole may still be followed by a word that the rest is not wanted.
                    return ("answer", data) if data else ("refused", b"")
                if frame.stream == 1 and frame.kind == http2.HEADERS:
                    head = frame.payload
                data += frame.payload if frame.stream == 1 and frame.kind == http2.DATA else b""
                if frame.stream == 1 and frame.flags & http2.END_STREAM and frame.kind in (http2.DATA, http2.HEADERS):
                    # The index of `:status: 200` (RFC 7541 appendix A).
                    return ("fine" if head[:1] == b"\x88" else "answer", data)
        except ConnectionError:
            return "refused", b""


def http2_fields(target: Target) -> list[tuple[str, str]]:
    """Those of a good PUT: pseudo-headers first."""
    request = put(target)
    host = request.get("host") or ""
    pseudo = [(":method", "PUT"), (":scheme", "http"), (":authority", host), (":path", WRITTEN)]
    return pseudo + [(name.lower(), value) for name, value in request.headers if name.lower() != "host"]


def without(name: str) -> Callable[[list[tuple[str, str]]], list[tuple[str, str]]]:
    return lambda fields: [field for field in fields if field[0] != name]


def also(name: str, value: str, first: bool = False) -> Callable[[list[tuple[str, str]]], list[tuple[str, str]]]:
    return lambda fields: [(name, value), *fields] if first else [*fields, (name, value)]


def changed(name: str, value: str) -> Callable[[list[tuple[str, str]]], list[tuple[str, str]]]:
    return lambda fields: [(n, value if n == name else v) for n, v in fields]


# RFC 9113 section 8: a request that is malformed is an error of its stream, one that is odd is an S3 error.
BAD_HTTP2 = {
    "no method": without(":method"),
    "no path": without(":path"),
    "no authority": without(":authority"),
    "two methods": also(":method", "GET", first=True),
    "two paths": also(":path", "/other", first=True),
    "two authorities": also(":authority", "other.example", first=True),
    "a pseudo-header at the end": also(":path", WRITTEN),
    "an unknown pseudo-header": also(":object", "x", first=True),
    "a pseudo-header of answers": also(":status", "200", first=True),
    "an empty path": changed(":path", ""),
    "a path without a slash": changed(":path", WRITTEN[1:]),
    "a star": changed(":path", "*"),
    "a whole URL for a path": changed(":path", f"http://other.example{WRITTEN}"),
    "a blank in the path": changed(":path", f"{WRITTEN} x"),
    "CRLF in the path": changed(":path", f"{WRITTEN} HTTP/1.1\r\nx: y"),
    "NUL in the path": changed(":path", f"{WRITTEN}\0"),
    "a method that is no token": changed(":method", "PU T"),
    "an empty method": changed(":method", ""),
    "CRLF in the method": changed(":method", "PUT / HTTP/1.1\r\nx: y"),
    "a tunnel": changed(":method", "CONNECT"),
    "an authority with a path": changed(":authority", f"s3/{BUCKET}"),
    "an authority with CRLF": changed(":authority", "s3\r\nx: y"),
    "another host": also("host", "other.example"),
    "two hosts": lambda fields: [*fields, ("host", fields[2][1]), ("host", "other.example")],
    "connection": also("connection", "close"),
    "keep-alive": also("keep-alive", "timeout=5"),
    "proxy-connection": also("proxy-connection", "close"),
    "transfer-encoding": also("transfer-encoding", "chunked"),
    "upgrade": also("upgrade", "websocket"),
    "te": also("te", "gzip"),
    "a name in large letters": also("X-One", "a"),
    "a blank in a name": also("x one", "a"),
    "a colon in a name": also("x:one", "a"),
    "CRLF in a name": also("x\r\none", "a"),
    "no name": also("", "a"),
    "NUL in a value": also("x-one", "a\0b"),
    "CRLF in a value": also("x-one", "a\r\nx-two: b"),
    "LF in a value": also("x-one", "a\nx-two: b"),
    "a length that is too long": changed("content-length", str(len(BODY) + 1)),
    "a length that is too short": changed("content-length", str(len(BODY) - 1)),
    "a length that is none": changed("content-length", "x"),
    "two lengths": also("content-length", "3"),
    "a value of many bytes": also("x-one", "a" * 16_000),
}


@pytest.mark.parametrize("name", BAD_HTTP2)
def test_an_http2_request_that_is_malformed_or_odd_writes_nothing(gate: Gateway, name: str) -> None:
    how, body = http2_outcome(gate.s3, BAD_HTTP2[name](http2_fields(gate.s3)), BODY)
    if how == "answer":
        document = Answer(0, [], body)
        assert document.xml("Code") and document.xml("RequestId"), body
    assert how in ("answer", "refused"), body


def test_the_good_http2_request_is_good(gate: Gateway, store: Target) -> None:
    """Else the bad ones would prove nothing."""
    for change in (lambda fields: fields, lambda fields: [*fields, ("host", fields[2][1])], also("te", "trailers")):
        assert http2_outcome(gate.s3, change(http2_fields(gate.s3)), BODY)[0] == "fine"
        assert call(store, "GET", WRITTEN).body == BODY
        assert call(store, "DELETE", WRITTEN).status == 204


def test_an_http2_client_that_stops_writes_nothing(gate: Gateway) -> None:
    how, body = http2_outcome(gate.s3, http2_fields(gate.s3), BODY[:5], end=False)
    assert how == "answer" and Answer(0, [], body).xml("Code") == "RequestTimeout", body


def http2_end(sock: socket.socket) -> str:
    """What the client is told first: `goaway`, `reset` of a stream, or nothing but that the connection is `closed`."""
    with sock.makefile("rb") as stream:
        try:
            while True:
                frame = http2.read_frame(stream)
                if frame.kind == http2.GOAWAY:
                    return "goaway"
                if frame.kind == http2.RST_STREAM:
                    return "reset"
        except ConnectionError:
            return "closed"


def head_without_end(target: Target) -> bytes:
    return http2.frame(http2.HEADERS, http2.encode(http2_fields(target)), 0, 1)


def continuations(target: Target) -> Iterator[bytes]:
    """A head that does not end: a small one, and fields without number behind it."""
    yield head_without_end(target)
    fields = http2.encode([("x-one", "a" * 1000)] * 15)
    for _ in range(4000):
        yield http2.frame(http2.CONTINUATION, fields, 0, 1)


def empty_continuations(target: Target) -> Iterator[bytes]:
    yield head_without_end(target)
    for _ in range(2000):
        yield http2.frame(http2.CONTINUATION, b"", 0, 1) * 100


def bomb(target: Target) -> Iterator[bytes]:
    """One field of 3,900 octets, kept by the receiver and named again by one octet (RFC 7541 section 7.3), 10,000 times."""
    field = b"\x40" + http2.encode([("x-one", "a" * 3900)])[1:]
    block = http2.encode(http2_fields(target)) + field + b"\xbe" * 10_000
    yield http2.frame(http2.HEADERS, block, http2.END_HEADERS, 1)
    yield http2.frame(http2.DATA, BODY, http2.END_STREAM, 1)


def resets(target: Target) -> Iterator[bytes]:
    """Requests that are taken back before they can be answered (CVE-2023-44487)."""
    block = http2.encode(http2_fields(target))
    for number in range(1, 20_001, 2):
        yield http2.frame(http2.HEADERS, block, http2.END_HEADERS, number) + http2.frame(
            http2.RST_STREAM, b"\0\0\0\x08", 0, number
        )


def streams(target: Target) -> Iterator[bytes]:
    """More requests at once than are allowed, each without its body."""
    block = http2.encode(http2_fields(target))
    for number in range(1, 2001, 2):
        yield http2.frame(http2.HEADERS, block, http2.END_HEADERS, number)
    yield http2.frame(http2.RST_STREAM, b"\0\0\0\x08", 0, 1)


FLOODS = [continuations, empty_continuations, bomb, resets, streams]


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_http2_ends_and_others_are_served(gate: Gateway, flood: Callable[[Target], Iterator[bytes]]) -> None:
    """Whatever the client goes on to send, its connection or its requests end, and it takes no place from others."""
    with http2.begin(gate.s3) as sock:
        sent = 0
        try:
            for octets in flood(gate.s3):
                sock.sendall(octets)
                sent += len(octets)
        except ConnectionError:
            pass
        assert call(gate.s3, "GET", f"/{BUCKET}/k").body == b"value"
        try:
            assert http2_end(sock) in ("goaway", "reset", "closed")
        except ConnectionError:
            pass
        assert sent < 50 << 20
