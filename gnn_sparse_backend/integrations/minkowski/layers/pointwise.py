"""Layers that work on each site, or point, alone: those of PyTorch, applied to the features."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import nn
from torch.nn import Module, Parameter

from ..tensor import Tensor
from .base import MinkowskiModuleBase

T = TypeVar("T", bound=Tensor)


class MinkowskiNonlinearityBase(MinkowskiModuleBase):
    """``module``, a layer of ``MODULE`` with its arguments, of the features."""

    MODULE: ClassVar[type[Module]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = self.MODULE(*args, **kwargs)

    def forward(self, input: T) -> T:
        x: Any = self._rows(input)
        return x._like(self.module(x.F))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.module.extra_repr()})"


class MinkowskiELU(MinkowskiNonlinearityBase):
    """``torch.nn.ELU`` of the features."""

    MODULE = nn.ELU


class MinkowskiHardshrink(MinkowskiNonlinearityBase):
    """``torch.nn.Hardshrink`` of the features."""

    MODULE = nn.Hardshrink


class MinkowskiHardsigmoid(MinkowskiNonlinearityBase):
    """``torch.nn.Hardsigmoid`` of the features."""

    MODULE = nn.Hardsigmoid


class MinkowskiHardtanh(MinkowskiNonlinearityBase):
    """``torch.nn.Hardtanh`` of the features."""

    MODULE = nn.Hardtanh


class MinkowskiHardswish(MinkowskiNonlinearityBase):
    """``torch.nn.Hardswish`` of the features."""

    MODULE = nn.Hardswish


class MinkowskiLeakyReLU(MinkowskiNonlinearityBase):
    """``torch.nn.LeakyReLU`` of the features."""

    MODULE = nn.LeakyReLU


class MinkowskiLogSigmoid(MinkowskiNonlinearityBase):
    """``torch.nn.LogSigmoid`` of the features."""

    MODULE = nn.LogSigmoid


class MinkowskiPReLU(MinkowskiNonlinearityBase):
    """``torch.nn.PReLU`` of the features."""

    MODULE = nn.PReLU


class MinkowskiReLU(MinkowskiNonlinearityBase):
    """``torch.nn.ReLU`` of the features."""

    MODULE = nn.ReLU


class MinkowskiReLU6(MinkowskiNonlinearityBase):
    """``torch.nn.ReLU6`` of the features."""

    MODULE = nn.ReLU6


class MinkowskiRReLU(MinkowskiNonlinearityBase):
    """``torch.nn.RReLU`` of the features."""

    MODULE = nn.RReLU


class MinkowskiSELU(MinkowskiNonlinearityBase):
    """``torch.nn.SELU`` of the features."""

    MODULE = nn.SELU


class MinkowskiCELU(MinkowskiNonlinearityBase):
    """``torch.nn.CELU`` of the features."""

    MODULE = nn.CELU


class MinkowskiGELU(MinkowskiNonlinearityBase):
    """``torch.nn.GELU`` of the features."""

    MODULE = nn.GELU


class MinkowskiSigmoid(MinkowskiNonlinearityBase):
    """``torch.nn.Sigmoid`` of the features."""

    MODULE = nn.Sigmoid


class MinkowskiSiLU(MinkowskiNonlinearityBase):
    """``torch.nn.SiLU`` of the features."""

    MODULE = nn.SiLU


class MinkowskiSoftplus(MinkowskiNonlinearityBase):
    """``torch.nn.Softplus`` of the features."""

    MODULE = nn.Softplus


class MinkowskiSoftshrink(MinkowskiNonlinearityBase):
    """``torch.nn.Softshrink`` of the features."""

    MODULE = nn.Softshrink


class MinkowskiSoftsign(MinkowskiNonlinearityBase):
    """``torch.nn.Softsign`` of the features."""

    MODULE = nn.Softsign


class MinkowskiTanh(MinkowskiNonlinearityBase):
    """``torch.nn.Tanh`` of the features."""

    MODULE = nn.Tanh


class MinkowskiTanhshrink(MinkowskiNonlinearityBase):
    """``torch.nn.Tanhshrink`` of the features."""

    MODULE = nn.Tanhshrink


class MinkowskiThreshold(MinkowskiNonlinearityBase):
    """``torch.nn.Threshold`` of the features."""

    MODULE = nn.Threshold


class MinkowskiSoftmin(MinkowskiNonlinearityBase):
    """``torch.nn.Softmin`` of the features."""

    MODULE = nn.Softmin


class MinkowskiSoftmax(MinkowskiNonlinearityBase):
    """``torch.nn.Softmax`` of the features."""

    MODULE = nn.Softmax


class MinkowskiLogSoftmax(MinkowskiNonlinearityBase):
    """``torch.nn.LogSoftmax`` of the features."""

    MODULE = nn.LogSoftmax


class MinkowskiDropout(MinkowskiNonlinearityBase):
    """``torch.nn.Dropout`` of the features."""

    MODULE = nn.Dropout


class MinkowskiAlphaDropout(MinkowskiNonlinearityBase):
    """``torch.nn.AlphaDropout`` of the features."""

    MODULE = nn.AlphaDropout


class MinkowskiLinear(MinkowskiModuleBase):
    """``torch.nn.Linear`` of the features, as ``linear``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias)

    def forward(self, input: T) -> T:
        x: Any = self._rows(input)
        return x._like(self.linear(x.F))

    def __repr__(self) -> str:
        linear = self.linear
        return (
            f"{type(self).__name__}(in_features={linear.in_features}, out_features={linear.out_features}, "
            f"bias={linear.bias is not None})"
        )


class MinkowskiSinusoidal(MinkowskiModuleBase):
    """``sin(x @ kernel + bias) * coef``."""

    def __init__(self, in_channel: int, out_channel: int) -> None:
        super().__init__()
        self.in_channel, self.out_channel = in_channel, out_channel
        self.kernel = Parameter(torch.rand(in_channel, out_channel))
        self.bias = Parameter(torch.rand(1, out_channel))
        self.coef = Parameter(torch.rand(1, out_channel))

    def forward(self, input: T) -> T:
        x: Any = self._rows(input)
        return x._like(torch.sin(x.F.mm(self.kernel) + self.bias) * self.coef)
