"""In whose name the store is asked: identities with accounts of their own there, and requests that nobody signed.

What the store lets each of them do is the store's to say, so it is asked directly for comparison.
"""

import base64
import re
import signal
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from support.batch import batch_get, batch_request, document
from support.faulty import BACKEND_SECRET, FaultyBackend
from support.gateway import READ_ONLY, Backend, Gateway
from support.process import wait_for
from support.scripted import ScriptedStore, answer
from support.store import PUBLIC_BUCKET, TENANT_BUCKET, TENANT_CREDENTIALS, Credentials, Target
from support.wire import EMPTY_SHA256, Answer, Request, aws_chunked, call, presign, send, sign

OTHERS = "not-the-tenants"
TENANT = Credentials("GKTENANT", "secret-of-the-identity-with-an-account")
STRANGER = Credentials("GKSTRANGER", "secret-of-the-identity-with-an-unknown-account")
WRONG = Credentials("GKWRONG", "secret-of-the-identity-with-a-wrong-secret-there")


def identity(name: str, pair: Credentials, account: Credentials, policy: str = "full-access") -> str:
    """An identity with an account at the backend `store`."""
    return (
        f'[[identities]]\nname = "{name}"\naccess_key = "{pair.access_key}"\nsecret_key = "{pair.secret_key}"\n'
        f'policy = "{policy}"\n'
        f'backend_credentials = {{ store = {{ access_key = "{account.access_key}", '
        f'secret_key = "{account.secret_key}" }} }}\n'
    )


@pytest.fixture(scope="module", autouse=True)
def buckets(seaweedfs: Target) -> None:
    for bucket in (TENANT_BUCKET, OTHERS, PUBLIC_BUCKET):
        assert call(seaweedfs, "PUT", f"/{bucket}").status == 200
        assert call(seaweedfs, "PUT", f"/{bucket}/k", {}, bucket.encode()).status == 200


