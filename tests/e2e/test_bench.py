"""`batchgate bench`: load on the gateway and straight on the store. What it counts is right, what is wrong is counted,
and what cannot be measured is said in one line with what to do."""

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.gateway import (
    BINARY,
    FULL,
    LIMITED,
    LISTEN_ON_BOTH_FAMILIES,
    TRAP_KEYS,
    Backend,
    Gateway,
    clean_environment,
    settings,
)
from support.process import free_ports, wait_for
from support.store import Credentials, Target
from support.wire import call, object_path

BUCKET = "bench"
COUNT, SIZE = 40, 3000
MADE = ("--bucket", BUCKET, "--objects", str(COUNT), "--size", str(SIZE))
SHORT = ("--warm-up", "0s", "--json")


@dataclass
class Done:
    """What a run left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.stdout)
        return report

    @property
    def run(self) -> dict[str, Any]:
        (run,) = self.report["runs"]
        assert isinstance(run, dict)
        return run


def environment(credentials: Credentials | None) -> dict[str, str]:
    env = {**clean_environment(), "HOME": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"}
    if credentials is not None:
        env |= {"AWS_ACCESS_KEY_ID": credentials.access_key, "AWS_SECRET_ACCESS_KEY": credentials.secret_key}
    return env


def argv(target: Target, flags: Sequence[str]) -> list[str]:
    return [str(BINARY), "bench", "--endpoint-url", target.endpoint, *flags]


def bench(target: Target, *flags: str, anonymous: bool = False, given: str = "") -> Done:
    done = subprocess.run(
        argv(target, flags),
        env=environment(None if anonymous else target.credentials),
        input=given,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def started(target: Target, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A run under way, which does not outlive the block."""
    env, pipe = environment(target.credentials), subprocess.PIPE
    child = subprocess.Popen(argv(target, flags), env=env, stdout=pipe, stderr=pipe, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def assert_one_line(done: Done, *words: str) -> None:
    """Exit code 3, nothing on standard output, and one line that has these words."""
    assert done.code == 3 and done.stdout == "", done
    assert done.stderr.startswith("batchgate: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def assert_percentiles(times: dict[str, float]) -> None:
    assert set(times) == {"p50", "p95", "p99", "p999", "max", "mean"}
    assert 0 <= times["p50"] <= times["p95"] <= times["p99"] <= times["p999"] <= times["max"], times
    assert 0 < times["mean"] <= times["max"]


@pytest.fixture(scope="module", autouse=True)
def objects(gateway: Gateway) -> None:
    """Bench's own objects, in a bucket that it makes."""
    first = bench(gateway.s3, *MADE, *SHORT, "--prepare", "--requests", "1")
    assert first.code == 0 and f"{COUNT} objects written, 0 were there" in first.stderr, first
    again = bench(gateway.s3, *MADE, *SHORT, "--prepare", "--requests", "1", "--mode", "batch", "--batch", "2")
    assert again.code == 0 and f"0 objects written, {COUNT} were there" in again.stderr, again


# What is measured


@pytest.mark.parametrize("direct", [False, True], ids=["gateway", "store"])
def test_gets_are_counted_on_any_endpoint(gateway: Gateway, store: Target, direct: bool) -> None:
    done = bench(store if direct else gateway.s3, *MADE, *SHORT, "--requests", "120", "--workers", "4")
    assert (done.code, done.stderr) == (0, ""), "no progress where stderr is no terminal"
    run = done.run
    assert run["objects"] == run["requests"] == 120 and run["bytes"] == 120 * SIZE
    assert (run["objects_failed"], run["requests_failed"], run["requests_not_started"], run["errors"]) == (0, 0, 0, [])
    assert run["objects_per_second"] == pytest.approx(120 / run["seconds"])
    assert run["mib_per_second"] == pytest.approx(120 * SIZE / run["seconds"] / (1 << 20))
    assert run["client_cpu_us_per_object"] > 0 and run["cut_short"] is False
    assert list(run["kinds"]) == ["get"]
    get = run["kinds"]["get"]
    assert_percentiles(get["request_ms"])
    assert get["object_ms"]["p50"] == pytest.approx(get["request_ms"]["p50"], rel=0.2), "a GET is one object"
    job = run["job"]
    assert (job["mode"], job["workers"], job["requests"], job["objects"], job["size_bytes"], job["verify"]) == (
        "get", 4, 120, COUNT, SIZE, True,
    )  # fmt: skip


def test_objects_of_batches_are_counted_one_by_one(gateway: Gateway) -> None:
    done = bench(gateway.s3, *MADE, *SHORT, "--mode", "batch", "--batch", "25", "--requests", "12")
    run = done.run
    assert done.code == 0, done
    assert (run["requests"], run["objects"], run["bytes"]) == (12, 300, 300 * SIZE)
    batch = run["kinds"]["batch"]
    assert_percentiles(batch["request_ms"])
    assert_percentiles(batch["object_ms"])
    # The times of a batch's objects add up to a little less than the batch's.
    assert batch["object_ms"]["mean"] * 25 <= batch["request_ms"]["mean"] <= batch["object_ms"]["mean"] * 25 * 1.5


def test_a_duration_is_kept_and_people_read_a_table(gateway: Gateway) -> None:
    done = bench(gateway.s3, *MADE, "--mode", "batch", "--batch", "10", "--duration", "500ms", "--warm-up", "100ms")
    assert done.code == 0 and done.stderr == "", done
    assert re.search(r"^BatchGet of 10, 8 workers: 0\.[5-9]\d s$", done.stdout, re.M), done.stdout
    lines = [
        r"objects +\d+ .*/s .*MiB/s +0 failed",
        r"requests +\d+ .*/s +0 failed",
        r"milliseconds +P50 +P95 +P99 +P99\.9 +max +mean",
        r"each batch request( +[\d.]+){6}",
        r"each batch object( +[\d.]+){6}",
        r"client CPU [\d.]+ µs an object, \d+ % of \d threads?",
    ]
    for line in lines:
        assert re.search(f"^  {line}$", done.stdout, re.M), (line, done.stdout)


def test_a_mix_writes_what_is_there_anyway(gateway: Gateway, store: Target) -> None:
    key = f"/{BUCKET}/batchgate-bench/{SIZE}/00000000"
    before = call(store, "GET", key).body
    flags = ("--mode", "mixed", "--mix", "get=1,batch=1,put=2", "--batch", "5", "--requests", "200", "--seed", "3")
    done = bench(gateway.s3, *MADE, *SHORT, *flags)
    assert done.code == 0, done
    kinds = done.run["kinds"]
    assert set(kinds) == {"get", "batch", "put"}
    assert sum(kind["requests"] for kind in kinds.values()) == 200
    assert 70 <= kinds["put"]["requests"] == kinds["put"]["objects"] <= 130
    assert kinds["batch"]["objects"] == 5 * kinds["batch"]["requests"]
    assert len(before) == SIZE and call(store, "GET", key).body == before


def test_an_open_loop_keeps_its_rate(gateway: Gateway) -> None:
    done = bench(gateway.s3, *MADE, *SHORT, "--rate", "80", "--duration", "1s")
    run = done.run
    assert done.code == 0 and run["requests"] == 80 and run["requests_not_started"] == 0, done
    assert 1 <= run["seconds"] < 3
    assert (run["job"]["rate"], run["job"]["workers"], run["job"]["in_flight_max"]) == (80, None, 1000)


def test_an_open_loop_says_what_it_could_not_start(gateway: Gateway) -> None:
    flags = ("--mode", "batch", "--batch", "40", "--rate", "1000", "--in-flight", "1", "--requests", "200")
    done = bench(gateway.s3, *MADE, *SHORT, *flags)
    run = done.run
    assert done.code == 1 and run["requests_not_started"] > 50, done
    assert run["requests"] + run["requests_not_started"] == 200 and run["requests_failed"] == 0


def test_two_modes_take_turns(gateway: Gateway) -> None:
    flags = ("--mode", "batch", "--batch", "20", "--workers", "1", "--compare", "get", "--compare-workers", "4")
    done = bench(gateway.s3, *MADE, *SHORT, *flags, "--duration", "900ms", "--rounds", "3")
    assert done.code == 0, done
    first, second = done.report["runs"]
    assert (first["job"]["mode"], first["job"]["workers"]) == ("batch", 1)
    assert (second["job"]["mode"], second["job"]["workers"]) == ("get", 4)
    ratio = done.report["ratio"]["objects_per_second"]
    assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] and ratio["rounds"] == 3
    assert ratio["low"] <= first["objects_per_second"] / second["objects_per_second"] <= ratio["high"]
    text = bench(gateway.s3, *MADE, *flags, "--requests", "8", "--rounds", "2", "--warm-up", "0s").stdout
    assert re.search(r"^BatchGet of 20 \(1 worker\) by GET \(4 workers\), round by round:$", text, re.M), text
    assert re.search(r"^  objects/s +[\d.]+ \([\d.]+ to [\d.]+ in 2 rounds\)$", text, re.M), text


def test_objects_of_others_are_read_from_a_list(gateway: Gateway, store: Target, tmp_path: Path) -> None:
    keys = {"of others/a b": b"xy", "of others/é+%": b"", "plain": b"z" * 100_000}
    for key, body in keys.items():
        assert call(store, "PUT", f"/{BUCKET}/" + "/".join(map(_quoted, key.split("/"))), {}, body).status == 200
    (tmp_path / "keys.txt").write_text("\n".join(keys) + "\n")
    listed = ("--bucket", BUCKET, "--from", str(tmp_path / "keys.txt"))
    for mode, objects in (("--mode", "get"), 9), (("--mode", "batch", "--batch", "9"), 81):
        done = bench(gateway.s3, *listed, *SHORT, *mode, "--requests", "9")
        assert done.code == 0 and done.run["objects"] == objects, done
        assert done.run["job"]["verify"] is False and done.run["job"]["size_bytes"] is None
    (tmp_path / "keys.txt").write_text("plain\nnowhere\n")
    assert_one_line(bench(gateway.s3, *listed, *SHORT), "nowhere", "of the list does not exist")


def test_a_list_is_read_as_get_reads_it(gateway: Gateway, store: Target, tmp_path: Path) -> None:
    assert call(store, "PUT", f"/{BUCKET}/listed", {}, b"x").status == 200
    listed = ("--bucket", BUCKET, *SHORT, "--requests", "3", "--from")
    done = bench(gateway.s3, *listed, "-", given=f"\ufefflisted\r\n\ns3://{BUCKET}/listed\n")
    assert done.code == 0 and (done.run["objects"], done.run["job"]["objects"]) == (3, 2), done
    file = tmp_path / "keys.txt"
    file.write_bytes(b"listed\na\xff\ns3://other/listed\n")
    done = bench(gateway.s3, *listed, str(file))
    lines = done.stderr.splitlines()
    assert done.code == 2 and done.stdout == "" and len(lines) == 2, done
    assert f"{file}:2: it is not UTF-8" in lines[0] and f"{file}:3: it is in another bucket" in lines[1], lines
    done = bench(gateway.s3, *listed, "-", given="a\u202eb\x1b[31m\n")
    assert_one_line(done, r"object a\u{202e}b\u{1b}[31m of the list")


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory, start_gateway: object) -> Iterator[Gateway]:
    """A gateway below `/s3`, on both families of addresses, with a store of its own that takes every key."""
    text = settings([Backend("store", "*", None)], server='base_path = "/s3"', listen=LISTEN_ON_BOTH_FAMILIES)
    running = Gateway(tmp_path_factory.mktemp("below"), text, "below")
    yield running
    assert "panicked" not in running.process.stderr()
    assert running.stop() == 0


