"""BatchGet as `application/x-tar`: archives that GNU tar, Python's tarfile and webdataset read as they read any other,
what is refused because a tar has no place for it, and messages that break rather than end short."""

import base64
import calendar
import hashlib
import io
import json
import os
import random
import re
import shlex
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import webdataset

from support import faulty as faults
from support.batch import SUMMARY_MEMBERS, Entry, batch_get, batch_request, document
from support.faulty import LARGE, SMALL, FaultyBackend, Seen, body_of
from support.gateway import REPOSITORY, Backend, Gateway
from support.process import wait_for
from support.store import Credentials, Target
from support.wire import Answer, Request, call, object_path, open_stream, presign, send, send_http2

MAIN, OTHER = "tar-main", "tar-other"
TAR = {"Accept": "application/x-tar"}
SUMMARY = ".batchget-summary.json"
# Around the sizes where blocks, chunks and an entry's reservation end.
SIZES = [0, 1, 511, 512, 513, 1024, 10_240, 65_535, 65_536, 262_144, 262_145, (2 << 20) + 1]
NAMES = [
    "with space", "ünïcode/ключ/鍵", "emoji \U0001f600", "100%.txt", "a+b", 'say "hi"', "<xml/>&amp;", "back\\slash",
    "-rf",
    "..dots..", "new\nline", "é\nnew line", "n" * 100, "m" * 101, "d/" * 60 + "k", f"{'p' * 155}/{'n' * 100}",
    f"{'q' * 156}/{'n' * 99}", f"{'r/' * 3}{'k' * 240}", "@LongLink", "é" * 120,
]  # fmt: skip

GOLDEN = sorted((REPOSITORY / "tests/golden").glob("tar-*.body"))
assert GOLDEN, "tests/golden holds no archives"


@pytest.fixture(scope="module")
def corpus(store: Target) -> dict[tuple[str, str], bytes]:
    """Objects put into the store directly."""
    for bucket in (MAIN, OTHER):
        assert call(store, "PUT", f"/{bucket}").status == 200
    rng = random.Random(5)
    objects = {(MAIN, f"size/{size:08}"): rng.randbytes(size) for size in SIZES}
    objects |= {(MAIN, name): rng.randbytes(40 + i) for i, name in enumerate(NAMES)}
    objects |= {
        (MAIN, f"train/{i:05}.{kind}"): rng.randbytes(rng.randrange(9_000))
        for i in range(50)
        for kind in ("cls", "jpg")
    }
    objects |= {(OTHER, f"train/{i:05}.txt"): rng.randbytes(rng.randrange(200)) for i in range(50)}

    def put(item: tuple[tuple[str, str], bytes]) -> None:
        (bucket, key), body = item
        assert call(store, "PUT", object_path(bucket, key), {}, body).status == 200, key

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, objects.items()))
    return objects


@dataclass
class Archive:
    """What Python's tarfile makes of a whole answer."""

    answer: Answer
    members: list[tarfile.TarInfo]
    bodies: dict[str, bytes]
    summary: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]


def tar_request(target: Target, bucket: str | None, entries: Sequence[Entry | str], **options: Any) -> Request:
    return batch_request(target, bucket, document(entries, **options), TAR)


def read_archive(answer: Answer) -> Archive:
    """Reads in stream mode; the answer must be whole, with its summary last and two zero blocks at its end."""
    assert answer.status == 200 and not answer.broken, (answer.status, answer.broken, answer.body[:2000])
    assert answer.get("content-type") == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.body), mode="r|") as archive:
        found = [(member, stream.read()) for member in archive if (stream := archive.extractfile(member))]
    last, text = found.pop()
    assert last.name == SUMMARY
    summary = json.loads(text)
    assert SUMMARY_MEMBERS <= summary.keys()
    assert (str(summary["Entries"]), summary["Delivered"]) == (answer.get("batch-count"), len(found))
    assert summary["Bytes"] == sum(len(body) for _, body in found)
    end = last.offset_data + (len(text) + 511) // 512 * 512
    assert answer.body[end:] == bytes(1024), "two zero blocks and nothing behind them"
    bodies = {member.name: body for member, body in found}
    assert len(bodies) == len(found)
    return Archive(answer, [member for member, _ in found], bodies, summary)


