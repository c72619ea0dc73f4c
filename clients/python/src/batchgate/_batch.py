"""One batch asked for and read, again and again until it is whole.

Invariant: each entry gives exactly one part (none if it failed and failures are to be left out), whatever breaks on the way.
A part that was whole before a break is final; only what was not had whole is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from ._errors import BrokenOff, ProtocolError
from ._part import Part, failed, failed_part
from ._patience import Patience
from ._reader import boundary_of, read_parts
from ._request import Batch, body
from ._rules import length_due
from ._transport import Response, Transport

_HEADERS = {"Content-Type": "application/json", "Accept": "multipart/mixed"}
# What the caller's choice is in the contract's words. With `Stop` the endpoint ends its work where we end ours.
_ON_ERROR = {"raise": "Stop", "return": "Continue", "omit": "Omit"}
_ORDER = {"request": "Request", "completion": "Completion"}


def read_batch(
    transport: Transport, bucket: str | None, batch: Batch, on_error: str, order: str, attempts_max: int
) -> Iterator[Part]:
    """The parts of one batch. Raises the error of the first failed entry if `on_error` is `raise`."""
    path = f"/{quote(bucket, safe='')}?batch-get=" if bucket else "/?batch-get="
    patience = Patience(attempts_max)
    first, keys, names, completion = batch.first, batch.keys, batch.names, order == "completion"
    pending: Sequence[int] = range(len(batch))
    while pending:
        objects = batch.objects if len(pending) == len(batch) else [batch.objects[position] for position in pending]
        try:
            response = transport.send("POST", path, _HEADERS, body(objects, _ON_ERROR[on_error], _ORDER[order]))
        except BrokenOff as error:
            patience.broke_off(error)
            continue
        if response.status != 200:
            patience.refused(response, "BatchGet")
            continue
        had: set[int] = set()
        last = -1
        try:
            for index, status, head, data in _raw_parts(response, len(pending), on_error, order):
                position = pending[index]
                name, key = names[position]
                if status == 200 and type(keys[position]) is str:
                    # By far the most, and answered as asked.
                    part = Part(first + position, name, key, status, data, head)
                elif failed(status):
                    if on_error == "omit":
                        raise ProtocolError(
                            f"s3://{name}/{key}: a part with status {status} where failures are left out"
                        )
                    part = failed_part(first + position, name, key, status, data, head)
                    if on_error == "raise" and part.error is not None:
                        raise part.error
                else:
                    due = length_due(keys[position], status, head)
                    if due not in (None, len(data)):
                        raise ProtocolError(f"s3://{name}/{key}: {len(data)} octets where {due} are due")
                    part = Part(first + position, name, key, status, data, head)
                if completion:
                    had.add(index)
                last = index
                yield part
            return
        except BrokenOff as error:
            # In the order of the request, what comes before the last part was had, or was left out for good.
            whole = had if completion else range(last + 1)
            pending = [position for index, position in enumerate(pending) if index not in whole]
            if whole:
                patience.progressed()
            if pending:
                patience.broke_off(error)
        finally:
            response.close()


def _raw_parts(response: Response, count: int, on_error: str, order: str) -> Iterator[tuple[int, int, bytes, bytes]]:
    boundary = boundary_of(response.header("content-type") or "")
    if response.header("batch-count") != str(count):
        raise ProtocolError(f"{count} entries were asked for, batch-count is {response.header('batch-count')!r}")
    return read_parts(response.read, boundary, count, _ON_ERROR[on_error], _ORDER[order])
