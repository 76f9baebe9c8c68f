"""For how many threads work is planned."""

from __future__ import annotations

import torch

from ..compiler.packs import packs
from ..deferred import can_compile


def planned_threads() -> int:
    """PyTorch's number of threads; where nothing can be compiled, the nearest that packs were made for.

    Any kernel runs on any number of threads, but which kernel is chosen depends on it.
    """
    threads = torch.get_num_threads()
    return threads if can_compile() else packs.nearest_threads(threads)
