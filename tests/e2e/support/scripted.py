"""A store that says what a test tells it to, bytes and all: for answers that no honest server would give.

A test gives it a function for a bucket (`on`), which gets the request and returns the bytes of the answer. `CLOSE` behind
them hangs up. Signatures are not looked at. Every request is remembered.
"""

import re
import socket
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from support.listener import Head, HttpListener
from support.store import Credentials, Target


@dataclass
class Ask:
    """One request as the store got it. `number` counts those for its bucket, from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int

    @property
    def bucket(self) -> str:
        return urllib.parse.unquote(self.path.split("?")[0]).split("/")[1]

    @property
    def key(self) -> str:
        return urllib.parse.unquote(self.path.split("?")[0]).partition("/")[2].partition("/")[2]

    @property
    def query(self) -> dict[str, str]:
        pairs = urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True)
        return dict(pairs)

    @property
    def region(self) -> str:
        """The region that it is signed for."""
        scope = re.search(r"Credential=[^/]+/\d{8}/([^/]+)/s3/", self.headers["authorization"])
        assert scope, self.headers["authorization"]
        return scope[1]


Script = Callable[[Ask], bytes]
CLOSE = b"\0close\0"


def answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """An answer with the body's length, unless `headers` say another thing of it; an empty value leaves a header out."""
    all_headers = {"content-length": str(len(body)), "x-amz-request-id": "scripted", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items() if value)
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode("latin-1") + body


def error(status: int, code: str, members: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    text = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>words</Message>{members}</Error>"
    return answer(status, {"content-type": "application/xml", **(headers or {})}, text.encode())


class ScriptedStore(HttpListener):
    """The server; `stop` closes it and every connection."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.asked: list[Ask] = []
        self._scripts: dict[str, Script] = {}
        super().__init__(host)
        self.target = Target(self.endpoint, Credentials("SCRIPTEDKEY", "secret-of-the-scripted-store"))

    def on(self, bucket: str, script: Script) -> None:
        """What it says to requests for `bucket`; the empty name is that of `/`."""
        with self._lock:
            self._scripts[bucket] = script

    def of(self, bucket: str) -> list[Ask]:
        with self._lock:
            return [ask for ask in self.asked if ask.bucket == bucket]

    def answer(self, head: Head, sock: socket.socket, stream: BinaryIO) -> None:
        ask = Ask(head.method, head.path, head.headers, head.body(stream), 0)
        with self._lock:
            ask.number = 1 + sum(other.bucket == ask.bucket for other in self.asked)
            self.asked.append(ask)
            script = self._scripts[ask.bucket]
        said = script(ask)
        sock.sendall(said.removesuffix(CLOSE))
        if said.endswith(CLOSE):
            raise ConnectionAbortedError
