"""Memory of large results that were dropped, kept for the next ones."""

from __future__ import annotations

import mmap
import threading
import weakref

from ..compiler.cache.fork import own_locks
from ..config import POOL_BYTES
from ..system import map_memory, maps_memory
from .accounts import account
from .machine import MACHINE

WORTHWHILE = 4 << 20
"""Bytes below which a result has few pages, and malloc reuses them."""

_HUGE_PAGE = 2 << 20
# A block may be this much larger than what is asked of it.
_SLACK = 1.125


class Pool:
    """Memory of dropped results, kept for the next ones of about the same size.

    A large tensor is otherwise fresh memory from the system at every call. Its first touch costs a page fault per 4
    KiB, up to half of the time of a product that writes it once, and several times more on a virtual machine that gives
    free pages back to its host. A block is leased to one tensor, and comes back when the last view of it dies.

    limit: bytes kept for later at most; beyond it the blocks that have waited longest go back to the system.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._free: list[tuple[int, mmap.mmap]] = []
        own_locks(self)

    def make_locks(self) -> None:
        # reentrant: a block may come back while this thread holds the lock, when the collector runs
        self._lock = threading.RLock()

    @property
    def kept(self) -> int:
        """Bytes that wait for the next tensor."""
        with self._lock:
            return sum(size for size, _ in self._free)

    def lease(self, nbytes: int):
        """A writable buffer of at least ``nbytes``, which comes back by itself when nothing refers to it any more."""
        wanted = -(-nbytes // _HUGE_PAGE) * _HUGE_PAGE
        size, block = self._take(wanted) or self._make(wanted)
        view = memoryview(block)
        weakref.finalize(view, self._give_back, size, block).atexit = False
        return view

    def clear(self) -> None:
        """Give everything that waits back to the system."""
        with self._lock:
            self._free = []

    def _take(self, wanted: int):
        with self._lock:
            for at in range(len(self._free) - 1, -1, -1):
                if wanted <= self._free[at][0] <= wanted * _SLACK:
                    return self._free.pop(at)
        return None

    @staticmethod
    def _make(size: int):
        try:
            return size, map_memory(size)
        except OSError as error:
            raise MemoryError(f"there are no {size:,} bytes of memory: {error.strerror}") from None

    def _give_back(self, size: int, block: mmap.mmap) -> None:
        with self._lock:
            self._free.append((size, block))
            excess = sum(s for s, _ in self._free) - self.limit
            while self._free and excess > 0:
                excess -= self._free.pop(0)[0]


def _limit(share: int) -> int:
    """Bytes to keep: ``GSB_POOL_BYTES``, by default this share of the machine's memory; 0 keeps nothing, as on a system
    that gives no private memory.
    """
    if not maps_memory():
        return 0
    chosen = POOL_BYTES.get()
    return MACHINE // share if chosen is None else chosen


POOL = Pool(_limit(16))
SCARCE_LIMIT = _limit(2)
"""Bytes of all large tensors to keep where memory is scarce. Within the most that was alive at a time they take no more
at the peak, and one tensor may be larger than a sixteenth of the machine.
"""


@account("memory of dropped results, for the next ones (gsb.empty_cache)")
def _kept() -> int:
    return POOL.kept
