"""What calls of kernels of composed matrices share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import constant_argument
from ..core.last_run import Named


class Bound:
    """A launch most of whose arguments are the same at every call. own: the names of the others."""

    __slots__ = ("_arguments", "_launch", "_places")

    def __init__(self, launch: Named, given: Mapping[str, Any], own: tuple[str, ...]) -> None:
        constant = {name: constant_argument(x) if isinstance(x, Tensor) else x for name, x in given.items()}
        self._launch, self._places = launch, [launch.names.index(name) for name in own]
        self._arguments = [None if name in own else constant[name] for name in launch.names]

    def __call__(self, *own: Tensor) -> None:
        """Call the kernel with the arguments of these names, in their order."""
        arguments = self._arguments.copy()
        for at, x in zip(self._places, own):
            arguments[at] = x
        self._launch(*arguments)


def padded_rows(x: Tensor, length: int, dim: int) -> Tensor:
    """x with zeros up to that length in a dimension."""
    missing = length - x.shape[dim]
    if not missing:
        return x
    shape = [missing if each == dim else extent for each, extent in enumerate(x.shape)]
    return torch.cat([x, x.new_zeros(shape)], dim)  # PyTorch 2.4 pads no tensor without elements


@kept
def first_tokens(tokens: int, tile: int, dtype: torch.dtype) -> Tensor:
    """The first token of each slice. The last one ends with the tokens, and has some in common with the one before."""
    return torch.arange(0, tokens, tile).clamp(max=tokens - tile).to(dtype)
