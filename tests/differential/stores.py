"""The stores, each with a gateway before it, started for a run and ended after it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from support.ceph import Ceph, ceph_is_installed
from support.gateway import Backend, Gateway, settings
from support.store import WEED, SeaweedFs, Target
from support.versitygw import VERSITYGW, VersityGw

ALL = ["ceph", "versitygw", "seaweedfs", "embedded"]


def missing(name: str) -> str | None:
    """Why a store cannot be started here."""
    present = {"ceph": ceph_is_installed, "versitygw": VERSITYGW.is_file, "seaweedfs": WEED.is_file}
    return None if name == "embedded" or present[name]() else f"{name} is not installed"


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[tuple[Target, Target]]:
    """The store and a gateway before it, both as the same account of the store's."""
    if name == "embedded":
        gateway = Gateway(folder, settings([Backend("store", "*", None)]), "store")
        store, stop = gateway.s3, gateway.stop
    else:
        makers: dict[str, Callable[[Path], Ceph | VersityGw | SeaweedFs]] = {
            "ceph": Ceph,
            "versitygw": VersityGw,
            "seaweedfs": SeaweedFs,
        }
        running = makers[name](folder)
        store, stop = running.target, running.stop
    try:
        identity = (
            f'[[identities]]\nname = "store"\naccess_key = "{store.credentials.access_key}"\n'
            f'secret_key = "{store.credentials.secret_key}"\npolicy = "full-access"\n'
        )
        sections = "" if name == "embedded" else identity
        # Ceph takes signatures for any region, and names one that is none of the gateway's.
        server = "any_region = true" if name == "ceph" else ""
        before = Gateway(folder, settings([Backend("store", "*", store)], sections, server))
        try:
            yield store, before.s3.with_credentials(store.credentials)
            before.process.assert_running()
            assert "panicked" not in before.process.stderr(), before.process.stderr()[-4000:]
        finally:
            before.stop()
    finally:
        stop()
