"""Whether an endpoint has BatchGet, and what it takes.

Invariant: it has BatchGet if and only if `GET /?batch-get` answers 200 with a JSON object whose `Version` is 1. A refusal
that says nothing about BatchGet (a wrong signature, an outage) is an error, no reason to fall back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ._errors import BrokenOff
from ._patience import Patience
from ._transport import Response, Transport

# Ours, whatever an endpoint would take: they bound what one request holds in memory here.
ENTRIES_MAX = 10_000
BODY_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Capabilities:
    """`batch_get` is false for a plain store; the limits are those of one request."""

    batch_get: bool
    entries_max: int = ENTRIES_MAX
    body_bytes_max: int = BODY_BYTES_MAX


def probe(transport: Transport, attempts_max: int) -> Capabilities:
    """Asks the endpoint."""
    patience = Patience(attempts_max)
    while True:
        try:
            response = transport.send("GET", "/?batch-get=")
            if response.status == 200:
                return _of(response.read_document())
            if 200 < response.status < 300 or response.status in (400, 404, 405, 501):
                response.close()
                return Capabilities(False)
            if response.status == 403:
                return _of_forbidden(response)
            patience.refused(response, f"asking {transport.endpoint_url} what it can do")
        except BrokenOff as error:
            patience.broke_off(error)


def _of_forbidden(response: Response) -> Capabilities:
    error = response.error("asking what the endpoint can do")
    if error.code == "AccessDenied":
        return Capabilities(False)
    raise error


def _of(document: bytes) -> Capabilities:
    try:
        told = json.loads(document)
    except ValueError:
        return Capabilities(False)
    version = told.get("Version") if isinstance(told, dict) else None
    if version != 1 or version is True:
        return Capabilities(False)
    limits = told.get("Limits")
    limits = limits if isinstance(limits, dict) else {}
    return Capabilities(
        True, _limit(limits.get("Entries"), ENTRIES_MAX), _limit(limits.get("BodyBytes"), BODY_BYTES_MAX)
    )


def _limit(told: Any, most: int) -> int:
    return min(told, most) if isinstance(told, int) and told >= 1 else most
