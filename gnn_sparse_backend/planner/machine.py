"""What the planner knows of this machine: its caches, and a name under which measurements are kept."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from pathlib import Path

from ..compiler.packs import packs
from ..deferred import can_compile

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}
# Where the system does not say: a small server's.
_DEFAULT_LAST_LEVEL = 16 << 20
_DEFAULT_PRIVATE = 512 << 10


@functools.cache
def last_level_cache_bytes() -> int:
    """Size of the largest cache of the first CPU, in bytes, as Linux reports it."""
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
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    flags = next((line for line in _lines("/proc/cpuinfo") if line.startswith("flags")), "")
    # two machines of one name may hide different features
    features = hashlib.sha256(flags.encode()).hexdigest()[:8]
    sizes = "/".join(f"{size >> 10}K" for _, size in sorted(caches().items()))
    return f"{model}, {os.cpu_count()} cores, caches {sizes or 'unknown'}, features {features}"


@functools.cache
def caches() -> dict[int, int]:
    """Bytes of the data caches of the first CPU, by level; without a compiler those that packs were made for, since
    another plan might want a kernel that is in none.
    """
    if not can_compile() and (packed := packs.settings.get("caches")):
        return {int(level): size for level, size in packed.items()}
    sizes: dict[int, int] = {}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", "".join(_lines(entry)).strip())
        level = "".join(_lines(entry.with_name("level"))).strip()
        if match and level.isdecimal():
            sizes[int(level)] = max(sizes.get(int(level), 0), int(match[1]) * _UNITS[match[2]])
    return sizes


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
