"""`batchgate config check --probe`: what it says of stores of every sort, whether its advice works, what it leaves."""

import base64
import datetime
import email.utils
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
from support.scripted import Script, ScriptedStore, answer, error
from support.store import TENANT_CREDENTIALS, Credentials, Target
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

    def reason(self, key: str) -> str:
        """What stands below that line, in one."""
        below = self.text.split(self.line(key) + "\n")[1]
        found = re.match(r"(    # .*\n)*", below)
        assert found
        return " ".join(line.strip(" #") for line in found[0].splitlines())

    def words(self) -> str:
        """All of its comments, in one line."""
        return " ".join(line.partition("#")[2].strip() for line in self.text.splitlines())

    def table(self) -> dict[str, Any]:
        """Its lines, as somebody pastes them."""
        return tomllib.loads("\n".join(line for line in self.text.splitlines() if line.startswith("  ")))


def probe(folder: Path, backends: list[Backend], *args: str, sections: str = "", server: str = "") -> Probed:
    file = folder / "probed.toml"
    file.write_text(settings(backends, sections, server))
    argv = [str(BINARY), "config", "check", "--config", str(file), "--probe", *args]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=100)
    for secret in (PAIR.secret_key, SECRET_WORDS, *(b.target.credentials.secret_key for b in backends if b.target)):
        assert secret not in done.stdout + done.stderr
    assert "--json" in args or max(map(len, done.stdout.splitlines()), default=0) <= 110, done.stdout
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
def versity(tmp_path: Path) -> Iterator[VersityGw]:
    store = VersityGw(tmp_path)
    yield store
    store.stop()


@pytest.fixture
def versitygw(versity: VersityGw) -> Target:
    return versity.target


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
    assert probed.exit == 0 and probed.line("checksums").endswith("# not tried"), probed.text
    assert probed.text.count("only tried with --probe-bucket") == 1, probed.text
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
    assert probed.exit == 0 and probed.line("checksums").endswith("# works"), probed.text
    assert probed.reason("checksums") == '"forward" would do as well'
    assert probed.reason("payload_signing") == '"when-known" would do as well'
    assert b"<Key>" not in call(embedded_gateway.s3, "GET", f"/{BUCKET}?list-type=2").body


# What a store is picky about, what is to be set, and the reason that is given.
WHIMS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ignores checksums": ({}, {"checksums": "verify"}, "takes a wrong checksum behind the data for right"),
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
        assert "# CHANGE to this, from " in probed.line(key) and why in probed.reason(key), probed.text
    assert not store.objects, "nothing is left behind"
    # With all that it says, it has nothing more to say, and a client of today just works.
    lines = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in probed.table().items() if key not in ("region", "addressing")
    )
    target = Target(store.endpoint, PAIR, probed.table()["region"])
    backends = [Backend("store", "*", target, lines)]
    again = probe(tmp_path, backends, "--probe-bucket", BUCKET)
    assert again.exit == 0, again.text
    for key, value in advice.items():
        assert again.line(key).endswith("# works"), "what was tried instead is no part of that line"
        assert key == "region" or "needed: " in again.reason(key) and why in again.reason(key), (value, again.text)
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
    assert line.startswith('payload_signing = "when-known"') and "# not known" in line
    assert "an unsigned body: no answer within 10 s" in probed.reason("payload_signing")
    assert re.search(r"the upload of \S+-unsigned was not answered", probed.text)


def problems(folder: Path, backends: list[Backend], *args: str) -> list[tuple[str, str, str]]:
    """Kind, reason and remedy of each problem of the one backend, which is in the text too; and it is exit code 3."""
    probed = probe(folder, backends, *args, "--json")
    (report,) = json.loads(probed.text)
    text = probe(folder, backends, *args)
    assert (probed.exit, text.exit) == (3, 3), probed.text
    found = [(problem["kind"], problem["why"], problem["fix"]) for problem in report["problems"]]
    for _, why, fix in found:
        assert re.search(r"PROBLEM: .*to do: ", text.words()), text.text
        # How long something took is not the same twice.
        assert re.sub(r"\d+", "", why) in re.sub(r"\d+", "", text.words()) and fix in text.words(), text.text
    return found


