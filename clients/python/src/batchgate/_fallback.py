"""The same parts by single GETs, for endpoints that have no BatchGet.

Invariant: at most `in_flight_max` objects are being read or wait for their turn; that is the memory it takes. An answer is
given only if it is one to what was asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from threading import Event
from urllib.parse import quote

from ._errors import BrokenOff, ProtocolError
from ._part import Entry, Key, Part, failed, failed_part
from ._patience import RETRYABLE, Patience
from ._reader import READ_BYTES_MAX
from ._rules import length_due, name_of
from ._transport import Response, Transport
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
                get = _Get.of(*following, bucket)
                in_flight.append(workers.submit(partial(get.part, transport, attempts_max, workers.closed)))
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


@dataclass(frozen=True)
class _Get:
    """One object to get. `tag` is the caller's, as a header line."""

    index: int
    asked: Key
    bucket: str
    key: str
    path: str
    headers: dict[str, str]
    tag: bytes

    @classmethod
    def of(cls, index: int, asked: Key, default_bucket: str | None) -> _Get:
        """A `RequestError` if it breaks the contract's rules."""
        bucket, key = name_of(asked, default_bucket, index)
        path = f"/{quote(bucket, safe='')}/{quote(key, safe='/-_.~')}"
        if not isinstance(asked, Entry):
            return cls(index, asked, bucket, key, path, {}, b"")
        if asked.version_id is not None:
            path += f"?versionId={quote(asked.version_id, safe='-_.~')}"
        given = {"Range": asked.range, "If-Match": asked.if_match, "If-None-Match": asked.if_none_match}
        headers = {header: value for header, value in given.items() if value is not None}
        tag = b"" if asked.id is None else b"batch-id: %s\r\n" % asked.id.encode()
        return cls(index, asked, bucket, key, path, headers, tag)

    def part(self, transport: Transport, attempts_max: int, cancelled: Event) -> Part:
        """Its part, however often it must be asked for."""
        patience = Patience(attempts_max, cancelled)
        while not cancelled.is_set():
            try:
                response = transport.send("GET", self.path, self.headers)
                if response.status in RETRYABLE and patience.may_go_on():
                    patience.refused(response, "GET")
                    continue
                try:
                    return self._part(response, cancelled)
                finally:
                    response.close()
            except BrokenOff as error:
                patience.broke_off(error)
        raise _Cancelled

    def _part(self, response: Response, cancelled: Event) -> Part:
        status = response.status
        lines = [f"{name.lower()}: {value}\r\n" for name, value in response.headers() if name.lower() not in _LEFT_OUT]
        head = self.tag + "".join(lines).encode("latin-1", "replace")
        if failed(status):
            return failed_part(self.index, self.bucket, self.key, status, response.read_document(), head)
        if 300 <= status != 304:
            # Such as to the region where the bucket is; S3 says so in an error document.
            raise ProtocolError(str(response.error(f"GET of s3://{self.bucket}/{self.key}")))
        due = length_due(self.asked, status, head)
        data = b"" if status == 304 else _body(response, cancelled)
        if due not in (None, len(data)):
            raise ProtocolError(f"s3://{self.bucket}/{self.key}: {len(data)} octets where {due} are due")
        return Part(self.index, self.bucket, self.key, status, data, head)


class _Cancelled(Exception):
    """Nobody waits for the part any more, so nobody sees this."""


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
