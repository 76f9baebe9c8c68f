"""Packs: kernels in one file that a process runs without a compiler, and the processors that they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import names_of

if TYPE_CHECKING:
    from .errors import MissingKernelError, PackError
    from .file import Pack, PackedKernel, PackedTarget
    from .in_force import load_pack, packs
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            ".errors": "MissingKernelError PackError",
            ".file": "Pack PackedKernel PackedTarget",
            ".in_force": "load_pack packs",
        },
    )

__all__ = ["MissingKernelError", "Pack", "PackError", "PackedKernel", "PackedTarget", "load_pack", "packs"]
