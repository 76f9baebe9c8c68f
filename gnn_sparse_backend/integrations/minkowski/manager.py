"""``CoordinateManager``: the sites of all tensors of a network, and the maps between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...nn.voxels.maps import kept
from ...structures.coordinates import Generated, Reached, kernel_map_between
from ...structures.kernel_map import KernelMap
from .enums import CoordinateMapType, GPUMemoryAllocatorType, MinkowskiAlgorithm, RegionType
from .generator import KernelGenerator, Region, Sizes
from .key import CoordinateMapKey
from .points import PointStore


class CoordinateManager(PointStore):
    """The sites of tensors that can be computed with one another.

    A layer finds the sites of its result here. Those of a strided layer are the cells of the coarser grid that hold a
    site; those of a transposed one are the sites of the finer grid that are known already, or, where there are none,
    all that its kernel reaches. Sites that are given at a stride and word which have some get another word.

    Args:
        D: number of axes.
        num_threads, coordinate_map_type, allocator_type, minkowski_algorithm: have no effect.
    """

    def __init__(
        self,
        D: int = 0,
        num_threads: int = -1,
        coordinate_map_type: CoordinateMapType | None = None,
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
    ) -> None:
        super().__init__(D)
        self.minkowski_algorithm = MinkowskiAlgorithm.DEFAULT if minkowski_algorithm is None else minkowski_algorithm

    def stride_map(self, in_key: CoordinateMapKey, stride_key: CoordinateMapKey) -> tuple[Tensor, Tensor]:
        """(sites, the cells of a coarser grid that hold them)."""
        steps = self._ratio(in_key, stride_key)
        region = Region(RegionType.HYPER_CUBE, steps, (1,) * self.D)
        found = self.map_between(in_key, stride_key, region, pooled=True)
        return found.inputs.long(), found.outputs.long()

    def kernel_map(
        self,
        in_key: CoordinateMapKey | Sizes,
        out_key: CoordinateMapKey | Sizes,
        stride: Sizes = 1,
        kernel_size: Sizes = 3,
        dilation: Sizes = 1,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offset: Tensor | None = None,
        is_transpose: bool = False,
        is_pool: bool = False,
    ) -> dict[int, Tensor]:
        """{offset: (2, pairs) int32, the rows of the inputs and those of the outputs} of the offsets that have any.

        in_key, out_key: keys, or strides of which the first sites are meant. Others: as of ``KernelGenerator``.
        """
        given = None if region_offset is None or not len(region_offset) else region_offset
        kernel = KernelGenerator(
            kernel_size, stride, dilation, region_type=region_type, region_offsets=given, dimension=self.D
        )
        keys = self._get_coordinate_map_key(in_key), self._get_coordinate_map_key(out_key)
        found = self.map_between(*keys, kernel.region, is_transpose, is_pool)
        pairs = torch.stack([found.inputs, found.outputs]).int()
        parts = pairs.split(found.indptr.diff().tolist(), 1)
        return {offset: part for offset, part in enumerate(parts) if part.shape[1]}

    get_kernel_map = kernel_map

    @kept
    def map_between(
        self,
        in_key: CoordinateMapKey,
        out_key: CoordinateMapKey,
        region: Region,
        transposed: bool = False,
        pooled: bool = False,
    ) -> KernelMap:
        """The map from sites to others, over a kernel."""
        fine, coarse = (out_key, in_key) if transposed else (in_key, out_key)
        window = region.window(self._ratio(fine, coarse), pooled)
        found = kernel_map_between(self.sites(fine), self.sites(coarse), window)
        return found.transpose() if transposed else found

    def place(
        self,
        in_key: CoordinateMapKey,
        generator: KernelGenerator,
        coordinates: Any = None,
        transposed: bool = False,
        pooled: bool = False,
    ) -> tuple[CoordinateMapKey, KernelMap]:
        """The key of a layer's results, and its map.

        coordinates: None; or where the results are to be, a key, a tensor that has one, or (M, 1 + D) integers.
        """
        if coordinates is None:
            out_key = self._reached(in_key, generator, transposed)
        elif isinstance(coordinates, Tensor):
            stride = self._strided(in_key, generator.kernel_stride, transposed)
            out_key, _ = self.insert_and_map(coordinates, stride)
        else:
            out_key = getattr(coordinates, "coordinate_map_key", coordinates)
        return out_key, self.map_between(in_key, out_key, generator.region, transposed, pooled)

    @kept
    def _reached(self, in_key: CoordinateMapKey, generator: KernelGenerator, transposed: bool) -> CoordinateMapKey:
        """The key of the results of a layer that is given no sites for them."""
        if not transposed and not generator.expand_coordinates:
            return self.stride(in_key, generator.kernel_stride)
        stride, word = self._strided(in_key, generator.kernel_stride, transposed), in_key.name[1]
        name = stride, word if word in self._given else ""
        if name in self._sites:
            if not generator.expand_coordinates:
                return CoordinateMapKey(*name)
            name = self._new_key(*name, self._sites).name
        sites = self.sites(in_key)
        window = generator.region.window(generator.kernel_stride, mirrored=not transposed)
        self._sites[name] = sites.derived(Generated(window, True) if transposed else Reached(window))
        return CoordinateMapKey(*name)

    def _strided(self, in_key: CoordinateMapKey, stride: Sequence[int], transposed: bool) -> tuple[int, ...]:
        """The stride behind a layer."""
        of = in_key.name[0]
        if not transposed:
            return tuple(t * s for t, s in zip(of, stride))
        if any(t % s for t, s in zip(of, stride)):
            raise ValueError(f"a transposed layer of stride {list(stride)} has no finer grid to go to from {in_key}")
        return tuple(t // s for t, s in zip(of, stride))

    def _ratio(self, fine: CoordinateMapKey, coarse: CoordinateMapKey) -> tuple[int, ...]:
        """How many times as coarse a grid is as another."""
        pairs = list(zip(fine.name[0], coarse.name[0]))
        if any(t < 1 or u % t for t, u in pairs):
            raise ValueError(f"a kernel connects sites of a grid with those of a coarser one, got {fine} and {coarse}")
        return tuple(u // t for t, u in pairs)

    def __repr__(self) -> str:
        lines = [f"\t{CoordinateMapKey(*name)}: {len(each.rows)} sites" for name, each in self._sites.items()]
        return "\n".join([f"{type(self).__name__}(", *lines, f"\talgorithm={self.minkowski_algorithm!r})"])
