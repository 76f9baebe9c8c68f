"""Convolutions: weights and names are MinkowskiEngine's, kernels those of ``gsb.sparse_conv``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch.nn import Parameter

from ....ops.convolution.api import sparse_conv
from ..enums import ConvolutionMode, RegionType
from ..generator import KernelGenerator, Sizes
from ..sparse_tensor import SparseTensor
from .base import MinkowskiModuleBase


class _Convolution(MinkowskiModuleBase):
    """What the layers below have in common.

    Attributes:
        kernel: (K, in_channels, out_channels), offsets in the order of ``KernelGenerator``; (in_channels,
            out_channels) of a kernel of one cell and stride 1.
        bias: (1, out_channels), or None.
    """

    is_transpose: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        bias: bool,
        kernel_generator: KernelGenerator | None,
        expand_coordinates: bool,
        convolution_mode: ConvolutionMode,
        dimension: int | None,
    ) -> None:
        super().__init__()
        if dimension is None or dimension < 1:
            raise ValueError(f"dimension must be given, the number of axes, got {dimension}")
        if kernel_generator is None:
            kernel_generator = KernelGenerator(kernel_size, stride, dilation, dimension=dimension)
        kernel_generator.expand_coordinates = expand_coordinates
        self.in_channels, self.out_channels, self.dimension = in_channels, out_channels, dimension
        self.kernel_generator, self.convolution_mode = kernel_generator, convolution_mode
        volume = kernel_generator.kernel_volume
        self.use_mm = volume == 1 and kernel_generator.requires_strided_coordinates
        shape = (in_channels, out_channels) if self.use_mm else (volume, in_channels, out_channels)
        self.kernel = Parameter(torch.empty(shape))
        self.bias = Parameter(torch.empty(1, out_channels)) if bias else None
        self.reset_parameters(self.is_transpose)

    def reset_parameters(self, is_transpose: bool = False) -> None:
        """Uniform weights, whose bound is by the number of channels out of a transposed layer, else into it."""
        channels = self.out_channels if is_transpose else self.in_channels
        _uniform(self, channels * self.kernel_generator.kernel_volume)

    def forward(self, input: SparseTensor, coordinates: Any = None) -> SparseTensor:
        """Convolve.

        coordinates: None; or where the results are to be: a tensor or its ``coordinate_map_key``, or (M, 1 + D)
            integers, the batch first.
        """
        x = self._checked(input, self.dimension)
        bias = None if self.bias is None else self.bias[0]
        if self.use_mm:
            features = x.F.mm(self.kernel)
            return x._like(features if bias is None else features + bias)
        key, kernel_map = x._manager.place(x._key, self.kernel_generator, coordinates, self.is_transpose)
        return SparseTensor._of(sparse_conv(x.F, self.kernel, kernel_map, bias), key, x._manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(in={self.in_channels}, out={self.out_channels}, {_kernel(self)})"


class MinkowskiConvolution(_Convolution):
    """``out[o] = bias + sum over offsets k of x[o + k] @ kernel[k]``, at the sites of ``x`` or, with a stride, at the
    cells of the coarser grid that hold one.

    Args:
        in_channels, out_channels: numbers of channels.
        kernel_size, stride, dilation: an int, or one for each axis.
        bias: whether there is one.
        kernel_generator: the kernel, instead of these three.
        expand_coordinates: whether the result has every site that the kernel reaches.
        convolution_mode: has no effect.
        dimension: number of axes.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = -1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            expand_coordinates,
            convolution_mode,
            dimension,
        )


class MinkowskiConvolutionTranspose(MinkowskiConvolution):
    """``out[o + k] = bias + sum of x[o] @ kernel[k]``, at the sites of the finer grid that are known, and at all that
    the kernel reaches where there are none. Arguments as of ``MinkowskiConvolution``.
    """

    is_transpose = True


class MinkowskiGenerativeConvolutionTranspose(_Convolution):
    """``MinkowskiConvolutionTranspose`` whose result has every site that the kernel reaches (Gwak, Choy and Savarese,
    ECCV 2020). Arguments as of ``MinkowskiConvolution``.
    """

    is_transpose = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = -1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            True,
            convolution_mode,
            dimension,
        )


class MinkowskiChannelwiseConvolution(MinkowskiModuleBase):
    """A convolution of each channel by itself: ``kernel`` is (K, channels). Arguments as of
    ``MinkowskiConvolution``.
    """

    def __init__(
        self,
        in_channels: int,
        kernel_size: Sizes = -1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        if kernel_generator is None:
            kernel_generator = KernelGenerator(kernel_size, stride, dilation, dimension=dimension)
        self.in_channels, self.dimension, self.kernel_generator = in_channels, dimension, kernel_generator
        self.kernel_shape = kernel_generator.kernel_volume, in_channels
        self.kernel = Parameter(torch.empty(self.kernel_shape))
        self.bias = Parameter(torch.empty(1, in_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights."""
        _uniform(self, self.in_channels * self.kernel_generator.kernel_volume)

    def forward(self, input: SparseTensor, coords: Any = None) -> SparseTensor:
        """Convolve. coords: as of ``MinkowskiConvolution``."""
        x = self._checked(input, self.dimension)
        key, kernel_map = x._manager.place(x._key, self.kernel_generator, coords)
        bias = None if self.bias is None else self.bias[0]
        features = sparse_conv(x.F, self.kernel[:, None], kernel_map, bias, self.in_channels)
        return SparseTensor._of(features, key, x._manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(in={self.in_channels}, {_kernel(self)})"


def _uniform(layer: Any, fan: int) -> None:
    bound = 1 / math.sqrt(max(fan, 1))
    with torch.no_grad():
        for parameter in layer.parameters(recurse=False):
            parameter.uniform_(-bound, bound)


def _kernel(layer: Any) -> str:
    kernel = layer.kernel_generator
    custom = kernel.region_type == RegionType.CUSTOM
    shape = f"kernel_volume={kernel.kernel_volume}" if custom else f"kernel_size={kernel.kernel_size}"
    return f"{shape}, stride={kernel.kernel_stride}, dilation={kernel.kernel_dilation}"
