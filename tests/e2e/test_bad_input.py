"""Every request that the contract refuses as a whole: its status, its S3 code, a message that names what is wrong, one
request id in all three places, and a connection that stays usable or is closed cleanly."""

import hashlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.batch import batch_get, batch_request, document, read_batch
from support.gateway import Gateway
from support.rawsocket import exchange
from support.store import Target
from support.wire import Answer, Request, aws_chunked, call, presign, send, sign

BUCKET = "bad-input"
GOOD = {"Key": "k"}
Make = Callable[[Target], Request]


@pytest.fixture(scope="module", autouse=True)
def bucket(store: Target) -> None:
    assert call(store, "PUT", f"/{BUCKET}").status == 200
    assert call(store, "PUT", f"/{BUCKET}/k", {}, b"value").status == 200


@pytest.fixture(autouse=True)
def still_well(gateway: Gateway) -> Iterator[None]:
    """After each bad request a good one is answered."""
    yield
    assert batch_get(gateway.s3, BUCKET, ["k"]).parts[0].body == b"value"


def assert_refused(answer: Answer, status: int, code: str, *named: str) -> None:
    assert answer.status == status, answer
    assert answer.xml("Code") == code, answer
    assert answer.get("content-type") == "application/xml"
    request_id = answer.get("x-amz-request-id")
    assert request_id and request_id == answer.get("x-batchgate-request-id") == answer.xml("RequestId")
    message = answer.xml("Message") or ""
    assert message, answer
    for name in named:
        assert name.lower() in message.lower(), f"{message!r} does not name {name!r}"


def objects(*entries: Any, **options: Any) -> bytes:
    return json.dumps({"Objects": list(entries), **options}).encode()


def with_member(name: str, value: Any) -> bytes:
    return objects({**GOOD, name: value})


BAD_RANGES = [
    "", "bytes", "bytes=", "bytes=-", "bytes=5-2", "bytes=-0", "bytes=0-1,3-4", "bytes= 0-1", "bytes=0 -1", "bytes=0-1 ",
    "items=0-1", "0-1", "bytes=a-b", "bytes=+1-2", "bytes=0x1-2", "bytes=12345678901234567890-", "bytes=-12345678901234567890",
    "bytes=0-99999999999999999999", "bytes=--1", "bytes=1-2-3", "bytes=0-1\n",
]  # fmt: skip

