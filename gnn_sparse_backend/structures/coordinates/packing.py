"""Rows of integer coordinates as one number each, so that sorting and searching have numbers to compare.

The number of a row is that of its cell in a box, the last axis fastest. The order of numbers is then the order of rows,
column by column, whatever the box: rows that were sorted once stay sorted in every box that holds them.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from ...frozen import dataclass
from .errors import TooManyCells

Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""The smallest and the largest value of each column, (0, -1) where there is none."""

MOST_CELLS = 2**63 - 1


@dataclass(frozen=True)
class Packing:
    """The cells of a box. bounds: of each column."""

    bounds: Bounds

    def __post_init__(self) -> None:
        if math.prod(self.sizes) > MOST_CELLS:
            ranges = ", ".join(f"[{low}, {high}]" for low, high in self.bounds)
            raise TooManyCells(
                f"coordinates in {ranges} (the batch first) are in a box of {math.prod(self.sizes):.3g} cells, which "
                "64-bit keys cannot number: there must be less than 2**63; leave out far points, or take larger voxels"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(max(high - low + 1, 1) for low, high in self.bounds)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in numbers neighbours along each axis are."""
        return tuple(math.prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes)))

    def pack(self, rows: Tensor) -> Tensor:
        """(N,) int64 numbers of (N, columns) rows within the box."""
        first, *others = (column.long() - low for column, (low, _) in zip(rows.unbind(1), self.bounds))
        for column, size in zip(others, self.sizes[1:]):
            first = first.mul_(size).add_(column)
        return first

    def unpack(self, keys: Tensor) -> Tensor:
        """The rows of these numbers, (N, columns) int64."""
        columns = []
        for size, (low, _) in zip(reversed(self.sizes[1:]), reversed(self.bounds[1:])):
            rest = keys.div(size, rounding_mode="floor")
            columns.append(keys - rest * size + low)
            keys = rest
        return torch.stack([keys + self.bounds[0][0], *reversed(columns)], 1)


def joined(*bounds: Bounds) -> Bounds:
    """Bounds of the smallest box that holds all of these; empty ones count for nothing."""
    return tuple(
        (
            min((low for low, high in axis if low <= high), default=0),
            max((h for low, h in axis if low <= h), default=-1),
        )
        for axis in zip(*bounds)
    )


def distinct(keys: Tensor) -> Tensor:
    """The sorted distinct numbers among ``keys``."""
    keys = keys.sort().values
    first = torch.ones(keys.shape, dtype=torch.bool, device=keys.device)
    torch.ne(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def firsts(keys: Tensor) -> tuple[Tensor, Tensor]:
    """(where each number is for the first time, as booleans; which of these places each number is equal to)."""
    ascending, order = keys.sort(stable=True)
    begins = torch.ones_like(ascending, dtype=torch.bool)
    torch.ne(ascending[1:], ascending[:-1], out=begins[1:])
    heads = order[begins]
    first = torch.zeros_like(begins)
    first[heads] = True
    place = torch.empty_like(order)
    place[order] = (first.cumsum(0) - 1)[heads][begins.cumsum(0) - 1]
    return first, place
