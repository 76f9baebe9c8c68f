"""Rows of integer coordinates as one number each, so that sorting and merging have numbers to compare.

Each column has its bits of a number, the first column the highest ones. The order of numbers is then the order of rows,
column by column, whatever the box: rows that were sorted once stay sorted in every box that holds them. What is done
row by row is done by kernels, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias

import torch
from torch import Tensor

from ...compiler.compile import compile_loops
from ...compiler.loops.packing import (
    DIGIT,
    LAST,
    bounds_function,
    keys_function,
    reach_function,
    rows_function,
    sort_function,
)
from ...frozen import dataclass
from ...runtime.type_names import type_name
from ..derived import untransformed
from .errors import TooManyCells

Bound: TypeAlias = tuple[int, int]
Bounds: TypeAlias = tuple[Bound, ...]
"""The smallest and the largest value of each column, (0, -1) where there is none."""
Columns: TypeAlias = Callable[[], Sequence[Tensor]]
"""The values of each column."""

MOST_BITS = 62
"""Bits of a key: one is left for the sign, and one so that a number is above all keys."""
ROOM = 8
"""Cells around a box that its packing has as well, where keys have bits enough: for the kernels of most layers."""


@dataclass(frozen=True)
class Packing:
    """The cells of a box.

    bounds: of each column. beside: those of another box, for which there are enough bits as well. shifts, widths: where
    the bits of each column are, and how many.
    """

    bounds: Bounds
    beside: Bounds | None = None
    widths: tuple[int, ...] = field(init=False)
    shifts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        widths = _widths(self.bounds, self.beside)
        if sum(widths) > MOST_BITS:
            ranges = ", ".join(f"[{low}, {high}]" for low, high in self.bounds)
            raise TooManyCells(
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
        keys, falls = torch.empty(count + 1, dtype=torch.int64), torch.empty(1, dtype=torch.int64)
        bits = [_bits_of(b) for b in by]
        divide = min(bits) < 0
        given = count, int(divide), *times, *moved, *(by if divide else bits), *self.shifts, rows.view(-1), keys, falls
        compile_loops(keys_function, columns, type_name(rows.dtype)).entry(*given)
        return keys, not int(falls)

    def unpack(self, keys: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
        """The rows of these numbers, (N, columns)."""
        columns, count = len(self.bounds), keys.shape[0]
        rows = torch.empty(count, columns, dtype=dtype)
        masks = ((1 << width) - 1 for width in self.widths)
        given = count, *self.shifts, *masks, *(low for low, _ in self.bounds), keys, rows.view(-1)
        compile_loops(rows_function, columns, type_name(dtype)).entry(*given)
        return rows

    def reach(
        self, keys: Tensor, column: int, offsets: int, to: tuple[int, int, int, int], there: Packing, within: Bound
    ) -> Tensor:
        """The numbers with a column changed to what a kernel reaches, as ``there`` packs it, a box beside this one:
        ``(value * times + plus + j * step) / by`` for offsets j, where that is whole and within bounds.

        to: times, plus, step, by.
        """
        found, reached = torch.empty(1, dtype=torch.int64), keys.new_empty(keys.shape[0] * offsets)
        place = self.shifts[column], (1 << self.widths[column]) - 1, self.bounds[column][0], there.bounds[column][0]
        compile_loops(reach_function).entry(
            keys.shape[0], offsets, *place, *to, *within, _bits_of(to[-1]), keys, reached, found
        )
        return reached[: int(found)]

    def holds(self, bounds: Bounds) -> bool:
        """Whether another box is within this one, or its bits."""
        ours = zip(self.bounds, self.widths, bounds)
        return all(low <= least and most - low < 1 << width for (low, _), width, (least, most) in ours)

    @property
    def bits(self) -> int:
        """Bits of a number."""
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
        """Pack as a `Packing` does rows whose values are among these."""
        rows = rows.long()
        for each, change in ((times, torch.mul), (plus, torch.add), (by, _floor_div)):
            rows = rows if each is None else change(rows, torch.tensor(each))
        columns = zip(rows.unbind(1), self.values, self.numbers)
        return self.box.pack(torch.stack([n[torch.searchsorted(v, c.contiguous())] for c, v, n in columns], 1))

    def unpack(self, keys: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
        """Unpack as a `Packing` does."""
        columns = zip(self.box.unpack(keys).unbind(1), self.values, self.numbers)
        return torch.stack([v[torch.searchsorted(n, c.contiguous())] for c, v, n in columns], 1).to(dtype)

    def holds(self, bounds: Bounds) -> bool:
        """What is between the values of a column is left out."""
        return False

    @property
    def shifts(self) -> tuple[int, ...]:
        return self.box.shifts

    @property
    def bits(self) -> int:
        return self.box.bits


def packing_of(bounds: Bounds, columns: Columns, reach: Sequence[int] | None = None) -> Packing | Folded:
    """The packing of a box with room around it; of one whose cells are too many for keys, without the stretches that
    have no value.

    columns: what is packed. reach: how far behind a value of each column numbers are looked for: values that are
    further apart than that stay so.

    Raises ValueError where cells are too many even so.
    """
    bounds = with_room(bounds)
    if _bits(bounds) <= MOST_BITS:
        return Packing(bounds)
    values, numbers = [], []
    for column, far in zip(columns(), reach or (0,) * len(bounds)):
        values.append(column.long().unique())
        numbers.append(torch.nn.functional.pad(values[-1].diff().clamp(max=far + 1).cumsum(0), (1, 0)))
    box = Packing(tuple((0, int(n[-1]) + far) for n, far in zip(numbers, reach or (0,) * len(bounds))))
    return Folded(tuple(values), tuple(numbers), box)


def with_room(bounds: Bounds, beside: Bounds | None = None) -> Bounds:
    """Bounds with some cells around them, or these themselves where keys have no bits for more."""
    wide = bounds[:1] + tuple((low - ROOM, high + ROOM) for low, high in bounds[1:])
    return wide if _bits(wide, beside) <= MOST_BITS else bounds


def bounds_of(rows: Tensor) -> Bounds:
    """Bounds of the columns of rows on the host."""
    count, columns = rows.shape
    if not count:
        return ((0, -1),) * columns
    bounds = torch.empty(2 * columns, dtype=torch.int64)
    compile_loops(bounds_function, columns, type_name(rows.dtype)).entry(count, rows.view(-1), bounds)
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


def numbered(*tables: Tensor) -> list[Tensor]:
    """(N,) int64 of each table of (N, columns) integers: equal rows have equal numbers, which order them."""
    return untransformed(_numbered, *tables)


def _numbered(*tables: Tensor) -> list[Tensor]:
    every = [rows.cpu().contiguous() for rows in tables]

    def columns() -> list[Tensor]:
        return list(torch.cat([rows.long() for rows in every]).unbind(1))

    packing = packing_of(joined(*map(bounds_of, every)), columns)
    return [packing.pack(rows)[0][:-1].to(given.device) for rows, given in zip(every, tables)]


def find(queries: Tensor, references: Tensor) -> Tensor:
    """(queries,) int64 the first reference that each number equals, -1 where there is none."""
    if not references.numel():
        return torch.full_like(queries, -1, dtype=torch.int64)
    ascending, order = references.sort(stable=True)
    place = torch.searchsorted(ascending, queries).clamp_(max=references.numel() - 1)
    return torch.where(ascending[place] == queries, order[place], -1)


def find_rows(queries: Tensor, references: Tensor) -> Tensor:
    """(M,) int64 the first of (N, columns) rows that each of (M, columns) equals, -1 where there is none."""
    return find(*numbered(queries, references))


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


def distinct(keys: Tensor, bits: int) -> Tensor:
    """The sorted distinct numbers among ``keys``, of as many bits, and a larger one."""
    if not keys.shape[0]:
        return keys.new_full((1,), LAST)
    both, count = _halves(keys), keys.new_empty(1)
    compile_loops(sort_function, False).entry(keys.shape[0], -(-bits // DIGIT), both, count)
    return both[: int(count) + 1].clone()


def in_order(keys: Tensor, bits: int) -> tuple[Tensor, Tensor, int | None]:
    """(the sorted numbers, of as many bits, and a larger one; where each was, equal ones in their order; the first that
    is equal to the next one, None where they are distinct).
    """
    count, equal = keys.shape[0], keys.new_empty(1)
    if not count:
        return keys.new_full((1,), LAST), keys, None
    both, order = _halves(keys), keys.new_empty(2 * count)
    compile_loops(sort_function, True).entry(count, -(-bits // DIGIT), both, equal, order)
    return both[: count + 1].clone(), order[:count].clone(), None if int(equal) < 0 else int(equal)


def _halves(keys: Tensor) -> Tensor:
    """The numbers, and as much room."""
    both = keys.new_empty(2 * keys.shape[0])
    both[: keys.shape[0]] = keys
    return both


def _widths(bounds: Bounds, beside: Bounds | None = None) -> tuple[int, ...]:
    """Bits of each column, for either box."""
    widths = [(high - low).bit_length() if high > low else 0 for low, high in bounds]
    return tuple(widths if beside is None else map(max, widths, _widths(beside)))


def _bits_of(divisor: int) -> int:
    """How many bits dividing drops, -1 unless that is all that it does."""
    return -1 if divisor & (divisor - 1) else divisor.bit_length() - 1


def _bits(bounds: Bounds, beside: Bounds | None = None) -> int:
    return sum(_widths(bounds, beside))


def _floor_div(a: Tensor, b: Tensor) -> Tensor:
    return a.div(b, rounding_mode="floor")