# What the body holds, and what the message must name.
BAD_BODIES: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", []),
    "broken": (b'{"Objects": [{"Key": "k"}', []),
    "not JSON": (b"<Delete><Object/></Delete>", []),
    "garbage after": (objects(GOOD) + b" x", []),
    "a second document": (objects(GOOD) * 2, []),
    "array at the top": (b'[{"Key": "k"}]', []),
    "members of the request by position": (b'[[{"Key": "k"}], null, null, null]', []),
    "members of an entry by position": (b'{"Objects": [["k", null, null, null, null, null, null]]}', []),
    "key alone by position": (objects(["k"]), []),
    "an entry by position behind a good one": (objects(GOOD, ["k"]), ["1"]),
    "null": (b"null", []),
    "bad UTF-8": (b'{"Objects": [{"Key": "\xff"}]}', []),
    "UTF-16": (objects(GOOD).decode().encode("utf-16"), []),
    "lone surrogate": (b'{"Objects": [{"Key": "\\ud800"}]}', []),
    "deep nesting": (b'{"Objects": ' + b"[" * 200_000, []),
    "no Objects": (b"{}", ["Objects"]),
    "null Objects": (b'{"Objects": null}', ["Objects"]),
    "empty Objects": (objects(), ["Objects"]),
    "Objects a string": (b'{"Objects": "k"}', []),
    "entry a string": (objects("k"), []),
    "entry null": (objects(None), []),
    "unknown option": (objects(GOOD, Pacing="slow"), ["Pacing"]),
    "unknown member": (with_member("Row", 5), ["Row"]),
    "wrong case": (b'{"objects": [{"Key": "k"}]}', ["objects"]),
    "duplicate option": (b'{"Objects": [{"Key": "k"}], "Summary": true, "Summary": true}', ["Summary"]),
    "duplicate Objects": (b'{"Objects": [{"Key": "k"}], "Objects": [{"Key": "k"}]}', ["Objects"]),
    "duplicate member": (b'{"Objects": [{"Key": "k", "Key": "k"}]}', ["Key"]),
    "duplicate null member": (b'{"Objects": [{"Key": "k", "Id": null, "Id": "a"}]}', ["Id"]),
    "no Key": (objects({"Id": "a"}), ["Key"]),
    "null Key": (objects({"Key": None}), ["Key"]),
    "empty key": (objects({"Key": ""}), ["Key"]),
    "key of 1,025 bytes": (objects({"Key": "k" * 1025}), ["Key"]),
    "key of 1,026 bytes in 513 letters": (objects({"Key": "ü" * 513}), ["Key"]),
    "key a number": (objects({"Key": 5}), []),
    "OnError unknown": (objects(GOOD, OnError="Ignore"), ["Ignore"]),
    "Order unknown": (objects(GOOD, Order="Random"), ["Random"]),
    "Summary a string": (objects(GOOD, Summary="yes"), []),
    "Id empty": (with_member("Id", ""), ["Id"]),
    "Id too long": (with_member("Id", "x" * 257), ["Id"]),
    "Id with a space": (with_member("Id", "a b"), ["Id"]),
    "Id not ASCII": (with_member("Id", "ü"), ["Id"]),
    "Id with CRLF": (with_member("Id", "a\r\nbatch-status: 200"), ["Id"]),
    "bucket empty": (with_member("Bucket", ""), ["Bucket"]),
    "bucket too long": (with_member("Bucket", "b" * 256), ["Bucket"]),
    "bucket ..": (with_member("Bucket", ".."), ["Bucket"]),
    "bucket .": (with_member("Bucket", "."), ["Bucket"]),
    "bucket with a slash": (with_member("Bucket", "a/b"), ["Bucket"]),
    **{f"{m} empty": (with_member(m, ""), [m]) for m in ("VersionId", "IfMatch", "IfNoneMatch")},
    **{f"{m} too long": (with_member(m, "v" * 1025), [m]) for m in ("VersionId", "IfMatch", "IfNoneMatch")},
    **{f"{m} with CRLF": (with_member(m, "v\r\nx: y"), [m]) for m in ("VersionId", "IfMatch", "IfNoneMatch")},
    **{f"range {r!r}": (with_member("Range", r), ["Range"]) for r in BAD_RANGES},
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_body(gateway: Gateway, name: str) -> None:
    body, named = BAD_BODIES[name]
    assert_refused(send(gateway.s3, batch_request(gateway.s3, BUCKET, body)), 400, "InvalidArgument", *named)


@pytest.mark.parametrize("size", [1, 1024])
def test_longest_and_shortest_key_are_fine(gateway: Gateway, size: int) -> None:
    """No request error: whatever the store says of it is a part."""
    assert len(batch_get(gateway.s3, BUCKET, ["z" * size]).parts) == 1


def test_the_bad_entry_is_named_by_its_index(gateway: Gateway) -> None:
    body = document(["k"] * 41 + [{"Key": "k", "Range": "bytes=2-1"}, "k"])
    assert_refused(send(gateway.s3, batch_request(gateway.s3, BUCKET, body)), 400, "InvalidArgument", "41", "Range")


def test_an_entry_without_any_bucket(gateway: Gateway) -> None:
    body = document([{"Bucket": BUCKET, "Key": "k"}, "k"])
    assert_refused(send(gateway.s3, batch_request(gateway.s3, None, body)), 400, "InvalidArgument", "Bucket")


def test_too_many_entries(gateway: Gateway) -> None:
    answer = send(gateway.s3, batch_request(gateway.s3, BUCKET, document(["k"] * 10_001)))
    assert_refused(answer, 400, "EntityTooLarge", "10000")


def test_a_body_over_the_limit_is_refused_unread(gateway: Gateway) -> None:
    """Only the head is sent: the announced length is enough."""
    request = batch_request(gateway.s3, BUCKET, b"").set("Content-Length", str((16 << 20) + 1))
    assert_refused(exchange(gateway.s3, request.raw())[0], 400, "EntityTooLarge", "16777216")


