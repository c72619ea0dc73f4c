"""What the makers of requests have in common: paths, signatures, bodies and what vouches for them, and how a finished
request is dressed: in which style, over which HTTP, signed how, and with what wrong about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from differential import digests, http2, odd
from differential.octets import (
    FORM,
    HOST,
    NOBODY,
    PRESIGNED,
    SHA256,
    SIGNER_FAULTS,
    STREAM,
    STREAM_TRAILER,
    STREAM_UNSIGNED_TRAILER,
    STREAMING,
    UNSIGNED,
    V2,
    V2_FORM,
    V2_PRESIGNED,
    Draft,
    Pairs,
)

Draw = Callable[[st.SearchStrategy], object]
BODIES = [b"", b"a", b"hello world", bytes(range(256)) * 3, b"z" * 70_000, b"0\r\n\r\n"]
_SMALL_BYTES = 100_000


@dataclass(frozen=True)
class Known:
    """What a store, and the gateway before it, let in beside the rest."""

    sigv2: bool = False
    anonymous: bool = False


def rare(draw: Draw, what: st.SearchStrategy, otherwise: object, one_in: int = 4) -> object:
    return draw(what) if draw(st.integers(1, one_in)) == one_in else otherwise


def one_header(draw: Draw, name: str, values: list[str], one_in: int) -> Pairs:
    return rare(draw, st.sampled_from(values).map(lambda value: ((name, value),)), (), one_in)


def object_path(draw: Draw, keys: list[bytes]) -> str:
    key = draw(st.sampled_from(keys))
    return "/{bucket}/" + odd.spell(key, draw(st.sampled_from(odd.SPELLINGS)))


def likely_path(draw: Draw, keys: list[bytes]) -> str:
    """Of an object that most stores can hold, more often than not."""
    return "/{bucket}/k" if draw(st.integers(0, 2)) else object_path(draw, keys)


def version(draw: Draw) -> str:
    some = [
        "versionId={version:0}",
        "versionId={version:1}",
        "versionId={version:2}",
        "versionId=null",
        "versionId=",
        "versionId=none",
        "versionId={version:0}&versionId=null",
    ]
    return rare(draw, st.sampled_from(some), "", 6)


def source(draw: Draw, keys: list[bytes]) -> str:
    """Of a copy."""
    key = odd.spell(draw(st.sampled_from(keys)), draw(st.sampled_from(odd.SPELLINGS)))
    bucket = draw(
        st.sampled_from(
            ["{bucket}", "/{bucket}", "/{bucket}", "/{bucket}", "/{bucket}", "{bucket}", "{bucket}", "{missing}"]
        )
    )
    return f"{bucket}/{key}" + rare(
        draw, st.sampled_from(["?versionId={version:0}", "?versionId=null", "?versionId="]), "", 5
    )


def signing(draw: Draw) -> str:
    return draw(st.sampled_from([SHA256, SHA256, SHA256, UNSIGNED, PRESIGNED]))


def payload(draw: Draw, headers: Pairs, body: bytes) -> dict:
    """How the body is signed and what vouches for it, right or wrong."""
    how = draw(st.sampled_from([SHA256, SHA256, UNSIGNED, PRESIGNED, STREAM, STREAM_TRAILER, STREAM_UNSIGNED_TRAILER]))
    algorithms = [*digests.OLD, *digests.ALGORITHMS] if len(body) <= _SMALL_BYTES else digests.FAST
    algorithm = draw(st.sampled_from(["", "", "", "", "content-md5", "content-md5", *algorithms]))
    trailer = how in (STREAM_TRAILER, STREAM_UNSIGNED_TRAILER)
    if trailer:
        algorithm = draw(st.sampled_from(algorithms))
        if draw(st.booleans()):
            headers += (("x-amz-sdk-checksum-algorithm", algorithm.upper()),)
        if how == STREAM_UNSIGNED_TRAILER and draw(st.integers(1, 12)) == 12:
            algorithm, trailer = "", False
    coded = any(name.lower() == "content-encoding" for name, _ in headers)
    if how in STREAMING and not coded and draw(st.booleans()):
        headers += (
            ("Content-Encoding", draw(st.sampled_from(["aws-chunked", "aws-chunked,gzip", "gzip,aws-chunked"]))),
        )
    faults = ["sha256"] if how == SHA256 else []
    faults += ["checksum"] if algorithm else []
    faults += ["chunk:1", "chunk:2"] if how in (STREAM, STREAM_TRAILER) else []
    faults += ["trailer"] if how == STREAM_TRAILER else []
    faults += ["length"] if how in STREAMING else []
    return {
        "headers": headers,
        "body": body,
        "signing": how,
        "chunk": draw(st.sampled_from([65536, 8192])),
        "checksum": algorithm,
        "trailer": trailer,
        "fault": rare(draw, st.sampled_from(faults), "", 6) if faults else "",
        "expect": rare(draw, st.just(True), False, 6),
    }


def story(draw: Draw, drafts: list[Draft]) -> list[Draft]:
    """Requests that belong together, of which one is left out now and then, in any case where it is not needed."""
    return [draft for draft in drafts if draw(st.integers(0, 9)) > 0]


# The most are as they were made. The first is the plainest.
_DRESSES = [frozenset(dress.split()) for dress in [
    *[""] * 9, *["host"] * 4, *["http2"] * 2, "host http2", *["presigned"] * 2, "host presigned", *[V2] * 2, V2_PRESIGNED,
    f"host {V2}", f"host {V2_PRESIGNED}", "nobody", "nobody host", "fault",
]]  # fmt: skip


def dressed(draw: Draw, draft: Draft, known: Known) -> Draft:
    """The same request, worn in another way."""
    dress = draw(st.sampled_from(_DRESSES))
    plain = draft.signing in (SHA256, UNSIGNED, PRESIGNED)
    if "host" in dress and draft.path.startswith("/{bucket}"):
        draft = replace(draft, style=HOST)
    if "http2" in dress and len(draft.body) * 2 <= http2.BODY_BYTES_MAX:
        draft = replace(draft, http2=True, expect=False)
    if plain and "presigned" in dress:
        draft = replace(draft, signing=PRESIGNED)
    if known.sigv2 and dress & {V2, V2_PRESIGNED}:
        if draft.signing == FORM:
            draft = replace(draft, signing=V2_FORM)
        elif plain:
            draft = replace(draft, signing=V2 if V2 in dress else V2_PRESIGNED)
    if known.anonymous and plain and "nobody" in dress:
        draft = replace(draft, signing=NOBODY)
    if "fault" in dress and draft.signing != NOBODY and draw(st.booleans()):
        draft = replace(draft, fault=draw(st.sampled_from(SIGNER_FAULTS)))
    if draft.signing != SHA256 and draft.fault == "sha256":
        draft = replace(draft, fault="")
    if draft.signing == PRESIGNED and any(name.lower().startswith("x-amz-") for name, _ in draft.headers):
        draft = replace(draft, hoisted=draw(st.booleans()))
    return draft
