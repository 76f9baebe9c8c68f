"""The kernel map of a layer and where its outputs are, by the rules of torchsparse.

Offsets are numbered with the last axis fastest where the kernel has an even number of them, and with the first axis
fastest where it is odd, so maps of odd kernels are numbered anew and weights stay as they were saved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...compiler.cache import bounded
from ...formats.counts import prefix_sums
from ...frozen import dataclass
from ...nn.voxels.maps import kept
from ...structures.coordinates import Coordinates, Generated, Occupied, Window, kernel_map_between
from ...structures.coordinates.sites import finer
from ...structures.derived import Derived
from ...structures.kernel_map import KernelMap
from .conventions import AXES, convention
from .sites import Covered, coords_of, range_of, sites_at, sites_of
from .tensor import SparseTensor, get_allow_negative_coordinates

Range = tuple[int, ...] | None


class Placed(NamedTuple):
    """What a strided layer leaves in ``kmaps``: where its outputs are."""

    coords: Tensor
    spatial_range: Range


class Place(NamedTuple):
    """Where the outputs of a layer are, and the map to them."""

    kernel_map: KernelMap
    coords: Tensor
    stride: tuple[int, ...]
    spatial_range: Range


class Layer(NamedTuple):
    """What a layer's kernel is like, axis by axis, and what the mode of its map is."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    centred: bool
    occupied: bool

    @property
    def keeps_sites(self) -> bool:
        return set(self.stride) == {1}


@bounded.kept
def window_of(layer: Layer) -> Window:
    """Place the kernel in the middle of its site, in the modes that say so and where an odd one keeps the sites; an
    even one that keeps them begins there; any other begins before it by the padding.
    """
    centred = layer.centred or (layer.keeps_sites and all(k % 2 for k in layer.kernel))
    before = (0,) * AXES if layer.keeps_sites else layer.padding
    return Window.of(AXES, layer.kernel, layer.stride, layer.dilation, None if centred else before)


@kept
def forward(x: SparseTensor, layer: Layer) -> Place:
    """Place the outputs of a layer that keeps the sites or goes to a coarser grid."""
    fine = sites_of(x)
    window, caches = window_of(layer), x._caches
    keep_coords(x)
    if layer.keeps_sites:
        return Place(_numbered(fine, fine, window), x.coords, x.stride, x.spatial_range)
    coarse = _coarse(fine, layer)
    found = caches.kmaps.get((x.stride, window))
    if found is None or sites_at(found.coords, coarse.stride, found.spatial_range) is not coarse:
        spatial_range = range_of(coarse)
        found = Placed(coords_of(coarse, spatial_range), spatial_range)
        caches.kmaps[x.stride, window] = found
    return Place(_numbered(fine, coarse, window), found.coords, coarse.stride, found.spatial_range)


@kept
def back(x: SparseTensor, layer: Layer) -> Place:
    """Place the outputs of a transposed layer at the finer sites that the tensor came from."""
    coarse, stride = sites_of(x), _finer(x, layer)
    there = x._caches.cmaps.get(stride)
    if there is None:
        raise ValueError(
            f"a transposed Conv3d wants a tensor that came from one of stride {stride}, but this one, of stride "
            f"{x.stride}, has caches of {sorted(x._caches.cmaps)}: hand _caches on to new tensors, "
            "or take generative=True"
        )
    coords, spatial_range = there if isinstance(there, tuple) else (there, None)
    fine = sites_at(coords, stride, spatial_range)
    window = _left_by(x, coarse, stride, layer)
    return Place(_numbered(fine, coarse, window).transpose(), coords, stride, spatial_range)