def at(target: Target, path: str) -> Target:
    """The same with a path in its URL."""
    return Target(target.endpoint + path, target.credentials)


def test_an_endpoint_may_be_below_a_path_and_on_ipv6(below: Gateway) -> None:
    flags = (*MADE, "--mode", "mixed", "--mix", "get=1,batch=1,put=1", "--batch", "5", "--requests", "60")
    first = bench(at(below.s3, "/s3/"), *flags, *SHORT, "--prepare")
    assert first.code == 0 and f"{COUNT} objects written" in first.stderr, first
    assert first.report["endpoint"] == below.s3.endpoint + "/s3" and first.run["requests_failed"] == 0
    over_ipv6 = at(below.over_ipv6(), "/s3")
    again = bench(over_ipv6, *flags, *SHORT)
    assert again.code == 0 and again.report["endpoint"] == over_ipv6.endpoint, again
    assert set(again.run["kinds"]) == {"get", "batch", "put"}


def test_no_key_is_tidied_up(below: Gateway) -> None:
    assert call(below.s3, "PUT", "/s3/odd").status == 200
    for key in TRAP_KEYS:
        assert call(below.s3, "PUT", f"/s3{object_path('odd', key)}", {}, key.encode()).status == 200, key
    listed = "".join(json.dumps({"Key": key}) + "\n" for key in TRAP_KEYS)
    for mode in (("--mode", "get"), ("--mode", "batch", "--batch", "20")):
        flags = ("--bucket", "odd", "--from", "-", *mode, *SHORT, "--requests", "100")
        done = bench(at(below.s3, "/s3"), *flags, given=listed)
        assert (done.code, done.run["errors"], done.run["job"]["objects"]) == (0, [], len(TRAP_KEYS)), done


