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

    Parameters: count; divide, above 0 where ``by`` are divisors, else they are how many bits are dropped, which takes a
    tenth of the time; times, plus, by and shift of each column; rows, (count * columns,) of ``dtype``; keys, (count +
    1,) int64, written, the last one `LAST`; falls, (1,) int64, written: 1 where a key is not above the one before, else
    0.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("keys_of_rows")
        T.func_attr({"tirx.noalias": True})
        count, divide = argument("count", "int64"), argument("divide", "int64")
        times, plus, by, shift = (_of_columns(name, columns) for name in ("times", "plus", "by", "shift"))
        rows = array("rows", count * columns, dtype)
        keys, falls = array("keys", count + 1, "int64"), array("falls", 1, "int64")
        before, fall = local("before", (1,), "int64"), local("fall", (1,), "int64")
        T.buffer_store(before, long(-1), [0])
        T.buffer_store(fall, long(0), [0])
        for divides, now in ((False, divide == 0), (True, divide > 0)):
            with T.If(now), T.Then(), T.serial(0, count) as i:
                key = long(0)
                for c in range(columns):
                    value = tirx.Cast("int64", rows[i * columns + c]) * times[c] + plus[c]
                    value = tirx.floordiv(value, by[c]) if divides else value >> by[c]
                    key = key | (value << shift[c])
                key = named("key", key)
                T.buffer_store(keys, key, [i])
                T.buffer_store(fall, fall[0] | tirx.Cast("int64", key <= before[0]), [0])
                T.buffer_store(before, key, [0])
        T.buffer_store(falls, fall[0], [0])
        T.buffer_store(keys, long(LAST), [count])
    return finished(builder, "keys_of_rows")


def rows_function(columns: int, dtype: str) -> tirx.PrimFunc:
    """Rows of keys: column c of one is ``((key >> shift[c]) & mask[c]) + plus[c]``.

    Parameters: count; shift, mask and plus of each column; keys, (count,) int64; rows, (count * columns,) of
    ``dtype``, written.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("rows_of_keys")
        T.func_attr({"tirx.noalias": True})
        count = argument("count", "int64")
        shift, mask, plus = (_of_columns(name, columns) for name in ("shift", "mask", "plus"))
        keys, rows = array("keys", count, "int64"), array("rows", count * columns, dtype)
        with T.serial(0, count) as i:
            for c in range(columns):
                value = ((keys[i] >> shift[c]) & mask[c]) + plus[c]
                T.buffer_store(rows, tirx.Cast(dtype, value), [i * columns + c])
    return finished(builder, "rows_of_keys")


def reach_function() -> tirx.PrimFunc:
    """Keys with one of their columns changed to what a kernel reaches along it.

    At offset j of the kernel a value v becomes ``(v * times + plus + j * step) / by``, where that is a whole number
    from ``low`` to ``high``; its bits are 0 for ``lowest`` before, and for ``base`` then.

    Parameters: count; offsets; shift and mask of the column, lowest and base; times, plus, step, by, low and high;
    down, the bits that dividing drops, below 0 where it does more; keys, (count,) int64; reached, (count * offsets,),
    written; found, (1,), written: how many these are.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("reached_keys")
        T.func_attr({"tirx.noalias": True})
        count, offsets, shift, mask, lowest, base = (
            argument(n, "int64") for n in ("count", "offsets", "shift", "mask", "lowest", "base")
        )
        times, plus, step, by, low, high = (
            argument(n, "int64") for n in ("times", "plus", "step", "by", "low", "high")
        )
        down = argument("down", "int64")
        keys, reached = array("keys", count, "int64"), array("reached", count * offsets, "int64")
        found, at = array("found", 1, "int64"), local("at", (1,), "int64")
        T.buffer_store(at, long(0), [0])
        with T.serial(0, count) as i:
            others = named("others", keys[i] & ~(mask << shift))
            first = named("first", (((keys[i] >> shift) & mask) + lowest) * times + plus)
            with T.serial(0, offsets) as j:
                moved = named("moved", first + j * step)
                dropped = moved >> tirx.max(down, long(0))
                value = named("value", tirx.if_then_else(down >= 0, dropped, tirx.floordiv(moved, by)))
                with T.If(tirx.all(value * by == moved, value >= low, value <= high)), T.Then():
                    T.buffer_store(reached, others | ((value - base) << shift), [at[0]])
                    T.buffer_store(at, at[0] + 1, [0])
        T.buffer_store(found, at[0], [0])
    return finished(builder, "reached_keys")


def sort_function(ordered: bool) -> tirx.PrimFunc:
    """Keys in ascending order, and `LAST` behind them; equal ones keep theirs.

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
            T.buffer_store(keys, long(LAST), [count])
        else:
            T.buffer_store(at, long(0), [0])  # the last of those that are kept
            with T.serial(0, count) as i:
                key = named("key", keys[i])
                T.buffer_store(at, at[0] + tirx.Cast("int64", key != keys[at[0]]), [0])
                T.buffer_store(keys, key, [at[0]])
            T.buffer_store(found, at[0] + 1, [0])
            T.buffer_store(keys, long(LAST), [at[0] + 1])
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


def _of_columns(name: str, columns: int) -> list[tirx.Var]:
    """A number for each column."""
    return [argument(f"{name}_{column}", "int64") for column in range(columns)]
