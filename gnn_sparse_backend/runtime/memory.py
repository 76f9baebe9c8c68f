"""Where operators put their results: fresh small tensors, and large ones in memory that earlier results have left."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from math import prod

import psutil
import torch
from torch import Tensor

from ..compiler.cache.fork import own_locks
from ..config import POOL_BYTES
from . import large_blocks

# Below this a tensor has few pages, and malloc reuses them.
_WORTHWHILE = 4 << 20
_HUGE_PAGE = 2 << 20
# A block may be this much larger than what is asked of it.
_SLACK = 1.125
MEMORY = psutil.virtual_memory().total + psutil.swap_memory().total
"""Bytes of this machine's memory. More than that is refused in words, before an allocator does or the system ends the
process."""


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
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                block.madvise(mmap.MADV_HUGEPAGE)
            except OSError:  # a kernel without huge pages: a hint the less
                pass
        return size, block

    def _give_back(self, size: int, block: mmap.mmap) -> None:
        with self._lock:
            self._free.append((size, block))
            excess = sum(s for s, _ in self._free) - self.limit
            while self._free and excess > 0:
                excess -= self._free.pop(0)[0]


def _limit() -> int:
    """Bytes to keep: ``GSB_POOL_BYTES``, by default a sixteenth of the machine's memory; 0 keeps nothing."""
    chosen = POOL_BYTES.get()
    return psutil.virtual_memory().total // 16 if chosen is None else chosen


POOL = Pool(_limit())


def check_memory(what: str, shape: Sequence[int], itemsize: int) -> None:
    """Raise MemoryError where so many numbers of so many bytes cannot fit into memory. what: them, in words."""
    nbytes = prod(shape) * itemsize
    if nbytes > MEMORY:
        raise MemoryError(
            f"{what} of shape {tuple(shape)} takes {nbytes:,} bytes, and this machine has {MEMORY:,} bytes of memory; "
            "give fewer nodes, edges or features at a time"
        )


def check_written_out(what: str, x: Tensor) -> None:
    """Raise MemoryError for a view that repeats its storage, as ``expand`` makes one, and would not fit written out:
    whoever reads it wants a copy. What a file that is mapped into memory holds may be larger.
    """
    if x.is_cpu and x.untyped_storage().nbytes() < x.nbytes:
        check_memory(f"{what}, written out in {x.dtype},", x.shape, x.itemsize)


def empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialised, contiguous tensor on the device and of the type of ``like``, or of ``dtype``; a large one from
    the pool, or from the blocks that serve all large tensors (``gsb.reuse_memory``), where these are in use.

    The result is never a view: autograd lets nobody write to a view that an operator returns.
    """
    wanted = dtype or like.dtype
    nbytes = wanted.itemsize
    for length in shape:
        nbytes *= length
    if nbytes < _WORTHWHILE or like.device.type != "cpu":
        # lengths one by one, and no type, are what PyTorch takes in half the time
        return like.new_empty(*shape) if dtype is None and shape else like.new_empty(shape, dtype=wanted)
    if nbytes > MEMORY:
        check_memory(f"a result in {wanted}", shape, wanted.itemsize)
    if not POOL.limit or os.name != "posix" or (nbytes >= large_blocks.LEAST and large_blocks.in_use()):
        return like.new_empty(shape, dtype=wanted)
    flat = torch.frombuffer(POOL.lease(nbytes), dtype=wanted, count=nbytes // wanted.itemsize)
    return torch.ops.aten._unsafe_view.default(flat, shape)


def empty_cache() -> None:
    """Give the memory that is kept for later results back to the system. Live tensors are not touched."""
    POOL.clear()
    large_blocks.clear()
