"""Ceph's object gateway as a real store, in a folder of its own and on free ports: one monitor, one OSD in memory, one
radosgw, all on loopback and without cephx.

It keeps every key octet for octet and knows no checksums but Content-MD5. Debian's packages `radosgw`, `ceph-mon`,
`ceph-osd` and `ceph-common` have all that it needs; it is ready after some ten seconds.
"""

import http.client
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from support.process import Process, free_ports, wait_for
from support.store import Credentials, Target

CEPH_CREDENTIALS = Credentials("ceph-access-key", "ceph-secret-key")
CEPH_OTHER_CREDENTIALS = Credentials("ceph-other-access-key", "ceph-other-secret-key")
PROGRAMS = ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"]

# Keys for SSE-KMS by the names that public suites ask for, each 32 octets in base64.
KMS_KEYS = f"testkey-1={'a' * 42}A= testkey-2={'b' * 42}A="

# Deleted data stays in memory until the collector comes round, so it comes round soon.
SETTINGS = """\
[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{mon}]
mon initial members = a
public network = 127.0.0.0/8
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 8589934592
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
log file = {folder}/run/$name.log
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
keyring = {folder}/keyring
rgw lc debug interval = 10
rgw crypt require ssl = false
rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = {kms_keys}
rgw gc obj min wait = 5
rgw gc processor period = 5
rgw enable usage log = false
debug rgw = 0
mon data avail warn = 1
mon data avail crit = 0
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{rgw}
rgw dns name = {domain}
"""


def ceph_is_installed() -> bool:
    """Whether all its programs are there."""
    return all(shutil.which(program) for program in PROGRAMS)


class Ceph:
    """A running radosgw with its cluster; `target` is its S3 endpoint as the account `main`, `other` as a second one. Its buckets
    are hosts of `domain` too, if there is one."""

    def __init__(self, folder: Path, domain: str = "") -> None:
        self._folder = folder / "ceph"
        for name in ("mon", "osd", "rgw", "run"):
            (self._folder / name).mkdir(parents=True)
        self._processes: list[Process] = []
        mon, rgw = free_ports(2)
        fsid = str(uuid.uuid4())
        settings = self._folder / "ceph.conf"
        values = {"fsid": fsid, "mon": mon, "rgw": rgw, "folder": self._folder, "domain": domain, "kms_keys": KMS_KEYS}
        settings.write_text(SETTINGS.format(**values))
        self._env = {**os.environ, "CEPH_CONF": str(settings)}
        self.target = Target(f"http://127.0.0.1:{rgw}", CEPH_CREDENTIALS)
        try:
            self._start_monitor(fsid, mon)
            self._start_osd()
            self.add_account("main", CEPH_CREDENTIALS)
            self.other = self.add_account("other", CEPH_OTHER_CREDENTIALS)
            self._start("radosgw", "-n", "client.rgw.a", "-f").wait_until_ready(self._answers, 60)
        except BaseException:
            self.stop()
            raise

    def add_account(self, name: str, credentials: Credentials, tenant: str = "") -> Target:
        """Makes an account, a tenant's if one is named, and gives the store as that account sees it."""
        self._run(
            "radosgw-admin", "user", "create", "--uid", name, "--display-name", name, "--email", f"{name}@example.com",
            "--access-key", credentials.access_key, "--secret-key", credentials.secret_key,
            *(["--tenant", tenant] if tenant else []),
        )  # fmt: skip
        return self.target.with_credentials(credentials)

    def _start_monitor(self, fsid: str, port: int) -> None:
        keyring, monmap = str(self._folder / "keyring"), str(self._folder / "monmap")
        self._run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self._run(
            "ceph-authtool",
            keyring,
            "--gen-key",
            "-n",
            "client.admin",
            "--cap",
            "mon",
            "allow *",
            "--cap",
            "osd",
            "allow *",
        )
        self._run("monmaptool", "--create", "--addv", "a", f"[v1:127.0.0.1:{port}]", "--fsid", fsid, monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        monitor = self._start("ceph-mon", "-i", "a", "-f")
        monitor.wait_until_ready(lambda: self._succeeds("ceph", "-s"), 30)

    def _start_osd(self) -> None:
        identity = str(uuid.uuid4())
        self._run("ceph", "osd", "new", identity)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", identity)
        self._run("ceph", "osd", "crush", "add", "osd.0", "1", "root=default", "host=localhost")
        # It sometimes asks its monitor too early ('wrong fsid') and ends: it is started again.
        for last in (False, False, False, True):
            osd = self._start("ceph-osd", "-i", "0", "-f")

            def up_or_ended(osd: Process = osd) -> str | None:
                if osd.child.poll() is not None:
                    return "ended"
                return "up" if b"1 up" in self._run("ceph", "osd", "stat") else None

            if wait_for("the OSD is up or has ended", up_or_ended, 30) == "up":
                return
            assert not last, osd.stderr()[-2000:]

    def _start(self, *argv: str) -> Process:
        process = Process(argv[0], list(argv), self._folder, self._env)
        self._processes.append(process)
        return process

    def _run(self, *argv: str) -> bytes:
        """What it prints. A monitor that has just started refuses its clients now and then, for a moment."""
        for wait_seconds in (0.2, 0.5, 1, 2, None):
            done = subprocess.run(
                argv, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
            )
            if done.returncode == 0:
                return done.stdout
            if wait_seconds is None or b"problem getting command descriptions" not in done.stderr:
                break
            time.sleep(wait_seconds)
        raise RuntimeError(f"{argv}: {done.returncode}\n{done.stderr.decode(errors='replace')[-2000:]}")

    def _succeeds(self, *argv: str) -> bool:
        try:
            self._run(*argv)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return True

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(*self.target.address, timeout=2)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status in (200, 403)
        finally:
            connection.close()

    def stop(self) -> None:
        """The gateway first: it hangs once its OSD is gone. What it holds is thrown away."""
        for process in reversed(self._processes):
            process.stop(3)