def test_a_path_that_is_another_is_said_in_one_line(below: Gateway, gateway: Gateway, store: Target) -> None:
    outside = 'whose paths begin with "/s3"'
    for mode in (("--mode", "get"), ("--mode", "batch"), ("--mode", "get", "--prepare")):
        assert_one_line(bench(below.s3, *MADE, *mode), below.s3.endpoint, outside)
        assert_one_line(bench(at(below.s3, "/s4"), *MADE, *mode), f"{below.s3.endpoint}/s4: ", outside, "--endpoint-url")
        at_the_root = at(gateway.s3, "/s3")
        assert_one_line(bench(at_the_root, *MADE, *mode), f"{at_the_root.endpoint}: ", "/s3 is taken for a bucket")
    assert call(store, "HEAD", "/s3").status == 404
    done = bench(at(below.s3, "/s3#x"), *MADE)
    assert (done.code, done.stdout) == (2, "") and "without a fragment" in done.stderr, done


def _quoted(text: str) -> str:
    return "".join(chr(b) if chr(b).isalnum() and b < 128 else f"%{b:02X}" for b in text.encode())


# What is wrong


@pytest.mark.parametrize("mode", ["get", "batch"])
def test_what_is_wrong_with_objects_is_counted_by_kind(gateway: Gateway, store: Target, mode: str) -> None:
    prefix = f"wrong-{mode}/"
    made: tuple[str, ...] = ("--bucket", BUCKET, "--objects", "8", "--size", "500", "--prefix", prefix, "--mode", mode)
    made = (*made, "--batch", "4") if mode == "batch" else made
    assert bench(gateway.s3, *made, *SHORT, "--prepare", "--requests", "20").code == 0

    def key(number: int) -> str:
        return f"{prefix}500/{number:08}"

    right = call(store, "GET", f"/{BUCKET}/{key(2)}").body
    wrong_byte = right[:250] + bytes([right[250] ^ 1]) + right[251:]
    assert call(store, "PUT", f"/{BUCKET}/{key(2)}", {}, wrong_byte).status == 200
    done = bench(gateway.s3, *made, *SHORT, "--requests", "60")
    run = done.run
    assert done.code == 1 and run["objects_failed"] > 0 and run["requests_failed"] == 0, done
    (error,) = run["errors"]
    assert error["kind"] == "wrong bytes" and key(2) in error["first"] and error["count"] == run["objects_failed"]
    assert run["objects"] + run["objects_failed"] == 60 * (4 if mode == "batch" else 1)
    assert bench(gateway.s3, *made, *SHORT, "--requests", "60", "--no-verify").code == 0

    assert call(store, "PUT", f"/{BUCKET}/{key(2)}", {}, right[:499]).status == 200
    assert call(store, "DELETE", f"/{BUCKET}/{key(5)}").status == 204
    done = bench(gateway.s3, *made, *SHORT, "--requests", "60", "--no-verify")
    kinds = {error["kind"]: error["first"] for error in done.run["errors"]}
    assert done.code == 1 and set(kinds) == {"wrong length", "404 NoSuchKey"}, done
    assert kinds["wrong length"] == f"{key(2)}: 499 bytes instead of 500" and key(5) in kinds["404 NoSuchKey"]
    # A missing object is a failed GET, and a failed part of a batch that went well.
    assert (done.run["requests_failed"] > 0) == (mode == "get")

    # Of the right length, and somebody else's.
    assert call(store, "PUT", f"/{BUCKET}/{key(3)}", {}, wrong_byte).status == 200
    done = bench(gateway.s3, *made, *SHORT, "--prepare", "--requests", "60")
    assert done.code == 0 and "3 objects written, 5 were there" in done.stderr, done


