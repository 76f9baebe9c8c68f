"""Blocks whose channels are weighted by what there is in a batch (Hu, Shen and Sun, CVPR 2018)."""

from __future__ import annotations

from torch import nn

from ..layers.broadcast import MinkowskiBroadcastMultiplication
from ..layers.pointwise import MinkowskiLinear, MinkowskiReLU, MinkowskiSigmoid
from ..layers.pooling import MinkowskiGlobalPooling
from ..sparse_tensor import SparseTensor
from .resnet_block import BasicBlock, Bottleneck


class SELayer(nn.Module):
    """Channels times weights in (0, 1), which two linear layers make of their means.

    Args:
        channel: number of channels.
        reduction: how many times fewer there are between the linear layers.
        D: number of axes; has no effect.
    """

    def __init__(self, channel: int, reduction: int = 16, D: int = -1) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            MinkowskiLinear(channel, channel // reduction),
            MinkowskiReLU(inplace=True),
            MinkowskiLinear(channel // reduction, channel),
            MinkowskiSigmoid(),
        )
        self.pooling = MinkowskiGlobalPooling()
        self.broadcast_mul = MinkowskiBroadcastMultiplication()

    def forward(self, x: SparseTensor) -> SparseTensor:
        return self.broadcast_mul(x, self.fc(self.pooling(x)))


class SEBasicBlock(BasicBlock):
    """``BasicBlock`` with ``SELayer`` before the input is added."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        reduction: int = 16,
        D: int = -1,
    ) -> None:
        super().__init__(inplanes, planes, stride, dilation, downsample, dimension=D)
        self.se = SELayer(planes, reduction, D)

    def _changed(self, x: SparseTensor) -> SparseTensor:
        return self.se(super()._changed(x))


class SEBottleneck(Bottleneck):
    """``Bottleneck`` with ``SELayer`` before the input is added."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        D: int = 3,
        reduction: int = 16,
    ) -> None:
        super().__init__(inplanes, planes, stride, dilation, downsample, dimension=D)
        self.se = SELayer(planes * self.expansion, reduction, D)

    def _changed(self, x: SparseTensor) -> SparseTensor:
        return self.se(super()._changed(x))
