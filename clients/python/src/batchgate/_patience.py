"""How often and after what pauses something is tried again.

Invariant: between two successes at most `attempts_max` attempts are made, and no pause is longer than its named maximum.
"""

from __future__ import annotations

import random
import time
from threading import Event
from typing import NoReturn

from ._errors import BatchGateError, EndpointError
from ._transport import Response

ATTEMPTS_MAX = 6
BACKOFF_BASE_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
RETRY_AFTER_MAX_SECONDS = 30.0
# Statuses of a whole request that may be another one a moment later.
RETRYABLE = frozenset({429, 500, 502, 503, 504})


class Patience:
    """Counts attempts at one thing, which may be `cancelled` meanwhile."""

    def __init__(self, attempts_max: int, cancelled: Event | None = None) -> None:
        self._attempts_max = attempts_max
        self._cancelled = cancelled
        self._failures = 0

    def progressed(self) -> None:
        """Something was had whole: the count begins anew."""
        self._failures = 0

    def may_go_on(self) -> bool:
        """Whether another failure would still be followed by an attempt."""
        return self._failures + 1 < self._attempts_max

    def broke_off(self, error: Exception) -> None:
        """Waits before another attempt, or gives up."""
        self._failed(EndpointError(f"{error} ({self._failures + 1} attempts)"), 0.0, error)

    def refused(self, response: Response, what: str) -> None:
        """Waits as the answer asks, or gives up with its error."""
        pause = response.retry_after()
        error = response.error(what)
        if response.status not in RETRYABLE:
            raise error
        self._failed(error, pause, None)

    def _failed(self, error: BatchGateError, pause: float, cause: Exception | None) -> None:
        self._failures += 1
        if self._failures >= self._attempts_max:
            _give_up(error, cause)
        backoff = min(BACKOFF_BASE_SECONDS * 2 ** (self._failures - 1), BACKOFF_MAX_SECONDS)
        # From half of it to all of it, so that many clients do not come back at once.
        wait(max(backoff * random.uniform(0.5, 1.0), min(pause, RETRY_AFTER_MAX_SECONDS)), self._cancelled)


def wait(seconds: float, cancelled: Event | None) -> None:
    """A pause, which ends early if what it was for is cancelled."""
    if cancelled is None:
        time.sleep(seconds)
    else:
        cancelled.wait(seconds)


def _give_up(error: BatchGateError, cause: Exception | None) -> NoReturn:
    raise error from cause
