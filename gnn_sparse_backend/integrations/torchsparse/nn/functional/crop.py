"""Sites within a box."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...conventions import convention
from ...tensor import SparseTensor, check_tensor

__all__ = ["spcrop"]


def spcrop(
    input: SparseTensor, coords_min: Sequence[int] | None = None, coords_max: Sequence[int] | None = None
) -> SparseTensor:
    """The sites whose three coordinates are at least ``coords_min`` and below ``coords_max``, with caches of their
    own. torchsparse 2.1 compares the batch and the first two axes instead.
    """
    cells = check_tensor("spcrop", input).coords[:, convention().axes]
    inside = torch.ones_like(cells, dtype=torch.bool)
    if coords_min is not None:
        inside &= cells >= torch.tensor(tuple(coords_min), device=cells.device)
    if coords_max is not None:
        inside &= cells < torch.tensor(tuple(coords_max), device=cells.device)
    rows = inside.all(1)
    return SparseTensor(input.feats[rows], input.coords[rows], input.stride)
