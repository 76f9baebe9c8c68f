"""How much room kernels may take on disk, and which go where they take more: those that were not used for longest.

An entry was last used at the time of its folder, which each process sets that loads it. What other versions of the
package or of TVM wrote has keys that this one never asks for: it goes when nobody has used it for `UNUSED_DAYS`, or at
once where somebody asks for that (``gsb cache prune``). An entry goes by a rename, as a bad one does, so that a process
finds all of it or nothing, and compiles what is gone; a library that a process has loaded stays with the process.

Looking through a folder of 10,000 kernels takes 0.7 s. So a process looks before it keeps its first kernel, unless
another has within `LOOKED_SECONDS`, and again behind each `SHARE` of the bound that it has written: what there is may
exceed the bound by about that share for each process that writes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ...config import CACHE_BYTES
from ...deferred import filelock
from ...frozen import dataclass
from . import folders
from .key import DIGEST

USUAL = 2_000_000_000
"""Bytes on disk without ``GSB_CACHE_BYTES``, of some 50,000 kernels."""
UNUSED_DAYS = 30
LOOKED_SECONDS = 600.0
SHARE = 1 / 8
LOW = 0.9
"""What is left of the bound where it was exceeded, so that not each kernel makes room for itself alone."""
LOCK = "prune.lock"


def bound() -> int:
    """Bytes that kernels may take on disk: ``GSB_CACHE_BYTES``, or `USUAL`."""
    chosen = CACHE_BYTES.get()
    return USUAL if chosen is None else chosen


@dataclass(frozen=True)
class Use:
    """An entry on disk: its folder, the bytes that it takes, and when it was last used, in seconds of the clock."""

    folder: Path
    bytes: int
    used: float


@dataclass(frozen=True)
class Usage:
    """The entries of a root, those that were not used for longest first."""

    entries: tuple[Use, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    @classmethod
    def of(cls, root: Path) -> Usage:
        """What a root has now; nothing where there is none. Raises OSError where it cannot be read."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(root) as listed:
            for each in listed:
                if DIGEST.fullmatch(each.name):
                    with contextlib.suppress(OSError):  # removed by another process meanwhile, or no folder
                        used = each.stat(follow_symlinks=False).st_mtime
                        found.append(Use(root / each.name, _bytes_of(each.path), used))
        return cls(tuple(sorted(found, key=lambda entry: entry.used)))


def note_use(folder: Path) -> None:
    """Set the time at which an entry was last used, where that can be written."""
    with contextlib.suppress(OSError):
        os.utime(folder)


@dataclass(frozen=True)
class Pruned:
    """What was removed, other versions' entries and those not used for longest; and what is left."""

    outdated: int
    oldest: int
    freed: int
    left: Usage


def prune(root: Path, locks: Path, most: int, outdated: Callable[[Path], bool], unused_days: float) -> Pruned | None:
    """Make room in a root until its entries take at most ``most`` bytes; None where another process is at it.

    outdated: whether an entry is of another version: it goes if it was not used for ``unused_days``.

    Raises OSError where the root cannot be read or no lock be had.
    """
    os.makedirs(locks, mode=0o700, exist_ok=True)
    try:
        with filelock.FileLock(locks / LOCK, timeout=0, mode=0o600):
            return _prune(root, locks, most, outdated, unused_days)
    except filelock.Timeout:
        return None


def _prune(root: Path, locks: Path, most: int, outdated: Callable[[Path], bool], unused_days: float) -> Pruned:
    before, now, gone = Usage.of(root), time.time(), set[Path]()

    def remove(use: Use) -> bool:
        with contextlib.suppress(OSError):
            folders.remove(use.folder)
            gone.add(use.folder)
        return use.folder in gone

    unused = [use for use in before.entries if use.used <= now - 86400 * unused_days and outdated(use.folder)]
    left = before.bytes - sum(use.bytes for use in unused if remove(use))
    of_others, goal = len(gone), most if left <= most else int(LOW * most)
    for use in before.entries:
        if left > goal and use.folder not in gone and remove(use):
            left -= use.bytes
    _drop_locks(locks, now)
    os.utime(locks / LOCK)
    kept = tuple(use for use in before.entries if use.folder not in gone)
    return Pruned(of_others, len(gone) - of_others, before.bytes - left, Usage(kept))


def looked_lately(locks: Path) -> bool:
    """Whether some process has made room within `LOOKED_SECONDS`, which the time of its lock tells."""
    try:
        return time.time() - os.stat(locks / LOCK).st_mtime < LOOKED_SECONDS
    except OSError:
        return False


def _drop_locks(locks: Path, now: float) -> None:
    """Remove the locks of kernels that nobody has compiled for an hour. Whoever holds one goes on, and another process
    that compiles the same meanwhile loses the race.
    """
    with contextlib.suppress(OSError), os.scandir(locks) as listed:
        for each in listed:
            with contextlib.suppress(OSError):
                if each.name != LOCK and now - each.stat().st_mtime > 3600:
                    os.unlink(each.path)


def _bytes_of(folder: str) -> int:
    """What a folder's files take on disk."""
    with os.scandir(folder) as listed:
        status = [each.stat(follow_symlinks=False) for each in listed]
    return sum(512 * each.st_blocks if hasattr(each, "st_blocks") else each.st_size for each in status)
