"""Blocks of residual networks (He et al., CVPR 2016)."""

from __future__ import annotations

from torch import nn

from ..layers.convolution import MinkowskiConvolution
from ..layers.normalization import MinkowskiBatchNorm
from ..layers.pointwise import MinkowskiReLU
from ..sparse_tensor import SparseTensor


class BasicBlock(nn.Module):
    """Two convolutions of 3 cells along each axis, and the input.

    Args:
        inplanes, planes: channels of the input and of the result.
        stride: of the first convolution.
        dilation: of both.
        downsample: what is done with the input before it is added; None: nothing.
        bn_momentum: of the norms.
        dimension: number of axes.
    """

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        self.conv1 = MinkowskiConvolution(inplanes, planes, 3, stride, dilation, dimension=dimension)
        self.norm1 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = MinkowskiConvolution(planes, planes, 3, 1, dilation, dimension=dimension)
        self.norm2 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.relu = MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.relu(self._changed(x) + self._as_it_was(x))

    def _changed(self, x: SparseTensor) -> SparseTensor:
        return self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))

    def _as_it_was(self, x: SparseTensor) -> SparseTensor:
        return x if self.downsample is None else self.downsample(x)


class Bottleneck(nn.Module):
    """A convolution of 3 cells along each axis between two of one, and the input. The result has ``4 * planes``
    channels. Arguments as of ``BasicBlock``.
    """

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        wide = planes * self.expansion
        self.conv1 = MinkowskiConvolution(inplanes, planes, 1, dimension=dimension)
        self.norm1 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = MinkowskiConvolution(planes, planes, 3, stride, dilation, dimension=dimension)
        self.norm2 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv3 = MinkowskiConvolution(planes, wide, 1, dimension=dimension)
        self.norm3 = MinkowskiBatchNorm(wide, momentum=bn_momentum)
        self.relu = MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.relu(self._changed(x) + self._as_it_was(x))

    def _changed(self, x: SparseTensor) -> SparseTensor:
        x = self.relu(self.norm1(self.conv1(x)))
        x = self.relu(self.norm2(self.conv2(x)))
        return self.norm3(self.conv3(x))

    def _as_it_was(self, x: SparseTensor) -> SparseTensor:
        return x if self.downsample is None else self.downsample(x)
