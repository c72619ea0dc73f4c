"""POST Object, the upload of a browser's form: what boto3 presigns, sent as browsers and curl send it, over two real stores.

Every refusal leaves no object. The gateway's own policy and the identity's are asked before the store; the store checks the
form again and answers, without its address.
"""

import base64
import hashlib
import hmac
import http.server
import json
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, ClassVar

import pytest

from support.clients import boto3_client
from support.gateway import DOMAIN, LIMITED, READ_ONLY, Backend, Gateway
from support.process import wait_for
from support.rawsocket import read_answer
from support.scripted import CLOSE, ScriptedStore, answer
from support.store import Credentials, Target
from support.versitygw import VersityGw
from support.wire import Answer, Request, call, object_path, send, sign

BUCKET, ALLOWED, OLD, NEW = "form-bucket", "allowed-form", "form-old", "form-new"
BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
SITE = "http://site.test/uploaded"
FILE = bytes(range(256)) * 400 + b"\r\n--" + BOUNDARY.encode()[:-1] + b"\r\n"

Fields = dict[str, str]


@dataclass
class Stage:
    """A store and a gateway before it, to which `form-old` is the store's `form-new`."""

    kind: str
    store: Target
    gateway: Gateway

    @property
    def s3(self) -> Target:
        return self.gateway.s3


