"""The stores, each with a gateway before it, started for a run and ended after it."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from support.ceph import Ceph, ceph_is_installed
from support.gateway import Backend, Gateway, settings
from support.process import Process, free_ports
from support.store import WEED, Credentials, SeaweedFs, Target

ALL = ["ceph", "versitygw", "seaweedfs", "embedded"]
VERSITYGW = Path(os.environ.get("VERSITYGW_BIN") or shutil.which("versitygw") or "/nonexistent")


class Versitygw:
    """versitygw's posix store."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        for name in ("data", "versions", "iam"):
            (folder / name).mkdir()
        pair = Credentials("versity-access-key", "versity-secret-key")
        self.target = Target(f"http://127.0.0.1:{port}", pair)
        env = {**os.environ, "ROOT_ACCESS_KEY": pair.access_key, "ROOT_SECRET_KEY": pair.secret_key}
        self.process = Process(
            "versitygw",
            [
                str(VERSITYGW), "--port", f"127.0.0.1:{port}", "--iam-dir", str(folder / "iam"), "--health", "/health",
                "--quiet", "--keep-alive", "posix", "--versioning-dir", str(folder / "versions"), str(folder / "data"),
            ],
            folder,
            env,
        )  # fmt: skip
        self.process.wait_until_ready(self._is_up, 20)

    def _is_up(self) -> bool:
        import http.client

        connection = http.client.HTTPConnection(*self.target.address, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.stop(3)


def missing(name: str) -> str | None:
    """Why a store cannot be started here."""
    present = {"ceph": ceph_is_installed, "versitygw": VERSITYGW.is_file, "seaweedfs": WEED.is_file}
    return None if name == "embedded" or present[name]() else f"{name} is not installed"


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[tuple[Target, Target]]:
    """The store and a gateway before it, both as the same account of the store's."""
    if name == "embedded":
        gateway = Gateway(folder, settings([Backend("store", "*", None)]), "store")
        store, stop = gateway.s3, gateway.stop
    else:
        makers: dict[str, Callable[[Path], Ceph | Versitygw | SeaweedFs]] = {
            "ceph": Ceph,
            "versitygw": Versitygw,
            "seaweedfs": SeaweedFs,
        }
        running = makers[name](folder)
        store, stop = running.target, running.stop
    try:
        identity = (
            f'[[identities]]\nname = "store"\naccess_key = "{store.credentials.access_key}"\n'
            f'secret_key = "{store.credentials.secret_key}"\npolicy = "full-access"\n'
        )
        sections = "" if name == "embedded" else identity
        before = Gateway(folder, settings([Backend("store", "*", store)], sections))
        try:
            yield store, before.s3.with_credentials(store.credentials)
            before.process.assert_running()
            assert "panicked" not in before.process.stderr(), before.process.stderr()[-4000:]
        finally:
            before.stop()
    finally:
        stop()
