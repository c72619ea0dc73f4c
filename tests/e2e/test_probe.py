"""`batchgate config check --probe`: what it says of stores of every sort, whether its advice works, what it leaves."""

import base64
import json
import re
import signal
import socket
import subprocess
import threading
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.clients import boto3_client
from support.gateway import BINARY, Backend, Gateway, clean_environment, settings
from support.picky import SECRET_WORDS, PickyStore, Seen, Whims
from support.store import Credentials, Target
from support.versitygw import VersityGw
from support.wire import UNSIGNED_PAYLOAD, call, send, sign

BUCKET = "probed"
PAIR = Credentials("PROBEKEY", "secret-of-the-probe")


@dataclass
class Probed:
    exit: int
    text: str

    def line(self, key: str) -> str:
        found = re.search(rf"^  {key} = .*$", self.text, re.M)
        assert found, self.text
        return found[0].strip()

    def table(self) -> dict[str, Any]:
        """Its lines, as somebody pastes them."""
        return tomllib.loads("\n".join(line for line in self.text.splitlines() if line.startswith("  ")))


def probe(folder: Path, backends: list[Backend], *args: str) -> Probed:
    file = folder / "probed.toml"
    file.write_text(settings(backends))
    argv = [str(BINARY), "config", "check", "--config", str(file), "--probe", *args]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=100)
    for secret in (PAIR.secret_key, SECRET_WORDS, *(b.target.credentials.secret_key for b in backends if b.target)):
        assert secret not in done.stdout + done.stderr
    return Probed(done.returncode, done.stdout)


@pytest.fixture
def picky() -> Iterator[Callable[..., PickyStore]]:
    started: list[PickyStore] = []

    def start(**whims: Any) -> PickyStore:
        started.append(PickyStore(Whims(**whims)))
        return started[-1]

    yield start
    for store in started:
        store.stop()


@pytest.fixture
def versitygw(tmp_path: Path) -> Iterator[Target]:
    store = VersityGw(tmp_path)
    yield store.target
    store.stop()


def behind(store: PickyStore, extra: str = "") -> list[Backend]:
    return [Backend("store", "*", Target(store.endpoint, PAIR), extra)]


def test_a_store_that_does_all_needs_nothing(seaweedfs: Target, tmp_path: Path) -> None:
    assert call(seaweedfs, "PUT", f"/{BUCKET}").status == 200
    probed = probe(tmp_path, [Backend("store", "*", seaweedfs)], "--probe-bucket", BUCKET)
    assert probed.exit == 0, probed.text
    expected = {"region": "us-east-1", "addressing": "path", "payload_signing": "when-known", "checksums": "forward"}
    assert probed.table() == {**expected, "content_md5": False}
    assert probed.text.count("# works") == 5, probed.text
    listed = call(seaweedfs, "GET", f"/{BUCKET}?list-type=2").body
    assert b"<Key>" not in listed, "nothing is left behind"


def test_without_a_bucket_nothing_is_written(
    seaweedfs: Target, picky: Callable[..., PickyStore], tmp_path: Path
) -> None:
    probed = probe(tmp_path, [Backend("store", "*", seaweedfs)])
    assert probed.exit == 0 and probed.line("checksums").split("#")[1].startswith(" not known"), probed.text
    store = picky()
    probed = probe(tmp_path, behind(store))
    assert probed.exit == 0, probed.text
    assert {request.method for request in store.seen} <= {"GET", "HEAD"}


def test_an_embedded_store_has_nothing_to_try(tmp_path: Path) -> None:
    probed = probe(tmp_path, [Backend("memory", "*", None)], "--probe-bucket", BUCKET)
    assert (probed.exit, probed.text) == (0, "backend memory\n  # is embedded: there is nothing to try\n")


