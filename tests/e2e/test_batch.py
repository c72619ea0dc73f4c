"""BatchGet over the real store: what the contract promises of order, cardinality, options, formats and identities, and
above all that a part is exactly what the lone GET is, asked through the gateway and asked of the store directly."""

import hashlib
import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.batch import Batch, Entry, Part, batch_get, batch_request, comparable_headers, document, read_batch
from support.gateway import DOMAIN, FULL, LIMITED, NOTHING, READ_ONLY, Gateway
from support.rawsocket import read_chunks, read_head
from support.store import BOTH, Credentials, Target
from support.wire import Answer, call, object_path, presign, send, send_http2, sign

STORES = BOTH
MAIN, OTHER, MISSING = "batch-main", "batch-other", "batch-missing"
# Around the sizes where a reader or the gateway changes its ways: chunks, an entry's reservation of 256 KiB.
SIZES = [0, 1, 2, 100, 1023, 10240, 65535, 65536, 262143, 262144, 262145, 1 << 20, (2 << 20) - 1, 2 << 20]
ODD_KEYS = [
    "with space", "ünïcode/ключ/鍵", "emoji \U0001f600", "100%.txt", "100%25.txt", "a+b", "a b+c%20d", "it's", 'say "hi"',
    "x&y=z", "q?a=b", "frag#ment", "(x)!*@:;,$", "<xml/>&amp;", "[]{}|\\^`~", "tab\there", "..dots..", "deep/" + "d/" * 40 + "k",
    "long-" + "k" * 200, "batch-get", "--boundary",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(store: Target) -> dict[tuple[str, str], bytes]:
    """Objects put into the store directly, with headers of every kind."""
    for bucket in (MAIN, OTHER):
        assert call(store, "PUT", f"/{bucket}").status == 200
    rng = random.Random(7)
    objects = {(MAIN, f"size/{size:08}"): rng.randbytes(size) for size in SIZES}
    objects |= {(MAIN, key): rng.randbytes(50 + 7 * i) for i, key in enumerate(ODD_KEYS)}
    objects |= {(MAIN, f"small/{i:03}"): rng.randbytes(rng.randrange(20_000)) for i in range(100)}
    objects |= {(OTHER, f"small/{i:03}"): rng.randbytes(rng.randrange(2_000)) for i in range(20)}
    headers = [
        {"Content-Type": "image/jpeg"},
        {"Content-Type": "text/plain; charset=utf-8", "x-amz-meta-note": "two  words, a comma"},
        {"Content-Encoding": "gzip", "Cache-Control": "max-age=60, must-revalidate"},
        {"Content-Disposition": 'attachment; filename="a b.txt"', "Content-Language": "de"},
        {},
    ]

    def put(item: tuple[int, tuple[tuple[str, str], bytes]]) -> None:
        i, ((bucket, key), body) = item
        answer = call(store, "PUT", object_path(bucket, key), headers[i % len(headers)], body)
        assert answer.status == 200, (key, answer)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, enumerate(objects.items())))
    return objects


