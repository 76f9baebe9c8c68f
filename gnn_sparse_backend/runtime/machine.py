"""How much memory this machine has."""

from __future__ import annotations

from ..system import memory

MACHINE, _SWAP = memory()
"""Bytes of the machine's memory."""
MEMORY = MACHINE + _SWAP
"""Bytes of this machine's memory and swap. More than that is refused in words, before an allocator does or the system
ends the process."""
