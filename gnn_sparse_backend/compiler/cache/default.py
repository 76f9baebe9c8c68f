"""The store that the rest of the package uses: one per process, over the user's cache folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..codegen.kept import Make, keep_by
from .beside import keep
from .disk import DiskCache
from .errors import UnsafeCacheError, warn_unsafe
from .fork import own_locks
from .kernel import Kernel
from .store import Build, KernelStore, StoreStats

if TYPE_CHECKING:
    from ..codegen import Target


class _Default:
    """Makes the store when it is first needed, so that ``GSB_CACHE_DIR`` may be set until then."""

    def __init__(self) -> None:
        self._store: KernelStore | None = None
        own_locks(self)

    def make_locks(self) -> None:
        self._guard = threading.Lock()

    def __call__(self) -> KernelStore:
        if self._store is None:
            # Importing TVM takes seconds; a process that only looks into the cache does without it.
            from ..codegen.linker import leave_text
            from ..codegen.loaded import load, load_packed

            with self._guard:
                if self._store is None:
                    self._store = KernelStore(_disk(), load, load_packed, leave_text)
        return self._store


def _disk() -> DiskCache | None:
    """The user's cache; None, with a warning, where others can write it."""
    try:
        return DiskCache()
    except UnsafeCacheError as error:
        warn_unsafe(error)
        return None


default_store = _Default()


def _keep(name: str, decided_by: str, make: Make) -> Path | None:
    disk = default_store().disk
    return None if disk is None else keep(disk, name, decided_by, make)


keep_by(_keep)


def get_kernel(
    program: str,
    plan: str,
    target: Target | str,
    build: Build,
    *,
    name: str = "kernel",
    symbol: str = "main",
    written: Mapping[str, Callable[[], str]] | None = None,
) -> Kernel:
    """The kernel of a program, a plan and a target, from memory, packs, disk or ``build``: :meth:`KernelStore.get`."""
    return default_store().get(program, plan, target, build, name=name, symbol=symbol, written=written)


def stats() -> StoreStats:
    """Where this process's kernels came from so far: memory, packs, disk or the compiler."""
    return default_store().stats()
