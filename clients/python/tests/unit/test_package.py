"""The package as others get it: what the wheel holds, what it needs, and how its files are kept."""

import ast
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import batchgate

PACKAGE = Path(__file__).resolve().parents[2]
SOURCES = sorted((PACKAGE / "src" / "batchgate").glob("*.py"))
LINES_MAX = 250


def test_the_wheel_is_typed_and_needs_botocore_and_urllib3_alone(tmp_path: Path) -> None:
    program = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=PACKAGE, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        (metadata,) = [message_from_bytes(wheel.read(name)) for name in names if name.endswith("/METADATA")]
    assert {name for name in names if ".dist-info/" not in name} == {
        *(f"batchgate/{path.name}" for path in SOURCES),
        "batchgate/py.typed",
    }
    assert sorted(re.split(r"[<>=!]", need)[0] for need in metadata.get_all("Requires-Dist", [])) == [
        "botocore",
        "urllib3",
    ]
    assert (metadata["Name"], metadata["Version"]) == ("batchgate", batchgate.__version__)
    assert metadata["Requires-Python"] == ">=3.10"


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports; its own package's are relative."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_nothing_else_is_imported() -> None:
    assert len(SOURCES) >= 10
    needed = set().union(*map(imported, SOURCES)) - sys.stdlib_module_names
    assert needed == {"botocore", "urllib3"}


def test_every_file_says_what_it_is_for_and_stays_readable() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert ast.get_docstring(ast.parse(text)), f"{path.name} opens without saying what it is for"
        assert text.count("\n") <= LINES_MAX, path.name
