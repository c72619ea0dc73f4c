"""Traps that other S3 servers and proxies fell into, kind by kind, as people met them; `tests/README.md` has the table. The
gateway stands before a store that is asked over the wire, so that what is forwarded is judged too."""

import base64
import gzip
import hashlib
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.batch import batch_get
from support.clients import boto3_client
from support.faulty import FaultyBackend
from support.gateway import DOMAIN, FULL, READ_ONLY, Backend, Gateway
from support.rawsocket import exchange, read_answer
from support.store import BOTH, Target
from support.wire import (
    Answer,
    Request,
    aws_chunked,
    call,
    object_path,
    presign,
    quote_key,
    send,
    send_http2,
    sign,
)

STORES = BOTH
BUCKET = "trap-rows"
BYTE_FOR_BYTE = "SeaweedFS folds slashes and dots, and a key is a file or a folder"


@pytest.fixture(scope="module")
def gate(start_gateway: Callable[..., Gateway], store: Target) -> Gateway:
    running = start_gateway([Backend("store", "*", store)], "", "trap-rows")
    assert call(store, "PUT", f"/{BUCKET}").status == 200
    return running


@pytest.fixture(autouse=True)
def nothing_is_left(gate: Gateway, store: Target) -> Iterator[None]:
    """Each begins with an empty bucket."""
    yield
    s3 = boto3_client(store)
    for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        s3.delete_object(Bucket=BUCKET, Key=item["Key"])


def put(target: Target, key: str, body: bytes = b"x", headers: dict[str, str] | None = None) -> Answer:
    answer = call(target, "PUT", object_path(BUCKET, key), headers, body)
    assert answer.status == 200, answer
    return answer


def keys(target: Target, **arguments: Any) -> list[str]:
    return [
        item["Key"] for item in boto3_client(target).list_objects_v2(Bucket=BUCKET, **arguments).get("Contents", [])
    ]


# Who is asked, and what was signed


def test_trap_http2_names_its_host_by_authority(gate: Gateway, tmp_path: Path) -> None:
    put(gate.s3, "k", b"value")
    port = gate.s3.address[1]
    for request in (
        sign(gate.s3, "GET", f"/{BUCKET}/k"),
        sign(gate.s3, "GET", "/k", host=f"{BUCKET}.{DOMAIN}"),
        sign(gate.s3, "GET", "/k", host=f"{BUCKET}.{DOMAIN}:{port}"),
        presign(gate.s3, "GET", f"/{BUCKET}/k"),
    ):
        answer = send_http2(gate.s3, request, tmp_path)
        assert (answer.http2, answer.status, answer.body) == (True, 200, b"value"), answer
    other = sign(gate.s3, "GET", f"/{BUCKET}/k").set("Host", "other.example")
    assert send_http2(gate.s3, other, tmp_path).xml("Code") == "SignatureDoesNotMatch"