GOOD_SHA256 = hashlib.sha256(document([GOOD])).hexdigest()
CRC_TRAILER = {"x-amz-trailer": "x-amz-checksum-crc32"}


def unsigned_trailer(target: Target) -> Request:
    plain = document([GOOD])
    headers = {**CRC_TRAILER, "x-amz-decoded-content-length": str(len(plain)), "Content-Type": "application/json"}
    body = aws_chunked([plain], {"x-amz-checksum-crc32": "AAAAAA=="})
    return sign(target, "POST", f"/{BUCKET}?batch-get", headers, body, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


def with_hash(payload_hash: str) -> Make:
    return lambda target: sign(target, "POST", f"/{BUCKET}?batch-get", {}, document([GOOD]), payload_hash)


def with_headers(**headers: str) -> Make:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda target: batch_request(target, BUCKET, document([GOOD]), named)


def with_unsigned_content_types(*values: str) -> Make:
    """Content-Type need not be signed, so anyone on the way can add one."""

    def make(target: Target) -> Request:
        request = sign(target, "POST", f"/{BUCKET}?batch-get", {}, document([GOOD]))
        request.headers += [("Content-Type", value) for value in values]
        return request

    return make


def presigned_with_hash_in_query(payload_hash: str, header: bool) -> Make:
    """The hash is where only a query's signature covers it; with `header` it is sent as well, but not signed as one."""

    def make(target: Target) -> Request:
        path = f"/{BUCKET}?batch-get=&X-Amz-Content-Sha256={payload_hash}"
        request = presign(target, "POST", path, {}, document([GOOD]), payload_hash)
        return request.set("x-amz-content-sha256", payload_hash) if header else request

    return make


def presigned_batch(headers: dict[str, str], signed_hash: str) -> Make:
    return lambda t: presign(t, "POST", f"/{BUCKET}?batch-get=", headers, document([GOOD]), signed_hash)


# Requests whose head is wrong: status, code, what the message names.
BAD_HEADS: dict[str, tuple[Make, int, str, list[str]]] = {
    "hash of another body": (with_hash("0" * 64), 400, "XAmzContentSHA256Mismatch", []),
    "unsigned payload without TLS": (with_hash("UNSIGNED-PAYLOAD"), 403, "AccessDenied", ["TLS"]),
    "unsigned trailer without TLS": (unsigned_trailer, 403, "AccessDenied", ["TLS"]),
    "presigned, nothing pinned": (presigned_batch({}, "UNSIGNED-PAYLOAD"), 403, "AccessDenied", ["x-amz-content-sha256"]),
    "presigned, pinned to UNSIGNED-PAYLOAD": (
        presigned_batch({"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, "UNSIGNED-PAYLOAD"), 403, "AccessDenied", [],
    ),
    "presigned, pinned to another body": (
        presigned_batch({"x-amz-content-sha256": "0" * 64}, "0" * 64), 400, "XAmzContentSHA256Mismatch", [],
    ),
    "content type": (with_headers(Content_Type="text/plain"), 415, "UnsupportedMediaType", []),
    "content type XML": (with_headers(Content_Type="application/xml"), 415, "UnsupportedMediaType", []),
    "content type JSON, then text": (
        with_unsigned_content_types("application/json", "text/plain"), 415, "UnsupportedMediaType", [],
    ),
    "content type text, then JSON": (
        with_unsigned_content_types("text/plain", "application/json"), 415, "UnsupportedMediaType", [],
    ),
    "content type JSON twice": (
        with_unsigned_content_types("application/json", "application/json"), 415, "UnsupportedMediaType", [],
    ),
    "presigned, UNSIGNED-PAYLOAD in the query": (
        presigned_with_hash_in_query("UNSIGNED-PAYLOAD", False), 403, "AccessDenied", ["x-amz-content-sha256"],
    ),
    "presigned, hash in the query only": (
        presigned_with_hash_in_query(GOOD_SHA256, False), 403, "AccessDenied", ["x-amz-content-sha256"],
    ),
    "presigned, hash in the query and an unsigned header": (
        presigned_with_hash_in_query(GOOD_SHA256, True), 403, "AccessDenied", ["x-amz-content-sha256"],
    ),
    "accept": (with_headers(Accept="application/zip"), 406, "NotAcceptable", []),
    "accept with q=0": (with_headers(Accept="multipart/mixed;q=0"), 406, "NotAcceptable", []),
    "acl": (with_headers(x_amz_acl="private"), 400, "InvalidArgument", ["x-amz-acl"]),
    "metadata": (with_headers(x_amz_meta_a="b"), 400, "InvalidArgument", ["x-amz-meta-a"]),
    "SSE": (with_headers(x_amz_server_side_encryption="AES256"), 400, "InvalidArgument", ["x-amz-server-side-encryption"]),
    "unheard of": (with_headers(x_amz_new_feature="on"), 400, "InvalidArgument", ["x-amz-new-feature"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_HEADS)
def test_bad_head(gateway: Gateway, name: str) -> None:
    make, status, code, named = BAD_HEADS[name]
    assert_refused(send(gateway.s3, make(gateway.s3)), status, code, *named)


def test_http_1_0_is_refused(gateway: Gateway) -> None:
    request = batch_request(gateway.s3, BUCKET, document([GOOD]))
    assert_refused(exchange(gateway.s3, request.raw("HTTP/1.0"))[0], 505, "HttpVersionNotSupported", "HTTP/1.0")


@pytest.mark.parametrize("chunked", [False, True])
def test_missing_content_length(gateway: Gateway, chunked: bool) -> None:
    body = document([GOOD])
    request = batch_request(gateway.s3, BUCKET, body).set("Content-Length", None)
    request.body = b""
    if chunked:
        request.set("Transfer-Encoding", "chunked")
        request.body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    assert_refused(exchange(gateway.s3, request.raw())[0], 411, "MissingContentLength")


KEPT = {
    "syntax": lambda t: batch_request(t, BUCKET, b"{"),
    "wrong hash": BAD_HEADS["hash of another body"][0],
    "not acceptable": BAD_HEADS["accept"][0],
    "media type": BAD_HEADS["content type"][0],
    "unknown key": lambda t: batch_request(t, BUCKET, document([GOOD])).set("Authorization", None),
    "no such bucket": lambda t: sign(t, "GET", "/no-such-bucket-here/k"),
}


@pytest.mark.parametrize("name", KEPT)
def test_connection_stays_usable_or_is_closed_cleanly(gateway: Gateway, name: str) -> None:
    bad = KEPT[name](gateway.s3).raw()
    good = batch_request(gateway.s3, BUCKET, document([GOOD])).raw()
    answers = exchange(gateway.s3, bad, bad, good)
    assert all(answer.status >= 400 for answer in answers[:2])
    if len(answers) == 3:
        assert read_batch(answers[2]).parts[0].body == b"value"
    else:
        assert (answers[-1].get("connection") or "").lower() == "close"


def test_a_refusal_that_leaves_the_body_unread_ends_the_connection_and_says_so(gateway: Gateway) -> None:
    """Who is not told sends the next request over a connection that is gone."""
    good = batch_request(gateway.s3, BUCKET, document([GOOD])).raw()
    unread = sign(gateway.s3, "PUT", "/no-such-bucket-here/k", {}, b"z" * 70_000).set("Authorization", None).raw()
    head = unread.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    for sent in (head, head + b"z", unread):
        found = exchange(gateway.s3, sent, good)
        assert [(answer.status, answer.get("connection")) for answer in found] == [(403, "close")], len(sent)
    wrong = sign(gateway.s3, "PUT", f"/{BUCKET}/w", {}, b"z", hashlib.sha256(b"y").hexdigest()).raw()
    found = exchange(gateway.s3, wrong, good)
    assert [answer.status for answer in found] == [400, 200], "what was read to its end leaves nothing in the way"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
    ],
    ids=["empty lines", "half a line", "TLS hello", "too many headers"],
)
def test_garbage_closes_the_connection(gateway: Gateway, garbage: bytes) -> None:
    """Answered or not, it must not hang, and the gateway must not mind."""
    with socket.create_connection(gateway.s3.address, timeout=35) as sock:
        try:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            received = sock.recv(65536)
        except ConnectionError:
            received = b""
    assert not received.startswith(b"HTTP/1.1 2")
