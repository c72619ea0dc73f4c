"""The threads of one iteration.

They are daemons, and `close` waits for none of them: neither a loop that is left nor a process that ends waits for an
endpoint that says nothing, as it would for the threads of `concurrent.futures`. What is under way ends at its next step.
Invariant: at most `threads_max` jobs run at once, and a child after a fork touches nothing of its parent's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from ._process import current

T = TypeVar("T")
Job: TypeAlias = "tuple[Future[T], Callable[[], T]]"


class Workers(Generic[T]):
    """`closed` tells jobs that nobody waits for them any more."""

    def __init__(self, threads_max: int) -> None:
        self.closed = threading.Event()
        self._threads_max = threads_max
        self._threads = 0
        self._jobs: SimpleQueue[Job[T] | None] = SimpleQueue()
        self._process_id = current.id

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Has it done. The future cannot be cancelled."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._jobs.put((future, work))
        if self._threads < self._threads_max:
            self._threads += 1
            name = f"batchgate-{self._threads}"
            threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()
        return future

    def close(self) -> None:
        """Ends the threads, each after the job that it has."""
        # In a child there are no threads, and a lock could be held by one of them for ever.
        if current.id == self._process_id:
            self.closed.set()
            for _ in range(self._threads):
                self._jobs.put(None)


def _work(jobs: SimpleQueue[Job[T] | None]) -> None:
    while (job := jobs.get()) is not None:
        future, work = job
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        # What a job gave is not kept while the next one is waited for.
        del job, future, work