def tar_get(target: Target, bucket: str | None, entries: Sequence[Entry | str], **options: Any) -> Archive:
    return read_archive(send(target, tar_request(target, bucket, entries, **options)))


def keys_of(corpus: dict[tuple[str, str], bytes], prefix: str = "", bucket: str = MAIN) -> list[str]:
    return [key for in_bucket, key in corpus if in_bucket == bucket and key.startswith(prefix)]


def modified(target: Target, bucket: str, key: str) -> int:
    text = call(target, "HEAD", object_path(bucket, key)).get("last-modified") or ""
    return calendar.timegm(time.strptime(text, "%a, %d %b %Y %H:%M:%S GMT"))


def gnu_tar(arguments: list[str], folder: Path, archive: bytes | None = None) -> str:
    """GNU tar, which must have nothing to say on standard error."""
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["tar", *arguments], cwd=folder, input=archive, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b""), (arguments, done.stderr[-2000:])
    return done.stdout.decode()


# What other readers make of it.


def test_tarfile_reads_every_size_and_name(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = keys_of(corpus)
    archive = tar_get(gateway.s3, MAIN, keys)
    assert archive.names == keys
    assert archive.bodies == {key: corpus[MAIN, key] for key in keys}
    for member in archive.members:
        assert member.isreg() and (member.mode, member.uid, member.gid) == (0o644, 0, 0)
        assert (member.uname, member.gname) == ("", "")


def test_times_are_those_of_the_objects(gateway: Gateway, store: Target, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = keys_of(corpus, "size/")
    archive = tar_get(gateway.s3, MAIN, keys)
    assert [member.mtime for member in archive.members] == [modified(store, MAIN, key) for key in keys]


def test_tarfile_reads_while_the_answer_comes(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = keys_of(corpus)
    connection = HTTPConnection(*gateway.s3.address, timeout=60)
    try:
        response = open_stream(connection, tar_request(gateway.s3, MAIN, keys))
        with tarfile.open(fileobj=response, mode="r|") as archive:
            found = {member.name: stream.read() for member in archive if (stream := archive.extractfile(member))}
    finally:
        connection.close()
    assert json.loads(found.pop(SUMMARY))["Delivered"] == len(keys)
    assert found == {key: corpus[MAIN, key] for key in keys}


def test_gnu_tar_lists_and_extracts(
    gateway: Gateway, store: Target, corpus: dict[tuple[str, str], bytes], tmp_path: Path
) -> None:
    keys = keys_of(corpus)
    answer = send(gateway.s3, tar_request(gateway.s3, MAIN, keys))
    (tmp_path / "batch.tar").write_bytes(answer.body)
    names = gnu_tar(["--list", "--null", "--quoting-style=literal", "--file", "batch.tar"], tmp_path)
    assert names == "".join(f"{key}\n" for key in [*keys, SUMMARY])
    lines = gnu_tar(["-tvf", "batch.tar"], tmp_path).splitlines()
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(modified(store, MAIN, "size/00000513")))
    assert f"-rw-r--r-- 0/0             513 {when} size/00000513" in lines
    # As from a pipe, in which nothing can be skipped.
    out = tmp_path / "out"
    out.mkdir()
    gnu_tar(["--extract", "--file", "-"], out, answer.body)
    for key in keys:
        assert (out / key).read_bytes() == corpus[MAIN, key], key
        assert (out / key).stat().st_mode & 0o777 == 0o644
    assert int((out / "size/00000513").stat().st_mtime) == modified(store, MAIN, "size/00000513")
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) == len(keys) + 1, "nothing else was unpacked"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_archives_are_read_alike(path: Path, tmp_path: Path) -> None:
    golden = json.loads(path.with_suffix(".json").read_text())
    with tarfile.open(path, mode="r|") as archive:
        found = [(m.name, m.mtime, stream.read()) for m in archive if (stream := archive.extractfile(m))]
    parts = [(part["name"], part["mtime"], base64.b64decode(part["body_base64"])) for part in golden["parts"]]
    assert found[:-1] == parts
    assert (found[-1][0], json.loads(found[-1][2])) == (SUMMARY, golden["summary"])
    names = gnu_tar(["--list", "--quoting-style=literal", "--file", str(path)], tmp_path).splitlines()
    assert names == [*(name for name, _, _ in parts), SUMMARY]


def curl_pipe(target: Target, bucket: str, body: bytes, folder: Path) -> str:
    """A batch as webdataset's `pipe:` URLs have it: curl with a presigned URL that pins the body."""
    (folder / "request.json").write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    headers = {"x-amz-content-sha256": digest}
    request = presign(target, "POST", f"/{bucket}?batch-get=", headers, body, payload_hash=digest)
    argv = ["curl", "--silent", "--fail", "--header", "Accept: application/x-tar"]
    argv += ["--header", f"x-amz-content-sha256: {digest}", "--data-binary", f"@{folder}/request.json"]
    return "pipe:" + shlex.join([*argv, target.endpoint + request.path])


def samples(url: str) -> list[dict[str, Any]]:
    return list(webdataset.WebDataset(url, shardshuffle=False))


def test_webdataset_reads_a_batch_as_a_shard(
    gateway: Gateway, corpus: dict[tuple[str, str], bytes], tmp_path: Path
) -> None:
    order = random.Random(3).sample(range(50), 50)
    keys = [f"train/{i:05}.{kind}" for i in order for kind in ("cls", "jpg")]
    found = samples(curl_pipe(gateway.s3, MAIN, document(keys), tmp_path))
    assert [sample["__key__"] for sample in found] == [f"train/{i:05}" for i in order]
    for i, sample in zip(order, found, strict=True):
        assert {"cls", "jpg"} == {name for name in sample if not name.startswith("__")}, "the summary is no sample"
        assert (sample["cls"], sample["jpg"]) == (corpus[MAIN, f"train/{i:05}.cls"], corpus[MAIN, f"train/{i:05}.jpg"])


def test_webdataset_joins_buckets_and_ranges_by_ids(
    gateway: Gateway, corpus: dict[tuple[str, str], bytes], tmp_path: Path
) -> None:
    entries: list[Entry] = []
    for i in range(50):
        entries.append({"Key": f"train/{i:05}.jpg", "Range": "bytes=0-15", "Id": f"{i:05}.head"})
        entries.append({"Bucket": OTHER, "Key": f"train/{i:05}.txt", "Id": f"{i:05}.txt"})
    found = samples(curl_pipe(gateway.s3, MAIN, document(entries), tmp_path))
    assert [sample["__key__"] for sample in found] == [f"{i:05}" for i in range(50)]
    for i, sample in enumerate(found):
        assert sample["head"] == corpus[MAIN, f"train/{i:05}.jpg"][:16]
        assert sample["txt"] == corpus[OTHER, f"train/{i:05}.txt"]


# What the contract says of members, failures and the summary.


def test_members_are_named_by_id_or_with_their_bucket(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    key = "train/00001.jpg"
    entries: list[Entry] = [
        {"Key": key},
        {"Bucket": OTHER, "Key": "train/00001.txt"},
        {"Key": key, "Id": "again/and~again!"},
    ]
    archive = tar_get(gateway.s3, MAIN, entries)
    assert archive.names == [f"{MAIN}/{key}", f"{OTHER}/train/00001.txt", "again/and~again!"]
    assert archive.bodies["again/and~again!"] == corpus[MAIN, key]
    without_bucket = tar_get(gateway.s3, None, [{"Bucket": MAIN, "Key": key}])
    assert without_bucket.names == [f"{MAIN}/{key}"]


def test_stop_is_the_default_and_leaves_no_member(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = ["train/00001.jpg", "train/00002.jpg", "nowhere", "train/00003.jpg"]
    for options in ({}, {"OnError": "Stop"}, {"OnError": None, "Summary": False}):
        archive = tar_get(gateway.s3, MAIN, keys, **options)
        assert archive.names == keys[:2]
        assert archive.summary["StoppedAt"] == 2
        assert archive.summary["Error"] == {"Status": 404, "Code": "NoSuchKey"}
        assert (archive.summary["Entries"], archive.summary["Omitted"]) == (4, 0) and archive.summary["Failed"] >= 1


@pytest.mark.parametrize("order", ["Request", "Completion"])
def test_omit_leaves_no_members(gateway: Gateway, corpus: dict[tuple[str, str], bytes], order: str) -> None:
    keys = ["nowhere", "train/00001.jpg", "train/00002.jpg", "nowhere/either", "train/00003.jpg"]
    archive = tar_get(gateway.s3, MAIN, keys, OnError="Omit", Order=order)
    expected = [key for key in keys if not key.startswith("nowhere")]
    assert (archive.names if order == "Request" else sorted(archive.names)) == expected
    assert all(archive.bodies[key] == corpus[MAIN, key] for key in expected)
    assert [archive.summary[m] for m in ("Failed", "Omitted", "StoppedAt")] == [2, 2, None]


def test_completion_order_gives_each_member_once(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = keys_of(corpus)
    archive = tar_get(gateway.s3, MAIN, keys, Order="Completion")
    assert archive.bodies == {key: corpus[MAIN, key] for key in keys}


def test_a_range_is_a_member_of_its_length(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    key = "size/00010240"
    ranges = {"first": "bytes=0-99", "rest": "bytes=100-", "tail": "bytes=-7", "beyond": "bytes=10000-99999"}
    archive = tar_get(gateway.s3, MAIN, [{"Key": key, "Range": text, "Id": name} for name, text in ranges.items()])
    body = corpus[MAIN, key]
    assert archive.bodies == {"first": body[:100], "rest": body[100:], "tail": body[-7:], "beyond": body[10_000:]}
    unsatisfied = tar_get(gateway.s3, MAIN, [{"Key": key, "Range": "bytes=10240-"}])
    assert unsatisfied.names == [] and unsatisfied.summary["Error"] == {"Status": 416, "Code": "InvalidRange"}


def test_preconditions_that_can_fail_are_failures(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    etag = call(gateway.s3, "HEAD", object_path(MAIN, "train/00001.jpg")).get("etag")
    good, bad = {"Key": "train/00001.jpg", "IfMatch": etag}, {"Key": "train/00002.jpg", "IfMatch": '"other"'}
    archive = tar_get(gateway.s3, MAIN, [good, bad])
    assert archive.names == ["train/00001.jpg"]
    assert archive.summary["Error"] == {"Status": 412, "Code": "PreconditionFailed"}


def test_members_are_the_parts_of_the_multipart_answer(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = keys_of(corpus, "train/")
    parts = batch_get(gateway.s3, MAIN, keys).parts
    assert list(tar_get(gateway.s3, MAIN, keys).bodies.values()) == [part.body for part in parts]


def test_http2_gives_the_same_octets(gateway: Gateway, corpus: dict[tuple[str, str], bytes], tmp_path: Path) -> None:
    keys = keys_of(corpus)
    second = send_http2(gateway.s3, tar_request(gateway.s3, MAIN, keys), tmp_path)
    assert second.http2
    assert read_archive(second).bodies == {key: corpus[MAIN, key] for key in keys}


def test_an_empty_bucket_of_members_is_a_whole_archive(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    archive = tar_get(gateway.s3, MAIN, ["nowhere"], OnError="Omit")
    assert archive.names == [] and archive.summary["Omitted"] == 1


def test_archives_are_counted_apart(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    def count(outcome: str) -> int:
        _, text = gateway.admin_get("/metrics")
        labels = f'{{format="tar",outcome="{outcome}"}}'
        found = re.search(rf"^batchgate_batch_batches_total{re.escape(labels)} (\d+)$", text, re.M)
        return int(found[1]) if found else 0

    before = count("complete"), count("stopped")
    tar_get(gateway.s3, MAIN, ["train/00001.jpg"])
    batch_get(gateway.s3, MAIN, ["train/00001.jpg"])
    tar_get(gateway.s3, MAIN, ["nowhere"])
    wait_for("both are counted", lambda: (count("complete"), count("stopped")) == (before[0] + 1, before[1] + 1), 5)


def test_ten_thousand_members(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    entries: list[Entry] = [{"Key": f"train/{i % 50:05}.txt", "Id": f"{i:05}.txt"} for i in range(10_000)]
    archive = tar_get(gateway.s3, OTHER, entries)
    assert archive.names == [f"{i:05}.txt" for i in range(10_000)]
    assert all(archive.bodies[f"{i:05}.txt"] == corpus[OTHER, f"train/{i % 50:05}.txt"] for i in range(10_000))


# Which format is answered.


ACCEPTS = {
    "application/x-tar": "tar",
    "Application/X-Tar": "tar",
    "application/*": "tar",
    "application/x-tar;q=0.1": "tar",
    "application/x-tar, */*;q=0.9": "tar",
    "application/x-tar;q=0.9, multipart/mixed;q=0.8": "tar",
    "text/html, application/x-tar;q=0.001": "tar",
    "multipart/mixed;q=0, */*": "tar",
    "*/*": "multipart",
    "application/x-tar, multipart/mixed": "multipart",
    "application/x-tar;q=0.5, multipart/*;q=0.5": "multipart",
    "application/x-tar;q=0.8, multipart/mixed;q=0.9": "multipart",
    "application/x-tar;q=0.5, */*;q=0.9": "multipart",
    "application/x-tar;q=0, */*": "multipart",
    "application/zip": "neither",
    "application/x-tar;q=0": "neither",
    "application/x-tar;q=0, multipart/mixed;q=0.0": "neither",
    "application/gzip, text/*": "neither",
    "*/*;q=0": "neither",
}


@pytest.mark.parametrize("accept", ACCEPTS)
def test_accept_chooses_the_format(gateway: Gateway, corpus: dict[tuple[str, str], bytes], accept: str) -> None:
    body = document(["train/00001.jpg"], OnError="Stop")
    answer = send(gateway.s3, batch_request(gateway.s3, MAIN, body, {"Accept": accept}))
    if ACCEPTS[accept] == "neither":
        assert (answer.status, answer.xml("Code")) == (406, "NotAcceptable")
        expected = "the answer can be had as multipart/mixed or as application/x-tar; Accept rules out both"
        assert answer.xml("Message") == expected
        return
    assert (answer.status, answer.get("batch-count")) == (200, "1")
    prefix = {"tar": "application/x-tar", "multipart": "multipart/mixed; boundary="}[ACCEPTS[accept]]
    assert (answer.get("content-type") or "").startswith(prefix)


def test_capabilities_name_both_formats(gateway: Gateway) -> None:
    formats = json.loads(call(gateway.s3, "GET", "/?batch-get").body)["Formats"]
    assert formats == ["multipart/mixed", "application/x-tar"]


# What is refused.


def name_refused(index: int, name: str, why: str, suggestion: str) -> str:
    return (
        f'Objects[{index}]: "{name}" cannot be the name of a tar member, because it {why}; '
        f'give the entry an Id, such as "{suggestion}"'
    )


REPEATS = "repeats that of an entry before it"
CONTINUE = (
    'OnError is "Continue", but a tar has no place for the status of a failed entry; it must be Stop or Omit, '
    "or the answer multipart/mixed"
)
IF_NONE_MATCH = (
    "Objects[1].IfNoneMatch cannot be answered in a tar, which has no place for the status 304; leave it out, "
    "or ask for multipart/mixed"
)
REFUSED: dict[str, tuple[list[Entry | str], dict[str, str], str]] = {
    "Continue": (["k"], {"OnError": "Continue"}, CONTINUE),
    "IfNoneMatch": (["k", {"Key": "l", "IfNoneMatch": '"e"'}], {}, IF_NONE_MATCH),
    "leading slash": (["k", "/etc/passwd"], {}, name_refused(1, "/etc/passwd", "starts with a slash", "1-passwd")),
    "trailing slash": (["dir/"], {}, name_refused(0, "dir/", "ends with a slash", "0-dir")),
    "a slash": (["/"], {}, name_refused(0, "/", "starts with a slash", "0")),
    "empty component": (["a//b.jpg"], {}, name_refused(0, "a//b.jpg", "has an empty component", "0-b.jpg")),
    "dot dot": (["a/../../b"], {}, name_refused(0, "a/../../b", "has a component `.` or `..`", "0-b")),
    "dot": (["k", "./x"], {}, name_refused(1, "./x", "has a component `.` or `..`", "1-x")),
    "NUL": (["a\0b"], {}, name_refused(0, r"a\0b", "holds a NUL", "0-a_b")),
    "the summary": ([SUMMARY], {}, name_refused(0, SUMMARY, "is that of the summary", f"0-{SUMMARY}")),
    "repeated key": (["x/k.jpg", "l", "x/k.jpg"], {}, name_refused(2, "x/k.jpg", REPEATS, "2-k.jpg")),
    "Id like a key": (["k", {"Key": "l", "Id": "k"}], {}, name_refused(1, "k", REPEATS, "1-k")),
    "Id that leads out": (
        [{"Key": "k", "Id": "../k"}],
        {},
        name_refused(0, "../k", "has a component `.` or `..`", "0-k"),
    ),
    "Id of the summary": (
        [{"Key": "k", "Id": SUMMARY}],
        {},
        name_refused(0, SUMMARY, "is that of the summary", f"0-{SUMMARY}"),
    ),
    "with bucket": (
        [{"Key": "k", "Bucket": OTHER}, {"Key": "/k"}],
        {},
        name_refused(1, f"{MAIN}//k", "has an empty component", "1-k"),
    ),
    "repeated with bucket": (["k", {"Key": "k", "Bucket": MAIN}], {}, name_refused(1, f"{MAIN}/k", REPEATS, "1-k")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_tar_has_no_place_for_is_refused(
    gateway: Gateway, corpus: dict[tuple[str, str], bytes], name: str
) -> None:
    entries, options, message = REFUSED[name]
    answer = send(gateway.s3, tar_request(gateway.s3, MAIN, entries, **options))
    assert (answer.status, answer.xml("Code")) == (400, "InvalidArgument")
    assert answer.xml("Message") == message
    multipart = send(gateway.s3, batch_request(gateway.s3, MAIN, document(entries, **options)))
    assert multipart.status == 200, "as multipart/mixed it can be had"


def test_the_suggested_id_can_be_used(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    for entries, _, message in REFUSED.values():
        if "such as" not in message:
            continue
        index = int(message.split("[")[1].split("]")[0])
        suggestion = message.rsplit('"', 2)[1]
        mended = [{"Key": entry} if isinstance(entry, str) else dict(entry) for entry in entries]
        mended[index]["Id"] = suggestion
        answer = send(gateway.s3, tar_request(gateway.s3, MAIN, mended, OnError="Omit"))
        assert answer.status == 200, (message, answer.body)


# What a backend does that breaks off or fails.

FAULTY = "faulty-tar"
NINE_GIB = 9 << 30


def _nine_gib(seen: Seen) -> None:
    """A body that is announced longer than a header of ustar can say, and breaks off."""
    seen.send(200, {"etag": 'W/"w"', "content-length": str(NINE_GIB)}, bytes(1 << 20), 1 << 20)


@pytest.fixture(scope="module")
def backend() -> Iterator[FaultyBackend]:
    faults.FAULTS["nine-gib"] = _nine_gib
    server = FaultyBackend()
    yield server
    server.stop()
    del faults.FAULTS["nine-gib"]


@pytest.fixture(scope="module")
def faulty(start_gateway: Callable[..., Gateway], backend: FaultyBackend) -> Iterator[Gateway]:
    """The window is smaller than a large object, which therefore streams: its header goes out before its last byte."""
    pair = Credentials("BACKENDKEY", "secret-of-the-backend")
    sections = '[batch]\nentry_deadline = "2s"\nwindow_bytes = "4MiB"\n[tail]\nretry_share = 1.0\n'
    backends = [Backend("faulty", "faulty-*", Target(backend.endpoint, pair), 'attempt_timeout = "500ms"')]
    running = start_gateway(backends, sections, "faulty-tar")
    yield running
    wait_for("gauges at zero", lambda: running.metric("batchgate_memory_reserved_bytes") == 0, 10)
    running.assert_gauges_at_zero()
    assert running.stop() == 0
    assert "panicked" not in running.process.stderr()


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_a_large_member_that_breaks_breaks_the_message(faulty: Gateway, http2: bool, tmp_path: Path) -> None:
    keys = [f"fine/before-{http2}", f"cut-large-weak/breaks-{http2}", "fine/never-seen"]
    request = tar_request(faulty.s3, FAULTY, keys)
    answer = send_http2(faulty.s3, request, tmp_path) if http2 else send(faulty.s3, request)
    assert answer.status == 200 and answer.broken
    assert SUMMARY.encode() not in answer.body
    found: dict[str, bytes] = {}
    with pytest.raises(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(answer.body), mode="r|") as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            body = stream.read()
            if len(body) != member.size:
                raise tarfile.ReadError("a short member")
            found[member.name] = body
    # A stream reset may overtake what was sent before it; over HTTP/1.1 nothing does.
    assert found == {keys[0]: body_of(keys[0], SMALL)} or (http2 and not found)
    if not http2:
        header = 512 + (SMALL + 511) // 512 * 512
        info = tarfile.TarInfo.frombuf(answer.body[header : header + 512], "utf-8", "strict")
        assert (info.name, info.size) == (keys[1], LARGE), "its header says the length that it was to have"
        assert body_of(keys[1], LARGE).startswith(answer.body[header + 512 :]), (
            "what was sent is right as far as it goes"
        )
        done = subprocess.run(["tar", "--extract", "--file", "-"], cwd=tmp_path, input=answer.body, capture_output=True)
        assert done.returncode != 0 and b"Unexpected EOF" in done.stderr


def test_webdataset_does_not_take_a_broken_batch_for_a_shard(faulty: Gateway, tmp_path: Path) -> None:
    keys = ["fine/webdataset.jpg", "cut-large-weak/webdataset.jpg", "fine/webdataset-2.jpg"]
    with pytest.raises((tarfile.ReadError, OSError)):
        samples(curl_pipe(faulty.s3, FAULTY, document(keys), tmp_path))


@pytest.mark.parametrize(
    "fault", ["cut-large", "cut-large-thrice", "cut-small-thrice", "503-then-fine", "no-length-small"]
)
def test_trouble_that_passes_ends_in_right_bytes(faulty: Gateway, fault: str) -> None:
    keys = [f"fine/before-{fault}", f"{fault}/tar", f"fine/after-{fault}"]
    archive = tar_get(faulty.s3, FAULTY, keys)
    sizes = [SMALL, LARGE if "large" in fault else SMALL, SMALL]
    assert archive.bodies == {key: body_of(key, size) for key, size in zip(keys, sizes, strict=True)}


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("404", 404, "NoSuchKey"), ("403-own-code", 403, "InvalidObjectState"), ("garbage", 502, "BadGateway"),
        ("silent", 504, "GatewayTimeout"),
    ],
)  # fmt: skip
def test_a_failure_stops_the_archive_and_is_named(faulty: Gateway, fault: str, status: int, code: str) -> None:
    keys = [f"fine/before-{fault}", f"{fault}/stops", f"fine/after-{fault}"]
    archive = tar_get(faulty.s3, FAULTY, keys)
    assert archive.names == keys[:1]
    assert archive.summary["StoppedAt"] == 1 and archive.summary["Error"] == {"Status": status, "Code": code}
    assert faults.BACKEND_SECRET.encode() not in archive.answer.body


def test_a_size_that_ustar_cannot_hold_is_said_all_the_same(faulty: Gateway) -> None:
    answer = send(faulty.s3, tar_request(faulty.s3, FAULTY, ["nine-gib/k"]))
    assert answer.status == 200 and answer.broken
    with tarfile.open(fileobj=io.BytesIO(answer.body), mode="r|") as archive:
        first = archive.next()
    assert first is not None and (first.name, first.size) == ("nine-gib/k", NINE_GIB)


def test_a_reader_that_goes_away_leaves_nothing_taken(faulty: Gateway) -> None:
    with socket.create_connection(faulty.s3.address) as sock:
        sock.sendall(tar_request(faulty.s3, FAULTY, ["fine-large/left", "fine-large/left-too"]).raw())
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
    wait_for("gauges at zero", lambda: faulty.metric("batchgate_batch_in_flight") == 0, 10)
    wait_for("bytes given back", lambda: faulty.metric("batchgate_memory_reserved_bytes") == 0, 10)
