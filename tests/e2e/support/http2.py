"""Just enough of HTTP/2 (RFC 9113) to be a bad client of it: frames by hand, over prior knowledge."""

import socket
import struct
from dataclasses import dataclass
from typing import BinaryIO

from support.store import Target
from support.wire import Request

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


@dataclass
class Frame:
    """A frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(window: int = 65535) -> bytes:
    """The client's settings, with the window that each answer begins with (SETTINGS_INITIAL_WINDOW_SIZE)."""
    return frame(SETTINGS, struct.pack(">HI", 4, window))


def field_block(request: Request) -> bytes:
    """A request's head in HPACK (RFC 7541): literals, nothing indexed, nothing compressed."""
    host = request.get("host") or ""
    fields = [(":method", request.method), (":scheme", "http"), (":authority", host), (":path", request.path)]
    fields += [(name.lower(), value) for name, value in request.headers if name.lower() != "host"]
    return encode(fields)


def encode(fields: list[tuple[str, str]]) -> bytes:
    """Fields in their order, whatever they are."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: str) -> bytes:
    """A string of HPACK: its length with a prefix of seven bits, and its octets."""
    octets = text.encode("latin-1")
    if len(octets) < 127:
        return bytes([len(octets)]) + octets
    length, left = bytearray([127]), len(octets) - 127
    while left > 127:
        length.append(left % 128 + 128)
        left //= 128
    return bytes([*length, left]) + octets


def begin(target: Target, window: int = 65535) -> socket.socket:
    """A connection whose preface and settings have been sent."""
    sock = socket.create_connection(target.address, timeout=20)
    sock.sendall(PREFACE + settings(window))
    return sock


def ask(sock: socket.socket, request: Request, stream: int = 1) -> None:
    """Sends a whole request."""
    body = frame(DATA, request.body, END_STREAM, stream) if request.body else b""
    flags = END_HEADERS | (0 if body else END_STREAM)
    sock.sendall(frame(HEADERS, field_block(request), flags, stream) + body)


def read_frame(stream: BinaryIO) -> Frame:
    """The next frame; `ConnectionError` if the peer closed instead."""
    head = stream.read(9)
    if len(head) < 9:
        raise ConnectionError("closed between frames")
    kind, flags, number = struct.unpack(">BBI", head[3:])
    return Frame(kind, flags, number & 0x7FFFFFFF, stream.read(int.from_bytes(head[:3])))


def read_until(stream: BinaryIO, kind: int) -> Frame:
    """The next frame of a kind; others are left out."""
    while True:
        found = read_frame(stream)
        if found.kind == kind:
            return found
