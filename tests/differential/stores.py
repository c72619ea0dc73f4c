"""The stores, each with a gateway before it, started for a run and ended after it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from support.ceph import Ceph, ceph_is_installed
from support.gateway import DOMAIN, Backend, Gateway, settings
from support.store import WEED, SeaweedFs, Target
from support.versitygw import VERSITYGW, VersityGw

from differential.drafts import Known

ALL = ["ceph", "versitygw", "seaweedfs", "embedded"]


def missing(name: str) -> str | None:
    """Why a store cannot be started here."""
    present = {"ceph": ceph_is_installed, "versitygw": VERSITYGW.is_file, "seaweedfs": WEED.is_file}
    return None if name == "embedded" or present[name]() else f"{name} is not installed"


def known(name: str, anonymous: bool) -> Known:
    """What requests are made for it."""
    return Known(sigv2=name in ("ceph", "seaweedfs"), anonymous=anonymous and name != "embedded")


@contextlib.contextmanager
def started(name: str, folder: Path, checksums: str, anonymous: bool) -> Iterator[tuple[Target, Target]]:
    """The store and a gateway before it, both as the same account of the store's, and both by the same domain."""
    if name == "embedded":
        gateway = Gateway(folder, settings([Backend("store", "*", None)]), "store")
        store, stop = gateway.s3, gateway.stop
    else:
        makers: dict[str, Callable[[Path], Ceph | VersityGw | SeaweedFs]] = {
            "ceph": lambda folder: Ceph(folder, domain=DOMAIN),
            "versitygw": lambda folder: VersityGw(folder, domain=DOMAIN),
            "seaweedfs": lambda folder: SeaweedFs(folder, domain=DOMAIN),
        }
        running = makers[name](folder)
        store, stop = running.target, running.stop
    try:
        identity = (
            f'[[identities]]\nname = "store"\naccess_key = "{store.credentials.access_key}"\n'
            f'secret_key = "{store.credentials.secret_key}"\npolicy = "full-access"\n'
        )
        sections = "" if name == "embedded" else identity
        server = [f"anonymous = {str(anonymous).lower()}", f"sigv2 = {str(known(name, anonymous).sigv2).lower()}"]
        # Ceph takes signatures for any region, and names one that is none of the gateway's.
        server.append(f"any_region = {str(name == 'ceph').lower()}")
        backend = Backend("store", "*", store, f'checksums = "{checksums}"')
        before = Gateway(folder, settings([backend], sections, "\n".join(server)))
        try:
            yield store, before.s3.with_credentials(store.credentials)
            before.process.assert_running()
            assert "panicked" not in before.process.stderr(), before.process.stderr()[-4000:]
        finally:
            before.stop()
    finally:
        stop()
