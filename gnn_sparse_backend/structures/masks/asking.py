"""Functions of PyTorch's FlexAttention, which say of numbers where a pair is, asked about many pairs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Allowed = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query, key) to bool."""


class Indexing(TorchFunctionMode):
    """``x[i, j]`` of tensors i and j without dimensions is an index, not a choice by the numbers that they hold."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            x, at = args
            at = at if isinstance(at, tuple) else (at,)
            if any(isinstance(each, Tensor) for each in at) and all(isinstance(each, (Tensor, int)) for each in at):
                return torch.ops.aten.index(x, [torch.as_tensor(each) for each in at])
        return func(*args, **(kwargs or {}))


def one_by_one(mask_mod: Allowed) -> Allowed:
    """A function of tensors without dimensions as one of vectors."""

    def asked(*places: Tensor) -> Tensor:
        with torch.no_grad(), Indexing():
            return torch.vmap(mask_mod)(*places)

    return asked
