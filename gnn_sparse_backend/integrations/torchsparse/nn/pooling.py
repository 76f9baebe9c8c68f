"""Pooling of whole batches, and cropping, as layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..tensor import SparseTensor
from .functional.crop import spcrop
from .functional.pooling import global_avg_pool, global_max_pool

__all__ = ["GlobalAvgPool", "GlobalMaxPool", "SparseCrop"]


class GlobalAvgPool(nn.Module):
    """(batches, C) the mean of each batch."""

    def forward(self, input: SparseTensor) -> Tensor:
        return global_avg_pool(input)


class GlobalMaxPool(nn.Module):
    """(batches, C) the largest of each batch."""

    def forward(self, input: SparseTensor) -> Tensor:
        return global_max_pool(input)


class SparseCrop(nn.Module):
    """The sites within a box: ``nn.functional.spcrop``."""

    def __init__(self, coords_min: Sequence[int] | None = None, coords_max: Sequence[int] | None = None) -> None:
        super().__init__()
        self.coords_min, self.coords_max = coords_min, coords_max

    def forward(self, input: SparseTensor) -> SparseTensor:
        return spcrop(input, self.coords_min, self.coords_max)