def test_an_embedded_store_behind_a_gateway_needs_nothing(embedded_gateway: Gateway, tmp_path: Path) -> None:
    """Another gateway is a store as strict as S3 itself."""
    assert call(embedded_gateway.s3, "PUT", f"/{BUCKET}").status == 200
    probed = probe(tmp_path, [Backend("store", "*", embedded_gateway.s3)], "--probe-bucket", BUCKET)
    assert probed.exit == 0 and probed.text.count("# works") == 5, probed.text
    signed = [Backend("store", "*", embedded_gateway.s3, 'payload_signing = "always"\nchecksums = "verify"')]
    probed = probe(tmp_path, signed, "--probe-bucket", BUCKET)
    assert probed.exit == 0 and '"forward" would do as well' in probed.line("checksums"), probed.text
    assert b"<Key>" not in call(embedded_gateway.s3, "GET", f"/{BUCKET}?list-type=2").body


# What a store is picky about, what is to be set, and the reason that is given.
WHIMS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ignores checksums": ({}, {"checksums": "verify"}, "is taken for right"),
    "refuses trailers": ({"refuses_trailers": True}, {"checksums": "verify"}, "501 NotImplemented"),
    "keeps the framing": ({"keeps_framing": True}, {"checksums": "verify"}, "what is stored is not what was sent"),
    "needs Content-MD5": ({"needs_md5": True}, {"content_md5": True}, "400 InvalidRequest"),
    "refuses what is unsigned": ({"refuses_unsigned": True}, {"payload_signing": "always"}, "an unsigned body"),
    "is in another region": ({"region": "eu-west-7"}, {"region": "eu-west-7"}, "names this one"),
}


@pytest.mark.parametrize("name", WHIMS)
def test_a_picky_store_is_told_by_its_setting_and_the_advice_works(
    start_gateway: Callable[..., Gateway], picky: Callable[..., PickyStore], tmp_path: Path, name: str
) -> None:
    whims, advice, why = WHIMS[name]
    store = picky(**whims)
    probed = probe(tmp_path, behind(store), "--probe-bucket", BUCKET)
    assert probed.exit == 2, probed.text
    for key, value in advice.items():
        assert probed.table()[key] == value
        assert "# CHANGE, from " in probed.line(key) and why in probed.line(key), probed.text
    assert not store.objects, "nothing is left behind"
    # With all that it says, it has nothing more to say, and a client of today just works.
    lines = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in probed.table().items() if key not in ("region", "addressing")
    )
    target = Target(store.endpoint, PAIR, probed.table()["region"])
    backends = [Backend("store", "*", target, lines)]
    again = probe(tmp_path, backends, "--probe-bucket", BUCKET)
    assert again.exit == 0, again.text
    client = boto3_client(start_gateway(backends, name="picky").s3)
    client.put_object(Bucket=BUCKET, Key="k", Body=b"value")
    assert store.objects == {"k": b"value"}
    assert client.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"value"
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k"}]})
    assert store.objects == {}


def test_trap_a_store_behind_verify_sees_no_checksum(
    start_gateway: Callable[..., Gateway], picky: Callable[..., PickyStore]
) -> None:
    """Of a client with defaults, in every request; and what does not match is never ended at the store."""
    store = picky(refuses_trailers=True)
    gateway = start_gateway(behind(store, 'checksums = "verify"'), name="stripped")
    client = boto3_client(gateway.s3)
    client.put_object(Bucket=BUCKET, Key="k", Body=b"value", ChecksumAlgorithm="SHA256")
    client.get_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k"}]})
    client.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": []})
    assert len(store.seen) == 4
    for seen in store.seen:
        about = [name for name in seen.headers if "checksum" in name or name in ("x-amz-trailer", "content-encoding")]
        assert not about, (seen.method, about)
    wrong = {"x-amz-checksum-crc32": "AAAAAQ=="}
    answer = call(gateway.s3, "PUT", f"/{BUCKET}/wrong", wrong, b"value")
    assert (answer.status, answer.xml("Code")) == (400, "BadDigest"), answer
    wrong = {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}
    for payload in (None, UNSIGNED_PAYLOAD):
        answer = send(gateway.s3, sign(gateway.s3, "PUT", f"/{BUCKET}/wrong", wrong, b"value", payload))
        assert (answer.status, answer.xml("Code")) == (400, "BadDigest"), answer
    assert "wrong" not in store.objects