def test_trap_what_is_added_on_the_way_changes_no_signature(gate: Gateway) -> None:
    """Ids of a proxy are not signed and not ours; those that we answer with are."""
    put(gate.s3, "k", b"value")
    for name in ("x-batchgate-request-id", "x-request-id", "x-amzn-trace-id", "traceparent"):
        request = sign(gate.s3, "GET", f"/{BUCKET}/k")
        request.headers.append((name, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
        answer = send(gate.s3, request)
        assert (answer.status, answer.body) == (200, b"value"), name
        assert re.fullmatch("[0-9a-f]{16}", answer.get("x-batchgate-request-id") or "")


@pytest.mark.parametrize("how", ["header", "query"])
def test_trap_a_signed_header_gets_no_second_value(gate: Gateway, store: Target, how: str) -> None:
    for name, value in (("x-amz-meta-a", "b"), ("x-amz-acl", "private"), ("x-amz-storage-class", "STANDARD")):
        make = sign if how == "header" else presign
        request = make(gate.s3, "PUT", f"/{BUCKET}/k", {name: value}, b"x")
        request.headers.append((name, "public-read"))
        assert send(gate.s3, request).status == 403, name
    assert call(store, "HEAD", f"/{BUCKET}/k").status == 404


def test_trap_a_header_with_another_spelling_is_never_forwarded(start_gateway: Callable[..., Gateway]) -> None:
    """Ceph RGW and whoever else speaks CGI's way reads `x_amz_acl` as `x-amz-acl`."""
    backend = FaultyBackend()
    try:
        running = start_gateway([Backend("faulty", "*", Target(backend.endpoint, FULL))], "", "spellings")
        request = sign(running.s3, "GET", f"/{BUCKET}/fine/k", {"x-amz-meta-a_b": "kept"})
        for name in ("x_amz_acl", "X_Amz_Copy_Source", "x-amz_meta_a", "if_none_match", "content_length", "range_"):
            request.headers.append((name, "evil"))
        assert send(running.s3, request).status == 200
        headers = backend.seen[-1].headers
        assert headers["x-amz-meta-a_b"] == "kept"
        assert "evil" not in headers.values(), headers
    finally:
        backend.stop()


# Keys, and how they are written


@pytest.mark.only_on("embedded", reason=BYTE_FOR_BYTE)
@pytest.mark.parametrize(
    "key",
    ["/", "//", "/lead", "//..", ".", "..", "x/.", "x/..", "a/./b", "a/../../b", "a//b", "a///", "./", "../" + BUCKET],
)
def test_trap_dots_and_slashes_are_letters(gate: Gateway, store: Target, key: str) -> None:
    put(gate.s3, "decoy", b"decoy")
    put(gate.s3, key, key.encode())
    assert call(store, "GET", object_path(BUCKET, key)).body == key.encode()
    assert call(gate.s3, "GET", object_path(BUCKET, key)).body == key.encode()
    dotted = f"/{BUCKET}/{quote_key(key).replace('.', '%2E')}"
    assert call(gate.s3, "GET", dotted).body == key.encode(), "needlessly encoded"
    assert send(gate.s3, presign(gate.s3, "GET", object_path(BUCKET, key))).body == key.encode()
    assert send(gate.s3, sign(gate.s3, "GET", f"/{quote_key(key)}", host=f"{BUCKET}.{DOMAIN}")).body == key.encode()
    assert batch_get(gate.s3, BUCKET, [key]).parts[0].body == key.encode()
    assert sorted(keys(gate.s3)) == sorted([key, "decoy"])
    assert call(gate.s3, "DELETE", object_path(BUCKET, key)).status == 204
    assert keys(gate.s3) == ["decoy"]


ALIKE = ["a b", "a+b", "a%20b", "a%2520b", "a%2Bb", "100%.txt", "100%25.txt", "100%2525.txt", "%", "%%", "%2", "%zz"]


def test_trap_what_is_encoded_is_decoded_once(gate: Gateway, store: Target) -> None:
    """Names that one encoding or decoding too many would make into each other."""
    for key in ALIKE:
        put(gate.s3, key, key.encode())
    for key in ALIKE:
        for target in (store, gate.s3):
            assert call(target, "GET", object_path(BUCKET, key)).body == key.encode(), key
        assert keys(gate.s3, Prefix=key, MaxKeys=1) == [key], "the query too"
        source = f"/{BUCKET}/{quote_key(key)}"
        assert call(gate.s3, "PUT", f"/{BUCKET}/copy", {"x-amz-copy-source": source}).status == 200
        assert call(store, "GET", f"/{BUCKET}/copy").body == key.encode(), "and the source of a copy"
    batch = batch_get(gate.s3, BUCKET, ALIKE)
    assert [part.body for part in batch.parts] == [key.encode() for key in ALIKE]


# One key each, signed over its canonical path, and how some clients write it.
SPELLINGS = [
    ("a.txt", "%61.txt"), ("plus+plus", "plus%2bplus"), ("plus+plus", "plus+plus"), ("~tilde", "%7Etilde"),
    ("job/_$folder$", "job/_$folder$"), ("it's(1)!*", "it's(1)!*"), ("a=b&c@d:e;f,g", "a=b&c@d:e;f,g"),
    ("dir/x", "dir%2Fx"), ("dir/x", "dir%2fx"), ("ü", "%c3%bc"), ("ü", "%C3%bC"), ("[x]^{y}|", "[x]^{y}|"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "spelling"), SPELLINGS)
@pytest.mark.parametrize("signed", ["canonical", "as sent"])
def test_trap_every_spelling_of_a_key_is_that_key(
    gate: Gateway, store: Target, key: str, spelling: str, signed: str
) -> None:
    path = f"/{BUCKET}/{spelling}"

    def request(method: str, body: bytes = b"") -> Request:
        made = sign(gate.s3, method, object_path(BUCKET, key) if signed == "canonical" else path, {}, body)
        made.path = path
        return made

    assert send(gate.s3, request("PUT", b"value")).status == 200
    assert call(store, "GET", object_path(BUCKET, key)).body == b"value"
    assert send(gate.s3, request("GET")).body == b"value"
    assert send(gate.s3, request("DELETE")).status == 204
    assert keys(store) == []


@pytest.mark.only_on("embedded", reason="SeaweedFS refuses a path with a % that nothing follows")
@pytest.mark.parametrize("spelling", ["100%.txt", "100%25.txt"])
def test_trap_a_percent_sign_alone_is_itself(gate: Gateway, store: Target, spelling: str) -> None:
    for name, key in ((spelling, "100%.txt"), ("100%2525.txt", "100%25.txt")):
        made = sign(gate.s3, "PUT", object_path(BUCKET, key), {}, key.encode())
        made.path = f"/{BUCKET}/{name}"
        assert send(gate.s3, made).status == 200
        assert call(store, "GET", object_path(BUCKET, key)).body == key.encode()
    assert keys(store) == ["100%.txt", "100%25.txt"], "two objects"


NAMES = [
    "ü",
    "u\u0308",
    "鍵 と 値",
    "\U0001f600/\U0001f44d\U0001f3fd",
    " lead",
    "trail ",
    "two  spaces",
    "\u00a0",
    "\u200b",
    "ﬁ",
    "İi",
]


def test_trap_letters_of_every_script_are_octets(gate: Gateway, store: Target) -> None:
    """Neither composed nor folded nor trimmed: what looks the same need not be."""
    for key in NAMES:
        put(gate.s3, key, key.encode())
    assert sorted(keys(gate.s3)) == sorted(NAMES)
    assert [part.body for part in batch_get(gate.s3, BUCKET, NAMES).parts] == [key.encode() for key in NAMES]
    for count, key in enumerate(NAMES, 1):
        assert call(store, "GET", object_path(BUCKET, key)).body == key.encode()
        assert call(gate.s3, "DELETE", object_path(BUCKET, key)).status == 204
        assert len(keys(store)) == len(NAMES) - count


QUERIES = [
    "list-type=2",
    "",
    "list-type=2&delimiter=%2F",
    "list-type=2&prefix=a%2B",
    "delimiter=%2F&prefix=dir%2F",
    "versions",
]


@pytest.mark.parametrize("encoding", ["", "encoding-type=url"])
@pytest.mark.parametrize("query", QUERIES)
def test_trap_a_listing_is_the_stores_octet_by_octet(gate: Gateway, store: Target, query: str, encoding: str) -> None:
    for key in ("a+b", "a b", "a%2Bb", "dir/<&>", "ü"):
        put(gate.s3, key)
    path = f"/{BUCKET}?" + "&".join(filter(None, [query, encoding]))

    def listed(target: Target) -> tuple[int, bytes]:
        answer = call(target, "GET", path)
        # Ids are of one request.
        return answer.status, re.sub(rb"<RequestId>.*?</RequestId>", b"", answer.body)

    assert listed(gate.s3) == listed(store)


def test_trap_a_listing_goes_on_behind_odd_keys(gate: Gateway, store_kind: str) -> None:
    """Where the next page begins is the store's to write, with any letters, and must come back as it was."""
    odd = sorted(["+", "a+b", "a b", "a%2Bb", "a/b", "a=b", "a&b", "ü", "~"], key=str.encode)
    for key in odd:
        put(gate.s3, key)
    s3 = boto3_client(gate.s3)
    # Of the older listing SeaweedFS does not encode where the next page begins.
    for version in ("list_objects_v2", "list_objects")[: 2 if store_kind == "embedded" else 1]:
        pages = s3.get_paginator(version).paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 1})
        found = [item["Key"] for page in pages for item in page.get("Contents", [])]
        # SeaweedFS has a folder where it has a key below it, and its order.
        assert sorted(found, key=str.encode) == odd, version
    if store_kind == "embedded":  # SeaweedFS says `a b`, having decoded it once too often.
        assert s3.list_objects_v2(Bucket=BUCKET, StartAfter="a+b", MaxKeys=1)["StartAfter"] == "a+b"


