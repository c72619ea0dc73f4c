"""Several backends behind one endpoint: one list of buckets, buckets by other names, copies that would have to cross, and
stores that have a bucket somewhere else. Whatever it takes, the client sees one S3 store, and no other's address."""

import base64
import hashlib
import json
import re
import socket
import threading
import time
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.batch import batch_get
from support.clients import boto3_client
from support.gateway import LIMITED, NOTHING, READ_ONLY, Backend, Gateway
from support.process import wait_for
from support.scripted import CLOSE, Ask, ScriptedStore, answer, error
from support.store import BOTH, Credentials, Target
from support.versitygw import VersityGw
from support.wire import Answer, Request, call, object_path, presign, send, sign

XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"
STORES = BOTH
WEED = ["routes-weed-b", "routes-weed-a"]
MEMORY = ["routes-mem-1", "routes-mem-2"]
ALIAS, BEHIND_ALIAS = "routes-alias", "hidden-name-of-the-alias"


def route(bucket: str, backend: str, renamed: str | None = None) -> str:
    other = f'backend_bucket = "{renamed}"\n' if renamed else ""
    return f'[[routes]]\nbucket = "{bucket}"\nbackend = "{backend}"\n{other}'


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedStore]:
    server = ScriptedStore()
    yield server
    server.stop()


def assert_nothing_of(answer: Answer, *secrets: str) -> None:
    """Neither in the head nor in the body."""
    whole = "\n".join(f"{name}: {value}" for name, value in answer.headers).encode("latin-1") + answer.body
    for secret in secrets:
        assert secret.encode() not in whole, answer


# One list of buckets


@pytest.fixture(scope="module")
def two(start_gateway: Callable[..., Gateway], seaweedfs: Target) -> Gateway:
    """Buckets on SeaweedFS, in memory, and one there by another name. The SeaweedFS has buckets of other modules too."""
    backends = [Backend("weed", "routes-weed-*", seaweedfs), Backend("memory", "routes-mem-*", None)]
    running = start_gateway(backends, route(ALIAS, "memory", BEHIND_ALIAS), "two")
    assert call(seaweedfs, "PUT", "/beyond-all-routes").status == 200
    for bucket in [*WEED, *MEMORY, ALIAS]:
        made = call(running.s3, "PUT", f"/{bucket}")
        assert made.status == 200, made
        assert made.get("location") in (None, f"/{bucket}"), made
    return running


def names(listed: Answer) -> list[str]:
    assert listed.status == 200, listed
    root = ElementTree.fromstring(listed.body)
    assert root.tag == f"{{{XMLNS}}}ListAllMyBucketsResult"
    return [element.text or "" for element in root.iterfind(f".//{{{XMLNS}}}Bucket/{{{XMLNS}}}Name")]


ALL = sorted([*WEED, *MEMORY, ALIAS])


def test_buckets_of_all_backends_are_one_sorted_list(two: Gateway) -> None:
    listed = call(two.s3, "GET", "/")
    assert names(listed) == ALL
    assert listed.get("content-type") == "application/xml" and b"CreationDate" in listed.body
    assert b"<Owner>" in listed.body and BEHIND_ALIAS.encode() not in listed.body
    assert names(send(two.s3, presign(two.s3, "GET", "/"))) == ALL
    s3: Any = boto3_client(two.s3)
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ALL


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_the_list_of_buckets_is_paged(two: Gateway, size: int) -> None:
    s3: Any = boto3_client(two.s3)
    pages = list(s3.get_paginator("list_buckets").paginate(PaginationConfig={"PageSize": size}))
    sizes = [len(page["Buckets"]) for page in pages]
    assert [bucket["Name"] for page in pages for bucket in page["Buckets"]] == ALL
    assert len(pages) == -(-len(ALL) // size) and max(sizes) <= size


def test_the_list_of_buckets_has_a_prefix_by_the_clients_names(two: Gateway) -> None:
    s3: Any = boto3_client(two.s3)
    assert [b["Name"] for b in s3.list_buckets(Prefix="routes-a")["Buckets"]] == [ALIAS]
    assert s3.list_buckets(Prefix="hidden").get("Buckets", []) == []
    assert call(two.s3, "GET", "/?max-buckets=0").xml("Code") == "InvalidArgument"
    assert call(two.s3, "GET", "/?continuation-token=nonsense").xml("Code") == "InvalidArgument"


def test_the_list_of_buckets_needs_its_permission(two: Gateway) -> None:
    for pair in (LIMITED, NOTHING):
        assert call(two.as_identity(pair), "GET", "/").xml("Code") == "AccessDenied"
    assert names(call(two.as_identity(READ_ONLY), "GET", "/")) == ALL


@pytest.mark.parametrize("query", ["id=x", "delimiter=x", "list-type=2", "prefix&x-id=y", "x-amz-a=b"])
def test_every_list_of_buckets_is_of_those_that_routes_lead_to(two: Gateway, query: str) -> None:
    """Whatever parameters there are that ListBuckets does not have."""
    for pair in (two.s3, two.as_identity(READ_ONLY)):
        assert names(call(pair, "GET", f"/?{query}")) == ALL
    head, got = call(two.s3, "HEAD", f"/?{query}"), call(two.s3, "GET", f"/?{query}")
    assert (head.status, head.body, head.get("content-length")) == (200, b"", str(len(got.body)))


@pytest.mark.parametrize(("method", "query"), [("GET", "?x=1"), ("HEAD", "?x"), ("GET", "?location")])
def test_without_a_bucket_there_is_nothing_but_the_list(two: Gateway, method: str, query: str) -> None:
    answer = call(two.s3, method, f"/{query}")
    assert answer.status == 501 and (method == "HEAD" or answer.xml("Code") == "NotImplemented"), answer
    assert call(two.as_identity(READ_ONLY), method, f"/{query}").status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_is_written_without_a_bucket(two: Gateway, method: str) -> None:
    for pair in (two.s3, two.as_identity(READ_ONLY)):
        assert call(pair, method, "/").xml("Code") == "MethodNotAllowed"


def test_one_backend_with_every_bucket_lists_them_itself(gateway: Gateway, store: Target) -> None:
    """Nothing is read or written anew."""
    through, direct = call(gateway.s3, "GET", "/"), call(store, "GET", "/")
    assert (through.status, through.body) == (200, direct.body)


@pytest.fixture(scope="module")
def partly(start_gateway: Callable[..., Gateway], scripted: ScriptedStore) -> Gateway:
    """Buckets of a scripted store beside those in memory."""
    backends = [Backend("memory", "routes-mem-*", None), Backend("scripted", "*", scripted.target)]
    running = start_gateway(backends, '[log]\nformat = "json"\n', "partly")
    assert call(running.s3, "PUT", "/routes-mem-x").status == 200
    return running


def listing(names: list[str], token: str = "", more: str = "") -> bytes:
    buckets = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in names)
    token = f"<ContinuationToken>{token}</ContinuationToken>" if token else ""
    body = f"<ListAllMyBucketsResult><Buckets>{buckets}</Buckets>{token}</ListAllMyBucketsResult>"
    return answer(200, {"content-type": "application/xml"}, (body + more).encode())


