"""Uploads in every form, right and wrong: what is right is stored decoded, of what is wrong nothing is left behind.

With the store seeing the checksums, and with `checksums = "verify"`; with each way to sign what goes to the store.
"""

import contextlib
import hashlib
import itertools
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.clients import boto3_client
from support.gateway import READ_ONLY, Backend, Gateway
from support.rawsocket import read_answer, read_head
from support.store import Credentials, Target
from support.uploads import ALGORITHMS, CHUNKED, FORMS, SIGNED_CHUNKS, TRAILERS, Chunk, Upload, checksum, data
from support.wire import UNSIGNED_PAYLOAD, Request, call, presign, send, sign

# SeaweedFS 4.48 knows no others; of those it takes headers for nothing, and refuses trailers.
KNOWN_TO_SEAWEEDFS = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"]
CAP = 1 << 20
# Each is cut into three chunks, or none; the first is all here before the store is asked, the second is not.
SIZES = [0, 33, 300_000]
FORGED = "0" * 64

# A way through: the store behind the gateway, and settings of the backend.
WAYS = {
    "seaweedfs": ("seaweedfs", ""),
    "embedded": ("embedded", ""),
    "verified": ("seaweedfs", 'checksums = "verify"\ncontent_md5 = true\npayload_signing = "never"'),
    # Its store is a gateway itself, which checks what is signed.
    "signed": ("gateway", 'payload_signing = "always"'),
    "signed-verified": ("gateway", 'payload_signing = "always"\nchecksums = "verify"'),
}


@dataclass
class Way:
    """A gateway and the store behind it."""

    name: str
    gateway: Gateway
    store: Target
    bucket: str
    # An upload that takes parts without a checksum of one kind.
    upload_id: str = ""
    part_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin_upload(self, path: str, headers: dict[str, str] | None = None) -> str:
        answer = call(self.gateway.s3, "POST", f"{path}?uploads=", headers)
        upload_id = re.search(r"<UploadId>(.*?)</UploadId>", answer.body.decode())
        assert answer.status == 200 and upload_id, answer
        return upload_id[1]


@pytest.fixture(scope="module")
def ways(request: pytest.FixtureRequest, start_gateway: Callable[..., Gateway]) -> Iterator[Callable[[str], Way]]:
    """Each way is made once, when it is first asked for."""
    made: dict[str, Way] = {}

    def make(name: str) -> Way:
        kind, extra = WAYS[name]
        store = None
        if kind != "embedded":
            behind = request.getfixturevalue("seaweedfs" if kind == "seaweedfs" else "embedded_gateway")
            store = behind.s3 if isinstance(behind, Gateway) else behind
        backend = Backend("store", "*", store, extra)
        running = start_gateway([backend], name=name, server=f"chunk_bytes_max = {CAP}")
        way = Way(name, running, store or running.s3, f"uploads-{name}")
        assert call(running.s3, "PUT", f"/{way.bucket}").status == 200
        assert call(running.s3, "PUT", f"/{way.bucket}/old", {}, b"before").status == 200
        way.upload_id = way.begin_upload(f"/{way.bucket}/in-parts")
        return way

    yield lambda name: made.get(name) or made.setdefault(name, make(name))
    for way in made.values():
        way.gateway.assert_gauges_at_zero()
        assert "panicked" not in way.gateway.process.stderr()
        assert way.gateway.stop() == 0


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, ways: Callable[[str], Way]) -> Way:
    return ways(request.param)


