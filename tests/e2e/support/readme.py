"""README's marked code blocks, as one shell session runs them.

The convention is written down in `tests/README.md`. The blocks become one bash script, so that what one block exports or
starts is there for the next, as it is for a reader who types them into one terminal.
"""

import re
import shlex
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One marked block. `kind` is `test`, `background`, `file` or `output`; `name` is what it is marked with."""

    kind: str
    name: str
    language: str
    text: str


def blocks(markdown: str) -> list[Block]:
    """The marked blocks in order; others are for the eye only."""
    found = []
    for match in FENCE.finditer(markdown):
        language, *marks = match["info"].split()
        pairs = {name: value for name, _, value in (mark.partition("=") for mark in marks)}
        for kind in ("test", "file", "output"):
            if kind in pairs:
                background = kind == "test" and "background" in pairs
                found.append(Block("background" if background else kind, pairs[kind], language, match["text"]))
    return found


# The script leads a process group of its own, so what its blocks started ends with it.
PROLOGUE = """\
set -euo pipefail
trap 'trap "" TERM; kill -TERM 0; wait' EXIT
"""


def script(found: list[Block]) -> str:
    """The bash script; each block announces itself on both streams, so that the report can say where it ended."""
    out = [PROLOGUE]
    for block in found:
        name = shlex.quote(block.name)
        if block.kind == "output":
            continue
        out.append(f"echo @@ {name}; echo @@ {name} >&2\n")
        if block.kind == "file":
            out.append(f"cat > {name} <<'END OF FILE'\n{block.text}END OF FILE\n")
        elif block.kind == "background":
            out.append(f"(\nset -euo pipefail\n{block.text}) > {name}.log 2>&1 &\n")
            out.append(f"for _ in $(seq 100); do ! grep -q '^listening s3' {name}.log || break; sleep 0.1; done\n")
            out.append(f"grep -q '^listening s3' {name}.log || {{ cat {name}.log >&2; exit 1; }}\n")
        elif block.language == "python":
            out.append(f"python3 - <<'END OF FILE'\n{block.text}END OF FILE\n")
        else:
            out.append(block.text)
    return "".join(out)


def outputs(stdout: str) -> dict[str, str]:
    """What each block wrote to standard output."""
    pieces = re.split(r"^@@ (.+)\n", stdout, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def missing_line(shown: str, written: str) -> str | None:
    """The first line of an output block that is not among the written ones, in order; `…` stands for any text."""
    lines = iter(written.splitlines())
    for line in shown.splitlines():
        pattern = ".*".join(re.escape(piece) for piece in line.strip().split("…"))
        if line.strip() and not any(re.fullmatch(pattern, other.strip()) for other in lines):
            return line
    return None
