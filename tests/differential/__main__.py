"""`tests/run differential`: random requests straight to a store and through the gateway, for a while, over each store.

A difference that is not listed is shrunk to the fewest and plainest requests that show it, and ends the run of that store.
`--survey` goes on instead and counts the kinds of differences.
"""

import argparse
import collections
import math
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from differential import listed, stores
from differential.plans import Plan, plans
from differential.twins import Gone, Step, Twins

EXAMPLES_OF_A_BATCH = 30
SHRINK_SECONDS = 30


class Differs(Exception):
    """A plan whose answers differ."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/run differential", description=__doc__)
    parser.add_argument(
        "--store", action="append", choices=stores.ALL, help="again for more; all that are installed unless told"
    )
    parser.add_argument("--seconds", type=float, default=20, help="for each store")
    parser.add_argument("--seed", type=int, help="of the run; drawn and printed unless told")
    parser.add_argument("--only", type=int, metavar="BATCH", help="one batch of that seed, to repeat a failure")
    parser.add_argument("--steps", type=int, default=14, help="most requests of a plan")
    parser.add_argument(
        "--checksums", choices=["forward", "verify"], default="forward", help="the gateway's setting for the store"
    )
    parser.add_argument("--anonymous", action="store_true", help="send some requests unsigned, and let them through")
    parser.add_argument("--statistics", action="store_true", help="tell what was asked and what of it the store took")
    parser.add_argument("--survey", action="store_true", help="do not stop at differences; count their kinds")
    parser.add_argument("--list", action="store_true", help="print the listed differences with their reasons")
    options = parser.parse_args()
    # What a run is repeated with, beside its seed.
    options.changed = [f"--checksums {options.checksums}"] if options.checksums != "forward" else []
    options.changed += ["--anonymous"] if options.anonymous else []
    options.changed += [f"--steps {options.steps}"] if options.steps != parser.get_default("steps") else []
    return options


class Run:
    """A store's share of the run."""

    def __init__(self, twins: Twins, options: argparse.Namespace) -> None:
        self.twins = twins
        self.options = options
        self.until = time.monotonic() + options.seconds
        self.failing: dict[str, list[Step]] = {}
        self.shrink_until = 0.0
        self.plans = 0
        self.plans_of_store = plans(stores.known(twins.store, options.anonymous), options.steps)
        self.plan: Plan = []
        self.survey: dict[str, list[Step]] = collections.defaultdict(list)

    def batch(self, number: int) -> list[Step]:
        """Runs one batch of plans; the shrunk failure, if there is one."""
        last: list[Step] = []

        def check(plan: Plan) -> None:
            nonlocal last
            text = repr(plan)
            until = self.shrink_until or (self.until if self.options.only is None else math.inf)
            out_of_time = time.monotonic() > until
            if self.twins.gone is not None:
                raise Gone(self.twins.gone)
            if out_of_time and text not in self.failing:
                return
            self.plans += 1
            steps = []
            for step in self.twins.run(plan):
                steps.append(step)
                if not self.options.survey:
                    break
            for step in steps if self.options.survey else []:
                self.survey[signature(step)].append(step)
            if steps and not self.options.survey:
                self.shrink_until = self.shrink_until or time.monotonic() + SHRINK_SECONDS
                self.failing[text] = last = steps
                self.plan = plan
                raise Differs(signature(steps[0]))

        test = settings(
            max_examples=EXAMPLES_OF_A_BATCH,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            verbosity=hypothesis.Verbosity.quiet,
        )(hypothesis.seed(self.options.seed * 1_000_003 + number)(hypothesis.given(self.plans_of_store)(check)))
        try:
            test()
        except Differs:
            return last
        except Gone as gone:
            raise gone from None
        except hypothesis.errors.Flaky:
            print(f"  it came and went: the store, or a race; last seen:\n{told(last)}")
            return last
        return []

    def all(self) -> int:
        """Batches until the time is up; how many failed."""
        number = self.options.only or 0
        while True:
            failed = self.batch(number)
            if failed:
                again = f"tests/run differential --store {self.twins.store} --seed {self.options.seed} --only {number}"
                again += "".join(f" {word}" for word in self.options.changed)
                plan = "\n".join(f"  {at}. {draft!r:.800}" for at, draft in enumerate(self.plan))
                print(f"  DIFFERENT, found by: {again}\n  the plan:\n{plan}\n  what differed:\n{told(failed)}")
                return 1
            number += 1
            if self.options.only is not None or time.monotonic() > self.until:
                return 0


def signature(step: Step) -> str:
    """The kind of a difference."""
    draft = step.draft
    aspects = ["own"] if listed.own(step.answers[1]) else []
    for one in step.found:
        aspects.append(f"status {one.direct} -> {one.through}" if one.aspect == "status" else one.aspect)
    return f"{draft.kind} {draft.method} [{draft.signing} {draft.fault}] {'; '.join(aspects)}"


def told(steps: list[Step], brief: bool = False) -> str:
    """A failure as octets."""
    out = []
    for step in steps:
        out.append(f"  {step.draft!r:.1500}")
        for way, request, answer in zip(("direct", "through"), step.requests, step.answers, strict=True):
            if not brief:
                out.append(f"  {way}: {request.head.decode('latin-1')!r:.1800}")
            headers = answer.headers if not brief else ""
            out.append(f"    <- {answer.status} {headers} {answer.body[:400]!r} {answer.broken}")
        out += [f"  {difference}" for difference in step.found]
    return "\n".join(out)


def run_store(name: str, options: argparse.Namespace) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="differential-", ignore_cleanup_errors=True) as folder:
        begun = time.monotonic()
        with stores.started(name, Path(folder), options.checksums, options.anonymous) as (direct, through):
            print(f"{name}: ready after {time.monotonic() - begun:.1f} s", flush=True)
            twins = Twins(name, direct, through)
            run = Run(twins, options)
            try:
                failed = run.all()
            except Gone as gone:
                failed = 1
                print(f"  {name} or its gateway is gone; the last requests:\n  {gone}")
                for log in (*Path(folder).glob("*.stderr"), *Path(folder).glob("ceph/*.stderr")):
                    print(f"  {log.name}: ...{log.read_text(errors='replace')[-1500:]}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(twins.kinds.items()))
    print(f"  {run.plans} plans, {sum(twins.kinds.values())} requests each way: {kinds}")
    if options.statistics:
        print(twins.tally.told())
    if twins.listed:
        print("  listed differences: " + ", ".join(f"{count} {what}" for what, count in sorted(twins.listed.items())))
    for kind, steps in sorted(run.survey.items(), key=lambda item: -len(item[1])):
        shortest = min(steps, key=lambda step: len(repr(step.draft)))
        print(f"\n### {len(steps)} times: {kind}\n{told([shortest], brief=True)}")
    return len(twins.kinds) - failed, failed


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.list:
        for one in listed.ENTRIES:
            print(f"{one.name} ({', '.join(one.stores) or 'every store'}): {one.reason}")
        return 0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {options.seed}", flush=True)
    same = different = 0
    for name in options.store or stores.ALL:
        if reason := stores.missing(name):
            if options.store:
                print(reason)
                return 3
            print(f"{name}: left out, {reason}")
            continue
        passed, failed = run_store(name, options)
        same += passed
        different += failed
    print(f"differential: {same} kinds of requests same, {different} different")
    return 1 if different else 0


sys.exit(main())
