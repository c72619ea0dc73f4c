"""Bodies in chunks, as `aws-chunked` has them: signed one by one or not, with a checksum behind them or not."""

import hashlib

from differential.sigv4 import Signer

_NOTHING = hashlib.sha256(b"").hexdigest()


class Chain:
    """The signatures of a body's chunks, each over the one before. `fault` is `chunk:N` or `trailer` for a wrong one."""

    def __init__(self, signer: Signer, seed: str, fault: str) -> None:
        self._signer, self._previous, self._fault, self._count = signer, seed, fault, 0

    def chunk(self, data: bytes) -> str:
        self._count += 1
        signature = self._next("AWS4-HMAC-SHA256-PAYLOAD", _NOTHING, hashlib.sha256(data).hexdigest())
        return "0" * 64 if self._fault == f"chunk:{self._count}" else signature

    def trailer(self, text: str) -> str:
        signature = self._next("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(text.encode()).hexdigest())
        return "0" * 64 if self._fault == "trailer" else signature

    def _next(self, algorithm: str, *hashes: str) -> str:
        self._previous = self._signer.sign(
            "\n".join([algorithm, self._signer.stamp, self._signer.scope, self._previous, *hashes])
        )
        return self._previous


def framed(data: bytes, chunk_bytes: int, trailer: str, chain: Chain | None, trailer_is_signed: bool) -> bytes:
    """`trailer` is `name:value` and a line's end, or empty."""
    out = bytearray()
    for chunk in [*(data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)), b""]:
        out += f"{len(chunk):x}".encode()
        if chain:
            out += f";chunk-signature={chain.chunk(chunk)}".encode()
        out += b"\r\n" + chunk + (b"\r\n" if chunk else b"")
    out += trailer.replace("\n", "\r\n").encode()
    if chain and trailer_is_signed:
        out += f"x-amz-trailer-signature:{chain.trailer(trailer)}\r\n".encode()
    return bytes(out + b"\r\n")
