"""A backend that breaks, lies or stalls: the client sees right bytes or an explicit error, never wrong, mixed or missing
ones, and a message that is not whole can be seen not to be.

Each test asks for its own key (`FAULT/name of the test`), so that what happens once happens to each.
"""

import io
import itertools
import re
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.batch import Broken, Entry, Part, batch_get, batch_request, document, read_batch, read_parts
from support.faulty import (
    BACKEND_SECRET,
    COMPLETED,
    DECLARATION,
    LARGE,
    SMALL,
    WAITING_SECONDS,
    FaultyBackend,
    body_of,
)
from support.gateway import Backend, Gateway
from support.process import wait_for
from support.rawsocket import read_chunks, read_head
from support.store import Credentials, Target
from support.wire import Answer, call, object_path, send, send_http2, sign

BUCKET = "faulty-bucket"
ENTRY_DEADLINE_SECONDS = 2.0
# The window is smaller than a large object, which therefore streams: its part begins before its last byte is there. Most of
# what is asked here fails once or twice, and its deadline is short: a budget of retries made for healthy days would run out.
SECTIONS = '[batch]\nentry_deadline = "2s"\nwindow_bytes = "4MiB"\n[tail]\nretry_share = 1.0\n'
IMPATIENT = 'attempt_timeout = "500ms"\nconnect_timeout = "500ms"'


@pytest.fixture(scope="module")
def faulty(start_gateway: Callable[..., Gateway], backend: FaultyBackend) -> Iterator[Gateway]:
    """`faulty-*` leads to the faulty backend, `dead-*` to a port where nobody listens, other buckets nowhere."""
    with socket.socket() as unused:
        # Bound but not listening: nobody else can take the port, and connections are refused.
        unused.bind(("127.0.0.1", 0))
        pair = Credentials("BACKENDKEY", "secret-of-the-backend")
        running = start_gateway(
            [
                Backend("faulty", "faulty-*", Target(backend.endpoint, pair), IMPATIENT),
                Backend("dead", "dead-*", Target(f"http://127.0.0.1:{unused.getsockname()[1]}", pair), IMPATIENT),
            ],
            SECTIONS,
            "faulty",
        )
        yield running
    wait_for("gauges at zero", lambda: gauges_at_zero(running), 10)
    assert running.stop() == 0
    log = running.process.stderr()
    assert "panicked" not in log and pair.secret_key not in log


def gauges_at_zero(gateway: Gateway) -> bool:
    try:
        gateway.assert_gauges_at_zero()
    except AssertionError:
        return False
    return True


@pytest.fixture(autouse=True)
def breaker_closed(faulty: Gateway) -> None:
    """A fault of the test before must not keep the backend out of use for this one."""
    wait_for("the backend is in use", lambda: one(faulty, "fine/probe").status == 200, 30)


def one(gateway: Gateway, key: str, **members: str) -> Part:
    return batch_get(gateway.s3, BUCKET, [{"Key": key, **members}]).parts[0]


def surrounded(gateway: Gateway, key: str, **members: str) -> Part:
    """The part of an entry between two good ones, which must not suffer from it."""
    entries: list[Entry] = [{"Key": f"fine/before-{key}"}, {"Key": key, **members}, {"Key": f"fine/after-{key}"}]
    before, part, after = batch_get(gateway.s3, BUCKET, entries).parts
    for good, entry in ((before, entries[0]), (after, entries[2])):
        assert (good.status, good.body) == (200, body_of(entry["Key"], SMALL))
    return part


RIGHT_IN_THE_END = {
    "cut-small": SMALL,
    "cut-small-weak": SMALL,
    "cut-small-thrice": SMALL,
    "cut-large": LARGE,
    "cut-large-thrice": LARGE,
    "503-then-fine": SMALL,
    "500-then-fine": SMALL,
    "hang-up-then-fine": SMALL,
    "silent-once": SMALL,
    "slow-down-burst": SMALL,
    "no-length-small": SMALL,
    "drip": SMALL,
    "hostile-headers": SMALL,
}


@pytest.mark.parametrize("fault", RIGHT_IN_THE_END)
def test_trouble_that_passes_ends_in_right_bytes(faulty: Gateway, fault: str) -> None:
    key = f"{fault}/passes"
    part = surrounded(faulty, key)
    assert part.status == 200, part
    assert part.body == body_of(key, RIGHT_IN_THE_END[fault])


