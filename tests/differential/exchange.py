"""One kept connection to an endpoint: octets go out, a whole answer comes back, however it ends."""

import contextlib
import select
import socket
from dataclasses import dataclass, field
from typing import BinaryIO

from support.rawsocket import read_head
from support.store import Target
from support.wire import Headers

from differential.octets import Octets

TIMEOUT_SECONDS = 30
CONTINUE_SECONDS = 0.3


@dataclass
class Answer:
    """`status` is 0 if none came; `broken` says how the message ended otherwise than it should."""

    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    broken: str = ""
    continued: bool = False

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name), None)


class Connection:
    """Speaks to `target`; opens a new connection when the kept one is gone."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def close(self) -> None:
        if self._socket is not None and self._stream is not None:
            self._stream.close()
            self._socket.close()
        self._socket = self._stream = None

    def send(self, request: Octets) -> Answer:
        """The answer, over the kept connection if it still is one."""
        kept = self._socket is not None
        answer = self._exchange(request)
        if kept and answer.status == 0:
            # It was closed between two requests, or because of this one: a new connection tells.
            answer = self._exchange(request)
        return answer

    def _exchange(self, request: Octets) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(self.target.address, timeout=TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("rb")
        sock, stream = self._socket, self._stream
        assert stream is not None
        answer = Answer()
        keep = False
        try:
            # A store that refuses early may have closed before all of a body is gone; its answer is still there.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(request.head if request.waits else request.head + request.body)
            # A store that writes head and body one after another would wait for our delayed acknowledgement in between.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            sent = not request.waits
            if not sent and not select.select([sock], [], [], CONTINUE_SECONDS)[0]:
                # Who is not told to go on goes on after a while (RFC 9110 section 10.1.1).
                sock.sendall(request.body)
                sent = True
            answer.status, answer.headers = read_head(stream)
            while answer.status == 100:
                answer.continued = True
                if not sent:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        sock.sendall(request.body)
                    sent = True
                answer.status, answer.headers = read_head(stream)
            keep = _read_body(stream, request.method, answer) and sent
        except (OSError, AssertionError, ValueError) as error:
            answer.broken = type(error).__name__
        if not keep or (answer.get("connection") or "").lower() == "close":
            self.close()
        return answer


def _read_body(stream: BinaryIO, method: str, answer: Answer) -> bool:
    """Reads the body into the answer; whether the connection can be used again."""
    length = answer.get("content-length")
    if method == "HEAD":
        # Some stores send a body all the same; it must not be taken for the next answer.
        return False
    if answer.status in (204, 304):
        return True
    if (answer.get("transfer-encoding") or "").lower() == "chunked":
        body = bytearray()
        while True:
            size = int(stream.readline(), 16)
            body += stream.read(size)
            answer.body = bytes(body)
            if stream.readline() != b"\r\n":
                answer.broken = "chunks"
                return False
            if size == 0:
                return True
    if length is not None:
        answer.body = stream.read(int(length))
        answer.broken = "" if len(answer.body) == int(length) else "short"
        return not answer.broken
    answer.body = stream.read()
    return False
