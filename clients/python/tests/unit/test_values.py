"""Requests, parts and errors as values."""

import errno
import json
import multiprocessing
import pickle
from collections.abc import Iterator

import pytest

import batchgate
from batchgate._part import Part, failed, failed_part
from batchgate._request import Batch, batches, body


def objects(batch: Batch) -> list[dict[str, str]]:
    document: dict[str, list[dict[str, str]]] = json.loads(body(batch.objects, "Continue", "Request"))
    return document["Objects"]


def test_entries_are_written_as_the_contract_names_them() -> None:
    keys: list[batchgate.Key] = [
        'a"b\\c\n\x01ü\U0001f600/ü',
        ("other", "k"),
        ("main", "k"),
        batchgate.Entry("k", range="bytes=0-1", version_id="v", if_match='"e"', if_none_match='"f"', id="i"),
        batchgate.Entry("k", bucket="other"),
    ]
    (batch,) = batches(keys, "main", 10, 1 << 20)
    assert objects(batch) == [
        {"Key": 'a"b\\c\n\x01ü\U0001f600/ü'},
        {"Key": "k", "Bucket": "other"},
        {"Key": "k"},
        {"Key": "k", "Range": "bytes=0-1", "VersionId": "v", "IfMatch": '"e"', "IfNoneMatch": '"f"', "Id": "i"},
        {"Key": "k", "Bucket": "other"},
    ]
    assert batch.names == [("main", keys[0]), ("other", "k"), ("main", "k"), ("main", "k"), ("other", "k")]
    assert json.loads(body(batch.objects, "Stop", "Completion")).keys() == {"Objects", "OnError", "Order"}


def test_without_a_bucket_each_entry_names_its_own() -> None:
    (batch,) = batches([("b", "k"), batchgate.Entry("k", bucket="c")], None, 10, 1 << 20)
    assert objects(batch) == [{"Key": "k", "Bucket": "b"}, {"Key": "k", "Bucket": "c"}]
    with pytest.raises(batchgate.ConfigurationError, match="no bucket"):
        list(batches(["k"], None, 10, 1 << 20))


@pytest.mark.parametrize("wrong", [7, None, b"k", ("a", "b", "c")])
def test_what_is_not_a_key_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError):
        list(batches([wrong], "b", 10, 1 << 20))  # type: ignore[list-item]


def test_batches_keep_to_both_limits() -> None:
    keys = [f"{i:03}" + "ü" * (i % 50) for i in range(500)]
    for entries_max, bytes_max in ((7, 1 << 20), (1000, 700), (7, 700), (500, 1 << 20), (1, 1)):
        found = list(batches(keys, "b", entries_max, bytes_max))
        assert [key for batch in found for key in batch.keys] == keys
        assert [batch.first for batch in found] == [sum(map(len, found[:i])) for i in range(len(found))]
        for batch in found:
            assert len(batch) <= entries_max
            assert len(batch) == 1 or len(body(batch.objects, "Continue", "Completion")) <= bytes_max


def test_keys_are_taken_only_as_batches_need_them() -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"k{taken}"

    made = batches(endless(), "b", 10, 1 << 20)
    next(made)
    assert taken == 10
    next(made)
    assert taken == 20


HEAD = b'etag: "e"\r\ncontent-type: a; etag: no\r\nx-amz-meta-a: 1\r\nX-Amz-Meta-A: 2\r\nbatch-id: i\r\n'


def test_part_headers_are_looked_up_on_demand() -> None:
    part = Part(3, "b", "k", 200, b"data", HEAD)
    assert (part.etag, part.content_type, part.id, part.last_modified) == ('"e"', "a; etag: no", "i", None)
    assert part.headers["x-amz-meta-a"] == "1, 2"
    assert Part(0, "b", "k", 200, b"", b"content-type: etag: no\r\n").etag is None
    assert Part(0, "b", "k", 200, b"", b"x: etag: no\r\nETag: yes\r\n").etag == "yes"
    assert Part(0, "b", "k", 200, b"", b"x-etag: no\r\n").header("ETag") is None
    copy = pickle.loads(pickle.dumps(part))
    assert (copy.index, copy.data, copy.headers) == (part.index, part.data, part.headers)


def test_304_is_an_answer() -> None:
    assert [status for status in (200, 206, 301, 304, 403, 404, 412, 416, 500) if failed(status)] == [
        403, 404, 412, 416, 500,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (404, "NoSuchKey", FileNotFoundError),
        (403, "AccessDenied", PermissionError),
        (412, "PreconditionFailed", Exception),
    ],
)
@pytest.mark.parametrize("document", [b"<Error><Code>%s</Code><Message>a &lt; b</Message></Error>", b"", b"<html>"])
def test_entry_errors_are_what_they_are(status: int, code: str, kind: type[Exception], document: bytes) -> None:
    part = failed_part(5, "b", "a/k", status, document % code.encode() if b"%s" in document else document, b"")
    error = part.error
    assert isinstance(error, batchgate.EntryError) and isinstance(error, kind)
    assert (error.status, error.code, error.bucket, error.key, error.index) == (status, code, "b", "a/k", 5)
    assert "s3://b/a/k" in str(error) and code in str(error) and part.data == b""
    assert isinstance(error, OSError) == (status in (403, 404))
    assert not isinstance(error, OSError) or error.filename == "s3://b/a/k"
    copy = pickle.loads(pickle.dumps(part)).error
    assert type(copy) is type(error) and (str(copy), copy.__dict__) == (str(error), error.__dict__)


def test_every_error_can_be_made_from_a_message_and_pickled() -> None:
    kinds = [kind for name in batchgate.__all__ if isinstance(kind := getattr(batchgate, name), type)]
    errors = [kind for kind in kinds if issubclass(kind, batchgate.BatchGateError)]
    assert len(errors) >= 9
    for kind in errors:
        copy = pickle.loads(pickle.dumps(kind("why")))
        assert type(copy) is kind and str(copy) == "why"
    assert batchgate.EntryNotFoundError("why").errno == 2


def _failing(sample: int) -> None:
    error = batchgate.EntryNotFoundError("why", status=404, code="NoSuchKey", key="k", bucket="b", index=7)
    # As `add_note` has it, which older Pythons do not have.
    error.__notes__ = [f"while loading sample {sample}"]  # type: ignore[attr-defined]
    error.sample = sample  # type: ignore[attr-defined]
    raise error


def test_an_error_with_notes_crosses_from_a_worker() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(FileNotFoundError) as told:
        pool.map_async(_failing, [3]).get(20)
    error = told.value
    assert type(error) is batchgate.EntryNotFoundError and (error.index, error.code, error.key) == (7, "NoSuchKey", "k")
    assert error.__notes__ == ["while loading sample 3"] and error.sample == 3  # type: ignore[attr-defined]
    assert (error.errno, error.filename, str(error)) == (errno.ENOENT, "s3://b/k", "why")


def test_mistakes_are_told_before_anything_is_asked() -> None:
    client = batchgate.Client(endpoint_url="http://127.0.0.1:9", bucket="b")
    with pytest.raises(ValueError, match="on_error"):
        client.get_many([], on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order"):
        client.get_many([], order="random")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one key"):
        client.get_many("key")
    assert list(client.get_many([])) == []
    for wrong in ({"endpoint_url": "127.0.0.1:9"}, {"aws_access_key_id": "a"}, {"entries_max": 0}):
        with pytest.raises(batchgate.ConfigurationError):
            batchgate.Client(**wrong)
