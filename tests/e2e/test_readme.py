"""README's commands, run in the order in which a reader meets them, and what they print compared with what is shown."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import readme
from support.gateway import BINARY, REPOSITORY, clean_environment
from support.process import free_ports
from support.store import README_CREDENTIALS, Target
from support.wire import call

SECONDS_MAX = 90


def moved(text: str, store: Target) -> str:
    """README names fixed ports; here they are moved to free ones, and its store is the test's."""
    s3, admin = free_ports(2)
    addresses = {
        "127.0.0.1:8333": store.endpoint.removeprefix("http://"),
        "127.0.0.1:9000": f"127.0.0.1:{s3}",
        "127.0.0.1:9001": f"127.0.0.1:{admin}",
    }
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    return text


@pytest.mark.timeout(SECONDS_MAX + 20)
@pytest.mark.usefixtures("start_gateway")
def test_readme_commands_work_as_written(store: Target, tmp_path: Path) -> None:
    found = readme.blocks(moved((REPOSITORY / "README.md").read_text(), store))
    names = [block.name for block in found if block.kind in ("test", "background")]
    assert len(names) >= 3 and len(set(names)) == len(names), f"marked blocks of README: {names}"
    assert call(store.with_credentials(README_CREDENTIALS), "GET", "/").status == 200

    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "batchgate").symlink_to(BINARY)
    home = tmp_path / "home"
    home.mkdir()
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    # The package of clients/python stands in for its installation.
    package = str(REPOSITORY / "clients" / "python" / "src")
    environment = {
        **clean_environment(), "HOME": str(home), "PATH": path, "PYTHONPATH": package, "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    child = subprocess.Popen(
        ["bash", "-c", readme.script(found)],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = child.communicate(timeout=SECONDS_MAX)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(10)
    written = readme.outputs(stdout)
    last = list(written)[-1] if written else "the first block"
    assert child.returncode == 0, f"README block {last!r} failed with {child.returncode}:\n{stdout}\n{stderr}"
    assert [name for name in names if name not in written] == []
    for block in found:
        if block.kind == "output":
            line = readme.missing_line(block.text, written[block.name])
            assert line is None, f"{block.name} did not print {line!r}:\n{written[block.name]}"
