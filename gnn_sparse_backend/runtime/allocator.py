"""Keeping freed memory for the next tensor instead of giving it back to the system."""

from __future__ import annotations

import ctypes
import functools
import platform
import threading

from ..config import REUSE_MEMORY

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_MAX = 128 << 10, 65536
_KEEP = (1 << 31) - 1
_lock = threading.Lock()
# what the user asked for, None while nothing was said; whether a framework is enabled; what the C library was told
_asked: bool | None = None
_held = _reusing = False


def reuse_memory(enable: bool = True) -> bool:
    """Let this process reuse the memory of freed tensors; returns whether the C library could be told so.

    ``gsb.enable`` asks for it by itself until ``gsb.disable``; what this function was told, or else the environment
    variable ``GSB_REUSE_MEMORY`` (0 or 1), goes before that.

    By default every CPU tensor above 32 MB is fresh memory from the system, given back when it is freed, and each
    of its 4 KiB pages costs a fault at the first touch. In a full-graph training step most intermediate tensors are of
    that size, and the faults can take a third of the step, in the framework's own operators too. With this the
    allocator keeps freed memory and hands it out again. No result changes. The price is that memory once used stays
    with the process until ``reuse_memory(False)``, which gives back what is free.

    It is a setting of the whole process. It needs glibc (Linux); elsewhere, and under another malloc (jemalloc and
    tcmalloc reuse memory by themselves), it returns False and does nothing.
    """
    global _asked
    with _lock:
        _asked = bool(enable)
        return _settle()


def reuse_while_enabled(held: bool) -> None:
    """Ask for reused memory while a framework is enabled, where the user has not said otherwise."""
    global _held
    with _lock:
        _held = held
        _settle()


def _settle() -> bool:
    global _reusing
    wanted = _asked if _asked is not None else REUSE_MEMORY.get()
    wanted = _held if wanted is None else wanted
    if wanted == _reusing:
        return _glibc() is not None
    done = _tell(wanted)
    _reusing = wanted
    return done


def _tell(enable: bool) -> bool:
    """Tell the C library; whether it took it."""
    libc = _glibc()
    if libc is None:
        return False
    done = libc.mallopt(_M_MMAP_MAX, 0 if enable else _DEFAULT_MMAP_MAX)
    done &= libc.mallopt(_M_TRIM_THRESHOLD, _KEEP if enable else _DEFAULT_TRIM_THRESHOLD)
    if not enable:
        libc.malloc_trim(0)
    return bool(done)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL(None)
    libc.mallopt.argtypes, libc.mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    libc.malloc_trim.argtypes, libc.malloc_trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return libc