@pytest.mark.parametrize("fault", ["500-then-fine", "503-then-fine", "cut-small"])
def test_what_is_tried_again_is_tried_over_a_new_connection(
    faulty: Gateway, backend: FaultyBackend, fault: str
) -> None:
    """Where the store's name has another address, that is where it leads."""
    key = f"{fault}/new-connection"
    for number in range(3):
        assert one(faulty, f"fine/kept-{number}").status == 200
    assert one(faulty, key).status == 200
    sockets = [seen.sock for seen in backend.requests(key)]
    assert len(sockets) > 1 and len(set(sockets)) == len(sockets), "each try has its own"


def test_a_body_goes_on_from_its_offset_pinned_by_its_etag(faulty: Gateway, backend: FaultyBackend) -> None:
    key = "cut-large/resumed"
    part = one(faulty, key, IfNoneMatch='"not-this"')
    assert part.body == body_of(key, LARGE)
    first, second = backend.requests(key)
    assert first.headers.get("if-none-match") == '"not-this"' and "range" not in first.headers
    assert second.headers["if-match"] == part.get("etag") and "if-none-match" not in second.headers
    offset = int(second.headers["range"].removeprefix("bytes=").split("-")[0])
    assert 0 < offset <= LARGE // 2
    assert second.headers.get("accept-encoding") in (None, "identity")


def test_a_range_goes_on_from_its_offset_too(faulty: Gateway, backend: FaultyBackend) -> None:
    key = "cut-large/range"
    first, last = 1000, LARGE - 1000
    part = one(faulty, key, Range=f"bytes={first}-{last}")
    assert part.status == 206 and part.get("content-range") == f"bytes {first}-{last}/{LARGE}"
    assert part.body == body_of(key, LARGE)[first : last + 1]
    assert len(backend.requests(key)) == 2


def test_an_object_that_changed_before_its_part_began_is_read_anew(faulty: Gateway, backend: FaultyBackend) -> None:
    key = "cut-small-changed/anew"
    part = one(faulty, key)
    last = len(backend.requests(key))
    assert last >= 2 and (part.status, part.body) == (200, body_of(key, SMALL, version=last))


# Where the entry stands in its batch. Those whose resumption lies come first, so that they stream from the beginning:
# one that was read ahead may be dropped and read anew.
BREAKS_THE_MESSAGE = {
    "cut-large-changing": 1,
    "cut-large-weak": 1,
    "resume-other-etag": 0,
    "resume-other-range": 0,
    "resume-other-total": 0,
    "resume-200": 0,
}


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("fault", BREAKS_THE_MESSAGE)
def test_what_cannot_be_resumed_breaks_the_message(faulty: Gateway, fault: str, http2: bool, tmp_path: Path) -> None:
    index = BREAKS_THE_MESSAGE[fault]
    broken_key = f"{fault}/breaks-{http2}"
    before = [f"fine/before-the-break-{i}" for i in range(index)]
    request = batch_request(faulty.s3, BUCKET, document([*before, broken_key, "fine/never-seen"]))
    answer = send_http2(faulty.s3, request, tmp_path) if http2 else send(faulty.s3, request)
    assert answer.status == 200 and answer.broken
    with pytest.raises(Broken):
        read_batch(answer)
    boundary = (answer.get("content-type") or "").rsplit("boundary=", 1)[1]
    assert f"--{boundary}--".encode() not in answer.body
    whole = [part.body for part in whole_parts(answer, boundary)]
    # A stream reset may overtake what was sent before it; over HTTP/1.1 nothing does.
    assert whole == [body_of(key, SMALL) for key in before] or (http2 and not whole)
    at = answer.body.find(b"content-id: <%d@" % index)
    assert at >= 0 or http2
    if at >= 0:
        begun = answer.body[answer.body.index(b"\r\n\r\n", at) + 4 :]
        versions = [body_of(broken_key, LARGE, version) for version in range(10)]
        assert any(body.startswith(begun) for body in versions), "what was sent is right as far as it goes"


def whole_parts(answer: Answer, boundary: str) -> list[Part]:
    """The parts that had come whole when the message broke."""
    found: list[Part] = []
    with pytest.raises(Broken):
        for part in read_parts(io.BytesIO(answer.body), boundary, answer.get("x-amz-request-id") or ""):
            found.append(part)
    return found