def test_a_backend_is_asked_page_by_page(partly: Gateway, scripted: ScriptedStore) -> None:
    have = [f"bucket-{n:04}" for n in range(2500)]

    def paged(ask: Ask) -> bytes:
        start, size = (
            int(ask.query.get("continuation-token", "0+/=").removesuffix("+/=")),
            int(ask.query["max-buckets"]),
        )
        token = f"{start + size}+/=" if start + size < len(have) else ""
        # Not sorted, and with one that another backend has: the rules say whose it is.
        return listing([*reversed(have[start : start + size]), "routes-mem-y"], token)

    scripted.on("", paged)
    before = len(scripted.of(""))
    assert names(call(partly.s3, "GET", "/")) == [*have, "routes-mem-x"]
    assert len(scripted.of("")) == before + 3
    assert names(call(partly.s3, "GET", "/?max-buckets=3")) == have[:3]
    assert names(call(partly.s3, "GET", "/?prefix=bucket-24")) == have[2400:]


BAD_LISTS: dict[str, tuple[bytes, int]] = {
    "denied": (error(403, "AccessDenied"), 403),
    "failing": (error(500, "InternalError"), 503),
    "unavailable": (error(503, "ServiceUnavailable"), 503),
    "unknown": (error(501, "NotImplemented"), 503),
    "refused": (error(400, "InvalidRequest"), 502),
    "redirect": (answer(301, {"location": "http://10.9.8.7/"}), 502),
    "garbage": (answer(200, {}, b"<html>10.9.8.7</html>"), 502),
    "half": (answer(200, {}, b"<ListAllMyBucketsResult><Buckets>"), 502),
    "cut": (answer(200, {"content-length": "9999"}, b"<ListAllMyBucketsResult><Buckets>") + CLOSE, 502),
    "huge": (answer(200, {}, b"<ListAllMyBucketsResult>" + b"x" * (5 << 20)), 502),
    "endless": (listing(["a"], token="again"), 502),
    "hang-up": (CLOSE, 502),
}


@pytest.mark.parametrize("fault", BAD_LISTS)
def test_half_a_list_of_buckets_is_an_error(partly: Gateway, scripted: ScriptedStore, fault: str) -> None:
    said, status = BAD_LISTS[fault]
    scripted.on("", lambda _: said)
    listed = call(partly.s3, "GET", "/")
    assert listed.status == status and '"scripted"' in (listed.xml("Message") or ""), listed
    assert_nothing_of(listed, scripted.authority, "10.9.8.7", "routes-mem-x", "memory")


def logged(gateway: Gateway, path: str, status: int | None = None) -> dict[str, Any]:
    """The first access line of a path, or of its answers with a status."""

    def line() -> dict[str, Any] | None:
        all_lines = [json.loads(text) for text in gateway.process.stderr().splitlines()]
        fields = [line.get("fields", line) for line in all_lines if line.get("target") == "batchgate::access"]
        of_path = (line for line in fields if line["http.path"] == path)
        return next((line for line in of_path if status in (None, line["http.status"])), None)

    return wait_for(f"the line of {path}", line, 10)


def test_a_fault_names_the_backend_that_it_is_of(partly: Gateway, scripted: ScriptedStore) -> None:
    """To whoever asked and to whoever reads the log, by its name in the settings."""
    faults = {"down": (CLOSE, 502), "garbage": (b"no HTTP\r\n\r\n", 502), "away": (answer(301), 502)}
    for bucket, (said, status) in faults.items():
        scripted.on(bucket, lambda _, said=said: said)
        heard = call(partly.s3, "GET", f"/{bucket}/k")
        assert heard.status == status and '(backend "scripted")' in (heard.xml("Message") or ""), heard
        assert_nothing_of(heard, scripted.authority)
        assert logged(partly, f"/{bucket}/k")["backend"] == "scripted"