@pytest.fixture(scope="module", params=["seaweedfs", "versitygw"])
def stage(
    request: pytest.FixtureRequest, start_gateway: Callable[..., Gateway], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    own: VersityGw | None = None
    if request.param == "versitygw":
        own = VersityGw(tmp_path_factory.mktemp("versitygw"))
        store = own.target
    else:
        store = request.getfixturevalue("seaweedfs")
    for bucket in (BUCKET, ALLOWED, OLD, NEW):
        assert call(store, "PUT", f"/{bucket}").status == 200
    route = f'[[routes]]\nbucket = "{OLD}"\nbackend = "store"\nbackend_bucket = "{NEW}"\n'
    backends = [Backend("store", BUCKET, store), Backend("more", ALLOWED, store)]
    gateway = start_gateway(backends, route, "forms")
    yield Stage(request.param, store, gateway)
    gateway.assert_gauges_at_zero()
    assert "panicked" not in gateway.process.stderr(), gateway.process.stderr()[-4000:]
    assert gateway.stop() == 0
    if own is not None:
        own.stop()


def presigned(
    target: Target,
    bucket: str,
    key: str,
    fields: Fields | None = None,
    conditions: list[Any] | None = None,
    expires: int = 600,
    bare: bool = False,
) -> Fields:
    """The fields that boto3 presigns; each of `fields` gets its own condition unless `bare`."""
    s3: Any = boto3_client(target)
    fields = fields or {}
    given = [] if bare else [{name: value} for name, value in fields.items()]
    post = s3.generate_presigned_post(bucket, key, dict(fields), given + (conditions or []), expires)
    assert post["url"] == f"{target.endpoint}/{bucket}"
    return post["fields"]


def encode(
    fields: Fields | list[tuple[str, str]], file: bytes = FILE, name: str = "f.bin", behind: bytes = b""
) -> bytes:
    """A form as a browser writes it; `behind` goes between the file and the form's end."""
    pairs = fields.items() if isinstance(fields, dict) else fields
    out = b""
    for field, value in pairs:
        out += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
    out += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'.encode()
    out += b"Content-Type: application/octet-stream\r\n\r\n" + file
    return out + b"\r\n" + behind + f"--{BOUNDARY}--\r\n".encode()


def request(target: Target, path: str, body: bytes, host: str | None = None) -> Request:
    headers = [
        ("Host", host or target.endpoint.removeprefix("http://")),
        ("Origin", "http://site.test"),
        ("Content-Type", f"multipart/form-data; boundary={BOUNDARY}"),
        ("Content-Length", str(len(body))),
    ]
    return Request("POST", path, headers, body)


def post(target: Target, bucket: str, body: bytes) -> Answer:
    return send(target, request(target, f"/{bucket}", body))


def stored(stage: Stage, bucket: str, key: str) -> Answer:
    return call(stage.store, "GET", object_path(bucket, key))


def assert_refused(
    stage: Stage, answer: Answer, status: int, code: str, bucket: str, key: str, words: str = ""
) -> None:
    assert (answer.status, answer.xml("Code")) == (status, code), answer
    assert words in (answer.xml("Message") or ""), answer
    assert_tells_nothing(stage, answer)
    assert stored(stage, bucket, key).status == 404


def assert_tells_nothing(stage: Stage, answer: Answer) -> None:
    told = repr(answer.headers).encode() + answer.body
    for secret in (stage.store.endpoint.removeprefix("http://"), stage.store.credentials.access_key):
        assert secret.encode() not in told, answer


def test_a_form_is_stored(stage: Stage) -> None:
    key = "dir/ü +%.bin"
    fields = {"Content-Type": "text/x-form", "x-amz-meta-note": "from a form", "x-ignore-me": "whatever"}
    ignored = fields.pop("x-ignore-me")
    form = {**presigned(stage.s3, BUCKET, key, fields), "x-ignore-me": ignored}
    answer = post(stage.s3, BUCKET, encode(form))
    assert answer.status == 204, answer
    assert_tells_nothing(stage, answer)
    for target in (stage.store, stage.s3):
        found = call(target, "GET", object_path(BUCKET, key))
        assert found.status == 200 and found.body == FILE
        assert (found.get("content-type"), found.get("x-amz-meta-note")) == ("text/x-form", "from a form")


@pytest.mark.parametrize("size", [0, 1, (5 << 20) + 1])
def test_files_of_every_size_keep_their_bytes(stage: Stage, size: int) -> None:
    file = (FILE * (size // len(FILE) + 1))[:size]
    answer = post(stage.s3, BUCKET, encode(presigned(stage.s3, BUCKET, f"size-{size}"), file))
    assert answer.status == 204, answer
    assert stored(stage, BUCKET, f"size-{size}").body == file


def test_curl_sends_a_form(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(FILE)
    form = presigned(stage.s3, BUCKET, "curl/${filename}")
    argv = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "%{http_code}"]
    for name, value in form.items():
        argv += ["--form-string", f"{name}={value}"]
    argv += ["--form", "file=@notes.txt", f"{stage.s3.endpoint}/{BUCKET}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, "204"), done
    assert stored(stage, BUCKET, "curl/notes.txt").body == FILE


def test_by_host_and_over_http2(stage: Stage, tmp_path: Path) -> None:
    body = encode(presigned(stage.s3, BUCKET, "by-host"))
    answer = send(stage.s3, request(stage.s3, "/", body, f"{BUCKET}.{DOMAIN}"))
    assert answer.status == 204, answer
    assert stored(stage, BUCKET, "by-host").body == FILE
    (tmp_path / "form").write_bytes(encode(presigned(stage.s3, BUCKET, "http2")))
    argv = [
        "curl",
        "--silent",
        "--show-error",
        "--http2-prior-knowledge",
        "--write-out",
        "%{http_code}",
        "--max-time",
        "60",
    ]
    argv += ["--header", f"Content-Type: multipart/form-data; boundary={BOUNDARY}", "--data-binary", "@form"]
    done = subprocess.run([*argv, f"{stage.s3.endpoint}/{BUCKET}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "204", done
    assert stored(stage, BUCKET, "http2").body == FILE


def test_the_file_gives_the_key_its_name(stage: Stage) -> None:
    form = presigned(stage.s3, BUCKET, "named/${filename}")
    answer = post(stage.s3, BUCKET, encode(form, name="C:\\fakepath\\a b.txt"))
    assert answer.status == 204, answer
    assert stored(stage, BUCKET, "named/a b.txt").body == FILE
    again = post(stage.s3, BUCKET, encode(form, name="${filename}"))
    assert_refused(stage, again, 400, "InvalidArgument", BUCKET, "named/${filename}")


# What the answer is


@pytest.mark.parametrize("status", [200, 201, 204])
def test_the_form_chooses_the_status(stage: Stage, status: int) -> None:
    key = f"status/{status} &x"
    answer = post(stage.s3, BUCKET, encode(presigned(stage.s3, BUCKET, key, {"success_action_status": str(status)})))
    assert answer.status == status, answer
    assert_tells_nothing(stage, answer)
    url = f"{stage.s3.endpoint}{object_path(BUCKET, key)}"
    assert answer.get("location") in (None, url), answer
    if status == 201:
        text = answer.body.decode()
        assert f"<Location>{url.replace('&', '&amp;')}</Location>" in text, text
        assert f"<Bucket>{BUCKET}</Bucket>" in text and f"<Key>{key.replace('&', '&amp;')}</Key>" in text, text


def test_the_form_sends_the_browser_on(stage: Stage) -> None:
    answer = post(stage.s3, OLD, encode(presigned(stage.s3, OLD, "onward", {"success_action_redirect": SITE})))
    assert answer.status == 303, answer
    assert_tells_nothing(stage, answer)
    page, _, query = (answer.get("location") or "").partition("?")
    assert page == SITE
    told = urllib.parse.parse_qs(query)
    assert told["bucket"] == [OLD] and told["key"] == ["onward"] and told["etag"], answer
    assert stored(stage, NEW, "onward").body == FILE


def test_a_renamed_bucket_answers_to_the_clients_name(stage: Stage) -> None:
    # Some SDKs send the bucket's name as a field too.
    fields = {**presigned(stage.s3, OLD, "renamed", {"success_action_status": "201"}), "bucket": OLD}
    answer = post(stage.s3, OLD, encode(fields))
    assert answer.status == 201, answer
    assert f"<Bucket>{OLD}</Bucket>" in answer.body.decode() and NEW not in answer.body.decode()
    assert stored(stage, NEW, "renamed").body == FILE and stored(stage, OLD, "renamed").status == 404
    elsewhere = post(stage.s3, OLD, encode({**presigned(stage.s3, OLD, "elsewhere"), "bucket": NEW}))
    assert_refused(stage, elsewhere, 403, "AccessDenied", NEW, "elsewhere")


# Who may


def test_an_unknown_key_and_a_wrong_signature(stage: Stage) -> None:
    for pair, code in (
        (Credentials("GKUNKNOWN", "wrong"), "InvalidAccessKeyId"),
        (Credentials(stage.s3.credentials.access_key, "wrong"), "SignatureDoesNotMatch"),
    ):
        form = presigned(stage.s3.with_credentials(pair), BUCKET, "unsigned")
        assert_refused(stage, post(stage.s3, BUCKET, encode(form)), 403, code, BUCKET, "unsigned")
    form = presigned(stage.s3, BUCKET, "unsigned")
    policy = json.loads(base64.b64decode(form["policy"]))
    policy["expiration"] = "2099-01-01T00:00:00Z"
    form["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
    answer = post(stage.s3, BUCKET, encode(form))
    assert_refused(stage, answer, 403, "SignatureDoesNotMatch", BUCKET, "unsigned")


def test_an_anonymous_form_and_one_of_version_2(stage: Stage) -> None:
    assert_refused(stage, post(stage.s3, BUCKET, encode({"key": "nobody"})), 403, "AccessDenied", BUCKET, "nobody")
    pair = stage.s3.credentials
    policy = base64.b64encode(
        json.dumps({"expiration": "2099-01-01T00:00:00Z", "conditions": [{"bucket": BUCKET}]}).encode()
    )
    signature = base64.b64encode(hmac.digest(pair.secret_key.encode(), policy, hashlib.sha1)).decode()
    form = {"key": "nobody", "AWSAccessKeyId": pair.access_key, "policy": policy.decode(), "signature": signature}
    answer = post(stage.s3, BUCKET, encode(form))
    assert_refused(stage, answer, 400, "InvalidRequest", BUCKET, "nobody", "Signature Version 2")


def test_an_identity_uploads_what_its_own_policy_allows(stage: Stage) -> None:
    limited = stage.gateway.as_identity(LIMITED)
    for key, fields, status in (
        ("mine/k", {}, 204),
        ("other/k", {}, 403),
        ("mine/acl", {"acl": "private"}, 403),
        ("mine/tags", {"tagging": "<Tagging><TagSet/></Tagging>"}, 403),
    ):
        answer = post(limited, ALLOWED, encode(presigned(limited, ALLOWED, key, fields)))
        assert answer.status == status, (key, answer)
        assert stored(stage, ALLOWED, key).status == (200 if status == 204 else 404)
    escaped = post(limited, ALLOWED, encode(presigned(limited, ALLOWED, "${filename}"), name="k"))
    assert_refused(stage, escaped, 403, "AccessDenied", ALLOWED, "k", "s3:PutObject")
    reader = stage.gateway.as_identity(READ_ONLY)
    answer = post(reader, BUCKET, encode(presigned(reader, BUCKET, "reader")))
    assert_refused(stage, answer, 403, "AccessDenied", BUCKET, "reader", "s3:PutObject")


def test_an_unsigned_header_is_never_acted_on(stage: Stage) -> None:
    wanted = request(stage.s3, f"/{BUCKET}", encode(presigned(stage.s3, BUCKET, "header")))
    wanted.set("x-amz-acl", "public-read")
    assert_refused(stage, send(stage.s3, wanted), 403, "AccessDenied", BUCKET, "header", "x-amz-acl")


@pytest.fixture
def lenient(stage: Stage, start_gateway: Callable[..., Gateway]) -> Iterator[Stage]:
    """The same store behind a gateway that lets in Version 2 and nobody, below a path."""
    server = 'sigv2 = true\nanonymous = true\nbase_path = "/s3"'
    gateway = start_gateway([Backend("store", BUCKET, stage.store)], name="lenient", server=server)
    yield Stage(stage.kind, stage.store, gateway)
    assert gateway.stop() == 0


def test_nobodys_form_is_the_stores_to_judge(lenient: Stage) -> None:
    form = encode({"key": "nobody"})
    direct, through = post(lenient.store, BUCKET, form), send(lenient.s3, request(lenient.s3, f"/s3/{BUCKET}", form))
    assert (through.status, through.xml("Code")) == (direct.status, direct.xml("Code")), (direct, through)
    assert stored(lenient, BUCKET, "nobody").status == 404
    half = send(lenient.s3, request(lenient.s3, f"/s3/{BUCKET}", encode({"key": "half", "policy": "x"})))
    assert_refused(lenient, half, 400, "InvalidArgument", BUCKET, "half")


def test_a_form_goes_nowhere_unjudged(lenient: Stage) -> None:
    """The store would take each of these for a form of its own account's."""
    body = encode(presigned(lenient.store, BUCKET, "around"))
    form = f"multipart/form-data; boundary={BOUNDARY}"
    for path, types in (
        (f"/s3/{BUCKET}?x", [form]),
        (f"/s3/{BUCKET}/k", [form]),
        (f"/s3/{BUCKET}?x", [form.replace("multipart", "Multipart")]),
        (f"/s3/{BUCKET}", ["text/plain", form]),
    ):
        wanted = request(lenient.s3, path, body)
        wanted.headers = [pair for pair in wanted.headers if pair[0] != "Content-Type"]
        wanted.headers += [("Content-Type", value) for value in types]
        assert_refused(lenient, send(lenient.s3, wanted), 400, "InvalidRequest", BUCKET, "around", "form")
    signed = sign(lenient.s3, "POST", f"/s3/{BUCKET}?x", {"Content-Type": form}, body)
    assert_refused(lenient, send(lenient.s3, signed), 400, "InvalidRequest", BUCKET, "around", "form")


def test_a_form_of_version_2_where_that_is_let_in(lenient: Stage) -> None:
    policy = {"expiration": "2099-01-01T00:00:00Z", "conditions": [{"bucket": BUCKET}, ["starts-with", "$key", "v2/"]]}
    text = base64.b64encode(json.dumps(policy).encode())

    def form(key: str, secret: str) -> bytes:
        signature = base64.b64encode(hmac.digest(secret.encode(), text, hashlib.sha1)).decode()
        pair = lenient.s3.credentials
        return encode({"key": key, "AWSAccessKeyId": pair.access_key, "policy": text.decode(), "signature": signature})

    for key, secret, status in (
        ("v2/k", lenient.s3.credentials.secret_key, 204),
        ("v2/wrong", "wrong", 403),
        ("v3/k", lenient.s3.credentials.secret_key, 403),
    ):
        answer = send(lenient.s3, request(lenient.s3, f"/s3/{BUCKET}", form(key, secret)))
        assert answer.status == status, answer
        assert stored(lenient, BUCKET, key).status == (200 if status == 204 else 404)


def test_what_a_store_says_of_a_form_is_not_all_passed_on(start_gateway: Callable[..., Gateway]) -> None:
    """Neither half a document nor the store's own region."""
    store = ScriptedStore()
    gateway = start_gateway([Backend("scripted", "*", store.target)], name="said-of-forms")
    store.on("half", lambda _: answer(201, {"content-length": "500"}, b"<PostResponse>") + CLOSE)
    half = post(gateway.s3, "half", encode(presigned(gateway.s3, "half", "k", {"success_action_status": "201"})))
    message = half.xml("Message") or ""
    assert (half.status, half.xml("Code")) == (502, "BadGateway"), half
    assert '(backend "scripted")' in message and "outcome is unknown" in message, half
    said = {"location": f"{SITE}?bucket=on", "x-amz-bucket-region": "region-of-the-store"}
    store.on("on", lambda _: answer(303, said))
    on = post(gateway.s3, "on", encode(presigned(gateway.s3, "on", "k", {"success_action_redirect": SITE})))
    assert (on.status, on.get("location")) == (303, said["location"]), on
    assert on.get("x-amz-bucket-region") == gateway.s3.region
    assert gateway.stop() == 0
    store.stop()


# What the store gets


class Recorder(http.server.BaseHTTPRequestHandler):
    """A store that takes everything, and remembers it."""

    seen: ClassVar[list[tuple[str, Message, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, self.headers, body))
        self.send_response(201)
        document = b"<PostResponse><Location>http://10.0.0.1/x</Location><Bucket>x</Bucket></PostResponse>"
        self.send_header("Content-Length", str(len(document)))
        self.send_header("Location", "http://10.0.0.1/x")
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def recording(start_gateway: Callable[..., Gateway]) -> Iterator[Gateway]:
    """A gateway below a path, before a recorder; it lets in nobody, and calls the bucket by another name."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    target = Target(f"http://127.0.0.1:{server.server_port}", Credentials("BACKENDKEY", "secret-of-the-backend"))
    route = f'[[routes]]\nbucket = "{OLD}"\nbackend = "store"\nbackend_bucket = "{NEW}"\n'
    lines = 'anonymous = true\nbase_path = "/s3"'
    gateway = start_gateway([Backend("store", "other-*", target)], route, name="recording", server=lines)
    yield gateway
    assert gateway.stop() == 0
    server.shutdown()


def record(gateway: Gateway, body: bytes) -> tuple[Message, dict[str, str], bytes]:
    """The head of the request that the store got, the fields of its form, and its file."""
    Recorder.seen.clear()
    wanted = request(gateway.s3, f"/s3/{OLD}", body)
    unjudged = (
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Expires",
        "Seaweed-X-Amz-Owner",
    )
    for name in unjudged:
        wanted.set(name, "beside-the-form")
    answer = send(gateway.s3, wanted)
    url = f"{gateway.s3.endpoint}/s3/{OLD}/dir/a%20b"
    assert (answer.status, answer.get("location")) == (201, url), answer
    assert answer.body.decode() == f"<PostResponse><Location>{url}</Location><Bucket>{OLD}</Bucket></PostResponse>"
    [(path, head, sent)] = Recorder.seen
    assert path == f"/{NEW}" and head["Authorization"] is None and head["X-Amz-Date"] is None
    assert [head[name] for name in ("Origin", *unjudged)] == ["http://site.test", *[None] * len(unjudged)]
    boundary = head["Content-Type"].removeprefix("multipart/form-data; boundary=").encode()
    assert boundary != BOUNDARY.encode() and sent.endswith(b"\r\n--" + boundary + b"--\r\n")
    fields: dict[str, str] = {}
    for part in sent.removesuffix(b"\r\n--" + boundary + b"--\r\n").split(b"--" + boundary + b"\r\n")[1:]:
        lines, _, value = part.partition(b"\r\n\r\n")
        name = lines.split(b'name="', 1)[1].split(b'"', 1)[0].decode()
        assert name not in fields
        if name == "file":
            assert lines.startswith(b'Content-Disposition: form-data; name="file"; filename="a b"\r\n'), lines
            return head, fields, value
        fields[name] = value.removesuffix(b"\r\n").decode()
    raise AssertionError("no file")


def test_a_store_gets_the_form_as_the_gateways_own(recording: Gateway) -> None:
    form = presigned(recording.s3, OLD, "dir/${filename}", {"success_action_status": "201", "x-amz-meta-a": "ü"})
    form |= {"bucket": OLD, "x-ignore-me": "1"}
    _, fields, file = record(recording, encode(form, name="C:\\a b"))
    assert file == FILE
    ours = ("policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature")
    kept = {name: value for name, value in form.items() if name not in ours}
    assert {name: value for name, value in fields.items() if name not in ours} == {
        **kept, "key": "dir/a b", "bucket": NEW,
    }  # fmt: skip
    scope = f"{fields['x-amz-date'][:8]}/us-east-1/s3/aws4_request"
    assert fields["x-amz-credential"] == f"BACKENDKEY/{scope}"
    key = b"AWS4secret-of-the-backend"
    for step in [*scope.split("/"), fields["policy"]]:
        key = hmac.digest(key, step.encode(), hashlib.sha256)
    assert fields["x-amz-signature"] == key.hex()
    before, after = (json.loads(base64.b64decode(each["policy"])) for each in (form, fields))
    assert after["expiration"] == before["expiration"]
    assert after["conditions"] == [
        ["eq", "$success_action_status", "201"],
        ["eq", "$x-amz-meta-a", "ü"],
        ["starts-with", "$key", "dir/"],
        {"bucket": NEW},
        {"x-amz-algorithm": fields["x-amz-algorithm"]},
        {"x-amz-credential": fields["x-amz-credential"]},
        {"x-amz-date": fields["x-amz-date"]},
    ]


def test_a_store_gets_nobodys_form_without_a_signature(recording: Gateway) -> None:
    form = {"key": "dir/a b", "acl": "public-read", "success_action_status": "201"}
    _, fields, file = record(recording, encode(form, name="a b"))
    assert (fields, file) == (form, FILE)


# What the policy says


def test_a_policy_ends(stage: Stage) -> None:
    form = presigned(stage.s3, BUCKET, "expired", expires=-5)
    answer = post(stage.s3, BUCKET, encode(form))
    assert_refused(stage, answer, 403, "AccessDenied", BUCKET, "expired", "Policy expired")


def test_a_form_says_what_its_policy_says(stage: Stage) -> None:
    form = presigned(stage.s3, BUCKET, "told", {"x-amz-meta-a": "1"})
    for change, words in (
        ({"key": "other"}, '["eq", "$key", "told"]'),
        ({"x-amz-meta-a": "2"}, '["eq", "$x-amz-meta-a", "1"]'),
        ({"x-amz-meta-b": "1"}, "Extra input fields: x-amz-meta-b"),
        ({"x-amz-storage-class": "STANDARD"}, "Extra input fields: x-amz-storage-class"),
    ):
        answer = post(stage.s3, BUCKET, encode({**form, **change}))
        assert_refused(
            stage, answer, 403, "AccessDenied", BUCKET, change.get("key", "told"), "Invalid according to Policy"
        )
        assert words in (answer.xml("Message") or ""), answer
    without = {name: value for name, value in form.items() if name != "x-amz-meta-a"}
    assert_refused(stage, post(stage.s3, BUCKET, encode(without)), 403, "AccessDenied", BUCKET, "told")
    elsewhere = post(stage.s3, BUCKET, encode(presigned(stage.s3, OLD, "told")))
    assert_refused(stage, elsewhere, 403, "AccessDenied", BUCKET, "told", "$bucket")
    assert post(stage.s3, BUCKET, encode(form)).status == 204


@pytest.mark.parametrize("size", [9, 10, 20, 21, 1 << 20])
def test_a_file_is_as_long_as_its_policy_says(stage: Stage, size: int) -> None:
    key = f"length-{size}"
    form = presigned(stage.s3, BUCKET, key, conditions=[["content-length-range", 10, 20]])
    # A client that sends everything before it reads.
    answer = patient(stage.s3, request(stage.s3, f"/{BUCKET}", encode(form, b"x" * size)))
    if 10 <= size <= 20:
        assert answer.status == 204, answer
        assert stored(stage, BUCKET, key).body == b"x" * size
    else:
        code = "EntityTooSmall" if size < 10 else "EntityTooLarge"
        assert_refused(stage, answer, 400, code, BUCKET, key)


def patient(target: Target, wanted: Request) -> Answer:
    with socket.create_connection(target.address, timeout=20) as sock, sock.makefile("rb") as stream:
        sock.sendall(wanted.raw())
        return read_answer(stream, "POST")


def test_a_checksum_among_the_fields_is_the_stores_to_check(stage: Stage) -> None:
    right = base64.b64encode(hashlib.sha256(FILE).digest()).decode()
    form = presigned(stage.s3, BUCKET, "checked", {"x-amz-checksum-sha256": right})
    assert post(stage.s3, BUCKET, encode(form)).status == 204
    assert stored(stage, BUCKET, "checked").body == FILE


# What is no form


def test_a_form_that_breaks_off_leaves_nothing(stage: Stage) -> None:
    body = encode(presigned(stage.s3, BUCKET, "cut"))
    raw = request(stage.s3, f"/{BUCKET}", body).raw()
    begins = raw.index(b'name="file"')
    places = [
        begins - 10,
        begins + 60,
        len(raw) - len(FILE) // 2,
        len(raw) - 70,
        len(raw) - 5,
        len(raw) - 2,
        len(raw) - 1,
    ]
    for place in places:
        with socket.create_connection(stage.s3.address, timeout=20) as sock:
            sock.sendall(raw[:place])
        # The store has been told, if it ever was, once no upload is under way any more.
        wait_for("the request is over", lambda: stage.gateway.metric("batchgate_edge_requests_in_flight") == 0, 20)
        assert stored(stage, BUCKET, "cut").status == 404, place
    assert post(stage.s3, BUCKET, body).status == 204


def test_a_form_without_its_end_leaves_nothing(stage: Stage) -> None:
    form = presigned(stage.s3, BUCKET, "endless")
    whole = encode(form)
    for body, code in (
        (whole[: -len(BOUNDARY) - 8], "MalformedPOSTRequest"),
        (whole[:-6], "MalformedPOSTRequest"),
        (whole.replace(b"--\r\n", b"xx\r\n"), "MalformedPOSTRequest"),
        (encode(form, b"x").replace(b'name="file"', b'name="files"'), "InvalidArgument"),
        (encode([*form.items(), ("key", "endless")]), "InvalidArgument"),
        (encode({**form, "x-ignore-long": "x" * 20480}), "MaxPostPreDataLengthExceededError"),
        (b"nonsense", "MalformedPOSTRequest"),
    ):
        assert_refused(stage, patient(stage.s3, request(stage.s3, f"/{BUCKET}", body)), 400, code, BUCKET, "endless")
    unframed = (
        request(stage.s3, f"/{BUCKET}", b"0\r\n\r\n").set("Content-Length", None).set("Transfer-Encoding", "chunked")
    )
    assert patient(stage.s3, unframed).status == 411


def test_what_stands_behind_the_file_is_ignored(stage: Stage) -> None:
    more = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="x-amz-meta-late"\r\n\r\nv\r\n'.encode()
    answer = post(stage.s3, BUCKET, encode(presigned(stage.s3, BUCKET, "late"), behind=more))
    assert answer.status == 204, answer
    found = stored(stage, BUCKET, "late")
    assert found.body == FILE and found.get("x-amz-meta-late") is None


def test_a_batch_as_a_form_is_no_form(stage: Stage) -> None:
    body = encode(presigned(stage.s3, BUCKET, "batch"))
    answer = send(stage.s3, request(stage.s3, f"/{BUCKET}?batch-get", body))
    assert_refused(stage, answer, 403, "AccessDenied", BUCKET, "batch")


def test_a_store_in_memory_has_no_forms(embedded_gateway: Gateway) -> None:
    s3 = embedded_gateway.s3
    assert call(s3, "PUT", f"/{BUCKET}").status == 200
    answer = post(s3, BUCKET, encode(presigned(s3, BUCKET, "k")))
    assert (answer.status, answer.xml("Code")) == (501, "NotImplemented"), answer
    assert call(s3, "GET", f"/{BUCKET}/k").status == 404


# What a browser asks first

CORS = b"""<CORSConfiguration><CORSRule><AllowedOrigin>http://site.test</AllowedOrigin><AllowedMethod>POST</AllowedMethod>
<AllowedMethod>PUT</AllowedMethod><AllowedHeader>*</AllowedHeader></CORSRule></CORSConfiguration>"""


def cors_of(answer: Answer) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers if name.lower().startswith("access-control-")}


def preflight(target: Target, path: str, **more: str) -> Answer:
    headers = {"Origin": "http://site.test", "Access-Control-Request-Method": "POST", **more}
    host = ("Host", target.endpoint.removeprefix("http://"))
    return send(target, Request("OPTIONS", path, [host, *headers.items()]))


def test_a_preflight_is_answered_by_the_stores_rules(stage: Stage) -> None:
    digest = base64.b64encode(hashlib.md5(CORS).digest()).decode()
    assert call(stage.s3, "PUT", f"/{BUCKET}?cors", {"Content-MD5": digest}, CORS).status == 200
    asks: dict[str, Fields] = {
        f"/{BUCKET}": {"Access-Control-Request-Headers": "x-amz-meta-a"},
        f"/{BUCKET}/k?X-Amz-Signature=s&X-Amz-Credential=c": {},
        f"/{OLD}": {},
        f"/{BUCKET}/other": {"Origin": "http://other.test"},
    }
    for path, more in asks.items():
        answer = preflight(stage.s3, path, **more)
        direct = preflight(stage.store, path.replace(OLD, NEW), **more)
        assert (answer.status, cors_of(answer)) == (direct.status, cors_of(direct)), path
        assert_tells_nothing(stage, answer)
    allowed = preflight(stage.s3, f"/{BUCKET}")
    assert allowed.status in (200, 204) and allowed.get("access-control-allow-origin") in ("*", "http://site.test")
    sent = post(stage.s3, BUCKET, encode(presigned(stage.s3, BUCKET, "from-a-page")))
    assert sent.status == 204 and sent.get("access-control-allow-origin") in ("*", "http://site.test"), sent
    for path in (f"/{BUCKET}/1%", f"/{BUCKET}/%zz", f"/{BUCKET}/%2"):
        broken = preflight(stage.s3, path)
        assert (broken.status, broken.xml("Code")) == (400, "InvalidURI"), broken


def test_a_preflight_that_does_not_ask_is_the_stores_to_refuse(stage: Stage) -> None:
    origin, method = ("Origin", "http://site.test"), ("Access-Control-Request-Method", "PUT")
    for path in (f"/{BUCKET}", f"/{BUCKET}/k?X-Amz-Signature=s&X-Amz-Credential=c"):
        for headers in ([], [origin], [method]):
            asked = [
                send(target, Request("OPTIONS", path, [("Host", target.endpoint.removeprefix("http://")), *headers]))
                for target in (stage.store, stage.s3)
            ]
            direct, through = ((each.status, each.body and each.xml("Code"), cors_of(each)) for each in asked)
            assert through == direct, (path, headers)
            assert_tells_nothing(stage, asked[1])
