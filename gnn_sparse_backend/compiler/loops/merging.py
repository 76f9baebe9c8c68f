"""Pairs of sites that a convolution's kernel connects, found by merging: kernels that are written at stage III.

Both lists of keys ascend. So do those of the sites that an offset wants, each a constant away from its output's: one
walk through both lists finds all pairs of the offset, and of those behind it in its line, which want the keys that
follow. A first pass counts, a second one writes where the counts say.

Stage I merges lists of one row with each other, not a list with itself moved: so this begins at stage III.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named

COUNT, FILL = "count", "fill"


def pairs_function(what: str, parallel: bool, index: str = "int64") -> tirx.PrimFunc:
    """All pairs of the first ``known`` offsets, and of those that mirror them.

    Outputs are shared out in chunks, at most as many, to threads if ``parallel``. At offset ``places[lines + l] + j``
    of line l output i wants the key ``first[i] + places[l] + j``; ``keys`` are those of the inputs.

    Parameters: inputs and outputs, how many there are; chunks, lines, known, offsets; keys (inputs + 1,) and first
    (outputs + 1,), ascending, with a key above all others behind them; places (2 * lines + 1,), in the second half
    where the offsets of each line begin. count: counts, (chunks * known,) and indptr, (offsets + 1,), written: where
    the pairs of each chunk and offset begin, and those of each offset. fill: both, of which counts are used up; pairs,
    how many; In and Out, (pairs,) of type ``index``, written: input and output of each, by offset, then by output.

    Where ``known`` is less than ``offsets``, half of it rounded down, offset ``offsets - 1 - k`` has the pairs of k
    with their ends swapped, and the one in the middle each site with itself.
    """
    name = f"{what}_pairs"
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        sizes = (argument(n, "int64") for n in ("inputs", "outputs", "chunks", "lines", "known", "offsets"))
        inputs, outputs, chunks, lines, known, offsets = sizes
        keys, first = array("keys", inputs + 1, "int64"), array("first", outputs + 1, "int64")
        places = array("places", 2 * lines + 1, "int64")
        counts, indptr = array("counts", chunks * known, "int64"), array("indptr", offsets + 1, "int64")
        if what == FILL:
            pairs = argument("pairs", "int64")
            ends = array("In", pairs, index), array("Out", pairs, index)
        with (T.parallel if parallel else T.serial)(0, chunks) as chunk:
            begin, end = named("begin", chunk * outputs // chunks), named("end", (chunk + 1) * outputs // chunks)
            at, next_ = local("at", (1,), "int64"), local("next", (1,), "int64")
            if what == COUNT:
                with T.serial(0, known) as k:
                    T.buffer_store(counts, long(0), [chunk * known + k])
            with T.serial(0, lines) as l:
                start, begins = named("start", places[l]), named("begins", places[lines + l])
                many = named("many", places[lines + l + 1] - begins)
                _search(keys, inputs, first[begin] + start, at)
                with T.serial(0, end - begin) as i:
                    output = named("output", begin + i)
                    wanted = named("wanted", first[output] + start)
                    with T.While(keys[at[0]] < wanted):
                        T.buffer_store(at, at[0] + 1, [0])
                    with T.If(keys[at[0]] < wanted + many), T.Then():
                        T.buffer_store(next_, at[0], [0])
                        with T.serial(0, many) as j:
                            k = named("k", begins + j)
                            here = named("here", chunk * known + k)
                            there = keys[next_[0]] == wanted + j
                            if what == COUNT:
                                found = named("found", tirx.Cast("int64", there))
                                T.buffer_store(counts, counts[here] + found, [here])
                                T.buffer_store(next_, next_[0] + found, [0])
                            else:
                                with T.If(there), T.Then():
                                    place = named("place", counts[here])
                                    _put(ends, place, next_[0], output)
                                    with T.If(known < offsets), T.Then():
                                        mirrored = indptr[offsets - 1 - k] + place - indptr[k]
                                        _put(ends, mirrored, output, next_[0])
                                    T.buffer_store(counts, place + 1, [here])
                                    T.buffer_store(next_, next_[0] + 1, [0])
            if what == FILL:
                with T.If(known * 2 < offsets), T.Then(), T.serial(0, end - begin) as i:
                    _put(ends, indptr[known] + begin + i, begin + i, begin + i)
        if what == COUNT:
            _begins(outputs, chunks, known, offsets, counts, indptr)
    return finished(builder, name)


def _search(keys: tirx.Buffer, count: tirx.Expr, wanted: tirx.Expr, at: tirx.Buffer) -> None:
    """The first key that is not below the wanted one."""
    wanted, high = named("wanted", wanted), local("high", (1,), "int64")
    T.buffer_store(at, long(0), [0])
    T.buffer_store(high, count, [0])
    with T.While(at[0] < high[0]):
        middle = named("middle", (at[0] + high[0]) >> 1)
        with T.If(keys[middle] < wanted):
            with T.Then():
                T.buffer_store(at, middle + 1, [0])
            with T.Else():
                T.buffer_store(high, middle, [0])


def _put(ends: tuple[tirx.Buffer, tirx.Buffer], place: tirx.Expr, source: tirx.Expr, output: tirx.Expr) -> None:
    for array_, value in zip(ends, (source, output)):
        T.buffer_store(array_, tirx.Cast(array_.dtype, value), [place])


def _begins(
    outputs: tirx.Expr,
    chunks: tirx.Expr,
    known: tirx.Expr,
    offsets: tirx.Expr,
    counts: tirx.Buffer,
    indptr: tirx.Buffer,
) -> None:
    """Counts become where the pairs of each chunk and offset begin."""
    total = local("total", (1,), "int64")
    T.buffer_store(total, long(0), [0])
    with T.serial(0, offsets) as k:
        T.buffer_store(indptr, total[0], [k])
        mirrored = named("mirrored", offsets - 1 - k)
        with T.If(k < known):
            with T.Then(), T.serial(0, chunks) as chunk:
                many = named("many", counts[chunk * known + k])
                T.buffer_store(counts, total[0], [chunk * known + k])
                T.buffer_store(total, total[0] + many, [0])
            with T.Else(), T.If(mirrored < known):
                with T.Then():
                    T.buffer_store(total, total[0] + indptr[mirrored + 1] - indptr[mirrored], [0])
                with T.Else():
                    T.buffer_store(total, total[0] + outputs, [0])
    T.buffer_store(indptr, total[0], [offsets])


def reorder_function(parallel: bool, index: str) -> tirx.PrimFunc:
    """Pairs of each offset, which are by output, by other numbers of the outputs.

    Parameters: outputs, offsets, pairs, tasks, which threads share if ``parallel``; indptr (offsets + 1,); numbers,
    (outputs,) int64, the new number of each output; rows, (tasks * outputs,) of type ``index``, all -1, as they are
    left; In and Out, (pairs,), rewritten.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("reorder_pairs")
        T.func_attr({"tirx.noalias": True})
        outputs, offsets, pairs, tasks = (argument(n, "int64") for n in ("outputs", "offsets", "pairs", "tasks"))
        indptr, numbers = array("indptr", offsets + 1, "int64"), array("numbers", outputs, "int64")
        rows = array("rows", tasks * outputs, index)
        ends = array("In", pairs, index), array("Out", pairs, index)
        none = tirx.const(-1, index)
        with (T.parallel if parallel else T.serial)(0, tasks) as task:
            at = local("at", (1,), "int64")
            with T.serial(0, (offsets - task + tasks - 1) // tasks) as turn:
                k = named("k", task + turn * tasks)
                with T.serial(0, indptr[k + 1] - indptr[k]) as p:
                    pair = named("pair", indptr[k] + p)
                    number = numbers[tirx.Cast("int64", ends[1][pair])]
                    T.buffer_store(rows, ends[0][pair], [task * outputs + number])
                T.buffer_store(at, indptr[k], [0])
                with T.serial(0, outputs) as i:
                    source = named("source", rows[task * outputs + i])
                    with T.If(source >= tirx.const(0, index)), T.Then():
                        _put(ends, at[0], source, i)
                        T.buffer_store(at, at[0] + 1, [0])
                        T.buffer_store(rows, none, [task * outputs + i])
    return finished(builder, "reorder_pairs")
