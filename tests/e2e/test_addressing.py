"""Every way to name a bucket and a key: path style and virtual-host style at once, several domains, a base path, IPv4 and
IPv6, both versions of HTTP, any Host. Each must reach the same object, and what is no such way must reach none."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from support import http2
from support.batch import document, read_batch
from support.gateway import DOMAIN, FULL, Backend, Gateway, settings
from support.rawsocket import exchange
from support.store import Target
from support.wire import Answer, Request, call, object_path, presign, quote_key, send, send_http2, sign

BASE = "/data/v1"
# The second is below the first, and both are below the third; clients write names in any case.
DOMAINS = [DOMAIN, f"data.{DOMAIN}", "batchgate.test", "Store.Example"]
# One has dots, one is called like a label of a domain and of the base path, the last like a page of the admin port.
BUCKETS = ["addressed", "addressed.with.dots", "data", "metrics"]
KEY = "dir/a b+c(é)@x=1,2&3;4"


@pytest.fixture(scope="module", autouse=True)
def buckets(seaweedfs: Target) -> None:
    for bucket in BUCKETS:
        assert call(seaweedfs, "PUT", f"/{bucket}").status == 200


class Placed:
    """A gateway below a base path, on both families of addresses."""

    def __init__(self, folder: Path, store: Target, base: str) -> None:
        listed = ", ".join(f'"{domain}"' for domain in DOMAINS)
        text = settings([Backend("store", "*", store)], server=f'base_path = "{base}"\n')
        text = text.replace('listen = ["127.0.0.1:0"]', 'listen = ["127.0.0.1:0", "[::1]:0"]', 1)
        text = text.replace(f'domains = ["{DOMAIN}"]', f"domains = [{listed}]", 1)
        self.base = base
        self.gateway = Gateway(folder, text, "placed")
        found = re.search(r"^listening s3 (http://\[::1\]:\d+)$", self.gateway.process.stdout(), re.M)
        assert found, self.gateway.process.stdout()
        self.targets = {"IPv4": self.gateway.s3, "IPv6": Target(found[1], FULL)}


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory, start_gateway: object, seaweedfs: Target) -> Any:
    """The gateways by their base paths."""
    running = {base: Placed(tmp_path_factory.mktemp("placed"), seaweedfs, base) for base in ("", BASE)}
    yield running
    for one in running.values():
        assert "panicked" not in one.gateway.process.stderr()
        assert one.gateway.stop() == 0


def hosts_of(style: str, bucket: str, target: Target) -> list[str]:
    """What a client may write into Host: for the path style the address or a domain, else the bucket below a domain."""
    address = target.endpoint.removeprefix("http://")
    if style == "path":
        return [address, "localhost", "127.0.0.1:1", "[::1]", "[::1]:65535", *DOMAINS, f"{DOMAIN.upper()}:80"]
    below = [f"{bucket}.{domain}" for domain in DOMAINS]
    # A domain of its own is no bucket of the domain above it.
    if bucket == "data":
        return below[1:]
    return [
        *below,
        f"{below[0]}:80",
        f"{below[1]}:9",
        f"{below[0]}.",
        f"{bucket.upper()}.{DOMAIN.upper()}",
        below[3].swapcase(),
    ]


def path_of(base: str, style: str, bucket: str, rest: str) -> str:
    path = f"{base}/{bucket}{rest}" if style == "path" else f"{base}{rest}"
    return path if path.startswith("/") else f"/{path}"


def deliver(target: Target, request: Request, version: str, folder: Path) -> Answer:
    if version == "HTTP/1.1":
        return send(target, request)
    answer = send_http2(target, request, folder)
    assert answer.http2
    return answer


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@pytest.mark.parametrize("style", ["path", "virtual"])
@pytest.mark.parametrize("base", ["", BASE])
def test_every_way_leads_to_the_object(
    placed: dict[str, Placed], seaweedfs: Target, tmp_path: Path, base: str, style: str, family: str, version: str
) -> None:
    target = placed[base].targets[family]
    for bucket in BUCKETS:
        for number, host in enumerate(hosts_of(style, bucket, target)):
            path = path_of(base, style, bucket, f"/{quote_key(KEY)}")
            body = f"{bucket} {host} {family} {version}".encode()
            where = f"{version} {host} {path}"
            put = deliver(target, sign(target, "PUT", path, {}, body, host=host), version, tmp_path)
            assert put.status == 200, (where, put)
            stored = call(seaweedfs, "GET", object_path(bucket, KEY))
            assert stored.body == body, where
            assert deliver(target, sign(target, "GET", path, host=host), version, tmp_path).body == body, where
            if host != host.lower():
                as_sent = sign(target, "GET", path, {"Host": host}, host=host).set("Host", host)
                assert deliver(target, as_sent, version, tmp_path).body == body, where
            if number % 3:
                continue
            spoken = Target(f"http://{host}", FULL)
            assert deliver(target, presign(spoken, "GET", path), version, tmp_path).body == body, where
            listed = path_of(base, style, bucket, "?list-type=2&encoding-type=url")
            answer = deliver(target, sign(target, "GET", listed, host=host), version, tmp_path)
            assert answer.status == 200 and b"<KeyCount>1</KeyCount>" in answer.body.replace(b"\n", b""), (
                where,
                answer,
            )
            batch = path_of(base, style, bucket, "?batch-get=")
            asked = sign(target, "POST", batch, {}, document([KEY]), host=host)
            parts = read_batch(deliver(target, asked, version, tmp_path)).parts
            assert [(part.status, part.body) for part in parts] == [(200, body)], where
            source = {"x-amz-copy-source": f"/{bucket}/{quote_key(KEY)}"}
            copied = path_of(base, style, bucket, "/copied")
            answer = deliver(target, sign(target, "PUT", copied, source, host=host), version, tmp_path)
            assert answer.status == 200, (where, answer)
            assert call(seaweedfs, "GET", f"/{bucket}/copied").body == body, where
            for name in (copied, path):
                assert deliver(target, sign(target, "DELETE", name, host=host), version, tmp_path).status == 204
            assert call(seaweedfs, "HEAD", object_path(bucket, KEY)).status == 404, where


@pytest.mark.parametrize("base", ["", BASE])
def test_the_service_level_has_no_bucket(placed: dict[str, Placed], base: str) -> None:
    target = placed[base].gateway.s3
    for host in [target.endpoint.removeprefix("http://"), *DOMAINS]:
        for path in {f"{base}/", base or "/"}:
            answer = send(target, sign(target, "GET", path, host=host))
            assert answer.status == 200 and b"<Name>addressed</Name>" in answer.body, (host, path, answer)
            capabilities = send(target, sign(target, "GET", f"{path}?batch-get=", host=host))
            assert capabilities.get("content-type") == "application/json", (host, path, capabilities)


def test_trap_a_gateway_under_a_path_prefix(placed: dict[str, Placed], seaweedfs: Target) -> None:
    """The prefix is a part of what is signed; nothing outside of it, however it is spelt, is taken for a bucket."""
    target = placed[BASE].gateway.s3
    assert call(seaweedfs, "PUT", "/addressed/kept", {}, b"kept").status == 200
    outside = ["/addressed/kept", "/data/addressed/kept", "/data/v1x/addressed/kept", "//data/v1/addressed/kept",
               "/data//v1/addressed/kept", "/DATA/v1/addressed/kept", "/%64ata/v1/addressed/kept",
               "/data%2Fv1/addressed/kept", "/x/../data/v1/addressed/kept"]  # fmt: skip
    for path in outside:
        for host in (None, f"addressed.{DOMAIN}"):
            for method in ("GET", "PUT", "DELETE"):
                answer = send(target, sign(target, method, path, {}, b"x" if method == "PUT" else b"", host=host))
                assert (answer.status, answer.xml("Code")) == (400, "InvalidURI"), (method, path, answer)
                assert "/data/v1" in (answer.xml("Message") or "")
            head = send(target, sign(target, "HEAD", path, host=host))
            assert (head.status, head.body) == (400, b""), "not 404: it says nothing of an object"
            batch = send(target, sign(target, "POST", f"{path}?batch-get=", {}, document(["kept"]), host=host))
            assert batch.status == 400, batch
    assert call(seaweedfs, "GET", "/addressed/kept").body == b"kept"
    # What was signed below one prefix, or below none, is good for no other.
    for signed, sent_to in (
        ("/addressed/kept", f"{BASE}/addressed/kept"),
        ("/other/v1/addressed/kept", f"{BASE}/addressed/kept"),
    ):
        for make in (sign, presign):
            request = make(target, "GET", signed)
            request.path = request.path.replace(signed, sent_to)
            answer = send(target, request)
            assert (answer.status, answer.xml("Code")) == (403, "SignatureDoesNotMatch"), answer
    # A copy source is a bucket and a key: it begins with no prefix.
    copied = f"{BASE}/addressed/copied"
    wrong = send(target, sign(target, "PUT", copied, {"x-amz-copy-source": f"{BASE}/addressed/kept"}))
    assert wrong.status in (400, 404), wrong
    assert send(target, sign(target, "PUT", copied, {"x-amz-copy-source": "/addressed/kept"})).status == 200


@pytest.mark.parametrize("base", ["", BASE])
def test_raw_paths_stay_raw_below_a_prefix(placed: dict[str, Placed], seaweedfs: Target, base: str) -> None:
    target = placed[base].gateway.s3
    assert call(seaweedfs, "PUT", "/addressed/r%252Fs/100%25.txt", {}, b"raw").status == 200
    for style, host in (("path", None), ("virtual", f"addressed.{DOMAIN}")):
        for spelt in ("/r%252Fs/100%25.txt", "/%72%252Fs/100%25%2Etxt", "/r%252Fs%2F100%25.txt"):
            path = path_of(base, style, "addressed", spelt)
            assert send(target, sign(target, "GET", path, host=host)).body == b"raw", (style, spelt)
    encoded = path_of(base, "path", "%61ddressed", "/r%252Fs/100%25.txt")
    assert send(target, sign(target, "GET", encoded)).body == b"raw"


@pytest.mark.parametrize("style", ["path", "virtual"])
@pytest.mark.parametrize("base", ["", BASE])
def test_an_upload_s_location_is_where_the_client_asked(placed: dict[str, Placed], base: str, style: str) -> None:
    target = placed[base].gateway.s3
    host = target.endpoint.removeprefix("http://") if style == "path" else f"addressed.{DOMAIN}:9"
    path = path_of(base, style, "addressed", "/in%20parts")
    begun = send(target, sign(target, "POST", f"{path}?uploads=", host=host))
    upload = re.search(rb"<UploadId>([^<]+)<", begun.body)
    assert upload, begun
    query = f"uploadId={upload[1].decode()}"
    part = send(target, sign(target, "PUT", f"{path}?partNumber=1&{query}", {}, b"part", host=host))
    etag = part.get("etag")
    whole = (
        f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    )
    done = send(target, sign(target, "POST", f"{path}?{query}", {}, whole.encode(), host=host))
    assert done.status == 200, done
    assert f"<Location>http://{host}{path}</Location>".encode() in done.body, done.body


def test_the_longest_domain_names_the_bucket(placed: dict[str, Placed], seaweedfs: Target) -> None:
    """Whatever the order in which they were written."""
    target = placed[""].gateway.s3
    assert call(seaweedfs, "PUT", "/addressed/longest", {}, b"longest").status == 200
    for host, path in (
        (f"addressed.data.{DOMAIN}", "/longest"),
        (f"addressed.{DOMAIN}", "/longest"),
        ("addressed.batchgate.test", "/longest"),
        (f"data.{DOMAIN}", "/addressed/longest"),
        (DOMAIN, "/addressed/longest"),
        ("xstore.example", "/addressed/longest"),
        ("addressed.elsewhere", "/addressed/longest"),
    ):
        assert send(target, sign(target, "GET", path, host=host)).body == b"longest", host


def test_trap_names_like_admin_paths(placed: dict[str, Placed], seaweedfs: Target) -> None:
    for base in ("", BASE):
        target = placed[base].gateway.s3
        for key in ("livez", "health", "configz"):
            assert call(target, "PUT", f"{base}/metrics/{key}", {}, key.encode()).status == 200
            assert call(seaweedfs, "GET", f"/metrics/{key}").body == key.encode()
        for name in ("/livez", "/readyz", "/configz", "/metrics/none"):
            direct, through = call(seaweedfs, "GET", name), call(target, "GET", f"{base}{name}")
            assert through.status == direct.status and through.get("x-batchgate-request-id"), (direct, through)
            codes = [re.findall(rb"<Code>.*?</Code>", answer.body) for answer in (direct, through)]
            assert codes[0] == codes[1], (direct, through)


# Host itself


def test_a_request_without_host_is_refused(placed: dict[str, Placed]) -> None:
    target = placed[""].gateway.s3
    for version in ("HTTP/1.1", "HTTP/1.0"):
        request = sign(target, "GET", "/addressed/k").set("Host", None)
        answer = exchange(target, request.raw(version))[0]
        assert answer.status == 400, answer
        twice = sign(target, "GET", "/addressed/k")
        twice.headers.append(("Host", f"addressed.{DOMAIN}"))
        assert exchange(target, twice.raw(version))[0].status == 400
        empty = sign(target, "GET", "/addressed/k").set("Host", "")
        assert exchange(target, empty.raw(version))[0].status in (400, 403)


def test_a_target_in_absolute_form(placed: dict[str, Placed], seaweedfs: Target) -> None:
    target = placed[BASE].gateway.s3
    assert call(seaweedfs, "PUT", "/addressed/absolute", {}, b"absolute").status == 200
    for host, path in ((f"addressed.{DOMAIN}", f"{BASE}/absolute"), ("localhost:1", f"{BASE}/addressed/absolute")):
        request = sign(target, "GET", path, host=host)
        request.path = f"http://{host}{path}"
        assert exchange(target, request.raw())[0].body == b"absolute", host
        request.path = f"http://other.{DOMAIN}{path}"
        answer = exchange(target, request.raw())[0]
        assert (answer.status, answer.xml("Code")) == (400, "InvalidRequest"), "two hosts are none"


def over_frames(target: Target, request: Request, extra: list[tuple[str, str]], authority: bool) -> int:
    """The status of an answer over HTTP/2 to a head that is written by hand."""
    fields = [(":method", request.method), (":scheme", "http"), (":path", request.path)]
    if authority:
        fields.insert(2, (":authority", request.get("host") or ""))
    fields += [(name.lower(), value) for name, value in request.headers if name.lower() != "host"] + extra
    block = b"".join(b"\0" + http2._text(name) + http2._text(value) for name, value in fields)
    with http2.begin(target) as sock, sock.makefile("rb") as stream:
        sock.sendall(http2.frame(http2.HEADERS, block, http2.END_HEADERS | http2.END_STREAM, 1))
        while True:
            got = http2.read_frame(stream)
            if got.kind == http2.RST_STREAM:
                return 0
            if got.kind == http2.HEADERS:
                return status_of(got.payload)


def status_of(block: bytes) -> int:
    """`:status`, the first field of an answer, which these tests know by its index alone (RFC 7541, appendix A)."""
    # A change of the table's size may stand before it.
    while block[0] & 0xE0 == 0x20:
        block = block[1:]
    return {0x88: 200, 0x8C: 400, 0x8D: 404}[block[0]]


def test_trap_http2_carries_no_host(placed: dict[str, Placed]) -> None:
    """`:authority` is the host that was signed; a Host beside it may say the same and nothing else."""
    target = placed[""].gateway.s3
    assert call(target, "PUT", "/addressed/authority", {}, b"x").status == 200
    for host, path in ((f"addressed.{DOMAIN}", "/authority"), (None, "/addressed/authority")):
        request = sign(target, "GET", path, host=host)
        own = request.get("host") or ""
        assert over_frames(target, request, [], authority=True) == 200
        assert over_frames(target, request, [("host", own)], authority=True) == 200
        assert over_frames(target, request, [("host", own)], authority=False) == 200
        assert over_frames(target, request, [("host", f"other.{DOMAIN}")], authority=True) == 400
        assert over_frames(target, request, [], authority=False) in (0, 400)


# Stock clients below a base path


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_boto3_below_a_base_path(start_gateway: Callable[..., Gateway], seaweedfs: Target, version: str) -> None:
    running = start_gateway(
        [Backend("store", "*", seaweedfs)], "", f"below-{version}", f'base_path = "{BASE}"\nsigv2 = true\n'
    )
    client = boto3.client(
        "s3",
        endpoint_url=running.s3.endpoint + BASE,
        region_name="us-east-1",
        aws_access_key_id=FULL.access_key,
        aws_secret_access_key=FULL.secret_key,
        config=Config(signature_version=version, s3={"addressing_style": "path"}),
    )
    client.put_object(Bucket="addressed", Key="boto é", Body=b"boto", ContentType="text/x")
    assert client.get_object(Bucket="addressed", Key="boto é")["Body"].read() == b"boto"
    assert client.head_bucket(Bucket="addressed")["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "addressed" in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    client.copy_object(Bucket="addressed", Key="boto copy", CopySource={"Bucket": "addressed", "Key": "boto é"})
    listed = client.list_objects_v2(Bucket="addressed", Prefix="boto")
    assert [item["Key"] for item in listed["Contents"]] == ["boto copy", "boto é"]
    url = client.generate_presigned_url("get_object", Params={"Bucket": "addressed", "Key": "boto é"}, ExpiresIn=60)
    assert BASE in url
    host = running.s3.endpoint.removeprefix("http://")
    assert send(running.s3, Request("GET", url.split(host, 1)[1], [("Host", host)])).body == b"boto"
    deleted = client.delete_objects(Bucket="addressed", Delete={"Objects": [{"Key": "boto é"}, {"Key": "boto copy"}]})
    assert len(deleted["Deleted"]) == 2
