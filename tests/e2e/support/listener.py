"""Servers on bare sockets, for what no honest server would do: connections, and requests that come over them as octets."""

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import BinaryIO


class Listener:
    """Serves each connection on a thread of its own; `stop` closes it and every connection. It listens from the end of
    `__init__` on, so what it serves with must be there before that."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.connections = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, port), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.authority = f"{host}:{self.port}"
        self.endpoint = f"http://{self.authority}"
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self, sock: socket.socket) -> None:
        """All that happens on one connection, which is closed behind it; an `OSError` ends it."""
        raise NotImplementedError

    def stop(self) -> None:
        # Closing alone would not wake whoever waits in it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(sock)
                self.connections += 1
            threading.Thread(target=self._served, args=(sock,), daemon=True).start()

    def _served(self, sock: socket.socket) -> None:
        try:
            with sock, contextlib.suppress(OSError):
                self.serve(sock)
        finally:
            with self._lock:
                self._open.discard(sock)


@dataclass
class Head:
    """The head of a request: the path is raw and holds the query, names of headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]

    def body(self, stream: BinaryIO) -> bytes:
        """The body behind it."""
        return stream.read(int(self.headers.get("content-length", 0)))


class HttpListener(Listener):
    """Just enough HTTP/1.1 to tell one request from the next."""

    def answer(self, head: Head, sock: socket.socket, stream: BinaryIO) -> None:
        """What is done with a request, whose body is still in `stream`; an `OSError` closes the connection."""
        raise NotImplementedError

    def serve(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as stream:
            while line := stream.readline():
                method, path, _ = line.decode("latin-1").split(" ", 2)
                headers: dict[str, str] = {}
                while (raw := stream.readline()) not in (b"\r\n", b""):
                    name, value = raw.decode("latin-1").split(":", 1)
                    headers[name.lower()] = value.strip()
                self.answer(Head(method, path, headers), sock, stream)