def test_the_log_says_who_asked_and_which_backend(partly: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("denies", lambda _: error(403, "AccessDenied"))
    for path, backend in {"/routes-mem-x/missing": "memory", "/denies/k": "scripted"}.items():
        heard = call(partly.s3, "GET", path)
        assert backend not in (heard.xml("Message") or ""), "the store's own words"
        line = logged(partly, path)
        assert (line["backend"], line["client.address"]) == (backend, "127.0.0.1"), line
    assert call(partly.as_identity(NOTHING), "GET", "/denies/nothing").status == 403
    line = logged(partly, "/denies/nothing")
    assert "backend" not in line and line["client.address"] == "127.0.0.1", line


def test_the_log_says_which_backend_a_client_did_not_wait_for(partly: Gateway, scripted: ScriptedStore) -> None:
    asked, left = threading.Event(), threading.Event()

    def hangs(_: Ask) -> bytes:
        asked.set()
        left.wait(20)
        return CLOSE

    scripted.on("hangs", hangs)
    with socket.create_connection(partly.s3.address, timeout=20) as sock:
        sock.sendall(sign(partly.s3, "GET", "/hangs/k").raw())
        assert asked.wait(20)
    line = logged(partly, "/hangs/k")
    left.set()
    assert (line["http.status"], line["backend"]) == (499, "scripted"), line


def test_the_log_says_which_backends_one_list_is_of(partly: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("", lambda _: listing(["a"]))
    assert names(call(partly.s3, "GET", "/")) == ["a", "routes-mem-x"]
    assert sorted(logged(partly, "/", 200)["backend"].split(",")) == ["memory", "scripted"]


def test_who_has_not_signed_is_not_told_which_backend(start_gateway: Callable[..., Gateway]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = Target(f"http://127.0.0.1:{closed.getsockname()[1]}", Credentials("K", "secret"))
    backends = [Backend("memory", "routes-mem-*", None), Backend("acme-dc1", "*", dead)]
    log = '[log]\nformat = "json"\n'
    gateway = start_gateway(backends, log, "untold", "anonymous = true")
    asking = {"Origin": "http://site.test", "Access-Control-Request-Method": "PUT"}
    asks = (
        ("OPTIONS", "/b/o", asking, 503, "acme-dc1"),
        ("GET", "/b/g", {}, 503, "acme-dc1"),
        ("PUT", "/b/p", {}, 503, "acme-dc1"),
        ("GET", "/", {}, 403, "memory"),
    )
    for method, path, headers, status, backend in asks:
        host = gateway.s3.endpoint.removeprefix("http://")
        heard = send(gateway.s3, Request.framed(method, path, host, list(headers.items()), b""))
        assert heard.status == status, heard
        assert_nothing_of(heard, "acme", "dc1", "memory")
        assert logged(gateway, path)["backend"] == backend
    told = call(gateway.s3, "GET", "/b/signed")
    assert told.status == 503 and '(backend "acme-dc1")' in (told.xml("Message") or ""), told


# A bucket that has another name at the store


@pytest.fixture(scope="module")
def renaming(start_gateway: Callable[..., Gateway], store: Target) -> Gateway:
    return start_gateway([Backend("store", "routes-*", store)], route("known-as", "store", BEHIND_ALIAS), "known-as")


def test_trap_a_renamed_bucket_is_called_by_its_clients_name(renaming: Gateway, store: Target) -> None:
    made = call(renaming.s3, "PUT", "/known-as")
    assert made.status in (200, 409) and made.get("location") in (None, "/known-as"), made
    assert call(renaming.s3, "PUT", "/known-as/k", {}, b"v").status == 200
    upload = call(renaming.s3, "POST", "/known-as/parts?uploads=")
    upload_id = (re.search(rb"<UploadId>(.*?)</UploadId>", upload.body) or [b"", b""])[1].decode()
    part = call(renaming.s3, "PUT", f"/known-as/parts?partNumber=1&uploadId={upload_id}", {}, b"part")
    parts = f"<Part><PartNumber>1</PartNumber><ETag>{part.get('etag')}</ETag></Part>"
    complete = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    answers = [
        made,
        upload,
        call(renaming.s3, "GET", "/known-as"),
        call(renaming.s3, "GET", "/known-as?list-type=2&max-keys=1"),
        call(renaming.s3, "GET", "/known-as?uploads="),
        call(renaming.s3, "GET", f"/known-as/parts?uploadId={upload_id}"),
        call(renaming.s3, "GET", "/known-as/missing"),
        call(renaming.s3, "GET", "/known-as?uploads=&max-uploads=-1"),
        call(renaming.s3, "GET", "/known-as/k", {"If-Match": '"no"'}),
        call(renaming.s3, "GET", "/known-as/k", {"Range": "bytes=9-"}),
        call(renaming.s3, "POST", f"/known-as/parts?uploadId={upload_id}", {}, complete),
    ]
    for said in answers:
        assert_nothing_of(said, BEHIND_ALIAS, store.endpoint.removeprefix("http://"))
    assert [said.status for said in answers[1:6]] == [200] * 5 and answers[-1].status == 200, answers
    for said in answers[1:6]:
        assert b">known-as</" in said.body, said
    s3: Any = boto3_client(renaming.s3)
    assert s3.list_objects_v2(Bucket="known-as")["Name"] == "known-as"
    assert s3.list_objects(Bucket="known-as")["Name"] == "known-as"
    for number, key in enumerate(["k", "parts"], 1):
        s3.delete_object(Bucket="known-as", Key=key)
        assert s3.list_objects_v2(Bucket="known-as")["KeyCount"] == 2 - number
    assert call(renaming.s3, "DELETE", "/known-as").status == 204


@pytest.mark.only_on("seaweedfs", reason="the embedded store has no versions")
def test_versions_of_a_renamed_bucket(renaming: Gateway) -> None:
    assert call(renaming.s3, "PUT", "/known-as").status == 200
    assert call(renaming.s3, "PUT", "/known-as/v", {}, b"v").status == 200
    s3: Any = boto3_client(renaming.s3)
    assert s3.list_object_versions(Bucket="known-as")["Name"] == "known-as"
    assert BEHIND_ALIAS.encode() not in call(renaming.s3, "GET", "/known-as?versions=").body
    assert call(renaming.s3, "DELETE", "/known-as/v").status == 204
    assert call(renaming.s3, "DELETE", "/known-as").status == 204


@pytest.fixture(scope="module")
def odd(start_gateway: Callable[..., Gateway], scripted: ScriptedStore) -> Gateway:
    """A scripted store, of which two backends are made: what is on one of them is not on the other."""
    backends = [Backend("one", "one-*", scripted.target), Backend("two", "two-*", scripted.target)]
    more = route("as-one", "one", "stores-name") + route("copied-from", "one", "stores-source")
    return start_gateway(backends, more, "odd")


XML = {"content-type": "application/xml"}
KEYS = "".join(f"<Contents><Key>{'k' * 1000}{n:04}</Key><Name>stores-name</Name></Contents>" for n in range(1000))
# What the store says of its bucket, and what its client hears.
ODD_LISTINGS = {
    "namespace": (
        f'<a:ListBucketResult xmlns:a="{XMLNS}"><a:Name>stores-name</a:Name></a:ListBucketResult>',
        f'<a:ListBucketResult xmlns:a="{XMLNS}"><a:Name>as-one</a:Name></a:ListBucketResult>',
    ),
    "cdata": (
        "<ListBucketResult><Name><![CDATA[stores-name</Name>]]></Name></ListBucketResult>",
        "<ListBucketResult><Name>as-one</Name></ListBucketResult>",
    ),
    "entities": (
        "<ListVersionsResult><Name>stores&#45;name</Name></ListVersionsResult>",
        "<ListVersionsResult><Name>as-one</Name></ListVersionsResult>",
    ),
    "comments": (
        "<!-- > --><ListBucketResult a='>'><Prefix>stores-name</Prefix><Name>stores-name</Name ></ListBucketResult>",
        "<!-- > --><ListBucketResult a='>'><Prefix>stores-name</Prefix><Name>as-one</Name ></ListBucketResult>",
    ),
    "thousand-long-keys": (
        f"<ListBucketResult>{KEYS}<Name>stores-name</Name></ListBucketResult>",
        f"<ListBucketResult>{KEYS}<Name>as-one</Name></ListBucketResult>",
    ),
    "not-xml": ('{"Name": "stores-name"}', '{"Name": "stores-name"}'),
    "another-root": ("<Policy><Name>stores-name</Name></Policy>", "<Policy><Name>stores-name</Name></Policy>"),
}


@pytest.mark.parametrize("name", ODD_LISTINGS)
def test_a_renamed_bucket_is_renamed_however_it_is_written(odd: Gateway, scripted: ScriptedStore, name: str) -> None:
    stores, clients = ODD_LISTINGS[name]
    scripted.on("stores-name", lambda ask: answer(200, XML, stores.encode()))
    listed = call(odd.s3, "GET", "/as-one", {"Accept-Encoding": "gzip"})
    assert (listed.status, listed.body, listed.broken) == (200, clients.encode(), None)
    assert "accept-encoding" not in scripted.of("stores-name")[-1].headers
    # An object may well be such a document.
    assert call(odd.s3, "GET", "/as-one/object").body == stores.encode()
    scripted.on("one-own", lambda ask: answer(200, XML, stores.encode()))
    own = call(odd.s3, "GET", "/one-own")
    assert (own.body, own.get("content-length")) == (stores.encode(), str(len(stores)))


def test_a_name_that_does_not_end_breaks_the_answer(odd: Gateway, scripted: ScriptedStore) -> None:
    """It is not held without bound, and not let out."""
    for body in (b"<ListBucketResult><Name>stores-name", b"<ListBucketResult><Name>" + b"stores-name" * 5000):
        scripted.on("stores-name", lambda ask, body=body: answer(200, XML, body))
        with socket.create_connection(odd.s3.address, timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(sign(odd.s3, "GET", "/as-one").raw())
            said = stream.read()
        assert b"stores-name" not in said and not said.endswith(b"0\r\n\r\n"), said


@pytest.mark.parametrize("query", ["?uploadId=", "?uploadId", "?uploadId=u", ""])
def test_an_object_is_never_looked_into_whatever_its_client_says(
    odd: Gateway, scripted: ScriptedStore, query: str
) -> None:
    """Also where the store does not know of uploads and gives the object."""
    stores, _ = ODD_LISTINGS["namespace"]
    scripted.on("stores-name", lambda ask: answer(200, {**XML, "etag": '"e"'}, stores.encode()))
    heard = call(odd.s3, "GET", f"/as-one/k{query}", {"x-amz-copy-source": "/as-one/k"})
    assert (heard.status, heard.body, heard.get("content-length")) == (200, stores.encode(), str(len(stores))), heard


@pytest.mark.parametrize("query", ["location", "policy", "cors", "tagging"])
def test_a_setting_of_a_renamed_bucket_keeps_its_length(odd: Gateway, scripted: ScriptedStore, query: str) -> None:
    scripted.on("stores-name", lambda ask: answer(200, XML, b"<LocationConstraint>us-east-1</LocationConstraint>"))
    assert call(odd.s3, "GET", f"/as-one?{query}").get("content-length") == "50"


def exchange_1_0(target: Target, path: str) -> tuple[bytes, bool]:
    """What comes for a GET over HTTP/1.0, and whether it ends in a reset."""
    with socket.create_connection(target.address, timeout=20) as sock:
        sock.sendall(sign(target, "GET", path).raw("HTTP/1.0"))
        said = b""
        try:
            while more := sock.recv(65536):
                said += more
        except ConnectionResetError:
            return said, True
        return said, False


def test_half_an_answer_over_http_1_0_does_not_look_whole(odd: Gateway, scripted: ScriptedStore) -> None:
    """There only the connection's end says where a listing of a renamed bucket ends, or what came in chunks."""
    listed = answer(200, XML, ODD_LISTINGS["namespace"][0].encode())
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    for whole, half in (
        (listed, listed[:-8] + CLOSE),
        (chunked + b"3\r\nabc\r\n0\r\n\r\n", chunked + b"3\r\nabc\r\n" + CLOSE),
    ):
        scripted.on("stores-name", lambda ask, whole=whole: whole)
        said, is_reset = exchange_1_0(odd.s3, "/as-one?list-type=2")
        assert said.endswith((ODD_LISTINGS["namespace"][1].encode(), b"\r\n\r\nabc")) and not is_reset, said
        scripted.on("stores-name", lambda ask, half=half: half)
        said, is_reset = exchange_1_0(odd.s3, "/as-one?list-type=2")
        assert is_reset, said


ADDRESS = "10.9.8.7:8333"
HIDDEN = (
    f"<BucketName>stores-name</BucketName><Resource>/stores-name/k</Resource><Endpoint>stores-name.{ADDRESS}</Endpoint>"
)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 412, 500, 503])
@pytest.mark.parametrize("length", ["known", "chunked", "long"])
def test_an_error_never_shows_the_store(odd: Gateway, scripted: ScriptedStore, status: int, length: str) -> None:
    said = error(status, "SomeCode", HIDDEN + ("<Detail>x</Detail>" * 5000 if length == "long" else ""))
    if length == "chunked":
        head, body = said.split(b"\r\n\r\n", 1)
        head = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", head)
        said = head + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for bucket, clients, stores in (("stores-name", "as-one", "as-one"), ("one-own", "one-own", "stores-name")):
        scripted.on(bucket, lambda _: said)
        for method in ("GET", "PUT"):
            heard = call(odd.s3, method, f"/{clients}/k", {}, b"x" if method == "PUT" else b"")
            assert (heard.status, heard.xml("Code"), heard.broken) == (status, "SomeCode", None), heard
            assert heard.xml("BucketName") == stores and heard.xml("Resource") == f"/{stores}/k", heard
            assert heard.xml("Endpoint") == odd.s3.endpoint.removeprefix("http://"), heard
            assert_nothing_of(heard, ADDRESS)


def test_no_header_shows_the_store(odd: Gateway, scripted: ScriptedStore) -> None:
    tells = {
        "location": f"http://{ADDRESS}/stores-name",
        "content-location": f"http://{ADDRESS}/",
        "via": f"1.1 {ADDRESS}",
        "alt-svc": f'h3="{ADDRESS}"',
        "refresh": f"0; url=http://{ADDRESS}/",
        "seaweed-x-amz-owner": ADDRESS,
        "link": f"<http://{ADDRESS}/>; rel=preconnect",
        "server": "Scripted",
        "x-amz-website-redirect-location": "http://elsewhere.test/page",
    }
    scripted.on("stores-name", lambda _: answer(200, tells))
    for path in ("/as-one", "/as-one/k"):
        heard = call(odd.s3, "PUT", path, {}, b"")
        assert heard.status == 200 and heard.get("location") == path, heard
        assert_nothing_of(heard, ADDRESS)
        assert heard.get("server") == "Scripted"
        assert heard.get("x-amz-website-redirect-location") == "http://elsewhere.test/page", "an object's own"


def test_a_header_that_comes_several_times_shows_the_store_none_of_them(odd: Gateway, scripted: ScriptedStore) -> None:
    several = f"location: /k\r\nlocation: http://{ADDRESS}/\r\nx-amz-bucket-region: a\r\nx-amz-bucket-region: b\r\n"
    scripted.on("one-own", lambda _: f"HTTP/1.1 200 OK\r\n{several}content-length: 0\r\n\r\n".encode())
    heard = call(odd.s3, "PUT", "/one-own/k", {}, b"")
    said = [pair for pair in heard.headers if pair[0].lower() in ("location", "x-amz-bucket-region")]
    assert sorted(value for _, value in said) == sorted(["/k", odd.s3.region]), heard


def test_where_an_upload_ended_up_is_at_the_gateway(odd: Gateway, scripted: ScriptedStore) -> None:
    result = (
        f'<?xml version="1.0"?>\n<CompleteMultipartUploadResult xmlns="{XMLNS}"><Location>http://{ADDRESS}/x</Location>'
        "<Bucket>stores-name</Bucket></CompleteMultipartUploadResult>"
    )
    for bucket, clients in (("stores-name", "as-one"), ("one-own", "one-own")):
        scripted.on(bucket, lambda _: answer(200, XML, result.encode()))
        heard = call(odd.s3, "POST", f"/{clients}/a%26b?uploadId=u", {}, b"<CompleteMultipartUpload/>")
        assert f"<Location>{odd.s3.endpoint}/{clients}/a%26b</Location>".encode() in heard.body, heard
        assert (b"<Bucket>as-one<" in heard.body) == (bucket == "stores-name")
        assert_nothing_of(heard, ADDRESS)
        late = error(200, "InternalError", HIDDEN)
        scripted.on(bucket, lambda _, late=late: late)
        heard = call(odd.s3, "POST", f"/{clients}/k?uploadId=u", {}, b"<CompleteMultipartUpload/>")
        assert heard.status == 200 and heard.xml("Code") == "InternalError", heard
        assert_nothing_of(heard, ADDRESS)


# Copies


@pytest.mark.parametrize("query", ["", "?partNumber=1&uploadId=u"])
def test_trap_a_copy_across_backends_is_refused_by_the_buckets_names(
    odd: Gateway, scripted: ScriptedStore, query: str
) -> None:
    before = len(scripted.asked)
    refused = call(odd.s3, "PUT", f"/one-target/k{query}", {"x-amz-copy-source": "/two-source/k"})
    message = refused.xml("Message") or ""
    assert (refused.status, refused.xml("Code")) == (501, "NotImplemented"), refused
    assert '"two-source"' in message and '"one-target"' in message, message
    nowhere = call(odd.s3, "PUT", f"/one-target/k{query}", {"x-amz-copy-source": "/nowhere/k"})
    assert (nowhere.status, nowhere.xml("Code")) == (404, "NoSuchBucket"), nowhere
    assert len(scripted.asked) == before, "nothing was sent"


def test_a_copy_from_a_renamed_bucket_names_it_as_the_store_does(odd: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("one-target", lambda _: answer(200, XML, b"<CopyObjectResult/>"))
    assert call(odd.s3, "PUT", "/one-target/k", {"x-amz-copy-source": "as-one/dir%2Fk?versionId=v"}).status == 200
    assert scripted.of("one-target")[-1].headers["x-amz-copy-source"] == "/stores-name/dir%2Fk?versionId=v"


@pytest.mark.parametrize("status", [404, 200])
def test_a_copy_that_fails_names_the_bucket_that_it_is_about(
    odd: Gateway, scripted: ScriptedStore, status: int
) -> None:
    """That may be the source, and by the time that a store knows its status may be said."""
    for target, at_store in (("one-target", "one-target"), ("as-one", "stores-name")):
        for stores, clients in (("stores-source", "copied-from"), (at_store, target), ("one-third", "one-third")):
            members = f"<BucketName>{stores}</BucketName><Resource>/{stores}/k</Resource>"
            scripted.on(at_store, lambda _, members=members: error(status, "NoSuchBucket", members))
            heard = call(odd.s3, "PUT", f"/{target}/k", {"x-amz-copy-source": "/copied-from/k"})
            assert (heard.status, heard.xml("Code")) == (status, "NoSuchBucket"), heard
            assert (heard.xml("BucketName"), heard.xml("Resource")) == (clients, f"/{clients}/k"), heard


# A bucket that is somewhere else


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ScriptedStore]:
    """Where a store has no business to lead anyone: it must never be connected to."""
    server = ScriptedStore("127.0.0.2")
    yield server
    assert server.connections == 0
    server.stop()


TRUE_REGION = "eu-somewhere-1"


def signed_wrong(ask: Ask) -> bytes:
    """S3's answer to a signature for another region."""
    if ask.method == "HEAD":
        return answer(400, {"x-amz-bucket-region": TRUE_REGION, "content-length": "200"})
    return error(400, "AuthorizationHeaderMalformed", f"<Region>{TRUE_REGION}</Region>")


def moved(ask: Ask) -> bytes:
    """S3's answer at the wrong endpoint."""
    members = f"<Endpoint>{ask.bucket}.{ask.headers['host']}</Endpoint><Bucket>{ask.bucket}</Bucket>"
    said = error(301, "PermanentRedirect", members, {"x-amz-bucket-region": TRUE_REGION})
    return said.split(b"\r\n\r\n")[0] + b"\r\n\r\n" if ask.method == "HEAD" else said


def passing(ask: Ask) -> bytes:
    location = f"https://{ask.bucket}.{ask.headers['host']}/{ask.key}"
    return answer(307, {"location": location, "x-amz-bucket-region": TRUE_REGION})


ELSEWHERE: dict[str, Callable[[Ask], bytes]] = {"signed-wrong": signed_wrong, "moved": moved, "passing": passing}


def at_home(ask: Ask) -> bytes:
    body = b"" if ask.method in ("HEAD", "DELETE", "PUT") else b"it is here"
    length = {"content-length": "10"} if ask.method == "HEAD" else {}
    return answer(204 if ask.method == "DELETE" else 200, {"etag": '"e"', **length}, body)


def in_region(away: Callable[[Ask], bytes]) -> Callable[[Ask], bytes]:
    return lambda ask: at_home(ask) if ask.region == TRUE_REGION else away(ask)


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "POST", "LIST", "batch"])
def test_trap_a_store_that_has_the_bucket_elsewhere_is_asked_there(
    odd: Gateway, scripted: ScriptedStore, name: str, method: str
) -> None:
    """The client never hears of it."""
    bucket = f"one-{name}-{method.lower()}"
    scripted.on(bucket, in_region(ELSEWHERE[name]))
    for _ in range(2):
        if method == "batch":
            part = batch_get(odd.s3, bucket, ["k"]).parts[0]
            assert (part.status, part.body) == (200, b"it is here"), part
        else:
            path = f"/{bucket}" if method == "LIST" else f"/{bucket}/k" + ("?uploads=" if method == "POST" else "")
            heard = call(odd.s3, "GET" if method == "LIST" else method, path)
            assert heard.status == (204 if method == "DELETE" else 200), heard
            assert heard.body == (b"" if method in ("HEAD", "DELETE") else b"it is here")
    regions = [ask.region for ask in scripted.of(bucket)]
    assert regions == ["us-east-1", TRUE_REGION, TRUE_REGION], "it is learnt once"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_body_that_was_sent_to_the_wrong_place_is_asked_for_again(
    odd: Gateway, scripted: ScriptedStore, name: str
) -> None:
    bucket = f"one-{name}-put"
    scripted.on(bucket, in_region(ELSEWHERE[name]))
    request = sign(odd.s3, "PUT", f"/{bucket}/k", {}, b"body")
    first, second = send(odd.s3, request), send(odd.s3, request)
    assert (first.status, first.xml("Code"), first.get("retry-after")) == (503, "ServiceUnavailable", "1"), first
    assert "nothing was done" in (first.xml("Message") or "") and second.status == 200, (first, second)
    assert_nothing_of(first, scripted.authority)
    assert [(ask.region, ask.body) for ask in scripted.of(bucket)] == [("us-east-1", b"body"), (TRUE_REGION, b"body")]
    # Stock clients do so by themselves.
    other = f"one-{name}-boto"
    scripted.on(other, in_region(ELSEWHERE[name]))
    boto3_client(odd.s3).put_object(Bucket=other, Key="k", Body=b"body")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_new_bucket_is_made_where_the_store_says(odd: Gateway, scripted: ScriptedStore, name: str) -> None:
    """At once without a document, and by the client's next try with one."""
    for kind, body, statuses in (("bare", b"", [200]), ("said", created(TRUE_REGION), [503, 200])):
        bucket = f"one-{name}-{kind}"
        scripted.on(bucket, in_region(ELSEWHERE[name]))
        assert [call(odd.s3, "PUT", f"/{bucket}", {}, body).status for _ in statuses] == statuses, kind
        asks = [(ask.region, ask.body) for ask in scripted.of(bucket)]
        assert asks == [("us-east-1", body), (TRUE_REGION, body)], kind
        # Where it was is not where the next of that name is made.
        assert call(odd.s3, "DELETE", f"/{bucket}").status == 204
        call(odd.s3, "PUT", f"/{bucket}", {}, body)
        assert scripted.of(bucket)[3].region == "us-east-1", kind


