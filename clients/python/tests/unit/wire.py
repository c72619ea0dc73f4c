"""Batches as octets, written from the contract, and ways to hand them to a reader piece by piece."""

import json
from collections.abc import Callable, Iterable

from batchgate._reader import read_parts

BOUNDARY = b"0123456789abcdef0123456789abcdef"
REQUEST_ID = "4f0c"


def part(
    which: int | str,
    body: bytes,
    *headers: str,
    status: int = 200,
    length: int | None = None,
    request_id: str = REQUEST_ID,
    boundary: bytes = BOUNDARY,
) -> bytes:
    """One part with its delimiter and the CRLF that ends it."""
    lines = [
        f"content-length: {len(body) if length is None else length}",
        f"content-id: <{which}@{request_id}>",
        f"batch-status: {status}",
        *headers,
    ]
    return raw_part(lines, body, boundary)


def raw_part(lines: Iterable[str], body: bytes, boundary: bytes = BOUNDARY) -> bytes:
    head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
    return b"--%s\r\n%s\r\n%s\r\n" % (boundary, head, body)


def error_part(which: int, status: int, code: str, *headers: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>why &amp; how</Message><Key>k</Key></Error>".encode()
    return part(which, body, "content-type: application/xml", *headers, status=status)


def summary(entries: int, bodies: list[bytes], **members: object) -> bytes:
    told = {
        "Entries": entries, "Delivered": len(bodies), "Failed": 0, "Omitted": 0, "StoppedAt": None,
        "Bytes": sum(map(len, bodies)), "BackendRequests": 1, "BackendBytes": 1, "CacheHits": 0, "ElapsedMs": 1,
        **members,
    }  # fmt: skip
    return part("summary", json.dumps(told).encode(), "content-type: application/json")


CLOSE = b"--%s--\r\n" % BOUNDARY


def pieces(octets: bytes, size: int) -> Callable[[int], bytes]:
    """A `read` that gives `size` octets at a time."""
    at = 0

    def read(bytes_max: int) -> bytes:
        nonlocal at
        start, at = at, min(at + min(size, bytes_max), len(octets))
        return octets[start:at]

    return read


def read_all(
    octets: bytes, count: int, size: int = 4096, on_error: str = "Continue", order: str = "Request"
) -> list[tuple[int, int, bytes, bytes]]:
    return list(read_parts(pieces(octets, size), BOUNDARY, count, on_error, order))
