"""`batchgate get`: files, tar files and streams from lists; what fails, breaks off or is interrupted; keys that lead elsewhere.

Every run is a process of its own with an environment of its own, as a shell would start it.
"""

import fcntl
import hashlib
import io
import json
import os
import re
import resource
import signal
import struct
import subprocess
import tarfile
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from support.gateway import (
    BINARY,
    LISTEN_ON_BOTH_FAMILIES,
    READ_ONLY,
    TRAP_KEYS,
    Backend,
    Gateway,
    clean_environment,
    settings,
)
from support.process import wait_for
from support.proxy import Relay
from support.store import Credentials, Target
from support.wire import call, object_path

BUCKET = "get-bucket"
OTHER = "get-other-bucket"
ODD = ["with space", "100%25.txt", "é/鍵", "back\\slash", "a&b=c+d", "-dash", "x/" + "d" * 100 + "/" + "e" * 120]


def content(name: str, size: int) -> bytes:
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


SMALL = {f"train/{i:03}": content(f"train/{i:03}", i * 131) for i in range(60)}
LARGE = {"large.bin": content("large.bin", 6 << 20)}
CORPUS = SMALL | LARGE | {key: content(key, 1000) for key in ODD}


@dataclass
class Done:
    """What a run came to."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        assert "panicked" not in self.stderr
        return self.stderr.splitlines()

    @property
    def totals(self) -> dict[str, object]:
        return json.loads(self.stdout)


def environment(target: Target | None) -> dict[str, str]:
    env = clean_environment() | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
    if target is not None:
        env |= {
            "AWS_ACCESS_KEY_ID": target.credentials.access_key,
            "AWS_SECRET_ACCESS_KEY": target.credentials.secret_key,
            "AWS_ENDPOINT_URL": target.endpoint,
        }
    return env


def get(
    target: Target | None,
    *args: str | Path,
    cwd: Path,
    stdin: bytes = b"",
    stdout: int = subprocess.PIPE,
    before: Callable[[], None] | None = None,
    **env: str,
) -> Done:
    argv = [str(BINARY), "get", *map(str, args)]
    run = subprocess.run(
        argv, input=stdin, stdout=stdout, stderr=subprocess.PIPE, cwd=cwd, env=environment(target) | env, timeout=60, preexec_fn=before
    )
    return Done(run.returncode, run.stdout or b"", run.stderr.decode())


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if not path.is_dir()}


def listed(keys: list[str] | dict[str, bytes]) -> bytes:
    return "".join(f"{key}\n" for key in keys).encode()


@pytest.fixture(scope="module")
def corpus(gateway: Gateway, store: Target) -> dict[str, bytes]:
    for bucket in (BUCKET, OTHER):
        assert call(store, "PUT", object_path(bucket, "")).status == 200
    for key, body in CORPUS.items():
        assert call(gateway.s3, "PUT", object_path(BUCKET, key), body=body).status == 200
    assert call(gateway.s3, "PUT", object_path(OTHER, "train/001"), body=b"of the other bucket").status == 200
    return CORPUS


@pytest.fixture
def relay(gateway: Gateway, corpus: dict[str, bytes]) -> Iterator[Relay]:
    running = Relay(gateway.s3)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory, start_gateway: object) -> Iterator[Gateway]:
    """A gateway below `/s3`, on both families of addresses, with a store of its own that takes every key."""
    text = settings([Backend("store", "*", None)], server='base_path = "/s3"', listen=LISTEN_ON_BOTH_FAMILIES)
    running = Gateway(tmp_path_factory.mktemp("below"), text, "below")
    assert call(running.s3, "PUT", f"/s3/{BUCKET}").status == 200
    for key in TRAP_KEYS:
        assert call(running.s3, "PUT", f"/s3{object_path(BUCKET, key)}", body=key.encode()).status == 200, key
    yield running
    assert "panicked" not in running.process.stderr()
    assert running.stop() == 0


def at(target: Target, path: str) -> Target:
    """The same with a path in its URL."""
    return Target(target.endpoint + path, target.credentials)


@pytest.mark.parametrize("through", ["gateway", "store"])
def test_a_list_becomes_files(
    request: pytest.FixtureRequest, gateway: Gateway, store: Target, corpus: dict[str, bytes], through: str, tmp_path: Path
) -> None:
    """Through BatchGet and, straight at a store that has none, through GETs: the same files."""
    target = gateway.s3 if through == "gateway" else store
    (tmp_path / "list").write_bytes(listed(corpus))
    done = get(target, "--from", "list", "--bucket", BUCKET, "--out", "new/out", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert files_of(tmp_path / "new/out") == corpus
    totals = done.totals
    assert (totals["entries"], totals["delivered"], totals["failed"]) == (len(corpus), len(corpus), 0)
    assert totals["bytes"] == sum(map(len, corpus.values()))
    if through == "gateway":
        assert (totals["way"], done.lines) == ("batch-get", [])
    else:
        assert (totals["way"], len(done.lines)) == ("get", 1)
        assert "has no BatchGet; falling back" in done.stderr
    modified = call(store, "HEAD", object_path(BUCKET, "train/007")).get("last-modified")
    assert modified and (tmp_path / "new/out/train/007").stat().st_mtime == parsedate_to_datetime(modified).timestamp()


def test_standard_input_takes_uris_keys_and_json(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    lines = [
        f"s3://{BUCKET}/train/003",
        "",
        "with space\r",
        json.dumps({"Key": "large.bin", "Range": "bytes=5-14", "Id": "head"}),
        json.dumps({"Key": "large.bin", "Range": "bytes=-7", "Id": "deep/tail"}),
        json.dumps({"Key": "train/004", "IfMatch": '"00000000000000000000000000000000"'}),
    ]
    done = get(
        gateway.s3, "--from", "-", "--bucket", BUCKET, f"s3://{BUCKET}/train/005", cwd=tmp_path, stdin="\n".join(lines).encode()
    )
    assert done.code == 1
    large = corpus["large.bin"]
    assert files_of(tmp_path) == {
        "train/003": corpus["train/003"], "train/005": corpus["train/005"], "with space": corpus["with space"],
        "head": large[5:15], "deep/tail": large[-7:],
    }  # fmt: skip
    why = "The store answered this entry's read with an error."
    assert done.lines == [f"batchgate: s3://{BUCKET}/train/004: 412 PreconditionFailed: {why}"]
    assert done.stdout.startswith(b"5 of 6 objects, ") and done.stdout.endswith(b", 1 failed\n")


def test_what_is_not_changed_is_not_written(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    etag = call(gateway.s3, "HEAD", object_path(BUCKET, "train/009")).get("etag")
    line = json.dumps({"Key": "train/009", "IfNoneMatch": etag})
    done = get(gateway.s3, "--from", "-", "--bucket", BUCKET, "--json", cwd=tmp_path, stdin=line.encode())
    assert (done.code, done.totals["unchanged"], done.totals["delivered"]) == (0, 1, 0)
    assert files_of(tmp_path) == {}


@pytest.mark.parametrize("through", ["gateway", "store"])
def test_an_entry_that_fails_is_one_line(
    gateway: Gateway, store: Target, corpus: dict[str, bytes], through: str, tmp_path: Path
) -> None:
    keys = ["train/001", "no/such", "train/002", "nor\x1bthis"]
    target = gateway.s3 if through == "gateway" else store
    done = get(target, "--from", "-", "--bucket", BUCKET, "--json", cwd=tmp_path, stdin=listed(keys))
    assert done.code == 1
    assert files_of(tmp_path) == {key: corpus[key] for key in ("train/001", "train/002")}
    said = [line for line in done.lines if "falling back" not in line]
    # What the document of each says beside its code.
    why = "The store answered this entry's read with an error." if through == "gateway" else "The specified key does not exist."
    assert said == [f"batchgate: s3://{BUCKET}/{key}: 404 NoSuchKey: {why}" for key in ("no/such", "nor\\u{1b}this")]
    assert (done.totals["delivered"], done.totals["failed"]) == (2, 2)


def test_thousands_that_fail_are_a_hundred_lines_and_a_count(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    keys = ["train/001", *(f"no/{i}" for i in range(1500))]
    done = get(gateway.s3, "--from", "-", "--bucket", BUCKET, "--json", cwd=tmp_path, stdin=listed(keys))
    assert (done.code, done.totals["failed"], done.totals["delivered"]) == (1, 1500, 1)
    assert (len(done.lines), done.lines[-1]) == (101, "batchgate: and 1400 more objects that failed")


def test_objects_of_several_buckets_have_them_in_their_names(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    done = get(gateway.s3, f"s3://{BUCKET}/train/001", f"s3://{OTHER}/train/001", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert files_of(tmp_path) == {f"{BUCKET}/train/001": corpus["train/001"], f"{OTHER}/train/001": b"of the other bucket"}


def test_no_key_leads_outside(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    (outside / "file").write_bytes(b"not ours")
    out.mkdir()
    keys = {key: f"by {key}".encode() for key in ("link/x", "deep/link/x", "file-link", "p", "p/q", "r/s", "r")}
    for key, body in keys.items():
        # A store may refuse a key that is another one's folder, so all come from one without folders.
        assert call(gateway.s3, "PUT", object_path(BUCKET, key.replace("/", "~")), body=body).status == 200
    (out / "link").symlink_to(outside)
    (out / "deep").mkdir()
    (out / "deep/link").symlink_to("../../outside")
    (out / "file-link").symlink_to(outside / "file")
    bad = ["../up", "/etc/passwd", "a/../../up", "a//b", "./a", "a/.", "dir/", "..", "nul\x00"]
    lines = [json.dumps({"Key": key}) for key in bad]
    lines += [json.dumps({"Key": key.replace("/", "~"), "Id": key}) for key in keys]
    done = get(
        gateway.s3, "--from", "-", "--bucket", BUCKET, "--out", out, "--json", cwd=tmp_path, stdin="\n".join(lines).encode()
    )
    assert done.code == 1
    assert files_of(outside) == {"file": b"not ours"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "outside"]
    # The link itself is replaced, not what it leads to.
    assert files_of(out) == {key: keys[key] for key in ("file-link", "p", "r/s")}
    assert not (out / "file-link").is_symlink()
    said = "\n".join(done.lines)
    for key in [*bad[:-1], "nul\\u{0}"]:
        assert f"batchgate: s3://{BUCKET}/{key}: its name " in said, said
    for key in ("link~x", "deep~link~x", "p~q", "r"):
        assert len(re.findall(rf"^batchgate: s3://{BUCKET}/{key}: .* cannot be written: ", said, re.M)) == 1, said
    assert (len(done.lines), done.totals["failed"], done.totals["delivered"]) == (len(bad) + 4, len(bad) + 4, 3)


def test_names_that_repeat(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    lines = ["train/001", "train/001", json.dumps({"Key": "train/001", "Range": "bytes=0-3"}), f"s3://{BUCKET}/train/001"]
    done = get(gateway.s3, "--from", "-", "--bucket", BUCKET, "--json", cwd=tmp_path, stdin=listed(lines))
    assert (done.code, done.totals["delivered"], done.totals["skipped"], done.totals["failed"]) == (1, 1, 2, 1)
    assert files_of(tmp_path) == {"train/001": corpus["train/001"]}
    assert "another entry has the same name" in done.stderr


def test_a_tar_file_is_one_for_python_and_for_gnu(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    keys = [*corpus, "no/such", "a/../b"]

    def run(*more: str) -> Done:
        args = ("--from", "-", "--bucket", BUCKET, "--out", "all.tar", *more)
        return get(gateway.s3, *args, cwd=tmp_path, stdin=listed(keys))

    assert run().code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["all.tar"]
    with tarfile.open(tmp_path / "all.tar") as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == list(corpus)
        assert all(archive.extractfile(m).read() == corpus[m.name] for m in members)  # type: ignore[union-attr]
        modified = call(gateway.s3, "HEAD", object_path(BUCKET, "train/007")).get("last-modified")
        assert modified and archive.getmember("train/007").mtime == parsedate_to_datetime(modified).timestamp()
    (tmp_path / "x").mkdir()
    subprocess.run(["tar", "-xf", "all.tar", "-C", "x"], cwd=tmp_path, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert files_of(tmp_path / "x") == corpus
    # It is not replaced unless told to.
    before = (tmp_path / "all.tar").read_bytes()
    refused = run()
    assert (refused.code, len(refused.lines)) == (2, 1) and "--overwrite" in refused.stderr
    keys = ["train/002"]
    assert (tmp_path / "all.tar").read_bytes() == before
    assert run("--overwrite").code == 0
    assert tarfile.open(tmp_path / "all.tar").getnames() == keys


def test_a_trailing_slash_makes_a_folder_of_any_name(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    assert get(gateway.s3, f"s3://{BUCKET}/train/002", "--out", "x.tar/", cwd=tmp_path).code == 0
    assert files_of(tmp_path) == {"x.tar/train/002": corpus["train/002"]}


def test_standard_output_is_a_tar_stream_or_one_object(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    done = get(gateway.s3, "--from", "-", "--bucket", BUCKET, "--out", "-", cwd=tmp_path, stdin=listed(corpus))
    assert done.code == 0 and done.lines[-1].startswith(f"{len(corpus)} of {len(corpus)} objects")
    with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r|") as archive:
        assert {m.name: archive.extractfile(m).read() for m in archive} == corpus  # type: ignore[union-attr]
    one = get(gateway.s3, f"s3://{BUCKET}/large.bin", "--out", "-", cwd=tmp_path)
    assert (one.code, one.stdout) == (0, corpus["large.bin"])
    missing = get(gateway.s3, f"s3://{BUCKET}/no/such", "--out", "-", cwd=tmp_path)
    assert (missing.code, missing.stdout) == (1, b"")
    assert files_of(tmp_path) == {}


def test_skip_existing_gets_what_is_missing(gateway: Gateway, relay: Relay, corpus: dict[str, bytes], tmp_path: Path) -> None:
    args = ("--from", "-", "--bucket", BUCKET, "--out", "out", "--json")
    assert get(gateway.s3, *args, cwd=tmp_path, stdin=listed(SMALL)).code == 0
    for key in ("train/010", "train/020"):
        (tmp_path / "out" / key).unlink()
    (tmp_path / "out/train/030").write_bytes(b"mine")
    done = get(gateway.s3, *args, "--skip-existing", cwd=tmp_path, stdin=listed(SMALL))
    assert (done.code, done.totals["delivered"], done.totals["skipped"]) == (0, 2, len(SMALL) - 2)
    assert files_of(tmp_path / "out") == SMALL | {"train/030": b"mine"}
    # Where everything is there, nobody is asked at all.
    done = get(relay.through, *args, "--skip-existing", cwd=tmp_path, stdin=listed(SMALL))
    assert (done.code, done.totals["skipped"], relay.posts) == (0, len(SMALL), 0)
    # Without it, files are replaced.
    assert get(gateway.s3, *args, cwd=tmp_path, stdin=listed(SMALL)).code == 0
    assert files_of(tmp_path / "out") == SMALL


@pytest.mark.parametrize("out", ["folder", "file.tar", "-"])
def test_what_breaks_off_is_asked_for_again(relay: Relay, corpus: dict[str, bytes], out: str, tmp_path: Path) -> None:
    """Breaks among small objects, and two in the middle of a large one that had begun."""
    relay.plan = [("break", 20_000), ("break", 30_000), ("break", 2_000_000), ("break", 3_000_000)]
    keys = [*SMALL, "large.bin", *ODD]
    done = get(relay.through, "--from", "-", "--bucket", BUCKET, "--out", out, cwd=tmp_path, stdin=listed(keys))
    assert (done.code, relay.posts, relay.plan) == (0, 5, []), done.stderr
    assert len(re.findall(r"broke off.*asking again in 0\.\d s", done.stderr)) == 4
    if out == "folder":
        assert files_of(tmp_path / out) == corpus
        return
    source = io.BytesIO(done.stdout) if out == "-" else (tmp_path / out).open("rb")
    with source, tarfile.open(fileobj=source) as archive:
        assert {m.name: archive.extractfile(m).read() for m in archive} == corpus  # type: ignore[union-attr]


def test_a_list_is_cut_into_batches(relay: Relay, corpus: dict[str, bytes], tmp_path: Path) -> None:
    done = get(relay.through, "--from", "-", "--bucket", BUCKET, "--batch", "7", cwd=tmp_path, stdin=listed(SMALL))
    assert (done.code, relay.posts) == (0, -(-len(SMALL) // 7))
    assert files_of(tmp_path) == SMALL


@pytest.mark.parametrize("out", ["folder", "file.tar"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing_half_and_can_be_gone_on_from(
    relay: Relay, corpus: dict[str, bytes], out: str, number: signal.Signals, tmp_path: Path
) -> None:
    relay.plan = [("hold", 2_500_000)]
    keys = [*SMALL, "large.bin", *ODD]
    (tmp_path / "list").write_bytes(listed(keys))
    (tmp_path / "home").mkdir()
    argv = [str(BINARY), "get", "--from", "list", "--bucket", BUCKET, "--out", f"home/{out}"]
    child = subprocess.Popen(argv, cwd=tmp_path, env=environment(relay.through), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert relay.held.wait(10)
    # The large object is open under a name that is not its own.
    parts = (tmp_path / "home").rglob
    wait_for("a large file of ours", lambda: [path for path in parts(".*.part") if path.stat().st_size > 1 << 20], 10)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=10)
    assert (child.returncode, len(stderr.splitlines())) == (3, 1), stderr
    assert b"interrupted" in stderr
    there = files_of(tmp_path / "home")
    if out == "file.tar":
        assert there == {}
        return
    assert there == {f"{out}/{key}": body for key, body in SMALL.items()}
    assert f"{len(SMALL)} of {len(keys)} objects are there" in stderr.decode() and stdout == b""
    again = get(relay.target, *argv[2:], "--skip-existing", "--json", cwd=tmp_path)
    assert (again.code, again.totals["skipped"]) == (0, len(SMALL))
    assert files_of(tmp_path / "home" / out) == corpus


def test_a_signal_is_seen_while_nobody_reads_the_output(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    argv = [str(BINARY), "get", f"s3://{BUCKET}/large.bin", "--out", "-"]
    for _ in range(4):
        reading, writing = os.pipe()
        child = subprocess.Popen(argv, cwd=tmp_path, env=environment(gateway.s3), stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        size = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ)
        wait_for("a full pipe", lambda reading=reading, size=size: unread(reading) >= size, 10)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=5)
        os.close(reading)
        assert (child.returncode, stderr) == (3, b"batchgate: interrupted\n")


def unread(pipe: int) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def test_a_signal_that_is_ignored_stays_ignored(relay: Relay, corpus: dict[str, bytes], tmp_path: Path) -> None:
    """As under `nohup`, which has a hangup ignored."""
    relay.plan = [("hold", 2_500_000)]
    argv = [str(BINARY), "get", f"s3://{BUCKET}/large.bin"]
    env = environment(relay.through)
    child = subprocess.Popen(
        argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert relay.held.wait(10)
    child.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=5)
    assert (child.returncode, len(stderr.splitlines())) == (3, 1)
    assert files_of(tmp_path) == {}


@pytest.mark.parametrize("by", ["batches", "gets"])
def test_an_endpoint_may_be_below_a_path_and_on_ipv6_and_no_key_is_tidied_up(
    below: Gateway, by: str, tmp_path: Path
) -> None:
    relay = Relay(below.s3, hides_batch_get=by == "gets")
    listing = "".join(json.dumps({"Key": key, "Id": f"{i}"}) + "\n" for i, key in enumerate(TRAP_KEYS)).encode()
    targets = [at(relay.through, "/s3")]
    if by == "batches":
        targets += [at(below.s3, "/s3//"), at(below.over_ipv6(), "/s3"), at(below.over_ipv6(), "/s3/")]
    for number, target in enumerate(targets):
        out = tmp_path / str(number)
        done = get(target, "--from", "-", "--bucket", BUCKET, "--out", out, "--json", cwd=tmp_path, stdin=listing)
        assert done.code == 0, done
        assert files_of(out) == {f"{i}": key.encode() for i, key in enumerate(TRAP_KEYS)}
        assert done.totals["way"] == ("get" if by == "gets" else "batch-get")
        assert done.lines == [f"batchgate: {target.endpoint} has no BatchGet; falling back to a GET for each object"] * (by == "gets")
    relay.stop()


def test_a_path_that_is_another_is_said_in_one_line(
    below: Gateway, gateway: Gateway, embedded_gateway: Gateway, tmp_path: Path
) -> None:
    outside = 'there is no S3 at this path: 400 InvalidURI: the path is outside of this endpoint, whose paths begin with "/s3"'
    for target, says in (
        (below.s3, outside),
        (at(below.s3, "/s4/"), outside),
        (at(below.over_ipv6(), "/s3x"), outside),
        # SeaweedFS does not get as far as to say that there is no such bucket.
        (at(gateway.s3, "/s3"), "there is no S3 at this path: 501 NotImplemented: /s3 is taken for a bucket"),
        (at(embedded_gateway.s3, "/s3"), "there is no S3 at this path: 404 NoSuchBucket: /s3 is taken for a bucket"),
    ):
        done = get(target, f"s3://{BUCKET}/a", cwd=tmp_path)
        assert (done.code, done.stdout, len(done.lines)) == (3, b"", 1), done
        assert done.lines[0].startswith(f"batchgate: {target.endpoint.rstrip('/')}: {says}"), done
    wrong = get(at(below.s3, "/s3?x"), f"s3://{BUCKET}/a", cwd=tmp_path)
    assert (wrong.code, len(wrong.lines)) == (2, 1) and "without a query" in wrong.lines[0]
    assert files_of(tmp_path) == {}


def test_certificates_that_cannot_be_read_are_named(gateway: Gateway, tmp_path: Path) -> None:
    done = get(gateway.s3, f"s3://{BUCKET}/a", cwd=tmp_path, AWS_CA_BUNDLE="nope.pem")
    assert done.code != 0 and len(done.lines) == 1, done
    assert done.lines[0].startswith("batchgate: AWS_CA_BUNDLE: nope.pem cannot be used: "), done


def closed_port() -> str:
    return "http://127.0.0.1:1"


def test_what_cannot_be_done_is_one_line(gateway: Gateway, store: Target, corpus: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    uri = f"s3://{BUCKET}/train/001"
    wrong_secret = gateway.as_identity(Credentials(READ_ONLY.access_key, "wrong"))
    nobody = gateway.as_identity(Credentials("NOBODY", "secret"))
    cases: list[tuple[str, Target | None, list[str | Path], str]] = [
        ("nobody listens", gateway.s3, [uri, "--endpoint-url", closed_port()], "http://127.0.0.1:1: cannot connect: "),
        ("no such host", gateway.s3, [uri, "--endpoint-url", "http://no-such-host.invalid"], " no-such-host.invalid: "),
        ("wrong secret", wrong_secret, [uri], "403 SignatureDoesNotMatch"),
        ("unknown key", nobody, [uri], "403 InvalidAccessKeyId"),
        ("wrong secret at the store", store.with_credentials(wrong_secret.credentials), [uri], "403 "),
        ("no credentials", None, [uri, "--endpoint-url", gateway.s3.endpoint], "no credentials: set AWS_ACCESS_KEY_ID and"),
        ("no bucket", gateway.s3, ["s3://no-such-bucket/a", "s3://no-such-bucket/b"], "s3://no-such-bucket: there is no such bucket"),
        ("a file in the way", gateway.s3, [uri, "--out", "file"], "file cannot be written to: "),
        ("a file in the way of the folder", gateway.s3, [uri, "--out", "file/x"], "file/x cannot be written to: "),
        ("not writable", gateway.s3, [uri, "--out", "/proc/nowhere"], "/proc/nowhere cannot be written to: "),
        ("not writable tar", gateway.s3, [uri, "--out", "nowhere/x.tar"], "nowhere/x.tar cannot be written: "),
    ]
    for name, target, args, text in cases:
        done = get(target, *args, cwd=tmp_path)
        assert (done.code, len(done.lines)) == (3, 1) and len(done.stderr) < 250, f"{name}: {done}"
        assert name == "no bucket" or done.stdout == b"", f"{name}: {done}"
        assert done.lines[0].startswith("batchgate: ") and text in done.lines[0], f"{name}: {done}"
    assert files_of(tmp_path) == {"file": b""}


def test_a_full_disk_and_a_reader_that_leaves(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    large = f"s3://{BUCKET}/large.bin"
    with Path("/dev/full").open("wb") as full:
        done = get(gateway.s3, large, "--out", "-", cwd=tmp_path, stdout=full.fileno())
    assert (done.code, len(done.lines)) == (3, 1)
    assert "standard output cannot be written: No space left on device" in done.lines[0]

    def small_files_only() -> None:
        # A file that grows beyond this is an error, as where a disk is full.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    for out in ("folder", "file.tar"):
        done = get(gateway.s3, f"s3://{BUCKET}/train/001", large, "--out", out, cwd=tmp_path, before=small_files_only)
        assert (done.code, len(done.lines)) == (3, 1), done
        assert f"batchgate: {out}" in done.lines[0] and "cannot be written: File too large" in done.lines[0]
    assert files_of(tmp_path) == {"folder/train/001": corpus["train/001"]}
    reading, writing = os.pipe()
    os.close(reading)
    done = get(gateway.s3, large, "--out", "-", cwd=tmp_path, stdout=writing)
    os.close(writing)
    assert (done.code, done.lines) == (3, ["batchgate: standard output: whoever read it left before the end"])
    # Objects that are there are there, whether or not the totals can be said.
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") as full:
        for stdout in (full.fileno(), writing):
            for more in ([], ["--json"]):
                done = get(gateway.s3, f"s3://{BUCKET}/train/002", "--out", "folder", *more, cwd=tmp_path, stdout=stdout)
                assert (done.code, done.lines) == (0, []), done
    os.close(writing)
    assert (tmp_path / "folder/train/002").read_bytes() == corpus["train/002"]


def test_wrong_usage_and_wrong_lists(gateway: Gateway, corpus: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "bad").write_text(f's3://{BUCKET}/train/001\n\nkey-without-bucket\n{{"Key": "k", "Sise": 1}}\n')
    (tmp_path / "odd").write_text('s3://a\x1b[2J/k\n{"Key": "k", "\x9b2J": 1}\n')
    uri = f"s3://{BUCKET}/train/001"
    cases: list[tuple[list[str], list[str]]] = [
        ([], ["nothing to get"]),
        (["train/001"], ["train/001: no S3 URI"]),
        ([f"s3://{BUCKET}/"], ["names a bucket and no object"]),
        (["--from", "bad"], ["bad:3: it names no bucket", "bad:4: unknown field `Sise`"]),
        (["--from", "missing"], ["--from: missing cannot be read"]),
        ([uri, "--bucket", "a/b"], ["--bucket"]),
        ([uri, "--out", "x.tar", "--skip-existing"], ["--skip-existing"]),
        ([uri, "--overwrite"], ["--overwrite"]),
        ([uri, "--out", "x.tar.gz"], ["end the name in .tar"]),
        ([uri, "--endpoint-url", "no url"], ["no url"]),
        ([uri, "--endpoint-url", "http://127.0.0.1:9/s3?x"], ["http://127.0.0.1:9/s3?x is no URL of an endpoint: it ends"]),
        ([uri, "--endpoint-url", "http://[::1]:9#x"], ["http://[::1]:9#x is no URL of an endpoint: it ends"]),
        ([uri, "--endpoint-url", "http://127.0.0.1:9/a/../b"], ["its path must be one such as /s3"]),
        ([uri, "--endpoint-url", "http://127.0.0.1:99999"], ["the host or the port is wrong"]),
        ([uri, "--endpoint-url", "http://[::1]:9", "--addressing", "virtual"], ["[::1]:9 is an address, before which no bucket"]),
        ([uri, "--endpoint-url", "http://user:sekret@127.0.0.1:9"], ["no user and no password"]),
        (["s3://a\x1b[2J/k"], ["s3://a\\u{1b}[2J/k: "]),
        (["\u202ekey"], ["\\u{202e}key: no S3 URI"]),
        (["--from", "odd"], ["odd:1: `a\\u{1b}[2J` is no name", "odd:2: unknown field `\\u{9b}"]),
    ]
    for args, texts in cases:
        done = get(gateway.s3, *args, cwd=tmp_path)
        assert (done.code, done.stdout, len(done.lines)) == (2, b"", len(texts)), f"{args}: {done}"
        assert all(text in line for text, line in zip(texts, done.lines, strict=True)), f"{args}: {done}"
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]|sekret", done.stderr), f"{args}: {done}"
    many = get(gateway.s3, "--from", "-", cwd=tmp_path, stdin=b"no-bucket\n" * 50)
    assert (many.code, len(many.lines), many.lines[-1]) == (2, 21, "batchgate: and 30 more")
    assert get(gateway.s3, "--batch", "0", uri, cwd=tmp_path).code == 2
    assert files_of(tmp_path).keys() == {"bad", "odd"}


def test_endpoint_and_credentials_are_found_as_by_every_aws_tool(
    gateway: Gateway, store: Target, corpus: dict[str, bytes], tmp_path: Path
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".aws").mkdir(parents=True)
    work.mkdir()
    pair = gateway.s3.credentials
    (home / ".aws/credentials").write_text(
        f"[gate]\naws_access_key_id = {pair.access_key}\naws_secret_access_key = {pair.secret_key}\n"
    )
    (home / ".aws/config").write_text(
        f"[profile gate]\nendpoint_url = {gateway.s3.endpoint}\nregion = us-east-1\n"
        f"[profile services]\nsource_profile = gate\nservices = local\n[services local]\ns3 =\n  endpoint_url = {gateway.s3.endpoint}\n"
    )
    uri = f"s3://{BUCKET}/train/001"
    env = {"HOME": str(home)}
    assert get(None, uri, "--profile", "gate", cwd=work, **env).code == 0
    assert get(None, uri, cwd=work, **env, AWS_PROFILE="gate").code == 0
    keys = {"AWS_ACCESS_KEY_ID": pair.access_key, "AWS_SECRET_ACCESS_KEY": pair.secret_key}
    assert get(None, uri, cwd=work, **env, **keys, AWS_PROFILE="services").code == 0
    # The service's own variable beats the general one, and the flag beats both.
    both = {"AWS_ENDPOINT_URL": closed_port(), "AWS_ENDPOINT_URL_S3": gateway.s3.endpoint}
    assert get(None, uri, cwd=work, **env, **keys, **both).code == 0
    assert get(None, uri, "--endpoint-url", closed_port(), cwd=work, **env, **keys, **both).code == 3
    assert get(None, uri, cwd=work, **env, AWS_PROFILE="no-such-profile", **both).code == 3
    # A profile that is named goes before the keys of the environment, and there is no way around one that is missing.
    others = {"AWS_ACCESS_KEY_ID": "NOBODY", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert get(None, uri, "--profile", "gate", cwd=work, **env, **others).code == 0
    missing = get(None, uri, "--profile", "no-such-profile", cwd=work, **env, **keys, **both)
    assert (missing.code, len(missing.lines)) == (2, 1) and "`no-such-profile`" in missing.lines[0]


def test_help_teaches_the_command(tmp_path: Path) -> None:
    done = get(None, "--help", cwd=tmp_path)
    text = done.stdout.decode()
    assert done.code == 0
    for word in ("Examples:", "Exit codes:", "--skip-existing", "AWS_ENDPOINT_URL", "s3://BUCKET/KEY", '"Range"', "one tar file"):
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100
