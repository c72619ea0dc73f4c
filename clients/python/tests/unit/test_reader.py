"""The strict reader on octets of its own: what is whole is read whole however it arrives, all else is refused."""

import itertools
import random
import tracemalloc

import pytest
from wire import BOUNDARY, CLOSE, error_part, part, pieces, raw_part, read_all, summary

from batchgate._errors import BrokenOff, ProtocolError
from batchgate._reader import GATHER_BYTES_MIN, HEAD_BYTES_MAX, boundary_of, read_parts

ETAG = 'etag: "e"'
BODIES = [b"", b"x", b"\r\n--" + BOUNDARY + b"--\r\n", CLOSE, b"\r\n\r\n", random.Random(1).randbytes(5000)]
WHOLE = b"".join(part(i, body, ETAG) for i, body in enumerate(BODIES)) + CLOSE


@pytest.mark.parametrize("size", [1, 2, 7, 37, 4096, 1 << 20])
def test_bodies_that_look_like_delimiters_are_read_by_their_length(size: int) -> None:
    found = read_all(WHOLE, len(BODIES), size)
    assert found == [(i, 200, b'etag: "e"\r\n', body) for i, body in enumerate(BODIES)]


def test_every_cut_is_seen() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(BrokenOff):
            read_all(WHOLE[:end], len(BODIES), 997)


def test_prop_no_octet_can_be_added_or_removed() -> None:
    random_octets = random.Random(2)
    for _ in range(300):
        at = random_octets.randrange(len(WHOLE))
        # Inside of bodies and header values lengths decide; a changed length is always noticed.
        for spoilt in (WHOLE[:at] + WHOLE[at + 1 :], WHOLE[:at] + b"?" + WHOLE[at:]):
            try:
                found = read_all(spoilt, len(BODIES))
            except (BrokenOff, ProtocolError):
                continue
            assert [body for *_, body in found] == BODIES, "only what is not a body may have changed"


@pytest.mark.parametrize("size", [1 << 12, 1 << 16, 1 << 22])
@pytest.mark.parametrize("length", [GATHER_BYTES_MIN - 1, GATHER_BYTES_MIN, GATHER_BYTES_MIN * 3 + 5])
def test_large_bodies(length: int, size: int) -> None:
    bodies = [random.Random(length).randbytes(length), b"after", b""]
    found = read_all(b"".join(part(i, body) for i, body in enumerate(bodies)) + CLOSE, 3, size)
    assert [body for *_, body in found] == bodies


def test_a_part_is_given_as_soon_as_it_is_there() -> None:
    asked = []
    first = part(0, b"first")

    def read(bytes_max: int) -> bytes:
        asked.append(bytes_max)
        return first if len(asked) == 1 else b""

    parts = read_parts(read, BOUNDARY, 2)
    assert next(parts)[3] == b"first"
    assert len(asked) == 1, "nothing more was waited for"
    with pytest.raises(BrokenOff):
        next(parts)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Content-Id: <0@r>", "Batch-Status: 206", "ETag: e"],
        ["etag: e", "batch-status: 206", "content-id: <0@r>", "content-length: 2"],
        ["content-length: 2", "etag: e", "content-id: <0@r>", "batch-status: 206"],
    ],
)
def test_headers_come_in_any_order_and_case(lines: list[str]) -> None:
    ((index, status, others, body),) = read_all(raw_part(lines, b"hi") + CLOSE, 1, 3)
    assert (index, status, others.lower(), body) == (0, 206, b"etag: e\r\n", b"hi")


GOOD = ["content-length: 2", "content-id: <0@r>", "batch-status: 200"]


@pytest.mark.parametrize(
    "lines",
    [
        *([line for line in GOOD if line != left_out] for left_out in GOOD),
        *([*GOOD, twice] for twice in GOOD),
        [*GOOD, "Content-Length: 2"],
        [*GOOD, "etag:e"],
        [*GOOD, "no colon"],
        [*GOOD, ": v"],
        [*GOOD, "a b: v"],
        [*GOOD, "etag: a\nb"],
        [*GOOD, "etag: a\rb"],
        ["content-length: -2", *GOOD[1:]],
        ["content-length: +2", *GOOD[1:]],
        ["content-length: 02", *GOOD[1:]],
        ["content-length: 0x2", *GOOD[1:]],
        ["content-length:  2", *GOOD[1:]],
        ["content-length: " + "9" * 20, *GOOD[1:]],
        [GOOD[0], "content-id: 0@r", GOOD[2]],
        [GOOD[0], "content-id: <00@r>", GOOD[2]],
        [GOOD[0], "content-id: <-1@r>", GOOD[2]],
        [GOOD[0], "content-id: <0>", GOOD[2]],
        [*GOOD[:2], "batch-status: 99"],
        [*GOOD[:2], "batch-status: 600"],
        [*GOOD[:2], "batch-status: 2000"],
        [],
    ],
)
def test_bad_heads_are_refused(lines: list[str]) -> None:
    with pytest.raises(ProtocolError):
        read_all(raw_part(lines, b"hi") + CLOSE, 1)


TWO = part(0, b"a") + part(1, b"bb")
BOTH = [b"a", b"bb"]