def test_what_is_missing_is_said_with_what_to_do(gateway: Gateway, store: Target) -> None:
    assert_one_line(bench(gateway.s3, "--bucket", "no-such-bench"), "bucket no-such-bench does not exist", "--prepare")
    assert_one_line(
        bench(gateway.s3, "--bucket", BUCKET, "--size", "77"), "batchgate-bench/77/00000000", "--prepare", "all 1000"
    )
    assert_one_line(bench(store, *MADE, "--mode", "batch"), "has no BatchGet", "--mode get", "batchgate serve")
    many = bench(gateway.s3, *MADE, "--mode", "batch", "--batch", "10001")
    assert_one_line(many, "no more than 10000 entries", "--batch")
    many = bench(gateway.s3, "--bucket", "never-made", "--prepare", "--mode", "batch", "--batch", "10001")
    assert_one_line(many, "no more than 10000 entries", "--batch")
    assert call(store, "HEAD", "/never-made").status == 404, "it is said before anything is written"


def test_whoever_may_not_is_told_why(gateway: Gateway) -> None:
    unknown = gateway.as_identity(Credentials("GKNOBODY", "x"))
    assert_one_line(bench(unknown, *MADE), "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID")
    forged = gateway.as_identity(Credentials(FULL.access_key, "x"))
    assert_one_line(bench(forged, *MADE), "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY")
    assert_one_line(bench(gateway.as_identity(LIMITED), *MADE), "AccessDenied", f"bucket {BUCKET}")
    assert_one_line(bench(gateway.s3, *MADE, anonymous=True), "no credentials", "--profile")


