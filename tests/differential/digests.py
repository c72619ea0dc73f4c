"""Digests as S3 writes them. The CRCs that Python has not are pure and slow: for small bodies."""

import base64
import hashlib
import zlib
from collections.abc import Callable


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


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: _crc(_CRC32C, 32, data),
    "crc64nvme": lambda data: _crc(_CRC64NVME, 64, data),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "sha512": lambda data: hashlib.sha512(data).digest(),
    "md5": lambda data: hashlib.md5(data).digest(),
    "content-md5": lambda data: hashlib.md5(data).digest(),
}
# What goes by `x-amz-checksum-...`; of these, what is fast on megabytes, and what every store that knows checksums knows.
ALGORITHMS = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256", "sha512", "md5"]
FAST = ["crc32", "sha1", "sha256", "sha512", "md5"]
OLD = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"]


def header(algorithm: str) -> str:
    """The header, or trailer, that it goes by."""
    return "Content-MD5" if algorithm == "content-md5" else f"x-amz-checksum-{algorithm}"


def digest(algorithm: str, data: bytes) -> str:
    return base64.b64encode(_DIGESTS[algorithm](data)).decode()
