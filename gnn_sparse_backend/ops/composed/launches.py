"""What calls of kernels of composed matrices share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ..core.ran import Launch


class Named(Launch):
    """A kernel that is called with parameters by name."""

    __slots__ = ("_names",)

    def __init__(self, kernel: Kernel, names: tuple[str, ...], plan: str) -> None:
        super().__init__(kernel, plan)
        self._names = names

    def run(self, *given: Mapping[str, Any]) -> None:
        known = {name: x for each in given for name, x in each.items()}
        self(*(known[name] for name in self._names))


def padded_rows(x: Tensor, length: int, dim: int) -> Tensor:
    """x with zeros up to that length in a dimension."""
    missing = length - x.shape[dim]
    return pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing)) if missing else x


@kept
def first_tokens(tokens: int, tile: int, dtype: torch.dtype) -> Tensor:
    """The first token of each slice. The last one ends with the tokens, and has some in common with the one before."""
    return torch.arange(0, tokens, tile).clamp(max=tokens - tile).to(dtype)
