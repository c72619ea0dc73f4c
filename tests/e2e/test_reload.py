"""Settings that change while the gateway runs: identities, policies and the certificate, by SIGHUP and by a change of their
files, under load of which nothing may fail; bad versions, which are refused and told of."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.batch import batch_get, batch_request, document, read_batch
from support.gateway import BINARY, FULL, Backend, Gateway, clean_environment, settings
from support.process import Process, wait_for
from support.rawsocket import read_answer, stalled
from support.store import Credentials, Target
from support.wire import call, sign

BUCKET = "reloaded"
KEYS = [f"key-{i}" for i in range(40)]
LARGE_BYTES = 4 << 20
INTERVAL_SECONDS = 0.1
ROLLING = Credentials("GKROLLING", "first-secret-of-the-rolling-identity")
NEW_SECRET = Credentials("GKROLLING", "second-secret-of-the-rolling-identity")
# What the kernel says of a process that catches signal 1.
HEARS_HANGUP = re.compile(r"^SigCgt:\s*[0-9a-f]*[13579bdf]$", re.M)
LATE = Credentials("GKLATE", "secret-of-an-identity-that-comes-late")
READ_ONLY = {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}]}
WRITING = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


def tables(*pairs: Credentials, policy: str = 'policy = "full-access"') -> str:
    """An identities file."""
    names = [f'name = "{pair.access_key.lower()}"' for pair in pairs]
    return "identities = []\n" * (not pairs) + "".join(
        f'[[identities]]\n{name}\naccess_key = "{pair.access_key}"\nsecret_key = "{pair.secret_key}"\n{policy}\n'
        for name, pair in zip(names, pairs, strict=True)
    )


def replace(path: Path, text: str) -> None:
    """As careful programs do it."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


class Reloading:
    """A gateway with an embedded store and, beside its settings, a file of identities that tests change."""

    def __init__(
        self,
        folder: Path,
        server: str = "",
        sections: str = "",
        identities: str = tables(ROLLING),
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.folder = folder
        self.identities = folder / "identities.toml"
        if identities:
            self.identities.write_text(identities)
        interval = f'reload_interval = "{interval_seconds * 1000:.0f}ms"\n'
        text = 'identities_file = "identities.toml"\n'
        text += settings([Backend("store", "*", None)], sections, interval + server)
        self.gateway = Gateway(folder, text, "reloading")
        self.config = folder / "reloading.toml"

    @property
    def s3(self) -> Target:
        return self.gateway.s3

    def as_identity(self, credentials: Credentials) -> Target:
        return self.gateway.as_identity(credentials)

    def count(self, outcome: str) -> int:
        text = self.gateway.admin_get("/metrics")[1]
        found = re.search(rf'^batchgate_config_reloads_total{{outcome="{outcome}"}} (\d+)$', text, re.M)
        assert found, text
        return int(found[1])

    def hangup(self) -> None:
        self.gateway.process.child.send_signal(signal.SIGHUP)

    def readyz_lines(self) -> list[str]:
        """What /readyz says of reloads."""
        return [line for line in self.gateway.admin_get("/readyz")[1].splitlines() if line.startswith("reload: ")]

    @contextmanager
    def reloads(self, outcome: str = "success", still_refused: bool = False) -> Iterator[None]:
        """What is done inside makes one reload with this outcome and none with the other. A success is told of as one unless
        what was refused before is there still."""
        other = {"success": "failure", "failure": "success"}[outcome]
        before, before_other = self.count(outcome), self.count(other)
        yield
        wait_for(f"a reload: {outcome}", lambda: self.count(outcome) > before, 10)
        time.sleep(INTERVAL_SECONDS * 3)
        assert (self.count(outcome), self.count(other)) == (before + 1, before_other), self.log()[-2000:]
        refused = outcome == "failure" or still_refused
        assert self.gateway.metric("batchgate_config_reload_successful") == (0 if refused else 1)
        status, body = self.gateway.admin_get("/readyz")
        assert status == 200 and bool(self.readyz_lines()) == refused, body

    def log(self) -> str:
        return self.gateway.process.stderr()

    def status(self, credentials: Credentials, method: str = "GET") -> int:
        key, body = ("written", b"body") if method == "PUT" else (KEYS[0], b"")
        return call(self.as_identity(credentials), method, f"/{BUCKET}/{key}", {}, body).status


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Reloading]:
    with serving(Reloading(tmp_path)) as reloading:
        yield reloading


