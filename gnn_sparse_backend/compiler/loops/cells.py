"""Cells of grids over clouds of points, and points in the order of their cells: kernels that are written at stage III.

Each cloud has a grid of its own, of cubes along up to three axes. A cell is ``(x - origin) / size`` without its
fraction, in float64: this ascends with x, whatever is rounded, so that a point in another cell is at least as far as
that cell's side.

Where a point goes is known once those before it are counted, and how many cells there are once their size is: so this
begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

AXES = 3
"""Axes of a grid: of points with more coordinates the first ones, of points with fewer some have one cell."""
LANES = 8
"""Points that are measured at once; arrays of coordinates have room for as many behind the last."""
CELLS_PER_POINT, CELLS_MORE = 4, 8
"""More cells than that are not made, whatever size was asked for: as many for each point, and some for each cloud."""
_STEP = 1.0625
"""Factor by which cells are made larger until they are few enough."""


def entries_of(points: int, clouds: int) -> int:
    """The length of an array that says where the cells of all clouds begin."""
    return CELLS_PER_POINT * points + (CELLS_MORE + 2) * clouds


class Grid:
    """The cells of each cloud. Parameters: origins (clouds * AXES,) and sizes (clouds,) of cells, float64; extents
    (clouds * AXES,) int64, how many cells; bases (clouds,) int64, where what is said of a cloud's cells begins.
    """

    def __init__(self, clouds: tirx.Expr, width: int) -> None:
        self.axes = min(width, AXES)
        self.origins, self.sizes = array("origins", clouds * AXES, "float64"), array("sizes", clouds, "float64")
        self.extents, self.bases = array("extents", clouds * AXES, "int64"), array("bases", clouds, "int64")

    def of(self, b: tirx.Expr) -> None:
        """Turn to the grid of a cloud."""
        self.size = named("size", self.sizes[b])
        self.per_size = named("per_size", tirx.const(1.0, "float64") / self.size)
        self.origin = [named("origin", self.origins[b * AXES + a]) for a in range(AXES)]
        self.extent = [named("extent", self.extents[b * AXES + a]) for a in range(AXES)]
        self.base = named("base", self.bases[b])

    def cell(self, a: int, x: tirx.Expr) -> tirx.Expr:
        """The cell along an axis of a coordinate in float64; that at the end for what is beyond it."""
        last = tirx.Cast("float64", self.extent[a] - 1)
        place = (x - self.origin[a]) * self.per_size
        return tirx.Cast("int64", tirx.max(tirx.min(place, last), tirx.const(0.0, "float64")))


def grid_function(width: int, dtype: str) -> tirx.PrimFunc:
    """The grid of each cloud: the smallest cells, by steps, of which there are not too many.

    Parameters: points; clouds; held, float64: about how many points a cell is to hold; least, float64: the least size
    of a cell instead, 0 for none; x (points * width,) of ``dtype``; begins (clouds + 1,) int64, the first point of each
    cloud; those of `Grid`, written.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("grids_of_points")
        T.func_attr({"tirx.noalias": True})
        points, clouds = argument("points", "int64"), argument("clouds", "int64")
        held, least = argument("held", "float64"), argument("least", "float64")
        x, begins = array("x", points * width, dtype), array("begins", clouds + 1, "int64")
        grid = Grid(clouds, width)
        with T.parallel(0, clouds) as b:
            begin, end = named("begin", begins[b]), named("end", begins[b + 1])
            low, high = local("low", (AXES,), "float64"), local("high", (AXES,), "float64")
            for a in range(AXES):
                first = tirx.Cast("float64", x[begin * width + a]) if a < grid.axes else _real(0.0)
                first = named("first", tirx.if_then_else(begin < end, first, _real(0.0)))
                T.buffer_store(low, first, [a])
                T.buffer_store(high, first, [a])
            with T.serial(begin, end) as i:
                for a in range(grid.axes):
                    place = named("place", tirx.Cast("float64", x[i * width + a]))
                    T.buffer_store(low, tirx.min(low[a], place), [a])
                    T.buffer_store(high, tirx.max(high[a], place), [a])
            many = named("many", tirx.Cast("float64", end - begin))
            limit = tirx.Select(
                least > 0, many * _real(CELLS_PER_POINT) + _real(CELLS_MORE), tirx.max(many / held, _real(1.0))
            )
            most = named("most", limit)
            spans = [named("span", tirx.min(high[a] - low[a], _real(1e300))) for a in range(AXES)]
            size, going = local("cell", (1,), "float64"), local("going", (1,), "int64")
            widest = tirx.max(tirx.max(spans[0], spans[1]), spans[2])
            T.buffer_store(size, tirx.max(tirx.max(least, widest / most), _real(1e-300)), [0])
            T.buffer_store(going, long(1), [0])
            with T.While(going[0] > 0):
                cells = [named("cells", tirx.floor(span / size[0]) + _real(1.0)) for span in spans]
                with T.If(cells[0] * cells[1] * cells[2] > most):
                    with T.Then():
                        T.buffer_store(size, size[0] * _real(_STEP), [0])
                    with T.Else():
                        T.buffer_store(going, long(0), [0])
                        for a in range(AXES):
                            T.buffer_store(grid.extents, tirx.Cast("int64", cells[a]), [b * AXES + a])
            for a in range(AXES):
                T.buffer_store(grid.origins, low[a], [b * AXES + a])
            T.buffer_store(grid.sizes, size[0], [b])
            T.buffer_store(grid.bases, begin * CELLS_PER_POINT + b * (CELLS_MORE + 2), [b])
    return finished(builder, "grids_of_points")


