"""Reads thousands of S3 objects with one request, through a Batchgate gateway.

    client = batchgate.Client(endpoint_url="http://127.0.0.1:9000", bucket="train")
    for part in client.get_many(["a.jpg", "b.jpg"]):
        decode(part.data)

In reading order: `_client` (what a program holds), `_capabilities`, `_rules` (what may be asked and answered), `_request`
(keys into batches), `_batch` (one batch until it is whole), `_reader` (the strict reader), `_part`, `_fallback` (GETs),
`_workers` (its threads), `_patience` (attempts and pauses), `_transport` (signed requests), `_process`, `_errors`.
"""

from ._client import Client, Parts
from ._errors import (
    BatchGateError,
    BatchGetUnavailableWarning,
    ConfigurationError,
    EndpointError,
    EntryError,
    EntryNotFoundError,
    EntryPermissionError,
    ProtocolError,
    RequestError,
    RequestPermissionError,
)
from ._part import Entry, Key, Part

__version__ = "0.1.0"

__all__ = [
    "BatchGateError",
    "BatchGetUnavailableWarning",
    "Client",
    "ConfigurationError",
    "EndpointError",
    "Entry",
    "EntryError",
    "EntryNotFoundError",
    "EntryPermissionError",
    "Key",
    "Part",
    "Parts",
    "ProtocolError",
    "RequestError",
    "RequestPermissionError",
]
