"""Rows of integers as keys and back, and keys in order: kernels that are written at stage III.

Each column has its bits of a key, the first column the highest ones, so that keys ascend as rows do.

Sorts are by digits, the lowest first, each a stable counting sort (radix sort). Stage I has neither bitwise operators
nor stores that depend on those before: so this begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

DIGIT = 11
"""Bits of a digit: its counts are 16 KiB."""
LAST = 2**63 - 1
"""Behind the last key, and above all of them."""


def bounds_function(columns: int, dtype: str) -> tirx.PrimFunc:
    """The smallest and the largest value of each column. Parameters: count >= 1; rows, (count * columns,) of ``dtype``;
    bounds, (2 * columns,) int64, written: all smallest, then all largest ones.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("bounds_of_rows")
        T.func_attr({"tirx.noalias": True})
        count = argument("count", "int64")
        rows, bounds = array("rows", count * columns, dtype), array("bounds", 2 * columns, "int64")
        low, high = local("low", (columns,), dtype), local("high", (columns,), dtype)
        for column in range(columns):
            for each in (low, high):
                T.buffer_store(each, rows[column], [column])
        with T.serial(0, count) as i:
            for column in range(columns):
                value = named("value", rows[i * columns + column])
                T.buffer_store(low, tirx.min(low[column], value), [column])
                T.buffer_store(high, tirx.max(high[column], value), [column])
        for column in range(columns):
            T.buffer_store(bounds, tirx.Cast("int64", low[column]), [column])
            T.buffer_store(bounds, tirx.Cast("int64", high[column]), [columns + column])
    return finished(builder, "bounds_of_rows")


def keys_function(columns: int, dtype: str) -> tirx.PrimFunc:
    """Keys of rows: column c of one is ``(row[c] * times[c] + plus[c]) // by[c]``, which is not negative, moved up by
    ``shift[c]`` bits.

    Parameters: count; chunks, which share the rows, at most as many; rows, (count * columns,) of ``dtype``; how,
    (4 * columns,) int64: times, plus, by and shift of all columns; keys, (count + 1,) int64, written, the last one
    `LAST`; falls, (chunks,) int64, written: 1 where a key of the chunk is not above the one before, else 0.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("keys_of_rows")
        T.func_attr({"tirx.noalias": True})
        count, chunks = argument("count", "int64"), argument("chunks", "int64")
        rows, how = array("rows", count * columns, dtype), array("how", 4 * columns, "int64")
        keys, falls = array("keys", count + 1, "int64"), array("falls", chunks, "int64")

        def key_of(i: tirx.Expr, divide: bool) -> tirx.Expr:
            key = long(0)
            for c in range(columns):
                value = tirx.Cast("int64", rows[i * columns + c]) * how[c] + how[columns + c]
                if divide:
                    value = tirx.floordiv(value, how[2 * columns + c])
                key = key | (value << how[3 * columns + c])
            return key

        divides = tirx.any(*(how[2 * columns + c] != 1 for c in range(columns)))
        with T.parallel(0, chunks) as chunk:
            begin, end = named("begin", chunk * count // chunks), named("end", (chunk + 1) * count // chunks)
            before, fall = local("before", (1,), "int64"), local("fall", (1,), "int64")
            for divide, now in ((True, divides), (False, tirx.Not(divides))):
                with T.If(now), T.Then():
                    T.buffer_store(before, long(-1), [0])
                    T.buffer_store(fall, long(0), [0])
                    with T.If(begin > 0), T.Then():
                        T.buffer_store(before, key_of(begin - 1, divide), [0])
                    with T.serial(0, end - begin) as i:
                        key = named("key", key_of(begin + i, divide))
                        T.buffer_store(keys, key, [begin + i])
                        T.buffer_store(fall, fall[0] | tirx.Cast("int64", key <= before[0]), [0])
                        T.buffer_store(before, key, [0])
            T.buffer_store(falls, fall[0], [chunk])
        T.buffer_store(keys, long(LAST), [count])
    return finished(builder, "keys_of_rows")


def rows_function(columns: int, dtype: str) -> tirx.PrimFunc:
    """Rows of keys: column c of one is ``((key >> shift[c]) & mask[c]) + plus[c]``.

    Parameters: count; keys, (count,) int64; how, (3 * columns,) int64: shift, mask and plus of all columns; rows,
    (count * columns,) of ``dtype``, written.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("rows_of_keys")
        T.func_attr({"tirx.noalias": True})
        count = argument("count", "int64")
        keys, how = array("keys", count, "int64"), array("how", 3 * columns, "int64")
        rows = array("rows", count * columns, dtype)
        with T.serial(0, count) as i:
            for c in range(columns):
                value = ((keys[i] >> how[c]) & how[columns + c]) + how[2 * columns + c]
                T.buffer_store(rows, tirx.Cast(dtype, value), [i * columns + c])
    return finished(builder, "rows_of_keys")


