"""Who may do what: identities that are unknown, late, forged or not allowed, and bodies that are not what was signed.

A refused write must leave nothing behind, which the store itself is asked.
"""

import base64
import datetime
import hashlib
import hmac
import re
import socket
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from support.batch import batch_get
from support.gateway import LIMITED, NOTHING, READ_ONLY, Backend, Gateway
from support.rawsocket import read_answer
from support.store import Credentials, Target
from support.versitygw import VersityGw
from support.wire import (
    Answer,
    Request,
    aws_chunked,
    call,
    object_path,
    presign,
    send,
    sign,
    signed_chunks,
)

BUCKET, ALLOWED = "auth-tests", "allowed-auth"
MULTI_MIB = bytes(range(256)) * (5 << 12)


@pytest.fixture(scope="module", autouse=True)
def buckets(store: Target) -> None:
    for bucket in (BUCKET, ALLOWED):
        assert call(store, "PUT", f"/{bucket}").status == 200
        assert call(store, "PUT", f"/{bucket}/k", {}, b"value").status == 200


def assert_refused(answer: Answer, status: int, *codes: str) -> None:
    assert answer.status == status, answer
    assert answer.xml("Code") in codes, answer
    assert answer.get("x-amz-request-id") == answer.get("x-batchgate-request-id") == answer.xml("RequestId")


def signed_at(offset: datetime.timedelta) -> mock._patch:
    """botocore's clock, moved."""
    now = datetime.datetime.now(datetime.UTC) + offset
    return mock.patch("botocore.auth.get_current_datetime", lambda *_, **__: now)


def test_unknown_key(gateway: Gateway) -> None:
    stranger = gateway.as_identity(Credentials("GKSTRANGER", "whatever"))
    assert_refused(call(stranger, "GET", f"/{BUCKET}/k"), 403, "InvalidAccessKeyId")


def test_wrong_secret(gateway: Gateway) -> None:
    forger = gateway.as_identity(Credentials(READ_ONLY.access_key, "a guess"))
    assert_refused(call(forger, "GET", f"/{BUCKET}/k"), 403, "SignatureDoesNotMatch")


def test_credentials_of_the_store_are_not_ours(gateway: Gateway, store: Target) -> None:
    assert_refused(call(gateway.as_identity(store.credentials), "GET", f"/{BUCKET}/k"), 403, "InvalidAccessKeyId")


def test_anonymous(gateway: Gateway) -> None:
    request = sign(gateway.s3, "GET", f"/{BUCKET}/k").set("Authorization", None)
    assert_refused(send(gateway.s3, request), 403, "AccessDenied")


def abroad(target: Target, region: str) -> Target:
    """Whoever signs for another region."""
    return Target(target.endpoint, target.credentials, region)