def test_nobody_there_is_said(store: Target) -> None:
    (port,) = free_ports(1)
    nobody = Target(f"http://127.0.0.1:{port}", store.credentials)
    assert_one_line(bench(nobody, *MADE), f"cannot connect to {nobody.endpoint}", "--endpoint-url")


def test_every_contradiction_is_named_and_nothing_is_sent(store: Target) -> None:
    (port,) = free_ports(1)
    nobody = Target(f"http://127.0.0.1:{port}", store.credentials)
    flags = ("--requests", "5", "--duration", "1s", "--rate", "5", "--workers", "3", "--mix", "get=1", "--rounds", "3")
    done = bench(nobody, *flags)
    assert done.code == 2 and done.stdout == "", done
    for words in (
        "--bucket is missing",
        "--duration and --requests",
        "--rate and --workers",
        "--mix needs",
        "--rounds",
    ):
        assert words in done.stderr, done.stderr
    assert all(line.startswith("batchgate: ") for line in done.stderr.splitlines()), done.stderr
    for wrong in (("--mode", "head"), ("--size", "ten"), ("--duration", "5")):
        done = bench(nobody, *MADE[:2], *wrong)
        assert done.code == 2 and wrong[0] in done.stderr, done


def test_an_endpoint_that_goes_away_is_counted_not_raged_at(
    start_gateway: Callable[..., Gateway], store: Target
) -> None:
    doomed = start_gateway([Backend("store", "*", store)], name="doomed")
    flags = (*MADE, *SHORT, "--mode", "batch", "--batch", "5", "--workers", "2")
    assert bench(doomed.s3, *flags, "--requests", "1").code == 0
    with started(doomed.s3, *flags, "--duration", "2s") as child:
        wait_for("some batches", lambda: doomed.metric("batchgate_batch_batches_total") > 5, 20)
        doomed.process.child.kill()
        stdout, stderr = child.communicate(timeout=20)
    done = Done(child.returncode, stdout, stderr)
    assert done.code == 1 and done.run["objects"] >= 25, done
    assert "cannot connect" in {error["kind"] for error in done.run["errors"]}, done
    assert 2 <= done.run["requests_failed"] <= 2 * 25, "each worker pauses where nobody answers"