def test_nobody_there_and_somebody_else_there_are_told_apart(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", Target(f"http://127.0.0.1:{port}", PAIR))])
        assert (kind, "refused" in why, "host and port" in fix) == ("no-connection", True, True), why
    ((kind, why, _),) = problems(tmp_path, [Backend("store", "*", Target("http://store.invalid:80", PAIR))])
    assert (kind, "no connection" in why) == ("no-connection", True), why
    # Its page for operators is an HTTP server that is no S3.
    admin = start_gateway([Backend("store", "*", None)], name="no-s3").admin
    ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", Target(admin.endpoint, PAIR))])
    assert (kind, "no S3 store" in why and " gets 404, " in why, "S3 API" in fix) == ("not-s3", True, True), why
    https = admin.endpoint.replace("http:", "https:")
    ((kind, _, fix),) = problems(tmp_path, [Backend("store", "*", Target(https, PAIR))])
    assert (kind, "http://" in fix) == ("tls", True)


def test_a_certificate_that_is_not_trusted_names_ca_file(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    def start(name: str, authority: str) -> Target:
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        made += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", f"basicConstraints=critical,CA:{authority}"]
        made += ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / name)]
        subprocess.run(made, check=True, capture_output=True)
        server = f'tls = {{ cert_file = "{tmp_path}/{name}", key_file = "{tmp_path}/{name}.key" }}'
        return start_gateway([Backend("store", "*", None)], name=name, server=server).s3

    secure, of_an_authority = start("cert", "FALSE"), start("other", "TRUE")
    mistrusted = [Backend("store", "*", secure, f'ca_file = "{tmp_path}/other"')]
    ((kind, why, fix),) = problems(tmp_path, mistrusted)
    assert (kind, "UnknownIssuer" in why, "set ca_file" in fix) == ("tls", True, True), why
    ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", of_an_authority, f'ca_file = "{tmp_path}/other"')])
    assert (kind, "CaUsedAsEndEntity" in why, "CA:TRUE" in fix) == ("tls", True, True), why
    trusted = f'ca_file = "{tmp_path}/cert"'
    assert probe(tmp_path, [Backend("store", "*", secure, trusted)]).exit == 0
    other_host = Target(secure.endpoint.replace("127.0.0.1", "localhost"), secure.credentials)
    ((kind, _, fix),) = problems(tmp_path, [Backend("store", "*", other_host, trusted)])
    assert (kind, "host name that stands in the store's certificate" in fix) == ("tls", True)
    plain = Target(secure.endpoint.replace("https:", "http:"), secure.credentials)
    ((kind, _, fix),) = problems(tmp_path, [Backend("store", "*", plain)])
    assert kind in ("not-s3", "no-answer") and "https://" in fix, (kind, fix)


def test_real_stores_that_refuse_the_pair_say_which_half_is_wrong(
    seaweedfs: Target, versitygw: Target, tmp_path: Path
) -> None:
    for store in (seaweedfs, versitygw):
        right = store.credentials
        wrong = store.with_credentials(Credentials(right.access_key, "a guess"))
        ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", wrong)])
        assert (kind, "SignatureDoesNotMatch" in why, "credentials.secret_key" in fix) == ("credentials", True, True)
        unknown = store.with_credentials(Credentials("NOBODY", right.secret_key))
        ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", unknown)])
        assert (kind, '"NOBODY"' in why, "credentials.access_key" in fix) == ("credentials", True, True), why


def test_a_bucket_that_is_not_there_is_not_blamed_on_addressing(
    seaweedfs: Target, versitygw: Target, tmp_path: Path
) -> None:
    for store in (seaweedfs, versitygw):
        boto3_client(store).create_bucket(Bucket="probed-too")
        backends = [Backend("store", "*", store)]
        ((kind, why, fix),) = problems(tmp_path, backends, "--probe-bucket", "probed-tow")
        assert (kind, "does not exist" in why, '"probed-too"' in fix) == ("bucket", True, True), (why, fix)
        probed = probe(tmp_path, backends, "--probe-bucket", "probed-tow")
        assert probed.line("addressing").endswith("# not tried") and probed.line("region").endswith("# works")
    # One that a route names may be made later: the store's own list has others.
    probed = probe(tmp_path, [Backend("store", "made-later", seaweedfs)])
    assert probed.exit == 0 and probed.line("addressing").endswith("# works"), probed.text
    assert '"made-later" does not exist' in probed.words(), probed.text