LIES = {
    "range-200": {"Range": "bytes=0-9"},
    "range-other": {"Range": "bytes=0-9"},
    "range-longer": {"Range": "bytes=0-9"},
    "range-length": {"Range": "bytes=0-9"},
    "range-missing": {"Range": "bytes=0-9"},
    "range-garbled": {"Range": "bytes=0-9"},
    "unasked-206": {},
    "no-length-large": {},
    "garbage": {},
}


@pytest.mark.parametrize("fault", LIES)
def test_a_lying_backend_is_a_bad_gateway(faulty: Gateway, fault: str) -> None:
    part = surrounded(faulty, f"{fault}/lie", **LIES[fault])
    assert (part.status, part.code) == (502, "BadGateway"), part


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [("503-always", {503}), ("silent", {504}), ("cut-small-always", {504})],
)
def test_trouble_that_stays_ends_at_the_deadline(faulty: Gateway, fault: str, statuses: set[int]) -> None:
    started = time.monotonic()
    part = surrounded(faulty, f"{fault}/stays")
    assert part.status in statuses, part
    assert time.monotonic() - started < ENTRY_DEADLINE_SECONDS * 2


def test_a_dead_backend_costs_about_one_deadline(faulty: Gateway) -> None:
    """Its entries, as many as the window reads at once, fail in about a deadline; those of another backend do not."""
    dead: list[Entry] = [{"Bucket": "dead-bucket", "Key": f"k{i}"} for i in range(12)]
    alive = [f"fine/beside-the-dead-{i}" for i in range(3)]
    started = time.monotonic()
    batch = batch_get(faulty.s3, BUCKET, [*dead, *alive])
    assert time.monotonic() - started < ENTRY_DEADLINE_SECONDS * 3
    assert {(part.status, part.code) for part in batch.parts[:12]} == {(503, "ServiceUnavailable")}
    assert [part.body for part in batch.parts[12:]] == [body_of(key, SMALL) for key in alive]
    lone = call(faulty.s3, "GET", "/dead-bucket/k")
    assert (lone.status, lone.get("retry-after")) == (503, "1"), lone
    assert lone.get("x-amz-request-id") == lone.xml("RequestId")


def test_a_bucket_without_a_route_is_a_part(faulty: Gateway) -> None:
    part, fine = batch_get(faulty.s3, BUCKET, [{"Bucket": "elsewhere", "Key": "k"}, "fine/after"]).parts
    assert (part.status, part.code, fine.status) == (404, "NoSuchBucket", 200)


# What the backend answers, and the code that the part then has.
ERRORS = {
    "404": (404, "NoSuchKey"),
    "404-odd-code": (404, "NoSuchKey"),
    "404-html": (404, "NoSuchKey"),
    "404-empty": (404, "NoSuchKey"),
    "404-delete-marker": (404, "NoSuchKey"),
    "403-own-code": (403, "InvalidObjectState"),
}


@pytest.mark.parametrize("fault", ERRORS)
def test_code_of_the_backend_in_words_of_ours(faulty: Gateway, fault: str) -> None:
    part = surrounded(faulty, f"{fault}/error")
    assert (part.status, part.code) == ERRORS[fault]
    assert BACKEND_SECRET.encode() not in part.body
    if fault == "404-delete-marker":
        assert (part.get("x-amz-delete-marker"), part.get("x-amz-version-id")) == ("true", "v7")


def test_headers_of_the_hop_and_forged_ones_stay_behind(faulty: Gateway) -> None:
    part = one(faulty, "hostile-headers/seen", Id="mine")
    names = [name for name, _ in part.headers]
    assert part.get("x-amz-meta-kept") == "yes"
    assert (part.get("batch-status"), part.get("batch-id")) == ("200", "mine")
    assert len(names) == len(set(names))
    gone = {
        "x-hop",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "te",
        "upgrade",
        "x-amz-id-2",
        "x-amz-request-id",
    }
    assert not gone & set(names)


