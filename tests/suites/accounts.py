"""An account that a suite makes while it runs becomes an identity of the gateway, with the same key pair.

As a program this stands in for the `./versitygw` that versitygw's suite calls to administer accounts: `accounts.py DOOR
ARGUMENT...`, with a file that holds a `Door`. The administration is no S3 and has the store's address as its own setting, so
such calls go to the store; an account that was made is known to the gateway when the program ends.
"""

import datetime
import fcntl
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.parse
from dataclasses import asdict, dataclass
from pathlib import Path

from support.process import wait_for
from support.store import Credentials
from support.versitygw import VERSITYGW


@dataclass(frozen=True)
class Door:
    """A running gateway: where it is, what it calls its backend, its file of identities, its pid, and where the store is."""

    endpoint: str
    backend: str
    identities: str
    pid: int
    store_endpoint: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Door":
        return Door(**json.loads(path.read_text()))


def pair(credentials: Credentials) -> str:
    """Members of a TOML table."""
    return f'access_key = "{credentials.access_key}", secret_key = "{credentials.secret_key}"'


def identity(credentials: Credentials, backend: str) -> str:
    """A TOML table: whoever signs with this pair may do whatever the store lets the owner of the same pair do."""
    return "\n".join(
        [
            "[[identities]]", f'name = "{credentials.access_key}"', *pair(credentials).split(", "),
            'policy = "full-access"', f"backend_credentials = {{ {backend} = {{ {pair(credentials)} }} }}", "",
        ]
    )  # fmt: skip


def add(door: Door, credentials: Credentials) -> None:
    """Makes an identity and returns once the gateway knows it. Several processes may do this at once."""
    identities = Path(door.identities)
    with identities.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # In one step: the gateway looks at the file by itself too.
        whole = identities.with_suffix(".new")
        whole.write_text(identities.read_text() + identity(credentials, door.backend))
        whole.replace(identities)
        os.kill(door.pid, signal.SIGHUP)
        wait_for("the gateway knows the account", lambda: _knows(door, credentials), 30)


def _knows(door: Door, credentials: Credentials) -> bool:
    """Whoever signs wrongly is told so if the key is known."""
    now = datetime.datetime.now(datetime.UTC)
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{credentials.access_key}/{now:%Y%m%d}/us-east-1/s3/aws4_request",
        "X-Amz-Date": f"{now:%Y%m%dT%H%M%SZ}",
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": "0" * 64,
    }
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(door.endpoint).netloc, timeout=10)
    try:
        connection.request("GET", "/?" + urllib.parse.urlencode(query))
        return b"<Code>SignatureDoesNotMatch<" in connection.getresponse().read()
    finally:
        connection.close()


def main(door: Door, arguments: list[str]) -> int:
    direct = [door.store_endpoint if argument == door.endpoint else argument for argument in arguments]
    done = subprocess.run([str(VERSITYGW), *direct], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    # It ends with 0 whether or not there is an account now; the suite reads what it says.
    sys.stdout.buffer.write(done.stdout)
    if "create-user" in direct and b"XAdmin" not in done.stdout and done.returncode == 0:
        options = direct[direct.index("create-user") :]
        add(door, Credentials(options[options.index("-a") + 1], options[options.index("-s") + 1]))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Door.read(Path(sys.argv[1])), sys.argv[2:]))
