"""Rows of integer coordinates as one number each, so that sorting and merging have numbers to compare.

Each column has its bits of a number, the first column the highest ones. The order of numbers is then the order of rows,
column by column, whatever the box: rows that were sorted once stay sorted in every box that holds them. What is done
row by row is done by kernels, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.compile import compile_loops
from ...compiler.loops.packing import (
    DIGIT,
    bounds_function,
    keys_function,
    reach_function,
    rows_function,
    sort_function,
)
from ...runtime.type_names import type_name

Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""The smallest and the largest value of each column, (0, -1) where there is none."""
Columns: TypeAlias = Callable[[], Sequence[Tensor]]
"""The values of each column."""

MOST_BITS = 62
"""Bits of a key: one is left for the sign, and one so that a number is above all keys."""
SHARED = 4096
"""Rows from which threads share them."""


@dataclass(frozen=True)
class Packing:
    """The cells of a box. bounds: of each column. beside: those of another box, for which there are enough bits as well.
    shifts, widths: where the bits of each column are, and how many.
    """

    bounds: Bounds
    beside: Bounds | None = None
    widths: tuple[int, ...] = field(init=False)
    shifts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        widths = tuple(map(max, _widths(self.bounds), _widths(self.beside or self.bounds)))
        if sum(widths) > MOST_BITS:
            ranges = ", ".join(f"[{low}, {high}]" for low, high in self.bounds)
            raise ValueError(
                f"coordinates in {ranges} (the batch first) are in a box of 2**{sum(widths)} cells, which 64-bit keys "
                f"cannot number: at most 2**{MOST_BITS}; leave out far points, or take larger voxels"
            )
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "shifts", tuple(sum(widths[column + 1 :]) for column in range(len(widths))))

    def pack(
        self,
        rows: Tensor,
        times: Sequence[int] | None = None,
        plus: Sequence[int] | None = None,
        by: Sequence[int] | None = None,
    ) -> tuple[Tensor, bool]:
        """(N + 1,) int64 numbers of (N, columns) rows on the host, ``(row * times + plus) // by`` of each within the
        box, and a larger number; and whether each is above the one before.
        """
        count, columns = rows.shape
        once = (1,) * columns
        times, plus, by = times or once, plus or (0,) * columns, by or once
        moved = [p - low * b for p, (low, _), b in zip(plus, self.bounds, by)]
        chunks = chunks_of(count)
        keys, falls = rows.new_empty(count + 1, dtype=torch.int64), rows.new_empty(chunks, dtype=torch.int64)
        how = torch.tensor([*times, *moved, *by, *self.shifts])
        _keys(columns, type_name(rows.dtype)).entry(count, chunks, rows.view(-1), how, keys, falls)
        return keys, not bool(falls.any())

    def unpack(self, keys: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
        """The rows of these numbers, (N, columns)."""
        columns, count = len(self.bounds), keys.shape[0]
        rows = torch.empty(count, columns, dtype=dtype)
        how = torch.tensor([*self.shifts, *((1 << width) - 1 for width in self.widths), *(low for low, _ in self.bounds)])
        _rows(columns, type_name(dtype)).entry(count, keys, how, rows.view(-1))
        return rows

    def reach(self, keys: Tensor, column: int, offsets: int, to: tuple[int, int, int, int], there: Packing) -> Tensor:
        """The numbers with a column changed to what a kernel reaches: ``(value * times + plus + j * step) / by`` for
        offsets j, where that is whole and within the box ``there``, beside this one. to: times, plus, step, by.
        """
        found, reached = torch.empty(1, dtype=torch.int64), keys.new_empty(keys.shape[0] * offsets)
        place = self.shifts[column], (1 << self.widths[column]) - 1, self.bounds[column][0]
        _reach().entry(keys.shape[0], offsets, *place, *to, *there.bounds[column], keys, reached, found)
        return reached[: int(found)]

    @property
    def bits(self) -> int:
        """Of a number."""
        return sum(self.widths)


@dataclass(frozen=True)
class Folded:
    """Cells of a box without the empty stretches along its axes. values: (n,) ascending, of each column. numbers: (n,)
    where each is then. box: of these numbers.
    """

    values: tuple[Tensor, ...]
    numbers: tuple[Tensor, ...]
    box: Packing

    def pack(self, rows: Tensor, times=None, plus=None, by=None) -> tuple[Tensor, bool]:
        """As that of a `Packing`; all values of a column are among its values."""
        rows = rows.long()
        for each, change in ((times, torch.mul), (plus, torch.add), (by, _floor_div)):
            rows = rows if each is None else change(rows, torch.tensor(each))
        columns = zip(rows.unbind(1), self.values, self.numbers)
        return self.box.pack(torch.stack([n[torch.searchsorted(v, c.contiguous())] for c, v, n in columns], 1))

    def unpack(self, keys: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
        """As that of a `Packing`."""
        columns = zip(self.box.unpack(keys).unbind(1), self.values, self.numbers)
        return torch.stack([v[torch.searchsorted(n, c.contiguous())] for c, v, n in columns], 1).to(dtype)

    @property
    def shifts(self) -> tuple[int, ...]:
        return self.box.shifts

    @property
    def bits(self) -> int:
        return self.box.bits


def packing_of(bounds: Bounds, columns: Columns, reach: Sequence[int] | None = None) -> Packing | Folded:
    """The packing of a box; of one whose cells are too many for keys, without stretches that have no value.

    columns: what is packed. reach: how far behind a value of each column numbers are looked for: values that are
    further apart than that stay so.

    Raises ValueError where cells are too many even so.
    """
    if sum(_widths(bounds)) <= MOST_BITS:
        return Packing(bounds)
    values, numbers = [], []
    for column, far in zip(columns(), reach or (0,) * len(bounds)):
        values.append(column.long().unique())
        numbers.append(torch.nn.functional.pad(values[-1].diff().clamp(max=far + 1).cumsum(0), (1, 0)))
    box = Packing(tuple((0, int(n[-1]) + far) for n, far in zip(numbers, reach or (0,) * len(bounds))))
    return Folded(tuple(values), tuple(numbers), box)


def bounds_of(rows: Tensor) -> Bounds:
    """Of the columns of rows on the host."""
    count, columns = rows.shape
    if not count:
        return ((0, -1),) * columns
    bounds = torch.empty(2 * columns, dtype=torch.int64)
    _bounds(columns, type_name(rows.dtype)).entry(count, rows.view(-1), bounds)
    found = bounds.tolist()
    return tuple(zip(found[:columns], found[columns:]))


def joined(*bounds: Bounds) -> Bounds:
    """Bounds of the smallest box that holds all of these; empty ones count for nothing."""
    return tuple(
        (
            min((low for low, high in axis if low <= high), default=0),
            max((h for low, h in axis if low <= h), default=-1),
        )
        for axis in zip(*bounds)
    )


def distinct(keys: Tensor, bits: int) -> Tensor:
    """The sorted distinct numbers among ``keys``, of as many bits."""
    found = _sorted(False, keys, bits)
    return found[0][: found[2]]


def in_order(keys: Tensor, bits: int) -> tuple[Tensor, int | None]:
    """(the order of the numbers, equal ones in theirs; the first place there whose number is the next one's, too)."""
    _, order, equal = _sorted(True, keys, bits)
    assert order is not None
    return order, None if equal < 0 else equal


def chunks_of(count: int) -> int:
    """Parts that threads share of as many rows."""
    return 4 * torch.get_num_threads() if count >= SHARED else 1


def _sorted(ordered: bool, keys: Tensor, bits: int) -> tuple[Tensor, Tensor | None, int]:
    count = keys.shape[0]
    if not count:
        return keys, keys if ordered else None, -ordered
    both, found = keys.new_empty(2 * count), keys.new_empty(1)
    both[:count] = keys
    order = keys.new_empty(2 * count) if ordered else None
    _sort(ordered).entry(count, -(-bits // DIGIT), both, found, *(() if order is None else (order,)))
    return both[:count], None if order is None else order[:count], int(found)


def _widths(bounds: Bounds) -> tuple[int, ...]:
    return tuple(max(high - low, 0).bit_length() for low, high in bounds)


def _floor_div(a: Tensor, b: Tensor) -> Tensor:
    return a.div(b, rounding_mode="floor")


@kept
def _bounds(columns: int, dtype: str) -> Kernel:
    return compile_loops(bounds_function, columns, dtype)


@kept
def _keys(columns: int, dtype: str) -> Kernel:
    return compile_loops(keys_function, columns, dtype)


@kept
def _rows(columns: int, dtype: str) -> Kernel:
    return compile_loops(rows_function, columns, dtype)


@kept
def _reach() -> Kernel:
    return compile_loops(reach_function)


@kept
def _sort(ordered: bool) -> Kernel:
    return compile_loops(sort_function, ordered)
