"""Points near others, by cells of a grid: kernels that are written at stage III.

Points are in the order of their cells, coordinate by coordinate, so that those of neighbouring cells along the last
axis are one run, and `LANES` of them are measured at once. A cell is ``floor((x - origin) / size)`` along up to three
axes, in float64: this ascends with x, whatever is rounded, so that a point in another cell is at least as far as that
cell's side. Each cloud of points has a grid of its own, and a query looks at its cloud alone.

Stage I has neither loops that end at a condition nor an order to keep: so this begins at stage III.
"""

from __future__ import annotations

from collections.abc import Callable

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .neighbours import _below, _State
from .writing import argument, array, finished, local, long, named

AXES = 3
"""Axes of a grid: of points with more coordinates the first ones, of points with fewer some have one cell."""
LANES = 8
"""Points that are measured at once; arrays of coordinates have room for as many behind the last."""
FLAT = 6
"""Coordinates up to which points are in small cells: of more all are measured, and most of them in vain."""
GROUP = 8
"""Coordinates that are written out: of more there is a multiple, filled up with zeros."""


def nearest_function(width: int, dtype: str) -> tirx.PrimFunc:
    """The k nearest points of each query, the nearest first, of equally near ones that of the lower number.

    Rings of cells around a query's own are visited until what is left is further than what was found.

    Parameters: those of `_Search`; k; limit, float64: the square below which distances are; found (count * k,) int64,
    written, -1 where there is none; distances (count * k,) of ``dtype``, workspace: their squares.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("nearest_points")
        T.func_attr({"tirx.noalias": True})
        search = _Search(width, dtype)
        k, limit = argument("k", "int64"), argument("limit", "float64")
        found, distances = array("found", search.count * k, "int64"), array("distances", search.count * k, dtype)
        with T.parallel(0, search.count) as q:
            search.begin(q)
            row = named("row", q * k)
            have, worst, place = (
                local("have", (1,), "int64"),
                local("worst", (1,), dtype),
                local("place", (1,), "int64"),
            )
            T.buffer_store(have, long(0), [0])
            T.buffer_store(worst, tirx.Cast(dtype, limit), [0])
            with T.serial(0, k) as i:
                T.buffer_store(found, long(-1), [row + i])

            def insert(number: tirx.Expr, distance: tirx.Expr) -> None:
                end = named("end", row + k - 1)
                full = have[0] == k
                nearer = tirx.any(
                    distance < worst[0],
                    tirx.all(full, distance == worst[0], number < found[end]),
                )
                with T.If(nearer), T.Then():
                    T.buffer_store(place, row + tirx.min(have[0], k - 1), [0])
                    T.buffer_store(have, tirx.min(have[0] + 1, k), [0])
                    going = local("moving", (1,), "int64")
                    T.buffer_store(going, long(1), [0])
                    with T.While(going[0] > 0):
                        before = named("before", tirx.max(place[0] - 1, row))
                        behind = tirx.any(
                            distance < distances[before],
                            tirx.all(distance == distances[before], number < found[before]),
                        )
                        with T.If(tirx.all(place[0] > row, behind)):
                            with T.Then():
                                T.buffer_store(distances, distances[before], [place[0]])
                                T.buffer_store(found, found[before], [place[0]])
                                T.buffer_store(place, before, [0])
                            with T.Else():
                                T.buffer_store(going, long(0), [0])
                    T.buffer_store(distances, distance, [place[0]])
                    T.buffer_store(found, number, [place[0]])
                    with T.If(have[0] == k), T.Then():
                        T.buffer_store(worst, distances[end], [0])

            near = lambda distance: distance <= worst[0]
            ring, going = local("ring", (1,), "int64"), local("going", (1,), "int64")
            T.buffer_store(ring, long(0), [0])
            T.buffer_store(going, long(1), [0])
            with T.While(going[0] > 0):
                r = named("r", ring[0])
                search.ring(r, near, insert)
                bound = search.reached(r)
                wide = named("wide", tirx.Cast("float64", worst[0]) * tirx.const(1.00001, "float64"))
                with T.If(tirx.any(bound[0] < 0, wide < bound[0] * bound[0])), T.Then():
                    T.buffer_store(going, long(0), [0])
                T.buffer_store(ring, r + 1, [0])
    return finished(builder, "nearest_points")


def within_function(width: int, dtype: str, counts: bool) -> tirx.PrimFunc:
    """The points whose distance from each query is less than a radius: how many (counts), or which.

    Where there are more than ``most``, each is as likely to be among those that are kept: the first ``most`` are, and
    each later one takes the place of one of them or of nobody (reservoir sampling), by counted random numbers.

    Parameters: those of `_Search`; radius, float64; same: above 0 where the point with the query's number is left out;
    of counts: pointers (count + 1,) int64, of which the entries behind the first are written: the points found; else
    drawn, the length of ``found``; stream; pointers, where the kept points of each query begin, and found (drawn,)
    int64, written.
    """
    name = "points_within" if not counts else "count_within"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        search = _Search(width, dtype)
        radius, same = argument("radius", "float64"), argument("same", "int64")
        if not counts:
            drawn, stream = argument("drawn", "int64"), argument("stream", "int64")
        pointers = array("pointers", search.count + 1, "int64")
        found = None if counts else array("found", drawn, "int64")
        with T.parallel(0, search.count) as q:
            search.begin(q)
            limit = named("limit", tirx.Cast(dtype, radius * radius))
            have = local("have", (1,), "int64")
            T.buffer_store(have, long(0), [0])
            if found is not None:
                at, most = named("at", pointers[q]), named("most", pointers[q + 1] - pointers[q])
                state = _State(stream, q, None)

            def take(number: tirx.Expr, distance: tirx.Expr) -> None:
                with T.If(tirx.any(same <= 0, number != q)), T.Then():
                    if found is not None:
                        seen = named("seen", have[0])
                        with T.If(seen < most):
                            with T.Then():
                                T.buffer_store(found, number, [at + seen])
                            with T.Else():
                                chosen = named("chosen", _below(state.number(seen - most), seen + 1))
                                with T.If(chosen < most), T.Then():
                                    T.buffer_store(found, number, [at + chosen])
                    T.buffer_store(have, have[0] + 1, [0])

            search.box(radius, lambda distance: distance < limit, take)
            if found is None:
                T.buffer_store(pointers, have[0], [q + 1])
    return finished(builder, name)


Near = Callable[["tirx.Expr"], "tirx.Expr"]
Take = Callable[["tirx.Expr", "tirx.Expr"], None]


class _Search:
    """A query among cells. Parameters: count, of queries; clouds; cells; points; queries (count * width,) of ``dtype``;
    cloud (count,) int64 of each; origins (clouds * AXES,) and sizes (clouds,) of cells, float64; extents (clouds *
    AXES,) int64, how many cells; bases (clouds,) int64, the first cell; begins (cells + 1,) int64, the first point of
    each cell; coordinates (width * (points + LANES),) of ``dtype``; numbers (points,) int64 of the points.
    """

    def __init__(self, width: int, dtype: str) -> None:
        self.width, self.dtype = width, dtype
        self.axes = min(width, AXES)
        self.count, clouds, cells, points = (argument(n, "int64") for n in ("count", "clouds", "cells", "points"))
        self.room = points + LANES
        self.queries = array("queries", self.count * width, dtype)
        self.cloud = array("cloud", self.count, "int64")
        self.origins, self.sizes = array("origins", clouds * AXES, "float64"), array("sizes", clouds, "float64")
        self.extents, self.bases = array("extents", clouds * AXES, "int64"), array("bases", clouds, "int64")
        self.begins = array("begins", cells + 1, "int64")
        self.coordinates = array("coordinates", width * self.room, dtype)
        self.numbers = array("numbers", points, "int64")

    def begin(self, q: tirx.Expr) -> None:
        """Go to the cell of a query."""
        self.y = local("y", (self.width,), self.dtype)
        with T.serial(0, self.width) as d:
            T.buffer_store(self.y, self.queries[q * self.width + d], [d])
        b = named("b", self.cloud[q])
        self.size = named("size", self.sizes[b])
        self.origin = [named("origin", self.origins[b * AXES + a]) for a in range(AXES)]
        self.extent = [named("extent", self.extents[b * AXES + a]) for a in range(AXES)]
        self.base = named("base", self.bases[b])
        self.near = local("near", (LANES,), self.dtype)
        self.cell = [
            named("cell", self._cell_of(a, tirx.Cast("float64", self.y[a]))) if a < self.axes else long(0)
            for a in range(AXES)
        ]

    def ring(self, r: tirx.Expr, near: Near, take: Take) -> None:
        """Visit the cells that are r away from the query's own along one axis, and no more along others."""
        (low0, high0), (low1, high1) = (self._span(a, r) for a in range(2))
        last, end = self.cell[2], self.extent[2]
        with T.serial(0, high0 - low0 + 1) as i, T.serial(0, high1 - low1 + 1) as j:
            first, second = named("first", low0 + i), named("second", low1 + j)
            away = tirx.max(_distance(first, self.cell[0]), _distance(second, self.cell[1]))
            line = named("line", self.base + (first * self.extent[1] + second) * end)
            with T.If(away == r):
                with T.Then():
                    self._visit(line + tirx.max(last - r, long(0)), line + tirx.min(last + r, end - 1), near, take)
                with T.Else(), T.serial(0, 2) as side:
                    at = named("at", last + (side * 2 - 1) * r)
                    with T.If(tirx.all(at >= 0, at < end)), T.Then():
                        self._visit(line + at, line + at, near, take)

    def reached(self, r: tirx.Expr) -> tirx.Buffer:
        """How far away all that was not visited is at least, once all rings up to r were; -1 where nothing is left."""
        bound = local("bound", (1,), "float64")
        T.buffer_store(bound, tirx.const(-1.0, "float64"), [0])
        for a in range(self.axes):
            y = tirx.Cast("float64", self.y[a])
            below, above = named("below", self.cell[a] - r), named("above", self.cell[a] + r + 1)
            for left, side, sign in ((below > 0, below, 1.0), (above < self.extent[a], above, -1.0)):
                plane = named("plane", self.origin[a] + tirx.Cast("float64", side) * self.size)
                slack = (tirx.abs(plane) + tirx.abs(y) + self.size) * tirx.const(1e-9, "float64")
                gap = named(
                    "gap", tirx.max((y - plane) * tirx.const(sign, "float64") - slack, tirx.const(0.0, "float64"))
                )
                with T.If(tirx.all(left, tirx.any(bound[0] < 0, gap < bound[0]))), T.Then():
                    T.buffer_store(bound, gap, [0])
        return bound

    def box(self, radius: tirx.Expr, near: Near, take: Take) -> None:
        """Visit all cells that hold a point within a radius."""
        spans = []
        for a in range(AXES):
            if a < self.axes:
                y = tirx.Cast("float64", self.y[a])
                slack = (tirx.abs(y) + radius) * tirx.const(1e-6, "float64")
                ends = [self._cell_of(a, y - radius - slack), self._cell_of(a, y + radius + slack)]
            else:
                ends = [long(0), long(0)]
            spans.append((named("low", ends[0]), named("high", ends[1])))
        (low0, high0), (low1, high1), (low2, high2) = spans
        with T.serial(0, high0 - low0 + 1) as i, T.serial(0, high1 - low1 + 1) as j:
            line = named("line", self.base + ((low0 + i) * self.extent[1] + low1 + j) * self.extent[2])
            self._visit(line + low2, line + high2, near, take)

    def _cell_of(self, a: int, x: tirx.Expr) -> tirx.Expr:
        place = (x - self.origin[a]) / self.size
        last = tirx.Cast("float64", self.extent[a] - 1)
        return tirx.Cast("int64", tirx.floor(tirx.max(tirx.min(place, last), tirx.const(0.0, "float64"))))

    def _span(self, a: int, r: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        low, high = tirx.max(self.cell[a] - r, long(0)), tirx.min(self.cell[a] + r, self.extent[a] - 1)
        return named("low", low), named("high", high)

    def _visit(self, first: tirx.Expr, last: tirx.Expr, near: Near, take: Take) -> None:
        """Take the points of cells from the first to the last one that are near."""
        begin, end = named("begin", self.begins[first]), named("end", self.begins[last + 1])
        with T.serial(0, (end - begin + (LANES - 1)) >> 3) as block:
            at = named("at", begin + block * LANES)
            self._measure(at)
            if self.width <= FLAT:
                self._take(at, end, near, take)
            else:
                nearest = self.near[0]
                for lane in range(1, LANES):
                    nearest = tirx.min(nearest, self.near[lane])
                with T.If(near(named("nearest", nearest))), T.Then():
                    self._take(at, end, near, take)

    def _take(self, at: tirx.Expr, end: tirx.Expr, near: Near, take: Take) -> None:
        """Take those of `LANES` points that are near, up to the end of the cells."""
        with T.serial(0, tirx.min(long(LANES), end - at)) as lane:
            distance = named("distance", self.near[lane])
            with T.If(near(distance)), T.Then():
                take(named("number", self.numbers[at + lane]), distance)

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


def _distance(one: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
    return tirx.max(one - other, other - one)
