"""A grid of cells over each cloud of points, and the points in the order of their cells (`compiler.loops.near`)."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    # a few numbers for each cloud: NumPy takes a fifth of the time for them
    spans, many = (high - low).numpy(), cloud.begins.diff().numpy().astype(np.float64)
    sizes = _sizes(spans, many / held) if size is None else np.full_like(many, size)
    extents = _extents(spans, sizes, many)
    cells = extents.prod(1)
    strides = np.concatenate([extents[:, :0:-1].cumprod(1)[:, ::-1], np.ones_like(extents[:, :1])], 1)
    of = slice(None) if cloud.count == 1 else clouds
    wide, bases = torch.from_numpy(extents), torch.from_numpy(cells.cumsum() - cells)
    place = ((places - low[of]) / torch.from_numpy(sizes)[of, None]).clamp_(min=0).long()
    place = torch.minimum(place, (wide - 1)[of])
    key = (place * torch.from_numpy(strides)[of]).sum(1).add_(bases[of])
    total = int(cells.sum())
    order = in_order(key, max(total, 1).bit_length())[1] if count else key
    begins = torch.zeros(total + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(key, minlength=total), 0, out=begins[1:])
    coordinates = torch.zeros(width, count + LANES, dtype=x.dtype)
    coordinates[: x.shape[1], :count] = x.index_select(0, order).t()
    origins = torch.zeros(cloud.count, AXES, dtype=torch.float64)
    origins[:, :axes] = low
    wide = torch.nn.functional.pad(wide, (0, AXES - axes), value=1)
    given = origins.view(-1), torch.from_numpy(sizes), wide.view(-1), bases, begins, coordinates.view(-1), order
    return Cells(width, count, *given)


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


def _sizes(spans: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """(clouds,) the size of cubes of which boxes hold about that many."""
    sizes = np.maximum(spans.max(1), 1e-300)
    for _ in range(spans.shape[1]):
        counted = spans > sizes[:, None] * 1e-9
        axes = np.maximum(counted.sum(1), 1)
        volume = np.log(np.where(counted, spans, 1)).sum(1)
        found = np.exp((volume - np.log(np.maximum(cells, 1))) / axes)
        spans = np.where(spans > found[:, None], spans, 0)  # flatter than a cell
        sizes = np.where(counted.any(1), found, sizes)
    return np.maximum(sizes, 1e-300)


def _extents(spans: np.ndarray, sizes: np.ndarray, many: np.ndarray) -> np.ndarray:
    """(clouds, axes) int64 how many cells there are along each axis; sizes are changed where they would be too many."""
    most = CELLS_PER_POINT * many + 8
    while True:
        extents = np.floor(spans / sizes[:, None]) + 1
        over = extents.prod(1) > most
        if not over.any():
            return extents.astype(np.int64)
        sizes[over] *= 1.26


def _filled(x: Tensor, width: int) -> Tensor:
    return x if x.shape[1] == width else torch.nn.functional.pad(x, (0, width - x.shape[1]))
