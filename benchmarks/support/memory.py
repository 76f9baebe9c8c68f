"""The memory that a call takes at its peak, measured in a fresh process, and what it leaves behind.

The peak is the resident set's high-water mark, which Linux resets on request (``/proc/self/clear_refs``, proc(5)): it
counts what was really touched, in whichever allocator. Memory that an allocator or our pool of results has kept from
an earlier call would be used again without being counted, so all of it is given back before the measured call.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path


class CannotMeasure(Exception):
    """The measurement is impossible or its process died; the message says why."""


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return _status("VmRSS")


def peak() -> int:
    """The largest value of ``resident()`` since ``reset_peak``."""
    return _status("VmHWM")


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        raise CannotMeasure(f"/proc/self/status has no {field}: peak memory is measured on Linux alone") from None


def reset_peak() -> None:
    """Let ``peak`` start anew from what is resident."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        raise CannotMeasure(f"the high-water mark of memory cannot be reset: {error}") from None


def release() -> None:
    """Give back to the system what is free: garbage, our pool of results, and what the C library keeps."""
    gc.collect()
    if "gnn_sparse_backend" in sys.modules:
        sys.modules["gnn_sparse_backend"].empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def of_call(call: Callable[[], object]) -> dict[str, int]:
    """Bytes of a call that is made twice in this process.

    step: the peak of the second call above what is resident before it. held: what the first call left behind for the
    later ones (formats, transposes, kernels).
    """
    release()
    before = resident()
    call()
    release()
    start = resident()
    reset_peak()
    call()
    return {"step": peak() - start, "held": start - before}


def in_child(function: Callable, *arguments) -> object:
    """``function(*arguments)`` in a fresh process, which sees neither this one's memory nor its pools.

    Function and arguments must be importable and picklable. Raises CannotMeasure when the process dies, say because the
    system had no memory left.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise CannotMeasure("the process was killed, probably for want of memory") from None
