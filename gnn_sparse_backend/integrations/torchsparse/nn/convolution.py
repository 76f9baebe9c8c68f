"""``Conv3d``: convolutions, strided, transposed, dilated and generative."""

from __future__ import annotations

import math
import warnings

import torch
from torch import nn

from ..conventions import AXES, convention
from ..tensor import SparseTensor
from ..utils.shapes import Axes, make_ntuple
from .functional.conv import conv3d
from .functional.conv_config import ConvConfig

__all__ = ["Conv3d"]


class Conv3d(nn.Module):
    """A convolution of torchsparse, with its parameters: ``kernel`` and ``bias``.

    Args:
        in_channels, out_channels: widths.
        kernel_size, stride: an int, or one for each axis. Of stride 1 the sites stay.
        padding: of a strided layer, as of ``torch.nn.Conv3d``. In the convention of torchsparse 1.4 kernels are in the
            middle of their sites, and it has no effect.
        dilation: an int, or one for each axis. torchsparse takes it and computes as if it were 1, so that this warns: a
            model that was trained there with another wants 1 here.
        bias: whether there is one.
        transposed: whether it goes back to the finer sites that its input came from.
        generative: with ``transposed``, whether it makes all finer sites that its kernel reaches.
        config: a ``ConvConfig``.

    ``kernel`` is (offsets, in_channels, out_channels), offsets as ``nn.utils.get_kernel_offsets`` has them, or
    (in_channels, out_channels) of one offset (in 2.1: and stride 1).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Axes = 3,
        stride: Axes = 1,
        padding: Axes = 0,
        dilation: Axes = 1,
        bias: bool = False,
        transposed: bool = False,
        generative: bool = False,
        config: ConvConfig | None = None,
    ) -> None:
        super().__init__()
        if generative and not transposed:
            raise ValueError("Conv3d: generative=True is of a transposed layer: give transposed=True, too")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = make_ntuple(kernel_size, AXES), make_ntuple(stride, AXES)
        self.padding = tuple(
            (k - 1) // 2 if k % 2 and s == 1 else p
            for k, s, p in zip(self.kernel_size, self.stride, make_ntuple(padding, AXES))
        )
        self.dilation, self.transposed, self.generative, self._config = dilation, transposed, generative, config
        if set(make_ntuple(dilation, AXES)) != {1}:
            warnings.warn(
                f"Conv3d: dilation {dilation} is computed here, where torchsparse itself computes with 1: weights that "
                "were trained there want dilation=1",
                stacklevel=2,
            )
        self.kernel_volume = math.prod(self.kernel_size)
        one = self.kernel_volume == 1 and (convention().finest or set(self.stride) == {1})
        offsets = () if one else (self.kernel_volume,)
        self.kernel = nn.Parameter(torch.empty(*offsets, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform parameters, of the bound that torchsparse has."""
        channels = self.out_channels if self.transposed else self.in_channels
        bound = 1 / math.sqrt(max(channels * self.kernel_volume, 1))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: SparseTensor) -> SparseTensor:
        return conv3d(
            input,
            self.kernel,
            self.kernel_size,
            bias=self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            config=self._config,
            transposed=self.transposed,
            generative=self.generative,
            training=self.training,
        )

    def extra_repr(self) -> str:
        values = {"kernel_size": self.kernel_size}
        usual = {"stride": (1,) * AXES, "dilation": 1, "transposed": False, "generative": False}
        values |= {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        if self.bias is None:
            values["bias"] = False
        return f"{self.in_channels}, {self.out_channels}, " + ", ".join(f"{k}={v}" for k, v in values.items())
