"""Everything against a real gateway over a real store: bytes, order, errors, conditions, limits, processes, threads,
credentials, and a wire that is cut in the middle."""

import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import BUCKET, OTHER, client_of
from cutting import CuttingProxy
from support.faulty import LARGE, SMALL, FaultyBackend, body_of
from support.gateway import (
    LIMITED,
    LISTEN_ON_BOTH_FAMILIES,
    NOTHING,
    READ_ONLY,
    TRAP_KEYS,
    Backend,
    Gateway,
    settings,
)
from support.process import wait_for
from support.proxy import Relay
from support.store import Credentials, Target
from support.wire import call, object_path

import batchgate
from batchgate._rules import name_of

Objects = dict[tuple[str, str], bytes]


def names(objects: Objects) -> list[tuple[str, str]]:
    return list(objects)


def assert_right(parts: Sequence[batchgate.Part], wanted: Sequence[tuple[str, str]], objects: Objects) -> None:
    assert [(p.index, p.bucket, p.key) for p in parts] == [(i, *name) for i, name in enumerate(wanted)]
    for part in parts:
        assert part.data == objects[part.bucket, part.key], part
        assert (part.status, part.error, part.content_type) == (200, None, "image/x-test"), part
        assert part.etag and part.last_modified


def test_everything_comes_in_order_byte_for_byte(client: batchgate.Client, objects: Objects) -> None:
    wanted = [*names(objects), *names(objects)[::-1]]
    assert_right(list(client.get_many(wanted)), wanted, objects)
    nameless = client_of(Target(client.endpoint_url, READ_ONLY), bucket=None)
    assert_right(list(nameless.get_many(iter(wanted[:50]))), wanted[:50], objects)


def test_completion_order_gives_each_once(client: batchgate.Client, objects: Objects) -> None:
    wanted = names(objects)
    parts = sorted(client.get_many(wanted, order="completion"), key=lambda part: part.index)
    assert_right(parts, wanted, objects)


def test_a_request_takes_no_more_than_the_gateway_allows(
    start_gateway: Callable[..., Gateway], store: Target, objects: Objects
) -> None:
    limits = '[batch]\nentries_max = 17\nbody_bytes_max = "1KiB"\n'
    gateway = start_gateway([Backend("store", "*", store)], limits)
    wanted = names(objects)
    assert_right(list(client_of(gateway.s3).get_many(wanted)), wanted, objects)
    assert gateway.metric("batchgate_batch_batches_total") >= len(wanted) / 17


MISSING = [("no-such-bucket", "k"), (BUCKET, "no/such/key")]


@pytest.mark.parametrize("name", MISSING)
def test_what_is_not_there_is_a_file_not_found_error(
    client: batchgate.Client, objects: Objects, name: tuple[str, str]
) -> None:
    wanted = [*names(objects)[:3], name, *names(objects)[3:5]]
    parts = client.get_many(wanted)
    assert [next(parts).index for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FileNotFoundError) as told:
        next(parts)
    error = told.value
    assert isinstance(error, batchgate.EntryNotFoundError)
    assert (error.index, error.bucket, error.key, error.status) == (3, *name, 404)
    assert error.code == ("NoSuchBucket" if name[0] == "no-such-bucket" else "NoSuchKey")

    returned = list(client.get_many(wanted, on_error="return"))
    assert [p.index for p in returned] == list(range(6))
    assert type(returned[3].error) is batchgate.EntryNotFoundError and returned[3].data == b""
    assert [p.index for p in client.get_many(wanted, on_error="omit")] == [0, 1, 2, 4, 5]
    assert list(client.get_many([name] * 3, on_error="omit")) == []


@pytest.mark.parametrize("pair", [LIMITED, NOTHING])
def test_what_is_not_allowed_is_a_permission_error(gateway: Gateway, objects: Objects, pair: Credentials) -> None:
    client = client_of(gateway.as_identity(pair))
    with pytest.raises(PermissionError) as told:
        list(client.get_many(["empty"]))
    assert isinstance(told.value, batchgate.EntryPermissionError) and told.value.code == "AccessDenied"


def test_who_is_not_known_is_a_request_error(gateway: Gateway) -> None:
    for pair, code in (
        (Credentials("GKUNKNOWN", "x"), "InvalidAccessKeyId"),
        (Credentials(READ_ONLY.access_key, "wrong"), "SignatureDoesNotMatch"),
    ):
        with pytest.raises(batchgate.RequestPermissionError) as told:
            list(client_of(gateway.as_identity(pair)).get_many(["empty"]))
        assert (told.value.code, told.value.status) == (code, 403) and told.value.request_id