def test_who_may_not_write_is_not_told_to_change_checksums(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky()
    answer = store.answer
    store.answer = lambda seen: (  # type: ignore[method-assign]
        store.error(403, "AccessDenied") if seen.method == "PUT" else answer(seen)
    )
    ((kind, why, fix),) = problems(tmp_path, behind(store), "--probe-bucket", BUCKET)
    assert (kind, "may not write" in why, "s3:PutObject" in fix) == ("bucket", True, True), why
    probed = probe(tmp_path, behind(store), "--probe-bucket", BUCKET)
    assert "CHANGE" not in probed.text and probed.text.count("# not tried") == 3, probed.text


def test_a_clock_that_is_off_is_told_of_and_not_the_key(tmp_path: Path) -> None:
    store = ScriptedStore()
    an_hour_ago = email.utils.format_datetime(
        datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=90), usegmt=True
    )
    store.on("", lambda ask: error(403, "RequestTimeTooSkewed", headers={"date": an_hour_ago}))
    try:
        ((kind, why, fix),) = problems(tmp_path, [Backend("store", "*", store.target)])
    finally:
        store.stop()
    assert (kind, re.search(r"clock is (89|90) min ahead", why) is not None, "NTP" in fix) == ("clock", True, True), why


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], ScriptedStore]]:
    started: list[ScriptedStore] = []

    def start(script: Script) -> ScriptedStore:
        store = ScriptedStore()
        started.append(store)
        for bucket in ("", BUCKET):
            store.on(bucket, script)
        return store

    yield start
    for store in started:
        store.stop()


REDIRECT = error(301, "PermanentRedirect", "<Endpoint>s3.eu.example</Endpoint>")


@pytest.mark.parametrize(
    "said, kind, why, fix",
    [
        (REDIRECT, "not-s3", "redirects to s3.eu.example (301 PermanentRedirect)", "set endpoint to s3.eu.example"),
        (answer(302, {"location": "https://s3.example/x"}), "not-s3", "redirects to s3.example (302)", "s3.example"),
        (error(429, "SlowDown"), "no-answer", "no proper answer now (429 SlowDown)", "try again"),
        (error(408, "RequestTimeout"), "no-answer", "no proper answer now (408", "try again"),
        (error(400, "InvalidURI"), "not-s3", "not the root of an S3 store", "one that is below a path cannot be used"),
        (error(404, "NoSuchBucket"), "not-s3", "the endpoint names a bucket", "leave the bucket out of endpoint"),
        (answer(200, {}, b"<ListBucketResult/>"), "not-s3", "the endpoint names a bucket", "leave the bucket out"),
    ],
)
def test_what_is_wrong_with_the_endpoint_is_not_blamed_on_the_key_pair(
    said: bytes, kind: str, why: str, fix: str, scripted: Callable[[Script], ScriptedStore], tmp_path: Path
) -> None:
    store = scripted(lambda _: said)
    ((kind_told, why_told, fix_told),) = problems(tmp_path, [Backend("store", "*", store.target)])
    assert kind_told == kind and why in why_told and fix in fix_told, (kind_told, why_told, fix_told)


def test_who_is_denied_everything_is_not_said_to_be_known(
    scripted: Callable[[Script], ScriptedStore], tmp_path: Path
) -> None:
    backends = [Backend("store", "*", scripted(lambda _: error(403, "AccessDenied")).target)]
    sections = account("one", Credentials("ANOTHER", "s"))
    probed = probe(tmp_path, backends, sections=sections)
    assert 'does not refuse the access key "SCRIPTEDKEY", but lists no buckets' in probed.words(), probed.text
    assert "account of one: not refused, but it may not list buckets (AccessDenied)" in probed.words(), probed.text
    assert "takes the access key" not in probed.words() and probed.exit == 0
    ((kind, why, _),) = problems(tmp_path, backends, "--probe-bucket", BUCKET)
    assert (kind, "may not list the bucket" in why) == ("bucket", True), why


def test_a_store_may_have_a_prefix_for_the_namespace(
    scripted: Callable[[Script], ScriptedStore], tmp_path: Path
) -> None:
    buckets = f"<a:Buckets><a:Bucket><a:Name>{BUCKET}</a:Name></a:Bucket></a:Buckets>"
    of_all = f"<a:ListAllMyBucketsResult xmlns:a='x'>{buckets}</a:ListAllMyBucketsResult>".encode()
    of_one = f"<b:ListBucketResult xmlns:b='x'><b:Name>{BUCKET}</b:Name></b:ListBucketResult>".encode()
    store = scripted(lambda ask: answer(200, {}, of_one if ask.bucket else of_all))
    probed = probe(tmp_path, [Backend("store", "*", store.target)])
    assert probed.exit == 0 and "lists buckets (1)" in probed.words(), probed.text
    assert probed.line("addressing").endswith("# works"), probed.text


