"""A pytest plugin: writes what became of each test into the file that SUITE_OUTCOMES names, a line of JSON a test.

It runs in the interpreter of the suite and imports nothing of this project. What goes wrong while a test is cleared away is
not the test's.
"""

import json
import os


class Outcomes:
    """Kept by the process that reports, also where others run the tests."""

    def __init__(self, path):
        self._file = open(path, "a")  # noqa: SIM115 - it is open as long as pytest runs

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        kind = "skipped" if report.skipped else "passed" if report.passed else "failed"
        lines = str(report.longrepr or "").strip().splitlines() if kind == "failed" else []
        # Of a traceback the lines with the error itself.
        text = " ".join(line[1:].strip() for line in lines if line.startswith("E ")) or " ".join(lines[-1:])
        self._file.write(json.dumps({"name": report.nodeid, "kind": kind, "text": text}) + "\n")
        self._file.flush()


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(os.environ["SUITE_OUTCOMES"]))
