"""The same parts by single GETs, for endpoints that have no BatchGet.

Invariant: at most `in_flight_max` objects are being read or wait for their turn; that is the memory it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from threading import Event
from urllib.parse import quote

from ._errors import BrokenOff
from ._part import Entry, Part, failed, failed_part
from ._patience import RETRYABLE, Patience
from ._reader import READ_BYTES_MAX
from ._request import Key, name_of
from ._transport import DOCUMENT_BYTES_MAX, Response, Transport
from ._workers import Workers

# Headers of a lone GET that a part of a batch does not have.
_LEFT_OUT = frozenset(
    "connection content-id content-length date keep-alive server te trailer transfer-encoding upgrade "
    "x-amz-id-2 x-amz-request-id x-batchgate-request-id".split()
)


def get_many(
    transport: Transport,
    bucket: str | None,
    keys: Iterable[Key],
    on_error: str,
    order: str,
    attempts_max: int,
    in_flight_max: int,
) -> Iterator[Part]:
    """One GET for each key, several at a time."""
    workers: Workers[Part] = Workers(in_flight_max)
    in_flight: deque[Future[Part]] = deque()
    numbered = enumerate(keys)
    try:
        while True:
            while len(in_flight) < in_flight_max and (following := next(numbered, None)) is not None:
                index, key = following
                get = partial(_get, transport, bucket, key, index, attempts_max, workers.closed)
                in_flight.append(workers.submit(get))
            if not in_flight:
                return
            part = _take(in_flight, order).result()
            if part.error is None or on_error == "return":
                yield part
            elif on_error == "raise":
                raise part.error
    finally:
        workers.close()


def _take(in_flight: deque[Future[Part]], order: str) -> Future[Part]:
    if order == "request":
        return in_flight.popleft()
    done, _ = wait(in_flight, return_when=FIRST_COMPLETED)
    future = next(future for future in in_flight if future in done)
    in_flight.remove(future)
    return future


class _Cancelled(Exception):
    """Nobody waits for the part any more, so nobody sees this."""


def _get(transport: Transport, bucket: str | None, key: Key, index: int, attempts_max: int, cancelled: Event) -> Part:
    name, path, headers, tag = _request(key, bucket)
    patience = Patience(attempts_max, cancelled)
    while not cancelled.is_set():
        try:
            response = transport.send("GET", path, headers)
            if response.status in RETRYABLE and patience.may_go_on():
                patience.refused(response, "GET")
                continue
            try:
                return _part(response, index, *name, tag, cancelled)
            finally:
                response.close()
        except BrokenOff as error:
            patience.broke_off(error)
    raise _Cancelled


def _request(key: Key, bucket: str | None) -> tuple[tuple[str, str], str, dict[str, str], bytes]:
    """Name, path with query, headers, and the tag as a header line."""
    name = name_of(key, bucket)
    path = f"/{quote(name[0], safe='')}/{quote(name[1], safe='/-_.~')}"
    if not isinstance(key, Entry):
        return name, path, {}, b""
    if key.version_id is not None:
        path += f"?versionId={quote(key.version_id, safe='-_.~')}"
    asked = {"Range": key.range, "If-Match": key.if_match, "If-None-Match": key.if_none_match}
    headers = {header: value for header, value in asked.items() if value is not None}
    return name, path, headers, b"" if key.id is None else b"batch-id: %s\r\n" % key.id.encode("latin-1")


def _part(response: Response, index: int, bucket: str, key: str, tag: bytes, cancelled: Event) -> Part:
    lines = [f"{name.lower()}: {value}\r\n" for name, value in response.headers() if name.lower() not in _LEFT_OUT]
    head = tag + "".join(lines).encode("latin-1", "replace")
    if failed(response.status):
        return failed_part(index, bucket, key, response.status, response.read_document(), head)
    if response.status == 304:
        return Part(index, bucket, key, 304, response.read(DOCUMENT_BYTES_MAX), head)
    return Part(index, bucket, key, response.status, _body(response, cancelled), head)


def _body(response: Response, cancelled: Event) -> bytes:
    pieces = []
    while piece := response.read(READ_BYTES_MAX):
        if cancelled.is_set():
            raise _Cancelled
        pieces.append(piece)
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    length = response.header("content-length")
    # Chunks have an end of their own; what has neither could have been cut.
    if length != str(len(data)) if length is not None else response.header("transfer-encoding") is None:
        raise BrokenOff(f"a body of {len(data)} octets where {length or 'an unknown length'} was announced")
    return data
