"""Requests that a proxy, the gateway and a store could each read in their own way: they mean one thing to all of
them, or are refused. What is judged is what is read, and what was signed is what is done."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from support.batch import batch_get, batch_request, document, read_batch
from support.clients import boto3_client
from support.gateway import DOMAIN, Backend, Gateway
from support.rawsocket import exchange
from support.store import BOTH, Credentials, Target
from support.wire import Answer, Request, call, object_path, presign, send, sign, xml_text

STORES = BOTH
OPEN, SECRET = "trap-open", "trap-secret"
OLD, NEW = "renamed-old", "renamed-new"
FENCED = Credentials("GKFENCED", "secret-of-the-identity-with-one-bucket-denied")
FENCE = {
    "Statement": [
        {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
        {"Effect": "Deny", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{SECRET}", f"arn:aws:s3:::{SECRET}/*"]},
    ]
}
HIDDEN = b"what only others may read"


@pytest.fixture(scope="module", autouse=True)
def buckets(store: Target) -> None:
    for bucket in (OPEN, SECRET, OLD, NEW):
        assert call(store, "PUT", f"/{bucket}").status == 200
    assert call(store, "PUT", f"/{OPEN}/k", {}, b"value").status == 200
    assert call(store, "PUT", f"/{SECRET}/k", {}, HIDDEN).status == 200


# Names that could be decoded once more


@pytest.fixture(scope="module")
def fenced(start_gateway: Callable[..., Gateway], store: Target) -> Target:
    """As an identity that may do everything, except to one bucket."""
    identity = (
        f'[[identities]]\nname = "fenced"\naccess_key = "{FENCED.access_key}"\nsecret_key = "{FENCED.secret_key}"\n'
        f"policy_json = '''{json.dumps(FENCE)}'''\n"
    )
    return start_gateway([Backend("store", "*", store)], identity, "fenced").as_identity(FENCED)


# Paths up to the key, of which a bucket's name is what could be read twice.
TWICE_ENCODED = [
    "/%2574rap-secret",
    "/trap%252Dsecret",
    "/%252e%252e",
    "/%2E%2E",
    "/trap-open%2Ftrap-secret",
    "/trap-open%2F..%2Ftrap-secret",
    "/trap-open%252F..%252Ftrap-secret",
    "/trap-secret%00",
    "/trap-secret%3F",
]
ODD_HOSTS = [f"trap-open%2Ftrap-secret.{DOMAIN}", f"%74rap-secret.{DOMAIN}", f"%2574rap-secret.{DOMAIN}"]
METHODS = ["GET", "HEAD", "PUT", "DELETE"]


def refused_name(answer: Answer, code: str = "InvalidBucketName") -> bool:
    return answer.status == 400 and (not answer.body or answer.xml("Code") == code)


def refused_host(answer: Answer) -> bool:
    """What has a `%` is no host at all."""
    return refused_name(answer, "InvalidRequest")


@pytest.mark.parametrize("bucket", TWICE_ENCODED)
def test_a_bucket_name_that_decodes_twice_is_refused(gateway: Gateway, bucket: str) -> None:
    for method in METHODS:
        assert refused_name(call(gateway.s3, method, f"{bucket}/k", {}, b"x" if method == "PUT" else b"")), method
    assert refused_name(send(gateway.s3, sign(gateway.s3, "POST", f"{bucket}?batch-get=", {}, document(["k"]))))
    assert refused_name(send(gateway.s3, sign(gateway.s3, "GET", f"{bucket}?list-type=2")))


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_host_that_holds_more_than_a_bucket_name_is_refused(gateway: Gateway, host: str) -> None:
    for method in METHODS:
        assert refused_host(send(gateway.s3, sign(gateway.s3, method, "/k", host=host))), method
    assert refused_host(send(gateway.s3, sign(gateway.s3, "POST", "/?batch-get=", {}, document(["k"]), host=host)))


# Other spellings of the way into the denied bucket: the path up to the key, and perhaps a host.
WAYS_IN = [
    *((path, None) for path in [*TWICE_ENCODED, f"/{SECRET}", "/%74rap-secret", "/trap%2Dsecret", f"//{SECRET}"]),
    *((f"/{OPEN}/{step}/{SECRET}", None) for step in ("..", "%2E%2E", "%2e.", "%252e%252e", "x/../..")),
    (f"/{OPEN}/..%2F{SECRET}", None),
    *(("", host) for host in [*ODD_HOSTS, f"{SECRET}.{DOMAIN}", f"{SECRET.upper()}.{DOMAIN.upper()}:80"]),
    (f"/../{SECRET}", f"{OPEN}.{DOMAIN}"),
]


@pytest.mark.parametrize(("path", "host"), WAYS_IN)
def test_a_denied_bucket_is_denied_in_every_spelling(
    fenced: Target, store: Target, path: str, host: str | None
) -> None:
    answers = [
        *(send(fenced, sign(fenced, m, f"{path}/k", {}, b"x" if m == "PUT" else b"", host=host)) for m in METHODS),
        send(fenced, sign(fenced, "PUT", f"{path}/new", {}, b"x", host=host)),
        send(fenced, sign(fenced, "POST", f"{path or '/'}?batch-get=", {}, document(["k"]), host=host)),
        send(fenced, sign(fenced, "GET", f"{path or '/'}?list-type=2", host=host)),
    ]
    assert not any(HIDDEN in answer.body for answer in answers)
    assert call(store, "GET", f"/{SECRET}/k").body == HIDDEN, "neither replaced nor deleted"
    listed = call(store, "GET", f"/{SECRET}?list-type=2").body
    assert re.findall(rb"<Key>(.*?)</Key>", listed) == [b"k"], listed


COPY_SOURCES = [
    f"/{SECRET}/k", "/%74rap-secret/k", "%2574rap-secret/k", "/%252574rap-secret/k", f"{OPEN}/../{SECRET}/k",
    f"{OPEN}%2F..%2F{SECRET}%2Fk", f"{OPEN}%252F..%252F{SECRET}/k", f"//{SECRET}/k", f"/./{SECRET}/k",
]  # fmt: skip


@pytest.mark.parametrize("source", COPY_SOURCES)
def test_nothing_is_copied_out_of_a_denied_bucket(fenced: Target, store: Target, source: str) -> None:
    target = f"/{OPEN}/copied-out"
    assert call(fenced, "PUT", target, {"x-amz-copy-source": source}).status >= 400
    assert call(store, "HEAD", target).status == 404


def test_a_letter_that_is_encoded_needlessly_is_that_letter(gateway: Gateway, fenced: Target, store: Target) -> None:
    for target in (gateway.s3, fenced):
        for spelling in ("/%74rap-open", "/trap%2Dopen", "/%74%72%61%70-open"):
            assert call(target, "GET", f"{spelling}/k").body == b"value", spelling
            assert call(target, "PUT", f"{spelling}/spelt", {}, spelling.encode()).status == 200
            assert call(store, "GET", f"/{OPEN}/spelt").body == spelling.encode()
            batch = read_batch(send(target, sign(target, "POST", f"{spelling}?batch-get=", {}, document(["k"]))))
            assert batch.parts[0].body == b"value"


# What was signed cannot be taken away on the way


def signed_put(target: Target, how: str, path: str, headers: dict[str, str], body: bytes = b"") -> Request:
    return sign(target, "PUT", path, headers, body) if how == "header" else presign(target, "PUT", path, headers, body)


@pytest.mark.parametrize("connection", ["close, {}", "{}", "keep-alive,{} ,x"])
@pytest.mark.parametrize("how", ["header", "query"])
class TestConnectionTakesNothingAway:
    """`Connection` is never signed; what it names must be kept where it was."""

    def test_a_precondition(self, gateway: Gateway, store: Target, how: str, connection: str) -> None:
        request = signed_put(gateway.s3, how, f"/{OPEN}/k", {"If-None-Match": "*"}, b"replaced")
        assert send(gateway.s3, request.set("Connection", connection.format("if-none-match"))).status == 412
        assert call(store, "GET", f"/{OPEN}/k").body == b"value"

    def test_a_copys_source(self, gateway: Gateway, store: Target, how: str, connection: str) -> None:
        path = f"/{OPEN}/still-a-copy"
        request = signed_put(gateway.s3, how, path, {"x-amz-copy-source": f"/{OPEN}/k"})
        assert send(gateway.s3, request.set("Connection", connection.format("X-Amz-Copy-Source"))).status == 200
        assert call(store, "GET", path).body == b"value"

    @pytest.mark.only_on("seaweedfs", reason="the embedded store has no tags")
    def test_tags(self, gateway: Gateway, store: Target, how: str, connection: str) -> None:
        path = f"/{OPEN}/tagged"
        request = signed_put(gateway.s3, how, path, {"x-amz-tagging": "class=hidden"}, b"x")
        assert send(gateway.s3, request.set("Connection", connection.format("x-amz-tagging"))).status == 200
        assert b"<Value>hidden</Value>" in call(store, "GET", f"{path}?tagging=").body
        assert call(store, "DELETE", path).status == 204


# A bucket that has another name at the store


@pytest.fixture(scope="module")
def renaming(start_gateway: Callable[..., Gateway], store: Target) -> Gateway:
    """The clients' `renamed-old` is the store's `renamed-new`; the store's own `renamed-old` is out of reach."""
    route = f'[[routes]]\nbucket = "{OLD}"\nbackend = "store"\nbackend_bucket = "{NEW}"\n'
    for key in ("k", f"x{OLD}x", "only-in-the-decoy"):
        assert call(store, "PUT", f"/{OLD}/{key}", {}, b"decoy").status == 200
    return start_gateway([Backend("store", "trap-*", store)], route, "renaming")