@pytest.mark.parametrize(
    "octets",
    [
        b" " + TWO + CLOSE,
        b"preamble\r\n" + TWO + CLOSE,
        TWO + CLOSE + b"\r\n",
        TWO + CLOSE + TWO,
        TWO + CLOSE.replace(b"0", b"1"),
        TWO + part(2, b"", boundary=BOUNDARY[::-1]) + CLOSE,
        part(0, b"a", length=0) + part(1, b"bb") + CLOSE,
        part(0, b"a", length=2) + part(1, b"bb") + CLOSE,
        part(0, b"a") + part(1, b"bb", request_id="other") + CLOSE,
        part(0, b"a") + CLOSE,
        part(1, b"a") + part(0, b"bb") + CLOSE,
        part(0, b"a") + part(0, b"bb") + CLOSE,
        part(0, b"a") + part(2, b"bb") + CLOSE,
        TWO + part(2, b"") + CLOSE,
        CLOSE,
        TWO + summary(3, BOTH) + CLOSE,
        TWO + summary(2, BOTH, Delivered=1) + CLOSE,
        TWO + summary(2, BOTH, Bytes=4) + CLOSE,
        TWO + summary(2, BOTH, Omitted=1) + CLOSE,
        TWO + summary(2, BOTH, StoppedAt=1) + CLOSE,
        TWO + summary(2, BOTH) + summary(2, BOTH) + CLOSE,
        part(0, b"a") + summary(2, [b"a"]) + CLOSE,
        part(0, b"a") + summary(2, BOTH) + part(1, b"bb") + CLOSE,
        TWO + part("summary", b"[]") + CLOSE,
        TWO + part("summary", b"{") + CLOSE,
        TWO + part("summary", b"x", length=1 << 40) + CLOSE,
    ],
)
@pytest.mark.parametrize("size", [1, 4096])
def test_what_is_not_a_whole_batch_is_refused(octets: bytes, size: int) -> None:
    with pytest.raises(ProtocolError):
        read_all(octets, 2, size)


def test_a_head_without_end_is_refused_in_bounded_memory() -> None:
    endless = b"--" + BOUNDARY + b"\r\n" + b"a" * (2 * HEAD_BYTES_MAX)
    with pytest.raises(ProtocolError, match="octets"):
        list(read_parts(pieces(endless, 4096), BOUNDARY, 1))


def test_a_length_that_is_announced_costs_nothing_until_it_comes() -> None:
    with pytest.raises(BrokenOff):
        read_all(part(0, b"a", length=10**18), 1)


def test_a_large_body_is_in_memory_once() -> None:
    length = 32 << 20
    head, end = part(0, b"", length=length)[:-2], b"\r\n" + CLOSE
    body = itertools.chain([head], itertools.repeat(bytes(1 << 18), length >> 18), [end])
    tracemalloc.start()
    try:
        ((*_, data),) = read_parts(lambda _: next(body, b""), BOUNDARY, 1)
        assert len(data) == length
        # BytesIO grows by an eighth.
        assert tracemalloc.get_traced_memory()[1] < length * 1.2
    finally:
        tracemalloc.stop()


def test_omitted_entries_leave_gaps() -> None:
    octets = part(1, b"a") + part(4, b"bb") + summary(6, BOTH, Omitted=4, Failed=4) + CLOSE
    assert [index for index, *_ in read_all(octets, 6, on_error="Omit")] == [1, 4]
    nothing = summary(2, [], Omitted=2, Failed=2) + CLOSE
    assert read_all(nothing, 2, on_error="Omit") == []


@pytest.mark.parametrize(
    "octets",
    [
        part(1, b"a") + part(4, b"bb") + CLOSE,
        part(1, b"a") + part(4, b"bb") + summary(6, BOTH, Omitted=3) + CLOSE,
        part(4, b"a") + part(1, b"bb") + summary(6, BOTH, Omitted=4) + CLOSE,
        part(1, b"a") + part(1, b"bb") + summary(6, BOTH, Omitted=4) + CLOSE,
        part(1, b"a") + part(6, b"bb") + summary(6, BOTH, Omitted=4) + CLOSE,
    ],
)
def test_omitting_hides_nothing(octets: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_all(octets, 6, on_error="Omit")


def test_a_stop_ends_with_the_failed_entry() -> None:
    failed = error_part(1, 404, "NoSuchKey")
    length = len(failed.split(b"\r\n\r\n", 1)[1]) - 2
    stopped = part(0, b"a") + failed + summary(5, [b"a", b"x" * length], StoppedAt=1, Failed=1) + CLOSE
    assert [(index, status) for index, status, *_ in read_all(stopped, 5, on_error="Stop")] == [(0, 200), (1, 404)]
    for spoilt in (
        stopped.replace(b'"StoppedAt": 1', b'"StoppedAt": 0'),
        part(0, b"a") + failed + CLOSE,
        part(0, b"a") + failed + part(2, b"c") + CLOSE,
    ):
        with pytest.raises(ProtocolError):
            read_all(spoilt, 5, on_error="Stop")


def test_completion_order_is_any_order_once() -> None:
    octets = part(2, b"c") + part(0, b"a") + part(1, b"b")
    assert [index for index, *_ in read_all(octets + CLOSE, 3, order="Completion")] == [2, 0, 1]
    for spoilt in (octets + part(0, b"a"), part(0, b"a") + part(0, b"a") + part(1, b"b"), octets + part(3, b"")):
        with pytest.raises(ProtocolError):
            read_all(spoilt + CLOSE, 3, order="Completion")


def test_the_boundary_comes_from_the_content_type() -> None:
    assert boundary_of(f"multipart/mixed; boundary={BOUNDARY.decode()}") == BOUNDARY
    for other in ("", "multipart/mixed", "application/xml", "multipart/mixed; boundary=short"):
        with pytest.raises(ProtocolError):
            boundary_of(other)