# Bodies


def test_trap_a_body_that_is_not_signed_is_taken_and_a_pinned_one_is_held_to(gate: Gateway, store: Target) -> None:
    path, right, wrong = f"/{BUCKET}/k", hashlib.sha256(b"body").hexdigest(), "0" * 64
    pinned = {"x-amz-content-sha256": wrong}
    for request in (
        presign(gate.s3, "PUT", path, pinned, b"body", wrong),
        presign(gate.s3, "PUT", path, {"x-amz-content-sha256": right}, b"other", right),
        sign(gate.s3, "PUT", path, {}, b"body", wrong),
    ):
        answer = send(gate.s3, request)
        assert (answer.status, answer.xml("Code")) == (400, "XAmzContentSHA256Mismatch")
        assert call(store, "HEAD", path).status == 404
    for request in (
        sign(gate.s3, "PUT", path, {}, b"body", "UNSIGNED-PAYLOAD"),
        presign(gate.s3, "PUT", path, {}, b"body"),
        presign(gate.s3, "PUT", path, {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, b"body"),
        presign(gate.s3, "PUT", path, {"x-amz-content-sha256": right}, b"body", right),
        presign(gate.s3, "PUT", path, {"Content-Type": "a/b"}, b"body"),
    ):
        assert send(gate.s3, request).status == 200
        assert call(store, "GET", path).body == b"body"
        assert call(store, "DELETE", path).status == 204


@pytest.mark.parametrize("spelling", ["100-continue", "100-Continue"])
def test_trap_a_refusal_does_not_wait_for_the_body(gate: Gateway, spelling: str) -> None:
    """Of what would be terabytes nothing is asked for; what was allowed is asked for once."""
    for target, allowed in ((gate.as_identity(READ_ONLY), False), (gate.s3, True)):
        request = sign(target, "PUT", f"/{BUCKET}/k", {"Expect": spelling}, b"", "UNSIGNED-PAYLOAD")
        request.set("Content-Length", "4" if allowed else str(5 << 40))
        with socket.create_connection(target.address, timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(request.raw())
            if allowed:
                assert stream.readline().startswith(b"HTTP/1.1 100 ") and stream.readline() == b"\r\n"
                sock.sendall(b"body")
            assert read_answer(stream).status == (200 if allowed else 403)


def test_trap_a_large_upload_is_hashed_while_it_streams(gate: Gateway, store: Target) -> None:
    def peak_kib() -> int:
        status = Path(f"/proc/{gate.process.child.pid}/status").read_text()
        return int((re.search(r"^VmHWM:\s*(\d+) kB$", status, re.M) or ["", "0"])[1])

    put(gate.s3, "small", bytes(1 << 20))
    before = peak_kib()
    body = bytes(range(256)) * (96 << 12)
    put(gate.s3, "large", body)
    assert peak_kib() - before < 48 << 10, "of 96 MiB"
    assert int(call(store, "HEAD", f"/{BUCKET}/large").get("content-length") or 0) == len(body)


# Parts of objects


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("span", ["0-", "0-0", "-1", "-99", "5-9", "99999999999999999999-"])
def test_trap_no_range_of_an_empty_object_is_there(
    gate: Gateway, store: Target, store_kind: str, method: str, span: str
) -> None:
    put(gate.s3, "empty", b"")
    through, direct = (call(t, method, f"/{BUCKET}/empty", {"Range": f"bytes={span}"}) for t in (gate.s3, store))
    assert through.status == direct.status and through.get("content-range") == direct.get("content-range")
    if store_kind == "embedded":
        assert (through.status, through.get("content-range")) == (416, "bytes */0")
        if method == "GET" and len(span) < 20:
            part = batch_get(gate.s3, BUCKET, [{"Key": "empty", "Range": f"bytes={span}"}]).parts[0]
            assert (part.status, part.code) == (416, "InvalidRange")


@pytest.mark.parametrize("span", ["10-", "10-20", "99999999999999999999-"])
def test_trap_a_range_past_the_end_says_how_long_it_is(gate: Gateway, store: Target, span: str) -> None:
    put(gate.s3, "k", b"0123456789")
    through, direct = (call(t, "GET", f"/{BUCKET}/k", {"Range": f"bytes={span}"}) for t in (gate.s3, store))
    assert (through.status, through.xml("Code")) == (416, "InvalidRange")
    assert through.get("content-range") == direct.get("content-range")


@pytest.mark.parametrize(
    ("span", "said", "body"),
    [
        ("0-", "0-9", b"0123456789"),
        ("0-0", "0-0", b"0"),
        ("-3", "7-9", b"789"),
        ("8-99", "8-9", b"89"),
        ("-99", "0-9", b"0123456789"),
    ],
)
def test_trap_a_part_is_said_to_be_one(gate: Gateway, store_kind: str, span: str, said: str, body: bytes) -> None:
    """Also where it is the whole, and of a HEAD."""
    put(gate.s3, "k", b"0123456789")
    answers = exchange(
        gate.s3,
        *(sign(gate.s3, method, f"/{BUCKET}/k", {"Range": f"bytes={span}"}).raw() for method in ("HEAD", "GET")),
    )
    for answer in answers if store_kind == "embedded" else answers[1:]:  # SeaweedFS answers a HEAD with 200.
        assert (answer.status, answer.get("content-range")) == (206, f"bytes {said}/10")
        assert answer.get("content-length") == str(len(body))
    assert answers[1].body == body
    part = batch_get(gate.s3, BUCKET, [{"Key": "k", "Range": f"bytes={span}"}]).parts[0]
    assert (part.status, part.body, part.get("content-range")) == (206, body, f"bytes {said}/10")


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_trap_a_head_has_the_length_and_no_body(gate: Gateway, tmp_path: Path, size: int) -> None:
    put(gate.s3, "k", bytes(size))
    head, get = sign(gate.s3, "HEAD", f"/{BUCKET}/k"), sign(gate.s3, "GET", f"/{BUCKET}/k")
    missing = sign(gate.s3, "HEAD", f"/{BUCKET}/missing")
    # Whatever follows a HEAD on its connection would be read as the next answer.
    answers = exchange(gate.s3, head.raw(), missing.raw(), head.raw(), get.raw())
    assert [answer.status for answer in answers] == [200, 404, 200, 200]
    assert {answer.get("content-length") for answer in (answers[0], answers[2], answers[3])} == {str(size)}
    assert answers[3].body == bytes(size)


# Conditions and tags


def test_trap_what_is_not_modified_keeps_its_tag_and_has_no_body(gate: Gateway, store_kind: str) -> None:
    etag = put(gate.s3, "k", b"value").get("etag") or ""
    plain = sign(gate.s3, "GET", f"/{BUCKET}/k")
    whole = send(gate.s3, plain)
    for method in ("GET", "HEAD"):
        same = sign(gate.s3, method, f"/{BUCKET}/k", {"If-None-Match": etag})
        other = sign(gate.s3, method, f"/{BUCKET}/k", {"If-Match": '"other"'})
        answers = exchange(gate.s3, same.raw(), plain.raw(), other.raw(), plain.raw())
        assert [answer.status for answer in answers] == [304, 200, 412, 200], "each ends where it ends"
        assert answers[0].get("etag") == etag
        if store_kind == "embedded":  # SeaweedFS leaves the date out.
            assert answers[0].get("last-modified") == whole.get("last-modified")
        assert answers[0].body == b"" and answers[1].body == answers[3].body == b"value"


@pytest.mark.only_on("embedded", reason="SeaweedFS does not have RFC 9110's order of all four")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": "{etag}", "If-Unmodified-Since": "{before}"}, 200),
        ({"If-Match": '"x"', "If-Unmodified-Since": "{after}"}, 412),
        ({"If-None-Match": '"x"', "If-Modified-Since": "{after}"}, 200),
        ({"If-None-Match": "{etag}", "If-Modified-Since": "{before}"}, 304),
        ({"If-Match": '"x"', "If-None-Match": "{etag}"}, 412),
        ({"If-Match": "{etag}", "If-None-Match": "{etag}"}, 304),
        ({"If-None-Match": "W/{etag}"}, 304),
        ({"If-Match": "W/{etag}"}, 412),
        ({"If-None-Match": '"x", {etag}'}, 304),
        ({"If-Match": "*"}, 200),
        ({"If-None-Match": "*"}, 304),
        ({"If-Modified-Since": "no date"}, 200),
    ],
)
def test_trap_conditions_are_judged_in_their_order(gate: Gateway, headers: dict[str, str], status: int) -> None:
    etag = put(gate.s3, "k", b"value").get("etag") or ""
    dates = {"before": "Sun, 06 Nov 1994 08:49:37 GMT", "after": "Fri, 06 Nov 2093 08:49:37 GMT"}
    made = {name: value.format(etag=etag, **dates) for name, value in headers.items()}
    assert call(gate.s3, "GET", f"/{BUCKET}/k", made).status == status