def test_a_renamed_bucket_answers_to_the_clients_name(renaming: Gateway, store: Target) -> None:
    s3: Any = boto3_client(renaming.s3)
    for key in ("k", "dir/ü +%20", OLD, f"{OLD}/{OLD}"):
        s3.put_object(Bucket=OLD, Key=key, Body=key.encode())
        assert call(store, "GET", object_path(NEW, key)).body == key.encode()
        assert s3.get_object(Bucket=OLD, Key=key)["Body"].read() == key.encode()
        assert s3.head_object(Bucket=OLD, Key=key)["ContentLength"] == len(key.encode())
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket=OLD)["Contents"]}
    assert {"k", "dir/ü +%20", OLD, f"{OLD}/{OLD}"} <= keys and "only-in-the-decoy" not in keys
    assert send(renaming.s3, sign(renaming.s3, "GET", "/k", host=f"{OLD}.{DOMAIN}")).body == b"k"
    assert send(renaming.s3, presign(renaming.s3, "GET", f"/{OLD}/k")).body == b"k"
    assert call(renaming.s3, "GET", f"/%72enamed-old/{OLD}").body == OLD.encode()


@pytest.mark.parametrize(
    "source",
    ["{}/x{}x", "/{}/x{}x", "%72enamed-old/x{}x", "%2Frenamed-old%2Fx{}x", "/renamed%2Dold%2fx{}x?versionId=null"],
)
def test_a_copy_from_a_renamed_bucket_keeps_the_key(renaming: Gateway, store: Target, source: str) -> None:
    source = source.format(*[OLD] * source.count("{}"))
    assert call(store, "PUT", f"/{NEW}/x{OLD}x", {}, b"the right one").status == 200
    for target in (f"/{OLD}/copied", f"/{OPEN}/copied"):
        answer = call(renaming.s3, "PUT", target, {"x-amz-copy-source": source})
        assert answer.status == 200, answer
        assert call(store, "GET", target.replace(OLD, NEW)).body == b"the right one"
        call(store, "DELETE", target.replace(OLD, NEW))


