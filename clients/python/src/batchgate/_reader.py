"""The strict reader: octets of a `multipart/mixed` batch in, its parts out.

It never scans for the boundary. It reads a header block, exactly `content-length` octets, CRLF and the next delimiter, and
in the end the closing delimiter and the end of the message. Invariant: a part is yielded only when it is whole, and the
iteration ends without an error only if the batch is whole: no index twice, none out of range or out of order, as many
parts as were promised.

It holds one part and what one call of `read` gave. `read(n)` gives 1 to n octets as they arrive, or none at the end.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

from ._errors import BrokenOff, ProtocolError

# What is asked of `read` at once.
READ_BYTES_MAX = 1 << 18
# Above the gateway's own bound for the head of a store's answer, 32 KiB.
HEAD_BYTES_MAX = 1 << 16
SUMMARY_BYTES_MAX = 1 << 16
# From here on a body that is not there yet is gathered in place instead of in pieces.
GATHER_BYTES_MIN = 1 << 20

RawPart = tuple[int, int, bytes, bytes]
"""Index, status, the other header lines, body."""

_LENGTH, _ID, _STATUS = rb"(0|[1-9]\d{0,18})", rb"<(0|[1-9]\d{0,9}|summary)@([^\r\n<>]+)>", rb"([2-5]\d\d)"
_NAME = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# The layout that the gateway writes; the three names may not come again among the other lines.
_HEAD = re.compile(
    rb"content-length: %s\r\ncontent-id: %s\r\nbatch-status: %s\r\n"
    rb"((?:(?!content-length:|content-id:|batch-status:)[a-z0-9!#$%%&'*+.^_`|~-]+: [^\r\n]*\r\n)*)\r\n"
    % (_LENGTH, _ID, _STATUS)
)
_LINE = re.compile(rb"(%s): ([^\r\n]*)" % _NAME)
_BOUNDARY = re.compile(r"multipart/mixed; ?boundary=([0-9a-f]{32})", re.I)


def boundary_of(content_type: str) -> bytes:
    """The boundary that a `Content-Type` names."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise ProtocolError(f"not a batch: content-type {content_type!r}")
    return found[1].encode()


def read_parts(
    read: Callable[[int], bytes], boundary: bytes, count: int, on_error: str = "Continue", order: str = "Request"
) -> Iterator[RawPart]:
    """The parts of an answer to `count` entries, asked with these options of the contract.

    Raises `BrokenOff` when the octets end too early and `ProtocolError` when they are not as promised.
    """
    opening, closing = b"\r\n--%s\r\n" % boundary, b"\r\n--%s--\r\n" % boundary
    lead = len(opening)
    # The first delimiter has no CRLF before it; with one it is like all others.
    data, at = b"\r\n", 0
    cardinality = _Cardinality(count, on_error, order)
    request_id: bytes | None = None
    ordered, gapless = order == "Request", on_error != "Omit"
    expected = parts = octets = 0
    index = -1
    while True:
        while True:
            if data.startswith(opening, at):
                head = _HEAD.match(data, at + lead)
                if head is not None:
                    length_text, which, answered, status_text, lines = head.groups()
                    start = head.end()
                    break
                end = data.find(b"\r\n\r\n", at + lead - 2)
                if end >= 0:
                    length_text, which, answered, status_text, lines = _slow_head(data[at + lead : end + 2])
                    start = end + 4
                    break
                if len(data) - at > HEAD_BYTES_MAX:
                    _refuse(f"a part's head has more than {HEAD_BYTES_MAX} octets")
            elif len(data) - at >= lead + 2:
                if not data.startswith(closing, at):
                    _refuse(f"no delimiter: {data[at : at + lead + 2]!r}")
                if len(data) > at + len(closing) or read(1):
                    _refuse("octets after the closing delimiter")
                cardinality.closed(parts)
                return
            more = read(READ_BYTES_MAX)
            if not more:
                raise BrokenOff("the answer ended before its closing delimiter")
            data, at = data[at:] + more, 0
        length = int(length_text)
        at = start + length
        if at <= len(data):
            body = data[start:at]
        else:
            body, data, at = _gather(read, data[start:], length, which == b"summary")
        if answered != request_id:
            if request_id is not None:
                _refuse(f"parts of two answers: {answered!r} and {request_id!r}")
            request_id = answered
        if which == b"summary":
            cardinality.summary(status_text, body, parts, octets, index)
            continue
        index = int(which)
        if ordered and index == expected < count:
            expected += 1
        elif ordered and (gapless or index < expected or index >= count):
            _refuse(f"index {index} of {count} where {expected} should be")
        else:
            cardinality.unordered(index)
            expected = index + 1
        if cardinality.has_summary:
            _refuse("a part after the summary")
        parts += 1
        octets += length
        yield index, int(status_text), lines, body


