"""The kernel map of a layer of spconv: of its input's indices, or shared under its ``indice_key``."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from spconv.pytorch.core import IndiceData
from torch import Tensor

from ...structures.coordinates import (
    Coordinates,
    EqualSites,
    Generated,
    NoSuchBatch,
    OutsideGrid,
    Reached,
    TooManyCells,
    Window,
    kernel_map_between,
)
from ...structures.derived import untransformed
from ...structures.kernel_map import KernelMap, Offsets
from ..core.handles import Handles
from ..core.refusal import Refusal
from .operands import batches_of

_sites = Handles()  # by the tensor of indices, which may be changed in place, and how they are read


def forget_all() -> None:
    """Drop what is kept for indices."""
    _sites.clear()


class SharedMap(IndiceData):
    """What the layers of one ``indice_key`` share, in the ``indice_dict`` of their tensors: a kernel map. spconv's own
    code finds its pairs there too, which are made of the map when they are asked for.
    """

    def __init__(self, layer, x, kernel_map: KernelMap, out_indices: Tensor, out_spatial_shape: list[int]):
        self.kernel_map = kernel_map
        super().__init__(
            out_indices,
            x.indices,
            None,
            None,
            x.spatial_shape,
            out_spatial_shape,
            is_subm=layer.subm,
            algo=layer.algo,
            ksize=layer.kernel_size,
            stride=layer.stride,
            dilation=layer.dilation,
            padding=layer.padding,
        )
        del self.indice_pairs, self.indice_pair_num  # the properties below

    @functools.cached_property
    def indice_pairs(self) -> Tensor:
        """(2, offsets, inputs) the inputs and the outputs of the pairs of each offset, then -1."""
        kernel_map = self.kernel_map
        offset = kernel_map.derived(Offsets()).long()
        place = torch.arange(kernel_map.num_pairs, device=offset.device) - kernel_map.indptr[offset]
        pairs = kernel_map.inputs.new_full((2, kernel_map.num_offsets, kernel_map.shape[1]), -1, dtype=torch.int32)
        pairs[:, offset, place] = torch.stack([kernel_map.inputs, kernel_map.outputs]).int()
        return pairs

    @functools.cached_property
    def indice_pair_num(self) -> Tensor:
        """(offsets,) how many pairs each has."""
        return self.kernel_map.indptr.diff().int()


class Place(NamedTuple):
    """Where the results of a layer are."""

    kernel_map: KernelMap
    indices: Tensor
    spatial_shape: list[int]
    indice_dict: dict

    def tensor(self, x, features: Tensor):
        """The features at these sites, with all else that ``x`` has."""
        out = x.replace_feature(features)
        out.indices, out.spatial_shape, out.indice_dict = self.indices, self.spatial_shape, self.indice_dict
        return out


def place(layer, x, inverse: bool = False, transposed: bool = False) -> Place | Refusal:
    """Where the results of a convolution or pooling of ``x`` are.

    Raises ValueError as spconv does, of a layer that does not fit those which have its ``indice_key``.
    """
    return untransformed(_place, layer, x, inverse, transposed)


def _place(layer, x, inverse: bool, transposed: bool) -> Place | Refusal:
    shared = x.find_indice_pair(layer.indice_key)
    if shared is None and not inverse:
        return _new_place(layer, x, transposed)
    if shared is None or shared.is_subm is inverse or not (inverse or layer.subm):
        return Refusal("the indice_key is that of no such layer")
    if not isinstance(shared, SharedMap):
        return Refusal("the indice_key is that of a layer which spconv ran")
    if inverse:
        layer._check_inverse_reuse_valid(x, x.spatial_shape, shared)
        return Place(shared.kernel_map.transpose(), shared.indices, shared.spatial_shape, x.indice_dict.copy())
    layer._check_subm_reuse_valid(x, x.spatial_shape, shared)
    return Place(shared.kernel_map, shared.out_indices, x.spatial_shape, x.indice_dict.copy())


def _new_place(layer, x, transposed: bool) -> Place | Refusal:
    window = _window(layer, transposed)
    # a grid has a finer one if its stride says so
    sites = sites_of(x, window.stride if transposed else None)
    if type(sites) is Refusal:
        return sites
    if layer.subm:
        there, kernel_map = sites, kernel_map_between(sites, sites, window)
    elif transposed:
        there = sites.derived(Generated(window, centred=False))
        kernel_map = kernel_map_between(there, sites, window).transpose()
    else:
        there = sites.derived(Reached(window))
        kernel_map = kernel_map_between(sites, there, window)
    if not all(there.sizes):
        return Refusal("the shapes do not fit")
    indices, shape, indice_dict = x.indices, list(there.sizes), x.indice_dict.copy()
    if there is not sites:
        with torch.inference_mode(False):  # a copy, which may be written to without harm to what is kept
            indices = there.rows.to(torch.int32, copy=True)
        _sites.put(indices, there, _reading(x, shape))
    if layer.indice_key is not None:
        indice_dict[layer.indice_key] = SharedMap(layer, x, kernel_map, indices, shape)
    return Place(kernel_map, indices, shape, indice_dict)


def sites_of(x, stride: tuple[int, ...] | None = None) -> Coordinates | Refusal:
    """The sites of a SparseConvTensor on a grid of this stride, 1 unless given: made once for its indices, and anew
    where their content is another.
    """
    batch_size, sizes, stride = reading = _reading(x, x.spatial_shape, stride)

    def make() -> Coordinates:
        return Coordinates.of(x.indices, stride, batch_size, sizes)

    def still(found: Coordinates) -> bool:
        # comparing numbers costs nothing beside a layer; of a GPU it would be waited for
        return not x.indices.is_cpu or torch.equal(x.indices, found.rows)

    try:
        return untransformed(_sites.once, x.indices, reading, make, still)
    except EqualSites as error:
        return Refusal("a site is there twice", str(error))
    except OutsideGrid as error:
        return Refusal("a site is outside of the spatial shape", str(error))
    except NoSuchBatch as error:
        return Refusal("a site is in a batch that there is not", str(error))
    except TooManyCells as error:
        return Refusal("the grid has too many cells", str(error))
    except ValueError as error:
        return Refusal("the shapes do not fit", str(error))


def _reading(x, spatial_shape: list[int], stride: tuple[int, ...] | None = None) -> tuple:
    """How the indices of ``x`` are read: numbers alone, which are a key."""
    return batches_of(x), tuple(map(int, spatial_shape)), stride or (1,) * len(spatial_shape)


def _window(layer, transposed: bool) -> Window:
    kernel, dilation = tuple(layer.kernel_size), tuple(layer.dilation)
    if layer.subm:  # in the middle, or behind it in an even kernel, whatever the stride and padding
        before = tuple(d * (k // 2) for d, k in zip(dilation, kernel))
        after = tuple(d * (k - 1) - b for d, k, b in zip(dilation, kernel, before))
        return Window(kernel, (1,) * len(kernel), dilation, before, after)
    before = after = tuple(layer.padding)
    if transposed:  # spconv's size of the result leaves the dilation out
        after = tuple(
            p + (d - 1) * (k - 1) - more for k, d, p, more in zip(kernel, dilation, before, layer.output_padding)
        )
    return Window(kernel, tuple(layer.stride), dilation, before, after)
