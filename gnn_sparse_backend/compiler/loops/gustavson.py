"""Products of two sparse matrices, row by row (Gustavson, 1978): kernels that are written at stage III, since how many
entries a row has is known when it is computed.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named


def product_function(dtype: str, counts: bool) -> tirx.PrimFunc:
    """The entries of each row: how many (counts), or which, by ascending column, and their values.

    A thread has a mark for each column: the place of its entry in the result, or one before the row's first.

    Parameters: chunks, of rows, each with marks of its own; rows; inner; columns; lefts and rights, entries of both;
    bounds (chunks + 1,), where chunks begin; pointers (rows + 1,) and columns (lefts,) of the first matrix, pointers
    (inner + 1,) and columns (rights,) of the second; marks (chunks * columns,), -1 at first; pointers (rows + 1,) of
    the result: of counts, the entries behind the first are written: how many there are; else where rows begin, and
    total, entries of the result; values (lefts,) and (rights,) of ``dtype``; found (total,) and values (total,),
    written. Integers are int64.
    """
    name = "count_products" if counts else "sparse_products"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        chunks, rows, inner, columns = (argument(each, "int64") for each in ("chunks", "rows", "inner", "columns"))
        lefts, rights = argument("lefts", "int64"), argument("rights", "int64")
        bounds = array("bounds", chunks + 1, "int64")
        left_pointers, left_columns = array("left_pointers", rows + 1, "int64"), array("left_columns", lefts, "int64")
        right_pointers = array("right_pointers", inner + 1, "int64")
        right_columns = array("right_columns", rights, "int64")
        marks, pointers = array("marks", chunks * columns, "int64"), array("pointers", rows + 1, "int64")
        if not counts:
            total = argument("total", "int64")
            left_values, right_values = array("left_values", lefts, dtype), array("right_values", rights, dtype)
            found, values = array("found", total, "int64"), array("values", total, dtype)
        with T.parallel(0, chunks) as chunk:
            begin, have = named("begin", bounds[chunk]), local("have", (1,), "int64")
            T.buffer_store(have, long(0), [0])
            with T.serial(0, bounds[chunk + 1] - begin) as i:
                row = named("row", begin + i)
                first = named("first", have[0] if counts else pointers[row])
                T.buffer_store(have, first, [0])
                with T.serial(0, left_pointers[row + 1] - left_pointers[row]) as a:
                    left = named("left", left_pointers[row] + a)
                    other = named("other", left_columns[left])
                    with T.serial(0, right_pointers[other + 1] - right_pointers[other]) as b:
                        right = named("right", right_pointers[other] + b)
                        place = named("place", chunk * columns + right_columns[right])
                        mark = named("mark", marks[place])
                        with T.If(mark < first):
                            with T.Then():
                                T.buffer_store(marks, have[0], [place])
                                if not counts:
                                    T.buffer_store(found, right_columns[right], [have[0]])
                                    T.buffer_store(values, left_values[left] * right_values[right], [have[0]])
                                T.buffer_store(have, have[0] + 1, [0])
                            if not counts:
                                with T.Else():
                                    product = left_values[left] * right_values[right]
                                    T.buffer_store(values, values[mark] + product, [mark])
                if counts:
                    T.buffer_store(pointers, have[0] - first, [row + 1])
                else:
                    _sort(found, values, first, named("count", have[0] - first))
    return finished(builder, name)


def _sort(found: tirx.Buffer, values: tirx.Buffer, first: tirx.Expr, count: tirx.Expr) -> None:
    """Sort a row's entries by column (Shell, 1959, by gaps of Knuth's)."""
    gap, place, going = (local(name, (1,), "int64") for name in ("gap", "at", "going"))
    T.buffer_store(gap, long(1), [0])
    with T.While(gap[0] * 3 + 1 < count):
        T.buffer_store(gap, gap[0] * 3 + 1, [0])
    with T.While(gap[0] > 0):
        step = named("step", gap[0])
        with T.serial(0, tirx.max(count - step, long(0))) as i:
            at = named("at", first + step + i)
            column, value = named("column", found[at]), named("value", values[at])
            T.buffer_store(place, at, [0])
            T.buffer_store(going, long(1), [0])
            with T.While(going[0] > 0):
                before = named("before", tirx.max(place[0] - step, first))
                with T.If(tirx.all(place[0] - step >= first, found[before] > column)):
                    with T.Then():
                        T.buffer_store(found, found[before], [place[0]])
                        T.buffer_store(values, values[before], [place[0]])
                        T.buffer_store(place, before, [0])
                    with T.Else():
                        T.buffer_store(going, long(0), [0])
            T.buffer_store(found, column, [place[0]])
            T.buffer_store(values, value, [place[0]])
        T.buffer_store(gap, tirx.truncdiv(step, long(3)), [0])
