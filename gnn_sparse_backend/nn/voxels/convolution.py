"""Layers that convolve a ``SparseTensor``."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Module, Parameter, init

from ...ops.convolution.api import sparse_conv
from ...structures.coordinates import Window
from .maps import OUTPUTS, Placed, convolved, inverted, to_finer
from .tensor import Axes, KernelSize, SparseTensor, check_sparse


class Convolution(Module):
    """What the layers below have in common: weights, and a kernel map for every tensor.

    Attributes:
        weight: (offsets, c_in / groups, c_out), offsets in row-major order of the kernel, or as they were
            listed. The kernel is cross-correlated as by ``torch.nn.functional.conv3d``.
        bias: (c_out,), or None.
        kernel_size, stride, dilation, padding: for each axis; padding None as below. kernel_size: of the box around the
            offsets.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel_size: KernelSize,
        stride: Axes,
        dilation: Axes,
        groups: int,
        bias: bool,
        dim: int,
        padding: Axes | None,
    ) -> None:
        super().__init__()
        for name, channels in (("c_in", c_in), ("c_out", c_out)):
            if groups < 1 or channels % groups:
                raise ValueError(f"groups must divide the channels, got groups {groups} and {name} {channels}")
        self.window = Window.of(dim, kernel_size, stride, dilation, padding)
        self._kernel = kernel_size if self.window.cells else self.window.kernel
        self.c_in, self.c_out, self.groups, self.dim = c_in, c_out, groups, dim
        self.kernel_size, self.stride, self.dilation = self.window.kernel, self.window.stride, self.window.dilation
        self.padding = None if padding is None else self.window.before
        self.weight = Parameter(torch.empty(self.window.num_offsets, c_in // groups, c_out))
        self.bias = Parameter(torch.empty(c_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights, of the bound that ``torch.nn.Conv3d`` has."""
        bound = 1 / math.sqrt(max(self.weight.shape[0] * self.weight.shape[1], 1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def convolve(self, x: SparseTensor, to: Placed) -> SparseTensor:
        """The tensor at the sites that were found for it."""
        kernel_map, sites, path = to
        features = sparse_conv(x.features, self.weight, kernel_map, self.bias, self.groups)
        return SparseTensor._of(features, sites, path)

    def extra_repr(self) -> str:
        values = {"kernel_size": self._kernel}
        for name, usual in (("stride", 1), ("dilation", 1)):
            if set(getattr(self, name)) != {usual}:
                values[name] = getattr(self, name)
        if self.padding is not None:
            values["padding"] = self.padding
        if self.groups != 1:
            values["groups"] = self.groups
        if self.bias is None:
            values["bias"] = False
        return f"{self.c_in}, {self.c_out}, " + ", ".join(f"{name}={value}" for name, value in values.items())


class SparseConv(Convolution):
    """``out[o] = bias + sum over offsets k of x[stride * o - padding + dilation * k] @ weight[k]``, of the sites that
    exist.

    Equal to ``conv1d``, ``conv2d`` or ``conv3d`` of the dense tensor, or those of more axes, at every site of the
    result, and away from them the dense result is its bias.

    Args:
        c_in, c_out: channels.
        kernel_size: an int, or one for each axis; or ``nn.Cross`` or ``nn.Offsets``, for kernels that are no box.
        stride, dilation: an int, or one for each axis.
        groups: as of ``torch.nn.Conv3d``; ``c_in`` for a depthwise convolution.
        bias: whether there is one.
        dim: axes, 1 to 5.
        padding: None for a kernel in the middle of its site: ``dilation * ((kernel_size - 1) // 2)`` before it and
            ``dilation * (kernel_size // 2)`` behind it; or an int, or one for each axis, as of ``torch.nn.Conv3d``.
        outputs: ``"reached"``: the result has every site of which the kernel covers one of ``x``; ``"occupied"``: the
            cells of the coarser grid which hold a site of ``x``, as in MinkowskiEngine. Sites that are not those of
            ``x`` come in ascending order, column by column.

    ``forward`` takes and returns a ``SparseTensor``.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel_size: KernelSize,
        stride: Axes = 1,
        dilation: Axes = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int = 3,
        *,
        padding: Axes | None = None,
        outputs: str = "reached",
    ) -> None:
        super().__init__(c_in, c_out, kernel_size, stride, dilation, groups, bias, dim, padding)
        if outputs not in OUTPUTS:
            raise ValueError(f"outputs must be one of {OUTPUTS}, got {outputs!r}")
        self.outputs = outputs

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        return self.convolve(x, convolved(x.sites, x.path, self.window, self.outputs))


class SubMConv(Convolution):
    """A submanifold convolution (Graham, Engelcke and van der Maaten, CVPR 2018): as ``SparseConv`` of stride 1, at the
    sites of ``x`` alone, in their order. All such layers of one kernel and dilation share a kernel map.

    Args: as of ``SparseConv``.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel_size: KernelSize,
        dilation: Axes = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int = 3,
    ) -> None:
        super().__init__(c_in, c_out, kernel_size, 1, dilation, groups, bias, dim, None)

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        return self.convolve(x, convolved(x.sites, x.path, self.window, "occupied"))


class SparseConvTranspose(Convolution):
    """``out[stride * o - padding + dilation * k] = bias + sum of x[o] @ weight[k]``: equal to ``conv_transpose1d``,
    ``2d`` or ``3d`` of the dense tensor at every site of the result.

    Args:
        generative: whether the result has every site that the kernel reaches (Gwak, Choy and Savarese, ECCV 2020);
            otherwise it has those that ``x`` came from, or given ones.
        Others: as of ``SparseConv``.

    ``forward(x, coordinates=None)``: the result is at the sites of the last tensor on the way to ``x`` whose stride is
    that of ``x`` divided by the layer's; or at ``coordinates``, another ``SparseTensor`` or (M, 1 + D) integers. With
    the kernel, dilation and padding of the layer that left those sites, it shares that layer's kernel map.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel_size: KernelSize,
        stride: Axes = 1,
        dilation: Axes = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int = 3,
        *,
        padding: Axes | None = None,
        generative: bool = False,
    ) -> None:
        super().__init__(c_in, c_out, kernel_size, stride, dilation, groups, bias, dim, padding)
        self.generative = generative

    def forward(self, x: SparseTensor, coordinates: SparseTensor | Tensor | None = None) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        to = to_finer(x.sites, x.path, self.window, coordinates, self.generative, self.padding is None)
        return self.convolve(x, to)


class SparseInverseConv(Convolution):
    """Back to the sites that the last strided layer before ``x`` came from, over its kernel map, inputs and outputs
    swapped: ``SparseInverseConv3d`` of spconv. ``kernel_size`` is that of this layer.

    Args: as of ``SparseConv``.
    """

    def __init__(
        self, c_in: int, c_out: int, kernel_size: KernelSize, groups: int = 1, bias: bool = True, dim: int = 3
    ) -> None:
        super().__init__(c_in, c_out, kernel_size, 1, 1, groups, bias, dim, None)

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        return self.convolve(x, inverted(x.sites, x.path, self.window))
