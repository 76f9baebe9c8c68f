"""Keeping freed memory for the next tensor instead of giving it back to the system."""

from __future__ import annotations

import threading

from ..config import REUSE_MEMORY
from .large_blocks import blocks
from .pool import POOL, SCARCE_LIMIT

_lock = threading.Lock()
# what the user asked for, None while nothing was said; whether a framework is enabled; what the allocator was told;
# whether memory is scarce
_asked: bool | None = None
_held = _reusing = _scarce = False


def reuse_memory(enable: bool = True) -> bool:
    """Let this process reuse the memory of freed tensors; returns whether that could be done.

    ``gsb.enable`` asks for it by itself until ``gsb.disable``; what this function was told, or else the environment
    variable ``GSB_REUSE_MEMORY`` (0 or 1), goes before that.

    By default every CPU tensor above 32 MB is fresh memory from the system, given back when it is freed, and each
    of its 4 KiB pages costs a fault at the first touch. In a full-graph training step most intermediate tensors are of
    that size, and the faults can take a third of the step, in the framework's own operators too. With this an
    allocator of ours, of huge pages, serves tensors from 4 MiB on, and hands the memory of those that were freed out
    again. No result changes. What is alive and what is kept are together at most nine eighths of the most that was
    alive at a time, under ``gsb.enable(..., memory="low")`` at most that; at most ``GSB_POOL_BYTES`` are kept, by
    default a sixteenth of the machine's memory, and half of it with ``memory="low"``. ``gsb.empty_cache()`` gives them
    back.

    It is a setting of the whole process. It needs Linux and a PyTorch whose allocators lie in memory as they are known
    here, which is looked at; elsewhere, and where another allocator was put in the place of PyTorch's, it returns False
    and does nothing.
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


def keep_little(scarce: bool) -> None:
    """Keep no memory beyond the most that was in use at a time, or an eighth of that again."""
    global _scarce
    with _lock:
        changed, _scarce = scarce != _scarce, scarce
        if changed and _reusing:
            _tell(True)


def _settle() -> bool:
    global _reusing
    wanted = _asked if _asked is not None else REUSE_MEMORY.get()
    wanted = _held if wanted is None else wanted
    if wanted == _reusing:
        return blocks() is not None
    done = _tell(wanted)
    _reusing = wanted
    return done


def _tell(enable: bool) -> bool:
    """Tell the allocator; whether it took it."""
    large = blocks()
    limit = SCARCE_LIMIT if _scarce else POOL.limit
    return large is not None and large.use(limit if enable else 0, _scarce)