def lead_astray(elsewhere: ScriptedStore, status: int) -> Callable[[Ask], bytes]:
    host = elsewhere.authority
    members = f"<Endpoint>{host}</Endpoint>"
    return lambda ask: error(
        status, "TemporaryRedirect", members, {"location": f"http://{host}/{ask.bucket}/{ask.key}"}
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_trap_a_store_leads_nobody_to_another_host(
    odd: Gateway, scripted: ScriptedStore, elsewhere: ScriptedStore, status: int
) -> None:
    bucket = f"one-astray-{status}"
    scripted.on(bucket, lead_astray(elsewhere, status))
    for method, body in (("GET", b""), ("HEAD", b""), ("PUT", b"x"), ("DELETE", b"")):
        heard = call(odd.s3, method, f"/{bucket}/k", {}, body)
        assert heard.status == 502, heard
        assert heard.get("location") is None
        assert_nothing_of(heard, elsewhere.authority, scripted.authority)
    part = batch_get(odd.s3, bucket, ["k"]).parts[0]
    assert (part.status, part.code) == (502, "BadGateway")
    assert elsewhere.authority.encode() not in part.body
    assert len(scripted.of(bucket)) == 5


@pytest.mark.parametrize("status", [301, 307])
def test_a_store_whose_host_is_its_regions_name_is_led_nowhere_by_another(
    start_gateway: Callable[..., Gateway], scripted: ScriptedStore, status: int
) -> None:
    """`http://garage:3900` in the region `garage`: what it calls a region must not become a host."""
    endpoint = scripted.target.endpoint.replace("127.0.0.1", "localhost")
    target = Target(endpoint, scripted.target.credentials, "localhost")
    gateway = start_gateway([Backend("local", "local-*", target)], "", f"local-{status}")
    foreign = {"x-amz-bucket-region": "ip6-localhost", "location": "http://169.254.169.254/"}
    scripted.on(f"local-{status}", lambda ask: answer(status, foreign))
    for method, body in (("GET", b""), ("PUT", b"data"), ("PUT", b"data")):
        assert call(gateway.s3, method, f"/local-{status}/k", {}, body).status in (502, 503)
    asked = [(ask.headers["host"], ask.region) for ask in scripted.of(f"local-{status}")]
    host = "localhost:" + scripted.authority.split(":")[1]
    assert asked == [(host, "localhost"), *[(host, "ip6-localhost")] * 3], "signed for it, and sent to nobody else"


def test_a_refusal_that_does_not_end_is_waited_for_once(odd: Gateway, scripted: ScriptedStore) -> None:
    """From its head on: by whoever looks for a region in it, and by whoever looks for a code."""
    scripted.on("one-stuck", lambda _: b"HTTP/1.1 400 Bad\r\ncontent-length: 100\r\n\r\n<Error>")
    waited: list[float] = []
    # What is busy may be late, but not always.
    while len(waited) < 4 and min(waited, default=9.0) > 5.7:
        started = time.monotonic()
        assert call(odd.s3, "GET", "/one-stuck/k").status == 502
        waited.append(time.monotonic() - started)
    assert 4 < min(waited) < 5.7, "an attempt's time, and not a second more"


def test_another_key_is_not_followed(odd: Gateway, scripted: ScriptedStore) -> None:
    """It would not be the one that was allowed."""
    location = {"location": f"http://{scripted.authority}/one-other/secret"}
    scripted.on("one-other-key", lambda _: answer(307, location))
    scripted.on("one-other", at_home)
    assert call(odd.s3, "GET", "/one-other-key/k").status == 502
    assert scripted.of("one-other") == []


@pytest.mark.parametrize("away", ["moved", "signed-wrong"])
def test_a_store_that_leads_in_circles_is_left(odd: Gateway, scripted: ScriptedStore, away: str) -> None:
    bucket = f"one-circle-{away}"

    def circle(ask: Ask) -> bytes:
        other = {"x-amz-bucket-region": f"region-{ask.number}"}
        if away == "moved":
            return error(301, "PermanentRedirect", "", other)
        return error(400, "AuthorizationHeaderMalformed", f"<Region>region-{ask.number}</Region>")

    scripted.on(bucket, circle)
    assert call(odd.s3, "GET", f"/{bucket}/k").status == 502
    assert len(scripted.of(bucket)) == 3
    assert batch_get(odd.s3, bucket, ["k"]).parts[0].status == 502


def test_a_bucket_that_comes_back_is_looked_for_anew(odd: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("one-back", in_region(signed_wrong))
    assert call(odd.s3, "GET", "/one-back/k").status == 200
    assert call(odd.s3, "DELETE", "/one-back").status == 204
    scripted.on("one-back", at_home)
    assert call(odd.s3, "PUT", "/one-back").status == 200
    assert scripted.of("one-back")[-1].region == "us-east-1"


def test_a_304_and_an_ordinary_400_are_answers(odd: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("one-answers", lambda _: answer(304, {"etag": '"e"', "content-length": ""}))
    assert call(odd.s3, "GET", "/one-answers/k", {"If-None-Match": '"e"'}).status == 304
    other_region = {"x-amz-bucket-region": TRUE_REGION}
    scripted.on("one-answers", lambda _: error(400, "InvalidArgument", "", other_region))
    heard = call(odd.s3, "GET", "/one-answers/k")
    assert (heard.status, heard.xml("Code")) == (400, "InvalidArgument")
    assert [ask.region for ask in scripted.of("one-answers")] == ["us-east-1"] * 2


def test_clients_are_told_the_region_that_they_sign_for(odd: Gateway, scripted: ScriptedStore) -> None:
    """Some ask with HEAD which region a bucket is in, and sign for it from then on; the gateway has one for all."""
    scripted.on("one-region", lambda _: answer(200, {"x-amz-bucket-region": TRUE_REGION}))
    assert call(odd.s3, "HEAD", "/one-region").get("x-amz-bucket-region") == odd.s3.region


@pytest.fixture(scope="module")
def abroad(start_gateway: Callable[..., Gateway], store: Target, scripted: ScriptedStore) -> Target:
    """A gateway in another region than its stores, and who signs for that one."""
    backends = [Backend("scripted", "one-*", scripted.target), Backend("store", "*", store)]
    running = start_gateway(backends, name="abroad", server='region = "eu-west-1"\n')
    return Target(running.s3.endpoint, running.s3.credentials, "eu-west-1")


def test_who_asks_where_a_bucket_is_signs_for_what_it_is_told(abroad: Target, gateway: Gateway, store: Target) -> None:
    """As minio-go does, and what is made with it."""
    bucket = "where-it-is"
    for method, path, body in (("PUT", f"/{bucket}", b""), ("PUT", f"/{bucket}/k", b"value")):
        assert call(abroad, method, path, {}, body).status == 200
    told = ElementTree.fromstring(call(abroad, "GET", f"/{bucket}?location=").body).text or "us-east-1"
    assert told == "eu-west-1"
    assert call(Target(abroad.endpoint, abroad.credentials, told), "GET", f"/{bucket}/k").body == b"value"
    s3: Any = boto3_client(abroad)
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] == "eu-west-1"
    # In the store's own region nothing is another.
    through, direct = (call(target, "GET", f"/{bucket}?location=") for target in (gateway.s3, store))
    assert (through.status, through.body) == (direct.status, direct.body)
    for name in ("content-length", "content-type", "transfer-encoding"):
        assert through.get(name) == direct.get(name)
    for path in (f"/{bucket}/k", f"/{bucket}"):
        assert call(abroad, "DELETE", path).status == 204


def location(region: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<LocationConstraint xmlns="{XMLNS}">{region}</LocationConstraint>'


INNER = "<LocationConstraint></LocationConstraint>"
# What a store says, and what who signs for us-east-1 and who signs for eu-west-1 hears, if that is something else.
WHERE: dict[str, tuple[str, str | None, str | None]] = {
    "elsewhere": (location("mars"), location(""), location("eu-west-1")),
    "unnamed": (location(""), None, location("eu-west-1")),
    "empty": ("<LocationConstraint/>", None, "<LocationConstraint>eu-west-1</LocationConstraint>"),
    "here": (location("eu-west-1"), location(""), None),
    "seaweedfs": (f"<CreateBucketConfiguration>{INNER}</CreateBucketConfiguration>", None, location("eu-west-1")),
    "of-old": (location("EU"), location(""), None),
    "long": (location("x" * 3000), None, None),
    "half": (location("mars")[:-9], None, None),
    "another": ("<Policy>mars</Policy>", None, None),
    "none": ("", None, None),
}


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_store_in_another_region_is_where_its_clients_sign_for(
    odd: Gateway, abroad: Target, scripted: ScriptedStore, name: str, framing: str
) -> None:
    """In its own document, and nothing else of the answer is another."""
    said, *told = WHERE[name]
    whole = answer(200, {**XML, "x-amz-bucket-region": "mars"}, said.encode())
    if framing == "chunks":
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece.encode()) for piece in (said[:70], said[70:]) if piece)
        headers = {**XML, "x-amz-bucket-region": "mars", "content-length": "", "transfer-encoding": "chunked"}
        whole = answer(200, headers, chunks + b"0\r\n\r\n")
    scripted.on("one-where", lambda _: whole)
    for target, other in zip((odd.s3, abroad), told, strict=True):
        heard = call(target, "GET", "/one-where?location=", {"Accept-Encoding": "gzip"})
        assert (heard.status, heard.body, heard.broken) == (200, (said if other is None else other).encode(), None)
        assert heard.get("content-length") == (str(len(heard.body)) if framing == "length" else None)
        assert heard.get("content-type") == "application/xml" and heard.get("x-amz-request-id") == "scripted"
        assert heard.get("x-amz-bucket-region") == target.region
        # An object may well be such a document.
        assert call(target, "GET", "/one-where/object?location=").body == said.encode()


def test_half_of_where_a_bucket_is_is_an_error(abroad: Target, scripted: ScriptedStore) -> None:
    scripted.on("one-where", lambda _: answer(200, {**XML, "content-length": "999"}, location("mars").encode()) + CLOSE)
    heard = call(abroad, "GET", "/one-where?location=")
    assert heard.status == 502 and heard.xml("Code") == "BadGateway" and b"mars" not in heard.body, heard


def test_who_may_sign_for_any_region_is_told_what_the_store_says(
    start_gateway: Callable[..., Gateway], scripted: ScriptedStore
) -> None:
    server = "any_region = true\n"
    everywhere = start_gateway([Backend("scripted", "one-*", scripted.target)], "", "everywhere", server).s3
    headers = {**XML, "x-amz-bucket-region": TRUE_REGION}
    scripted.on("one-where", lambda _: answer(200, headers, location(TRUE_REGION).encode()))
    heard = call(everywhere, "GET", "/one-where?location=")
    assert heard.body == location(TRUE_REGION).encode() and heard.get("x-amz-bucket-region") == TRUE_REGION
    there = Target(everywhere.endpoint, everywhere.credentials, TRUE_REGION)
    assert call(there, "GET", "/one-where/k").status == 200
    assert scripted.of("one-where")[-1].region == "us-east-1", "the store has a region of its own"


def created(region: str, more: str = "") -> bytes:
    """The configuration of a bucket, as boto3 writes it."""
    constraint = f"<LocationConstraint>{region}</LocationConstraint>" if region else ""
    return f'<CreateBucketConfiguration xmlns="{XMLNS}">{constraint}{more}</CreateBucketConfiguration>'.encode()


@pytest.mark.parametrize(("own", "stores"), [("us-east-1", "eu-west-1"), ("eu-west-1", "us-east-1")])
def test_a_new_bucket_is_in_the_stores_region_for_whoever_names_the_gateways(
    start_gateway: Callable[..., Gateway], tmp_path: Path, own: str, stores: str
) -> None:
    """As `aws s3 mb` does, which names none for us-east-1; the store takes its own only, and checks what is said of a body."""
    store = VersityGw(tmp_path, region=stores)
    try:
        assert call(store.target, "PUT", "/refused", {}, created(own)).xml("Code") == "InvalidLocationConstraint"
        running = start_gateway([Backend("store", "*", store.target)], name="new", server=f'region = "{own}"\n')
        target = Target(running.s3.endpoint, running.s3.credentials, own)
        s3, direct = (boto3_client(each) for each in (target, store.target))
        s3.create_bucket(Bucket="unnamed")
        s3.create_bucket(Bucket="unnamed-with-tags", CreateBucketConfiguration={"Tags": [{"Key": "a", "Value": "b"}]})
        named = {"CreateBucketConfiguration": {"LocationConstraint": own}}
        s3.create_bucket(Bucket="named", **named)
        tagged = created(own, "<Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags>")
        digests = {"Content-MD5": base64.b64encode(hashlib.md5(tagged).digest()).decode()}
        digests |= {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(tagged).to_bytes(4, "big")).decode()}
        assert call(target, "PUT", "/named-with-tags", digests, tagged).status == 200
        presigned = presign(target, "PUT", "/presigned?x-id=CreateBucket", body=created(own))
        assert send(target, presigned).status == 200
        buckets = ["named", "named-with-tags", "presigned", "unnamed", "unnamed-with-tags"]
        assert [bucket["Name"] for bucket in direct.list_buckets()["Buckets"]] == buckets
        for bucket in buckets:
            told = None if own == "us-east-1" else own
            assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] == told
        for bucket in ("named-with-tags", "unnamed-with-tags"):
            assert direct.get_bucket_tagging(Bucket=bucket)["TagSet"] == [{"Key": "a", "Value": "b"}]
        for body, refusal in {created("mars"): "InvalidLocationConstraint", created(own)[:-1]: "MalformedXML"}.items():
            heard = call(target, "PUT", "/nowhere", {}, body)
            assert (heard.status, heard.xml("Code")) == (400, refusal), heard
        wrong = {"Content-MD5": base64.b64encode(hashlib.md5(b"").digest()).decode()}
        assert call(target, "PUT", "/nowhere", wrong, created(own)).xml("Code") == "BadDigest"
        assert call(target, "HEAD", "/nowhere").status == 404
        assert call(target.with_credentials(READ_ONLY), "PUT", "/nowhere", {}, created(own)).status == 403
    finally:
        store.stop()