def begun(gate: Gateway, key: str) -> tuple[str, bytes]:
    """An upload with one part: the path to complete it, and its document."""
    path = f"/{BUCKET}/{key}"
    upload = (re.search(rb"<UploadId>(.*?)</UploadId>", call(gate.s3, "POST", f"{path}?uploads=").body) or [b"", b""])[
        1
    ].decode()
    etag = call(gate.s3, "PUT", f"{path}?partNumber=1&uploadId={upload}", {}, b"from parts").get("etag")
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    return f"{path}?uploadId={upload}", f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()


@pytest.mark.only_on("embedded", reason="SeaweedFS completes whatever the condition")
def test_trap_the_condition_of_a_completion_is_the_stores_to_judge(gate: Gateway) -> None:
    etag = put(gate.s3, "k", b"before").get("etag") or ""
    path, document = begun(gate, "k")
    for condition in ({"If-None-Match": "*"}, {"If-Match": '"other"'}):
        assert call(gate.s3, "POST", path, condition, document).status == 412, condition
        assert call(gate.s3, "GET", f"/{BUCKET}/k").body == b"before"
    assert call(gate.s3, "POST", path, {"If-Match": etag}, document).status == 200
    assert call(gate.s3, "GET", f"/{BUCKET}/k").body == b"from parts"


