"""versitygw's posix store as the real store behind the gateway: it keeps objects as files, and holds requests to the letter.

The program is the one that VERSITYGW_BIN names, or the one that `tests/run` builds into `target/`. It keeps keys
as paths: `//`, a leading `/`, `.` and `..` change or fail, and `dir` and `dir/x` cannot both be there.
"""

import http.client
import os
import subprocess
from pathlib import Path

from support.process import Process, free_ports
from support.store import STORE_CREDENTIALS, Credentials, Target

VERSION = "v1.8.0"
_BUILT = Path(__file__).resolve().parents[3] / "target" / "versitygw" / VERSION / "versitygw"
VERSITYGW = Path(os.environ.get("VERSITYGW_BIN", _BUILT)).resolve()


class VersityGw:
    """One `versitygw posix` with versions, in a folder of its own; `target` is its S3 endpoint. Its buckets are hosts of
    `domain` too, if there is one; it is in `region`."""

    def __init__(
        self,
        folder: Path,
        credentials: Credentials = STORE_CREDENTIALS,
        domain: str = "",
        region: str = "us-east-1",
    ) -> None:
        assert VERSITYGW.is_file(), f"{VERSITYGW} is missing: tests/run builds it, or set VERSITYGW_BIN"
        (port,) = free_ports(1)
        data, versions, accounts = (folder / f"versitygw-{name}" for name in ("data", "versions", "accounts"))
        for each in (data, versions, accounts):
            each.mkdir()
        self.process = Process(
            "versitygw",
            [
                str(VERSITYGW), "--port", f"127.0.0.1:{port}", "--iam-dir", str(accounts), "--health", "/health", "--quiet",
                "--region", region, "--keep-alive", *(["--virtual-domain", domain] if domain else []), "posix", "--versioning-dir", str(versions), str(data),
            ],
            folder,
            _environment(ROOT_ACCESS_KEY=credentials.access_key, ROOT_SECRET_KEY=credentials.secret_key),
        )  # fmt: skip
        self.target = Target(f"http://127.0.0.1:{port}", credentials, region)
        self.process.wait_until_ready(self._is_healthy, 20)

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(*self.target.address, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def add_account(self, credentials: Credentials, role: str = "admin") -> Target:
        """Makes an account (`admin`, `user` or `userplus`), and gives the store as that account sees it."""
        root = self.target.credentials
        subprocess.run(
            [
                str(VERSITYGW), "admin", "--allow-insecure", "-a", root.access_key, "-s", root.secret_key,
                "-er", self.target.endpoint, "create-user", "-a", credentials.access_key, "-s", credentials.secret_key,
                "-r", role,
            ],
            env=_environment(),
            check=True,
            capture_output=True,
            timeout=30,
        )  # fmt: skip
        return self.target.with_credentials(credentials)

    def stop(self) -> None:
        """What it holds is thrown away, so it is not waited for."""
        self.process.stop(2)


def _environment(**more: str) -> dict[str, str]:
    """The environment without what versitygw would take for settings of its own."""
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VGW_", "ROOT_", "ADMIN_"))
    }
    return {**ours, **more}
