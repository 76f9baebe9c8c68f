"""Products of small matrices that stay in the caches: sums[a, lane] = sum over r of left(a, r) * right(r, lane).

What stands on the left is read number by number, and multiplies whole vectors of what stands on the right. So no sum is
ever taken across the lanes of a vector, and whatever belongs to a lane (a maximum, a sum of weights) is a vector too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....compiler.language.axes import Axis
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, maximum, minimum
from .spec import MaskedSpec

Number = Callable[[Expr, Expr], Expr]
Write = Callable[[Expr, Expr, Expr], None]
Range = tuple[Expr, Expr]
"""First, and behind the last."""
Reach = Callable[[Expr], Range]
"""Range that a group of lanes reaches; the group is as wide as a tile of sums."""


class Blocks:
    """Writes the loops of a program on blocks: over vectors of lanes, and products of two small matrices."""

    def __init__(self, p: ProgramBuilder, spec: MaskedSpec) -> None:
        self.p, self.spec, self.count = p, spec, 0
        self.C = p.dense_fixed("C", spec.lanes)
        self.axes: dict[int, Axis] = {}

    def axis(self, length: int) -> Axis:
        """A dense axis of that length."""
        if length not in self.axes:
            self.axes[length] = self.p.dense_fixed(f"S{length}", length)
        return self.axes[length]

    def local(self, name: str, length: int, dtype: str | None = None) -> BufferHandle:
        """A local buffer of ``length`` numbers."""
        return self.p.local(name, (self.axis(length),), dtype or self.spec.accumulator)

    @contextmanager
    def each(self, name: str, length: int, kind: str = "S", within: Range | None = None) -> Iterator[Expr]:
        """A loop over 0 .. length - 1, of which it visits those within a range."""
        self.count += 1
        own = f"{name}{self.count}"
        # axes of its own, as loops are nested; two of them: a loop by itself, never a vector of that length
        axes = [self.p.dense_fixed(f"{own}_{n}", each) for n, each in enumerate((1, length)) if n == 0 or each > 1]
        kinds, names = ("S" + kind)[: len(axes)], [f"{own}_i{n}" for n in range(len(axes))]
        bounds = () if within is None else ((axes[-1], *within),)
        with self.p.iterate(own, axes, kinds, names, bounds=bounds) as at:
            yield at[1] if length > 1 else as_expr(0)

    @contextmanager
    def lanes(self, name: str) -> Iterator[Expr]:
        """The lanes of a vector."""
        self.count += 1
        with self.p.iterate(f"{name}{self.count}", (self.C,), "S", (f"c{self.count}",)) as (c,):
            yield c

    def vectors(self, name: str, length: int, write: Callable[[Expr], None]) -> None:
        """``write(lane)`` for all ``length`` lanes, which are whole vectors."""
        with self.each(name, length // self.spec.lanes) as vector:
            with self.lanes(f"{name}_lane") as c:
                write(vector * self.spec.lanes + c)

    def row(self, name: str, width: int, write: Callable[[Expr], None]) -> None:
        """``write(n)`` for all n < width, in vectors as far as they reach."""
        whole = width // self.spec.lanes * self.spec.lanes
        if whole:
            self.vectors(name, whole, write)
        if whole < width:
            with self.each(f"{name}_rest", width - whole) as n:
                write(n + whole)

    def product(
        self,
        name: str,
        shape: tuple[int, int, int],
        left: Number,
        right: Number,
        write: Callable[[Expr, Expr, Expr], None],
        start: Number | None = None,
        some_rows: Reach | None = None,
        some_terms: Reach | None = None,
    ) -> None:
        """The product of shape (rows, terms, lanes).

        left(row, term), right(term, lane): the factors. write(row, lane, sum) stores a sum, which begins at
        start(row, lane) where that is given. some_rows, some_terms: those that a group of lanes has; other rows are
        written or not, and other terms are left out.
        """
        rows, terms, lanes = shape
        spec = self.spec
        tall, wide = min(spec.rows, rows), min(spec.vectors * spec.lanes, lanes)
        for first_lane, across, turns in cuts(lanes, wide):
            for first, height, times in cuts(rows, tall):
                with self.each(f"{name}_across", turns) as q:
                    group = q + first_lane // wide
                    down = None if some_rows is None else _pieces(some_rows(group), first, height, times)
                    along = None if some_terms is None else some_terms(group)
                    with self.each(f"{name}_down", times, within=down) as t:
                        self._tile(
                            name,
                            first + t * height,
                            first_lane + q * across,
                            (height, terms, across // spec.lanes),
                            left,
                            right,
                            write,
                            start,
                            along,
                        )

    def _tile(self, name, row, lane, shape, left, right, write, start, along) -> None:
        height, terms, across = shape
        lanes = self.spec.lanes
        self.count += 1
        own = self.count
        sums = [
            [self.p.local(f"Sum{own}_{m}_{n}", (self.C,), self.spec.accumulator) for n in range(across)]
            for m in range(height)
        ]

        def every(c):
            for m in range(height):
                for n in range(across):
                    yield sums[m][n], row + m, lane + (c + n * lanes)

        with self.lanes(f"{name}_start") as c:
            for vector, r, at in every(c):
                vector[c] = 0.0 if start is None else start(r, at)
        with self.each(f"{name}_terms", terms, "R", along) as term:
            with self.lanes(f"{name}_step") as c:
                for vector, r, at in every(c):
                    vector[c] = vector[c] + left(r, term) * right(term, at)
        with self.lanes(f"{name}_write") as c:
            for vector, r, at in every(c):
                write(r, at, vector[c])


def cuts(length: int, size: int) -> list[tuple[int, int, int]]:
    """(first, size, how many) of equal pieces, and of what they leave."""
    whole = length // size
    found = [(0, size, whole)]
    if length % size:
        found.append((whole * size, length % size, 1))
    return found


def _pieces(some: Range, first: int, size: int, times: int) -> Range:
    """Which of ``times`` pieces of a size, the first of which begins at ``first``, have any of a range."""
    low, high = some

    def inside(n: Expr) -> Expr:
        return minimum(maximum(n, 0), times)

    return inside((low - first) // size), inside((high - first + (size - 1)) // size)
