"""`tests/run suites`: a public suite straight at a store and through the gateway, and the difference test by test."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import judge
import pytests
from stand import STORES, Store, SuiteGateway, start_store
from versity import VersitySuite

SUITES = ["versitygw", "s3tests", "ceph-s3tests"]


class Suite(Protocol):
    """A public suite. It runs over each of `stores`; where tests are chosen, each has a store of its own if `alone`."""

    name: str
    stores: tuple[str, ...]
    alone: bool

    def run(self, folder: Path, store: Store, gateway: SuiteGateway | None, only: list[str] | None) -> judge.Outcomes:
        """All tests, or only some, against the gateway or else the store; by name."""


@contextmanager
def stand(kind: str, through: bool, keep: Path | None) -> Iterator[tuple[Path, Store, SuiteGateway | None]]:
    """A fresh store, a gateway before it if `through`, and the folder that both use."""
    with tempfile.TemporaryDirectory(prefix="batchgate-suite-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        store = start_store(kind, folder)
        try:
            gateway = SuiteGateway(folder, store) if through else None
            try:
                yield folder, store, gateway
            finally:
                if keep:
                    save_logs(folder, keep)
                if gateway:
                    gateway.stop()
        finally:
            store.stop()


def save_logs(folder: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for path in (*folder.iterdir(), *folder.glob("ceph/*")):
        if path.suffix in (".log", ".xml", ".stdout", ".stderr", ".toml"):
            shutil.copy(path, keep / path.name)


def run(suite: Suite, kind: str, options: argparse.Namespace) -> bool:
    """Whether no test is newly lost."""
    title = f"{suite.name} over {kind}"

    def outcomes(through: bool, only: list[str] | None) -> judge.Outcomes:
        way = "through" if through else "direct"
        started = time.monotonic()
        keep = options.logs and options.logs / f"{suite.name}-{kind}-{way}{'' if only is None else '-again'}"
        found: judge.Outcomes = {}
        for names in [[name] for name in only] if only is not None and suite.alone else [only]:
            with stand(kind, through, keep) as (folder, store, gateway):
                found |= suite.run(folder, store, gateway, names)
        seconds = time.monotonic() - started
        print(f"{title}, {way}: {len(judge.passed(found))} of {len(found)} passed in {seconds:.0f} s", flush=True)
        return found

    direct = outcomes(False, options.only)
    through = outcomes(True, options.only)
    listed = judge.read_list(judge.LISTS / f"{suite.name}-{kind}.txt")
    if options.only is not None:
        listed = {name: reason for name, reason in listed.items() if name in options.only}
    verdict = judge.judge(direct, through, listed, outcomes)
    print("\n".join(judge.report(verdict, title)), flush=True)
    return not verdict.lost


def chosen(options: argparse.Namespace) -> Suite:
    match options.suite:
        case "versitygw":
            return VersitySuite()
        case "s3tests":
            return pytests.s3tests(options.workers)
        case _:
            return pytests.ceph_s3tests(options.path, options.workers)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/run suites", description=__doc__)
    parser.add_argument("suite", choices=SUITES, help="which suite")
    parser.add_argument("path", nargs="?", type=Path, help="of ceph-s3tests: a work tree of it")
    parser.add_argument("--store", action="append", choices=sorted(STORES), help="over this store only")
    parser.add_argument("--only", nargs="+", metavar="TEST", help="these tests only")
    parser.add_argument(
        "--workers", type=int, default=2, help="processes that run tests of a pytest suite (default: 2)"
    )
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep what suite, gateway and store wrote")
    options = parser.parse_args()
    if (options.suite == "ceph-s3tests") != (options.path is not None):
        parser.error("ceph-s3tests needs the path of a work tree, and no other suite has one")
    suite = chosen(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    verdicts = [run(suite, kind, options) for kind in options.store or suite.stores]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
