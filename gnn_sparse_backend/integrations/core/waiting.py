"""What is left to a framework because its kernel is being compiled (``GSB_COMPILE=background``)."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ...compiler.cache.background import BACKGROUND, PendingKernel, for_framework, in_background


class UncompiledKernelWarning(UserWarning):
    """A kernel could not be compiled in the background: a framework computes in its place, as long as the process
    lives.
    """


class _OfThread(threading.local):
    """left: what is answered to all that asks while the framework computes a call; None where it computes none."""

    left: Any = None


_now = _OfThread()


def attempted(run: Callable, pending: Any, failed: Any) -> Callable:
    """``run``, but ``pending`` where a kernel that it wants is yet to be compiled, and ``failed`` where that cannot be.

    Numbers that it has drawn by then are drawn again, by the framework. Programs that are traced go by no kernel.
    """
    if not in_background():
        return run

    @functools.wraps(run)
    def attempt(*args, **kwargs):
        if is_dynamo_compiling():
            return run(*args, **kwargs)
        if _now.left is not None:
            return _now.left
        state = torch.get_rng_state()
        try:
            with for_framework():
                return run(*args, **kwargs)
        except PendingKernel as kernel:
            torch.set_rng_state(state)
            return failed if _is_lost(kernel) else pending

    return attempt


@contextlib.contextmanager
def leaving(answer: Any) -> Iterator[None]:
    """Inside the block the framework computes a call: nothing within asks for kernels, but is answered this."""
    before, _now.left = _now.left, answer
    try:
        yield
    finally:
        _now.left = before


def _is_lost(kernel: PendingKernel) -> bool:
    """Have a kernel made, unless somebody does; whether that was tried, and failed, of which the user is told."""
    if kernel.error is not None:
        warnings.warn(
            f"a kernel cannot be compiled, a framework computes in its place: {str(kernel.error).splitlines()[0]}",
            UncompiledKernelWarning,
            stacklevel=5,
        )
        return True
    if kernel.make is not None:
        BACKGROUND.start(kernel.key, kernel.make)
    return False