@pytest.fixture(scope="module")
def owned(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> Gateway:
    """A gateway whose identities have accounts at the store: good, unknown, and one with the wrong secret."""
    sections = (
        identity("tenant", TENANT, TENANT_CREDENTIALS)
        + identity("stranger", STRANGER, Credentials("nobody-knows-me", "x"))
        + identity("wrong", WRONG, Credentials(TENANT_CREDENTIALS.access_key, "a guess"))
    )
    return start_gateway([Backend("store", "*", seaweedfs)], sections, "owned")


def same(one: Answer, other: Answer) -> None:
    """What must be the same for a client, whatever stands between."""
    assert (one.status, one.body if one.status < 300 else one.xml("Code") if one.body else b"") == (
        other.status,
        other.body if other.status < 300 else other.xml("Code") if other.body else b"",
    ), (one, other)
    for name in ("etag", "content-length", "content-type", "last-modified"):
        if one.status < 300:
            assert one.get(name) == other.get(name), name


# Accounts of identities


def test_an_identity_is_the_store_s_own_account(owned: Gateway, seaweedfs: Target) -> None:
    direct, through = seaweedfs.with_credentials(TENANT_CREDENTIALS), owned.as_identity(TENANT)
    for method, path, body in (
        ("GET", f"/{TENANT_BUCKET}/k", b""),
        ("HEAD", f"/{TENANT_BUCKET}/k", b""),
        ("GET", f"/{OTHERS}/k", b""),
        ("HEAD", f"/{OTHERS}/k", b""),
        ("PUT", f"/{OTHERS}/new", b"x"),
        ("DELETE", f"/{OTHERS}/k", b""),
        ("GET", f"/{OTHERS}?list-type=2", b""),
        ("PUT", f"/{TENANT_BUCKET}/new", b"x"),
        ("GET", f"/{TENANT_BUCKET}/new", b""),
        ("DELETE", f"/{TENANT_BUCKET}/new", b""),
    ):
        same(call(direct, method, path, {}, body), call(through, method, path, {}, body))
    assert call(through, "GET", f"/{TENANT_BUCKET}/k").body == TENANT_BUCKET.encode()
    refused = call(through, "GET", f"/{OTHERS}/k")
    assert (refused.status, refused.xml("Code")) == (403, "AccessDenied")
    assert call(owned.s3, "GET", f"/{OTHERS}/k").body == OTHERS.encode(), "the gateway's own account has it still"


def test_uploads_of_every_signing_go_in_its_name(owned: Gateway, seaweedfs: Target) -> None:
    through = owned.as_identity(TENANT)
    crc32 = base64.b64encode(zlib.crc32(b"chunk").to_bytes(4, "big")).decode()
    framed = aws_chunked([b"chunk"], {"x-amz-checksum-crc32": crc32})
    headers = {"x-amz-decoded-content-length": "5", "x-amz-trailer": "x-amz-checksum-crc32"}
    for name, make in {
        "plain": lambda path: sign(through, "PUT", path, {}, b"chunk"),
        "presigned": lambda path: presign(through, "PUT", path, {}, b"chunk"),
        "trailer": lambda path: sign(through, "PUT", path, headers, framed, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    }.items():
        denied = send(through, make(f"/{OTHERS}/{name}"))
        assert (denied.status, denied.xml("Code")) == (403, "AccessDenied"), (name, denied)
        assert call(seaweedfs, "HEAD", f"/{OTHERS}/{name}").status == 404
        assert send(through, make(f"/{TENANT_BUCKET}/{name}")).status == 200
        assert call(seaweedfs, "GET", f"/{TENANT_BUCKET}/{name}").body == b"chunk"


def test_a_batch_reads_in_its_name(owned: Gateway) -> None:
    entries = [{"Key": "k", "Bucket": TENANT_BUCKET}, {"Key": "k", "Bucket": OTHERS}]
    batch = batch_get(owned.as_identity(TENANT), None, entries)
    parts = batch.by_index()
    assert (parts[0].status, parts[0].body) == (200, TENANT_BUCKET.encode())
    assert (parts[1].status, parts[1].code) == (403, "AccessDenied")
    full = batch_get(owned.s3, None, entries).by_index()
    assert [full[i].status for i in (0, 1)] == [200, 200]


@pytest.mark.parametrize(
    ("pair", "code"), [(STRANGER, "InvalidAccessKeyId"), (WRONG, "SignatureDoesNotMatch")], ids=["unknown", "wrong"]
)
def test_an_account_that_the_store_refuses(owned: Gateway, seaweedfs: Target, pair: Credentials, code: str) -> None:
    """The code is the store's; its words, which may quote what was signed and for which host, are not."""
    through = owned.as_identity(pair)
    for request in (sign(through, "GET", f"/{OTHERS}/k"), sign(through, "PUT", f"/{OTHERS}/k", {}, b"x")):
        answer = send(through, request)
        assert (answer.status, answer.xml("Code")) == (403, code), answer
        assert "account" in (answer.xml("Message") or "")
        assert seaweedfs.endpoint.rsplit("/", 1)[1].encode() not in answer.body
        assert b"nobody-knows-me" not in answer.body and TENANT_CREDENTIALS.access_key.encode() not in answer.body
    part = batch_get(through, OTHERS, ["k"]).by_index()[0]
    assert (part.status, part.code) == (403, code)


def test_an_account_that_is_refused_in_batches_only_is_in_the_log(
    start_gateway: Callable[..., Gateway], seaweedfs: Target
) -> None:
    sections = identity("stranger", STRANGER, Credentials("nobody-knows-me", "x"))
    running = start_gateway([Backend("store", "*", seaweedfs)], sections, "strangers")
    assert {part.status for part in batch_get(running.as_identity(STRANGER), OTHERS, ["k"] * 20).parts} == {403}

    def told() -> list[str]:
        return [line for line in running.process.stderr().splitlines() if "(backend_credentials)" in line]

    wait_for("the warning", told, 5)
    assert len(told()) <= 5 and all("WARN" in line and "store" in line and "InvalidAccessKeyId" in line for line in told())
    assert "nobody-knows-me" not in running.process.stderr()


def test_the_gateway_s_own_credentials_stay_a_502(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> None:
    """Beside an identity whose account is good."""
    wrong = Target(seaweedfs.endpoint, Credentials("nobody-knows-me", "x"))
    running = start_gateway([Backend("store", "*", wrong)], identity("tenant", TENANT, TENANT_CREDENTIALS), "half")
    assert call(running.s3, "GET", f"/{TENANT_BUCKET}/k").status == 502
    assert call(running.as_identity(TENANT), "GET", f"/{TENANT_BUCKET}/k").body == TENANT_BUCKET.encode()
    assert batch_get(running.s3, TENANT_BUCKET, ["k"]).by_index()[0].status == 502
    assert batch_get(running.as_identity(TENANT), TENANT_BUCKET, ["k"]).by_index()[0].status == 200


def test_retries_are_in_its_name_and_no_secret_is_shown(start_gateway: Callable[..., Gateway]) -> None:
    backend = FaultyBackend()
    account = Credentials("ACCOUNT", "the-secret-of-the-account")
    try:
        running = start_gateway(
            [Backend("store", "*", Target(backend.endpoint, Credentials("GATE", "s")))],
            identity("tenant", TENANT, account),
            "retried",
        )
        tenant = running.as_identity(TENANT)
        assert call(tenant, "GET", "/b/hang-up-then-fine/plain").status == 200
        part = batch_get(tenant, "b", ["503-then-fine/batch", "cut-large/batch", "403-signature/batch"]).by_index()
        assert [part[i].status for i in range(3)] == [200, 200, 403]
        refused = call(tenant, "GET", "/b/403-signature/plain")
        assert (refused.status, refused.xml("Code")) == (403, "SignatureDoesNotMatch")
        assert BACKEND_SECRET.encode() not in refused.body + part[2].body
        assert call(running.s3, "GET", "/b/fine/of-the-gateway").status == 200
        for key, least in (("hang-up-then-fine/plain", 3), ("503-then-fine/batch", 3), ("cut-large/batch", 2)):
            seen = [request.headers["authorization"] for request in backend.requests(key)]
            assert len(seen) >= least and all("Credential=ACCOUNT/" in value for value in seen), (key, seen)
        assert "Credential=GATE/" in backend.requests("fine/of-the-gateway")[0].headers["authorization"]
        shown = running.admin_get("/configz")[1]
        assert 'access_key = "ACCOUNT"' in shown
        for text in (shown, running.process.stderr(), running.process.stdout()):
            assert account.secret_key not in text
    finally:
        backend.stop()


def test_accounts_are_loaded_anew(start_gateway: Callable[..., Gateway], seaweedfs: Target, tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(identity("tenant", TENANT, Credentials("nobody-knows-me", "x")))
    # A key before the first table.
    running = start_gateway([Backend("store", "*", seaweedfs)], "", "rolled", 'reload_interval = "0s"\n')
    config = running.process.stdout_path.with_name("rolled.toml")
    config.write_text(f'identities_file = "{path}"\n' + config.read_text())

    def status() -> int:
        return call(running.as_identity(TENANT), "GET", f"/{TENANT_BUCKET}/k").status

    def reload() -> None:
        before = running.metric("batchgate_config_reloads_total")
        running.process.child.send_signal(signal.SIGHUP)
        wait_for("the reload", lambda: running.metric("batchgate_config_reloads_total") > before, 10)

    reload()
    assert status() == 403
    path.write_text(identity("tenant", TENANT, TENANT_CREDENTIALS))
    reload()
    assert status() == 200
    # One at a backend that there is not is refused, and what was in force stays.
    path.write_text(identity("tenant", TENANT, TENANT_CREDENTIALS).replace("store =", "stoer ="))
    reload()
    assert status() == 200
    assert 'the nearest is "store"' in running.process.stderr()


# Nobody


@pytest.fixture(scope="module")
def public(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> Gateway:
    """A gateway that sends on what nobody signed."""
    return start_gateway([Backend("store", "*", seaweedfs)], "", "public", "anonymous = true\nsigv2 = true\n")


def unsigned(
    target: Target, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> Answer:
    host = target.endpoint.removeprefix("http://")
    request = Request(method, path, [("Host", host), *(headers or {}).items()], body)
    if body or method in ("PUT", "POST"):
        request.set("Content-Length", str(len(body)))
    return send(target, request)


UNSIGNED = [
    ("GET", "/{public}/k", b""),
    ("HEAD", "/{public}/k", b""),
    ("GET", "/{public}/missing", b""),
    ("PUT", "/{public}/new", b"by nobody"),
    ("GET", "/{public}/new", b""),
    ("DELETE", "/{public}/new", b""),
    ("GET", "/{public}?list-type=2&prefix=k", b""),
    ("GET", "/{others}/k", b""),
    ("HEAD", "/{others}/k", b""),
    ("PUT", "/{others}/new", b"by nobody"),
    ("DELETE", "/{others}/k", b""),
    ("GET", "/{others}?list-type=2", b""),
    ("PUT", "/made-by-nobody", b""),
    ("GET", "/{others}?policy", b""),
]


@pytest.mark.parametrize(("method", "path", "body"), UNSIGNED)
def test_nobody_gets_what_the_store_gives_to_all(
    public: Gateway, seaweedfs: Target, method: str, path: str, body: bytes
) -> None:
    path = path.format(public=PUBLIC_BUCKET, others=OTHERS)
    direct = unsigned(seaweedfs, method, path, body)
    through = unsigned(public.s3, method, path, body)
    assert direct.status == through.status, (direct, through)
    if direct.status < 300 and method == "GET" and "?" not in path:
        same(direct, through)
    assert call(seaweedfs, "GET", f"/{OTHERS}/k").body == OTHERS.encode(), "neither replaced nor deleted"


def test_the_public_bucket_is_public_and_the_other_is_not(public: Gateway, seaweedfs: Target) -> None:
    """Otherwise the comparison above would show nothing."""
    assert unsigned(public.s3, "GET", f"/{PUBLIC_BUCKET}/k").body == PUBLIC_BUCKET.encode()
    assert unsigned(public.s3, "PUT", f"/{PUBLIC_BUCKET}/up", b"loaded").status == 200
    assert call(seaweedfs, "GET", f"/{PUBLIC_BUCKET}/up").body == b"loaded"
    refused = unsigned(public.s3, "GET", f"/{OTHERS}/k")
    assert (refused.status, refused.xml("Code")) == (403, "AccessDenied")


def test_trap_nobody_reaches_only_s3(public: Gateway, seaweedfs: Target) -> None:
    token = b"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&WebIdentityToken=x&RoleArn=x&RoleSessionName=x"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert unsigned(seaweedfs, "POST", "/", token, kind).status != 405, "else this shows nothing"
    for method, path in (("POST", "/"), ("PUT", "/"), ("OPTIONS", "/"), ("PATCH", f"/{PUBLIC_BUCKET}/k")):
        refused = unsigned(public.s3, method, path, token if method == "POST" else b"", kind)
        assert (refused.status, refused.xml("Code")) == (405, "MethodNotAllowed"), (method, path)
    for host in ("", "a b", "<x>", "x:y@evil"):
        for method, path, more in (
            ("GET", f"/{PUBLIC_BUCKET}/k", {}),
            ("POST", f"/{PUBLIC_BUCKET}", {"Content-Type": "multipart/form-data; boundary=b"}),
            ("OPTIONS", f"/{PUBLIC_BUCKET}/k", {"Origin": "http://a", "Access-Control-Request-Method": "GET"}),
        ):
            asked = Request(method, path, [("Host", host), ("Content-Length", "0"), *more.items()])
            refused = send(public.s3, asked)
            assert (refused.status, refused.xml("Code")) == (400, "InvalidRequest"), (host, method, refused)


def test_what_nobody_signed_goes_on_without_a_signature(start_gateway: Callable[..., Gateway]) -> None:
    backend = FaultyBackend()
    try:
        running = start_gateway(
            [Backend("store", "*", Target(backend.endpoint, Credentials("GATE", "s")))],
            "",
            "bare",
            "anonymous = true\n",
        )
        assert unsigned(running.s3, "GET", "/b/fine/plain?x-amz-acl=private").status == 200
        unsigned(running.s3, "PUT", "/b/fine/hashed", b"", {"x-amz-content-sha256": EMPTY_SHA256})
        unsigned(running.s3, "PUT", "/b/fine/put", b"body", {"x-amz-acl": "private"})
        assert unsigned(running.s3, "GET", "/b/hang-up-then-fine/again").status == 200
        for key in ("fine/plain", "fine/hashed", "fine/put", "hang-up-then-fine/again"):
            for seen in backend.requests(key):
                names = {name for name in seen.headers if name == "authorization" or name.startswith("x-amz-")}
                expected = {"fine/hashed": {"x-amz-content-sha256"}, "fine/put": {"x-amz-acl"}}.get(key, set())
                assert names == expected, (key, seen.headers)
        # Who signs is signed for, on the same connections.
        assert call(running.s3, "GET", "/b/fine/signed").status == 200
        assert "Credential=GATE/" in backend.requests("fine/signed")[0].headers["authorization"]
        assert unsigned(running.s3, "GET", "/b/403-signature/nobody").xml("Code") == "AccessDenied"
        assert "credentials" not in running.process.stderr(), "none were in it"
        assert re.search(r'identity="?anonymous"? ', running.process.stderr())
    finally:
        backend.stop()


def test_what_nobody_signed_goes_on_framed_as_it_is(start_gateway: Callable[..., Gateway]) -> None:
    """Also to a store for which checksums are verified here: this one has nobody's word."""
    store = ScriptedStore()
    try:
        store.on("b", lambda _: answer(200))
        backends = [Backend("store", "*", store.target, 'checksums = "verify"')]
        running = start_gateway(backends, "", "framed", "anonymous = true\n")
        said = {
            "content-encoding": "aws-chunked",
            "x-amz-checksum-crc32": "AAAAAA==",
            "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            "x-amz-decoded-content-length": "5",
            "x-amz-trailer": "x-amz-checksum-crc32",
        }
        body = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
        assert unsigned(running.s3, "PUT", "/b/k", body, said).status == 200
        [ask] = store.of("b")
        assert ask.body == body and {name: ask.headers.get(name) for name in said} == said, ask
        assert "authorization" not in ask.headers
    finally:
        store.stop()


HALF_SIGNED = [
    ("X-Amz-Signature=abc", {}),
    ("X-Amz-Date=20260101T000000Z", {}),
    ("X-Amz-Expires=60", {}),
    ("x-amz-credential=a", {}),
    ("X-Amz-Signatur%65=abc", {}),
    ("Signature=a", {}),
    ("AWSAccessKeyId=a", {}),
    ("Expires=1", {}),
    ("", {"Authorization": ""}),
    ("", {"Authorization": "AWS4-HMAC-SHA256"}),
    ("", {"Authorization": "AWS"}),
    ("", {"Authorization": "Bearer token"}),
    ("", {"x-amz-security-token": "t"}),
]


@pytest.mark.parametrize(("query", "headers"), HALF_SIGNED)
def test_what_is_half_signed_is_not_nobody_s(public: Gateway, query: str, headers: dict[str, str]) -> None:
    path = f"/{PUBLIC_BUCKET}/k" + (f"?{query}" if query else "")
    answer = unsigned(public.s3, "GET", path, b"", headers)
    assert answer.status in (400, 403), answer
    assert PUBLIC_BUCKET.encode() != answer.body
    put = unsigned(public.s3, "PUT", path.replace("/k", "/half-signed"), b"x", headers)
    assert put.status in (400, 403), put
    assert unsigned(public.s3, "GET", f"/{PUBLIC_BUCKET}/half-signed").status == 404


def test_a_signature_that_is_wrong_is_no_lack_of_one(public: Gateway) -> None:
    forger = public.as_identity(Credentials(READ_ONLY.access_key, "a guess"))
    answer = call(forger, "GET", f"/{PUBLIC_BUCKET}/k")
    assert (answer.status, answer.xml("Code")) == (403, "SignatureDoesNotMatch")
    # What a policy forbids is not to be had by leaving the signature in.
    denied = call(public.as_identity(READ_ONLY), "PUT", f"/{PUBLIC_BUCKET}/denied", {}, b"x")
    assert (denied.status, denied.xml("Code")) == (403, "AccessDenied")


def test_nobody_has_no_batches(public: Gateway) -> None:
    for method, path, body in (
        ("POST", f"/{PUBLIC_BUCKET}?batch-get", document(["k"])),
        ("POST", "/?batch-get=", document([{"Key": "k", "Bucket": PUBLIC_BUCKET}])),
        ("GET", "/?batch-get", b""),
    ):
        answer = unsigned(public.s3, method, path, body)
        assert (answer.status, answer.xml("Code")) == (403, "AccessDenied"), answer
        assert "must be signed" in (answer.xml("Message") or "")
    signed = batch_request(public.s3, PUBLIC_BUCKET, document(["k"]))
    assert send(public.s3, signed).status == 200


def test_nobody_is_refused_unless_the_settings_say_otherwise(gateway: Gateway) -> None:
    for method, path, body in UNSIGNED:
        answer = unsigned(gateway.s3, method, path.format(public=PUBLIC_BUCKET, others=OTHERS), body)
        assert answer.status == 403, (method, path, answer)


def test_an_embedded_store_is_not_public(start_gateway: Callable[..., Gateway]) -> None:
    running = start_gateway([Backend("store", "*", None)], "", "embedded-public", "anonymous = true\n")
    assert call(running.s3, "PUT", "/bucket").status == 200
    assert call(running.s3, "PUT", "/bucket/k", {}, b"x").status == 200
    for method, path in (
        ("GET", "/bucket/k"),
        ("PUT", "/bucket/k"),
        ("DELETE", "/bucket/k"),
        ("GET", "/"),
        ("PUT", "/new"),
    ):
        assert unsigned(running.s3, method, path).status == 403, (method, path)
    assert call(running.s3, "GET", "/bucket/k").body == b"x"
