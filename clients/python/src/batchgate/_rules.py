"""The contract's rules for one entry: what may be asked, and what an answer to it may be.

Invariant: a BatchGet and single GETs take the same entries and the same answers, because both are held to these rules. What
an endpoint with BatchGet refuses with a 400 is refused here with the same error before anything is sent; a lone GET would
take some of it for another question, an empty key for a listing and two ranges for none.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ._errors import ConfigurationError, ProtocolError, RequestError
from ._part import Entry, Key, header_value

KEY_BYTES_MAX = 1024
_BUCKET = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}")
BUCKET_RULE = "1 to 255 of A-Z, a-z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
_RANGE = re.compile(r"bytes=(?:(\d{1,19})-(\d{1,19})?|-(\d{1,19}))", re.A)
_RANGE_RULE = "one of bytes=a-b (a <= b), bytes=a- and bytes=-n (n >= 1), of at most 19 digits and without spaces"
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.A)
_TEXT, _TEXT_RULE = re.compile(r"[ -~]{1,1024}"), "1 to 1,024 visible ASCII characters or spaces"
_ID, _ID_RULE = re.compile(r"[!-~]{1,256}"), "1 to 256 visible ASCII characters"
_MEMBERS = (
    ("range", _RANGE, _RANGE_RULE),
    ("version_id", _TEXT, _TEXT_RULE),
    ("if_match", _TEXT, _TEXT_RULE),
    ("if_none_match", _TEXT, _TEXT_RULE),
    ("id", _ID, _ID_RULE),
)


def name_of(key: Key, bucket: str | None, position: int) -> tuple[str, str]:
    """Bucket and key of what was asked for, all of which keeps the rules. `position` is among all keys, for the error."""
    if isinstance(key, str):
        name = bucket, key
    elif isinstance(key, Entry):
        name = bucket if key.bucket is None else key.bucket, key.key
    elif isinstance(key, tuple) and len(key) == 2:
        name = key
    else:
        raise TypeError(f"a key is a str, a (bucket, key) or an Entry, not {key!r}")
    if name[0] is None:
        raise ConfigurationError(f"no bucket: neither the client nor {key!r} names one")
    if not isinstance(name[0], str) or not isinstance(name[1], str):
        raise TypeError(f"bucket and key are str, not {key!r}")
    if not is_bucket(name[0]):
        _refuse(position, f"bucket {name[0]!r}", BUCKET_RULE)
    try:
        size = len(name[1].encode())
    except UnicodeEncodeError:
        _refuse(position, f"key {name[1]!r}", "text that UTF-8 can hold")
    if not 1 <= size <= KEY_BYTES_MAX:
        _refuse(position, f"a key of {size} bytes", f"1 to {KEY_BYTES_MAX:,} bytes")
    if isinstance(key, Entry):
        _check_members(key, position)
    return name[0], name[1]


def is_bucket(name: str) -> bool:
    """Whether a bucket may have this name."""
    return _BUCKET.fullmatch(name) is not None


def length_due(key: Key, status: int, head: bytes) -> int | None:
    """How long the body of an answer to `key` that is no failure must be; nothing if it may have any length.

    `head` is header lines. A `ProtocolError` if it is no answer to what was asked: 206 is for a range, with the
    `Content-Range` that follows from it, 304 for `if_none_match`, and all else is answered by 200.
    """
    entry = key if isinstance(key, Entry) else None
    if status == 304 and entry is not None and entry.if_none_match is not None:
        return 0
    wanted = None if entry is None else entry.range
    if status != (200 if wanted is None else 206):
        raise ProtocolError(f"status {status} is no answer to {wanted or 'a whole object'}")
    if wanted is None:
        return None
    value = header_value(head, "content-range") or ""
    told = _CONTENT_RANGE.fullmatch(value)
    if told is not None:
        first, last, total = map(int, told.groups())
        if first <= last and (first, last) == _span(wanted, total):
            return last - first + 1
    raise ProtocolError(f"content-range {value!r} is no answer to {wanted}")


def _check_members(entry: Entry, position: int) -> None:
    for name, pattern, rule in _MEMBERS:
        value = getattr(entry, name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} is a str, not {value!r}")
        found = pattern.fullmatch(value)
        if found is None or (pattern is _RANGE and not _is_ordered(found)):
            _refuse(position, f"{name} {value!r}", rule)


def _is_ordered(found: re.Match[str]) -> bool:
    first, last, suffix = found.groups()
    return int(suffix) >= 1 if suffix else last is None or int(first) <= int(last)


def _span(wanted: str, total: int) -> tuple[int, int]:
    """First and last byte of a range on an object of `total` bytes."""
    found = _RANGE.fullmatch(wanted)
    assert found is not None, "checked before it was asked"
    first, last, suffix = found.groups()
    if suffix:
        return max(total - int(suffix), 0), total - 1
    return int(first), total - 1 if last is None else min(int(last), total - 1)


def _refuse(position: int, what: str, rule: str) -> NoReturn:
    raise RequestError(f"keys[{position}]: {what}: it must be {rule}", status=400, code="InvalidArgument")
