"""What the planner knows of this machine: its caches, and a name under which measurements are kept."""

from __future__ import annotations

import functools
import hashlib
import os

from .. import system
from ..compiler.packs import packs
from ..deferred import can_compile

# Where the system does not say: a small server's.
_DEFAULT_LAST_LEVEL = 16 << 20
_DEFAULT_PRIVATE = 512 << 10


@functools.cache
def last_level_cache_bytes() -> int:
    """Size of the largest cache of the first CPU, in bytes, as the system reports it."""
    return max(caches().values(), default=_DEFAULT_LAST_LEVEL)


@functools.cache
def private_cache_bytes() -> int:
    """Size of the second-level cache of the first CPU, in bytes."""
    return caches().get(2, _DEFAULT_PRIVATE)


@functools.cache
def threads_sleep() -> bool:
    """Whether OpenMP's threads sleep as soon as they have no work, so that the next parallel loop has the system wake
    them. The variables are read once, as OpenMP does.
    """
    spins = os.environ.get("GOMP_SPINCOUNT", "").strip()
    if spins:
        return spins == "0"
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive"


@functools.cache
def machine_name() -> str:
    """The processor, its cores and caches, in words; times of one machine are worth nothing on another."""
    # two machines of one name may hide different features
    features = hashlib.sha256(" ".join(sorted(system.processor_flags())).encode()).hexdigest()[:8]
    sizes = "/".join(f"{size >> 10}K" for _, size in sorted(caches().items()))
    return f"{system.processor_model()}, {os.cpu_count()} cores, caches {sizes or 'unknown'}, features {features}"


@functools.cache
def caches() -> dict[int, int]:
    """Bytes of the data caches of the first CPU, by level; without a compiler those that packs were made for, since
    another plan might want a kernel that is in none.
    """
    if not can_compile() and (packed := packs.settings.get("caches")):
        return {int(level): size for level, size in packed.items()}
    return system.caches()
