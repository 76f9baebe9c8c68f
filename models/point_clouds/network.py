"""MinkUNet (Choy et al., 4D spatio-temporal ConvNets, CVPR 2019), a residual U-Net of sparse convolutions, and the
linear model of single points that it is compared with.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnn_sparse_backend import nn as snn

STEM = 32
PLANES = (32, 64, 128, 256), (256, 128, 96, 96)
"""Channels after each stage down and up."""
BLOCKS = {18: ((2, 2, 2, 2), (2, 2, 2, 2)), 34: ((2, 3, 4, 6), (2, 2, 2, 2))}
"""Residual blocks of each stage, by the depth that names the network."""
STEM_KERNEL = 5


class ConvNorm(nn.Sequential):
    """A convolution without bias, batch normalisation, and ReLU."""

    def __init__(self, conv: nn.Module, channels: int):
        super().__init__(conv, snn.BatchNorm(channels), snn.ReLU())


class Residual(nn.Module):
    """Two submanifold convolutions of 3 x 3 x 3, and their input added, by a linear layer where channels change."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.first = ConvNorm(snn.SubMConv(inputs, outputs, 3, bias=False), outputs)
        self.second = snn.SubMConv(outputs, outputs, 3, bias=False)
        self.norm = snn.BatchNorm(outputs)
        self.skip: nn.Module = nn.Identity()
        if inputs != outputs:
            self.skip = nn.Sequential(snn.Linear(inputs, outputs, bias=False), snn.BatchNorm(outputs))
        self.relu = snn.ReLU()

    def forward(self, x: snn.SparseTensor) -> snn.SparseTensor:
        return self.relu(self.norm(self.second(self.first(x))) + self.skip(x))


class MinkUNet(nn.Module):
    """Logits of each voxel, (V, classes).

    A stem of 5 x 5 x 5; four stages of a 2 x 2 x 2 convolution of stride 2 and residual blocks; four stages of a 2 x 2
    x 2 transposed convolution back to the sites before, whose features are joined to it, and residual blocks.

    depth: of ``BLOCKS``. width: of all channels, times those of the paper, in whole eights.
    """

    def __init__(self, features: int, classes: int, depth: int = 18, width: float = 1.0):
        super().__init__()
        stem, down, up = _wide(STEM, width), *([_wide(each, width) for each in planes] for planes in PLANES)
        self.stem = ConvNorm(snn.SubMConv(features, stem, STEM_KERNEL, bias=False), stem)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels = [stem]
        for planes, blocks in zip(down, BLOCKS[depth][0]):
            conv = snn.SparseConv(channels[-1], channels[-1], 2, stride=2, bias=False)
            self.down.append(nn.Sequential(ConvNorm(conv, channels[-1]), _blocks(channels[-1], planes, blocks)))
            channels.append(planes)
        last = channels.pop()
        for planes, blocks in zip(up, BLOCKS[depth][1]):
            conv = snn.SparseConvTranspose(last, planes, 2, stride=2, bias=False)
            self.up.append(nn.ModuleList((ConvNorm(conv, planes), _blocks(planes + channels.pop(), planes, blocks))))
            last = planes
        self.classify = nn.Linear(last, classes)

    def forward(self, x: snn.SparseTensor) -> Tensor:
        x = self.stem(x)
        finer = []
        for stage in self.down:
            finer.append(x)
            x = stage(x)
        for back, blocks in self.up:
            x = back(x)
            x = blocks(x.with_features(torch.cat([x.features, finer.pop().features], 1)))
        return self.classify(x.features)


def _wide(channels: int, width: float) -> int:
    return max(8, 8 * round(channels * width / 8))


def _blocks(inputs: int, outputs: int, count: int) -> nn.Sequential:
    return nn.Sequential(*(Residual(inputs if number == 0 else outputs, outputs) for number in range(count)))


class PointwiseLinear(nn.Module):
    """Logistic regression of single voxels: what can be told from their own features."""

    def __init__(self, features: int, classes: int):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x: snn.SparseTensor) -> Tensor:
        return self.linear(x.features)
