"""A draft of a request becomes the octets on the wire, signed by hand for whom it is sent to.

Path, query and headers go out exactly as drafted; only the signature reads them as S3 does. Headers are latin-1 text, one
character for each octet.
"""

import hashlib
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

from support.gateway import DOMAIN
from support.store import Target

from differential import digests, forms, sigv2
from differential.forms import Form
from differential.framing import Chain, framed
from differential.odd import quoted
from differential.sigv4 import EXPIRES_SECONDS, Headers, Signer

# How a request is signed, and its body with it.
SHA256, UNSIGNED, PRESIGNED, NOBODY = "sha256", "unsigned", "presigned", "nobody"
STREAM, STREAM_TRAILER, STREAM_UNSIGNED_TRAILER = "stream", "stream-trailer", "stream-unsigned-trailer"
V2, V2_PRESIGNED, FORM, V2_FORM = "v2", "v2-presigned", "form", "v2-form"
STREAMING = {
    STREAM: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    STREAM_TRAILER: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    STREAM_UNSIGNED_TRAILER: "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
}
OF_VERSION_2 = (V2, V2_PRESIGNED, V2_FORM)
# Where the bucket stands.
PATH, HOST = "path", "host"
# What can be wrong with whoever signs; the rest of the faults are of bodies.
SIGNER_FAULTS = ("secret", "key", "late", "early", "region")

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Draft:
    """A request before it is known to whom it goes. `path` and `query` are raw. `{bucket}`, `{missing}`, `{owner}`,
    `{upload:N}`, `{version:N}`, `{etag:N}`, `{part:N}` and `{token:N}` stand for what only the twin knows."""

    kind: str
    method: str
    path: str
    query: str = ""
    headers: Pairs = ()
    body: bytes = b""
    signing: str = SHA256
    chunk: int = 65536
    # An algorithm, and where its digest goes: as a header, or behind the body.
    checksum: str = ""
    trailer: bool = False
    # What is wrong with it: "", one of SIGNER_FAULTS, "sha256", "checksum", "chunk:N", "trailer", "length", "policy".
    fault: str = ""
    expect: bool = False
    style: str = PATH
    # Presigned, with the headers of S3 as parameters.
    hoisted: bool = False
    # Through the gateway over HTTP/2.
    http2: bool = False
    form: Form | None = None

    def __repr__(self) -> str:
        """Only what is not as in most requests."""
        told = [repr(getattr(self, name)) for name in ("kind", "method", "path", "query")]
        for one in fields(self)[4:]:
            value = getattr(self, one.name)
            if value != one.default:
                told.append(f"{one.name}={value!r}")
        return f"Draft({', '.join(told)})"

    @property
    def reads(self) -> bool:
        """Whether the store stays as it is."""
        return self.method in ("GET", "HEAD", "OPTIONS")


@dataclass
class Octets:
    """A request on the wire. The body may wait for `100 Continue`."""

    method: str
    path: str
    headers: Headers
    body: bytes
    waits: bool

    @property
    def head(self) -> bytes:
        line = f"{self.method} {self.path} HTTP/1.1"
        return "\r\n".join([line, *(f"{name}: {value}" for name, value in self.headers), "", ""]).encode("latin-1")


def write(draft: Draft, target: Target) -> Octets:
    """Signs a draft, whose placeholders are filled in, for `target`."""
    target, now = _signer(draft, target)
    signer = Signer(target, now)
    host, path = _address(draft, target)
    headers: Headers = [("Host", host), *draft.headers]
    body, query, trailer = draft.body, draft.query, ""
    if draft.form is not None:
        bucket = draft.path.split("/")[1]
        kind, body = forms.encoded(draft.form, bucket, body, target, now, draft.signing == V2_FORM, draft.fault)
        headers.append(("Content-Type", kind))
    if draft.checksum:
        name = digests.header(draft.checksum)
        digest = digests.digest(draft.checksum, draft.body + (b"x" if draft.fault == "checksum" else b""))
        if draft.trailer:
            trailer = f"{name}:{digest}\n"
            headers.append(("x-amz-trailer", name))
        else:
            headers.append((name, digest))
    if draft.signing in STREAMING:
        headers.append(("x-amz-decoded-content-length", str(len(draft.body) + (draft.fault == "length"))))
    if draft.signing == PRESIGNED:
        if draft.hoisted:
            query, headers = _hoisted(query, headers)
        query = signer.presigned(draft.method, path, query, headers, EXPIRES_SECONDS)
    elif draft.signing == V2_PRESIGNED:
        until = int(now.timestamp()) + EXPIRES_SECONDS
        query = sigv2.presigned(target, until, draft.method, _resource(draft), query, headers)
    elif draft.signing == V2:
        headers += sigv2.authorization(target, now, draft.method, _resource(draft), query, headers)
    elif draft.signing not in (FORM, V2_FORM, NOBODY):
        payload = STREAMING.get(draft.signing, "UNSIGNED-PAYLOAD")
        if draft.signing == SHA256:
            payload = hashlib.sha256(draft.body + (b"x" if draft.fault == "sha256" else b"")).hexdigest()
        added, signature = signer.authorization(draft.method, path, query, headers, payload)
        headers += added
        if draft.signing in STREAMING:
            chain = Chain(signer, signature, draft.fault) if draft.signing != STREAM_UNSIGNED_TRAILER else None
            body = framed(draft.body, draft.chunk, trailer, chain, draft.signing == STREAM_TRAILER)
    if body or draft.method in ("PUT", "POST"):
        headers.append(("Content-Length", str(len(body))))
    if draft.expect:
        headers.append(("Expect", "100-continue"))
    return Octets(draft.method, f"{path}?{query}" if query else path, headers, body, draft.expect and bool(body))


def _signer(draft: Draft, target: Target) -> tuple[Target, datetime]:
    """As whom, and when, with what is wrong about it."""
    now = datetime.now(UTC)
    if draft.fault == "secret":
        target = target.with_credentials(replace(target.credentials, secret_key="wrong"))
    if draft.fault == "key":
        target = target.with_credentials(replace(target.credentials, access_key="NOBODY"))
    if draft.fault == "region":
        target = replace(target, region="eu-none-1")
    # A day away: all stores agree that this is too far.
    return target, now + timedelta(days={"late": -1, "early": 1}.get(draft.fault, 0))


def _address(draft: Draft, target: Target) -> tuple[str, str]:
    """The host that is asked, and the path there."""
    if draft.style == PATH:
        return target.endpoint.removeprefix("http://"), draft.path
    bucket, slash, key = draft.path[1:].partition("/")
    return f"{bucket}.{DOMAIN}", f"/{key}" if slash else "/"


def _resource(draft: Draft) -> str:
    """The path as Version 2 signs it: in virtual-host style with the bucket before it."""
    bucket, slash, key = draft.path[1:].partition("/")
    return f"/{bucket}/{key}" if draft.style == HOST or slash else draft.path


def _hoisted(query: str, headers: Headers) -> tuple[str, Headers]:
    """The headers of S3 in the query, where SDKs write them."""
    moved = [(n, v) for n, v in headers if n.lower().startswith("x-amz-")]
    pieces = [query] if query else []
    pieces += [f"{name}={quoted(value.strip(' ').encode('latin-1'))}" for name, value in moved]
    return "&".join(pieces), [pair for pair in headers if pair not in moved]
