"""Pooling of whole batches."""

from __future__ import annotations

from torch import Tensor

from ..... import nn
from ....core.counters import ours
from ...sites import of_package
from ...tensor import SparseTensor, check_tensor

__all__ = ["global_avg_pool", "global_max_pool"]


def global_avg_pool(inputs: SparseTensor) -> Tensor:
    """(batches, C) the mean of each batch; a batch without sites is 0."""
    return _pool("GlobalAvgPool", inputs, nn.GlobalAvgPool)


def global_max_pool(inputs: SparseTensor) -> Tensor:
    """(batches, C) the largest of each batch, channel by channel; a batch without sites is 0."""
    return _pool("GlobalMaxPool", inputs, nn.GlobalMaxPool)


def _pool(name: str, x: SparseTensor, layer: type[nn.GlobalAvgPool] | type[nn.GlobalMaxPool]) -> Tensor:
    found: Tensor = layer()(of_package(check_tensor(name, x)))
    ours("torchsparse", name)
    return found
