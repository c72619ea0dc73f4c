"""`batchgate demo`: the first minute, from the command to the table, and what it says when it cannot be."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.clients import boto3_client
from support.gateway import BINARY, clean_environment
from support.process import Process, wait_for
from support.store import Credentials, Target

ROW = re.compile(r"^  (?P<way>\S.*?)  +(?P<rate>[\d,.]+) +(?P<ratio>[\d,.]+)x$", re.M)
SMALL = ["--objects", "200", "--size", "1KiB"]


# Nobody's proxy reaches this machine's loopback, so the demo asks none.
PROXIES = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}


def demo(*arguments: str, **more_env: str) -> subprocess.CompletedProcess[str]:
    command = [str(BINARY), "demo", *arguments]
    env = {**clean_environment(), **more_env}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def test_demo_tells_its_story_and_exits_0() -> None:
    done = demo(*SMALL, "--backend-latency", "2ms", **PROXIES)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    rows = {row["way"]: float(row["ratio"].replace(",", "")) for row in ROW.finditer(done.stdout)}
    assert list(rows) == [
        "GET, one after another, AWS SDK",
        "GET, 32 at a time, AWS SDK",
        "GET, 32 at a time, bare HTTP client",
        "BatchGet of 32, bare HTTP client",
        "BatchGet of 128, bare HTTP client",
        "BatchGet of 200, bare HTTP client",
    ]
    assert rows["GET, one after another, AWS SDK"] == 1.0
    assert "200 of 1KiB, written by the AWS SDK for Rust" in done.stdout
    assert "answers 2ms late" in done.stdout
    assert "batchgate demo --serve" in done.stdout.split("Next:")[1]


def test_demo_serves_on_what_it_wrote(tmp_path: Path) -> None:
    process = Process("demo", [str(BINARY), "demo", *SMALL, "--serve"], tmp_path, clean_environment())
    try:
        text = wait_for("it says what to type", lambda: "batchgate bench" in process.stdout() and process.stdout(), 30)
        shown = dict(re.findall(r"(AWS_\w+)=(\S+)", text))
        pair = Credentials(shown["AWS_ACCESS_KEY_ID"], shown["AWS_SECRET_ACCESS_KEY"])
        s3 = boto3_client(Target(shown["AWS_ENDPOINT_URL"], pair))
        listed = s3.list_objects_v2(Bucket="demo")
        assert listed["KeyCount"] == 200
        assert {item["Size"] for item in listed["Contents"]} == {1024}
    finally:
        assert process.stop(10) == 0
    assert process.stderr() == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--objects", "0"], "--objects"),
        (["--size", "10kb"], "is no size"),
        (["--size", "1GiB"], "fewer or smaller objects"),
        (["--backend-latency", "5"], "is no duration"),
        (["--backend-latency", "6s"], "at most 2s"),
        (["--backend-latency", "1s", "--objects", "50000"], "fewer --objects"),
        (["--objects", "50001", "--size", "1"], "1..=50000"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], says: str) -> None:
    done = demo(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr, done.stderr


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    process = Process("demo", [str(BINARY), "demo", "--backend-latency", "50ms"], tmp_path, clean_environment())
    wait_for("it has begun", lambda: "gateway" in process.stdout(), 10)
    process.child.send_signal(signal.SIGINT)
    assert process.child.wait(10) == 3
    assert process.stderr() == "batchgate: interrupted\n"


def test_nobody_who_reads_on_is_no_reason_to_complain() -> None:
    pipe = subprocess.PIPE
    child = subprocess.Popen([str(BINARY), "demo", *SMALL], stdout=pipe, stderr=pipe, env=clean_environment())
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline().startswith(b"One request, many objects")
    child.stdout.close()
    assert (child.wait(20), child.stderr.read()) == (3, b"")
    child.stderr.close()