def order_function(width: int, dtype: str, copies: bool) -> tirx.PrimFunc:
    """Points in the order of their cells.

    Parameters: points; clouds; entries; x (points * width,) of ``dtype``; begins (clouds + 1,) int64, the first point
    of each cloud; those of `Grid`; starts (entries,) int64, written: at a cloud's base and behind it where the points
    of its cells begin, and where those of the last end; numbers (points + LANES,) int32
    of the points, written. With
    ``copies``: coordinates (width * (points + LANES),) of ``dtype``, written, one coordinate of all points behind the
    other; crowds (clouds,) int64, written: the squares of how many points cells have, added up.
    """
    name = "order_points" if copies else "order_queries"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        points, clouds, entries = (argument(each, "int64") for each in ("points", "clouds", "entries"))
        x, begins = array("x", points * width, dtype), array("begins", clouds + 1, "int64")
        grid = Grid(clouds, width)
        starts, numbers = array("starts", entries, "int64"), array("numbers", points + LANES, "int32")
        if copies:
            room = points + LANES
            coordinates, crowds = array("coordinates", width * room, dtype), array("crowds", clouds, "int64")
            with T.serial(0, width) as d, T.serial(0, LANES) as lane:
                T.buffer_store(coordinates, tirx.const(0, dtype), [d * room + points + lane])
        with T.parallel(0, clouds) as b:
            begin, end = named("begin", begins[b]), named("end", begins[b + 1])
            grid.of(b)
            cells = named("cells", grid.extent[0] * grid.extent[1] * grid.extent[2])

            def place(i: tirx.Expr) -> tirx.Var:
                at = long(0)
                for a in range(grid.axes):
                    at = at * grid.extent[a] + grid.cell(a, tirx.Cast("float64", x[i * width + a]))
                for a in range(grid.axes, AXES):
                    at = at * grid.extent[a]
                return named("place", grid.base + at)

            with T.serial(0, cells + 2) as cell:
                T.buffer_store(starts, long(0), [grid.base + cell])
            with T.serial(begin, end) as i:
                at = place(i)
                T.buffer_store(starts, starts[at + 2] + 1, [at + 2])
            before, crowd = local("before", (1,), "int64"), local("crowd", (1,), "int64")
            T.buffer_store(before, begin, [0])
            T.buffer_store(crowd, long(0), [0])
            T.buffer_store(starts, begin, [grid.base])
            with T.serial(0, cells) as cell:
                at = named("at", grid.base + cell)
                here = named("here", starts[at + 2])
                T.buffer_store(starts, before[0], [at + 1])
                T.buffer_store(before, before[0] + here, [0])
                T.buffer_store(crowd, crowd[0] + here * here, [0])
            with T.serial(begin, end) as i:  # where a cell begins moves on to where it ends
                cell = place(i)
                at = named("at", starts[cell + 1])
                T.buffer_store(starts, at + 1, [cell + 1])
                T.buffer_store(numbers, tirx.Cast("int32", i), [at])
                if copies:
                    for d in range(width):
                        T.buffer_store(coordinates, x[i * width + d], [d * room + at])
            if copies:
                T.buffer_store(crowds, crowd[0], [b])
    return finished(builder, name)


def _real(value: float) -> tirx.Expr:
    return tirx.const(float(value), "float64")
