"""Program, plan and target in, kernel out: from memory, else from a pack, else from disk, else compiled."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...deferred import can_compile
from ...frozen import dataclass
from ..packs.errors import MissingKernelError
from ..packs.in_force import Found, packs
from . import folders
from .background import BACKGROUND, PendingKernel, waits
from .background import built as built_by
from .bounded import KERNELS, KernelCache, shared
from .built import Built
from .counts import Counts
from .disk import DiskCache, Entry
from .errors import KernelBuildError, UnloadableError, UnsafeCacheError, warn_unsafe
from .fork import own_locks
from .kernel import Kernel
from .key import KernelKey

if TYPE_CHECKING:
    from ..codegen import Target

Build: TypeAlias = Callable[[Path], str | os.PathLike[str]]
Load = Callable[[Path], Any]
LoadPacked = Callable[[str, bytes], Any]

MOST_KERNELS = 4096
"""Kernels of a process, some fifty times as many as training a model takes: 100 MB of memory, and a quarter of the
65,530 mappings that Linux allows a process, four for each library."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreStats:
    """Where the kernels asked for came from: ``hits`` memory, ``pack_loads`` packs, ``disk_loads`` disk, ``compiles``
    the compiler.

    The other counts are those of the disk cache (:attr:`DiskCache.stats`).
    """

    hits: int
    disk_loads: int
    compiles: int
    rejected: int = 0
    lost_races: int = 0
    lock_timeouts: int = 0
    unsaved: int = 0
    evicted: int = 0
    pack_loads: int = 0


@dataclass(frozen=True)
class Wanted:
    """A kernel that was asked for: its key, what compiles it, and its name for people."""

    key: KernelKey
    build: Build
    name: str


