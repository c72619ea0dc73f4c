"""Whether an endpoint has BatchGet, and what it takes.

Invariant: it has BatchGet if and only if `GET /?batch-get` answers 200 with a JSON object whose `Version` is 1. A refusal
that says nothing about BatchGet (a wrong signature, a path that is not the endpoint's, an outage) is an error, no reason
to fall back.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ._errors import BrokenOff, RequestError
from ._part import xml_text
from ._patience import Patience
from ._transport import Response, Transport

# Ours, whatever an endpoint would take: they bound what one request holds in memory here.
ENTRIES_MAX = 10_000
BODY_BYTES_MAX = 16 << 20
# Refusals of how a request is signed or where it went. GETs would be refused likewise, so they would only hide why.
_NOT_ABOUT_BATCHGET = frozenset(
    "AuthorizationHeaderMalformed ExpiredToken InvalidAccessKeyId InvalidToken InvalidURI RequestTimeTooSkewed "
    "SignatureDoesNotMatch TokenRefreshRequired".split()
)


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
            if 200 < response.status < 300:
                response.close()
                return Capabilities(False)
            what = f"asking {transport.endpoint_url} what it can do"
            if response.status in (400, 403, 404, 405, 501):
                return _of_refusal(response, transport.endpoint_url, what)
            patience.refused(response, what)
        except BrokenOff as error:
            patience.broke_off(error)


def _of_refusal(response: Response, endpoint_url: str, what: str) -> Capabilities:
    document = response.error_document()
    error = response.error(what, document)
    path = re.sub("https?://[^/]*", "", endpoint_url)
    if path and (error.code == "NoSuchBucket" or xml_text(document, "BucketName") == path.split("/")[1]):
        # Nothing was asked of a bucket.
        raise RequestError(
            f"{error.message}; the endpoint takes {path} for a bucket, so its S3 is not below it",
            status=error.status,
            code=error.code,
            request_id=error.request_id,
        )
    if error.code in _NOT_ABOUT_BATCHGET or (error.status == 403 and error.code != "AccessDenied"):
        raise error
    return Capabilities(False)


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