@contextmanager
def serving(reloading: Reloading) -> Iterator[Reloading]:
    try:
        assert call(reloading.s3, "PUT", f"/{BUCKET}").status == 200
        for key in KEYS:
            assert call(reloading.s3, "PUT", f"/{BUCKET}/{key}", {}, key.encode()).status == 200
        yield reloading
    finally:
        code = reloading.gateway.stop()
    assert code == 0
    assert "panicked" not in reloading.log()


class Load:
    """Clients that never pause, as an identity that nobody touches; each mistake is kept."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.done = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        clients = [self._get, self._get, self._batch, self._put]
        self._threads = [threading.Thread(target=self._run, args=(client,), daemon=True) for client in clients]

    def _run(self, client: Callable[[int], None]) -> None:
        turn = 0
        while not self._stop.is_set():
            try:
                client(turn)
            except Exception as error:
                self.failed.append(repr(error))
            self.done += 1
            turn += 1

    def _get(self, turn: int) -> None:
        key = KEYS[turn % len(KEYS)]
        answer = call(self.target, "GET", f"/{BUCKET}/{key}")
        assert (answer.status, answer.body, answer.broken) == (200, key.encode(), None), answer

    def _batch(self, _turn: int) -> None:
        batch = batch_get(self.target, BUCKET, KEYS)
        assert [(part.status, part.body) for part in batch.parts] == [(200, key.encode()) for key in KEYS]

    def _put(self, turn: int) -> None:
        assert call(self.target, "PUT", f"/{BUCKET}/put-{turn % 8}", {}, b"x" * 5000).status == 200

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


class TestIdentities:
    def test_they_come_go_and_roll_under_load_and_nothing_fails(self, running: Reloading) -> None:
        with Load(running.s3) as load:
            for turn in range(3):
                with running.reloads():
                    replace(running.identities, tables(ROLLING, LATE))
                assert (running.status(ROLLING), running.status(LATE)) == (200, 200)
                with running.reloads():
                    replace(running.identities, tables(NEW_SECRET, LATE))
                assert (running.status(NEW_SECRET), running.status(LATE)) == (200, 200)
                assert running.status(ROLLING) == 403, "the old secret is worth nothing, the derived keys neither"
                with running.reloads():
                    # By hand and by a change, one after the other.
                    if turn % 2:
                        running.identities.write_text(tables(ROLLING))
                    else:
                        replace(running.identities, tables(ROLLING))
                assert (running.status(ROLLING), running.status(LATE), running.status(NEW_SECRET)) == (200, 403, 403)
            reloads = running.count("success")
            for _ in range(20):
                running.hangup()
                time.sleep(0.02)
            wait_for("hangups are heard", lambda: running.count("success") > reloads, 10)
        assert load.failed == []
        assert load.done > 50
        running.gateway.assert_gauges_at_zero()

    def test_a_batch_ends_under_the_identity_that_it_began_with(self, running: Reloading) -> None:
        """A long answer is in the middle while its identity is taken away: every entry still comes."""
        body = os.urandom(LARGE_BYTES)
        for i in range(8):
            assert call(running.s3, "PUT", f"/{BUCKET}/large-{i}", {}, body).status == 200
        keys = [f"large-{i}" for i in range(8)] + KEYS
        mine = running.as_identity(ROLLING)
        with ExitStack() as stack:
            batch = stack.enter_context(stalled(mine, batch_request(mine, BUCKET, document(keys))))
            plain = stack.enter_context(stalled(mine, sign(mine, "GET", f"/{BUCKET}/large-0")))
            upload = stack.enter_context(socket.create_connection(mine.address, timeout=20))
            put = sign(mine, "PUT", f"/{BUCKET}/uploaded", {}, body).raw()
            upload.sendall(put[: len(put) // 2])
            assert batch.recv(1, socket.MSG_PEEK) and plain.recv(1, socket.MSG_PEEK)
            with running.reloads():
                replace(running.identities, tables(LATE))
            assert running.status(ROLLING) == 403
            upload.sendall(put[len(put) // 2 :])
            parts = read_batch(read_answer(stack.enter_context(batch.makefile("rb")))).parts
            assert [part.status for part in parts] == [200] * len(keys)
            assert all(part.body == body for part in parts[:8])
            assert read_answer(stack.enter_context(plain.makefile("rb"))).body == body
            assert read_answer(stack.enter_context(upload.makefile("rb"))).status == 200
        # The connection is known, the identity is not.
        assert call(running.s3, "GET", f"/{BUCKET}/uploaded").body == body

    def test_a_kept_connection_carries_no_identity(self, running: Reloading) -> None:
        mine = running.as_identity(ROLLING)
        raw = sign(mine, "GET", f"/{BUCKET}/{KEYS[0]}").raw()
        with socket.create_connection(mine.address, timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(raw)
            assert read_answer(stream).status == 200
            with running.reloads():
                replace(running.identities, tables())
            sock.sendall(raw)
            answer = read_answer(stream)
            assert answer.status == 403 and b"InvalidAccessKeyId" in answer.body

    def test_a_policy_is_tightened(self, tmp_path: Path) -> None:
        policy = tmp_path / "rolling.json"
        policy.write_text(json.dumps(WRITING))
        identities = tables(ROLLING, policy='policy_file = "rolling.json"')
        with serving(Reloading(tmp_path, identities=identities)) as running:
            with Load(running.s3) as load:
                assert (running.status(ROLLING), running.status(ROLLING, "PUT")) == (200, 200)
                with running.reloads():
                    replace(policy, json.dumps(READ_ONLY))
                assert (running.status(ROLLING), running.status(ROLLING, "PUT")) == (200, 403)
                with running.reloads("failure"):
                    element = {**READ_ONLY["Statement"][0], "Condition": {}}
                    replace(policy, json.dumps({"Statement": [element]}))
                assert "Condition" in running.log()
                assert (running.status(ROLLING), running.status(ROLLING, "PUT")) == (200, 403)
            assert load.failed == []

    def test_secrets_in_files_roll(self, tmp_path: Path) -> None:
        secret = tmp_path / "rolling.secret"
        secret.write_text(ROLLING.secret_key + "\n")
        table = '[[identities]]\nname = "rolling"\naccess_key = "GKROLLING"\nsecret_key_file = "rolling.secret"\n'
        with serving(Reloading(tmp_path, identities=table + 'policy = "read-only"\n')) as running:
            assert running.status(ROLLING) == 200
            with running.reloads():
                replace(secret, NEW_SECRET.secret_key + "\n")
            assert (running.status(ROLLING), running.status(NEW_SECRET)) == (403, 200)
            with running.reloads("failure"):
                secret.unlink()
            assert running.status(NEW_SECRET) == 200
            with running.reloads():
                secret.write_text(ROLLING.secret_key)
            assert running.status(ROLLING) == 200
            shown = running.gateway.admin_get("/configz")[1] + running.log()
            assert ROLLING.secret_key not in shown and NEW_SECRET.secret_key not in shown

    def test_a_mounted_volume_swaps_a_link(self, tmp_path: Path) -> None:
        """As Kubernetes does it: the file is a link into a link, and that is renamed over."""
        volume = tmp_path / "volume"

        def publish(version: str, text: str) -> None:
            (volume / version).mkdir(parents=True)
            (volume / version / "identities.toml").write_text(text)
            (volume / "..data_tmp").symlink_to(version)
            (volume / "..data_tmp").rename(volume / "..data")

        publish("..one", tables(ROLLING))
        (volume / "identities.toml").symlink_to("..data/identities.toml")
        (tmp_path / "identities.toml").symlink_to("volume/identities.toml")
        with serving(Reloading(tmp_path, identities="")) as running:
            with Load(running.s3) as load:
                assert (running.status(ROLLING), running.status(LATE)) == (200, 403)
                with running.reloads():
                    publish("..two", tables(LATE))
                assert (running.status(ROLLING), running.status(LATE)) == (403, 200)
                # Another file with the same content is no other version.
                before = running.count("success")
                publish("..three", tables(LATE))
                time.sleep(INTERVAL_SECONDS * 5)
                assert running.count("success") == before
            assert load.failed == []


BAD = {
    "syntax": '[[identities]]\nname = "a\n',
    "heading": "[[identities]\n",
    "unknown key": tables(ROLLING) + 'polcy = "read-only"\n',
    "taken": tables(FULL),
    "empty": "",
    "unknown policy": tables(ROLLING, policy='policy = "all"'),
    "policy element": tables(ROLLING, policy='policy_json = \'{"Statement": [], "Principal": "*"}\''),
    "missing policy": tables(ROLLING, policy='policy_file = "nowhere.json"'),
}


class TestBadVersions:
    @pytest.mark.parametrize("kind", BAD)
    def test_one_is_refused_and_told_of(self, running: Reloading, kind: str) -> None:
        good = running.identities.read_text()
        shown = running.gateway.admin_get("/configz")
        with Load(running.s3) as load, running.reloads("failure"):
            replace(running.identities, BAD[kind])
        lines = [line for line in running.log().splitlines() if " ERROR " in line]
        assert len(lines) == 1 and "identities.toml:" in lines[0], lines
        assert running.status(ROLLING) == 200 and running.gateway.admin_get("/configz") == shown
        with running.reloads("failure"):
            running.hangup()
        with running.reloads():
            replace(running.identities, good)
        assert load.failed == []

    def test_a_missing_file_is_refused_once(self, running: Reloading) -> None:
        text = running.identities.read_text()
        with running.reloads("failure"):
            running.identities.unlink()
        time.sleep(INTERVAL_SECONDS * 5)
        assert running.count("failure") == 1 and running.status(ROLLING) == 200
        with running.reloads():
            running.identities.write_text(text)

    def test_what_is_no_regular_file_is_not_waited_for(self, running: Reloading) -> None:
        running.identities.unlink()
        with running.reloads("failure"):
            os.mkfifo(running.identities)
        assert running.status(ROLLING) == 200
        running.identities.unlink()
        with running.reloads():
            running.identities.write_text(tables(LATE))
        assert running.status(LATE) == 200

    def test_one_that_is_too_large_is_not_read(self, running: Reloading) -> None:
        text = running.identities.read_text()
        beside = running.identities.with_name("sparse")
        with beside.open("wb") as out:
            out.truncate(300 << 20)
        with running.reloads("failure"):
            beside.replace(running.identities)
        assert "it has 314572800 bytes, and at most 16MiB are read" in running.log()
        status = Path(f"/proc/{running.gateway.process.child.pid}/status").read_text()
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.M)
        assert peak and int(peak[1]) < 200 << 10
        with running.reloads():
            replace(running.identities, text)

    def test_a_secret_where_a_name_should_be_is_not_in_the_log(self, running: Reloading) -> None:
        slip = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzRjR2P8xKe"
        for way in ("secret_key_env", "secret_key_file"):
            with running.reloads("failure"):
                replace(
                    running.identities, tables(ROLLING).replace("secret_key", way).replace(ROLLING.secret_key, slip)
                )
            assert f"identities.toml:4: identities[0].{way}: " in running.log()
        assert slip not in running.log()

    def test_unreadable_ones_are_told_of_with_their_reason(self, running: Reloading) -> None:
        text = running.identities.read_text()
        utf_16 = text.encode("utf-16")
        for content, reason in (
            (utf_16, "it is UTF-16 or no text at all; save it as UTF-8"),
            (text.encode() + b"\xe4", "it is no UTF-8 text"),
        ):
            with running.reloads("failure"):
                running.identities.write_bytes(content)
            assert reason in running.log()
        running.identities.unlink()
        with running.reloads("failure"):
            running.identities.mkdir()
        assert "it is no regular file" in running.log()
        running.identities.rmdir()
        with running.reloads():
            # As a Windows editor leaves it.
            running.identities.write_bytes(b"\xef\xbb\xbf" + tables(LATE).replace("\n", "\r\n").encode())
        assert running.status(LATE) == 200

    def test_a_file_that_is_half_written_is_not_taken(self, tmp_path: Path) -> None:
        """Its first half is a good file by itself, without the identity that its second half has."""
        looks = Reloading(tmp_path, identities=tables(LATE, ROLLING), interval_seconds=1)
        with serving(looks) as running:
            whole = tables(LATE) + tables(ROLLING, policy='policy = "read-only"')
            for turn in range(2):
                # The time of a look, to begin with.
                replace(running.identities, tables(LATE, ROLLING) + f"# {turn}\n")
                wait_for("a whole file is loaded", lambda n=turn: running.count("success") == 2 * n + 1, 10)
                with running.identities.open("w") as out:
                    out.write(tables(LATE))
                    out.flush()
                    # The half is there for one look.
                    time.sleep(1.4)
                    assert running.status(ROLLING) == 200
                    out.write(whole[len(tables(LATE)) :] + f"# {turn}\n")
                wait_for("the whole file is loaded", lambda n=turn: running.count("success") == 2 * n + 2, 10)
                assert (running.status(ROLLING), running.count("failure")) == (200, 0)


class TestByHand:
    def test_the_settings_file_is_read_on_hangup_only(self, running: Reloading) -> None:
        text = running.config.read_text()
        edited = text.replace('region = "us-east-1"', 'region = "eu-west-1"').replace(
            '"limited"', '"renamed"'
        )  # fmt: skip
        edited += '[log]\nlevel = "warn,batchgate=debug"\naccess = false\n[batch]\nentries_max = 7\n'
        running.config.write_text(edited)
        time.sleep(INTERVAL_SECONDS * 4)
        assert running.count("success") == 0
        with running.reloads():
            # A change of another file does not let in what its writer has not said to be done.
            replace(running.identities, tables(LATE))
        shown = running.gateway.admin_get("/configz")[1]
        assert '"renamed"' not in shown and LATE.access_key in shown
        with Load(running.s3) as load, running.reloads():
            running.hangup()
        assert load.failed == [], "it is signed for the old region still"
        warned = [line for line in running.log().splitlines() if "needs a restart" in line]
        assert len(warned) == 1 and warned[0].endswith("needs a restart: batch.entries_max, server.region"), warned
        shown = running.gateway.admin_get("/configz")[1]
        assert '"renamed"' in shown and "warn,batchgate=debug" in shown and "access = false" in shown
        assert 'region = "us-east-1"' in shown and "entries_max = 10000" in shown
        before = running.log().count("batchgate::access")
        assert call(running.s3, "GET", f"/{BUCKET}/{KEYS[1]}").status == 200
        time.sleep(0.2)
        assert running.log().count("batchgate::access") == before
        running.config.write_text(text)
        with running.reloads():
            running.hangup()
        assert call(running.s3, "GET", f"/{BUCKET}/{KEYS[1]}").status == 200
        wait_for("the log has its line", lambda: running.log().count("batchgate::access") > before, 5)

    def test_a_bad_settings_file_is_refused_and_others_are_loaded_still(self, running: Reloading) -> None:
        text = running.config.read_text()
        for bad in (text.replace("[server]", "[server"), text + "[batch]\nentreis = 1\n", "", None):
            if bad is None:
                running.config.unlink()
            else:
                running.config.write_text(bad)
            with running.reloads("failure"):
                running.hangup()
            assert running.status(ROLLING) == 200
        refused = running.readyz_lines()
        assert len(refused) == 1 and "the settings file was refused on SIGHUP" in refused[0], refused
        # Other files are loaded still; that says nothing of the one that was refused.
        with running.reloads(still_refused=True):
            replace(running.identities, tables(LATE))
        assert (running.status(LATE), running.status(ROLLING)) == (200, 403)
        assert running.readyz_lines() == refused
        with running.reloads("failure"):
            replace(running.identities, "")
        assert len(running.readyz_lines()) == 2
        with running.reloads(still_refused=True):
            replace(running.identities, tables(LATE))
        assert running.readyz_lines() == refused
        running.config.write_text(text)
        with running.reloads():
            running.hangup()
        assert running.readyz_lines() == []

    def test_a_hangup_while_it_starts_ends_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "early.toml").write_text(settings([Backend("store", "*", None)]))
        argv = [str(BINARY), "serve", "--config", "early.toml"]
        for turn in range(5):
            process = Process(f"early-{turn}", argv, tmp_path, clean_environment())
            status = Path(f"/proc/{process.child.pid}/status")
            wait_for("it hears a hangup", lambda s=status: HEARS_HANGUP.search(s.read_text()), 10)
            process.child.send_signal(signal.SIGHUP)
            process.wait_until_ready(lambda p=process: "listening admin" in p.stdout(), 10)
            wait_for("the hangup is a reload", lambda p=process: "settings were loaded anew" in p.stderr(), 5)
            assert process.stop() == 0

    def test_without_settings_the_made_identity_stays(self, tmp_path: Path) -> None:
        argv = [str(BINARY), "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        process = Process("bare", argv, tmp_path, clean_environment())
        process.wait_until_ready(lambda: "listening admin" in process.stdout(), 10)
        said = process.stdout()
        pair = re.search(r"access_key=(\S+) secret_key=(\S+)", said)
        address = re.search(r"listening s3 (\S+)", said)
        assert pair and address
        target = Target(address[1], Credentials(pair[1], pair[2]))
        assert call(target, "PUT", f"/{BUCKET}").status == 200
        process.child.send_signal(signal.SIGHUP)
        wait_for("it is reloaded", lambda: "settings were loaded anew" in process.stderr(), 5)
        assert call(target, "GET", f"/{BUCKET}").status == 200
        assert "needs a restart" not in process.stderr()
        assert process.stop() == 0

    def test_an_identity_is_taken_away_while_it_drains(self, tmp_path: Path) -> None:
        with serving(Reloading(tmp_path, 'drain_lead = "3s"\n')) as running:
            running.gateway.process.terminate()
            told = time.monotonic()
            wait_for("/readyz says no", lambda: running.gateway.admin_get("/readyz")[0] == 503, 2)
            replace(running.identities, tables(LATE))
            wait_for("it is reloaded", lambda: running.count("success") == 1, 2)
            assert (running.status(LATE), running.status(ROLLING)) == (200, 403)
            running.hangup()
            assert running.gateway.process.child.wait(5) == 0
            assert time.monotonic() - told >= 3, "a hangup is no second signal to end"


# Certificates


def make_certificate(folder: Path, name: str, days: int = 2) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", str(days), "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
    subprocess.run(argv, check=True, capture_output=True)
    return (folder / f"{name}.crt").read_text(), (folder / f"{name}.key").read_text()


class Secure:
    """A gateway that speaks TLS, with certificates to choose from."""

    def __init__(self, folder: Path) -> None:
        self.certificates = {name: make_certificate(folder, name, days) for name, days in (("one", 2), ("two", 30))}
        self.folder = folder
        self.put("one")
        sections = '[server.tls]\ncert_file = "tls/tls.crt"\nkey_file = "tls/tls.key"\n'
        self.running = Reloading(folder, sections=sections)

    def put(self, name: str, key: str | None = None, cert: str | None = None) -> None:
        """Both files at once, as a mounted volume has them."""
        version = self.folder / f"tls-{time.monotonic_ns()}"
        version.mkdir()
        (version / "tls.crt").write_text(cert or self.certificates[name][0])
        (version / "tls.key").write_text(self.certificates[key or name][1])
        (self.folder / "tls_tmp").symlink_to(version.name)
        (self.folder / "tls_tmp").rename(self.folder / "tls")

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = self.running.s3.endpoint.removeprefix("https://").split(":")
        return context.wrap_socket(socket.create_connection((address[0], int(address[1])), timeout=20))

    def shown(self) -> str:
        """Which certificate a new connection gets."""
        with self.connect() as sock:
            der = sock.getpeercert(binary_form=True)
        assert der
        pem = ssl.DER_cert_to_PEM_cert(der)
        return next(n for n, (cert, _) in self.certificates.items() if "".join(cert.split()) == "".join(pem.split()))

    def raw(self) -> bytes:
        target = Target(self.running.s3.endpoint.replace("https", "http"), FULL)
        return sign(target, "GET", f"/{BUCKET}/nothing").raw()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    server = Secure(tmp_path)
    yield server
    assert server.running.gateway.stop() == 0
    assert "panicked" not in server.running.log()


class TestCertificate:
    @pytest.mark.parametrize("way", ["change", "hangup"])
    def test_new_handshakes_use_a_new_one_and_open_connections_stay(self, secure: Secure, way: str) -> None:
        metric = "batchgate_tls_certificate_expiry_timestamp_seconds"
        running, raw = secure.running, secure.raw()
        assert abs(running.gateway.metric(metric) - time.time() - 2 * 86400) < 600
        handshakes: list[str] = []
        failed: list[str] = []
        stop = threading.Event()

        def shake_hands() -> None:
            while not stop.is_set():
                try:
                    handshakes.append(secure.shown())
                except OSError as error:
                    failed.append(repr(error))

        thread = threading.Thread(target=shake_hands, daemon=True)
        thread.start()
        with secure.connect() as kept, kept.makefile("rb") as stream:
            kept.sendall(raw)
            assert read_answer(stream).status == 404
            if way == "hangup":
                secure.put("two")
                before = running.count("success")
                running.hangup()
                wait_for("a reload", lambda: running.count("success") > before, 10)
            else:
                with running.reloads():
                    secure.put("two")
            assert secure.shown() == "two"
            kept.sendall(raw)
            assert read_answer(stream).status == 404
        stop.set()
        thread.join(20)
        assert failed == [] and {"one", "two"} == set(handshakes)
        assert handshakes == sorted(handshakes), "there is one moment at which it changes"
        assert abs(running.gateway.metric(metric) - time.time() - 30 * 86400) < 600

    def test_a_key_of_another_certificate_is_refused(self, secure: Secure) -> None:
        running = secure.running
        with running.reloads("failure"):
            secure.put("two", key="one")
        assert secure.shown() == "one"
        with running.reloads("failure"):
            secure.put("one", cert="no certificate at all\n")
        with running.reloads("failure"):
            # Refused as a whole: the good identities that came with it are not taken either.
            replace(running.identities, tables(LATE))
        assert ROLLING.access_key in running.gateway.admin_get("/configz")[1]
        with running.reloads():
            secure.put("two")
        assert secure.shown() == "two" and LATE.access_key in running.gateway.admin_get("/configz")[1]

    def test_a_refused_settings_file_is_not_let_in_by_a_change(self, secure: Secure) -> None:
        """What it says is right, but the certificate that it names has another key: it is refused once it was loaded."""
        running = secure.running
        text = running.config.read_text()
        running.config.write_text(text.replace('"tls/tls.key"', '"two.key"') + "[log]\naccess = false\n")
        with running.reloads("failure"):
            running.hangup()
        with running.reloads(still_refused=True):
            replace(running.identities, tables(LATE))
        shown = running.gateway.admin_get("/configz")[1]
        assert LATE.access_key in shown and "access = true" in shown and "two.key" not in shown
        running.config.write_text(text)
        with running.reloads():
            running.hangup()
