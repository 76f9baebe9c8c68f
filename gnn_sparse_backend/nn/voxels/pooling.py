"""Pooling of a ``SparseTensor``, over windows and over whole batches."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module

from ...ops.convolution.traced_sites import pooled
from ...ops.core.traced import Traced
from ...ops.grouped.segment_reduce import segment_reduce
from ...ops.message.api.aggregate import aggregate
from ...structures.coordinates import Coordinates, Window
from ...structures.graph import Graph
from ...structures.kernel_map import GraphOf, KernelMap
from ...structures.segments import Segments
from .maps import OUTPUTS, convolved, kept, to_finer
from .tensor import Axes, KernelSize, SparseTensor, check_sparse
from .traced import origins, reduced_by_batch


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
        return SparseTensor._of(_pooled(kernel_map, x.features, self.reduce), sites, path)

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


class SparsePoolTranspose(Module):
    """The way back from a pooling: ``out[stride * o - padding + dilation * k] = sum of x[o]`` over the offsets k, which
    is a copy where no two windows overlap. Sites of the result are as of ``SparseConvTranspose``.

    Args:
        kernel_size, stride, dilation, dim, padding: as of ``SparseAvgPool``.
        generative: as of ``SparseConvTranspose``.

    ``forward(x, coordinates=None)``: as of ``SparseConvTranspose``.
    """

    def __init__(
        self,
        kernel_size: KernelSize,
        stride: Axes | None = None,
        dilation: Axes = 1,
        dim: int = 3,
        *,
        padding: Axes | None = None,
        generative: bool = False,
    ) -> None:
        super().__init__()
        stride = kernel_size if stride is None else stride  # type: ignore[assignment]
        self.window = Window.of(dim, kernel_size, stride, dilation, padding)
        self._kernel = kernel_size if self.window.cells else self.window.kernel
        self.centred, self.generative = padding is None, generative

    def forward(self, x: SparseTensor, coordinates: SparseTensor | Tensor | None = None) -> SparseTensor:
        check_sparse(type(self).__name__, x)
        kernel_map, sites, path = to_finer(x.sites, x.path, self.window, coordinates, self.generative, self.centred)
        return SparseTensor._of(_pooled(kernel_map, x.features, "sum"), sites, path)

    def extra_repr(self) -> str:
        return f"kernel_size={self._kernel}, stride={self.window.stride}, dilation={self.window.dilation}"


class GlobalPooling(Module):
    """What the layers below have in common: a row for each batch, zeros for one without sites.

    Args:
        sparse: whether the result is a SparseTensor of one site for each batch, at the origin, not a dense tensor.
    """

    reduce: ClassVar[str]

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.sparse = sparse

    def forward(self, x: SparseTensor) -> Any:
        check_sparse(type(self).__name__, x)
        if torch.compiler.is_compiling():
            features = reduced_by_batch(x.features, x.sites, self.reduce)
            return SparseTensor._of(features, origins(x.sites)) if self.sparse else features
        features = segment_reduce(x.features, _batches(x.sites), self.reduce)
        return SparseTensor._of(features, _origins(x.sites)) if self.sparse else features

    def extra_repr(self) -> str:
        return "sparse=True" if self.sparse else ""


class GlobalMaxPool(GlobalPooling):
    """(batches, C) the largest of each batch; a batch without sites is 0. With ``sparse=True`` a SparseTensor of one
    site for each batch, at the origin.
    """

    reduce = "max"


class GlobalAvgPool(GlobalPooling):
    """(batches, C) the mean of each batch; a batch without sites is 0. ``sparse`` as of ``GlobalMaxPool``."""

    reduce = "mean"


class GlobalSumPool(GlobalPooling):
    """(batches, C) the sum of each batch. ``sparse`` as of ``GlobalMaxPool``."""

    reduce = "sum"


def _pooled(kernel_map: KernelMap | Traced, features: Tensor, reduce: str) -> Tensor:
    if isinstance(kernel_map, Traced):
        return pooled(kernel_map, features, reduce)
    return aggregate(_graph(kernel_map), "x0", [("u", features)], reduce)


@kept
def _graph(kernel_map: KernelMap) -> Graph:
    return kernel_map.derived(GraphOf())


@kept
def _origins(sites: Coordinates) -> Coordinates:
    rows = sites.rows.new_zeros(sites.batch_size, 1 + sites.dim)
    rows[:, 0] = torch.arange(sites.batch_size)
    return Coordinates.of(rows, sites.stride, sites.batch_size)


@kept
def _batches(sites: Coordinates) -> Segments:
    return sites.of_batches