# Its end


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_told_to_end_it_prints_what_it_has(gateway: Gateway, told: signal.Signals) -> None:
    flags = (*MADE, *SHORT, "--mode", "batch", "--batch", "40", "--compare", "get", "--duration", "60s")
    before = gateway.metric("batchgate_batch_batches_total")
    with started(gateway.s3, *flags) as child:
        wait_for("some batches", lambda: gateway.metric("batchgate_batch_batches_total") > before + 20, 20)
        child.send_signal(told)
        stdout, stderr = child.communicate(timeout=5)
    done = Done(child.returncode, stdout, stderr)
    assert done.code == 3 and done.stderr == "", done
    first, second = done.report["runs"]
    assert first["cut_short"] is True and first["objects"] >= 10 * 40 and second["objects"] == 0, done
    assert second["cut_short"] is True, "it had no turn"
    assert done.report["ratio"]["objects_per_second"] is None


def test_told_to_end_in_the_warm_up_it_has_nothing(gateway: Gateway) -> None:
    flags = (*MADE, "--json", "--warm-up", "60s", "--mode", "batch", "--batch", "40", "--compare", "get")
    before = gateway.metric("batchgate_batch_batches_total")
    with started(gateway.s3, *flags) as child:
        wait_for("some batches", lambda: gateway.metric("batchgate_batch_batches_total") > before + 20, 20)
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=5)
    assert_one_line(Done(child.returncode, stdout, stderr), "stopped before anything was measured")


def test_nobody_who_reads_the_report_is_no_reason_to_complain(gateway: Gateway) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    flags = argv(gateway.s3, (*MADE, "--warm-up", "0s", "--requests", "1"))
    done = subprocess.run(flags, env=environment(FULL), stdout=writes, stderr=subprocess.PIPE, timeout=20)
    os.close(writes)
    assert (done.returncode, done.stderr) == (3, b"")


def test_progress_is_for_terminals_and_has_no_colour(gateway: Gateway) -> None:
    leader, follower = pty.openpty()
    flags = (*MADE, *SHORT, "--duration", "1s")
    child = subprocess.Popen(
        argv(gateway.s3, flags),
        env={**environment(FULL), "NO_COLOR": "1", "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
    )
    stdout, _ = child.communicate(timeout=20)
    os.close(follower)
    shown = os.read(leader, 1 << 20).decode()
    os.close(leader)
    assert child.returncode == 0 and json.loads(stdout)["runs"][0]["objects"] > 0
    assert re.search(r"GET, 8 workers: \d+ objects, \d+/s, 0 errors", shown), shown
    assert re.search(r"\x1b\[[\d;]*m", shown) is None, shown