def test_conditions_and_ranges(client: batchgate.Client, objects: Objects) -> None:
    key, body = "small/007", objects[BUCKET, "small/007"]
    (whole,) = client.get_many([key])
    entries = [
        batchgate.Entry(key, if_none_match=whole.etag, id="unchanged"),
        batchgate.Entry(key, if_match=whole.etag),
        batchgate.Entry(key, range="bytes=3-9", id="seven"),
        batchgate.Entry(key, range="bytes=-5"),
        batchgate.Entry("small/000", bucket=OTHER),
    ]
    # A 304 is an answer, also where errors are raised.
    parts = list(client.get_many(entries))
    assert [p.status for p in parts] == [304, 200, 206, 206, 200]
    assert [p.data for p in parts] == [b"", body, body[3:10], body[-5:], b"of the other bucket"]
    assert (parts[0].etag, parts[0].id, parts[2].id, parts[1].id) == (whole.etag, "unchanged", "seven", None)
    assert parts[2].header("content-range") == f"bytes 3-9/{len(body)}"
    failing = [batchgate.Entry(key, if_match='"other"'), batchgate.Entry(key, range="bytes=999999-")]
    codes = [part.error.code for part in client.get_many(failing, on_error="return") if part.error]
    assert codes == ["PreconditionFailed", "InvalidRange"]
    with pytest.raises(batchgate.EntryError) as told:
        list(client.get_many(failing[:1]))
    assert told.value.status == 412 and not isinstance(told.value, OSError)


# What each member may be, and what it may not.
MEMBERS: dict[str, tuple[str, list[str], list[str]]] = {
    "Key": ("key", ["a//../b", "k" * 1024, "é" * 512], ["", "k" * 1025, "é" * 513]),
    "Bucket": ("bucket", [BUCKET, "..a", "x" * 255], ["", ".", "..", "a/b", "a b", "a\n", "x" * 256]),
    "Range": (
        "range",
        ["bytes=0-0", "bytes=5-", "bytes=-1", "bytes=00-01", "bytes=0-9999999999999999999"],
        ["", "lines=1-2", "bytes=-", "bytes=-0", "bytes=2-1", "bytes=0-0,1-1", "bytes= 0-1", "bytes=0-" + "9" * 20],
    ),
    "VersionId": ("version_id", ["a b", "v" * 1024], ["", "é", "a\n", "v" * 1025]),
    "IfMatch": ("if_match", ['"a b"', "*"], ["", "é", "\x7f", "v" * 1025]),
    "IfNoneMatch": ("if_none_match", ['"a b"', "~" * 1024], ["", "é", "a\tb", "v" * 1025]),
    "Id": ("id", ["!", "i" * 256], ["", "a b", "é", "i" * 257]),
}


@pytest.mark.parametrize("member", MEMBERS)
def test_what_may_be_asked_is_what_the_gateway_takes(gateway: Gateway, member: str) -> None:
    name, good, bad = MEMBERS[member]
    for value in good + bad:
        asked = json.dumps({"Objects": [{"Key": "k", member: value}]}).encode()
        answer = call(gateway.s3, "POST", f"/{BUCKET}?batch-get=", {"Content-Type": "application/json"}, asked)
        entry = batchgate.Entry(**{"key": "k", name: value})
        if value in good:
            assert answer.status == 200, (value, answer)
            assert name_of(entry, BUCKET, 0) == (entry.bucket or BUCKET, entry.key)
        else:
            assert (answer.status, b"<Code>InvalidArgument</Code>" in answer.body) == (400, True), (value, answer)
            with pytest.raises(batchgate.RequestError) as told:
                name_of(entry, BUCKET, 0)
            assert (told.value.status, told.value.code) == (400, "InvalidArgument")


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
def test_a_malformed_request_is_refused_as_a_whole(client: batchgate.Client, store: Target, objects: Objects) -> None:
    for one in (client, client_of(store)):
        for wrong in ("", batchgate.Entry("empty", range="bytes=0-0,1-1"), batchgate.Entry("empty", version_id="")):
            with pytest.raises(batchgate.RequestError, match=r"keys\[1\]") as told:
                list(one.get_many(["empty", wrong], on_error="return"))
            assert (told.value.status, told.value.code) == (400, "InvalidArgument")


def test_leaving_early_releases_everything_in_the_gateway(gateway: Gateway, objects: Objects) -> None:
    client = client_of(gateway.s3)
    for _ in client.get_many(["large/2"] * 200):
        break
    wait_for("the gauges are at zero", lambda: gateway.metric("batchgate_memory_reserved_bytes") == 0, 10)
    assert gateway.metric("batchgate_batch_in_flight") == 0
    assert next(client.get_many(["empty"])).data == b""