def test_the_head_of_the_answer_does_not_wait_for_the_backend(faulty: Gateway) -> None:
    with socket.create_connection(faulty.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        started = time.monotonic()
        sock.sendall(batch_request(faulty.s3, BUCKET, document(["silent/head"])).raw())
        status, _ = read_head(stream)
        assert status == 200 and time.monotonic() - started < ENTRY_DEADLINE_SECONDS / 2


def test_completion_order_lets_the_fast_overtake_the_slow(faulty: Gateway) -> None:
    keys = ["fine/c0", "drip/c1", "fine/c2", "fine/c3"]
    batch = batch_get(faulty.s3, BUCKET, keys, Order="Completion")
    assert batch.parts[-1].index == 1
    assert {part.index: part.body for part in batch.parts} == {i: body_of(key, SMALL) for i, key in enumerate(keys)}


def test_a_plain_get_that_breaks_off_is_seen_to_break(faulty: Gateway) -> None:
    whole = call(faulty.s3, "GET", object_path(BUCKET, "fine-large/plain"))
    assert whole.body == body_of("fine-large/plain", LARGE)
    answer = call(faulty.s3, "GET", object_path(BUCKET, "cut-large-weak/plain"))
    assert answer.broken or answer.body == body_of("cut-large-weak/plain", LARGE)


def test_a_batch_of_many_faults_keeps_its_order(faulty: Gateway) -> None:
    faults = ["fine"] * 12 + ["cut-small", "404", "500-then-fine", "cut-large", "403-own-code", "hang-up-then-fine"]
    keys = [f"{faults[i * 7 % len(faults)]}/many-{i}" for i in range(180)]
    batch = batch_get(faulty.s3, BUCKET, keys, Summary=True)
    assert [part.index for part in batch.parts] == list(range(180))
    for part, key in zip(batch.parts, keys, strict=True):
        fault = key.split("/")[0]
        if fault in ERRORS:
            assert part.status == ERRORS[fault][0]
        else:
            assert (part.status, part.body) == (200, body_of(key, LARGE if fault == "cut-large" else SMALL)), key
    assert batch.summary is not None and batch.summary["Failed"] == 20


# Answers whose end cannot be seen


@pytest.mark.parametrize(
    "fault", ["http10-until-close", "http10-cut", "until-close", "until-close-cut", "until-close-empty"]
)
def test_an_answer_without_length_or_chunks_is_never_passed_on_as_whole(faulty: Gateway, fault: str) -> None:
    """It ends where the connection does, so a cut one looks whole: a client must not be told that it is."""
    lone = call(faulty.s3, "GET", object_path(BUCKET, f"{fault}/lone"))
    assert (lone.status, lone.xml("Code")) == (502, "BadGateway"), lone
    ranged = call(faulty.s3, "GET", object_path(BUCKET, f"{fault}/ranged"), {"Range": "bytes=0-9"})
    assert (ranged.status, ranged.xml("Code")) == (502, "BadGateway"), ranged
    part = surrounded(faulty, f"{fault}/part")
    assert (part.status, part.code) == (502, "BadGateway"), part


# White space that keeps a client waiting


@pytest.mark.parametrize("fault", ["completes-slowly", "completes-slowly-blank"])
def test_a_slow_completion_keeps_its_client_from_giving_up(faulty: Gateway, fault: str) -> None:
    """White space is passed on as it comes, and the address in the outcome is still the gateway's."""
    path = object_path(BUCKET, f"{fault}/upload")
    request = sign(faulty.s3, "POST", f"{path}?uploadId=u", {}, b"<CompleteMultipartUpload/>")
    with socket.create_connection(faulty.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
        started = time.monotonic()
        sock.sendall(request.raw())
        status, headers = read_head(stream)
        chunks = [(time.monotonic() - started, chunk) for chunk in read_chunks(stream)]
    assert status == 200 and ("content-length" not in {name.lower() for name, _ in headers})
    first_after = chunks[0][0]
    assert first_after < WAITING_SECONDS / 4, f"the first byte came after {first_after:.2f} s"
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(chunks)]
    assert max(pauses) < WAITING_SECONDS / 2, f"the longest silence was {max(pauses):.2f} s"
    body = b"".join(chunk for _, chunk in chunks)
    expected = COMPLETED.replace(b"http://10.9.8.7/b/k", (faulty.s3.endpoint + path).encode())
    assert body.endswith(expected) and not body.removesuffix(expected).removeprefix(DECLARATION).strip()


# A store that does not know us


@pytest.fixture(scope="module")
def distrusted(start_gateway: Callable[..., Gateway], backend: FaultyBackend, store: Target) -> Gateway:
    """A gateway whose own credentials no backend accepts."""
    wrong_secret = Credentials(store.credentials.access_key, "not-the-secret-of-the-gateway")
    stranger = Credentials("UNKNOWN-AT-THE-STORE", "secret-of-an-unknown-key")
    backends = [
        Backend("wrong-secret", "wrong-secret-*", store.with_credentials(wrong_secret)),
        Backend("unknown-key", "unknown-key-*", store.with_credentials(stranger)),
        Backend("talkative", "talkative-*", Target(backend.endpoint, stranger)),
    ]
    return start_gateway(backends, name="distrusted")


@pytest.mark.parametrize("name", ["wrong-secret", "unknown-key", "talkative"])
def test_a_store_that_refuses_our_credentials_is_a_bad_gateway(distrusted: Gateway, store: Target, name: str) -> None:
    """The client can do nothing about it and learns nothing of our keys; the operator learns which backend it is."""
    path = object_path(f"{name}-bucket", "403-signature/k")

    def warnings() -> int:
        lines = distrusted.process.stderr().splitlines()
        told = [line for line in lines if "the store refuses the gateway's credentials" in line]
        return sum("WARN" in line and re.search(rf'backend="?{name}\b', line) is not None for line in told)

    start = time.monotonic()
    for method, body in [("GET", b""), ("PUT", b"x"), ("DELETE", b"")] * 10:
        answer = call(distrusted.s3, method, path, {}, body)
        assert (answer.status, answer.xml("Code")) == (502, "BadGateway"), answer
        assert_says_nothing_of_us(answer.body, store)
        wait_for("a warning names the backend", lambda: warnings() > 0, 5)
    part = batch_get(distrusted.s3, f"{name}-bucket", ["403-signature/k"]).parts[0]
    assert (part.status, part.code) == (502, "BadGateway"), part
    assert_says_nothing_of_us(part.body, store)
    assert warnings() <= 1 + (time.monotonic() - start), "one a second at the most"
    assert "secret-of-an-unknown-key" not in distrusted.process.stderr()


def test_a_request_that_a_store_reads_differently_is_not_tried_again(
    start_gateway: Callable[..., Gateway], backend: FaultyBackend
) -> None:
    """A store that has just taken the gateway's key does not refuse the key: SDKs send nothing anew after a 403."""
    target = Target(backend.endpoint, Credentials("BACKENDKEY", "secret-of-the-backend"))
    running = start_gateway([Backend("particular", "b", target)], name="particular")
    answer = call(running.s3, "GET", "/b/403-signature/before")
    assert (answer.status, answer.xml("Code")) == (502, "BadGateway"), "not known yet"
    assert call(running.s3, "GET", "/b/fine/k").status == 200
    answer = call(running.s3, "GET", "/b/403-signature/odd")
    assert (answer.status, answer.xml("Code")) == (403, "SignatureDoesNotMatch"), answer
    assert "in another way" in (answer.xml("Message") or "") and BACKEND_SECRET.encode() not in answer.body


def assert_says_nothing_of_us(body: bytes, store: Target) -> None:
    for text in (
        "StringToSign",
        "AWSAccessKeyId",
        BACKEND_SECRET,
        store.credentials.access_key,
        "UNKNOWN-AT-THE-STORE",
    ):
        assert text.encode() not in body, body


def test_the_limit_halves_on_slow_down_and_not_on_other_failures(
    start_gateway: Callable[..., Gateway], backend: FaultyBackend
) -> None:
    """Alone and in a batch: a plea for pace is heeded, any other 503 is a failure and says nothing of pace."""
    target = Target(backend.endpoint, Credentials("BACKENDKEY", "secret-of-the-backend"))
    paced = start_gateway([Backend("paced", "faulty-*", target, "concurrency = 64")], SECTIONS, "paced")
    limit = partial(paced.metric, "batchgate_backend_permits_limit")
    assert limit() == 64
    assert call(paced.s3, "GET", f"/{BUCKET}/503-always/pace").status == 503
    assert limit() == 64
    lone = call(paced.s3, "GET", f"/{BUCKET}/slow-down-burst/pace-alone")
    assert (lone.status, lone.xml("Code"), limit()) == (503, "SlowDown", 32)
    time.sleep(0.6)  # A burst halves it once.
    part = batch_get(paced.s3, BUCKET, ["slow-down-burst/pace-batch"]).parts[0]
    assert (part.status, part.body) == (200, body_of("slow-down-burst/pace-batch", SMALL))
    assert 16 <= limit() < 32
