"""Uploads in every form that S3 knows, each made right and then spoilt at one place.

Framing and signatures of the chunks are written line by line, so that a test can change any of them without the others.
"""

import base64
import functools
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from support.store import Target
from support.wire import EMPTY_SHA256, UNSIGNED_PAYLOAD, Request, chunk_signatures, sign

# Forms of a body, by what `x-amz-content-sha256` says of it; `None` is its own hash.
FORMS: dict[str, str | None] = {
    "signed": None,
    "unsigned": UNSIGNED_PAYLOAD,
    "signed-chunks": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    "signed-trailer": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    "unsigned-trailer": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
}
TRAILERS = ["signed-trailer", "unsigned-trailer"]
SIGNED_CHUNKS = ["signed-chunks", "signed-trailer"]
CHUNKED = ["signed-chunks", *TRAILERS]

# XXHash of `data(length)`, by the reference implementation.
XXHASHES = {
    ("xxhash3", 0): "LQaABTjTlMI=",
    ("xxhash64", 0): "70bbN1HY6Zk=",
    ("xxhash128", 0): "maoG0wFHmNhgAcMkRo1Jfw==",
    ("xxhash3", 33): "2AoyJgAuAvg=",
    ("xxhash64", 33): "eRy+hX5/oAc=",
    ("xxhash128", 33): "plW+XgP+zYcI610hKArOlg==",
    ("xxhash3", 300_000): "RKnPaY5otxg=",
    ("xxhash64", 300_000): "B18vVLKPrcI=",
    ("xxhash128", 300_000): "2OFhxlw73LtEqc9pjmi3GA==",
}
ALGORITHMS = [
    "crc32", "crc32c", "crc64nvme", "sha1", "sha256", "sha512", "md5", "xxhash3", "xxhash64", "xxhash128",
]  # fmt: skip


@functools.cache
def data(length: int) -> bytes:
    """Bytes in which any two places differ somewhere near."""
    return bytes((i * 31 + i // 251) % 256 for i in range(length))


def _reflected_crc(body: bytes, polynomial: int, bits: int) -> bytes:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    crc = ones = (1 << bits) - 1
    for byte in body:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return (crc ^ ones).to_bytes(bits // 8, "big")


@functools.cache
def checksum(algorithm: str, body: bytes) -> str:
    """The base64 of a checksum, as its header carries it."""
    if algorithm.startswith("xxhash"):
        assert body == data(len(body)), "only of this is the hash known"
        return XXHASHES[algorithm, len(body)]
    if algorithm == "crc32":
        digest = zlib.crc32(body).to_bytes(4, "big")
    elif algorithm == "crc32c":
        digest = _reflected_crc(body, 0x82F63B78, 32)
    elif algorithm == "crc64nvme":
        digest = _reflected_crc(body, 0x9A6C9329AC4BC9B5, 64)
    else:
        digest = hashlib.new(algorithm, body).digest()
    return base64.b64encode(digest).decode()


@dataclass
class Chunk:
    """A chunk as it goes on the wire. What is signed is `signed`, which a test leaves alone when it changes `data`."""

    data: bytes
    size: str
    signature: str | None = None
    extension: str = ""
    line_end: bytes = b"\r\n"
    data_end: bytes = b"\r\n"

    def raw(self) -> bytes:
        signature = "" if self.signature is None else f";chunk-signature={self.signature}"
        line = f"{self.size}{signature}{self.extension}".encode() + self.line_end
        return line + (self.data + self.data_end if self.data else b"")


@dataclass
class Upload:
    """An upload in the making. `spoil_head` sees the headers before they are signed; once everything is signed,
    `spoil_chunks` sees the chunks and the final, empty one, `spoil_trailer` its lines, `spoil_raw` the framing."""

    form: str
    chunks: Sequence[bytes]
    algorithm: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    trailer_value: str | None = None
    signed_trailer: dict[str, str] | None = None
    spoil_head: Callable[[dict[str, str]], None] = lambda _headers: None
    spoil_chunks: Callable[[list[Chunk]], None] = lambda _chunks: None
    spoil_trailer: Callable[[list[str]], None] = lambda _lines: None
    spoil_raw: Callable[[bytes], bytes] = lambda raw: raw

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def request(self, target: Target, path: str) -> Request:
        headers = dict(self.headers)
        value = self.algorithm and (self.trailer_value or checksum(self.algorithm, self.body))
        name = f"x-amz-checksum-{self.algorithm}"
        if self.form in CHUNKED:
            headers["x-amz-decoded-content-length"] = str(len(self.body))
            headers.setdefault("Content-Encoding", "aws-chunked")
        if value and self.form in TRAILERS:
            headers["x-amz-trailer"] = name
        elif value:
            headers[name] = value
        self.spoil_head(headers)
        request = sign(target, "PUT", path, headers, self.body, FORMS[self.form])
        if self.form in CHUNKED:
            trailer = self.signed_trailer or ({name: value} if value and self.form in TRAILERS else {})
            request.body = self._framed(request, target, trailer)
            request.set("Content-Length", str(len(request.body)))
        return request

    def _framed(self, request: Request, target: Target, trailer: dict[str, str]) -> bytes:
        next_signature = chunk_signatures(request, target)
        chunks = [Chunk(part, f"{len(part):x}") for part in [*self.chunks, b""]]
        lines = [f"{name}:{value}" for name, value in trailer.items()]
        if self.form in SIGNED_CHUNKS:
            for chunk in chunks:
                digest = hashlib.sha256(chunk.data).hexdigest()
                chunk.signature = next_signature("AWS4-HMAC-SHA256-PAYLOAD", EMPTY_SHA256, digest)
        if self.form == "signed-trailer":
            digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
            lines.append(f"x-amz-trailer-signature:{next_signature('AWS4-HMAC-SHA256-TRAILER', digest)}")
        self.spoil_chunks(chunks)
        self.spoil_trailer(lines)
        raw = b"".join(chunk.raw() for chunk in chunks) + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"
        return self.spoil_raw(raw)