class KernelStore:
    """Kernels of this process, over packs and a disk cache.

    ``disk``: None keeps kernels in memory only, and so does a cache that others can write, with a warning. ``load``:
    opens a library file and returns a TVM module, whose ``module[symbol]`` is the function. ``load_packed(name,
    library)``: the same of a library's bytes, out of packs; None looks into no pack. ``leave_text()``: has builds leave
    no library from now on, but text that is compiled where it is loaded; False where they do already.

    Threads that ask for the same kernel at once compile it once. If there are more than `MOST_KERNELS`, the older half
    is dropped here; who runs one holds it, and with it its library. A child made by ``os.fork`` keeps the kernels of
    its parent and never waits for a thread that did not come along.
    """

    def __init__(
        self,
        disk: DiskCache | None,
        load: Load,
        load_packed: LoadPacked | None = None,
        leave_text: Callable[[], bool] = lambda: False,
    ) -> None:
        self.disk = disk
        self._leave_text = leave_text
        self._load = load
        self._load_packed = load_packed
        self._wanted: dict[str, Wanted] | None = None
        self._kernels: KernelCache[str, Kernel] = shared(KERNELS, MOST_KERNELS)
        self._counts = Counts("hits", "pack_loads", "disk_loads", "compiles")
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
        anything else is thrown away. It is called only if memory, packs and disk lack the kernel, and once, but where
        the system loads no library: again then, for text.

        ``name`` is for people; ``symbol`` is the function in the library; ``written`` writes further texts for
        :meth:`Kernel.script`, by stage, which follow from program and plan.

        Raises PendingKernel where it would have to be compiled, or is being compiled, and a framework would compute
        what it is for (`for_framework`); what ``build`` raises (then nothing is kept), KernelBuildError if it leaves no
        such library or function, NoKernelError where there is no room to build in, MissingKernelError where it would
        have to be compiled and TVM is not installed, TypeError and ValueError as KernelKey.
        """
        text: Any = getattr(target, "key", target)
        key = KernelKey(program, plan, text, symbol)
        self.note(key, build, name)
        if BACKGROUND.busy and not waits():
            BACKGROUND.check(key.digest)
        kernel = self._kernels.get(key.digest)
        if kernel is None:
            with self._guard:
                lock = self._key_locks.setdefault(key.digest, threading.Lock())
            if not lock.acquire(blocking=waits()):  # another thread compiles it
                raise PendingKernel
            try:
                kernel = self._kernels.get(key.digest)
                if kernel is None:
                    kernel = replace(self._obtain(key, build, name), _written=written or {})
                    return self._kernels.keep(key.digest, kernel)
            except PendingKernel as pending:
                again = functools.partial(self.get, program, plan, target, build)
                pending.make = functools.partial(again, name=name, symbol=symbol, written=written)
                raise
            finally:
                self._key_locks.pop(key.digest, None)  # who waits for it finds the kernel
                lock.release()
        self._counts.add("hits")
        _log.debug("kernel %s %.12s: from memory", name, key.digest)
        return kernel

    @contextlib.contextmanager
    def recording(self) -> Iterator[Mapping[str, Wanted]]:
        """Inside the block note, by identity, which kernels any thread asks for. One block at a time."""
        self._wanted = {}
        try:
            yield self._wanted
        finally:
            self._wanted = None

    def note(self, key: KernelKey, build: Build, name: str) -> None:
        """Count a kernel as asked for, where somebody records."""
        wanted = self._wanted
        if wanted is not None:
            wanted.setdefault(key.identity, Wanted(key, build, name))

    def library(self, wanted: Wanted) -> bytes:
        """The library of a kernel, which need not run here: from disk, else compiled. Raises as `get` does."""
        key = wanted.key
        if self.disk is not None and (entry := self.disk.load(key)) is not None:
            return entry.library.read_bytes()
        if (found := packs.find(key.identity)) is not None:
            return found.read()
        with self._compiled(key, wanted.build, wanted.name) as (_, built, seconds):
            if self.disk is not None:
                self.disk.store(key, built, wanted.name, seconds)
            return built.files[built.library]

    def stats(self) -> StoreStats:
        """Counts since this store was made."""
        disk = {} if self.disk is None else self.disk.stats
        return StoreStats(
            **self._counts.snapshot(),
            **{
                name: disk[name]
                for name in ("rejected", "lost_races", "lock_timeouts", "unsaved", "evicted")
                if name in disk
            },
        )

    def _obtain(self, key: KernelKey, build: Build, name: str) -> Kernel:
        if self._load_packed is not None and (found := packs.find(key.identity)) is not None:
            return self._from_pack(found, key, self._load_packed)
        try:
            return self._from_disk_or_compiled(key, build, name)
        except UnsafeCacheError as error:
            warn_unsafe(error)
            self.disk = None
            return self._from_disk_or_compiled(key, build, name)

    def _from_disk_or_compiled(self, key: KernelKey, build: Build, name: str) -> Kernel:
        kernel = None if self.disk is None else self._from_disk(self.disk, key, repair=False)
        if kernel is not None:
            return kernel
        if not can_compile():
            raise MissingKernelError(_missing(key, name))
        if not waits():
            raise PendingKernel(key.digest)
        if self.disk is None:
            return self._compile(key, build, name)
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

    def _from_pack(self, found: Found, key: KernelKey, load: LoadPacked) -> Kernel:
        start = time.perf_counter()
        name = found.kernel.name
        kernel = self._open(lambda: load(name, found.read()), str(found.pack.path), key, name, "pack", 0.0, {})
        self._counts.add("pack_loads")
        _log.info("kernel %s %.12s: from a pack in %.1f ms", name, key.digest, (time.perf_counter() - start) * 1e3)
        return kernel

    def _compile(self, key: KernelKey, build: Build, name: str) -> Kernel:
        try:
            return self._compile_once(key, build, name)
        except UnloadableError as error:
            if not self._leave_text():
                raise
            _log.info("kernel %s %.12s: compiled again, as text: %s", name, key.digest, error)
            return self._compile_once(key, build, name)

    def _compile_once(self, key: KernelKey, build: Build, name: str) -> Kernel:
        with self._compiled(key, build, name) as (scratch, built, seconds):
            entry = None if self.disk is None else self.disk.store(key, built, name, seconds)
            kept = "not kept on disk" if entry is None else "kept on disk"
            _log.info("kernel %s %.12s: compiled in %.0f ms, %s", name, key.digest, seconds * 1e3, kept)
            if entry is not None:
                with contextlib.suppress(KernelBuildError):  # another process has made room for its own meanwhile, say
                    return self._open_entry(entry, key, "compiled")
            library = scratch / built.library  # once loaded it outlives its file
            try:
                return self._open(lambda: self._load(library), str(library), key, name, "memory", seconds, built.texts)
            except KernelBuildError as error:
                if self.disk is not None and entry is not None:
                    self.disk.reject(key, str(error))
                raise

    @contextlib.contextmanager
    def _compiled(self, key: KernelKey, build: Build, name: str) -> Iterator[tuple[Path, Built, float]]:
        """The folder of what a build left, which is there meanwhile, what it is, and the seconds that it took."""
        with folders.scratch() as folder:
            start = time.perf_counter()
            library = built_by(build, folder)
            seconds = time.perf_counter() - start
            for file, text in (("program.py", key.program), ("plan.txt", key.plan)):
                (folder / file).write_text(text, encoding="utf-8")
            built = Built.collect(folder, library)
            self._counts.add("compiles")
            yield folder, built, seconds

    def _open_entry(self, entry: Entry, key: KernelKey, origin: str) -> Kernel:
        manifest, library = entry.manifest, entry.library
        return self._open(
            lambda: self._load(library), str(library), key, manifest.name, origin, manifest.compile_seconds, entry.texts
        )

    def _open(
        self,
        load: Callable[[], Any],
        where: str,
        key: KernelKey,
        name: str,
        origin: str,
        seconds: float,
        texts: Mapping[str, str],
    ) -> Kernel:
        try:
            module = load()
            entry = module[key.symbol]
        except Exception as error:  # TVM and the dynamic loader raise many kinds
            raise UnloadableError(
                f"kernel {name!r}: function {key.symbol!r} of {where} cannot be loaded: {error}"
            ) from error
        return Kernel(entry, name, key.digest, origin, seconds, key.target, module, texts)


def _missing(key: KernelKey, name: str) -> str:
    """What to say where a kernel can be had from nowhere: which it is, and how it is to be had."""
    buffers = re.findall(r"^\w+ = p\.buffer\((.*)\)$", key.program, re.MULTILINE)
    loaded = ", ".join(f"{pack.path} ({len(pack.kernels)} kernels)" for pack in packs.loaded) or "none is loaded"
    threads = packs.settings.get("threads")
    return (
        f"kernel {name!r} of ({'; '.join(buffers)}) for {key.target} is in no pack, and TVM, which would compile it, "
        f"is not installed. Packs: {loaded}. Make a pack of a run that has this operator, width and type (`gsb pack`"
        f"{f'; these are of runs on {threads} threads' if threads else ''}), or install TVM (pip install apache-tvm)"
    )
