"""What a suite said of the store itself against what it said of the gateway before it.

A test is lost that passes directly and not through the gateway. Lost tests stand in `lost/SUITE-STORE.txt`, a name and a
reason a line; one that stands nowhere is a newly lost one. Before that is said of a test, it is run again both ways on
stores that are fresh, because suites have tests that fail now and then by themselves.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LISTS = Path(__file__).resolve().parent / "lost"
# How often newly lost tests are run again before they are called so.
RERUNS_MAX = 2
# Longest text of a failure that is shown, in characters.
TEXT_MAX = 300


@dataclass(frozen=True)
class Outcome:
    """`passed`, `failed` or `skipped`, and what the suite said of it."""

    kind: str
    text: str = ""

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        text = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " …"
        return f"{self.kind}: {text}" if text else self.kind


Outcomes = dict[str, Outcome]
# A name may hold brackets with anything in them.
_LINE = re.compile(r"([^\s\[]+(?:\[.*\])?): (\S.*)")
MISSING = Outcome("failed", "the suite did not get to it")


def passed(outcomes: Outcomes) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.kind == "passed"}


@dataclass
class Verdict:
    """`lost` has the newly lost tests with what was said of them; `flickering` those that were lost and are not always."""

    direct: Outcomes
    through: Outcomes
    listed: dict[str, str]
    lost: dict[str, Outcome] = field(default_factory=dict)
    flickering: set[str] = field(default_factory=set)

    @property
    def kept(self) -> int:
        """How many tests pass directly and through the gateway."""
        return len(passed(self.direct)) - len(self.lost) - len(self.still_lost)

    @property
    def still_lost(self) -> set[str]:
        return set(self.listed) & passed(self.direct) - passed(self.through)

    @property
    def won_back(self) -> set[str]:
        return set(self.listed) & passed(self.direct) & passed(self.through)

    @property
    def unknown(self) -> set[str]:
        """Listed, and no test of the suite."""
        return set(self.listed) - set(self.direct)


def judge(
    direct: Outcomes, through: Outcomes, listed: dict[str, str], again: Callable[[bool, list[str]], Outcomes]
) -> Verdict:
    """`again` runs tests by name: directly, or through the gateway if its first argument is true."""
    verdict = Verdict(direct, through, listed)
    lost = passed(direct) - passed(through) - set(listed)
    said = {name: through.get(name, MISSING) for name in lost}
    for _ in range(RERUNS_MAX):
        if not lost:
            break
        names = sorted(lost)
        direct_again, through_again = again(False, names), again(True, names)
        said |= {name: through_again.get(name, MISSING) for name in lost - passed(through_again)}
        lost &= passed(direct_again) - passed(through_again)
    verdict.lost = {name: said[name] for name in sorted(lost)}
    verdict.flickering = set(said) - lost
    return verdict


def report(verdict: Verdict, title: str) -> list[str]:
    """Lines: every difference, the totals, and what is to be done."""
    lines = []
    names = sorted(verdict.direct.keys() | verdict.through.keys())
    for name in names:
        direct, through = verdict.direct.get(name, MISSING), verdict.through.get(name, MISSING)
        if (direct.kind == "passed") == (through.kind == "passed"):
            continue
        lines += [f"{name}", f"    direct   {direct}", f"    through  {verdict.lost.get(name, through)}"]
        if name in verdict.listed:
            lines.append(f"    listed   {verdict.listed[name]}")
        elif name in verdict.flickering:
            lines.append("    not always: run again it was as directly")
    lines += [f"{name}: won back, take it off the list" for name in sorted(verdict.won_back)]
    lines += [f"{name}: listed, but not a test of the suite" for name in sorted(verdict.unknown)]
    lines += [f"{name}: newly lost" for name in verdict.lost]
    lines.append(
        f"{title}: direct {len(passed(verdict.direct))} of {len(verdict.direct)} passed, "
        f"through {len(passed(verdict.through))} of {len(verdict.through)}"
    )
    lines.append(
        f"suite: {verdict.kept} kept, {len(verdict.lost)} newly lost, {len(verdict.still_lost)} listed, "
        f"{len(verdict.won_back)} won back"
    )
    return lines


def read_list(path: Path) -> dict[str, str]:
    """Names with reasons. A line is `NAME: REASON`; empty ones and those that begin with `#` are for readers."""
    if not path.exists():
        return {}
    lines = [line.strip() for line in path.read_text().splitlines()]
    found = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), f"{path}: every line has a reason"
    return {match[1]: match[2] for match in found if match}