def test_trap_of_many_who_complete_all_see_one_object(gate: Gateway, store: Target) -> None:
    path, document = begun(gate, "k")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(gate.s3, "POST", path, {}, document), range(16)))
    assert any(answer.status == 200 and b"<ETag>" in answer.body for answer in answers)
    assert {answer.status for answer in answers} <= {200, 404}
    assert call(store, "GET", f"/{BUCKET}/k").body == b"from parts" and keys(store) == ["k"]


def test_trap_a_tag_is_quoted_wherever_it_stands(gate: Gateway) -> None:
    etag = put(gate.s3, "k", b"value").get("etag") or ""
    assert re.fullmatch('"[0-9a-f]{32}"', etag)
    for method in ("GET", "HEAD"):
        assert call(gate.s3, method, f"/{BUCKET}/k").get("etag") == etag
    assert batch_get(gate.s3, BUCKET, ["k"]).parts[0].get("etag") == etag
    assert boto3_client(gate.s3).list_objects_v2(Bucket=BUCKET)["Contents"][0]["ETag"] == etag


@pytest.mark.parametrize("accepted", [None, "identity", "gzip", "br, gzip;q=0.5", "*"])
def test_trap_what_is_stored_compressed_stays_so(gate: Gateway, tmp_path: Path, accepted: str | None) -> None:
    packed = gzip.compress(b"text " * 1000, mtime=0)
    etag = put(gate.s3, "k", packed, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}).get("etag")
    headers = {"Accept-Encoding": accepted} if accepted else {}
    request = sign(gate.s3, "GET", f"/{BUCKET}/k", headers)
    for answer in (
        send(gate.s3, request),
        send_http2(gate.s3, request, tmp_path),
        batch_get(gate.s3, BUCKET, ["k"]).parts[0],
    ):
        assert answer.body == packed
        found = [answer.get(name) for name in ("content-encoding", "content-length", "etag")]
        assert found == ["gzip", str(len(packed)), etag]