def test_a_region_that_differs_from_that_of_clients_is_told_of(
    picky: Callable[..., PickyStore], versitygw: Target, tmp_path: Path
) -> None:
    probed = probe(tmp_path, behind(picky(region="eu-west-7")))
    assert probed.exit == 2 and 'this backend is asked for "eu-west-7"' in probed.words(), probed.text
    elsewhere = Target(versitygw.endpoint, versitygw.credentials, "eu-west-7")
    probed = probe(tmp_path, [Backend("store", "*", elsewhere)])
    assert probed.exit == 2 and 'region = "us-east-1"' in probed.line("region"), probed.text
    assert "server.region" not in probed.text


def account(name: str, pair: Credentials, backend: str = "store") -> str:
    return (
        f'[[identities]]\nname = "{name}"\naccess_key = "GK{name}"\nsecret_key = "s"\n'
        f'backend_credentials.{backend} = {{ access_key = "{pair.access_key}", secret_key = "{pair.secret_key}" }}\n'
    )


def test_accounts_of_identities_are_tried(seaweedfs: Target, versity: VersityGw, tmp_path: Path) -> None:
    user = versity.add_account(Credentials("probed-user", "secret-of-the-user"), "user").credentials
    for store, good in ((seaweedfs, TENANT_CREDENTIALS), (versity.target, user)):
        wrong = Credentials(good.access_key, "a guess at a secret")
        unknown = Credentials("NOBODY", good.secret_key)
        sections = account("one", good) + account("two", wrong) + account("three", unknown) + account("four", good)
        backends = [Backend("store", "*", store)]
        probed = probe(tmp_path, backends, sections=sections)
        assert probed.exit == 2 and "account of one, four: works" in probed.words(), probed.text
        assert "account of three: REFUSED the store does not know the access key" in probed.words()
        assert good.secret_key not in probed.text and wrong.secret_key not in probed.text
        (report,) = json.loads(probe(tmp_path, backends, "--json", sections=sections).text)
        found = {tuple(account["identities"]): account for account in report["accounts"]}
        outcomes = {who: (account["outcome"], account["code"]) for who, account in found.items()}
        assert outcomes == {
            ("one", "four"): ("works", found["one", "four"]["code"]),
            ("two",): ("refused", "SignatureDoesNotMatch"),
            ("three",): ("refused", "InvalidAccessKeyId"),
        }
        assert "backend_credentials.store.secret_key" in found["two",]["fix"]
        assert report["accounts_untried"] == 0
        assert probe(tmp_path, backends, sections=account("one", good)).exit == 0


def test_no_more_accounts_are_tried_than_is_said(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    store = picky()
    sections = "".join(account(f"a{number}", Credentials(f"AK{number}", "s")) for number in range(103))
    probed = probe(tmp_path, behind(store), sections=sections)
    assert probed.exit == 0 and "more accounts of identities that were not tried: 3" in probed.words(), probed.text
    assert sum("Credential=AK" in seen.headers["authorization"] for seen in store.seen) == 100


def test_only_the_backends_that_are_named_are_asked(picky: Callable[..., PickyStore], tmp_path: Path) -> None:
    first, second = picky(), picky()
    backends = [
        Backend("store", "a", Target(first.endpoint, PAIR)),
        Backend("archive", "*", Target(second.endpoint, PAIR)),
    ]
    probed = probe(tmp_path, backends, "--backend", "archive", "--json")
    assert [report["backend"] for report in json.loads(probed.text)] == ["archive"] and not first.seen
    probed = probe(tmp_path, backends, "--backend", "archive", "--backend", "store", "--json")
    assert [report["backend"] for report in json.loads(probed.text)] == ["store", "archive"]
    asked = len(first.seen), len(second.seen)
    probed = probe(tmp_path, backends, "--backend", "archive", "--backend", "stor")
    expected = 'flag --backend: no backend is called "stor"; the nearest is "store"\n'
    assert (probed.exit, probed.text) == (2, expected)
    probed = probe(tmp_path, backends, "--probe-bucket", "no/bucket", "--json")
    assert (probed.exit, json.loads(probed.text)[0]["flag"]) == (2, "--probe-bucket")
    assert (len(first.seen), len(second.seen)) == asked


def test_settings_that_are_wrong_are_not_probed(tmp_path: Path) -> None:
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
