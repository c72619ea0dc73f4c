"""Which process this is, known without a system call, for what must not be used on the other side of a fork."""

from __future__ import annotations

import os


class _Current:
    """Kept up to date in every child."""

    def __init__(self) -> None:
        self.id = os.getpid()


current = _Current()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=current.__init__)  # type: ignore[misc]
