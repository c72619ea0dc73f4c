"""A draft of a request becomes the octets on the wire, signed by hand for whom it is sent to.

Path, query and headers go out exactly as drafted; only the signature reads them as S3 does: decoded once, encoded anew,
sorted. Headers are latin-1 text, one character for each octet.
"""

import base64
import hashlib
import hmac
import re
import urllib.parse
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from support.store import Target

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
# How the body is told in the signature.
SHA256, UNSIGNED, PRESIGNED = "sha256", "unsigned", "presigned"
STREAM, STREAM_TRAILER, STREAM_UNSIGNED_TRAILER = "stream", "stream-trailer", "stream-unsigned-trailer"
STREAMING = {
    STREAM: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    STREAM_TRAILER: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    STREAM_UNSIGNED_TRAILER: "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
}
ALGORITHMS = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Draft:
    """A request before it is known to whom it goes. `path` and `query` are raw. `{bucket}`, `{other}`, `{upload:N}`,
    `{version:N}` and `{etag:N}` stand for what only the twin knows."""

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
    # What is wrong with it: "", "sha256", "checksum", "chunk:N", "trailer", "secret", "key", "late".
    fault: str = ""
    expect: bool = False

    @property
    def reads(self) -> bool:
        """Whether the store stays as it is."""
        return self.method in ("GET", "HEAD")


@dataclass
class Octets:
    """A request on the wire. The body may wait for `100 Continue`."""

    head: bytes
    body: bytes
    method: str
    waits: bool


@dataclass
class _Signed:
    key: bytes
    stamp: str
    scope: str
    previous: str
    fault: str
    count: int = field(default=0)

    def next(self, algorithm: str, *hashes: str) -> str:
        text = "\n".join([algorithm, self.stamp, self.scope, self.previous, *hashes])
        self.previous = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        self.count += 1
        wrong = self.fault == f"chunk:{self.count}" or (self.fault == "trailer" and algorithm.endswith("TRAILER"))
        return "0" * 64 if wrong else self.previous


def write(draft: Draft, target: Target) -> Octets:
    """Signs a draft, whose placeholders are filled in, for `target`."""
    if draft.fault == "secret":
        target = target.with_credentials(replace(target.credentials, secret_key="wrong"))
    if draft.fault == "key":
        target = target.with_credentials(replace(target.credentials, access_key="NOBODY"))
    now = datetime.now(UTC)
    if draft.fault == "late":
        now = now.replace(year=now.year - 1)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{target.region}/s3/aws4_request"
    host = target.endpoint.removeprefix("http://")
    digest = checksum(draft.checksum, draft.body) if draft.checksum else ""
    if draft.fault == "checksum" and digest:
        digest = checksum(draft.checksum, draft.body + b"x")
    digest_name = "Content-MD5" if draft.checksum == "md5" else f"x-amz-checksum-{draft.checksum}"
    headers = [("Host", host), *draft.headers]
    if digest and not draft.trailer:
        headers.append((digest_name, digest))
    trailer = f"{digest_name}:{digest}\n" if digest and draft.trailer else ""
    length = len(draft.body)
    if draft.signing in STREAMING:
        headers.append(("x-amz-decoded-content-length", str(len(draft.body))))
        if trailer:
            headers.append(("x-amz-trailer", digest_name))
        length = _framed_length(draft, trailer)
    if draft.body or draft.method in ("PUT", "POST") or draft.signing in STREAMING:
        headers.append(("Content-Length", str(length)))
    if draft.expect:
        headers.append(("Expect", "100-continue"))
    payload = {SHA256: hashlib.sha256(draft.body).hexdigest(), **STREAMING}.get(draft.signing, "UNSIGNED-PAYLOAD")
    if draft.fault == "sha256" and draft.signing == SHA256:
        payload = hashlib.sha256(draft.body + b"x").hexdigest()
    key = _key(target, scope)
    query = draft.query
    if draft.signing == PRESIGNED:
        names = _signed_names(headers)
        credential = urllib.parse.quote(f"{target.credentials.access_key}/{scope}", safe="")
        query += ("&" if query else "") + (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={stamp}&X-Amz-Expires=300"
            f"&X-Amz-SignedHeaders={urllib.parse.quote(';'.join(names), safe='')}"
        )
        signature = _sign(draft, query, headers, names, payload, key, stamp, scope)
        query += f"&X-Amz-Signature={signature}"
    else:
        headers += [("x-amz-date", stamp), ("x-amz-content-sha256", payload)]
        names = _signed_names(headers)
        signature = _sign(draft, query, headers, names, payload, key, stamp, scope)
        credential = f"{target.credentials.access_key}/{scope}"
        signed = ";".join(names)
        headers.append(
            (
                "Authorization",
                f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}",
            )
        )
    body = draft.body
    if draft.signing in STREAMING:
        body = _framed(draft, trailer, _Signed(key, stamp, scope, signature, draft.fault))
        assert len(body) == length
    line = f"{draft.method} {draft.path}{'?' + query if query else ''} HTTP/1.1"
    head = "\r\n".join([line, *(f"{name}: {value}" for name, value in headers), "", ""]).encode("latin-1")
    return Octets(head, body, draft.method, draft.expect and bool(body))


