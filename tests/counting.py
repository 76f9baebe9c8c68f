"""What something does, in numbers that are alike on every machine: clocks of busy ones tell nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Call(NamedTuple):
    """What a function was called with, and gave."""

    arguments: tuple
    named: dict[str, Any]
    result: Any


def calls_of(run: Callable[[], object]) -> int:
    """How many functions are called, those of Python and those of C."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


class Work(TorchDispatchMode):
    """What PyTorch's operators do inside the block: ``calls``, and ``elements`` of all their results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls += 1
        self.elements += sum(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result
