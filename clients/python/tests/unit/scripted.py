"""An endpoint that answers by script: honest batches, cut batches, refusals. Signatures are looked at by nobody."""

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO

from wire import BOUNDARY, CLOSE, error_part, part, summary

import batchgate

CAPABILITIES = {"Version": 1, "Formats": ["multipart/mixed"], "Limits": {"Entries": 1000, "BodyBytes": 1 << 20}}


@dataclass
class Exchange:
    """One request, and how to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    sock: socket.socket
    connection: int

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.body)
        return told

    @property
    def keys(self) -> list[str]:
        return [entry["Key"] for entry in self.document["Objects"]]

    def send(
        self, status: int, headers: dict[str, str], body: bytes = b"", cut_after: int | None = None, chunk: int = 1000
    ) -> None:
        """A chunked answer; with `cut_after` the connection ends after so many octets of the body."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.sock.sendall(f"HTTP/1.1 {status} Scripted\r\ntransfer-encoding: chunked\r\n{lines}\r\n".encode())
        sent = body if cut_after is None else body[:cut_after]
        for at in range(0, len(sent), chunk):
            piece = sent[at : at + chunk]
            self.sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        if cut_after is not None:
            raise ConnectionAbortedError
        self.sock.sendall(b"0\r\n\r\n")

    def refuse(self, status: int, code: str, **headers: str) -> None:
        told = f"<Error><Code>{code}</Code><Message>so it is</Message><RequestId>r-1</RequestId></Error>"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(status, {"content-type": "application/xml", **named}, told.encode())

    def batch(self, body: bytes, cut_after: int | None = None, count: int | None = None) -> None:
        headers = {
            "content-type": f"multipart/mixed; boundary={BOUNDARY.decode()}",
            "batch-count": str(len(self.keys) if count is None else count),
        }
        self.send(200, headers, body, cut_after)


Answer = Callable[[Exchange], None]


def body_of(key: str) -> bytes:
    """What the endpoint holds under a key: longer for longer keys."""
    return key.encode() * 50


def parts_of(exchange: Exchange) -> list[bytes]:
    """The parts of an honest answer; a key that begins with `missing` is not there."""
    return [
        error_part(i, 404, "NoSuchKey") if key.startswith("missing") else part(i, body_of(key), 'etag: "e"')
        for i, key in enumerate(exchange.keys)
    ]


def honest(exchange: Exchange) -> None:
    """Under `Stop` it ends with the first entry that is not there."""
    parts = parts_of(exchange)
    if exchange.document["OnError"] == "Stop":
        missing = [i for i, key in enumerate(exchange.keys) if key.startswith("missing")]
        parts = parts[: missing[0] + 1] if missing else parts
        bodies = [part.split(b"\r\n\r\n", 1)[1][:-2] for part in parts]
        parts.append(summary(len(exchange.keys), bodies, StoppedAt=missing[0] if missing else None))
    exchange.batch(b"".join(parts) + CLOSE)


def cut(whole_parts: int, into_the_next: int = 10) -> Answer:
    """Breaks off in the middle of a part."""

    def answer(exchange: Exchange) -> None:
        parts = parts_of(exchange)
        exchange.batch(b"".join(parts), cut_after=sum(map(len, parts[:whole_parts])) + into_the_next)

    return answer


def hang_up(exchange: Exchange) -> None:
    raise ConnectionAbortedError


def refuse(status: int, code: str, **headers: str) -> Answer:
    return lambda exchange: exchange.refuse(status, code, **headers)


class Endpoint:
    """Gives each POST the next answer of the script, the last one for ever. GETs learn its capabilities, or an object. All
    of it is below `base_path`."""

    def __init__(
        self, *script: Answer, capabilities: Answer | None = None, objects: Answer | None = None, base_path: str = ""
    ) -> None:
        self._script = script
        self._base_path = base_path
        self._objects = objects
        self._capabilities = capabilities or (lambda e: e.send(200, {}, json.dumps(CAPABILITIES).encode()))
        self.posts: list[Exchange] = []
        self.gets: list[Exchange] = []
        self.connections = 0
        self.ended = threading.Semaphore(0)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{base_path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def client(self, **settings: Any) -> batchgate.Client:
        return batchgate.Client(
            endpoint_url=self.url,
            bucket="b",
            region_name="us-east-1",
            aws_access_key_id="AK",
            aws_secret_access_key="SK",
            **settings,
        )

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.close()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(sock)
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True).start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        try:
            with sock, sock.makefile("rb") as stream:
                while line := stream.readline():
                    self._answer(self._exchange(line.decode(), stream, sock, connection))
        except OSError:
            pass
        finally:
            self.ended.release()

    def _exchange(self, line: str, stream: BinaryIO, sock: socket.socket, connection: int) -> Exchange:
        method, path, _ = line.split(" ", 2)
        headers: dict[str, str] = {}
        while (raw := stream.readline()) not in (b"\r\n", b""):
            name, value = raw.decode("latin-1").split(":", 1)
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        return Exchange(method, path, headers, body, sock, connection)

    def _answer(self, exchange: Exchange) -> None:
        if exchange.path == f"{self._base_path}/?batch-get=":
            self.gets.append(exchange)
            self._capabilities(exchange)
        elif exchange.method == "GET":
            assert self._objects is not None, exchange.path
            self._objects(exchange)
        else:
            self.posts.append(exchange)
            self._script[min(len(self.posts), len(self._script)) - 1](exchange)
