"""A grid of cells over each cloud of points, and the points in the order of their cells (`compiler.loops.near`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...compiler.loops.near import AXES, GROUP, LANES
from ...frozen import dataclass
from ..coordinates.packing import in_order
from .clouds import Cloud

CELLS_PER_POINT = 4
"""More cells are not made, whatever size was asked for."""


@dataclass(frozen=True)
class Cells:
    """What a search reads of the points, as `compiler.loops.near` says."""

    width: int
    points: int
    origins: Tensor
    sizes: Tensor
    extents: Tensor
    bases: Tensor
    begins: Tensor
    coordinates: Tensor
    numbers: Tensor

    @property
    def crowd(self) -> float:
        """How many points are in the cell of a point, in the mean."""
        held = self.begins.diff().double()
        return float((held * held).sum() / max(self.points, 1))

    def given(self, queries: Tensor, cloud: Tensor) -> tuple[Any, ...]:
        """What kernels take first. queries: (M, D) of the points' type; cloud: (M,) of each."""
        counts = queries.shape[0], self.sizes.shape[0], self.begins.shape[0] - 1, self.points
        grid = self.origins, self.sizes, self.extents, self.bases, self.begins, self.coordinates, self.numbers
        return (*counts, _filled(queries, self.width).view(-1), cloud, *grid)


def cells_of(cloud: Cloud, held: float, size: float | None = None) -> Cells:
    """held: about how many points a cell is to hold; size: of cells, instead."""
    x, clouds = cloud.points, cloud.numbers()
    count, axes = x.shape[0], min(x.shape[1], AXES)
    width = x.shape[1] if x.shape[1] <= GROUP else -(-x.shape[1] // GROUP) * GROUP
    places = x[:, :axes].double()
    low, high = _corners(places, clouds, cloud)
    many = cloud.begins.diff().double()
    sizes = _sizes(high - low, many / held) if size is None else torch.full_like(many, size)
    extents = _extents(high - low, sizes, many)
    cells = extents.prod(1)
    bases = cells.cumsum(0) - cells
    place = ((places - low[clouds]) / sizes[clouds, None]).clamp_(min=0).long()
    of_points = extents[clouds]
    place = torch.minimum(place, of_points - 1)
    key = bases[clouds]
    for axis in range(axes):
        stride = of_points[:, axis + 1 :].prod(1)
        key = key + place[:, axis] * stride
    total = int(cells.sum())
    order = in_order(key, max(total, 1).bit_length())[1] if count else key
    begins = torch.zeros(total + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(key, minlength=total), 0, out=begins[1:])
    coordinates = torch.zeros(width, count + LANES, dtype=x.dtype)
    coordinates[: x.shape[1], :count] = x.index_select(0, order).t()
    origins = torch.zeros(cloud.count, AXES, dtype=torch.float64)
    origins[:, :axes] = low
    wide = torch.ones(cloud.count, AXES, dtype=torch.int64)
    wide[:, :axes] = extents
    return Cells(width, count, origins.view(-1), sizes, wide.view(-1), bases, begins, coordinates.view(-1), order)


def _corners(places: Tensor, clouds: Tensor, cloud: Cloud) -> tuple[Tensor, Tensor]:
    """(clouds, axes) the least and the largest coordinates; 0 where a cloud is empty."""
    if cloud.count == 1 and places.shape[0]:
        low, high = torch.aminmax(places, dim=0)
        return low[None], high[None]
    shape = cloud.count, places.shape[1]
    index = clouds[:, None].expand_as(places)
    return tuple(
        torch.zeros(shape, dtype=torch.float64).scatter_reduce_(0, index, places, how, include_self=False)
        for how in ("amin", "amax")
    )


def _sizes(spans: Tensor, cells: Tensor) -> Tensor:
    """(clouds,) the size of cubes of which boxes hold about that many."""
    sizes = spans.amax(1).clamp(min=1e-300)
    for _ in range(spans.shape[1]):
        counted = spans > sizes[:, None] * 1e-9
        axes = counted.sum(1).clamp(min=1)
        volume = torch.where(counted, spans, 1).double().log().sum(1)
        found = ((volume - cells.clamp(min=1).log()) / axes).exp()
        spans = torch.where(spans > found[:, None], spans, 0)  # flatter than a cell
        sizes = torch.where(counted.any(1), found, sizes)
    return sizes.clamp(min=1e-300)


def _extents(spans: Tensor, sizes: Tensor, many: Tensor) -> Tensor:
    """(clouds, axes) int64 how many cells there are along each axis; sizes are changed where they would be too many."""
    most = CELLS_PER_POINT * many + 8
    while True:
        extents = (spans / sizes[:, None]).floor() + 1
        over = extents.prod(1) > most
        if not bool(over.any()):
            return extents.long()
        sizes[over] *= 1.26


def _filled(x: Tensor, width: int) -> Tensor:
    return x if x.shape[1] == width else torch.nn.functional.pad(x, (0, width - x.shape[1]))
