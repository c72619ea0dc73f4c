"""What can go wrong, each kind an instruction to the caller.

`EntryError`: this one object could not be had; the others are not the worse for it. `RequestError`: the endpoint refused
a request as a whole. `EndpointError`: it could not be reached, or broke off again and again; try later. `ProtocolError`:
it does not keep the contract; do not try again. `ConfigurationError`: what the caller set cannot work.

Invariant: every error survives pickling, and can be made from a message alone, so that it crosses the border of a worker
process as itself.
"""

from __future__ import annotations

import errno
from typing import Any


class BatchGateError(Exception):
    """Base class of every error of this package."""

    def __init__(self, message: str = "", **members: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(members)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Members are set on what is made anew. Some are the interpreter's (`__notes__`) or the caller's; those that
        # OSError keeps elsewhere come along by name.
        kept = {name: value for name in ("errno", "filename") if (value := getattr(self, name, None)) is not None}
        return type(self), (self.message,), {**self.__dict__, **kept}


class ConfigurationError(BatchGateError):
    """No credentials, no such profile, no bucket."""


class ProtocolError(BatchGateError):
    """The answer is not what the contract promises. What was yielded before it is right; nothing after it is known."""


class EndpointError(BatchGateError, ConnectionError):
    """The endpoint could not be reached, or its answers broke off, in every attempt. The cause is chained."""


class RequestError(BatchGateError):
    """The endpoint refused a request as a whole."""

    status: int
    code: str
    request_id: str

    def __init__(self, message: str = "", *, status: int = 0, code: str = "", request_id: str = "") -> None:
        super().__init__(message, status=status, code=code, request_id=request_id)


class RequestPermissionError(RequestError, PermissionError):
    """A 403 for the request itself: unknown key, wrong signature, skewed clock."""

    def __init__(self, message: str = "", *, status: int = 403, code: str = "", request_id: str = "") -> None:
        super().__init__(message, status=status, code=code, request_id=request_id)
        self.errno = errno.EACCES


class EntryError(BatchGateError):
    """An object could not be had. `index` is its position in the keys that were asked for."""

    status: int
    code: str
    key: str
    bucket: str
    index: int

    def __init__(
        self, message: str = "", *, status: int = 0, code: str = "", key: str = "", bucket: str = "", index: int = -1
    ) -> None:
        super().__init__(message, status=status, code=code, key=key, bucket=bucket, index=index)


class EntryNotFoundError(EntryError, FileNotFoundError):
    """404: no such key, bucket or version."""

    def __init__(
        self, message: str = "", *, status: int = 404, code: str = "", key: str = "", bucket: str = "", index: int = -1
    ) -> None:
        super().__init__(message, status=status, code=code, key=key, bucket=bucket, index=index)
        self.errno, self.filename = errno.ENOENT, f"s3://{bucket}/{key}"


class EntryPermissionError(EntryError, PermissionError):
    """403: not for this identity."""

    def __init__(
        self, message: str = "", *, status: int = 403, code: str = "", key: str = "", bucket: str = "", index: int = -1
    ) -> None:
        super().__init__(message, status=status, code=code, key=key, bucket=bucket, index=index)
        self.errno, self.filename = errno.EACCES, f"s3://{bucket}/{key}"


class BatchGetUnavailableWarning(UserWarning):
    """The endpoint has no BatchGet; objects are read by single GETs."""


class BrokenOff(Exception):
    """Internal: an answer ended before it was whole, or no answer came. Worth another attempt."""
