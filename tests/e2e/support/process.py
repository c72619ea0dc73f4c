"""Child processes that never outlive the tests, and waiting for what they promise.

A child gets its own session and two log files. It is stopped by its pid, first politely, and the kernel kills it if the
test run itself is killed.
"""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, below the range that the kernel hands out by itself.

    Each port + 10000 is free too, because SeaweedFS derives its gRPC ports that way.
    """
    found: list[int] = []
    start = 11000 + os.getpid() * 37 % 8000
    for port in range(start, start + 10000):
        if all(_is_free(p) for p in (port, port + 10000)):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for(what: str, probe: Callable[[], T | None], seconds: float) -> T:
    """Polls until `probe` gives something true; an `OSError` in it counts as not yet."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            value = probe()
            if value:
                return value
            last = value
        except OSError as error:
            last = error
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {seconds} s, last seen: {last!r}")


class Process:
    """A started program. `stop` is idempotent."""

    def __init__(self, name: str, argv: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
        self.name = name
        self.stdout_path = folder / f"{name}.stdout"
        self.stderr_path = folder / f"{name}.stderr"
        with self.stdout_path.open("wb") as out, self.stderr_path.open("wb") as err:
            self.child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=env,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )

    def stdout(self) -> str:
        return self.stdout_path.read_text(errors="replace")

    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def assert_running(self) -> None:
        code = self.child.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self.stdout()[-2000:]}\n{self.stderr()[-4000:]}"

    def wait_until_ready(self, probe: Callable[[], T | None], seconds: float) -> T:
        """`wait_for` that notices when the program has ended instead."""

        def alive_and_ready() -> T | None:
            self.assert_running()
            return probe()

        try:
            return wait_for(f"{self.name} is ready", alive_and_ready, seconds)
        except BaseException:
            self.stop(0)
            raise

    def terminate(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)

    def stop(self, grace_seconds: float = 30) -> int:
        """SIGTERM, then SIGKILL after the grace; gives the exit code (negative: the signal)."""
        self.terminate()
        try:
            return self.child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait()
