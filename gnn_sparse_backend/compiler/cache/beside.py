"""Files that are no kernels and are kept beside them: the parallel launcher, the allocator, what LLVM calls this CPU.

They are entries of a cache of their own in the folder ``beside``, verified as kernels are, and not counted with them.
"""

from __future__ import annotations

import time
from pathlib import Path

from ...system import identity
from ..codegen.kept import Make
from . import folders
from .built import Built
from .disk import BESIDE, DiskCache, Entry
from .errors import UnsafeCacheError
from .key import KernelKey


def keep(disk: DiskCache, name: str, decided_by: str, make: Make) -> Path | None:
    """The file of ``name`` in a cache, which ``make`` writes into a folder where there is none yet; None where the
    cache cannot be written, or others can.
    """
    try:
        own = DiskCache(disk.root / BESIDE, disk.lock_timeout)
    except UnsafeCacheError:
        return None
    key = KernelKey(decided_by, "", identity(), name)
    entry = own.load(key)
    if entry is None:
        with own.lock(key):
            entry = own.load(key, repair=True) or _made(own, key, make)
    return None if entry is None else entry.library


def _made(disk: DiskCache, key: KernelKey, make: Make) -> Entry | None:
    with folders.scratch() as folder:
        start = time.perf_counter()
        built = Built.collect(folder, make(folder))
        return disk.store(key, built, key.symbol, time.perf_counter() - start)
