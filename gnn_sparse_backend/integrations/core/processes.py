"""Processes that are started while a framework is enabled have it enabled, too.

A process that is forked has what its parent has. One that is spawned, or comes from a fork server, begins with nothing
but what was pickled for it: with its ``Process`` goes what enables there what is enabled here. Loaders of PyG, DGL and
PyTorch, ``torch.multiprocessing.spawn`` and pools of processes all come by there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from .patch import Patches

Enabled = Callable[[], tuple[tuple[str, dict[str, Any]], ...]]
"""The frameworks that are enabled, and how."""

_patches = Patches()


def take_along(enabled: Enabled, enable: Callable[..., None]) -> None:
    """From now on processes have ``enabled()`` enabled by ``enable(name, **how)``, a function imported there."""
    original = BaseProcess.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        self._gsb_enabled = _Baggage(enabled, enable)  # before the rest, so that it is unpickled first
        original(self, *args, **kwargs)

    _patches.set(BaseProcess, "__init__", init)


def leave_behind() -> None:
    """From now on processes are started as Python does."""
    _patches.undo()


class _Baggage:
    """Pickled, it enables where it arrives what is enabled when it leaves."""

    def __init__(self, enabled: Enabled, enable: Callable[..., None]):
        self.enabled, self.enable = enabled, enable

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.enable, self.enabled())


def _unpack(enable: Callable[..., None], frameworks: tuple[tuple[str, dict[str, Any]], ...]) -> None:
    for name, how in frameworks:
        enable(name, **how)
