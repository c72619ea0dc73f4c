"""A strict reader of BatchGet's multipart/mixed stream, written from the contract alone, and the calls that ask for one.

The reader never scans for the boundary. Whatever is not exactly as promised is `Broken`: a message that breaks off, a
byte too many, an index twice, a part too few.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from support.store import Target
from support.wire import Answer, Headers, Request, send, send_http2, sign, xml_text

# What a part leaves out of the lone GET's headers, and what it adds.
HEADERS_LEFT_OUT = frozenset(
    "date server connection keep-alive te trailer transfer-encoding upgrade "
    "x-amz-request-id x-amz-id-2 x-batchgate-request-id".split()
)
HEADERS_ADDED = frozenset({"content-id", "batch-status", "batch-id"})
SUMMARY_MEMBERS = frozenset(
    "Entries Delivered Failed Omitted StoppedAt Bytes BackendRequests BackendBytes CacheHits ElapsedMs".split()
)


class Broken(Exception):
    """The stream is not a whole batch."""


@dataclass
class Part:
    """One part; `index` is None for the summary."""

    index: int | None
    status: int
    headers: Headers
    body: bytes

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n == name), None)

    @property
    def code(self) -> str | None:
        """The S3 code of a failed part."""
        return xml_text(self.body, "Code")

    def comparable(self) -> list[tuple[str, str]]:
        """The headers that the lone GET must have too."""
        return sorted((n, v) for n, v in self.headers if n not in HEADERS_ADDED)


@dataclass
class Batch:
    """A whole batch: parts in the order written, the summary apart."""

    answer: Answer
    parts: list[Part]
    summary: dict[str, Any] | None

    def by_index(self) -> dict[int, Part]:
        return {part.index: part for part in self.parts if part.index is not None}


def comparable_headers(answer: Answer) -> list[tuple[str, str]]:
    """A lone GET's headers as a part would have them."""
    named = {token.strip().lower() for token in (answer.get("connection") or "").split(",")}
    prefixes = ("proxy-", "batch-", "seaweed-x-amz-")
    return sorted(
        (name.lower(), value)
        for name, value in answer.headers
        if name.lower() not in HEADERS_LEFT_OUT | named and not name.lower().startswith(prefixes)
    )


def _take(stream: BinaryIO, count: int, what: str) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise Broken(f"{what}: {len(data)} of {count} bytes")
    return data


def _expect(stream: BinaryIO, literal: bytes, what: str) -> None:
    data = _take(stream, len(literal), what)
    if data != literal:
        raise Broken(f"{what}: {data!r} instead of {literal!r}")


def _header_block(stream: BinaryIO) -> Headers:
    headers: Headers = []
    while True:
        line = stream.readline(65536)
        if not line.endswith(b"\r\n"):
            raise Broken(f"part header: {line!r}")
        if line == b"\r\n":
            return headers
        match = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9a-z-]+): (.*)\r\n", line, re.S)
        if match is None:
            raise Broken(f"part header: {line!r}")
        headers.append((match[1].decode("latin-1"), match[2].decode("latin-1")))


def _one(headers: Headers, name: str) -> str:
    values = [v for n, v in headers if n == name]
    if len(values) != 1:
        raise Broken(f"{name}: {values!r}")
    return values[0]


def read_parts(stream: BinaryIO, boundary: str, request_id: str) -> Iterator[Part]:
    """Parts until the closing delimiter, after which nothing may follow."""
    delimiter = b"--" + boundary.encode()
    _expect(stream, delimiter, "first delimiter")
    while True:
        ending = _take(stream, 2, "end of delimiter")
        if ending == b"--":
            _expect(stream, b"\r\n", "end of the closing delimiter")
            if stream.read(1):
                raise Broken("bytes after the closing delimiter")
            return
        if ending != b"\r\n":
            raise Broken(f"end of delimiter: {ending!r}")
        headers = _header_block(stream)
        length, status, content_id = (_one(headers, n) for n in ("content-length", "batch-status", "content-id"))
        if not (re.fullmatch(r"\d+", length) and re.fullmatch(r"[1-5]\d\d", status)):
            raise Broken(f"content-length {length!r}, batch-status {status!r}")
        which = re.fullmatch(r"<(0|[1-9]\d*|summary)@(.+)>", content_id)
        if which is None or which[2] != request_id:
            raise Broken(f"content-id {content_id!r}, request id {request_id!r}")
        body = _take(stream, int(length), "body of a part")
        _expect(stream, b"\r\n" + delimiter, "delimiter after a body")
        yield Part(None if which[1] == "summary" else int(which[1]), int(status), headers, body)


def read_batch(answer: Answer) -> Batch:
    """The whole batch, or `Broken`."""
    assert answer.status == 200, (answer.status, answer.body[:2000])
    if answer.broken:
        raise Broken(f"the message broke off: {answer.broken}")
    kind = re.fullmatch(r"multipart/mixed; ?boundary=([0-9a-f]{32})", answer.get("content-type") or "")
    assert kind, answer.get("content-type")
    request_id = answer.get("x-amz-request-id")
    count = answer.get("batch-count")
    assert request_id and count, answer.headers
    parts = list(read_parts(io.BytesIO(answer.body), kind[1], request_id))
    summary = None
    if parts and parts[-1].index is None:
        last = parts.pop()
        assert (last.status, last.get("content-type")) == (200, "application/json"), last
        summary = json.loads(last.body)
    indexes = [part.index for part in parts]
    if None in indexes or len(set(indexes)) != len(indexes):
        raise Broken(f"an index twice, or a summary in the middle: {indexes}")
    if any(index >= int(count) for index in indexes if index is not None):
        raise Broken(f"an index beyond Batch-Count {count}")
    expected = int(count) if summary is None else summary["Delivered"]
    if len(parts) != expected:
        raise Broken(f"{len(parts)} parts, {expected} promised")
    if summary is not None:
        _check_summary(summary, parts, int(count))
    return Batch(answer, parts, summary)


def _check_summary(summary: dict[str, Any], parts: list[Part], count: int) -> None:
    assert SUMMARY_MEMBERS <= summary.keys(), summary
    assert summary["Entries"] == count, summary
    assert summary["Bytes"] == sum(len(part.body) for part in parts), summary
    assert summary["Failed"] >= sum(part.status >= 400 for part in parts), summary
    assert summary["StoppedAt"] is None or set(summary["Error"]) == {"Status", "Code"}, summary


Entry = dict[str, Any]


def document(entries: Sequence[Entry | str], **options: Any) -> bytes:
    """The request's body; a bare string is a key."""
    objects = [{"Key": entry} if isinstance(entry, str) else entry for entry in entries]
    return json.dumps({"Objects": objects, **options}).encode()


def batch_request(
    target: Target,
    bucket: str | None,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    host: str | None = None,
) -> Request:
    """A signed BatchGet; without a bucket, `POST /?batch-get`."""
    path = f"/{bucket}?batch-get" if bucket else "/?batch-get"
    return sign(target, "POST", path, {"Content-Type": "application/json", **(headers or {})}, body, host=host)


def batch_get(
    target: Target, bucket: str | None, entries: Sequence[Entry | str], http2_folder: Path | None = None, **options: Any
) -> Batch:
    """Asks and reads strictly; over HTTP/2 if given a folder for curl's files."""
    request = batch_request(target, bucket, document(entries, **options))
    return read_batch(send_http2(target, request, http2_folder) if http2_folder else send(target, request))
