"""Requests signed by botocore and sent over plain sockets: what is signed and what is sent can be told apart.

Nothing is normalised on the way: the raw path and query are signed and sent as given.
"""

import hashlib
import hmac
import http.client
import re
import subprocess
import threading
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from botocore import auth as botocore_auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials

from support.store import Target

Headers = list[tuple[str, str]]
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


class _HeaderAuth(botocore_auth.S3SigV4Auth):
    """Signs the hash that the test chose instead of the body's."""

    def __init__(self, target: Target, payload_hash: str) -> None:
        super().__init__(_credentials(target), "s3", target.region)
        self._payload_hash = payload_hash

    def payload(self, request: AWSRequest) -> str:
        return self._payload_hash


class _QueryAuth(botocore_auth.S3SigV4QueryAuth):
    def __init__(self, target: Target, payload_hash: str, expires_seconds: int) -> None:
        super().__init__(_credentials(target), "s3", target.region, expires=expires_seconds)
        self._payload_hash = payload_hash

    def payload(self, request: AWSRequest) -> str:
        return self._payload_hash


def _credentials(target: Target) -> BotocoreCredentials:
    return BotocoreCredentials(target.credentials.access_key, target.credentials.secret_key)


@dataclass
class Request:
    """A signed request, ready to be sent or spoilt. `path` is raw and holds the query."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""

    @classmethod
    def framed(cls, method: str, path: str, host: str, headers: Iterable[tuple[str, str]], body: bytes) -> "Request":
        """With its Host first, and the body's length behind where a client says one."""
        request = cls(method, path, [("Host", host), *headers], body)
        return request.set("Content-Length", str(len(body))) if body or method in ("PUT", "POST") else request

    def set(self, name: str, value: str | None) -> "Request":
        """Replaces or (None) drops a header after signing."""
        self.headers = [(n, v) for n, v in self.headers if n.lower() != name.lower()]
        if value is not None:
            self.headers.append((name, value))
        return self

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def raw(self, version: str = "HTTP/1.1") -> bytes:
        """The bytes of the request as they go on the wire."""
        head = [f"{self.method} {self.path} {version}", *(f"{n}: {v}" for n, v in self.headers)]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self.body


@dataclass
class Answer:
    """A whole answer; `broken` says how its message broke off, if it did."""

    status: int
    headers: Headers
    body: bytes
    broken: str | None = None
    http2: bool = False
    _lower: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._lower = {n.lower(): v for n, v in self.headers}

    def get(self, name: str) -> str | None:
        return self._lower.get(name.lower())

    def xml(self, element: str) -> str | None:
        return xml_text(self.body, element)


def xml_text(document: bytes, element: str) -> str | None:
    """Text of a child of an `<Error>` document, which must parse; characters that XML 1.0 cannot hold are tolerated."""
    readable = re.sub(rb"&#x([0-9A-Fa-f]+);", lambda m: b"" if int(m[1], 16) < 32 else m[0], document)
    root = ElementTree.fromstring(readable)
    assert root.tag == "Error", document
    found = root.find(element)
    return None if found is None else found.text or ""


def quote_key(key: str) -> str:
    """A key as S3 clients write it into a path."""
    return urllib.parse.quote(key, safe="/-_.~")


def object_path(bucket: str, key: str, query: str = "") -> str:
    return f"/{bucket}/{quote_key(key)}" + (f"?{query}" if query else "")


def sign(
    target: Target,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    payload_hash: str | None = None,
    host: str | None = None,
) -> Request:
    """Signs in the header. `payload_hash` stands in for the body's own; `host` for the endpoint's address."""
    host = host or target.endpoint.removeprefix("http://")
    signed = AWSRequest(method, f"http://{host}{path}", dict(headers or {}), body)
    _HeaderAuth(target, payload_hash or hashlib.sha256(body).hexdigest()).add_auth(signed)
    return Request.framed(method, path, host, [(n, str(v)) for n, v in signed.headers.items()], body)


def presign(
    target: Target,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    payload_hash: str = UNSIGNED_PAYLOAD,
    expires_seconds: int = 60,
) -> Request:
    """Signs in the query; `headers` become signed headers."""
    host = target.endpoint.removeprefix("http://")
    # Without the body, which botocore would take for the parameters of a query.
    signed = AWSRequest(method, f"http://{host}{path}", dict(headers or {}))
    _QueryAuth(target, payload_hash, expires_seconds).add_auth(signed)
    path = str(signed.url).removeprefix(f"http://{host}")
    return Request.framed(method, path, host, (headers or {}).items(), body)


_connections = threading.local()


def send(target: Target, request: Request, timeout: float = 60) -> Answer:
    """Sends over a kept connection of this thread; a kept one that has gone stale is replaced once."""
    pool: dict[tuple[str, int], http.client.HTTPConnection] = _connections.__dict__.setdefault("pool", {})
    kept = pool.pop(target.address, None)
    if kept is not None:
        try:
            return _exchange(pool, target, kept, request, timeout)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            kept.close()
    return _exchange(pool, target, http.client.HTTPConnection(*target.address), request, timeout)