def read_keys(client: batchgate.Client, keys: list[str]) -> list[bytes]:
    """What a worker does."""
    return [part.data for part in client.get_many(keys)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_use_the_client_that_they_were_given(client: batchgate.Client, objects: Objects, method: str) -> None:
    keys = [f"small/{i:03}" for i in range(40)]
    bodies = [objects[BUCKET, key] for key in keys]
    assert read_keys(client, keys) == bodies
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert [future.result(60) for future in [pool.submit(read_keys, client, keys) for _ in range(4)]] == [
            bodies
        ] * 4
    assert read_keys(client, keys) == bodies


def test_an_error_crosses_from_a_worker_as_itself(client: batchgate.Client, objects: Objects) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool, pytest.raises(FileNotFoundError) as told:
        pool.submit(read_keys, client, ["empty", "no/such"]).result(60)
    assert isinstance(told.value, batchgate.EntryNotFoundError) and told.value.index == 1


def test_threads_share_a_client(client: batchgate.Client, objects: Objects) -> None:
    wanted = names(objects)
    with ThreadPoolExecutor(6) as pool:
        for parts in pool.map(lambda _: list(client.get_many(wanted)), range(6)):
            assert_right(parts, wanted, objects)


PROGRAM = f"""
import batchgate
with batchgate.Client(bucket={BUCKET!r}) as client, client.get_many(["small/001", "empty"]) as parts:
    print(client.endpoint_url, [len(part.data) for part in parts])
"""


@pytest.mark.parametrize("where", ["environment", "profile"])
def test_everything_is_found_where_aws_tools_find_it(
    gateway: Gateway, objects: Objects, where: str, tmp_path: Path
) -> None:
    pair = gateway.s3.credentials
    variables = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "AWS_EC2_METADATA_DISABLED": "true"}
    if where == "environment":
        variables |= {
            "AWS_ACCESS_KEY_ID": pair.access_key,
            "AWS_SECRET_ACCESS_KEY": pair.secret_key,
            "AWS_ENDPOINT_URL_S3": gateway.s3.endpoint,
        }
    else:
        folder = tmp_path / ".aws"
        folder.mkdir()
        # Credentials that a program gives, as SSO and role helpers do.
        (folder / "helper").write_text(
            f'echo \'{{"Version": 1, "AccessKeyId": "{pair.access_key}", "SecretAccessKey": "{pair.secret_key}"}}\''
        )
        (folder / "config").write_text(
            f"[profile lab]\nregion = us-east-1\nservices = lab\ncredential_process = sh {folder}/helper\n"
            f"[services lab]\ns3 =\n  endpoint_url = {gateway.s3.endpoint}\n"
        )
        variables |= {"AWS_PROFILE": "lab", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{gateway.s3.endpoint} [{len(objects[BUCKET, 'small/001'])}, 0]"


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway below `/s3`, on both families of addresses, with a store of its own that takes every key."""
    text = settings([Backend("store", "*", None)], server='base_path = "/s3"', listen=LISTEN_ON_BOTH_FAMILIES)
    running = Gateway(tmp_path_factory.mktemp("below"), text)
    assert call(running.s3, "PUT", f"/s3/{BUCKET}").status == 200
    for key in TRAP_KEYS:
        assert call(running.s3, "PUT", f"/s3{object_path(BUCKET, key)}", body=key.encode()).status == 200, key
    yield running
    running.stop()


def at(target: Target, path: str) -> Target:
    """The same with a path in its URL."""
    return Target(target.endpoint + path, target.credentials)


def test_an_endpoint_may_be_below_a_path_and_on_ipv6_and_no_key_is_tidied_up(
    below: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [key.encode() for key in TRAP_KEYS]
    for target in (at(below.s3, "/s3"), at(below.s3, "/s3//"), at(below.over_ipv6(), "/s3")):
        assert [part.data for part in client_of(target).get_many(TRAP_KEYS)] == bodies
    monkeypatch.setenv("AWS_ENDPOINT_URL", below.over_ipv6().endpoint + "/s3/")
    assert [part.data for part in client_of(below.s3, endpoint_url=None).get_many(TRAP_KEYS)] == bodies
    relay = Relay(below.s3, hides_batch_get=True)
    plain = client_of(at(relay.through, "/s3"))
    with pytest.warns(batchgate.BatchGetUnavailableWarning, match=f"{plain.endpoint_url} has no BatchGet"):
        assert [part.data for part in plain.get_many(TRAP_KEYS)] == bodies
    relay.stop()


def test_a_path_that_is_another_is_an_error_that_says_so(below: Gateway, gateway: Gateway) -> None:
    for target, code, says in (
        (below.s3, "InvalidURI", 'whose paths begin with "/s3"'),
        (at(below.s3, "/s4"), "InvalidURI", 'whose paths begin with "/s3"'),
        (at(gateway.s3, "/s3"), "NotImplemented", "takes /s3 for a bucket"),
    ):
        with pytest.raises(batchgate.RequestError, match=says) as told:
            list(client_of(target).get_many(["a"], on_error="return"))
        assert told.value.code == code and target.endpoint in str(told.value) and told.value.request_id


def test_without_credentials_it_says_so(gateway: Gateway, tmp_path: Path) -> None:
    variables = {
        "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": gateway.s3.endpoint,
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "batchgate._errors.ConfigurationError: no credentials" in done.stderr


def test_nobody_listening_is_an_endpoint_error() -> None:
    client = client_of(Target("http://127.0.0.1:9", READ_ONLY), attempts_max=2)
    with pytest.raises(batchgate.EndpointError, match="no answer"):
        list(client.get_many(["k"]))


@pytest.mark.parametrize("order", ["request", "completion"])
def test_a_wire_that_is_cut_again_and_again_loses_nothing(gateway: Gateway, objects: Objects, order: str) -> None:
    wanted = names(objects) * 2
    with CuttingProxy(gateway.s3.address) as proxy:
        client = client_of(Target(proxy.endpoint, READ_ONLY))
        next(client.get_many(["empty"]))
        # Every connection lives for so many octets of answers, each less than all of it.
        proxy.cut_after = [100, 3_000, 50_000, 700_000, 3_000_000, 100_000, 2_000_000, 1, 100]
        parts = list(client.get_many(wanted, order=order))  # type: ignore[arg-type]
        assert proxy.cut_after == [], "all cuts were made"
    assert_right(sorted(parts, key=lambda part: part.index), wanted, objects)
    assert order == "completion" or [p.index for p in parts] == list(range(len(wanted)))


@pytest.mark.filterwarnings("ignore::batchgate.BatchGetUnavailableWarning")
@pytest.mark.parametrize("order", ["request", "completion"])
def test_a_plain_store_gives_the_same_parts_by_gets(
    store: Target, client: batchgate.Client, objects: Objects, order: str
) -> None:
    plain = client_of(store)
    wanted = [*names(objects), *MISSING, ("py-main", "small/001")]
    ours = list(client.get_many(wanted, on_error="return"))
    theirs = list(plain.get_many(wanted, on_error="return", order=order))  # type: ignore[arg-type]
    assert order == "completion" or [p.index for p in theirs] == list(range(len(wanted)))
    theirs.sort(key=lambda part: part.index)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.index, one.bucket, one.key, one.status) == (other.index, other.bucket, other.key, other.status)
        assert (one.data, one.etag, type(one.error)) == (other.data, other.etag, type(other.error))
        if one.error is None:
            # What SeaweedFS says of the account that it was asked by does not go past the gateway.
            own = {name: value for name, value in other.headers.items() if not name.startswith("seaweed-x-amz-")}
            assert one.headers == own
        elif other.error is not None:
            assert one.error.code == other.error.code
    with pytest.raises(FileNotFoundError):
        list(plain.get_many(wanted))


def test_a_plain_store_is_told_of_once(store: Target, objects: Objects) -> None:
    plain = client_of(store)
    with pytest.warns(batchgate.BatchGetUnavailableWarning) as told:
        threads = [threading.Thread(target=lambda: list(plain.get_many(["empty"]))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        list(pickle.loads(pickle.dumps(plain)).get_many(["empty"]))
    assert len(told) == 1


def test_a_store_that_breaks_off_costs_no_object_before_it(start_gateway: Callable[..., Gateway]) -> None:
    """The gateway mends what it can; what it cannot, it breaks off, and we ask again, but not for ever."""
    faulty = FaultyBackend()
    try:
        gateway = start_gateway([Backend("store", "*", Target(faulty.endpoint, READ_ONLY))])
        mended = ["fine/1", "cut-small", "503-then-fine", "cut-large-thrice", "404", "fine/2"]
        parts = list(client_of(gateway.s3).get_many(mended, on_error="return"))
        sizes = [SMALL, SMALL, SMALL, LARGE, 0, SMALL]
        assert [p.data for p in parts] == [
            body_of(p.key, size) if size else b"" for p, size in zip(parts, sizes, strict=True)
        ]
        assert [p.status for p in parts] == [200, 200, 200, 200, 404, 200]

        begun = client_of(gateway.s3, attempts_max=2).get_many(["fine/3", "cut-large-weak", "fine/4"])
        assert next(begun).data == body_of("fine/3", SMALL)
        with pytest.raises(batchgate.EndpointError, match="2 attempts"):
            next(begun)
    finally:
        faulty.stop()