def test_trap_an_upload_in_parts_is_completed_at_a_store_that_saw_no_checksums(
    start_gateway: Callable[..., Gateway], versitygw: Target
) -> None:
    """Clients repeat the checksum of each part in the list of parts; versitygw refuses one that it does not have."""
    backends = [Backend("store", "*", versitygw, 'checksums = "verify"')]
    client = boto3_client(start_gateway(backends, name="parts").s3)
    client.create_bucket(Bucket=BUCKET)
    named = {"Bucket": BUCKET, "Key": "k"}
    named["UploadId"] = client.create_multipart_upload(**named, ChecksumAlgorithm="CRC32")["UploadId"]
    part = client.upload_part(**named, PartNumber=1, Body=b"value", ChecksumAlgorithm="CRC32")
    # The gateway verified it; no answer repeats it.
    crc32 = base64.b64encode(zlib.crc32(b"value").to_bytes(4, "big")).decode()
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": crc32}]}
    client.complete_multipart_upload(**named, MultipartUpload=parts, ChecksumType="FULL_OBJECT", ChecksumCRC32=crc32)
    assert client.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"value"


def test_trap_content_md5_is_added_where_a_store_needs_it(
    start_gateway: Callable[..., Gateway], picky: Callable[..., PickyStore]
) -> None:
    store = picky()
    gateway = start_gateway(behind(store, "content_md5 = true"), name="md5")
    client = boto3_client(gateway.s3)
    client.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    client.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": []})
    client.put_object_legal_hold(Bucket=BUCKET, Key="k", LegalHold={"Status": "ON"})
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k"}]})
    assert len(store.seen) == 4
    assert all("content-md5" in seen.headers for seen in store.seen), [seen.path for seen in store.seen]
    client.put_object(Bucket=BUCKET, Key="k", Body=b"value")
    assert "content-md5" not in store.seen[-1].headers, "data streams, so its MD5 cannot stand before it"
    given = {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}
    call(gateway.s3, "PUT", f"/{BUCKET}?tagging=", given, b"<Tagging/>")
    assert store.seen[-1].headers["content-md5"] == given["Content-MD5"], "the client's own is the store's to judge"