def test_a_new_bucket_is_in_the_region_that_the_store_says_whatever_the_settings_say(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    store = VersityGw(tmp_path)
    try:
        settled = Target(store.target.endpoint, store.target.credentials, "mars")
        for own in ("us-east-1", "mars"):
            running = start_gateway([Backend("store", "*", settled)], name=f"from-{own}", server=f'region = "{own}"\n')
            target = Target(running.s3.endpoint, running.s3.credentials, own)
            for kind, body in {"bare": b"", "said": created("")}.items():
                path = f"/{own}-{kind}"
                statuses = [call(target, "PUT", path, {}, body).status for _ in range(2)]
                # Without a document, and none that the gateway writes, it is sent again from there.
                assert statuses == ([200, 409] if (own, kind) == ("mars", "bare") else [503, 200]), path
                assert call(store.target, "HEAD", path).status == 200
    finally:
        store.stop()


# What a client of a gateway in us-east-1 says of a new bucket, and what a store in eu-west-1 hears.
NEW: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", created("eu-west-1")),
    "own": (created("us-east-1"), created("eu-west-1")),
    "tags": (created("", "<Tags> </Tags>"), created("eu-west-1", "<Tags> </Tags>")),
    "other": (created("mars"), created("mars")),
    "placement": (created(":cold"), created(":cold")),
    "nonsense": (b"<Create", b"<Create"),
}


