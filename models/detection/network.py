"""VoxelNeXt (Chen et al., CVPR 2023), which finds objects at the sparse voxels of a map seen from above.

It is written with spconv alone and knows nothing of this package: ``gsb.enable("spconv")`` runs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import spconv.pytorch as spconv
import torch
from spconv.pytorch import SparseConvTensor
from torch import Tensor, nn

CHANNELS = (16, 32, 64, 128, 128)
"""After the stem and each of the first four strided stages; the fifth has those of the fourth."""
OUT = 128
STAGES = 6
ABOVE = 3
"""Stages whose sites are seen from above: the fourth, and the two coarser ones behind it."""
STRIDE = 2 ** (STAGES - ABOVE)
"""How many voxels a cell of the map is wide."""


def _norm(channels: int) -> nn.BatchNorm1d:
    return nn.BatchNorm1d(channels, eps=1e-3, momentum=0.01)


def _layer(conv: nn.Module, norm: nn.Module) -> spconv.SparseSequential:
    return spconv.SparseSequential(conv, norm, nn.ReLU())


class Residual(spconv.SparseModule):
    """Two submanifold convolutions of 3 x 3 x 3, and their input added."""

    def __init__(self, channels: int, key: str):
        super().__init__()
        first, second = (spconv.SubMConv3d(channels, channels, 3, indice_key=key) for _ in range(2))
        self.first = _layer(first, _norm(channels))
        self.second = spconv.SparseSequential(second, _norm(channels))

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        y = self.second(self.first(x))
        return y.replace_feature(torch.relu(y.features + x.features))


class VoxelNeXt(nn.Module):
    """The backbone: from voxels to a sparse map seen from above, a ``SparseConvTensor`` of two axes, y and x.

    A stem and six stages of two residual blocks, each but the first behind a convolution of stride 2. The sites of the
    last three are brought to the grid of the fourth, and what stands above each other is summed.

    Args:
        features: of each voxel.
        channels: those of ``CHANNELS`` unless given; the last two are equal. out: of the map.
    """

    def __init__(self, features: int, channels: Sequence[int] = CHANNELS, out: int = OUT):
        super().__init__()
        if len(channels) != STAGES - 1 or channels[-1] != channels[-2]:
            raise ValueError(f"channels must be {STAGES - 1} numbers, the last two of them equal, got {channels!r}")
        widths = (*channels, channels[-1])
        stem = spconv.SubMConv3d(features, widths[0], 3, bias=False, indice_key="stem")
        stages = [spconv.SparseSequential(_layer(stem, _norm(widths[0])), *_blocks(widths[0], 1))]
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), 2):
            conv = spconv.SparseConv3d(inputs, outputs, 3, 2, 1, bias=False, indice_key=f"down{number}")
            stages.append(spconv.SparseSequential(_layer(conv, _norm(outputs)), *_blocks(outputs, number)))
        self.stages = nn.ModuleList(stages)
        self.spread = _layer(spconv.SparseConv2d(widths[-1], out, 3, padding=1, bias=False), _norm(out))
        self.shared = _layer(spconv.SubMConv2d(out, out, 3), nn.BatchNorm1d(out))

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        reached = []
        for stage in self.stages:
            x = stage(x)
            reached.append(x)
        return self.shared(self.spread(from_above(reached[-ABOVE:])))


def _blocks(channels: int, number: int) -> list[nn.Module]:
    return [Residual(channels, f"stage{number}") for _ in range(2)]


def from_above(tensors: Sequence[SparseConvTensor]) -> SparseConvTensor:
    """Sums of all features in a column, on the grid of the first tensor without its axis z; each further one is twice
    as coarse.
    """
    cells = []
    for number, x in enumerate(tensors):
        columns = x.indices[:, [0, 2, 3]]
        cells.append(columns * columns.new_tensor([1, 2**number, 2**number]))
    cells, at = torch.unique(torch.cat(cells), dim=0, return_inverse=True)
    features = torch.cat([x.features for x in tensors])
    summed = features.new_zeros(len(cells), features.shape[1]).index_add(0, at, features)
    return SparseConvTensor(summed, cells, tensors[0].spatial_shape[1:], tensors[0].batch_size)


class Head(nn.Sequential):
    """Numbers of each site of the map: a layer of one offset with ReLU, and a linear one."""

    def __init__(self, channels: int, numbers: int, bias: float = 0.0):
        hidden = _layer(spconv.SubMConv2d(channels, channels, 1), nn.BatchNorm1d(channels))
        super().__init__(hidden, spconv.SubMConv2d(channels, numbers, 1))
        nn.init.constant_(self[1].bias, bias)

    def forward(self, x: SparseConvTensor) -> Tensor:
        return super().forward(x).features


class Detector(nn.Module):
    """The backbone with two heads.

    ``forward`` returns the map's cells (N, 3), batch, y and x, logits (N, classes) of whether a thing of a class is
    there, and heights (N,) in metres.
    """

    def __init__(self, features: int, classes: int, channels: Sequence[int] = CHANNELS, out: int = OUT):
        super().__init__()
        self.backbone = VoxelNeXt(features, channels, out)
        self.things = Head(out, classes, bias=-2.19)  # a tenth, as most cells are empty (Law and Deng, ECCV 2018)
        self.height = Head(out, 1)

    def forward(self, x: SparseConvTensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.backbone(x)
        return y.indices, self.things(y), self.height(y).squeeze(1)
