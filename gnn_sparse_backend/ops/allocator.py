"""Keeping freed memory for the next tensor instead of giving it back to the system."""
from __future__ import annotations

import ctypes
import functools
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_MAX = 128 << 10, 65536
_KEEP = (1 << 31) - 1


def reuse_memory(enable: bool = True) -> bool:
    """Let this process reuse the memory of freed tensors; returns whether the C library could be told so.

    By default every CPU tensor above 32 MB is fresh memory from the system, given back when it is freed, and each
    of its 4 KiB pages costs a fault at the first touch. In a full-graph training step most intermediate tensors are of
    that size, and the faults can take a third of the step, in the framework's own operators too. With this the
    allocator keeps freed memory and hands it out again. No result changes. The price is that memory once used stays with the
    process until ``reuse_memory(False)``, which gives back what is free.

    It is a setting of the whole process, so nothing but this call turns it on. It needs glibc (Linux); elsewhere, and
    under another malloc (jemalloc and tcmalloc reuse memory by themselves), it returns False and does nothing.
    """
    libc = _glibc()
    if libc is None:
        return False
    done = libc.mallopt(_M_MMAP_MAX, 0 if enable else _DEFAULT_MMAP_MAX)
    done &= libc.mallopt(_M_TRIM_THRESHOLD, _KEEP if enable else _DEFAULT_TRIM_THRESHOLD)
    if not enable:
        libc.malloc_trim(0)
    return bool(done)


@functools.lru_cache(maxsize=None)
def _glibc() -> ctypes.CDLL | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL(None)
    libc.mallopt.argtypes, libc.mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    libc.malloc_trim.argtypes, libc.malloc_trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return libc
