"""One request over HTTP/2 (RFC 9113) with prior knowledge, on a connection of its own, and the whole answer: just enough of
HPACK (RFC 7541) to read what does not use its dynamic table, which we forbid."""

import socket
import struct
from collections.abc import Iterator

from support import http2
from support.store import Target

from differential.exchange import TIMEOUT_SECONDS, Answer
from differential.octets import Octets

# What fits into the first window of any peer.
BODY_BYTES_MAX = 32 * 1024
_WINDOW = (1 << 31) - 1
_FRAME_BYTES_MAX = 16384
_PADDED, _PRIORITY = 8, 32
# Of one connection, and no fields of HTTP/2; nobody waits here.
_LEFT_OUT = ("host", "connection", "expect", "keep-alive", "transfer-encoding")
# How many bits each octet has in the code of Appendix B, which is canonical: in base 36, from octet 0 on.
_BITS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6ca"
    "d67777777777777777777777878djde6f56565666577666567655677777fbeds"
    "kmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmn"
    "qqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrq"
)
# Appendix A.
_STATIC: list[tuple[str, str]] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    *((name, "") for name in """accept-language accept-ranges accept access-control-allow-origin age allow authorization
    cache-control content-disposition content-encoding content-language content-length content-location content-range
    content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range
    if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization range referer
    refresh retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via
    www-authenticate""".split()),
]  # fmt: skip


def _codes() -> dict[tuple[int, int], int]:
    """Octets by the number and value of their bits."""
    out, code, before = {}, -1, 0
    for bits, octet in sorted((int(digit, 36), octet) for octet, digit in enumerate(_BITS)):
        code = code + 1 << bits - before if before else 0
        out[bits, code] = octet
        before = bits
    return out


_CODES = _codes()


def exchange(target: Target, request: Octets) -> Answer:
    """The answer, however it ends."""
    answer = Answer()
    with socket.create_connection(target.address, timeout=TIMEOUT_SECONDS) as sock, sock.makefile("rb") as stream:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = http2.frame(http2.SETTINGS, struct.pack(">HIHI", 1, 0, 4, _WINDOW))
        grown = http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", _WINDOW - 65535))
        ended = 0 if request.body else http2.END_STREAM
        head = http2.frame(http2.HEADERS, _fields(request), http2.END_HEADERS | ended, 1)
        pieces = [request.body[at : at + _FRAME_BYTES_MAX] for at in range(0, len(request.body), _FRAME_BYTES_MAX)]
        data = [http2.frame(http2.DATA, piece, 0, 1) for piece in pieces[:-1]]
        data += [http2.frame(http2.DATA, piece, http2.END_STREAM, 1) for piece in pieces[-1:]]
        try:
            sock.sendall(http2.PREFACE + own + grown + head + b"".join(data))
            while not _taken(http2.read_frame(stream), sock, answer):
                pass
        except (OSError, ValueError, IndexError, KeyError) as error:
            answer.broken = type(error).__name__
    return answer


def _fields(request: Octets) -> bytes:
    host = next(value for name, value in request.headers if name == "Host")
    fields = [(":method", request.method), (":scheme", "http"), (":authority", host), (":path", request.path)]
    fields += [(n.lower(), v.strip(" \t")) for n, v in request.headers if n.lower() not in _LEFT_OUT]
    return http2.encode(fields)


def _taken(frame: http2.Frame, sock: socket.socket, answer: Answer) -> bool:
    """Takes a frame in; whether it was the last."""
    if frame.kind == http2.SETTINGS and not frame.flags & 1:
        sock.sendall(http2.frame(http2.SETTINGS, flags=1))
    elif frame.kind == http2.PING and not frame.flags & 1:
        sock.sendall(http2.frame(http2.PING, frame.payload, 1))
    elif frame.kind == http2.GOAWAY:
        raise ConnectionError("sent away")
    elif frame.stream == 1 and frame.kind == http2.RST_STREAM:
        raise ConnectionError("reset")
    elif frame.stream == 1 and frame.kind == http2.HEADERS:
        if not frame.flags & http2.END_HEADERS or frame.flags & (_PADDED | _PRIORITY):
            raise ValueError("a head in a form that we do not read")
        fields = list(_decoded(frame.payload))
        status = int(fields[0][1])
        if status != 100:
            answer.status, answer.headers = status, fields[1:]
    elif frame.stream == 1 and frame.kind == http2.DATA:
        answer.body += frame.payload
    return frame.stream == 1 and bool(frame.flags & http2.END_STREAM)


def _decoded(block: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _number(block, at, 7)
            yield _STATIC[index - 1]
        elif first & 0xE0 == 0x20:
            _, at = _number(block, at, 5)
        else:
            index, at = _number(block, at, 6 if first & 0x40 else 4)
            name, at = (_STATIC[index - 1][0], at) if index else _text(block, at)
            value, at = _text(block, at)
            yield name, value


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value, at, shift = block[at] & most, at + 1, 0
    while value >= most:
        value += (block[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if block[at - 1] < 128:
            break
    return value, at


def _text(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    length, at = _number(block, at, 7)
    octets = block[at : at + length]
    if not coded:
        return octets.decode("latin-1"), at + length
    out, bits, code = bytearray(), 0, 0
    for octet in octets:
        for place in range(7, -1, -1):
            code, bits = code << 1 | octet >> place & 1, bits + 1
            if (bits, code) in _CODES:
                out.append(_CODES[bits, code])
                bits = code = 0
    return out.decode("latin-1"), at + length