# Objects that are hardly any


@pytest.mark.only_on("embedded", reason=BYTE_FOR_BYTE)
def test_trap_a_name_that_ends_in_a_slash_is_an_object(gate: Gateway, store: Target) -> None:
    for key, body in {"d": b"file", "d/": b"", "d/x": b"below", "e/": b"with a body"}.items():
        put(gate.s3, key, body)
    assert keys(store) == ["d", "d/", "d/x", "e/"]
    assert [part.body for part in batch_get(gate.s3, BUCKET, ["d", "d/", "d/x", "e/"]).parts] == [
        b"file",
        b"",
        b"below",
        b"with a body",
    ]
    assert call(gate.s3, "DELETE", f"/{BUCKET}/d/").status == 204
    assert keys(store) == ["d", "d/x", "e/"]


def test_trap_nothing_is_an_object_however_it_is_framed(gate: Gateway, store: Target) -> None:
    chunks = {
        "x-amz-decoded-content-length": "0",
        "Content-Encoding": "aws-chunked",
        "x-amz-trailer": "x-amz-checksum-crc32",
    }
    framed = aws_chunked([], {"x-amz-checksum-crc32": "AAAAAA=="})
    unsigned_trailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    for request in (
        sign(gate.s3, "PUT", f"/{BUCKET}/empty"),
        sign(gate.s3, "PUT", f"/{BUCKET}/empty", {}, b"", "UNSIGNED-PAYLOAD"),
        presign(gate.s3, "PUT", f"/{BUCKET}/empty"),
        sign(gate.s3, "PUT", f"/{BUCKET}/empty", chunks, framed, unsigned_trailer),
    ):
        assert send(gate.s3, request).status == 200, request
        head = call(store, "HEAD", f"/{BUCKET}/empty")
        assert (head.status, head.get("content-length"), head.get("content-encoding")) == (200, "0", None)
        assert call(gate.s3, "GET", f"/{BUCKET}/empty").body == b""
        part = batch_get(gate.s3, BUCKET, ["empty"]).parts[0]
        assert (part.status, part.body) == (200, b"")
        assert call(store, "DELETE", f"/{BUCKET}/empty").status == 204