class _Cardinality:
    """What a short, a long or a mixed-up batch cannot hide from."""

    def __init__(self, count: int, on_error: str, order: str) -> None:
        self._count = count
        self._on_error = on_error
        self._seen = bytearray(count) if order == "Completion" else None
        self.has_summary = False

    def unordered(self, index: int) -> None:
        """An index that need not be the next one must be new."""
        if self._seen is not None:
            if index >= self._count or self._seen[index]:
                _refuse(f"index {index} of {self._count} comes twice or is out of range")
            self._seen[index] = 1

    def summary(self, status: bytes, body: bytes, parts: int, octets: int, last: int) -> None:
        """What the summary says of the parts before it must be so."""
        if self.has_summary or status != b"200":
            _refuse(f"a second summary, or one with status {status!r}")
        self.has_summary = True
        try:
            told = json.loads(body)
            entries, delivered, length = told["Entries"], told["Delivered"], told["Bytes"]
            omitted, stopped_at = told["Omitted"], told["StoppedAt"]
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"the summary cannot be read: {error!r}") from error
        if (entries, delivered, length) != (self._count, parts, octets):
            _refuse(f"the summary disagrees with {parts} parts of {octets} octets for {self._count} entries: {told}")
        if stopped_at is not None and (self._on_error != "Stop" or stopped_at != last):
            _refuse(f"stopped at {stopped_at}, but the last part is {last}")
        if stopped_at is None and delivered + omitted != entries:
            _refuse(f"entries are missing: {told}")
        if omitted and self._on_error != "Omit":
            _refuse(f"entries were omitted unasked: {told}")

    def closed(self, parts: int) -> None:
        """Without a summary there is a part for each entry; only `Continue` may go without one."""
        if not self.has_summary and (parts != self._count or self._on_error != "Continue"):
            _refuse(f"{parts} parts for {self._count} entries, and no summary")


def _gather(read: Callable[[int], bytes], have: bytes, length: int, is_summary: bool) -> tuple[bytes, bytes, int]:
    """The body that begins with `have`, and what was read after it: octets and the offset into them."""
    if is_summary and length > SUMMARY_BYTES_MAX:
        _refuse(f"a summary of {length} octets")
    missing = length - len(have)
    # Grows with what arrives, not with what was announced; its value is not copied again.
    gathered = io.BytesIO() if length >= GATHER_BYTES_MIN else None
    pieces = [have]
    while True:
        more = read(READ_BYTES_MAX)
        if not more:
            raise BrokenOff(f"a body ended {missing} octets too early")
        if gathered is not None:
            gathered.write(pieces.pop())
        if len(more) >= missing:
            break
        pieces.append(more)
        missing -= len(more)
    if gathered is not None:
        gathered.write(memoryview(more)[:missing])
        return gathered.getvalue(), more, missing
    pieces.append(more[:missing])
    return b"".join(pieces), more, missing


def _slow_head(block: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """A head in any order and case, one line after the other."""
    wanted: dict[bytes, bytes] = {}
    others = []
    for line in block.split(b"\r\n")[:-1]:
        found = _LINE.fullmatch(line)
        if found is None:
            _refuse(f"a part's header: {line!r}")
        name = found[1].lower()
        if name not in (b"content-length", b"content-id", b"batch-status"):
            others.append(line + b"\r\n")
        elif name in wanted:
            _refuse(f"{name.decode()} twice")
        else:
            wanted[name] = found[2]
    length = re.fullmatch(_LENGTH, wanted.get(b"content-length", b""))
    which = re.fullmatch(_ID, wanted.get(b"content-id", b""))
    status = re.fullmatch(_STATUS, wanted.get(b"batch-status", b""))
    if length is None or which is None or status is None:
        _refuse(f"a part without a good content-length, content-id and batch-status: {wanted}")
    return length[1], which[1], which[2], status[1], b"".join(others)


def _refuse(why: str) -> NoReturn:
    raise ProtocolError(f"the answer breaks the contract: {why}")
