"""versitygw's own suite, over versitygw's posix store: `versitygw test`, which asks an endpoint with the AWS SDK for Go."""

import re
import subprocess
import sys
from pathlib import Path

from judge import Outcome, Outcomes
from stand import Store, SuiteGateway
from support.gateway import clean_environment
from support.versitygw import VERSITYGW

# Longest time that the whole suite may take, in seconds.
SECONDS_MAX = 900
_LINE = re.compile(r"^(PASS|FAIL|SKIP)\s+(\w+)(?:: (.*))?$")
_KINDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


class VersitySuite:
    """The suite; tests are named as its commands."""

    name = "versitygw"
    stores = ("versitygw",)
    # By itself each test begins with the same names of buckets, and those of a test that failed are still there.
    alone = True

    def run(self, folder: Path, store: Store, gateway: SuiteGateway | None, only: list[str] | None) -> Outcomes:
        """All tests, or only some, against the gateway or else the store."""
        self._give_command(folder, gateway)
        endpoint = gateway.endpoint if gateway else store.target.endpoint
        runs = [["full-flow", "-vs", "--parallel"]] if only is None else [[name, "-vs"] for name in only]
        outcomes: Outcomes = {}
        for arguments in runs:
            outcomes |= parse(self._said(folder, store, endpoint, arguments))
        return outcomes

    def _said(self, folder: Path, store: Store, endpoint: str, arguments: list[str]) -> str:
        root = store.target.credentials
        argv = [str(VERSITYGW), "test", "-a", root.access_key, "-s", root.secret_key, "-e", endpoint, *arguments]
        with (folder / "suite.log").open("ab") as log:
            done = subprocess.run(
                argv,
                cwd=folder,
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_MAX,
            )
            log.write(done.stdout)
        return done.stdout.decode(errors="replace")

    def _give_command(self, folder: Path, gateway: SuiteGateway | None) -> None:
        """The suite calls `./versitygw` to make accounts."""
        command = folder / "versitygw"
        if command.exists():
            return
        if gateway is None:
            command.symlink_to(VERSITYGW)
            return
        door = folder / "door.json"
        gateway.door.write(door)
        program = Path(__file__).with_name("accounts.py")
        path = ":".join(entry for entry in sys.path if entry)
        command.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' '{program}' '{door}' \"$@\"\n")
        command.chmod(0o755)


def parse(said: str) -> Outcomes:
    """What the suite printed, by test. A failure's text may go on over further lines."""
    outcomes: Outcomes = {}
    for line in re.sub(r"\x1b\[\d*m", "", said).splitlines():
        match = _LINE.match(line)
        if match:
            kind, name, text = match.groups()
            outcomes[name] = Outcome(_KINDS[kind], text or "")
    return outcomes
