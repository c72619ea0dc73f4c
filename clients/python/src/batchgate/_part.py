"""What is asked for and what comes back: `Entry` and `Part`.

A part keeps its header lines as octets and looks into them only when asked. Invariant: `data` is exactly the octets of
the object (or of the range asked), and `error` is set if and only if the entry failed.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TypeAlias

from ._errors import EntryError, EntryNotFoundError, EntryPermissionError


@dataclass(frozen=True)
class Entry:
    """One object to read, when a key alone does not say it.

    `key` has 1 to 1,024 bytes of UTF-8. `range` is one range: `bytes=a-b`, `bytes=a-` or `bytes=-n`. `version_id`,
    `if_match` and `if_none_match` are as on GetObject, 1 to 1,024 visible ASCII characters or spaces. `id` is a tag of the
    caller's, 1 to 256 visible ASCII characters, that comes back as `Part.id`.
    """

    key: str
    bucket: str | None = None
    range: str | None = None
    version_id: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    id: str | None = None


Key: TypeAlias = str | tuple[str, str] | Entry
"""A key, a pair of bucket and key, or an `Entry`."""


class Part:
    """One answer to one entry.

    `index` is the entry's position in the keys that were asked for, from 0. `status` is what a GET of this object would
    have answered: 200, 206 for a range, 304 (without data) when `if_none_match` holds. `data` is empty when `error` is set.
    """

    __slots__ = ("_head", "bucket", "data", "error", "index", "key", "status")

    def __init__(
        self,
        index: int,
        bucket: str,
        key: str,
        status: int,
        data: bytes,
        head: bytes = b"",
        error: EntryError | None = None,
    ) -> None:
        self.index = index
        self.bucket = bucket
        self.key = key
        self.status = status
        self.data = data
        self._head = head
        self.error = error

    def header(self, name: str) -> str | None:
        """The value of a header, by its name in any case; the first if there are several."""
        return header_value(self._head, name.lower())

    @property
    def headers(self) -> dict[str, str]:
        """All headers that a GET would have given, names in lower case; several of one name are joined by a comma."""
        found: dict[str, str] = {}
        for line in self._head.decode("latin-1").split("\r\n")[:-1]:
            name, _, value = line.partition(": ")
            name = name.lower()
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found

    @property
    def etag(self) -> str | None:
        """The ETag with its quotes, as S3 gives it."""
        return header_value(self._head, "etag")

    @property
    def content_type(self) -> str | None:
        """The object's media type."""
        return header_value(self._head, "content-type")

    @property
    def last_modified(self) -> str | None:
        """When the object was written, as an HTTP date."""
        return header_value(self._head, "last-modified")

    @property
    def id(self) -> str | None:
        """The `Entry.id` of this entry."""
        return header_value(self._head, "batch-id")

    def __repr__(self) -> str:
        failed = f", error={self.error!r}" if self.error is not None else ""
        name = f"{self.bucket}/{self.key}"
        return f"<Part {self.index} {name!r} status={self.status} {len(self.data)} bytes{failed}>"


def header_value(head: bytes, name: str) -> str | None:
    """The first value of a header among lines of `name: value` CRLF."""
    at = head.find(b"%s: " % name.encode("latin-1"))
    if at == 0 or head[at - 2 : at] == b"\r\n":
        return head[at + len(name) + 2 : head.index(b"\r\n", at)].decode("latin-1")
    # Absent, in another case, or seen first inside of a value.
    for line in head.decode("latin-1").split("\r\n")[:-1]:
        found, _, value = line.partition(": ")
        if found.lower() == name:
            return value
    return None


def failed(status: int) -> bool:
    """Whether a status is a failure of the entry."""
    return status >= 400


# What follows from a status when the error document names no code.
_CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    412: "PreconditionFailed",
    416: "InvalidRange",
    503: "ServiceUnavailable",
}


def failed_part(index: int, bucket: str, key: str, status: int, document: bytes, head: bytes) -> Part:
    """A part whose body was S3's error document."""
    code = xml_text(document, "Code") or _CODES.get(status, "")
    said = xml_text(document, "Message")
    kind = {403: EntryPermissionError, 404: EntryNotFoundError}.get(status, EntryError)
    message = f"s3://{bucket}/{key}: {status} {code}{': ' + said if said else ''}"
    error = kind(message, status=status, code=code, key=key, bucket=bucket, index=index)
    return Part(index, bucket, key, status, b"", head, error)


def xml_text(document: bytes, element: str) -> str:
    """The text of an element of S3's error document, which is flat; empty if it is not there."""
    name = element.encode()
    found = re.search(b"<%s>([^<]*)</%s>" % (name, name), document)
    return html.unescape(found[1].decode(errors="replace")) if found else ""
