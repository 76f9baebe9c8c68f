"""What a process needs beside its kernels and TVM's compiler makes is kept on disk, where the kernel cache offers that:
a process whose kernels are all there does without the compiler's library, 110 MiB of memory and 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Make: TypeAlias = Callable[[Path], Path]
"""Makes a file in an empty folder, and returns it."""
Keeper: TypeAlias = Callable[[str, str, Make], "Path | None"]

_keeper: Keeper | None = None


def keep_by(keeper: Keeper) -> None:
    """Have files kept by a function of a name for people, all that decides what is in the file, and what makes it. It
    returns the verified file, or None where none can be kept.
    """
    global _keeper
    _keeper = keeper


def kept(name: str, decided_by: str, make: Make) -> Path | None:
    """A file that an earlier process made, or this one now; None where files are not kept."""
    return None if _keeper is None else _keeper(name, decided_by, make)