def pieces(size: int) -> list[bytes]:
    body, step = data(size), -(-size // 3)
    return [body[at : at + step] for at in range(0, size, step)] if size else []


def knows(way: str, algorithm: str | None) -> bool:
    return way != "seaweedfs" or algorithm in [None, *KNOWN_TO_SEAWEEDFS]


def right_cases() -> Iterator[tuple[str, str, str | None]]:
    for way, form, algorithm in itertools.product(WAYS, FORMS, [None, *ALGORITHMS]):
        if knows(way, algorithm) and (algorithm or form not in TRAILERS):
            yield way, form, algorithm


@pytest.mark.parametrize(("way", "form", "algorithm"), list(right_cases()), indirect=["way"])
def test_a_right_upload_is_stored_decoded(way: Way, form: str, algorithm: str | None) -> None:
    for size in SIZES:
        path = f"/{way.bucket}/right-{form}-{algorithm}-{size}"
        answer = send(way.gateway.s3, Upload(form, pieces(size), algorithm).request(way.gateway.s3, path))
        assert answer.status == 200, (size, answer)
        stored = call(way.store, "GET", path)
        assert (stored.status, stored.body) == (200, data(size)), size
        assert stored.get("content-encoding") is None, stored.headers


@pytest.mark.parametrize(("way", "form", "algorithm"), list(right_cases()), indirect=["way"])
def test_a_right_part_is_stored_decoded(way: Way, form: str, algorithm: str | None) -> None:
    path = f"/{way.bucket}/part-{form}-{algorithm}"
    upload_id = way.begin_upload(path, {"x-amz-checksum-algorithm": algorithm.upper()} if algorithm else {})
    upload = Upload(form, pieces(300_000), algorithm)
    part = send(way.gateway.s3, upload.request(way.gateway.s3, f"{path}?partNumber=1&uploadId={upload_id}"))
    assert part.status == 200, part
    name = f"Checksum{algorithm.upper()}" if algorithm else ""
    sums = f"<{name}>{checksum(algorithm, data(300_000))}</{name}>" if algorithm else ""
    listed = f"<Part><PartNumber>1</PartNumber><ETag>{part.get('etag')}</ETag>{sums}</Part>"
    document = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    done = call(way.gateway.s3, "POST", f"{path}?uploadId={upload_id}", {}, document)
    assert done.status == 200 and b"<Error>" not in done.body, done
    assert call(way.store, "GET", path).body == data(300_000)


def without(name: str) -> Callable[[dict[str, str]], None]:
    def change(headers: dict[str, str]) -> None:
        del headers[name]

    return change


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("aws-chunked", None), ("aws-chunked,gzip", "gzip"), ("gzip, aws-chunked", "gzip"), ("gzip", "gzip"), ("", None)],
)
@pytest.mark.parametrize("form", CHUNKED)
def test_trap_aws_chunked_is_no_coding_of_the_object(way: Way, form: str, sent: str, kept: str | None) -> None:
    path = f"/{way.bucket}/coded-{form}-{kept}"
    upload = Upload(form, pieces(33), "crc32" if form in TRAILERS else None, {"Content-Encoding": sent})
    if not sent:
        upload.spoil_head = without("Content-Encoding")
    assert send(way.gateway.s3, upload.request(way.gateway.s3, path)).status == 200
    stored = call(way.store, "GET", path)
    assert (stored.body, stored.get("content-encoding")) == (data(33), kept)


def test_framing_that_is_odd_but_right(way: Way) -> None:
    """Digits in upper case and with zeros before them, chunks of a byte, a trailer's name in another case."""

    def odd_size(chunks: list[Chunk]) -> None:
        for chunk in chunks:
            chunk.size = f"000{chunk.size.upper()}"

    def odd_trailer(lines: list[str]) -> None:
        lines[0] = lines[0].replace("x-amz-checksum-crc32:", "X-Amz-Checksum-CRC32: ")

    odd = [
        Upload("unsigned-trailer", pieces(33), "crc32", spoil_chunks=odd_size, spoil_trailer=odd_trailer),
        Upload("signed-trailer", pieces(33), "crc32", spoil_chunks=odd_size),
        Upload("signed-chunks", [bytes([byte]) for byte in data(33)]),
        Upload("unsigned-trailer", [bytes([byte]) for byte in data(33)], "sha256"),
    ]
    for number, upload in enumerate(odd):
        path = f"/{way.bucket}/odd-{number}"
        answer = send(way.gateway.s3, upload.request(way.gateway.s3, path))
        assert (answer.status, call(way.store, "GET", path).body) == (200, data(33)), (number, answer)


# Wrong uploads: what is done to a right one, its forms, and what the client is told.


@dataclass(frozen=True)
class Wrong:
    forms: list[str]
    spoil: Callable[[Upload], None]
    status: int
    code: str
    says: str = ""