def _key(target: Target, scope: str) -> bytes:
    key = f"AWS4{target.credentials.secret_key}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key


def _signed_names(headers: list[tuple[str, str]]) -> list[str]:
    names = {name.lower() for name, _ in headers}
    # As the SDKs do: what a proxy may change stays out of it.
    return sorted(n for n in names if n.startswith("x-amz-") or n in ("host", "content-md5", "content-type", "range"))


def _sign(
    draft: Draft,
    query: str,
    headers: list[tuple[str, str]],
    names: list[str],
    payload: str,
    key: bytes,
    stamp: str,
    scope: str,
) -> str:
    def value(name: str) -> str:
        return ",".join(re.sub("[ \t]+", " ", v.strip(" \t")) for n, v in headers if n.lower() == name)

    canonical = "\n".join(
        [
            draft.method,
            canonical_path(draft.path),
            canonical_query(query),
            *(f"{name}:{value(name)}" for name in names),
            "",
            ";".join(names),
            payload,
        ]
    )
    hashed = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def canonical_path(raw: str) -> str:
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(raw.encode("latin-1")), safe="/-_.~")


def canonical_query(raw: str) -> str:
    def recode(text: str) -> str:
        plain = text.replace("+", " ").encode("latin-1")
        return urllib.parse.quote(urllib.parse.unquote_to_bytes(plain), safe="-_.~")

    pairs = [piece.partition("=") for piece in raw.split("&") if piece]
    return "&".join(f"{name}={value}" for name, value in sorted((recode(n), recode(v)) for n, _, v in pairs))


def _chunks(draft: Draft) -> list[bytes]:
    return [draft.body[at : at + draft.chunk] for at in range(0, len(draft.body), draft.chunk)] + [b""]


def _framed_length(draft: Draft, trailer: str) -> int:
    signed = draft.signing != STREAM_UNSIGNED_TRAILER
    total = 2
    for chunk in _chunks(draft):
        total += (
            len(f"{len(chunk):x}")
            + 2
            + len(chunk)
            + (2 if chunk else 0)
            + (len(";chunk-signature=") + 64 if signed else 0)
        )
    if trailer:
        total += len(trailer) + 1
    if draft.signing == STREAM_TRAILER:
        total += len("x-amz-trailer-signature:\r\n") + 64
    return total


def _framed(draft: Draft, trailer: str, signed: _Signed) -> bytes:
    out = bytearray()
    for chunk in _chunks(draft):
        out += f"{len(chunk):x}".encode()
        if draft.signing != STREAM_UNSIGNED_TRAILER:
            digest = hashlib.sha256(chunk).hexdigest()
            out += f";chunk-signature={signed.next('AWS4-HMAC-SHA256-PAYLOAD', EMPTY_SHA256, digest)}".encode()
        out += b"\r\n" + chunk + (b"\r\n" if chunk else b"")
    out += trailer.replace("\n", "\r\n").encode()
    if draft.signing == STREAM_TRAILER:
        digest = hashlib.sha256(trailer.encode()).hexdigest()
        out += f"x-amz-trailer-signature:{signed.next('AWS4-HMAC-SHA256-TRAILER', digest)}\r\n".encode()
    return bytes(out + b"\r\n")


def _reflected(bits: int, polynomial: int) -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _reflected(32, 0x82F63B78)
_CRC64NVME = _reflected(64, 0x9A6C9329AC4BC9B5)


def _crc(table: list[int], bits: int, data: bytes) -> bytes:
    mask = (1 << bits) - 1
    value = mask
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return (value ^ mask).to_bytes(bits // 8, "big")


def checksum(algorithm: str, data: bytes) -> str:
    """A digest as S3 writes it. The pure CRCs are slow: for small bodies."""
    digest = {
        "crc32": lambda: zlib.crc32(data).to_bytes(4, "big"),
        "crc32c": lambda: _crc(_CRC32C, 32, data),
        "crc64nvme": lambda: _crc(_CRC64NVME, 64, data),
        "sha1": lambda: hashlib.sha1(data).digest(),
        "sha256": lambda: hashlib.sha256(data).digest(),
        "md5": lambda: hashlib.md5(data).digest(),
    }[algorithm]()
    return base64.b64encode(digest).decode()