def test_delete_objects_and_batches_reach_a_renamed_bucket(renaming: Gateway, store: Target) -> None:
    for key in ("a", OLD, "kept"):
        assert call(store, "PUT", f"/{NEW}/{key}", {}, key.encode()).status == 200
    here = batch_get(renaming.s3, OLD, ["a", OLD, "only-in-the-decoy"])
    named = batch_get(renaming.s3, OPEN, [{"Bucket": OLD, "Key": key} for key in ("a", OLD, "only-in-the-decoy")])
    for batch in (here, named):
        assert [(p.status, p.body) for p in batch.parts[:2]] == [(200, b"a"), (200, OLD.encode())]
        assert (batch.parts[2].status, batch.parts[2].code) == (404, "NoSuchKey")
        assert NEW.encode() not in batch.answer.body, "the store's name for it is nobody's business"
    s3: Any = boto3_client(renaming.s3)
    s3.delete_objects(Bucket=OLD, Delete={"Objects": [{"Key": "a"}, {"Key": OLD}]})
    assert [call(store, "HEAD", f"/{NEW}/{key}").status for key in ("a", OLD, "kept")] == [404, 404, 200]
    assert call(store, "GET", f"/{OLD}/k").body == b"decoy", "the store's own bucket of that name is untouched"


@pytest.mark.parametrize("bucket", [OPEN, OLD])
@pytest.mark.parametrize("spelling", ["uploadId", "%75ploadId", "upload%49d"])
def test_a_completed_upload_shows_the_gateways_address(
    renaming: Gateway, store: Target, bucket: str, spelling: str
) -> None:
    path = f"/{bucket}/parts%20of%20one"
    begun = call(renaming.s3, "POST", f"{path}?uploads=").body
    upload = (re.search(rb"<UploadId>(.*?)</UploadId>", begun) or [b"", b""])[1].decode()
    etag = call(renaming.s3, "PUT", f"{path}?partNumber=1&uploadId={upload}", {}, b"one part").get("etag")
    parts = (
        f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    )
    # Signed over its canonical form, as every client does, and spelt differently.
    request = sign(renaming.s3, "POST", f"{path}?uploadId={upload}", {}, parts.encode())
    request.path = request.path.replace("uploadId", spelling)
    answer = send(renaming.s3, request)
    assert answer.status == 200, answer
    assert store.endpoint.removeprefix("http://").encode() not in answer.body, answer
    assert f"<Location>{renaming.s3.endpoint}{path}</Location>".encode() in answer.body, answer
    assert call(renaming.s3, "GET", path).body == b"one part"