def reach_function() -> tirx.PrimFunc:
    """Keys with one of their columns changed to what a kernel reaches along it.

    At offset j of the kernel a value v becomes ``(v * times + plus + j * step) / by``, where that is a whole number
    from ``low`` to ``high``; its bits are 0 for ``lowest``, and then for ``low``. Parameters: count; offsets; shift and
    mask of the column, and lowest; times, plus, step, by, low and high; keys, (count,) int64; reached, (count *
    offsets,), written; found, (1,), written: how many these are.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("reached_keys")
        T.func_attr({"tirx.noalias": True})
        count, offsets, shift, mask, lowest = (
            argument(n, "int64") for n in ("count", "offsets", "shift", "mask", "lowest")
        )
        times, plus, step, by, low, high = (
            argument(n, "int64") for n in ("times", "plus", "step", "by", "low", "high")
        )
        keys, reached = array("keys", count, "int64"), array("reached", count * offsets, "int64")
        found, at = array("found", 1, "int64"), local("at", (1,), "int64")
        T.buffer_store(at, long(0), [0])
        with T.serial(0, count) as i:
            others = named("others", keys[i] & ~(mask << shift))
            first = named("first", (((keys[i] >> shift) & mask) + lowest) * times + plus)
            with T.serial(0, offsets) as j:
                moved = named("moved", first + j * step)
                value = named("value", tirx.Select(by == 1, moved, tirx.floordiv(moved, by)))
                with T.If(tirx.all(value * by == moved, value >= low, value <= high)), T.Then():
                    T.buffer_store(reached, others | ((value - low) << shift), [at[0]])
                    T.buffer_store(at, at[0] + 1, [0])
        T.buffer_store(found, at[0], [0])
    return finished(builder, "reached_keys")


def sort_function(ordered: bool) -> tirx.PrimFunc:
    """Keys in ascending order; equal ones keep theirs.

    Parameters: count >= 1; digits, of the largest key; keys, (2 * count,) int64, the first half of which is given, and
    is in order then; found, (1,) int64, written. ordered: also order, (2 * count,) int64, the first half written: where
    each key was; found is the first key that is equal to the next, or -1. Otherwise equal keys become one, and found
    is how many there are.
    """
    name = "sorted_keys" if ordered else "distinct_keys"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        count, digits = argument("count", "int64"), argument("digits", "int64")
        keys, found = array("keys", 2 * count, "int64"), array("found", 1, "int64")
        order = array("order", 2 * count, "int64") if ordered else None
        counts, at = local("counts", (1 << DIGIT,), "int64"), local("at", (1,), "int64")
        if order is not None:
            with T.serial(0, count) as i:
                T.buffer_store(order, i, [i])
        with T.serial(0, digits) as digit:
            source = named("source", (digit & long(1)) * count)
            target = named("target", count - source)
            _by_digit(count, digit * DIGIT, source, target, keys, order, counts, at)
        with T.If((digits & long(1)) == 1), T.Then(), T.serial(0, count) as i:
            for each in (keys, order):
                if each is not None:
                    T.buffer_store(each, each[count + i], [i])
        if order is not None:
            T.buffer_store(at, long(0), [0])
            with T.While(tirx.all(at[0] < count - 1, keys[at[0]] != keys[at[0] + 1])):
                T.buffer_store(at, at[0] + 1, [0])
            T.buffer_store(found, tirx.Select(at[0] < count - 1, at[0], long(-1)), [0])
        else:
            T.buffer_store(at, long(0), [0])  # the last of those that are kept
            with T.serial(0, count) as i:
                key = named("key", keys[i])
                T.buffer_store(at, at[0] + tirx.Cast("int64", key != keys[at[0]]), [0])
                T.buffer_store(keys, key, [at[0]])
            T.buffer_store(found, at[0] + 1, [0])
    return finished(builder, name)


def _by_digit(
    count: tirx.Expr,
    shift: tirx.Expr,
    source: tirx.Expr,
    target: tirx.Expr,
    keys: tirx.Buffer,
    order: tirx.Buffer | None,
    counts: tirx.Buffer,
    at: tirx.Buffer,
) -> None:
    """From one half of the arrays to the other, in the order of one digit."""

    def digit_of(key: tirx.Expr) -> tirx.Expr:
        return named("digit", (key >> shift) & long((1 << DIGIT) - 1))

    with T.serial(0, 1 << DIGIT) as d:
        T.buffer_store(counts, long(0), [d])
    with T.serial(0, count) as i:
        d = digit_of(keys[source + i])
        T.buffer_store(counts, counts[d] + 1, [d])
    T.buffer_store(at, target, [0])
    with T.serial(0, 1 << DIGIT) as d:
        begin = named("begin", at[0])
        T.buffer_store(at, begin + counts[d], [0])
        T.buffer_store(counts, begin, [d])
    with T.serial(0, count) as i:
        key = named("key", keys[source + i])
        d = digit_of(key)
        place = named("place", counts[d])
        T.buffer_store(keys, key, [place])
        if order is not None:
            T.buffer_store(order, order[source + i], [place])
        T.buffer_store(counts, place + 1, [d])
