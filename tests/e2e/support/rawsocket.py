"""HTTP/1.1 answers read from a bare socket, strict about how a message ends, and clients that read nothing."""

import re
import socket
from collections.abc import Iterator
from typing import BinaryIO

from support.store import Target
from support.wire import Answer, Headers, Request


def read_head(stream: BinaryIO) -> tuple[int, Headers]:
    """Status and headers of the next answer; `ConnectionError` if the peer closed instead."""
    line = stream.readline()
    if not line:
        raise ConnectionError("closed before an answer")
    status = re.fullmatch(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n", line)
    assert status, line
    headers: Headers = []
    while (line := stream.readline()) != b"\r\n":
        assert line.endswith(b"\r\n"), line
        name, value = line[:-2].decode("latin-1").split(":", 1)
        headers.append((name, value.strip()))
    return int(status[1]), headers


def read_answer(stream: BinaryIO, method: str = "GET") -> Answer:
    """The next whole answer. `broken` is set if the message ends before its end."""
    status, headers = read_head(stream)
    answer = Answer(status, headers, b"")
    if status in (204, 304) or method == "HEAD":
        return answer
    if (answer.get("transfer-encoding") or "").lower() == "chunked":
        answer.body, answer.broken = _read_chunks(stream)
    elif (length := answer.get("content-length")) is not None:
        answer.body = stream.read(int(length))
        answer.broken = None if len(answer.body) == int(length) else "short body"
    else:
        answer.body = stream.read()
    return answer


def exchange(target: Target, *requests: bytes) -> list[Answer]:
    """Sends requests one by one over one connection; an answer is missing where the connection was closed cleanly."""
    answers = []
    with socket.create_connection(target.address, timeout=20) as sock, sock.makefile("rb") as stream:
        for raw in requests:
            sock.sendall(raw)
            answers.append(read_answer(stream, raw.split(b" ", 1)[0].decode()))
            if (answers[-1].get("connection") or "").lower() == "close":
                assert stream.read() == b""
                break
    return answers


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """An answer's chunks as they come, without the last, empty one; the head has been read."""
    while size := int(stream.readline(), 16):
        chunk = stream.read(size)
        assert len(chunk) == size and stream.readline() == b"\r\n"
        yield chunk
    assert stream.readline() == b"\r\n"


def _read_chunks(stream: BinaryIO) -> tuple[bytes, str | None]:
    body = bytearray()
    while True:
        try:
            line = stream.readline()
            size = int(line, 16)
            chunk = stream.read(size)
            ending = stream.readline()
        except (ValueError, OSError) as error:
            return bytes(body), repr(error)
        body += chunk
        if len(chunk) < size or ending != b"\r\n":
            return bytes(body), "cut inside a chunk"
        if size == 0:
            return bytes(body), None


def stalled(target: Target, request: Request) -> socket.socket:
    """Sends a request and leaves the reading to the caller; the small receive buffer is soon full."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sock.settimeout(20)
    sock.connect(target.address)
    sock.sendall(request.raw())
    return sock