@kept
def generated(x: SparseTensor, layer: Layer) -> Place:
    """Place the outputs of a generative layer at all finer sites that its kernel reaches, within the range."""
    coarse = sites_of(x)
    _finer(x, layer)
    window = Window.of(AXES, layer.kernel, layer.stride, layer.dilation)
    fine = coarse.derived(Generated(window, centred=True))
    spatial_range = range_of(fine)
    coords = coords_of(fine, spatial_range)
    caches = x._caches
    caches.kmaps, caches.hashmaps = {}, {}
    caches.cmaps[fine.stride] = cached(coords, spatial_range)
    kernel_map = kernel_map_between(fine, coarse, window).transpose()
    return Place(kernel_map.derived(Numbered(layer.kernel, mirrored=True)), coords, fine.stride, spatial_range)


def keep_coords(x: SparseTensor) -> None:
    """Note where a tensor is in its caches, unless there is one of its stride."""
    x._caches.cmaps.setdefault(x.stride, cached(x.coords, x.spatial_range))


def cached(coords: Tensor, spatial_range: Range) -> object:
    """An entry of ``cmaps``."""
    return coords if convention().finest else (coords, spatial_range)


@dataclass(frozen=True)
class Numbered(Derived[KernelMap]):
    """The map with offsets as torchsparse numbers them; mirrored: from the last to the first."""

    kernel: tuple[int, ...]
    mirrored: bool = False

    def compute(self, kernel_map: KernelMap) -> KernelMap:
        order = torch.arange(kernel_map.num_offsets, device=kernel_map.device)
        if kernel_map.num_offsets % 2:
            order = order.view(self.kernel).permute(2, 1, 0).flatten()
        if self.mirrored:
            order = order.flip(0)
        begin, lengths = kernel_map.indptr[:-1].long()[order], kernel_map.indptr.diff().long()[order]
        indptr, pairs = prefix_sums(lengths), kernel_map.num_pairs
        shift = (begin - indptr[:-1]).repeat_interleave(lengths, output_size=pairs)
        at = torch.arange(pairs, device=kernel_map.device) + shift
        inputs, outputs = kernel_map.inputs[at], kernel_map.outputs[at]
        # a symmetric map stays so: each numbering here has offsets k and K - 1 - k opposite to each other
        return KernelMap._make(
            inputs, outputs, indptr.to(inputs.dtype), kernel_map.shape, symmetric=kernel_map.symmetric
        )


def _left_by(x: SparseTensor, coarse: Coordinates, stride: tuple[int, ...], layer: Layer) -> Window:
    """The window of the layer that a transposed one goes back behind: of those of its kernel and stride the one that
    left these sites, else the last one; the transposed layer's own where there is none.
    """
    found, wanted = window_of(layer), (stride, layer.kernel, layer.stride, layer.dilation)
    for (finer_stride, window), placed in x._caches.kmaps.items():
        if (finer_stride, window.kernel, window.stride, window.dilation) == wanted:
            found = window
            if sites_at(placed.coords, coarse.stride, placed.spatial_range) is coarse:
                break
    return found


def _numbered(fine: Coordinates, coarse: Coordinates, window: Window) -> KernelMap:
    kernel_map = kernel_map_between(fine, coarse, window)
    same = window.num_offsets % 2 == 0 or sum(size > 1 for size in window.kernel) < 2
    return kernel_map if same else kernel_map.derived(Numbered(window.kernel))


def _coarse(fine: Coordinates, layer: Layer) -> Coordinates:
    """The sites of the outputs of a strided layer."""
    if layer.occupied or (layer.centred and all(s in (1, k) for s, k in zip(layer.stride, layer.kernel))):
        return fine.derived(Occupied(layer.stride))
    if convention().finest:  # 1.4 adds the offsets to a site that it should subtract: of an even kernel others
        before = tuple(d * (k // 2) for k, d in zip(layer.kernel, layer.dilation))
        window = Window(layer.kernel, layer.stride, layer.dilation, before, before)
        return fine.derived(Covered(window, signed=True, after=False))
    window = Window.of(AXES, layer.kernel, layer.stride, layer.dilation, layer.padding)
    return fine.derived(Covered(window, get_allow_negative_coordinates(), after=True))


def _finer(x: SparseTensor, layer: Layer) -> tuple[int, ...]:
    return finer(sites_of(x), layer.stride)
