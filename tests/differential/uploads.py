"""Uploads in parts: single steps in any order and of any upload, and whole uploads with something odd about them."""

from hypothesis import strategies as st

from differential import digests, odd
from differential.drafts import (
    BODIES,
    Draw,
    likely_path,
    object_path,
    one_header,
    payload,
    rare,
    signing,
    source,
    story,
)
from differential.octets import Draft, Pairs

PART_BYTES_MIN = 5 << 20
_ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "none"]
_LIMITS = [
    "max-parts=1",
    "part-number-marker=1",
    "max-parts=0",
    "max-parts=x",
    "part-number-marker=x",
    "encoding-type=url",
]


def step(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """One step."""
    makers = [_create, _part, _part, _part, _part_copy, _complete, _complete, _abort, _list]
    upload = rare(draw, st.sampled_from(["{upload:0}", "{upload:1}", "none", ""]), "{upload:0}", 5)
    path = object_path(draw, [keys[0]])
    return [makers[draw(st.integers(0, len(makers) - 1))](draw, path, upload, keys)]


def whole(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """From its creation to its end and what is left of it."""
    path = likely_path(draw, keys)
    sent = draw(st.sampled_from([[1], [1], [1], [1], [2], [1, 2], [2, 1], [1, 1], [1, 2, 1], [3, 1], [10000]]))
    algorithm = rare(draw, st.sampled_from(digests.OLD), "", 2)
    headers: Pairs = (("x-amz-checksum-algorithm", algorithm.upper()),) if algorithm else ()
    if algorithm:
        headers += one_header(draw, "x-amz-checksum-type", ["FULL_OBJECT", "COMPOSITE"], 3)
    steps = [Draft("create-upload", "POST", path, "uploads", headers + draw(odd.METADATA), signing=signing(draw))]
    bodies = {}
    large = len(set(sent)) > 1 and algorithm in ("", *digests.FAST) and draw(st.integers(0, 2)) > 0
    for number in sent:
        last = number == max(sent)
        body = draw(st.sampled_from(BODIES)) if last or not large else b"p" * PART_BYTES_MIN
        bodies[number] = body
        query = f"partNumber={number}&uploadId={{upload:0}}"
        if draw(st.integers(1, 6)) == 6:
            steps.append(Draft("part", "PUT", path, query, **payload(draw, (), body)))
        else:
            steps.append(Draft("part", "PUT", path, query, body=body, checksum=algorithm))
    numbers = sorted(set(sent))
    if draw(st.integers(1, 5)) == 5:
        steps.append(_part_copy(draw, path, "{upload:0}", keys))
    between = draw(st.sampled_from(["", "", "", "list", "list", "list", "abort", "head"]))
    if between == "list":
        steps += [
            _list(draw, path, "{upload:0}", keys),
            Draft("list-uploads", "GET", "/{bucket}", "uploads", signing=signing(draw)),
        ]
    elif between == "abort":
        steps.append(_abort(draw, path, "{upload:0}", keys))
    elif between == "head":
        steps.append(Draft("head", "HEAD", path))
    wrong = draw(st.sampled_from(["", "", "", "", "", "", "", "reversed", "fewer", "more", "twice"]))
    numbers = {
        "": numbers,
        "reversed": numbers[::-1],
        "fewer": numbers[1:],
        "more": [*numbers, 7],
        "twice": numbers + numbers,
    }[wrong]
    vouched = algorithm if draw(st.booleans()) else ""
    headers = one_header(draw, "If-None-Match", ["*"], 6)
    steps.append(_completion(path, numbers, headers, rare(draw, st.just(True), False, 4), vouched, bodies))
    if draw(st.integers(1, 3)) == 3:
        steps.append(steps[-1])
    steps.append(Draft("head", "HEAD", path, rare(draw, st.sampled_from(["partNumber=1", "partNumber=2"]), "", 2)))
    return story(draw, steps)


def _create(draw: Draw, path: str, _upload: str, _keys: list[bytes]) -> Draft:
    headers = draw(odd.METADATA) + rare(draw, st.sampled_from(odd.OBJECT_HEADERS).map(lambda h: (h,)), (), 3)
    headers += one_header(draw, "x-amz-checksum-algorithm", _ALGORITHMS, 3)
    headers += one_header(draw, "x-amz-checksum-type", ["FULL_OBJECT", "COMPOSITE", "none"], 8)
    return Draft("create-upload", "POST", path, "uploads", headers, signing=signing(draw))


def _number(draw: Draw) -> str:
    return draw(st.sampled_from(["1", "1", "1", "2", "2", "3", "0", "10000", "10001", "x", ""]))


def _part(draw: Draw, path: str, upload: str, _keys: list[bytes]) -> Draft:
    body = rare(draw, st.just(b"p" * PART_BYTES_MIN), draw(st.sampled_from(BODIES)), 12)
    query = f"partNumber={_number(draw)}&uploadId={upload}"
    return Draft("part", "PUT", path, query, **payload(draw, draw(odd.stray(1)), body))


def _part_copy(draw: Draw, path: str, upload: str, keys: list[bytes]) -> Draft:
    headers = (("x-amz-copy-source", source(draw, keys)),)
    headers += one_header(draw, "x-amz-copy-source-range", odd.RANGES, 3)
    headers += rare(draw, odd.conditions("x-amz-copy-source-"), (), 3)
    query = f"uploadId={upload}&partNumber={_number(draw)}"
    return Draft("part-copy", "PUT", path, query, headers, signing=signing(draw))


def _complete(draw: Draw, path: str, upload: str, _keys: list[bytes]) -> Draft:
    numbers = draw(st.lists(st.integers(1, 3), max_size=3)) if draw(st.booleans()) else [1]
    parts = "".join(_listed(n, rare(draw, st.just("none"), f"{{part:{n}}}", 8)) for n in numbers)
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    headers = rare(draw, odd.conditions(), (), 5)
    headers += one_header(draw, "x-amz-mp-object-size", ["1", "11", "0", "x"], 10)
    return Draft("complete", "POST", path, f"uploadId={upload}", **payload(draw, headers, body))


def _completion(
    path: str, numbers: list[int], headers: Pairs, named: bool, algorithm: str, bodies: dict[int, bytes]
) -> Draft:
    """In a namespace or in none, with the checksums of the parts or without."""
    space = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"' if named else ""
    parts = ""
    for number in numbers:
        tag = f"Checksum{algorithm.upper()}"
        vouched = f"<{tag}>{digests.digest(algorithm, bodies.get(number, b''))}</{tag}>" if algorithm else ""
        parts += _listed(number, f"{{part:{number}}}", vouched)
    body = f"<CompleteMultipartUpload{space}>{parts}</CompleteMultipartUpload>".encode()
    return Draft("complete", "POST", path, "uploadId={upload:0}", headers, body)


def _listed(number: int, tag: str, more: str = "") -> str:
    return f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>{more}</Part>"


def _abort(draw: Draw, path: str, upload: str, _keys: list[bytes]) -> Draft:
    return Draft("abort", "DELETE", path, f"uploadId={upload}", signing=signing(draw))


def _list(draw: Draw, path: str, upload: str, _keys: list[bytes]) -> Draft:
    limits = rare(draw, st.sampled_from(_LIMITS), "", 2)
    return Draft("list-parts", "GET", path, odd.joined(f"uploadId={upload}", limits), signing=signing(draw))
