"""What a suite runs against: a store with nothing in it, and before it, unless the suite asks the store itself, a gateway.
That one knows every account of the store by the same key pair and goes on with that pair, so that the store sees who asks.

Requests without a signature are sent on, so that the store's own rules for the public decide.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from accounts import Door, identity, pair
from support.ceph import Ceph
from support.gateway import BINARY, clean_environment
from support.process import Process
from support.store import STORE_CREDENTIALS, Credentials, SeaweedFs, Target
from support.versitygw import VersityGw

BACKEND = "store"


@dataclass(frozen=True)
class Account:
    """Somebody whom the store knows. The store calls it by `id`, `name` and `email` in ACLs, where it can be told to."""

    credentials: Credentials
    id: str
    name: str
    email: str


MAIN = Account(STORE_CREDENTIALS, "main-id", "main", "main@example.com")
ALT = Account(Credentials("alt-access-key", "alt-secret-key"), "alt-id", "alt", "alt@example.com")
TENANT = Account(Credentials("tenant-access-key", "tenant-secret-key"), "tenant-id", "tenant", "tenant@example.com")
# The tenant that this one belongs to, where the store knows tenants.
TENANT_NAME = "testx"
ACCOUNTS = [MAIN, ALT, TENANT]


@dataclass(frozen=True)
class Store:
    """A running store. `accounts` are those of `ACCOUNTS` as the store calls them; all of them may make buckets. `version_2`
    says whether it knows Signature Version 2, `any_region` whether it takes signatures for any region."""

    server: SeaweedFs | VersityGw | Ceph
    accounts: list[Account]
    version_2: bool
    any_region: bool

    @property
    def target(self) -> Target:
        return self.server.target

    def stop(self) -> None:
        self.server.stop()


def start_store(kind: str, folder: Path) -> Store:
    """A store of a kind of `STORES`, with nothing in it."""
    return STORES[kind](folder)


def _seaweedfs(folder: Path) -> Store:
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    server = SeaweedFs(
        folder,
        [
            {
                "name": account.name,
                "credentials": [
                    {"accessKey": account.credentials.access_key, "secretKey": account.credentials.secret_key}
                ],
                "account": {"id": account.id, "displayName": account.name, "emailAddress": account.email},
                "actions": actions,
            }
            for account in ACCOUNTS
        ],
    )
    return Store(server, ACCOUNTS, version_2=True, any_region=True)


def _versitygw(folder: Path) -> Store:
    server = VersityGw(folder)
    for account in ACCOUNTS[1:]:
        server.add_account(account.credentials, "userplus")
    # An account's name there is its access key.
    named = [(account.credentials, account.credentials.access_key, account.email) for account in ACCOUNTS]
    accounts = [Account(pair, name, name, email) for pair, name, email in named]
    return Store(server, accounts, version_2=False, any_region=False)


def _ceph(folder: Path) -> Store:
    server = Ceph(folder)
    tenant = server.add_account(TENANT.name, TENANT.credentials, TENANT_NAME)
    # Whoever belongs to a tenant has the tenant's name before its own.
    ids = {"main": server.target, "other": server.other, f"{TENANT_NAME}${TENANT.name}": tenant}
    accounts = []
    for each, target in ids.items():
        name = each.rpartition("$")[2]
        accounts.append(Account(target.credentials, each, name, f"{name}@example.com"))
    return Store(server, accounts, version_2=True, any_region=True)


STORES = {"ceph": _ceph, "seaweedfs": _seaweedfs, "versitygw": _versitygw}


class SuiteGateway:
    """A gateway before a store. `endpoint` is where suites ask."""

    def __init__(self, folder: Path, store: Store) -> None:
        identities = folder / "identities.toml"
        identities.write_text("".join(identity(account.credentials, BACKEND) for account in store.accounts))
        config = folder / "gateway.toml"
        root = store.target.credentials
        config.write_text(
            "\n".join(
                [
                    f"identities_file = {json.dumps(str(identities))}",
                    "[server]", 'listen = ["127.0.0.1:0"]', f'region = "{store.target.region}"',
                    "anonymous = true", f"sigv2 = {json.dumps(store.version_2)}",
                    f"any_region = {json.dumps(store.any_region)}",
                    "[admin]", 'listen = "127.0.0.1:0"',
                    "[[backends]]", f'name = "{BACKEND}"', f'endpoint = "{store.target.endpoint}"',
                    f'region = "{store.target.region}"', f'credentials = {{ source = "static", {pair(root)} }}',
                    "[[routes]]", 'bucket = "*"', f'backend = "{BACKEND}"',
                ]
            )
        )  # fmt: skip
        argv = [str(BINARY), "serve", "--config", str(config)]
        self.process = Process("gateway", argv, folder, clean_environment())
        self.endpoint = self.process.wait_until_ready(self._address, 20)
        self.door = Door(self.endpoint, BACKEND, str(identities), self.process.child.pid, store.target.endpoint)

    def _address(self) -> str | None:
        lines = self.process.stdout().splitlines()
        found = {line.split()[1]: line.split()[2] for line in lines if line.startswith("listening ")}
        return found["s3"] if {"s3", "admin"} <= found.keys() else None

    def stop(self) -> None:
        """A gateway that broke must not look like a store that differs."""
        self.process.assert_running()
        assert "panicked" not in self.process.stderr(), self.process.stderr()[-4000:]
        self.process.stop(35)