# Many at once


DELETED = ["<&>\"'", "a&amp;b", "]]>", "plus+", "per%20cent", "ü \U0001f600", "tab\there", "plain"]


@pytest.mark.parametrize("quiet", [False, True])
def test_trap_names_in_a_list_of_deletes_are_those_of_the_objects(gate: Gateway, store: Target, quiet: bool) -> None:
    """Also one that is not there, and one that stands twice: each is said to be deleted, or with Quiet nothing is."""
    for key in [*DELETED, "kept", "a&b"]:
        put(gate.s3, key)
    asked = [{"Key": key} for key in [*DELETED, "plain", "was never there"]]
    answer = boto3_client(gate.s3).delete_objects(Bucket=BUCKET, Delete={"Objects": asked, "Quiet": quiet})
    assert "Errors" not in answer
    told = {item["Key"] for item in answer.get("Deleted", [])}
    assert told == (set() if quiet else {*DELETED, "was never there"})
    assert sorted(keys(store)) == ["a&b", "kept"]


def test_trap_more_than_a_thousand_deletes_are_none(gate: Gateway, store: Target) -> None:
    put(gate.s3, "k0")
    listed = "".join(f"<Object><Key>k{i}</Key></Object>" for i in range(1001))
    document = f"<Delete>{listed}</Delete>".encode()
    md5 = {"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(document).digest()).decode()}
    answer = call(gate.s3, "POST", f"/{BUCKET}?delete=", md5, document)
    assert (answer.status, answer.xml("Code")) == (400, "MalformedXML")
    assert keys(store) == ["k0"]


# Limits of what is presigned


@pytest.mark.parametrize("expires", ["0", "-1", "604801", "1e3", "60s", "", " 60", "99999999999999999999"])
def test_trap_a_life_that_is_none_or_too_long_is_refused(gate: Gateway, expires: str) -> None:
    """Before the signature is looked at."""
    request = presign(gate.s3, "GET", f"/{BUCKET}/k")
    request.path = request.path.replace("X-Amz-Expires=60", f"X-Amz-Expires={expires.replace(' ', '%20')}")
    answer = send(gate.s3, request)
    assert (answer.status, answer.xml("Code")) == (400, "AuthorizationQueryParametersError")


def test_trap_a_life_cannot_be_made_longer_or_given_twice(gate: Gateway) -> None:
    put(gate.s3, "k", b"value")
    longest = presign(gate.s3, "GET", f"/{BUCKET}/k", expires_seconds=604800)
    assert send(gate.s3, longest).body == b"value"
    for change in ("X-Amz-Expires=61", "X-Amz-Expires=60&X-Amz-Expires=600", "X-Amz-Expires=60&x-amz-expires=600"):
        request = presign(gate.s3, "GET", f"/{BUCKET}/k")
        request.path = request.path.replace("X-Amz-Expires=60", change)
        answer = send(gate.s3, request)
        assert answer.status in (400, 403), answer


# Names of ours


@pytest.mark.only_on("embedded", reason="SeaweedFS has pages of its own")
@pytest.mark.parametrize(
    "name",
    [
        "health",
        "healthz",
        "metrics",
        "livez",
        "readyz",
        "configz",
        "status",
        "minio",
        "admin",
        "favicon.ico",
        "batch-get",
    ],
)
def test_trap_every_name_of_a_bucket_is_one(gate: Gateway, name: str) -> None:
    bare = send(gate.s3, Request("GET", f"/{name}", [("Host", "s3")]))
    assert (bare.status, bare.xml("Code")) == (403, "AccessDenied"), "no page for those who do not sign"
    assert call(gate.s3, "GET", f"/{name}").xml("Code") == "NoSuchBucket"
    assert call(gate.s3, "PUT", f"/{name}").status == 200
    for key in ("metrics", "livez", "x"):
        assert call(gate.s3, "PUT", f"/{name}/{key}", {}, key.encode()).status == 200
        assert call(gate.s3, "GET", f"/{name}/{key}").body == key.encode()
        assert call(gate.s3, "DELETE", f"/{name}/{key}").status == 204
    assert b"<ListBucketResult" in call(gate.s3, "GET", f"/{name}").body
    assert call(gate.s3, "DELETE", f"/{name}").status == 204