@pytest.mark.parametrize("server", ["anonymous", "any_region"])
def test_a_store_in_another_region_hears_of_a_new_bucket_there(
    start_gateway: Callable[..., Gateway], scripted: ScriptedStore, server: str
) -> None:
    """And of nothing else: neither by another request of that body, nor unsigned, nor of who may sign for any region."""
    elsewhere = Target(scripted.target.endpoint, scripted.target.credentials, "eu-west-1")
    target = start_gateway([Backend("scripted", "one-*", elsewhere)], "", "hears", f"{server} = true\n").s3
    scripted.on("one-new", lambda _: answer(200))
    for name, (said, heard) in NEW.items():
        told = said if server == "any_region" else heard
        assert call(target, "PUT", "/one-new", {}, said).status == 200
        ask = scripted.of("one-new")[-1]
        assert (ask.body, ask.region) == (told, "eu-west-1"), name
        assert ask.headers.get("content-length", "0") == str(len(told))
        assert ask.headers["x-amz-content-sha256"] == hashlib.sha256(told).hexdigest()
        for path in ("/one-new?tagging", "/one-new/key"):
            assert call(target, "PUT", path, {}, said).status == 200
            assert scripted.of("one-new")[-1].body == said, (name, path)
        if server == "anonymous":
            host = [("Host", target.endpoint.removeprefix("http://")), ("Content-Length", str(len(said)))]
            assert send(target, Request("PUT", "/one-new", host, said)).status == 200
            assert scripted.of("one-new")[-1].body == said, (name, "unsigned")


