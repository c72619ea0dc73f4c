"""A small store that can be told to be picky: it refuses, ignores or insists on what some real stores do.

It keeps objects in memory and looks at no signature, only at what the head says of one. Everything that it was asked is
in `seen`.
"""

import base64
import hashlib
import http.server
import re
import threading
import urllib.parse
from dataclasses import dataclass, field

SECRET_WORDS = "words-that-a-store-may-say-of-a-secret"
UNSIGNED = ("UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


@dataclass
class Whims:
    """What the store is picky about; nothing by default, but it knows no checksums."""

    refuses_trailers: bool = False
    needs_md5: bool = False
    refuses_unsigned: bool = False
    region: str | None = None
    keeps_framing: bool = False
    never_deletes: bool = False
    refuses_everyone: bool = False
    domain: str | None = None


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def decoded(body: bytes) -> bytes:
    """The data of an aws-chunked body."""
    out, at = b"", 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        if size == 0:
            return out
        out += body[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2


@dataclass
class PickyStore:
    """One bucket, of the name that is asked for."""

    whims: Whims
    objects: dict[str, bytes] = field(default_factory=dict)
    content_types: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                if len(body) < int(headers.get("content-length") or 0):
                    self.close_connection = True
                    return
                status, more, answer = store.answer(Seen(self.command, self.path, headers, body))
                self.send_response(status)
                for name, value in {"content-length": str(len(answer)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else answer)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def error(self, status: int, code: str, more: str = "") -> tuple[int, dict[str, str], bytes]:
        text = f"<Error><Code>{code}</Code><Message>{SECRET_WORDS}</Message>{more}</Error>"
        return status, {"content-type": "application/xml"}, text.encode()

    def answer(self, request: Seen) -> tuple[int, dict[str, str], bytes]:
        self.seen.append(request)
        whims, headers, body = self.whims, request.headers, request.body
        path, _, query = request.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        if whims.domain and headers["host"].partition(".")[2].startswith(whims.domain):
            bucket, key = headers["host"].partition(".")[0], urllib.parse.unquote(path)[1:]
        elif whims.domain and bucket:
            return self.error(400, "InvalidRequest")
        if whims.refuses_everyone:
            return self.error(403, "InvalidAccessKeyId")
        if whims.region and f"/{whims.region}/s3/" not in headers.get("authorization", ""):
            return self.error(400, "AuthorizationHeaderMalformed", f"<Region>{whims.region}</Region>")
        payload = headers.get("x-amz-content-sha256", "")
        if whims.refuses_unsigned and body and payload in UNSIGNED:
            return self.error(400, "InvalidRequest")
        if whims.refuses_trailers and "TRAILER" in payload:
            return self.error(501, "NotImplemented")
        if not bucket:
            return 200, {}, b"<ListAllMyBucketsResult><Name>first</Name></ListAllMyBucketsResult>"
        if request.method == "POST" and query.startswith("delete"):
            return self.delete_objects(headers, body)
        if not key:
            keys = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in self.objects)
            return 200, {}, f"<ListBucketResult><Name>{bucket}</Name>{keys}</ListBucketResult>".encode()
        if request.method == "PUT":
            if payload.startswith("STREAMING") and not whims.keeps_framing:
                body = decoded(body)
            self.objects[key] = body
            return 200, {"etag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
        if request.method == "DELETE":
            if whims.never_deletes:
                return self.error(403, "AccessDenied")
            self.objects.pop(key, None)
            return 204, {}, b""
        if key not in self.objects:
            return self.error(404, "NoSuchKey")
        return 200, {}, self.objects[key]

    def delete_objects(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        if self.whims.needs_md5 and headers.get("content-md5") != md5:
            return self.error(400, "InvalidRequest")
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            if not self.whims.never_deletes:
                self.objects.pop(key, None)
        return 200, {}, b"<DeleteResult></DeleteResult>"
