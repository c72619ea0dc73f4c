"""How public suites are judged (`tests/suites`): what is a loss, what is none, and what suites print."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.store import STORE_CREDENTIALS, Target

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "suites"))

import judge
import pytests
import run
import versity
from judge import Outcome, Outcomes
from stand import ACCOUNTS, STORES, Store

PASSED, FAILED = Outcome("passed"), Outcome("failed", "why")


def judged(
    direct: Outcomes, through: Outcomes, listed: dict[str, str], again: dict[bool, list[Outcomes]]
) -> judge.Verdict:
    """`again` has what each further run gives, direct and through; one that was not foreseen is an error."""
    return judge.judge(direct, through, listed, lambda through, names: again[through].pop(0))


def test_a_test_is_lost_that_never_passes_through_and_always_directly() -> None:
    direct = {name: PASSED for name in ("kept", "lost", "flickers-through", "flickers-direct", "listed", "missing")}
    through = {"kept": PASSED, "lost": FAILED, "flickers-through": FAILED, "flickers-direct": FAILED, "listed": FAILED}
    again = {
        False: [{**direct, "flickers-direct": FAILED}, {"lost": PASSED, "missing": PASSED}],
        True: [{"lost": FAILED, "flickers-through": PASSED, "flickers-direct": FAILED}, {"lost": FAILED}],
    }
    verdict = judged(direct, through, {"listed": "reason"}, again)
    assert list(verdict.lost) == ["lost", "missing"]
    assert verdict.flickering == {"flickers-through", "flickers-direct"}
    assert verdict.still_lost == {"listed"}
    assert verdict.kept == 3, "those that flicker are kept"
    said = "\n".join(judge.report(verdict, "title"))
    assert "lost: newly lost" in said and "suite: 3 kept, 2 newly lost, 1 listed, 0 won back" in said


def test_what_fails_directly_is_no_loss_and_a_listed_test_can_be_won_back() -> None:
    direct = {"a": FAILED, "b": PASSED, "c": Outcome("skipped")}
    through = {"a": FAILED, "b": PASSED, "c": Outcome("skipped")}
    verdict = judged(direct, through, {"b": "reason", "gone": "reason"}, {})
    assert not verdict.lost and verdict.won_back == {"b"} and verdict.unknown == {"gone"} and verdict.kept == 1
    said = "\n".join(judge.report(verdict, "title"))
    assert "b: won back" in said and "gone: listed, but not a test of the suite" in said


def test_a_list_has_a_reason_on_every_line(tmp_path: Path) -> None:
    path = tmp_path / "lost.txt"
    path.write_text("# why\n\ntests/x.py::A::test_b[c: d]: because: of it\n")
    assert judge.read_list(path) == {"tests/x.py::A::test_b[c: d]": "because: of it"}
    assert judge.read_list(tmp_path / "none.txt") == {}
    path.write_text("name\n")
    with pytest.raises(AssertionError, match="reason"):
        judge.read_list(path)
    names = {f"{suite}-{store}.txt" for suite in run.SUITES for store in STORES}
    for each in judge.LISTS.iterdir():
        assert each.name in names and judge.read_list(each)


def test_the_suite_of_versitygw_is_read_as_it_is_printed() -> None:
    said = (
        "\x1b[36mRUN  \x1b[0mA\n\x1b[32mPASS \x1b[0mA\n\x1b[31mFAIL \x1b[0mB_c: no: way\nmore\n\x1b[33mSKIP \x1b[0mD\n"
    )
    assert versity.parse(said) == {"A": PASSED, "B_c": Outcome("failed", "no: way"), "D": Outcome("skipped")}


SUITE = """
import os, pytest
def test_object_lock_that_stays(): os.environ["LOCKED"] = "1"
def test_fails(): assert 1 == 2
def test_is_skipped(): pytest.skip("why")
def test_lifecycle(): pass
def test_passes(): assert "LOCKED" not in os.environ
"""


@pytest.mark.parametrize(
    "only", [None, ["test_object_lock_that_stays", "test_fails", "test_is_skipped", "test_lifecycle", "test_passes"]]
)
def test_a_suite_of_pytest_is_told_test_by_test_and_its_locks_harm_nobody(
    only: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytests, "PYTHON", Path(sys.executable))
    (tmp_path / "test_all.py").write_text(SUITE)
    names = only and [f"test_all.py::{name}" for name in only]
    server = SimpleNamespace(target=Target("http://127.0.0.1:1", STORE_CREDENTIALS))
    suite = pytests.PytestSuite("a-suite", tmp_path, ["test_all.py"], [])
    found = suite.run(tmp_path, Store(server, ACCOUNTS, version_2=False, any_region=False), None, names)
    kinds = {name.removeprefix("test_all.py::test_"): outcome.kind for name, outcome in found.items()}
    expected = {"object_lock_that_stays": "passed", "fails": "failed", "is_skipped": "skipped", "passes": "passed"}
    assert kinds == expected | ({"lifecycle": "passed"} if only else {})
    assert found["test_all.py::test_fails"].text.startswith("assert 1 == 2")
