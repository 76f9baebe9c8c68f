"""What calls of kernels of composed matrices share."""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept


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
