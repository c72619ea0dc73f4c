"""README's blocks, run in the order of the page against a real gateway; the convention is that of `tests/README.md`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support import readme
from support.gateway import Backend, Gateway, clean_environment
from support.store import Target

PACKAGE = Path(__file__).resolve().parents[2]
IDENTITY = '[[identities]]\nname = "readme"\naccess_key = "GK"\nsecret_key = "GS"\npolicy = "full-access"\n'


def test_readme_is_true(start_gateway: Callable[..., Gateway], store: Target, tmp_path: Path) -> None:
    gateway = start_gateway([Backend("store", "*", store)], IDENTITY)
    page = (PACKAGE / "README.md").read_text().replace("http://127.0.0.1:9000", gateway.s3.endpoint)
    found = readme.blocks(page)
    names = [block.name for block in found if block.kind == "test"]
    assert len(names) >= 6 and len(set(names)) == len(names), names
    environment = {
        **clean_environment(),
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PACKAGE / "src"),
        "PYTHONWARNINGS": "error",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = subprocess.run(
        ["bash", "-c", readme.script(found)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    written = readme.outputs(done.stdout)
    assert list(written) == names
    for block in found:
        if block.kind == "output":
            line = readme.missing_line(block.text, written[block.name])
            assert line is None, f"{block.name} did not print {line!r}:\n{written[block.name]}"
