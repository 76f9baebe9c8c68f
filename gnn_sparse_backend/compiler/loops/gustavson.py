"""Products of two sparse matrices, row by row (Gustavson, 1978): kernels that are written at stage III, since how many
entries a row has is known when it is computed.

The columns of a row are bits of a set, with a summary: a bit for each word of it, and one for each word of that. So
they are found in ascending order, whatever the order of products, without sorting, and empty stretches are passed over.
"""

from __future__ import annotations

from collections.abc import Callable

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named, unsigned

LEVELS = 3
"""The set of columns, its summary, and that one's."""
BITS = 64


def words_of(columns: int) -> int:
    """The length of a set of columns with its summaries."""
    words = 0
    for _ in range(LEVELS):
        columns = -(-columns // BITS)
        words += columns
    return words


def product_function(dtype: str, counts: bool) -> tirx.PrimFunc:
    """The entries of each row: how many (counts), or which, by ascending column, and their values.

    Parameters: chunks, of rows, each with a set of its own; rows; inner; columns; lefts and rights, entries of both;
    words, of a set; bounds (chunks + 1,), where chunks begin; pointers (rows + 1,) and columns (lefts,) of the first
    matrix, pointers (inner + 1,) and columns (rights,) of the second; sets (chunks * words,), 0 at first and again at
    the end; pointers (rows + 1,) of the result: of counts, the entries behind the first are written: how many there
    are; else where rows begin, and total, entries of the result; values (lefts,) and (rights,) of ``dtype``; sums
    (chunks * columns,) of ``dtype``, workspace; found (total,) and values (total,), written. Integers are int64.
    """
    name = "count_products" if counts else "sparse_products"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        chunks, rows, inner, columns = (argument(each, "int64") for each in ("chunks", "rows", "inner", "columns"))
        lefts, rights, words = (argument(each, "int64") for each in ("lefts", "rights", "words"))
        bounds = array("bounds", chunks + 1, "int64")
        left_pointers, left_columns = array("left_pointers", rows + 1, "int64"), array("left_columns", lefts, "int64")
        right_pointers = array("right_pointers", inner + 1, "int64")
        right_columns = array("right_columns", rights, "int64")
        sets, pointers = array("sets", chunks * words, "int64"), array("pointers", rows + 1, "int64")
        if not counts:
            total = argument("total", "int64")
            left_values, right_values = array("left_values", lefts, dtype), array("right_values", rights, dtype)
            sums = array("sums", chunks * columns, dtype)
            found, values = array("found", total, "int64"), array("values", total, dtype)
        with T.parallel(0, chunks) as chunk:
            begin, have = named("begin", bounds[chunk]), local("have", (1,), "int64")
            members, base = _Set(sets, chunk * words, columns), named("base", chunk * columns)
            T.buffer_store(have, long(0), [0])
            with T.serial(0, bounds[chunk + 1] - begin) as i:
                row = named("row", begin + i)
                with T.serial(0, left_pointers[row + 1] - left_pointers[row]) as a:
                    left = named("left", left_pointers[row] + a)
                    other = named("other", left_columns[left])
                    with T.serial(0, right_pointers[other + 1] - right_pointers[other]) as b:
                        right = named("right", right_pointers[other] + b)
                        column = named("column", right_columns[right])
                        if counts:
                            members.add(column)
                        else:
                            at = named("at", base + column)
                            product = named("product", left_values[left] * right_values[right])
                            first, again = (
                                lambda value=value, at=at: T.buffer_store(sums, value, [at])
                                for value in (product, sums[at] + product)
                            )
                            members.add(column, first, again)
                T.buffer_store(have, long(0) if counts else pointers[row], [0])

                def add(many: tirx.Expr) -> None:
                    T.buffer_store(have, have[0] + many, [0])

                def write(column: tirx.Expr) -> None:
                    T.buffer_store(found, column, [have[0]])
                    T.buffer_store(values, sums[base + column], [have[0]])
                    add(long(1))

                if counts:
                    members.empty(add, None)
                    T.buffer_store(pointers, have[0], [row + 1])
                else:
                    members.empty(None, write)
    return finished(builder, name)


Nothing = Callable[[], None]
Take = Callable[["tirx.Expr"], None]


class _Set:
    """Columns as bits of words, and summaries: a bit for each word that is not 0."""

    def __init__(self, words: tirx.Buffer, base: tirx.Expr, columns: tirx.Expr) -> None:
        self.words, self.levels = words, []
        for level in range(LEVELS):
            base, columns = named(f"level{level}", base), named("words", (columns + (BITS - 1)) >> 6)
            self.levels.append(base)
            base = base + columns
        self.top = columns

    def add(self, column: tirx.Expr, first: Nothing | None = None, again: Nothing | None = None) -> None:
        """Put a column in. first, again: what is done where it was not in, and where it was."""
        word = named("word", column >> 6)
        at = named("at", self.levels[0] + word)
        old = named("old", self.words[at])
        bit = named("bit", long(1) << (column & (BITS - 1)))
        with T.If((old & bit) == long(0)):
            with T.Then():
                T.buffer_store(self.words, old | bit, [at])
                with T.If(old == long(0)), T.Then():
                    self._summarize(1, word)
                if first is not None:
                    first()
            if again is not None:
                with T.Else():
                    again()

    def _summarize(self, level: int, index: tirx.Expr) -> None:
        word = named("word", index >> 6)
        at = named("at", self.levels[level] + word)
        old = named("old", self.words[at])
        T.buffer_store(self.words, old | (long(1) << (index & (BITS - 1))), [at])
        if level + 1 < LEVELS:
            with T.If(old == long(0)), T.Then():
                self._summarize(level + 1, word)

    def empty(self, count: Take | None, take: Take | None) -> None:
        """Take all columns out, ascending, or count those of each word."""
        with T.serial(0, self.top) as i:
            self._empty(LEVELS - 1, i, count, take)

    def _empty(self, level: int, index: tirx.Expr, count: Take | None, take: Take | None) -> None:
        at, left = named("at", self.levels[level] + index), local("left", (1,), "uint64")
        T.buffer_store(left, tirx.Cast("uint64", self.words[at]), [0])
        T.buffer_store(self.words, long(0), [at])
        if level == 0 and count is not None:
            count(tirx.Cast("int64", tirx.popcount(left[0])))
            return
        with T.While(left[0] != unsigned(0)):
            word = named("word", left[0])
            fewer = named("fewer", word - unsigned(1))
            T.buffer_store(left, word & fewer, [0])
            lowest = tirx.Cast("int64", tirx.popcount(tirx.bitwise_not(word) & fewer))
            below = named("below", index * BITS + lowest)
            if level:
                self._empty(level - 1, below, count, take)
            elif take is not None:
                take(below)