def chunk_at(place: int, change: Callable[[Chunk], None]) -> Callable[[Upload], None]:
    def spoil(upload: Upload) -> None:
        upload.spoil_chunks = lambda chunks: change(chunks[place])

    return spoil


def setting(name: str, value: str) -> Callable[[Chunk], None]:
    return lambda chunk: setattr(chunk, name, value)


def resized(by: int) -> Callable[[Chunk], None]:
    return lambda chunk: setattr(chunk, "size", f"{int(chunk.size, 16) + by:x}")


def flipped(chunk: Chunk) -> None:
    chunk.data = chunk.data[:-1] + bytes([chunk.data[-1] ^ 1])


def head(name: str, value: Callable[[str], str | None]) -> Callable[[Upload], None]:
    def change(headers: dict[str, str]) -> None:
        changed = value(headers.pop(name))
        if changed is not None:
            headers[name] = changed

    def spoil(upload: Upload) -> None:
        upload.spoil_head = change

    return spoil


def always(value: str) -> Callable[[str], str]:
    return lambda _: value


def decoded_length(value: Callable[[str], str | None]) -> Callable[[Upload], None]:
    return head("x-amz-decoded-content-length", value)


def lines(change: Callable[[list[str]], object]) -> Callable[[Upload], None]:
    def changed(lines: list[str]) -> None:
        change(lines)

    def spoil(upload: Upload) -> None:
        upload.spoil_trailer = changed

    return spoil


def trailer(value: str | None = None, **more: str) -> Callable[[Upload], None]:
    """Another trailer than the data has, signed as it is."""

    def spoil(upload: Upload) -> None:
        names = {"x-amz-checksum-crc32": value} if value else {}
        upload.signed_trailer = {**names, **{n.replace("_", "-"): v for n, v in more.items()}} or {"": ""}

    return spoil


def cut(keep: Callable[[bytes], int]) -> Callable[[Upload], None]:
    """The rest is not sent, nor announced: as HTTP the request is whole."""

    def spoil(upload: Upload) -> None:
        upload.spoil_raw = lambda raw: raw[: keep(raw)]

    return spoil


def appended(more: bytes) -> Callable[[Upload], None]:
    def spoil(upload: Upload) -> None:
        upload.spoil_raw = lambda raw: raw + more

    return spoil


OTHER = "AAAAAQ=="
# S3's words for framing that is wrong, however.
TERMINATED = "The request body terminated unexpectedly"
WRONG: dict[str, Wrong] = {}
for where, place in {"first": 0, "middle": 1, "last": 2, "final": 3}.items():
    forged = chunk_at(place, setting("signature", FORGED))
    WRONG[f"forged signature of the {where} chunk"] = Wrong(
        SIGNED_CHUNKS, forged, 403, "SignatureDoesNotMatch", "The request signature we calculated does not match"
    )
    WRONG[f"no signature on the {where} chunk"] = Wrong(
        SIGNED_CHUNKS,
        chunk_at(place, lambda chunk: setattr(chunk, "signature", None)),
        400,
        "IncompleteBody",
        TERMINATED,
    )
    WRONG[f"half a signature on the {where} chunk"] = Wrong(
        SIGNED_CHUNKS, chunk_at(place, setting("signature", "0" * 63)), 400, "IncompleteBody", TERMINATED
    )
    if where != "final":
        altered = chunk_at(place, flipped)
        WRONG[f"signed data altered in the {where} chunk"] = Wrong(SIGNED_CHUNKS, altered, 403, "SignatureDoesNotMatch")
        WRONG[f"data altered in the {where} chunk"] = Wrong(["unsigned-trailer"], altered, 400, "BadDigest", "CRC32")
        WRONG[f"{where} chunk shorter than it says"] = Wrong(
            ["unsigned-trailer"], chunk_at(place, resized(1)), 400, "IncompleteBody"
        )
        WRONG[f"{where} chunk longer than it says"] = Wrong(
            ["unsigned-trailer"], chunk_at(place, resized(-1)), 400, "IncompleteBody"
        )
        WRONG[f"signed {where} chunk longer than it says"] = Wrong(
            SIGNED_CHUNKS, chunk_at(place, resized(-1)), 403, "SignatureDoesNotMatch"
        )
        WRONG[f"no line end behind the data of the {where} chunk"] = Wrong(
            CHUNKED, chunk_at(place, lambda chunk: setattr(chunk, "data_end", b"")), 400, "IncompleteBody"
        )
    if where in ("middle", "last"):
        continue
    for size in ("", "x", "-1", "+1", "0x1", " 1", "1 ", "1" * 17, "f" * 16, "１"):
        WRONG[f"size {size!r} of the {where} chunk"] = Wrong(CHUNKED, chunk_at(place, setting("size", size)), 400, "")
    for extension in (";a=b", ";", ",", ";chunk-signature=" + FORGED):
        WRONG[f"extension {extension[:6]!r} of the {where} chunk"] = Wrong(
            CHUNKED, chunk_at(place, setting("extension", extension)), 400, "IncompleteBody", TERMINATED
        )
    WRONG[f"bare line feed in the {where} chunk"] = Wrong(
        CHUNKED, chunk_at(place, lambda chunk: setattr(chunk, "line_end", b"\n")), 400, "IncompleteBody"
    )
