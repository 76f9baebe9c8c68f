"""Pooling over windows, their transposes, and over whole batches."""

from __future__ import annotations

from typing import Any, ClassVar

from ....nn.voxels.maps import kept
from ....ops.grouped.segment_reduce import segment_reduce
from ....ops.message.api.aggregate import aggregate
from ....structures.graph import Graph
from ....structures.kernel_map import GraphOf, KernelMap
from ..enums import PoolingMode
from ..generator import KernelGenerator, Sizes
from ..sparse_tensor import SparseTensor
from ..tensor import Tensor
from .base import MinkowskiModuleBase


class _Pooling(MinkowskiModuleBase):
    """What the layers below have in common: a reduction of the sites in the window of each result.

    Args:
        kernel_size, stride, dilation: an int, or one for each axis. A kernel of the stride has the cells of the coarser
            grid for its windows.
        kernel_generator: the window, instead of these.
        dimension: number of axes.
    """

    pooling_mode: ClassVar[PoolingMode]
    is_transpose: ClassVar[bool] = False

    def __init__(
        self,
        kernel_size: Sizes = -1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__()
        if dimension is None or dimension < 1:
            raise ValueError(f"dimension must be given, the number of axes, got {dimension}")
        if kernel_generator is None:
            kernel_generator = KernelGenerator(kernel_size, stride, dilation, dimension=dimension)
        self.kernel_generator, self.dimension = kernel_generator, dimension

    def forward(self, input: SparseTensor, coordinates: Any = None) -> SparseTensor:
        """Pool. coordinates: as of ``MinkowskiConvolution``."""
        x = self._checked(input, self.dimension)
        key, found = x._manager.place(x._key, self.kernel_generator, coordinates, self.is_transpose, pooled=True)
        ties = "first" if self.pooling_mode.reduction == "max" else "even"
        features = aggregate(_graph(found), "x0", [("u", x.F)], self.pooling_mode.reduction, ties=ties)
        return SparseTensor._of(features, key, x._manager)

    def __repr__(self) -> str:
        kernel = self.kernel_generator
        return (
            f"{type(self).__name__}(kernel_size={kernel.kernel_size}, stride={kernel.kernel_stride}, "
            f"dilation={kernel.kernel_dilation})"
        )


class MinkowskiSumPooling(_Pooling):
    """The sum of the sites in a window."""

    pooling_mode = PoolingMode.LOCAL_SUM_POOLING


class MinkowskiAvgPooling(_Pooling):
    """The mean of the sites in a window, by how many there are."""

    pooling_mode = PoolingMode.LOCAL_AVG_POOLING


class MinkowskiMaxPooling(_Pooling):
    """The largest of the sites in a window, channel by channel."""

    pooling_mode = PoolingMode.LOCAL_MAX_POOLING


class MinkowskiPoolingTranspose(_Pooling):
    """The sum of the coarser sites in whose windows a site is; each site is given its cell's features where the kernel
    is the stride. Results are where those of ``MinkowskiConvolutionTranspose`` are.

    Args: as of ``MinkowskiAvgPooling``, and expand_coordinates: whether the result has all sites in the windows.
    """

    pooling_mode = PoolingMode.LOCAL_SUM_POOLING
    is_transpose = True

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes = 1,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        dimension: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, dilation, kernel_generator, dimension)
        if kernel_generator is None:
            self.kernel_generator.expand_coordinates = expand_coordinates


class MinkowskiGlobalPooling(MinkowskiModuleBase):
    """A site for each batch, at the origin, which reduces all of its sites, or points.

    mode: which reduction; how it is computed makes no difference.
    """

    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX) -> None:
        super().__init__()
        self.pooling_mode = PoolingMode(mode)

    def forward(self, input: Tensor, coordinates: Any = None) -> SparseTensor:
        """Pool. coordinates: None; results are at the origin."""
        x = self._rows(input)
        if coordinates is not None:
            raise ValueError(f"{type(self).__name__}: results are at the origin, coordinates must be None")
        _, segments = x._manager.at_origin(x._key)
        mode = self.pooling_mode.reduction
        features = segment_reduce(x.F, segments, mode, ties="even")
        return SparseTensor._of(features, x._manager.origin(), x._manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mode={self.pooling_mode!r})"


class MinkowskiGlobalSumPooling(MinkowskiGlobalPooling):
    """The sum of each batch."""

    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_SUM_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)


class MinkowskiGlobalAvgPooling(MinkowskiGlobalPooling):
    """The mean of each batch."""

    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)


class MinkowskiGlobalMaxPooling(MinkowskiGlobalPooling):
    """The largest of each batch, channel by channel."""

    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_MAX_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)


@kept
def _graph(kernel_map: KernelMap) -> Graph:
    return kernel_map.derived(GraphOf())
