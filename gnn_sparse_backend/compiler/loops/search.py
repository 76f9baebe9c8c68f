"""Queries that go from cell to cell of a grid and measure the points in it: what kernels share that find near ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...deferred import tir_builder as T
from ...deferred import tirx
from .cells import AXES, LANES, Grid
from .writing import argument, array, local, long, named

GROUP = 8
"""Coordinates that are written out: of more there is a multiple, filled up with zeros."""
TURN = 256
"""Queries that a thread takes at a time: those of crowded places are then shared out, too."""

Near = Callable[["tirx.Expr"], "tirx.Expr"]
Take = Callable[["tirx.Expr", "tirx.Expr"], None]


class Search:
    """Queries among cells. Parameters: count, of queries; clouds; cells, entries of what says where they begin; points;
    chunks, of queries, one for each thread; queries (count * width,) of ``dtype``; order (count + LANES,) int32, the
    queries by their cells; cloud (count,) int64 of each; those of `Grid`; starts (cells,) int64, coordinates (width *
    (points + LANES),) of ``dtype`` and numbers (points + LANES,) int32, as `order_function` writes them.
    """

    def __init__(self, width: int, dtype: str) -> None:
        self.width, self.dtype = width, dtype
        sizes = (argument(n, "int64") for n in ("count", "clouds", "cells", "points", "chunks"))
        self.count, clouds, cells, points, self.chunks = sizes
        self.room = points + LANES
        self.queries = array("queries", self.count * width, dtype)
        self.order, self.cloud = array("order", self.count + LANES, "int32"), array("cloud", self.count, "int64")
        self.grid = Grid(clouds, width)
        self.starts = array("starts", cells, "int64")
        self.coordinates = array("coordinates", width * self.room, dtype)
        self.numbers = array("numbers", self.room, "int32")

    def share(self) -> Any:
        """Let threads run, each with a chunk of the queries."""
        return T.parallel(0, self.chunks)

    @contextmanager
    def queries_of(self, chunk: tirx.Expr) -> Iterator[tuple[tirx.Expr, tirx.Expr]]:
        """Go from query to query of a chunk, in the order of their cells: (number as int32, as int64)."""
        turns = named("turns", (self.count + (TURN - 1)) >> 8)
        with T.serial(0, tirx.truncdiv(turns - chunk + self.chunks - 1, self.chunks)) as n:
            begin = named("begin", (n * self.chunks + chunk) * TURN)
            with T.serial(0, tirx.min(self.count - begin, long(TURN))) as i:
                number = named("number", self.order[begin + i])
                q = named("q", tirx.Cast("int64", number))
                self._begin(q)
                yield number, q

    def _begin(self, q: tirx.Expr) -> None:
        """Go to the cell of a query."""
        self.y = local("y", (self.width,), self.dtype)
        with T.serial(0, self.width) as d:
            T.buffer_store(self.y, self.queries[q * self.width + d], [d])
        self.grid.of(named("b", self.cloud[q]))
        self.near = local("near", (LANES,), self.dtype)
        self.wide = [named("wide", tirx.Cast("float64", self.y[a])) for a in range(self.grid.axes)]
        self.cell = [
            named("cell", self.grid.cell(a, self.wide[a])) if a < self.grid.axes else long(0) for a in range(AXES)
        ]

    def ring(self, r: tirx.Expr, near: Near, take: Take) -> None:
        """Visit the cells that are r away from the query's own along one axis, and no more along others: those whose
        distance's square is near.
        """
        extent, (own, side, last) = self.grid.extent, self.cell
        with T.serial(0, r * 2 + 1) as i:
            first = named("first", own + _to_and_fro(i))
            gap = self._gap(0, first)
            with T.If(tirx.all(first >= 0, first < extent[0], near(gap))), T.Then(), T.serial(0, r * 2 + 1) as j:
                second = named("second", side + _to_and_fro(j))
                both = named("both", gap + self._gap(1, second))
                with T.If(tirx.all(second >= 0, second < extent[1], near(both))), T.Then():
                    away = tirx.max(_distance(first, own), _distance(second, side))
                    line = named("line", self.grid.base + (first * extent[1] + second) * extent[2])
                    with T.If(away == r):
                        with T.Then():
                            low, high = tirx.max(last - r, long(0)), tirx.min(last + r, extent[2] - 1)
                            self._visit(line + low, line + high, take)
                        with T.Else(), T.serial(0, 2) as end:
                            third = named("third", last + (end * 2 - 1) * r)
                            whole = both + self._gap(2, third)
                            with T.If(tirx.all(third >= 0, third < extent[2], near(whole))), T.Then():
                                self._visit(line + third, line + third, take)

    def reached(self, r: tirx.Expr) -> tirx.Buffer:
        """How far away all that was not visited is at least, once all rings up to r were; -1 where nothing is left."""
        bound = local("bound", (1,), "float64")
        T.buffer_store(bound, tirx.const(-1.0, "float64"), [0])
        for a in range(self.grid.axes):
            below, above = named("below", self.cell[a] - r), named("above", self.cell[a] + r + 1)
            for left, side, sign in ((below > 0, below, 1.0), (above < self.grid.extent[a], above, -1.0)):
                gap = named("gap", self._beyond(a, side, sign))
                with T.If(tirx.all(left, tirx.any(bound[0] < 0, gap < bound[0]))), T.Then():
                    T.buffer_store(bound, gap, [0])
        return bound

    def box(self, radius: tirx.Expr, take: Take) -> None:
        """Visit all cells that hold a point within a radius."""
        spans = []
        for a in range(AXES):
            if a < self.grid.axes:
                slack = (tirx.abs(self.wide[a]) + radius) * tirx.const(1e-6, "float64")
                ends = [self.grid.cell(a, self.wide[a] + sign * (radius + slack)) for sign in (-1, 1)]
            else:
                ends = [long(0), long(0)]
            spans.append((named("low", ends[0]), named("high", ends[1])))
        (low0, high0), (low1, high1), (low2, high2) = spans
        with T.serial(0, high0 - low0 + 1) as i, T.serial(0, high1 - low1 + 1) as j:
            line = self.grid.base + ((low0 + i) * self.grid.extent[1] + low1 + j) * self.grid.extent[2]
            line = named("line", line)
            self._visit(line + low2, line + high2, take)

    def _gap(self, a: int, cell: tirx.Expr) -> tirx.Expr:
        """The square of how far a query is from cells along an axis."""
        if a >= self.grid.axes:
            return tirx.const(0.0, "float64")
        gap = tirx.max(self._beyond(a, cell, -1.0), self._beyond(a, cell + 1, 1.0))
        gap = named("gap", tirx.max(gap, tirx.const(0.0, "float64")))
        return named("square", gap * gap)

    def _beyond(self, a: int, side: tirx.Expr, sign: float) -> tirx.Expr:
        """How far a query is beyond a wall of a cell along an axis (1.0), or before it (-1.0), and a little less; 0
        where it is not."""
        wall = named("wall", self.grid.origin[a] + tirx.Cast("float64", side) * self.grid.size)
        slack = (tirx.abs(wall) + tirx.abs(self.wide[a]) + self.grid.size) * tirx.const(1e-9, "float64")
        return tirx.max((self.wide[a] - wall) * tirx.const(sign, "float64") - slack, tirx.const(0.0, "float64"))

    def _visit(self, first: tirx.Expr, last: tirx.Expr, take: Take) -> None:
        """Measure the points of cells from the first to the last one, and have them taken: from a place on, those
        before the end.
        """
        begin, end = named("begin", self.starts[first]), named("end", self.starts[last + 1])
        with T.serial(0, (end - begin + (LANES - 1)) >> 3) as block:
            at = named("at", begin + block * LANES)
            self._measure(at)
            take(at, end)

    def _measure(self, at: tirx.Expr) -> None:
        """The squared distances of `LANES` points."""

        def of(d: tirx.Expr | int, lane: tirx.Expr) -> tirx.Expr:
            return self.coordinates[d * self.room + at + lane] - self.y[d]

        if self.width <= GROUP:
            with T.vectorized(0, LANES) as lane:
                T.buffer_store(self.near, _squares([of(d, lane) for d in range(self.width)]), [lane])
            return
        with T.vectorized(0, LANES) as lane:
            T.buffer_store(self.near, tirx.const(0, self.dtype), [lane])
        with T.serial(0, self.width // GROUP) as group, T.vectorized(0, LANES) as lane:
            total = _squares([of(group * GROUP + d, lane) for d in range(GROUP)])
            T.buffer_store(self.near, self.near[lane] + total, [lane])


def _squares(differences: list[tirx.Expr]) -> tirx.Expr:
    first, *others = (each * each for each in differences)
    for each in others:
        first = first + each
    return first


def _to_and_fro(i: tirx.Expr) -> tirx.Expr:
    """0, 1, -1, 2, -2, ..."""
    return ((i + 1) >> 1) * ((i & 1) * 2 - 1)


def _distance(one: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
    return tirx.max(one - other, other - one)
