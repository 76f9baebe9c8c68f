"""Edges in the order of their rows: kernels that are written at stage III, for many edges.

A stable radix sort of two passes. Rows are shared out to buckets, ``1 << shift`` rows each, at most `LOW` bits. The
first pass moves each edge into the span of its bucket, in the very arrays that hold the result; only its row within
the bucket is kept beside, in 16 bits. The second pass sorts each bucket by counting, with a copy of that bucket alone.
So sorting takes a quarter of the result besides, and what it writes to at random fits into a core's cache.

Stage I has neither bitwise operators nor stores that depend on those before: so this begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

LOW = 16
"""Most bits of a row within its bucket."""
NONE, COUNTED, GIVEN = "none", "counted", "given"
"""Which numbers edges have: none, those of their positions, or others."""


def count_function(key: str) -> tirx.PrimFunc:
    """Edges of each chunk and bucket.

    Parameters: edges, chunks, buckets, shift; keys (edges,) of type ``key``, the row of each edge; counts (chunks *
    buckets,) int64, written.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("edges_of_buckets")
        T.func_attr({"tirx.noalias": True})
        edges, chunks, buckets, shift = (argument(n, "int64") for n in ("edges", "chunks", "buckets", "shift"))
        keys, counts = array("keys", edges, key), array("counts", chunks * buckets, "int64")
        with T.parallel(0, chunks) as chunk:
            first = named("first", chunk * buckets)
            with T.serial(0, buckets) as b:
                T.buffer_store(counts, long(0), [first + b])
            begin, end = named("begin", chunk * edges // chunks), named("end", (chunk + 1) * edges // chunks)
            with T.serial(0, end - begin) as i:
                place = named("place", first + (tirx.Cast("int64", keys[begin + i]) >> shift))
                T.buffer_store(counts, counts[place] + 1, [place])
    return finished(builder, "edges_of_buckets")


def spread_function(key: str, value: str, index: str, numbers: str) -> tirx.PrimFunc:
    """Edges in the spans of their buckets, in the order in which they are given.

    Parameters: edges, chunks, buckets, shift; keys (edges,) of type ``key``; with a ``value`` values (edges,) of this
    type, else rows and offsets (rows + 1,) of type ``index``: edge e has the value r with offsets[r] <= e < offsets[r +
    1]; where numbers are ``GIVEN`` numbers (edges,) of type ``index``; places (chunks * buckets,) int64, where the
    edges of each chunk and bucket begin, used up. Written: low (edges,) uint16, the row within the bucket; indices
    (edges,) of type ``index``, the values; unless numbers are ``NONE`` edge_ids (edges,), of the same type.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("edges_in_buckets")
        T.func_attr({"tirx.noalias": True})
        edges, chunks, buckets, shift = (argument(n, "int64") for n in ("edges", "chunks", "buckets", "shift"))
        keys = array("keys", edges, key)
        if value:
            values = array("values", edges, value)
        else:
            rows = argument("rows", "int64")
            offsets = array("offsets", rows + 1, index)
        given = array("numbers", edges, index) if numbers == GIVEN else None
        places, low = array("places", chunks * buckets, "int64"), array("low", edges, "uint16")
        indices = array("indices", edges, index)
        edge_ids = None if numbers == NONE else array("edge_ids", edges, index)
        with T.parallel(0, chunks) as chunk:
            begin, end = named("begin", chunk * edges // chunks), named("end", (chunk + 1) * edges // chunks)
            mask = named("mask", (long(1) << shift) - 1)
            if not value:
                row = _row_of(begin, rows, offsets)
            with T.serial(0, end - begin) as i:
                e = named("e", begin + i)
                if not value:
                    with T.While(tirx.Cast("int64", offsets[row[0] + 1]) <= e):
                        T.buffer_store(row, row[0] + 1, [0])
                of = named("of", tirx.Cast("int64", keys[e]))
                cursor = named("cursor", chunk * buckets + (of >> shift))
                place = named("place", places[cursor])
                T.buffer_store(places, place + 1, [cursor])
                T.buffer_store(low, tirx.Cast("uint16", of & mask), [place])
                T.buffer_store(indices, tirx.Cast(index, values[e] if value else row[0]), [place])
                if edge_ids is not None:
                    T.buffer_store(edge_ids, tirx.Cast(index, e) if given is None else given[e], [place])
    return finished(builder, "edges_in_buckets")


def settle_function(index: str, numbered: bool) -> tirx.PrimFunc:
    """Edges of each bucket by their rows, and where the rows begin.

    Parameters: edges, rows, buckets, shift, tasks, room; first (tasks + 1,) int64, the buckets of each task; begins
    (buckets + 1,) int64, where the edges of each bucket begin, at most ``room`` of one; low (edges,) uint16; held (2 *
    tasks * room,) of type ``index``, workspace. Written: indptr (rows + 1,) of type ``index``; indices, and where
    ``numbered`` edge_ids, (edges,), which are sorted.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("edges_by_rows")
        T.func_attr({"tirx.noalias": True})
        edges, rows, buckets, shift = (argument(n, "int64") for n in ("edges", "rows", "buckets", "shift"))
        tasks, room = argument("tasks", "int64"), argument("room", "int64")
        first, begins = array("first", tasks + 1, "int64"), array("begins", buckets + 1, "int64")
        low, held = array("low", edges, "uint16"), array("held", 2 * tasks * room, index)
        indptr = array("indptr", rows + 1, index)
        sorted_ = [array(name, edges, index) for name in ("indices", "edge_ids")[: 1 + numbered]]
        T.buffer_store(indptr, tirx.const(0, index), [0])
        with T.parallel(0, tasks) as task:
            own, at = named("own", task * 2 * room), local("at", (1,), index)
            with T.serial(0, first[task + 1] - first[task]) as j:
                bucket = named("bucket", first[task] + j)
                begin, many = named("begin", begins[bucket]), named("many", begins[bucket + 1] - begins[bucket])
                # the end of row r of the bucket is at ``above + r``, and until it is known where its next edge goes
                above = named("above", (bucket << shift) + 1)
                own_rows = named("own_rows", tirx.min(rows + 1 - above, long(1) << shift))
                with T.serial(0, own_rows) as r:
                    T.buffer_store(indptr, tirx.const(0, index), [above + r])
                with T.serial(0, many) as i:
                    row = named("row", above + tirx.Cast("int64", low[begin + i]))
                    T.buffer_store(indptr, indptr[row] + tirx.const(1, index), [row])
                    for number, each in enumerate(sorted_):
                        T.buffer_store(held, each[begin + i], [own + number * room + i])
                T.buffer_store(at, tirx.Cast(index, begin), [0])
                with T.serial(0, own_rows) as r:
                    start = named("start", at[0])
                    T.buffer_store(at, start + indptr[above + r], [0])
                    T.buffer_store(indptr, start, [above + r])
                with T.serial(0, many) as i:
                    row = named("row", above + tirx.Cast("int64", low[begin + i]))
                    place = named("place", tirx.Cast("int64", indptr[row]))
                    T.buffer_store(indptr, indptr[row] + tirx.const(1, index), [row])
                    for number, each in enumerate(sorted_):
                        T.buffer_store(each, held[own + number * room + i], [place])
    return finished(builder, "edges_by_rows")


def _row_of(position: tirx.Expr, rows: tirx.Expr, offsets: tirx.Buffer) -> tirx.Buffer:
    """The last row that begins at a position or before it."""
    row, high = local("row", (1,), "int64"), local("high", (1,), "int64")
    T.buffer_store(row, long(0), [0])
    T.buffer_store(high, rows, [0])
    with T.While(row[0] + 1 < high[0]):
        middle = named("middle", (row[0] + high[0]) >> 1)
        with T.If(tirx.Cast("int64", offsets[middle]) <= position):
            with T.Then():
                T.buffer_store(row, middle, [0])
            with T.Else():
                T.buffer_store(high, middle, [0])
    return row
