"""Coordinates of torchsparse's tensors as our sites, found again by their tensor, and the sites of a coarser grid."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import nn
from ...frozen import dataclass
from ...nn.voxels.maps import kept
from ...structures.coordinates import Coordinates, Reached, Window
from ...structures.derived import Derived
from ..core.handles import Handles
from .conventions import AXES, convention
from .tensor import SparseTensor, get_allow_negative_coordinates

_sites = Handles()  # by the tensor of coordinates, which may be changed in place, and how it is read


def forget_all() -> None:
    """Drop what is kept for coordinates."""
    _sites.clear()


def sites_of(x: SparseTensor) -> Coordinates:
    """The sites of a tensor."""
    return sites_at(x.coords, x.stride, x.spatial_range)


@kept
def sites_at(coords: Tensor, stride: tuple[int, ...], spatial_range: tuple[int, ...] | None) -> Coordinates:
    """The sites at coordinates, made once for these, the stride and the range.

    Raises TypeError, ValueError: coordinates are not (N, 4) integers, there twice, outside of the range or negative.
    """
    batches, *sizes = spatial_range or (None,)

    def make() -> Coordinates:
        if coords.dim() != 2 or coords.shape[1] != 1 + AXES:
            raise ValueError(
                f"coords must have shape (N, {1 + AXES}), the batch and {AXES} axes, got {tuple(coords.shape)}; "
                "torchsparse.utils.collate.sparse_collate adds the batch"
            )
        made = Coordinates.of(convention().rows(coords, stride), stride, batches, sizes or None)
        _check_signs(coords, made)
        return made

    return _sites.once(coords, _reading(stride, spatial_range), make)


def coords_of(sites: Coordinates, spatial_range: tuple[int, ...] | None) -> Tensor:
    """New coordinates of sites, by which ``sites_at`` finds them."""
    coords = convention().coords(sites.rows, sites.stride)
    _sites.put(coords, sites, _reading(sites.stride, spatial_range))
    return coords


def range_of(sites: Coordinates) -> tuple[int, ...] | None:
    """The range of a tensor at sites of a bounded grid."""
    return None if sites.sizes is None else (sites.batch_size, *sites.sizes)


def of_package(x: SparseTensor) -> nn.SparseTensor:
    """The tensor as one of ``gnn_sparse_backend.nn``."""
    return nn.SparseTensor._of(x.feats, sites_of(x))


def _reading(stride: tuple[int, ...], spatial_range: tuple[int, ...] | None) -> tuple[object, ...]:
    return convention().version, stride, spatial_range, get_allow_negative_coordinates()


def _check_signs(coords: Tensor, sites: Coordinates) -> None:
    if convention().finest or get_allow_negative_coordinates() or all(low >= 0 for low, _ in sites.bounds[1:]):
        return
    at = int((coords < 0).any(1).nonzero()[0])
    raise ValueError(
        f"coords[{at}] = {coords[at].tolist()} is negative; subtract the smallest, or call "
        "torchsparse.tensor.set_allow_negative_coordinates(True)"
    )


@dataclass(frozen=True)
class Covered(Derived[Coordinates]):
    """The sites that a kernel reaches, within where torchsparse looks for them.

    A grid without a range ends with the last site along each axis: a window that reaches beyond it has no output, as in
    a dense convolution of that size. (One that begins before 0 has none either, or with ``signed`` before the first
    site.) torchsparse 1.4 leaves out only what lies before the first site: ``after`` is False.
    """

    window: Window
    signed: bool
    after: bool

    def compute(self, sites: Coordinates) -> Coordinates:
        window, reached = self.window, Reached(self.window).compute(sites)
        if sites.sizes is not None or not reached.rows.shape[0]:
            return reached
        first, last = torch.stack(torch.aminmax(sites.rows[:, 1:], dim=0)).tolist()
        low, high = [0] * window.dim, [2**62] * window.dim
        for axis, stride in enumerate(window.stride):
            if not self.after:
                low[axis] = -(-first[axis] // stride)
                continue
            around = window.before[axis] + window.after[axis] - window.reach[axis]
            high[axis] = (last[axis] + around) // stride
            if self.signed:
                low[axis] = int((first[axis] - around) / stride)
        cells = reached.rows[:, 1:]
        first_cell, last_cell = torch.tensor([low, high], device=cells.device)
        inside = (cells >= first_cell) & (cells <= last_cell)
        rows = reached.rows[inside.all(1)]
        if len(rows) == len(cells):
            return reached
        return Coordinates._make(rows, reached.stride, sites.batch_size, None, reached.bounds)