def lone_get(target: Target, bucket: str, entry: Entry) -> Answer:
    """The GET that an entry stands for."""
    names = {"Range": "Range", "IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}
    headers = {header: entry[member] for member, header in names.items() if member in entry}
    query = f"versionId={entry['VersionId']}" if "VersionId" in entry else ""
    return call(target, "GET", object_path(entry.get("Bucket", bucket), entry["Key"], query), headers)


def assert_equivalent(part: Part, lone: Answer, entry: Entry) -> None:
    """Status, headers and bytes of the lone GET; a failure's body is ours, with the same code."""
    assert lone.broken is None
    assert part.status == lone.status, entry
    expected = comparable_headers(lone)
    if lone.status == 304:
        assert (part.get("content-length"), part.body) == ("0", b""), entry
        assert part.get("etag") == lone.get("etag") and lone.get("etag"), entry
        ignored = {"content-length"}
    elif lone.status >= 400:
        assert part.get("content-type") == "application/xml", entry
        assert part.code == lone.xml("Code"), entry
        ignored = {"content-length", "content-type"}
    else:
        assert part.body == lone.body, entry
        ignored = set()
    assert [h for h in part.comparable() if h[0] not in ignored] == [h for h in expected if h[0] not in ignored], entry


def mixed_entries(corpus: dict[tuple[str, str], bytes], etags: dict[str, str], count: int) -> Iterator[Entry]:
    """Every kind of entry, each object in turn, so that all are asked for and many more than once."""
    rng = random.Random(11)
    names = [name for name in corpus if len(corpus[name]) <= 65536] * 9 + list(corpus)
    rng.shuffle(names)
    for i in range(count):
        bucket, key = names[i % len(names)]
        size = len(corpus[bucket, key])
        entry: Entry = {"Key": key} | ({"Bucket": bucket} if bucket != MAIN or rng.random() < 0.1 else {})
        kind = rng.randrange(20)
        if kind == 0:
            entry["Key"] += ".missing"
        elif kind == 1:
            entry["Bucket"] = MISSING
        elif kind == 2:
            entry["IfMatch"] = etags[f"{bucket}/{key}"]
        elif kind == 3:
            entry["IfMatch"] = '"00000000000000000000000000000000"'
        elif kind == 4:
            entry["IfNoneMatch"] = etags[f"{bucket}/{key}"]
        elif kind == 5:
            entry["IfNoneMatch"] = '"00000000000000000000000000000000"'
        elif kind == 6:
            entry["Range"] = f"bytes={size + 5}-"
        elif kind == 7:
            entry["Range"] = f"bytes=-{rng.randrange(1, size + 20)}"
        elif kind <= 10:
            first = rng.randrange(max(size, 1))
            entry["Range"] = f"bytes={first}-" + (str(first + rng.randrange(size + 10)) if kind < 10 else "")
        if rng.random() < 0.2:
            entry["Id"] = f"tag-{i}"
        yield entry


def test_a_thousand_mixed_keys_equal_a_thousand_gets(
    gateway: Gateway, store: Target, corpus: dict[tuple[str, str], bytes]
) -> None:
    etags = {f"{b}/{k}": call(store, "HEAD", object_path(b, k)).get("etag") or "" for b, k in corpus}
    entries = list(mixed_entries(corpus, etags, 1000))
    batch = batch_get(gateway.s3, MAIN, entries)
    assert [part.index for part in batch.parts] == list(range(1000))
    with ThreadPoolExecutor(8) as pool:
        through = list(pool.map(lambda e: lone_get(gateway.s3, MAIN, e), entries))
        direct = list(pool.map(lambda e: lone_get(store, MAIN, e), entries))
    statuses = {part.status for part in batch.parts}
    assert statuses == {200, 206, 304, 404, 412, 416}, "the mix lost a kind"
    for part, entry, one, two in zip(batch.parts, entries, through, direct, strict=True):
        assert_equivalent(part, one, entry)
        assert_equivalent(part, two, entry)
        assert part.get("batch-id") == entry.get("Id")
        if part.status == 200:
            assert part.body == corpus[entry.get("Bucket", MAIN), entry["Key"]]


def test_every_odd_key_and_size_comes_back(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = [key for bucket, key in corpus if bucket == MAIN]
    batch = batch_get(gateway.s3, MAIN, keys)
    assert [part.body for part in batch.parts] == [corpus[MAIN, key] for key in keys]
    assert {part.status for part in batch.parts} == {200}


@pytest.mark.only_on("seaweedfs", reason="the embedded store keeps no versions")
def test_versions_are_read_by_their_ids(gateway: Gateway, store: Target) -> None:
    call(store, "PUT", "/batch-versions")
    on = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    assert call(store, "PUT", "/batch-versions?versioning", {}, on).status == 200
    versions = [call(store, "PUT", "/batch-versions/k", {}, body).get("x-amz-version-id") for body in (b"one", b"two!")]
    entries: list[Entry] = [{"Key": "k", "VersionId": version} for version in versions] + [{"Key": "k"}]
    batch = batch_get(gateway.s3, "batch-versions", entries)
    assert [part.body for part in batch.parts] == [b"one", b"two!", b"two!"]
    for part, entry in zip(batch.parts, entries, strict=True):
        assert_equivalent(part, lone_get(store, "batch-versions", entry), entry)


def test_headers_of_the_answer(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    answer = batch_get(gateway.s3, MAIN, ["small/000"]).answer
    assert answer.get("batch-count") == "1"
    assert answer.get("x-amz-request-id") == answer.get("x-batchgate-request-id")
    assert answer.get("transfer-encoding") == "chunked" and answer.get("content-length") is None


def test_boundaries_are_fresh(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    answers = [batch_get(gateway.s3, MAIN, ["small/000"]).answer for _ in range(5)]
    assert len({answer.get("content-type") for answer in answers}) == 5
    assert len({answer.get("x-amz-request-id") for answer in answers}) == 5


def test_duplicates_come_back_as_often_as_asked(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    batch = batch_get(gateway.s3, MAIN, ["small/001"] * 50 + ["small/002"] + ["small/001"] * 50)
    assert [part.body for part in batch.parts] == [corpus[MAIN, f"small/00{2 if i == 50 else 1}"] for i in range(101)]


# Entries whose third fails; what each OnError makes of them.
WITH_FAILURE = ["small/000", "small/001", "nowhere", "small/002", "small/003"]


def indexes(batch: Batch) -> list[int | None]:
    return [part.index for part in batch.parts]


@pytest.mark.parametrize("order", ["Request", "Completion"])
def test_on_error_continue(gateway: Gateway, corpus: dict[tuple[str, str], bytes], order: str) -> None:
    batch = batch_get(gateway.s3, MAIN, WITH_FAILURE, OnError="Continue", Summary=True, Order=order)
    assert sorted(batch.by_index()) == [0, 1, 2, 3, 4]
    failed = batch.by_index()[2]
    assert (failed.status, failed.code) == (404, "NoSuchKey")
    assert batch.summary is not None
    assert [batch.summary[m] for m in ("Delivered", "Failed", "Omitted", "StoppedAt")] == [5, 1, 0, None]


@pytest.mark.parametrize("order", ["Request", "Completion"])
def test_on_error_omit(gateway: Gateway, corpus: dict[tuple[str, str], bytes], order: str) -> None:
    batch = batch_get(gateway.s3, MAIN, WITH_FAILURE, OnError="Omit", Order=order)
    assert sorted(batch.by_index()) == [0, 1, 3, 4]
    assert all(part.body == corpus[MAIN, WITH_FAILURE[index]] for index, part in batch.by_index().items())
    assert batch.summary is not None
    assert [batch.summary[m] for m in ("Delivered", "Failed", "Omitted", "StoppedAt")] == [4, 1, 1, None]


def test_on_error_stop(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    batch = batch_get(gateway.s3, MAIN, WITH_FAILURE, OnError="Stop")
    assert indexes(batch) == [0, 1, 2]
    assert batch.parts[2].status == 404
    assert batch.summary is not None
    assert batch.summary["Delivered"] == 3 and batch.summary["Omitted"] == 0
    assert batch.summary["StoppedAt"] == 2 and batch.summary["Error"] == {"Status": 404, "Code": "NoSuchKey"}


def test_on_error_stop_in_completion_order(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    """The failed entry is last; whatever was whole before it is written, and nothing else failed."""
    batch = batch_get(gateway.s3, MAIN, WITH_FAILURE, OnError="Stop", Order="Completion")
    assert indexes(batch)[-1] == 2
    assert all(part.status == 200 for part in batch.parts[:-1])
    assert batch.summary is not None and batch.summary["StoppedAt"] == 2


def test_stop_without_a_failure_delivers_all(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    """A 304 is an answer, no failure."""
    etag = call(gateway.s3, "HEAD", object_path(MAIN, "small/000")).get("etag")
    batch = batch_get(gateway.s3, MAIN, [{"Key": "small/000", "IfNoneMatch": etag}, "small/001"], OnError="Stop")
    assert [part.status for part in batch.parts] == [304, 200]
    assert batch.summary is not None and (batch.summary["Failed"], batch.summary["StoppedAt"]) == (0, None)


def test_completion_order_gives_each_entry_once(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    names = [key for bucket, key in corpus if bucket == MAIN] * 3
    batch = batch_get(gateway.s3, MAIN, names, Order="Completion", Summary=True)
    assert sorted(batch.by_index()) == list(range(len(names)))
    assert all(part.body == corpus[MAIN, names[index]] for index, part in batch.by_index().items())


def test_summary_only_when_asked_or_owed(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    assert batch_get(gateway.s3, MAIN, ["small/000"]).summary is None
    assert batch_get(gateway.s3, MAIN, ["small/000"], Summary=False).summary is None
    summary = batch_get(gateway.s3, MAIN, ["small/000", "small/001"], Summary=True).summary
    assert summary is not None and summary["Bytes"] == sum(len(corpus[MAIN, f"small/00{i}"]) for i in (0, 1))
    assert summary["BackendRequests"] == 2 and summary["ElapsedMs"] >= 0


def test_null_means_absent(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    members = ["Bucket", "VersionId", "IfMatch", "IfNoneMatch", "Range", "Id"]
    entry = {"Key": "small/000"} | dict.fromkeys(members)
    batch = batch_get(gateway.s3, MAIN, [entry], OnError=None, Order=None, Summary=None)
    assert batch.parts[0].body == corpus[MAIN, "small/000"] and batch.summary is None


def test_ids_are_echoed(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    ids = ["a", '~!#$%^&*()_+{}|:"<>?', "x" * 256, None]
    keys = ["small/000", "nowhere", "small/001", "small/002"]
    batch = batch_get(gateway.s3, MAIN, [{"Key": key, "Id": tag} for key, tag in zip(keys, ids, strict=True)])
    assert [part.get("batch-id") for part in batch.parts] == ids


def test_each_entry_may_name_its_bucket(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    entries = [{"Bucket": bucket, "Key": "small/003"} for bucket in (OTHER, MAIN, OTHER)]
    for bucket in (None, MAIN, MISSING):
        batch = batch_get(gateway.s3, bucket, entries)
        assert [part.body for part in batch.parts] == [corpus[e["Bucket"], e["Key"]] for e in entries]


def test_errors_name_bucket_key_and_request(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    key = 'no <such> & "key" \x01'
    batch = batch_get(gateway.s3, MAIN, [key, {"Bucket": MISSING, "Key": "k"}])
    missing_key, missing_bucket = batch.parts
    assert missing_bucket.code == "NoSuchBucket" and missing_bucket.status == 404
    assert b"<BucketName>batch-missing</BucketName>" in missing_bucket.body
    escaped = b'<Key>no &lt;such&gt; &amp; "key" &#x1;</Key>'
    assert escaped in missing_key.body.replace(b"&quot;", b'"')
    request_id = (batch.answer.get("x-amz-request-id") or "").encode()
    assert b"<RequestId>" + request_id + b"</RequestId>" in missing_key.body


@pytest.mark.parametrize("query", ["batch-get", "batch-get="])
def test_both_spellings_of_the_query(gateway: Gateway, corpus: dict[tuple[str, str], bytes], query: str) -> None:
    request = sign(gateway.s3, "POST", f"/{MAIN}?{query}", {}, document(["small/000"]))
    assert read_batch(send(gateway.s3, request)).parts[0].body == corpus[MAIN, "small/000"]


def test_virtual_host_addressing(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    request = sign(gateway.s3, "POST", "/?batch-get", {}, document(["small/000"]), host=f"{MAIN}.{DOMAIN}")
    assert read_batch(send(gateway.s3, request)).parts[0].body == corpus[MAIN, "small/000"]
    lone = send(gateway.s3, sign(gateway.s3, "GET", "/small/000", host=f"{MAIN}.{DOMAIN}:8333"))
    assert (lone.status, lone.body) == (200, corpus[MAIN, "small/000"])


def test_http2_gives_the_same_parts(gateway: Gateway, corpus: dict[tuple[str, str], bytes], tmp_path: Path) -> None:
    keys = [key for bucket, key in corpus if bucket == MAIN] + ["nowhere"]
    second = batch_get(gateway.s3, MAIN, keys, tmp_path, Summary=True)
    assert second.answer.http2
    first = batch_get(gateway.s3, MAIN, keys)
    assert [(p.index, p.status, p.comparable()) for p in second.parts[:-1]] == [
        (p.index, p.status, p.comparable()) for p in first.parts[:-1]
    ]
    assert [p.body for p in second.parts[:-1]] == [p.body for p in first.parts[:-1]]
    assert second.parts[-1].code == "NoSuchKey"
    lone = send_http2(gateway.s3, sign(gateway.s3, "GET", object_path(MAIN, "small/000")), tmp_path)
    assert (lone.http2, lone.body) == (True, corpus[MAIN, "small/000"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Accept": "*/*"},
        {"Accept": "multipart/*"},
        {"Accept": "multipart/mixed"},
        {"Accept": "text/html, multipart/mixed;q=0.5"},
        {"Accept": "application/x-tar;q=0.5, */*;q=0.9"},
    ],
    ids=str,
)
def test_media_types_we_have(gateway: Gateway, corpus: dict[tuple[str, str], bytes], headers: dict[str, str]) -> None:
    request = sign(gateway.s3, "POST", f"/{MAIN}?batch-get", headers, document(["small/000"]))
    assert read_batch(send(gateway.s3, request)).parts[0].status == 200


def test_no_content_type_is_json(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    request = sign(gateway.s3, "POST", f"/{MAIN}?batch-get", {}, document(["small/000"])).set("Content-Type", None)
    assert read_batch(send(gateway.s3, request)).parts[0].status == 200


def test_presigned_with_the_body_pinned(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    body = document(["small/000"])
    digest = hashlib.sha256(body).hexdigest()
    headers = {"x-amz-content-sha256": digest}
    request = presign(gateway.s3, "POST", f"/{MAIN}?batch-get=", headers, body, payload_hash=digest)
    assert "x-amz-content-sha256" in request.path
    assert read_batch(send(gateway.s3, request)).parts[0].body == corpus[MAIN, "small/000"]


def test_checksum_mode_applies_to_every_entry(gateway: Gateway, store: Target) -> None:
    call(store, "PUT", "/batch-checksums")
    headers = {"x-amz-checksum-crc32": "NSRBwg=="}
    assert call(store, "PUT", "/batch-checksums/k", headers, b"abc").status == 200
    request = batch_request(gateway.s3, "batch-checksums", document(["k", "k"]), {"x-amz-checksum-mode": "ENABLED"})
    parts = read_batch(send(gateway.s3, request)).parts
    assert [part.get("x-amz-checksum-crc32") for part in parts] == ["NSRBwg=="] * 2
    lone = call(store, "GET", "/batch-checksums/k", {"x-amz-checksum-mode": "ENABLED"})
    assert parts[0].comparable() == comparable_headers(lone)


def test_ten_thousand_tiny_entries(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    keys = [f"small/{i * 7 % 20:03}" for i in range(10_000)]
    batch = batch_get(gateway.s3, OTHER, keys, Summary=True)
    assert indexes(batch) == list(range(10_000))
    assert all(part.body == corpus[OTHER, key] for part, key in zip(batch.parts, keys, strict=True))


@pytest.mark.parametrize("pair", [FULL, READ_ONLY, LIMITED, NOTHING], ids=lambda pair: pair.access_key)
@pytest.mark.parametrize("query", ["batch-get", "batch-get="])
def test_capabilities_for_any_identity(gateway: Gateway, pair: Credentials, query: str) -> None:
    answer = call(gateway.as_identity(pair), "GET", f"/?{query}")
    assert answer.status == 200 and (answer.get("content-type") or "").startswith("application/json")
    found = json.loads(answer.body)
    assert found["Version"] == 1
    assert "multipart/mixed" in found["Formats"]
    assert found["Limits"] == {"Entries": 10000, "BodyBytes": 16777216, "KeyBytes": 1024, "IdBytes": 256}
    assert {"Order", "OnError", "Summary"} <= set(found["Features"])


def test_formats_are_those_that_are_answered(gateway: Gateway, corpus: dict[tuple[str, str], bytes]) -> None:
    formats = json.loads(call(gateway.s3, "GET", "/?batch-get").body)["Formats"]
    for media_type in ("multipart/mixed", "application/x-tar"):
        body = document(["small/000"], OnError="Stop")
        answer = send(gateway.s3, batch_request(gateway.s3, MAIN, body, {"Accept": media_type}))
        assert answer.status == (200 if media_type in formats else 406), media_type


def test_policy_is_asked_entry_by_entry(gateway: Gateway, store: Target, corpus: dict[tuple[str, str], bytes]) -> None:
    call(store, "PUT", "/allowed-batch")
    call(store, "PUT", "/allowed-batch/k", {}, b"yours")
    entries: list[Entry] = [
        {"Bucket": "allowed-batch", "Key": "k"},
        {"Bucket": MAIN, "Key": "small/000"},
        {"Bucket": MISSING, "Key": "k"},
        {"Bucket": "allowed-batch", "Key": "nowhere"},
        {"Bucket": "allowed-batch", "Key": "k", "VersionId": "null"},
    ]
    batch = batch_get(gateway.as_identity(LIMITED), None, entries)
    assert [part.status for part in batch.parts] == [200, 403, 403, 404, 403]
    assert [part.code for part in batch.parts if part.status == 403] == ["AccessDenied"] * 3
    assert batch.parts[0].body == b"yours"
    assert {part.status for part in batch_get(gateway.as_identity(NOTHING), None, entries).parts} == {403}
    assert batch_get(gateway.as_identity(READ_ONLY), MAIN, ["small/000"]).parts[0].body == corpus[MAIN, "small/000"]


def test_a_large_answer_is_written_in_large_chunks(gateway: Gateway, store: Target) -> None:
    """Small parts share a chunk: one for each would cost both sides a write, a read and a wake-up."""
    body = bytes(range(256)) * 40
    assert call(store, "PUT", f"/{MAIN}/chunked", {}, body).status == 200
    count = 2000
    with socket.create_connection(gateway.s3.address, timeout=30) as sock, sock.makefile("rb") as stream:
        sock.sendall(batch_request(gateway.s3, MAIN, document(["chunked"] * count)).raw())
        status, headers = read_head(stream)
        chunks = list(read_chunks(stream))
    small = [len(chunk) for chunk in chunks if len(chunk) < 64 << 10]
    # What is there is flushed before the stream waits, so where the store is slow some are small.
    assert len(small) <= len(chunks) // 4, f"{len(small)} of {len(chunks)} chunks are small: {small[:20]}"
    assert len(chunks) <= count * len(body) / (64 << 10) * 1.5
    batch = read_batch(Answer(status, headers, b"".join(chunks)))
    assert [part.body for part in batch.parts] == [body] * count