@pytest.fixture(scope="module")
def everywhere(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> Gateway:
    """Takes signatures for any region, as its store does."""
    return start_gateway([Backend("store", "*", seaweedfs)], "", "everywhere", "any_region = true\n")


@pytest.mark.parametrize("region", ["eu-west-1", "default"])
def test_a_signature_for_any_region_is_taken_where_the_store_takes_it(
    gateway: Gateway, everywhere: Gateway, store: Target, region: str
) -> None:
    path, body = f"/{BUCKET}/signed-for-{region}", MULTI_MIB[:200_000]
    assert call(abroad(store, region), "GET", f"/{BUCKET}/k").body == b"value", "as directly"
    client = abroad(everywhere.s3, region)
    for request in (
        sign(client, "PUT", path, {}, body),
        presign(client, "PUT", path, {}, body),
        signed_chunks(client, path, [body[:65536], body[65536:]]),
        signed_chunks(client, path, [body], {"x-amz-checksum-crc32": crc32(body)}),
    ):
        assert send(client, request).status == 200
        assert call(client, "GET", path).body == call(store, "GET", path).body == body
        assert call(client, "DELETE", path).status == 204
    assert_refused(send(client, put_with_forged_chunk(client, path, body)), 403, "SignatureDoesNotMatch")
    assert call(store, "HEAD", path).status == 404
    assert batch_get(client, BUCKET, ["k"]).parts[0].body == b"value"
    forger = abroad(everywhere.as_identity(Credentials(READ_ONLY.access_key, "a guess")), region)
    assert_refused(call(forger, "GET", f"/{BUCKET}/k"), 403, "SignatureDoesNotMatch")
    assert call(everywhere.s3, "GET", f"/{BUCKET}/k").body == b"value", "its own region"


def test_a_signature_for_another_region_is_told_the_right_one(gateway: Gateway) -> None:
    client = abroad(gateway.s3, "eu-west-1")
    refused = call(client, "GET", f"/{BUCKET}/k")
    assert_refused(refused, 400, "AuthorizationHeaderMalformed")
    assert refused.xml("Region") == gateway.s3.region
    assert_refused(send(client, presign(client, "GET", f"/{BUCKET}/k")), 400, "AuthorizationQueryParametersError")


@pytest.mark.parametrize("minutes", [-16, 16])
def test_skewed_clock(gateway: Gateway, minutes: int) -> None:
    with signed_at(datetime.timedelta(minutes=minutes)):
        request = sign(gateway.s3, "GET", f"/{BUCKET}/k")
    assert_refused(send(gateway.s3, request), 403, "RequestTimeTooSkewed")


def test_another_path_query_or_method_than_signed(gateway: Gateway) -> None:
    for change in ({"path": f"/{BUCKET}/other"}, {"path": f"/{BUCKET}/k?versionId=1"}, {"method": "DELETE"}):
        request = sign(gateway.s3, "GET", f"/{BUCKET}/k")
        vars(request).update(change)
        assert_refused(send(gateway.s3, request), 403, "SignatureDoesNotMatch")


def test_presigned_url_lives_its_time(gateway: Gateway) -> None:
    good = presign(gateway.s3, "GET", f"/{BUCKET}/k")
    assert send(gateway.s3, good).body == b"value"
    with signed_at(datetime.timedelta(seconds=-70)):
        late = presign(gateway.s3, "GET", f"/{BUCKET}/k", expires_seconds=60)
        long = presign(gateway.s3, "GET", f"/{BUCKET}/k", expires_seconds=120)
    assert_refused(send(gateway.s3, late), 403, "AccessDenied")
    assert send(gateway.s3, long).body == b"value"


def test_presigned_url_of_more_than_a_week(gateway: Gateway) -> None:
    request = presign(gateway.s3, "GET", f"/{BUCKET}/k", expires_seconds=604_801)
    assert_refused(send(gateway.s3, request), 400, "AuthorizationQueryParametersError")


@pytest.mark.parametrize("how", ["header", "query"])
def test_unsigned_amz_header_is_never_acted_on(gateway: Gateway, store: Target, how: str) -> None:
    path = f"/{BUCKET}/unsigned-header"
    request = sign(gateway.s3, "PUT", path, {}, b"x") if how == "header" else presign(gateway.s3, "PUT", path, {}, b"x")
    request.set("x-amz-meta-added", "by someone on the way")
    assert_refused(send(gateway.s3, request), 403, "AccessDenied", "SignatureDoesNotMatch")
    assert call(store, "HEAD", path).status == 404


# Identity, method, path: what it may not do.
DENIED = [
    (READ_ONLY, "PUT", f"/{BUCKET}/denied"),
    (READ_ONLY, "DELETE", f"/{BUCKET}/k"),
    (READ_ONLY, "PUT", "/denied-bucket"),
    (READ_ONLY, "POST", f"/{BUCKET}/denied?uploads="),
    (LIMITED, "GET", f"/{BUCKET}/k"),
    (LIMITED, "GET", f"/{ALLOWED}?list-type=2"),
    (LIMITED, "GET", f"/{ALLOWED}/k?acl="),
    (LIMITED, "GET", f"/{ALLOWED}/k?tagging="),
    (LIMITED, "PUT", f"/{ALLOWED}/denied"),
    (LIMITED, "DELETE", f"/{ALLOWED}/k"),
    (LIMITED, "GET", "/"),
    (LIMITED, "GET", f"/{ALLOWED}/k?something-new="),
    (NOTHING, "GET", f"/{ALLOWED}/k"),
    (NOTHING, "HEAD", f"/{ALLOWED}/k"),
    (NOTHING, "GET", "/"),
]


@pytest.mark.parametrize(
    ("pair", "method", "path"), DENIED, ids=lambda v: v.access_key if isinstance(v, Credentials) else v
)
def test_denied_action(gateway: Gateway, store: Target, pair: Credentials, method: str, path: str) -> None:
    answer = call(gateway.as_identity(pair), method, path, {}, b"x" if method == "PUT" else b"")
    if method == "HEAD":
        assert (answer.status, answer.body) == (403, b"")
    else:
        assert_refused(answer, 403, "AccessDenied")
    for bucket in (BUCKET, ALLOWED):
        assert call(store, "GET", f"/{bucket}/k").body == b"value"
        assert call(store, "HEAD", f"/{bucket}/denied").status == 404
    assert call(store, "HEAD", "/denied-bucket").status == 404


def test_allowed_actions(gateway: Gateway, store: Target) -> None:
    limited = gateway.as_identity(LIMITED)
    assert call(limited, "GET", f"/{ALLOWED}/k").body == b"value"
    assert call(limited, "PUT", f"/{ALLOWED}/mine/new", {}, b"new").status == 200
    assert call(store, "GET", f"/{ALLOWED}/mine/new").body == b"new"
    assert call(limited, "DELETE", f"/{ALLOWED}/mine/new").status == 204
    reader = gateway.as_identity(READ_ONLY)
    assert call(reader, "GET", f"/{BUCKET}/k").body == b"value"
    assert call(reader, "GET", f"/{BUCKET}?list-type=2").status == 200


def test_encoded_path_is_what_the_policy_sees(gateway: Gateway) -> None:
    """`mine/` reached or left by an encoding must be judged by the key it means."""
    limited = gateway.as_identity(LIMITED)
    assert call(limited, "PUT", f"/{ALLOWED}/%6Dine/encoded", {}, b"x").status in (200, 403)
    for path in (f"/{ALLOWED}/mine%2F..%2Fescaped", f"/{ALLOWED}/mine/../escaped", f"/{ALLOWED}/mine/%2E%2E/escaped"):
        assert_refused(call(limited, "PUT", path, {}, b"x"), 403, "AccessDenied")
        assert call(gateway.s3, "HEAD", f"/{ALLOWED}/escaped").status == 404, path


def test_trap_a_key_is_judged_as_every_store_may_read_it(gateway: Gateway, store: Target) -> None:
    """Stores that keep objects as files resolve dots, and some take a backslash for a slash."""
    limited = gateway.as_identity(LIMITED)
    odd = [f"mine/../../{BUCKET}/k", "mine/../k", "mine\\..\\k", "mine/x/../../k"]
    for key in odd:
        path = object_path(ALLOWED, key)
        for method in ("PUT", "DELETE"):
            assert_refused(call(limited, method, path, {}, b"x" if method == "PUT" else b""), 403, "AccessDenied")
    assert_refused(call(limited, "GET", object_path(ALLOWED, odd[0])), 403, "AccessDenied")
    source = {"x-amz-copy-source": f"{ALLOWED}/../{BUCKET}/k"}
    assert_refused(call(limited, "PUT", f"/{ALLOWED}/mine/copied", source), 403, "AccessDenied")
    assert sorted(delete_objects(limited, ALLOWED, odd, quiet=True)["denied"]) == sorted(odd)
    batch = batch_get(limited, ALLOWED, [{"Key": odd[0]}, {"Key": "k"}])
    assert [part.status for part in batch.parts] == [403, 200]
    for bucket in (BUCKET, ALLOWED):
        assert call(store, "GET", f"/{bucket}/k").body == b"value"


def test_trap_a_version_and_an_upload_are_no_paths(gateway: Gateway, store: Target) -> None:
    """A store that makes a path of them deletes a whole bucket for AbortMultipartUpload."""
    up = f"..%2F..%2F..%2F..%2F{BUCKET}"
    for method, query in (("DELETE", f"uploadId={up}"), ("GET", f"versionId={up}"), ("DELETE", f"versionId={up}%2Fk")):
        assert_refused(call(gateway.s3, method, f"/{ALLOWED}/k?{query}"), 400, "InvalidArgument")
    source = {"x-amz-copy-source": f"{ALLOWED}/k?versionId={up}"}
    assert_refused(call(gateway.s3, "PUT", f"/{ALLOWED}/copied", source), 400, "InvalidArgument")
    batch = batch_get(gateway.s3, ALLOWED, [{"Key": "k", "VersionId": f"../{BUCKET}/k"}, {"Key": "k"}])
    assert [part.status for part in batch.parts] == [400, 200]
    assert call(store, "GET", f"/{BUCKET}/k").body == b"value"


def test_trap_only_s3_reaches_the_store(gateway: Gateway) -> None:
    """Stores administer their accounts on the same port, and would do it for the gateway's key."""
    for method, path in (
        ("PATCH", "/list-users"),
        ("PATCH", "/create-user"),
        ("POST", "/"),
        ("PUT", "/"),
        ("GET", "/?Action=ListUsers"),
    ):
        body = b"Action=ListUsers&Version=2010-05-08" if method == "POST" else b""
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        assert_refused(call(gateway.s3, method, path, headers, body), 405, "MethodNotAllowed")


def test_copy_needs_the_source_too(gateway: Gateway, store: Target) -> None:
    limited = gateway.as_identity(LIMITED)
    target = f"/{ALLOWED}/mine/copied"
    for source in (f"/{BUCKET}/k", f"{BUCKET}/k", f"%2F{BUCKET}%2Fk", f"{BUCKET}/k?versionId=null"):
        assert_refused(call(limited, "PUT", target, {"x-amz-copy-source": source}), 403, "AccessDenied")
    assert call(store, "HEAD", target).status == 404
    assert call(limited, "PUT", target, {"x-amz-copy-source": f"/{ALLOWED}/k"}).status == 200
    assert call(store, "GET", target).body == b"value"


def delete_objects(target: Target, bucket: str, keys: list[str], quiet: bool) -> dict[str, list[str]]:
    """The keys that DeleteObjects says are deleted, and those that it says were denied."""
    inner = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    body = f"<Delete><Quiet>{str(quiet).lower()}</Quiet>{inner}</Delete>".encode()
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    answer = call(target, "POST", f"/{bucket}?delete=", {"Content-MD5": md5, "Content-Type": "application/xml"}, body)
    assert answer.status == 200, answer
    plain = re.sub(rb' xmlns="[^"]*"', b"", answer.body)
    root = ElementTree.fromstring(plain)
    assert root.tag == "DeleteResult"
    errors = root.findall("Error")
    assert all(error.findtext("Code") == "AccessDenied" and error.findtext("Message") for error in errors), answer.body
    return {
        "deleted": [item.findtext("Key") or "" for item in root.findall("Deleted")],
        "denied": [item.findtext("Key") or "" for item in errors],
    }


@pytest.mark.parametrize("quiet", [False, True])
def test_delete_objects_is_judged_key_by_key(gateway: Gateway, store: Target, quiet: bool) -> None:
    keys = ["mine/a", "theirs/b", "mine/c", "theirs/d &amp; e", "mine/not-there"]
    names = [key.replace("&amp;", "&") for key in keys]
    for name in names[:-1]:
        call(store, "PUT", object_path(ALLOWED, name), {}, b"x")
    result = delete_objects(gateway.as_identity(LIMITED), ALLOWED, keys, quiet)
    assert sorted(result["denied"]) == [names[1], names[3]]
    assert sorted(result["deleted"]) == ([] if quiet else sorted([names[0], names[2], names[4]]))
    there = [call(store, "HEAD", object_path(ALLOWED, name)).status for name in names]
    assert there == [404, 200, 404, 200, 404]


def test_delete_objects_with_every_key_denied(gateway: Gateway, store: Target) -> None:
    result = delete_objects(gateway.as_identity(READ_ONLY), BUCKET, ["k", "other"], quiet=True)
    assert sorted(result["denied"]) == ["k", "other"]
    assert call(store, "GET", f"/{BUCKET}/k").body == b"value"


def test_a_list_of_deletes_that_is_not_what_its_digest_says_deletes_nothing(gateway: Gateway, store: Target) -> None:
    """Not even where the digest is left to the store, which may get a shorter list."""
    path, body = f"/{ALLOWED}/kept", b"<Delete><Object><Key>kept</Key></Object></Delete>"
    assert call(store, "PUT", path, {}, b"x").status == 200
    sha256 = base64.b64encode(hashlib.sha256(body).digest()).decode()
    for headers, code in (
        ({"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, "BadDigest"),
        ({"Content-MD5": "zz"}, "InvalidDigest"),
        ({"Content-MD5": ""}, "InvalidDigest"),
        ({"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg"}, "InvalidDigest"),
        ({"x-amz-checksum-crc32": crc32(body + b" ")}, "BadDigest"),
        ({"x-amz-checksum-crc32": "AAAA"}, "InvalidRequest"),
        ({"x-amz-checksum-crc32": crc32(body), "x-amz-checksum-sha256": sha256}, "InvalidRequest"),
    ):
        assert_refused(call(gateway.s3, "POST", f"/{ALLOWED}?delete=", headers, body), 400, code)
    assert call(store, "HEAD", path).status == 200


def test_what_a_list_of_deletes_announces_behind_it_is_the_stores_to_judge(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    """versitygw takes it for the digest that it asks for."""
    store = VersityGw(tmp_path)
    gateway = start_gateway([Backend("store", "*", store.target)], name="announced")
    assert call(store.target, "PUT", f"/{ALLOWED}").status == 200
    body, announced = b"<Delete><Object><Key>k</Key></Object></Delete>", {"x-amz-trailer": "x-amz-checksum-crc32"}
    for target in (store.target, gateway.s3):
        answer = call(target, "POST", f"/{ALLOWED}?delete=", announced, body)
        assert answer.status == 200, answer
    assert gateway.stop() == 0
    store.stop()


def put_with_wrong_hash(target: Target, path: str, body: bytes) -> Request:
    return sign(target, "PUT", path, {}, body, hashlib.sha256(body + b"?").hexdigest())


def put_with_wrong_checksum(target: Target, path: str, body: bytes) -> Request:
    return sign(target, "PUT", path, {"x-amz-checksum-sha256": base64.b64encode(bytes(32)).decode()}, body)


def put_with_wrong_trailer(target: Target, path: str, body: bytes) -> Request:
    framed = aws_chunked([body], {"x-amz-checksum-crc32": "AAAAAA=="})
    headers = {"x-amz-decoded-content-length": str(len(body)), "x-amz-trailer": "x-amz-checksum-crc32"}
    return sign(target, "PUT", path, headers, framed, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


def put_with_short_chunks(target: Target, path: str, body: bytes) -> Request:
    framed = aws_chunked([body[:-1]])
    headers = {"x-amz-decoded-content-length": str(len(body)), "x-amz-trailer": "x-amz-checksum-crc32"}
    return sign(target, "PUT", path, headers, framed, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


def put_with_forged_chunk(target: Target, path: str, body: bytes) -> Request:
    """A byte of the last chunk is not what was signed."""
    request = signed_chunks(target, path, [body[:65536], body[65536:]])
    at = request.body.rindex(b"\r\n0;") - 1
    request.body = request.body[:at] + bytes([request.body[at] ^ 1]) + request.body[at + 1 :]
    return request


def put_with_forged_end(target: Target, path: str, body: bytes) -> Request:
    """The signature of the last, empty chunk is wrong."""
    request = signed_chunks(target, path, [body])
    request.body = re.sub(rb"(0;chunk-signature=)[0-9a-f]{8}", rb"\g<1>00000000", request.body)
    return request


def put_with_forged_trailer(target: Target, path: str, body: bytes) -> Request:
    request = signed_chunks(target, path, [body], {"x-amz-checksum-crc32": crc32(body)})
    request.body = re.sub(rb"(x-amz-trailer-signature:)[0-9a-f]{8}", rb"\g<1>00000000", request.body)
    return request


def crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


LYING_BODIES = {
    "sha256": (put_with_wrong_hash, 400, ("XAmzContentSHA256Mismatch",)),
    "checksum header": (put_with_wrong_checksum, 400, ("BadDigest", "InvalidRequest")),
    "trailer checksum": (put_with_wrong_trailer, 400, ("BadDigest",)),
    "short": (put_with_short_chunks, 400, ("IncompleteBody",)),
    "chunk": (put_with_forged_chunk, 403, ("SignatureDoesNotMatch",)),
    "last chunk": (put_with_forged_end, 403, ("SignatureDoesNotMatch",)),
    "trailer signature": (put_with_forged_trailer, 403, ("SignatureDoesNotMatch",)),
}


@pytest.mark.parametrize("size", [100_000, len(MULTI_MIB)])
@pytest.mark.parametrize("name", LYING_BODIES)
def test_a_body_that_is_not_what_was_signed_leaves_no_object(
    gateway: Gateway, store: Target, name: str, size: int
) -> None:
    make, status, codes = LYING_BODIES[name]
    path = f"/{BUCKET}/lying-{name.replace(' ', '-')}-{size}"
    answer = send(gateway.s3, make(gateway.s3, path, MULTI_MIB[:size]))
    assert answer.status == status, answer
    assert answer.xml("Code") in codes, answer
    assert call(store, "HEAD", path).status == 404


def test_a_lying_body_does_not_replace_an_object(gateway: Gateway, store: Target) -> None:
    path = f"/{BUCKET}/kept"
    assert call(store, "PUT", path, {}, b"before").status == 200
    for make, _, _ in LYING_BODIES.values():
        assert send(gateway.s3, make(gateway.s3, path, MULTI_MIB[:70_000])).status in (400, 403)
    assert call(store, "GET", path).body == b"before"


@pytest.mark.parametrize("trailer", [False, True])
@pytest.mark.parametrize("size", [0, 5, 70_000, len(MULTI_MIB)])
def test_signed_chunks_are_stored_decoded(gateway: Gateway, store: Target, size: int, trailer: bool) -> None:
    body = MULTI_MIB[:size]
    path = f"/{BUCKET}/signed-chunks-{size}-{trailer}"
    chunks = [body[i : i + 65536] for i in range(0, size, 65536)]
    request = signed_chunks(gateway.s3, path, chunks, {"x-amz-checksum-crc32": crc32(body)} if trailer else None)
    answer = send(gateway.s3, request)
    assert answer.status == 200, answer
    stored = call(store, "GET", path)
    assert stored.body == body and stored.get("content-encoding") is None


def test_an_upload_that_breaks_off_leaves_no_object(gateway: Gateway, store: Target) -> None:
    path = f"/{BUCKET}/broken-off"
    raw = sign(gateway.s3, "PUT", path, {}, MULTI_MIB).raw()
    with socket.create_connection(gateway.s3.address, timeout=20) as sock:
        sock.sendall(raw[: len(raw) // 2])
    assert call(gateway.s3, "HEAD", path).status == 404
    assert call(store, "HEAD", path).status == 404


def test_expect_100_is_refused_before_the_body(gateway: Gateway) -> None:
    """Authenticate and authorise first, then 100; an error is sent without reading the body."""
    allowed = sign(gateway.s3, "PUT", f"/{BUCKET}/expected", {"Expect": "100-continue"}, b"body")
    denied = sign(gateway.as_identity(READ_ONLY), "PUT", f"/{BUCKET}/denied", {"Expect": "100-continue"}, b"body")
    for request, status in ((allowed, b"HTTP/1.1 100 "), (denied, b"HTTP/1.1 403 ")):
        with socket.create_connection(gateway.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(request.raw().removesuffix(b"body"))
            line = stream.readline()
            assert line.startswith(status), line
            if status.startswith(b"HTTP/1.1 100"):
                while stream.readline() != b"\r\n":
                    pass
                sock.sendall(b"body")
                assert read_answer(stream).status == 200


def test_characters_that_clients_leave_unescaped(gateway: Gateway, store: Target) -> None:
    """Signed over the canonical path, sent with what some clients do not escape: still the same object."""
    key = "a(b)!*'@=x"
    request = sign(gateway.s3, "PUT", object_path(BUCKET, key), {}, b"same")
    request.path = f"/{BUCKET}/{key}"
    assert send(gateway.s3, request).status == 200
    assert call(store, "GET", object_path(BUCKET, key)).body == b"same"


def sigv2_header(target: Target) -> Request:
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    return Request(
        "GET", f"/{BUCKET}/k", [("Host", "s3"), ("Date", date), ("Authorization", f"AWS {sigv2(target, date)}")]
    )


def sigv2_query(target: Target) -> Request:
    expires = str(int(datetime.datetime.now().timestamp()) + 60)
    key, signature = sigv2(target, expires).split(":")
    query = f"AWSAccessKeyId={key}&Signature={signature.replace('+', '%2B').replace('=', '%3D')}&Expires={expires}"
    return Request("GET", f"/{BUCKET}/k?{query}", [("Host", "s3")])


def sigv2(target: Target, date: str) -> str:
    pair = target.credentials
    mac = hmac.new(pair.secret_key.encode(), f"GET\n\n\n{date}\n/{BUCKET}/k".encode(), hashlib.sha1)
    return f"{pair.access_key}:{base64.b64encode(mac.digest()).decode()}"


@pytest.mark.parametrize("make", [sigv2_header, sigv2_query])
def test_sigv2_is_refused_with_what_to_do(gateway: Gateway, make: Callable[[Target], Request]) -> None:
    answer = send(gateway.s3, make(gateway.s3))
    assert answer.status in (400, 403), answer
    message = answer.xml("Message") or ""
    assert 'signature_version="s3v4"' in message, message
