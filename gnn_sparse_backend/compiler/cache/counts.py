"""Named event counters, exact with several threads."""

from __future__ import annotations

import threading

from .fork import own_locks


class Counts:
    """Counters that start at zero.

    >>> counts = Counts("hits", "misses")
    >>> counts.add("hits"); counts.snapshot()
    {'hits': 1, 'misses': 0}
    """

    def __init__(self, *names: str) -> None:
        self._values = dict.fromkeys(names, 0)
        own_locks(self)

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        with self._lock:
            self._values[name] += 1

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._values)
