"""Blocks of networks: a convolution, batch normalisation and ReLU, and two of these with a way round them."""

from __future__ import annotations

from torch import nn

from .. import nn as spnn
from ..tensor import SparseTensor
from ..utils.shapes import Axes, make_ntuple

__all__ = ["SparseConvBlock", "SparseConvTransposeBlock", "SparseResBlock"]


class SparseConvBlock(nn.Sequential):
    """A convolution, batch normalisation, and ReLU."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Axes, stride: Axes = 1, dilation: Axes = 1
    ) -> None:
        super().__init__(*_layers(in_channels, out_channels, kernel_size, stride, dilation), spnn.ReLU(True))


class SparseConvTransposeBlock(nn.Sequential):
    """A transposed convolution, batch normalisation, and ReLU."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Axes, stride: Axes = 1, dilation: Axes = 1
    ) -> None:
        layers = _layers(in_channels, out_channels, kernel_size, stride, dilation, transposed=True)
        super().__init__(*layers, spnn.ReLU(True))


class SparseResBlock(nn.Module):
    """Two convolutions, and their input added, by a convolution of one offset where widths or sites change."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Axes, stride: Axes = 1, dilation: Axes = 1
    ) -> None:
        super().__init__()
        first = _layers(in_channels, out_channels, kernel_size, stride, dilation)
        second = _layers(out_channels, out_channels, kernel_size, 1, dilation)
        self.main = nn.Sequential(*first, spnn.ReLU(True), *second)
        same = in_channels == out_channels and set(make_ntuple(stride, 3)) == {1}
        self.shortcut = nn.Identity() if same else nn.Sequential(*_layers(in_channels, out_channels, 1, stride))
        self.relu = spnn.ReLU(True)

    def forward(self, x: SparseTensor) -> SparseTensor:
        y: SparseTensor = self.relu(self.main(x) + self.shortcut(x))
        return y


def _layers(
    inputs: int, outputs: int, kernel_size: Axes, stride: Axes, dilation: Axes = 1, transposed: bool = False
) -> tuple[nn.Module, nn.Module]:
    conv = spnn.Conv3d(inputs, outputs, kernel_size, stride, dilation=dilation, transposed=transposed)
    return conv, spnn.BatchNorm(outputs)
