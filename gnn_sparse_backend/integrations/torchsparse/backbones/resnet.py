"""``SparseResNet21D``: residual stages, each at half the resolution of the one before it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ..tensor import SparseTensor
from ..utils.shapes import Axes
from .blocks import SparseConvBlock, SparseResBlock

__all__ = ["SparseResNet21D"]

STAGES = ((3, 16, 3, 1), (3, 32, 3, 2), (3, 64, 3, 2), (3, 128, 3, 2), (1, 128, (1, 3, 1), (1, 2, 1)))
"""Blocks, channels, kernel and stride of each stage."""


class SparseResNet(nn.ModuleList):
    """Stages of a block with a stride and residual blocks behind it. ``forward`` gives the tensors of all.

    Args:
        blocks: as ``STAGES``.
        in_channels: of the input.
        width_multiplier: of all other channels.
    """

    def __init__(
        self,
        blocks: Sequence[tuple[int, int, Axes, Axes]],
        *,
        in_channels: int = 4,
        width_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.blocks, self.in_channels, self.width_multiplier = blocks, in_channels, width_multiplier
        for count, channels, kernel_size, stride in blocks:
            width = int(channels * width_multiplier)
            stage: list[nn.Module] = [SparseConvBlock(in_channels, width, kernel_size, stride)]
            stage += [SparseResBlock(width, width, kernel_size) for _ in range(count - 1)]
            self.append(nn.Sequential(*stage))
            in_channels = width

    def forward(self, x: SparseTensor) -> list[SparseTensor]:
        found = []
        for stage in self:
            x = stage(x)
            found.append(x)
        return found


class SparseResNet21D(SparseResNet):
    """21 layers in five stages. Args: as of ``SparseResNet``, without ``blocks``."""

    def __init__(self, *, in_channels: int = 4, width_multiplier: float = 1.0) -> None:
        super().__init__(STAGES, in_channels=in_channels, width_multiplier=width_multiplier)
