"""The golden wire octets, which bind the encoder, the Rust client and this one together."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from wire import pieces

from batchgate._errors import BrokenOff, ProtocolError
from batchgate._part import Part
from batchgate._reader import boundary_of, read_parts

GOLDEN = Path(__file__).resolve().parents[4] / "tests" / "golden"


def examples(folder: Path) -> list[Any]:
    """The multipart examples of a folder; a folder without any is a fault of the test."""
    found = [
        path for path in sorted(folder.glob("*.json")) if "multipart" in json.loads(path.read_text())["content_type"]
    ]
    assert found, f"no golden examples in {folder}"
    return [pytest.param(path, id=path.stem) for path in found]


def read(path: Path, size: int) -> tuple[dict[str, Any], list[tuple[int, int, bytes, bytes]]]:
    told = json.loads(path.read_text())
    octets = path.with_suffix(".body").read_bytes()
    options = told["request"].get("OnError") or "Continue", told["request"].get("Order") or "Request"
    parts = read_parts(pieces(octets, size), boundary_of(told["content_type"]), told["batch_count"], *options)
    return told, list(parts)


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("path", examples(GOLDEN))
def test_good_examples_are_read_whole(path: Path, size: int) -> None:
    told, found = read(path, size)
    assert [(index, status) for index, status, _, _ in found] == [(p["index"], p["status"]) for p in told["parts"]]
    for (index, status, head, body), expected in zip(found, told["parts"], strict=True):
        assert body == base64.b64decode(expected["body_base64"])
        part = Part(index, "b", "k", status, body, head)
        assert part.headers == {name: str(value) for name, value in expected["headers"].items()}
        assert part.etag == expected["headers"].get("etag")


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("path", examples(GOLDEN / "broken"))
def test_broken_examples_are_refused(path: Path, size: int) -> None:
    with pytest.raises((ProtocolError, BrokenOff)):
        read(path, size)
