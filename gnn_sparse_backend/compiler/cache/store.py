"""Program, plan and target in, kernel out: from memory, else from disk, else compiled."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .bounded import KernelCache, shared
from .built import Built
from .counts import Counts
from .disk import DiskCache, Entry
from .errors import KernelBuildError
from .fork import own_locks
from .kernel import Kernel
from .key import KernelKey

if TYPE_CHECKING:
    from ..codegen import Target

Build: TypeAlias = Callable[[Path], str | os.PathLike[str]]
Load = Callable[[Path], Any]

MOST_KERNELS = 4096
"""Kernels of a process, some fifty times as many as training a model takes: 100 MB of memory, and a quarter of the
65,530 mappings that Linux allows a process, four for each library."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreStats:
    """Where the kernels asked for came from: ``hits`` memory, ``disk_loads`` disk, ``compiles`` the compiler.

    The other counts are those of the disk cache (:attr:`DiskCache.stats`).
    """

    hits: int
    disk_loads: int
    compiles: int
    rejected: int = 0
    lost_races: int = 0
    lock_timeouts: int = 0
    unsaved: int = 0


class KernelStore:
    """Kernels of this process, over a disk cache.

    ``disk``: None keeps kernels in memory only. ``load``: opens a library file and returns a TVM module, whose
    ``module[symbol]`` is the function.

    Threads that ask for the same kernel at once compile it once. If there are more than `MOST_KERNELS`, the older half
    is dropped here; who runs one holds it, and with it its library. A child made by ``os.fork`` keeps the kernels of
    its parent and never waits for a thread that did not come along.
    """

    def __init__(self, disk: DiskCache | None, load: Load) -> None:
        self.disk = disk
        self._load = load
        self._kernels: KernelCache[str, Kernel] = shared("kernels", MOST_KERNELS)
        self._counts = Counts("hits", "disk_loads", "compiles")
        own_locks(self)

    def make_locks(self) -> None:
        self._guard = threading.Lock()
        self._key_locks: dict[str, threading.Lock] = {}

    def get(
        self,
        program: str,
        plan: str,
        target: Target | str,
        build: Build,
        *,
        name: str = "kernel",
        symbol: str = "main",
        written: Mapping[str, Callable[[], str]] | None = None,
    ) -> Kernel:
        """The kernel of a program (its printed text), a plan (its text) and a target.

        ``target``: a :class:`compiler.codegen.target.Target`, or the text of its key.

        ``build(folder)`` compiles into an empty, private ``folder`` (a :class:`pathlib.Path`) and returns the library
        it left there, by name or path: ``lambda folder: build_shared(function, target, folder)``. Texts that it leaves
        beside it (UTF-8, suffixes ``built.TEXT_SUFFIXES``) are kept for :meth:`Kernel.script` under their stems;
        anything else is thrown away. It is called at most once, and only if neither memory nor disk has the kernel.

        ``name`` is for people; ``symbol`` is the function in the library; ``written`` writes further texts for
        :meth:`Kernel.script`, by stage, which follow from program and plan.

        Raises what ``build`` raises (then nothing is kept), KernelBuildError if it leaves no such library or function,
        UnsafeCacheError if others can write the cache folder, TypeError and ValueError as KernelKey.
        """
        text: Any = getattr(target, "key", target)
        key = KernelKey(program, plan, text, symbol)
        kernel = self._kernels.get(key.digest)
        if kernel is None:
            with self._guard:
                lock = self._key_locks.setdefault(key.digest, threading.Lock())
            with lock:
                try:
                    kernel = self._kernels.get(key.digest)
                    if kernel is None:
                        kernel = replace(self._obtain(key, build, name), _written=written or {})
                        return self._kernels.keep(key.digest, kernel)
                finally:
                    self._key_locks.pop(key.digest, None)  # who waits for it finds the kernel
        self._counts.add("hits")
        _log.debug("kernel %s %.12s: from memory", name, key.digest)
        return kernel

    def stats(self) -> StoreStats:
        """Counts since this store was made."""
        disk = {} if self.disk is None else self.disk.stats
        return StoreStats(
            **self._counts.snapshot(),
            **{name: disk[name] for name in ("rejected", "lost_races", "lock_timeouts", "unsaved") if name in disk},
        )

    def _obtain(self, key: KernelKey, build: Build, name: str) -> Kernel:
        if self.disk is None:
            return self._compile(key, build, name)
        kernel = self._from_disk(self.disk, key, repair=False)
        if kernel is not None:
            return kernel
        with self.disk.lock(key):
            # Another process may have compiled it while this one waited; and bad entries are removed under the lock.
            kernel = self._from_disk(self.disk, key, repair=True)
            return self._compile(key, build, name) if kernel is None else kernel

    def _from_disk(self, disk: DiskCache, key: KernelKey, repair: bool) -> Kernel | None:
        start = time.perf_counter()
        entry = disk.load(key, repair=repair)
        if entry is None:
            return None
        try:
            kernel = self._open_entry(entry, key, "disk")
        except KernelBuildError as error:  # the right bytes, but not for this machine
            if repair:
                disk.reject(key, str(error))
            return None
        self._counts.add("disk_loads")
        _log.info("kernel %s %.12s: from disk in %.1f ms", kernel.name, key.digest, (time.perf_counter() - start) * 1e3)
        return kernel

    def _compile(self, key: KernelKey, build: Build, name: str) -> Kernel:
        # Not TemporaryDirectory: its finaliser would delete the folder of a running build from a forked child.
        scratch = Path(tempfile.mkdtemp(prefix="gsb-"))
        try:
            start = time.perf_counter()
            library = build(scratch)
            seconds = time.perf_counter() - start
            for file, text in (("program.py", key.program), ("plan.txt", key.plan)):
                (scratch / file).write_text(text, encoding="utf-8")
            built = Built.collect(scratch, library)
            self._counts.add("compiles")
            entry = None if self.disk is None else self.disk.store(key, built, name, seconds)
            kept = "not kept on disk" if entry is None else "kept on disk"
            _log.info("kernel %s %.12s: compiled in %.0f ms, %s", name, key.digest, seconds * 1e3, kept)
            if self.disk is None or entry is None:  # the loaded library outlives its file
                return self._open(scratch / built.library, key, name, "memory", seconds, built.texts)
            try:
                return self._open_entry(entry, key, "compiled")
            except KernelBuildError as error:
                self.disk.reject(key, str(error))
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _open_entry(self, entry: Entry, key: KernelKey, origin: str) -> Kernel:
        manifest = entry.manifest
        return self._open(entry.library, key, manifest.name, origin, manifest.compile_seconds, entry.texts)

    def _open(
        self, library: Path, key: KernelKey, name: str, origin: str, seconds: float, texts: Mapping[str, str]
    ) -> Kernel:
        try:
            module = self._load(library)
            entry = module[key.symbol]
        except Exception as error:  # TVM and the dynamic loader raise many kinds
            raise KernelBuildError(
                f"kernel {name!r}: function {key.symbol!r} of {library} cannot be loaded: {error}"
            ) from error
        return Kernel(entry, name, key.digest, origin, seconds, key.target, module, texts)
