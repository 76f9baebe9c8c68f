"""A grid of cells over each cloud of points, and the points in the order of their cells (`compiler.loops.cells`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...compiler.compile import compile_loops
from ...compiler.loops.cells import AXES, LANES, entries_of, grid_function, order_function
from ...compiler.loops.search import GROUP
from ...frozen import dataclass
from ...runtime.type_names import type_name
from .clouds import Cloud

MOST = 2**31 - 1
"""Points of which there are not more: their numbers have 32 bits."""


@dataclass(frozen=True)
class Cells:
    """What a search reads of the points, as `compiler.loops.search` says. grid: the tensors of
    `compiler.loops.cells.Grid`. crowds: (clouds,) squares of how many points cells have, added up.
    """

    cloud: Cloud
    width: int
    grid: tuple[Tensor, ...]
    starts: Tensor
    numbers: Tensor
    coordinates: Tensor
    crowds: Tensor

    @property
    def crowd(self) -> float:
        """How many points are in the cell of a point, in the mean."""
        return int(self.crowds.sum()) / max(self.cloud.points.shape[0], 1)

    def given(self, queries: Cloud, chunks: int) -> tuple[Any, ...]:
        """What kernels take first. queries: of the points' type, in as many clouds; chunks: in which they are run."""
        of = self.cloud
        y, order = _filled(queries.points, self.width), self.numbers
        if queries is not of:  # neighbours are read once for all queries of a cell
            order = torch.empty(y.shape[0] + LANES, dtype=torch.int32)
            entries = torch.empty_like(self.starts)
            kernel = compile_loops(order_function, self.width, type_name(y.dtype), False)
            kernel.entry(*_sizes(queries), entries.shape[0], y.view(-1), queries.begins, *self.grid, entries, order)
        sizes = y.shape[0], of.count, self.starts.shape[0], of.points.shape[0], chunks
        return *sizes, y.view(-1), order, queries.numbers(), *self.grid, self.starts, self.coordinates, self.numbers


def cells_of(cloud: Cloud, held: float, size: float = 0.0) -> Cells:
    """held: about how many points a cell is to hold; size: the least of cells, instead.

    Raises ValueError for more points than numbers of 32 bits have room for.
    """
    count, width = cloud.points.shape
    if count > MOST:
        raise ValueError(f"searches take at most {MOST} points, got {count}: search parts of them")
    width = width if width <= GROUP else -(-width // GROUP) * GROUP
    x, name, clouds = _filled(cloud.points, width).view(-1), type_name(cloud.points.dtype), cloud.count
    origins, sizes = torch.empty(clouds * AXES, dtype=torch.float64), torch.empty(clouds, dtype=torch.float64)
    extents, bases, crowds = (torch.empty(clouds * many, dtype=torch.int64) for many in (AXES, 1, 1))
    grid = origins, sizes, extents, bases
    starts = torch.empty(entries_of(count, clouds), dtype=torch.int64)
    coordinates, numbers = x.new_empty(width * (count + LANES)), torch.empty(count + LANES, dtype=torch.int32)
    compile_loops(grid_function, width, name).entry(*_sizes(cloud), held, size, x, cloud.begins, *grid)
    entry = compile_loops(order_function, width, name, True).entry
    entry(*_sizes(cloud), starts.shape[0], x, cloud.begins, *grid, starts, numbers, coordinates, crowds)
    return Cells(cloud, width, grid, starts, numbers, coordinates, crowds)


def _sizes(cloud: Cloud) -> tuple[int, int]:
    return cloud.points.shape[0], cloud.count


def _filled(x: Tensor, width: int) -> Tensor:
    return x if x.shape[1] == width else torch.nn.functional.pad(x, (0, width - x.shape[1]))
