"""`Client`: what a program holds. Keys in, parts out; everything else is decided beneath it.

A client is plain settings plus what it has learnt of its endpoint. It may be shared by threads, pickled, and used after a
fork; an iteration belongs to the thread and the process that began it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal

from ._batch import read_batch
from ._capabilities import ENTRIES_MAX, Capabilities, probe
from ._endpoint import endpoint_of
from ._errors import BatchGateError, BatchGetUnavailableWarning, ConfigurationError
from ._fallback import get_many
from ._part import Key, Part
from ._patience import ATTEMPTS_MAX
from ._process import current
from ._request import batches
from ._rules import BUCKET_RULE, is_bucket
from ._transport import Settings, Transport

GETS_IN_FLIGHT_MAX = 16


class Parts(Iterator[Part]):
    """The parts of one `get_many`. `close`, the end of a `with` block, or leaving a loop ends the request."""

    def __init__(self, parts: Generator[Part, None, None]) -> None:
        self._parts = parts
        # Of the process that began it, once one did.
        self._process_id: int | None = None

    def __next__(self) -> Part:
        if self._process_id != current.id:
            if self._process_id is not None:
                raise BatchGateError("an iteration that began before a fork goes on in the parent only")
            self._process_id = current.id
        return next(self._parts)

    def close(self) -> None:
        """Ends the iteration and the connection that it reads from."""
        self._parts.close()

    def __enter__(self) -> Parts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client:
    """Reads many objects with few requests.

    `bucket` is for keys that name none. Endpoint, region, profile, credentials and CA bundle are found as every AWS tool
    finds them (environment, `~/.aws`, instance roles) unless given. An endpoint may have a path, as in `https://host/s3`.
    Buckets are addressed by path. Timeouts are in
    seconds; `read_timeout` is for one read, not for the whole. `attempts_max` bounds the attempts between two parts that
    came whole. `entries_max` is the most entries of one request; the endpoint's own limits hold too. Where there is no
    BatchGet, at most `gets_in_flight_max` GETs are under way at once in each `get_many`.
    """

    def __init__(
        self,
        *,
        endpoint_url: str | None = None,
        bucket: str | None = None,
        region_name: str | None = None,
        profile_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
        verify: bool | str | None = None,
        connect_timeout: float = 10.0,
        read_timeout: float = 60.0,
        attempts_max: int = ATTEMPTS_MAX,
        entries_max: int = ENTRIES_MAX,
        gets_in_flight_max: int = GETS_IN_FLIGHT_MAX,
    ) -> None:
        if min(attempts_max, entries_max, gets_in_flight_max) < 1:
            raise ConfigurationError("attempts_max, entries_max and gets_in_flight_max are at least 1")
        if (aws_access_key_id is None) != (aws_secret_access_key is None):
            raise ConfigurationError("aws_access_key_id and aws_secret_access_key go together")
        if bucket is not None and not is_bucket(bucket):
            raise ConfigurationError(f"bucket is {BUCKET_RULE}, not {bucket!r}")
        self.bucket = bucket
        self._attempts_max = attempts_max
        self._entries_max = entries_max
        self._gets_in_flight_max = gets_in_flight_max
        self._capabilities: Capabilities | None = None
        self._transport = Transport(
            Settings(
                None if endpoint_url is None else endpoint_of(endpoint_url),
                region_name,
                profile_name,
                aws_access_key_id,
                aws_secret_access_key,
                aws_session_token,
                verify,
                connect_timeout,
                read_timeout,
                connections_max=max(gets_in_flight_max, 32),
            )
        )

    @property
    def endpoint_url(self) -> str:
        """Where requests go."""
        return self._transport.endpoint_url

    def get_many(
        self,
        keys: Iterable[Key],
        *,
        on_error: Literal["raise", "return", "omit"] = "raise",
        order: Literal["request", "completion"] = "request",
    ) -> Parts:
        """Reads the objects and gives them part by part, as they arrive.

        A key is a `str`, a pair of bucket and key, or an `Entry`. Keys are taken as requests need them, so they may come
        from a generator without end. `on_error` says what becomes of an entry that failed: `raise` raises its
        `EntryError` when its turn comes, after the parts before it; `return` gives a part with `error`; `omit` leaves it
        out. `order` is that of the keys, or (within each request) that in which objects become whole.

        A key that the gateway would not take is a `RequestError` (400), whatever `on_error` says, when the request that
        it belongs to would be made: the objects of that request, or the GETs under way, are not given.

        Memory: one part and one buffer, besides the keys of one request.
        """
        if on_error not in ("raise", "return", "omit"):
            raise ValueError(f"on_error is 'raise', 'return' or 'omit', not {on_error!r}")
        if order not in ("request", "completion"):
            raise ValueError(f"order is 'request' or 'completion', not {order!r}")
        if isinstance(keys, str | bytes):
            raise TypeError("keys is an iterable of keys; for one key, give a list of one")
        return Parts(self._parts(iter(keys), on_error, order))

    def close(self) -> None:
        """Closes idle connections. The client may be used again."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transport": self._transport.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _transport=Transport(state["_transport"]))

    def _parts(self, keys: Iterator[Key], on_error: str, order: str) -> Generator[Part, None, None]:
        first = next(keys, None)
        if first is None:
            return
        keys = itertools.chain([first], keys)
        able = self._ability()
        if not able.batch_get:
            yield from get_many(
                self._transport, self.bucket, keys, on_error, order, self._attempts_max, self._gets_in_flight_max
            )
            return
        entries_max = min(able.entries_max, self._entries_max)
        for batch in batches(keys, self.bucket, entries_max, able.body_bytes_max):
            yield from read_batch(self._transport, self.bucket, batch, on_error, order, self._attempts_max)

    def _ability(self) -> Capabilities:
        """Asked for once, and remembered."""
        if self._capabilities is None:
            with self._transport.once():
                if self._capabilities is None:
                    able = probe(self._transport, self._attempts_max)
                    if not able.batch_get:
                        # The level of the loop that asks for the first part. A filter may make it an error.
                        warnings.warn(
                            f"{self.endpoint_url} has no BatchGet; objects are read by single GETs",
                            BatchGetUnavailableWarning,
                            stacklevel=4,
                        )
                    self._capabilities = able
        return self._capabilities