def test_what_is_learnt_of_one_bucket_is_not_of_another(odd: Gateway, scripted: ScriptedStore) -> None:
    scripted.on("one-learnt", in_region(signed_wrong))
    scripted.on("one-unlearnt", at_home)
    started = time.monotonic()
    for _ in range(50):
        assert call(odd.s3, "GET", object_path("one-learnt", "k")).status == 200
        assert call(odd.s3, "GET", object_path("one-unlearnt", "k")).status == 200
    assert time.monotonic() - started < 30
    assert {ask.region for ask in scripted.of("one-unlearnt")} == {"us-east-1"}
    assert [ask.region for ask in scripted.of("one-learnt")].count("us-east-1") == 1


def test_credentials_of_the_scripted_store_are_in_no_answer(odd: Gateway, scripted: ScriptedStore) -> None:
    pair: Credentials = scripted.target.credentials
    scripted.on("one-tells", lambda _: answer(200))
    assert call(odd.s3, "GET", "/one-tells/k").status == 200
    scripted.on(
        "one-tells",
        lambda ask: error(403, "SignatureDoesNotMatch", f"<AWSAccessKeyId>{pair.access_key}</AWSAccessKeyId>"),
    )
    heard = call(odd.s3, "GET", "/one-tells/k")
    assert heard.status == 403, heard
    assert_nothing_of(heard, pair.access_key, pair.secret_key)
