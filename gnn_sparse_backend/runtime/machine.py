"""How much memory this machine has, read where Linux says it: psutil takes longer to import than to ask."""

from __future__ import annotations

import re
from pathlib import Path


def _totals() -> tuple[int, int]:
    """Bytes of memory, and of what memory may be swapped out to."""
    try:
        text = Path("/proc/meminfo").read_text()
        memory, swap = (
            int(found[1]) << 10
            for name in ("MemTotal", "SwapTotal")
            if (found := re.search(rf"^{name}: *(\d+) kB$", text, re.M))
        )
    except (OSError, ValueError):  # another system, or one that says it otherwise
        import psutil

        return psutil.virtual_memory().total, psutil.swap_memory().total
    return memory, swap


MACHINE, _SWAP = _totals()
"""Bytes of the machine's memory."""
MEMORY = MACHINE + _SWAP
"""Bytes of this machine's memory and swap. More than that is refused in words, before an allocator does or the system
ends the process."""