WRONG |= {
    "chunk over the cap": Wrong(
        SIGNED_CHUNKS, chunk_at(0, setting("size", f"{CAP + 1:x}")), 400, "EntityTooLarge", str(CAP)
    ),
    "decoded length too small": Wrong(CHUNKED, decoded_length(lambda n: str(int(n) - 1)), 400, "IncompleteBody"),
    "decoded length much too small": Wrong(CHUNKED, decoded_length(lambda _: "0"), 400, "IncompleteBody"),
    "decoded length too large": Wrong(CHUNKED, decoded_length(lambda n: str(int(n) + 1)), 400, "IncompleteBody"),
    "decoded length absent": Wrong(
        CHUNKED, decoded_length(lambda _: None), 411, "MissingContentLength", "Content-Length"
    ),
    # With the framing around it, the second is 2,001 in 64 bits.
    **{
        f"decoded length huge {value}": Wrong(CHUNKED, decoded_length(always(value)), 400, "EntityTooLarge")
        for value in (str(1 << 62), "18446568153526815022", str((1 << 64) - 1), str(1 << 64))
    },
    **{
        f"decoded length {value!r}": Wrong(
            CHUNKED, decoded_length(always(value)), 411, "MissingContentLength", "Content-Length"
        )
        for value in ("-1", "+33", "33.0", "0x21", "33 33", "")
    },
    "trailer of other data": Wrong(TRAILERS, trailer(OTHER), 400, "BadDigest", "The CRC32 you specified"),
    "trailer that is no checksum": Wrong(TRAILERS, trailer("AAAA"), 400, "InvalidRequest", "x-amz-checksum-crc32"),
    "trailer that is no base64": Wrong(TRAILERS, trailer("????????"), 400, "InvalidRequest", "x-amz-checksum-crc32"),
    "trailer of another name": Wrong(
        ["unsigned-trailer"], trailer(x_amz_checksum_crc32c="AAAAAA=="), 400, "MalformedTrailerError"
    ),
    "trailer that nobody declared": Wrong(
        TRAILERS, lines(lambda lines: lines.insert(1, "x-amz-meta-a:b")), 400, "MalformedTrailerError", "trailing data"
    ),
    "trailer twice": Wrong(
        TRAILERS, lines(lambda lines: lines.insert(0, lines[0])), 400, "MalformedTrailerError", "trailing data"
    ),
    "trailer missing": Wrong(["unsigned-trailer"], lines(lambda lines: lines.pop(0)), 400, "MalformedTrailerError"),
    "signed trailer missing": Wrong(
        ["signed-trailer"], lines(lambda lines: lines.pop(0)), 400, "MalformedTrailerError"
    ),
    "trailer without a colon": Wrong(
        TRAILERS, lines(lambda lines: lines.insert(0, "x-amz-checksum-crc32")), 400, "MalformedTrailerError"
    ),
    "trailer too long": Wrong(TRAILERS, lines(lambda lines: lines.insert(0, "x" * 5000)), 400, "IncompleteBody"),
    "trailer signature forged": Wrong(
        ["signed-trailer"],
        lines(lambda lines: lines.__setitem__(1, f"x-amz-trailer-signature:{FORGED}")),
        403,
        "SignatureDoesNotMatch",
    ),
    "trailer signature missing": Wrong(
        ["signed-trailer"], lines(lambda lines: lines.pop()), 400, "IncompleteBody", TERMINATED
    ),
    "trailer signature twice": Wrong(
        ["signed-trailer"], lines(lambda lines: lines.append(lines[1])), 400, "MalformedTrailerError", "trailing data"
    ),
    "trailer announced that is no checksum": Wrong(
        TRAILERS, head("x-amz-trailer", lambda _: "x-amz-meta-a"), 400, "InvalidRequest", "x-amz-trailer"
    ),
    "two trailers announced": Wrong(
        TRAILERS, head("x-amz-trailer", lambda name: f"{name},x-amz-checksum-sha1"), 400, "InvalidRequest"
    ),
    "bytes behind the end": Wrong(["signed-chunks"], appended(b"x"), 400, "IncompleteBody"),
    "a second body behind the end": Wrong(["signed-chunks"], appended(b"1\r\nx\r\n0\r\n\r\n"), 400, "IncompleteBody"),
    "cut before the first chunk": Wrong(CHUNKED, cut(lambda _: 0), 400, "IncompleteBody"),
    "cut in the first line": Wrong(CHUNKED, cut(lambda _: 1), 400, "IncompleteBody"),
    "cut in the data": Wrong(CHUNKED, cut(lambda raw: len(raw) // 2), 400, "IncompleteBody"),
    "cut before the final chunk": Wrong(CHUNKED, cut(lambda raw: raw.rindex(b"\r\n0")), 400, "IncompleteBody"),
    "cut in the final chunk": Wrong(CHUNKED, cut(lambda raw: raw.rindex(b"\r\n0") + 3), 400, "IncompleteBody"),
    "cut before the trailer": Wrong(TRAILERS, cut(lambda raw: raw.rindex(b"x-amz-checksum")), 400, "IncompleteBody"),
    "cut in the trailer's name": Wrong(
        TRAILERS, cut(lambda raw: raw.rindex(b"x-amz-checksum") + 9), 400, "IncompleteBody"
    ),
    "cut in the trailer's value": Wrong(["unsigned-trailer"], cut(lambda raw: len(raw) - 8), 400, "IncompleteBody"),
    "cut in the trailer's signature": Wrong(["signed-trailer"], cut(lambda raw: len(raw) - 9), 400, "IncompleteBody"),
}
for algorithm in ALGORITHMS:
    width = len(checksum(algorithm, b"" if algorithm.startswith("xxhash") else b"x"))
    another = ("B" + "A" * width)[: width - 2] + checksum(algorithm, b"")[-2:]
    another = another if "=" in another else "B" * width

    def other_value(upload: Upload, algorithm: str = algorithm, value: str = another) -> None:
        upload.algorithm, upload.trailer_value = algorithm, value

    WRONG[f"{algorithm} of other data"] = Wrong(list(FORMS), other_value, 400, "")


def is_of(way: str, name: str) -> bool:
    """Flaws of the framing are found before any store is asked; the other ways have what is found behind it."""
    if way == "embedded" or "trailer" in name:
        return True
    if name.endswith(" of other data"):
        return knows(way, name.split()[0])
    return any(name.startswith(start) for start in ("forged", "data altered", "signed data", "cut", "decoded", "bytes"))


def wrong_cases() -> Iterator[tuple[str, str, str]]:
    for way, (name, wrong) in itertools.product(WAYS, WRONG.items()):
        if is_of(way, name):
            yield from ((way, name, form) for form in wrong.forms)


@pytest.mark.parametrize(("way", "name", "form"), list(wrong_cases()), indirect=["way"])
def test_trap_of_a_wrong_upload_nothing_is_left(way: Way, name: str, form: str) -> None:
    """Neither a new object nor a changed one nor a part; and the client is told what is wrong."""
    gateway, wrong, number = way.gateway.s3, WRONG[name], next(way.part_numbers)
    label = re.sub(r"[^a-z0-9]+", "-", name)
    old = f"/{way.bucket}/old"
    for size in SIZES[1:]:
        fresh = f"/{way.bucket}/wrong-{form}-{label}-{size}"
        part = f"/{way.bucket}/in-parts?partNumber={number}&uploadId={way.upload_id}"
        for path in (fresh, old, part):
            upload = Upload(form, pieces(size), "crc32" if form in TRAILERS else None)
            wrong.spoil(upload)
            answer = send(gateway, upload.request(gateway, path))
            assert answer.status == wrong.status, (size, answer)
            code, message = answer.xml("Code"), answer.xml("Message") or ""
            assert not wrong.code or code == wrong.code, (size, answer)
            assert wrong.says in message, (size, answer)
            if name.endswith("of other data") and (form in TRAILERS or "verified" in way.name):
                assert code == "BadDigest" and upload.algorithm and upload.algorithm.upper() in message, answer
        assert call(way.store, "GET", fresh).status == 404, size
        assert call(way.store, "GET", old).body == b"before", size
    marker = f"part-number-marker={number - 1}&max-parts=1"
    listed = call(gateway, "GET", f"/{way.bucket}/in-parts?uploadId={way.upload_id}&{marker}")
    assert listed.status == 200 and f"<PartNumber>{number}</PartNumber>".encode() not in listed.body, listed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_trap_of_a_connection_that_breaks_off_nothing_is_left(way: Way, form: str, share: float) -> None:
    path = f"/{way.bucket}/broken-{form}-{share}"
    request = Upload(form, pieces(300_000), "crc32" if form in TRAILERS else None).request(way.gateway.s3, path)
    raw = request.raw()
    keep = len(raw) - len(request.body) + int(len(request.body) * share)
    with socket.create_connection(way.gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(raw[:keep])
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            assert read_answer(stream).status == 400
    assert call(way.store, "GET", path).status == 404


@pytest.mark.parametrize("way", [way for way in WAYS if way != "seaweedfs"], indirect=True)
def test_two_checksums_are_refused(way: Way) -> None:
    """By the gateway, or by a store that minds."""
    headers = {f"x-amz-checksum-{name}": checksum(name, data(33)) for name in ("crc32", "sha1")}
    path = f"/{way.bucket}/two-checksums"
    answer = send(way.gateway.s3, Upload("signed", pieces(33), None, headers).request(way.gateway.s3, path))
    assert (answer.status, answer.xml("Code")) == (400, "InvalidRequest"), answer
    assert call(way.store, "GET", path).status == 404


@pytest.mark.parametrize("way", ["embedded", "signed", "signed-verified"], indirect=True)
@pytest.mark.parametrize("form", FORMS)
def test_trap_zero_byte_and_folder_keys_are_ordinary(way: Way, form: str) -> None:
    for number, (key, size) in enumerate([("empty", 0), ("dir/", 0), ("dir/", 33), ("dir/x", 33), ("dir//", 300_000)]):
        path = f"/{way.bucket}/folders-{form}/{key}"
        upload = Upload(form, pieces(size), "crc32" if form in TRAILERS else None)
        assert send(way.gateway.s3, upload.request(way.gateway.s3, path)).status == 200, number
        stored = call(way.store, "GET", path)
        assert (stored.status, stored.body, stored.get("content-length")) == (200, data(size), str(size)), number


@pytest.mark.parametrize("pinned", [False, True])
def test_trap_a_presigned_put_takes_what_was_pinned_and_no_other(way: Way, pinned: bool) -> None:
    body, path = data(300_000), f"/{way.bucket}/presigned-{pinned}"
    sha256 = hashlib.sha256(body).hexdigest()
    headers = {"x-amz-content-sha256": sha256} if pinned else {}
    for sent, fits in ((body[:-1] + b"?", not pinned), (body, True)):
        request = presign(way.gateway.s3, "PUT", path, headers, sent, sha256 if pinned else UNSIGNED_PAYLOAD)
        answer = send(way.gateway.s3, request)
        if fits:
            assert (answer.status, call(way.store, "GET", path).body) == (200, sent), answer
        else:
            assert (answer.status, answer.xml("Code")) == (400, "XAmzContentSHA256Mismatch"), answer
            assert call(way.store, "GET", path).status == 404


# Expect: 100-continue


def refused_heads(way: Way) -> dict[str, tuple[Request, int, str]]:
    """Requests that their heads are enough to refuse, with status and code."""
    gateway = way.gateway
    full, reader = gateway.s3, gateway.as_identity(READ_ONLY)
    path, expect = f"/{way.bucket}/expected", {"Expect": "100-continue"}
    big = 64 << 20

    def announced(request: Request) -> Request:
        return request.set("Content-Length", str(big))

    def no_length(headers: dict[str, str]) -> None:
        headers.pop("x-amz-decoded-content-length")

    def odd_trailer(headers: dict[str, str]) -> None:
        headers["x-amz-trailer"] = "x-amz-meta-a"

    chunks = [data(33)]
    forger = gateway.as_identity(Credentials(READ_ONLY.access_key, "a guess"))
    return {
        "anonymous": (announced(Request("PUT", path, [("Host", "s3"), *expect.items()])), 403, "AccessDenied"),
        "forged": (announced(sign(forger, "PUT", path, expect, b"x")), 403, "SignatureDoesNotMatch"),
        "denied": (announced(sign(reader, "PUT", path, expect, b"x")), 403, "AccessDenied"),
        "no decoded length": (
            announced(Upload("signed-chunks", chunks, None, expect, spoil_head=no_length).request(full, path)),
            411,
            "MissingContentLength",
        ),
        "no such trailer": (
            announced(Upload("unsigned-trailer", chunks, "crc32", expect, spoil_head=odd_trailer).request(full, path)),
            400,
            "InvalidRequest",
        ),
    }


@pytest.mark.parametrize("name", ["anonymous", "forged", "denied", "no decoded length", "no such trailer"])
def test_trap_expect_100_continue_is_refused_without_the_body(way: Way, name: str) -> None:
    request, status, code = refused_heads(way)[name]
    raw = request.raw()[: len(request.raw()) - len(request.body)]
    with socket.create_connection(way.gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(raw)
        answer = read_answer(stream)
    assert answer.status == status and (not code or answer.xml("Code") == code), answer


@pytest.mark.parametrize("form", FORMS)
def test_trap_expect_100_continue_is_said_once_all_else_is_right(way: Way, form: str) -> None:
    path = f"/{way.bucket}/expected-{form}"
    upload = Upload(form, pieces(33), "crc32" if form in TRAILERS else None, {"Expect": "100-continue"})
    request = upload.request(way.gateway.s3, path)
    raw = request.raw()
    with socket.create_connection(way.gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(raw[: len(raw) - len(request.body)])
        assert read_head(stream)[0] == 100
        sock.sendall(request.body)
        assert read_answer(stream).status == 200
    assert call(way.store, "GET", path).body == data(33)


def test_trap_a_large_put_that_is_refused_costs_no_upload(way: Way, tmp_path: Path) -> None:
    """boto3 and curl wait for the 100, and so are told why, with nothing sent."""
    client = boto3_client(way.gateway.as_identity(READ_ONLY))
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket=way.bucket, Key="large", Body=bytes(64 << 20))
    assert refused.value.response["Error"]["Code"] == "AccessDenied"
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    pair = way.gateway.as_identity(READ_ONLY).credentials
    argv = ["curl", "--silent", "--show-error", "--http1.1", "--max-time", "30", "--output", "answer"]
    argv += ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{pair.access_key}:{pair.secret_key}"]
    argv += ["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--header", "Expect: 100-continue"]
    argv += ["--expect100-timeout", "20", "--write-out", "%{http_code} %{size_upload}", "--upload-file", "large"]
    url = f"{way.gateway.s3.endpoint}/{way.bucket}/large"
    done = subprocess.run([*argv, url], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "403 0"), done
    assert call(way.store, "GET", f"/{way.bucket}/large").status == 404
