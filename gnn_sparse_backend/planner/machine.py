"""What the planner knows of this machine's memory."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}
# Where the system does not say: a small server's.
_DEFAULT_LAST_LEVEL = 16 << 20


@functools.lru_cache(maxsize=None)
def last_level_cache_bytes() -> int:
    """Size of the largest cache of the first CPU, in bytes, as Linux reports it."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            match = re.fullmatch(r"(\d+)([KMG]?)", entry.read_text().strip())
        except OSError:
            continue
        if match:
            sizes.append(int(match[1]) * _UNITS[match[2]])
    return max(sizes, default=_DEFAULT_LAST_LEVEL)
