"""Products of tiles of bfloat16 numbers, and what brings operands in order for them.

The left factor of a product lies in rows, the right one in pairs of rows: two terms of all columns, side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from .....compiler.language.builder import BufferHandle, ProgramBuilder
from .....compiler.language.expr import Expr, ExprLike, cast
from ..items import Item, Items
from ..products import Blocks
from ..spec import SIDE

TILES = "Tile"
"""What the names of buffers in tile registers begin with."""
INTERLEAVED, TRANSPOSED, ROUNDED = "interleave", "transpose", "round"
"""What the names of iterations begin with that put rows in pairs, that transpose pairs, and that round rows."""
Sums = tuple[BufferHandle, Callable[[Expr, Expr], object]]
"""A buffer of float32, and where it has a row and a column."""


class Part:
    """A part of the workspace of a task, as a buffer of one dimension."""

    def __init__(self, buffer: BufferHandle, task: Expr, first: int) -> None:
        self.buffer, self.task, self.first = buffer, task, first
        self.value = buffer.value

    def __getitem__(self, at: ExprLike) -> Expr:
        return self.buffer[self.task, at + self.first]

    def __setitem__(self, at: ExprLike, value: ExprLike) -> None:
        self.buffer[self.task, at + self.first] = value


class InPairs:
    """Rows of ``width`` columns that lie in pairs, by the indices that they would have one behind the other."""

    def __init__(self, pairs: Part, width: int) -> None:
        self.pairs, self.width, self.value = pairs, width, pairs.value

    def __setitem__(self, at: Expr, value: ExprLike) -> None:
        row, column = at // self.width, at % self.width
        self.pairs[row // 2 * (2 * self.width) + (2 * column + row % 2)] = value


class Workspace:
    """Adds the parameter Work, (tasks, sum of ``lengths``): parts of these lengths for each task."""

    def __init__(self, items: Items, lengths: Mapping[str, int]) -> None:
        *self.firsts, total = itertools.accumulate(lengths.values(), initial=0)
        self.work = items.p.buffer("Work", (items.T, items.blocks.axis(total)), items.spec.dtype)

    def parts(self, item: Item) -> list[Part]:
        """The parts of the task that has the item."""
        return [Part(self.work, item.task, first) for first in self.firsts]


def flat(buffer: BufferHandle, width: int) -> Sums:
    """Rows of ``width`` columns, one behind the other."""
    return buffer, lambda row, column: row * width + column


class TileProducts:
    """Writes products on tile registers, and what brings operands in order for them."""

    def __init__(self, p: ProgramBuilder, blocks: Blocks) -> None:
        self.p, self.each, self.count = p, blocks.each, 0

    def _axes(self, *lengths: int) -> list:
        self.count += 1
        return [self.p.dense_fixed(f"X{self.count}_{n}", length) for n, length in enumerate(lengths)]

    def _names(self, count: int) -> list[str]:
        return [f"x{self.count}_{n}" for n in range(count)]

    def interleave(self, source: Callable[[Expr, Expr], Expr], target: Part, rows: int, width: int) -> None:
        """target[row / 2, 2 column + row % 2] = source(row, column), rounded."""
        axes = self._axes(rows // 2, width)
        with self.p.iterate(f"{INTERLEAVED}{self.count}", axes, "SS", self._names(2)) as (h, v):
            for q in (0, 1):
                target[h * (2 * width) + (2 * v + q)] = cast("bfloat16", source(2 * h + q, v))

    def transpose(self, source: Part, target: Part, rows: int, pairs: int) -> None:
        """target[pair, row] = source[row, pair]: pairs of numbers change rows and columns."""
        axes = self._axes(rows, pairs, 2)
        with self.p.iterate(f"{TRANSPOSED}{self.count}", axes, "SSS", self._names(3)) as (i, j, q):
            target[j * (2 * rows) + (2 * i + q)] = source[i * (2 * pairs) + (2 * j + q)]

    def round(self, source: BufferHandle, target: Part, rows: int, width: int) -> None:
        """target[row, column] = source[row, column], rounded."""
        axes = self._axes(rows, width)
        with self.p.iterate(f"{ROUNDED}{self.count}", axes, "SS", self._names(2)) as (i, j):
            target[i * width + j] = cast("bfloat16", source[i * width + j])

    def pad(self, target: Part, rows: int, width: int, wide: int) -> None:
        """Zeros behind the ``width`` columns of rows of ``wide`` ones."""
        if width < wide:
            with self.each("pad", rows) as row, self.each("pad_column", wide - width) as column:
                target[row * wide + (width + column)] = 0.0

    def product(self, left: Part, right: Part, shape: tuple[int, int, int], to: Sums, onto: bool) -> None:
        """to[row, lane] = sum over terms of left[row, term] right[term / 2, 2 lane + term % 2], added where ``onto``.

        shape: (rows, terms, lanes).
        """
        (rows, terms, lanes), (sums, at) = shape, to
        with self.each("tile_down", rows // SIDE) as down, self.each("tile_across", lanes // SIDE) as across:
            self.count += 1
            own = self.count
            row, lane = [self.p.dense_fixed(f"Y{own}_{n}", SIDE) for n in (0, 1)]
            term = self.p.dense_fixed(f"Y{own}_2", terms)
            tile = self.p.local(f"{TILES}{own}", (row, lane), "float32")

            def place(m: Expr, n: Expr) -> object:
                return at(down * SIDE + m, across * SIDE + n)

            def names(which: str) -> list[str]:
                return [f"{which}{own}_{n}" for n in range(3)]

            with self.p.iterate(f"tile_start{own}", (row, lane), "SS", names("s")[:2]) as (m, n):
                tile[m, n] = sums[place(m, n)] if onto else 0.0
            with self.p.iterate(f"tile_terms{own}", (row, lane, term), "SSR", names("t")) as (m, n, k):
                a = left[(down * SIDE + m) * terms + k]
                b = right[k // 2 * (2 * lanes) + (across * SIDE * 2 + (2 * n + k % 2))]
                tile[m, n] = tile[m, n] + cast("float32", a) * cast("float32", b)
            with self.p.iterate(f"tile_end{own}", (row, lane), "SS", names("e")[:2]) as (m, n):
                sums[place(m, n)] = tile[m, n]
