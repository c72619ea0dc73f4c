"""Keys in, requests out: entries as the contract's JSON, cut into batches that the endpoint takes.

Keys are taken from their iterable only as batches need them. Invariant: a batch has at most `entries_max` entries, and its
body at most `body_bytes_max` octets unless a single entry has more (which the endpoint then refuses).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted

from ._part import Entry, Key
from ._rules import KEY_BYTES_MAX, is_bucket, name_of

# Octets of a request's body around its entries, options included, with room to spare.
ENVELOPE_BYTES = 128
_MEMBERS = (
    ("Range", "range"),
    ("VersionId", "version_id"),
    ("IfMatch", "if_match"),
    ("IfNoneMatch", "if_none_match"),
    ("Id", "id"),
)


@dataclass
class Batch:
    """Entries of one request. `first` is the position of the first among all keys; the lists run in parallel."""

    first: int
    keys: list[Key] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)
    objects: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys)


def batches(
    keys: Iterable[Key], bucket: str | None, entries_max: int, body_bytes_max: int, first: int = 0
) -> Iterator[Batch]:
    """All keys, in order, as batches. An entry that breaks the contract's rules is a `RequestError`."""
    usual = bucket if bucket is not None and is_bucket(bucket) else None
    batch = Batch(first)
    size = ENVELOPE_BYTES
    for key in keys:
        if type(key) is str and usual is not None and key.isascii() and 0 < len(key) <= KEY_BYTES_MAX:
            # By far the most keys; it costs a third of what is said more generally below.
            name, encoded = (usual, key), b'{"Key":%s}' % quoted(key).encode()
        else:
            name = name_of(key, bucket, batch.first + len(batch))
            encoded = _encoded(key, name, bucket)
        size += len(encoded) + 1
        if size > body_bytes_max and batch.keys:
            yield batch
            batch = Batch(batch.first + len(batch))
            size = ENVELOPE_BYTES + len(encoded) + 1
        batch.keys.append(key)
        batch.names.append(name)
        batch.objects.append(encoded)
        if len(batch.keys) == entries_max:
            # Not one key more is taken before this batch has been read.
            yield batch
            batch = Batch(batch.first + len(batch))
            size = ENVELOPE_BYTES
    if batch.keys:
        yield batch


def body(objects: Sequence[bytes], on_error: str, order: str) -> bytes:
    """The request's body."""
    return b'{"Objects":[%s],"OnError":"%s","Order":"%s"}' % (b",".join(objects), on_error.encode(), order.encode())


def _encoded(key: Key, name: tuple[str, str], bucket: str | None) -> bytes:
    members = {"Key": name[1]}
    if name[0] != bucket:
        members["Bucket"] = name[0]
    if isinstance(key, Entry):
        members.update({member: value for member, name in _MEMBERS if (value := getattr(key, name)) is not None})
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
