"""A backend that lies, breaks off and stalls, one fault for each key.

It speaks just enough HTTP/1.1 on bare sockets to send what no honest server would. A key is `FAULT` or `FAULT/anything`;
state is counted for each whole path, so that a fault that happens once is over at the second attempt. Signatures are not
looked at. Every request is remembered in `seen`.
"""

import hashlib
import random
import re
import socket
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from support.listener import Head, HttpListener

SMALL, LARGE = 100_000, 5 << 20
BACKEND_SECRET = "words-of-the-backend-that-clients-never-see"


def body_of(key: str, size: int, version: int = 0) -> bytes:
    """The right bytes of an object."""
    return random.Random(f"{key} {version}").randbytes(size)


@dataclass
class Seen:
    """One request as the backend got it."""

    method: str
    key: str
    headers: dict[str, str]
    attempt: int
    sock: socket.socket

    def send(self, status: int, headers: dict[str, str], body: bytes = b"", cut_after: int | None = None) -> None:
        """Sends an answer; `content-length` is the body's unless given. With `cut_after` the connection breaks there."""
        headers = {"content-length": str(len(body)), "x-amz-request-id": "backend-id", "server": "faulty", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
        payload = b"" if self.method == "HEAD" else body if cut_after is None else body[:cut_after]
        self.sock.sendall(f"HTTP/1.1 {status} Faulty\r\n{lines}\r\n".encode() + payload)
        if cut_after is not None:
            raise ConnectionAbortedError

    def error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{BACKEND_SECRET}</Message></Error>"
        self.send(status, {"content-type": "application/xml"}, text.encode())

    def object(
        self, body: bytes, etag: str | None = None, cut_after: int | None = None, extra: dict[str, str] | None = None
    ) -> None:
        """What an honest store does with range and If-Match; then perhaps the connection breaks."""
        etag = etag or f'"{hashlib.md5(body).hexdigest()}"'
        wanted = self.headers.get("if-match")
        if wanted is not None and (wanted != etag or etag.startswith("W/")):
            return self.error(412, "PreconditionFailed")
        headers = {"etag": etag, "content-type": "application/octet-stream", "accept-ranges": "bytes", **(extra or {})}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if span is None:
            return self.send(200, headers, body, cut_after)
        first, last = int(span[1]), min(int(span[2] or len(body)), len(body) - 1)
        headers["content-range"] = f"bytes {first}-{last}/{len(body)}"
        self.send(206, headers, body[first : last + 1], cut_after)


Fault = Callable[[Seen], None]


ALWAYS = 1 << 30


def _cut(size: int, after: int, attempts: int = 1, weak: bool = False, changes: bool = False) -> Fault:
    """The first `attempts` answers break off `after` bytes; perhaps the object is another one at each attempt."""

    def fault(seen: Seen) -> None:
        body = body_of(seen.key, size, version=seen.attempt if changes else 0)
        etag = f'W/"{hashlib.md5(body).hexdigest()}"' if weak else None
        seen.object(body, etag, None if seen.attempt > attempts else after)

    return fault


def _first(count: int, fault: Fault) -> Fault:
    """The fault for the first answers, then all is well."""
    return lambda seen: fault(seen) if seen.attempt <= count else seen.object(body_of(seen.key, SMALL))


def _resume_lies(headers: dict[str, str], status: int = 206) -> Fault:
    """A large body breaks off, and the answer to each resumption is not what was asked for."""

    def fault(seen: Seen) -> None:
        body = body_of(seen.key, LARGE)
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        span = re.match(r"bytes=(\d+)-", seen.headers.get("range", ""))
        if span is None:
            return seen.send(200, {"etag": etag}, body, LARGE // 2)
        first = int(span[1]) if status == 206 else 0
        honest = {"etag": etag, "content-range": f"bytes {first}-{LARGE - 1}/{LARGE}"}
        seen.send(status, {**honest, **headers}, b"\0" * (LARGE - first))

    return fault


def _garbage(seen: Seen) -> None:
    seen.sock.sendall(b"220 this is not HTTP\r\n" * 20)
    raise ConnectionAbortedError


def _silent(_: Seen) -> None:
    time.sleep(30)
    raise ConnectionAbortedError


def _hang_up(_: Seen) -> None:
    raise ConnectionAbortedError


def _half_head(seen: Seen) -> None:
    seen.sock.sendall(b'HTTP/1.1 200 OK\r\netag: "half')
    raise ConnectionAbortedError


def _endless_head(seen: Seen) -> None:
    seen.sock.sendall(b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * (64 << 10) + b"\r\ncontent-length: 0\r\n\r\n")
    raise ConnectionAbortedError


def _closes_idle(seen: Seen) -> None:
    """An answer that says nothing of it, and then the connection is gone."""
    seen.object(body_of(seen.key, SMALL))
    raise ConnectionAbortedError


def _drip(seen: Seen) -> None:
    """A small object that takes about 1.5 s."""
    body = body_of(seen.key, SMALL)
    seen.sock.sendall(f'HTTP/1.1 200 OK\r\ncontent-length: {SMALL}\r\netag: "d"\r\n\r\n'.encode())
    for start in range(0, SMALL, SMALL // 10):
        time.sleep(0.15)
        seen.sock.sendall(body[start : start + SMALL // 10])


def _chunked(size: int) -> Fault:
    """An answer without a length."""

    def fault(seen: Seen) -> None:
        body = body_of(seen.key, size)
        head = b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\netag: "c"\r\n\r\n'
        seen.sock.sendall(head + b"%x\r\n%s\r\n0\r\n\r\n" % (size, body))

    return fault


def _pauses(seen: Seen) -> None:
    """An answer without a length that stays half of what it is."""
    half = body_of(seen.key, SMALL)[: SMALL // 2]
    seen.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(half), half))
    time.sleep(30)
    raise ConnectionAbortedError


def _until_close(version: str, sent: int) -> Fault:
    """An answer with neither length nor chunks, of which `sent` bytes come: whole or cut, it looks the same."""

    def fault(seen: Seen) -> None:
        body = body_of(seen.key, SMALL)[:sent]
        seen.sock.sendall(f'{version} 200 OK\r\netag: "u"\r\nconnection: close\r\n\r\n'.encode() + body)
        raise ConnectionAbortedError

    return fault


DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
COMPLETED = b"<CompleteMultipartUploadResult><Location>http://10.9.8.7/b/k</Location></CompleteMultipartUploadResult>"
WAITING_SECONDS = 2.0


def _completes_slowly(first: bytes) -> Fault:
    """An upload that is completed at length: `first`, white space for as long as it takes, then the outcome."""

    def fault(seen: Seen) -> None:
        def chunk(data: bytes) -> None:
            seen.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

        seen.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk(first)
        for _ in range(10):
            time.sleep(WAITING_SECONDS / 10)
            chunk(b" ")
        chunk(COMPLETED)
        seen.sock.sendall(b"0\r\n\r\n")

    return fault


def _completes_not(end: bytes) -> Fault:
    """A 200 whose body does not say that all is well: it goes on with `end` and then the connection is gone."""

    def fault(seen: Seen) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ntransfer-encoding: chunked\r\n\r\n"
        seen.sock.sendall(head + b"%x\r\n%s\r\n" % (len(DECLARATION), DECLARATION) + end)
        raise ConnectionAbortedError

    return fault


FAILED_LATE = b"<Error><Code>InternalError</Code><Message>it did not work out</Message></Error>"


def _refuses_our_signature(seen: Seen) -> None:
    """What S3 says to a wrong signature, with all that it says of whoever signed."""
    text = (
        f"<Error><Code>SignatureDoesNotMatch</Code><Message>{BACKEND_SECRET}</Message>"
        f"<AWSAccessKeyId>{BACKEND_SECRET}</AWSAccessKeyId><StringToSign>{BACKEND_SECRET}</StringToSign></Error>"
    )
    seen.send(403, {"content-type": "application/xml"}, text.encode())


def _hostile(seen: Seen) -> None:
    """Headers that must not reach the part, and one that must."""
    body = body_of(seen.key, SMALL)
    head = (
        'HTTP/1.1 200 OK\r\netag: "h"\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n'
        "proxy-authenticate: Basic\r\nte: trailers\r\nupgrade: h2c\r\nx-amz-id-2: backend\r\nx-amz-request-id: backend\r\n"
        "batch-status: 999\r\nbatch-id: forged\r\ncontent-id: <5@forged>\r\nx-amz-meta-kept: yes\r\n"
        f"content-length: {SMALL}\r\n\r\n"
    )
    seen.sock.sendall(head.encode() + body)


FAULTS: dict[str, Fault] = {
    "fine": lambda s: s.object(body_of(s.key, SMALL)),
    "fine-large": lambda s: s.object(body_of(s.key, LARGE)),
    "drip": _drip,
    "pauses": _pauses,
    "hostile-headers": _hostile,
    "no-length-small": _chunked(SMALL),
    "no-length-large": _chunked(LARGE),
    "http10-until-close": _until_close("HTTP/1.0", SMALL),
    "http10-cut": _until_close("HTTP/1.0", SMALL // 2),
    "until-close": _until_close("HTTP/1.1", SMALL),
    "until-close-cut": _until_close("HTTP/1.1", SMALL // 2),
    "until-close-empty": _until_close("HTTP/1.1", 0),
    "completes-slowly": _completes_slowly(DECLARATION),
    "completes-slowly-blank": _completes_slowly(b" "),
    # Bodies that break off.
    "cut-small": _cut(SMALL, SMALL // 2),
    "cut-small-changed": _cut(SMALL, SMALL // 2, changes=True),
    "cut-small-weak": _cut(SMALL, SMALL // 2, weak=True),
    "cut-small-thrice": _cut(SMALL, SMALL // 4, 3),
    "cut-small-always": _cut(SMALL, SMALL // 2, ALWAYS, weak=True),
    "cut-large": _cut(LARGE, LARGE // 2),
    "cut-large-thrice": _cut(LARGE, LARGE // 5, 3),
    "cut-large-changing": _cut(LARGE, LARGE // 2, ALWAYS, changes=True),
    "cut-large-weak": _cut(LARGE, LARGE // 2, ALWAYS, weak=True),
    "resume-other-etag": _resume_lies({"etag": '"another"'}),
    "resume-other-range": _resume_lies({"content-range": f"bytes 0-{LARGE // 2 - 1}/{LARGE}"}),
    "resume-other-total": _resume_lies({"content-range": f"bytes {LARGE // 2}-{LARGE - 1}/{LARGE + 9}"}),
    "resume-200": _resume_lies({"content-range": ""}, status=200),
    # Answers that lie.
    "range-200": lambda s: s.send(200, {"etag": '"r"'}, body_of(s.key, SMALL)),
    "range-other": lambda s: s.send(206, {"etag": '"r"', "content-range": f"bytes 5-14/{SMALL}"}, b"0123456789"),
    "range-longer": lambda s: s.send(206, {"etag": '"r"', "content-range": f"bytes 0-19/{SMALL}"}, b"0123456789" * 2),
    "range-length": lambda s: s.send(206, {"etag": '"r"', "content-range": f"bytes 0-9/{SMALL}"}, b"01234"),
    "range-missing": lambda s: s.send(206, {"etag": '"r"'}, b"0123456789"),
    "range-garbled": lambda s: s.send(206, {"etag": '"r"', "content-range": "bytes ten"}, b"0123456789"),
    "unasked-206": lambda s: s.send(206, {"etag": '"r"', "content-range": f"bytes 0-9/{SMALL}"}, b"0123456789"),
    "garbage": _garbage,
    # Trouble that passes, and trouble that stays.
    "503-then-fine": _first(2, lambda s: s.error(503, "ServiceUnavailable")),
    "500-then-fine": _first(1, lambda s: s.error(500, "InternalError")),
    "slow-down-burst": _first(3, lambda s: s.error(503, "SlowDown")),
    "hang-up-then-fine": _first(2, _hang_up),
    "hang-up-thrice": _first(3, _hang_up),
    "half-head-then-fine": _first(2, _half_head),
    "closes-idle": _closes_idle,
    "silent-once": _first(1, _silent),
    "hang-up": _hang_up,
    "half-head": _half_head,
    "endless-head": _endless_head,
    "completes-cut": _completes_not(b"30\r\n<CompleteMulti"),
    "completes-with-an-error": _completes_not(b"%x\r\n%s\r\n0\r\n\r\n" % (len(FAILED_LATE), FAILED_LATE)),
    "503-always": lambda s: s.error(503, "ServiceUnavailable"),
    "silent": _silent,
    "404": lambda s: s.error(404, "NoSuchKey"),
    "404-odd-code": lambda s: s.error(404, "No &lt;such&gt; thing"),
    "404-html": lambda s: s.send(404, {"content-type": "text/html"}, f"<p>{BACKEND_SECRET}".encode()),
    "404-empty": lambda s: s.send(404, {}),
    "404-delete-marker": lambda s: s.send(404, {"x-amz-delete-marker": "true", "x-amz-version-id": "v7"}),
    "403-signature": _refuses_our_signature,
    "403-own-code": lambda s: s.error(403, "InvalidObjectState"),
}

# What happens as soon as the head of a request is there; its body is never read.
EARLY_FAULTS: dict[str, Fault] = {
    "early-hang-up": _hang_up,
    "early-403": lambda s: s.error(403, "AccessDenied"),
    "early-503": lambda s: s.error(503, "ServiceUnavailable"),
}


class FaultyBackend(HttpListener):
    """The server; `stop` closes it and every connection. On a port of one that was stopped it is the same store again."""

    def __init__(self, port: int = 0) -> None:
        self.seen: list[Seen] = []
        self._attempts: Counter[str] = Counter()
        super().__init__(port=port)

    def requests(self, key: str) -> list[Seen]:
        with self._lock:
            return [seen for seen in self.seen if seen.key == key]

    def answer(self, head: Head, sock: socket.socket, stream: BinaryIO) -> None:
        key = urllib.parse.unquote(head.path.split("?")[0]).split("/", 2)[2]
        early = EARLY_FAULTS.get(key.split("/")[0])
        if early is None:
            head.body(stream)
        with self._lock:
            self._attempts[head.path] += 1
            seen = Seen(head.method, key, head.headers, self._attempts[head.path], sock)
            self.seen.append(seen)
        if early is not None:
            early(seen)
            raise ConnectionAbortedError
        FAULTS[key.split("/")[0]](seen)
