"""Pooling of a ``SparseTensor``, over windows and over whole batches."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import Module

from ...ops.grouped.segment_reduce import segment_reduce
from ...ops.message.api.aggregate import aggregate
from ...structures.coordinates import Coordinates, Window
from ...structures.graph import Graph
from ...structures.kernel_map import GraphOf, KernelMap
from ...structures.segments import Segments
from .maps import OUTPUTS, convolved, kept
from .tensor import Axes, KernelSize, SparseTensor, check_sparse


class Pooling(Module):
    """What the layers below have in common: ``out[o]`` is a reduction of ``x[stride * o - padding + dilation * k]``
    over the offsets k at which there is a site.

    Args:
        kernel_size, dilation: an int, or one for each axis; the kernel also ``nn.Cross`` or ``nn.Offsets``.
        stride: an int, or one for each axis; None: ``kernel_size``.
        dim, padding, outputs: as of ``SparseConv``.
    """

    reduce: ClassVar[str]

    def __init__(
        self,
        kernel_size: KernelSize,
        stride: Axes | None = None,
        dilation: Axes = 1,
        dim: int = 3,
        *,
        padding: Axes | None = None,
        outputs: str = "reached",
    ) -> None:
        super().__init__()
        stride = kernel_size if stride is None else stride  # type: ignore[assignment]
        self.window = Window.of(dim, kernel_size, stride, dilation, padding)
        self._kernel = kernel_size if self.window.cells else self.window.kernel
        if outputs not in OUTPUTS:
            raise ValueError(f"outputs must be one of {OUTPUTS}, got {outputs!r}")
        self.outputs = outputs

    def forward(self, x: SparseTensor) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        kernel_map, sites, path = convolved(x.sites, x.path, self.window, self.outputs)
        features = aggregate(_graph(kernel_map), "x0", [("u", x.features)], self.reduce)
        return SparseTensor._of(features, sites, path)

    def extra_repr(self) -> str:
        return f"kernel_size={self._kernel}, stride={self.window.stride}, dilation={self.window.dilation}"


class SparseMaxPool(Pooling):
    """The largest of the sites in a window, channel by channel; equal ones share the gradient. Cells without a site do
    not count: a window whose sites are all negative has a negative maximum. Arguments as of ``SparseAvgPool``.
    """

    reduce = "max"


class SparseAvgPool(Pooling):
    """The mean of the sites in a window: divided by how many there are, as MinkowskiEngine does, not by the size of the
    window.

    Args:
        kernel_size, dilation: an int, or one for each axis; the kernel also ``nn.Cross`` or ``nn.Offsets``.
        stride: an int, or one for each axis; None: ``kernel_size``.
        dim, padding, outputs: as of ``SparseConv``.
    """

    reduce = "mean"


class SparseSumPool(Pooling):
    """The sum of the sites in a window. Arguments as of ``SparseAvgPool``."""

    reduce = "sum"


class GlobalPooling(Module):
    """What the layers below have in common: (batches, C) a dense tensor, of a batch without sites zeros."""

    reduce: ClassVar[str]

    def forward(self, x: SparseTensor) -> Tensor:
        check_sparse(type(self).__name__, x)
        return segment_reduce(x.features, _batches(x.sites), self.reduce)


class GlobalMaxPool(GlobalPooling):
    """(batches, C) the largest of each batch; a batch without sites is 0."""

    reduce = "max"


class GlobalAvgPool(GlobalPooling):
    """(batches, C) the mean of each batch; a batch without sites is 0."""

    reduce = "mean"


class GlobalSumPool(GlobalPooling):
    """(batches, C) the sum of each batch."""

    reduce = "sum"


@kept
def _graph(kernel_map: KernelMap) -> Graph:
    return kernel_map.derived(GraphOf())


@kept
def _batches(sites: Coordinates) -> Segments:
    return sites.of_batches
