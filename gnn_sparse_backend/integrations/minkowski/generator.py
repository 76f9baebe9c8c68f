"""``KernelGenerator``: which cells around a site a kernel has, in the order in which its weights are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...frozen import dataclass
from ...structures.coordinates import Offsets, Window
from .enums import RegionType

Sizes: TypeAlias = "int | Sequence[int] | np.ndarray | Tensor"
"""One number for all axes, or one for each."""


def convert_to_int_list(arg: Sizes, dimension: int) -> list[int]:
    """One int for each axis. Raises ValueError unless ``arg`` is a number, or has one for each."""
    if np.ndim(arg) == 0:
        return [int(arg)] * dimension  # type: ignore[arg-type]
    found = [int(x) for x in arg]  # type: ignore[union-attr]
    if len(found) != dimension:
        raise ValueError(f"expected a number, or one for each of {dimension} axes, got {arg!r}")
    return found


def convert_to_int_tensor(arg: Sizes, dimension: int) -> Tensor:
    """(D,) int32 of ``convert_to_int_list``."""
    return torch.tensor(convert_to_int_list(arg, dimension), dtype=torch.int32)


def get_kernel_volume(
    region_type: RegionType, kernel_size: Sequence[int], region_offset: Any, axis_types: Any, dimension: int
) -> int:
    """Count the cells of a kernel. Raises ValueError that quotes what is not a kernel."""
    if axis_types is not None:
        raise ValueError(f"axis_types must be None, as in MinkowskiEngine 0.5, got {axis_types!r}")
    if region_type == RegionType.CUSTOM:
        if not isinstance(region_offset, Tensor) or region_offset.dim() != 2 or region_offset.shape[1] != dimension:
            found = tuple(region_offset.shape) if isinstance(region_offset, Tensor) else region_offset
            raise ValueError(f"a custom region wants region_offsets of shape (K, {dimension}), got {found!r}")
        return len(region_offset)
    if region_offset is not None and len(region_offset):
        raise ValueError("region_offsets are those of RegionType.CUSTOM; give that, or no offsets")
    if any(k < 1 for k in kernel_size):
        raise ValueError(f"kernel_size must be positive, got {list(kernel_size)}")
    if region_type == RegionType.HYPER_CUBE:
        return math.prod(kernel_size)
    if any(k % 2 == 0 for k in kernel_size):
        raise ValueError(f"kernel_size of a hyper-cross must be odd, got {list(kernel_size)}")
    return sum(k - 1 for k in kernel_size) + 1


@dataclass(frozen=True)
class Region:
    """The cells of a kernel. offsets: those of ``RegionType.CUSTOM``."""

    kind: RegionType
    size: tuple[int, ...]
    dilation: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...] = ()

    def window(self, stride: Sequence[int], pooled: bool = False, mirrored: bool = False) -> Window:
        """The window of a layer of this stride, of grids whose axes are in reverse order: offsets have the last axis
        fastest there.

        pooled: of a pooling layer, which has a kernel of its stride in the cells that divide the grid. mirrored: of the
        cells at the opposite sides of a site.
        """
        size, dilation, stride = (tuple(reversed(x)) for x in (self.size, self.dilation, tuple(stride)))
        if self.kind != RegionType.HYPER_CUBE and not (pooled and stride == size):
            sign = -1 if mirrored else 1
            rows = [[sign * c for c in reversed(offset)] for offset in self.offsets or self._cross()]
            return Window.of(len(stride), Offsets(rows), stride, dilation)
        reach = tuple(d * (k - 1) for k, d in zip(size, dilation))
        before = tuple(r // 2 if k % 2 else 0 for k, r in zip(size, reach))
        if pooled and stride == size:
            dilation, before = (1,) * len(size), (0,) * len(size)
        if mirrored:
            before = tuple(r - b for r, b in zip(reach, before))
        return Window(size, stride, dilation, before, tuple(r - b for r, b in zip(reach, before)))

    def _cross(self) -> list[list[int]]:
        """The site; then for each axis what is ahead, from near to far, and what is behind, from far to near."""
        found = [[0] * len(self.size)]
        for axis, size in enumerate(self.size):
            for step in (*range(1, size // 2 + 1), *range(-(size // 2), 0)):
                found.append([step if each == axis else 0 for each in range(len(self.size))])
        return found


class KernelGenerator:
    """The shape of a kernel.

    Args:
        kernel_size, stride, dilation: an int, or one for each axis.
        region_type: all cells of a box, those on the axes through its middle, or the given ones.
        region_offsets: (K, D) integers of ``RegionType.CUSTOM``, which count in cells of the input's grid.
        expand_coordinates: whether the result has every site that the kernel reaches.
        is_transpose: has no effect, as in MinkowskiEngine.
        axis_types: None.
        dimension: D.

    Offsets are numbered as MinkowskiEngine does. Those of a box have the first axis fastest, and begin at the site
    where the kernel is even and ``kernel_size // 2`` before it where it is odd; those of a cross are the site, then for
    each axis those ahead and those behind.
    """

    def __init__(
        self,
        kernel_size: Sizes = -1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        is_transpose: bool = False,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offsets: Tensor | None = None,
        expand_coordinates: bool = False,
        axis_types: Any = None,
        dimension: int = -1,
    ) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be given, the number of axes, got {dimension}")
        self.region_type = RegionType(region_type)
        self.kernel_size = convert_to_int_list(kernel_size, dimension)
        self.kernel_stride = convert_to_int_list(stride, dimension)
        self.kernel_dilation = convert_to_int_list(dilation, dimension)
        self.kernel_volume = get_kernel_volume(
            self.region_type, self.kernel_size, region_offsets, axis_types, dimension
        )
        self.region_offsets = torch.empty(0, dtype=torch.int32) if region_offsets is None else region_offsets.int()
        self.axis_types = axis_types
        self.dimension = dimension
        self.requires_strided_coordinates = set(self.kernel_stride) == {1}
        self.expand_coordinates = expand_coordinates

    @property
    def region(self) -> Region:
        """The kernel's cells, without its stride."""
        offsets = tuple(map(tuple, self.region_offsets.tolist())) if self.region_type == RegionType.CUSTOM else ()
        return Region(self.region_type, tuple(self.kernel_size), tuple(self.kernel_dilation), offsets)

    def get_kernel(self, tensor_stride: Sizes, is_transpose: bool) -> tuple[RegionType, Tensor, int]:
        """(type, offsets of a custom one, number of cells)."""
        return self.region_type, self.region_offsets, self.kernel_volume

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kernel_size={self.kernel_size}, kernel_stride={self.kernel_stride}, "
            f"kernel_dilation={self.kernel_dilation}, region_type={self.region_type!r}, "
            f"expand_coordinates={self.expand_coordinates}, dimension={self.dimension})"
        )


class KernelRegion(NamedTuple):
    """The shape of a kernel as a tuple, which MinkowskiEngine has beside the generator."""

    kernel_size: Sizes
    kernel_stride: Sizes
    kernel_dilation: Sizes
    region_type: RegionType
    offset: Tensor | None
    D: int