def test_virtual_host_style_is_found(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky(domain="localhost")
    endpoint = store.endpoint.replace("127.0.0.1", "localhost")
    target = Target(endpoint, PAIR)
    probed = probe(tmp_path, [Backend("store", "*", target)], "--probe-bucket", BUCKET)
    try:
        socket.getaddrinfo(f"{BUCKET}.localhost", 80)
    except OSError:
        assert probed.exit == 3 and "# FAILED" in probed.line("addressing"), probed.text
    else:
        assert probed.table()["addressing"] == "virtual" and "CHANGE" in probed.line("addressing"), probed.text


def test_what_cannot_be_deleted_is_named(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky(never_deletes=True)
    probed = probe(tmp_path, behind(store), "--probe-bucket", BUCKET)
    assert probed.exit == 3
    assert set(re.findall(r"LEFT BEHIND: the probe object (\S+) ", probed.text)) >= set(store.objects), probed.text


def test_trap_of_a_bucket_with_versions_none_is_left(versitygw: Target, tmp_path: Path) -> None:
    client = boto3_client(versitygw)
    client.create_bucket(Bucket=BUCKET)
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    client.put_object(Bucket=BUCKET, Key="batchgate-probe-of-somebody-else", Body=b"kept")
    probed = probe(tmp_path, [Backend("store", "*", versitygw)], "--probe-bucket", BUCKET)
    assert probed.exit in (0, 2) and "LEFT BEHIND" not in probed.text, probed.text
    listed = client.list_object_versions(Bucket=BUCKET)
    kept = [(version["Key"], version["IsLatest"]) for version in listed["Versions"]]
    assert kept == [("batchgate-probe-of-somebody-else", True)] and not listed.get("DeleteMarkers"), listed


def test_trap_an_interrupted_probe_leaves_nothing(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky()
    asked, answer = threading.Event(), store.answer

    def slow(request: Seen) -> tuple[int, dict[str, str], bytes]:
        if request.method == "PUT" and request.path.endswith("chunks"):
            asked.set()
            time.sleep(1)
        return answer(request)

    store.answer = slow  # type: ignore[method-assign]
    file = tmp_path / "probed.toml"
    file.write_text(settings(behind(store)))
    argv = [str(BINARY), "config", "check", "--config", str(file), "--probe", "--probe-bucket", BUCKET]
    with subprocess.Popen(argv, env=clean_environment(), stdout=-1, stderr=-1, text=True) as process:
        assert asked.wait(20)
        assert store.objects, "something was written"
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=60)
    assert (process.returncode, store.objects) == (3, {}), said
    assert "interrupted before all was tried" in said and "LEFT BEHIND" not in said
    assert "is being deleted" in told


def test_trap_an_upload_that_comes_late_is_no_refusal_and_is_not_left(
    picky: Callable[..., PickyStore], tmp_path: Path
) -> None:
    """It outlasts its attempt; a store that is slow, once, is not one that refuses unsigned bodies."""
    store = picky()
    answer = store.answer

    def late(request: Seen) -> tuple[int, dict[str, str], bytes]:
        if request.method == "PUT" and request.path.endswith("-unsigned"):
            time.sleep(12)
        return answer(request)

    store.answer = late  # type: ignore[method-assign]
    probed = probe(tmp_path, behind(store), "--probe-bucket", BUCKET)
    assert probed.exit == 3 and store.objects == {}, probed.text
    line = probed.line("payload_signing")
    assert line.startswith('payload_signing = "when-known"') and "# not known: an unsigned body: no answer" in line
    assert re.search(r"the upload of \S+-unsigned was not answered", probed.text)


def test_what_cannot_be_probed_says_why(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = Target(f"http://127.0.0.1:{unused.getsockname()[1]}", PAIR)
        probed = probe(tmp_path, [Backend("store", "*", dead)])
        assert probed.exit == 3 and "it cannot be reached" in probed.text, probed.text
    probed = probe(tmp_path, behind(picky(refuses_everyone=True)))
    assert probed.exit == 3 and "refuses the credentials" in probed.text and "InvalidAccessKeyId" in probed.text
    file = tmp_path / "bad.toml"
    file.write_text("[[backends]]\n")
    done = subprocess.run([str(BINARY), "config", "check", "--config", str(file), "--probe"], capture_output=True)
    assert done.returncode == 2 and b"backends[0].name" in done.stdout


def test_a_silent_store_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    taken.append(server.accept()[0])
            except OSError:
                pass

        threading.Thread(target=take, daemon=True).start()
        target = Target(f"http://127.0.0.1:{server.getsockname()[1]}", PAIR)
        probed = probe(tmp_path, [Backend("store", "*", target)])
        assert probed.exit == 3 and "no answer within 10 s" in probed.text, probed.text
        for sock in taken:
            sock.close()


def test_for_scripts_it_is_json(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky(needs_md5=True)
    probed = probe(tmp_path, [Backend("memory", "m", None), *behind(store)], "--probe-bucket", BUCKET, "--json")
    second, first = json.loads(probed.text)
    assert (probed.exit, first["backend"], first["reached"], second["settings"]) == (2, "store", True, [])
    found = {setting["key"]: setting for setting in first["settings"]}
    md5 = found["content_md5"]
    assert (md5["configured"], md5["set"], md5["outcome"]) == (False, True, "change")
    assert found["region"]["outcome"] == "works"