# Heads that are large or odd


@pytest.mark.parametrize("count", [92, 150, 200])
def test_many_short_metadata_entries_come_back(gateway: Gateway, count: int) -> None:
    path = f"/{OPEN}/metadata-{count}"
    metadata = {f"x-amz-meta-{i:03}": f"v{i}" for i in range(count)}
    answers = exchange(
        gateway.s3,
        sign(gateway.s3, "PUT", path, metadata, b"body").raw(),
        sign(gateway.s3, "HEAD", path).raw(),
        sign(gateway.s3, "GET", path).raw(),
    )
    assert [answer.status for answer in answers] == [200, 200, 200], answers
    assert answers[2].body == b"body"
    part = batch_get(gateway.s3, OPEN, [f"metadata-{count}"]).parts[0]
    assert (part.status, part.body) == (200, b"body"), part
    for headers in (answers[1].headers, answers[2].headers, part.headers):
        seen = {n.lower(): v for n, v in headers if n.lower().startswith("x-amz-meta-")}
        assert seen == metadata


@pytest.mark.parametrize(
    ("raw", "key"), [("plus+sign", "plus sign"), ("plus%2Bsign", "plus+sign"), ("plus%20sign", "plus sign")]
)
def test_a_raw_plus_in_a_query_is_a_space(gateway: Gateway, store: Target, raw: str, key: str) -> None:
    for name in ("plus sign", "plus+sign"):
        assert call(store, "PUT", object_path(OPEN, f"{name}/k"), {}, b"x").status == 200
    for target in (gateway.s3, store):
        # Clients sign what they mean, which a raw `+` does not show.
        request = sign(target, "GET", f"/{OPEN}?list-type=2&prefix={raw.replace('+', '%20')}")
        request.path = f"/{OPEN}?list-type=2&prefix={raw}"
        answer = send(target, request)
        assert answer.status == 200, answer
        assert re.findall(rb"<Key>(.*?)</Key>", answer.body) == [f"{key}/k".encode()], answer.body


@pytest.mark.parametrize("value", ['attachment; filename="caf\xe9.txt"', "\xfcber, \xa0\xff"])
def test_a_raw_latin_1_byte_in_a_header_goes_through(gateway: Gateway, store: Target, value: str) -> None:
    path = f"/{OPEN}/latin-1"
    put = sign(gateway.s3, "PUT", path, {}, b"x").set("Content-Disposition", value)
    assert send(gateway.s3, put).status == 200
    for target in (store, gateway.s3):
        assert call(target, "GET", path).get("content-disposition") == value
    assert batch_get(gateway.s3, OPEN, ["latin-1"]).parts[0].get("content-disposition") == value


FORWARDED = {
    "host": {"X-Forwarded-Host": "s3.example.com"},
    "all of a proxy's": {
        "X-Forwarded-Host": "s3.example.com:8443", "X-Forwarded-For": "10.1.2.3, 10.1.2.4",
        "X-Forwarded-Proto": "https", "X-Forwarded-Port": "8443", "X-Forwarded-Prefix": "/prefix",
        "X-Real-IP": "10.1.2.3", "Via": "1.1 proxy",
    },
    "RFC 7239": {"Forwarded": 'for=10.1.2.3;host="s3.example.com";proto=https'},
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDED)
def test_what_a_proxy_says_of_the_host_changes_nothing(gateway: Gateway, store: Target, name: str) -> None:
    path = f"/{OPEN}/proxied"

    def proxied(request: Request) -> Answer:
        request.headers += FORWARDED[name].items()
        return send(gateway.s3, request)

    put = proxied(sign(gateway.s3, "PUT", path, {}, name.encode()))
    assert put.status == 200, put
    assert proxied(sign(gateway.s3, "GET", path)).body == name.encode() == call(store, "GET", path).body
    assert proxied(presign(gateway.s3, "GET", path)).body == name.encode()
    batch = read_batch(proxied(batch_request(gateway.s3, OPEN, document(["proxied", "absent"]))))
    assert batch.parts[0].body == name.encode() and xml_text(batch.parts[1].body, "Code") == "NoSuchKey"
