"""The processor's counters of cache misses, by Linux' ``perf_event_open``, where there are any.

Virtual machines mostly have none. They count the calling thread alone: measure on one.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_L1D, _READ, _ACCESSES, _MISSES = 0, 0, 0, 1
_SIZE = 112  # of struct perf_event_attr, version 5
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


class Unavailable(Exception):
    """There is no such counter; the message says why."""


@dataclass(frozen=True)
class Event:
    """What is counted, in the kernel's numbers."""

    kind: int
    config: int


EVENTS: Mapping[str, Event] = {
    "loads": Event(_CACHE, _L1D | _READ << 8 | _ACCESSES << 16),
    "l1_misses": Event(_CACHE, _L1D | _READ << 8 | _MISSES << 16),
    "references": Event(_HARDWARE, 2),
    "misses": Event(_HARDWARE, 3),
}
"""references: lookups of the last level, mostly misses of the second; misses: of the last level."""
PAGE_FAULTS = Event(_SOFTWARE, 2)
"""A counter that the kernel keeps itself, and every machine has."""


class Counter:
    """An open counter of the calling thread. Raises Unavailable."""

    def __init__(self, event: Event) -> None:
        number = _SYSCALL.get(platform.machine())
        if platform.system() != "Linux" or number is None:
            raise Unavailable(f"no perf_event_open on {platform.system()}, {platform.machine()}")
        flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
        attributes = struct.pack("IIQQQQQ", event.kind, _SIZE, event.config, 0, 0, 0, flags).ljust(_SIZE, b"\0")
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.syscall(number, ctypes.c_char_p(attributes), 0, -1, -1, 0)
        if self._file < 0:
            raise Unavailable(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
        self._ioctl = libc.ioctl

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Begin at 0, and count within the block."""
        for request in (_RESET, _ENABLE):
            self._ioctl(self._file, request, 0)
        try:
            yield
        finally:
            self._ioctl(self._file, _DISABLE, 0)

    def read(self) -> int:
        return struct.unpack("q", os.read(self._file, 8))[0]

    def close(self) -> None:
        os.close(self._file)


def why_none() -> str | None:
    """Why misses cannot be counted by the processor here; None where they can."""
    for name, event in EVENTS.items():
        try:
            Counter(event).close()
        except Unavailable as reason:
            return f"{name}: {reason}"
    return None


def count(call) -> dict[str, int]:
    """All events of one call, each counted in a call of its own. Raises Unavailable."""
    found = {}
    for name, event in EVENTS.items():
        counter = Counter(event)
        try:
            with counter.counting():
                call()
            found[name] = counter.read()
        finally:
            counter.close()
    return found
