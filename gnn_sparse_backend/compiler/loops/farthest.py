"""Points far from each other, one after the other: a kernel that is written at stage III, since each depends on those
before.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

LANES = 8


def farthest_function(dtype: str) -> tirx.PrimFunc:
    """Choose a first point of each cloud, and then again and again the one that is furthest from all those before, the
    lowest number of equally far ones.

    Parameters: clouds; points; width; drawn, how many in all; coordinates (width * points,) of ``dtype``, one after the
    other; begins (clouds + 1,) int64, the first point of each cloud; places (clouds + 1,) int64, where its results are;
    first (clouds,) int64; distances (points,) of ``dtype``, workspace; found (drawn,) int64, written.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("farthest_points")
        T.func_attr({"tirx.noalias": True})
        clouds, points, width, drawn = (argument(n, "int64") for n in ("clouds", "points", "width", "drawn"))
        coordinates = array("coordinates", width * points, dtype)
        begins, places = array("begins", clouds + 1, "int64"), array("places", clouds + 1, "int64")
        first, distances = array("first", clouds, "int64"), array("distances", points, dtype)
        found = array("found", drawn, "int64")
        with T.parallel(0, clouds) as b:
            begin, end = named("begin", begins[b]), named("end", begins[b + 1])
            at, many = named("at", places[b]), named("many", places[b + 1] - places[b])
            chosen, far = local("chosen", (1,), "int64"), local("far", (1,), dtype)
            T.buffer_store(chosen, first[b], [0])
            with T.serial(begin, end) as i:
                T.buffer_store(distances, tirx.max_value(dtype), [i])
            with T.serial(0, many) as k:
                last = named("last", chosen[0])
                T.buffer_store(found, last, [at + k])
                _nearer(coordinates, distances, points, width, begin, end, last, dtype)
                T.buffer_store(far, tirx.const(-1, dtype), [0])
                with T.serial(begin, end) as i, T.If(distances[i] > far[0]), T.Then():
                    T.buffer_store(far, distances[i], [0])
                    T.buffer_store(chosen, i, [0])
    return finished(builder, "farthest_points")


def _nearer(
    coordinates: tirx.Buffer,
    distances: tirx.Buffer,
    points: tirx.Expr,
    width: tirx.Expr,
    begin: tirx.Expr,
    end: tirx.Expr,
    last: tirx.Expr,
    dtype: str,
) -> None:
    """The distance of each point from the last one that was chosen, where that is less than what there was."""
    sums = local("sums", (LANES,), dtype)
    with T.serial(0, (end - begin + (LANES - 1)) >> 3) as block:
        here = named("here", begin + block * long(LANES))
        count = named("count", tirx.min(long(LANES), end - here))
        with T.serial(0, LANES) as lane:
            T.buffer_store(sums, tirx.const(0, dtype), [lane])
        with T.serial(0, width) as d:
            middle = named("middle", coordinates[d * points + last])
            with T.serial(0, count) as lane:
                away = named("away", coordinates[d * points + here + lane] - middle)
                T.buffer_store(sums, sums[lane] + away * away, [lane])
        with T.serial(0, count) as lane:
            T.buffer_store(distances, tirx.min(distances[here + lane], sums[lane]), [here + lane])