def _exchange(
    pool: dict[tuple[str, int], http.client.HTTPConnection],
    target: Target,
    connection: http.client.HTTPConnection,
    request: Request,
    timeout: float,
) -> Answer:
    connection.timeout = timeout
    if connection.sock is not None:
        connection.sock.settimeout(timeout)
    response = open_stream(connection, request)
    pieces: list[bytes] = []
    broken = None
    try:
        while piece := response.read(1 << 16):
            pieces.append(piece)
        if request.method != "HEAD" and response.length:
            broken = f"{response.length} bytes missing"
    except http.client.IncompleteRead as error:
        pieces.append(error.partial)
        broken = repr(error)
    except OSError as error:
        broken = repr(error)
    if broken is None and not response.will_close:
        pool[target.address] = connection
    else:
        connection.close()
    return Answer(response.status, response.getheaders(), b"".join(pieces), broken)


def open_stream(connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
    """Sends and gives the response as soon as its head is there."""
    connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers:
        connection.putheader(name, value)
    connection.endheaders(request.body or None)
    return connection.getresponse()


def call(target: Target, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """Sign and send."""
    return send(target, sign(target, method, path, headers, body))


def send_http2(target: Target, request: Request, folder: Path) -> Answer:
    """The same request over HTTP/2 with prior knowledge, by curl."""
    (folder / "request").write_bytes(request.body)
    argv = ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--path-as-is", "--max-time", "60"]
    argv += ["--request", request.method, "--dump-header", "head", "--output", "answer"]
    for name, value in request.headers:
        argv += ["--header", f"{name}: {value}"]
    if request.body:
        argv += ["--data-binary", "@request"]
    (folder / "head").write_bytes(b"")
    (folder / "answer").write_bytes(b"")
    done = subprocess.run(
        [*argv, target.endpoint + request.path], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    head = (folder / "head").read_bytes().decode("latin-1")
    assert head.startswith("HTTP/"), f"curl ended with {done.returncode} before an answer: {done.stderr}"
    status_line, *lines = head.strip().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    broken = done.stderr if done.returncode else None
    body = (folder / "answer").read_bytes()
    return Answer(int(status_line.split()[1]), headers, body, broken, http2=status_line.startswith("HTTP/2"))


def aws_chunked(chunks: Iterable[bytes], trailer: Mapping[str, str] | None = None) -> bytes:
    """Unsigned aws-chunked framing with an optional trailer."""
    out = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    lines = "".join(f"{name}:{value}\r\n" for name, value in (trailer or {}).items())
    return out + b"0\r\n" + lines.encode() + b"\r\n"


def chunk_signatures(request: Request, target: Target) -> Callable[..., str]:
    """The signatures of chunks and a trailer, each of which goes on from the one before, the first from the head's."""
    authorization, timestamp = request.get("Authorization") or "", request.get("X-Amz-Date") or ""
    scope = f"{timestamp[:8]}/{target.region}/s3/aws4_request"
    key = f"AWS4{target.credentials.secret_key}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    previous = authorization.rsplit("Signature=", 1)[1]

    def next_signature(algorithm: str, *hashes: str) -> str:
        nonlocal previous
        text = "\n".join([algorithm, timestamp, scope, previous, *hashes])
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        return previous

    return next_signature


def signed_chunks(
    target: Target, path: str, chunks: Iterable[bytes], trailer: Mapping[str, str] | None = None
) -> Request:
    """A PUT in signed aws-chunks, with a signed trailer if one is given."""
    parts = [*chunks, b""]
    length = sum(len(part) for part in parts)
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
    headers = {"x-amz-decoded-content-length": str(length), "Content-Encoding": "aws-chunked"}
    if trailer:
        headers["x-amz-trailer"] = ",".join(trailer)
    request = sign(target, "PUT", path, headers, payload_hash=kind)
    next_signature = chunk_signatures(request, target)
    for part in parts:
        digest = hashlib.sha256(part).hexdigest()
        signature = next_signature("AWS4-HMAC-SHA256-PAYLOAD", EMPTY_SHA256, digest)
        request.body += b"%x;chunk-signature=%s\r\n" % (len(part), signature.encode())
        request.body += part + b"\r\n" if part else b""
    if trailer:
        lines = "".join(f"{name}:{value}\n" for name, value in trailer.items())
        digest = hashlib.sha256(lines.encode()).hexdigest()
        signature = next_signature("AWS4-HMAC-SHA256-TRAILER", digest)
        request.body += lines.replace("\n", "\r\n").encode() + f"x-amz-trailer-signature:{signature}\r\n".encode()
    request.body += b"\r\n"
    return request.set("Content-Length", str(len(request.body)))
