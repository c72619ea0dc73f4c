"""SeaweedFS as the real store behind the gateway, in a folder of its own and on free ports."""

import http.client
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.process import Process, free_ports

# The stores that a module may name in `STORES`, to run over both.
BOTH = ["seaweedfs", "embedded"]

WEED = Path(sys.executable).with_name("weed")


@dataclass(frozen=True)
class Credentials:
    """A key pair."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class Target:
    """Where and as whom S3 is spoken."""

    endpoint: str
    credentials: Credentials
    region: str = "us-east-1"

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.endpoint.removeprefix("http://").rsplit(":", 1)
        return host.strip("[]"), int(port)

    def with_credentials(self, credentials: Credentials) -> "Target":
        return Target(self.endpoint, credentials, self.region)


# The second pair is the one that README and the interface's smallest settings file show.
STORE_CREDENTIALS = Credentials("store-access-key", "store-secret-key")
README_CREDENTIALS = Credentials("AK", "SK")

# An account of the store that has one bucket and no other, and the bucket that anybody may read and write, unsigned.
TENANT_CREDENTIALS = Credentials("tenant-access-key", "tenant-secret-key")
TENANT_BUCKET = "tenant-own"
PUBLIC_BUCKET = "public-to-all"


class SeaweedFs:
    """One `weed server`; `target` is its S3 endpoint. `identities` are those of its settings, instead of those above. Its
    buckets are hosts of `domain` too, if there is one."""

    def __init__(self, folder: Path, identities: list[dict[str, Any]] | None = None, domain: str = "") -> None:
        master, volume, filer, s3 = free_ports(4)
        data = folder / "seaweedfs"
        data.mkdir()
        settings = folder / "seaweedfs-s3.json"
        every = ["Admin", "Read", "List", "Tagging", "Write"]
        accounts = {
            STORE_CREDENTIALS: every,
            README_CREDENTIALS: every,
            TENANT_CREDENTIALS: [f"{action}:{TENANT_BUCKET}" for action in ("Read", "List", "Tagging", "Write")],
        }
        public = [f"{action}:{PUBLIC_BUCKET}" for action in ("Read", "List", "Write")]
        identities = identities or [
            *(
                {
                    "name": pair.access_key,
                    "credentials": [{"accessKey": pair.access_key, "secretKey": pair.secret_key}],
                    "actions": actions,
                }
                for pair, actions in accounts.items()
            ),
            {"name": "anonymous", "actions": public},
        ]
        settings.write_text(json.dumps({"identities": identities}))
        env = {**os.environ, "WEED_S3_SSE_KEY": "test-only-passphrase", "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        self.process = Process(
            "seaweedfs",
            [
                str(WEED), "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}",
                "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={settings}",
                "-volume.max=300", "-master.volumeSizeLimitMB=64", *([f"-s3.domainName={domain}"] if domain else []),
            ],
            folder,
            env,
        )  # fmt: skip
        self.target = Target(f"http://127.0.0.1:{s3}", STORE_CREDENTIALS)
        self.process.wait_until_ready(self._is_healthy, 60)

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(*self.target.address, timeout=2)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def stop(self) -> None:
        """It flushes for half a minute; what it holds is thrown away, so it is not waited for."""
        self.process.stop(2)
