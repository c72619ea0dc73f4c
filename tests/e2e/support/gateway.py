"""`batchgate serve` with a settings file, its real addresses read from its `listening` lines."""

import http.client
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from support.process import Process
from support.store import Credentials, Target

REPOSITORY = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("BATCHGATE_BIN", REPOSITORY / "target" / "debug" / "batchgate")).resolve()

FULL = Credentials("GKFULL", "secret-of-the-full-access-identity")
READ_ONLY = Credentials("GKREAD", "secret-of-the-read-only-identity")
LIMITED = Credentials("GKLIMITED", "secret-of-the-limited-identity")
NOTHING = Credentials("GKNOTHING", "secret-of-the-identity-without-policy")

# The limited identity reads from buckets `allowed-*`, and may write and delete there below `mine/` only.
LIMITED_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::allowed-*/*"},
        {"Effect": "Allow", "Action": ["s3:PutObject", "s3:DeleteObject"], "Resource": "arn:aws:s3:::allowed-*/mine/*"},
    ],
}
DOMAIN = "s3.batchgate.test"


@dataclass(frozen=True)
class Backend:
    """A `[[backends]]` table and the bucket pattern that leads to it; `extra` is TOML for the table. Without a target it
    is an embedded store."""

    name: str
    bucket: str
    target: Target | None
    extra: str = ""


LISTEN = '["127.0.0.1:0"]'
LISTEN_ON_BOTH_FAMILIES = '["127.0.0.1:0", "[::1]:0"]'


def settings(backends: list[Backend], sections: str = "", server: str = "", listen: str = LISTEN) -> str:
    """A whole settings file with the four identities. `sections` is more TOML, such as `[batch]`; `server` is lines for
    `[server]`, which may name another region."""
    out = [
        "[server]", f"listen = {listen}", f'domains = ["{DOMAIN}"]',
        server if re.search("^region = ", server, re.M) else f'region = "us-east-1"\n{server}',
        "[admin]", 'listen = "127.0.0.1:0"',
    ]  # fmt: skip
    for backend in backends:
        if backend.target is None:
            out += ["[[backends]]", f'name = "{backend.name}"', 'kind = "embedded"', backend.extra]
            continue
        pair = backend.target.credentials
        out += [
            "[[backends]]", f'name = "{backend.name}"', 'kind = "s3"', f'endpoint = "{backend.target.endpoint}"',
            f'region = "{backend.target.region}"', 'addressing = "path"',
            "credentials = { source = \"static\", "
            f'access_key = "{pair.access_key}", secret_key = "{pair.secret_key}" }}',
            backend.extra,
        ]  # fmt: skip
    for backend in backends:
        out += ["[[routes]]", f'bucket = "{backend.bucket}"', f'backend = "{backend.name}"']
    policies = {
        "full": (FULL, 'policy = "full-access"'),
        "reader": (READ_ONLY, 'policy = "read-only"'),
        "limited": (LIMITED, f"policy_json = '''{json.dumps(LIMITED_POLICY)}'''"),
        "nobody": (NOTHING, ""),
    }
    for name, (pair, policy) in policies.items():
        out += [
            "[[identities]]", f'name = "{name}"', f'access_key = "{pair.access_key}"',
            f'secret_key = "{pair.secret_key}"', policy,
        ]  # fmt: skip
    return "\n".join(out) + "\n" + sections


# Keys that anything but S3 would tidy up: each is one object, byte for byte.
TRAP_KEYS = [
    "a//b", "/lead", "//", "trail/", "./x", "../up", "a/../b", "a/.", "..", ".", "100%25.txt", "%2F", "a%00b", "a\nb", "tab\t",
    "a\r\nb", " ", "a+b c", "?x=y#z", "s3/s3", "é/鍵", "~a*b'(c)!", "\x7f", "k" * 1024, "é" * 512, "%" * 1024,
]  # fmt: skip


class Gateway:
    """A running gateway. `s3` speaks as the full-access identity."""

    def __init__(self, folder: Path, settings_text: str, name: str = "gateway") -> None:
        config = folder / f"{name}.toml"
        config.write_text(settings_text)
        self.process = Process(name, [str(BINARY), "serve", "--config", str(config)], folder, clean_environment())
        addresses = self.process.wait_until_ready(self._addresses, 10)
        self.s3 = Target(addresses["s3"], FULL)
        self.admin = Target(addresses["admin"], FULL)

    def _addresses(self) -> dict[str, str] | None:
        found = dict(re.findall(r"^listening (s3|admin) (https?://127\.0\.0\.1:[1-9]\d*)$", self.process.stdout(), re.M))
        return found if {"s3", "admin"} <= found.keys() else None

    def over_ipv6(self) -> Target:
        """As `s3`, where it listens on both families."""
        found = re.search(r"^listening s3 (https?://\[::1\]:\d+)$", self.process.stdout(), re.M)
        assert found, self.process.stdout()
        return Target(found[1], FULL)

    def as_identity(self, credentials: Credentials) -> Target:
        return self.s3.with_credentials(credentials)

    def admin_get(self, path: str) -> tuple[int, str]:
        """Status and body of a page of the admin port."""
        connection = http.client.HTTPConnection(*self.admin.address, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels; it must be there."""
        status, text = self.admin_get("/metrics")
        assert status == 200
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        assert values, f"{name} is not among the metrics:\n{text}"
        return sum(float(value) for value in values)

    def assert_gauges_at_zero(self) -> None:
        for name in (
            "batchgate_batch_in_flight",
            "batchgate_memory_reserved_bytes",
            "batchgate_backend_permits_in_use",
        ):
            assert self.metric(name) == 0, name

    def stop(self) -> int:
        """Ends it as an operator would; the caller decides whether the exit code matters."""
        return self.process.stop(35)


def clean_environment() -> dict[str, str]:
    """The environment without what would change settings or credentials behind a test's back."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "BATCHGATE_"))}
